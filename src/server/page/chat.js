/* A conversation as a tree of messages: editing or regenerating one adds a branch beside it.
 *
 * chat: {id, title, at, changed, system, nodes: {id: node}, pick: {parent id: id of the child shown}}
 * node: {id, parent, role, at, changed, content} and
 *   of an assistant: thought, thoughtMs, calls: [{id, name, args}], finish, problem, figures
 *   of tools: results: [{id, content}], one for each call of the message before
 * The root's id is ''. Times are milliseconds since 1970. */

const newChat = () => ({ id: newId(), title: '', at: Date.now(), changed: Date.now(), system: settings.system, nodes: {}, pick: {} });

function addNode(chat, parent, role, fields = {}) {
  const node = { id: newId(), parent, role, at: Date.now(), changed: Date.now(), content: '', ...fields };
  chat.nodes[node.id] = node;
  chat.pick[parent] = node.id;
  chat.changed = Date.now();
  return node;
}

/* Children of each parent, oldest first. */
function childrenOf(chat) {
  const children = new Map();
  for (const node of Object.values(chat.nodes)) {
    if (!children.has(node.parent)) children.set(node.parent, []);
    children.get(node.parent).push(node);
  }
  for (const list of children.values()) list.sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
  return children;
}

/* The messages shown, first to last: [{node, siblings}]. */
function pathOf(chat) {
  const children = childrenOf(chat);
  const path = [];
  for (let list = children.get(''); list; list = children.get(path.at(-1).node.id)) {
    const parent = list[0].parent;
    path.push({ node: list.find((n) => n.id === chat.pick[parent]) ?? list.at(-1), siblings: list });
  }
  return path;
}

/* From the first message to node. */
function lineTo(chat, node) {
  const line = [];
  for (let n = node; n; n = chat.nodes[n.parent]) line.unshift(n);
  return line;
}

/* Of an answer that failed before anything came. */
const isEmpty = (node) => !node.content && !node.thought && !node.calls.length;

/* The request's messages up to and with the last of line. */
function messagesOf(chat, line) {
  const messages = chat.system ? [{ role: 'system', content: chat.system }] : [];
  for (const node of line) {
    if (node.role === 'user') {
      messages.push({ role: 'user', content: node.content });
    } else if (node.role === 'tool') {
      for (const r of node.results) messages.push({ role: 'tool', tool_call_id: r.id, content: r.content });
    } else if (!isEmpty(node)) {
      const message = { role: 'assistant', content: node.content };
      if (node.thought) message.reasoning_content = node.thought;
      if (node.calls.length) {
        message.tool_calls = node.calls.map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.args } }));
      }
      messages.push(message);
    }
  }
  return messages;
}

/* Nodes are only ever added, and written by one window, so two states of a conversation merge by
 * taking all of both and of each node the later state. */
function mergeChat(chat, other) {
  for (const [id, node] of Object.entries(other.nodes)) {
    if (!(id in chat.nodes)) chat.nodes[id] = node;
    else if (node.changed > chat.nodes[id].changed) Object.assign(chat.nodes[id], node);
  }
  for (const [parent, id] of Object.entries(other.pick)) chat.pick[parent] ??= id;
  if (other.changed > chat.changed) Object.assign(chat, { changed: other.changed, title: other.title });
}

function titleFrom(text) {
  const line = text.trim().split('\n', 1)[0].trim();
  return line.length > 60 ? line.slice(0, 57).trimEnd() + '…' : line;
}

/* --- files ------------------------------------------------------------------------------------ */

const FILE_FORMAT = 'pantheon-chats';

const exportChats = (chats) => JSON.stringify({ format: FILE_FORMAT, version: 1, chats }, null, 1);

/* The conversations of a file's text, which anyone may have written: only what a conversation has,
 * of the right types. Throws an Error for the user. */
function importChats(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('The file is no JSON.');
  }
  if (file?.format !== FILE_FORMAT || !Array.isArray(file.chats)) throw new Error('The file holds no conversations of this page.');
  return file.chats.map(cleanChat);
}

const isId = (id) => typeof id === 'string' && /^[0-9a-f]{8,40}$/.test(id);
const cleanText = (s) => (typeof s === 'string' ? s.toWellFormed?.() ?? s : '');
const cleanNumber = (n) => (Number.isFinite(n) ? n : 0);
const cleanList = (list, fn) => (Array.isArray(list) ? list.filter((x) => x && typeof x === 'object').map(fn) : []);

function cleanChat(c) {
  if (!isId(c?.id) || !c.nodes || typeof c.nodes !== 'object') throw new Error('A conversation in the file is damaged.');
  const chat = { id: c.id, title: cleanText(c.title), at: cleanNumber(c.at), changed: cleanNumber(c.changed), system: cleanText(c.system), nodes: {}, pick: {} };
  for (const n of Object.values(c.nodes)) {
    if (!isId(n?.id) || !(n.parent === '' || isId(n.parent)) || !['user', 'assistant', 'tool'].includes(n.role)) {
      throw new Error('A message in the file is damaged.');
    }
    const node = { id: n.id, parent: n.parent, role: n.role, at: cleanNumber(n.at), changed: cleanNumber(n.changed), content: cleanText(n.content) };
    if (n.role === 'tool') {
      node.results = cleanList(n.results, (r) => ({ id: cleanText(r.id), content: cleanText(r.content) }));
    } else if (n.role === 'assistant') {
      Object.assign(node, {
        thought: cleanText(n.thought), thoughtMs: cleanNumber(n.thoughtMs), finish: cleanText(n.finish) || null, problem: cleanText(n.problem),
        calls: cleanList(n.calls, (x) => ({ id: cleanText(x.id), name: cleanText(x.name), args: cleanText(x.args) })),
        figures: Object.fromEntries(FIGURES.map((k) => [k, n.figures?.[k]]).filter(([, v]) => Number.isFinite(v))),
      });
    }
    chat.nodes[node.id] = node;
  }
  for (const [parent, id] of Object.entries(c.pick ?? {})) {
    if ((parent === '' || isId(parent)) && isId(id)) chat.pick[parent] = id;
  }
  return chat;
}
