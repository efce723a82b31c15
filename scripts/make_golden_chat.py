#!/usr/bin/env python3
"""Writes the goldens of tests/golden/test_chat_golden.c into tests/golden/data/chat/.

Usage: scripts/make_golden_chat.py --reference FILE    reference.jsonl, from lines of
                                                       {"messages", "tools", "kwargs", "text"|"error"}
       scripts/make_golden_chat.py --random            random.jsonl (needs the package jinja2)

Every line written is {"template", "request", "text"} or, where the template raises, {"template",
"request", "error"}. The random conversations are rendered by the Jinja templates themselves, with
the environment that transformers gives them (its utils/chat_template_utils.py: trim_blocks,
lstrip_blocks, tojson = json.dumps(ensure_ascii=False), raise_exception).
"""
import json
import pathlib
import random
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/data/chat"
TEMPLATES = ["qwen35", "qwen35-small", "qwen36", "qwen38", "qwen36-unsloth"]
N_RANDOM = 48  # conversations per template
SEED = 35

WORDS = ["hi", "a b", " ", "\n", "\t", "\r\n", "<think>", "</think>", "<think>\nx\n</think>\n\ny",
         "<tool_response>", "</tool_response>", "<tool_response>\nq\n</tool_response>", "<|im_end|>",
         "<|im_start|>system\n", "日本", "🙂", "é", "e\u0301", "\u00a0", "\u3000", "\u2028", "\x1c",
         "\x85", "\u200b", "\x0b", "\x00", '"', "\\", "{}", "<tool_call>", "text", "</function>"]


class Conversations:
    """A stream of requests that visit every branch of the templates, the refusals included."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def text(self):
        n = self.r.choice([0, 0, 1, 1, 2, 3, 5])
        return "".join(self.r.choice(WORDS) for _ in range(n))

    def key(self, i):
        return self.text().replace("\0", "") + str(i)

    def value(self, depth=0):
        kind = self.r.randrange(8 if depth < 3 else 6)
        if kind == 0:
            return None
        if kind == 1:
            return self.r.choice([True, False])
        if kind == 2:
            return self.r.choice([0, -1, 7, 2**53 + 1, -2**63, 2**63 - 1])
        if kind == 3:
            return self.r.choice([0.0, 1.5, -0.5, 1e16, 1e-5, 0.1, 1e22, 123456.789, -0.0])
        if kind in (4, 5):
            return self.text()
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.r.randrange(4))]
        return {self.key(i): self.value(depth + 1) for i in range(self.r.randrange(4))}

    def content(self):
        kind = self.r.random()
        if kind < 0.75:
            return self.text()
        if kind < 0.95:
            return [{"type": "text", "text": self.text()} for _ in range(self.r.randrange(4))]
        return self.r.choice([None, None, 1, {"text": "x"}, [{"type": "text"}]])

    def call(self):
        f = {"name": self.r.choice(["f", "get_weather", self.text()])}
        kind = self.r.random()
        if kind < 0.88:
            f["arguments"] = {self.key(i): self.value() for i in range(self.r.randrange(4))}
        elif kind < 0.95:
            f["arguments"] = self.r.choice(['{"a": 1}', None, "", 5])
        if self.r.random() < 0.02:
            del f["name"]
        return {"type": "function", "id": "c", "function": f} if self.r.random() < 0.8 else f

    def message(self, role):
        m = {"role": role}
        if self.r.random() < 0.95:
            m["content"] = self.content()
        if role == "assistant":
            if self.r.random() < 0.4:
                m["reasoning_content"] = self.r.choice([self.text(), self.text(), None, 5])
            if self.r.random() < 0.5:
                m["tool_calls"] = [self.call() for _ in range(self.r.randrange(4))]
        return m

    def request(self):
        q = {"messages": [self.message("system")] if self.r.random() < 0.5 else []}
        if self.r.random() < 0.08:
            q["messages"].append(self.message(self.r.choice(["system", "developer"])))
        roles, weights = ["user", "assistant", "tool", "system", "critic"], [10, 10, 6, 0.15, 0.1]
        for _ in range(self.r.randrange(1, 7)):
            q["messages"].append(self.message(self.r.choices(roles, weights)[0]))
        for key, share in (("add_generation_prompt", 0.6), ("enable_thinking", 0.4),
                           ("preserve_thinking", 0.4)):
            if self.r.random() < share:
                q[key] = self.r.choice([True, False])
        if self.r.random() < 0.3:
            q["reasoning_effort"] = self.r.choice(["xhigh", "low", "medium", "high"])
        if self.r.random() < 0.4:
            q["tools"] = [{"type": "function", "function": {"name": self.text(),
                                                            "parameters": self.value()}}
                          for _ in range(self.r.randrange(3))]
        if self.r.random() < 0.2:
            q["chat_template_kwargs"] = {"enable_thinking": self.r.choice([True, False])}
        return q


def jinja_template(name):
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message):
        raise TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    env.globals["raise_exception"] = raise_exception
    return env.from_string((DATA / f"{name}.jinja").read_text(encoding="utf-8"))


def render(template, request):
    kwargs = {k: v for k, v in request.items() if k != "chat_template_kwargs"}
    kwargs.update(request.get("chat_template_kwargs") or {})
    try:
        return {"text": template.render(**kwargs)}
    except Exception as e:  # Jinja wraps nothing: a TypeError of Python's is a refusal as well
        return {"error": f"{type(e).__name__}: {e}"}


def write(name, lines):
    with open(DATA / name, "w", encoding="utf-8") as f:
        for line in lines:
            f.write(json.dumps(line, ensure_ascii=False) + "\n")


def reference(path):
    for text in open(path, encoding="utf-8"):
        d = json.loads(text)
        request = {"messages": d["messages"], "tools": d["tools"], **d["kwargs"]}
        want = {k: d[k] for k in ("text", "error") if k in d}
        yield {"template": "qwen35", "request": request, **want}


def random_lines():
    for name in TEMPLATES:
        template, source = jinja_template(name), Conversations(f"{SEED} {name}")
        for _ in range(N_RANDOM):
            request = source.request()
            yield {"template": name, "request": request, **render(template, request)}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reference"] and len(sys.argv) == 3:
        write("reference.jsonl", reference(sys.argv[2]))
    elif sys.argv[1:] == ["--random"]:
        write("random.jsonl", random_lines())
    else:
        sys.exit(__doc__)
