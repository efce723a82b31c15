"""Ten turns of an agent with calls, over both agent protocols: what is taken from the cache."""
import json

import anthropic
import openai
import pytest

SYSTEM = "You are a careful agent. " + "Look things up before you answer, and answer in short. " * 40
VERSES = ["Micah 6:8", "John 3:16", "Genesis 1:1", "Isaiah 40:31", "Psalms 23:1"]
SCHEMA = {"type": "object", "required": ["book", "chapter", "verse"],
          "properties": {"book": {"type": "string"}, "chapter": {"type": "integer"}, "verse": {"type": "integer"}}}
SLACK = 64  # a border nearer than 32 tokens to the one before is left out, and a turn begins with some tokens


def reformat(arguments):
    """The same arguments as another client writes them: other order, other spacing."""
    return json.dumps(dict(reversed(json.loads(arguments).items())), separators=(",", ":"))


class Messages:
    """Claude Code's way: blocks."""

    def __init__(self, server, system, thinks, drops, reformats):
        self.client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        self.system, self.thinks, self.drops, self.reformats = system, thinks, drops, reformats
        self.history = []

    def say(self, text):
        self.history.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def answer(self, calls):
        m = self.client.messages.create(
            model="q", max_tokens=400, system=[{"type": "text", "text": self.system, "cache_control": {"type": "ephemeral"}}],
            messages=self.history, tools=[{"name": "get_verse", "description": "Looks up a verse.", "input_schema": SCHEMA}],
            thinking={"type": "adaptive" if self.thinks else "disabled"}, tool_choice={"type": "any" if calls else "auto"},
            extra_body={"temperature": 0})
        content = [b.model_dump(exclude_none=True) for b in m.content if not (self.drops and b.type == "thinking")]
        results = []
        for block in content:
            if block["type"] == "tool_use":
                if self.reformats:
                    block["input"] = json.loads(reformat(json.dumps(block["input"])))
                results.append({"type": "tool_result", "tool_use_id": block["id"], "content": "He has shown you what is good."})
        self.history.append({"role": "assistant", "content": content})
        if results:
            results.append({"type": "text", "text": "<system-reminder>Be short.</system-reminder>"})
            self.history.append({"role": "user", "content": results})
        u = m.usage
        return u.input_tokens + u.cache_read_input_tokens, u.cache_read_input_tokens, u.output_tokens, bool(results)


class Responses:
    """Codex' way: items; thoughts travel as encrypted_content alone."""

    def __init__(self, server, system, thinks, drops, reformats):
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        self.system, self.thinks, self.drops, self.reformats = system, thinks, drops, reformats
        self.history = []

    def say(self, text):
        self.history.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})

    def answer(self, calls):
        with self.client.responses.stream(
                model="q", max_output_tokens=400, instructions=self.system, input=self.history, store=False,
                tools=[{"type": "function", "name": "get_verse", "description": "Looks up a verse.", "parameters": SCHEMA}],
                tool_choice="required" if calls else "auto", include=["reasoning.encrypted_content"], temperature=0,
                reasoning={"summary": "auto"} if self.thinks else {"effort": "none"}) as stream:
            stream.until_done()
            r = stream.get_final_response()
        results = []
        for item in r.output:
            item = item.model_dump(exclude_none=True, exclude={"id", "status", "parsed_arguments"})
            if item["type"] == "reasoning":
                if self.drops:
                    continue
                item["summary"] = []
            if item["type"] == "function_call":
                if self.reformats:
                    item["arguments"] = reformat(item["arguments"])
                results.append({"type": "function_call_output", "call_id": item["call_id"],
                                "output": "He has shown you what is good."})
            self.history.append(item)
        self.history += results
        u = r.usage
        return u.input_tokens, u.input_tokens_details.cached_tokens, u.output_tokens, bool(results)


def run(agent, n_turn=10):
    """(turn, step, prompt, cached, generated) of every request."""
    rows = []
    for turn in range(n_turn):
        agent.say(f"What does {VERSES[turn % len(VERSES)]} say? ({turn})")
        for step in range(2):
            prompt, cached, generated, has_results = agent.answer(calls=step == 0)
            rows.append((turn, step, prompt, cached, generated))
            if not has_results:
                break
    assert len(rows) == 2 * n_turn  # each turn had its call
    return rows


@pytest.fixture(params=[Messages, Responses])
def protocol(request):
    return request.param


def test_all_is_cached(server, protocol):
    """Without thoughts every request goes on where the last answer ended, whatever a client does to the calls."""
    rows = run(protocol(server, f"{protocol.__name__} True {SYSTEM}", False, False, True))
    for before, row in zip(rows, rows[1:]):
        assert row[3] == before[2] + before[4], (before, row)


def test_with_thoughts(server, protocol):
    """Thoughts that come back keep the work on a query cached; the template drops them with the next query, which
    goes on where the last one began."""
    rows = run(protocol(server, f"{protocol.__name__} thinks {SYSTEM}", True, False, True))
    for i, row in enumerate(rows[1:], 1):
        if row[1]:
            assert row[3] == rows[i - 1][2] + rows[i - 1][4], (rows[i - 1], row)
        else:
            assert row[3] >= rows[i - 2][2] - SLACK, (rows[i - 2], row)


def test_thoughts_dropped(server, protocol):
    """A client that drops thoughts costs the turn, not the conversation."""
    rows = run(protocol(server, f"{protocol.__name__} drops {SYSTEM}", True, True, False))
    for i, row in enumerate(rows[1:], 1):
        assert row[3] >= rows[i - 1 if row[1] else i - 2][2] - SLACK, (rows[i - 1], row)


def test_thoughts_put_back(protocol):
    """... and nothing with --replay full, which puts them back."""
    from serving import Server
    with Server("--cache-ram", "256M", "--replay", "full") as server:
        rows = run(protocol(server, SYSTEM, True, True, False), n_turn=3)
        for before, row in zip(rows, rows[1:]):
            if row[1]:
                assert row[3] == before[2] + before[4], (before, row)


def test_edited_turn(server, protocol):
    """An edit of the last user's message costs that turn; the old branch is still there afterwards."""
    agent = protocol(server, f"{protocol.__name__} edits {SYSTEM}", False, False, False)
    rows = run(agent, n_turn=3)
    kept = list(agent.history)
    last = max(i for i, m in enumerate(kept) if m.get("role") == "user" and "What does" in json.dumps(m))
    agent.history = kept[:last]
    agent.say("What does Matthew 5:9 say?")
    assert agent.answer(calls=True)[1] >= rows[-2][2] - SLACK
    agent.history = kept
    agent.say("Thank you.")
    assert agent.answer(calls=False)[1] == rows[-1][2] + rows[-1][4]


def test_after_a_restart(protocol, tmp_path):
    """States kept on disk serve the conversation after a restart."""
    from serving import Server
    args = "--cache-ram", "256M", "--cache-dir", tmp_path
    with Server(*args) as server:
        agent = protocol(server, SYSTEM, False, False, False)
        rows = run(agent, n_turn=3)
    with Server(*args) as server:
        after = protocol(server, SYSTEM, False, False, False)
        after.history = agent.history
        after.say("Thank you.")
        assert after.answer(calls=False)[1] >= rows[-1][2] - SLACK
