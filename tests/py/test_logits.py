"""pantheon logits: sizes, slices, and the promise of equal bits, seen from outside."""
import struct

import pytest
from conftest import DATA, IS_SANITIZED, MODEL, N_VOCAB, pantheon

# Past one chunk of 128 positions and odd for every batch; sanitizers make do with less.
IDS = [(i * 733 + 11) % N_VOCAB for i in range(33 if IS_SANITIZED else 150)]
TOKENS = ",".join(map(str, IDS))


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    """logits(*options) -> bytes; a new file each time."""
    folder = tmp_path_factory.mktemp("logits")
    count = iter(range(10**6))

    def run(*options, tokens=TOKENS, model=MODEL, env=None):
        out = folder / str(next(count))
        r = pantheon("logits", "-m", model, "--tokens", tokens, "-o", out, *options, env=env).ok()
        assert r.out == b"" and r.err == ""
        return out.read_bytes()

    return run


@pytest.fixture(scope="module")
def plain(logits):
    return logits()


def test_all_rows_and_their_numbers(plain):
    assert len(plain) == len(IDS) * N_VOCAB * 4
    rows = struct.unpack(f"<{len(IDS) * N_VOCAB}f", plain)
    assert all(abs(x) < 1000 for x in rows) and len(set(rows)) > 10000


@pytest.mark.parametrize("n", [1, 2, 63, 64, 149, 150, 151, 99999])
def test_last_is_the_tail(logits, plain, n):
    assert logits("--last", n) == plain[-min(n, len(IDS)) * N_VOCAB * 4:]


def test_tokens_file_equals_tokens(plain, tmp_path):
    ids, out = tmp_path / "ids", tmp_path / "out"
    ids.write_bytes(struct.pack(f"<{len(IDS)}i", *IDS))
    pantheon("logits", "-m", MODEL, "--tokens-file", ids, "-o", out).ok()
    assert out.read_bytes() == plain


def test_bits_do_not_depend_on_the_instruction_set(logits, plain, levels):
    for isa in levels:
        assert logits("--isa", isa) == plain, isa


@pytest.mark.parametrize("options", [["-t", n] for n in (1, 2, 3)] +
                         [["--batch", n] for n in (1, 2, 7, 64, 512)] +
                         [["-t", 3, "--batch", 7, "--isa", "scalar"], ["--no-mmap"], ["--ctx", 150]])
def test_bits_do_not_depend_on(logits, plain, options):
    assert logits(*options) == plain


def test_a_prefix_has_the_same_rows(logits, plain):
    assert logits(tokens=",".join(map(str, IDS[:77]))) == plain[:77 * N_VOCAB * 4]


@pytest.mark.parametrize("kv", ["f32", "q8_0"])
def test_kv_types_run_and_stay_close(logits, plain, kv, levels):
    """Other bits than f16's, the same on every level, and near them."""
    got = logits("--kv-type", kv)
    assert len(got) == len(plain) and got != plain
    for isa in levels:
        assert logits("--kv-type", kv, "--isa", isa, "--batch", 5) == got, isa
    a, b = (struct.unpack(f"<{N_VOCAB}f", x[-N_VOCAB * 4:]) for x in (plain, got))
    assert max(abs(x - y) for x, y in zip(a, b)) < 0.1 * max(map(abs, a))


def test_environment_twins_and_flags_above_them(logits, plain):
    q8 = logits("--kv-type", "q8_0")
    assert logits(env={"PANTHEON_KV_TYPE": "q8_0"}) == q8
    assert logits("--kv-type", "f16", env={"PANTHEON_KV_TYPE": "q8_0"}) == plain
    env = {"PANTHEON_THREADS": "2", "PANTHEON_BATCH": "7", "PANTHEON_ISA": "scalar", "PANTHEON_NO_MMAP": "1"}
    assert logits(env=env) == plain
    r = pantheon("logits", "--tokens", "1", "-o", "/dev/null", env={"PANTHEON_MODEL": "/nowhere.gguf"})
    r.says(1, "/nowhere.gguf")


def test_a_split_model_equals_itself_from_any_part(logits):
    parts = sorted((DATA / "model/variants").glob("split-0000?-of-00004.gguf"))
    assert len(parts) == 4
    got = [logits(model=p, tokens="1,2,3") for p in parts]
    assert got[0] == got[1] == got[3] and len(got[0]) % 12 == 0


def test_profile_goes_to_standard_error(tmp_path):
    r = pantheon("logits", "-m", MODEL, "--tokens", "1,2", "-o", tmp_path / "x", env={"QWEN35_PROF": "1"}).ok()
    assert r.out == b"" and "GB/s" in r.err and "all stages" in r.err


@pytest.mark.skipif(IS_SANITIZED, reason="sanitizers slow the load down")
def test_output_may_be_a_pipe(plain):
    r = pantheon("logits", "-m", MODEL, "--tokens", TOKENS, "-o", "/dev/stdout").ok()
    assert r.out == plain
