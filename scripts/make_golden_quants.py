#!/usr/bin/env python3
"""Writes tests/golden/data/quants/: blocks of every supported type and what they dequantise to.

Usage: scripts/make_golden_quants.py [OUT_DIR]        needs numpy and the PyPI package gguf

NAME.blocks holds raw blocks, random and extreme; NAME.f32 the weights as little-endian float32,
computed by gguf.quants.dequantize, an implementation in numpy that shares no code with ours.
No scale is NaN or infinite, so that every expected float is defined to the bit.
"""
import importlib.metadata
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

TYPES = "F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
# Offsets of the f16 fields in a block; MXFP4 has one E8M0 byte at 0.
F16_AT = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
EXTREME_F16 = np.array([0.0, -0.0, 65504.0, -65504.0, 2.0 ** -24, -(2.0 ** -24), 2.0 ** -14, 1.0], np.float16)


def finite_f16(rng, n):
    """n random patterns; those of infinity and NaN lose an exponent bit."""
    bits = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    return np.where((bits & 0x7C00) == 0x7C00, bits & 0xBFFF, bits).astype(np.uint16).view(np.float16)


def make(name, rng):
    block_n, block_bytes = GGML_QUANT_SIZES[T[name]]
    if block_n == 1:
        if name == "F16":
            return np.concatenate([finite_f16(rng, 504), EXTREME_F16]).view(np.uint8)
        bits = rng.integers(0, 1 << 16, 512, dtype=np.uint16)
        return np.where((bits & 0x7F80) == 0x7F80, bits & 0xBFFF, bits).astype(np.uint16).view(np.uint8)
    n_random, fills = (12 if block_n == 256 else 32), [0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0]
    blocks = [rng.integers(0, 256, block_bytes, dtype=np.uint8) for _ in range(n_random)]
    blocks += [np.full(block_bytes, f, np.uint8) for f in fills]
    blocks += [rng.integers(0, 256, block_bytes, dtype=np.uint8) for _ in EXTREME_F16]
    blocks = np.stack(blocks)
    for at in F16_AT.get(name, []):
        d = finite_f16(rng, len(blocks))
        d[:n_random] = (rng.standard_normal(n_random) * 0.05).astype(np.float16)
        d[-len(EXTREME_F16):] = np.roll(EXTREME_F16, at)
        blocks[:, at:at + 2] = d.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:8, 0] = [0, 1, 2, 3, 126, 127, 254, 255]
    return blocks


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20260101)
    for name in TYPES:
        blocks = make(name, rng)
        with np.errstate(all="ignore"):
            y = dequantize(blocks, T[name]).astype("<f4")
        blocks.tofile(out / f"{name}.blocks")
        y.tofile(out / f"{name}.f32")
    (out / "README.md").write_text(
        "Blocks of every supported quantised type (`NAME.blocks`) and their weights as little-endian\n"
        "float32 (`NAME.f32`). Made by `scripts/make_golden_quants.py` with numpy and the PyPI package\n"
        f"gguf {importlib.metadata.version('gguf')}, whose `gguf.quants.dequantize` is the reference.\n")


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent.parent
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests/golden/data/quants")
