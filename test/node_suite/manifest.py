# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ONNX backend node tests of the pinned onnx package, and which of them run.

A test is left out for one of two reasons only: its opset is above the supported
one, or it belongs to a class on the list below. Everything else runs, and what
is known to fail is named in expected_failures.txt.
"""

import collections
import importlib.util
import os

import onnx
from onnx import TensorProto

PINNED = "1.22"

# The newest opset of the reader by domain. Tests of a domain that is not here
# run and have to be listed; those of a preview domain are above any support.
SUPPORTED = {"": 23}

# Class -> (operators, why programs of this kind cannot be expressed).
CLASSES = {
    "sequence": (
        {"SequenceMap"},
        "inputs and results of a program are tensors, not lists of them"),
    "optional": (
        {"Optional", "OptionalGetElement", "OptionalHasElement"},
        "a value that may be absent has no size to plan for"),
    "string": (
        {"StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch"},
        "strings are not an element type of the kernels"),
    "random": (
        {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike",
         "RandomUniform", "RandomUniformLike"},
        "the result is not defined, so there is nothing to compare with"),
    "training": (
        {"Adagrad", "Adam", "Gradient", "Momentum"},
        "inference programs only; the compiler has no gradients"),
}

Case = collections.namedtuple(
    "Case", "name folder opset excluded ops inputs data_sets")


def data_folder():
    """Folder `node` of the installed onnx package."""
    spec = importlib.util.find_spec("onnx")
    folder = os.path.join(os.path.dirname(spec.origin), "backend", "test",
                          "data", "node")
    if not onnx.__version__.startswith(PINNED + "."):
        raise SystemExit(f"the suite is that of onnx {PINNED}; onnx "
                         f"{onnx.__version__} is installed")
    if not os.path.isdir(folder):
        raise SystemExit(f"{folder} is missing: this onnx package was built "
                         "without its test data")
    return folder


def _nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)
            for inner in attribute.graphs:
                yield from _nodes(inner)


def all_nodes(model):
    yield from _nodes(model.graph)
    for function in model.functions:
        for node in function.node:
            yield node


def _holds_strings(model):
    def is_string(value):
        return value.type.tensor_type.elem_type == TensorProto.STRING

    if any(is_string(v) for v in list(model.graph.input)
           + list(model.graph.output) + list(model.graph.value_info)):
        return True
    return any(a.name == "to" and a.i == TensorProto.STRING
               for n in all_nodes(model) if n.op_type == "Cast"
               for a in n.attribute)


def excluded_class(model):
    """The class that a model is left out for, or None."""
    nodes = list(all_nodes(model))
    ops = {n.op_type for n in nodes}
    for value in list(model.graph.input) + list(model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind in ("sequence_type", "map_type"):
            return "sequence"
        if kind == "optional_type":
            return "optional"
    for name, (members, _) in CLASSES.items():
        if ops & members:
            return name
    if any(o.domain == "ai.onnx.preview.training" for o in model.opset_import):
        return "training"
    for node in nodes:
        if node.op_type == "BatchNormalization" and any(
                a.name == "training_mode" and a.i for a in node.attribute):
            return "training"
    # Dropout draws numbers when its third input says so.
    for node in nodes:
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            return "training"
    return "string" if _holds_strings(model) else None


def above_support(model, supported):
    """The import that is newer than what is supported, or None."""
    for o in model.opset_import:
        domain = "" if o.domain == "ai.onnx" else o.domain
        if domain in supported and o.version > supported[domain]:
            return f"opset {o.version}"
        if domain == "ai.onnx.preview":
            return "domain ai.onnx.preview"
    return None


def _input_shapes(model, folder):
    shapes = []
    for i, _ in enumerate(model.graph.input):
        path = os.path.join(folder, "test_data_set_0", f"input_{i}.pb")
        tensor = TensorProto()
        try:
            with open(path, "rb") as file:
                tensor.ParseFromString(file.read())
            shapes.append(list(tensor.dims))
        except Exception:  # pylint: disable=broad-except
            # Sequences and optionals; such a test is left out anyway.
            shapes.append([])
    return shapes


def load(max_opset=None, pattern=None):
    """All cases, by name. `excluded` is None or (class, reason)."""
    supported = dict(SUPPORTED)
    if max_opset:
        supported[""] = max_opset
    root = data_folder()
    cases = []
    for name in sorted(os.listdir(root)):
        folder = os.path.join(root, name)
        path = os.path.join(folder, "model.onnx")
        if not os.path.exists(path) or (pattern and not pattern.search(name)):
            continue
        model = onnx.load(path)
        excluded = None
        above = above_support(model, supported)
        kind = excluded_class(model)
        if kind:
            excluded = (kind, CLASSES[kind][1])
        elif above:
            excluded = ("opset", above + " is above what is supported")
        versions = {o.domain: o.version for o in model.opset_import}
        sets = sorted(d for d in os.listdir(folder)
                      if d.startswith("test_data_set_"))
        cases.append(Case(name, folder, versions.get("", 0), excluded,
                          sorted({n.op_type for n in all_nodes(model)}),
                          _input_shapes(model, folder), sets))
    return cases


def axis_for_two(case):
    """How a case is run on two ranks: 'dp', 'tp' or None.

    dp splits the first dimension of the inputs, tp whatever the partitioner
    finds, so one needs an even first dimension and the other any even one.
    """
    shapes = [s for s in case.inputs if s]
    if any(s[0] and s[0] % 2 == 0 for s in shapes):
        return "dp"
    if any(d and d % 2 == 0 for s in shapes for d in s):
        return "tp"
    return None
