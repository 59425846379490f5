# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GPT-2: fused QKV, tanh-gelu, causal mask from a buffer, tied logits.

Input input_ids [batch, seq] int64; output logits [batch, seq, vocab]. With
`gemm=True` the projections are Reshape/Gemm/Reshape, as PyTorch's addmm is
exported; otherwise MatMul and Add.
"""

import dataclasses
import math

import numpy as np

from .graph import FLOAT, INT64, Graph


@dataclasses.dataclass
class Config:
    hidden: int = 64
    inner: int = 96
    layers: int = 2
    heads: int = 4
    vocab: int = 256
    positions: int = 64
    epsilon: float = 1e-5
    gemm: bool = False


def build(config, weights, opset=17, batch="batch", seq="seq", name="gpt2"):
    """weights(name, shape) gives a float32 array; matrices are [in, out]."""
    c, g = config, Graph(name, opset)
    head = c.hidden // c.heads

    def w(key, *shape):
        return g.weight(key, weights(key, shape))

    def conv1d(x, key, n_in, n_out):
        weight, bias = w(f"{key}.weight", n_in, n_out), w(f"{key}.bias", n_out)
        if not c.gemm:
            return g.linear(x, weight, bias)
        y = g.node("Gemm", [g.reshape(x, -1, n_in), weight, bias],
                   alpha=1.0, beta=1.0)
        return g.reshape(y, g.dim(x, 0), g.dim(x, 1), n_out)

    def norm(x, key):
        with g.scope(key.rsplit(".", 1)[-1]):
            return g.layer_norm(x, w(f"{key}.weight", c.hidden),
                                w(f"{key}.bias", c.hidden), c.epsilon)

    ids = g.input("input_ids", INT64, [batch, seq])
    with g.scope("transformer"):
        length = g.dim(ids, 1)
        position = g.unsqueeze(
            g.node("Range", [g.const(0, np.int64), length,
                             g.const(1, np.int64)]), 0)
        wte = w("transformer.wte.weight", c.vocab, c.hidden)
        x = g.node("Add", [
            g.node("Gather", [wte, ids]),
            g.node("Gather", [w("transformer.wpe.weight", c.positions,
                                c.hidden), position])])

    for i in range(c.layers):
        key = f"transformer.h.{i}"
        with g.scope("transformer"), g.scope(f"h.{i}"):
            y = norm(x, f"{key}.ln_1")
            with g.scope("attn"):
                with g.scope("c_attn"):
                    y = conv1d(y, f"{key}.attn.c_attn", c.hidden, 3 * c.hidden)
                q, k, v = g.split(y, [c.hidden] * 3, 2)

                def split_heads(x, *perm):
                    x = g.reshape(x, g.dim(x, 0), g.dim(x, 1), c.heads, head)
                    return g.transpose(x, *perm)

                q = split_heads(q, 0, 2, 1, 3)
                k = split_heads(k, 0, 2, 3, 1)
                v = split_heads(v, 0, 2, 1, 3)
                scores = g.node("Div", [g.node("MatMul", [q, k]),
                                        g.const(math.sqrt(head))])
                causal = g.weight("transformer.h.attn.bias", np.tril(np.ones(
                    (1, 1, c.positions, c.positions), dtype=bool)))
                end = g.unsqueeze(g.dim(q, 2), 0)
                causal = g.slice(g.slice(causal, 0, end, 2), 0, end, 3)
                scores = g.node("Where", [
                    causal, scores, g.const(np.finfo(np.float32).min)])
                scores = g.node("Softmax", [scores], axis=-1)
                y = g.transpose(g.node("MatMul", [scores, v]), 0, 2, 1, 3)
                y = g.reshape(y, g.dim(y, 0), g.dim(y, 1), c.hidden)
                with g.scope("c_proj"):
                    y = conv1d(y, f"{key}.attn.c_proj", c.hidden, c.hidden)
            x = g.node("Add", [y, x])
            y = norm(x, f"{key}.ln_2")
            with g.scope("mlp"):
                with g.scope("c_fc"):
                    y = conv1d(y, f"{key}.mlp.c_fc", c.hidden, c.inner)
                with g.scope("act"):
                    half = g.node("Mul", [y, g.const(0.5)])
                    cube = g.node("Pow", [y, g.const(3.0)])
                    t = g.node("Add", [y, g.node("Mul", [
                        cube, g.const(0.044715)])])
                    t = g.node("Tanh", [g.node("Mul", [
                        t, g.const(math.sqrt(2.0 / math.pi))])])
                    y = g.node("Mul", [half, g.node("Add", [
                        t, g.const(1.0)])])
                with g.scope("c_proj"):
                    y = conv1d(y, f"{key}.mlp.c_proj", c.inner, c.hidden)
            x = g.node("Add", [x, y])
    with g.scope("transformer"):
        x = norm(x, "transformer.ln_f")
    with g.scope("lm_head"):
        logits = g.node("MatMul", [x, g.transpose(wte, 1, 0)])
    g.output(logits, FLOAT, [batch, seq, c.vocab], "logits")
    return g.model()
