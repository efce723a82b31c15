"""pantheon run with one prompt: text on standard output, all else on standard error, repeatable."""
import json
import os
import pty
import re
import signal
import subprocess

import pytest
from conftest import IS_SANITIZED, MODEL, PROGRAM, clean_env, cpu_s, pantheon, wait_until

QUESTION = "What is the capital of France?"
FIGURES = re.compile(r"\[(\d+) tokens read, [\d.]+ tokens/s; (\d+) generated, [\d.]+ tokens/s(, [a-z ]+)?\]\n")


def run(*options, **more):
    return pantheon("run", "-m", MODEL, *options, **more)


def figures(r):
    """(tokens read, generated, how it ended)"""
    m = FIGURES.fullmatch(r.err)
    assert m, r.err
    return int(m[1]), int(m[2]), m[3] or ""


def test_greedy_answers_and_repeats():
    a = run("-p", QUESTION, "--temp", "0").ok()
    assert "Paris" in a.text and a.text.endswith("\n")
    n_read, n, end = figures(a)
    assert n_read > 5 and 0 < n < 200 and end == "", "it stopped at its end token"
    assert run("-p", QUESTION, "--temp", "0", "-t", 1, "--isa", "scalar").out == a.out


def test_only_text_in_a_pipe():
    r = run("-p", QUESTION, "--temp", "0").ok()
    assert b"\x1b" not in r.out and "\x1b" not in r.err and "<|im_end|>" not in r.text


def test_seed_repeats_and_another_differs():
    options = ["--raw", "-p", "In the beginning", "-n", 40, "--temp", 1]
    texts = [run(*options, "--seed", s).ok().out for s in (1, 1, 2, 3)]
    assert texts[0] == texts[1] and len(set(texts[1:])) == 3
    assert run(*options, env={"PANTHEON_SEED": "1"}).out == texts[0]
    unseeded = {run(*options).ok().out for _ in range(4)}
    assert len(unseeded) > 1


def test_raw_continues_without_a_template():
    r = run("--raw", "-p", "Once upon a", "-n", 12, "--temp", 0).ok()
    n_read, n, end = figures(r)
    assert n_read < 8 and n == 12 and "length" in end


@pytest.mark.parametrize("n", [0, 1, 2, 17])
def test_n_limits_the_answer(n):
    r = run("--raw", "-p", "Once upon a", "-n", n, "--temp", 0, "--ignore-eos").ok()
    assert figures(r)[1] == n
    full = run("--raw", "-p", "Once upon a", "-n", 30, "--temp", 0, "--ignore-eos").text
    assert full.startswith(r.text.rstrip("\n"))


def test_ignore_eos_goes_on():
    short = run("-p", QUESTION, "--temp", 0).ok()
    long = run("-p", QUESTION, "--temp", 0, "--ignore-eos", "-n", 100).ok()
    assert figures(long)[1] == 100 and long.text.startswith(short.text.rstrip("\n"))


def test_no_think_answers_at_once():
    r = run("-p", QUESTION, "--temp", 0, "--no-think").ok()
    assert "think>" not in r.text and r.text.strip()
    assert run("-p", QUESTION, "--temp", 0, env={"PANTHEON_NO_THINK": "1"}).out == r.out


def test_system_message_is_read():
    plain = figures(run("-p", QUESTION, "--temp", 0, "-n", 1).ok())[0]
    more = figures(run("-p", QUESTION, "--temp", 0, "-n", 1, "--system", "You are a poet.").ok())[0]
    assert more > plain + 4


def test_prompt_from_a_file_and_from_standard_input(tmp_path):
    path = tmp_path / "prompt"
    path.write_text(QUESTION)
    want = run("-p", QUESTION, "--temp", 0).ok().out
    assert run("-f", path, "--temp", 0).ok().out == want
    assert run("-f", "-", "--temp", 0, input=QUESTION.encode()).ok().out == want


def test_a_prompt_of_arbitrary_bytes(tmp_path):
    path = tmp_path / "prompt"
    path.write_bytes(bytes(range(256)) * 4)
    run("-f", path, "--temp", 0, "-n", 5).ok()
    run("-f", path, "--temp", 0, "-n", 5, "--raw").ok()


def test_control_words_of_a_user_stay_text():
    plain = figures(run("-p", "x", "-n", 1).ok())[0]
    assert figures(run("-p", "x<|im_end|>", "-n", 1).ok())[0] > plain + 1


def test_without_a_terminal_run_chats_line_by_line():
    r = run("--temp", 0, input=b"What is the capital of France?\n/think off\nWhat is the capital of Italy?\n").ok()
    assert "Paris" in r.text and "Rome" in r.text and "thinking is off" in r.err
    assert b"\x1b" not in r.out
    assert run(input=b"").ok().out == b""


def test_ctrl_c_stops_an_answer_and_keeps_its_text():
    p = subprocess.Popen([PROGRAM, "run", "-m", MODEL, "--raw", "-p", "Once upon a", "--ignore-eos", "-n", "30000"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env())
    assert p.stdout.read(20)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 0 and "stopped" in err.decode(), err


@pytest.mark.skipif(IS_SANITIZED, reason="timing")
def test_ctrl_c_while_a_long_prompt_is_read(tmp_path):
    path = tmp_path / "prompt"
    path.write_text("word and " * 12000)
    p = subprocess.Popen([PROGRAM, "run", "-m", MODEL, "-f", path, "-t", "1", "--isa", "scalar", "-n", "1"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env())
    wait_until(lambda: cpu_s(p.pid) > 0.5, "it does not begin to read")
    p.send_signal(signal.SIGINT)
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    out, err = p.communicate()
    assert used.ru_utime + used.ru_stime < 10, "all of it takes minutes"
    assert out == b"" and p.returncode in (0, 1), (p.returncode, err)


@pytest.mark.skipif(IS_SANITIZED, reason="shadow memory")
@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="Linux")
def test_a_process_has_no_copy_of_the_weights():
    """What a second process costs is its own dirty memory: state and workspace, not the file."""
    p = subprocess.Popen([PROGRAM, "run", "-m", MODEL, "--raw", "-p", "Once upon a", "--ignore-eos", "-n", "30000",
                          "--ctx", "512", "--batch", "8"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env())
    assert p.stdout.read(20)
    with open(f"/proc/{p.pid}/smaps_rollup") as f:
        kb = {k: int(v) for k, v in re.findall(r"(\w+): +(\d+) kB", f.read())}
    p.kill()
    p.communicate(timeout=30)
    assert kb["Rss"] * 1024 > MODEL.stat().st_size / 2, "the weights are mapped and read"
    assert kb["Private_Dirty"] * 1024 < MODEL.stat().st_size / 2


def on_a_terminal(*options, **env):
    """What run writes to a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(PROGRAM, [str(PROGRAM), "run", "-m", str(MODEL), *options], clean_env(**env))
    got = b""
    try:
        while chunk := os.read(fd, 4096):
            got += chunk
    except OSError:  # the other end is closed
        pass
    os.close(fd)
    assert os.waitpid(pid, 0)[1] == 0
    return got


def test_thoughts_are_dim_on_a_terminal():
    got = on_a_terminal("-p", QUESTION, "--temp", "0")
    dim, plain = got.index(b"\x1b[2m"), got.rindex(b"\x1b[0m")
    assert dim < plain and b"Paris" in got[plain:], "the answer is not dimmed"


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_where_none_are_wanted(env):
    assert b"\x1b[2m" not in on_a_terminal("-p", QUESTION, "--temp", "0", **env)


def test_verbose_says_what_was_loaded():
    quiet = pantheon("run", "-m", MODEL, "-p", "hi", "--temp", "0", "-n", "1").ok()
    r = pantheon("run", "-m", MODEL, "-p", "hi", "--temp", "0", "-n", "1", "-v").ok()
    assert "8 layers (2 with attention)" in r.err and "ssm_alpha" in r.err
    assert r.out == quiet.out and "layers" not in quiet.err


ASK = ["-p", QUESTION, "--no-think", "--temp", 1, "--seed", 3]
HAS_LLGUIDANCE = os.path.exists("build/llguidance/libpantheon_llguidance.so")
LLGUIDANCE = ["--llguidance", "build/llguidance/libpantheon_llguidance.so"]


def test_json_object():
    r = run(*ASK, "-n", 60, "--json-object").ok()
    assert r.text.lstrip().startswith("{"), r.text


@pytest.mark.skipif(not HAS_LLGUIDANCE, reason="make llguidance")
def test_json_schema_and_grammar(tmp_path):
    schema, grammar = tmp_path / "s.json", tmp_path / "g.gbnf"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}}, '
                      '"required": ["n"], "additionalProperties": false}')
    n = json.loads(run(*ASK, *LLGUIDANCE, "--json-schema", schema).ok().text)["n"]
    assert 0 <= n <= 99
    grammar.write_text('root ::= ("yes" | "no") " sir"')
    assert run(*ASK, *LLGUIDANCE, "--grammar", grammar).ok().text in ("yes sir\n", "no sir\n")
    grammar.write_text("root ::= root")
    r = run(*ASK, *LLGUIDANCE, "--grammar", grammar)
    assert r.rc == 1 and "never ends" in r.err and str(grammar) in r.err
    schema.write_text('{"not": {}}')
    assert "not" in run(*ASK, *LLGUIDANCE, "--json-schema", schema).err


def test_constraints_that_cannot_be(tmp_path):
    r = run(*ASK, "--json-schema", tmp_path / "none.json")
    assert r.rc == 1 and "none.json" in r.err
    r = run(*ASK, "--json-object", "--grammar", "x")
    assert r.rc == 2 and "one of" in r.err
    (tmp_path / "s.json").write_text("{}")
    r = run(*ASK, "--llguidance", tmp_path / "none.so", "--json-schema", tmp_path / "s.json")
    assert r.rc == 1 and "make llguidance" in r.err and r.err.count("\n") == 1


@pytest.mark.parametrize("budget", [0, 3])
def test_think_budget(budget):
    r = run("-p", QUESTION, "--temp", 0, "-n", budget + 8, "--ignore-eos", "--think-budget", budget).ok()
    assert "</think>\n\n" in r.text
    assert len(r.text.split("</think>")[0].split()) <= budget
