# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs over the comm dialect, with what each rank has to get.

A program is a list of statements that print themselves as MLIR and run in Python,
rank by rank: loops, branches, started collectives, uneven and permuted groups, every
element type, and, of several programs, sends and receives. Floating-point values are
such that every sum and product is exact, so passes have no excuse for a wrong bit.
"""

import random

import numpy as np

from comm_statements import (FLOATS, INTEGERS, LARGEST, NUMPY, Branch, Domain, Issue, Loop,
                             Start, Statement, Value, Wait, While, execute)
from comm_writer import Writer


def groups_of(world, pick):
    """Domains of a world: whole, permuted, rows and columns, of one, of several sizes."""
    ranks = list(range(world))
    turned = ranks[1:] + ranks[:1]
    found = {"all": [ranks], "turned": [turned[::-1]], "one": [[r] for r in ranks]}
    if world == 4:
        found |= {"tp": [[0, 1], [2, 3]], "dp": [[0, 2], [1, 3]], "swap": [[1, 0], [2, 3]],
                  "cross": [[3, 0], [1, 2]], "odd": [[0, 2, 3], [1]]}
    if world == 3:
        found["odd"] = [[0], [2, 1]]
    names = [n for n in found if n == "all" or pick() < 0.7]
    return [Domain(n, found[n]) for n in names]


class Program:
    """A module of one function that all ranks run, or of two programs (`stages`)."""

    def __init__(self, seed, world, statements=24, stages=False):
        self.random = random.Random(seed)
        self.seed, self.world = seed, world
        self.stages = stages
        self.functions = []  # (name, ranks, Writer, results)
        if stages:
            self.write_stages(statements)
        else:
            self.domains = groups_of(world, self.random.random)
            writer = Writer(self, "v")
            for _ in range(3):
                writer.pool.append(self.input(writer))
            for _ in range(statements):
                self.statement(writer, 0)
            writer.flush()
            self.functions = [("main", list(range(world)), writer, self.results(writer))]
        values = np.random.default_rng(seed)
        self.given = {}  # name -> array of each rank
        for _, ranks, writer, _ in self.functions:
            for value, replicated in writer.inputs:
                arrays = {r: values.integers(-2, 3, value.shape) for r in ranks}
                if replicated:
                    arrays = dict.fromkeys(ranks, arrays[ranks[0]])
                if value.element == "i1":
                    arrays = {r: a > 0 for r, a in arrays.items()}
                self.given[value.name] = {r: np.asarray(a).astype(NUMPY[value.element])
                                          for r, a in arrays.items()}

    def results(self, writer):
        seen = [v for v in writer.pool if v not in [i for i, _ in writer.inputs]]
        self.random.shuffle(seen)
        kept = seen[:max(3, len(seen) // 2)]
        return kept or writer.pool[:1]

    # -- one random statement
    def element(self):
        return self.random.choice(["f32"] * 6 + ["i32"] * 3 + ["bf16", "f16", "f64", "i64",
                                  "i8", "i16", "i1", "f8E4M3FN", "f8E5M2"])

    def shape(self, rank=None):
        pick = self.random.choice
        rank = pick([0, 1, 1, 2, 2, 2, 3]) if rank is None else rank
        some = [1, 2, 3, 4, 4, 8, 12]
        return [pick(some if self.random.random() > 0.02 else [0]) for _ in range(rank)]

    def input(self, writer, replicated=None):
        if replicated is None:
            replicated = self.random.random() < 0.3
        return writer.input(self.shape(), self.element(), replicated)

    def choose(self, writer, accept=lambda v: True):
        fits = [v for v in writer.pool if accept(v)]
        return self.random.choice(fits[-8:]) if fits else None

    def like(self, writer, value):
        """Another value of the same type, made if there is none."""
        other = self.choose(writer, lambda v: v.kind == value.kind and v is not value)
        if other and self.random.random() < 0.6:
            return other
        return writer.input(value.shape, value.element, self.random.random() < 0.2)

    def fresh(self, writer, divides=1, rank=None, elements=("f32", "f32", "i32", "bf16")):
        shape = self.shape(rank or self.random.choice([1, 2]))
        shape[0] = divides * self.random.choice([1, 2, 3])
        value = writer.input(shape, self.random.choice(elements),
                             self.random.random() < 0.2)
        if self.random.random() < 0.4 and not value.element.startswith("f8"):
            value = writer.binary("add", value, value)
        return value

    def small(self, value, factor=1):
        return value.element in INTEGERS or value.size * factor <= LARGEST[value.element]

    def reductions(self, value, domain):
        if value.element in ("f8E4M3FN", "f8E5M2"):
            return []
        if value.element == "i1":
            return ["and", "or"]
        hows = ["max", "min"]
        if value.element in INTEGERS:
            return [*hows, "and", "or", "sum", "prod"]
        if self.small(value, 4):
            hows += ["sum"] * 4
            if domain.size in (1, 2, 4) and self.small(value, 32):
                hows += ["avg"]
        return hows

    def statement(self, writer, depth):
        pick = self.random.random()
        if pick < 0.1:
            writer.flush(0.5)
        elif pick < 0.35:
            self.local(writer)
        elif pick < 0.62:
            self.communicate(writer)
        elif pick < 0.86:
            self.motif(writer)
        elif depth < 2:
            self.region(writer, depth)

    def keep(self, writer, value):
        if value is not None:
            writer.pool.append(value)

    def local(self, writer):
        pick = self.random.choice
        value = self.choose(writer)
        # Floats of 8 bits are moved only.
        moved = value is not None and value.element.startswith("f8")
        what = pick(["binary", "binary", "convert", "slice", "strided", "reshape",
                     "transpose", "constant", "insert", "product", "input"])
        if what == "input" or value is None:
            self.keep(writer, self.input(writer))
        elif what == "binary" and not moved:
            op = pick(["add", "add", "sub", "mul", "max", "min"])
            if not self.small(value, 4):
                op = pick(["max", "min"])
            other = self.like(writer, value)
            if op == "mul" and not (self.small(value, other.size * 2)):
                op = "max"
            self.keep(writer, writer.binary(op, value, other))
        elif what == "convert" and not moved:
            element = self.element()
            if element.startswith("f8"):
                return
            if element in LARGEST and value.size > LARGEST[element]:
                return
            if value.element in INTEGERS and element in FLOATS and value.size > 100:
                return
            self.keep(writer, writer.convert(value, element))
        elif what in ("slice", "strided") and value.shape and all(value.shape):
            sizes = [pick(range(1, n + 1)) if n else 0 for n in value.shape]
            strides = None
            if what == "strided" and sizes[-1] > 1:
                sizes[-1] = (value.shape[-1] + 1) // 2
                strides = [1] * (len(sizes) - 1) + [2]
                offsets = [0] * len(sizes)
            else:
                offsets = [pick(range(n - s + 1)) for n, s in zip(value.shape, sizes)]
            self.keep(writer, writer.slice(value, offsets, sizes, strides))
        elif what == "reshape":
            self.keep(writer, writer.reshape(value))
        elif what == "transpose":
            self.keep(writer, writer.transpose(value))
        elif what == "constant":
            element = self.element()
            self.keep(writer, writer.constant(self.shape(), element, pick([True, False])))
        elif what == "insert" and value.shape and all(value.shape):
            whole = self.like(writer, value)
            sizes = [pick(range(1, n + 1)) for n in value.shape]
            part = writer.slice(value, [0] * len(sizes), sizes)
            self.keep(writer, writer.insert(
                part, whole, [n - s for n, s in zip(value.shape, sizes)]))
        elif what == "product":
            self.keep(writer, self.matmul(writer))

    def matmul(self, writer, rows=None, cols=None, inner=None, left=None):
        element = "f32"
        m, n, k = (given or self.random.choice([1, 2, 4, 8]) for given in
                   (rows, cols, inner))
        a = left or writer.input([m, k], element)
        b = writer.input([a.shape[1], n], element, self.random.random() < 0.5)
        return writer.product(a, b)

    def communicate(self, writer):
        pick = self.random.choice
        domain = pick(self.domains)
        value = self.choose(writer, lambda v: v.size < 1 << 14)
        if value is None:
            return
        kinds = ["all_reduce"] * 3 + ["broadcast", "reduce", "permute", "barrier"]
        divided = [i for i, n in enumerate(value.shape)
                   if domain.size and n % domain.size == 0]
        if domain.size and value.shape and max(value.shape) <= 24:
            kinds += ["all_gather"] * 3 + ["gather"]
            if divided:
                kinds += ["reduce_scatter"] * 3 + ["all_to_all"] * 2
                if divided[0] == 0:
                    kinds += ["scatter"]
        kind = pick(kinds)
        hows = self.reductions(value, domain)
        root = self.random.randrange(min(len(g) for g in domain.groups))
        if kind in ("all_reduce", "reduce_scatter", "reduce") and not hows:
            return
        if kind == "all_reduce":
            result = writer.all_reduce(value, domain, pick(hows))
        elif kind == "reduce_scatter":
            result = writer.reduce_scatter(value, domain, pick(hows), pick(divided))
        elif kind == "all_gather":
            result = writer.all_gather(value, domain, pick(range(len(value.shape))))
        elif kind == "all_to_all":
            result = writer.all_to_all(value, domain, pick(divided),
                                       pick(range(len(value.shape))))
        elif kind == "broadcast":
            result = writer.broadcast(value, domain, root)
        elif kind in ("reduce", "gather", "scatter"):
            result = writer.rooted(kind, value, domain, root, pick(hows) if hows else "")
        elif kind == "permute":
            least = min(len(g) for g in domain.groups)
            sources, targets = list(range(least)), list(range(least))
            self.random.shuffle(targets)
            count = pick([least, self.random.randrange(least + 1)])
            result = writer.permute(value, domain, list(zip(sources, targets))[:count])
        else:
            writer.add(Issue([], [], f"comm.barrier @{domain.name}",
                             ("barrier", domain, None)))
            return
        self.keep(writer, result)

    def motif(self, writer):
        """What comm-simplify, comm-bucket and comm-fuse look for, and near misses."""
        pick = self.random.choice
        domain = pick([d for d in self.domains if d.size])
        count = domain.size
        data = self.fresh(writer, count)
        if not all(data.shape):
            return
        which = pick(["own", "own", "not-own", "two-own", "scatter-gather", "equal-own",
                      "own-of-gather", "block", "part", "two", "two", "twice", "dead",
                      "again", "levels", "narrow", "wide", "constant", "bucket", "bucket",
                      "bucket", "reduce-narrow", "product", "product", "gather-product",
                      "zero1", "equal-move"])
        keep = lambda v: self.keep(writer, v)  # noqa: E731
        how = pick([h for h in self.reductions(data, domain) if h != "avg"])
        now = {"later": False}
        if which in ("own", "not-own", "two-own"):
            whole = writer.all_reduce(data, domain, how, **now)
            if pick([0, 1]) and len(whole.shape) == 2:
                # Through a reshape that keeps the shards together.
                whole = writer.reshape(whole)
            keep(writer.own(whole, domain, 0, shift=int(which == "not-own")))
            if which == "two-own":
                keep(writer.own(whole, domain, 0))
            if pick([0, 0, 1]):
                keep(whole)
        elif which == "scatter-gather":
            part = writer.reduce_scatter(data, domain, how, 0, **now)
            keep(writer.all_gather(part, domain, 0))
            if pick([0, 0, 1]):
                keep(part)
        elif which == "equal-own":
            wider = pick(self.domains)
            whole = writer.all_reduce(data, wider, how, **now)
            keep(writer.all_gather(writer.own(whole, domain, 0), domain, 0))
        elif which == "own-of-gather":
            dim = pick(range(len(data.shape)))
            got = writer.all_gather(data, domain, dim, **now)
            keep(writer.own(got, domain, dim, shift=pick([0, 0, 1])))
        elif which == "block":
            got = writer.all_gather(data, domain, 0, **now)
            at = data.shape[0] * self.random.randrange(count)
            keep(writer.slice(got, [at, *[0] * (len(data.shape) - 1)], data.shape))
        elif which == "part":
            data = writer.input([2, pick([4, 6])], data.element)
            dim = pick([0, 1])
            got = writer.all_gather(data, domain, dim, **now)
            sizes = list(got.shape)
            sizes[1 - dim] = pick(range(1, sizes[1 - dim] + 1))
            keep(writer.slice(got, [0, 0], sizes))
        elif which == "two":
            form = pick([writer.all_reduce,
                         lambda v, d, h, **m: writer.reduce_scatter(v, d, h, 0, **m)])
            other = self.like(writer, data)
            op = pick(["add", "sub", "max", "min", "mul"])
            if op == "mul" and not self.small(data, other.size * 32):
                op = "add"
            a = form(data, domain, how, **now)
            self.maybe(writer)
            b = form(other, domain, pick([how, how, how, "max"]), **now)
            keep(writer.binary(op, a, b))
            if pick([0, 0, 0, 1]):
                keep(a)
        elif which == "twice":
            keep(writer.all_reduce(data, domain, how))
            self.maybe(writer)
            keep(writer.all_reduce(data, domain, how))
        elif which == "dead":
            writer.all_reduce(data, domain, how)
        elif which == "again":
            first = writer.all_reduce(data, pick(self.domains), pick(["max", "min"]), **now)
            if pick([0, 1]):
                first = writer.binary("add", first, first)
            hows = [h for h in self.reductions(first, domain) if h != "avg"]
            keep(writer.all_reduce(first, domain, pick(hows)))
        elif which == "levels":
            first = writer.all_reduce(data, pick(self.domains), how, **now)
            hows = self.reductions(first, domain)
            if how in hows:
                keep(writer.all_reduce(first, domain, how))
        elif which == "narrow":
            data = self.fresh(writer, count, elements=("f32", "i32", "f64"))
            got = writer.all_gather(data, domain, 0, **now)
            keep(writer.convert(got, pick(["bf16", "f16", "i8", "f32"])))
        elif which == "wide":
            data = self.fresh(writer, count, elements=("bf16", "i8", "f16", "i1"))
            data = writer.convert(data, pick(["f32", "f64", "i32"]))
            keep(pick([lambda: writer.all_gather(data, domain, 0),
                       lambda: writer.broadcast(data, domain, 0),
                       lambda: writer.permute(data, domain, [(0, count - 1)])])())
        elif which == "constant":
            shape = self.shape(pick([1, 2]))
            constant = writer.constant(shape, self.element(), pick([True, False]))
            keep(writer.all_gather(constant, domain, pick(range(len(shape)))))
        elif which == "bucket":
            kind = pick(["all_reduce", "all_gather", "reduce_scatter", "broadcast",
                         "permute"])
            for _ in range(pick([2, 3, 4])):
                data = self.fresh(writer, count, elements=("f32", "f32", "bf16", "i32",
                                                           "i8", "f8E4M3FN", "i1", "i64"))
                if kind in ("all_gather", "broadcast", "permute"):
                    keep(writer.all_gather(data, domain, 0) if kind == "all_gather" else
                         writer.broadcast(data, domain, count - 1) if kind == "broadcast"
                         else writer.permute(data, domain, [(0, count - 1)]))
                    continue
                hows = [h for h in self.reductions(data, domain) if h != "avg"]
                if not hows:
                    continue
                how = "sum" if "sum" in hows else "max" if "max" in hows else pick(hows)
                keep(writer.all_reduce(data, domain, how) if kind == "all_reduce" else
                     writer.reduce_scatter(data, domain, how, 0))
                self.maybe(writer)
        elif which == "reduce-narrow":
            data = self.fresh(writer, count, elements=("f32", "i32"))
            hows = [h for h in self.reductions(data, domain) if h != "avg"]
            whole = writer.all_reduce(data, domain, pick(hows), **now)
            keep(writer.convert(whole, "bf16" if whole.size <= 64 else data.element))
        elif which == "product":
            product = self.matmul(writer, rows=count * pick([1, 2, 4]))
            if pick([0, 1]):
                got = writer.all_reduce(product, domain, "sum", **now)
                if pick([0, 1]):
                    residual = writer.input(got.shape, "f32", pick([True, False]))
                    got = writer.binary("add", *pick([(got, residual), (residual, got)]))
            else:
                got = writer.reduce_scatter(product, domain, "sum", pick([0, 0, 1]) if
                                            product.shape[1] % count == 0 else 0)
            keep(got)
        elif which == "gather-product":
            left = writer.all_gather(writer.input([pick([1, 2, 4]), 4], "f32"), domain,
                                     0, **now)
            keep(self.matmul(writer, left=left))
            if pick([0, 0, 1]):
                keep(left)
        elif which == "zero1":
            gradient = self.fresh(writer, count, elements=("f32",))
            part = writer.reduce_scatter(gradient, domain, "sum", 0, **now)
            state = writer.input(part.shape, "f32")
            step = writer.binary("add", state, part)
            keep(step)
            keep(writer.all_gather(writer.binary(pick(["sub", "add"]), state, step),
                                   domain, 0))
        elif which == "equal-move":
            equal = writer.input(data.shape, data.element, True)
            if pick([0, 1]):
                equal = writer.binary("max", equal, equal)
            order = list(range(count))
            self.random.shuffle(order)
            keep(pick([lambda: writer.broadcast(equal, domain, 0),
                       lambda: writer.permute(equal, domain, list(enumerate(order))),
                       lambda: writer.all_reduce(equal, domain, "max")])())

    def maybe(self, writer):
        """Something in between, sometimes."""
        pick = self.random.random()
        if pick < 0.3:
            self.local(writer)
        elif pick < 0.4:
            self.communicate(writer)

    # -- regions
    def count(self, writer):
        """A trip count: known, or a whole input's."""
        if self.random.random() < 0.6:
            n = self.random.choice([0, 1, 2, 3, 3])
            return writer.scalar(writer.name(), f"arith.constant {n} : index", n)
        given = writer.input([], "i32", True)
        number, name = writer.name(), writer.name()
        writer.add(Statement([number], [given], f"{number} = tensor.extract {given}[] : "
                             "tensor<i32>", lambda x, rank: int(x)))
        writer.add(Statement([name], [number], f"{name} = arith.index_cast {number} : i32 "
                             "to index", lambda x, rank: x))
        return name

    def condition(self, writer):
        """(name, whether all ranks agree)."""
        name = writer.name()
        which = self.random.random()
        if which < 0.4:
            domain = self.random.choice(self.domains)
            rank = writer.scalar(writer.name(), f"comm.rank @{domain.name}", domain.place)
            writer.add(Statement([name], [rank], f"{name} = arith.cmpi eq, {rank}, %zero : "
                                 "index", lambda r, rank: r == 0))
            return name, False
        given = writer.input([], "i32", which < 0.8)
        uniform = which < 0.8
        if not uniform:
            every = next(d for d in self.domains if d.name == "all")
            given = writer.all_reduce(given, every, "max", later=False)
            uniform = True
        number, zero = writer.name(), writer.name()
        writer.add(Statement([number], [given], f"{number} = tensor.extract {given}[] : "
                             "tensor<i32>", lambda x, rank: int(x)))
        writer.scalar(zero, "arith.constant 0 : i32", 0)
        writer.add(Statement([name], [number], f"{name} = arith.cmpi sgt, {number}, {zero} "
                             ": i32", lambda x, rank: x > 0))
        return name, uniform

    def nested(self, writer, depth, statements, communicates=True):
        """Statements in a block of their own; what they leave."""
        outer, pool, pending = writer.block, writer.pool, writer.pending
        writer.block, writer.pool, writer.pending = [], list(pool), []
        for _ in range(statements):
            if communicates:
                self.statement(writer, depth + 1)
            else:
                self.local(writer)
        writer.flush()
        block, made = writer.block, writer.pool[len(pool):]
        writer.block, writer.pool, writer.pending = outer, pool, pending
        return block, made

    def region(self, writer, depth):
        pick = self.random.choice
        start = self.choose(writer, lambda v: not v.element.startswith("f8") and
                            self.small(v, 16))
        if start is None:
            return
        if pick([0, 1, 1]):
            count, counter = self.count(writer), writer.name()
            carried = Value(writer.name(), start.shape, start.element, start.size * 4)
            writer.pool.append(carried)
            body, made = self.nested(writer, depth, pick([1, 2, 3, 4]))
            writer.pool.remove(carried)
            fits = [v for v in made if v.kind == carried.kind]
            outer, writer.block = writer.block, body
            if fits and pick([0, 1]):
                yielded = fits[-1]
            else:
                other = fits[-1] if fits else self.like(writer, start)
                yielded = writer.binary(pick(["max", "min"]), carried, other)
            writer.block = outer
            size = max(carried.size, yielded.size)
            form = pick([Loop, Loop, While])
            name = writer.name() + ("#1" if form is While else "")
            result = Value(name, start.shape, start.element, size)
            writer.add(form(result, start, carried, body, yielded, count, counter))
            self.keep(writer, result)
            return
        condition, uniform = self.condition(writer)
        arms, yields = [], []
        for _ in range(2):
            body, made = self.nested(writer, depth, pick([0, 1, 2, 3]), uniform)
            fits = [v for v in made if v.kind == start.kind]
            outer, writer.block = writer.block, body
            yields.append(fits[-1] if fits else self.like(writer, start))
            arms.append(writer.block)
            writer.block = outer
        result = Value(writer.name(), start.shape, start.element,
                       max(v.size for v in yields))
        writer.add(Branch(result, condition, arms, yields))
        self.keep(writer, result)

    # -- two programs
    def write_stages(self, statements):
        world, half = self.world, self.world // 2
        sides = [list(range(half)), list(range(half, world))]
        every = Domain("all", [list(range(world))])
        pairs = Domain("pp", [[r, r + half] for r in range(half)])
        own = []
        for i, ranks in enumerate(sides):
            own.append([Domain(f"in{i}", [ranks]), Domain(f"back{i}", [ranks[::-1]])])
        writers = [Writer(self, "p"), Writer(self, "q")]
        for writer in writers:
            for _ in range(3):
                writer.pool.append(self.input(writer))
        for _ in range(statements):
            what = self.random.random()
            if what < 0.6:
                side = self.random.randrange(2)
                self.domains = own[side]
                pick = self.random.random()
                writer = writers[side]
                if pick < 0.1:
                    writer.flush(0.5)
                else:
                    (self.local if pick < 0.4 else self.communicate if pick < 0.7 else
                     self.motif)(writer)
            elif what < 0.85:
                self.transfer(writers, pairs)
            else:
                self.together(writers, every)
        for side, (writer, ranks) in enumerate(zip(writers, sides)):
            writer.flush()
            self.functions.append((f"stage{side}", ranks, writer, self.results(writer)))
        self.domains = [every, pairs, *own[0], *own[1]]

    def transfer(self, writers, pairs):
        """A value goes from one stage to the other."""
        source = self.random.randrange(2)
        value = self.choose(writers[source], lambda v: v.size < 1 << 12)
        if value is None:
            return
        target = 1 - source
        writers[source].add(Issue([], [value], f"comm.send @pp to({target}) ins({value} : "
                                  f"{value.kind})", ("send", pairs, target)))
        other = writers[target]
        outs = other.empty(value.shape, value.element)
        result = Value(other.name(), value.shape, value.element, value.size)
        request = ("recv", pairs, source)
        if self.random.random() < 0.4:
            future = other.name()
            other.add(Start([future], [outs], f"{future} = comm.start recv @pp outs({outs} : "
                            f"{outs.kind}) {{peer = {source} : i64}}", request))
            wait = Wait([result], future, [outs], f"{result} = comm.wait {future} "
                        f"outs({outs} : {outs.kind}) -> {result.kind}")

            def write():
                other.add(wait)
                other.pool.append(result)
            other.pending.append(write)
            return
        other.add(Issue([result], [outs], f"{result} = comm.recv @pp from({source}) "
                        f"outs({outs} : {outs.kind}) -> {result.kind}", request))
        other.pool.append(result)

    def together(self, writers, every):
        """A collective that both programs issue."""
        pick = self.random.choice
        value = self.choose(writers[0], lambda v: v.element in ("f32", "i32") and
                            v.size < 1 << 10)
        if value is None:
            return
        sides = [value, self.like(writers[1], value)]
        kind = pick(["all_reduce", "all_gather", "uneven"])
        if kind != "all_reduce" and not value.shape:
            return
        for writer, mine, side in zip(writers, sides, range(2)):
            if kind == "all_reduce":
                got = writer.all_reduce(mine, every, "max")
            elif kind == "all_gather":
                got = writer.all_gather(mine, every, 0)
            else:
                # Those of the first program get 1 row of each member, the others 2.
                half, rest = self.world // 2, mine.shape[1:]
                rows = writer.input([3 * half, *rest], mine.element)
                sends = [1] * half + [2] * half
                starts = np.cumsum([0, *sends])
                gets = 1 + side
                outs = writer.empty([gets * self.world, *rest], mine.element)
                got = Value(writer.name(), outs.shape, mine.element)
                writer.add(Issue(
                    [got], [rows, outs],
                    f"{got} = comm.all_to_all @all split(0) concat(0) sizes({sends} to "
                    f"{[gets] * self.world}) ins({rows} : {rows.kind}) outs({outs} : "
                    f"{outs.kind}) -> {got.kind}",
                    ("all_to_all", every, lambda x, p, old, at=starts: np.concatenate(
                        [v[at[p]:at[p + 1]] for v in x]))))
            self.keep(writer, got)

    # -- as text, and what comes out
    def text(self):
        lines = [f"module attributes {{comm.world = {self.world} : i64}} {{"]
        lines += [f"  comm.domain @{d.name} groups({d.groups})" for d in self.domains]
        for name, ranks, writer, results in self.functions:
            if self.stages:
                lines.append(f"  comm.program @{name} entry(@{name}_main) ranks({ranks})")
                name += "_main"
            tag = "s" + name[5] + "_" if self.stages else ""
            arguments = ", ".join(
                f'{v}: {v.kind} {{comm.name = "{v.name[1:]}"'
                f"{', comm.replicated' if same else ''}}}" for v, same in writer.inputs)
            kinds = [v.kind for v in results]
            named = ", ".join(f'{k} {{comm.name = "{tag}y{i}"}}'
                              for i, k in enumerate(kinds))
            lines.append(f"  func.func @{name}({arguments}) -> ({named}) {{")
            for statement in writer.block:
                lines += statement.lines(4)
            lines += [f"    return {', '.join(map(str, results))} : {', '.join(kinds)}",
                      "  }"]
        return "\n".join([*lines, "}", ""])

    def expected(self):
        """{(output, rank): array}; raises Inexact."""
        functions = []
        for _, ranks, writer, _ in self.functions:
            envs = {}
            for rank in ranks:
                envs[rank] = {v.name: self.given[v.name][rank] for v, _ in writer.inputs}
            functions.append((ranks, writer.block, envs))
        execute(functions, self.world)
        found = {}
        for (name, ranks, _, results), (_, _, envs) in zip(self.functions, functions):
            tag = "s" + name[5] + "_" if self.stages else ""
            for rank in ranks:
                for i, value in enumerate(results):
                    found[f"{tag}y{i}", rank] = envs[rank][str(value)]
        return found
