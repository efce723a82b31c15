"""ollama's endpoints through its official client, and line by line."""
import http.client
import json

import ollama
import pytest

from serving import Server

GREEDY = {"temperature": 0, "num_predict": 24}
USER = [{"role": "user", "content": "Tell me about the sea."}]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells the weather",
                                            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(host=server.url)


def test_the_model(server, client):
    assert int(json.loads(server.get("/api/version").data)["version"].split(".")[1]) >= 6
    listed, running = client.list().models, client.ps().models
    assert len(listed) == len(running) == 1
    assert listed[0].model == running[0].model and listed[0].details.family == "qwen35moe"
    shown = client.show(listed[0].model)
    assert set(shown.capabilities) >= {"completion", "tools", "thinking"}
    assert shown.modelinfo["qwen35moe.context_length"] == running[0].context_length


def test_chat_whole_and_streamed(client):
    whole = client.chat("any:latest", USER, options=GREEDY, think=False)
    assert whole.done and whole.model == "any:latest" and whole.message.role == "assistant"
    assert whole.eval_count > 0 and whole.prompt_eval_count > 5 and not whole.message.thinking
    assert whole.total_duration > 0 and whole.done_reason in ("stop", "length")
    parts = list(client.chat("any:latest", USER, options=GREEDY, think=False, stream=True))
    assert "".join(p.message.content for p in parts) == whole.message.content
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count


def test_thoughts_are_apart(client):
    thinking = client.chat("m", USER, options=GREEDY, think=True)
    assert thinking.message.thinking
    parts = list(client.chat("m", USER, options=GREEDY, think="low", stream=True))
    assert any(p.message.thinking for p in parts)


def test_json(client):
    answer = client.chat("m", USER, options=GREEDY | {"num_predict": 60}, think=False, format="json")
    text = answer.message.content.strip()
    assert text.startswith("{")
    if answer.done_reason == "stop":
        assert isinstance(json.loads(text), dict)


def test_tools_history(client):
    history = USER + [{"role": "assistant", "content": "",
                       "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Kiel"}}}]},
                      {"role": "tool", "tool_name": "weather", "content": "rain"}]
    assert client.chat("m", history, tools=[WEATHER], options=GREEDY, think=False).done


def test_generate(server, client):
    whole = client.generate("m", "Tell me about the sea.", options=GREEDY, think=False)
    assert whole.done and whole.response
    assert whole.response == client.chat("m", USER, options=GREEDY, think=False).message.content
    parts = list(client.generate("m", "Tell me about the sea.", options=GREEDY, think=False, stream=True))
    assert "".join(p.response for p in parts) == whole.response
    raw = client.generate("m", "The sea is", raw=True, options=GREEDY)
    same = server.ask("/completion", {"prompt": "The sea is", "temperature": 0, "n_predict": 24})
    assert raw.response == same["content"]
    assert client.generate("m", "a = ", suffix="\n", options=GREEDY).done


def test_logprobs(client):
    whole = client.chat("m", USER, options=GREEDY, think=False, logprobs=True, top_logprobs=2)
    assert len(whole.logprobs) == whole.eval_count
    for p in whole.logprobs:
        assert p.logprob == p.top_logprobs[0].logprob >= p.top_logprobs[1].logprob
    parts = list(client.chat("m", USER, options=GREEDY, think=False, logprobs=True, top_logprobs=2, stream=True))
    assert [q.token for part in parts for q in part.logprobs or []] == [p.token for p in whole.logprobs]
    assert not client.chat("m", USER, options=GREEDY, think=False).logprobs


def test_load_and_unload(server, client):
    assert client.generate("m").done_reason == "load"
    assert client.generate("m", keep_alive=0).done_reason == "unload"
    assert server.ask("/api/chat", {"model": "m", "stream": False})["done_reason"] == "load"


def test_errors_have_its_shape(server, client):
    with pytest.raises(ollama.ResponseError) as e:
        client.chat("m", [{"role": "user", "content": "x", "images": [b"\x89PNG"]}])
    assert e.value.status_code == 400 and "images" in e.value.error
    with pytest.raises(ollama.ResponseError) as e:
        client.embed("m", "x")
    assert e.value.status_code == 501
    with pytest.raises(ollama.ResponseError) as e:
        client.pull("m")
    assert e.value.status_code == 501
    assert "options" in server.ask("/api/chat", {"messages": USER, "options": 5}, status=400)["error"]
    assert server.request("DELETE", "/api/delete", {"model": "m"}).status == 501


def test_lines(server):
    answer = server.post("/api/chat", {"model": "m", "messages": USER, "options": GREEDY})
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    lines = answer.data.decode().split("\n")
    assert lines.pop() == ""
    for line in lines:
        assert json.loads(line)["created_at"].endswith("Z")


def test_lines_come_while_nothing_is_said():
    """Each is one that the client parses, and adds nothing to the answer."""
    with Server("--ping", "0.1", "--parallel", "1") as s:
        busy = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        busy.request("POST", "/completion", json.dumps({"prompt": "a", "ignore_eos": True, "stream": True}),
                     {"Content-Type": "application/json"})
        assert busy.getresponse().readline()
        client = ollama.Client(host=s.url)
        waiting = iter(client.chat("m", USER, options=GREEDY, think=False, stream=True))
        for _ in range(3):
            part = next(waiting)
            assert not part.done and part.message.content == ""
        busy.close()
        text = "".join(part.message.content for part in waiting)
        assert text == client.chat("m", USER, options=GREEDY, think=False).message.content
