# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as onnxruntime's optimiser and model builder write it, against onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import model_runs as runs

RNG = np.random.default_rng(5)
B, S, N, H = 2, 6, 4, 16
D = N * H


def normal(*shape):
    return (RNG.standard_normal(shape) / 2).astype(np.float32)


def mask(length, *shape):
    keep = np.ones(shape, np.int32)
    keep[..., length:] = 0
    return keep


def rope(size=16, half=H // 2):
    angles = np.outer(np.arange(size), 0.1 ** np.arange(half)).astype(np.float32)
    return {"cos!": np.cos(angles), "sin!": np.sin(angles)}


def lengths(values):
    """Places of the last keys, and the length of all."""
    return {"last": np.array(values, np.int32)}


# Name: operator, operands by name ("" is an absent one, "!" a parameter), attributes, results.
CASES = {
    "attention": ("Attention", {"x": normal(B, S, D), "w!": normal(D, 3 * D),
                                "b!": normal(3 * D)}, {"num_heads": N}, 1),
    "attention-mask": ("Attention", {"x": normal(B, S, D), "w!": normal(D, 3 * D),
                                     "b!": normal(3 * D), "m": mask(4, B, S)},
                       {"num_heads": N}, 1),
    "attention-lengths": ("Attention", {"x": normal(B, S, D), "w!": normal(D, 3 * D),
                                        "b!": normal(3 * D),
                                        "m": np.array([3, 6], np.int32)}, {"num_heads": N}, 1),
    "attention-3d-mask": ("Attention", {"x": normal(B, S, D), "w!": normal(D, 3 * D),
                                        "b!": normal(3 * D), "m": mask(5, B, S, S)},
                          {"num_heads": N}, 1),
    "attention-causal-past": (
        "Attention", {"x": normal(B, S, D), "w!": normal(D, 3 * D), "b!": normal(3 * D),
                      "": None, "past": normal(2, B, N, 3, H)},
        {"num_heads": N, "unidirectional": 1}, 2),
    "attention-sizes-bias": (
        "Attention", {"x": normal(B, S, D), "w!": normal(D, 5 * D // 2), "b!": normal(5 * D // 2),
                      "": None, " ": None, "r": normal(1, N, S, S)},
        {"num_heads": N, "qkv_hidden_sizes": [D, D, D // 2], "scale": 0.2}, 1),
    "multi-head": ("MultiHeadAttention", {"q": normal(B, S, D), "k": normal(B, 5, D),
                                          "v": normal(B, 5, D)}, {"num_heads": N}, 1),
    "multi-head-bias-mask": (
        "MultiHeadAttention", {"q": normal(B, S, D), "k": normal(B, 5, D), "v": normal(B, 5, D),
                               "b!": normal(3 * D), "m": mask(3, B, 5)}, {"num_heads": N}, 1),
    "multi-head-past": (
        "MultiHeadAttention",
        {"q": normal(B, 2, D), "k": normal(B, 2, D), "v": normal(B, 2, D), "": None, " ": None,
         "r": normal(B, N, 2, 5), "pk": normal(B, N, 3, H), "pv": normal(B, N, 3, H)},
        {"num_heads": N}, 3),
    "multi-head-causal": ("MultiHeadAttention", {"q": normal(B, S, D), "k": normal(B, S, D),
                                                 "v": normal(B, S, D)},
                          {"num_heads": N, "unidirectional": 1}, 1),
    "multi-head-encoder": ("MultiHeadAttention", {"q": normal(B, S, D), "k": normal(B, N, 5, H),
                                                  "v": normal(B, N, 5, H)}, {"num_heads": N}, 1),
    "group-query-prompt": (
        "GroupQueryAttention",
        {"q": normal(B, S, D), "k": normal(B, S, D // 2), "v": normal(B, S, D // 2),
         "pk": normal(B, 2, 0, H), "pv": normal(B, 2, 0, H), **lengths([S - 1, S - 1]),
         "total!": np.array(S, np.int32), **rope()},
        {"num_heads": N, "kv_num_heads": 2, "do_rotary": 1}, 3),
    "group-query-decode": (
        "GroupQueryAttention",
        {"q": normal(B, 1, D), "k": normal(B, 1, D // 2), "v": normal(B, 1, D // 2),
         "pk": normal(B, 2, 4, H), "pv": normal(B, 2, 4, H), **lengths([4, 4]),
         "total!": np.array(5, np.int32), **rope()},
        {"num_heads": N, "kv_num_heads": 2, "do_rotary": 1}, 3),
    "group-query-ragged": (
        "GroupQueryAttention",
        {"q": normal(B, 1, D), "k": normal(B, 1, D // 2), "v": normal(B, 1, D // 2),
         "pk": normal(B, 2, 4, H), "pv": normal(B, 2, 4, H), **lengths([4, 2]),
         "total!": np.array(5, np.int32), **rope()},
        {"num_heads": N, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 1}, 3),
    "group-query-packed-window": (
        "GroupQueryAttention",
        {"q": normal(B, S, 2 * D), "": None, " ": None, "pk": normal(B, 2, 0, H),
         "pv": normal(B, 2, 0, H), **lengths([S - 1, S - 1]), "total!": np.array(S, np.int32)},
        {"num_heads": N, "kv_num_heads": 2, "local_window_size": 3, "scale": 0.3}, 3),
    "rotary": ("RotaryEmbedding", {"x": normal(B, S, D), "at": np.array([2], np.int64), **rope()},
               {}, 1),
    "rotary-ids": ("RotaryEmbedding",
                   {"x": normal(B, N, S, H), "at": np.arange(12).reshape(B, S).astype(np.int64),
                    **rope()}, {"interleaved": 1}, 1),
    "rotary-part": ("RotaryEmbedding",
                    {"x": normal(B, S, D), "at": np.array([0], np.int64), **rope(half=2)},
                    {"num_heads": N, "rotary_embedding_dim": 4}, 1),
    "embed": ("EmbedLayerNormalization",
              {"ids": RNG.integers(0, 20, (B, S)).astype(np.int32),
               "seg": RNG.integers(0, 2, (B, S)).astype(np.int32), "we!": normal(20, D),
               "pe!": normal(16, D), "se!": normal(2, D), "g!": normal(D), "c!": normal(D),
               "m": mask(4, B, S)}, {}, 2),
    "embed-plain": ("EmbedLayerNormalization",
                    {"ids": RNG.integers(0, 20, (B, S)).astype(np.int32), "": None,
                     "we!": normal(20, D), "pe!": normal(16, D), " ": None, "g!": normal(D),
                     "c!": normal(D)}, {"epsilon": 1e-5}, 2),
}


def build(path, op, operands, attributes, results):
    names = [f"y{i}" for i in range(results)]
    node = helper.make_node(op, [n.strip(" !") for n in operands], names, name="fused",
                            domain="com.microsoft", **attributes)
    kinds = {"GroupQueryAttention": [1, 1, 1], "EmbedLayerNormalization": [1, 6]}.get(op, [1] * 3)
    data = {n: a for n, a in operands.items() if a is not None and not n.endswith("!")}
    graph = helper.make_graph(
        [node], op,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in data.items()],
        [helper.make_tensor_value_info(n, kinds[i], None) for i, n in enumerate(names)],
        [numpy_helper.from_array(a, n.strip("!")) for n, a in operands.items()
         if n.endswith("!")])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]), path)
    return data, names


@pytest.mark.parametrize("case", CASES)
def test_equals_onnxruntime(case, tmp_path):
    model = tmp_path / "m.onnx"
    arrays, names = build(model, *CASES[case])
    expected = onnxruntime.InferenceSession(str(model)).run(names, arrays)
    options = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    runs.tool("comm-run", model, "--tp", 2, *options, "--no-cache", "--output-dir",
              tmp_path / "out")
    # Behind the end of a shorter sequence a cache holds what it will.
    for name, reference in zip(names[:1] if "ragged" in case else names, expected):
        np.testing.assert_allclose(np.load(tmp_path / "out" / f"{name}.npy"), reference,
                                   rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("case,change,said", [
    ("attention", {"do_rotary": 1}, "do_rotary is not supported"),
    ("attention", {"num_heads": 0}, "attribute 'num_heads' is missing"),
    ("group-query-prompt", {"softcap": 5.0}, "softcap is not supported"),
    ("rotary", {"scale": 2.0}, "a scale is not supported"),
])
def test_refusals_name_the_node(case, change, said, tmp_path):
    model = tmp_path / "m.onnx"
    op, operands, attributes, results = CASES[case]
    build(model, op, operands, {**attributes, **change}, results)
    done = runs.tool("comm-opt", model, "--comm-pipeline", "-o", tmp_path / "m.mlir", ok=False)
    assert done.returncode == 1
    assert f"{model}: node 'fused' (com.microsoft.{op}, opset 1): {said}" in done.stderr
