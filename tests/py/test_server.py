"""The server beyond any protocol: health, routes, metrics, the log, shutting down."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import threading
import time

import pytest

from conftest import IS_SANITIZED, MODEL, wait_until
from serving import Server

CHAT = "/v1/chat/completions"


def chat(text="Hello", **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **more}


def test_health_and_routes(server):
    assert server.get("/health").status == 200
    assert server.request("HEAD", "/health").status == 200
    assert server.get("/nowhere").status == 404
    for method, path, allowed in ("GET", CHAT, "POST"), ("DELETE", "/health", "GET, HEAD"):
        refused = server.request(method, path)
        assert refused.status == 405 and refused.headers["Allow"] == allowed
    for path in ("/v1/chat/completions/../../health", "/v1/chat/completions/%2e%2e/health"):
        assert server.get(path).status in (400, 404)


@pytest.mark.parametrize("body, words", [
    (b"{", "request"), (b"[]", "an array"), (b"7", "an integer"), (b'{"messages": "x"}', "messages"),
    (b"\xff", "request"), (b'{"a":' * 200 + b"1" + b"}" * 200, "deep"), (b"[" * 10000 + b"]" * 10000, "deep"),
])
def test_bad_bodies_are_a_sentence(server, body, words):
    began = server.cpu_s()
    answer = server.post(CHAT, body)
    assert answer.status == 400 and server.cpu_s() - began < 5
    assert words in json.loads(answer.data)["error"]["message"]


def test_health_while_loading_and_bad_model(tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF nonsense")
    broken = Server(model=bad, waits=False)
    assert broken.process.wait(60) == 1
    broken.stop(rc=1)
    assert broken.lines[-1].startswith("pantheon: ") and "bad.gguf" in broken.lines[-1]


def test_model_cut_short_is_a_sentence(tmp_path):
    """The thread that reads the lost page is the engine's."""
    model = shutil.copy(MODEL, tmp_path / "model.gguf")
    s = Server(model=model)
    os.truncate(model, 1000)
    with pytest.raises(ConnectionError):
        s.post(CHAT, chat())
    assert s.process.wait(60) == 1
    s.reader.join(60)
    assert "made shorter while it was in use" in s.log


def test_port_in_use_is_a_sentence(server):
    with pytest.raises(AssertionError, match="in use"):
        Server("--port", server.port)


def test_metrics_count_what_happened():
    with Server() as s:
        s.ask(CHAT, chat("Tell me about the sea. " * 20))
        again = s.ask(CHAT, chat("Tell me about the sea. " * 20))
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert s.metric("pantheon:requests_total") == 2
        assert s.metric("pantheon:prefix_cache_hits_total") == 1
        assert s.metric("pantheon:prompt_tokens_total") == 2 * again["usage"]["prompt_tokens"]
        n = again["usage"]["prompt_tokens"]
        assert n < s.metric("pantheon:evaluated_tokens_total") <= n + 32
        assert s.metric("pantheon:time_to_first_token_seconds_count") == 2
        assert s.metric('pantheon:http_responses_total{code="200"}') >= 2
    line = [x for x in s.lines if CHAT in x][-1]
    assert re.search(r"chatcmpl-\w+ /v1/chat/completions 200, prompt \d+ \(9\d\.\d % cached\), first token \d+\.\d\d s, "
                     r"\d+ tokens, \d+\.\d tokens/s, (stop|length)$", line), line


def slow_chat(n=3000):
    """Takes long on any machine: it neither ends nor stops."""
    return chat("Count.", max_tokens=n, ignore_eos=True, stream=True)


def open_stream(server, body):
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    link.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
    answer = link.getresponse()
    answer.read(10)
    return link, answer


def test_client_that_leaves_frees_its_work():
    with Server() as s:
        link, _ = open_stream(s, slow_chat(30000))
        assert s.metric("pantheon:num_requests_running") == 1
        link.sock.shutdown(socket.SHUT_RDWR)
        link.close()
        wait_until(lambda: not s.metric("pantheon:num_requests_running"))
        assert s.metric("pantheon:client_aborts_total") == 1, "not one that was answered to its end"


def test_full_queue_is_429():
    with Server("--parallel", 1, "--queue", 1) as s:
        streams = [open_stream(s, slow_chat(30000)) for _ in range(2)]
        answer = s.post(CHAT, chat())
        assert answer.status == 429 and answer.getheader("Retry-After")
        assert s.metric("pantheon:num_requests_waiting") == 1
        for link, _ in streams:
            link.close()


def test_requests_that_are_held_have_a_limit():
    """Four of the longest together, whatever is in them, until their answers are over; one always fits."""
    with Server("--max-body", "1M") as s:
        padded = slow_chat(30000) | {"metadata": "x" * 900_000}
        streams = [open_stream(s, padded) for _ in range(4)]
        answer = s.post(CHAT, padded)
        assert answer.status == 503 and answer.getheader("Retry-After"), answer.data
        for link, _ in streams:
            link.close()
        wait_until(lambda: not s.metric("pantheon:num_requests_running"))
        s.ask(CHAT, chat(metadata="x" * 900_000))


def test_term_lets_answers_end():
    s = Server("--drain", 60)
    link, answer = open_stream(s, slow_chat(400))
    s.process.send_signal(signal.SIGTERM)
    rest = answer.read()
    assert rest.rstrip().endswith(b"data: [DONE]")
    s.stop()


@pytest.mark.parametrize("seconds", [0, 0.5])
def test_term_cuts_at_the_deadline(seconds):
    s = Server("--drain", seconds)
    link, answer = open_stream(s, slow_chat(30000))
    began = time.monotonic()
    s.process.send_signal(signal.SIGTERM)
    rest = answer.read()
    assert b"shutting down" in rest
    assert seconds <= time.monotonic() - began < 25, "the default is 30 s"
    s.stop()


def test_pings_while_nothing_is_said():
    with Server("--ping", 0.2, "--parallel", 1) as s:
        busy, _ = open_stream(s, slow_chat(30000))
        waiting, answer = open_stream(s, chat(stream=True))
        got = answer.read(30)
        assert b":" in got
        whole = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        whole.request("POST", CHAT, json.dumps(chat()), {"Content-Type": "application/json"})
        time.sleep(1)
        busy.close()
        body = whole.getresponse().read()
        assert body.startswith(b" ") and json.loads(body)["choices"]
        waiting.close()


def test_stop_thinking_ends_the_thought():
    with Server() as s:
        close = s.ask("/tokenize", {"content": "</think>", "parse_special": True})["tokens"][0]
        link = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        link.request("POST", CHAT, json.dumps(chat("Think long.", max_tokens=20000, stream=True, enable_thinking=True,
                                                   ignore_eos=True, logit_bias={close: -100})))
        answer = link.getresponse()
        first = answer.readline()
        ident = json.loads(first[6:])["id"]
        assert s.post(f"{CHAT}/{ident}/stop_thinking", {}).status == 200
        text = b""
        while b'"content": "' not in text.replace(b'"content": ""', b""):
            piece = answer.readline()
            assert piece, text[-500:]
            text += piece
        assert b"reasoning_content" in text
        link.close()
        assert s.post(f"{CHAT}/nobody/stop_thinking", {}).status == 404
