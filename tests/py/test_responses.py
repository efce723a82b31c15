"""The Responses protocol through its official client, and what Codex sends."""
import json
import threading
import urllib.request

import openai
import pytest

from conftest import IS_SANITIZED

PARAMETERS = {"type": "object", "required": ["book", "chapter", "verse"], "additionalProperties": False,
              "properties": {"book": {"type": "string"}, "chapter": {"type": "integer"}, "verse": {"type": "integer"}}}
TOOLS = [{"type": "function", "name": "get_verse", "description": "Looks up a verse.", "parameters": PARAMETERS, "strict": True},
         {"type": "custom", "name": "apply_patch", "description": "Edits files.",
          "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
         {"type": "namespace", "name": "mcp__srv", "description": "d", "tools": [
             {"type": "function", "name": "get_weather", "description": "w",
              "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]},
         {"type": "web_search"}, {"type": "image_generation"}, {"type": "local_shell"}, {"type": "file_search"}]
ASK = {"model": "any-name", "input": "What does Micah 6:8 say?", "temperature": 0, "max_output_tokens": 300}
OFF = {"reasoning": {"effort": "none"}}
NAMED = {"type": "function", "name": "get_verse"}


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def plain(response):
    """The items without the ids that are new with every call, by type: text behind a call is streamed in its place."""
    items = [item.model_dump(exclude={"id", "call_id"}, exclude_none=True) for item in response.output]
    return sorted(items, key=lambda item: item["type"])


@pytest.mark.parametrize("more", [{}, OFF, {"reasoning": {"effort": "low", "summary": "auto"}},
                                  {"include": ["reasoning.encrypted_content"], "store": False}, {"tools": TOOLS},
                                  {"tools": TOOLS, "tool_choice": "required"}, {"tools": TOOLS, "tool_choice": NAMED},
                                  {"tools": TOOLS, "tool_choice": {"type": "custom", "name": "apply_patch"}},
                                  {"max_output_tokens": 4}])
def test_streamed_is_whole(client, more):
    whole = client.responses.create(**ASK | more)
    final, types, numbers, opened = None, [], [], {}
    for event in client.responses.create(**ASK | more, stream=True):
        types.append(event.type)
        numbers.append(event.sequence_number)
        if event.type == "response.output_item.added":
            assert event.output_index == len(opened)
            opened[event.output_index] = event.item
        elif event.type == "response.output_item.done":
            assert event.item.id == opened[event.output_index].id and event.item.type == opened[event.output_index].type
        elif event.type in ("response.completed", "response.incomplete"):
            final = event.response
    assert numbers == list(range(len(numbers)))
    assert types[:2] == ["response.created", "response.in_progress"] and types[-1] == "response." + final.status
    assert plain(final) == plain(whole) and final.status == whole.status
    assert [item.id for item in final.output] == [opened[i].id for i in range(len(opened))]
    usage = final.usage
    assert usage.input_tokens == whole.usage.input_tokens and usage.output_tokens == whole.usage.output_tokens
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.output_tokens_details.reasoning_tokens <= usage.output_tokens
    if "max_output_tokens" in more:
        assert final.status == "incomplete" and final.incomplete_details.reason == "max_output_tokens"


def test_stream_helper(client):
    """The client's own accumulation, which checks the order of events."""
    for more in ({}, OFF, {"tools": TOOLS, "tool_choice": NAMED}, {"tools": TOOLS, "tool_choice": "required"}):
        with client.responses.stream(**ASK | more) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            assert stream.get_final_response().output_text == text


def test_thoughts(client):
    def item(**more):
        return next(i for i in client.responses.create(**ASK, **more).output if i.type == "reasoning")
    shown = item()
    assert shown.content[0].text and not shown.summary and shown.encrypted_content is None
    assert item(reasoning={"summary": "auto"}).summary[0].text == shown.content[0].text
    assert item(include=["reasoning.encrypted_content"]).encrypted_content == "pantheon-1:" + shown.content[0].text
    assert all(i.type != "reasoning" for i in client.responses.create(**ASK | OFF).output)


def test_names_come_back(client):
    """G1: a namespace and a free-text tool are called by the names that the client gave."""
    space = client.responses.create(**ASK, tools=TOOLS, tool_choice={"type": "function", "name": "get_weather",
                                                                     "namespace": "mcp__srv"}).output
    call = next(i for i in space if i.type == "function_call")
    assert (call.namespace, call.name) == ("mcp__srv", "get_weather") and isinstance(json.loads(call.arguments), dict)
    free = client.responses.create(**ASK, tools=TOOLS, tool_choice={"type": "custom", "name": "apply_patch"}).output
    call = next(i for i in free if i.type == "custom_tool_call")
    assert call.name == "apply_patch" and isinstance(call.input, str) and call.id.startswith("ctc_")
    named = client.responses.create(**ASK, tools=TOOLS, tool_choice=NAMED).output
    assert next(i for i in named if i.type == "function_call").name == "get_verse"


CODEX = {  # every kind of item that Codex has been seen to send
    "model": "any-name", "instructions": "You are an agent.", "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "stream": True,
    "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0190", "text": {"verbosity": "low"},
    "client_metadata": {"x": "y"}, "max_output_tokens": 8, "service_tier": "auto",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>"},
                                                        {"type": "input_text", "text": "Fix it."}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "pantheon-1:I look.", "content": None},
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a\nb"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I see."}], "encrypted_content": "gAAAAA"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Now the patch."}]},
        {"type": "custom_tool_call", "status": "completed", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin"},
        {"type": "function_call", "name": "get_weather", "namespace": "mcp__srv", "arguments": "{}", "call_id": "call_3"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Done"},
        {"type": "function_call_output", "call_id": "call_3", "output": [{"type": "input_text", "text": "sun"},
                                                                         {"type": "input_image", "image_url": "data:,"}]},
        {"type": "local_shell_call", "call_id": "call_4", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "timeout_ms": None}},
        {"type": "local_shell_call_output", "id": "call_4", "output": "c"},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "ghost_snapshot", "ghost_commit": {}}, {"type": "compaction", "encrypted_content": "gAAAAA"},
        {"role": "user", "content": "Go on."}]}


def read_events(server, body):
    request = urllib.request.Request(server.url + "/v1/responses", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        return [json.loads(line[6:]) for line in answer.read().decode().split("\n") if line.startswith("data: {")]


def test_codex_request(server):
    """G1: each kind of item is met, alone and together, and the events stand in their order."""
    for items in [CODEX["input"]] + [[item] for item in CODEX["input"]]:
        events = read_events(server, CODEX | {"input": items})
        assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
        assert events[-1]["type"] in ("response.completed", "response.incomplete")
        assert events[-1]["response"]["usage"]["total_tokens"] > 0 and events[-1]["response"]["id"]
    probe = read_events(server, CODEX | {"input": [], "max_output_tokens": 1})
    assert probe[-1]["type"] == "response.incomplete"


def test_json_object(client):
    text = client.responses.create(**ASK | OFF, text={"format": {"type": "json_object"}})
    assert text.output_text.startswith("{") and (text.status == "incomplete" or json.loads(text.output_text) is not None)


def test_count_is_exact(client):
    n = client.responses.input_tokens.count(model="q", input=ASK["input"], instructions="s", tools=TOOLS).input_tokens
    assert n == client.responses.create(**ASK | {"max_output_tokens": 1}, instructions="s", tools=TOOLS).usage.input_tokens


@pytest.mark.parametrize("more, param, code", [
    ({"input": "x " * 40000}, None, "context_length_exceeded"),
    ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
    ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"), ({"background": True}, None, "unsupported_parameter"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]", None),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}, "input[0].content[0]", None),
    ({"max_output_tokens": -1}, "max_output_tokens", None), ({"max_output_tokens": "5"}, "max_output_tokens", None),
    ({"temperature": -1}, "temperature", None), ({"top_p": 2}, "top_p", None),
    ({"reasoning": {"effort": "odd"}}, "reasoning_effort", None),
    ({"tools": [{"type": "function", "name": 5}]}, "tools[0].name", None),
    ({"tool_choice": NAMED, "tools": []}, None, None),
])
def test_errors(client, more, param, code):
    with pytest.raises(openai.BadRequestError) as e:
        client.responses.create(**ASK | more)
    assert e.value.body["message"] and e.value.body["type"] == "invalid_request_error"
    assert e.value.code == code
    if param:
        assert e.value.param == param


def test_nothing_is_stored(client):
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as e:
            call("resp_1")
        assert e.value.code == "response_not_found"


def test_cancel(client):
    """An answer that is being written is ended by its id, and its stream says so."""
    with client.responses.create(**ASK | {"max_output_tokens": 30000} | OFF, stream=True,
                                 extra_body={"ignore_eos": True}) as stream:
        events = iter(stream)
        response = next(events).response
        threading.Timer(0.3, client.responses.cancel, [response.id]).start()
        last = [event.type for event in events][-1]
    assert last == "response.failed"


def test_pings():
    """G2: events, not comments, come while a long prompt is read: Codex counts the time between events."""
    from serving import Server
    n_word = 300 if IS_SANITIZED else 2500
    with Server("--ping", "0.02", "--threads", "1") as server:
        events = read_events(server, {"input": "word " * n_word, "max_output_tokens": 4, "stream": True})
        types = [e["type"] for e in events]
        assert types.index("response.output_item.added") > 2 and set(types[1:3]) == {"response.in_progress"}
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
        with client.responses.stream(model="q", input="other " * n_word, max_output_tokens=4) as stream:
            assert [e.type for e in stream][-1] == "response.incomplete"
