#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench fuse [-J FILE]: collectives fused with computation against apart.

Every row is a pair compiled three times by comm-opt: as comm-fuse leaves it, with
fuse=0, and the computation alone without the collective. The programs run in turns
in one job of two pinned ranks; figures are medians of the turns, in microseconds.

The share of communication is what the unfused pair takes more than its computation,
measured; K is chosen for each row so that the share comes closest to 5, 20, 40 and
60 %. The bound is computation plus the bytes that a fused pair cannot avoid at the
speed at which both cores copy, measured in the same run.

Floors: from a share of 20 % on, a fused pair takes at most
max(computation + 0.5 x communication, 1.15 x bound); below, and where comm-fuse
refuses, at most 1.02 x unfused. all_reduce + residual + norm is at least 1.5 times
as fast as apart once it has left the cache. A pair that comm-fuse refuses is printed
as refused and counted; it is no fused row.

--only takes a part of the rows: norms, updates, or one of the pairs' kinds, with :f32 or
:bf16 behind it. --quick takes short turns and few rows, and says that its figures
do not count.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BIN = os.environ.get("CONCORD_BIN", os.path.join(ROOT, "build", "bin"))
BYTES = {"f32": 4, "bf16": 2, "f16": 2}
MIB = 1 << 20


class Failed(Exception):
    pass


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600,
                          check=False)
    if done.returncode:
        raise Failed(" ".join(map(str, command)) + "\n" + done.stderr[-2000:])
    return done


def write_weights(path, name, array_bytes, dtype, shape):
    header = json.dumps({name: {"dtype": dtype.upper(), "shape": shape,
                                "data_offsets": [0, len(array_bytes)]}}).encode()
    header += b" " * (-(len(header) + 8) % 4096)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + array_bytes)


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

    def label(self):
        return f"{self.kind} {self.dtype} m={self.m} n={self.n} k={self.k}"

    def shape(self):
        return [self.k, self.n]

    def weight(self):
        text = (f"gemm dtype={self.dtype} k={self.k} m={self.m} n={self.n} "
                "packed=1")
        size = self.n * self.k * BYTES[self.dtype]
        return text, (
            f'    %w = comm.weight "w" from "w.weights" {{pack = "{text}", part = '
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
    back: two experts a rank, m rows each, half of which are exchanged."""

    GROUPS = 2

    def weight(self):
        m, n, k = self.m, self.n, self.k
        a = 0 if self.kind == "all_to_all+grouped_gemm" else m * k
        text = (f"gemm astrides=[{a}] batch=[{self.GROUPS}] bstrides=[{k * n}] "
                f"cstrides=[{m * n}] dtype={self.dtype} k={k} m={m} n={n} packed=1")
        size = self.GROUPS * n * k * BYTES[self.dtype]
        return text, (
            f'    %w = comm.weight "w" from "w.weights" {{pack = "{text}", part = '
            f"tensor<{self.GROUPS}x{k}x{n}x{self.dtype}>}} : tensor<{size}xi8>\n"
        ), size

    def shape(self):
        return [self.GROUPS, self.k, self.n]

    def make(self, communicates):
        m, n, k, t, g = self.m, self.n, self.k, self.dtype, self.GROUPS
        text, weight, size = self.weight()
        c = f"tensor<{g}x{m}x{n}x{t}>"

        def exchange(name, value, kind):
            return (f"    %e{name} = tensor.empty() : {kind}\n"
                    f"    %{name} = comm.all_to_all @tp split(0) concat(0) "
                    f"ins({value} : {kind}) outs(%e{name} : {kind}) -> {kind}\n")

        if self.kind == "all_to_all+grouped_gemm":
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
        if self.kind == "all_to_all+grouped_gemm":
            return 0
        return self.m * self.n * BYTES[self.dtype] / 2

    def footprint(self):
        columns = self.k if self.kind == "all_to_all+grouped_gemm" else self.n
        return 2 * self.m * columns * BYTES[self.dtype]


def kernel_workspace(text, cache={}):
    """Scratch bytes of a kernel, by the kernels' own library."""
    import ctypes
    if text in cache:
        return cache[text]
    library = ctypes.CDLL(os.path.join(BIN, "..", "lib", "libconcord.so"))

    class Info(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_uint32),
                    ("num_inputs", ctypes.c_uint32),
                    ("num_outputs", ctypes.c_uint32),
                    ("packed_input", ctypes.c_uint32),
                    ("workspace_bytes", ctypes.c_uint64),
                    ("packed_weight_bytes", ctypes.c_uint64)]

    info = Info(struct_size=ctypes.sizeof(Info))
    handle = ctypes.c_void_p()
    if library.concord_kernel_create(text.encode(), ctypes.byref(handle),
                                     ctypes.byref(info)):
        library.concord_kernel_last_error.restype = ctypes.c_char_p
        raise Failed(library.concord_kernel_last_error().decode())
    library.concord_kernel_destroy(handle)
    cache[text] = info.workspace_bytes
    return cache[text]


def norm_module(dtype, rows, cols, kind):
    """all_reduce + residual + norm; the sum goes on as the next residual."""
    t = f"tensor<{rows}x{cols}x{dtype}>"
    g = f"tensor<{cols}x{dtype}>"
    text = f"{kind} cols={cols} dtype={dtype} gamma=1 rows={rows}"
    scratch = kernel_workspace(text)
    w = f"tensor<{scratch}xi8>"
    body = (
        f"    %e = tensor.empty() : {t}\n    %e1 = tensor.empty() : {t}\n"
        f"    %e2 = tensor.empty() : {t}\n    %sc = tensor.empty() : {w}\n"
        f"    %a = comm.all_reduce @tp sum ins(%x : {t}) outs(%e : {t}) -> {t}\n"
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


def compile_program(text, folder, name, options):
    """(path, explain lines of comm-fuse)"""
    source = os.path.join(folder, name + ".mlir")
    target = os.path.join(folder, name + ".so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    done = call([os.path.join(BIN, "comm-opt"), source,
                 f"--comm-pipeline={options}to=lowered", "--explain", "--emit=so",
                 "-o", target])
    return target, [line for line in done.stderr.splitlines()
                    if line.startswith("explain: comm-fuse")]


def run_programs(paths, rounds, seconds, copy_bytes):
    done = call([os.path.join(BIN, "bench_fuse"), "2", str(rounds), str(seconds),
                 str(int(copy_bytes)), *paths])
    report = json.loads(done.stdout)
    times = [statistics.median(p["rounds"]) for p in report["programs"]]
    return times, report


class Table:
    def __init__(self):
        self.rows, self.refused, self.fused = [], 0, 0

    def add(self, name, value, unit, floor=None, at_most=True):
        ok = floor is None or (value <= floor if at_most else value >= floor)
        self.rows.append({"name": name, "value": value, "unit": unit,
                          "floor": floor, "ok": ok, "at_most": at_most})

    def show(self):
        print()
        for row in self.rows:
            if row["floor"] is not None:
                sign = "<=" if row["at_most"] else ">="
                print(f"{'ok  ' if row['ok'] else 'MISS'} {row['name']}: "
                      f"{row['value']:.3f} {row['unit']} {sign} {row['floor']:.3f}")
        print(f"{self.fused} pairs fused, {self.refused} refused by comm-fuse")

    def write(self, path):
        keep = ("name", "value", "unit", "floor", "ok")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"rows": [{k: r[k] for k in keep} for r in self.rows]}, file,
                      indent=1)
            file.write("\n")


def weights(folder, pair):
    random = np.random.RandomState(3)
    count = int(np.prod(pair.shape()))
    data = (random.rand(count).astype(np.float32) - 0.5) / np.float32(pair.k) ** 0.5
    raw = data.tobytes()
    if pair.dtype == "bf16":
        raw = ((data.view(np.uint32) + 0x8000) >> 16).astype(np.uint16).tobytes()
    write_weights(os.path.join(folder, "w.weights"), "w", raw, pair.dtype,
                  pair.shape())


def share_of(pair, folder, seconds):
    """Measured share of communication of the unfused pair."""
    weights(folder, pair)
    paths = [compile_program(pair.make(True), folder, "apart", "fuse=0 ")[0],
             compile_program(pair.make(False), folder, "alone", "fuse=0 ")[0]]
    times, _ = run_programs(paths, 3, seconds, MIB)
    return (times[0] - times[1]) / times[0]


def bench_pair(table, pair, wanted, folder, rounds, seconds):
    weights(folder, pair)
    fused, why = compile_program(pair.make(True), folder, "fused", "")
    apart, _ = compile_program(pair.make(True), folder, "apart", "fuse=0 ")
    alone, _ = compile_program(pair.make(False), folder, "alone", "fuse=0 ")
    times, report = run_programs([apart, fused, alone], rounds, seconds,
                                 max(MIB, pair.footprint()))
    unfused, together, compute = times
    communication = max(0.0, unfused - compute)
    share = communication / unfused
    taken = any(" fuse " in line for line in why)
    reason = re.search(r"reason=(\S+)", why[0]).group(1) if why else "none"
    bound = compute + 1e6 * pair.unavoidable() / report["copy"]
    difference = report["programs"][1]["difference"]
    verdict = "fused" if taken else f"refused ({reason})"
    print(f"  {pair.label():46} share {100 * share:4.1f} % (for {wanted} %)  "
          f"compute {compute:9.1f}  unfused {unfused:9.1f}  with comm-fuse "
          f"{together:9.1f}  {together / unfused:5.3f} x  bound {bound:9.1f}  "
          f"{verdict}", flush=True)
    table.fused += taken
    table.refused += not taken
    name = pair.label().replace(" ", "_")
    if taken and share >= 0.2:
        table.add(name, together, "us",
                  max(compute + 0.5 * communication, 1.15 * bound))
    else:
        table.add(name, together, "us", 1.02 * unfused)
    table.add(name + "_over_unfused", together / unfused, "x")
    table.add(name + "_difference", difference, "relative",
              1e-5 if pair.dtype == "f32" else 2e-2)


def wants(options, kind, dtype):
    return not options.only or any(
        part in (kind, f"{kind}:{dtype}") for part in options.only)


def bench_pairs(table, options, folder):
    rounds, seconds = (3, 0.05) if options.quick else (9, 0.3)
    ladder = [16, 32, 64, 128, 256, 512, 1024, 2048]
    shapes = [("gemm+all_reduce", 1024, 1024), ("gemm+reduce_scatter", 1024, 1024),
              ("all_gather+gemm", 1024, 1024), ("gemm+all_reduce", 16, 4096),
              ("all_to_all+grouped_gemm", 1024, 1024),
              ("grouped_gemm+all_to_all", 1024, 1024)]
    dtypes = ["f32"] if options.quick else ["f32", "bf16"]
    for dtype in dtypes:
        for kind, m, n in shapes[:1] if options.quick else shapes:
            if not wants(options, kind, dtype):
                continue
            shares = {}
            for k in ladder[1::3] if options.quick else ladder:
                # What is gathered or sent is A: its width is what K is elsewhere.
                make = ExchangePair if "all_to_all" in kind else Pair
                pair = (make(kind, dtype, m, k, n) if kind.startswith("all_")
                        else make(kind, dtype, m, n, k))
                if pair.n % (16 if make is ExchangePair else 64):
                    continue
                shares[pair] = share_of(pair, folder, seconds / 3)
            done = set()
            for wanted in (5, 20, 40, 60):
                best = min(shares, key=lambda p: abs(100 * shares[p] - wanted))
                if best not in done:
                    done.add(best)
                    bench_pair(table, best, wanted, folder, rounds, seconds)


def bench_norms(table, options, folder):
    rounds, seconds = (3, 0.05) if options.quick else (9, 0.3)
    cases = [("f32", 16, 768), ("f32", 128, 768), ("f32", 1024, 1024),
             ("f32", 8192, 1024), ("bf16", 8192, 2048)]
    for dtype, rows, cols in cases[2:3] if options.quick else cases:
        if not wants(options, "norms", dtype):
            continue
        for kind in ("rmsnorm", "layernorm"):
            text = norm_module(dtype, rows, cols, kind)
            fused, why = compile_program(text, folder, "fused", "")
            apart, _ = compile_program(text, folder, "apart", "fuse=0 ")
            size = rows * cols * BYTES[dtype]
            times, report = run_programs([apart, fused], rounds, seconds,
                                         max(MIB, 8 * size))
            taken = any(" fuse " in line for line in why)
            table.fused += taken
            table.refused += not taken
            speedup = times[0] / times[1]
            # x, residual, y and sum of both ranks against a 32 MiB cache.
            left = 8 * size > 32 * MIB
            label = f"all_reduce+residual+{kind}_{dtype}_{rows}x{cols}"
            print(f"  {label:52} apart {times[0]:9.1f}  with comm-fuse "
                  f"{times[1]:9.1f}  {speedup:5.2f} x faster"
                  f"{'  out of the cache' if left else ''}"
                  f"{'' if taken else '  refused'}", flush=True)
            table.add(label, speedup, "x", 1.5 if left else 1 / 1.02,
                      at_most=False)
            table.add(label + "_difference",
                      report["programs"][1]["difference"], "relative",
                      1e-4 if dtype == "f32" else 5e-2)


def bench_updates(table, options, folder):
    rounds, seconds = (3, 0.05) if options.quick else (9, 0.3)
    cases = [("f32", 1 << 14), ("f32", 1 << 17), ("f32", 1 << 22), ("bf16", 1 << 22)]
    for dtype, share in cases[1:2] if options.quick else cases:
        if not wants(options, "updates", dtype):
            continue
        text = update_module(dtype, share)
        fused, why = compile_program(text, folder, "fused", "")
        apart, _ = compile_program(text, folder, "apart", "fuse=0 ")
        size = 2 * share * BYTES[dtype]
        times, report = run_programs([apart, fused], rounds, seconds,
                                     max(MIB, 4 * size))
        taken = any(" fuse " in line for line in why)
        table.fused += taken
        table.refused += not taken
        label = f"reduce_scatter+adam+all_gather_{dtype}_{2 * share}"
        print(f"  {label:52} apart {times[0]:9.1f}  with comm-fuse {times[1]:9.1f}  "
              f"{times[0] / times[1]:5.2f} x faster{'' if taken else '  refused'}",
              flush=True)
        table.add(label, times[0] / times[1], "x", 1 / 1.02, at_most=False)
        # Adam divides: where the second moment is next to nothing, rounding shows.
        table.add(label + "_difference", report["programs"][1]["difference"],
                  "relative", 1e-3 if dtype == "f32" else 5e-2)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-J", "--json")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    table = Table()
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench_norms(table, options, folder)
            bench_updates(table, options, folder)
            bench_pairs(table, options, folder)
    except (Failed, OSError, ValueError) as error:
        print(f"bench fuse: {error}")
        return 1
    table.show()
    if options.only:
        print("--only: a part of the rows")
    if options.quick:
        print("--quick: too few steps for the figures to count")
    if options.json:
        table.write(options.json)
    return 0 if all(r["ok"] for r in table.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
