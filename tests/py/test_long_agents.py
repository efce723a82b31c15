"""Ten turns of an agent behind a prompt of 20 thousand tokens, over all three protocols: what is computed, also after
a restart, after kill -9, after an edit; and how soon the first token comes."""
import json
import time

import openai
import pytest

from conftest import IS_SANITIZED
from serving import Server
from test_agents import SCHEMA, Messages, Responses, reformat, run

N_PREFIX = 2_000 if IS_SANITIZED else 20_000
SLACK = 64  # beyond the new turn
MANUAL = "\n".join(f"{i}. Rule {i * 37 % 101} of the house: open door {i * 7 % 13}, then shut door {i % 11}." for i in range(900))


class Chat:
    """The chat protocol, as most clients speak it; every tool call comes back re-formatted."""

    def __init__(self, server, system, thinks, drops, reformats):
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        self.history, self.thinks, self.drops, self.reformats = [{"role": "system", "content": system}], thinks, drops, reformats

    def say(self, text):
        self.history.append({"role": "user", "content": text})

    def answer(self, calls):
        tool = {"type": "function", "function": {"name": "get_verse", "parameters": SCHEMA}}
        r = self.client.chat.completions.create(
            model="q", messages=self.history, tools=[tool], tool_choice="required" if calls else "none", max_tokens=120,
            temperature=0, extra_body={"enable_thinking": self.thinks})
        m = r.choices[0].message.model_dump(exclude_none=True)
        if self.drops:
            m.pop("reasoning_content", None)
        results = []
        for call in m.get("tool_calls", []):
            if self.reformats:
                call["function"]["arguments"] = reformat(call["function"]["arguments"])
            results.append({"role": "tool", "tool_call_id": call["id"], "content": "He has shown you what is good."})
        self.history += [m, *results]
        u = r.usage
        return u.prompt_tokens, u.prompt_tokens_details.cached_tokens, u.completion_tokens, bool(results)


def system(server, n_prefix):
    """A prompt of about so many tokens."""
    ids = server.ask("/tokenize", {"content": MANUAL * (1 + n_prefix // 10000)})["tokens"]
    assert len(ids) >= n_prefix
    return server.ask("/detokenize", {"tokens": ids[:n_prefix]})["content"]


def check(rows, agent):
    """From the second request on: no more is computed than what is new and SLACK, however badly the tiny model wrote
    its calls."""
    for before, row in zip(rows, rows[1:]):
        assert row[2] - row[3] <= row[2] - before[2] - before[4] + SLACK, (before, row)


def await_written(folder):
    """Until no file has come for three seconds: what is not written when a server is killed is computed again."""
    names, since = None, 0
    while names is None or time.monotonic() - since < 3:
        now = sorted(f.name for f in folder.iterdir())
        if now != names:
            names, since = now, time.monotonic()
        time.sleep(0.05)


@pytest.mark.parametrize("protocol", [Chat, Messages, Responses])
def test_ten_turns(protocol, tmp_path):
    args = "--cache-ram", "400M", "--cache-dir", tmp_path
    with Server(*args) as server:
        agent = protocol(server, system(server, N_PREFIX), False, False, True)
        rows = run(agent)
        assert rows[0][2] >= N_PREFIX and rows[0][3] == 0
        check(rows, agent)
        kept, at = list(agent.history), max(i for i, m in enumerate(agent.history) if "What does" in json.dumps(m))
        agent.history = kept[:at]  # the last question is asked in other words
        agent.say("What does Matthew 5:9 say, then?")
        edited = agent.answer(calls=True)
        assert edited[0] - edited[1] <= edited[0] - rows[-3][2] + SLACK
        agent.history = kept  # and the older branch goes on
        agent.say("Thank you.")
        row = (10, 0, *agent.answer(calls=False)[:3])
        check([rows[-1], row], agent)
    server = Server(*args)
    for how in ("restart", "kill"):
        again = protocol(server, "", False, False, True)
        again.__dict__.update({k: v for k, v in agent.__dict__.items() if k not in ("client",)})
        again.say(f"And after a {how}?")
        prompt, cached, generated, _ = again.answer(calls=False)
        assert prompt - cached <= prompt - row[2] + SLACK, (how, prompt, cached, row)
        row = (11, 0, prompt, cached, generated)
        agent = again
        if how == "restart":
            await_written(tmp_path)
            server.kill()
            server = Server(*args)
    server.stop()


def test_first_token_of_a_cached_prompt(server):
    """At most a twentieth of the cold time."""
    text = system(server, N_PREFIX)
    body = {"messages": [{"role": "system", "content": "Cold. " + text}, {"role": "user", "content": "Well?"}], "max_tokens": 1}
    times = []
    for _ in range(4):
        began = time.monotonic()
        server.ask("/v1/chat/completions", body)
        times.append(time.monotonic() - began)
    assert min(times[1:]) <= 0.05 * times[0] or IS_SANITIZED, times
