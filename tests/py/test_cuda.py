"""What the program and the script for GPUs say where there is no GPU."""
import os
import pathlib
import subprocess

import pytest

PROGRAM = os.environ["PANTHEON"]
pytestmark = pytest.mark.skipif(pathlib.Path("/dev/nvidiactl").exists(), reason="a GPU may be here")


def test_device_cuda_names_the_cause():
    """--device cuda ends with one sentence that says what is missing."""
    p = subprocess.run([PROGRAM, "run", "--device", "cuda", "-p", "x"], capture_output=True, text=True)
    assert p.returncode != 0 and p.stdout == ""
    assert any(cause in p.stderr for cause in ("no NVIDIA driver", "holds no code for GPUs"))


def test_bench_script_without_a_gpu(tmp_path):
    """bench/cuda.sh gives the same cause, ends with status 3 and leaves nothing behind."""
    p = subprocess.run(["bench/cuda.sh", PROGRAM, str(tmp_path)], capture_output=True, text=True)
    assert p.returncode == 3 and p.stdout == ""
    assert any(cause in p.stderr for cause in ("no NVIDIA driver", "holds no code for GPUs"))
    assert not list(tmp_path.iterdir())
