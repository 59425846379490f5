# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs that bench_fuse.py compares, as text in decomposed form for two ranks."""

import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from floors import kernel_workspace  # noqa: E402

BYTES = {"f32": 4, "bf16": 2, "f16": 2}


def module(inputs, outputs, body, domain):
    args = ", ".join(f"%{name}: {kind}" for name, kind in inputs)
    results = ", ".join(kind for _, kind in outputs)
    names = ", ".join(name for name, _ in outputs)
    group = "  comm.domain @tp groups([[0, 1]])\n" if domain else ""
    return (
        "#id = affine_map<(i, j) -> (i, j)>\n"
        "#cube = affine_map<(g, i, j) -> (g, i, j)>\n"
        "#share = affine_map<(g, i, j) -> (g, i, 0)>\n"
        'module attributes {comm.world = 2 : i64, comm.phase = "decomposed", '
        'comm.mesh = [["tp", 2]]} {\n'
        f"{group}"
        f"  func.func @main({args}) -> ({results}) {{\n{body}"
        f"    return {names} : {results}\n  }}\n}}\n")


class Pair:
    """One fused pair: its module with and without the collective."""

    def __init__(self, kind, dtype, m, n, k):
        self.kind, self.dtype, self.m, self.n, self.k = kind, dtype, m, n, k

    groups = 1

    def label(self):
        return f"{self.kind} {self.dtype} m={self.m} n={self.n} k={self.k}"

    def stem(self):
        """Of the names of its files."""
        return self.label().replace(" ", "_").replace("=", "")

    def peer(self):
        """The numbers that bench/peers/onednn.cpp knows it by: kind, type, whether an
        exchange comes last, m, n, k, groups."""
        kind = {"all_reduce": 1, "all_gather": 2, "reduce_scatter": 3, "all_to_all": 4}
        first, last = self.kind.split("+")
        return [kind[last if "gemm" in first else first], {"f32": 1, "bf16": 4}[self.dtype],
                int(last == "all_to_all"), self.m, self.n, self.k, self.groups]

    def shape(self):
        return [self.k, self.n]

    def write_weight(self, folder):
        """The file that the module reads its weight from."""
        random = np.random.RandomState(3)
        data = ((random.rand(int(np.prod(self.shape()))).astype(np.float32) - 0.5)
                / np.float32(self.k) ** 0.5)
        raw = data.tobytes()
        if self.dtype == "bf16":
            raw = ((data.view(np.uint32) + 0x8000) >> 16).astype(np.uint16).tobytes()
        header = json.dumps({"w": {"dtype": self.dtype.upper(), "shape": self.shape(),
                                   "data_offsets": [0, len(raw)]}}).encode()
        header += b" " * (-(len(header) + 8) % 4096)
        with open(os.path.join(folder, self.stem() + ".weights"), "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + raw)

    def weight(self):
        text = (f"gemm dtype={self.dtype} k={self.k} m={self.m} n={self.n} "
                "packed=1")
        size = self.n * self.k * BYTES[self.dtype]
        return text, (
            f'    %w = comm.weight "w" from "{self.stem()}.weights" {{pack = "{text}", part = '
            f"tensor<{self.k}x{self.n}x{self.dtype}>}} : tensor<{size}xi8>\n"), size

    def make(self, communicates):
        """The module; without communication the shapes of the rest are kept."""
        m, n, k, t = self.m, self.n, self.k, self.dtype
        text, weight, size = self.weight()
        c = f"tensor<{m}x{n}x{t}>"
        if self.kind == "all_gather+gemm":
            whole, part = f"tensor<{m}x{k}x{t}>", f"tensor<{m // 2}x{k}x{t}>"
            inputs = [("x", part if communicates else whole)]
            a = "%x"
            body = weight
            if communicates:
                body += (f"    %ea = tensor.empty() : {whole}\n"
                         f"    %a = comm.all_gather @tp dim(0) ins(%x : {part}) "
                         f"outs(%ea : {whole}) -> {whole}\n")
                a = "%a"
            body += self.product(text, a, whole, size, c)
            return module(inputs, [("%c", c)], body, communicates)
        inputs = [("x", f"tensor<{m}x{k}x{t}>")]
        body = weight + self.product(text, "%x", f"tensor<{m}x{k}x{t}>", size, c)
        if not communicates:
            return module(inputs, [("%c", c)], body, False)
        out = c
        if self.kind == "gemm+all_reduce":
            body += (f"    %eo = tensor.empty() : {c}\n"
                     f"    %o = comm.all_reduce @tp sum ins(%c : {c}) outs(%eo : "
                     f"{c}) -> {c}\n")
        else:
            out = f"tensor<{m // 2}x{n}x{t}>"
            body += (f"    %eo = tensor.empty() : {out}\n"
                     f"    %o = comm.reduce_scatter @tp sum dim(0) ins(%c : {c}) "
                     f"outs(%eo : {out}) -> {out}\n")
        return module(inputs, [("%o", out)], body, True)

    def product(self, text, a, a_type, size, c):
        scratch = kernel_workspace(text)
        lines = f"    %ec = tensor.empty() : {c}\n"
        if not scratch:
            return lines + (
                f'    %c = comm.kernel "{text}" ins({a}, %w : {a_type}, '
                f"tensor<{size}xi8>) outs(%ec : {c}) -> {c}\n")
        types = f"{c}, tensor<{scratch}xi8>"
        return lines + (
            f"    %sc = tensor.empty() : tensor<{scratch}xi8>\n"
            f'    %cs:2 = comm.kernel "{text}" ins({a}, %w : {a_type}, '
            f"tensor<{size}xi8>) outs(%ec, %sc : {types}) {{workspace}} -> "
            f"{types}\n    %c = tensor.cast %cs#0 : {c} to {c}\n")

    def unavoidable(self):
        """Bytes that a member moves beyond the computation's own: reads the
        others' part of its share and writes the result where it is needed."""
        es = BYTES[self.dtype]
        if self.kind == "all_gather+gemm":
            return 0  # A is read once either way
        c = self.m * self.n * es
        return c / 2 + (c if self.kind == "gemm+all_reduce" else c / 2)

    def footprint(self):
        es = BYTES[self.dtype]
        rows = self.m * (self.k if self.kind == "all_gather+gemm" else self.n)
        return 2 * rows * es


class ExchangePair(Pair):
    """Tokens sent to the owners of their experts, or what these make of them sent
    back: `groups` experts a rank, m rows each, half of which are exchanged."""

    def __init__(self, kind, dtype, m, n, k, groups=2):
        super().__init__(kind, dtype, m, n, k)
        self.groups = groups

    def label(self):
        return f"{super().label()} experts={self.groups}"

    def weight(self):
        m, n, k = self.m, self.n, self.k
        a = 0 if self.kind.startswith("all_to_all") else m * k
        text = (f"gemm astrides=[{a}] batch=[{self.groups}] bstrides=[{k * n}] "
                f"cstrides=[{m * n}] dtype={self.dtype} k={k} m={m} n={n} packed=1")
        size = self.groups * n * k * BYTES[self.dtype]
        return text, (
            f'    %w = comm.weight "w" from "{self.stem()}.weights" {{pack = "{text}", part = '
            f"tensor<{self.groups}x{k}x{n}x{self.dtype}>}} : tensor<{size}xi8>\n"
        ), size

    def shape(self):
        return [self.groups, self.k, self.n]

    def make(self, communicates):
        m, n, k, t, g = self.m, self.n, self.k, self.dtype, self.groups
        text, weight, size = self.weight()
        c = f"tensor<{g}x{m}x{n}x{t}>"

        def exchange(name, value, kind):
            return (f"    %e{name} = tensor.empty() : {kind}\n"
                    f"    %{name} = comm.all_to_all @tp split(0) concat(0) "
                    f"ins({value} : {kind}) outs(%e{name} : {kind}) -> {kind}\n")

        if self.kind.startswith("all_to_all"):
            a = f"tensor<{m}x{k}x{t}>"
            body, rows = weight, "%x"
            if communicates:
                body += exchange("a", "%x", a)
                rows = "%a"
            body += self.product(text, rows, a, size, c)
            return module([("x", a)], [("%c", c)], body, communicates)
        a, share = f"tensor<{g}x{m}x{k}x{t}>", f"tensor<{g}x{m}x1x{t}>"
        out = f"tensor<{m}x{n}x{t}>"
        sums = (f"onnx.reducesum attr.keepdims=0 in=[[{t},{g},{m},{n}],[i64,1]] "
                f"opset=17 out=[[{t},{m},{n}]]")
        scratch = f"tensor<{kernel_workspace(sums)}xi8>"
        body = weight + self.product(text, "%x", a, size, c) + (
            "    %axis = arith.constant dense<0> : tensor<1xi64>\n"
            f"    %em = tensor.empty() : {c}\n    %er = tensor.empty() : {out}\n"
            f"    %es = tensor.empty() : {scratch}\n"
            "    %m = linalg.generic {indexing_maps = [#cube, #share, #cube], "
            'iterator_types = ["parallel", "parallel", "parallel"]} '
            f"ins(%c, %s : {c}, {share}) outs(%em : {c}) {{\n"
            f"    ^bb0(%p: {t}, %q: {t}, %o: {t}):\n"
            f"      %0 = arith.mulf %p, %q : {t}\n"
            f"      linalg.yield %0 : {t}\n    }} -> {c}\n"
            f'    %r:2 = comm.kernel "{sums}" ins(%m, %axis : {c}, tensor<1xi64>) '
            f"outs(%er, %es : {out}, {scratch}) {{workspace}} -> {out}, {scratch}\n")
        result = "%r#0"
        if communicates:
            body += exchange("b", "%r#0", out)
            result = "%b"
        return module([("x", a), ("s", share)], [(result, out)], body, communicates)

    def unavoidable(self):
        """Half of what a combine stores lies with another member."""
        if self.kind.startswith("all_to_all"):
            return 0
        return self.m * self.n * BYTES[self.dtype] / 2

    def footprint(self):
        columns = self.k if self.kind.startswith("all_to_all") else self.n
        return 2 * self.m * columns * BYTES[self.dtype]


def norm_module(dtype, rows, cols, kind, made):
    """all_reduce + residual + norm; the sum goes on as the next residual. `made`: its
    input is made in the step."""
    t = f"tensor<{rows}x{cols}x{dtype}>"
    g = f"tensor<{cols}x{dtype}>"
    text = f"{kind} cols={cols} dtype={dtype} gamma=1 rows={rows}"
    scratch = kernel_workspace(text)
    w = f"tensor<{scratch}xi8>"
    body = "" if not made else (
        f"    %e0 = tensor.empty() : {t}\n"
        "    %made = linalg.generic {indexing_maps = [#id, #id], iterator_types ="
        f' ["parallel", "parallel"]}} ins(%x : {t}) outs(%e0 : {t}) {{\n'
        f"    ^bb0(%p: {dtype}, %o: {dtype}):\n"
        f"      %0 = arith.addf %p, %p : {dtype}\n"
        f"      linalg.yield %0 : {dtype}\n    }} -> {t}\n")
    x = "%made" if made else "%x"
    body += (
        f"    %e = tensor.empty() : {t}\n    %e1 = tensor.empty() : {t}\n"
        f"    %e2 = tensor.empty() : {t}\n    %sc = tensor.empty() : {w}\n"
        f"    %a = comm.all_reduce @tp sum ins({x} : {t}) outs(%e : {t}) -> {t}\n"
        "    %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types ="
        f' ["parallel", "parallel"]}} ins(%a, %r : {t}, {t}) outs(%e1 : {t}) {{\n'
        f"    ^bb0(%p: {dtype}, %q: {dtype}, %o: {dtype}):\n"
        f"      %0 = arith.addf %p, %q : {dtype}\n"
        f"      linalg.yield %0 : {dtype}\n    }} -> {t}\n"
        f'    %n:2 = comm.kernel "{text}" ins(%s, %g : {t}, {g}) outs(%e2, %sc : '
        f"{t}, {w}) {{workspace}} -> {t}, {w}\n")
    return module([("x", t), ("r", t), ("g", g)], [("%n#0", t), ("%s", t)], body,
                  True)


def update_module(dtype, share):
    """A sharded Adam step: gradients and gathered parameters in dtype."""
    s = f"tensor<{share}xf32>"
    part, whole = f"tensor<{share}x{dtype}>", f"tensor<{2 * share}x{dtype}>"

    def each(name, operands, lines, kind=s, init="%e"):
        """One elementwise operation; its lines use %0, %1, ... and yield %y."""
        types = [k for _, k in operands]
        maps = ", ".join("#one" if k == "tensor<f32>" else "#row"
                         for k in [*types, kind])
        element = lambda k: k[:-1].split("x")[-1].replace("tensor<", "")  # noqa: E731
        arguments = ", ".join(f"%{i}: {element(k)}" for i, k in enumerate(types))
        return (f"    {name} = linalg.generic {{indexing_maps = [{maps}], "
                f'iterator_types = ["parallel"]}} ins('
                f"{', '.join(v for v, _ in operands)} : {', '.join(types)}) "
                f"outs({init} : {kind}) {{\n    ^bb0({arguments}, %o: "
                f"{element(kind)}):\n      " + "\n      ".join(lines)
                + f"\n      linalg.yield %y : {element(kind)}\n    }} -> {kind}\n")

    body = "".join(f"    %{n} = arith.constant {v} : f32\n" for n, v in (
        ("b1", 0.9), ("c1", 0.1), ("b2", 0.999), ("c2", 0.001), ("eps", "1.0e-8")))
    body += (f"    %e = tensor.empty() : {s}\n    %ep = tensor.empty() : {part}\n"
             f"    %ew = tensor.empty() : {whole}\n"
             f"    %r = comm.reduce_scatter @tp sum dim(0) ins(%g : {whole}) "
             f"outs(%ep : {part}) -> {part}\n")
    gradient = "%r"
    if dtype != "f32":
        body += each("%w", [("%r", part)], [f"%y = arith.extf %0 : {dtype} to f32"])
        gradient = "%w"
    body += each("%m1", [("%m", s), (gradient, s)], [
        "%a = arith.mulf %b1, %0 : f32", "%b = arith.mulf %c1, %1 : f32",
        "%y = arith.addf %a, %b : f32"])
    body += each("%v1", [("%v", s), (gradient, s)], [
        # Inputs are drawn with both signs.
        "%z = math.absf %0 : f32",
        "%a = arith.mulf %b2, %z : f32", "%b = arith.mulf %1, %1 : f32",
        "%c = arith.mulf %c2, %b : f32", "%y = arith.addf %a, %c : f32"])
    body += each("%p1", [("%p", s), ("%m1", s), ("%v1", s), ("%lr", "tensor<f32>")], [
        "%a = math.sqrt %2 : f32", "%b = arith.addf %a, %eps : f32",
        "%c = arith.divf %1, %b : f32", "%d = arith.mulf %3, %c : f32",
        "%y = arith.subf %0, %d : f32"])
    new = "%p1"
    if dtype != "f32":
        body += each("%n", [("%p1", s)], [f"%y = arith.truncf %0 : f32 to {dtype}"],
                     part, "%ep")
        new = "%n"
    body += (f"    %all = comm.all_gather @tp dim(0) ins({new} : {part}) "
             f"outs(%ew : {whole}) -> {whole}\n")
    return "#row = affine_map<(i) -> (i)>\n#one = affine_map<(i) -> ()>\n" + module(
        [("g", whole), ("p", s), ("m", s), ("v", s), ("lr", "tensor<f32>")],
        [("%all", whole), ("%p1", s), ("%m1", s), ("%v1", s)], body, True)
