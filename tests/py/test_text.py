"""tokenize, detokenize and render through pipes and files."""
import json
import random
import unicodedata

import pytest
from conftest import DATA, MODEL, N_VOCAB, pantheon

QWEN = DATA / "tokenizer/qwen36-vocab.gguf"  # the vocabulary of 248,320, without weights


def ids_of(data, *options, model=MODEL):
    return json.loads(pantheon("tokenize", "-m", model, *options, input=data).ok().out)


def back(ids, model=MODEL):
    return pantheon("detokenize", "-m", model, input=json.dumps(ids).encode()).ok().out


RNG = random.Random(5)
TEXTS = [b"", b"a", b"Hello, World!\n", "Zürich naïve 你好 🙂 e\u0301".encode(), b"  \n\n\t x\r\n", b"\0\xff\xfe\x80",
         bytes(range(256)), RNG.randbytes(20000), b"a" * 100000, b"<|im_start|>user\nhi<|im_end|>", b"\xed\xa0\x80\xc0\xaf"]


@pytest.mark.parametrize("model", [MODEL, QWEN], ids=["tiny", "qwen"])
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_any_bytes_come_back(model, text):
    assert back(ids_of(text, "--no-nfc", model=model), model) == text


@pytest.mark.parametrize("text", ["e\u0301", "A\u030a ﬁ \u1100\u1161\u11a8", "q\u0323\u0307 q\u0307\u0323"])
def test_nfc_comes_back_as_nfc(text):
    assert back(ids_of(text.encode())) == unicodedata.normalize("NFC", text).encode()
    assert back(ids_of(text.encode(), "--no-nfc")) == text.encode()


def test_special_tokens_only_when_asked():
    text = b"<|im_start|>user\nhi<|im_end|>\n"
    plain, special = ids_of(text), ids_of(text, "--special")
    assert len(special) < len(plain) and back(special) == back(plain) == text


def test_files_and_standard_input_agree(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"In the beginning was the Word.\n")
    r = pantheon("tokenize", "-m", MODEL, "-f", text).ok()
    assert r.out.endswith(b"]\n") and json.loads(r.out) == ids_of(text.read_bytes())
    ids = tmp_path / "ids"
    ids.write_bytes(r.out)
    assert pantheon("detokenize", "-m", MODEL, "-f", ids).ok().out == text.read_bytes()


def test_verbose_speaks_on_standard_error():
    r = pantheon("tokenize", "-m", MODEL, "-v", input=b"hi").ok()
    json.loads(r.out)
    assert "MB/s" in r.err


@pytest.mark.parametrize("ids, word", [(f"[{N_VOCAB}]", N_VOCAB), ("[-1]", "-1"), ("[1.5]", ""), ("[1, x]", ""),
                                       ('{"a":1}', ""), ("[" * 5000, ""), ("[99999999999999999999]", "")])
def test_detokenize_refuses(ids, word):
    r = pantheon("detokenize", "-m", MODEL, input=ids.encode()).says(1, word)
    assert r.out == b""


def test_input_file_missing_or_directory(tmp_path):
    for command in ("tokenize", "detokenize", "render"):
        pantheon(command, "-m", MODEL, "-f", tmp_path / "none").says(1, tmp_path / "none")
        pantheon(command, "-m", MODEL, "-f", tmp_path).says(1, tmp_path)


# --- render ---------------------------------------------------------------------------------------

def render(request, model=MODEL):
    data = request if isinstance(request, bytes) else json.dumps(request).encode()
    return pantheon("render", "-m", model, input=data)


def test_render_of_one_question():
    r = render({"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": True}).ok()
    assert r.text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n" and r.err == ""


def test_render_without_thinking_and_with_system():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ä <|im_end|>"}]
    r = render({"messages": messages, "add_generation_prompt": True, "enable_thinking": False}).ok()
    assert r.text == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nä <|im_end|><|im_end|>\n"
                      "<|im_start|>assistant\n<think>\n\n</think>\n\n")


@pytest.mark.parametrize("request_, words", [
    (b"", ["standard input"]), (b"{", ["standard input"]), (b"[]", []), (b'{"messages":5}', ["messages"]),
    ({"messages": []}, []), ({"messages": [{"role": "king", "content": "x"}]}, ["role"]),
    ({"messages": [{"role": "user", "content": 5}]}, ["content"]),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]}, []),
    (b"[" * 100000, []), (b'{"messages":[{"role":"user","content":"\xff"}]}', []),
])
def test_render_refuses(request_, words):
    r = render(request_).says(1, *words)
    assert r.out == b""
