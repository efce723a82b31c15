"""Numbers out of range, of other types and beyond all, and deep nesting, at the endpoints that have fields of their own: each is
a 400 that names the field, or has an effect that is documented, and the server goes on."""
import json

import pytest

from serving import Server

VALUES = ["-1", "-2", "2147483648", "9223372036854775808", "1e999", "-1e999", "NaN", '"5"', "null", "[]", "{}", "1.5", "true"]
SAMPLING = ["temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n", "presence_penalty",
            "frequency_penalty", "seed"]
NATIVE = SAMPLING + ["n_predict", "n_probs", "id_slot", "t_max_predict_ms", "n", "mirostat", "dry_multiplier"]
OLLAMA = SAMPLING + ["num_predict", "mirostat"]
OWN_NAMES = {"num_predict": "n_predict"}


@pytest.fixture(scope="module")
def small():
    with Server("--ctx", "64", "--cache-ram", "64M") as s:
        yield s


def check(server, path, body, field):
    answer = server.post(path, body.encode())
    said = json.loads(answer.data)
    assert answer.status in (200, 400), (body, said)
    if answer.status == 400:
        error = said["error"]
        message = error if isinstance(error, str) else error["message"]
        name = OWN_NAMES.get(field, field)
        # What no JSON number can be is the parser's, which knows the place and no field.
        assert name in message or message.startswith("request"), (body, message)
    return answer.status


@pytest.mark.parametrize("field", NATIVE)
def test_native_numbers(small, field):
    refused = [check(small, "/completion", '{"prompt": "a", "n_predict": 1, "%s": %s}' % (field, v)
                     if field != "n_predict" else '{"prompt": "a", "n_predict": %s}' % v, field) == 400 for v in VALUES]
    by_value = dict(zip(VALUES, refused))
    assert all(by_value[v] for v in ("9223372036854775808", "1e999", "NaN", '"5"', "[]", "{}", "true")), by_value
    assert not by_value["null"]
    assert small.ask("/completion", {"prompt": "a", "n_predict": 1})["tokens_predicted"] == 1


@pytest.mark.parametrize("field", OLLAMA)
def test_ollama_numbers(small, field):
    for v in VALUES:
        body = '{"model": "m", "prompt": "a", "raw": true, "stream": false, "options": {"num_predict": 1, "%s": %s}}'
        if field == "num_predict":
            body = body.replace('"num_predict": 1, ', "")
        status = check(small, "/api/generate", body % (field, v), field)
        assert status == 400 or v in ("-1", "-2", "2147483648", "null", "1.5"), (field, v)


@pytest.mark.parametrize("path", ["/completion", "/infill", "/tokenize", "/detokenize", "/apply-template", "/slots/0?action=erase",
                                  "/api/chat", "/api/generate", "/api/show"])
def test_deep_nesting(small, path):
    deep = b'{"unknown": ' + b"[" * 10000 + b"]" * 10000 + b"}"
    began = small.cpu_s()
    answer = small.post(path, deep)
    assert answer.status == 400 and b"deep" in answer.data and small.cpu_s() - began < 2


@pytest.mark.parametrize("item", ["0,", "[],", '{"a":1},'])
def test_many_items(small, item):
    """What a body may become in memory has a limit, and a request that reaches it holds nobody up."""
    body = '{"unknown": [%s0], "messages": [{"role": "user", "content": "a"}]}' % (item * (1 << 20))
    began = small.cpu_s()
    answer = small.post("/v1/chat/completions", body.encode())
    assert answer.status == 400 and b"items" in answer.data and small.cpu_s() - began < 4
