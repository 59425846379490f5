#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs and expected outputs of an ONNX model, as folders of .npy files.

  oracle.py MODEL --out DIR [--dim batch=2 --dim seq=16 ...] [--seed 0] [--f64]

writes DIR/inputs/NAME.npy, DIR/expected/NAME.npy (onnxruntime, all
optimisations off, so that it computes what the graph says) and, with --f64,
DIR/float64/NAME.npy: the same graph with every float made double, evaluated by
onnx.reference. In file names `/` and `:` of a value's name become `_`, as
comm-run writes them.
"""

import argparse
import json
import os
import re
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NUMPY_OF = {"tensor(float)": np.float32, "tensor(float16)": np.float16,
            "tensor(double)": np.float64, "tensor(int64)": np.int64,
            "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


def file_name(value):
    return re.sub(r"[/:]", "_", value) + ".npy"


def resolve(shape, dims):
    """Shape with symbols replaced; `past + 1` is evaluated as a sum."""
    out = []
    for d in shape:
        if isinstance(d, int):
            out.append(d)
            continue
        try:
            out.append(sum(int(p) if p.strip().isdigit() else dims[p.strip()]
                           for p in d.split("+")))
        except KeyError as error:
            raise SystemExit(f"dimension {error} needs --dim {d}=N") from error
    return out


def input_shapes(model, dims):
    """Name -> (numpy dtype, shape), without initializers."""
    constant = {t.name for t in model.graph.initializer}
    shapes = {}
    for value in model.graph.input:
        if value.name in constant:
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else d.dim_param
                 for d in tensor.shape.dim]
        shapes[value.name] = (helper.tensor_dtype_to_np_dtype(tensor.elem_type),
                              resolve(shape, dims))
    return shapes


def vocabulary(model):
    """Rows of the first table that is gathered by input_ids; 2 if there is none."""
    rows = {t.name: t.dims[0] for t in model.graph.initializer if t.dims}
    for node in model.graph.node:
        if node.op_type == "Gather" and node.input[1] == "input_ids":
            return rows.get(node.input[0], 2)
    return 2


def make_inputs(model, dims, seed=0):
    """Inputs that make sense for what they are called.

    Masks are right-padded with different lengths per row, the first row whole;
    positions count up; ids are below the vocabulary.
    """
    random = np.random.RandomState(seed)
    out = {}
    for name, (dtype, shape) in input_shapes(model, dims).items():
        if name == "attention_mask":
            length = shape[1] - np.arange(shape[0]) % max(1, shape[1] - 1)
            value = np.arange(shape[1])[None, :] < length[:, None]
        elif name == "position_ids":
            start = dims.get("past", 0)
            value = np.broadcast_to(np.arange(start, start + shape[1]), shape)
        elif name == "cache_position":
            value = np.full(shape, 5)
        elif name == "token_type_ids":
            value = np.broadcast_to(np.arange(shape[1]) >= shape[1] // 2, shape)
        elif name == "input_ids":
            value = random.randint(0, vocabulary(model), size=shape)
        elif dtype == np.bool_:
            value = random.randint(0, 2, size=shape)
        elif np.issubdtype(dtype, np.integer):
            value = random.randint(0, 4, size=shape)
        else:
            value = random.standard_normal(size=shape)
        out[name] = np.ascontiguousarray(value).astype(dtype)
    return out


def run_onnxruntime(model, inputs, threads=1, optimise=False):
    """Outputs by name. `model` is a path, bytes or a ModelProto."""
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not optimise:
        options.graph_optimization_level = (
            ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    session = ort.InferenceSession(model, options,
                                   providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs)))


def to_double(model):
    """A copy of the model in which every float tensor is double."""
    small = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)

    def widen(tensor):
        if tensor.data_type in small:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    for tensor in copy.graph.initializer:
        widen(tensor)
    for value in list(copy.graph.input) + list(copy.graph.output):
        if value.type.tensor_type.elem_type in small:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del copy.graph.value_info[:]
    for node in copy.graph.node:
        fresh_value = node.op_type == "ConstantOfShape"
        for attribute in node.attribute:
            if attribute.HasField("t"):
                widen(attribute.t)
                fresh_value = False
            if node.op_type == "Cast" and attribute.name == "to" and (
                    attribute.i in small):
                attribute.i = TensorProto.DOUBLE
            if attribute.name == "stash_type":
                attribute.i = TensorProto.DOUBLE
        if fresh_value:
            node.attribute.append(helper.make_attribute(
                "value", helper.make_tensor("", TensorProto.DOUBLE, [1],
                                            [0.0])))
    return copy


def run_float64(model, inputs):
    """Outputs by name, computed in double by onnx.reference."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class LayerNormalization(OpRun):
        # The reference's own goes through float32 by the default stash_type.
        def _run(self, x, scale, bias=None, axis=None, epsilon=None,
                 stash_type=None):
            axis = -1 if axis is None else axis
            over = tuple(range(axis % x.ndim, x.ndim))
            mean = x.mean(axis=over, keepdims=True)
            variance = ((x - mean) ** 2).mean(axis=over, keepdims=True)
            y = (x - mean) / np.sqrt(variance + epsilon) * scale
            return (y if bias is None else y + bias,)

    class RMSNormalization(OpRun):
        def _run(self, x, scale, axis=None, epsilon=None, stash_type=None):
            axis = -1 if axis is None else axis
            over = tuple(range(axis % x.ndim, x.ndim))
            square = (x ** 2).mean(axis=over, keepdims=True)
            return (x / np.sqrt(square + epsilon) * scale,)

    class BatchNormalization(OpRun):
        # The reference's own moves the mean by the batch's, as in training.
        def _run(self, x, scale, bias, mean, variance, epsilon=None,
                 momentum=None, training_mode=None, spatial=None):
            shape = (1, -1) + (1,) * (x.ndim - 2)
            y = (x - mean.reshape(shape)) / np.sqrt(
                variance.reshape(shape) + epsilon)
            return (y * scale.reshape(shape) + bias.reshape(shape),)

    session = ReferenceEvaluator(
        to_double(model),
        new_ops=[LayerNormalization, RMSNormalization, BatchNormalization])
    wide = {k: v.astype(np.float64) if np.issubdtype(v.dtype, np.floating)
            else v for k, v in inputs.items()}
    names = [o.name for o in model.graph.output]
    return dict(zip(names, session.run(names, wide)))


def write(folder, arrays):
    os.makedirs(folder, exist_ok=True)
    for name, array in arrays.items():
        np.save(os.path.join(folder, file_name(name)), array)


def load(folder, names):
    return {name: np.load(os.path.join(folder, file_name(name)))
            for name in names}


def compare(name, actual, expected, rtol, atol):
    """None if equal within tolerance, else a sentence with the worst element."""
    if actual.shape != expected.shape:
        return f"{name}: shape {actual.shape}, expected {expected.shape}"
    if actual.dtype != expected.dtype:
        return f"{name}: dtype {actual.dtype}, expected {expected.dtype}"
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    both = np.isnan(a) & np.isnan(e) | (a == e)
    with np.errstate(invalid="ignore"):
        excess = np.where(both, -1.0, np.abs(a - e) - atol - rtol * np.abs(e))
    excess = np.where(np.isnan(excess), np.inf, excess)
    if excess.size == 0 or excess.max() <= 0:
        return None
    at = np.unravel_index(int(np.argmax(excess)), excess.shape)
    return (f"{name}: {int((excess > 0).sum())} of {excess.size} differ; worst "
            f"at {[int(i) for i in at]}: {a[at]!r}, expected {e[at]!r}")


def error_bound(rank_one_error, ort_error, expected):
    """The error that a partitioned program may have, largest absolute.

    At most twice one rank's and at most four times onnxruntime's, plus 4 ulp of
    the largest output. `expected` is the float64 result.
    """
    largest = np.float32(np.max(np.abs(expected))) if expected.size else 0.0
    ulp = 4.0 * float(np.spacing(np.float32(largest)))
    return min(2.0 * rank_one_error, 4.0 * ort_error) + ulp


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", required=True)
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--f64", action="store_true")
    options = parser.parse_args()
    dims = {k: int(v) for k, v in (d.split("=") for d in options.dim)}
    model = onnx.load(options.model)
    inputs = make_inputs(model, dims, options.seed)
    expected = run_onnxruntime(options.model, inputs)
    write(os.path.join(options.out, "inputs"), inputs)
    write(os.path.join(options.out, "expected"), expected)
    report = {"inputs": {k: list(v.shape) for k, v in inputs.items()},
              "outputs": {k: list(v.shape) for k, v in expected.items()}}
    if options.f64:
        exact = run_float64(model, inputs)
        write(os.path.join(options.out, "float64"), exact)
        report["onnxruntime_error"] = {
            k: float(np.max(np.abs(exact[k] - expected[k]), initial=0.0))
            for k in exact}
    json.dump(report, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
