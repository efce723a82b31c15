/* What the user set, kept in localStorage; the form that changes it. */

const DEFAULTS = {
  system: '', temperature: null, top_p: null, top_k: null, min_p: null, presence_penalty: null, seed: null,
  max_tokens: null, thinking_budget: null, fields: '', api_key: '', theme: '', thinking: true,
};
const SAMPLING = ['temperature', 'top_p', 'top_k', 'min_p', 'presence_penalty', 'seed', 'max_tokens'];
const SETTINGS_KEY = 'pantheon-settings';

const settings = { ...DEFAULTS };

function loadSettings() {
  try {
    const kept = JSON.parse(localStorage.getItem(SETTINGS_KEY) ?? '{}');
    for (const key of Object.keys(DEFAULTS)) {
      const isNumber = DEFAULTS[key] === null;
      if (typeof kept[key] === (isNumber ? 'number' : typeof DEFAULTS[key])) settings[key] = kept[key];
    }
  } catch {
    /* damaged or forbidden: the defaults */
  }
  showSettings();
}

function saveSettings() {
  try {
    localStorage.setItem(SETTINGS_KEY, JSON.stringify(settings));
  } catch {
    /* they last until the page is closed */
  }
  showSettings();
}

function showSettings() {
  document.documentElement.dataset.theme = settings.theme;
  $('think').setAttribute('aria-pressed', settings.thinking);
}

/* What the user adds to requests; throws an Error for the user. */
function parseFields(text) {
  if (!text.trim()) return {};
  let fields;
  try {
    fields = JSON.parse(text);
  } catch (error) {
    throw new Error('The request’s fields are no JSON: ' + error.message);
  }
  if (!fields || typeof fields !== 'object' || Array.isArray(fields)) throw new Error('The request’s fields are to be a JSON object.');
  return fields;
}

/* The request's fields besides its messages. */
function requestFields() {
  const fields = { chat_template_kwargs: { enable_thinking: settings.thinking } };
  for (const key of SAMPLING) if (settings[key] !== null) fields[key] = settings[key];
  if (settings.thinking && settings.thinking_budget !== null) fields.thinking_budget = settings.thinking_budget;
  return { ...fields, ...parseFields(settings.fields) };
}

function openSettings() {
  const form = $('settings').querySelector('form');
  for (const input of form.elements) if (input.name) input.value = settings[input.name] ?? '';
  $('settings').showModal();
}

function startSettings() {
  const dialog = $('settings');
  const form = dialog.querySelector('form');
  form.onchange = (event) => {
    const { name, type, value, validity } = event.target;
    let error = validity.valid ? '' : event.target.validationMessage;
    if (name === 'fields') {
      try {
        parseFields(value);
      } catch (e) {
        error = e.message;
      }
      event.target.setCustomValidity(error);
    }
    if (error) return event.target.reportValidity();
    settings[name] = type !== 'number' ? value : value === '' ? null : Number(value);
    saveSettings();
    if (name === 'api_key') readModel();
  };
  form.oninput = (event) => event.target.setCustomValidity?.('');
  dialog.onclose = () => $('input').focus();
}

async function forgetSettings() {
  Object.assign(settings, DEFAULTS);
  saveSettings();
  $('settings').close();
  openSettings();
}
