/* The conversation on screen: its messages in order, kept up to date while one is written, and
 * what can be done with them. */

let current = null; /* the chat shown; not stored before its first message */
const views = new Map(); /* node id -> its view on screen */

function showChat(chat) {
  current = chat;
  const path = pathOf(chat);
  views.clear();
  for (const { node, siblings } of path) views.set(node.id, messageView(node, siblings));
  $('thread').replaceChildren(...(chat.system ? [systemView(chat)] : []), ...views.values());
  document.body.classList.toggle('empty', !path.length);
  $('title').textContent = chat.title || 'New chat';
  document.title = chat.title ? `${chat.title} · pantheon` : 'pantheon';
  const address = chats.has(chat.id) ? '#' + chat.id : location.pathname + location.search;
  if (location.hash !== address) history.pushState(null, '', address);
  showFigures();
  showChats();
  toEnd();
}

const isLast = (node) => pathOf(current).at(-1)?.node === node;

function systemView(chat) {
  const body = el('div.text', {}, chat.system);
  const details = el('details.system', {}, el('summary', {}, 'System prompt'), body,
    el('button', { type: 'button', onclick: () => edit() }, 'Edit'));
  const edit = () => details.replaceWith(editor);
  const editor = editorOf(chat.system, 'Save', (text) => {
    chat.system = text;
    chat.changed = Date.now();
    store.save(chat);
    showChat(chat);
  }, () => editor.replaceWith(details));
  return details;
}

/* The state of the buttons and of the context's figure. */
function showFigures() {
  const run = runOf(current);
  $('send').hidden = !!run;
  $('stop').hidden = !run;
  const last = pathOf(current).findLast(({ node }) => node.figures?.prompt !== undefined)?.node.figures;
  const used = last ? last.prompt + last.generated : 0;
  $('context').textContent = used ? short(used) + (model.n_ctx ? ' / ' + Math.round(model.n_ctx / 1024) + 'k' : '') : '';
}

/* --- while an answer is written --------------------------------------------------------------- */

/* Called for every piece; the screen follows as often as showing takes a fifth of the time. */
function showRun(run) {
  if (run.chat !== current) {
    if (!running.has(run.node.id)) showChats();
    return;
  }
  if (!running.has(run.node.id)) return showNow(run);
  run.timer ??= setTimeout(() => requestAnimationFrame(() => showNow(run)), run.pause ?? 0);
}

function showNow(run) {
  clearTimeout(run.timer);
  run.timer = undefined;
  if (run.chat !== current) return;
  const begun = performance.now();
  const isRunning = running.has(run.node.id);
  const isAtEnd = atEnd();
  views.get(run.node.id)?.update();
  if (isAtEnd) toEnd();
  if (!isRunning || !run.isShown) showFigures();
  run.isShown = true;
  if (!isRunning) showChats();
  run.pause = Math.min(500, 4 * (performance.now() - begun));
}

/* Waiting times go on while no piece comes. */
setInterval(() => {
  for (const run of running.values()) if (!run.firstMs) showRun(run);
}, 500);

const atEnd = () => {
  const log = $('log');
  return log.scrollHeight - log.scrollTop - log.clientHeight < 60;
};
function toEnd() {
  $('log').scrollTop = $('log').scrollHeight;
  $('to-end').hidden = true;
}

/* --- what the user does with messages --------------------------------------------------------- */

function begin(chat, node) {
  chats.set(chat.id, chat);
  chat.title ||= titleFrom(Object.values(chat.nodes).find((n) => n.role === 'user')?.content ?? '');
  const written = writeAnswer(chat, node);
  store.save(chat);
  showChat(chat);
  return written;
}

const isBusy = () => {
  if (runOf(current)) notice('The model is still writing here; stop it first.');
  return !!runOf(current);
};

function send(text) {
  const last = pathOf(current).at(-1)?.node;
  const user = addNode(current, last?.id ?? '', 'user', { content: text });
  begin(current, newAnswer(current, user.id));
}

/* A changed message begins a branch; the old one stays beside it. */
function sendEdited(node, text) {
  if (!text.trim() || isBusy()) return;
  const user = addNode(current, node.parent, 'user', { content: text });
  begin(current, newAnswer(current, user.id));
  $('input').focus();
}

function sendResults(node, results) {
  if (isBusy()) return;
  const tool = addNode(current, node.id, 'tool', { results: node.calls.map((call, i) => ({ id: call.id, content: results[i] })) });
  begin(current, newAnswer(current, tool.id));
}

/* Another answer beside this one, or in its place if nothing came. */
function regenerate(node) {
  if (isBusy()) return;
  begin(current, isEmpty(node) ? node : newAnswer(current, node.parent));
  $('input').focus();
}

function goOn(node) {
  if (isBusy()) return;
  writeAnswer(current, node, true);
  showChat(current);
  $('input').focus();
}

function switchBranch(node) {
  current.pick[node.parent] = node.id;
  store.save(current);
  const top = $('log').scrollTop;
  showChat(current);
  $('log').scrollTop = top;
  views.get(node.id)?.querySelector('.branches button:not(:disabled)')?.focus();
}

function stopAnswer() {
  const run = runOf(current);
  run?.abort.abort();
  return !!run;
}
