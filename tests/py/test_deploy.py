"""deploy/: HAProxy before two servers in network namespaces of their own, Ray, the systemd unit. Needs root, haproxy,
ip, ray, systemd-analyze; what is missing is skipped and said."""
import collections
import http.client
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from conftest import MODEL, PROGRAM, ROOT, clean_env, wait_until

DEPLOY = ROOT / "deploy"
CHAT = "/v1/chat/completions"
START_S = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def can_have_namespaces():
    name = f"pantry{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made.returncode == 0


def run(*words):
    subprocess.run(words, check=True, capture_output=True)


class Replica:
    """A server in a namespace, which only the veth pair leads to."""

    def __init__(self, i):
        self.name, self.host = f"pantheon{os.getpid()}-{i}", f"10.77.{i}.1"
        link = f"pan{os.getpid() % 100000}{i}"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "e0", "netns", self.name)
        run("ip", "addr", "add", f"10.77.{i}.254/24", "dev", link)
        run("ip", "link", "set", link, "up")
        for words in (["addr", "add", f"{self.host}/24", "dev", "e0"], ["link", "set", "e0", "up"], ["link", "set", "lo", "up"]):
            run("ip", "-n", self.name, *words)
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, PROGRAM, "serve", "-m", MODEL, "--host", self.host, "--port", "8000",
             "--cache-ram", "128M", "-t", "1"], env=clean_env(), stderr=subprocess.DEVNULL)

    def end(self):
        self.process.kill()
        self.process.wait()
        subprocess.run(["ip", "netns", "del", self.name])


class Front:
    def __init__(self, tmp_path):
        self.port, self.replicas = free_port(), []
        try:
            self.replicas = [Replica(1), Replica(2)]
            env = clean_env(PANTHEON_BIND=f"127.0.0.1:{self.port}", **{f"PANTHEON_R{i}": f"{r.host}:8000"
                                                                      for i, r in enumerate(self.replicas, 1)})
            self.log = open(tmp_path / "haproxy.log", "wb")
            self.proxy = subprocess.Popen(["haproxy", "-db", "-f", DEPLOY / "haproxy.cfg"], env=env, stderr=self.log)
            self.wait(2)
        except BaseException:
            self.end()
            raise

    def end(self):
        if hasattr(self, "proxy"):
            self.proxy.kill()
            self.proxy.wait()
        for r in self.replicas:
            r.end()

    def ask(self, text, headers=None, **more):
        """(replica, answer or status)"""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = {"messages": [{"role": "system", "content": text}], "max_tokens": 4, "temperature": 0} | more
        try:
            link.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"} | (headers or {}))
            r = link.getresponse()
            data = r.read()
            return r.getheader("X-Replica"), json.loads(data) if r.status == 200 else r.status
        finally:
            link.close()

    def wait(self, n):
        """Until so many replicas answer."""
        end, seen = time.monotonic() + START_S, set()
        while len(seen) < n:
            assert time.monotonic() < end, "the replicas do not come up"
            try:
                replica, answer = self.ask(f"{time.monotonic_ns()}")
                seen |= {replica} if isinstance(answer, dict) else set()
            except (OSError, http.client.HTTPException):
                pass


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    if os.geteuid() != 0 or not shutil.which("haproxy") or not shutil.which("ip") or not can_have_namespaces():
        pytest.skip("needs root, haproxy and network namespaces (scripts/setup deploy)")
    f = Front(tmp_path_factory.mktemp("front"))
    yield f
    f.end()


def conversation(i):
    return f"Conversation {i}. " + f"You are assistant {i * 7919 % 1000}. " * 60


def test_conversations_stay_where_they_are_cached(front):
    where = collections.Counter()
    for i in range(12):
        messages = [{"role": "system", "content": conversation(i)}]
        replicas, cached = set(), []
        for turn in range(3):
            messages.append({"role": "user", "content": f"Question {turn}?"})
            replica, answer = front.ask("", messages=messages)
            replicas.add(replica)
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        assert len(replicas) == 1 and min(cached[1:]) > 200, (i, replicas, cached)
        where[replicas.pop()] += 1
    assert len(where) == 2, where


@pytest.mark.parametrize("key", ["x-session-affinity", "x-claude-code-session-id", "session-id", "prompt_cache_key"])
def test_named_sessions_stay(front, key):
    for i in range(4):
        named = {"prompt_cache_key": f"name {i}"} if key == "prompt_cache_key" else {"headers": {key: f"name {i}"}}
        assert len({front.ask(f"{j} another beginning", **named)[0] for j in range(4)}) == 1
    assert len({front.ask("x", **({"prompt_cache_key": str(i)} if key == "prompt_cache_key" else {"headers": {key: str(i)}}))[0]
                for i in range(16)}) == 2


def test_replica_killed_under_load(front):
    ended, is_over, killed_at = [], threading.Event(), [0.0]

    def client(i):
        n = 0
        while not is_over.is_set():
            n, began = n + 1, time.monotonic()
            try:
                answer = front.ask(f"{i}/{n} {conversation(i)}", max_tokens=8)[1]
            except (OSError, http.client.HTTPException) as e:
                answer = repr(e)
            ended.append((began, answer))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    time.sleep(2)
    killed_at[0] = time.monotonic()
    front.replicas[0].process.send_signal(signal.SIGKILL)
    late = lambda: [a for began, a in ended if began > killed_at[0] + 6]  # two checks, each in seconds
    wait_until(lambda: len(late()) >= 16)
    is_over.set()
    for t in threads:
        t.join()
    assert all(isinstance(a, dict) for a in late()), late()
    assert all(isinstance(a, dict) for began, a in ended if began < killed_at[0] - 2)
    front.replicas[0].process.wait()
    front.replicas[0].start()
    front.wait(2)


def test_drained_replica_ends_its_streams(front):
    front.wait(2)
    key = next(k for k in map(str, range(100)) if front.ask("x", headers={"x-session-affinity": k})[0] == "r2")
    link = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 600, "ignore_eos": True, "stream": True}
    link.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json", "x-session-affinity": key})
    stream = link.getresponse()
    stream.read(1)
    front.replicas[1].process.send_signal(signal.SIGTERM)
    wait_until(lambda: front.ask("x", headers={"x-session-affinity": key})[0] == "r1")
    assert isinstance(front.ask("x", headers={"x-session-affinity": key})[1], dict)
    assert stream.read().rstrip().endswith(b"[DONE]")
    assert front.replicas[1].process.wait(START_S) == 0


def test_ray_answers_a_file(tmp_path):
    if not importlib.util.find_spec("ray"):
        pytest.skip("needs ray (tests/py/requirements-ci.txt)")
    lines = [{"custom_id": str(i), "method": "POST", "url": CHAT,
              "body": {"messages": [{"role": "user", "content": f"Say {i}"}], "max_tokens": 4}} for i in range(40)]
    source, folder = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text("".join(json.dumps(x) + "\n" for x in lines))
    done = subprocess.run([sys.executable, DEPLOY / "ray_batch.py", source, folder, "-m", MODEL, "--pantheon", PROGRAM,
                           "--block", "10"], capture_output=True, text=True, timeout=300,
                          env=clean_env(RAY_ENABLE_UV_RUN_RUNTIME_ENV="0"))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(x) for f in sorted(folder.iterdir()) for x in f.read_text().splitlines()]
    assert sorted(int(a["custom_id"]) for a in answers) == list(range(40))
    assert all(a["response"]["status_code"] == 200 for a in answers)


def test_unit_file_is_sound(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "pantheon.service"
    unit.write_text((DEPLOY / "pantheon.service").read_text().replace("/usr/local/bin/pantheon", str(PROGRAM)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    ours = [x for x in done.stderr.splitlines() if "pantheon.service" in x]
    assert not ours, ours


def test_ready_is_told_to_systemd(tmp_path):
    """Type=notify: one datagram when the model is loaded."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(tmp_path / "notify"))
        s.settimeout(START_S)
        server = subprocess.Popen([PROGRAM, "serve", "-m", MODEL, "--port", "0"], stderr=subprocess.DEVNULL,
                                  env=clean_env(NOTIFY_SOCKET=str(tmp_path / "notify")))
        assert s.recv(100) == b"READY=1"
        server.terminate()
        assert server.wait(START_S) == 0
