# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A sharded Adam step between reduce_scatter and all_gather, as one operation and as
several. Generated code rounds a product and a sum once, the kernel twice; the gather
has the same bits on all ranks."""

import numpy as np
import pytest

import model_runs as runs

STEP = """
#id = affine_map<(i, j) -> (i, j)>
#one = affine_map<(i, j) -> ()>
module attributes {{comm.world = {world} : i64}} {{
  comm.domain @dp groups([{ranks}])
  func.func @main(%g: tensor<{whole}x48x{t}> {{comm.name = "g"}},
                  %p: {s} {{comm.name = "p"}}, %m: {s} {{comm.name = "m"}},
                  %v: {s} {{comm.name = "v"}}, %lr: tensor<f32> {{comm.name = "lr"}})
      -> (tensor<{whole}x48x{t}> {{comm.name = "all"}}, {s} {{comm.name = "p1"}},
          {s} {{comm.name = "m1"}}, {s} {{comm.name = "v1"}}) {{
    %b1 = arith.constant 0.9 : f32
    %c1 = arith.constant 0.1 : f32
    %b2 = arith.constant 0.999 : f32
    %c2 = arith.constant 0.001 : f32
    %eps = arith.constant 1.0e-8 : f32
    %e = tensor.empty() : {s}
    %en = tensor.empty() : tensor<{share}x48x{t}>
    %ew = tensor.empty() : tensor<{whole}x48x{t}>
    %r0 = comm.reduce_scatter @dp sum dim(0) ins(%g : tensor<{whole}x48x{t}>)
        outs(%en : tensor<{share}x48x{t}>) -> tensor<{share}x48x{t}>
{widen}
    %m1 = linalg.generic {{indexing_maps = [#id, #id, #id],
        iterator_types = ["parallel", "parallel"]}}
        ins(%m, %r : {s}, {s}) outs(%e : {s}) {{
    ^bb0(%a: f32, %b: f32, %o: f32):
      %0 = arith.mulf %b1, %a : f32
      %1 = arith.mulf %c1, %b : f32
      %2 = arith.addf %0, %1 : f32
      linalg.yield %2 : f32
    }} -> {s}
    %v1 = linalg.generic {{indexing_maps = [#id, #id, #id],
        iterator_types = ["parallel", "parallel"]}}
        ins(%v, %r : {s}, {s}) outs(%e : {s}) {{
    ^bb0(%a: f32, %b: f32, %o: f32):
      %0 = arith.mulf %b2, %a : f32
      %1 = arith.mulf %b, %b : f32
      %2 = arith.mulf %c2, %1 : f32
      %3 = arith.addf %0, %2 : f32
      linalg.yield %3 : f32
    }} -> {s}
    %p1 = linalg.generic {{indexing_maps = [#id, #id, #id, #one, #id],
        iterator_types = ["parallel", "parallel"]}}
        ins(%p, %m1, %v1, %lr : {s}, {s}, {s}, tensor<f32>) outs(%e : {s}) {{
    ^bb0(%a: f32, %b: f32, %c: f32, %l: f32, %o: f32):
      %0 = math.sqrt %c : f32
      %1 = arith.addf %0, %eps : f32
      %2 = arith.divf %b, %1 : f32
      %3 = arith.mulf %l, %2 : f32
      %4 = arith.subf %a, %3 : f32
      linalg.yield %4 : f32
    }} -> {s}
{narrow}
    %all = comm.all_gather @dp dim(0) ins(%q : tensor<{share}x48x{t}>)
        outs(%ew : tensor<{whole}x48x{t}>) -> tensor<{whole}x48x{t}>
    return %all, %p1, %m1, %v1 : tensor<{whole}x48x{t}>, {s}, {s}, {s}
  }}
}}
"""

CONVERT = """    %{to} = linalg.generic {{{{indexing_maps = [#id, #id],
        iterator_types = ["parallel", "parallel"]}}}}
        ins(%{of} : tensor<{{share}}x48x{a}>) outs(%{init} : tensor<{{share}}x48x{b}>) {{{{
    ^bb0(%a: {a}, %o: {b}):
      %0 = arith.{op} %a : {a} to {b}
      linalg.yield %0 : {b}
    }}}} -> tensor<{{share}}x48x{b}>"""


@pytest.mark.parametrize("world, narrow", [(2, False), (3, False), (2, True)])
def test_same_results(world, narrow, tmp_path):
    share = 37
    text = STEP
    if narrow:
        text = text.replace("{widen}", CONVERT.format(
            to="r", of="r0", a="bf16", b="f32", init="e", op="extf"))
        text = text.replace("{narrow}", CONVERT.format(
            to="q", of="p1", a="f32", b="bf16", init="en", op="truncf"))
    else:
        text = text.replace("{widen}\n", "").replace("{narrow}\n", "")
        text = text.replace("%r0 =", "%r =").replace("(%q :", "(%p1 :")
    source = tmp_path / "step.mlir"
    source.write_text(text.format(
        world=world, ranks=list(range(world)), whole=share * world, share=share,
        s=f"tensor<{share}x48xf32>", t="bf16" if narrow else "f32"))
    values = np.random.default_rng(5)
    arguments = []
    for rank in range(world):
        for name, shape in (("g", (share * world, 48)), ("p", (share, 48)),
                            ("m", (share, 48)), ("v", (share, 48)), ("lr", ())):
            data = values.standard_normal(shape).astype(np.float32)
            if name == "v":
                data = np.abs(data)
            if name == "g" and narrow:
                data = (data.view(np.uint32) >> 16).astype(np.uint16)
            path = tmp_path / f"{name}.{rank}.npy"
            np.save(path, np.float32(0.01) if name == "lr" else data)
            arguments += ["--input", f"{name}@{rank}={path}"]
    outputs = {}
    for form, fuse in ("apart", []), ("one", ["--comm-fuse=force"]):
        so = tmp_path / f"{form}.so"
        done = runs.tool("comm-opt", source, "--explain", *fuse,
                         "--comm-pipeline=fuse=false overlap=false",
                         "--emit=so", "-o", so)
        assert ("pair=reduce_scatter+update+all_gather" in done.stderr) == bool(fuse)
        runs.tool("comm-run", so, "-n", world, *arguments, "--output-dir",
                  tmp_path / form)
        outputs[form] = {p.name: np.load(p) for p in (tmp_path / form).glob("*.npy")}
    assert outputs["apart"].keys() == outputs["one"].keys()
    assert len(outputs["one"]) == 4 * world
    def real(data):
        if data.dtype == np.uint16:
            data = (data.astype(np.uint32) << 16).view(np.float32)
        return data

    for name, want in outputs["apart"].items():
        got = outputs["one"][name]
        np.testing.assert_allclose(
            real(got), real(want), err_msg=name, atol=1e-6,
            rtol=8e-3 if name.startswith("all") and narrow else 1e-5)
        if name.startswith("all"):
            np.testing.assert_array_equal(got, outputs["one"]["all@0.npy"])
    assert "exact" in runs.tool(
        "comm-opt", source, "--explain", "--comm-fuse=force exact", "-o",
        tmp_path / "kept.mlir").stderr
