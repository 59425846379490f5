# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipeline stages: several programs in one artefact, from a user's model to ranks.

Errors are judged as in test_models. What is looked at besides: the programs and
transfers in the plan, which rank holds what, parameters per rank, the verdict of
comm-doctor on the artefact, and state that stays on its stage.
"""

import json
import os

import numpy as np
import pytest

import model_runs as runs
from test_models import check_outputs

pytestmark = pytest.mark.skipif(
    not runs.built(), reason="build/bin/comm-opt and comm-run are not built")

PROGRAMS = (("gpt2_tiny", "pp=2,tp=2", 2), ("gpt2_tiny", "pp=2", 1),
            ("llama_tiny", "tp=2,pp=2", 1), ("bert_tiny", "dp=2,pp=2", 1),
            ("mixtral_tiny", "pp=3", 2))
_PATHS = {}


def compiled(name, mesh, micro):
    key = (name, mesh, micro)
    if key not in _PATHS:
        path = runs.scratch(f"{name}.{mesh}.{micro}.so")
        runs.tool("comm-opt", runs.model_path(name), f"--mesh={mesh}",
                  f"--micro-batches={micro}", *runs.dim_options(name),
                  "--comm-pipeline", "--emit=so", "-o", path)
        _PATHS[key] = path
    return _PATHS[key]


def outputs(name, mesh, micro, *extra):
    names = [o.name for o in runs.load(name).graph.output]
    return runs.run(compiled(name, mesh, micro), runs.world(mesh),
                    runs.inputs(name), names, f"{name}.{mesh}.m{micro}",
                    *extra)


@pytest.mark.parametrize("name,mesh,micro", PROGRAMS)
def test_equals_one_rank(name, mesh, micro):
    got, _ = outputs(name, mesh, micro, "--repeat", 3)
    check_outputs(name, mesh, got)


def plan(name, mesh, micro):
    path = runs.scratch(f"{name}.{mesh}.{micro}.json")
    runs.tool("comm-opt", runs.model_path(name), f"--mesh={mesh}",
              f"--micro-batches={micro}", *runs.dim_options(name),
              "--comm-pipeline", "--emit=plan", "-o", path)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def test_two_micro_batches_in_flight():
    programs = plan("gpt2_tiny", "pp=2,tp=2", 2)["programs"]
    assert [p["ranks"] for p in programs] == [[0, 1], [2, 3]]
    sends = [i for i in programs[0]["issues"] if i["kind"] == "send"]
    received = [i for i in programs[1]["issues"] if i["kind"] == "recv"]
    assert len(sends) == len(received) and len(sends) % 2 == 0
    assert all(not s["synchronous"] and s["pairs"] == [[0, 1]] for s in sends)
    # The first stage goes on with the second part while the first is on its way:
    # between the two sends there is no wait for either.
    body = programs[0]["body"]["children"]
    at = [i for i, n in enumerate(body) if n["type"] == "issue"
          and programs[0]["issues"][n["site"]]["kind"] == "send"]
    assert not [n for n in body[at[0]:at[-1]] if n["type"] == "wait"]


def test_each_rank_holds_its_stage():
    path = compiled("gpt2_tiny", "pp=2,tp=2", 2)
    meta = runs.artefact.read_meta(path)
    assert [p["name"] for p in meta["programs"]] == ["stage0", "stage1"]
    entries = {e["name"]: e["ranks"] for e in meta["inputs"] + meta["outputs"]}
    assert entries["input_ids"] == [0, 1]
    assert entries["logits"] == [2, 3]
    assert meta["gate"] == "check"
    _, report = outputs("gpt2_tiny", "pp=2,tp=2", 2)
    one = runs.compiled("gpt2_tiny", "tp=1")
    whole = runs.artefact.weight_bytes(one, runs.artefact.read_meta(one), 0)
    arenas = {p["ranks"][0] // 2: p["arena_bytes"] for p in meta["programs"]}
    for rank in report["ranks"]:
        assert rank["weight_bytes"] <= 1.10 * whole / 4 + 2 ** 20
        assert rank["weight_bytes"] <= 0.75 * whole
        assert rank["arena_bytes"] == arenas[rank["rank"] // 2]


def test_doctor_accepts_the_artefact():
    done = runs.tool("comm-doctor", compiled("gpt2_tiny", "pp=2,tp=2", 2))
    assert "digest" in done.stdout


def test_state_stays_on_its_stage():
    """Two decode steps on two stages equal two on one rank."""
    name = "llama_tiny_decode"
    model = runs.load(name)
    pairs = [(i.name, i.name.replace("past", "present"))
             for i in model.graph.input if i.name.startswith("past")]
    outs = {o.name for o in model.graph.output}
    pairs = [(i, o) for i, o in pairs if o in outs]
    shapes = {v.name: [d.dim_value or d.dim_param
                       for d in v.type.tensor_type.shape.dim]
              for v in (*model.graph.input, *model.graph.output)}
    if any(shapes[i] != shapes[o] for i, o in pairs):
        pytest.skip("the cache grows with every step")
    states = [x for i, o in pairs for x in ("--state", f"{i}={o}")]
    got, _ = outputs(name, "pp=2", 1, "--repeat", 2, *states)
    one, _ = runs.run(runs.compiled(name, "tp=1"), 1, runs.inputs(name),
                      [o.name for o in model.graph.output], "decode.one",
                      "--repeat", 2, *states)
    for key, array in one.items():
        np.testing.assert_allclose(got[key], array, rtol=1e-4, atol=1e-5)


def test_batch_that_does_not_divide():
    done = runs.tool("comm-opt", runs.model_path("gpt2_tiny"), "--pp=2",
                     "--micro-batches=3", *runs.dim_options("gpt2_tiny"),
                     "--comm-pipeline", "-o", os.devnull, ok=False)
    assert done.returncode == 1
    assert "--micro-batches=3 does not divide the batch of 2" in done.stderr


def test_tied_embeddings_stay_together(tmp_path):
    """A GPT whose embedding is its head: the rule on parameters holds without the
    1 MiB, because the end of the program goes to the first stage again."""
    path = tmp_path / "gpt.onnx"
    import subprocess
    import sys
    subprocess.run([sys.executable,
                    os.path.join(runs.MODELS, "generate.py"), "gpt2", "-o",
                    str(path), "--layers", "6", "--hidden", "256", "--heads",
                    "4", "--inner", "1024", "--vocab", "12000"],
                   check=True, capture_output=True)
    program = tmp_path / "gpt.so"
    runs.tool("comm-opt", path, "--mesh=pp=2,tp=2", "--dim=batch=2",
              "--dim=seq=8", "--micro-batches=2", "--comm-pipeline",
              "--emit=so", "-o", program)
    one = tmp_path / "one.so"
    runs.tool("comm-opt", path, "--dim=batch=2", "--dim=seq=8",
              "--comm-pipeline", "--emit=so", "-o", one)
    ids = np.arange(16, dtype=np.int64).reshape(2, 8) * 700
    got, report = runs.run(program, 4, {"input_ids": ids}, ["logits"], "tied4")
    want, _ = runs.run(one, 1, {"input_ids": ids}, ["logits"], "tied1")
    np.testing.assert_allclose(got["logits"], want["logits"], rtol=1e-3,
                               atol=1e-4)
    whole = runs.artefact.weight_bytes(
        str(one), runs.artefact.read_meta(str(one)), 0)
    for rank in report["ranks"]:
        assert rank["weight_bytes"] <= 1.10 * whole / 4 + 2 ** 20
