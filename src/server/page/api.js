/* The server's API as the page uses it, and its errors in plain words. */

const model = { name: '', n_ctx: 0 };

/* An error with a sentence for the user; `kind` is 'key', 'network', or 'server'. */
class Problem extends Error {
  constructor(kind, text) {
    super(text);
    this.kind = kind;
  }
}

function headers() {
  const list = { 'Content-Type': 'application/json' };
  if (settings.api_key) list.Authorization = 'Bearer ' + settings.api_key;
  return list;
}

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headers(), cache: 'no-store', credentials: 'omit' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem('network', 'The server cannot be reached.');
  }
  if (!response.ok) throw explain(response, await response.json().catch(() => null));
  return response;
}

/* What an HTTP error means to someone who does not know HTTP. */
function explain(response, body) {
  const said = errorText(body);
  const retry = Number(response.headers.get('Retry-After'));
  const then = retry > 0 ? ` Try again in ${plural(retry, 'second')}.` : ' Try again in a moment.';
  switch (response.status) {
    case 401: return new Problem('key', settings.api_key ? 'The server does not accept this API key.' : 'The server asks for an API key.');
    case 403: return new Problem('server', `The server does not serve this address: ${said}`);
    case 413: return new Problem('server', 'The conversation is larger than the server takes. Start a new chat.');
    case 429: return new Problem('server', 'The server is busy with others.' + then);
    case 503: return new Problem('server', `The server is not ready: ${said}` + then);
  }
  if (body?.error?.code === 'context_length_exceeded') {
    return new Problem('server', `The conversation is longer than the model's context: ${said} Start a new chat, or edit an earlier message.`);
  }
  return new Problem('server', response.status < 500 ? `The server refuses the request: ${said}` : `The server failed: ${said}`);
}

function errorText(body) {
  const text = String(body?.error?.message ?? body?.error ?? 'it does not say why').trim();
  return /[.!?]$/.test(text) ? text : text + '.';
}

/* The JSON of each event of a stream, until it ends; comments are skipped. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Problem('network', 'The connection to the server broke.');
    }
    if (part.done) return;
    const lines = (rest + part.value).split('\n');
    rest = lines.pop();
    for (const line of lines.map((l) => l.replace(/\r$/, ''))) {
      if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
      if (line !== '' || !data.length) continue;
      const text = data.join('\n');
      data = [];
      if (text !== '[DONE]') yield JSON.parse(text);
    }
  }
}

const streamChat = (body, signal) => call('v1/chat/completions', {
  method: 'POST',
  signal,
  body: JSON.stringify({ model: model.name || undefined, stream: true, stream_options: { include_usage: true }, return_progress: true, ...body }),
}).then(eventsOf);

const stopThinking = (id) => call(`v1/chat/completions/${encodeURIComponent(id)}/stop_thinking`, { method: 'POST', body: '{}' });

/* Learns the model's name and context; again later while the server is loading or away. */
async function readModel() {
  clearTimeout(readModel.timer);
  try {
    const [first] = (await (await call('v1/models')).json()).data;
    model.name = String(first.id);
    model.n_ctx = Number(first.max_model_len) || 0;
    showModel(model.name);
  } catch (error) {
    showModel(error.message, error.kind);
    if (error.kind !== 'key') readModel.timer = setTimeout(readModel, 3000);
  }
}
