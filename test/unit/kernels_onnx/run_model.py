#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs every node of ONNX models on the ONNX operator kernels.

onnxruntime (its optimiser off) computes all intermediate values; each node's
kernel is then run on the values of its inputs and compared with those of its
outputs. This judges the operators in the versions and forms that real graphs
use. Symbolic dimensions are 2 unless --dim NAME=SIZE says otherwise.

    run_model.py LIBRARY MODEL... [--dim NAME=SIZE]
"""

import argparse
import collections
import sys

from run_node_tests import (
    DTYPES,
    EXCLUDED,
    Library,
    Skip,
    close,
    describe,
    np,
    numpy_helper,
    onnx,
)

try:
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def typed(array):
    array = np.asarray(array)
    return array, DTYPES[onnx.helper.np_dtype_to_tensor_dtype(array.dtype)]


def random_input(value, dims, rng):
    shape = [
        dims.get(d.dim_param, 2) if d.dim_param else d.dim_value
        for d in value.type.tensor_type.shape.dim
    ]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(
        value.type.tensor_type.elem_type
    )
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    if "mask" in value.name:
        # Rows without any unmasked key have no defined result.
        return np.ones(shape, dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def run_model(library, path, dims):
    model = onnx.load(path)
    graph = model.graph
    known = {i.name: typed(numpy_helper.to_array(i)) for i in graph.initializer}
    rng = np.random.default_rng(1)
    feeds = {
        i.name: random_input(i, dims, rng)
        for i in graph.input
        if i.name not in known
    }
    known.update((name, typed(array)) for name, array in feeds.items())
    names = [n for node in graph.node for n in node.output if n]
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    for name, array in zip(names, session.run(names, feeds)):
        known[name] = typed(array)
    opsets = {o.domain: o.version for o in model.opset_import}
    counts = collections.Counter()
    for node in graph.node:
        none = (None, None)
        inputs = [known[n] if n else none for n in node.input]
        outputs = [known.get(n, none) if n else none for n in node.output]
        try:
            if node.op_type in EXCLUDED:
                raise Skip(EXCLUDED[node.op_type])
            if node.op_type == "Constant":
                continue
            text = describe(
                node, opsets.get(node.domain, 0), inputs, outputs
            )
            got = library.run(
                text, [x for x, _ in inputs], [y for y, _ in outputs]
            )
            for y, (want, dtype) in zip(got, outputs):
                if want is None or close(y, want, dtype, node.op_type):
                    continue
                # Sums in another order: judge by the result's own scale.
                error = np.abs(y.astype(np.float64) - want).max()
                if not error <= 1e-4 * max(np.abs(want).max(), 1e-3):
                    raise RuntimeError(f"differs by {error}")
            counts["passed"] += 1
        except Skip:
            counts["skipped"] += 1
        except RuntimeError as error:
            counts["failed"] += 1
            print(f"FAIL {path}: {node.op_type} {node.name}: {error}\n  {text}")
    print(f"{path}: {dict(counts)}")
    return counts["failed"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--dim", action="append", default=[])
    options = parser.parse_args()
    dims = {
        name: int(size) for name, size in (d.split("=") for d in options.dim)
    }
    library = Library(options.library)
    failed = sum(run_model(library, m, dims) for m in options.models)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
