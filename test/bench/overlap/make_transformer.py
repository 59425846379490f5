#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""make_transformer.py > transformer.mlir

A training step of a transformer of 12 layers on two data-parallel ranks: forward,
backward, and the update of the weights, every gradient summed over the ranks where a
framework has it, right behind the product that makes it. Computation is opaque: the
kernel `busy` takes a time in proportion to the work, keeps its core busy and polls.
Batch 8 x 128 tokens of width 256 per rank; 1 unit is a product of 1024 x 256 x 256.
"""

LAYERS, TOKENS, WIDTH = 12, 1024, 256
UNIT_NS = 600_000  # 134 MFLOP at 220 GFLOP/s
NORM = 0.15        # units, of a norm, forward or backward


class Body:
    def __init__(self):
        self.lines, self.count = [], 0

    def busy(self, name, units, shape, inputs):
        """A value of `shape` from `inputs`, (value, shape) each, after that long."""
        size = min(elements(shape), elements(inputs[0][1]))
        values = ", ".join(value for value, _ in inputs)
        types = ", ".join(tensor(kind) for _, kind in inputs)
        self.lines += [
            f"    %{name}_out = tensor.empty() : {tensor(shape)}",
            f'    %{name} = comm.kernel "busy bytes={4 * size} inputs={len(inputs)} '
            f'ns={round(units * UNIT_NS)}" ins({values} : {types}) outs(%{name}_out : '
            f"{tensor(shape)}) -> {tensor(shape)}"]
        return f"%{name}", shape

    def reduce(self, value):
        name, shape = value
        self.lines += [
            f"    {name}_sum_out = tensor.empty() : {tensor(shape)}",
            f"    {name}_sum = comm.all_reduce @dp sum ins({name} : {tensor(shape)}) "
            f"outs({name}_sum_out : {tensor(shape)}) -> {tensor(shape)}"]
        return f"{name}_sum", shape


def elements(shape):
    return shape[0] * shape[1]


def tensor(shape):
    return f"tensor<{shape[0]}x{shape[1]}xf32>"


def main():
    d, t = WIDTH, TOKENS
    hidden = (t, d)
    weights = {}
    for layer in range(LAYERS):
        weights[f"l{layer}_qkv"] = (d, 3 * d)
        weights[f"l{layer}_proj"] = (d, d)
        weights[f"l{layer}_up"] = (d, 4 * d)
        weights[f"l{layer}_down"] = (4 * d, d)
    body = Body()

    def weight(name):
        return f"%{name}", weights[name]

    x = ("%x", hidden)
    saved = []
    for layer in range(LAYERS):
        p = f"l{layer}_"
        norm1 = body.busy(p + "norm1", NORM, hidden, [x])
        qkv = body.busy(p + "qkv_fwd", 3, (t, 3 * d), [norm1, weight(p + "qkv")])
        attention = body.busy(p + "attention", 1, hidden, [qkv])
        mid = body.busy(p + "proj_fwd", 1, hidden, [attention, weight(p + "proj"), x])
        norm2 = body.busy(p + "norm2", NORM, hidden, [mid])
        up = body.busy(p + "up_fwd", 4, (t, 4 * d), [norm2, weight(p + "up")])
        after = body.busy(p + "down_fwd", 4, hidden, [up, weight(p + "down"), mid])
        saved.append((x, norm1, qkv, attention, mid, norm2, up))
        x = after
    grad = body.busy("loss", 1, hidden, [x])
    sums = {}
    for layer in reversed(range(LAYERS)):
        p = f"l{layer}_"
        x, norm1, qkv, attention, mid, norm2, up = saved[layer]

        def product(name, given, units, into, source):
            """The gradient of a product's input, then that of its weight, summed."""
            of_input = body.busy(f"{p}{name}_dx", units, into,
                                 [given, weight(p + name)])
            of_weight = body.busy(f"{p}{name}_dw", units, weights[p + name],
                                  [source, given])
            sums[p + name] = body.reduce(of_weight)
            return of_input

        d_up = product("down", grad, 4, (t, 4 * d), up)
        d_norm2 = product("up", d_up, 4, hidden, norm2)
        d_mid = body.busy(p + "norm2_dx", NORM, hidden, [d_norm2, mid, grad])
        d_attention = product("proj", d_mid, 1, hidden, attention)
        d_qkv = body.busy(p + "attention_dx", 2, (t, 3 * d), [d_attention, qkv])
        d_norm1 = product("qkv", d_qkv, 3, hidden, norm1)
        grad = body.busy(p + "norm1_dx", NORM, hidden, [d_norm1, x, d_mid])
    results = []
    for name, shape in weights.items():
        # Three passes over memory.
        units = 12 * elements(shape) / 1e10 * 1e9 / UNIT_NS
        results.append(body.busy(name + "_new", units, shape,
                                 [weight(name), sums[name]]))
    arguments = ", ".join([f"%x: {tensor(hidden)}"] +
                          [f"%{name}: {tensor(shape)}"
                           for name, shape in weights.items()])
    types = ", ".join(tensor(shape) for _, shape in results)
    print("// A step of data-parallel training, 12 layers: make_transformer.py.")
    print('module attributes {comm.world = 2 : i64, comm.phase = "decomposed", '
          'comm.mesh = [["dp", 2]]} {')
    print("  comm.domain @dp groups([[0, 1]])")
    print(f"  func.func @main({arguments}) -> ({types}) {{")
    print("\n".join(body.lines))
    print("    return " + ", ".join(value for value, _ in results) + f" : {types}")
    print("  }\n}")


if __name__ == "__main__":
    main()
