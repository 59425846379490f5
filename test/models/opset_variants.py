#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One model per opset version of every operator that real graphs use.

  opset_variants.py --out DIR [--newest 23]

writes DIR/OP_VERSION[_CASE]/model.onnx with test_data_set_0/input_i.pb and
output_i.pb, the layout of the ONNX node tests, so that the same driver runs
them, and DIR/manifest.json. Versions are those that some opset from 7 to the
newest supported one resolves to; a model imports the lowest such opset. The
expected outputs are onnxruntime's. Where it has no kernel for a version, they
are those of onnx.reference, and the manifest says so.

What a version changed is what its model has: attributes that became inputs,
the meaning of Softmax's axis, negative axes, ceil_mode, reductions of a
scatter, allowzero, and so on.
"""

import argparse
import json
import os

import numpy as np
import onnx
import onnx.defs
from onnx import TensorProto, helper, numpy_helper

OLDEST = 7
F, I = np.float32, np.int64


def history():
    """Operator -> its versions, ascending."""
    versions = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, set()).add(schema.since_version)
    return {op: sorted(v) for op, v in versions.items()}


def reachable(versions, newest):
    """Versions that an import of OLDEST..newest resolves to."""
    versions = [v for v in versions if v <= newest]
    return [v for i, v in enumerate(versions)
            if i + 1 == len(versions) or versions[i + 1] > OLDEST]


def rand(*shape, seed=0):
    return np.random.RandomState(seed + 1).standard_normal(shape).astype(F)


class Variant:
    """inputs are fed; constants are initializers; order gives the node's inputs.

    order lists names of both, "" for an absent optional input. Attributes go to
    the node.
    """

    def __init__(self, inputs=(), constants=(), order=None, outputs=1, case="",
                 **attributes):
        self.inputs = dict(inputs)
        self.constants = {k: np.asarray(v) for k, v in dict(constants).items()}
        self.order = order if order is not None else (
            list(self.inputs) + list(self.constants))
        self.outputs = outputs
        self.case = case
        self.attributes = attributes


def unary(v, positive=False, **attributes):
    x = rand(2, 3, 4)
    return [Variant({"x": np.abs(x) + F(0.1) if positive else x}, **attributes)]


def binary(v, dtype=F):
    a, b = rand(2, 4, 6), rand(4, 1, seed=1)
    if dtype == bool:
        return [Variant({"a": a > 0, "b": b > 0})]
    whole = Variant({"a": (a * 10).astype(I), "b": (b * 10).astype(I) + 20},
                    case="int64")
    return [Variant({"a": a, "b": b}), whole]


def compare(v):
    a, b = np.round(rand(2, 4, 6)), np.round(rand(4, 1, seed=1))
    if v < 9:  # float only before; Equal knew integers only until 11
        return [Variant({"a": a, "b": b})]
    return [Variant({"a": a, "b": b}),
            Variant({"a": a.astype(I), "b": b.astype(I)}, case="int64")]


def equal(v):
    a, b = np.round(rand(2, 4, 6)), np.round(rand(4, 1, seed=1))
    out = [Variant({"a": a.astype(I), "b": b.astype(I)}, case="int64")]
    return out + ([Variant({"a": a, "b": b})] if v >= 11 else [])


def variadic(v):
    return [Variant({"a": rand(2, 4, 6), "b": rand(4, 1, seed=1),
                     "c": rand(6, seed=2)}) if v >= 8 else
            Variant({"a": rand(2, 4), "b": rand(2, 4, seed=1)})]


def axes_input(v, since, x, axes, outputs=1, **attributes):
    """Axes as an attribute before version `since`, else as an input."""
    if v < since:
        return Variant({"x": x}, outputs=outputs, axes=axes, **attributes)
    return Variant({"x": x}, {"axes": np.array(axes, I)}, outputs=outputs,
                   **attributes)


def reduction(since):
    def make(v):
        x = rand(2, 4, 6)
        out = [axes_input(v, since, x, [1], keepdims=1),
               axes_input(v, since, x, [0, 2], keepdims=0, case="two")]
        if v >= 11:
            out.append(axes_input(v, since, x, [-1], keepdims=1,
                                  case="negative"))
        out.append(Variant({"x": x}, keepdims=0, case="all"))
        if v >= since:
            out.append(Variant({"x": x}, noop_with_empty_axes=1, case="noop"))
        return out
    return make


def gemm(v):
    a, b, c = rand(4, 6), rand(8, 6, seed=1), rand(8, seed=2)
    out = [Variant({"a": a, "b": b, "c": c}, transB=1, alpha=0.5, beta=2.0)]
    if v >= 11:
        out.append(Variant({"a": a.T.copy(), "b": b.T.copy()}, transA=1,
                           case="no_c"))
    return out


def softmax(v):
    x = rand(2, 4, 6)
    out = [Variant({"x": x}, case="default"), Variant({"x": x}, axis=1)]
    return out + ([Variant({"x": x}, axis=-1, case="last")] if v >= 11 else [])


def reshape(v):
    x = rand(2, 4, 6)
    out = [Variant({"x": x}, {"shape": np.array([0, -1, 3], I)})]
    if v >= 14:
        out.append(Variant({"x": np.zeros((2, 0, 6), F)},
                           {"shape": np.array([3, 0, 5], I)}, allowzero=1,
                           case="allowzero"))
    return out


def split(v):
    x = rand(2, 6, 4)
    if v < 13:
        return [Variant({"x": x}, outputs=3, axis=1),
                Variant({"x": x}, outputs=2, axis=1, split=[2, 4],
                        case="uneven")]
    uneven = Variant({"x": x}, {"split": np.array([2, 4], I)}, outputs=2,
                     axis=1, case="uneven")
    if v < 18:
        return [Variant({"x": x}, outputs=3, axis=1), uneven]
    return [Variant({"x": x}, outputs=3, axis=1, num_outputs=3), uneven,
            Variant({"x": rand(2, 7, 4)}, outputs=3, axis=-2, num_outputs=3,
                    case="last_smaller")]


def slices(v):
    x = rand(6, 8, 4)
    if v < 10:
        return [Variant({"x": x}, starts=[1, -5], ends=[5, 1000], axes=[0, 1])]
    out = [Variant({"x": x}, {"starts": np.array([1, -5], I),
                              "ends": np.array([5, 1000], I),
                              "axes": np.array([0, 1], I),
                              "steps": np.array([2, 1], I)})]
    if v >= 11:
        out.append(Variant({"x": x}, {"starts": np.array([-1], I),
                                      "ends": np.array([-1000], I),
                                      "axes": np.array([-2], I),
                                      "steps": np.array([-1], I)},
                           case="backwards"))
    return out


def indices(low, high, *shape):
    return np.random.RandomState(5).randint(low, high, size=shape).astype(I)


def gather(v):
    low = -8 if v >= 11 else 0
    return [Variant({"x": rand(8, 6), "i": indices(low, 8, 2, 3)}, axis=0),
            Variant({"x": rand(4, 8), "i": indices(low, 8, 2, 2)}, axis=1,
                    case="axis1")]


def squeeze(v):
    out = [axes_input(v, 13, rand(2, 1, 4, 1), [1, 3]),
           Variant({"x": rand(1, 4, 1)}, case="all")]
    if v >= 11:
        out.append(axes_input(v, 13, rand(2, 1, 4, 1), [-1], case="negative"))
    return out


def unsqueeze(v):
    out = [axes_input(v, 13, rand(2, 4), [0, 3])]
    if v >= 11:
        out.append(axes_input(v, 13, rand(2, 4), [-1], case="negative"))
    return out


def shape(v):
    out = [Variant({"x": rand(2, 4, 6)})]
    return out + ([Variant({"x": rand(2, 4, 6)}, start=1, end=-1,
                           case="part")] if v >= 15 else [])


def cast(v):
    x = rand(3, 4) * 10
    out = [Variant({"x": x}, to=TensorProto.INT64, case="int64"),
           Variant({"x": np.round(x).astype(I)}, to=TensorProto.FLOAT),
           Variant({"x": np.round(x / 10)}, to=TensorProto.BOOL, case="bool"),
           Variant({"x": x}, to=TensorProto.FLOAT16, case="half")]
    return out


def constant(v):
    value = numpy_helper.from_array(rand(2, 4))
    out = [Variant(value=value)]
    if v >= 12:
        out += [Variant(value_int=3, case="int"),
                Variant(value_floats=[1.0, 2.5], case="floats"),
                Variant(value_ints=[1, 2, 3], case="ints")]
    return out


def constant_of_shape(v):
    return [Variant({}, {"shape": np.array([2, 4], I)}),
            Variant({}, {"shape": np.array([2, 4], I)}, case="int64",
                    value=helper.make_tensor("", TensorProto.INT64, [1], [7]))]


def topk(v):
    x = rand(3, 8)
    if v < 10:
        return [Variant({"x": x}, outputs=2, k=3, axis=1)]
    out = [Variant({"x": x}, {"k": np.array([3], I)}, outputs=2, axis=1)]
    if v >= 11:
        out.append(Variant({"x": x}, {"k": np.array([2], I)}, outputs=2,
                           axis=-1, largest=0, sorted=1, case="smallest"))
    return out


def onehot(v):
    low = -5 if v >= 11 else 0
    return [Variant({"i": indices(low, 5, 2, 3)},
                    {"depth": np.array(5, I), "values": np.array([0, 1], F)},
                    axis=-1)]


def gather_elements(v):
    return [Variant({"x": rand(4, 6), "i": indices(-4, 4, 3, 6)}, axis=0),
            Variant({"x": rand(4, 6), "i": indices(-6, 6, 4, 2)}, axis=-1,
                    case="last")]


def gather_nd(v):
    out = [Variant({"x": rand(4, 6, 2), "i": indices(0, 4, 3, 2)})]
    if v >= 12:
        out.append(Variant({"x": rand(2, 6, 4), "i": indices(0, 6, 2, 1)},
                           batch_dims=1, case="batch"))
    return out


def scatter_elements(v):
    data = {"x": rand(4, 6), "i": np.array([[0, 2, 1, 3, 0, 1],
                                           [1, 3, 2, 0, 2, 3]], I),
            "u": rand(2, 6, seed=1)}
    out = [Variant(data, axis=0)]
    extra = (["add", "mul"] if v >= 16 else []) + (
        ["max", "min"] if v >= 18 else [])
    return out + [Variant(data, axis=0, reduction=r, case=r) for r in extra]


def scatter_nd(v):
    data = {"x": rand(4, 6), "i": np.array([[1], [3]], I),
            "u": rand(2, 6, seed=1)}
    extra = (["add", "mul"] if v >= 16 else []) + (
        ["max", "min"] if v >= 18 else [])
    return [Variant(data)] + [Variant(data, reduction=r, case=r)
                              for r in extra]


def conditional(v):
    """A condition that is a constant, as exporters leave it behind."""
    def branch(name, op):
        node = helper.make_node(op, ["x"], [name])
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4])
        return helper.make_graph([node], name, [], [value])

    return [Variant({"x": rand(2, 4)}, {"c": np.array(flag)}, order=["c"],
                    then_branch=branch("yes", "Neg"),
                    else_branch=branch("no", "Tanh"), case=str(flag).lower())
            for flag in (True, False)]


def conv(v):
    x, w, b = rand(2, 4, 8, 8), rand(6, 4, 3, 3, seed=1), rand(6, seed=2)
    return [Variant({"x": x, "w": w, "b": b}, kernel_shape=[3, 3],
                    pads=[1, 1, 1, 1], strides=[2, 2]),
            Variant({"x": x, "w": rand(4, 2, 3, 3, seed=3)}, group=2,
                    dilations=[2, 2], case="group"),
            Variant({"x": x, "w": w}, auto_pad="SAME_UPPER", case="same")]


def batch_norm(v):
    named = {"scale": rand(4, seed=1), "b": rand(4, seed=2),
             "mean": rand(4, seed=3), "var": np.abs(rand(4, seed=4)) + F(0.5)}
    return [Variant({"x": rand(2, 4, 3, 3), **named}, epsilon=1e-3)]


def max_pool(v):
    x = rand(2, 4, 9, 9)
    out = [Variant({"x": x}, kernel_shape=[3, 3], strides=[2, 2],
                   pads=[1, 1, 1, 1])]
    if v >= 10:
        out += [Variant({"x": x}, kernel_shape=[2, 2], strides=[2, 2],
                        ceil_mode=1, case="ceil"),
                Variant({"x": x}, kernel_shape=[2, 2], dilations=[2, 2],
                        case="dilated")]
    return out


def average_pool(v):
    x = rand(2, 4, 9, 9)
    out = [Variant({"x": x}, kernel_shape=[3, 3], strides=[2, 2],
                   pads=[1, 1, 1, 1]),
           Variant({"x": x}, kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                   count_include_pad=1, case="with_pad")]
    if v >= 10:
        out.append(Variant({"x": x}, kernel_shape=[2, 2], strides=[2, 2],
                           ceil_mode=1, case="ceil"))
    if v >= 19:
        out.append(Variant({"x": x}, kernel_shape=[2, 2], dilations=[2, 2],
                           case="dilated"))
    return out


def flatten(v):
    x = rand(2, 4, 3, 5)
    return [Variant({"x": x}, axis=2)] + (
        [Variant({"x": x}, axis=-1, case="negative")] if v >= 11 else [])


def arg_max(v):
    x = np.round(rand(3, 8))
    out = [Variant({"x": x}, axis=1, keepdims=0)]
    if v >= 12:
        out.append(Variant({"x": x}, axis=-1, keepdims=1, select_last_index=1,
                           case="last"))
    return out


def clip(v):
    x = rand(2, 4, 6)
    if v < 11:
        return [Variant({"x": x}, min=-0.5, max=0.5)]
    return [Variant({"x": x}, {"lo": F(-0.5), "hi": F(0.5)}),
            Variant({"x": x}, {"hi": F(0.5)}, order=["x", "", "hi"],
                    case="no_min")]


def pad(v):
    x = rand(3, 4)
    if v < 11:
        return [Variant({"x": x}, mode="constant", pads=[1, 0, 0, 2],
                        value=1.5),
                Variant({"x": x}, mode="reflect", pads=[1, 0, 0, 2],
                        case="reflect")]
    pads = np.array([1, 0, 0, 2], I)
    out = [Variant({"x": x}, {"pads": pads, "value": F(1.5)}),
           Variant({"x": x}, {"pads": pads}, mode="edge", case="edge"),
           Variant({"x": x}, {"pads": pads}, mode="reflect", case="reflect")]
    if v >= 18:
        out.append(Variant({"x": x}, {"pads": np.array([1, 2], I),
                                      "axes": np.array([-1], I)},
                           order=["x", "pads", "", "axes"], case="axes"))
    if v >= 19:
        out.append(Variant({"x": x}, {"pads": pads}, mode="wrap", case="wrap"))
    return out


def cumsum(v):
    return [Variant({"x": rand(3, 4)}, {"axis": np.array(1, np.int32)}),
            Variant({"x": rand(3, 4)}, {"axis": np.array(-2, np.int32)},
                    exclusive=1, reverse=1, case="reverse")]


def attention(v):
    q, k, w = rand(2, 4, 6, 8), rand(2, 2, 6, 8, seed=1), rand(2, 2, 6, 8,
                                                              seed=2)
    flat = lambda x: x.transpose(0, 2, 1, 3).reshape(2, 6, -1).copy()
    return [Variant({"q": q, "k": k, "v": w}, is_causal=1),
            Variant({"q": flat(q), "k": flat(k), "v": flat(w)}, q_num_heads=4,
                    kv_num_heads=2, case="flat"),
            Variant({"q": q, "k": k, "v": w, "mask": rand(6, 6, seed=3)},
                    scale=0.25, case="mask")]


def rotary(v):
    angle = rand(2, 6, 4, seed=1)
    return [Variant({"x": rand(2, 4, 6, 8), "cos": np.cos(angle),
                     "sin": np.sin(angle)}),
            Variant({"x": rand(2, 4, 6, 8), "cos": np.cos(angle),
                     "sin": np.sin(angle)}, interleaved=1,
                    case="interleaved")]


def dropout(v):
    if v < 12:
        return [Variant({"x": rand(2, 4)}, ratio=0.5)]
    return [Variant({"x": rand(2, 4)}, {"ratio": F(0.5)})]


def moved(v):
    return [Variant({"x": rand(2, 4, 6)}, perm=[2, 0, 1]),
            Variant({"x": rand(2, 4, 6)}, case="default")]


def trilu(v):
    return [Variant({"x": rand(2, 5, 6)}),
            Variant({"x": rand(5, 6)}, {"k": np.array(-1, I)}, upper=0,
                    case="lower")]


def norm(op):
    def make(v):
        inputs = {"x": rand(2, 4, 8), "scale": rand(8, seed=1)}
        if op == "LayerNormalization":
            inputs["b"] = rand(8, seed=2)
        return [Variant(inputs, axis=-1, epsilon=1e-5)]
    return make


OPERATORS = {
    **{op: binary for op in ("Add", "Sub", "Mul", "Div")},
    **{op: (lambda v: binary(v, bool)) for op in ("And", "Or")},
    **{op: unary for op in ("Erf", "Tanh", "Sigmoid", "Neg", "Cos", "Sin",
                            "Relu", "Exp", "Abs", "Identity")},
    **{op: (lambda v: unary(v, True)) for op in ("Sqrt", "Log", "Reciprocal")},
    **{op: variadic for op in ("Min", "Max", "Sum")},
    "Pow": lambda v: [Variant({"x": np.abs(rand(2, 4)) + F(0.1),
                               "y": rand(4, seed=1)})] + (
        [Variant({"x": rand(2, 4)}, {"y": np.array(2, I)}, case="int64")]
        if v >= 12 else []),
    "MatMul": lambda v: [Variant({"a": rand(2, 4, 6), "b": rand(6, 8)}),
                         Variant({"a": rand(2, 3, 4, 6),
                                  "b": rand(3, 6, 8)}, case="batch"),
                         Variant({"a": rand(6), "b": rand(6, 8)},
                                 case="vector")],
    "Gemm": gemm, "Softmax": softmax, "ReduceMean": reduction(18),
    "ReduceMax": reduction(18), "ReduceSum": reduction(13),
    "LayerNormalization": norm("LayerNormalization"),
    "RMSNormalization": norm("RMSNormalization"),
    "Reshape": reshape, "Transpose": moved, "Split": split, "Slice": slices,
    "Concat": lambda v: [Variant({"a": rand(2, 3), "b": rand(2, 5)}, axis=1)]
    + ([Variant({"a": rand(2, 3), "b": rand(4, 3)}, axis=-2, case="negative")]
       if v >= 11 else []),
    "Gather": gather, "Unsqueeze": unsqueeze, "Squeeze": squeeze,
    "Shape": shape, "Cast": cast, "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Range": lambda v: [Variant({}, {"start": np.array(1, I),
                                     "limit": np.array(10, I),
                                     "delta": np.array(2, I)}),
                        Variant({}, {"start": F(5), "limit": F(-1),
                                     "delta": F(-1.5)}, case="float")],
    "Where": lambda v: [Variant({"c": rand(2, 1, 6) > 0, "a": rand(2, 4, 6),
                                 "b": rand(6, seed=1)})],
    "Expand": lambda v: [Variant({"x": rand(4, 1)},
                                 {"shape": np.array([2, 1, 6], I)})],
    "Equal": equal, "Less": compare, "Greater": compare, "Trilu": trilu,
    "RotaryEmbedding": rotary, "Attention": attention, "CumSum": cumsum,
    "ScatterND": scatter_nd, "ScatterElements": scatter_elements,
    "TopK": topk, "OneHot": onehot, "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "NonZero": lambda v: [Variant({}, {"x": np.array(
        [[0, 1.5, 0], [2, 0, -1]], F)})],
    "Not": lambda v: [Variant({"x": rand(2, 4) > 0})],
    "If": conditional, "Conv": conv, "BatchNormalization": batch_norm,
    "MaxPool": max_pool, "AveragePool": average_pool,
    "GlobalAveragePool": lambda v: [Variant({"x": rand(2, 4, 5, 7)})],
    "Flatten": flatten, "ArgMax": arg_max, "Clip": clip, "Pad": pad,
    "Gelu": lambda v: [Variant({"x": rand(2, 8)}),
                       Variant({"x": rand(2, 8)}, approximate="tanh",
                               case="tanh")],
    "Dropout": dropout,
}


def make_model(op, version, variant):
    """A ModelProto; output types are left to the shape inference of onnx."""
    from graphs.graph import IR_OF_OPSET
    opset = max(version, OLDEST)
    outputs = [f"y{i}" for i in range(variant.outputs)]
    node = helper.make_node(op, variant.order, outputs, name=f"{op}_{version}",
                            **variant.attributes)
    infos = [helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in variant.inputs.items()]
    tensors = [numpy_helper.from_array(a, name)
               for name, a in variant.constants.items()]
    results = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph([node], f"{op}_{version}", infos, results,
                              tensors)
    model = helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", opset)], producer_name="concord-test-models")
    model.ir_version = max(4, IR_OF_OPSET[opset])  # 4: constants need no input
    return model


def evaluate(model, inputs):
    """(outputs, oracle): onnxruntime's, else those of onnx.reference."""
    import onnxruntime as ort
    names = [o.name for o in model.graph.output]
    try:
        ort.set_default_logger_severity(4)
        options = ort.SessionOptions()
        options.graph_optimization_level = (
            ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(model.SerializeToString(), options,
                                       providers=["CPUExecutionProvider"])
        return session.run(names, inputs), "onnxruntime"
    except Exception as error:  # pylint: disable=broad-except
        if not any(k in str(error) for k in ("NOT_IMPLEMENTED",
                                             "INVALID_GRAPH")):
            raise
        from onnx.reference import ReferenceEvaluator
        return ReferenceEvaluator(model).run(None, inputs), "onnx.reference"


def declare_outputs(model, results):
    for value, array in zip(model.graph.output, results):
        value.CopyFrom(helper.make_tensor_value_info(
            value.name, helper.np_dtype_to_tensor_dtype(array.dtype),
            array.shape))


def infer_output_types(model):
    """onnxruntime wants element types before it runs the model."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    for value, known in zip(model.graph.output, inferred.graph.output):
        value.CopyFrom(known)


def write_tensor(path, array):
    with open(path, "wb") as file:
        file.write(numpy_helper.from_array(np.asarray(array))
                   .SerializeToString())


def generate(folder, newest=23):
    """Write all variants; the manifest: name -> {op, version, opset, oracle}."""
    manifest, versions = {}, history()
    for op, make in sorted(OPERATORS.items()):
        for version in reachable(versions[op], newest):
            for variant in make(version):
                name = f"{op}_{version}" + (
                    f"_{variant.case}" if variant.case else "")
                model = make_model(op, version, variant)
                infer_output_types(model)
                results, oracle = evaluate(model, variant.inputs)
                declare_outputs(model, results)
                onnx.checker.check_model(model)
                data = os.path.join(folder, name, "test_data_set_0")
                os.makedirs(data, exist_ok=True)
                with open(os.path.join(folder, name, "model.onnx"),
                          "wb") as file:
                    file.write(model.SerializeToString(deterministic=True))
                for i, array in enumerate(variant.inputs.values()):
                    write_tensor(os.path.join(data, f"input_{i}.pb"), array)
                for i, array in enumerate(results):
                    write_tensor(os.path.join(data, f"output_{i}.pb"), array)
                assert name not in manifest, name
                manifest[name] = {"op": op, "version": version,
                                  "opset": model.opset_import[0].version,
                                  "oracle": oracle}
    with open(os.path.join(folder, "manifest.json"), "w",
              encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
    return manifest


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--newest", type=int, default=23)
    options = parser.parse_args()
    manifest = generate(options.out, options.newest)
    other = [n for n, e in manifest.items() if e["oracle"] != "onnxruntime"]
    print(f"{len(manifest)} models of {len(OPERATORS)} operators in "
          f"{options.out}; oracle onnx.reference for: "
          f"{', '.join(other) or 'none'}")


if __name__ == "__main__":
    main()
