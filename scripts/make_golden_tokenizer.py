#!/usr/bin/env python3
"""Converts tokenizer goldens (JSON lines, llama.cpp's .inp/.out) into raw files that C reads as they are.

Usage: scripts/make_golden_tokenizer.py SOURCE [tests/golden/data/tokenizer]

SOURCE holds qwen36/ tiny/ peer-vocab/ with the files named in SETS.  One file NAME.bin for each set, all
numbers little-endian int32:
  n_case, then for each case: text_bytes, n_ids, n_ids_no_nfc (-1: the same as with NFC, or not given),
  the text, ids [n_ids], ids without NFC [n_ids_no_nfc].
A case of the peer's set gives only ids without NFC; n_ids is then -1.
"""
import json
import pathlib
import struct
import sys

PEER_SEPARATOR = b"\n__ggml_vocab_test__\n"


def json_lines(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        d = json.loads(line)
        yield d["text"].encode(), d["ids"], d.get("ids_without_nfc")


def peer_vectors(path):
    """path.inp: texts with separators between, the last is empty; path.out: a line of ids for each."""
    texts = path.with_name(path.name + ".inp").read_bytes().split(PEER_SEPARATOR)
    lines = path.with_name(path.name + ".out").read_text().split("\n")
    for text, line in zip(texts, lines, strict=True):
        yield text, None, [int(i) for i in line.split()]


SETS = {
    "qwen36": lambda src: json_lines(src / "qwen36" / "tokenizer_qwen36.jsonl"),
    "tiny": lambda src: json_lines(src / "tiny" / "tokenizer.jsonl"),
    "peer": lambda src: peer_vectors(src / "peer-vocab" / "ggml-vocab-qwen35.gguf"),
}


def pack(ids):
    return struct.pack(f"<{len(ids)}i", *ids) if ids else b""


def count(ids):
    return -1 if ids is None else len(ids)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    src = pathlib.Path(sys.argv[1])
    dst = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else "tests/golden/data/tokenizer")
    dst.mkdir(parents=True, exist_ok=True)
    for name, read in SETS.items():
        cases = list(read(src))
        out = [struct.pack("<i", len(cases))]
        for text, ids, plain in cases:
            out.append(struct.pack("<3i", len(text), count(ids), count(plain)) + text + pack(ids) + pack(plain))
        (dst / f"{name}.bin").write_bytes(b"".join(out))
        print(f"{name}: {len(cases)} cases")


if __name__ == "__main__":
    main()
