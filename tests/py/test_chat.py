"""The interactive chat, on a pseudo terminal."""
import os
import pty
import re
import select
import signal
import termios
import time

import pytest
from conftest import MODEL, PROGRAM, clean_env

PROMPT = rb"> (\x1b\[[0-9;?]*[a-zA-Z])*$"
FIGURES = rb"\[\d+ tokens read.*?\]\r\n"
LIMIT_S = 60


class Chat:
    """run on a terminal; expect() waits for a pattern in what has not been expected yet."""

    def __init__(self, state_dir, *options, **env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            full = clean_env(XDG_STATE_HOME=str(state_dir), **env)
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

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


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
    for word in (b"/help", b"/reset", b"/system", b"/think", b"/quit", b"Ctrl-C"):
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
    first = re.search(rb"\[(\d+) tokens read", c.ask("hello"))[1]
    c.send("/reset\r")
    c.prompt()
    assert re.search(rb"\[(\d+) tokens read", c.ask("hello"))[1] == first, "nothing was remembered"
    c.send("/system You are a poet.\r")
    c.prompt()
    assert int(re.search(rb"\[(\d+) tokens read", c.ask("hello"))[1]) > int(first)


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


def test_no_place_for_history_is_no_error(chat, tmp_path):
    c = chat(state="/proc/nowhere")
    c.prompt()
    c.ask("hi")
    c.send(b"\x04")
    assert c.ends() == 0
