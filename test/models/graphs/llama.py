# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Llama and Mixtral: RMSNorm, rotary positions, grouped queries, SwiGLU, experts.

Prefill: inputs input_ids, attention_mask, position_ids [batch, seq] int64 and
output logits [batch, seq, vocab]. The caches:

  growing  input_ids [batch, 1], past_key_values.N.key/value
           [batch, kv_heads, past, head] in, present.N.key/value with past + 1
           out, by Concat, as `use_cache=True` is exported.
  static   caches of a fixed length written in place at cache_position [1] by
           ScatterElements, as a StaticCache is exported; the next token and
           position are outputs too, so that a decode loop can be closed by
           binding outputs to inputs.

Experts: `stacked` computes every expert for every token with batched MatMul
and weighs by a one-hot combination; `unrolled` has one MLP per expert and
weights placed by ScatterElements. Both do the same arithmetic.

`native=True` writes RMSNormalization, RotaryEmbedding and Attention of opset 23.
"""

import dataclasses
import math

import numpy as np

from .graph import FLOAT, INT64, Graph


@dataclasses.dataclass
class Config:
    hidden: int = 64
    inner: int = 64
    layers: int = 2
    heads: int = 8
    kv_heads: int = 4
    vocab: int = 256
    epsilon: float = 1e-5
    theta: float = 10000.0
    experts: int = 0
    top_k: int = 2
    expert_style: str = "stacked"  # or "unrolled"
    cache: str = "none"  # or "growing", "static"
    cache_length: int = 64
    native: bool = False


class _Builder:
    def __init__(self, config, weights, opset, batch, seq, name):
        self.c = config
        self.g = Graph(name, opset)
        self.weights = weights
        self.batch, self.seq = batch, seq
        self.head = config.hidden // config.heads

    def w(self, key, *shape):
        return self.g.weight(key, self.weights(key, shape))

    def linear(self, x, key, n_in, n_out):
        with self.g.scope(key.rsplit(".", 1)[-1]):
            return self.g.linear(x, self.w(f"{key}.weight", n_in, n_out))

    def rms_norm(self, x, key):
        g = self.g
        weight = self.w(f"{key}.weight", self.c.hidden)
        with g.scope(key.rsplit(".", 1)[-1]):
            if self.c.native:
                return g.node("RMSNormalization", [x, weight], axis=-1,
                              epsilon=self.c.epsilon)
            square = g.node("Pow", [x, g.const(2.0)])
            mean = g.reduce("ReduceMean", square, -1)
            root = g.node("Sqrt", [g.node("Add", [
                mean, g.const(self.c.epsilon)])])
            y = g.node("Mul", [x, g.node("Div", [g.const(1.0), root])])
            return g.node("Mul", [weight, y])

    def rotary_tables(self, position):
        """cos and sin, [batch, seq, head] (native: [batch, seq, head / 2])."""
        c, g = self.c, self.g
        half = self.head // 2
        frequency = c.theta ** (-np.arange(half, dtype=np.float64) / half)
        with g.scope("rotary_emb"):
            inv = g.weight("model.rotary_emb.inv_freq", frequency.astype(
                np.float32).reshape(1, half, 1))
            shape = g.shape_of(g.dim(position, 0), half, 1)
            inv = g.node("Expand", [inv, shape])
            where = g.cast(g.unsqueeze(position, 1), FLOAT)
            angle = g.transpose(g.node("MatMul", [inv, where]), 0, 2, 1)
            if not c.native:
                angle = g.node("Concat", [angle, angle], axis=-1)
            return g.node("Cos", [angle]), g.node("Sin", [angle])

    def rotate(self, x, cos, sin):
        """x [batch, heads, seq, head]; cos, sin with heads unsqueezed."""
        g, half = self.g, self.head // 2
        first = g.slice(x, 0, half, 3)
        second = g.slice(x, half, int(np.iinfo(np.int64).max), 3)
        turned = g.node("Concat", [g.node("Neg", [second]), first], axis=-1)
        return g.node("Add", [g.node("Mul", [x, cos]),
                              g.node("Mul", [turned, sin])])

    def repeat_kv(self, x):
        """[batch, kv_heads, n, head] -> [batch, heads, n, head]."""
        c, g = self.c, self.g
        times = c.heads // c.kv_heads
        if times == 1:
            return x
        b, n = g.dim(x, 0), g.dim(x, 2)
        y = g.node("Expand", [g.unsqueeze(x, 2), g.shape_of(
            b, c.kv_heads, times, n, self.head)])
        return g.reshape(y, b, c.heads, n, self.head)

    # Masks: 0 where a key may be seen, the smallest float elsewhere.
    def prefill_mask(self, ids, mask):
        g, lowest = self.g, np.finfo(np.float32).min
        b, s = g.dim(ids, 0), g.dim(ids, 1)
        full = g.node("Expand", [g.const(lowest), g.shape_of(s, s)])
        upper = g.node("Trilu", [full, g.const(1, np.int64)], upper=1)
        upper = g.unsqueeze(g.unsqueeze(upper, 0), 1)
        upper = g.node("Expand", [upper, g.shape_of(b, 1, s, s)])
        keep = g.cast(g.unsqueeze(g.unsqueeze(mask, 1), 2), FLOAT)
        padding = g.node("Equal", [g.node("Add", [upper, keep]),
                                   g.const(0.0)])
        return g.node("Where", [padding, g.const(lowest), upper])

    def static_mask(self, position):
        """[1, 1, 1, cache]: keys up to and with the current one."""
        g = self.g
        keys = g.node("Range", [g.const(0, np.int64), g.const(
            self.c.cache_length, np.int64), g.const(1, np.int64)])
        hidden = g.node("Greater", [keys, position])
        bias = g.node("Mul", [g.cast(hidden, FLOAT),
                              g.const(np.finfo(np.float32).min)])
        return g.reshape(bias, 1, 1, 1, self.c.cache_length)

    def cached(self, i, part, x, position):
        """Append x [batch, kv_heads, seq, head] to a cache; what is attended."""
        c, g = self.c, self.g
        if c.cache == "none":
            return x
        length = "past" if c.cache == "growing" else c.cache_length
        past = g.input(f"past_key_values.{i}.{part}", FLOAT,
                       [self.batch, c.kv_heads, length, self.head])
        if c.cache == "growing":
            present = g.node("Concat", [past, x], axis=2)
        else:
            index = g.node("Expand", [g.reshape(position, 1, 1, 1, 1),
                                      g.node("Shape", [x])])
            present = g.node("ScatterElements", [past, index, x], axis=2)
        after = "past + 1" if c.cache == "growing" else length
        self.presents.append((present, f"present.{i}.{part}",
                              [self.batch, c.kv_heads, after, self.head]))
        return present

    def attention(self, i, x, cos, sin, mask, position):
        c, g, head = self.c, self.g, self.head
        key = f"model.layers.{i}.self_attn"
        with g.scope("self_attn"):
            q = self.linear(x, f"{key}.q_proj", c.hidden, c.heads * head)
            k = self.linear(x, f"{key}.k_proj", c.hidden, c.kv_heads * head)
            v = self.linear(x, f"{key}.v_proj", c.hidden, c.kv_heads * head)

            def split_heads(y, count):
                y = g.reshape(y, g.dim(y, 0), g.dim(y, 1), count, head)
                return g.transpose(y, 0, 2, 1, 3)

            q, k, v = (split_heads(q, c.heads), split_heads(k, c.kv_heads),
                       split_heads(v, c.kv_heads))
            if c.native:
                q = g.node("RotaryEmbedding", [q, cos, sin])
                k = g.node("RotaryEmbedding", [k, cos, sin])
                y = g.node("Attention", [q, k, v, mask],
                           scale=1.0 / math.sqrt(head))
            else:
                cos4, sin4 = g.unsqueeze(cos, 1), g.unsqueeze(sin, 1)
                q = self.rotate(q, cos4, sin4)
                k = self.rotate(k, cos4, sin4)
                k = self.repeat_kv(self.cached(i, "key", k, position))
                v = self.repeat_kv(self.cached(i, "value", v, position))
                scores = g.node("MatMul", [q, g.transpose(k, 0, 1, 3, 2)])
                scores = g.node("Mul", [scores,
                                        g.const(1.0 / math.sqrt(head))])
                if mask:
                    scores = g.node("Add", [scores, mask])
                y = g.node("MatMul", [g.node("Softmax", [scores], axis=-1), v])
            y = g.transpose(y, 0, 2, 1, 3)
            y = g.reshape(y, g.dim(y, 0), g.dim(y, 1), c.hidden)
            return self.linear(y, f"{key}.o_proj", c.heads * head, c.hidden)

    def silu(self, x):
        with self.g.scope("act_fn"):
            return self.g.node("Mul", [x, self.g.node("Sigmoid", [x])])

    def expert_weights(self, key, e):
        """One expert's matrices under the names of an MLP, from the stack."""
        c = self.c
        for part, name, n_in, n_out in (
                ("w1", "gate_proj", c.hidden, c.inner),
                ("w3", "up_proj", c.hidden, c.inner),
                ("w2", "down_proj", c.inner, c.hidden)):
            stack = self.weights(f"{key}.experts.{part}",
                                 (c.experts, n_in, n_out))
            self.g.weight(f"{key}.experts.{e}.{name}.weight", stack[e])

    def mlp(self, key, x):
        c = self.c
        gate = self.linear(x, f"{key}.gate_proj", c.hidden, c.inner)
        up = self.linear(x, f"{key}.up_proj", c.hidden, c.inner)
        y = self.g.node("Mul", [self.silu(gate), up])
        return self.linear(y, f"{key}.down_proj", c.inner, c.hidden)

    def route(self, key, flat):
        """flat [tokens, hidden] -> weights and experts, [tokens, top_k]."""
        c, g = self.c, self.g
        logits = self.linear(flat, f"{key}.gate", c.hidden, c.experts)
        p = g.node("Softmax", [logits], axis=-1)
        weight, index = g.node("TopK", [p, g.ints(c.top_k)], 2, axis=-1,
                               largest=1, sorted=1)
        total = g.reduce("ReduceSum", weight, -1)
        return g.node("Div", [weight, total]), index

    def experts(self, key, x):
        c, g = self.c, self.g
        b, s = g.dim(x, 0), g.dim(x, 1)
        flat = g.reshape(x, -1, c.hidden)
        weight, index = self.route(key, flat)
        if c.expert_style == "stacked":
            hot = g.node("OneHot", [index, g.const(c.experts, np.int64),
                                    g.const([0.0, 1.0])], axis=-1)
            share = g.node("Mul", [hot, g.unsqueeze(weight, 2)])
            share = g.reduce("ReduceSum", share, 1, keepdims=0)
            with g.scope("experts"):
                many = g.unsqueeze(flat, 0)
                gate = g.node("MatMul", [many, self.w(
                    f"{key}.experts.w1", c.experts, c.hidden, c.inner)])
                up = g.node("MatMul", [many, self.w(
                    f"{key}.experts.w3", c.experts, c.hidden, c.inner)])
                y = g.node("Mul", [self.silu(gate), up])
                y = g.node("MatMul", [y, self.w(
                    f"{key}.experts.w2", c.experts, c.inner, c.hidden)])
                share = g.unsqueeze(g.transpose(share, 1, 0), 2)
                y = g.reduce("ReduceSum", g.node("Mul", [y, share]), 0,
                             keepdims=0)
        else:
            tokens = g.dim(flat, 0)
            zeros = g.node("ConstantOfShape", [g.shape_of(tokens, c.experts)])
            share = g.node("ScatterElements", [zeros, index, weight], axis=1)
            y = None
            for e in range(c.experts):
                self.expert_weights(key, e)
                with g.scope(f"experts.{e}"):
                    part = self.mlp(f"{key}.experts.{e}", flat)
                    mine = g.slice(share, e, e + 1, 1)
                    part = g.node("Mul", [part, mine])
                y = part if y is None else g.node("Add", [y, part])
        return g.reshape(y, b, s, c.hidden)

    def build(self):
        c, g = self.c, self.g
        self.presents = []
        ids = g.input("input_ids", INT64, [self.batch, self.seq])
        position = None
        if c.cache == "static":
            position = g.input("cache_position", INT64, [1])
            positions = g.unsqueeze(position, 0)
            mask = None
        else:
            if c.cache == "none":
                mask = g.input("attention_mask", INT64, [self.batch, self.seq])
            positions = g.input("position_ids", INT64, [self.batch, self.seq])
        with g.scope("model"):
            if c.cache == "none":
                mask = self.prefill_mask(ids, mask)
            elif c.cache == "static":
                mask = self.static_mask(position)
            else:
                mask = None  # one token sees all of its past
            x = g.node("Gather", [self.w("model.embed_tokens.weight", c.vocab,
                                         c.hidden), ids])
            cos, sin = self.rotary_tables(positions)
            for i in range(c.layers):
                key = f"model.layers.{i}"
                with g.scope(f"layers.{i}"):
                    y = self.rms_norm(x, f"{key}.input_layernorm")
                    y = self.attention(i, y, cos, sin, mask, position)
                    x = g.node("Add", [x, y])
                    y = self.rms_norm(x, f"{key}.post_attention_layernorm")
                    if c.experts:
                        with g.scope("block_sparse_moe"):
                            y = self.experts(f"{key}.block_sparse_moe", y)
                    else:
                        with g.scope("mlp"):
                            y = self.mlp(f"{key}.mlp", y)
                    x = g.node("Add", [x, y])
            x = self.rms_norm(x, "model.norm")
        logits = self.linear(x, "lm_head", c.hidden, c.vocab)
        if c.cache == "static":
            token = g.node("ArgMax", [logits], axis=-1, keepdims=0)
            after = g.node("Add", [position, g.ints(1)])
        g.output(logits, FLOAT, [self.batch, self.seq, c.vocab], "logits")
        for value, name, shape in self.presents:
            g.output(value, FLOAT, shape, name)
        if c.cache == "static":
            g.output(token, INT64, [self.batch, self.seq], "next_ids")
            g.output(after, INT64, [1], "next_position")
        return g.model()


def build(config, weights, opset=17, batch="batch", seq="seq", name="llama"):
    """weights(name, shape) gives a float32 array; matrices are [in, out]."""
    return _Builder(config, weights, opset, batch, seq, name).build()
