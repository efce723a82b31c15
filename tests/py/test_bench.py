"""pantheon bench as scripts see it, and the comparison that stands on it."""
import json
import subprocess
import sys

import pytest

from conftest import IS_SANITIZED, MODEL, PROGRAM, ROOT, clean_env, pantheon

STAGES = {"ssm projections", "ssm conv and delta rule", "attention", "router", "experts down", "head"}


def test_json_has_what_scripts_read():
    j = json.loads(pantheon("bench", "-m", MODEL, "-p", 40, "-n", 8, "-r", 2, "-t", 2, "--json").ok().out)
    assert len(j["prefill_all"]) == len(j["decode_all"]) == 2
    assert min(j["prefill_all"]) <= j["prefill_tok_s"] <= max(j["prefill_all"])
    assert (j["p"], j["n"], j["d"], j["threads"]) == (40, 8, 0, 2)
    assert j["bytes_per_token"] > 0 and j["macs_per_token"] > 0 and j["read_gb_s"] > 0
    assert "prefill_stages" not in j


def test_profile_counts_every_stage_of_the_measured_rounds():
    args = ("bench", "-m", MODEL, "-p", 40, "-n", 8, "-r", 1, "-t", 1, "--json")
    r = pantheon(*args, env={"QWEN35_PROF": "1"}).ok()
    j = json.loads(r.out)
    assert r.err == ""
    for phase, tokens in (("prefill", 40), ("decode", 8)):
        stages = {s["stage"]: s for s in j[f"{phase}_stages"]}
        assert STAGES <= stages.keys()
        for name in STAGES:
            assert stages[name]["seconds"] > 0 and stages[name]["bytes"] > 0 and stages[name]["macs"] > 0
        took = sum(s["seconds"] for s in stages.values())
        assert 0.3 < took * j[f"{phase}_tok_s"] / tokens <= 1.001  # of the round, the rest is between stages
    decode = {s["stage"]: s for s in j["decode_stages"]}
    weights = sum(decode[n]["bytes"] for n in decode if n not in ("attention", "ssm conv and delta rule"))
    assert abs(weights / 8 / j["bytes_per_token"] - 1) < 0.02


@pytest.mark.skipif(IS_SANITIZED, reason="limits of the machine take long to measure there")
def test_every_round_stands_at_the_depth():
    """The attention stage counts the keys that each token saw: all before it, those of the depth included."""
    def pairs_a_mac(depth):
        args = ("bench", "-m", MODEL, "-p", 40, "-n", 8, "-r", 3, "-t", 1, "-d", depth, "--json")
        j = json.loads(pantheon(*args, env={"QWEN35_PROF": "1"}).ok().out)
        macs = {ph: next(s["macs"] for s in j[f"{ph}_stages"] if s["stage"] == "attention")
                for ph in ("prefill", "decode")}
        return (sum(range(depth + 1, depth + 41)) / macs["prefill"], sum(range(depth + 41, depth + 49)) / macs["decode"])

    assert pairs_a_mac(0) == pairs_a_mac(1) == pairs_a_mac(2) == pairs_a_mac(200)


@pytest.mark.skipif(IS_SANITIZED, reason="limits of the machine take long to measure there")
def test_compare_writes_results(tmp_path):
    run = subprocess.run([sys.executable, ROOT / "bench/compare.py", "--pantheon", PROGRAM, "--preset", "tiny",
                          "--layers", "4", "--mixes", "q4_k_m", "--rounds", "2", "--dir", tmp_path, "--no-peer",
                          "--cases", "decode,prefill 512", "--out", tmp_path, "--name", "t"],
                         capture_output=True, text=True, env=clean_env())
    assert run.returncode == 0, run.stderr
    j = json.loads((tmp_path / "t.json").read_text())
    rows = j["mixes"]["q4_k_m"]["rows"]
    assert [r["case"] for r in rows] == ["decode", "prefill 512"] and j["rounds"] == 2
    assert all(len(r["pantheon_all"]) == 2 and r["pantheon"] > 0 and 0 < r["limit_share"] for r in rows)
    assert "| q4_k_m | decode |" in run.stdout and "| q4_k_m prefill | experts down |" in run.stdout


def test_parallel():
    """One row for each number of sequences; more of them move more bytes a pass, but not as many times more."""
    rows = json.loads(pantheon("bench", "-m", MODEL, "-p", 4, "-n", 8, "-r", 1, "-t", 1, "--parallel", "1,4",
                               "--json").ok().out)
    assert [r["parallel"] for r in rows] == [1, 4]
    one, four = (r["bytes_per_pass"] for r in rows)
    assert one < four < 4 * one
    assert all(r["bound_share"] > 0 for r in rows)


def test_beside():
    """The gaps of answers beside a prompt; all of them are positive and in order."""
    j = json.loads(pantheon("bench", "-m", MODEL, "--parallel", 2, "--beside", 200, "-t", 1, "--json").ok().out)
    assert (j["parallel"], j["beside"]) == (2, 200)
    assert 0 < j["quiet_gap_ms"] and 0 < j["gap_ms"] <= j["gap_ms_95"] <= j["gap_ms_max"]
    assert j["prefill_tok_s"] > 0
    pantheon("bench", "-m", MODEL, "--parallel", 2, "--beside", 10**8, "--json").says(1, "--beside")
