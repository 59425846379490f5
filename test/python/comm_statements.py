# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statements of a random program, and how they run rank by rank: what the programs of
comm_programs.py have to compute."""

import ml_dtypes
import numpy as np

FLOATS = {"f64": np.float64, "f32": np.float32, "f16": np.float16,
          "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
          "f8E5M2": ml_dtypes.float8_e5m2}
INTEGERS = {"i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8,
            "i1": np.bool_}
NUMPY = FLOATS | INTEGERS
MANTISSA = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "f8E4M3FN": 4, "f8E5M2": 3}
# What a value may be in size, as far as one can tell while the program is written.
LARGEST = {"f64": 1 << 20, "f32": 1 << 16, "f16": 1 << 10, "bf16": 1 << 7,
           "f8E4M3FN": 8, "f8E5M2": 4}
REDUCTIONS = {"sum": 1, "prod": 2, "min": 3, "max": 4, "avg": 5, "and": 6, "or": 7}


class Inexact(Exception):
    """The program computes something that its types cannot hold."""


def kind_of(shape, element):
    return "tensor<" + "x".join([*map(str, shape), element]) + ">"


def exactly(values, element):
    """`values` (f64 or integers of any size) in the element type, without loss."""
    if element in INTEGERS:
        return np.asarray(values).astype(NUMPY[element])
    wide = np.asarray(values, np.float64)
    narrow = wide.astype(NUMPY[element])
    if not np.array_equal(narrow.astype(np.float64), wide):
        raise Inexact
    return narrow


def wide(array):
    return array.astype(np.int64 if array.dtype.kind in "ib" else np.float64)


def combine(how, arrays, element):
    """A reduction, exact in every order of its terms."""
    if how in ("and", "or"):
        result = arrays[0]
        for array in arrays[1:]:
            result = result & array if how == "and" else result | array
        return result
    terms = np.stack([wide(a) for a in arrays])
    if how in ("min", "max"):
        return exactly(getattr(terms, how)(0), element)
    if element in FLOATS:
        exactly(np.abs(terms).sum(0) if how != "prod" else
                np.maximum(np.abs(terms), 1).prod(0), element)
        # Steps as fine as the finest term: partial sums lie on that grid.
        size = np.abs(terms).sum()
        if how != "prod" and size * 4 >= 2.0 ** MANTISSA[element]:
            raise Inexact
    result = terms.prod(0) if how == "prod" else terms.sum(0)
    return exactly(result / len(arrays) if how == "avg" else result, element)


def blocks(array, dim, count):
    return np.split(array, count, dim)


class Value:
    def __init__(self, name, shape, element, size=2.0):
        self.name, self.shape, self.element = name, list(shape), element
        self.size = size  # the largest magnitude, about

    @property
    def kind(self):
        return kind_of(self.shape, self.element)

    def __str__(self):
        return self.name


class Statement:
    """`run` is a generator: what it yields is a request to the other ranks."""

    def __init__(self, results, operands, text, run):
        self.results, self.operands = results, operands
        self.text, self.compute = text, run

    def lines(self, indent):
        return [" " * indent + line for line in self.text.splitlines()]

    def run(self, env, rank):
        got = self.compute(*[env[str(o)] for o in self.operands], rank=rank)
        if self.results:
            env[str(self.results[0])] = got
        return
        yield

    def inner(self):
        return []

    def uses(self):
        return {str(o) for o in self.operands}


class Issue(Statement):
    """A collective, or the start of one: what `run` posts."""

    def __init__(self, results, operands, text, request):
        super().__init__(results, operands, text, None)
        self.request = request

    def run(self, env, rank):
        values = [env[str(o)] for o in self.operands]
        got = yield ("issue", self.request, values)
        if self.results:
            env[str(self.results[0])] = got


class Start(Issue):
    def run(self, env, rank):
        values = [env[str(o)] for o in self.operands]
        env[str(self.results[0])] = yield ("start", self.request, values)


class Wait(Statement):
    def __init__(self, results, future, operands, text):
        super().__init__(results, [future, *operands], text, None)

    def run(self, env, rank):
        got = yield ("wait", env[str(self.operands[0])])
        if self.results:
            env[str(self.results[0])] = got


class Loop(Statement):
    """scf.for with a value handed on; `bounds` are names or numbers."""

    def __init__(self, result, init, carried, body, yielded, count, counter):
        super().__init__([result], [init], None, None)
        self.carried, self.body, self.yielded = carried, body, yielded
        self.count, self.counter = count, counter

    def lines(self, indent):
        pad = " " * indent
        text = [f"{pad}{self.results[0]} = scf.for {self.counter} = %zero to {self.count} "
                f"step %one iter_args({self.carried} = {self.operands[0]}) -> "
                f"({self.carried.kind}) {{"]
        for statement in self.body:
            text += statement.lines(indent + 2)
        return text + [f"{pad}  scf.yield {self.yielded} : {self.yielded.kind}", pad + "}"]

    def run(self, env, rank):
        value = env[str(self.operands[0])]
        for i in range(int(env[self.count])):
            env[str(self.carried)], env[self.counter] = value, i
            for statement in self.body:
                yield from statement.run(env, rank)
            value = env[str(self.yielded)]
        env[str(self.results[0])] = value

    def inner(self):
        return [self.body]

    def uses(self):
        return {str(self.operands[0]), str(self.yielded), self.count}


class While(Loop):
    """The same as scf.while, with the counter carried along. The result is the second
    of two: NAME#1."""

    def lines(self, indent):
        pad, kind, name = " " * indent, self.carried.kind, str(self.results[0])
        i, c = self.counter, self.carried
        text = [f"{pad}{name[:-2]}:2 = scf.while ({i}b = %zero, {c}b = "
                f"{self.operands[0]}) : (index, {kind}) -> (index, {kind}) {{",
                f"{pad}  {i}c = arith.cmpi slt, {i}b, {self.count} : index",
                f"{pad}  scf.condition({i}c) {i}b, {c}b : index, {kind}", f"{pad}}} do {{",
                f"{pad}^bb0({i}: index, {c}: {kind}):"]
        for statement in self.body:
            text += statement.lines(indent + 2)
        return text + [f"{pad}  {i}n = arith.addi {i}, %one : index",
                       f"{pad}  scf.yield {i}n, {self.yielded} : index, {kind}", pad + "}"]


class Branch(Statement):
    def __init__(self, result, condition, arms, yields):
        super().__init__([result], [condition], None, None)
        self.arms, self.yields = arms, yields

    def lines(self, indent):
        pad, kind = " " * indent, self.results[0].kind
        text = [f"{pad}{self.results[0]} = scf.if {self.operands[0]} -> ({kind}) {{"]
        for i, (arm, value) in enumerate(zip(self.arms, self.yields)):
            for statement in arm:
                text += statement.lines(indent + 2)
            text += [f"{pad}  scf.yield {value} : {kind}",
                     pad + ("} else {" if i == 0 else "}")]
        return text

    def run(self, env, rank):
        arm = 0 if env[str(self.operands[0])] else 1
        for statement in self.arms[arm]:
            yield from statement.run(env, rank)
        env[str(self.results[0])] = env[str(self.yields[arm])]

    def inner(self):
        return self.arms

    def uses(self):
        return {str(o) for o in (*self.operands, *self.yields)}


class Domain:
    def __init__(self, name, groups):
        self.name, self.groups = name, groups
        sizes = {len(g) for g in groups}
        self.size = sizes.pop() if len(sizes) == 1 else 0
        self.most = max(len(g) for g in groups)
        self.ranks = {r for g in groups for r in g}

    def group(self, rank):
        return next(g for g in self.groups if rank in g)

    def place(self, rank):
        return self.group(rank).index(rank)


def execute(functions, world):
    """Runs {ranks: (statements, env of each rank)} to their end."""
    done, waiting, posted, counts = {}, {}, {}, {}
    runs = {}
    for ranks, statements, envs in functions:
        for rank in ranks:
            def go(rank=rank, statements=statements, env=envs[rank]):
                for statement in statements:
                    yield from statement.run(env, rank)
            runs[rank] = go()

    def post(rank, request, values):
        kind, domain, apply = request
        if kind in ("send", "recv"):
            group = domain.group(rank)
            peer = group[apply]
            if peer == rank:
                return ("old", values[0] if kind == "recv" else None)
            pair = (domain.name, *((rank, peer) if kind == "send" else (peer, rank)))
            number = counts[kind, pair, rank] = counts.get((kind, pair, rank), 0) + 1
            key = (pair, number)
            posted.setdefault(key, {})[kind] = values
            return ("pair", key, kind)
        group = tuple(domain.group(rank))
        number = counts[domain.name, rank] = counts.get((domain.name, rank), 0) + 1
        key = (domain.name, group, number)
        posted.setdefault(key, {})[rank] = values
        return ("all", key, group, group.index(rank), apply, values)

    def ready(ticket):
        if ticket[0] == "old":
            return True
        if ticket[0] == "pair":
            return len(posted[ticket[1]]) == 2
        return len(posted[ticket[1]]) == len(ticket[2])

    def result(ticket):
        if ticket[0] == "old":
            return ticket[1]
        if ticket[0] == "pair":
            return posted[ticket[1]]["send"][0] if ticket[2] == "recv" else None
        _, key, group, place, apply, values = ticket
        if apply is None:
            return None
        return apply([posted[key][r][0] for r in group], place, values[1])

    answers = dict.fromkeys(runs)
    while len(done) < len(runs):
        moved = False
        for rank, run in runs.items():
            while rank not in done:
                if rank in waiting:
                    if not ready(waiting[rank]):
                        break
                    answers[rank] = result(waiting.pop(rank))
                try:
                    request = run.send(answers[rank])
                except StopIteration:
                    done[rank] = True
                    moved = True
                    break
                moved = True
                answers[rank] = None
                if request[0] == "start":
                    answers[rank] = post(rank, request[1], request[2])
                elif request[0] == "wait":
                    waiting[rank] = request[1]
                else:
                    waiting[rank] = post(rank, request[1], request[2])
        assert moved, f"the program itself hangs: {waiting}"
