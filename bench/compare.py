#!/usr/bin/env python3
"""Pantheon and llama.cpp on the same files, alternately: what `make bench` runs.

Makes slices of the 35B's shapes with `pantheon synth`, measures each case of each slice in rounds that
alternate between the engines, and writes bench/results/NAME.json, NAME.svg and a table in Markdown on
standard output. Both engines use the same threads. Without the package llama-cpp-python in the running
Python, or with --no-peer, Pantheon runs alone.
"""
import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIXES = ["q3_k_m", "q4_k_m", "q8trunk"]
# name: pantheon's arguments; llama.cpp's, one list for each variant of which the better counts; what counts
CASES = {
    "decode": (["-p", "512", "-n", "64"], [["-p", "512", "-n", "64"]], "decode"),
    "prefill 512": (["-p", "512", "-n", "0"], [["-p", "512", "-n", "0"]], "prefill"),
    "prefill 2048": (["-p", "2048", "-n", "0", "--batch", "2048"],
                     [["-p", "2048", "-n", "0", "--ubatch", u] for u in ("512", "2048")], "prefill"),
    "decode avx2": (["-p", "512", "-n", "64", "--isa", "avx2"], [], "decode"),
    "prefill 2048 avx2": (["-p", "2048", "-n", "0", "--isa", "avx2"], [], "prefill"),
    "decode at 8192": (["-d", "8192", "-p", "16", "-n", "64"], [["-d", "8192", "-p", "16", "-n", "64"]], "decode"),
    "prefill 512 at 8192": (["-d", "8192", "-p", "512", "-n", "0"], [["-d", "8192", "-p", "512", "-n", "0"]], "prefill"),
    "prefill 512 at 8192 q8_0": (["-d", "8192", "-p", "512", "-n", "0", "--kv-type", "q8_0"],
                                     [["-d", "8192", "-p", "512", "-n", "0"]], "prefill"),
    "decode 8 together": (["-p", "16", "-n", "32", "--parallel", "8"],
                           [["-p", "16", "-n", "32", "--parallel", "8"]], "decode"),
}
PLAIN = ["decode", "prefill 512", "prefill 2048"]
ON_Q4 = [name for name in CASES if name not in PLAIN]


def output(command, **env):
    run = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, env={**os.environ, **env})
    if run.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} ended with status {run.returncode}")
    return json.loads(run.stdout)


def one(result):
    return result[0] if isinstance(result, list) else result  # --parallel prints an array


def measure(a, model, case):
    """One case on one file: speeds of all rounds and what the last one said of itself."""
    ours_args, peer_variants, what = CASES[case]
    ours, peers = [], [[] for _ in peer_variants]
    for i in range(a.rounds):
        print(f"  {case}: round {i + 1} of {a.rounds}", file=sys.stderr)
        ours.append(one(output([a.pantheon, "bench", "-m", model, "-r", "1", "--json", "-t", a.threads, *ours_args])))
        if a.peer:
            for speeds, args in zip(peers, peer_variants):
                speeds.append(output([sys.executable, ROOT / "bench/peer_llama.py", "-m", model, "-t", a.threads, *args]))
    row = {"case": case, "pantheon_all": [r[f"{what}_tok_s"] for r in ours], "isa": ours[-1]["isa"],
           "bytes_per_token": ours[-1]["bytes_per_token"], "macs_per_token": ours[-1]["macs_per_token"],
           "read_gb_s_all": [r["read_gb_s"] for r in ours], "i8_gmac_s_all": [r["i8_gmac_s"] for r in ours]}
    row["pantheon"] = statistics.median(row["pantheon_all"])
    if what == "decode":
        shares = [r["bound_share"] if r["parallel"] > 1 else r["bandwidth_share"] for r in ours]
    else:
        shares = [r["prefill_tok_s"] * r["macs_per_token"] / r["i8_gmac_s"] / 1e9 for r in ours]
    row["limit_share"] = statistics.median(shares)
    if a.peer and peers:
        best = max(peers, key=lambda p: statistics.median(r[f"{what}_tok_s"] for r in p))
        row["llama_all"] = [r[f"{what}_tok_s"] for r in best]
        row["llama_ubatch"] = best[0]["ubatch"]
        row["llama"] = statistics.median(row["llama_all"])
        row["ratio"] = statistics.median(o / p for o, p in zip(row["pantheon_all"], row["llama_all"]))
    return row


def stages(a, model):
    """The profile of each stage, prefill 2048 and decode."""
    r = output([a.pantheon, "bench", "-m", model, "-p", "2048", "-n", "64", "-r", "1", "--json", "-t", a.threads],
               QWEN35_PROF="1")
    return {"prefill": r["prefill_stages"], "decode": r["decode_stages"],
            "limits": {k: r[k] for k in ("read_gb_s", "i8_gmac_s", "f32_gmac_s")}}


def table(results):
    """The figures as Markdown."""
    lines = ["| mix | | Pantheon | llama.cpp | ratio | share of the limit |", "|---|---|---|---|---|---|"]
    for mix, entry in results["mixes"].items():
        for row in entry["rows"]:
            peer = f"{row['llama']:.1f} | {row['ratio']:.2f}" if "llama" in row else "|"
            lines.append(f"| {mix} | {row['case']} | {row['pantheon']:.1f} | {peer} | {row['limit_share'] * 100:.0f} % |")
    lines += ["", "| mix | stage | share of the time | GB/s | GMAC/s | share of its limit |", "|---|---|---|---|---|---|"]
    for mix, entry in results["mixes"].items():
        for phase in ("prefill", "decode"):
            all_s = sum(s["seconds"] for s in entry["stages"][phase]) or 1
            for s in entry["stages"][phase]:
                if s["seconds"] > 0.005 * all_s:
                    lines.append(f"| {mix} {phase} | {s['stage']} | {s['seconds'] / all_s * 100:.1f} % "
                                 f"| {s['bytes'] / s['seconds'] / 1e9:.1f} | {s['macs'] / s['seconds'] / 1e9:.0f} "
                                 f"| {s['limit_share'] * 100:.0f} % |")
    return "\n".join(lines)


def plot(results, path):
    """Bars of every case side by side, one panel a mix."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "pantheon"  # the same figures give the same file
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(1, len(results["mixes"]), figsize=(5 * len(results["mixes"]), 5), squeeze=False)
    for ax, (mix, entry) in zip(axes[0], results["mixes"].items()):
        rows = entry["rows"][::-1]
        at = range(len(rows))
        ax.barh([i + 0.2 for i in at], [r["pantheon"] for r in rows], 0.4, label="Pantheon")
        ax.barh([i - 0.2 for i in at], [r.get("llama", 0) for r in rows], 0.4, label="llama.cpp")
        ax.set_yticks(list(at), [r["case"] for r in rows])
        ax.set_title(mix)
        ax.set_xlabel("tokens/s (log scale)")
        ax.set_xscale("log")
        ax.legend()
    fig.tight_layout()
    fig.savefig(path, metadata={"Date": None})


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--pantheon", default=ROOT / "build/pantheon")
    ap.add_argument("--mixes", default=",".join(MIXES), help="of pantheon synth --quant")
    ap.add_argument("--cases", help=f"of {', '.join(CASES)}; default: {', '.join(PLAIN)}, and all on q4_k_m")
    ap.add_argument("--preset", default="35b-a3b", help="of pantheon synth")
    ap.add_argument("--layers", type=int, default=12)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--dir", type=pathlib.Path, default=ROOT / "build/bench", help="where the slices are kept, 7 GB each")
    ap.add_argument("--no-peer", dest="peer", action="store_false", help="without llama.cpp")
    ap.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results", help="folder of the results")
    ap.add_argument("--name", default=f"{datetime.date.today()}-{platform.node()}", help="of the results")
    a = ap.parse_args()
    if a.peer and not importlib.util.find_spec("llama_cpp"):
        print("bench: this Python has no llama-cpp-python; Pantheon runs alone", file=sys.stderr)
        a.peer = False

    results = {"date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}", "processor": processor(), "threads": a.threads,
               "layers": a.layers, "rounds": a.rounds, "mixes": {}}
    a.dir.mkdir(parents=True, exist_ok=True)
    for mix in a.mixes.split(","):
        model = a.dir / f"{mix}.gguf"
        if not model.exists():
            subprocess.run([a.pantheon, "synth", "-o", model, "--preset", a.preset, "--layers", str(a.layers),
                            "--quant", mix], check=True)
        print(f"{mix}:", file=sys.stderr)
        cases = a.cases.split(",") if a.cases else PLAIN + (ON_Q4 if mix == "q4_k_m" else [])
        results["mixes"][mix] = {"rows": [measure(a, model, c) for c in cases], "stages": stages(a, model)}
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / f"{a.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    if importlib.util.find_spec("matplotlib"):
        plot(results, a.out / f"{a.name}.svg")
    print(table(results))


if __name__ == "__main__":
    main()
