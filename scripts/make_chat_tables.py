#!/usr/bin/env python3
"""Writes src/chat/template_tables.c: a 64-bit FNV-1a hash of every line, without the blanks around
it, of the chat templates in tests/golden/data/chat (tests/golden/data/chat/README.md).

Usage: scripts/make_chat_tables.py
"""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 % 2**64
    return h


def main():
    known = set()
    for path in sorted((ROOT / "tests/golden/data/chat").glob("*.jinja")):
        for line in path.read_bytes().split(b"\n"):
            line = line.strip(b" \t\r")
            if line and not (line.startswith(b"{#") and line.endswith(b"#}")):
                known.add(fnv1a(line))
    rows = "".join(f"    0x{h:016x},\n" for h in sorted(known))
    (ROOT / "src/chat/template_tables.c").write_text(
        "/* Hashes of the lines of the known chat templates, made by scripts/make_chat_tables.py from\n"
        " * the templates of Qwen3.5, 3.6 and 3.8 in tests/golden/data/chat, whose README names their\n"
        " * origin. */\n"
        '#include "chat/template_tables.h"\n\n'
        f"const uint64_t pn_template_lines[] = {{\n{rows}}};\n"
        "const size_t pn_template_n_line = sizeof pn_template_lines / sizeof *pn_template_lines;\n")


if __name__ == "__main__":
    main()
