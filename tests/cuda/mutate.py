#!/usr/bin/env python3
"""One planted fault (mutations.toml): it must make the test that the table names fail.

mutate.py NAME OBJECTS      by `make mutant-NAME`, which sets the compilers' commands in the environment:
SHIM_CXX, LINK_CXX for device code as C++; TEST_CC, LINK_C, LINK_TEST for the host's.

The text `from` must be in its file exactly once: that of every fault in the table, whichever is planted.
The changed file is compiled in a folder of its own, in the place of the one in the tree: device code with
no more than the headers that the test needs; of the host's, the one file, linked in front of the library. A mutant that does not compile, lacks a kernel,
or that the test does not notice is an error."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import tomllib
except ImportError:
    tomllib = None

HERE = pathlib.Path(__file__).parent
CUDA = pathlib.Path("build/cuda")
TEST_S = 300


class Unsound(Exception):
    """The mutation says nothing about the tests."""


def run(command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", **more)
    return done.returncode, done.stdout


def compile_or_stop(*parts):
    command = [word for part in parts for word in (shlex.split(part) if isinstance(part, str) else map(str, part))]
    rc, said = run(command)
    if rc:
        raise Unsound(f"does not compile:\n{said}")


def plant(m, overlay):
    """The file with the fault, under the overlay as under src/."""
    path = pathlib.Path(m["file"])
    text = path.read_text()
    n = text.count(m["from"])
    if n != 1:
        raise Unsound(f"its text is {n} times in {path}")
    out = overlay / path.relative_to("src")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text.replace(m["from"], m["to"]))
    return out


def device_source(m, overlay):
    """All device code that the mutant has: the headers named, or the one with the fault."""
    headers = m.get("unit", [pathlib.Path(m["file"]).stem])
    source = overlay / "cuda/device/pantheon.cu"
    source.write_text("".join(f'#include "cuda/device/{h}.cuh"\n' for h in ["prelude", *headers]))
    return source


def build_shim(m, overlay, objects):
    source, sm, shim = device_source(m, overlay), m.get("sm", 900), overlay / "shim.so"
    cxx = os.environ["SHIM_CXX"] + f" -DPN_ARCH={sm}"
    compiler, *flags = shlex.split(cxx)
    rc, text = run([compiler, f"-I{overlay}", *flags, "-DCUSHIM_NAMES", "-E", "-P", "-x", "c++", source])
    if rc:
        raise Unsound(f"does not compile:\n{text}")
    names = sorted(set(re.findall(r"cushim_kernel_name +([a-z0-9_]+)", text)))
    (overlay / "kernel_names.inc").write_text("".join(f"CUSHIM_KERNEL({n})\n" for n in names))
    compile_or_stop([compiler, f"-I{overlay}", *flags, "-c", HERE / "shim_kernels.cpp", "-o", overlay / "shim.o"])
    compile_or_stop(os.environ["LINK_CXX"], "-shared", [overlay / "shim.o", objects / "tests/cuda/cushim.o", "-o", shim])
    return shim


def build_ptx(m, overlay):
    source, out = device_source(m, overlay), overlay / "mutant.ptx"
    compile_or_stop(["scripts/cuda.py", "ptx", m["ptx"], out, CUDA, source, f"-I{overlay}", *m.get("options", [])])
    return out


def build_host(m, planted, overlay, objects, program):
    """The test's program with the mutant in the library's place; what it opens lies beside it."""
    compiler, *flags = shlex.split(os.environ["TEST_CC"])
    compile_or_stop([compiler, f"-I{overlay}", *flags, "-c", planted, "-o", overlay / "mutant.o"])
    out = overlay / program.name
    is_cxx = (pathlib.Path("tests") / program.relative_to(objects / "tests")).with_suffix(".cpp").exists()
    link = os.environ["LINK_TEST" if is_cxx else "LINK_C"]
    compile_or_stop(link.replace("@TEST@", f"{overlay}/mutant.o {program}.o"), ["-o", out])
    for so in (objects / "tests/cuda").glob("*.so"):
        (overlay / so.name).symlink_to(so.resolve())
    return out


def survives(m, overlay, objects):
    """None, or why the mutant is not caught."""
    test, *only = m["test"].split()
    program = objects / "tests" / test
    env = dict(os.environ)
    for name in ("BACKEND", "SOAK", "SEED", "DEVICE"):
        env.pop(name, None)
    if only:
        env |= {"ONLY": only[0], "CMOCKA_TEST_FILTER": only[0]}
    planted = plant(m, overlay)
    if planted.suffix == ".c":
        program = build_host(m, planted, overlay, objects, program)
    else:
        device = build_ptx(m, overlay) if "ptx" in m else build_shim(m, overlay, objects)
        env["DEVICE"] = str(device.resolve())
    try:
        rc, said = run([program.resolve()], env=env, timeout=TEST_S)
    except subprocess.TimeoutExpired:
        return None  # it hangs, which nobody overlooks
    if "there is no kernel" in said or rc in (2, 126, 127):
        raise Unsound(f"{test} lacks something:\n{said}")
    return f"{test} passes:\n{said}" if rc == 0 else None


def main(name, objects):
    if not tomllib:
        print(f"mutant {name}: SKIPPED, Python before 3.11 has no tomllib")
        return 0
    table = {key: m for part in tomllib.loads((HERE / "mutations.toml").read_text()).values() for key, m in part.items()}
    for key, m in table.items():
        n = pathlib.Path(m["file"]).read_text().count(m["from"])
        if n != 1:
            print(f"mutant {key}: its text is {n} times in {m['file']}")
            return 1
    m, start = table[name], time.monotonic()
    if "ptx" in m and not (CUDA / "fetched").exists():
        print(f"mutant {name}: SKIPPED, NVRTC is not there")
        return 0
    overlay = pathlib.Path(tempfile.mkdtemp(prefix=f"mutant-{name}-"))
    try:
        why = survives(m, overlay, pathlib.Path(objects))
    except Unsound as e:
        why = str(e)
    finally:
        shutil.rmtree(overlay)
    if why:
        print(f"mutant {name}: NOT CAUGHT, {m['file']}: {why}")
        return 1
    print(f"mutant {name}: caught by {m['test'].replace(' ', ', ')} ({time.monotonic() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
