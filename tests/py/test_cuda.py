"""The program and the script for GPUs from outside: without a GPU, and on the stand-in driver of
tests/cuda (fakecuda.h), which `make standin` puts beside programs with code for it."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from conftest import MODEL, PROGRAM, ROOT, clean_env
from serving import Server

STANDIN = ROOT / os.environ.get("STANDIN", "build/release/tests/cuda/standin")
GPU = "GPU 0 (stand-in 9.0)"
no_gpu = pytest.mark.skipif(pathlib.Path("/dev/nvidiactl").exists(), reason="a GPU may be here")
on_standin = pytest.mark.skipif(not (STANDIN / "pantheon").exists(), reason="make standin has not made it")


def standin_env(**more):
    return clean_env(**{"LD_LIBRARY_PATH": str(STANDIN), "FAKECUDA_DEVICES": "1", "FAKECUDA_SM": "90",
                        "FAKECUDA_MEM": str(96 << 20)} | more)


# --- without a GPU


@no_gpu
def test_device_cuda_names_the_cause():
    """--device cuda ends with one sentence that says what is missing."""
    p = subprocess.run([PROGRAM, "run", "-m", MODEL, "--device", "cuda", "-p", "x"], capture_output=True, text=True)
    assert p.returncode != 0 and p.stdout == ""
    assert any(cause in p.stderr for cause in ("no NVIDIA driver", "holds no code for GPUs"))


@no_gpu
@pytest.mark.parametrize("args, more, is_said", [
    ([], {}, False),
    (["-v"], {}, True),
    (["--vram", "4G"], {}, True),
    (["--n-cpu-moe", "2"], {}, True),
    ([], {"QWEN35_GPU_SPLIT_LAYER": "2"}, True),
])
def test_the_cpu_serves(args, more, is_said):
    """Without a GPU, and says so to whom counts on one."""
    p = subprocess.run([PROGRAM, "run", "-m", MODEL, "-p", "x", "-n", "1", *args], capture_output=True, text=True,
                       env=clean_env(**more))
    assert p.returncode == 0 and p.stdout
    assert ("; the CPU computes" in p.stderr) == is_said, p.stderr


# --- the script


def script(folder, program, env=None, **more):
    return subprocess.Popen(["bench/cuda.sh", program, folder], cwd=ROOT, env=env or clean_env(), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def programs(folder, pantheon, bits="echo 3 tests passed", kernels="echo fast", sanitizer="exit 1"):
    """Programs in place of those that the script runs: shell code."""
    folder.mkdir()
    for name, code in (("pantheon", pantheon), ("card-bits", bits), ("card-kernels", kernels),
                       ("compute-sanitizer", sanitizer)):
        (folder / name).write_text(f"#!/bin/sh\n{code}\n")
        (folder / name).chmod(0o755)
    return folder / "pantheon"


LOGITS = 'while [ $# -gt 0 ]; do [ "$1" != -o ] || echo logits >"$2"; shift; done; echo done'


@no_gpu
def test_script_without_a_gpu(tmp_path):
    """It gives the cause, ends with status 3 and leaves nothing behind."""
    program = programs(tmp_path / "bin", f'exec {PROGRAM} "$@"')
    (tmp_path / "work").mkdir()
    p = script(tmp_path / "work", program)
    out, err = p.communicate()
    assert p.returncode == 3 and out == ""
    assert any(cause in err for cause in ("no NVIDIA driver", "holds no code for GPUs"))
    assert not list((tmp_path / "work").iterdir())


def test_script_says_what_is_missing(tmp_path):
    p = script(tmp_path, tmp_path / "nowhere")
    out, err = p.communicate()
    assert p.returncode == 2 and out == "" and "make cuda builds it" in err


def test_a_stage_that_hangs_costs_its_line(tmp_path):
    """What comes after it has its place in the table; so has what there is no time for."""
    program = programs(tmp_path / "bin", f'[ "$1" != bench ] || sleep 1000; {LOGITS}', kernels="exit 7")
    (tmp_path / "work").mkdir()
    p = script(tmp_path / "work", program, clean_env(PN_DRY="1", PN_SECONDS="6"))
    out, _ = p.communicate(timeout=60)
    table = out[out.rindex("\n\n"):]
    assert p.returncode == 1
    assert re.search(r"bits: one pass +equal bits\n", table), out
    assert re.search(r"kernels: products +FAILED", table), out
    assert re.search(r"decode at 0 +FAILED: stopped after \d s\n", table), out
    assert re.search(r"prefill 33 +FAILED: left out: the time is over\n", table), out
    assert not list((tmp_path / "work").iterdir())


def test_the_checkers_verdicts(tmp_path):
    """What compute-sanitizer sums up is in the table, and errors fail the stage."""
    sanitizer = """echo "========= COMPUTE-SANITIZER"; tool=$2; shift 4; "$@" || exit 1
        [ "$tool" = memcheck ] && echo "========= ERROR SUMMARY: 0 errors" && exit 0
        echo "========= RACECHECK SUMMARY: 3 hazards displayed"; exit 9"""
    program = programs(tmp_path / "bin", LOGITS, bits='[ "$ONLY" = tail ] || [ "$ONLY" = qmv_tail ]',
                       sanitizer=sanitizer)
    (tmp_path / "work").mkdir()
    p = script(tmp_path / "work", program, clean_env(PN_DRY="1", PN_SANITIZER=str(tmp_path / "bin/compute-sanitizer")))
    out, _ = p.communicate(timeout=60)
    table = out[out.rindex("\n\n"):]
    for stage in "kernels", "batch 1", "batch 16":
        assert re.search(rf"memcheck: {stage} +=+ ERROR SUMMARY: 0 errors\n", table), out
        assert re.search(rf"racecheck: {stage} +FAILED: =+ RACECHECK SUMMARY: 3 hazards", table), out
    assert p.returncode == 1


def test_bits_that_differ_fail_the_script(tmp_path):
    """A GPU whose logits are not the CPU's: each such stage says so, and the status does."""
    device = LOGITS.replace("echo logits", 'echo "$device"').replace("; shift", '; [ "$1" != --device ] || device=$2; shift')
    program = programs(tmp_path / "bin", device)
    (tmp_path / "work").mkdir()
    p = script(tmp_path / "work", program, clean_env(PN_DRY="1"))
    out, _ = p.communicate(timeout=60)
    bits = re.findall(r"^bits: (?!every kernel).*", out[out.rindex("\n\n"):], re.M)
    assert p.returncode == 1 and len(bits) >= 10
    assert all(re.search(r" FAILED: .*cpu .*gpu differ", line) for line in bits), out


def test_the_script_has_every_fused_kernel():
    header = (ROOT / "src/models/qwen35moe_cuda.h").read_text()
    n_bit = int(re.search(r"PN_FUSE_ALL = \(1 << (\d+)\) - 1", header).group(1))
    masks = re.findall(r'masks="([\d ]+)"', (ROOT / "bench/cuda.sh").read_text())[-1]
    assert masks.split() == ["0", *(str(1 << i) for i in range(n_bit))]


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_script_prints_its_table(tmp_path, by):
    program = programs(tmp_path / "bin", LOGITS, bits=f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    (tmp_path / "work").mkdir()
    p = script(tmp_path / "work", program, clean_env(PN_DRY="1"))
    end = time.monotonic() + 30
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    p.send_signal(by)
    out, _ = p.communicate(timeout=30)
    assert p.returncode == 1 and "interrupted" in out and not list((tmp_path / "work").iterdir())
    hanging = pathlib.Path("/proc", (tmp_path / "pid").read_text().strip(), "cmdline")
    assert not hanging.exists() or not hanging.read_bytes(), "what it ran goes on"  # empty: a zombie


@on_standin
def test_the_whole_script_on_the_stand_in(tmp_path):
    """Every stage, at small sizes: the script that a card is lent for is known to work before."""
    p = script(tmp_path, STANDIN / "pantheon", standin_env(PN_DRY="1", FAKECUDA_DEVICES="2"))
    out, err = p.communicate(timeout=600)
    assert p.returncode == 0 and "FAILED" not in out, out + err
    table = out[out.rindex("\n\n"):]
    for stage in ("bits: every kernel's tests", "bits: one pass", "bits: QWEN35_FUSE=8", "bits: q8_0",
                  "bits: a long prompt", "bits: two GPUs, long", "bits: two GPUs, batch 3",
                  "memcheck, racecheck", "the card at best", "kernels: products", "kernels: experts",
                  "kernels: delta", "kernels: attention", "plan", "decode at 140", "prefill 33", "stages of decode"):
        assert f"\n{stage} " in table, out
    for kernel in ("pn_k_qmv ", "pn_k_qmv_nx", "pn_k_gemm", "pn_k_moe_up ", "pn_k_moe_down", "pn_k_moe_up_grouped",
                   "pn_k_moe_product_grouped", "pn_k_delta_scan", "pn_k_attend_step_f16", "pn_k_attend_rows_q8_0"):
        assert re.search(rf"\n    {kernel}.* us .* GB/s .* TMAC/s", table), kernel + out
    assert not list(tmp_path.iterdir())


@on_standin
def test_the_command_of_dies_that_take_turns(tmp_path):
    """It has no part in what the program reads and writes, and Ctrl-C on the program is not for it;
    where it fails, or the lock, the cause is named."""
    def run(**more):
        return subprocess.run([STANDIN / "pantheon", "logits", "-m", MODEL, "--device", "cuda", "--ctx", "512",
                               "--tokens", "1,2", "-o", tmp_path / "out"], capture_output=True, text=True,
                              input="not for it\n", env=standin_env(FAKECUDA_DEVICES="2", QWEN35_GPU_BARSWAP="1", **more))

    swap = tmp_path / "swap"
    swap.write_text("#!/bin/sh\necho \"$1 $2$(cat) $$ $(cut -d ' ' -f 5 /proc/$$/stat)\"\n")
    swap.chmod(0o755)
    plain, p = run(), run(QWEN35_GPU_BARSWAP_CMD=str(swap), QWEN35_GPU_BARSWAP_LOCK=str(tmp_path / "lock"))
    assert plain.returncode == p.returncode == 0 and p.stdout == plain.stdout, p.stderr
    said = re.findall(r"^(acquire|release) ([01]) (\d+) (\d+)$", p.stderr, re.M)
    assert len(said) >= 8 and all(pid == group for _, _, pid, group in said), p.stderr
    for name, what in ("CMD", "the command of the dies"), ("LOCK", "the lock of the dies"):
        p = run(**{f"QWEN35_GPU_BARSWAP_{name}": ""})
        assert p.returncode == 1 and f'{what}, "": No such file or directory' in p.stderr, p.stderr


# --- the server on a GPU that fails


def serve(folder, *args, **more):
    return Server("--ctx", 512, "--batch", 64, "--parallel", 2, *args, program=STANDIN / "pantheon",
                  env=standin_env(FAKECUDA_SHARED=str(folder), **more))


def chat(text, n, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": n, "temperature": 0, **more}


def said(server, text, n=6):
    answer = server.ask("/v1/chat/completions", chat(text, n))
    message = answer["choices"][0]["message"]
    return (message.get("reasoning_content") or "") + (message.get("content") or "")


@pytest.fixture(scope="module")
def on_cpu():
    """What the CPU answers."""
    with Server("--ctx", 512, "--device", "cpu") as s:
        yield {text: said(s, text) for text in ("Hello", "Good evening")}


@on_standin
def test_a_gpu_lost_within_a_stream(tmp_path, on_cpu):
    """The answer that it hits ends with an error of its own; those after it are the CPU's, with the
    same text, also where they begin with what the GPU knew. Health, metrics and the log say so."""
    with serve(tmp_path) as s:
        assert json.loads(s.get("/health").data) == {"status": "ok", "device": GPU}
        assert s.metric("pantheon:gpus_lost") == 0
        assert said(s, "Hello") == on_cpu["Hello"]
        whole = s.post("/v1/chat/completions", chat("Hello", 6, stream=True)).data
        assert b"data: [DONE]" in whole and b'"error"' not in whole

        link = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
        link.request("POST", "/v1/chat/completions", json.dumps(chat("Hello", 400, stream=True)),
                     {"Content-Type": "application/json"})
        stream = link.getresponse()
        while b'"delta"' not in (line := stream.readline()):
            assert line
        (tmp_path / "lose").touch()
        rest = stream.read()  # it ends
        link.close()
        assert stream.status == 200 and b"cuda: device 0 (stand-in 9.0)" in rest, rest[-400:]
        for text, answer in on_cpu.items():
            assert said(s, text) == answer
        assert json.loads(s.get("/health").data) == {"status": "ok", "device": "cpu", "lost": GPU}
        assert s.metric("pantheon:gpus_lost") == 1
        assert "unspecified launch failure" in s.log and "the CPU goes on" in s.log


@on_standin
def test_memory_that_runs_out(tmp_path, on_cpu):
    """No allocation succeeds any more: requests are answered all the same. From the start: by the CPU,
    which is what happens where another program takes what was planned with."""
    with serve(tmp_path) as s:
        (tmp_path / "oom").touch()
        assert said(s, "Hello") == on_cpu["Hello"]
        with serve(tmp_path) as late:
            assert said(late, "Hello") == on_cpu["Hello"]
            assert "out of memory" in late.log and "the CPU computes" in late.log
            assert json.loads(late.get("/health").data) == {"status": "ok"}
        (tmp_path / "oom").unlink()
        assert said(s, "Good evening") == on_cpu["Good evening"]
        assert json.loads(s.get("/health").data)["device"] == GPU


def planned(folder, mem):
    """MiB that a process would have for weights, workspace and sequences now; or why it has none."""
    p = subprocess.run([STANDIN / "pantheon", "logits", "-m", MODEL, "--device", "cuda", "--plan", "--ctx", "512",
                        "--batch", "64"], capture_output=True, text=True,
                       env=standin_env(FAKECUDA_SHARED=str(folder), FAKECUDA_MEM=str(mem)))
    if p.returncode:
        return p.stderr
    assert re.fullmatch(r"pinned: \d+ MiB of this machine's memory, .*", p.stdout.splitlines()[-1])
    gpu = re.search(r"^GPU 0 .*", p.stdout, re.M).group()
    return sum(map(int, re.findall(r"(\d+) MiB", gpu)))


@on_standin
@pytest.mark.parametrize("mem, has_room", [(64 << 20, False), (112 << 20, True)])
def test_two_processes_on_one_card(tmp_path, on_cpu, mem, has_room):
    """The second plans with what the first left, or says what is short and serves on the CPU. What a
    process held that is killed is there for the next."""
    alone = planned(tmp_path, mem)
    first = serve(tmp_path, FAKECUDA_MEM=str(mem))
    with serve(tmp_path, FAKECUDA_MEM=str(mem)) as second:
        for s in first, second:
            assert said(s, "Hello") == on_cpu["Hello"]
        assert json.loads(first.get("/health").data)["device"] == GPU
        assert ("device" in json.loads(second.get("/health").data)) == has_room
        assert ("more are needed" in second.log and "the CPU computes" in second.log) != has_room, second.log
        left = planned(tmp_path, mem)
        assert "more are needed" in left if isinstance(left, str) else left < alone
    first.kill()
    assert planned(tmp_path, mem) == alone
