# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of collectives give the same on the runtime before and after
comm-simplify and comm-bucket. Values are small whole numbers, so that sums are
exact in every order and the outputs have to be equal to the bit."""

import random
import re

import numpy as np
import pytest

import model_runs as runs

# Ways in which a program came to be rewritten at least once, over all seeds.
EXPECTED = {"own-shard", "scatter-and-gather", "one-block",
            "part-taken", "add-of-two", "duplicate", "dead", "loop-invariant",
            "equal-on-members", "converted-after", "converted-before", "constant",
            "latency"}


class Program:
    """One entry function, written motif by motif."""

    def __init__(self, seed, world):
        self.random = random.Random(seed)
        self.world = world
        self.size = {"tp": 2, "dp": world // 2, "all": world}
        self.lines, self.inputs, self.results = [], [], []
        self.count = 0

    def name(self):
        self.count += 1
        return f"%v{self.count}"

    def emit(self, text, kind):
        value = self.name()
        self.lines.append(f"    {value} = {text}")
        return value, kind

    def empty(self, shape, element):
        kind = "tensor<" + "x".join([*map(str, shape), element]) + ">"
        return self.emit(f"tensor.empty() : {kind}", kind)

    def kind(self, shape, element="f32"):
        return "tensor<" + "x".join([*map(str, shape), element]) + ">"

    def source(self, shape, element="f32"):
        """An input, sometimes with arithmetic on it."""
        kind = self.kind(shape, element)
        self.inputs.append((f"%x{len(self.inputs)}", shape, element, kind))
        value = self.inputs[-1][0]
        if self.random.random() < 0.5:
            init, _ = self.empty(shape, element)
            value, _ = self.emit(
                f"linalg.add ins({value}, {value} : {kind}, {kind}) "
                f"outs({init} : {kind}) -> {kind}", kind)
        return value, shape, element

    def collective(self, op, data, shape, element=None):
        value, before, was = data
        element = element or was
        init, kind = self.empty(shape, element)
        ins = self.kind(before, was)
        if self.random.random() < 0.25 and "broadcast" not in op:
            head, domain, rest = (op.split(" ", 2) + [""])[:3]
            attributes = []
            if m := re.search(r"\b(sum|max)\b", rest):
                attributes.append(f"reduction = {1 if m[1] == 'sum' else 4} : i32")
            if m := re.search(r"dim\((\d)\)", rest):
                attributes.append(f"dim = {m[1]} : i64")
            future = self.name()
            self.lines.append(
                f"    {future} = comm.start {head[5:]} {domain} ins({value} : {ins}) "
                f"outs({init} : {kind}) {{{', '.join(attributes)}}}")
            result, _ = self.emit(f"comm.wait {future} ins({value} : {ins}) "
                                  f"outs({init} : {kind}) -> {kind}", kind)
        else:
            result, _ = self.emit(f"{op} ins({value} : {ins}) outs({init} : {kind})"
                                  f" -> {kind}", kind)
        return result, shape, element

    def reduce(self, domain, data, how="sum"):
        return self.collective(f"comm.all_reduce @{domain} {how}", data, data[1])

    def gather(self, domain, data):
        shape = [data[1][0] * self.size[domain], *data[1][1:]]
        return self.collective(f"comm.all_gather @{domain} dim(0)", data, shape)

    def scatter(self, domain, data):
        shape = [data[1][0] // self.size[domain], *data[1][1:]]
        return self.collective(f"comm.reduce_scatter @{domain} sum dim(0)", data, shape)

    def own(self, domain, data):
        value, shape, element = data
        part = shape[0] // self.size[domain]
        rank, _ = self.emit(f"comm.rank @{domain}", "index")
        unit, _ = self.emit(f"arith.constant {part} : index", "index")
        at, _ = self.emit(f"arith.muli {rank}, {unit} : index", "index")
        return self.slice(data, [at, *["0"] * (len(shape) - 1)], [part, *shape[1:]])

    def slice(self, data, offsets, shape):
        value, before, element = data
        ones = ", ".join(["1"] * len(shape))
        result, _ = self.emit(
            f"tensor.extract_slice {value}[{', '.join(offsets)}] "
            f"[{', '.join(map(str, shape))}] [{ones}] : {self.kind(before, element)} "
            f"to {self.kind(shape, element)}", None)
        return result, shape, element

    def binary(self, op, a, b):
        kind = self.kind(a[1], a[2])
        init, _ = self.empty(a[1], a[2])
        result, _ = self.emit(f"linalg.{op} ins({a[0]}, {b[0]} : {kind}, {kind}) "
                              f"outs({init} : {kind}) -> {kind}", kind)
        return result, a[1], a[2]

    def convert(self, data, element):
        op = "extf" if element == "f32" else "truncf"
        scalar_from, scalar_to = data[2], element
        init, kind = self.empty(data[1], element)
        maps = ", ".join(["affine_map<(" + ", ".join(f"d{i}" for i in range(len(data[1])))
                          + ") -> (" + ", ".join(f"d{i}" for i in range(len(data[1])))
                          + ")>"] * 2)
        loops = ", ".join(['"parallel"'] * len(data[1]))
        result, _ = self.emit(
            f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{loops}]}} "
            f"ins({data[0]} : {self.kind(data[1], data[2])}) outs({init} : {kind}) {{\n"
            f"    ^bb0(%a: {scalar_from}, %b: {scalar_to}):\n"
            f"      %c = arith.{op} %a : {scalar_from} to {scalar_to}\n"
            f"      linalg.yield %c : {scalar_to}\n    }} -> {kind}", kind)
        return result, data[1], element

    def keep(self, data):
        if data[2] == "bf16":
            data = self.convert(data, "f32")
        self.results.append(data)

    def motif(self, which):
        pick = self.random.choice
        domain = pick(["tp", "all", "dp"] if self.world > 2 else ["tp", "all"])
        element = pick(["f32", "f32", "i32"])
        shape = [4 * pick([1, 2, 3]), *([] if pick([0, 1]) else [pick([1, 2, 5])])]
        data = lambda: self.source(shape, element)  # noqa: E731
        if which == "own":
            self.keep(self.own(domain, self.reduce(domain, data(), pick(["sum", "max"]))))
        elif which == "scatter-gather":
            self.keep(self.gather(domain, self.scatter(domain, data())))
        elif which == "equal-own":
            whole = self.reduce("all", data())
            self.keep(self.gather(domain, self.own(domain, whole)))
        elif which == "own-of-gather":
            self.keep(self.own(domain, self.gather(domain, data())))
        elif which == "block":
            got = self.gather(domain, self.source([4096], element))
            at = 4096 * self.random.randrange(self.size[domain])
            self.keep(self.slice(got, [str(at)], [4096]))
        elif which == "part":
            got = self.gather(domain, self.source([4, 6], element))
            self.keep(self.slice(got, ["0", "1"], [got[1][0], 3]))
        elif which == "two":
            form = pick([self.reduce, self.scatter])
            a, b = form(domain, data()), form(domain, data())
            self.keep(self.binary(pick(["add", "sub"]), a, b))
        elif which == "twice":
            x = data()
            self.keep(self.reduce(domain, x))
            self.keep(self.reduce(domain, x))
        elif which == "dead":
            self.reduce(domain, data())
        elif which == "again":
            x = self.reduce("all", data(), "max")
            self.keep(self.reduce(domain, x, pick(["sum", "max"])))
        elif which == "levels":
            self.keep(self.reduce("dp", self.reduce("tp", data())))
        elif which == "narrow":
            got = self.gather(domain, self.source(shape))
            self.keep(self.convert(got, "bf16"))
        elif which == "wide":
            low = self.convert(self.source(shape), "bf16")
            self.keep(self.gather(domain, self.convert(low, "f32")))
        elif which == "constant":
            self.emit("arith.constant dense<[1.0, 2.0]> : tensor<2xf32>", None)
            constant = (f"%v{self.count}", [2], "f32")
            self.keep(self.gather(domain, constant))
        elif which == "bucket":
            form = pick([self.reduce, self.gather, self.scatter])
            for _ in range(3):
                x = data()
                if form == self.gather and element == "f32" and pick([0, 1]):
                    x = self.convert(x, "bf16")
                self.keep(form(domain, x))
        elif which == "loop":
            x, start = data(), self.reduce("all", data())
            kind = self.kind(shape, element)
            zero, _ = self.emit("arith.constant 0 : index", None)
            one, _ = self.emit("arith.constant 1 : index", None)
            three, _ = self.emit("arith.constant 3 : index", None)
            result = self.name()
            self.lines.append(f"    {result} = scf.for %i = {zero} to {three} step {one} "
                              f"iter_args(%t = {start[0]}) -> {kind} {{")
            inside = self.binary("add", self.reduce(domain, x), ("%t", shape, element))
            self.lines.append(f"    scf.yield {inside[0]} : {kind}\n    }}")
            self.keep((result, shape, element))

    def text(self):
        motifs = ["own", "scatter-gather", "equal-own", "own-of-gather", "block", "part",
                  "two", "twice", "dead", "again", "levels", "narrow", "wide", "constant",
                  "bucket", "bucket", "bucket", "loop"]
        self.random.shuffle(motifs)
        for which in motifs:
            self.motif(which)
        groups = {"tp": [[2 * i, 2 * i + 1] for i in range(self.world // 2)],
                  "dp": [[i, i + 2] for i in range(2)] if self.world > 2 else [[0], [1]],
                  "all": [list(range(self.world))]}
        domains = "\n".join(f"  comm.domain @{k} groups({v})" for k, v in groups.items())
        arguments = ", ".join(f'{n}: {k} {{comm.name = "{n[1:]}"}}'
                              for n, _, _, k in self.inputs)
        kinds = [self.kind(s, e) for _, s, e in self.results]
        names = ", ".join(f'{k} {{comm.name = "y{i}"}}' for i, k in enumerate(kinds))
        return (f"module attributes {{comm.world = {self.world} : i64}} {{\n{domains}\n"
                f"  func.func @main({arguments}) -> ({names}) {{\n"
                + "\n".join(self.lines)
                + f"\n    return {', '.join(r[0] for r in self.results)} : "
                f"{', '.join(kinds)}\n  }}\n}}\n")


@pytest.mark.parametrize("world", [2, 4])
def test_same_before_and_after(world, tmp_path):
    program = Program(100 + world, world)
    source = tmp_path / "m.mlir"
    source.write_text(program.text())
    values = np.random.default_rng(world)
    arguments = []
    for name, shape, element, _ in program.inputs:
        for rank in range(world):
            path = tmp_path / f"{name[1:]}.{rank}.npy"
            data = values.integers(-6, 7, shape)
            np.save(path, data.astype(np.float32 if element == "f32" else np.int32))
            arguments += ["--input", f"{name[1:]}@{rank}={path}"]
    outputs = []
    rewrites = ["--explain", "--comm-simplify=machine=cpu",
                "--comm-bucket=machine=accelerator"]
    for form, passes in ("before", []), ("after", rewrites):
        so = tmp_path / f"{form}.so"
        done = runs.tool("comm-opt", source, *passes,
                         "--comm-pipeline=simplify=false bucket=false", "--emit=so",
                         "-o", so)
        runs.tool("comm-run", so, "-n", world, *arguments, "--output-dir",
                  tmp_path / form)
        outputs.append({p.name: np.load(p) for p in (tmp_path / form).glob("*.npy")})
    reasons = set(re.findall(r"reason=(\S+)", "\n".join(
        line for line in done.stderr.splitlines() if " keep-" not in line)))
    assert EXPECTED <= reasons, EXPECTED - reasons
    before, after = outputs
    assert before.keys() == after.keys() and len(before) == world * len(program.results)
    for name, want in before.items():
        np.testing.assert_array_equal(after[name], want, err_msg=name)
