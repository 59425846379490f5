# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small writer of ONNX graphs that names things as the PyTorch exporter does.

Nodes are called `/scope/Op` (with `_1`, `_2` when repeated) and their values
`/scope/Op_output_0`, so that error messages about the test models read like
messages about real exports. Operators whose axes moved from attributes to
inputs between opsets have one method each, which writes the form of the
graph's opset.
"""

import contextlib
import os
import zlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper

# The IR version that came with an opset, so that old models look old.
IR_OF_OPSET = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8,
               16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11,
               24: 12, 25: 13, 26: 13, 27: 13}


def random_weights(seed, dtype=np.float32):
    """A weight source for tests: `weights(name, shape)` depends on both only.

    Matrices have standard deviation 1/sqrt(fan in), scales of norms lie around
    1, everything else is small, so that activations keep their size through
    any number of layers. Uses numpy's legacy stream, which is frozen: the
    files that are checked in can be made again with every numpy.
    """

    def weights(name, shape):
        state = np.random.RandomState(zlib.crc32(f"{seed}/{name}".encode()))
        values = state.standard_normal(size=shape)
        leaf = name.lower()
        if leaf.endswith("running_var"):
            values = 1.0 + 0.3 * np.abs(values)
        elif len(shape) == 1 and "weight" in leaf:
            values = 1.0 + 0.1 * values
        elif len(shape) == 1:
            values = 0.05 * values
        elif "embed" in leaf or "wte" in leaf or "wpe" in leaf:
            values = 0.5 * values
        elif len(shape) == 4:  # convolution: [out, in, kh, kw]
            values = values * np.sqrt(2.0 / np.prod(shape[1:]))
        else:  # [..., in, out]
            values = values / np.sqrt(shape[-2])
        return values.astype(dtype)

    return weights


class Graph:
    """Collects nodes, initializers, inputs and outputs of one model."""

    def __init__(self, name, opset=17, ir_version=None):
        self.name = name
        self.opset = opset
        self.ir_version = ir_version or IR_OF_OPSET[opset]
        self.nodes = []
        self.initializers = {}
        self.inputs = []
        self.outputs = []
        self._scope = []
        self._used = {}

    # Naming ---------------------------------------------------------------
    @contextlib.contextmanager
    def scope(self, part):
        self._scope.append(part)
        try:
            yield
        finally:
            self._scope.pop()

    def _unique(self, op):
        base = "/" + "/".join(self._scope + [op])
        count = self._used.get(base, 0)
        self._used[base] = count + 1
        return base if count == 0 else f"{base}_{count}"

    # The elements of a graph ------------------------------------------------
    def input(self, name, dtype, shape):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, value, dtype, shape, name=None):
        """Declare `value` an output; with a name, the last node is renamed."""
        if name and name != value:
            for node in self.nodes:
                for i, old in enumerate(node.output):
                    if old == value:
                        node.output[i] = name
                for i, old in enumerate(node.input):
                    if old == value:
                        node.input[i] = name
            value = name
        self.outputs.append(helper.make_tensor_value_info(value, dtype, shape))
        return value

    def weight(self, name, array):
        """An initializer; asking twice for one name gives the same tensor."""
        if name not in self.initializers:
            self.initializers[name] = np.ascontiguousarray(array)
        return name

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        """Append a node; returns its output's name, or a list of several."""
        name = self._unique(op)
        results = [f"{name}_output_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(op, list(inputs), results, name=name,
                             domain=domain, **attributes))
        return results[0] if outputs == 1 else results

    def const(self, value, dtype=np.float32):
        array = np.asarray(value, dtype=dtype)
        return self.node("Constant", [], value=numpy_helper.from_array(array))

    def ints(self, *values):
        """A 1-D int64 constant."""
        return self.const(list(values), np.int64)

    # Operators whose form depends on the opset --------------------------------
    def unsqueeze(self, x, *axes):
        if self.opset < 13:
            return self.node("Unsqueeze", [x], axes=list(axes))
        return self.node("Unsqueeze", [x, self.ints(*axes)])

    def squeeze(self, x, *axes):
        if self.opset < 13:
            return self.node("Squeeze", [x], axes=list(axes))
        return self.node("Squeeze", [x, self.ints(*axes)])

    def reduce(self, op, x, *axes, keepdims=1):
        as_input = self.opset >= (13 if op == "ReduceSum" else 18)
        if as_input:
            return self.node(op, [x, self.ints(*axes)], keepdims=keepdims)
        return self.node(op, [x], axes=list(axes), keepdims=keepdims)

    def split(self, x, sizes, axis):
        if self.opset < 13:
            return self.node("Split", [x], len(sizes), axis=axis,
                             split=list(sizes))
        return self.node("Split", [x, self.ints(*sizes)], len(sizes), axis=axis)

    def slice(self, x, start, end, axis):
        """start and end: ints, or names of 1-D int64 values of one element."""
        fix = lambda v: self.ints(v) if isinstance(v, int) else v
        return self.node("Slice", [x, fix(start), fix(end), self.ints(axis)])

    # Patterns of the exporter ---------------------------------------------------
    def dim(self, x, axis):
        """Shape -> Gather: a scalar int64."""
        return self.node("Gather", [self.node("Shape", [x]),
                                    self.const(axis, np.int64)], axis=0)

    def shape_of(self, *parts):
        """Unsqueeze/Concat of scalars and ints into a shape."""
        pieces = [self.ints(p) if isinstance(p, int) else self.unsqueeze(p, 0)
                  for p in parts]
        return self.node("Concat", pieces, axis=0)

    def reshape(self, x, *parts):
        if all(isinstance(p, int) for p in parts):
            return self.node("Reshape", [x, self.ints(*parts)])
        return self.node("Reshape", [x, self.shape_of(*parts)])

    def transpose(self, x, *perm):
        return self.node("Transpose", [x], perm=list(perm))

    def cast(self, x, to):
        return self.node("Cast", [x], to=to)

    def linear(self, x, weight, bias=None):
        """MatMul with a folded transpose, then Add with the bias first."""
        y = self.node("MatMul", [x, weight])
        return y if bias is None else self.node("Add", [bias, y])

    def layer_norm(self, x, weight, bias, epsilon):
        """LayerNormalization from opset 17 on, else what it was exported as."""
        if self.opset >= 17:
            return self.node("LayerNormalization", [x, weight, bias], axis=-1,
                             epsilon=epsilon)
        mean = self.reduce("ReduceMean", x, -1)
        centred = self.node("Sub", [x, mean])
        square = self.node("Pow", [centred, self.const(2.0)])
        variance = self.reduce("ReduceMean", square, -1)
        deviation = self.node(
            "Sqrt", [self.node("Add", [variance, self.const(epsilon)])])
        y = self.node("Div", [centred, deviation])
        return self.node("Add", [self.node("Mul", [y, weight]), bias])

    # Finishing ------------------------------------------------------------------
    def model(self, imports=()):
        tensors = [numpy_helper.from_array(array, name)
                   for name, array in self.initializers.items()]
        graph = helper.make_graph(self.nodes, self.name, self.inputs,
                                  self.outputs, tensors)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, v) for domain, v in imports]
        model = helper.make_model(graph, opset_imports=opsets,
                                  producer_name="concord-test-models")
        model.ir_version = self.ir_version
        return model


FLOAT = TensorProto.FLOAT
FLOAT16 = TensorProto.FLOAT16
INT64 = TensorProto.INT64
BOOL = TensorProto.BOOL


ALIGNMENT = 4096  # of tensors in an external data file, so that they can be mapped


def save(model, path, external=False):
    """Write a model; with `external`, big tensors go to NAME.onnx.data beside it.

    Both files appear whole or not at all. The model is changed: its big tensors
    then refer to the file.
    """
    path = str(path)
    if external:
        _externalise(model, path + ".data")
    with open(path + ".part", "wb") as file:
        file.write(model.SerializeToString(deterministic=True))
    os.replace(path + ".part", path)


def _externalise(model, path, threshold=1024):
    with open(path + ".part", "wb") as file:
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) < threshold:
                continue
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            del tensor.external_data[:]
            for key, value in (("location", os.path.basename(path)),
                               ("offset", file.tell()),
                               ("length", len(tensor.raw_data))):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, str(value)
            file.write(tensor.raw_data)
            tensor.data_location = TensorProto.EXTERNAL
            tensor.ClearField("raw_data")
    os.replace(path + ".part", path)
