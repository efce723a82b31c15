"""pantheon batch: a file of requests to a file of answers; shards, resuming, bad lines, a full disk."""
import json
import signal
import subprocess
import time


from conftest import MODEL, PROGRAM, clean_env, pantheon

CHAT = "/v1/chat/completions"


def request(i, url=CHAT, **more):
    body = {"messages": [{"role": "user", "content": f"Say {i}"}], "max_tokens": 6, "temperature": 0, **more}
    return {"custom_id": f"id-{i}", "method": "POST", "url": url, "body": body}


def write(path, lines):
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


def read(path):
    lines = [json.loads(x) for x in path.read_text().splitlines()]
    found = {x["custom_id"]: x for x in lines}
    assert len(found) == len(lines), "an id is there twice"
    return found


def fails(*args, words):
    """Exit 1 and a last line that has the words; figures may come before."""
    r = pantheon("batch", *args, "-m", MODEL)
    last = r.err.splitlines()[-1]
    assert r.rc == 1 and last.startswith("pantheon: ") and all(w in last for w in words), (r.rc, r.err)


def test_answers_are_the_server_s(tmp_path, server):
    cases = [request(i) for i in range(12)] + [
        request(12, "/v1/completions", prompt="Once", stream=True),
        request(13, "/v1/messages", model="x", stream=True)]
    out = tmp_path / "out.jsonl"
    r = pantheon("batch", write(tmp_path / "in.jsonl", cases), "-o", out, "-m", MODEL).ok()
    assert "[14 answered, 0 refused, 0 done before]" in r.err
    answers = read(out)
    for case in cases:
        response = answers[case["custom_id"]]["response"]
        assert response["status_code"] == 200 and answers[case["custom_id"]]["error"] is None
        alone = server.ask(case["url"], {**case["body"], "stream": False})
        for key in ("choices", "content"):
            assert response["body"].get(key) == alone.get(key)


def test_bad_lines_have_answers_too(tmp_path):
    lines = [request(0), "{", "7", '{"custom_id": "a"}', request(0), request(1, "/v1/nowhere"),
             request(2, temperature="hot"), "", {**request(3), "method": "GET"}, request(4),
             {**request(5), "custom_id": ""}, request(6, "/v1/chat/completions\0x")]
    out = tmp_path / "out.jsonl"
    r = pantheon("batch", write(tmp_path / "in.jsonl", lines), "-o", out, "-m", MODEL).ok()
    assert "[2 answered, 9 refused, 0 done before]" in r.err
    answers = [json.loads(x) for x in out.read_text().splitlines()]
    errors = [x["error"]["message"] for x in answers if x["error"]]
    for words in ("line 2", "line 3", "line 4: url", "line 5: custom_id", "line 9: method", "line 11: custom_id", "line 12: url"):
        assert any(words in e for e in errors), (words, errors)
    status = {x["custom_id"]: x["response"]["status_code"] for x in answers if x["response"]}
    assert status == {"id-0": 200, "id-1": 404, "id-2": 400, "id-4": 200}


def test_shards_share_a_file_out(tmp_path):
    source = write(tmp_path / "in.jsonl", [request(i) for i in range(10)])
    found = {}
    for i in range(3):
        out = tmp_path / f"out{i}.jsonl"
        pantheon("batch", source, "-o", out, "-m", MODEL, "--shard", f"{i}/3").ok()
        found |= read(out)
    assert len(found) == 10
    for bad in ("3/3", "-1/3", "1", "0/0", "1/3x"):
        pantheon("batch", source, "-o", tmp_path / "x", "-m", MODEL, "--shard", bad).says(2, "--shard", bad)


def test_killed_and_resumed_loses_nothing(tmp_path):
    source = write(tmp_path / "in.jsonl", [request(i, max_tokens=60, ignore_eos=True) for i in range(60)])
    out = tmp_path / "out.jsonl"
    args = [PROGRAM, "batch", source, "-o", out, "-m", MODEL]
    for how in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        p = subprocess.Popen(args, env=clean_env(), stderr=subprocess.PIPE)
        before = len(out.read_bytes().splitlines()) if out.exists() else 0
        end = time.monotonic() + 60
        while not out.exists() or len(out.read_bytes().splitlines()) < before + 5:
            assert time.monotonic() < end and p.poll() is None
            time.sleep(0.005)
        p.send_signal(how)
        _, said = p.communicate()
        # Lines are left: this is no success, although the answers that ran were finished.
        assert p.returncode == (-how if how == signal.SIGKILL else 1), said
        assert how == signal.SIGKILL or b"--resume goes on" in said
        args += ["--resume"] if "--resume" not in args else []
    with open(out, "ab") as f:
        f.write(b'{"custom_id": "id-5')  # as a process killed within a write leaves it
    r = pantheon(*args[1:]).ok()
    assert len(read(out)) == 60
    assert ", 0 done before" not in r.err
    again = pantheon(*args[1:]).ok()
    assert "[0 answered, 0 refused, 60 done before]" in again.err


def test_files_that_are_in_the_way(tmp_path):
    source = write(tmp_path / "in.jsonl", [request(0)])
    out = write(tmp_path / "out.jsonl", ["precious"])
    pantheon("batch", source, "-o", out, "-m", MODEL).says(1, "out.jsonl", "--resume")
    pantheon("batch", source, "-o", out, "-m", MODEL, "--resume").says(1, "line 1")
    assert out.read_text() == "precious\n"
    for precious in ('{"custom_id": "a", "url": "/x", "body": {}}\n', "notes without a line's end", '{"a": 1}'):
        out.write_text(precious)
        pantheon("batch", source, "-o", out, "-m", MODEL, "--resume").says(1, "line 1 is no answer")
        assert out.read_text() == precious
    before = source.read_bytes().rstrip()
    source.write_bytes(before)
    pantheon("batch", source, "-o", source, "-m", MODEL, "--resume").says(1, "in.jsonl", "file of requests")
    assert source.read_bytes() == before
    pantheon("batch", tmp_path / "none", "-o", tmp_path / "x", "-m", MODEL).says(1, "none")
    pantheon("batch", source, "-m", MODEL).says(2, "-o")


def test_full_disk_is_an_error(tmp_path):
    source = write(tmp_path / "in.jsonl", [request(i) for i in range(3)])
    fails(source, "-o", "/dev/full", "--resume", words=["/dev/full", "No space"])


def test_endless_line_is_an_error(tmp_path):
    fails("/dev/zero", "-o", tmp_path / "out", words=["/dev/zero: line 1", "64 MiB"])
