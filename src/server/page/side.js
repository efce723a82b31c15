/* The list of conversations: search, rename, delete, export, import. */

const chats = new Map(); /* id -> chat, all that are stored */

function matches(chat, words) {
  const text = [chat.title, ...Object.values(chat.nodes).map((n) => n.content)].join('\n').toLowerCase();
  return words.every((w) => text.includes(w));
}

function showChats() {
  const words = $('search').value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = [...chats.values()].filter((c) => matches(c, words)).sort((a, b) => b.changed - a.changed);
  const list = $('chats');
  const focused = list.contains(document.activeElement) ? document.activeElement.closest('li')?.dataset.id : null;
  list.replaceChildren(...shown.map(chatRow));
  if (focused) list.querySelector(`li[data-id="${focused}"] button`)?.focus();
  $('no-chats').hidden = shown.length > 0;
  $('no-chats').textContent = words.length ? 'Nothing found.' : 'Conversations are kept in this browser.';
}

function chatRow(chat) {
  const isCurrent = chat === current;
  const open = el('button.open', { type: 'button', title: chat.title, onclick: () => openChat(chat) },
    runOf(chat) ? el('span.dot', { role: 'img', 'aria-label': 'being written' }) : null, chat.title || 'New chat');
  if (isCurrent) open.setAttribute('aria-current', 'true');
  return el(isCurrent ? 'li.current' : 'li', { 'data-id': chat.id }, open,
    iconButton('edit', `Rename ${chat.title}`, () => renameChat(chat)),
    iconButton('save', `Export ${chat.title}`, () => saveFile(`${fileName(chat.title)}.json`, exportChats([chat]))),
    iconButton('delete', `Delete ${chat.title}`, () => deleteChat(chat)));
}

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40) || 'chat';

function openChat(chat) {
  keepDraft();
  showChat(chat);
  toggleSide(false);
  startInput();
}

async function renameChat(chat) {
  const title = await ask('Name of the conversation', 'Rename', chat.title);
  if (!title) return;
  chat.title = title.slice(0, 200);
  chat.changed = Date.now();
  await store.save(chat);
  if (chat === current) showChat(chat);
  showChats();
}

async function deleteChat(chat) {
  if (!(await ask(`Delete “${chat.title}”?`, 'Delete'))) return;
  runOf(chat)?.abort.abort();
  chats.delete(chat.id);
  await store.remove(chat);
  if (chat === current) openChat(newChat());
  showChats();
  $('input').focus();
}

async function importFile(file) {
  try {
    const found = importChats(await file.text());
    for (const chat of found) {
      const known = chats.get(chat.id);
      if (known) mergeChat(known, chat);
      chats.set(chat.id, known ?? chat);
      await store.save(known ?? chat);
    }
    notice(`${plural(found.length, 'conversation')} imported.`);
  } catch (error) {
    notice(error.message);
  }
  showChats();
}

/* Another window wrote or deleted a conversation. */
async function readAgain(id) {
  const stored = await store.get(id);
  const known = chats.get(id);
  if (!stored && known && !runOf(known)) chats.delete(id);
  else if (stored && known) mergeChat(known, stored);
  else if (stored) chats.set(id, stored);
  if (current?.id === id && known && !runOf(known)) {
    if (stored) showChat(known);
    else openChat(newChat());
  }
  showChats();
}

/* On narrow screens the list lies over the conversation. */
function toggleSide(isOpen = !document.body.classList.contains('side-open')) {
  document.body.classList.toggle('side-open', isOpen);
  $('side-open').setAttribute('aria-expanded', isOpen);
}
