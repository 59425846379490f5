#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the ONNX backend node tests on the ONNX operator kernels alone.

The tests come from the installed `onnx` package (1.22 ships them). A test is
taken if its model is one node; the description is rendered from the node and
the shapes of the test's own data, so neither the reader nor shape inference is
involved. Prints failures, a line per operator, and totals; exits with 1 when
fewer than --least per cent of the tests that are not excluded pass.

    run_node_tests.py LIBRARY [--only REGEX] [--least 97] [--expanded] [--verbose]
"""

import argparse
import collections
import ctypes
import os
import re
import sys

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DTYPES = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64",
    9: "bool", 10: "f16", 11: "f64", 12: "u32", 13: "u64", 16: "bf16",
    17: "f8_e4m3", 19: "f8_e5m2",
}  # fmt: skip

EXCLUDED_OPS = {
    "sequence": "SequenceInsert SequenceMap SplitToSequence ConcatFromSequence "
    "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceLength",
    "optional": "Optional OptionalGetElement OptionalHasElement",
    "string": "StringConcat StringNormalizer StringSplit RegexFullMatch "
    "TfIdfVectorizer LabelEncoder",
    "random": "Bernoulli RandomNormal RandomUniform Multinomial",
    "training": "Adagrad Adam Momentum Gradient",
    "rnn": "RNN GRU LSTM",
    "control flow": "Loop Scan If",
    "image files": "ImageDecoder",
    "trees": "TreeEnsemble",
}
EXCLUDED = {op: why for why, ops in EXCLUDED_OPS.items() for op in ops.split()}


class Skip(Exception):
    pass


def text(value):
    if isinstance(value, bytes):
        value = value.decode()
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def scalar(value):
    if isinstance(value, (str, bytes)):
        return text(value)
    if isinstance(value, (float, np.floating)):
        return "%.9g" % value
    return str(int(value))


def attribute(attr):
    if attr.type == onnx.AttributeProto.TENSOR:
        dtype = DTYPES.get(attr.t.data_type)
        if dtype is None:
            raise Skip("dtype")
        array = numpy_helper.to_array(attr.t)
        if dtype in ("f32", "f64", "f16", "bf16", "f8_e4m3", "f8_e5m2"):
            items = ["%.17g" % float(v) for v in array.reshape(-1)]
        else:
            items = [str(int(v)) for v in array.reshape(-1)]
        return "[" + ",".join([dtype] + items) + "]"
    value = onnx.helper.get_attribute_value(attr)
    if attr.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        raise Skip("graph attribute")
    if isinstance(value, (list, tuple)) or not isinstance(
        value, (str, bytes, int, float)
    ):
        return "[" + ",".join(scalar(v) for v in value) + "]"
    return scalar(value)


def operand(array, dtype):
    if array is None:
        return "[none]"
    return "[" + ",".join([dtype] + [str(d) for d in array.shape]) + "]"


def describe(node, opset, inputs, outputs):
    """`inputs` and `outputs`: (array, dtype) or (None, None)."""
    parts = {f"attr.{a.name}": attribute(a) for a in node.attribute}
    parts["in"] = "[" + ",".join(operand(*x) for x in inputs) + "]"
    parts["out"] = "[" + ",".join(operand(*x) for x in outputs) + "]"
    parts["opset"] = str(opset)
    keys = sorted(parts)
    domain = node.domain.lower() + "." if node.domain else ""
    return f"onnx.{domain}{node.op_type.lower()} " + " ".join(
        f"{k}={parts[k]}" for k in keys
    )


class Info(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("num_inputs", ctypes.c_uint32),
        ("num_outputs", ctypes.c_uint32),
        ("packed_input", ctypes.c_uint32),
        ("workspace_bytes", ctypes.c_uint64),
        ("packed_weight_bytes", ctypes.c_uint64),
    ]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.concord_kernel_last_error.restype = ctypes.c_char_p
        self.lib.concord_kernel_destroy.argtypes = [ctypes.c_void_p]
        self.lib.concord_kernel_run.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]

    def error(self):
        return self.lib.concord_kernel_last_error().decode(errors="replace")

    def run(self, description, inputs, outputs):
        handle = ctypes.c_void_p()
        info = Info(struct_size=ctypes.sizeof(Info))
        if self.lib.concord_kernel_create(
            description.encode(), ctypes.byref(handle), ctypes.byref(info)
        ):
            raise RuntimeError("create: " + self.error())
        try:
            buffers = []

            def hold(data, size):
                # Padding on both sides shows writes outside the result.
                raw = np.full(size + 256, 0xA5, np.uint8)
                at = -raw.ctypes.data % 64 + 64
                if data is not None:
                    raw[at : at + size] = data
                buffers.append((raw, at, size))
                return raw.ctypes.data + at

            pointers = (ctypes.c_void_p * max(1, len(inputs) + len(outputs)))()
            for i, array in enumerate(inputs):
                if array is not None:
                    data = np.frombuffer(array.tobytes(), np.uint8)
                    pointers[i] = hold(data, data.size)
            first = len(buffers)
            for i, array in enumerate(outputs):
                if array is not None:
                    pointers[len(inputs) + i] = hold(None, array.nbytes)
            last = len(buffers)
            workspace = hold(None, info.workspace_bytes)
            if self.lib.concord_kernel_run(handle, pointers, workspace):
                raise RuntimeError("run: " + self.error())
            for raw, at, size in buffers:
                if (raw[:at] != 0xA5).any() or (raw[at + size :] != 0xA5).any():
                    raise RuntimeError("wrote outside a buffer")
            results = []
            used = iter(buffers[first:last])
            for array in outputs:
                if array is None:
                    results.append(None)
                    continue
                raw, at, size = next(used)
                results.append(
                    np.frombuffer(
                        raw[at : at + size].tobytes(), array.dtype
                    ).reshape(array.shape)
                )
            return results
        finally:
            self.lib.concord_kernel_destroy(handle)


def load(folder, kind, index, value):
    path = os.path.join(folder, f"{kind}_{index}.pb")
    proto = onnx.TensorProto()
    with open(path, "rb") as f:
        proto.ParseFromString(f.read())
    # Old test data stores bf16 as the uint16 of the same bits.
    if value.type.tensor_type.elem_type == 16 and proto.data_type == 4:
        proto.data_type = 16
    dtype = DTYPES.get(proto.data_type)
    if dtype is None:
        raise Skip("dtype")
    return numpy_helper.to_array(proto), dtype


def close(got, want, dtype, op):
    if dtype in ("f32", "f64", "f16", "bf16", "f8_e4m3", "f8_e5m2"):
        rtol = {"f16": 2e-3, "bf16": 1.6e-2, "f8_e4m3": 0, "f8_e5m2": 0}
        atol = {"f16": 1e-6, "bf16": 1e-6}.get(dtype, 1e-7)
        if op in ("DFT", "STFT", "Einsum", "MatMul", "Gemm"):
            # Where terms cancel, the expected zero is only as good as the f32
            # arithmetic that made it.
            finite = np.abs(want[np.isfinite(want)].astype(np.float64))
            atol = max(atol, 1e-6 * finite.max(initial=0))
        return np.allclose(
            got.astype(np.float64),
            want.astype(np.float64),
            rtol=rtol.get(dtype, 1e-3),
            atol=atol,
            equal_nan=True,
        )
    return np.array_equal(got, want)


def run_node(library, node, opset, known):
    """Runs one node on `known` (name -> (array, dtype)) and checks it."""
    none = (None, None)
    inputs = [known[n] if n else none for n in node.input]
    outputs = [known.get(n, none) if n else none for n in node.output]
    description = describe(node, opset, inputs, outputs)
    try:
        got = library.run(
            description, [x for x, _ in inputs], [y for y, _ in outputs]
        )
        for y, (want, dtype) in zip(got, outputs):
            if want is not None and not close(y, want, dtype, node.op_type):
                a = y.astype(np.float64).reshape(-1)
                b = want.astype(np.float64).reshape(-1)
                bad = np.nonzero(~np.isclose(a, b, 1e-3, 1e-7, True))[0][:4]
                raise RuntimeError(
                    f"at {bad}: got {a[bad]} want {b[bad]} of {a.size}"
                )
    except RuntimeError as error:
        raise RuntimeError(f"{error}\n      {description}") from None


def run_expanded(model, library, known):
    """Node by node, with the package's reference evaluator as the judge."""
    from onnx.reference import ReferenceEvaluator

    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    names = [n for node in model.graph.node for n in node.output if n]
    asked.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    constants = {i.name for i in model.graph.initializer}
    feeds = {
        i.name: known[i.name][0]
        for i in model.graph.input
        if i.name not in constants
    }
    results = ReferenceEvaluator(asked).run(None, feeds)
    opsets = {o.domain: o.version for o in model.opset_import}
    for name, array in zip(names, results):
        array = np.asarray(array)
        try:
            number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        except (KeyError, ValueError):
            raise Skip("dtype") from None
        if number not in DTYPES:
            raise Skip("dtype")
        known[name] = (array, DTYPES[number])
    for node in model.graph.node:
        if node.op_type in EXCLUDED:
            raise Skip(EXCLUDED[node.op_type])
        run_node(library, node, opsets.get(node.domain, 0), known)


def run_test(library, path, expanded):
    model = onnx.load(os.path.join(path, "model.onnx"))
    single = len(model.graph.node) == 1
    if not single and not expanded:
        raise Skip("several nodes")
    node = model.graph.node[0]
    if single and node.op_type in EXCLUDED:
        raise Skip(EXCLUDED[node.op_type])
    if os.path.basename(path).startswith("test_training_dropout"):
        raise Skip("training")
    for value in list(model.graph.input) + list(model.graph.output):
        if not value.type.HasField("tensor_type"):
            raise Skip("not a tensor")
    opsets = {o.domain: o.version for o in model.opset_import}
    for data in sorted(os.listdir(path)):
        if not data.startswith("test_data_set"):
            continue
        folder = os.path.join(path, data)
        known = {
            i.name: (numpy_helper.to_array(i), DTYPES[i.data_type])
            for i in model.graph.initializer
        }
        given = [v for v in model.graph.input if v.name not in known]
        known.update(
            (v.name, load(folder, "input", i, v)) for i, v in enumerate(given)
        )
        if not single:
            run_expanded(model, library, known)
            continue
        known.update(
            (v.name, load(folder, "output", i, v))
            for i, v in enumerate(model.graph.output)
        )
        run_node(library, node, opsets.get(node.domain, 0), known)
    return node.op_type if single else "(expanded)"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--only", default="")
    parser.add_argument("--least", type=float, default=97)
    parser.add_argument("--data", help="folder of tests, else the package's")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument(
        "--expanded",
        action="store_true",
        help="also the models of several nodes, node by node",
    )
    options = parser.parse_args()
    root = options.data or os.path.join(
        os.path.dirname(onnx.__file__), "backend", "test", "data", "node"
    )
    if not os.path.isdir(root):
        print(f"skipped: no node tests in {root} (onnx {onnx.__version__})")
        return 77
    library = Library(options.library)
    skipped = collections.Counter()
    passed, failed = collections.Counter(), collections.Counter()
    for name in sorted(os.listdir(root)):
        if not re.search(options.only, name):
            continue
        path = os.path.join(root, name)
        if not os.path.isdir(path):
            continue
        try:
            passed[run_test(library, path, options.expanded)] += 1
        except Skip as why:
            skipped[str(why)] += 1
        except Exception as error:
            op = onnx.load(os.path.join(path, "model.onnx")).graph.node[0].op_type
            failed[op] += 1
            print(f"FAIL {name} ({op}): {error}"[: 2000 if options.verbose else 400])
    for op in sorted(set(passed) | set(failed)):
        if failed[op] or options.verbose:
            print(f"  {op:28} {passed[op]:4} passed {failed[op]:4} failed")
    good, bad = sum(passed.values()), sum(failed.values())
    print("skipped:", dict(skipped))
    share = 100 * good / max(1, good + bad)
    print(f"{good} passed, {bad} failed ({share:.1f} %)")
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
