"""The Messages protocol through its official client, and what Claude Code sends."""
import json

import anthropic
import pytest

from conftest import IS_SANITIZED

TOOLS = [{"name": "get_verse", "description": "Looks up a verse.",
          "input_schema": {"type": "object", "required": ["book", "chapter", "verse"],
                           "properties": {"book": {"type": "string"}, "chapter": {"type": "integer"},
                                          "verse": {"type": "integer"}}}},
         {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}]
ASK = {"model": "any-name", "max_tokens": 300, "messages": [{"role": "user", "content": "What does Micah 6:8 say?"}]}
GREEDY = {"extra_body": {"temperature": 0}}
OFF, ON = {"type": "disabled"}, {"type": "enabled", "budget_tokens": 2000}


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def kinds(message):
    return [block.type for block in message.content]


def plain(message):
    """The content without the ids that are new with every call."""
    return [block.model_dump(exclude={"id"}, exclude_none=True) for block in message.content]


@pytest.mark.parametrize("more", [{}, {"thinking": OFF}, {"thinking": ON}, {"tools": TOOLS},
                                  {"tools": TOOLS, "tool_choice": {"type": "any"}},
                                  {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "get_verse"}},
                                  {"tools": TOOLS, "tool_choice": {"type": "none"}},
                                  {"max_tokens": 4}])
def test_streamed_is_whole(client, more):
    whole = client.messages.create(**ASK | more, **GREEDY)
    with client.messages.stream(**ASK | more, **GREEDY) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_message()
    assert plain(final) == plain(whole)
    assert (final.role, final.model, final.stop_reason) == ("assistant", "any-name", whole.stop_reason)
    assert events[0] == "message_start" and events[-2:] == ["message_delta", "message_stop"]
    assert events.count("content_block_start") == events.count("content_block_stop") == len(final.content)
    for a, b in ((whole.usage, final.usage),):
        assert a.output_tokens == b.output_tokens and b.cache_creation_input_tokens == 0
        assert a.input_tokens + a.cache_read_input_tokens == b.input_tokens + b.cache_read_input_tokens
    assert final.usage.output_tokens_details.thinking_tokens <= final.usage.output_tokens


def test_thinking_and_calls(client):
    off = client.messages.create(**ASK, thinking=OFF, **GREEDY)
    assert "thinking" not in kinds(off) and off.usage.output_tokens_details.thinking_tokens == 0
    on = client.messages.create(**ASK, thinking=ON, **GREEDY)
    assert kinds(on)[0] == "thinking" and on.content[0].signature
    call = client.messages.create(**ASK, tools=TOOLS, tool_choice={"type": "tool", "name": "get_verse"}, **GREEDY)
    use = call.content[-1]
    assert call.stop_reason == "tool_use" and use.type == "tool_use" and use.name == "get_verse"
    assert use.id.startswith("toolu_") and isinstance(use.input, dict)
    for value, kind in (("book", str), ("chapter", int), ("verse", int)):
        assert isinstance(use.input.get(value, kind()), kind), use.input
    none = client.messages.create(**ASK, tools=TOOLS, tool_choice={"type": "none"}, **GREEDY)
    assert "tool_use" not in kinds(none)


def test_why_it_ended(client):
    whole = client.messages.create(**ASK, thinking=OFF, **GREEDY)
    text = whole.content[0].text
    assert whole.stop_reason == "end_turn" and len(text) > 1
    stop = text[1:]
    cut = client.messages.create(**ASK, thinking=OFF, stop_sequences=["never there", stop], **GREEDY)
    assert (cut.stop_reason, cut.stop_sequence, cut.content[0].text) == ("stop_sequence", stop, text[0])
    short = client.messages.create(**ASK | {"max_tokens": 1}, thinking=OFF, **GREEDY)
    assert short.stop_reason == "max_tokens" and short.usage.output_tokens == 1


def test_count_tokens_is_exact(client):
    ask = {k: v for k, v in ASK.items() if k != "max_tokens"}
    for more in ({}, {"system": "s"}, {"tools": TOOLS}, {"thinking": OFF},
                 {"messages": ask["messages"] + [{"role": "assistant", "content": "No."},
                                                 {"role": "user", "content": "Why?"}]}):
        usage = client.messages.create(**ASK | more | {"max_tokens": 1}).usage
        n = client.messages.count_tokens(**ask | more).input_tokens
        assert n == usage.input_tokens + usage.cache_read_input_tokens
    # also where it is too much to be answered
    assert client.messages.count_tokens(model="q", messages=[{"role": "user", "content": "x " * 40000}]).input_tokens > 40000


def test_last_turn_is_gone_on_with(client, server):
    """A beginning that the client wrote for the answer is not an answer of its own."""
    messages = ASK["messages"] + [{"role": "assistant", "content": "He hath shewed thee, O man,"}]
    answer = client.messages.create(**ASK | {"messages": messages, "thinking": ON}, **GREEDY)
    chat = server.ask("/v1/chat/completions", {"messages": messages, "continue_final_message": True, "temperature": 0,
                                               "max_tokens": ASK["max_tokens"]})
    assert kinds(answer) == ["text"] and answer.content[0].text == chat["choices"][0]["message"]["content"]
    n = client.messages.count_tokens(model="q", messages=messages, thinking=ON).input_tokens
    assert n == answer.usage.input_tokens + answer.usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"]
    thought = [{"type": "thinking", "thinking": "It is", "signature": ""}]
    answer = client.messages.create(**ASK | {"messages": messages[:-1] + [{"role": "assistant", "content": thought}]}, **GREEDY)
    assert kinds(answer)[0] == "thinking"


def test_nonce_of_claude_code(client):
    """A11: the value that is new with every request does not reach the prompt."""
    def ask(i):
        system = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={i:05x};"},
                  {"type": "text", "text": "You are an agent. " * 200, "cache_control": {"type": "ephemeral"}}]
        return client.messages.create(**ASK | {"max_tokens": 1}, system=system, thinking=OFF).usage
    first, second = ask(1), ask(2)
    total = second.input_tokens + second.cache_read_input_tokens
    assert first.input_tokens + first.cache_read_input_tokens == total
    assert second.cache_read_input_tokens >= 0.95 * total, second
    bare = client.messages.create(**ASK | {"max_tokens": 1}, system="You are an agent. " * 200, thinking=OFF).usage
    assert bare.input_tokens + bare.cache_read_input_tokens == total


def test_schema_of_an_answer(client):
    """Structured outputs, where llguidance is there; without it the error says how to get it."""
    config = {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "boolean"}},
                                                           "required": ["a"], "additionalProperties": False}}}
    body = {"temperature": 0, "output_config": config}
    try:
        message = client.messages.create(**ASK, thinking=OFF, extra_body=body)
        assert json.loads(message.content[0].text)["a"] in (True, False)
    except anthropic.BadRequestError as e:
        assert "llguidance" in e.message


@pytest.mark.parametrize("more, words", [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": "x " * 40000}]}, "prompt is too long: "),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                                             "data": "AA=="}}]}]}, "images"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": -5}}, "thinking.budget_tokens"),
    ({"tool_choice": {"type": "tool", "name": "absent"}, "tools": TOOLS}, "absent"),
    ({"tool_choice": {"type": "any"}}, "tools"),
    ({"stop_sequences": [5]}, "stop"),
    ({"tools": [{"name": "f", "input_schema": 5}]}, "tools[0].input_schema"),
])
def test_errors(client, more, words):
    with pytest.raises(anthropic.BadRequestError) as e:
        client.messages.create(**ASK | more)
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "invalid_request_error"
    assert words in e.value.body["error"]["message"]


def test_other_errors(server):
    assert server.ask("/v1/messages", {"model": "q"}, 400)["error"]["type"] == "invalid_request_error"
    deep = b'{"messages": ' + b"[" * 10000 + b"]" * 10000 + b"}"
    assert server.ask("/v1/messages", deep, 400)["type"] == "error"
    assert server.ask("/v1/messages", b"{", 400)["type"] == "error"
    for field in ("max_tokens", "temperature", "top_p", "top_k"):
        for value in ("-2", "9223372036854775808", "1e999", "NaN", '"5"', "[]", "{}", "true"):
            body = json.dumps(ASK | {field: "here"}).replace('"here"', value).encode()
            assert server.ask("/v1/messages", body, 400)["error"]["type"] == "invalid_request_error", body


def test_unknown_fields_are_met(client):
    """What Claude Code and newer clients add is passed over."""
    message = client.messages.create(
        **ASK, metadata={"user_id": "u"}, system=[{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        extra_headers={"anthropic-beta": "interleaved-thinking-2025-05-14"},
        extra_body={"context_management": {"edits": []}, "betas": ["x"], "service_tier": "auto", "mcp_servers": [],
                    "thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "max"}})
    assert message.content


def test_keys():
    """Both headers that clients put a key into, and the error that they know."""
    from serving import Server
    with Server("--api-key", "right") as server:
        for more in ({"api_key": "right"}, {"auth_token": "right"}):
            assert anthropic.Anthropic(base_url=server.url, max_retries=0, **more).messages.create(**ASK | {"max_tokens": 1})
        for more in ({"api_key": "wrong"}, {"auth_token": "wrong"}):
            with pytest.raises(anthropic.AuthenticationError) as e:
                anthropic.Anthropic(base_url=server.url, max_retries=0, **more).messages.create(**ASK)
            assert e.value.body["error"]["type"] == "authentication_error"


def test_pings():
    """G2: something comes all the time while a long prompt is read, and the official client is not disturbed."""
    from serving import Server
    n_word = 300 if IS_SANITIZED else 2500
    long = ASK | {"messages": [{"role": "user", "content": "word " * n_word}], "max_tokens": 4}
    with Server("--ping", "0.02", "--threads", "1") as server:
        answer = server.post("/v1/messages", long | {"stream": True}).data.decode()
        assert answer.startswith("event: message_start\n")
        assert answer.index("event: ping\n") < answer.index("event: content_block_start\n")
        with anthropic.Anthropic(base_url=server.url, api_key="none").messages.stream(
                **long | {"messages": [{"role": "user", "content": "other " * n_word}]}) as stream:
            assert stream.get_final_message().stop_reason == "max_tokens"
        whole = server.post("/v1/messages", long | {"messages": [{"role": "user", "content": "third " * n_word}]})
        assert whole.data.startswith(b" ") and json.loads(whole.data)["stop_reason"] == "max_tokens"
