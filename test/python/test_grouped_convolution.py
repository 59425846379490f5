# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions in groups, depthwise ones above all, alone and in the blocks of mobile
networks: onnxruntime's result, on one rank and split over several."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import model_runs as runs

pytestmark = pytest.mark.skipif(
    not runs.built(), reason="build/bin/comm-opt and comm-run are not built")


class Net:
    """A network of nodes from `x`; the last result is the model's."""

    def __init__(self, *shape):
        self.shape, self.at, self.channels = shape, "x", shape[1]
        self.nodes, self.parameters = [], []
        self.random = np.random.default_rng(len(shape))

    def value(self, array):
        name = f"p{len(self.parameters)}"
        self.parameters.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind, *operands, **attributes):
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.at, *operands], [name], name=name,
                                           **attributes))
        self.at = name
        return self

    def conv(self, out, group, kernel=3, kind="Conv", **attributes):
        size = [kernel] * (len(self.shape) - 2)
        shape = ([out, self.channels // group] if kind == "Conv" else
                 [self.channels, out // group])
        weight = self.random.standard_normal(shape + size) / 4
        bias = self.random.standard_normal(out)
        self.channels = out
        attributes = {"pads": [kernel // 2] * 2 * len(size), **attributes}
        return self.op(kind, self.value(weight.astype(np.float32)),
                       self.value(bias.astype(np.float32)), group=group, **attributes)

    def ints(self, *values):
        return self.value(np.array(values, np.int64))

    def save(self, path):
        result = [helper.make_tensor_value_info(self.at, TensorProto.FLOAT, None)]
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        graph = helper.make_graph(self.nodes, "g", given, result, self.parameters)
        model = helper.make_model(graph, ir_version=8,
                                  opset_imports=[helper.make_opsetid("", 17)])
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def shuffled(net, groups):
    """Channels of the groups side by side, as ShuffleNet exchanges them."""
    batch, channels, *size = net.shape[0], net.channels, *net.shape[2:]
    net.op("Reshape", net.ints(batch, groups, channels // groups, *size))
    net.op("Transpose", perm=[0, 2, 1, 3, 4])
    return net.op("Reshape", net.ints(batch, channels, *size))


NETS = {
    "depthwise": lambda: Net(2, 8, 9, 7).conv(8, 8),
    "two_of_each": lambda: Net(2, 8, 6, 6).conv(16, 8),
    "in_two": lambda: Net(2, 8, 6, 6).conv(12, 2),
    "in_three": lambda: Net(1, 6, 6, 6).conv(6, 3),
    "strided": lambda: Net(2, 8, 9, 9).conv(8, 8, strides=[2, 2]),
    "dilated": lambda: Net(2, 8, 9, 9).conv(8, 4, dilations=[2, 2]),
    "causal": lambda: Net(2, 8, 16).conv(8, 8, kernel=4, pads=[3, 0]),
    "volume": lambda: Net(1, 4, 5, 5, 5).conv(4, 4),
    "transposed": lambda: Net(2, 8, 6, 6).conv(12, 2, kind="ConvTranspose"),
    "mobile": lambda: (Net(2, 8, 8, 8).conv(32, 1, kernel=1).op("Relu").conv(32, 32)
                       .op("Relu").conv(8, 1, kernel=1)),
    "shuffle": lambda: (shuffled(Net(2, 8, 6, 6).conv(16, 2, kernel=1), 2)
                        .conv(16, 16).conv(8, 2, kernel=1)),
}


@pytest.mark.parametrize("name, ranks", [
    *((name, 2) for name in NETS),
    *((name, ranks) for name in ("in_two", "mobile", "shuffle") for ranks in (1, 4))])
def test_as_onnxruntime(name, ranks, tmp_path):
    net, model = NETS[name](), tmp_path / "m.onnx"
    net.save(model)
    x = np.random.default_rng(1).standard_normal(net.shape).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    (want,) = onnxruntime.InferenceSession(
        str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    runs.tool("comm-opt", model, "--tp", ranks, "--comm-pipeline", "--emit=so", "-o",
              tmp_path / "m.so")
    runs.tool("comm-run", tmp_path / "m.so", "-n", ranks, "--input",
              f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out")
    np.testing.assert_allclose(np.load(tmp_path / "out" / f"{net.at}.npy"), want,
                               rtol=1e-4, atol=1e-5)
