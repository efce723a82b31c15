"""make install: a program that finds its model, and a library that another program builds with."""
import os
import subprocess

import pytest
from conftest import IS_SANITIZED, PROGRAM, ROOT, clean_env

CONSUMER = r"""
#include <pantheon/engine.h>
#include <pantheon/pantheon.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    pn_err err = { 0 };
    pn_model *m = pn_load_ex(argv[argc - 1], &(pn_load_opts){ .err = &err });
    if (!m) {
        puts(err.msg);
        return 1;
    }
    pn_model_info info;
    pn_model_get_info(m, &info);
    printf("%s %d\n", info.arch_name, info.n_layer);
    pn_model_free(m);
    return 0;
}
"""


def make(*args):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    objects = "build/release" if PROGRAM == ROOT / "build/pantheon" else PROGRAM.parent
    return subprocess.run(["make", f"O={objects}", *map(str, args)], cwd=ROOT, env=env, check=True,
                          capture_output=True, text=True)


@pytest.mark.skipif(IS_SANITIZED, reason="the release build is what gets installed")
def test_install(tmp_path):
    make("install", f"DESTDIR={tmp_path}", "PREFIX=/opt/p")
    root = tmp_path / "opt/p"
    files = {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()}
    assert {"bin/pantheon", "lib/libpantheon.a", "lib/libpantheon.so", "lib/pkgconfig/pantheon.pc",
            "include/pantheon/pantheon.h", "share/pantheon/pantheon-tiny-Q4_K_M.gguf"} <= files
    assert "prefix=/opt/p\n" in (root / "lib/pkgconfig/pantheon.pc").read_text()

    r = subprocess.run([root / "bin/pantheon", "run", "-p", "What is the capital of France?", "--temp", "0"],
                       cwd="/", env=clean_env(), capture_output=True, text=True)
    assert r.returncode == 0 and "Paris" in r.stdout, r.stderr

    source = tmp_path / "consumer.c"
    source.write_text(CONSUMER)
    model = root / "share/pantheon/pantheon-tiny-Q4_K_M.gguf"
    pc = (root / "lib/pkgconfig/pantheon.pc").read_text()
    private = [l for l in pc.splitlines() if l.startswith("Libs.private:")][0].split()[1:]
    for kind, link in (("shared", ["-lpantheon"]), ("static", ["-l:libpantheon.a", *private])):
        exe = tmp_path / kind
        subprocess.run(["gcc", "-Wall", "-Werror", f"-I{root}/include", source, "-o", exe, f"-L{root}/lib", *link],
                       check=True)
        r = subprocess.run([exe, model], env=clean_env(LD_LIBRARY_PATH=str(root / "lib")), capture_output=True, text=True)
        assert r.stdout == "qwen35moe 8\n", r.stderr
