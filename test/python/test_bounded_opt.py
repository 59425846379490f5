# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimised communication in programs with bounded dimensions: as few collectives as
with fixed sizes, and right at every size, in any order of sizes."""

import functools
import json
import random
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import model_runs
import oracle
from test_bounded import FIXED, STATES, close, concord, decode_inputs, saved, small_model

pytestmark = pytest.mark.skipif(not model_runs.built(),
                                reason="comm-opt is not built")

# Model -> bounds, and sizes to run at: the least, the greatest, some between.
CASES = {
    "bert_tiny": ({"batch": (1, 3), "seq": (1, 32)},
                  [(1, 1), (1, 13), (3, 1), (2, 7), (3, 32)]),
    "gpt2_tiny": ({"seq": (1, 32)}, [(1,), (2,), (17,), (31,), (32,)]),
    "llama_tiny": ({"batch": (1, 2), "seq": (1, 24)},
                   [(1, 1), (2, 3), (1, 24), (2, 24)]),
}


def dims_of(name):
    bounds, _ = CASES[name]
    fixed = {k: FIXED.get(k, v) for k, v in model_runs.symbols(name).items()
             if k not in bounds}
    return ([f"--dim={k}={low}..{high}" for k, (low, high) in bounds.items()]
            + [f"--dim={k}={v}" for k, v in fixed.items()])


def at_most(name):
    bounds, _ = CASES[name]
    sizes = {k: FIXED.get(k, v) for k, v in model_runs.symbols(name).items()}
    sizes.update({k: high for k, (_, high) in bounds.items()})
    return [f"--dim={k}={v}" for k, v in sizes.items()]


@functools.lru_cache(maxsize=None)
def issues(path, dims, pipeline="to=planned"):
    """Kind, operation and fused kernel of each issue in the plan."""
    plan = model_runs.scratch("bounded.plan.json")
    model_runs.tool("comm-opt", path, "--tp", 2, *dims,
                    f"--comm-pipeline={pipeline}", "--emit=plan", "-o", plan)
    with open(plan, encoding="utf-8") as file:
        (program,) = json.load(file)["programs"]
    return [(issue["kind"], issue["location"], issue["fused"].split(" ")[0])
            for issue in program["issues"]]


@pytest.mark.parametrize("name", CASES)
def test_as_many_collectives_as_with_fixed_sizes(name):
    path = model_runs.model_path(name)
    bounded = issues(path, tuple(dims_of(name)))
    assert bounded == issues(path, tuple(at_most(name)))
    assert any(fused for _, _, fused in bounded)
    assert not any(fused for _, _, fused in issues(path, tuple(dims_of(name)), "opt=0"))


@functools.lru_cache(maxsize=None)
def fused_program(name, dims, forced, path=None):
    """Compiled for two ranks; `forced`: everything is fused that can be."""
    path = path or model_runs.model_path(name)
    if not forced:
        so = model_runs.scratch(f"opt.{name}.so")
        model_runs.tool("comm-opt", path, "--tp", 2, *dims, "--emit=so", "-o", so)
        return so, ""
    apart, one, so = (model_runs.scratch(f"forced.{name}.{end}")
                      for end in ("0.mlir", "1.mlir", "so"))
    model_runs.tool("comm-opt", path, "--tp", 2, *dims,
                    "--comm-pipeline=to=decomposed", "-o", apart)
    done = model_runs.tool("comm-opt", apart, "--comm-fuse=force", "--explain", "-o", one)
    model_runs.tool("comm-opt", one, "--emit=so", "-o", so)
    return so, done.stderr


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_fused_at_every_size(name, forced):
    bounds, sizes = CASES[name]
    so, said = fused_program(name, tuple(dims_of(name)), forced)
    if forced:
        assert "comm-fuse fuse" in said
    for point in sizes:
        dims = dict(model_runs.symbols(name), **FIXED)
        dims.update(zip(bounds, point))
        inputs = oracle.make_inputs(model_runs.load(name), dims, seed=sum(point))
        close(concord.run(so, inputs),
              oracle.run_onnxruntime(model_runs.model_path(name), inputs),
              f"{name} {point}")


def on_ranks(path, steps):
    """Runs steps(program, rank) on every rank of one job; the results by rank."""
    results, failures = {}, []

    def main(job, rank):
        try:
            with concord.Context(job, rank) as context:
                results[rank] = steps(context.load(path), rank)
        except BaseException as error:  # handed to the caller's thread
            failures.append(error)

    with concord.Job(2) as job:
        threads = [threading.Thread(target=main, args=(job, rank), daemon=True)
                   for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return results


@pytest.mark.parametrize("forced", [False, True])
def test_sizes_in_any_order(forced):
    """Kernels, alone and fused, are made anew between steps; sizes that come again
    give the same bits. More choices of sizes than are kept."""
    so, _ = fused_program("bert_tiny", tuple(dims_of("bert_tiny")), forced)
    shuffled = random.Random(5)
    points = [(shuffled.randint(1, 3), shuffled.randint(1, 32)) for _ in range(24)]
    points += points[:6] + [(3, 32), (1, 1), (3, 32)]
    model = model_runs.load("bert_tiny")
    inputs = {point: oracle.make_inputs(model, dict(zip(("batch", "seq"), point)))
              for point in points}

    def steps(program, _):
        seen = {}
        for point in points:
            got = program.run(inputs[point])
            for key, array in got.items():
                assert seen.setdefault((point, key), array.tobytes()) == array.tobytes()
            seen[point] = got
        return seen

    results = on_ranks(so, steps)
    for point in set(points):
        want = oracle.run_onnxruntime(model_runs.model_path("bert_tiny"), inputs[point])
        for rank in range(2):
            close(results[rank][point], want, f"rank {rank}, {point}")


def test_a_state_grows_beside_fused_kernels():
    dims = ("--dim=past=0..20", "--dim=batch=1..4")
    so, said = fused_program("llama_tiny_decode", dims, True)
    assert "comm-fuse fuse" in said
    past = {name: np.zeros((3, 4, 0, 8), np.float32) for name in STATES}
    states = [f"--state={i}={o}" for i, o in STATES.items()]
    names = [o.name for o in model_runs.load("llama_tiny_decode").graph.output]
    inputs = {k: np.repeat(v, 3, axis=0) for k, v in decode_inputs(3, {}).items()}
    for _ in range(7):
        want = oracle.run_onnxruntime(model_runs.model_path("llama_tiny_decode"),
                                      dict(inputs, **past))
        past = {i: want[o] for i, o in STATES.items()}
    got, _ = model_runs.run(so, 2, inputs, names, "bounded.fused.decode", *states,
                            "--repeat", 7)
    close(got, want, "comm-run --state")


def branches():
    """Two products of products that are added (before their one reduction), and two
    more beside them: three reductions that do not depend on each other."""
    values = np.random.RandomState(1)
    nodes, weights = [], []

    def product(source, name, inner, out):
        for what, shape in (("a", (32, inner)), ("b", (inner, out))):
            weights.append(numpy_helper.from_array(
                values.standard_normal(shape).astype(np.float32) / 8, name + what))
        nodes.extend([helper.make_node("MatMul", [source, name + "a"], [name + "h"]),
                      helper.make_node("Relu", [name + "h"], [name + "r"]),
                      helper.make_node("MatMul", [name + "r", name + "b"], [name],
                                       name="product_" + name)])

    for name in ("p", "q", "left", "right"):
        product("x", name, 64, 32)
    nodes.append(helper.make_node("Add", ["p", "q"], ["sum"], name="add"))

    def info(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 32])

    return small_model(nodes, [info("x")], [info(n) for n in ("sum", "left", "right")],
                       weights)


def test_products_are_fused_at_every_size():
    """Few rows are shared out by columns, many by rows."""
    path = saved(branches(), "bounded.products")
    so, said = fused_program("branches", ("--dim=n=0..300",), True, path)
    assert said.count("comm-fuse fuse") == said.count("pair=gemm+all_reduce") == 3
    for n in (300, 1, 2, 0, 57, 299, 17):
        x = {"x": np.random.RandomState(n).standard_normal((n, 32)).astype(np.float32)}
        close(concord.run(so, x), oracle.run_onnxruntime(path, x), f"n={n}")


def residual(hidden=256, inner=512):
    """Two layers of products, residual and norm."""
    values = np.random.RandomState(2)
    nodes, weights, source = [], [], "x"
    for i in range(2):
        for name, shape in ((f"a{i}", (hidden, inner)), (f"b{i}", (inner, hidden)),
                            (f"g{i}", (hidden,)), (f"c{i}", (hidden,))):
            weights.append(numpy_helper.from_array(
                values.standard_normal(shape).astype(np.float32) / 16, name))
        nodes += [helper.make_node("MatMul", [source, f"a{i}"], [f"h{i}"]),
                  helper.make_node("Relu", [f"h{i}"], [f"r{i}"]),
                  helper.make_node("MatMul", [f"r{i}", f"b{i}"], [f"p{i}"]),
                  helper.make_node("Add", [f"p{i}", source], [f"s{i}"]),
                  helper.make_node("LayerNormalization", [f"s{i}", f"g{i}", f"c{i}"],
                                   [f"y{i}"])]
        source = f"y{i}"

    def info(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", hidden])

    return small_model(nodes, [info("x")], [info(source)], weights)


def test_reductions_stay_whole():
    """Where the tokens do not divide, a reduction inside of rows would need a gather;
    it is one with residual and norm instead, whatever the size."""
    path = saved(residual(), "bounded.residual")
    bounds = ("--dim=n=1..1024",)
    taken = issues(path, bounds)
    assert [(kind, fused) for kind, _, fused in taken] == [
        ("all_reduce", "fused_reduce")] * 2
    so = model_runs.scratch("bounded.residual.so")
    model_runs.tool("comm-opt", path, "--tp", 2, *bounds, "--emit=so", "-o", so)
    for n in (1024, 1, 333, 2):
        x = {"x": np.random.RandomState(n).standard_normal((n, 256)).astype(np.float32)}
        close(concord.run(so, x), oracle.run_onnxruntime(path, x), f"n={n}")


def test_joined_at_every_size():
    path = saved(branches(), "bounded.branches")
    bounds = ("--dim=n=1..48",)
    apart = issues(path, bounds, "opt=0")
    assert [kind for kind, _, _ in apart] == ["all_reduce"] * 3
    done = model_runs.tool("comm-opt", path, "--tp", 2, *bounds, "--explain",
                           "--comm-pipeline=fuse=false", "-o", "/dev/null")
    assert "comm-bucket bucket-all_reduce" in done.stderr
    joined = issues(path, bounds, "fuse=false")
    assert len(joined) == 1
    assert len(joined) == len(issues(path, ("--dim=n=48",), "fuse=false"))
    so, mlir = (model_runs.scratch(f"bounded.branches.{end}") for end in ("so", "mlir"))
    model_runs.tool("comm-opt", path, "--tp", 2, *bounds,
                    "--comm-pipeline=fuse=false", "-o", mlir)
    model_runs.tool("comm-opt", mlir, "--emit=so", "-o", so)
    for n in (1, 48, 2, 31, 1, 16):
        x = {"x": np.random.RandomState(n).standard_normal((n, 32)).astype(np.float32)}
        close(concord.run(so, x), oracle.run_onnxruntime(path, x), f"n={n}")


def test_started_collectives_at_every_size(tmp_path):
    """Where a link joins the ranks comm-overlap starts and waits: at all sizes alike,
    and right where the ranks are in fact together."""
    path = saved(branches(), "bounded.overlap")
    one, so = tmp_path / "m.mlir", tmp_path / "m.so"
    model_runs.tool("comm-opt", path, "--tp", 2, "--dim=n=1..48", "-o", one,
                    "--comm-pipeline=machine=accelerator bucket=false memory=1000000")
    plan = json.loads(model_runs.tool("comm-opt", one, "--emit=plan").stdout)
    assert any(not issue["synchronous"] for issue in plan["programs"][0]["issues"])
    model_runs.tool("comm-opt", one, "--emit=so", "-o", so)
    for n in (48, 1, 17):
        x = {"x": np.random.RandomState(n).standard_normal((n, 32)).astype(np.float32)}
        close(concord.run(so, x), oracle.run_onnxruntime(path, x), f"n={n}")
