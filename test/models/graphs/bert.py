# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""BERT as the PyTorch exporter writes it: the encoder of the demo, and a tiny one.

Inputs input_ids, attention_mask, token_type_ids [batch, seq] int64; outputs
last_hidden_state [batch, seq, hidden] and pooler_output [batch, hidden].
"""

import dataclasses
import math

import numpy as np

from .graph import FLOAT, INT64, Graph


@dataclasses.dataclass
class Config:
    hidden: int = 64
    intermediate: int = 96
    layers: int = 2
    heads: int = 4
    vocab: int = 256
    positions: int = 64
    types: int = 2
    epsilon: float = 1e-12
    pooler: bool = True


def build(config, weights, opset=17, batch="batch", seq="seq", name="bert"):
    """weights(name, shape) gives a float32 array; matrices are [in, out]."""
    c, g = config, Graph(name, opset)
    head = c.hidden // c.heads

    def w(key, *shape):
        return g.weight(key, weights(key, shape))

    def dense(x, key, n_in, n_out):
        return g.linear(x, w(f"{key}.weight", n_in, n_out),
                        w(f"{key}.bias", n_out))

    def norm(x, key):
        return g.layer_norm(x, w(f"{key}.weight", c.hidden),
                            w(f"{key}.bias", c.hidden), c.epsilon)

    ids = g.input("input_ids", INT64, [batch, seq])
    mask = g.input("attention_mask", INT64, [batch, seq])
    types = g.input("token_type_ids", INT64, [batch, seq])

    with g.scope("embeddings"):
        length = g.unsqueeze(g.dim(ids, 1), 0)
        positions = g.weight("embeddings.position_ids",
                             np.arange(c.positions, dtype=np.int64)[None, :])
        position = g.slice(positions, 0, length, 1)
        x = g.node("Gather", [w("embeddings.word_embeddings.weight", c.vocab,
                                c.hidden), ids])
        t = g.node("Gather", [w("embeddings.token_type_embeddings.weight",
                                c.types, c.hidden), types])
        p = g.node("Gather", [w("embeddings.position_embeddings.weight",
                                c.positions, c.hidden), position])
        x = g.node("Add", [g.node("Add", [x, t]), p])
        with g.scope("LayerNorm"):
            x = norm(x, "embeddings.LayerNorm")

    # 0 where a token counts, the smallest float where it is padding.
    bias = g.cast(g.unsqueeze(g.unsqueeze(mask, 1), 2), FLOAT)
    bias = g.node("Mul", [g.node("Sub", [g.const(1.0), bias]),
                          g.const(np.finfo(np.float32).min)])

    def split_heads(x, *perm):
        x = g.reshape(x, g.dim(x, 0), g.dim(x, 1), c.heads, head)
        return g.transpose(x, *perm)

    for i in range(c.layers):
        key = f"encoder.layer.{i}"
        with g.scope("encoder"), g.scope(f"layer.{i}"):
            with g.scope("attention"), g.scope("self"):
                projected = {}
                for part in ("query", "key", "value"):
                    with g.scope(part):
                        projected[part] = dense(
                            x, f"{key}.attention.self.{part}", c.hidden,
                            c.hidden)
                k = split_heads(projected["key"], 0, 2, 3, 1)
                v = split_heads(projected["value"], 0, 2, 1, 3)
                q = split_heads(projected["query"], 0, 2, 1, 3)
                scores = g.node("Div", [g.node("MatMul", [q, k]),
                                        g.const(math.sqrt(head))])
                scores = g.node("Add", [scores, bias])
                probabilities = g.node("Softmax", [scores], axis=-1)
                y = g.transpose(g.node("MatMul", [probabilities, v]),
                                0, 2, 1, 3)
                y = g.reshape(y, g.dim(y, 0), g.dim(y, 1), c.hidden)
            with g.scope("attention"), g.scope("output"):
                with g.scope("dense"):
                    y = dense(y, f"{key}.attention.output.dense", c.hidden,
                              c.hidden)
                x = g.node("Add", [y, x])
                with g.scope("LayerNorm"):
                    x = norm(x, f"{key}.attention.output.LayerNorm")
            with g.scope("intermediate"):
                with g.scope("dense"):
                    y = dense(x, f"{key}.intermediate.dense", c.hidden,
                              c.intermediate)
                with g.scope("intermediate_act_fn"):
                    e = g.node("Erf", [g.node("Div", [y, g.const(
                        math.sqrt(2.0))])])
                    e = g.node("Add", [e, g.const(1.0)])
                    y = g.node("Mul", [g.node("Mul", [y, e]), g.const(0.5)])
            with g.scope("output"):
                with g.scope("dense"):
                    y = dense(y, f"{key}.output.dense", c.intermediate,
                              c.hidden)
                x = g.node("Add", [y, x])
                with g.scope("LayerNorm"):
                    x = norm(x, f"{key}.output.LayerNorm")

    pooled = None
    if c.pooler:
        with g.scope("pooler"):
            first = g.node("Gather", [x, g.const(0, np.int64)], axis=1)
            with g.scope("dense"):
                # Exported as Gemm, with the weight as PyTorch stores it.
                matrix = weights("pooler.dense.weight", (c.hidden, c.hidden))
                pooled = g.node("Gemm", [
                    first, g.weight("pooler.dense.weight", matrix.T),
                    w("pooler.dense.bias", c.hidden)],
                    alpha=1.0, beta=1.0, transB=1)
            with g.scope("activation"):
                pooled = g.node("Tanh", [pooled])
    g.output(x, FLOAT, [batch, seq, c.hidden], "last_hidden_state")
    if pooled:
        g.output(pooled, FLOAT, [batch, c.hidden], "pooler_output")
    return g.model()
