"""pantheon parse: a raw answer as thoughts, text and tool calls."""
import json

import pytest

from conftest import pantheon

TOOLS = [{"type": "function", "function": {"name": "write", "parameters": {"properties": {
    "path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}}}}}]
CALL = ("<tool_call>\n<function=write>\n<parameter=path>\n123\n</parameter>\n<parameter=content>\n"
        "<a>\n</parameter> is a tag\n\n</parameter>\n<parameter=mode>\n420\n</parameter>\n</function>\n</tool_call>")


@pytest.fixture
def parse(tmp_path):
    def run(text, *args):
        (tmp_path / "answer").write_bytes(text if isinstance(text, bytes) else text.encode())
        (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
        return json.loads(pantheon("parse", "-f", tmp_path / "answer", "--tools", tmp_path / "tools.json", *args).ok().out)
    return run


def test_the_parts_of_an_answer(parse):
    assert parse("I look.\n</think>\n\nWriting.\n\n" + CALL) == {
        "reasoning_content": "I look.", "content": "Writing.",
        "tool_calls": [{"name": "write", "arguments": {"path": "123", "content": "<a>\n</parameter> is a tag\n", "mode": 420}}]}


def test_without_thoughts(parse):
    assert parse("plain", "--no-think") == {"reasoning_content": "", "content": "plain", "tool_calls": []}
    assert parse("plain") == {"reasoning_content": "plain", "content": "", "tool_calls": []}


def test_a_call_that_was_cut_says_so(parse):
    j = parse(CALL[:CALL.index("\n\n</parameter>")], "--no-think")
    assert j["tool_calls"] == [{"name": "write", "arguments": {"path": "123", "content": "<a>\n</parameter> is a tag"},
                                "is_complete": False}]


def test_bytes_that_are_no_text(parse):
    assert parse(b"a\xff\x00b", "--no-think")["content"] == "a\ufffd\x00b"


def test_standard_input_and_no_tools():
    j = json.loads(pantheon("parse", "--no-think", input=CALL.encode()).ok().out)
    assert j["tool_calls"][0]["arguments"]["path"] == 123  # nothing says that it is a string


def test_tools_that_are_none(tmp_path):
    for text, word in (("{}", "array"), ("[", "line 1"), ("3", "array")):
        (tmp_path / "t").write_text(text)
        pantheon("parse", "--tools", tmp_path / "t").says(1, tmp_path / "t", word)
    pantheon("parse", "--tools", tmp_path / "absent").says(1, "absent")


@pytest.mark.parametrize("piece", ["<tool_call>", "<tool_call>{", "</tool_call>", "<function=", "<parameter=a>", "<think>",
                                   "</parameter>  ", "<tool_call>\n<function=f>\n<parameter=a>\n", "[" * 500, " ", "<"])
def test_long_and_odd_answers_are_quick(parse, piece):
    parse("<tool_call>{" + piece * (1_000_000 // len(piece)), "--no-think")
    parse("<tool_call>\n<function=write>\n" + piece * (1_000_000 // len(piece)), "--no-think")
    parse("<tool_call>\n<function=write>\n<parameter=x>" + piece * (1_000_000 // len(piece)), "--no-think")
