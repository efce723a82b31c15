"""Many clients at once: streams, whole answers, clients that leave, read slowly or talk nonsense. What
ends well must be what the same request gets alone; nothing may crash, leak or stay open. 20 seconds;
with SOAK=1 ten minutes; longer on a busy machine, until enough was answered. Under a sanitizer fewer,
but more than are answered at a time."""
import asyncio
import json
import os
import pathlib
import random
import time


from conftest import IS_SANITIZED
from serving import Server

SECONDS = 600 if os.environ.get("SOAK") else 10 if IS_SANITIZED else 20
MORE_SECONDS = 100
N_WHOLE = 20 if IS_SANITIZED else 100
N_CLIENT, N_PARALLEL = (24 if IS_SANITIZED else 64), 16
N_WORD = 200 if IS_SANITIZED else 900
SEED = int(os.environ.get("SEED", time.time()))
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]


def requests():
    """(path, body): different protocols, forms and lengths; each always has the same answer."""
    chat = "/v1/chat/completions"
    for i, text in enumerate(["Hello", "What is the capital of France?", "Count: one, two, three"]):
        messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": text}]
        for stream in (False, True):
            yield chat, {"messages": messages, "stream": stream, "max_tokens": 12 + 9 * i, "seed": i}
        yield "/v1/messages", {"model": "x", "system": "You are brief.", "messages": messages[1:], "max_tokens": 20,
                               "stream": True, "temperature": 0}
        yield chat, {"messages": messages, "tools": TOOLS, "stream": True, "max_tokens": 30, "temperature": 0}
        yield "/v1/completions", {"prompt": text, "max_tokens": 16, "temperature": 0, "stream": bool(i % 2)}
    yield chat, {"messages": [{"role": "user", "content": "word " * N_WORD}], "max_tokens": 8, "seed": 3}
    yield chat, {"messages": [{"role": "user", "content": "Hello"}], "n": 3, "max_tokens": 10, "seed": 5}


CASES = list(requests())


def encode(path, body):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data


NONSENSE = [
    b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\n{nope",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n",
    encode("/v1/chat/completions", {"messages": 7}),
    encode("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}),
    encode("/v1/messages", {"messages": [[]] * 50}),
    encode("/nowhere", {}),
    b"\x16\x03\x01\x02\x00" * 40,
]


def texts(raw):
    """What an answer says, without ids and times: for comparison. None: it is not whole."""
    head, _, body = raw.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        return None
    if b"chunked" in head.lower():
        body, rest = b"", body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            if n == 0:
                break
            if len(rest) < n + 2:
                return None
            body, rest = body + rest[:n], rest[n + 2:]
        else:
            return None
    found = []

    def walk(value):
        if isinstance(value, dict):
            for key, item in value.items():
                if key in ("content", "reasoning_content", "text", "thinking", "arguments", "partial_json",
                           "finish_reason", "stop_reason", "completion_tokens", "output_tokens") and item:
                    if not isinstance(item, (dict, list)):
                        found.append((key, item))
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    if b"event-stream" in head.lower():
        events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
        for event in events:
            if event != b"[DONE]":
                walk(json.loads(event))
        joined = {}
        for key, item in found:  # pieces may be cut differently
            joined[key] = joined.get(key, "") + str(item)
        return joined
    walk(json.loads(body))
    return found


class Load:
    def __init__(self, server, alone, rng):
        self.server, self.alone, self.rng = server, alone, rng
        self.end = time.monotonic() + SECONDS
        self.n = {"whole": 0, "left": 0, "slow": 0, "nonsense": 0}

    async def talk(self, data, leave_after=None, delay=0.0):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        got = b""
        try:
            writer.write(data)
            while piece := await asyncio.wait_for(reader.read(256 if delay else 65536), 120):
                got += piece
                if leave_after is not None and len(got) >= leave_after:
                    break
                await asyncio.sleep(delay)
        except ConnectionError:
            pass
        finally:
            writer.close()
        return got

    def goes_on(self):
        left = self.end - time.monotonic()
        return left > 0 or self.n["whole"] <= N_WHOLE and left > -MORE_SECONDS

    async def client(self):
        while self.goes_on():
            kind = self.rng.choices(list(self.n), [6, 3, 1, 2])[0]
            i = self.rng.randrange(len(CASES))
            if kind == "nonsense":
                await self.talk(self.rng.choice(NONSENSE), leave_after=self.rng.choice([1, None]))
            elif kind == "left" and self.rng.random() < 0.3:
                _, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
                writer.write(encode(*CASES[i])[:self.rng.randrange(10, 300)])
                await asyncio.sleep(self.rng.random() * 0.2)
                writer.close()
            elif kind == "left":
                await self.talk(encode(*CASES[i]), leave_after=self.rng.randrange(1, 2000))
            else:
                raw = await self.talk(encode(*CASES[i]), delay=0.02 if kind == "slow" else 0)
                assert texts(raw) == self.alone[i], (CASES[i], raw[-2000:])
            self.n[kind] += 1


def usage(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    rss = int(status.split("VmRSS:")[1].split()[0])
    return rss, len(os.listdir(f"/proc/{pid}/fd"))


async def alone(server):
    """Each request by itself, twice: the second finds the cache warm."""
    load = Load(server, None, None)
    answers = []
    for case in CASES:
        first, second = [texts(await load.talk(encode(*case))) for _ in range(2)]
        assert first is not None and first == second, case
        answers.append(first)
    return answers


async def run(server):
    rng = random.Random(SEED)
    load = Load(server, await alone(server), rng)
    clients = [asyncio.create_task(load.client()) for _ in range(N_CLIENT)]
    await asyncio.sleep(SECONDS * 0.4)
    before = usage(server.process.pid)
    await asyncio.gather(*clients)
    return load, before


def test_many_clients(capsys):
    with Server("--cache-ram", "64M", "--parallel", N_PARALLEL, "--queue", 1000) as server:
        load, before = asyncio.run(run(server))
        end = time.monotonic() + 30
        while server.metric("pantheon:num_requests_running") or usage(server.process.pid)[1] > 40:
            assert time.monotonic() < end, "requests or files stay open"
            time.sleep(0.1)
        after = usage(server.process.pid)
        assert after[0] <= before[0] * 1.1 + 8192 or IS_SANITIZED, (before, after)
        assert server.get("/health").status == 200
    with capsys.disabled():
        print(f"\nload: SEED={SEED}, {load.n}, RSS {before[0]} then {after[0]} KiB, {after[1]} files")
    assert load.n["whole"] > N_WHOLE and load.n["left"] and load.n["nonsense"]
