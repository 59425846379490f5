# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler emits: elementary functions over their whole range, no scalar
libm calls, and steps that take no memory from the system."""

import os
import re
import subprocess

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import model_runs as runs

LIB = os.path.join(os.path.dirname(runs.BIN), "lib")
POINTS = int(os.environ.get("CONCORD_MATH_POINTS", 10_000_000))

# Exact to the last bit in float64 for what float32 can tell apart.
FUNCTIONS = {
    "Exp": np.exp,
    "Log": np.log,
    "Tanh": np.tanh,
    "Sqrt": np.sqrt,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sin": np.sin,
    "Cos": np.cos,
    "Erf": None,  # by its own series below
    "Softplus": lambda x: np.logaddexp(0, x),
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
}


def whole_range(count):
    """Every 2^32 / count-th bit pattern: all exponents, both signs, NaN and inf."""
    bits = np.linspace(0, 2**32 - 1, count).astype(np.uint64).astype(np.uint32)
    return bits.view(np.float32)


def erf64(x):
    """erf in float64 by math.erf, on a sample that numpy can wait for."""
    import math  # numpy has no erf
    return np.array([math.erf(v) for v in x.tolist()])


def unary_model(op, count, path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [count])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [count])
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], name=op)], op, [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)],
                                ir_version=10), path)


def ulps(got, want):
    """Distance in units of the last place of float32 at the exact value."""
    spacing = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
    return np.abs(got.astype(np.float64) - want) / spacing


@pytest.mark.parametrize("op", FUNCTIONS)
def test_elementary_functions(op, tmp_path):
    count = POINTS if op != "Erf" else max(POINTS // 20, 1000)
    x = whole_range(count)
    model, so = tmp_path / "m.onnx", tmp_path / "m.so"
    unary_model(op, count, model)
    runs.tool("comm-opt", model, "--comm-pipeline", "--emit=so", "-o", so)
    np.save(tmp_path / "x.npy", x)
    runs.tool("comm-run", so, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir",
              tmp_path / "out", timeout=300)
    got = np.load(tmp_path / "out" / "y.npy")
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        want = erf64(wide) if op == "Erf" else FUNCTIONS[op](wide)
        rounded = want.astype(np.float32)
        # Where float32 has no finite, normal value for it, only the kind counts.
        special = ~np.isfinite(rounded)
        assert np.array_equal(np.isnan(got), np.isnan(rounded)), f"{op}: NaN differs"
        kinds = special & ~np.isnan(rounded)
        near_limit = np.abs(want) >= np.finfo(np.float32).max * (1 - 2**-22)
        assert np.array_equal(got[kinds & ~near_limit], rounded[kinds & ~near_limit])
        inside = ~special & ~near_limit & np.isfinite(got)
        assert inside.sum() >= (~special & ~near_limit).sum(), f"{op}: overflows early"
        error = ulps(got[inside], want[inside])
        small = np.abs(got[inside].astype(np.float64) - want[inside]) <= 2**-24
    bad = ~((error <= 5) | small)
    worst = int(np.argmax(np.where(small, 0, error)))
    assert not bad.any(), (f"{op}: {bad.sum()} of {count} points off, worst "
                           f"{error[worst]:.1f} ulp at {x[inside][worst]!r}")


def narrowed(name, dtype, path):
    """The model in half precision: every f32 tensor and Cast becomes `dtype`."""
    model = onnx.load(runs.model_path(name))

    def tensor(proto):
        if proto.data_type != TensorProto.FLOAT:
            return
        array = onnx.numpy_helper.to_array(proto)
        kind = np.float16 if dtype == TensorProto.FLOAT16 else ml_dtypes.bfloat16
        with np.errstate(over="ignore"):
            raw = array.astype(kind).tobytes()
        proto.CopyFrom(helper.make_tensor(proto.name, dtype, array.shape, raw, raw=True))

    for proto in model.graph.initializer:
        tensor(proto)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                tensor(attribute.t)
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = dtype
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = dtype
    onnx.save(model, path)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("dtype,share", [(TensorProto.FLOAT16, 0.01),
                                         (TensorProto.BFLOAT16, 0.08)])
@pytest.mark.parametrize("name", ["gpt2_tiny", "llama_tiny"])
def test_half_precision(name, dtype, share, ranks, tmp_path):
    model = tmp_path / "m.onnx"
    narrowed(name, dtype, model)
    so = tmp_path / "m.so"
    runs.tool("comm-opt", model, *runs.dim_options(name), "--tp", ranks,
              "--comm-pipeline", "--emit=so", "-o", so)
    options = []
    for key, array in runs.inputs(name).items():
        np.save(tmp_path / f"{key}.npy", array)
        options += ["--input", f"{key}={tmp_path / key}.npy"]
    runs.tool("comm-run", so, "-n", ranks, *options, "--output-dir", tmp_path / "out")
    got = np.load(tmp_path / "out" / "logits.npy")
    if got.dtype == np.uint16:
        got = got.view(ml_dtypes.bfloat16)
    want = runs.expected(name)[1]["logits"]
    worst = np.abs(got.astype(np.float64) - want).max()
    assert worst <= share * np.abs(want).max(), f"off by {worst}"
    assert wanted_symbols(so) <= ALLOWED


ALLOWED = {"concord_issue", "concord_site_wait", "concord_kernel_run", "concord_poll",
           "memcpy", "memset", "memmove"}


def wanted_symbols(so):
    done = subprocess.run(["nm", "-D", "--undefined-only", so], capture_output=True,
                          text=True, check=True)
    return set(re.findall(r" U (\w+)", done.stdout))


@pytest.mark.parametrize("name", ["bert_tiny", "gpt2_tiny", "llama_tiny", "resnet_tiny"])
def test_no_scalar_libm_calls(name, tmp_path):
    so = tmp_path / "m.so"
    runs.tool("comm-opt", runs.model_path(name), *runs.dim_options(name),
              "--comm-pipeline", "--emit=so", "-o", so)
    assert wanted_symbols(so) <= ALLOWED, f"calls {wanted_symbols(so) - ALLOWED}"


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["bert_tiny", "llama_tiny", "resnet_tiny"])
def test_steps_take_no_memory(name, ranks, tmp_path):
    counter = os.path.join(LIB, "libconcord_memcount.so")
    if not os.path.exists(counter):
        pytest.fail(f"{counter} is not built")
    so = tmp_path / "m.so"
    dims = [f"--dim={k}={v}" for k, v in runs.symbols(name).items()]
    runs.tool("comm-opt", runs.model_path(name), *dims, "--tp", ranks, "--comm-pipeline",
              "--emit=so", "-o", so)
    environment = {**os.environ, "LD_PRELOAD": counter,
                   "CONCORD_MEMCOUNT_FILE": str(tmp_path / "count")}
    # The kernel may take a page away and give it back on its own account (reclaim,
    # migration): a fault of ours shows in every run.
    for _ in range(5):
        done = subprocess.run([os.path.join(runs.BIN, "comm-run"), so, "-n", str(ranks),
                               "--repeat", "100"], env=environment, capture_output=True,
                              text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        faults = 0
        for rank in range(ranks):
            with open(tmp_path / f"count.{rank}", encoding="utf-8") as file:
                counts = dict(re.findall(r"(\w+) (\d+)", file.read()))
            assert counts, "the counter wrote nothing"
            faults += int(counts.pop("minor_faults"))
            busy = {k: v for k, v in counts.items() if int(v)}
            assert not busy, f"rank {rank}: {busy} over steps 2 to 100"
        if faults == 0:
            break
    assert faults == 0, "minor faults over steps 2 to 100 in each of five runs"


def test_bfloat16_that_stays_in_a_register(tmp_path):
    """A value of the type that is live over a loop: code generators of CPUs without
    instructions for it would call a library to narrow it again."""
    mask = helper.make_tensor_value_info("mask", TensorProto.BOOL, [2, 1, 8, 8])
    fill = helper.make_tensor_value_info("fill", TensorProto.BFLOAT16, [1])
    x = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [2, 8, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2, 8, 8, 8])
    graph = helper.make_graph([helper.make_node("Where", ["mask", "fill", "x"], ["y"],
                                                name="choose")],
                              "where", [mask, fill, x], [y])
    model, program = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                ir_version=9), model)
    runs.tool("comm-opt", model, "--comm-pipeline", "--emit=so", "-o", program)
    rng = np.random.default_rng(5)
    arrays = {"mask": rng.random((2, 1, 8, 8)) < 0.5,
              "fill": np.array([-1e30], ml_dtypes.bfloat16).view(np.uint16),
              "x": rng.standard_normal((2, 8, 8, 8)).astype(
                  ml_dtypes.bfloat16).view(np.uint16)}
    options = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    runs.tool("comm-run", program, *options, "--output-dir", tmp_path / "out")
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / "y.npy"),
        np.where(arrays["mask"], arrays["fill"], arrays["x"]))
