# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that onnxruntime's optimiser makes, against onnxruntime itself."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import model_runs as runs

SIZES = {"x": (2, 8, 64), "r": (2, 8, 64), "g": (64,), "b": (64,), "c": (64,),
         "w": (64, 32), "wt": (32, 64), "v": (32,), "q": (2, 4, 8, 16),
         "k": (2, 4, 8, 16), "n": (8, 2, 4, 16), "m": (8, 64),
         "i": (2, 4, 8, 8), "f": (8, 4, 3, 3), "h": (8,), "z": (2, 8, 8, 8)}

# Operator, operands, attributes, results; "" is an absent one.
CASES = [
    ("Gelu", "x", {}, 1),
    ("FastGelu", "x", {}, 1),
    ("FastGelu", "x b", {}, 1),
    ("BiasGelu", "x b", {}, 1),
    ("QuickGelu", "x", {"alpha": 1.0}, 1),
    ("QuickGelu", "x", {}, 1),
    ("FusedMatMul", "x w", {"alpha": 0.25}, 1),
    ("FusedMatMul", "x wt", {"transB": 1}, 1),
    ("FusedMatMul", "q k", {"alpha": 0.5, "transB": 1}, 1),
    ("FusedMatMul", "q k", {"transA": 1}, 1),
    ("FusedMatMul", "q n", {"transBatchB": 1, "transB": 1}, 1),
    ("FusedGemm", "m w v", {"activation": "Relu"}, 1),
    ("FusedGemm", "m wt v", {"activation": "LeakyRelu", "activation_alpha": 0.2,
                             "transB": 1, "alpha": 0.5, "beta": 2.0}, 1),
    ("FusedGemm", "m w", {"activation": "Tanh"}, 1),
    ("FusedConv", "i f h", {"activation": "Relu", "pads": [1, 1, 1, 1]}, 1),
    ("FusedConv", "i f h z", {"activation": "Relu", "pads": [1, 1, 1, 1]}, 1),
    ("FusedConv", "i f", {"activation": "Clip", "activation_params": [-0.5, 0.5],
                          "strides": [2, 2]}, 1),
    ("SkipLayerNormalization", "x r g", {"epsilon": 1e-5}, 1),
    ("SkipLayerNormalization", "x r g b c", {"epsilon": 1e-5}, 4),
    ("SimplifiedLayerNormalization", "x g", {"epsilon": 1e-6, "axis": -1}, 1),
    ("SkipSimplifiedLayerNormalization", "x r g", {"epsilon": 1e-6}, 1),
    ("SkipSimplifiedLayerNormalization", "x r g c", {"epsilon": 1e-6}, 4),
]
DATA = ("x", "r", "q", "k", "n", "m", "i", "z")


def build(path, op, operands, attributes, results, dtype=np.float32):
    rng = np.random.default_rng(11)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    arrays = {n: rng.standard_normal(SIZES[n]).astype(dtype) for n in operands}
    names = [f"y{i}" if i in (0, 3) else "" for i in range(results)]
    # onnxruntime has this one among the standard operators.
    domain = "" if op.startswith("SimplifiedLayer") else "com.microsoft"
    node = helper.make_node(op, operands, names, name="fused", domain=domain,
                            **attributes)
    value = lambda n, shape: helper.make_tensor_value_info(n, kind, shape)
    graph = helper.make_graph(
        [node], op, [value(n, SIZES[n]) for n in operands if n in DATA],
        [value(n, None) for n in names if n],
        [numpy_helper.from_array(arrays[n], n) for n in operands if n not in DATA])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]), path)
    return {n: a for n, a in arrays.items() if n in DATA}, [n for n in names if n]


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("op,operands,attributes,results", CASES)
def test_equals_onnxruntime(op, operands, attributes, results, ranks, tmp_path):
    model, so = tmp_path / "m.onnx", tmp_path / "m.so"
    arrays, names = build(model, op, operands.split(), attributes, results)
    expected = onnxruntime.InferenceSession(str(model)).run(names, arrays)
    runs.tool("comm-opt", model, "--tp", ranks, "--comm-pipeline", "--emit=so", "-o", so)
    options = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    runs.tool("comm-run", so, "-n", ranks, *options, "--output-dir", tmp_path / "out")
    for name, reference in zip(names, expected):
        np.testing.assert_allclose(np.load(tmp_path / "out" / f"{name}.npy"), reference,
                                   rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("op,operands,attributes,results,said", [
    ("QLinearAdd", "x", {}, 1, "QDQ"),
    ("MoE", "x r z", {}, 1, "fused operators are not supported"),
    ("MatMulNBits", "x r z", {"K": 64, "N": 8, "block_size": 16, "bits": 3}, 1,
     "weights of 3 bits are not supported"),
    ("GroupQueryAttention", "x r z", {}, 1, "attribute 'num_heads' is missing"),
    ("FusedConv", "i f", {"activation": "Swirl"}, 1, "activation 'Swirl'"),
    ("BiasGelu", "x", {}, 1, "operand 1 is missing"),
])
def test_refusals_name_the_node(op, operands, attributes, results, said, tmp_path):
    model = tmp_path / "m.onnx"
    build(model, op, operands.split(), attributes, results)
    done = runs.tool("comm-opt", model, "--comm-pipeline", "-o", tmp_path / "m.mlir",
                     ok=False)
    assert done.returncode != 0
    assert f"{model}: node 'fused' (com.microsoft.{op}, opset 1): " in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("k,block,zero,bias", [(64, 16, None, False), (64, 32, "packed", False),
                                               (72, 16, "packed", True), (64, 16, "float", True)])
def test_products_with_quantised_blocks(bits, k, block, zero, bias, tmp_path):
    if bits == 8 and zero == "float":
        pytest.skip("onnxruntime does not have it")
    rng = np.random.default_rng(bits)
    n, blocks = 12, -(-k // block)
    matrices = {"w": rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
                "s": rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)}
    if zero == "packed":
        matrices["z"] = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    elif zero:
        matrices["z"] = rng.uniform(0, 15, (n, blocks)).astype(np.float32)
    if bias:
        matrices["b"] = rng.standard_normal(n).astype(np.float32)
    x = rng.standard_normal((2, 4, k)).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s", "z" if zero else "", "", "b" if bias else ""], ["y"],
        name="fused", domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, n])],
        [numpy_helper.from_array(a, name) for name, a in matrices.items()])
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]), model)
    expected = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})[0]
    np.save(tmp_path / "x.npy", x)
    runs.tool("comm-run", model, "--tp", 2, "--input", f"x={tmp_path / 'x.npy'}", "--no-cache",
              "--output-dir", tmp_path / "out")
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), expected,
                               rtol=1e-4, atol=1e-4)
