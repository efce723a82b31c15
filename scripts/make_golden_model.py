#!/usr/bin/env python3
"""Writes tests/golden/data/model/: what the model tests compare with, as raw little-endian files.

Usage: scripts/make_golden_model.py SOURCE_DIR [OUT_DIR]        needs numpy

SOURCE_DIR holds the reference data: tiny/ (the trained tiny model, its exact logits, greedy texts,
activations and llama.cpp's figures) and variants/ (odd shapes with llama.cpp's logits). Model files
are copied once and never rewritten: one that is there already is left alone.
"""
import json
import pathlib
import shutil
import sys

import numpy as np

TYPES = ["bf16", "Q8_0", "Q4_K_M", "Q3_K_M"]
# 90 % quantile of max|logit difference| of llama.cpp against exact, over all positions of the 17 prompts of
# the data's own README.
DELTA_P90 = {"bf16": 3.95e-2, "Q8_0": 1.44e-1, "Q4_K_M": 3.23e-1, "Q3_K_M": 3.27e-1}
VARIANTS = "base conv2 f16 ffarr interval2 mqa q51 q8 recarr split tied v3k wide_v".split()

README = """\
# Reference data of the model tests

Made by `scripts/make_golden_model.py` (numpy {numpy}) from the trained tiny model's reference data. All numbers are
little-endian: `.i32` int32, `.f32` float32. Text files hold words separated by spaces, one record a line.

Producers: "exact" is HF transformers' forward pass in float32 on the weights dequantised from the very GGUF file;
"llama.cpp" is its CPU backend with default settings. Weights, tokenizer and texts were made from public-domain text
(King James Bible, Shakespeare) and generated chats. The chat template inside the GGUF files is the published
Qwen3.5 template (NOTICE).

| file | contents |
|---|---|
| `trunk-TYPE.gguf` | the tiny model; its Q4_K_M file is `models/pantheon-tiny-Q4_K_M.gguf` |
| `mtp-Q4_K_M.gguf` | trunk and one MTP block, which the trunk must never touch |
| `prompts.txt`, `prompts.i32` | name and number of tokens of each prompt; the tokens of all, one after the other |
| `TYPE.last.f32` | exact logits [4096] of the last min(n, 16) positions of each prompt |
| `TYPE.top_ids.i32`, `TYPE.top.f32`, `TYPE.lse.f32` | the earlier positions: the 20 largest logits' ids and values, and log-sum-exp |
| `TYPE.greedy.i32`, `TYPE.margins.f32` | 64 tokens of exact greedy text after each prompt; largest minus second logit at each step |
| `llamacpp.txt` | per type: median, 90 % quantile and mean of KL(exact, llama.cpp) over the rows of `last`; 90 % quantile of the largest logit difference |
| `mtp.txt`, `mtp.i32`, `mtp_argmax.i32` | like `prompts`: prompts with their exact greedy text; the exact trunk's argmax at each position |
| `activations.txt`, `activations.bin` | name, type (f32 or i32), rows, columns of every stage of the exact forward pass of trunk-bf16 on the tokens of entry `tokens`; the values |
| `variants/NAME.gguf` | small random-weight models of odd shapes: `v3k` 6 V heads on 2 K heads, `wide_v` 4 on 1, `interval2`, `recarr` (layer types by array), `ffarr` (array of expert widths), `mqa` 6 query heads on 1, `tied` embeddings, `conv2` kernel of 2, `split` in 4 files, `f16`, `q8` (Q8_0), `q51` (Q5_1); else F32 |
| `variants/NAME.ids.i32`, `.at.i32`, `.logits.f32` | 150 tokens; 14 positions; llama.cpp's logits [512] there, with f32 KV and no flash attention |

In `activations`, arrays over V heads are in the GGUF's order (V head j reads K head j % 2). `gate` is before the
sigmoid, `beta` and `shared_gate` after it, `g` is the log decay, `q_l2` and `k_l2` come before the 1/sqrt(128),
`state_final` is [head][key][value].
"""


def put(path, array, dtype):
    np.ascontiguousarray(array, dtype=dtype).tofile(path)


def copy_once(src, dst):
    if not dst.exists():
        shutil.copyfile(src, dst)
        dst.chmod(0o644)


def logits(tiny, out, prompts):
    for t in TYPES:
        z = np.load(tiny / f"logits_{t}.npz")
        for p in prompts:
            assert np.array_equal(z[p["name"] + "/ids"], p["ids"])
        get = lambda what: [z[f"{p['name']}/{what}"] for p in prompts if f"{p['name']}/{what}" in z.files]
        put(out / f"{t}.last.f32", np.concatenate(get("last")), "<f4")
        put(out / f"{t}.top_ids.i32", np.concatenate(get("top20_ids")), "<i4")
        put(out / f"{t}.top.f32", np.concatenate(get("top20_logits")), "<f4")
        put(out / f"{t}.lse.f32", np.concatenate(get("lse")), "<f4")
        lines = [json.loads(s) for s in open(tiny / f"greedy_{t}.jsonl", encoding="utf-8")]
        by_name = {r["name"]: r for r in lines}
        put(out / f"{t}.greedy.i32", [by_name[p["name"]]["exact_ids"] for p in prompts], "<i4")
        put(out / f"{t}.margins.f32", [by_name[p["name"]]["exact_margins"] for p in prompts], "<f4")
    marks = json.load(open(tiny / "llamacpp_last_rows.json"))
    (out / "llamacpp.txt").write_text("".join(
        f"{t} {marks[t]['median']:.9g} {marks[t]['p90']:.9g} {marks[t]['mean']:.9g} {DELTA_P90[t]:g}\n" for t in TYPES))


def index(path, items):
    path.write_text("".join(f"{name} {n}\n" for name, n in items))


def main(src, out):
    tiny, var = src / "tiny", src / "variants"
    (out / "variants").mkdir(parents=True, exist_ok=True)
    for name in ["trunk-bf16", "trunk-Q8_0", "trunk-Q3_K_M", "mtp-Q4_K_M"]:
        copy_once(tiny / f"{name}.gguf", out / f"{name}.gguf")
    prompts = json.load(open(tiny / "prompts.json", encoding="utf-8"))
    index(out / "prompts.txt", [(p["name"], len(p["ids"])) for p in prompts])
    put(out / "prompts.i32", np.concatenate([p["ids"] for p in prompts]), "<i4")
    logits(tiny, out, prompts)

    z = np.load(tiny / "mtp_Q4_K_M.npz")
    names = [p["name"] for p in prompts]
    index(out / "mtp.txt", [(n, len(z[n + "/ids"])) for n in names])
    put(out / "mtp.i32", np.concatenate([z[n + "/ids"] for n in names]), "<i4")
    put(out / "mtp_argmax.i32", np.concatenate([z[n + "/trunk_argmax"] for n in names]), "<i4")

    z = np.load(tiny / "activations_bf16.npz")
    keys = [k for k in z.files if z[k].ndim]
    with open(out / "activations.bin", "wb") as f:
        lines = []
        for k in keys:
            is_int = z[k].dtype.kind == "i"
            f.write(z[k].astype("<i4" if is_int else "<f4").tobytes())
            lines.append(f"{k} {'i32' if is_int else 'f32'} {z[k].shape[0]} {z[k].size // z[k].shape[0]}\n")
    (out / "activations.txt").write_text("".join(lines))

    for f in sorted(var.glob("*.gguf")):
        copy_once(f, out / "variants" / f.name)
    for name in VARIANTS:
        z = np.load(var / f"{name}.npz")
        put(out / f"variants/{name}.ids.i32", z["ids"], "<i4")
        put(out / f"variants/{name}.at.i32", z["at"], "<i4")
        put(out / f"variants/{name}.logits.f32", z["logits"], "<f4")
    (out / "README.md").write_text(README.format(numpy=np.__version__))


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent.parent
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else here / "tests/golden/data/model")
