# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention in the forms in which exporters write it: it has to be split by heads
with one reduction behind the output projection, and to give onnxruntime's result."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import model_runs as runs
import artefact

BATCH, SEQ, HIDDEN, HEADS, KEY_HEADS = 2, 8, 64, 8, 4
WIDTH = HIDDEN // HEADS


class Graph:
    """Nodes and parameters, named as they come."""

    def __init__(self):
        self.nodes, self.parameters = [], []
        self.random = np.random.default_rng(3)

    def op(self, kind, *operands, results=1, **attributes):
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, list(operands), names,
                                           name=names[0], **attributes))
        return names[0] if results == 1 else names

    def value(self, array):
        name = f"p{len(self.parameters)}"
        self.parameters.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape):
        return self.value((self.random.standard_normal(shape) / 8).astype(np.float32))

    def ints(self, *values):
        return self.value(np.array(values, np.int64))

    def slice(self, x, begin, end, axis=-1):
        return self.op("Slice", x, self.ints(begin), self.ints(end), self.ints(axis))

    def save(self, path, result, opset=17, shape=(BATCH, SEQ, HIDDEN), inputs=()):
        info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        self.nodes.append(helper.make_node("Identity", [result], ["y"], name="last"))
        graph = helper.make_graph(self.nodes, "attention", [info("x"), *inputs],
                                  [info("y")], self.parameters)
        model = helper.make_model(graph, ir_version=8,
                                  opset_imports=[helper.make_opsetid("", opset)])
        onnx.checker.check_model(model)
        onnx.save(model, path)


def heads(g, x, count):
    x = g.op("Reshape", x, g.ints(BATCH, SEQ, count, WIDTH))
    return g.op("Transpose", x, perm=[0, 2, 1, 3])


def rotated(g, x, width=WIDTH):
    """Rotary positions of the first `width`, the rest (perhaps nothing) as it is."""
    turned, rest = g.slice(x, 0, width), g.slice(x, width, 2 ** 62)
    half = g.op("Concat", g.op("Neg", g.slice(turned, width // 2, 2 ** 62)),
                g.slice(turned, 0, width // 2), axis=-1)
    angles = g.random.standard_normal((1, 1, SEQ, width)).astype(np.float32)
    turned = g.op("Add", g.op("Mul", turned, g.value(np.cos(angles))),
                  g.op("Mul", half, g.value(np.sin(angles))))
    return g.op("Concat", turned, rest, axis=-1)


def repeated(g, x):
    """Key heads, once for every query head that reads them."""
    each = HEADS // KEY_HEADS
    x = g.op("Unsqueeze", x, g.ints(2))
    x = g.op("Expand", x, g.ints(BATCH, KEY_HEADS, each, SEQ, WIDTH))
    return g.op("Reshape", x, g.ints(BATCH, HEADS, SEQ, WIDTH))


def attend(g, q, k, v, flat=False):
    if flat: # the key is transposed with batch and heads in one dimension
        k = g.op("Reshape", k, g.ints(-1, SEQ, WIDTH))
        k = g.op("Transpose", k, perm=[0, 2, 1])
        k = g.op("Reshape", k, g.ints(BATCH, HEADS, WIDTH, SEQ))
    else:
        k = g.op("Transpose", k, perm=[0, 1, 3, 2])
    scores = g.op("MatMul", g.op("Mul", q, g.value(np.float32(0.3))), k)
    y = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]),
             g.ints(BATCH, SEQ, HIDDEN))
    return g.op("Add", g.op("MatMul", y, g.weight(HIDDEN, HIDDEN)), g.weight(HIDDEN))


SIZES = (HEADS * WIDTH, KEY_HEADS * WIDTH, KEY_HEADS * WIDTH)


def grouped(g, parts, rotary=None):
    q, k, v = (heads(g, p, n) for p, n in zip(parts, (HEADS, KEY_HEADS, KEY_HEADS)))
    if rotary is not None:
        q, k = rotated(g, q, rotary), rotated(g, k, rotary)
    return attend(g, q, repeated(g, k), repeated(g, v))


def split_of_unequal_parts(g):
    qkv = g.op("MatMul", "x", g.weight(HIDDEN, sum(SIZES)))
    return grouped(g, g.op("Split", qkv, g.ints(*SIZES), results=3, axis=-1))


def slices_of_unequal_parts(g):
    qkv = g.op("Add", g.weight(sum(SIZES)),
               g.op("MatMul", "x", g.weight(HIDDEN, sum(SIZES))))
    ends = np.cumsum((0,) + SIZES)
    # Out of order, and the query part twice.
    k, q, v, again = (g.slice(qkv, ends[i], ends[i + 1]) for i in (1, 0, 2, 0))
    q = g.op("Add", q, g.op("Mul", again, g.value(np.float32(0.5))))
    return grouped(g, (q, k, v))


def gemm_of_unequal_parts(g):
    x = g.op("Reshape", "x", g.ints(-1, HIDDEN))
    qkv = g.op("Gemm", x, g.weight(sum(SIZES), HIDDEN), g.weight(sum(SIZES)), transB=1)
    return grouped(g, g.op("Split", qkv, g.ints(*SIZES), results=3, axis=1))


def slices_of_equal_parts(g):
    qkv = g.op("MatMul", "x", g.weight(HIDDEN, 3 * HIDDEN))
    parts = [g.slice(qkv, i * HIDDEN, (i + 1) * HIDDEN, axis=2) for i in range(3)]
    return attend(g, *(heads(g, p, HEADS) for p in parts))


def rotary_with_nothing_left(g):
    parts = [g.op("MatMul", "x", g.weight(HIDDEN, n)) for n in SIZES]
    return grouped(g, parts, rotary=WIDTH)


def rotary_of_a_part(g):
    parts = [g.op("MatMul", "x", g.weight(HIDDEN, n)) for n in SIZES]
    return grouped(g, parts, rotary=WIDTH // 2)


def batch_and_heads_in_one_dimension(g):
    parts = (g.op("MatMul", "x", g.weight(HIDDEN, HIDDEN)) for _ in range(3))
    return attend(g, *(heads(g, p, HEADS) for p in parts), flat=True)


def three_picked_by_number(g):
    qkv = g.op("MatMul", "x", g.weight(HIDDEN, 3 * HIDDEN))
    qkv = g.op("Reshape", qkv, g.ints(BATCH, SEQ, 3, HIDDEN))
    qkv = g.op("Transpose", g.op("Unsqueeze", qkv, g.ints(0)), perm=[3, 1, 2, 0, 4])
    qkv = g.op("Squeeze", qkv, g.ints(-2))
    parts = [g.op("Gather", qkv, g.value(np.int64(i)), axis=0) for i in range(3)]
    return attend(g, *(heads(g, p, HEADS) for p in parts))


FORMS = (split_of_unequal_parts, slices_of_unequal_parts, gemm_of_unequal_parts,
         slices_of_equal_parts, rotary_with_nothing_left, rotary_of_a_part,
         batch_and_heads_in_one_dimension, three_picked_by_number)


@pytest.mark.parametrize("ranks", (1, 2, 4))
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_is_split_by_heads(form, ranks, tmp_path):
    graph = Graph()
    model, so, plan = (tmp_path / f"m.{e}" for e in ("onnx", "so", "json"))
    graph.save(model, form(graph))
    runs.tool("comm-opt", model, "--tp", ranks, "--comm-pipeline", "--emit=so", "-o", so)
    runs.tool("comm-opt", model, "--tp", ranks, "--comm-pipeline", "--emit=plan",
              "-o", plan)
    with open(plan, encoding="utf-8") as file:
        issues = artefact.issues(json.load(file))
    # One reduction of [tokens, hidden]; the result may leave in parts.
    kinds = [i["kind"] for i in issues]
    assert kinds in ([[]] if ranks == 1 else
                     [["all_reduce"], ["reduce_scatter"]]), issues
    assert all(i["elements"] == BATCH * SEQ * HIDDEN for i in issues), issues
    x = graph.random.standard_normal((BATCH, SEQ, HIDDEN)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})[0]
    np.save(tmp_path / "x.npy", x)
    runs.tool("comm-run", so, "-n", ranks, "--input", f"x={tmp_path / 'x.npy'}",
              "--output-dir", tmp_path / "out")
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), expected,
                               rtol=1e-5, atol=1e-5)


def test_more_ranks_than_key_heads(tmp_path, monkeypatch):
    """Four ranks, eight query heads, two of keys and values, which all have."""
    monkeypatch.setattr(sys.modules[__name__], "KEY_HEADS", 2)
    graph = Graph()
    model = tmp_path / "m.onnx"
    parts = [graph.op("MatMul", "x", graph.weight(HIDDEN, count * WIDTH))
             for count in (HEADS, 2, 2)]
    graph.save(model, grouped(graph, parts, rotary=WIDTH))
    x = graph.random.standard_normal((BATCH, SEQ, HIDDEN)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})[0]
    np.save(tmp_path / "x.npy", x)
    runs.tool("comm-run", model, "-n", 4, "--input", f"x={tmp_path / 'x.npy'}",
              "--output-dir", tmp_path / "out")
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), expected,
                               rtol=1e-5, atol=1e-5)


def any_size(g):
    """The key transposed in three dimensions, sizes taken from the data."""
    def split_heads(x):
        x = g.op("Reshape", x, g.ints(0, 0, HEADS, WIDTH))
        return g.op("Transpose", x, perm=[0, 2, 1, 3])

    q, k, v = (split_heads(g.op("MatMul", "x", g.weight(HIDDEN, HIDDEN)))
               for _ in range(3))
    shape = g.op("Shape", k)
    outer, inner = g.slice(shape, 0, -2, axis=0), g.slice(shape, -2, 2 ** 62, axis=0)
    k = g.op("Reshape", k, g.op("Concat", g.ints(-1), inner, axis=0))
    k = g.op("Transpose", k, perm=[0, 2, 1])
    turned = g.op("Concat", g.slice(inner, 1, 2, axis=0), g.slice(inner, 0, 1, axis=0),
                  axis=0)
    k = g.op("Reshape", k, g.op("Concat", outer, turned, axis=0))
    scores = g.op("MatMul", g.op("Mul", q, g.value(np.float32(0.3))), k)
    y = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, 0, HIDDEN))
    return g.op("MatMul", y, g.weight(HIDDEN, HIDDEN))


@pytest.mark.parametrize("bounds", ("1..8", "1..3"))
def test_batch_and_heads_in_one_dimension_of_any_size(bounds, tmp_path):
    graph = Graph()
    model, so = tmp_path / "m.onnx", tmp_path / "m.so"
    graph.save(model, any_size(graph), shape=("batch", "seq", HIDDEN))
    runs.tool("comm-opt", model, "--tp", 2, f"--dim=batch={bounds}", "--dim=seq=1..32",
              "--comm-pipeline", "--emit=so", "-o", so)
    session = onnxruntime.InferenceSession(str(model))
    for batch, seq in ((1, 1), (2, 7), (3, 32)):
        x = graph.random.standard_normal((batch, seq, HIDDEN)).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        runs.tool("comm-run", so, "-n", 2, "--input", f"x={tmp_path / 'x.npy'}",
                  "--output-dir", tmp_path / "out")
        np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"),
                                   session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)


def by_batch_and_position(g):
    """mask[[b], [s]], as the newer exporter writes it."""
    at = np.stack(np.meshgrid(np.arange(BATCH), np.arange(SEQ), indexing="ij"), -1)
    return g.op("GatherND", "mask", g.value(at.reshape(BATCH, 1, 1, SEQ, 2)))


def by_flat_number(g):
    """The same as the older one writes it."""
    at = np.arange(BATCH * SEQ).reshape(BATCH, 1, 1, SEQ)
    return g.op("Gather", g.op("Reshape", "mask", g.ints(-1)), g.value(at))


@pytest.mark.parametrize("options", (["--dp", 2], ["--pp", 2, "--micro-batches", 2]),
                         ids=("dp", "micro-batches"))
@pytest.mark.parametrize("lookup", (by_batch_and_position, by_flat_number),
                         ids=lambda f: f.__name__)
def test_a_mask_that_is_looked_up_is_split_by_sequences(lookup, options, tmp_path):
    graph = Graph()
    model, so, plan = (tmp_path / f"m.{e}" for e in ("onnx", "so", "json"))
    keep = graph.op("Reshape", lookup(graph), graph.ints(BATCH, SEQ, 1))
    y = graph.op("Mul", graph.op("MatMul", "x", graph.weight(HIDDEN, HIDDEN)),
                 graph.op("Cast", keep, to=TensorProto.FLOAT))
    graph.save(model, graph.op("MatMul", y, graph.weight(HIDDEN, HIDDEN)),
               inputs=[helper.make_tensor_value_info("mask", TensorProto.INT64,
                                                     [BATCH, SEQ])])
    for emit, path in (("so", so), ("plan", plan)):
        runs.tool("comm-opt", model, *options, "--comm-pipeline", f"--emit={emit}",
                  "-o", path)
    if options[0] == "--dp":
        with open(plan, encoding="utf-8") as file:
            assert artefact.issues(json.load(file)) == []
    arrays = {"x": graph.random.standard_normal((BATCH, SEQ, HIDDEN)).astype(np.float32),
              "mask": graph.random.integers(0, 2, (BATCH, SEQ))}
    given = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        given += ["--input", f"{name}={tmp_path / name}.npy"]
    runs.tool("comm-run", so, "-n", 2, *given, "--output-dir", tmp_path / "out")
    expected = onnxruntime.InferenceSession(str(model)).run(None, arrays)[0]
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), expected,
                               rtol=1e-5, atol=1e-5)


def routed_by_groups(g, groups=2, experts=4, inner=16):
    """Experts chosen within the best group, as DeepSeek-V3 does: of the top of the
    groups and of the experts only the indices are taken."""
    scores = g.op("Sigmoid", g.op("MatMul", "x", g.weight(HIDDEN, experts)))
    apart = g.op("Reshape", scores, g.ints(BATCH, SEQ, groups, experts // groups))
    best, _ = g.op("TopK", apart, g.ints(2), results=2, axis=-1)
    of_group = g.op("ReduceSum", best, g.ints(-1), keepdims=0)
    _, group = g.op("TopK", of_group, g.ints(1), results=2, axis=-1)
    none = g.value(np.zeros((BATCH, SEQ, groups), np.float32))
    mask = g.op("ScatterElements", none, group,
                g.value(np.ones((BATCH, SEQ, 1), np.float32)), axis=-1)
    mask = g.op("Expand", g.op("Unsqueeze", mask, g.ints(-1)),
                g.ints(BATCH, SEQ, groups, experts // groups))
    mask = g.op("Reshape", mask, g.ints(BATCH, SEQ, experts))
    allowed = g.op("Mul", scores, mask)
    _, chosen = g.op("TopK", allowed, g.ints(2), results=2, axis=-1)
    weights = g.op("GatherElements", scores, chosen, axis=-1)
    dense = g.op("ScatterElements", g.value(np.zeros((BATCH, SEQ, experts), np.float32)),
                 chosen, weights, axis=-1)
    dense = g.op("Unsqueeze", g.op("Transpose", dense, perm=[2, 0, 1]), g.ints(-1))
    x = g.op("Unsqueeze", "x", g.ints(0))
    up = g.op("Relu", g.op("MatMul", x, g.weight(experts, 1, HIDDEN, inner)))
    down = g.op("MatMul", up, g.weight(experts, 1, inner, HIDDEN))
    return g.op("ReduceSum", g.op("Mul", down, dense), g.ints(0), keepdims=0)


@pytest.mark.parametrize("options", (["--tp", 1], ["--tp", 2], ["--dp", 2], ["--pp", 2]),
                         ids=lambda o: f"{o[0][2:]}{o[1]}")
def test_a_router_that_takes_indices_only(options, tmp_path):
    graph = Graph()
    model = tmp_path / "m.onnx"
    graph.save(model, routed_by_groups(graph))
    x = graph.random.standard_normal((BATCH, SEQ, HIDDEN)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})[0]
    np.save(tmp_path / "x.npy", x)
    runs.tool("comm-run", model, *options, "--input", f"x={tmp_path / 'x.npy'}",
              "--output-dir", tmp_path / "out")
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), expected,
                               rtol=1e-5, atol=1e-5)


def test_dynamic_quantisation_whose_zero_is_not_taken(tmp_path):
    graph = Graph()
    model = tmp_path / "m.onnx"
    codes, scale, _ = graph.op("DynamicQuantizeLinear", "x", results=3)
    graph.save(model, graph.op("Mul", graph.op("Cast", codes, to=TensorProto.FLOAT),
                               scale))
    x = graph.random.standard_normal((BATCH, SEQ, HIDDEN)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})[0]
    np.save(tmp_path / "x.npy", x)
    runs.tool("comm-run", model, "-n", 1, "--input", f"x={tmp_path / 'x.npy'}",
              "--output-dir", tmp_path / "out")
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), expected,
                               rtol=1e-5, atol=1e-5)


def test_a_refusal_names_file_and_node(tmp_path):
    graph = Graph()
    model = tmp_path / "m.onnx"
    graph.save(model, batch_and_heads_in_one_dimension(graph))
    done = runs.tool("comm-opt", model, "--tp", 16, "--comm-pipeline", "-o",
                     tmp_path / "out.mlir", ok=False)
    assert done.returncode != 0
    assert f"comm-opt: error: {model}: node 'Reshape_" in done.stderr
    assert "does not divide the 8 heads" in done.stderr
    assert "loc(" not in done.stderr
