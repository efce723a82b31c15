"""OpenAI's protocol by its official client: chats, completions, models, errors."""
import json
import math
import os

import openai
import pytest
from conftest import IS_SANITIZED, wait_until
from serving import Server

TOOL = {"type": "function", "function": {  # one that the tiny model knows
    "name": "get_verse", "description": "A verse of the Bible", "parameters": {
        "type": "object", "required": ["book", "chapter", "verse"],
        "properties": {"book": {"type": "string"}, "chapter": {"type": "integer"}, "verse": {"type": "integer"}}}}}
OTHER = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
HELLO = [{"role": "user", "content": "Hello there."}]
QUIET = {"enable_thinking": False}
WILD = {"temperature": 5, "top_p": 1, "extra_body": QUIET | {"top_k": 0, "min_p": 0}}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as c:
        yield c


def chat(client, messages=HELLO, body=None, **more):
    options = {"model": "any", "messages": messages, "temperature": 0, "max_tokens": 24, "extra_body": body} | more
    return client.chat.completions.create(**options)


def joined(stream):
    """The pieces of a stream's first choice, put together, and its last usage."""
    content, thought, calls, finish, usage, n = "", "", [], None, None, 0
    for chunk in stream:
        n += 1
        usage = chunk.usage or usage
        for choice in chunk.choices:
            delta = choice.delta
            content += delta.content or ""
            thought += getattr(delta, "reasoning_content", None) or ""
            for call in delta.tool_calls or []:
                if call.index == len(calls):
                    assert call.id and call.function.name
                    calls.append({"id": call.id, "name": call.function.name, "arguments": ""})
                calls[call.index]["arguments"] += call.function.arguments or ""
            finish = choice.finish_reason or finish
    return {"content": content, "thought": thought, "calls": calls, "finish": finish, "usage": usage, "n": n}


def test_whole_and_streamed_are_the_same(client):
    """The same request gives the same text both ways; usage counts it, the stream's too."""
    whole = chat(client, body=QUIET)
    got = joined(chat(client, body=QUIET, stream=True, stream_options={"include_usage": True}))
    message = whole.choices[0].message
    assert whole.model == "any" and whole.object == "chat.completion"
    assert message.content and got["content"] == message.content
    assert got["finish"] == whole.choices[0].finish_reason and got["n"] > 3
    assert got["usage"].completion_tokens == whole.usage.completion_tokens <= 24
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.usage.completion_tokens_details.reasoning_tokens == 0
    assert whole.timings["predicted_n"] == whole.usage.completion_tokens


def test_a_conversation_is_cached(client):
    """What was read and answered is not read again, and usage says so."""
    first = chat(client, [{"role": "user", "content": "One. " * 200}], body=QUIET)
    text = first.choices[0].message.content
    more = [{"role": "user", "content": "One. " * 200}, {"role": "assistant", "content": text},
            {"role": "user", "content": "And now?"}]
    second = chat(client, more, body=QUIET)
    read = first.usage.prompt_tokens
    assert second.usage.prompt_tokens > read
    assert second.usage.prompt_tokens_details.cached_tokens >= read - 1
    assert second.timings["cache_n"] == second.usage.prompt_tokens_details.cached_tokens


def test_a_number_in_the_header_spoils_no_cache(client):
    """Two requests that differ in the number of a billing header alone share all of their prompt."""
    def ask(number):
        system = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={number};"},
                  {"type": "text", "text": "Be kind. " * 300}]
        return chat(client, [{"role": "system", "content": system}, *HELLO], body=QUIET).usage
    first, second = ask("a3f81"), ask("09c7e")
    assert first.prompt_tokens == second.prompt_tokens
    assert second.prompt_tokens_details.cached_tokens > 0.98 * second.prompt_tokens


def test_thoughts_are_apart(client):
    """Thoughts come as reasoning_content; a budget ends them; max_tokens within them gives no content."""
    on = {"logit_bias": {"</think>": -100}}  # the tiny model has little to think about
    cut = chat(client, max_tokens=8, body=on | {"ignore_eos": True})
    assert cut.thinking == "enabled" and cut.choices[0].finish_reason == "length"
    assert cut.choices[0].message.content == "" and cut.choices[0].message.reasoning_content
    assert cut.usage.completion_tokens_details.reasoning_tokens == cut.usage.completion_tokens == 8
    short = chat(client, body=on | {"thinking_budget": 3}, max_tokens=100)
    streamed = joined(chat(client, body=on | {"thinking_budget": 3}, max_tokens=100, stream=True))
    message = short.choices[0].message
    assert message.content and "think>" not in message.content + message.reasoning_content
    assert "limited time" in message.reasoning_content
    assert 3 < short.usage.completion_tokens_details.reasoning_tokens < 80
    assert streamed["thought"] == message.reasoning_content and streamed["content"] == message.content


@pytest.mark.parametrize("say", [
    {"extra_body": {"enable_thinking": False}},
    {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
    {"extra_body": {"thinking": {"type": "disabled"}}},
    {"extra_body": {"thinking_budget": 0}},
    {"reasoning_effort": "none"},
], ids=str)
def test_thinking_is_turned_off(client, say):
    """Every way of saying it: no thoughts, the answer at once, and the mode is said back."""
    answer = client.chat.completions.create(model="m", messages=HELLO, max_tokens=8, temperature=0, **say)
    assert answer.thinking == "disabled" and answer.choices[0].message.content
    assert not hasattr(answer.choices[0].message, "reasoning_content")


@pytest.mark.parametrize("choice,tools", [("required", [TOOL]), ("required", [TOOL, OTHER]),
                                          ({"type": "function", "function": {"name": "get_time"}}, [TOOL, OTHER])])
def test_forced_calls(client, choice, tools):
    """A call is made though the model would not have; its arguments are JSON however it was cut."""
    options = {"tools": tools, "tool_choice": choice, "body": QUIET, "max_tokens": 40}
    whole = chat(client, **options)
    call = whole.choices[0].message.tool_calls[0]
    names = [t["function"]["name"] for t in tools]
    assert call.type == "function" and call.function.name in names
    if not isinstance(choice, str):
        assert call.function.name == "get_time"
    assert isinstance(json.loads(call.function.arguments), dict)
    got = joined(chat(client, stream=True, **options))
    assert got["calls"][0]["name"] == call.function.name
    assert got["calls"][0]["arguments"] == call.function.arguments
    assert got["finish"] == whole.choices[0].finish_reason


def test_a_call_has_its_types(client):
    """The model calls by itself; numbers are numbers, strings strings."""
    answer = chat(client, [{"role": "user", "content": "Read me Psalm 1 verse 1."}], tools=[TOOL], body=QUIET, max_tokens=80)
    call = answer.choices[0].message.tool_calls[0]
    arguments = json.loads(call.function.arguments)
    assert answer.choices[0].finish_reason == "tool_calls" and answer.choices[0].message.content is None
    assert [type(arguments[k]) for k in ("book", "chapter", "verse")] == [str, int, int]
    single = chat(client, [{"role": "user", "content": "Read me Psalm 1 verse 1."}], tools=[TOOL], body=QUIET,
                  max_tokens=80, parallel_tool_calls=False)
    assert single.choices[0].message.tool_calls[0].function == call.function


def test_no_call_is_made(client):
    """tool_choice none: text only, and the prompt is that of auto, which stays cached."""
    auto = chat(client, tools=[TOOL], body=QUIET)
    none = chat(client, tools=[TOOL], tool_choice="none", body=QUIET)
    assert not none.choices[0].message.tool_calls
    assert none.usage.prompt_tokens == auto.usage.prompt_tokens
    assert none.usage.prompt_tokens_details.cached_tokens > 0.9 * none.usage.prompt_tokens


def test_tool_histories(client):
    """Calls and results come back in every shape, also without a question, also broken."""
    call = {"id": "call_1", "type": "function", "function": {"name": "get_verse", "arguments": '{"book": "Acts"}'}}
    broken = {"id": "call_2", "type": "function", "function": {"name": "get_verse", "arguments": '{"book": '}}
    for history in (
            [{"role": "user", "content": "A verse?"}, {"role": "assistant", "content": None, "tool_calls": [call, broken]},
             {"role": "tool", "tool_call_id": "call_1", "content": "Let there be light."},
             {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "error"}]}],
            [{"role": "system", "content": "s"}, {"role": "assistant", "content": "", "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "call_1", "content": "Let there be light."}],
            [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, {"role": "user", "content": "c"},
             {"role": "system", "content": "d"}, {"role": "user", "content": [{"type": "text", "text": "e"}]}]):
        assert chat(client, history, tools=[TOOL], body=QUIET).choices[0].finish_reason


def test_json(client):
    """json_object gives an object, if it ends."""
    answer = chat(client, response_format={"type": "json_object"}, body=QUIET, max_tokens=400)
    text = answer.choices[0].message.content
    assert text.lstrip().startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)
    else:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


SCHEMA = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}, "n": {"type": "integer", "maximum": 9}},
          "required": ["mood", "n"], "additionalProperties": False}


def as_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def test_schemas(client):
    """An answer is of its schema, after thoughts too, and beside tools; a grammar is kept to. Without the
    library that compiles them a 400 says how to get it."""
    try:
        answer = chat(client, response_format=as_schema(SCHEMA), body=QUIET, max_tokens=300)
    except openai.BadRequestError as e:
        assert e.param == "response_format.json_schema.schema" and "make llguidance" in e.message
        pytest.skip("llguidance is not installed")
    for more in ({}, {"tools": [TOOL]}, {"body": {}}):
        answer = chat(client, **{"response_format": as_schema(SCHEMA), "body": QUIET, "max_tokens": 300} | more)
        if answer.choices[0].finish_reason == "stop":
            got = json.loads(answer.choices[0].message.content)
            assert got["mood"] in ("good", "bad") and got["n"] <= 9
    assert chat(client, body=QUIET | {"grammar": 'root ::= "yes" | "no"'}).choices[0].message.content in ("yes", "no")
    with pytest.raises(openai.BadRequestError, match="unevaluatedProperties"):
        chat(client, response_format=as_schema({"type": "object", "unevaluatedProperties": False}))
    with pytest.raises(openai.BadRequestError, match="grammar"):
        chat(client, body={"grammar": "root ::= ("})


def test_several_answers(client):
    """n answers, whole and streamed: the same ones, told apart by their index, of one prompt."""
    options = WILD | {"n": 3, "seed": 5, "max_tokens": 12}
    whole = chat(client, **options)
    texts = ["", "", ""]
    for chunk in chat(client, stream=True, **options):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert [c.message.content for c in whole.choices] == texts
    assert [c.index for c in whole.choices] == [0, 1, 2] and len(set(texts)) > 1
    assert whole.usage.completion_tokens <= 36


def test_a_seed_repeats(client):
    """One seed gives one answer, none gives others."""
    say = lambda **more: chat(client, max_tokens=16, **WILD, **more).choices[0].message.content
    assert say(seed=11) == say(seed=11)
    assert len({say() for _ in range(4)}) > 1


def test_stop_strings(client):
    """An answer ends before a stop string, and says stop."""
    full = chat(client, body=QUIET, max_tokens=24).choices[0].message.content
    at = len(full) // 2
    stop = full[at:at + 4]
    cut = chat(client, body=QUIET, max_tokens=24, stop=[stop, "never said"])
    assert cut.choices[0].message.content == full[:full.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_logprobs(client):
    """Log-probabilities of the content's tokens: they sum up to its text, the likeliest comes first."""
    answer = chat(client, logprobs=True, top_logprobs=3, body=QUIET, max_tokens=10)
    items = answer.choices[0].logprobs.content
    assert len(items) == answer.usage.completion_tokens
    assert bytes(b for i in items for b in i.bytes).decode().startswith(answer.choices[0].message.content)
    for item in items:
        assert item.logprob <= 0 and len(item.top_logprobs) == 3
        assert item.top_logprobs[0].logprob == max(t.logprob for t in item.top_logprobs)
        assert item.top_logprobs[0].bytes == item.bytes  # greedy
        assert sum(math.exp(t.logprob) for t in item.top_logprobs) <= 1 + 1e-4
    streamed = []
    for chunk in chat(client, logprobs=True, top_logprobs=3, body=QUIET, max_tokens=10, stream=True):
        if chunk.choices and chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert [(i.token, i.logprob) for i in streamed] == [(i.token, i.logprob) for i in items]
    with_tools = chat(client, logprobs=True, tools=[TOOL], stream=True, body=QUIET)
    assert any(c.choices and c.choices[0].logprobs for c in with_tools)


def test_logit_bias(client):
    """A forbidden token does not come, a favoured one does."""
    first = chat(client, logprobs=True, body=QUIET, max_tokens=1).choices[0]
    text = first.logprobs.content[0].token
    other = chat(client, body=QUIET | {"logit_bias": [[text, False]]}, max_tokens=4).choices[0].message.content
    assert not other.startswith(text)
    a = chat(client, logit_bias={"65": 100}, body=QUIET, max_tokens=3, logprobs=True).choices[0].logprobs.content
    assert len({tuple(i.bytes) for i in a}) == 1


def test_completions(client):
    """Plain text goes on, whole and streamed; ids, echo, the middle of a text, old log-probabilities."""
    say = lambda prompt="The capital of", **more: client.completions.create(
        model="m", prompt=prompt, max_tokens=8, temperature=0, **more)
    whole = say()
    assert whole.object == "text_completion" and whole.choices[0].text
    assert "".join(c.choices[0].text for c in say(stream=True) if c.choices) == whole.choices[0].text
    assert say(echo=True).choices[0].text == "The capital of" + whole.choices[0].text
    assert say(prompt=["The capital of"]).choices[0].text == whole.choices[0].text
    assert say(prompt=[5, 6, 7]).usage.prompt_tokens == 3
    assert say(suffix="of France.").usage.prompt_tokens > 3
    logprobs = say(logprobs=2).choices[0].logprobs
    n = len(logprobs.tokens)
    assert n == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) > 0
    assert "".join(logprobs.tokens).startswith(whole.choices[0].text) and logprobs.text_offset[0] == 0
    assert logprobs.top_logprobs[0][logprobs.tokens[0]] == logprobs.token_logprobs[0]


def test_models(client, server):
    """One model, in the words of three protocols; any name is it."""
    models = client.models.list().data
    assert len(models) == 1 and models[0].owned_by == "pantheon"
    assert client.models.retrieve("gpt-whatever").id == "gpt-whatever"
    raw = json.loads(server.get("/models").data)
    assert raw["has_more"] is False and raw["first_id"] == raw["last_id"] == raw["models"][0]["slug"]
    assert raw["models"][0]["context_window"] == raw["data"][0]["meta"]["n_ctx"]


def test_errors(client):
    """Errors are the client's classes and name the field; a prompt too long says by how much."""
    for wrong, param in (({"temperature": -1}, "temperature"), ({"n": 17}, "n"), ({"max_tokens": -2}, "max_tokens"),
                         ({"messages": []}, "messages"), ({"stop": 5}, "stop"), ({"top_p": 1.5}, "top_p")):
        with pytest.raises(openai.BadRequestError) as e:
            chat(client, **wrong)
        assert e.value.param == param and e.value.type == "invalid_request_error"
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]
    with pytest.raises(openai.BadRequestError, match="images are not supported"):
        chat(client, image)
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, [{"role": "user", "content": "word " * 40000}])
    assert e.value.code == "context_length_exceeded"
    assert e.value.body["n_prompt_tokens"] > e.value.body["n_ctx"] > 0
    with pytest.raises(openai.APIStatusError) as e:
        client.embeddings.create(model="m", input="x")
    assert e.value.status_code == 501
    with pytest.raises(openai.NotFoundError):
        client.post("/nothing", cast_to=object, body={})
    with pytest.raises(openai.BadRequestError, match="several|2 prompts"):
        client.completions.create(model="m", prompt=["a", "b"])


def test_hostile_numbers(server):
    """What JSON cannot say, or 64 bits cannot hold, is a 400 at once; the server lives."""
    for number in ("9223372036854775808", "1e999", "NaN", "-Infinity", "0x10", "01"):
        body = f'{{"messages": [{{"role": "user", "content": "x"}}], "max_tokens": {number}}}'.encode()
        assert server.ask("/v1/chat/completions", body, 400)["error"]["message"]
    begin = server.cpu_s()
    for deep in (b'{"messages": ' + b"[" * 10000 + b"]" * 10000 + b"}",
                 b'{"messages": [{"role": "user", "content": "x"}], "foo": ' + b"[" * 10000 + b"]" * 10000 + b"}"):
        assert server.ask("/v1/chat/completions", deep, 400)["error"]["message"]
    assert server.cpu_s() - begin < 5
    assert server.get("/health").status == 200


def test_leaving(client, server):
    """A stream that is closed ends its work: soon nothing runs, and the next request is served."""
    stream = chat(client, body=QUIET | {"ignore_eos": True}, max_tokens=30000, stream=True)
    for _ in range(3):
        next(stream)
    stream.close()
    wait_until(lambda: not server.metric("pantheon:num_requests_running"))
    assert chat(client, body=QUIET).choices[0].message.content


def replies(client, messages, **more):
    """Asks, adds the answer to messages as a client does that formats calls in its own way; the usage."""
    answer = chat(client, messages, tools=[TOOL], body=QUIET, max_tokens=200, **more)
    message = answer.choices[0].message
    back = {"role": "assistant", "content": message.content}
    results = []
    for call in message.tool_calls or []:
        arguments = dict(sorted(json.loads(call.function.arguments).items(), reverse=True))
        function = {"name": call.function.name, "arguments": json.dumps(arguments, indent=2)}
        back.setdefault("tool_calls", []).append({"id": call.id, "type": "function", "function": function})
        results.append({"role": "tool", "tool_call_id": call.id, "content": "Let there be light."})
    assert answer.choices[0].finish_reason == ("tool_calls" if results else "stop")
    messages += [back] + results
    return answer.usage


def test_ten_turns_of_an_agent(tmp_path):
    """Calls, results and answers over ten turns: only what is new is read, though the client writes the calls
    anew; after the last turn is edited, what stands before it; after a restart, all but the last."""
    n_word = 20000 if os.environ.get("SOAK") else 100 if IS_SANITIZED else 1000
    options = ["--ctx", 32768, "--cache-ram", "1G", "--cache-dir", tmp_path]
    messages = [{"role": "system", "content": "light " * n_word}]
    seen = 0
    with Server(*options) as first, openai.OpenAI(base_url=first.url + "/v1", api_key="none") as c:
        for turn in range(10):
            messages.append({"role": "user", "content": f"Verse {turn}, please."})
            for choice in ("required", "none"):
                before = seen
                usage = replies(c, messages, tool_choice=choice)
                seen = usage.prompt_tokens + usage.completion_tokens
                assert usage.prompt_tokens_details.cached_tokens >= before - 1, (turn, choice)
            last = usage.prompt_tokens
        edited = messages[:-4] + [{"role": "user", "content": "Another question."}]
        usage = replies(c, edited, tool_choice="none")
        assert usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens < 60
    with Server(*options) as second, openai.OpenAI(base_url=second.url + "/v1", api_key="none") as c:
        usage = replies(c, messages + [{"role": "user", "content": "And now?"}], tool_choice="none")
        assert usage.prompt_tokens > last and usage.prompt_tokens_details.cached_tokens >= last - 200


def test_the_context_fills():
    """An answer that fills the context ends with length, whatever max_tokens was."""
    with Server("--ctx", "256") as small, openai.OpenAI(base_url=small.url + "/v1", api_key="none") as c:
        answer = chat(c, body=QUIET | {"ignore_eos": True}, max_tokens=100000)
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.total_tokens in (255, 256, 257)
