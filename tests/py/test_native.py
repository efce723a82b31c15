"""llama-server's own endpoints, as its scripts use them: completions, infill, tokens, templates, slots and their files."""
import concurrent.futures
import http.client
import json
import os
import threading
import time

import pytest

from conftest import IS_SANITIZED
from serving import Server

GREEDY = {"temperature": 0, "ignore_eos": True}


def stream(server, path, body):
    """The events of a streamed answer, parsed."""
    answer = server.post(path, body | {"stream": True})
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/event-stream"), answer.data
    lines = [line for line in answer.data.decode().split("\n") if line]
    assert all(line.startswith("data: ") for line in lines if not line.startswith(":"))
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def test_completion_whole_and_streamed(server):
    body = GREEDY | {"prompt": "The sea was calm. " * 20, "n_predict": 24, "return_tokens": True, "seed": 5}
    whole = server.ask("/completion", body)
    assert whole["stop"] is True and whole["stop_type"] == "limit" and whole["truncated"] is False
    assert whole["tokens_predicted"] == 24 == len(whole["tokens"]) == whole["timings"]["predicted_n"]
    assert whole["generation_settings"]["temperature"] == 0 and whole["generation_settings"]["n_predict"] == 24
    events = stream(server, "/completion", body)
    assert "".join(e["content"] for e in events) == whole["content"]
    assert [t for e in events for t in e["tokens"]] == whole["tokens"]
    assert [e["stop"] for e in events] == [False] * (len(events) - 1) + [True]
    n = whole["tokens_evaluated"]
    assert events[-1]["tokens_cached"] == n - 1 == events[-1]["timings"]["cache_n"]
    assert events[-1]["timings"]["prompt_n"] == 1
    assert server.ask("/detokenize", {"tokens": whole["tokens"]})["content"] == whole["content"]


def test_completion_stops_at_a_word(server):
    body = GREEDY | {"prompt": "Once upon a time there was", "n_predict": 24}
    text = server.ask("/completion", body)["content"]
    word = text[8:14]
    answer = server.ask("/completion", body | {"stop": ["\x01none", word]})
    assert answer["stop_type"] == "word" and answer["stopping_word"] == word
    assert answer["content"] == text[:text.index(word)]


def test_completion_of_tokens_is_that_of_their_text(server):
    text = "The sea is"
    tokens = server.ask("/tokenize", {"content": text})["tokens"]
    body = GREEDY | {"n_predict": 8}
    answers = [server.ask("/completion", body | {"prompt": p})["content"] for p in (text, tokens, [tokens])]
    assert answers[0] == answers[1] == answers[2]


def test_probabilities(server):
    answer = server.ask("/completion", GREEDY | {"prompt": "The sea is", "n_predict": 6, "n_probs": 3})
    probs = answer["completion_probabilities"]
    assert len(probs) == 6
    for p in probs:
        assert len(p["top_logprobs"]) == 3 and p["logprob"] <= 0
        assert p["id"] == p["top_logprobs"][0]["id"]  # greedy
        assert p["top_logprobs"][0]["logprob"] >= p["top_logprobs"][1]["logprob"] >= p["top_logprobs"][2]["logprob"]
    text = b"".join(bytes(p["bytes"]) for p in probs)
    assert text.decode(errors="replace") == answer["content"]


def test_infill(server):
    body = GREEDY | {"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n", "n_predict": 8,
                     "input_extra": [{"filename": "x.py", "text": "y = 1\n"}]}
    answer = server.ask("/infill", body)
    assert answer["tokens_predicted"] == 8
    prompt = ("<|repo_name|>myproject\n<|file_sep|>x.py\ny = 1\n<|file_sep|>filename\n<|fim_prefix|>" +
              body["input_prefix"] + "<|fim_suffix|>\n<|fim_middle|>")
    assert server.ask("/completion", GREEDY | {"prompt": prompt, "n_predict": 8})["content"] == answer["content"]


def test_writing_for_so_long(server):
    """llama.vim's limit: the answer ends at the first line break behind it."""
    newline, = server.ask("/tokenize", {"content": "\n"})["tokens"]
    n = 100 if IS_SANITIZED else 400
    body = GREEDY | {"prompt": "The sea", "n_predict": n, "logit_bias": [[newline, 8]]}
    whole = server.ask("/completion", body)
    assert whole["tokens_predicted"] == n and whole["content"].count("\n") > 5
    for path, cut in (("/completion", "stop_type"), ("/v1/completions", "finish_reason")):
        answer = server.ask(path, body | {"t_max_predict_ms": 1})
        choice = answer if path == "/completion" else answer["choices"][0]
        text = choice.get("content", choice.get("text"))
        assert choice[cut] in ("limit", "length") and text.endswith("\n") and len(text) < len(whole["content"])
        assert whole["content"].startswith(text)
    assert server.ask("/completion", body | {"t_max_predict_ms": 10**6})["content"] == whole["content"]


def test_template_is_what_chats_read(server):
    chat = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Hello"}]}
    prompt = server.ask("/apply-template", chat)["prompt"]
    n = len(server.ask("/tokenize", {"content": prompt})["tokens"])
    usage = server.ask("/v1/chat/completions", chat | {"max_tokens": 1})["usage"]
    assert usage["prompt_tokens"] == n


@pytest.mark.parametrize("path, body, word", [
    ("/completion", {}, "prompt"), ("/completion", {"prompt": ""}, "prompt"),
    ("/completion", {"prompt": "a", "n_predict": 2**63 - 1}, "n_predict"),
    ("/completion", {"prompt": "a", "mirostat": 1}, "mirostat"),
    ("/completion", {"prompt": "a", "id_slot": 99}, "slot"),
    ("/completion", {"prompt": [2**31]}, "prompt[0]"),
    ("/infill", {"input_prefix": "a"}, "input_suffix"),
    ("/tokenize", {"content": []}, "content"), ("/detokenize", {"tokens": "a"}, "tokens"),
    ("/apply-template", {}, "messages"), ("/slots/0?action=copy", {}, "action"),
    ("/slots/x?action=erase", {}, "slot"),
])
def test_refusals_name_the_field(server, path, body, word):
    error = server.ask(path, body, status=400)["error"]
    assert word in error["message"] and error["type"] == "invalid_request_error"


def test_prompt_beyond_the_context():
    with Server("--ctx", "256") as s:
        error = s.ask("/completion", {"prompt": "word " * 400}, status=400)["error"]
        assert error["code"] == "context_length_exceeded"
        assert error["n_prompt_tokens"] > error["n_ctx"] == 256
        full = s.ask("/completion", GREEDY | {"prompt": "word " * 100})
        assert full["stop_type"] == "limit"
        assert full["tokens_evaluated"] + full["tokens_predicted"] in (256, 257)


# --- slots -----------------------------------------------------------------------------------------

@pytest.fixture
def slot_server(tmp_path):
    folder = tmp_path / "slots"
    folder.mkdir()
    with Server("--parallel", "2", "--slot-save-path", folder, "--cache-ram", "256M") as s:
        s.folder = folder
        yield s


def kept(server):
    return {row["id"]: row for row in json.loads(server.get("/slots").data)}


def test_slots_keep_save_and_restore(slot_server):
    s = slot_server
    assert kept(s) == {}
    body = GREEDY | {"prompt": "Once upon a time there was", "n_predict": 40, "id_slot": 1}
    first = s.ask("/completion", body)
    assert first["id_slot"] == 1
    n_held = kept(s)[1]["n_prompt_tokens"]
    assert n_held in (first["tokens_evaluated"] + 39, first["tokens_evaluated"] + 40)
    saved = s.ask("/slots/1?action=save", {"filename": "a.bin"})
    assert saved["n_saved"] == n_held and saved["n_written"] == (s.folder / "a.bin").stat().st_size > 0
    longer = body | {"prompt": body["prompt"] + first["content"] + " and then", "n_predict": 8}
    alone = s.ask("/completion", longer | {"id_slot": -1, "cache_prompt": False})
    assert s.ask("/slots/0?action=restore", {"filename": "a.bin"})["n_restored"] == n_held
    assert s.ask("/slots/1?action=erase", {})["n_erased"] == n_held
    assert list(kept(s)) == [0]
    again = s.ask("/completion", longer | {"id_slot": 0})
    assert again["content"] == alone["content"]
    with Server("--slot-save-path", s.folder, "--cache-dir", "none") as other:  # a new process
        assert other.ask("/slots/2?action=restore", {"filename": "a.bin"})["n_restored"] == n_held
        again = other.ask("/completion", longer | {"id_slot": 2})
        assert again["content"] == alone["content"]


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "../a", "a\\b", "%2e%2e", "a\0b", "\u00e9", "a" * 300, "~", 5, None])
def test_names_of_files(slot_server, name):
    s = slot_server
    s.ask("/completion", {"prompt": "a b c", "n_predict": 1, "id_slot": 0})
    for action in ("save", "restore"):
        s.ask(f"/slots/0?action={action}", {"filename": name}, status=400)
    assert os.listdir(s.folder) == [] and sorted(os.listdir(s.folder.parent)) == ["slots"]


def test_links_and_other_files_are_left_alone(slot_server):
    s = slot_server
    s.ask("/completion", {"prompt": "a b c", "n_predict": 1, "id_slot": 0})
    s.ask("/slots/0?action=save", {"filename": "good"})
    outside = s.folder.parent / "outside"
    outside.write_text("mine")
    (s.folder / "link").symlink_to(outside)
    (s.folder / "to_good").symlink_to("good")
    (s.folder / "notes").write_text("mine")
    for name in ("link", "to_good", "notes"):
        for action in ("save", "restore"):
            s.ask(f"/slots/0?action={action}", {"filename": name}, status=400)
    s.ask("/slots/0?action=restore", {"filename": "absent"}, status=404)
    assert outside.read_text() == (s.folder / "notes").read_text() == "mine"


def test_without_a_folder(server):
    server.ask("/completion", {"prompt": "a b c", "n_predict": 1, "id_slot": 0})
    error = server.ask("/slots/0?action=save", {"filename": "a"}, status=501)["error"]
    assert "--slot-save-path" in error["message"]


def begin_stream(server, body):
    """An answer of which the first bytes have come; close the connection to leave."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    link.request("POST", "/completion", json.dumps(GREEDY | body | {"stream": True}), {"Content-Type": "application/json"})
    answer = link.getresponse()
    assert answer.status == 200
    answer.readline()
    return link, answer


def test_a_slot_in_use(slot_server):
    s = slot_server
    s.ask("/completion", {"prompt": "a b c", "n_predict": 1, "id_slot": 0})
    s.ask("/slots/0?action=save", {"filename": "x"})
    link, _ = begin_stream(s, {"prompt": "Once upon", "id_slot": 1})
    rows = kept(s)
    assert rows[1]["is_processing"] and rows[1]["next_token"][0]["n_decoded"] > 0
    assert rows[1]["params"]["temperature"] == 0
    for action in ("save", "restore", "erase"):
        s.ask(f"/slots/1?action={action}", {"filename": "x"}, status=409)
    gone, = begin_waiting(s, 1)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # they wait, whoever has it and whoever leaves
        asked = [pool.submit(s.ask, "/completion", GREEDY | {"prompt": "Once upon", "id_slot": 1, "n_predict": 2}) for _ in range(3)]
        time.sleep(0.2)
        assert not any(a.done() for a in asked)
        assert s.ask("/completion", {"prompt": "a", "n_predict": 1})["tokens_predicted"] == 1
        gone.close()
        link.close()
        assert [a.result()["tokens_predicted"] for a in asked] == [2, 2, 2]
    assert not kept(s)[1]["is_processing"]


def begin_waiting(server, n):
    """Requests for slot 1 of which nothing has come yet."""
    body = json.dumps({"prompt": "Once upon", "id_slot": 1, "n_predict": 2})
    links = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(n)]
    for link in links:
        link.request("POST", "/completion", body, {"Content-Type": "application/json"})
    return links


def test_shutting_down_with_waiting(tmp_path):
    with Server("--parallel", "2", "--drain", "0.2") as s:
        link, _ = begin_stream(s, {"prompt": "Once upon", "id_slot": 1})
        links = [link, *begin_waiting(s, 3)]
        time.sleep(0.2)
    for link in links:
        link.close()


def test_saving_beside_answers(slot_server):
    """Answers beside saves, restores and erasures of another slot are those of a server at rest."""
    s = slot_server
    body = GREEDY | {"prompt": "The sea is", "n_predict": 60, "cache_prompt": False}
    want = s.ask("/completion", body)["content"]
    s.ask("/completion", GREEDY | {"prompt": "x " * 300, "n_predict": 4, "id_slot": 0})
    stop = threading.Event()

    def disturb():
        n = 0
        while not n or not stop.is_set():
            s.ask("/slots/0?action=save", {"filename": "d"})
            s.ask("/slots/0?action=erase", {})
            s.ask("/slots/0?action=restore", {"filename": "d"})
            n += 1
        return n

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        disturbing = pool.submit(disturb)
        for _ in range(4):
            assert s.ask("/completion", body)["content"] == want
        stop.set()
        assert disturbing.result() > 0


def test_killed_while_saving_leaves_a_whole_file(slot_server, tmp_path):
    s = slot_server
    s.ask("/completion", GREEDY | {"prompt": "x " * 300, "n_predict": 4, "id_slot": 0})
    n = s.ask("/slots/0?action=save", {"filename": "k"})["n_saved"]
    for delay in (0.0, 0.003, 0.01):
        victim = Server("--slot-save-path", s.folder, "--cache-dir", "none")
        victim.ask("/slots/0?action=restore", {"filename": "k"})

        def save():
            try:
                while True:
                    victim.ask("/slots/0?action=save", {"filename": "k"})
            except (OSError, http.client.HTTPException):
                pass

        saving = threading.Thread(target=save)
        saving.start()
        time.sleep(0.05 + delay)
        victim.kill()
        saving.join()
        assert s.ask("/slots/1?action=restore", {"filename": "k"})["n_restored"] == n
    s.ask("/slots/1?action=erase", {})
