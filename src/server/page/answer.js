/* An answer being written: the stream of one request into one node. */

const FIGURES = ['prompt', 'cached', 'generated', 'thought', 'perSecond', 'firstMs'];

/* Node id -> what runs for it: {chat, node, id, abort, begun, firstMs, thoughtFrom, nThought, progress} */
const running = new Map();

const runOf = (chat) => [...running.values()].find((run) => run.chat === chat);

const newAnswer = (chat, parent) =>
  addNode(chat, parent, 'assistant', { thought: '', thoughtMs: 0, calls: [], finish: null, problem: '', figures: {} });

/* Has the model write node, or write on where it ended (`goesOn`). Ends when the answer does; what
 * came is kept, whatever happens. */
async function writeAnswer(chat, node, goesOn) {
  const run = { chat, node, id: '', abort: new AbortController(), begun: performance.now(), firstMs: 0, thoughtFrom: 0, nThought: 0, progress: null };
  if (!goesOn) Object.assign(node, { content: '', thought: '', thoughtMs: 0, calls: [] });
  Object.assign(node, { finish: null, problem: '', figures: {} });
  running.set(node.id, run);
  showRun(run);
  try {
    const line = lineTo(chat, node);
    const body = { ...requestFields(), messages: messagesOf(chat, goesOn ? line : line.slice(0, -1)) };
    if (goesOn) body.continue_final_message = true;
    for await (const chunk of await streamChat(body, run.abort.signal)) {
      takeChunk(run, chunk);
      node.changed = Date.now();
      store.saveSoon(chat);
      showRun(run);
    }
    if (!node.finish) throw new Problem('network', 'The connection to the server ended before the answer did.');
  } catch (error) {
    if (run.abort.signal.aborted) {
      node.finish = 'stopped';
    } else {
      node.finish = error.kind === 'network' ? 'lost' : 'error';
      node.problem = error.message;
      run.kind = error.kind;
    }
  }
  endThought(run);
  if (!node.figures.generated && run.firstMs) node.figures.firstMs = run.firstMs;
  node.changed = chat.changed = Date.now();
  running.delete(node.id);
  await store.flush(chat);
  showRun(run);
  say(node.problem || (node.finish === 'stopped' ? 'Stopped' : 'The answer is complete'));
}

function takeChunk(run, chunk) {
  const { node } = run;
  if (chunk.error) throw new Problem('server', 'The server broke off: ' + errorText(chunk));
  run.id = chunk.id ?? run.id;
  run.progress = chunk.prompt_progress ?? run.progress;
  const choice = chunk.choices?.[0];
  if (choice) takeDelta(run, choice.delta ?? {});
  if (choice?.finish_reason) node.finish = choice.finish_reason;
  if (chunk.usage) {
    Object.assign(node.figures, {
      prompt: chunk.usage.prompt_tokens,
      cached: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
      generated: chunk.usage.completion_tokens,
      thought: chunk.usage.completion_tokens_details?.reasoning_tokens ?? run.nThought,
      firstMs: run.firstMs,
    });
  }
  if (chunk.timings?.predicted_per_second) node.figures.perSecond = chunk.timings.predicted_per_second;
}

function takeDelta(run, delta) {
  const { node } = run;
  const now = performance.now();
  const hasText = delta.content || delta.tool_calls;
  if ((hasText || delta.reasoning_content) && !run.firstMs) run.firstMs = now - run.begun;
  if (delta.reasoning_content) {
    run.thoughtFrom ||= now;
    run.nThought++;
    node.thought += delta.reasoning_content;
    node.thoughtMs = now - run.thoughtFrom;
  }
  if (hasText) endThought(run);
  node.content += delta.content ?? '';
  for (const part of delta.tool_calls ?? []) {
    const call = (node.calls[part.index] ??= { id: '', name: '', args: '' });
    call.id = part.id ?? call.id;
    call.name += part.function?.name ?? '';
    call.args += part.function?.arguments ?? '';
  }
}

function endThought(run) {
  if (run.thoughtFrom) run.node.thoughtMs = performance.now() - run.thoughtFrom;
  run.thoughtFrom = 0;
}

const isThinking = (run) => run.thoughtFrom > 0;

/* Ends the thoughts, so that the answer proper begins. */
async function answerNow(run) {
  try {
    await stopThinking(run.id);
  } catch (error) {
    notice(error.message);
  }
}
