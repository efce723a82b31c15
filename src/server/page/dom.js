/* Elements without markup from strings, and the small services that every part uses. */

const $ = (id) => document.getElementById(id);

/* el('button.quiet', {type: 'button', onclick: f}, 'text', child...): properties, and attributes
 * where a name has a dash or is no property. */
function el(what, props = {}, ...children) {
  const [tag, ...classes] = what.split('.');
  const node = document.createElement(tag);
  node.classList.add(...classes);
  for (const [key, value] of Object.entries(props)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((c) => c != null && c !== ''));
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';
function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  const use = document.createElementNS(SVG, 'use');
  svg.classList.add('icon');
  svg.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', '#icon-' + name);
  svg.append(use);
  return svg;
}

/* A button that shows an icon and bears its name for screen readers and as a tip. */
const iconButton = (name, label, onclick) =>
  el('button.quiet', { type: 'button', title: label, 'aria-label': label, onclick }, icon(name));

/* What a screen reader says, without moving the focus. */
function say(text) {
  $('said').textContent = text;
}

/* A sentence for everyone, gone after a while. */
function notice(text) {
  const box = $('notice');
  box.textContent = text;
  box.hidden = false;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => (box.hidden = true), 8000);
}

/* One line from the user: its text, or null when they changed their mind. Without `text` it is a
 * question, answered by true or null. */
function ask(title, yes, text) {
  const dialog = $('ask');
  const input = $('ask-text');
  $('ask-title').textContent = title;
  $('ask-yes').textContent = yes;
  input.hidden = text === undefined;
  input.value = text ?? '';
  dialog.returnValue = '';
  dialog.showModal();
  if (text === undefined) $('ask-yes').focus();
  else input.select();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue !== 'yes' ? null : text === undefined ? true : input.value.trim());
  });
}

/* Pages that are not on localhost or https have no navigator.clipboard. */
async function copyText(text, button) {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    const area = el('textarea.unseen', { value: text });
    document.body.append(area);
    area.select();
    done = document.execCommand('copy');
    area.remove();
    button.focus();
  }
  say(done ? 'Copied' : 'The browser does not allow copying');
  button.classList.toggle('done', done);
  setTimeout(() => button.classList.remove('done'), 1500);
}

function saveFile(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const count = (n) => n.toLocaleString('en');
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;
const short = (n) => (n < 1000 ? String(n) : n < 9950 ? (n / 1000).toFixed(1) + 'k' : Math.round(n / 1000) + 'k');
const seconds = (ms) => (ms < 9950 ? (ms / 1000).toFixed(1) : Math.round(ms / 1000)) + ' s';
/* Hex digits, so that an id is never the name of something else. (randomUUID needs https.) */
const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, '0')).join('');

/* Grows a text area with its text, up to what the style sheet allows. */
function fit(area) {
  area.style.height = 'auto';
  area.style.height = area.scrollHeight + 2 + 'px';
}
