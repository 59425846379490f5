# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Real hangs of torch.distributed over Gloo, explained from what they leave: the
Flight Recorder's dumps as torch writes them, Python's own stacks, tracebacks.

CONCORD_TORCH_PYTHON names a Python that has torch, if this one has none. The
folder gloo_inversion was recorded by gloo_rank.py with torch 2.13, so that the
readers see a real dump where there is no torch.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("CONCORD_BUILD", HERE.parents[2] / "build"))
PYTHON = os.environ.get("CONCORD_TORCH_PYTHON", sys.executable)
WORLD = 4


def has_torch():
    return subprocess.run([PYTHON, "-c", "import torch.distributed as d; "
                           "assert d.is_gloo_available()"],
                          capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module", name="hang")
def run_hang(tmp_path_factory):
    """What a job leaves, by how it hangs."""
    if not has_torch():
        pytest.skip("no torch with Gloo (CONCORD_TORCH_PYTHON)")
    made = {}

    def run(how):
        if how in made:
            return made[how]
        out = tmp_path_factory.mktemp(how)
        for kind in ("json", "pickle", "stacks"):
            (out / kind).mkdir()
        ranks = [subprocess.Popen(
            [PYTHON, HERE / "gloo_rank.py", str(rank), str(WORLD), out / "store",
             out, how],
            env={**os.environ, "TORCH_FR_BUFFER_SIZE": "2000",
                 "OMP_NUM_THREADS": "1"}) for rank in range(WORLD)]
        for rank in ranks:
            rank.wait(timeout=120)
        made[how] = out
        return out

    return run


def doctor(*paths):
    """Exit status and the first finding."""
    done = subprocess.run([BUILD / "bin" / "comm-doctor", "--json", *paths],
                          capture_output=True, text=True, timeout=60, check=False)
    report = json.loads(done.stdout)
    findings = report["files"][0]["findings"]
    return done.returncode, findings[0] if findings else None


def is_the_cycle(finding):
    """Rank 0 stands in the pair's reduction, rank 1 in everybody's."""
    whys = [edge["why"] for edge in finding["chain"]]
    return len(whys) == 4 and all(
        any(part in why for why in whys)
        for part in ("0(default_pg)#7@r0 is not issued", "needs 1#6@r1",
                     "1#6@r1 is not issued", "needs 0(default_pg)#7@r0"))


@pytest.mark.parametrize("kind", ["json", "pickle"])
def test_the_recorded_inversion(kind):
    """The dumps that were recorded, in both forms."""
    status, finding = doctor(HERE / "gloo_inversion" / kind)
    assert status == 1 and finding["culprits"][0] == 1
    assert is_the_cycle(finding), finding


@pytest.mark.parametrize("kind", ["json", "pickle"])
def test_inversion(hang, kind):
    """One rank issues its two domains the other way round."""
    out = hang("inversion")
    status, finding = doctor(out / kind)
    assert status == 1 and finding["culprits"][0] == 1
    assert is_the_cycle(finding), finding
    # The pickle has frames as well.
    assert (kind == "json" or any("gloo_rank.py" in line and "in main" in line
                                  for line in finding["details"])), finding
    status, finding = doctor(out / kind, out / "stacks")
    assert status == 1 and finding["culprits"][0] == 1
    assert any("all_reduce" in edge["why"] and "gloo_rank.py" in edge["why"]
               for edge in finding["chain"]), finding


def test_a_rank_that_waits_for_data(hang):
    """With stacks: which rank, where it stands, who called."""
    out = hang("missing")
    status, finding = doctor(out / "json", out / "stacks")
    assert status == 1 and finding["culprits"][0] == 2
    assert any("wait_for_shard" in line for line in finding["details"]), finding
    # Stacks alone name the odd one out.
    status, finding = doctor(out / "stacks")
    assert status == 1 and finding["culprits"][0] == 2, finding


def test_a_rank_that_has_thrown(hang):
    """The exception is told, and not that of the ranks that lost their peer."""
    out = hang("raises")
    status, finding = doctor(out / "pickle", out / "stacks")
    assert status == 1 and finding["culprits"][0] == 1
    assert "KeyError: 'shard-7'" in finding["title"], finding


def test_a_healthy_job(hang):
    """Everything has completed, although Gloo never says so."""
    out = hang("healthy")
    for kind in ("json", "pickle"):
        assert doctor(out / kind) == (0, None)
