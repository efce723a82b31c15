/* The input, the keyboard, and the start. */

const isTouch = matchMedia('(pointer: coarse)').matches;

/* Enter sends, except while an input method composes and on touch keyboards. */
const isSendKey = (event) =>
  event.key === 'Enter' && !event.isComposing && (event.ctrlKey || event.metaKey || (!event.shiftKey && !isTouch));

function showModel(text, kind) {
  $('model').textContent = text;
  $('model').classList.toggle('bad', !!kind);
  showFigures();
}

function submit() {
  const text = $('input').value;
  if (!text.trim() || isBusy()) return;
  $('input').value = '';
  keepDraft();
  fit($('input'));
  send(text);
}

/* What is being typed outlives a reload and a look into another conversation. */
const draftKey = () => 'draft-' + (chats.has(current.id) ? current.id : 'new');
function keepDraft() {
  try {
    sessionStorage.setItem(draftKey(), $('input').value);
  } catch {
    /* no storage: the draft lives as long as the page */
  }
}
function startInput() {
  try {
    $('input').value = sessionStorage.getItem(draftKey()) ?? '';
  } catch {
    $('input').value = '';
  }
  fit($('input'));
  if (!isTouch) $('input').focus();
}

const ACTIONS = {
  new: () => openChat(newChat()),
  side: () => toggleSide(),
  settings: openSettings,
  'forget-settings': forgetSettings,
  import: () => $('import-file').click(),
  'export-all': () => saveFile('pantheon-chats.json', exportChats([...chats.values()])),
  cancel: () => $('ask').close(),
  'to-end': toEnd,
  stop: stopAnswer,
  think() {
    settings.thinking = !settings.thinking;
    saveSettings();
  },
};

document.onclick = (event) => {
  const button = event.target.closest('[data-do]');
  if (button) ACTIONS[button.dataset.do]();
};

document.onkeydown = (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === 'k') {
    event.preventDefault();
    if (!document.querySelector('dialog[open]')) ACTIONS.new();
  } else if (event.key === 'Escape' && !document.querySelector('dialog[open]')) {
    if (document.body.classList.contains('side-open')) toggleSide(false);
    else stopAnswer();
  } else if (event.key === 'ArrowUp' && event.target === $('input') && !$('input').value) {
    const last = pathOf(current).findLast(({ node }) => node.role === 'user')?.node;
    if (last && !runOf(current)) {
      event.preventDefault();
      views.get(last.id).edit();
    }
  }
};

$('composer').onsubmit = (event) => {
  event.preventDefault();
  submit();
};
$('input').oninput = () => {
  fit($('input'));
  keepDraft();
};
$('input').onkeydown = (event) => {
  if (!isSendKey(event)) return;
  event.preventDefault();
  submit();
};
$('search').oninput = showChats;
$('log').onscroll = () => ($('to-end').hidden = atEnd());
$('import-file').onchange = async (event) => {
  const [file] = event.target.files;
  if (file) await importFile(file);
  event.target.value = '';
};
/* The server may have another model by now. */
document.onvisibilitychange = () => document.hidden || readModel();
window.onpagehide = () => {
  for (const run of running.values()) store.flush(run.chat);
};

/* The address names the conversation, so that a reload and the browser's history find it. */
window.onhashchange = () => {
  const chat = chats.get(location.hash.slice(1));
  if (chat && chat !== current) openChat(chat);
};

loadSettings();
startSettings();
for (const chat of await store.open(readAgain)) chats.set(chat.id, chat);
showChat(chats.get(location.hash.slice(1)) ?? newChat());
document.body.inert = false; /* what was typed before would be lost */
startInput();
readModel();
