"""A running `pantheon serve`, for tests: started on a free port, stopped by SIGTERM, its log kept."""
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time

from conftest import MODEL, PROGRAM, clean_env, cpu_s

START_S = 60  # sanitizers and a busy machine


class Server:
    def __init__(self, *args, env=None, model=MODEL, waits=True, program=PROGRAM):
        self.lines, self.port = [], 0
        listens = threading.Event()
        self.process = subprocess.Popen([program, "serve", "-m", model, "--port", "0", *map(str, args)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, env=clean_env(**(env or {})))

        def read():
            for line in self.process.stderr:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                if found := re.search(r"listening on https?://.*:(\d+)\]", self.lines[-1]):
                    self.port = int(found[1])
                    listens.set()
            listens.set()

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        assert listens.wait(START_S) and self.port, self.log
        self.url = f"http://127.0.0.1:{self.port}"
        if waits:
            self.wait_ready()

    @property
    def log(self):
        return "\n".join(self.lines)

    def wait_ready(self):
        end = time.monotonic() + START_S
        while self.get("/health").status != 200:
            assert time.monotonic() < end and self.process.poll() is None, self.log
            time.sleep(0.02)

    def request(self, method, path, body=None, headers=None, timeout=120):
        """One exchange on a connection of its own; body: bytes, or what becomes JSON."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            link.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
            answer = link.getresponse()
            answer.data = answer.read()
            return answer
        finally:
            link.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def ask(self, path, body, status=200, **more):
        """Posts and returns the answer's JSON; the status must be this one."""
        answer = self.post(path, body, **more)
        assert answer.status == status, (answer.status, answer.data)
        return json.loads(answer.data)

    def metric(self, name):
        """The value of a metric; name with its labels, as the text has it."""
        text = self.get("/metrics").data.decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
        assert found, f"{name} is not in:\n{text}"
        return float(found[1])

    def cpu_s(self):
        return cpu_s(self.process.pid)

    def stop(self, by=signal.SIGTERM, rc=0):
        """Ends it, which must succeed; what sanitizers say counts."""
        if self.process.poll() is None:
            os.kill(self.process.pid, by)
        try:
            status = self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"did not end: {self.log}")
        self.reader.join(START_S)
        assert status == rc, f"exit {status}: {self.log}"
        assert "Sanitizer" not in self.log, self.log

    def kill(self):
        self.process.kill()
        self.process.wait(START_S)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
        else:
            self.kill()
