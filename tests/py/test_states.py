"""The folder of kept states under a server: killed at any moment, its files damaged and replaced meanwhile. Every answer
is that of a server without a cache, with the same probabilities; what is not the server's stays as it was."""
import hashlib
import os
import random
import shutil
import threading
import time

from conftest import IS_SANITIZED
from serving import Server

ROUNDS = 200 if os.environ.get("SOAK") else 2 if IS_SANITIZED else 10
CTX = "--ctx", "2048"
TRUNKS = 60, 200, 500, 1300  # tokens of the beginnings that prompts share


def ids(seed, n):
    r = random.Random(seed)
    return [r.randrange(300, 4000) for _ in range(n)]


def prompt(rng):
    trunk, tail = rng.randrange(len(TRUNKS)), rng.randrange(3)
    return ids(trunk, TRUNKS[trunk]) + ids(100 + tail, (0, 1, 40)[tail])


def ask(server, prompt):
    a = server.ask("/completion", {"prompt": prompt, "n_predict": 8, "temperature": 0, "n_probs": 3, "ignore_eos": True})
    return [a["content"], a["completion_probabilities"]], a["timings"]["cache_n"]


class Clients:
    """Two who ask one prompt after another until the server is gone or they are stopped."""

    def __init__(self, server, seed):
        self.server, self.answers, self.failed, self.stops = server, [], [], threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(f"{seed} {i}"),)) for i in range(2)]
        for t in self.threads:
            t.start()

    def run(self, rng):
        while not self.stops.is_set():
            p = prompt(rng)
            try:
                self.answers.append((p, *ask(self.server, p)))
            except AssertionError as e:
                self.failed.append(e)
            except OSError:
                return

    def end(self):
        self.stops.set()
        for t in self.threads:
            t.join()
        assert not self.failed, self.failed


def damage(folder, outside, rng):
    """Does something to one of the files that are the server's alone."""
    files = [f for f in sorted(folder.glob("*.pnstate"))
             if f.is_file() and not f.is_symlink() and f.stat().st_nlink == 1 and f.stat().st_size]
    if not files:
        return
    f, other = rng.choice(files), rng.choice(files)
    at, t = rng.randrange(f.stat().st_size), rng.choice([0, 4e9, 1.2e10])
    kept = outside / f"{rng.random()}"

    def flip():
        with open(f, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))

    def link():
        shutil.copy(f, kept)
        f.unlink()
        f.symlink_to(kept)

    def pipe():
        f.unlink()
        os.mkfifo(f)

    rng.choice([flip, link, pipe, lambda: os.truncate(f, at), lambda: os.truncate(f, f.stat().st_size + at),
                lambda: f.replace(other), f.unlink, lambda: os.link(f, kept), lambda: os.utime(f, (t, t))])()


def sums(folder):
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()}


def test_killed_over_damaged_files(tmp_path):
    rng = random.Random(1)
    folder, outside = tmp_path / "states", tmp_path / "outside"
    outside.mkdir()
    before, want, n_hit = {}, {}, 0
    with Server("--cache-ram", "0", *CTX) as cold:
        for i in range(ROUNDS):
            server = Server("--cache-dir", folder, "--cache-ram", rng.choice(["6M", "10M", "400M"]), "--cache-disk",
                            rng.choice(["0", "600K", "20M", "1G"]), "--parallel", rng.choice([1, 3]), *CTX)
            clients = Clients(server, i)
            n_wanted = rng.randrange(1, 12)
            while len(clients.answers) < n_wanted and not clients.failed:
                time.sleep(rng.random() * 0.2)
                try:
                    damage(folder, outside, rng)
                except FileNotFoundError:
                    pass  # the server was first
                before = sums(outside) | before
            if rng.randrange(3):
                server.kill()
                clients.end()
            else:
                clients.end()
                server.stop()
            assert before == sums(outside)
            for p, answer, n_cached in clients.answers:
                if str(p) not in want:
                    want[str(p)] = ask(cold, p)[0]
                assert answer == want[str(p)], (len(p), n_cached)
                n_hit += n_cached > 0
    assert n_hit > 0 or IS_SANITIZED
