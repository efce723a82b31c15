"""Bad input: exit 1, exactly one sentence that names what is at fault, at once."""
import os
import struct
import subprocess

import pytest
from conftest import IS_SANITIZED, MODEL, N_VOCAB, PROGRAM, clean_env, pantheon
from gguf_edit import Gguf

BYTES = MODEL.read_bytes()
F64, I8 = 28, 24


def refused(r, *words):
    r.says(1, *words)
    if not IS_SANITIZED:
        assert r.cpu_s < 1, f"took {r.cpu_s} s"
    return r


@pytest.fixture
def load(tmp_path):
    """Tries to load bytes as a model."""
    def run(data, *options):
        path = tmp_path / "bad.gguf"
        path.write_bytes(data)
        out = tmp_path / "out"
        r = pantheon("logits", "-m", path, "--tokens", "1", "-o", out, *options)
        assert not out.exists(), "nothing is written when the model is refused"
        return r

    return run


# --- files that are no models ---------------------------------------------------------------------

@pytest.mark.parametrize("n", [0, 1, 3, 4, 7, 8, 23, 24, 25, 100, 4096, 50000, 200000, len(BYTES) // 2,
                               len(BYTES) - 100000, len(BYTES) - 1])
def test_truncated(load, n):
    refused(load(BYTES[:n]), "bad.gguf")


@pytest.mark.parametrize("start, words", [(b"GGML", ["GGUF"]), (b"PK\3\4", ["GGUF"]), (b"FUGG", ["GGUF"]),
                                          (b"GGUF\1\0\0\0", ["version"]), (b"GGUF\x63\0\0\0", ["version"])])
def test_wrong_start(load, start, words):
    refused(load(start + BYTES[len(start):]), "bad.gguf", *words)


COMMANDS = [["run", "-p", "x"], ["run"], ["logits", "--tokens", "1", "-o", "/dev/null"], ["tokenize"],
            ["detokenize"], ["render"], ["inspect"], ["bench", "-r", "1"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
@pytest.mark.parametrize("kind", ["missing", "directory", "empty", "text"])
def test_no_model_there(tmp_path, command, kind):
    path = tmp_path / f"{kind}.gguf"
    if kind == "directory":
        path.mkdir()
    elif kind != "missing":
        path.write_text("" if kind == "empty" else "what is this\n" * 100)
    where = [path] if command[0] == "inspect" else ["-m", path]
    r = refused(pantheon(*command, *where, input=b'{"messages":[]}'), path)
    assert r.out == b""


def test_unreadable_model(tmp_path):
    path = tmp_path / "secret.gguf"
    path.write_bytes(BYTES[:1000])
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads everything")
    refused(pantheon("run", "-m", path, "-p", "x"), path, "ermission")


# --- one thing wrong in a model -------------------------------------------------------------------

@pytest.mark.parametrize("dim", [0, 2**42 + 1, 2**63, 2**64 - 1, 255, 257])
@pytest.mark.parametrize("tensor", ["blk.3.attn_q.weight", "token_embd.weight", "blk.0.ffn_down_exps.weight"])
@pytest.mark.parametrize("i", [0, 1])
def test_wrong_dimension(load, tensor, i, dim):
    g = Gguf(BYTES)
    r = load(g.put(g.tensors[tensor]["dims"] + 8 * i, "Q", dim).data)
    # The rows of token_embd are the vocabulary: then it is output that does not fit.
    is_vocab = tensor == "token_embd.weight" and i == 1 and dim in (255, 257)
    refused(r, "bad.gguf", "output.weight" if is_vocab else tensor)


@pytest.mark.parametrize("n_dims", [0, 5, 2**32 - 1])
def test_wrong_number_of_dimensions(load, n_dims):
    g = Gguf(BYTES)
    refused(load(g.put(g.tensors["output.weight"]["dims"] - 4, "I", n_dims).data), "bad.gguf", "output.weight")


@pytest.mark.parametrize("offset", [len(BYTES), 2**40, 2**64 - 32, 7])
def test_tensor_past_the_end_or_askew(load, offset):
    g = Gguf(BYTES)
    refused(load(g.put(g.tensors["blk.5.ssm_out.weight"]["offset"], "Q", offset).data), "bad.gguf",
            "blk.5.ssm_out.weight")


@pytest.mark.parametrize("tensor", ["token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight",
                                    "blk.3.attn_k.weight", "blk.0.ssm_conv1d.weight", "blk.6.ffn_gate_inp.weight",
                                    "blk.7.ffn_down_shexp.weight", "blk.2.ffn_up_exps.weight"])
def test_missing_tensor_is_named(load, tensor):
    g = Gguf(BYTES)
    g.data[g.tensors[tensor]["name"]] = ord("X")
    refused(load(g.data), "bad.gguf", tensor)


@pytest.mark.parametrize("type_id, name", [(F64, "F64"), (I8, "I8"), (99, "99"), (2**32 - 1, "4294967295")])
@pytest.mark.parametrize("tensor", ["blk.3.attn_q.weight", "output_norm.weight"])
def test_unknown_type_is_named(load, tensor, type_id, name):
    g = Gguf(BYTES)
    refused(load(g.put(g.tensors[tensor]["type"], "I", type_id).data), "bad.gguf", tensor, name)


@pytest.mark.parametrize("key", ["qwen35moe.block_count", "qwen35moe.embedding_length", "qwen35moe.expert_count",
                                 "qwen35moe.ssm.state_size", "general.architecture", "tokenizer.ggml.tokens"])
def test_missing_key_is_named(tmp_path, key):
    path = tmp_path / "bad.gguf"
    path.write_bytes(Gguf(BYTES).rename_key(key, "X" + key[1:]).data)
    refused(pantheon("run", "-m", path, "-p", "x"), "bad.gguf", key)


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count", "attention.key_length",
                                 "expert_count", "expert_used_count", "expert_feed_forward_length",
                                 "ssm.group_count", "ssm.state_size", "ssm.conv_kernel", "ssm.inner_size",
                                 "rope.dimension_count", "context_length"])
@pytest.mark.parametrize("value", [0, 2**31, 2**32 - 1])
def test_absurd_key(load, key, value):
    g = Gguf(BYTES)
    kind, at = g.keys["qwen35moe." + key]
    if kind not in (4, 5):
        pytest.skip("an array in this file")
    refused(load(g.put(at, "I", value).data), "bad.gguf")


def test_another_architecture_is_named(load):
    g = Gguf(BYTES)
    at = g.keys["general.architecture"][1] + 8
    g.data[at:at + 9] = b"llamallam"
    refused(load(g.data), "bad.gguf", "llamallam", "qwen35moe")


def test_a_part_of_a_split_is_missing(tmp_path):
    from conftest import DATA
    part = "split-00001-of-00004.gguf"
    (tmp_path / part).write_bytes((DATA / "model/variants" / part).read_bytes())
    refused(pantheon("logits", "-m", tmp_path / part, "--tokens", "1", "-o", "/dev/null"), "split-00002-of-00004.gguf")


# --- tokens, prompts, output ----------------------------------------------------------------------

def logits(*options, **more):
    return pantheon("logits", "-m", MODEL, *options, **more)


@pytest.mark.parametrize("ids", [f"1,{N_VOCAB}", "-1", "0,1,2,-7", str(2**31), str(2**40), f"{2**31 - 1}"])
def test_ids_out_of_range(ids):
    refused(logits(f"--tokens={ids}", "-o", "/dev/null"), "token", N_VOCAB - 1)


@pytest.mark.parametrize("data, words", [(b"", ["empty"]), (b"\1\0\0\0\0", ["5 bytes", "ids"]),
                                         (struct.pack("<i", -1), ["token"]),
                                         (struct.pack("<2i", 0, N_VOCAB), ["token"])])
def test_bad_tokens_file(tmp_path, data, words):
    path = tmp_path / "ids"
    path.write_bytes(data)
    refused(logits("--tokens-file", path, "-o", "/dev/null"), *words)


def test_tokens_file_missing_or_directory(tmp_path):
    refused(logits("--tokens-file", tmp_path / "none", "-o", "/dev/null"), tmp_path / "none")
    refused(logits("--tokens-file", tmp_path, "-o", "/dev/null"), tmp_path)


def test_a_prompt_longer_than_the_context(tmp_path):
    refused(logits("--tokens", ",".join(["1"] * 65), "--ctx", "64", "-o", "/dev/null"), "65", "64")
    refused(pantheon("run", "-m", MODEL, "-p", "word " * 100, "--ctx", "64"), "64")
    ids = tmp_path / "ids"
    ids.write_bytes(b"\0\0\0\0" * 32769)
    refused(logits("--tokens-file", ids, "-o", "/dev/null"), "32769", "32768")
    ids.write_text("word " * 33000)
    refused(pantheon("run", "-m", MODEL, "-f", ids), "32768")


def test_an_empty_list_of_ids():
    refused(logits("--tokens", "", "-o", "/dev/null"), "prompt is empty")


@pytest.mark.parametrize("options", [["-p", ""], ["-f", "/dev/null"], ["-p", "", "--raw"]])
def test_an_empty_prompt(options):
    refused(pantheon("run", "-m", MODEL, *options), "prompt is empty")


def test_prompt_file_missing_or_directory(tmp_path):
    refused(pantheon("run", "-m", MODEL, "-f", tmp_path / "none"), tmp_path / "none")
    refused(pantheon("run", "-m", MODEL, "-f", tmp_path), tmp_path)


def test_unwritable_output(tmp_path):
    for out in (tmp_path / "no/such/folder", tmp_path):
        refused(logits("--tokens", "1", "-o", out), out)
    refused(pantheon("synth", "-o", tmp_path / "no/such/folder"), tmp_path / "no/such/folder")


def test_logits_never_replace_a_model(tmp_path):
    """Neither the one that is mapped nor, with -m and -o swapped, another."""
    model, other = tmp_path / "m.gguf", tmp_path / "o.gguf"
    model.write_bytes(BYTES)
    other.write_bytes(BYTES[:1000])
    for out in (model, other):
        refused(pantheon("logits", "-m", model, "--tokens", "1", "-o", out), out, "GGUF")
    assert model.read_bytes() == BYTES and other.read_bytes() == BYTES[:1000]


def test_synth_does_not_replace_what_is_no_file(tmp_path):
    """A model takes its path's place by renaming, which as root would replace a device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(pantheon("synth", "-o", pipe), pipe, "regular")
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


def test_a_full_disk():
    refused(logits("--tokens", "1,2,3", "-o", "/dev/full"), "/dev/full", "space")
    with open("/dev/full", "wb") as full:
        refused(pantheon("tokenize", "-m", MODEL, input=b"text", stdout=full), "output", "space")
        refused(pantheon("inspect", MODEL, stdout=full), "output", "space")
        r = pantheon("run", "-m", MODEL, "-p", "hi", "--temp", "0", stdout=full)
        assert r.rc == 1 and "space" in r.err


def test_a_file_that_may_not_grow(tmp_path):
    """ulimit -f: what a write says, not a signal that ends the program; nothing is left."""
    args = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", PROGRAM, "synth", "-o", tmp_path / "m.gguf"]
    done = subprocess.run(args, capture_output=True, env=clean_env())
    assert done.returncode == 1 and b"m.gguf" in done.stderr and b"too large" in done.stderr, done
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [["run", "-p", "hi", "--ignore-eos", "-n", "2000"], ["tokenize"], ["--help"]],
                         ids=lambda a: a[0])
def test_a_closed_pipe_ends_the_program(args):
    """No message storm, no endless work: a signal or exit 1."""
    read, write = os.pipe()
    os.close(read)
    model = [] if args[0] == "--help" else ["-m", MODEL]
    p = subprocess.run([PROGRAM, args[0], *model, *args[1:]], stdout=write, stderr=subprocess.PIPE,
                       input=b"some text " * 10000, env=clean_env(), timeout=60)
    os.close(write)
    assert p.returncode in (1, -13) and p.stderr.count(b"\n") <= 2, (p.returncode, p.stderr)


def test_cuda_is_refused():
    refused(pantheon("run", "-m", MODEL, "-p", "x", "--device", "cuda"), "cuda")


def test_a_level_that_the_processor_lacks(levels):
    for isa in {"avx2", "avxvnni", "avx512", "neon", "dotprod", "i8mm"} - set(levels):
        refused(logits("--tokens", "1", "-o", "/dev/null", "--isa", isa), isa)
