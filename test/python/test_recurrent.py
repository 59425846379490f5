# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""RNN, GRU and LSTM, written down step by step, against onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import model_runs as runs

T, B, IN, HIDDEN = 5, 4, 6, 8
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
CASES = [
    ("RNN", {}, "b"),
    ("RNN", {"direction": "reverse", "activations": ["Relu"]}, "b l h"),
    ("GRU", {}, "b h"),
    ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}, "b l h"),
    ("GRU", {"linear_before_reset": 1}, ""),
    ("GRU", {"activations": ["Tanh", "Sigmoid"]}, "b"),
    ("LSTM", {}, ""),
    ("LSTM", {"direction": "bidirectional"}, "b l h c"),
    ("LSTM", {"input_forget": 1, "direction": "reverse"}, "b p"),
    ("LSTM", {"activations": ["Sigmoid", "Softsign", "Relu"]}, "b h c p"),
]


def build(path, op, attributes, given, layout=0):
    rng = np.random.default_rng(3)
    normal = lambda *shape: (rng.standard_normal(shape) / 2).astype(np.float32)
    d = 2 if attributes.get("direction") == "bidirectional" else 1
    g = GATES[op]
    data = {"x": normal(T, B, IN)}
    weights = {"w": normal(d, g * HIDDEN, IN), "r": normal(d, g * HIDDEN, HIDDEN)}
    if "b" in given:
        weights["b"] = normal(d, 2 * g * HIDDEN)
    if "p" in given:
        weights["p"] = normal(d, 3 * HIDDEN)
    if "l" in given:
        data["l"] = np.array([5, 2, 1, 4], np.int32)
    for state in "hc":
        if state in given:
            data[state] = normal(d, B, HIDDEN)
    names = ["y", "yh", "yc"][:3 if op == "LSTM" else 2]
    order = ["x", "w", "r", "b", "l", "h"] + (["c", "p"] if op == "LSTM" else [])
    node = helper.make_node(op, [n if n in data or n in weights else "" for n in order], names,
                            name="cell", hidden_size=HIDDEN, **attributes,
                            **({"layout": 1} if layout else {}))
    if layout:
        data = {n: np.swapaxes(a, 0, 1).copy() if a.ndim == 3 else a for n, a in data.items()}
    graph = helper.make_graph(
        [node], op,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in data.items()],
        [helper.make_tensor_value_info(n, 1, None) for n in names],
        [numpy_helper.from_array(a, n) for n, a in weights.items()])
    onnx.save(helper.make_model(graph, ir_version=8,
                                opset_imports=[helper.make_opsetid("", 17)]), path)
    return data, names


def run(model, data, tmp_path, *options):
    for name, array in data.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ("--input", f"{name}={tmp_path / name}.npy")
    runs.tool("comm-run", model, *options, "--no-cache", "--output-dir", tmp_path / "out")


@pytest.mark.parametrize("op,attributes,given", CASES)
def test_equals_onnxruntime(op, attributes, given, tmp_path):
    model = tmp_path / "m.onnx"
    data, names = build(model, op, attributes, given.split())
    expected = onnxruntime.InferenceSession(str(model)).run(names, data)
    run(model, data, tmp_path, "--tp", 2)
    for name, reference in zip(names, expected):
        np.testing.assert_allclose(np.load(tmp_path / "out" / f"{name}.npy"), reference,
                                   rtol=1e-5, atol=1e-5)
    # Batch first, which onnxruntime does not have.
    data, _ = build(model, op, attributes, given.split(), layout=1)
    run(model, data, tmp_path, "-n", 1)
    for name, reference in zip(names, expected):
        axes = (2, 0, 1, 3) if name == "y" else (1, 0, 2)
        np.testing.assert_allclose(np.load(tmp_path / "out" / f"{name}.npy"),
                                   np.transpose(reference, axes), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attributes,said", [
    ({"clip": 3.0}, "attribute 'clip' is not supported"),
    ({"activations": ["Affine"]}, "activation 'Affine' is not supported"),
    ({"activations": ["Tanh", "Relu"]}, "has 2 names and should have 1"),
])
def test_refusals_name_the_node(attributes, said, tmp_path):
    model = tmp_path / "m.onnx"
    build(model, "RNN", attributes, "b")
    done = runs.tool("comm-opt", model, "--comm-pipeline", "-o", tmp_path / "m.mlir", ok=False)
    assert done.returncode == 1
    assert f"{model}: node 'cell' (RNN, opset 17): " in done.stderr
    assert said in done.stderr
