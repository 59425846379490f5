# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calibrations: those that are asked for must agree, those of a host may differ."""

import json
import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
from test_runtime_faults import BUILD, INVALID, OK, Job, clean_environment  # noqa: E402

MISMATCH = 48


def calibration(path, flat=0.1):
    """A file by which the flat form is the better one for short inputs."""
    forms = [{"kind": "all_reduce", "ranks": 2, "form": form, "objective": objective,
              "segments": [{"alpha_us": alpha, "beta_ns_per_byte": beta}]}
             for objective in ("latency", "throughput")
             for form, alpha, beta in (("flat", flat, 1), ("direct", 0.4, 0))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"concord_calibration": 1, "forms": forms}))
    return path


def default_path(cache):
    """Where this host's calibration would lie, as comm-bench names it."""
    done = subprocess.run([BUILD / "bin" / "comm-bench", "--help"],
                          env=clean_environment(XDG_CACHE_HOME=cache), text=True,
                          capture_output=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if str(cache) in line]
    return cache.__class__(line.strip())


def test_files_that_are_asked_for_agree(tmp_path):
    one = calibration(tmp_path / "one.json")
    other = calibration(tmp_path / "other.json", flat=0.2)
    same = calibration(tmp_path / "same.json")

    def run(first, second):
        return Job(2, "none", 0, per_rank={0: dict(CONCORD_CALIBRATION=first),
                                           1: dict(CONCORD_CALIBRATION=second)}).wait()

    codes, words = run(one, other)
    assert codes == {0: MISMATCH, 1: MISMATCH}, words
    assert "CONCORD_CALIBRATION differs between rank" in words[0]
    # The content counts, not the name.
    assert run(one, same)[0] == {0: OK, 1: OK}
    # One rank has a file, the other none.
    codes, words = run(one, "none")
    assert codes == {0: MISMATCH, 1: MISMATCH}, words
    (tmp_path / "broken.json").write_text("{")
    codes, words = run(tmp_path / "broken.json", tmp_path / "broken.json")
    assert codes == {0: INVALID, 1: INVALID} and "broken.json" in words[0]


def test_objectives_agree():
    codes, words = Job(2, "none", 0, per_rank={0: dict(CONCORD_OBJECTIVE="latency")}).wait()
    assert codes == {0: MISMATCH, 1: MISMATCH}, words
    assert "CONCORD_OBJECTIVE differs between rank" in words[1]


@pytest.mark.parametrize("asked", [{}, {"CONCORD_CALIBRATION": "none"}])
def test_the_hosts_own_is_read(tmp_path, asked):
    calibration(default_path(tmp_path))
    done = subprocess.run(
        [BUILD / "bin" / "comm-bench", "all_reduce", "-b", "256", "-e", "256", "-n", "2",
         "--iters", "5", "--rounds", "1", "--explain"],
        env=clean_environment(XDG_CACHE_HOME=tmp_path, CONCORD_OBJECTIVE="latency",
                              CONCORD_HEAP_BYTES="256M", **asked),
        text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    by_figures = "costs less by the calibration" in done.stdout
    assert by_figures == (not asked), done.stdout


def test_hosts_own_that_differ_are_not_used(tmp_path):
    """A host that was calibrated and one that was not: no reason to fail."""
    calibration(default_path(tmp_path / "a"))
    cache = {rank: dict(XDG_CACHE_HOME=tmp_path / name) for rank, name in enumerate("ab")}
    codes, words = Job(2, "none", 0, per_rank=cache, CONCORD_LOG="warn").wait()
    assert codes == {0: OK, 1: OK}, words
    assert "have different calibrations: none is used" in words[0]
    # The same on both is used; a broken one, which nobody has asked for, is named.
    path = default_path(tmp_path / "b")
    calibration(path)
    codes, words = Job(2, "none", 0, per_rank=cache, CONCORD_LOG="warn").wait()
    assert codes == {0: OK, 1: OK} and "different calibrations" not in words[0], words
    for name in "ab":
        default_path(tmp_path / name).write_text("{")
    codes, words = Job(2, "none", 0, per_rank=cache, CONCORD_LOG="warn").wait()
    assert codes == {0: OK, 1: OK} and f"{path}: parse error" in words[1], words
