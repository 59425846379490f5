# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loop, Scan and sequences of tensors: unrolled while the model is read."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import model_runs as runs

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(11)
W = (RNG.standard_normal((16, 16)) / 4).astype(np.float32)
U = (RNG.standard_normal((16, 16)) / 4).astype(np.float32)


def info(name, shape=None, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def ints(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def save(path, nodes, inputs, outputs, weights):
    graph = helper.make_graph(nodes, "g", inputs, outputs,
                              [numpy_helper.from_array(W, "w"), numpy_helper.from_array(U, "u"),
                               *weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)


def recurrent_scan(path):
    """h = tanh(x[:, t] W + h U) over a sequence that is read backwards, and all h."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["xt", "w"], ["a"]),
         helper.make_node("MatMul", ["h", "u"], ["b"]),
         helper.make_node("Add", ["a", "b"], ["c"]),
         helper.make_node("Tanh", ["c"], ["hn"]),
         helper.make_node("Identity", ["hn"], ["y"])], "step",
        [info("h", [4, 16]), info("xt", [4, 16])], [info("hn", [4, 16]), info("y", [4, 16])])
    save(path, [helper.make_node("Scan", ["h0", "x"], ["last", "all"], name="scan", body=body,
                                 num_scan_inputs=1, scan_input_axes=[1],
                                 scan_input_directions=[1], scan_output_axes=[1],
                                 scan_output_directions=[1])],
         [info("h0", [4, 16]), info("x", [4, 5, 16])],
         [info("last", [4, 16]), info("all", [4, 5, 16])], [])


def counted_loop(path):
    """A loop of three rounds whose state grows, with a branch on the round's number."""
    then = helper.make_graph([helper.make_node("MatMul", ["v", "w"], ["t"])], "then", [],
                             [info("t")])
    other = helper.make_graph([helper.make_node("MatMul", ["v", "u"], ["e"])], "else", [],
                              [info("e")])
    body = helper.make_graph(
        [helper.make_node("Equal", ["i", "one"], ["is_one"]),
         helper.make_node("If", ["is_one"], ["m"], then_branch=then, else_branch=other),
         helper.make_node("Concat", ["all", "m"], ["longer"], axis=0),
         helper.make_node("ReduceMax", ["m"], ["most"], axes=[1], keepdims=0),
         helper.make_node("Identity", ["c"], ["more"])], "round",
        [info("i", [], INT64), info("c", [], BOOL), info("v", [4, 16]), info("all")],
        [info("more", [], BOOL), info("m", [4, 16]), info("longer"), info("most", [4])])
    save(path, [helper.make_node("Loop", ["trips", "", "x", "x"], ["v", "all", "most"],
                                 name="rounds", body=body)],
         [info("x", [4, 16])],
         [info("v", [4, 16]), info("all", [16, 16]), info("most", [3, 4])],
         [ints("trips", 3), ints("one", 1)])


def while_loop(path):
    """A loop that ends by a condition which is computed from the round's number."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["v", "w"], ["m"]),
         helper.make_node("Less", ["i", "last"], ["more"])], "round",
        [info("i", [], INT64), info("c", [], BOOL), info("v", [4, 16])],
        [info("more", [], BOOL), info("m", [4, 16])])
    save(path, [helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)],
         [info("x", [4, 16])], [info("y", [4, 16])],
         [ints("last", 2), numpy_helper.from_array(np.array(True), "yes")])


def sequences(path):
    """Parts of a tensor in a list that a loop makes longer, and puts together again."""
    body = helper.make_graph(
        [helper.make_node("SequenceAt", ["parts", "i"], ["p"]),
         helper.make_node("MatMul", ["p", "w"], ["m"]),
         helper.make_node("SequenceInsert", ["s", "m"], ["longer"]),
         helper.make_node("Identity", ["c"], ["more"])], "round",
        [info("i", [], INT64), info("c", [], BOOL),
         helper.make_tensor_sequence_value_info("s", FLOAT, None)],
        [info("more", [], BOOL), helper.make_tensor_sequence_value_info("longer", FLOAT, None)])
    save(path, [helper.make_node("SplitToSequence", ["x", "two"], ["parts"], axis=1),
                helper.make_node("SequenceLength", ["parts"], ["n"]),
                helper.make_node("SequenceEmpty", [], ["none"], dtype=FLOAT),
                helper.make_node("Loop", ["n", "", "none"], ["made"], body=body),
                helper.make_node("SequenceErase", ["made", "zero"], ["rest"]),
                helper.make_node("ConcatFromSequence", ["made"], ["joined"], axis=1),
                helper.make_node("SequenceAt", ["rest", "minus"], ["y"])],
         [info("x", [4, 5, 16])], [info("joined", [4, 5, 16]), info("y", [4, 1, 16])],
         [ints("two", 2), ints("zero", 0), ints("minus", -1)])


@pytest.mark.parametrize("options", [["--tp", "2"], ["--dp", "2"]], ids=["tp2", "dp2"])
@pytest.mark.parametrize("make", [recurrent_scan, counted_loop, while_loop, sequences])
def test_unrolled(make, options, tmp_path):
    if make is counted_loop and options[0] == "--dp":
        pytest.skip("its state grows along the batch")
    model = tmp_path / "m.onnx"
    make(model)
    session = onnxruntime.InferenceSession(str(model))
    feed = {i.name: RNG.standard_normal(i.shape).astype(np.float32)
            for i in session.get_inputs()}
    inputs = []
    for name, array in feed.items():
        np.save(tmp_path / f"{name}.npy", array)
        inputs += ["--input", f"{name}={tmp_path / name}.npy"]
    runs.tool("comm-run", model, *options, *inputs, "--no-cache", "--output-dir",
              tmp_path / "out")
    for output, expected in zip(session.get_outputs(), session.run(None, feed)):
        np.testing.assert_allclose(np.load(tmp_path / "out" / f"{output.name}.npy"), expected,
                                   rtol=1e-5, atol=1e-5)


def test_how_often_must_be_known(tmp_path):
    body = helper.make_graph(
        [helper.make_node("MatMul", ["v", "w"], ["m"]),
         helper.make_node("ReduceSum", ["m"], ["sum"], keepdims=0),
         helper.make_node("Less", ["sum", "limit"], ["more"])], "round",
        [info("i", [], INT64), info("c", [], BOOL), info("v", [4, 16])],
        [info("more", [], BOOL), info("m", [4, 16])])
    model = tmp_path / "m.onnx"
    save(model, [helper.make_node("Loop", ["", "", "x"], ["y"], name="search", body=body)],
         [info("x", [4, 16])], [info("y", [4, 16])],
         [numpy_helper.from_array(np.float32(3), "limit")])
    done = runs.tool("comm-opt", model, "--tp", 2, "--comm-pipeline", "-o", "/dev/null", ok=False)
    assert done.returncode == 1
    assert ("node 'search' (Loop, opset 17): how often the loop runs must be known; 'search/0/more' is "
            "computed from input x" in done.stderr), done.stderr
