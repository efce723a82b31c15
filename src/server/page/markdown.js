/* Markdown from the model to elements. The text is hostile: HTML in it is shown as text, what
 * marked makes of the rest passes DOMPurify, and the page's policy stops what might pass both. */

const MARKED = { gfm: true, mangle: false, headerIds: false };

const PURIFY = {
  ALLOWED_TAGS: ['a', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'input', 'li',
    'ol', 'p', 'pre', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul'],
  ALLOWED_ATTR: ['align', 'checked', 'class', 'disabled', 'href', 'start', 'title', 'type'],
  ADD_URI_SAFE_ATTR: ['align', 'checked', 'disabled', 'start', 'type'],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const escapeHtml = (s) => s.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

/* TeX stays as it was written: emphasis and backslashes in it are not markdown's. */
const TEX = /^(?:\$\$[^]+?\$\$|\\\[[^]+?\\\]|\\\([^]+?\\\)|\$(?![\s$])[^$\n]*?[^\s$\\]\$(?!\d))/;
marked.use({
  ...MARKED,
  extensions: [{
    name: 'tex',
    level: 'inline',
    start: (src) => src.match(/\$|\\[[(]/)?.index,
    tokenizer(src) {
      const found = TEX.exec(src);
      return found ? { type: 'tex', raw: found[0] } : undefined;
    },
    renderer: (token) => `<code class="tex">${escapeHtml(token.raw)}</code>`,
  }],
  renderer: {
    html: (html) => (/^<br *\/?>$/i.test(html) ? '<br>' : escapeHtml(html)),
    /* A picture would be fetched from elsewhere, which tells that server who reads what. */
    image: (href, title, text) => `<a href="${escapeHtml(href ?? '')}">${escapeHtml(text || href || '')}</a>`,
  },
});

DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName === 'A') {
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer nofollow');
  }
});

/* marked's rules for what stands within a line take time by the square of its length, and a model
 * that repeats itself writes long ones: they are read in pieces, cut at white space. */
const piecesOf = (text) => text.match(/[^]{1,1000}(?=\s|$)|[^]{1,1000}/gu) ?? [];

/* The blocks of text. `known` has what the pieces of its lines were read as; returned is the same
 * for the next time. */
function lex(text, known) {
  const lexer = new marked.Lexer(marked.defaults);
  const pieces = new Map();
  lexer.blockTokens(text.replace(/\r\n?/g, '\n'), lexer.tokens);
  for (const line of lexer.inlineQueue) {
    for (const piece of piecesOf(line.src)) {
      if (!pieces.has(piece)) pieces.set(piece, known.get(piece) ?? lexer.inlineTokens(piece));
      line.tokens.push(...pieces.get(piece));
    }
  }
  return { tokens: lexer.tokens.filter((t) => t.type !== 'space' && t.type !== 'def'), pieces };
}

/* Shows text in box, block by block: blocks that have not changed since the last call keep their
 * elements, so that a selection in them stays and a long answer costs little a token. `isWhole`
 * renders all anew, as a link's target may have come after its first use. */
function renderMarkdown(box, text, isWhole) {
  const old = isWhole || !box.read ? { blocks: [], pieces: new Map() } : box.read;
  try {
    renderBlocks(box, lex(text, old.pieces), old.blocks);
  } catch {
    /* Nested deeper than marked's recursion goes: as it is. */
    box.replaceChildren(el('div', {}, el('pre', {}, text)));
    box.read = undefined;
  }
}

function renderBlocks(box, { tokens, pieces }, old) {
  let same = 0;
  while (same < tokens.length && tokens[same].raw === old[same]) same++;
  while (box.childNodes.length > same) box.lastChild.remove();
  for (const token of tokens.slice(same)) {
    const block = el('div', {}, DOMPurify.sanitize(marked.parser([token]), PURIFY));
    for (const pre of block.querySelectorAll('pre')) dressCode(pre);
    for (const table of block.querySelectorAll('table')) {
      const frame = el('div.table', { tabIndex: 0, role: 'region', 'aria-label': 'Table' });
      table.replaceWith(frame);
      frame.append(table);
    }
    box.append(block);
  }
  box.read = { blocks: tokens.map((t) => t.raw), pieces };
}

/* Gives a code block its head: the language's name and a button that copies. */
function dressCode(pre) {
  const code = pre.querySelector('code') ?? pre;
  const language = /language-(\S+)/.exec(code.className)?.[1] ?? '';
  const text = code.textContent;
  const copy = iconButton('copy', 'Copy code', () => copyText(text, copy));
  const frame = el('div.codeblock', {}, el('div.codehead', {}, el('span', {}, language), copy));
  pre.replaceWith(frame);
  pre.tabIndex = 0; /* so that the keyboard can scroll it */
  code.replaceChildren(...paint(text, language));
  frame.append(pre);
}

/* The same few colours for every language: comments, strings, numbers, words that languages keep. */
const WORDS = new Set(('abstract and as assert async auto await bool boolean break byte case catch char class const constexpr '
  + 'continue def default defer del delete do double elif else end enum except export extends extern false final finally '
  + 'float fn for foreach from func function global go goto if impl implements import in include inline int interface is '
  + 'lambda let local long loop match mod module mut namespace new nil none not null or override package pass private '
  + 'protected pub public raise ref register restrict return self short signed sizeof static struct super switch template '
  + 'then this throw trait true try type typedef typename undefined union unsafe unsigned use using var virtual void '
  + 'volatile when where while with yield select insert update set values create table join on group order by limit').split(' '));
const HASH_COMMENT = /^(?:bash|sh|shell|zsh|console|py|python|rb|ruby|perl|r|yaml|yml|toml|make|makefile|dockerfile|cmake|nix|ini|conf)$/i;
const DASH_COMMENT = /^(?:sql|lua|haskell|hs|ada|elm)$/i;
const PLAIN = /^(?:|text|txt|plain|plaintext|output|log|markdown|md|diff)$/i;

function* paint(text, language) {
  if (PLAIN.test(language)) return yield text;
  const line = HASH_COMMENT.test(language) ? '(?<![\\w$&])#[^\\n]*' : DASH_COMMENT.test(language) ? '--[^\\n]*' : '(?<!:)\\/\\/[^\\n]*';
  const token = new RegExp(
    `(?<comment>${line}|\\/\\*[^]*?(?:\\*\\/|$)|<!--[^]*?(?:-->|$))`
    + '|(?<string>"""[^]*?(?:"""|$)|"(?:\\\\.|[^"\\\\\\n])*"?|\'(?:\\\\.|[^\'\\\\\\n])*\'|`(?:\\\\.|[^`\\\\])*`)'
    + '|(?<number>\\b(?:0[xob][\\da-f_]+|\\d[\\d_]*(?:\\.\\d+)?(?:e[+-]?\\d+)?)\\w*)|(?<word>[a-z_]\\w*)', 'gi');
  let at = 0;
  for (const found of text.matchAll(token)) {
    const kind = Object.keys(found.groups).find((k) => found.groups[k] !== undefined);
    if (kind === 'word' && !WORDS.has(/sql/i.test(language) ? found[0].toLowerCase() : found[0])) continue;
    yield text.slice(at, found.index);
    yield el('span.' + kind, {}, found[0]);
    at = found.index + found[0].length;
  }
  yield text.slice(at);
}
