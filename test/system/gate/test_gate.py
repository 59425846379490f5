# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two issuers per rank, one in C++ and one in Python, in the order of a compiled
plan: comm-opt, the plan as JSON, the gate, real processes.

CONCORD_GATE_STEPS sets the number of steps (10,000 in ./run bench gate).
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = pathlib.Path(os.environ.get("CONCORD_BUILD", ROOT / "build"))
STEPS = int(os.environ.get("CONCORD_GATE_STEPS", "1500"))

# A job of its own process: launching blocks signals in the thread that does it.
LAUNCH = """
import sys
import concord
with open(sys.argv[1], "w") as errors:
    failed, message = concord.launch(2, [sys.executable] + sys.argv[2:],
                                     timeout=120, grace=1, stderr=errors)
print(failed, message)
"""


@pytest.fixture(scope="module", name="plan")
def compiled_plan(tmp_path_factory):
    """The plan of two_issuers.mlir."""
    path = tmp_path_factory.mktemp("gate") / "two_issuers.json"
    subprocess.run([BUILD / "bin" / "comm-opt", HERE / "two_issuers.mlir",
                    "--comm-order", "--comm-verify-order", "--emit=plan", "-o",
                    path], check=True)
    return path


@pytest.fixture(scope="module", name="artefact")
def compiled_artefact(tmp_path_factory):
    """two_programs.mlir, compiled."""
    path = tmp_path_factory.mktemp("gate") / "two_programs.so"
    subprocess.run([BUILD / "bin" / "comm-opt", HERE / "two_programs.mlir",
                    "--comm-pipeline", "--emit=so", "-o", path], check=True)
    return path


def run_job(plan, folder, how, **settings):
    """What the ranks print, and what they write to standard error."""
    return launch(folder, [HERE / "gate_rank.py",
                           BUILD / "lib" / "libhang_serving.so", plan, str(STEPS),
                           how], **settings)


def launch(folder, arguments, **settings):
    """Two ranks of a Python program."""
    errors = folder / "errors.txt"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"),
                   "CONCORD_HEAP_BYTES": "64M", "CONCORD_TIMEOUT": "60",
                   "CONCORD_DEVICE_SLOTS": "1", "OPENBLAS_NUM_THREADS": "1",
                   "CONCORD_LIBRARY": str(BUILD / "lib" / "libconcord.so"),
                   **settings}
    result = subprocess.run(
        [sys.executable, "-c", LAUNCH, errors, *arguments],
        env=environment, capture_output=True, text=True, check=True, timeout=150)
    return result.stdout, errors.read_text()


def moves_of(output):
    """Steps and moves of the two ranks."""
    found = re.findall(r"rank (\d): (\d+) steps, (\d+) moves", output)
    return {int(r): (int(s), int(m)) for r, s, m in found}


def test_the_plan_has_the_merged_order(plan):
    """Decision, serving, placement; the slot's bit; the assumption."""
    content = json.loads(plan.read_text())
    issues = content["sequences"][0]["issues"]
    assert [(i["issuer"], i["kind"], i["slot"]) for i in issues] == [
        ("serving", "round_decision", "always"),
        ("serving", "reduce_scatter", "always"),
        ("placement", "all_reduce", "optional")]
    assert issues[2]["bit"] == 0
    assert content["rounds"][0]["ranks"] == [0, 1]


def test_python_started_late(plan, tmp_path):
    """Every step is served; the moves are the same on both ranks."""
    output, errors = run_job(plan, tmp_path, "late")
    ranks = moves_of(output)
    assert ranks[0] == ranks[1] and ranks[0][0] == STEPS, output + errors
    assert ranks[0][1] >= 1


def test_an_issuer_that_dies_between_moves_is_not_asked_again(plan, tmp_path):
    """Serving goes on to the end without it."""
    output, errors = run_job(plan, tmp_path, "dies")
    ranks = moves_of(output)
    assert ranks[0][0] == ranks[1][0] == STEPS, output + errors
    assert ranks[0][1] == ranks[1][1] <= 3


def test_an_issuer_that_vanishes_in_its_slot_is_named(plan, tmp_path):
    """The round cannot be finished: an error on both ranks, and no hang."""
    output, errors = run_job(plan, tmp_path, "vanishes")
    assert "LATE_ISSUER" in errors, output + errors
    assert "'placement'" in errors and "has ended" in errors


def test_another_mode_is_refused(plan, tmp_path):
    """The plan is certified under hold only."""
    _, errors = run_job(plan, tmp_path, "late", CONCORD_GATE="check")
    assert "gate=hold" in errors


def test_an_artefact_runs_with_both_issuers(artefact, tmp_path):
    """Compiled code of both issuers, in one order; unused slots passed over."""
    output, errors = launch(tmp_path, [HERE / "program_rank.py", artefact,
                                       str(STEPS)])
    ranks = moves_of(output)
    assert ranks[0] == ranks[1] and ranks[0][0] == STEPS, output + errors
    assert 1 <= ranks[0][1] < STEPS // 5
    assert "gate hold" in output
    for rank in (0, 1):
        assert f"rank {rank}: CONCORD_ERROR_PLAN was refused, then gate check" in output


@pytest.mark.parametrize("mode", ["off", "record", "check"])
def test_an_artefact_refuses_another_mode(artefact, tmp_path, mode):
    """With the reason, on every rank."""
    _, errors = launch(tmp_path, [HERE / "program_rank.py", artefact, "5"],
                       CONCORD_GATE=mode)
    assert (f"certified with gate=hold only; it does not start in gate mode "
            f"{mode}") in errors


def test_comm_run_starts_every_issuer(tmp_path):
    """One thread per issuer; the slots of a share of the steps; its inputs by
    names that the two programs do not share."""
    done = subprocess.run(
        [BUILD / "bin" / "comm-run", HERE / "two_programs.mlir", "-n", "2",
         "--repeat", "40", "--warmup", "0", "--slots", "0.5", "--input",
         "arg1=fill:3", "--input", "serving.arg1=fill:2", "--output-dir",
         tmp_path / "out", "--json", tmp_path / "run.json"],
        env={**os.environ, "CONCORD_HEAP_BYTES": "64M"}, capture_output=True,
        text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    counts = [rank["issuers"]
              for rank in json.loads((tmp_path / "run.json").read_text())["ranks"]]
    assert counts[0] == counts[1] and counts[0]["serving"] == 40
    assert 5 < counts[0]["placement"] < 35
    for rank in (0, 1):
        served = np.load(tmp_path / "out" / f"serving.arg3@{rank}.npy")
        moved = np.load(tmp_path / "out" / f"arg3@{rank}.npy")
        assert (served == 8).all() and served.shape == (256,)
        assert (moved == 6).all() and moved.shape == (4096,)


def test_every_issuer_is_traced(tmp_path):
    """Rows of their own, with the steps that each has made."""
    done = subprocess.run(
        [BUILD / "bin" / "comm-run", HERE / "two_programs.mlir", "-n", "2",
         "--repeat", "20", "--warmup", "1", "--slots", "0.5", "--trace",
         tmp_path / "trace.json", "--json", tmp_path / "run.json"],
        env={**os.environ, "CONCORD_HEAP_BYTES": "64M"}, capture_output=True,
        text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ranks = json.loads((tmp_path / "run.json").read_text())["ranks"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
             if e["name"] == "thread_name"}
    for rank in (0, 1):
        rows = {name: tid for (pid, tid), name in names.items() if pid == rank}
        assert set(rows) == {"compute", "stream 0", "placement: compute",
                             "placement: stream 0"}

        def of(row, category):
            return [e for e in events if e.get("ph") == "X" and e["pid"] == rank and
                    e["tid"] == rows[row] and e["cat"] == category]

        assert len(of("compute", "step")) == 20
        moved = len(of("placement: compute", "step"))
        # But for a slot that was used in the first, unmeasured step.
        assert 0 <= ranks[rank]["issuers"]["placement"] - moved <= 1 and moved > 0
        assert len(of("placement: stream 0", "collective")) == moved
        assert all("all_reduce" in e["name"]
                   for e in of("placement: stream 0", "collective"))


def test_sigusr1_prints_what_a_live_rank_does():
    """State and stacks on standard error, and the process goes on."""
    program = ("import os, signal, time, concord\n"
               "context = concord.Context()\n"
               "os.kill(os.getpid(), signal.SIGUSR1)\n"
               "time.sleep(0.7)\n"
               "context.close()\n"
               "print('went on')\n")
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"),
             "CONCORD_HEAP_BYTES": "64M",
             "CONCORD_LIBRARY": str(BUILD / "lib" / "libconcord.so")})
    assert result.stdout == "went on\n"
    assert "concord: rank 0 of 1" in result.stderr
    assert "nothing is in flight" in result.stderr
    assert re.search(r"Thread 1 \(LWP \d+ .*\):\n#0 ", result.stderr)


def test_an_application_keeps_its_own_sigusr1():
    """The signal is taken only where nobody has it."""
    program = ("import os, signal, concord\n"
               "signal.signal(signal.SIGUSR1, lambda *_: print('mine'))\n"
               "context = concord.Context()\n"
               "os.kill(os.getpid(), signal.SIGUSR1)\n"
               "context.close()\n")
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"),
             "CONCORD_HEAP_BYTES": "64M",
             "CONCORD_LIBRARY": str(BUILD / "lib" / "libconcord.so")})
    assert result.stdout == "mine\n"
    assert "concord: rank" not in result.stderr


def test_the_plan_is_of_the_published_schema(plan):
    """Every object has exactly the fields that docs/plan-schema.json lists."""
    schema = json.loads((ROOT / "docs" / "plan-schema.json").read_text())

    def check(value, rule, where):
        if "$ref" in rule:
            rule = schema["$defs"][rule["$ref"].rsplit("/", 1)[1]]
        if "const" in rule:
            assert value == rule["const"], where
        if "enum" in rule:
            assert value in rule["enum"], where
        kind = rule.get("type")
        if kind == "object":
            assert set(rule["required"]) <= set(value), where
            assert set(value) <= set(rule["properties"]), where
            for name, inner in value.items():
                check(inner, rule["properties"][name], f"{where}.{name}")
        elif kind == "array":
            assert isinstance(value, list), where
            for index, inner in enumerate(value):
                check(inner, rule.get("items", {}), f"{where}[{index}]")
        elif kind == "integer":
            assert isinstance(value, int), where
            assert rule.get("minimum", value) <= value, where
        elif kind == "string":
            assert isinstance(value, str), where

    check(json.loads(plan.read_text()), schema, "plan")
