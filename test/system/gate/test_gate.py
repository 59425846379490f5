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


def run_job(plan, folder, how, **settings):
    """What the ranks print, and what they write to standard error."""
    errors = folder / "errors.txt"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"),
                   "CONCORD_HEAP_BYTES": "64M", "CONCORD_TIMEOUT": "60",
                   "CONCORD_DEVICE_SLOTS": "1", "OPENBLAS_NUM_THREADS": "1",
                   "CONCORD_LIBRARY": str(BUILD / "lib" / "libconcord.so"),
                   **settings}
    result = subprocess.run(
        [sys.executable, "-c", LAUNCH, errors, HERE / "gate_rank.py",
         BUILD / "lib" / "libhang_serving.so", plan, str(STEPS), how],
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
