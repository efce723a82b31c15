#!/usr/bin/env python3
"""Speed of llama.cpp on a GGUF file, measured like `pantheon bench --json` and printed like it.

A warm-up round comes first; each round makes a new context, reads the depth untimed, then times the
prompt and the decoded tokens. Sequences side by side have tokens of their own. Needs the package llama-cpp-python.
"""
import argparse
import ctypes
import json
import statistics
import time

import llama_cpp as lc
import numpy as np


def context(model, n_ctx, n_seq, ubatch, threads):
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = max(512, n_ctx) * n_seq
    params.n_seq_max = n_seq
    params.n_ubatch = min(ubatch, params.n_batch)
    params.n_threads = params.n_threads_batch = threads
    ctx = lc.llama_init_from_model(model, params)
    if not ctx:
        raise SystemExit("llama.cpp cannot make a context")
    return ctx


def decode(ctx, tokens, positions, seqs, wants_logits):
    """One call over the tokens; logits of the last or of all. Returns when they are computed."""
    batch = lc.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, (token, pos, seq) in enumerate(zip(tokens, positions, seqs)):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = int(token), pos, 1, seq
        batch.logits[i] = wants_logits == "all" or i == len(tokens) - 1
    failed = lc.llama_decode(ctx, batch)
    lc.llama_batch_free(batch)
    if failed:
        raise SystemExit("llama.cpp: decode failed")
    lc.llama_get_logits_ith(ctx, -1)


def measure(model, tokens, a):
    """Prefill and decode speed of one round, tokens/s over all sequences."""
    ctx = context(model, a.d + a.p + a.n, a.parallel, a.ubatch, a.t)
    prefill_s = 0.0
    for seq in range(a.parallel):
        if a.d:
            decode(ctx, tokens[seq][: a.d], range(a.d), [seq] * a.d, "last")
        if a.p:
            t0 = time.perf_counter()
            decode(ctx, tokens[seq][a.d : a.d + a.p], range(a.d, a.d + a.p), [seq] * a.p, "last")
            prefill_s += time.perf_counter() - t0
    t0 = time.perf_counter()
    for pos in range(a.d + a.p, a.d + a.p + a.n):
        decode(ctx, tokens[:, pos], [pos] * a.parallel, range(a.parallel), "all")
    decode_s = time.perf_counter() - t0
    lc.llama_free(ctx)
    return (a.parallel * a.p / prefill_s if a.p else 0), (a.parallel * a.n / decode_s if a.n else 0)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("-m", required=True, help="the GGUF file")
    ap.add_argument("-p", type=int, default=512, help="prompt tokens")
    ap.add_argument("-n", type=int, default=64, help="decoded tokens")
    ap.add_argument("-d", type=int, default=0, help="tokens read before, untimed")
    ap.add_argument("-r", type=int, default=1, help="measured rounds")
    ap.add_argument("-t", type=int, required=True, help="threads")
    ap.add_argument("--ubatch", type=int, default=512, help="tokens of one pass")
    ap.add_argument("--parallel", type=int, default=1, help="sequences that decode side by side")
    a = ap.parse_args()

    lc.llama_backend_init()
    quiet = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    model = lc.llama_model_load_from_file(a.m.encode(), lc.llama_model_default_params())
    if not model:
        raise SystemExit(f"{a.m}: llama.cpp cannot load it")
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    tokens = np.random.default_rng(1).integers(0, n_vocab, (a.parallel, a.d + a.p + a.n))
    rounds = [measure(model, tokens, a) for _ in range(a.r + 1)][1:]
    prefill, decoded = ([r[i] for r in rounds] for i in (0, 1))
    print(json.dumps({"engine": f"llama.cpp (llama-cpp-python {lc.__version__})",
                      "prefill_tok_s": statistics.median(prefill), "decode_tok_s": statistics.median(decoded),
                      "prefill_all": prefill, "decode_all": decoded, "p": a.p, "n": a.n, "d": a.d,
                      "parallel": a.parallel, "threads": a.t, "ubatch": a.ubatch}))


if __name__ == "__main__":
    main()
