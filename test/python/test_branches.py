# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""If with a condition that is only known at run time."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import model_runs as runs


def branching_model(path):
    """y = (flag ? x W : relu(x) + b) + x, with W and x captured by the branches."""
    rng = np.random.default_rng(7)
    weight = rng.standard_normal((16, 16)).astype(np.float32)
    bias = rng.standard_normal(16).astype(np.float32)
    y = helper.make_tensor_value_info("t", TensorProto.FLOAT, [4, 16])
    e = helper.make_tensor_value_info("e", TensorProto.FLOAT, [4, 16])
    then = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["t"], name="then/mm")],
                             "then", [], [y])
    other = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"], name="else/relu"),
         helper.make_node("Add", ["r", "b"], ["e"], name="else/add")], "else", [], [e])
    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["c"], name="choice", then_branch=then,
                          else_branch=other),
         helper.make_node("Add", ["c", "x"], ["y"], name="sum")], "branching",
        [helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
         helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("flag", [False, True])
def test_both_arms(flag, ranks, tmp_path):
    model, so = tmp_path / "m.onnx", tmp_path / "m.so"
    branching_model(model)
    runs.tool("comm-opt", model, "--tp", ranks, "--comm-pipeline", "--emit=so", "-o", so)
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    arrays = {"x": x, "flag": np.array(flag)}
    expected = onnxruntime.InferenceSession(str(model)).run(None, arrays)[0]
    options = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    runs.tool("comm-run", so, "-n", ranks, *options, "--output-dir", tmp_path / "out")
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), expected,
                               rtol=1e-5, atol=1e-5)
