"""Runs the program as a user does: only its output, exit status, files and terminal are seen.

PANTHEON is the program (make test-py sets it), BUILD its build."""
import os
import pathlib
import resource
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / os.environ.get("PANTHEON", "build/pantheon")
MODEL = ROOT / "models/pantheon-tiny-Q4_K_M.gguf"
DATA = ROOT / "tests/golden/data"
IS_SANITIZED = os.environ.get("BUILD", "release") in ("asan", "tsan")
N_VOCAB = 4096
# A shell starts jobs in the background with SIGINT ignored, which all that they start inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


def clean_env(**more):
    """The environment without settings that would change what the program does."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("PANTHEON", "QWEN35_")) and k not in ("NO_COLOR", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
    leaks = f"suppressions={ROOT}/tests/py/lsan.supp:print_suppressions=0"
    return env | {"TERM": "xterm", "LC_ALL": "C.UTF-8", "LSAN_OPTIONS": leaks} | more


def wait_until(holds, what="", limit_s=60):
    """Waits for what comes soon: a minute, since the machine may be busy."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, what or "it did not come"
        time.sleep(0.02)


def cpu_s(pid):
    """Processor time of a process: what has a limit where a busy machine must not break it."""
    with open(f"/proc/{pid}/stat") as f:
        user, system = f.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class Result:
    """What one run left: exit status, bytes, seconds of processor time."""

    def __init__(self, done, cpu_s):
        self.rc, self.out, self.err = done.returncode, done.stdout, done.stderr.decode()
        self.text = self.out.decode(errors="replace") if self.out is not None else ""
        self.cpu_s = cpu_s

    def ok(self):
        assert self.rc == 0, f"exit {self.rc}: {self.err}"
        return self

    def says(self, rc, *words):
        """One sentence on standard error that has all of the words, and this exit status."""
        assert self.rc == rc, f"exit {self.rc}, {rc} expected: {self.err}"
        assert self.err.startswith("pantheon: ") and self.err.endswith("\n"), repr(self.err)
        assert self.err.count("\n") == 1 and not self.err.endswith(".\n"), repr(self.err)
        for w in words:
            assert str(w) in self.err, f"{w!r} is not in {self.err!r}"
        return self


def pantheon(*args, input=b"", env=None, stdout=subprocess.PIPE, timeout=300):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([PROGRAM, *map(str, args)], input=input, stdout=stdout,
                          stderr=subprocess.PIPE, env=clean_env(**(env or {})), timeout=timeout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Result(done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


@pytest.fixture(scope="session")
def levels():
    """The instruction sets that this processor has."""
    found = [isa for isa in ("scalar", "avx2", "avxvnni", "avx512", "neon", "dotprod", "i8mm")
             if pantheon("logits", "-m", MODEL, "--tokens", "1", "-o", "/dev/null", "--isa", isa).rc == 0]
    assert "scalar" in found
    return found


@pytest.fixture(scope="session")
def server():
    """One server of the bundled model for all tests that need no options of their own."""
    from serving import Server
    with Server("--cache-ram", "256M") as running:
        yield running
