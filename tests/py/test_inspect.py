"""inspect and synth: reports that parse, memory predicted, files repeatable by seed."""
import json
import os
import shutil
import subprocess

import pytest
from conftest import DATA, IS_SANITIZED, MODEL, PROGRAM, clean_env, pantheon


def inspect(path, *options):
    return json.loads(pantheon("inspect", path, "--json", *options).ok().out)


def test_json_of_the_bundled_model():
    j = inspect(MODEL, "--tensors")
    assert j["architecture"] == "qwen35moe" and j["supported"] is True and j["problems"] == []
    assert j["n_tensors"] == len(j["tensors"]) == 149
    assert sum(t["bytes"] for t in j["tensors"]) == j["weight_bytes"] < j["file_bytes"]
    assert j["shape"]["expert_count"] == 8
    assert {t["type"] for t in j["types"]} == {t["type"] for t in j["tensors"]}


def test_text_says_the_same():
    r = pantheon("inspect", MODEL, "--tensors").ok()
    for word in ("qwen35moe", "Q4_K", "memory", "blk.7.ffn_down_exps.weight"):
        assert word in r.text
    assert pantheon("inspect", "-m", MODEL, "--tensors").text == r.text


def test_memory_grows_with_context_and_kv_type():
    def memory(*o):
        return inspect(MODEL, *o)["memory"]
    a, b = memory("--ctx", 1024), memory("--ctx", 4096)
    assert b["n_ctx"] == 4096 and b["kv_bytes"] == 4 * a["kv_bytes"]
    assert memory("--ctx", 1024, "--kv-type", "f32")["kv_bytes"] == 2 * a["kv_bytes"]
    parts = [a[k] for k in a if k.endswith("_bytes") and k not in ("total_bytes", "lookup_bytes")]
    assert sum(parts) == a["total_bytes"]


def test_what_is_unsupported_is_said(tmp_path):
    from gguf_edit import Gguf
    g = Gguf(MODEL.read_bytes())
    path = tmp_path / "odd.gguf"
    path.write_bytes(g.put(g.tensors["blk.3.attn_k.weight"]["type"], "I", 99).data)
    j = inspect(path)
    assert j["supported"] is False and any("blk.3.attn_k.weight" in p for p in j["problems"])
    text = pantheon("inspect", path).ok().text
    assert "blk.3.attn_k.weight" in text and "99" in text


def test_a_vocabulary_alone_can_be_inspected():
    j = inspect(DATA / "tokenizer/qwen36-vocab.gguf")
    assert j["supported"] is False and j["problems"]


def test_split_files_count_as_one_model():
    j = inspect(DATA / "model/variants/split-00001-of-00004.gguf")
    assert j["files"] == 4 and j["supported"] is True


# --- synth ----------------------------------------------------------------------------------------

def synth(path, *options):
    r = pantheon("synth", "-o", path, *options).ok()
    assert r.out == b"" and str(path) in r.err
    return path


def test_synth_repeats_by_seed(tmp_path):
    a, b, c = (synth(tmp_path / n, "--layers", 4, "--seed", s).read_bytes() for n, s in (("a", 7), ("b", 7), ("c", 8)))
    assert a == b != c and len(a) == len(c)


@pytest.mark.parametrize("quant", ["q3_k_m", "q4_k_m", "q8trunk", "q8_0", "bf16", "f32", "mxfp4"])
@pytest.mark.parametrize("mtp", [[], ["--mtp"]], ids=["", "mtp"])
def test_every_mix_loads_and_runs(tmp_path, quant, mtp):
    path = synth(tmp_path / "m.gguf", "--layers", 4, "--quant", quant, *mtp)
    j = inspect(path)
    assert j["supported"] is True, j["problems"]
    out = tmp_path / "out"
    pantheon("logits", "-m", path, "--tokens", "1,2,3", "-o", out).ok()
    assert out.stat().st_size % 12 == 0 and out.stat().st_size > 0
    pantheon("run", "-m", path, "-p", "hi", "-n", 4).ok()


def test_a_failed_synth_leaves_nothing(tmp_path):
    pantheon("synth", "-o", tmp_path / "x.gguf", "--set", "n_embd=7").says(2)
    assert list(tmp_path.iterdir()) == []


def peak_rss(args):
    """Peak resident bytes of one run of the program."""
    pid = os.spawnve(os.P_NOWAIT, PROGRAM, [str(PROGRAM), *map(str, args)], clean_env())
    _, status, usage = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return usage.ru_maxrss * 1024


@pytest.mark.skipif(IS_SANITIZED, reason="sanitizers need memory of their own")
def test_memory_is_as_predicted(tmp_path):
    """Slices of the real shapes that choose every expert: a mapped expert that no token chose is
    not resident, which no prediction can know."""
    if shutil.disk_usage(tmp_path).free < 4 << 30:
        pytest.skip("needs 4 GB of disk")
    path = synth(tmp_path / "slice.gguf", "--preset", "35b-a3b", "--layers", 4, "--set", "n_expert_used=256")
    ids = "11,22,33,44,55,66,77,88"
    for options, more in ([], 0), (["--no-mmap"], "lookup_bytes"):
        how = ["-t", 2, "--batch", 8, *options]
        memory = inspect(path, "--ctx", 8, *how)["memory"]
        need = memory["total_bytes"] + memory.get(more, 0)
        got = peak_rss(["logits", "-m", path, "--tokens", ids, "-o", "/dev/null", "--last", 1, *how])
        print(f"{options}: predicted {need}, resident {got}, {got / need:.4f}")
        assert abs(got - need) < 0.05 * need
    path.unlink()
