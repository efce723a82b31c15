/* How one message looks. A view is an element with update(), which shows its node's present state
 * and keeps what the reader has opened or selected. */

const siblingButtons = (siblings, node) => {
  const at = siblings.indexOf(node);
  const go = (to, name, label) => {
    const button = iconButton(name, label, () => switchBranch(siblings[to]));
    button.disabled = !siblings[to];
    return button;
  };
  return el('span.branches', { role: 'group', 'aria-label': 'Versions' },
    go(at - 1, 'left', 'Version before'), el('span', {}, `${at + 1}/${siblings.length}`), go(at + 1, 'right', 'Next version'));
};

function messageView(node, siblings) {
  const view = { user: userView, assistant: assistantView, tool: toolView }[node.role](node);
  if (siblings.length > 1) view.actions.prepend(siblingButtons(siblings, node));
  view.dataset.id = node.id;
  view.update();
  return view;
}

/* --- what the user wrote ---------------------------------------------------------------------- */

function userView(node) {
  const text = el('div.text', {}, node.content);
  const copy = iconButton('copy', 'Copy message', () => copyText(node.content, copy));
  const actions = el('div.actions', {}, iconButton('edit', 'Edit message', () => edit()), copy);
  const view = el('article.user', { 'aria-label': 'You' }, text, actions);
  const edit = () => {
    const editor = editorOf(node.content, 'Send', (content) => sendEdited(node, content), () => {
      editor.replaceWith(text, actions);
      actions.querySelector('button').focus();
    });
    text.remove();
    actions.replaceWith(editor);
    editor.begin();
  };
  return Object.assign(view, { actions, edit, update() {} });
}

/* A text to change in place: Enter is `yes`, Escape gives up. */
function editorOf(content, yes, onDone, onCancel) {
  const area = el('textarea', { value: content, 'aria-label': 'Edit message' });
  const editor = el('form.editor', {}, area, el('div.row', {},
    el('button', { type: 'button', onclick: onCancel }, 'Cancel'), el('button.primary.wide', { type: 'submit' }, yes)));
  editor.onsubmit = (event) => {
    event.preventDefault();
    onDone(area.value);
  };
  area.oninput = () => fit(area);
  area.onkeydown = (event) => {
    if (isSendKey(event)) {
      event.preventDefault();
      editor.requestSubmit();
    } else if (event.key === 'Escape') {
      event.stopPropagation();
      onCancel();
    }
  };
  editor.begin = () => {
    fit(area);
    area.focus();
  };
  return editor;
}

/* --- what the model wrote --------------------------------------------------------------------- */

function assistantView(node) {
  const thought = thoughtView(node);
  const text = el('div.text.markdown');
  const calls = el('div.calls');
  const state = el('p.state.faint');
  const problem = el('div.problem');
  const figures = el('span.figures.faint');
  const copy = iconButton('copy', 'Copy answer', () => copyText(node.content, copy));
  const actions = el('div.actions', {}, copy, iconButton('again', 'Regenerate', () => regenerate(node)), figures);
  const view = el('article.assistant', { 'aria-label': 'Model' }, thought, text, calls, state, problem, actions);
  let wasRunning = true;
  return Object.assign(view, {
    actions,
    update() {
      const run = running.get(node.id);
      view.ariaBusy = String(!!run);
      thought.update(run);
      renderMarkdown(text, node.content, wasRunning && !run);
      calls.replaceChildren(...node.calls.filter(Boolean).map(callView));
      state.textContent = run ? waitingText(run) : '';
      figures.textContent = figuresText(node);
      actions.hidden = !!run;
      problem.replaceChildren(...(run ? [] : endNotes(node)));
      wasRunning = !!run;
    },
  });
}

/* Why nothing is to be seen yet. */
function waitingText(run) {
  const { node, progress } = run;
  if (run.firstMs) return '';
  const waited = performance.now() - run.begun;
  if (node.content || waited < 400) return '';
  return progress?.total
    ? `Reading: ${count(progress.processed)} of ${plural(progress.total, 'token')}`
    : waited > 1500 ? `Waiting for the first token, ${seconds(waited)}` : '';
}

function thoughtView(node) {
  const title = el('span');
  const body = el('div.text');
  const details = el('details', {}, el('summary', {}, icon('think'), title), body);
  const now = el('button', { type: 'button' }, 'Answer now');
  const box = el('div.thought', {}, details, now);
  details.ontoggle = () => body.textContent !== node.thought && (body.textContent = node.thought);
  box.update = (run) => {
    const isNow = !!run && isThinking(run);
    box.hidden = !node.thought;
    now.hidden = !isNow;
    now.onclick = () => {
      now.disabled = true;
      answerNow(run);
    };
    if (!isNow) now.disabled = false;
    const n = node.figures.thought || run?.nThought || 0;
    title.textContent = `${isNow ? 'Thinking' : 'Thought'} for ${seconds(node.thoughtMs)}${n ? ', ' + plural(n, 'token') : ''}`;
    box.classList.toggle('active', isNow);
    if (details.open) body.textContent = node.thought;
  };
  return box;
}

function callView(call) {
  let args = call.args;
  try {
    args = JSON.stringify(JSON.parse(args), null, 2);
  } catch {
    /* unfinished: as far as it came */
  }
  return el('div.call', {}, el('div.codehead', {}, el('span', {}, 'calls ', el('b', {}, call.name))), el('pre', { tabIndex: 0 }, ...paint(args, 'json')));
}

function figuresText({ figures: f }) {
  const parts = [];
  if (f.perSecond) parts.push(`${f.perSecond.toFixed(1)} tokens/s`);
  if (f.generated !== undefined) parts.push(`${plural(f.generated, 'token')} written`);
  if (f.prompt !== undefined) parts.push(`${count(f.prompt)} read, ${count(f.cached)} of them cached`);
  if (f.firstMs) parts.push(`first after ${seconds(f.firstMs)}`);
  return parts.join(' · ');
}

/* What to say below an answer that did not end by itself, and what can be done about it. */
function endNotes(node) {
  const texts = {
    length: 'The answer is cut at the limit of tokens.',
    stopped: 'Stopped.',
    lost: `${node.problem} What came is kept.`,
    error: node.problem,
  };
  if (!node.finish && Date.now() - node.changed < 3000) return [el('p', {}, 'Being written in another window.')];
  const text = node.finish ? texts[node.finish] : 'The page was closed while this was written. What came is kept.';
  if (!text) return node.calls.length && isLast(node) ? [resultForm(node)] : [];
  const buttons = [];
  if (!isEmpty(node) && !node.calls.length && isLast(node)) {
    buttons.push(el('button', { type: 'button', onclick: () => goOn(node) }, 'Continue'));
  } else if (isLast(node)) {
    buttons.push(el('button', { type: 'button', onclick: () => regenerate(node) }, 'Try again'));
  }
  if (/API key/.test(node.problem)) buttons.push(el('button', { type: 'button', onclick: openSettings }, 'Settings'));
  return [el('p', {}, text), ...buttons];
}

/* --- tools, whose results are typed by hand --------------------------------------------------- */

function resultForm(node) {
  const areas = node.calls.map((call) => el('textarea.code', { rows: 2, 'aria-label': `Result of ${call.name}`, placeholder: `Result of ${call.name}` }));
  const form = el('form.editor', {}, ...areas, el('div.row', {}, el('button.primary.wide', { type: 'submit' }, 'Send results')));
  form.onsubmit = (event) => {
    event.preventDefault();
    sendResults(node, areas.map((area) => area.value));
  };
  return form;
}

function toolView(node) {
  const actions = el('div.actions');
  const view = el('article.tool', { 'aria-label': 'Tool results' },
    ...node.results.map((r) => el('div.call', {}, el('div.codehead', {}, 'result'), el('pre', { tabIndex: 0 }, r.content))), actions);
  return Object.assign(view, { actions, update() {} });
}
