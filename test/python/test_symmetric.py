# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two programs that meet in collectives: their buffers lie at one offset in all arenas
where that is possible, the plan says where else, and results are right to the bit."""

import json
import re

import numpy as np
import pytest

import model_runs as runs

pytestmark = pytest.mark.skipif(
    not runs.built(), reason="build/bin/comm-opt and comm-run are not built")

WORLD = 4

# The back holds more than the front when they meet: alone they would place what they
# reduce at different offsets. The front then reduces twice, one after the other, what
# the back keeps at once.
MODULE = """
module attributes {{comm.world = 4 : i64}} {{
  comm.domain @all groups([[3, 1, 0, 2]])
  comm.domain @pp groups([[0, 2], [1, 3]])
  comm.program @front entry(@front_main) ranks([0, 1])
  comm.program @back entry(@back_main) ranks([2, 3])
  func.func @front_main(%x: tensor<512xf32> {{comm.name = "x"}}) -> (tensor<512xf32> {{comm.name = "f"}}) {{
    %e = tensor.empty() : tensor<512xf32>
    %d = linalg.add ins(%x, %x : tensor<512xf32>, tensor<512xf32>) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    comm.send @pp to(1) ins(%d : tensor<512xf32>)
    %r = comm.all_reduce @all sum ins(%d : tensor<512xf32>) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %m = linalg.mul ins(%r, %x : tensor<512xf32>, tensor<512xf32>) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %s = comm.all_reduce @all max ins(%m : tensor<512xf32>) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %y = linalg.sub ins(%s, %x : tensor<512xf32>, tensor<512xf32>) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    return %y : tensor<512xf32>
  }}
  func.func @back_main(%w: tensor<{rows}x512xf32> {{comm.name = "w"}}) -> (tensor<512xf32> {{comm.name = "b"}}, tensor<{rows}x512xf32> {{comm.name = "k"}}) {{
    %e = tensor.empty() : tensor<512xf32>
    %l = tensor.empty() : tensor<{rows}x512xf32>
    %k = linalg.add ins(%w, %w : tensor<{rows}x512xf32>, tensor<{rows}x512xf32>) outs(%l : tensor<{rows}x512xf32>) -> tensor<{rows}x512xf32>
    %d = comm.recv @pp from(0) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %r = comm.all_reduce @all sum ins(%d : tensor<512xf32>) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %n = linalg.sub ins(%r, %d : tensor<512xf32>, tensor<512xf32>) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %s = comm.all_reduce @all max ins(%n : tensor<512xf32>) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %t = linalg.add ins(%s, %r : tensor<512xf32>, tensor<512xf32>) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %q = linalg.mul ins(%k, %k : tensor<{rows}x512xf32>, tensor<{rows}x512xf32>) outs(%l : tensor<{rows}x512xf32>) -> tensor<{rows}x512xf32>
    return %t, %q : tensor<512xf32>, tensor<{rows}x512xf32>
  }}
}}
"""


def expected(given):
    """By rank: its outputs."""
    d = [given[r]["x"] * 2 for r in (0, 1)]
    d += d
    total = np.sum(d, axis=0)
    met = [total * given[0]["x"], total * given[1]["x"], total - d[2], total - d[3]]
    most = np.max(met, axis=0)
    front = {r: {"f": most - given[r]["x"]} for r in (0, 1)}
    back = {r: {"b": most + total, "k": (given[r]["w"] * 2) ** 2} for r in (2, 3)}
    return front | back


@pytest.mark.parametrize("options", ["", "opt=0"])
@pytest.mark.parametrize("rows", [1, 16])
def test_two_programs(options, rows, tmp_path):
    source, so, plan = (tmp_path / n for n in ("m.mlir", "m.so", "plan.json"))
    source.write_text(MODULE.format(rows=rows))
    pipeline = f"--comm-pipeline={options}" if options else "--comm-pipeline"
    runs.tool("comm-opt", source, pipeline, "--emit=plan", "-o", plan)
    why = runs.tool("comm-opt", source, pipeline, "--explain", "--emit=so", "-o", so).stderr

    values = np.random.default_rng(rows)
    given, arguments = {}, []
    for rank in range(WORLD):
        name, shape = ("x", (512,)) if rank < 2 else ("w", (rows, 512))
        given[rank] = {name: values.integers(-8, 9, shape).astype(np.float32)}
        path = tmp_path / f"{name}.{rank}.npy"
        np.save(path, given[rank][name])
        arguments += ["--input", f"{name}@{rank}={path}"]
    out = tmp_path / "out"
    runs.tool("comm-run", so, "-n", WORLD, *arguments, "--timeout", 60, "--output-dir", out)
    for rank, outputs in expected(given).items():
        for name, want in outputs.items():
            np.testing.assert_array_equal(np.load(out / f"{name}@{rank}.npy"), want)

    text = runs.tool("comm-opt", source, pipeline).stdout
    said = [[bit == "true" for bit in bits.split(", ")]
            for bits in re.findall(r"symmetric = array<i1: ([a-z, ]*)>", text)]
    met = [[i for i in p["issues"] if i["kind"] == "all_reduce"]
           for p in json.loads(plan.read_text())["programs"]]
    assert len(said) == 4 and [len(issues) for issues in met] == [2, 2]
    # Sends and receives say nothing.
    assert said[:2] == said[2:] and any(map(any, said))
    for one, other, flags in zip(*met, said):
        assert len(one["buffers"]) == len(other["buffers"]) == len(flags)
        for a, b, symmetric in zip(one["buffers"], other["buffers"], flags):
            if symmetric:
                assert a["space"] == b["space"] == "arena"
                assert a["offset"] == b["offset"]
            else:
                assert "comm-plan-workspace per-rank" in why
