#!/usr/bin/env python3
"""A file of requests over many machines, by Ray Data (pip install ray).

    ray_batch.py IN.jsonl OUT_DIR -m MODEL.gguf [--pantheon PATH] [--workers N] [--cpus N]

IN has the form of OpenAI's batches, one request a line; OUT_DIR gets files of answers in the same form. Each worker
runs `pantheon batch` on blocks of lines; model and program must be at the same paths on all machines (or in a
working_dir of Ray's). Whole blocks are repeated when a machine is lost. On one machine, or with Slurm, Ray is not
needed: `pantheon batch IN.jsonl -o OUT.$i.jsonl --shard $i/$n --resume`.
"""
import argparse
import pathlib
import subprocess
import tempfile

import ray


class Worker:
    """Answers blocks of lines with a program of its own."""

    def __init__(self, options):
        self.options = options

    def __call__(self, block):
        with tempfile.TemporaryDirectory() as folder:
            source, answers = pathlib.Path(folder, "in.jsonl"), pathlib.Path(folder, "out.jsonl")
            source.write_text("".join(line + "\n" for line in block["text"]))
            done = subprocess.run([self.options.pantheon, "batch", source, "-o", answers, "-m", self.options.model],
                                  stderr=subprocess.PIPE, text=True)
            if done.returncode != 0:
                raise RuntimeError(done.stderr.strip().splitlines()[-1])
            return {"text": answers.read_text().splitlines()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--pantheon", default="pantheon")
    parser.add_argument("--workers", type=int, default=1, help="machines, or sockets of them")
    parser.add_argument("--cpus", type=float, default=1, help="cores that a worker takes")
    parser.add_argument("--block", type=int, default=256, help="lines that a worker gets at once")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    answers = ray.data.read_text(str(options.source.resolve())).map_batches(
        Worker, fn_constructor_args=(options,), batch_size=options.block, concurrency=options.workers, num_cpus=options.cpus)
    n = 0
    for i, block in enumerate(answers.iter_batches(batch_size=options.block)):
        text = "".join(line + "\n" for line in block["text"])
        (options.folder / f"answers-{i:05}.jsonl").write_text(text)
        n += len(block["text"])
    print(f"{n} answers in {options.folder}")


if __name__ == "__main__":
    main()
