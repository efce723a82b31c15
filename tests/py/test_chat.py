"""The interactive chat, on a pseudo terminal."""
import json
import os
import pty
import re
import select
import signal
import termios
import time

import pytest
from conftest import MODEL, PROGRAM, clean_env, pantheon, wait_until

PROMPT = rb"> (\x1b\[[0-9;?]*[a-zA-Z])*$"
FIGURES = rb"\[\d+ tokens read.*?\]\r\n"
LIMIT_S = 60
FRANCE, ITALY = "What is the capital of France?", "What is the capital of Italy?"


class Chat:
    """run on a terminal; expect() waits for a pattern in what has not been expected yet."""

    def __init__(self, state_dir, *options, **env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            full = clean_env(XDG_STATE_HOME=str(state_dir), XDG_CACHE_HOME=str(state_dir), **env)
            os.execve(PROGRAM, [str(PROGRAM), "run", "-m", str(MODEL), *options], full)
        self.seen, self.status = b"", None

    def expect(self, pattern):
        end = time.monotonic() + LIMIT_S
        while not (m := re.search(pattern, self.seen, re.S)):
            assert time.monotonic() < end, f"{pattern!r} did not come; there is {self.seen!r}"
            if select.select([self.fd], [], [], 0.5)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    raise AssertionError(f"the program ended; there is {self.seen!r}")
        before, self.seen = self.seen[:m.end()], self.seen[m.end():]
        return before

    def prompt(self):
        """Waits for the prompt, and for the line editor behind it to take the terminal over."""
        before = self.expect(PROMPT)
        end = time.monotonic() + LIMIT_S
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < end
            time.sleep(0.005)
        return before

    def send(self, data):
        os.write(self.fd, data.encode() if isinstance(data, str) else data)

    def ask(self, line):
        """Sends a line at the prompt; what came up to and with the next prompt."""
        self.send(line + "\r")
        return self.expect(FIGURES) + self.prompt()

    def ends(self):
        """Waits for the end; the exit status."""
        end = time.monotonic() + LIMIT_S
        while self.status is None:
            assert time.monotonic() < end, f"it did not end; there is {self.seen!r}"
            try:
                if select.select([self.fd], [], [], 0.05)[0]:
                    self.seen += os.read(self.fd, 65536)
            except OSError:
                pass
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if done else None
        return os.waitstatus_to_exitcode(self.status)

    def kill(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitpid(self.pid, 0)[1]

    def close(self):
        self.kill()
        os.close(self.fd)


def figures(text):
    """Tokens read for the answer, and those before that were known."""
    m = re.search(rb"\[(\d+) tokens read(?: after (\d+) known ones)?, ", text)
    return int(m[1]), int(m[2] or 0)


def n_prompt(text):
    return sum(figures(text))


@pytest.fixture
def chat(tmp_path):
    opened = []

    def new(*options, state=tmp_path, **env):
        opened.append(Chat(state, *(options or ("--temp", "0")), **env))
        return opened[-1]

    yield new
    for c in opened:
        c.close()


def test_two_turns_and_the_end(chat):
    c = chat()
    assert b"/help" in c.prompt()
    assert b"Paris" in c.ask("What is the capital of France?")
    second = c.ask("What is the capital of Italy?")
    assert b"Rome" in second and b"Paris" not in second
    c.send("/quit\r")
    assert c.ends() == 0


def test_thoughts_are_dim(chat):
    c = chat()
    c.prompt()
    assert b"\x1b[2m" in c.ask("What is the capital of France?")
    c.send("/think off\r")
    assert b"thinking is off" in c.prompt()
    assert b"\x1b[2m" not in c.ask("What is the capital of France?")


def test_no_color(chat):
    c = chat(NO_COLOR="1")
    c.prompt()
    assert b"\x1b[2m" not in c.ask("What is the capital of France?")


def test_commands(chat):
    c = chat()
    c.prompt()
    c.send("/help\r")
    listing = c.prompt()
    for word in (b"/help", b"/undo", b"/save FILE", b"/load FILE", b"/resume", b"/reset", b"/system", b"/think", b"/quit",
                 b"Ctrl-C"):
        assert word in listing
    c.send("/frobnicate\r")
    assert b"/frobnicate is no command" in c.prompt()
    c.send("/think\r")
    assert b"thinking is off" in c.prompt()
    c.send("/think maybe\r")
    assert b"on or off" in c.prompt()
    c.send("/think on\r")
    assert b"thinking is on" in c.prompt()
    c.send("   \r")
    c.prompt()
    first = n_prompt(c.ask("hello"))
    c.send("/reset\r")
    c.prompt()
    assert n_prompt(c.ask("hello")) == first, "nothing was remembered"
    c.send("/system You are a poet.\r")
    c.prompt()
    assert n_prompt(c.ask("hello")) > first


def test_a_pasted_block_is_one_message(chat):
    c = chat()
    c.prompt()
    c.send(b"\x1b[200~What is the capital\nof France?\x1b[201~")
    time.sleep(0.3)
    assert not re.search(FIGURES, c.seen), "the newline inside did not send it"
    c.send("\r")
    c.expect(FIGURES)
    c.prompt()
    time.sleep(0.3)
    c.send("/quit\r")
    assert c.ends() == 0 and b"tokens read" not in c.seen, "one message, one answer"


def test_history_comes_back_in_the_next_session(chat, tmp_path):
    c = chat()
    c.prompt()
    c.ask("What is the capital of France?")
    c.send(b"\x04")
    assert c.ends() == 0
    path = tmp_path / "pantheon/history"
    assert path.is_file() and path.stat().st_mode & 0o077 == 0
    c = chat()
    c.prompt()
    c.send(b"\x1b[A")
    c.expect(rb"capital")
    c.send("\r")
    assert b"Paris" in c.expect(FIGURES)


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(chat):
    c = chat("--ignore-eos", "--temp", "0")
    c.prompt()
    c.send("Tell me a story.\r")
    c.expect(rb"\w+ \w+")
    time.sleep(0.3)
    c.send(b"\x03")
    assert b"stopped" in c.expect(FIGURES)
    c.prompt()
    c.send("/think off\r")
    assert b"thinking is off" in c.prompt()
    c.send("Go on.\r")
    c.expect(rb"\w+ \w+")
    time.sleep(0.2)
    c.send(b"\x03")
    c.expect(FIGURES)
    c.prompt()
    c.send("/quit\r")
    assert c.ends() == 0


def test_ctrl_c_twice_ends_the_program(chat):
    c = chat()
    c.prompt()
    c.send("half a line")
    time.sleep(0.2)
    c.send(b"\x03")
    assert b"again" in c.prompt()
    c.send("/think\r")
    c.prompt()
    c.send(b"\x03")
    assert b"again" in c.prompt(), "the count starts over"
    c.send(b"\x03")
    assert c.ends() == 0


def test_ctrl_d_ends(chat):
    c = chat()
    c.prompt()
    c.send(b"\x04")
    assert c.ends() == 0


def test_a_full_context_ends_the_turn_not_the_chat(chat):
    c = chat("--temp", "0", "--ctx", "64")
    c.prompt()
    c.send("word " * 100 + "\r")
    assert b"64" in c.prompt()
    assert re.search(FIGURES, c.ask("hi"))
    c.send("/quit\r")
    assert c.ends() == 0


def test_undo_takes_the_turn_back(chat):
    c = chat()
    c.prompt()
    question = FRANCE + " stone water king bread year hand light" * 8
    first = c.ask(question)
    c.send("/undo\r")
    assert b"took back: What is the capital of France? stone" in c.prompt()
    again = c.ask(question)
    assert figures(again)[0] < 40 < figures(again)[1], "nor is it read again"
    assert again.split(b"[")[0].split(b"\n", 1)[1] == first.split(b"[")[0].split(b"\n", 1)[1]
    c.send("/undo\r")
    c.prompt()
    c.send("/undo\r")
    assert b"nothing to take back" in c.prompt()


def test_a_killed_chat_goes_on_the_next_day(chat, tmp_path):
    c = chat("--temp", "0", "--system", "You are brief." * 10)
    assert b"/resume" not in c.prompt()
    c.ask("What is the capital of France?")
    wait_until(lambda: any((tmp_path / "pantheon/states").glob("*.pnstate")))
    c.kill()
    path = tmp_path / "pantheon/chat.json"
    assert path.stat().st_mode & 0o077 == 0
    saved = json.loads(path.read_text())
    assert [m["role"] for m in saved["messages"]] == ["system", "user", "assistant"]
    assert "Paris" in saved["messages"][2]["content"] and saved["messages"][2]["reasoning_content"]
    c = chat()
    assert re.search(rb"/resume goes on with the chat of \d{4}-\d\d-\d\d \d\d:\d\d\r\n", c.prompt())
    c.send("/resume\r")
    assert b": 1 turn\r\n" in c.prompt()
    answer = c.ask("What is the capital of Italy?")
    assert b"Rome" in answer and figures(answer)[1] > 0, "nor is the prompt read again"
    c.send("/quit\r")
    assert c.ends() == 0
    assert [m["role"] for m in json.loads(path.read_text())["messages"]][3:] == ["user", "assistant"]
    assert not [p for p in path.parent.iterdir() if p.name not in ("chat.json", "history", "states")], "nothing half written stays"


def test_another_chat_does_not_destroy_the_last(chat, tmp_path):
    first_words = lambda name: json.loads((tmp_path / "pantheon" / name).read_text())["messages"][0]["content"]
    for word in ("one", "two"):
        c = chat()
        c.prompt()
        c.ask(word)
        c.send("/quit\r")
        assert c.ends() == 0
    assert first_words("chat.json") == "two" and first_words("chat.json.before") == "one"
    c = chat()
    c.prompt()
    c.send("/resume\r")
    c.prompt()
    c.ask("more")
    assert first_words("chat.json") == "two" and first_words("chat.json.before") == "one"
    c.send("/reset\r")
    c.prompt()
    c.ask("three")
    assert first_words("chat.json") == "three" and first_words("chat.json.before") == "two"


def test_resume_needs_a_chat(tmp_path):
    where = {"XDG_STATE_HOME": str(tmp_path)}
    r = pantheon("run", "-m", MODEL, "--resume", env=where)
    assert r.rc == 1 and r.err.endswith("pantheon: there is no chat to go on with\n"), r.err


def test_no_place_for_history_is_no_error(chat, tmp_path):
    c = chat(state="/proc/nowhere")
    c.prompt()
    c.ask("hi")
    c.send(b"\x04")
    assert c.ends() == 0


# --- saved conversations --------------------------------------------------------------------------

def script(*lines, state="/proc/nowhere", options=()):
    """A chat without a terminal."""
    return pantheon("run", "-m", MODEL, "--temp", 0, *options, input="\n".join(lines).encode() + b"\n",
                    env={"XDG_STATE_HOME": str(state), "HOME": str(state)})


def test_save_and_load(tmp_path):
    path = tmp_path / "my chat.json"
    whole = script(FRANCE, ITALY).ok()
    first = script(FRANCE, f"/save {path}").ok()
    assert f"saved {path}: 1 turn\n" in first.err and path.stat().st_mode & 0o077 == 0
    second = script(f"/load {path}", ITALY, f"/save {path}").ok()
    assert f"loaded {path}: 1 turn\n" in second.err and f"saved {path}: 2 turns\n" in second.err
    assert first.out + second.out == whole.out
    assert script("/load ~/my chat.json", state=tmp_path).ok().err.count("\nloaded ") == 1
    assert {p.name for p in tmp_path.iterdir()} == {path.name, path.name + ".state"}


def test_odd_texts_come_back(tmp_path):
    path = tmp_path / "c"
    said = b'\xff\xfe "quoted" \\ \t<|im_end|> \xe2\x82 \xf0\x9f\x99\x82'
    pantheon("run", "-m", MODEL, "-n", 3, input=said + f"\n/save {path}\n".encode()).ok()
    text = json.loads(path.read_text())["messages"][0]["content"]
    assert text == said.decode(errors="replace")
    assert "loaded" in script(f"/load {path}", "Go on.").ok().err


def test_save_leaves_other_files_alone(tmp_path):
    other = tmp_path / "thesis.txt"
    other.write_text("chapter one")
    link, saved = tmp_path / "link", tmp_path / "saved"
    link.symlink_to(other)
    (tmp_path / "empty").write_text("")
    for name in ("thesis.txt", "link", "empty", "", "missing/chat", "."):
        r = script("hi", f"/save {tmp_path / name}")
        assert r.rc == 0 and r.err.count("pantheon: ") == 1, r.err
    assert "saved" in script("hi", f"/save {saved}", f"/save {saved}").err
    assert "takes the name" in script("/save").err and "takes the name" in script("/load").err
    assert other.read_text() == "chapter one" and link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "link", "saved", "saved.state", "thesis.txt"]


def all_figures(r):
    return [figures(line.encode()) for line in r.err.splitlines() if "tokens read" in line]


LONG = "stone water king bread year hand light " * 40


def test_a_saved_state_spares_the_reading(tmp_path):
    path, state = tmp_path / "c", tmp_path / "c.state"
    script(LONG, FRANCE, f"/save {path}").ok()
    fast = script(f"/load {path}", ITALY).ok()
    assert all_figures(fast)[0][0] < 40 and all_figures(fast)[0][1] > 300
    whole = state.read_bytes()
    for broken in (b"", b"x", whole[:-1], whole[:400] + bytes([whole[400] ^ 1]) + whole[401:], None):
        state.unlink(missing_ok=True)
        if broken is not None:
            state.write_bytes(broken)
        slow = script(f"/load {path}", ITALY).ok()
        assert slow.out == fast.out and all_figures(slow)[0][1] == 0
        assert slow.err.count("pantheon: the conversation is read again: ") == (broken is not None), slow.err


def test_a_state_that_is_in_the_way_stays(tmp_path):
    path, state = tmp_path / "c", tmp_path / "c.state"
    state.write_text("my notes")
    r = script(FRANCE, f"/save {path}")
    assert "the conversation is saved, but not its state: " in r.err and state.read_text() == "my notes"
    assert json.loads(path.read_text())["messages"]


# --- the cache ------------------------------------------------------------------------------------

CACHE = re.compile(r"\[cache: ([\d.]+ [KMG]iB) of memory(?:; ([\d.]+ [KMG]iB) in (.*), ([\d.]+ [KMG]iB) used by (\d+) states)?\]\n")


def test_the_budget_is_printed_at_start(tmp_path):
    m = CACHE.search(script("/quit", options=["--cache-ram", "96M"]).ok().err)
    assert m[1] == "96.0 MiB" and m[2] is None
    m = CACHE.search(script("/quit", options=["--cache-dir", tmp_path / "s", "--cache-disk", "1G"]).ok().err)
    assert m[2] == "1.0 GiB" and m[3] == str(tmp_path / "s") and m[5] == "0"
    assert not CACHE.search(pantheon("run", "-m", MODEL, "-p", "hi", "-n", 1).ok().err), "one answer needs none"


def test_the_folder_lasts(tmp_path):
    options = ["--cache-dir", tmp_path / "s"]
    first = script(LONG, FRANCE, options=options).ok()
    again = script(LONG, FRANCE, options=options).ok()
    assert again.out == first.out
    assert all_figures(first)[0][1] == 0 and all_figures(again)[0][0] < 40 and all_figures(again)[0][1] > 200
    assert int(CACHE.search(again.err)[5]) > 0
    once = [pantheon("run", "-m", MODEL, "--temp", 0, "-p", LONG, *more).ok() for more in ([], options)]
    assert once[0].out == once[1].out and all_figures(once[0])[0][1] == 0 and all_figures(once[1])[0][1] > 200


def test_a_second_process_is_told(tmp_path, chat):
    first = chat()
    first.prompt()
    second = chat()
    start = second.prompt()
    assert b"another process is using it" in start and re.search(rb"\[cache: [^;]* of memory\]", start)
    assert b"Paris" in second.ask(FRANCE), "it goes on without the folder"
    r = script("hi", options=["--cache-dir", tmp_path / "pantheon/states"])
    assert r.rc == 1 and "another process is using it" in r.err


@pytest.mark.parametrize("options, word", [(["--cache-ram", "1M"], "1048576"), (["--cache-dir", "/proc/x"], "/proc/x"),
                                           (["--cache-dir", str(MODEL)], "Not a directory")])
def test_a_cache_that_cannot_be(options, word):
    pantheon("run", "-m", MODEL, "-p", "hi", *options).says(1, word)


GOOD = {"pantheon_chat": 1, "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
BAD = {
    "empty": b"", "no json": b"\x7fELF", "not ours": b'{"messages": []}', "a list": b"[1]",
    "version": GOOD | {"pantheon_chat": 2}, "mark": GOOD | {"pantheon_chat": "x"},
    "no messages": {"pantheon_chat": 1}, "role": GOOD | {"messages": [{"role": "king", "content": "x"}]},
    "tool": GOOD | {"messages": GOOD["messages"] + [{"role": "tool", "content": "x"}]},
    "call": GOOD | {"messages": [GOOD["messages"][0], {"role": "assistant", "tool_calls": [{"name": "f"}]}]},
    "image": GOOD | {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
    "no user": GOOD | {"messages": [{"role": "system", "content": "x"}]},
    "late system": GOOD | {"messages": GOOD["messages"] + [{"role": "system", "content": "x"}]},
    "deep": b'{"pantheon_chat": 1, "messages": ' + b"[" * 4000 + b"]" * 4000 + b"}", "cut": json.dumps(GOOD)[:-9].encode(),
}


@pytest.mark.parametrize("name", BAD)
def test_load_refuses_and_keeps_the_chat(tmp_path, name):
    path = tmp_path / "f"
    path.write_bytes(BAD[name] if isinstance(BAD[name], bytes) else json.dumps(BAD[name]).encode())
    r = script("Say one.", f"/load {path}", f"/save {tmp_path / 'mine'}")
    said = [line for line in r.err.splitlines() if line.startswith("pantheon: ")]
    assert r.rc == 0 and len(said) == 1 and str(path) in said[0], r.err
    assert json.loads((tmp_path / "mine").read_text())["messages"][0]["content"] == "Say one."


def test_load_of_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("none", ".", "pipe", "/dev/zero"):
        r = script(f"/load {tmp_path / name}", "/quit")
        assert r.rc == 0 and r.err.count("pantheon: ") == 1, r.err
