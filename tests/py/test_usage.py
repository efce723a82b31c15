"""Help, version, and wrong usage: exit 2 and one sentence that names what is wrong."""
import pytest
from conftest import MODEL, pantheon

COMMANDS = ["run", "logits", "tokenize", "detokenize", "render", "parse", "inspect", "bench", "synth", "serve", "batch"]


def test_help_of_the_program_lists_every_command():
    r = pantheon("--help").ok()
    assert r.err == ""
    for c in COMMANDS:
        assert f"\n  {c} " in r.text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command):
    r = pantheon(command, "--help").ok()
    assert r.text.startswith(f"usage: pantheon {command} ") and "--help" in r.text and r.err == ""
    assert pantheon(command, "--nonsense", "-h").text == r.text, "help comes before any complaint"
    for line in r.text.splitlines():
        assert len(line) <= 130, line


def test_version():
    import re
    assert re.fullmatch(r"pantheon \d+\.\d+\.\d+\n", pantheon("--version").ok().text)


@pytest.mark.parametrize("args, words", [
    ([], ["command"]),
    (["frobnicate"], ['"frobnicate"']),
    (["run", "--nope"], ["--nope"]),
    (["run", "-Z"], ["-Z"]),
    (["run", "-p"], ["-p", "value"]),
    (["run", "-p", "x", "-f", "y"], ["-p", "-f"]),
    (["run", "--raw"], ["--raw"]),
    (["run", "-p", "x", "stray"], ['"stray"']),
    (["run", "-p", "x", "--temp", "warm"], ["--temp", '"warm"']),
    (["run", "-p", "x", "--temp", "-1"], ["--temp"]),
    (["run", "-p", "x", "--temp", "nan"], ["--temp"]),
    (["run", "-p", "x", "--top-p", "1.5"], ["--top-p"]),
    (["run", "-p", "x", "-n", "ten"], ["-n", '"ten"']),
    (["run", "-p", "x", "-n", "1e3"], ["-n"]),
    (["run", "-p", "x", "--seed", "99999999999999999999"], ["--seed"]),
    (["run", "-p", "x", "-t", "0"], ["-t"]),
    (["run", "-p", "x", "--isa", "sse9"], ["--isa", '"sse9"']),
    (["run", "-p", "x", "--kv-type", "f64"], ["--kv-type"]),
    (["run", "-p", "x", "--raw=yes"], ["--raw"]),
    (["run", "--tokens", "1"], ["--tokens"]),
    (["logits", "--tokens", "1"], ["-o"]),
    (["logits", "-o", "/dev/null"], ["--tokens"]),
    (["logits", "-o", "/dev/null", "--tokens", "1", "--tokens-file", "x"], ["--tokens-file"]),
    (["logits", "-o", "/dev/null", "--tokens", "1,x"], ["--tokens"]),
    (["logits", "-o", "/dev/null", "--tokens", "1", "--last", "0"], ["--last"]),
    (["logits", "-o", "/dev/null", "--tokens", "1", "--batch", "0"], ["--batch"]),
    (["tokenize", "extra"], ['"extra"']),
    (["inspect", "a", "b"], ['"b"']),
    (["synth"], ["-o"]),
    (["synth", "-o", "/dev/null", "--preset", "huge"], ["--preset"]),
    (["synth", "-o", "/dev/null", "--quant", "q9"], ["q9"]),
    (["bench", "-r", "0"], ["-r"]),
])
def test_wrong_usage_is_exit_2(args, words):
    r = pantheon(*args).says(2, *words)
    assert r.out == b""


@pytest.mark.parametrize("name, value", [
    ("PANTHEON_THREADS", "many"), ("PANTHEON_CTX", "-3"), ("PANTHEON_ISA", "mmx"),
    ("PANTHEON_KV_TYPE", "f8"), ("PANTHEON_TEMP", "hot"), ("PANTHEON_VERBOSE", "maybe"),
    ("QWEN35_PROF", "?"),
])
def test_a_wrong_environment_variable_is_named(name, value):
    pantheon("run", "-m", MODEL, "-p", "x", env={name: value}).says(2, name, value)
