# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs over the comm dialect, with what each rank has to get.

A program is a list of statements that print themselves as MLIR and run in Python,
rank by rank: loops, branches, started collectives, uneven and permuted groups, every
element type, and, of several programs, sends and receives. Floating-point values are
such that every sum and product is exact, so passes have no excuse for a wrong bit.
"""

import random

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


class Writer:
    """Writes one function, statement by statement, into the innermost block."""

    def __init__(self, program, prefix):
        self.program, self.random = program, program.random
        self.world = program.world
        self.prefix, self.count = prefix, 0
        self.inputs = []          # (Value, replicated)
        self.block = []
        self.pool = []            # values to choose from
        self.pending = []         # waits to be written later: functions
        self.futures = 0
        self.scalar("%zero", "arith.constant 0 : index", 0)
        self.scalar("%one", "arith.constant 1 : index", 1)

    # -- names and plain statements
    def name(self):
        self.count += 1
        return f"%{self.prefix}{self.count}"

    def add(self, statement):
        self.block.append(statement)

    def scalar(self, name, text, value):
        """A number; `value` may be a function of the rank."""
        run = (lambda rank: value(rank)) if callable(value) else (lambda rank: value)
        self.add(Statement([name], [], f"{name} = {text}", run))
        return name

    def compute(self, shape, element, operands, text, run, size=None):
        if size is None:
            size = max([o.size for o in operands if isinstance(o, Value)], default=2)
        value = Value(self.name(), shape, element, size)
        self.add(Statement([value], operands, f"{value} = {text}", run))
        return value

    def empty(self, shape, element):
        kind = kind_of(shape, element)
        return self.compute(shape, element, [], f"tensor.empty() : {kind}",
                            lambda rank: np.zeros(shape, NUMPY[element]))

    def input(self, shape, element, replicated=False):
        value = Value(f"%x{self.prefix}{len(self.inputs)}", shape, element)
        self.inputs.append((value, replicated))
        return value

    def generic(self, operands, element, body, run, size):
        shape = operands[0].shape
        init = self.empty(shape, element)
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        identity = f"affine_map<({dims}) -> ({dims})>"
        loops = ", ".join(['"parallel"'] * len(shape))
        letters = [f"%a{i}" for i in range(len(operands))]
        arguments = ", ".join([*(f"{n}: {o.element}" for n, o in zip(letters, operands)),
                               f"%o: {element}"])
        text = (f"linalg.generic {{indexing_maps = [{', '.join([identity] * (len(operands) + 1))}],"
                f" iterator_types = [{loops}]}} "
                f"ins({', '.join(map(str, operands))} : {', '.join(o.kind for o in operands)})"
                f" outs({init} : {init.kind}) {{\n  ^bb0({arguments}):\n")
        text += "\n".join(f"    {line}" for line in [*body, f"linalg.yield %r : {element}"])
        text += f"\n  }} -> {init.kind}"
        return self.compute(shape, element, operands, text, run, size)

    def binary(self, op, a, b):
        element = a.element
        suffix = "f" if element in FLOATS else "i"
        if element == "i1":
            op = {"add": "xor", "sub": "xor", "mul": "and", "max": "or",
                  "min": "and"}.get(op, op)
        names = {"add": "add" + suffix, "sub": "sub" + suffix, "mul": "mul" + suffix,
                 "max": "maximumf" if suffix == "f" else "maxsi",
                 "min": "minimumf" if suffix == "f" else "minsi",
                 "and": "andi", "or": "ori", "xor": "xori"}
        apply = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum,
                 "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
                 "xor": np.bitwise_xor}[op]
        size = a.size * b.size if op == "mul" else (
            a.size + b.size if op in ("add", "sub") else max(a.size, b.size))

        def run(x, y, rank):
            if op in ("and", "or", "xor"):
                return apply(x, y)
            return exactly(apply(wide(x), wide(y)), element)

        if (op in ("add", "sub", "mul", "max", "min") and element != "i1" and
                self.random.random() < 0.5):
            init = self.empty(a.shape, element)
            text = (f"linalg.{op} ins({a}, {b} : {a.kind}, {b.kind}) "
                    f"outs({init} : {init.kind}) -> {init.kind}")
            return self.compute(a.shape, element, [a, b], text, run, size)
        if self.random.random() < 0.3:
            a, b, x, y = b, a, "%a1", "%a0"
            swapped = run

            def run(x, y, rank):  # noqa: F811
                return swapped(y, x, rank=rank)
        else:
            x, y = "%a0", "%a1"
        return self.generic([a, b], element,
                            [f"%r = arith.{names[op]} {x}, {y} : {element}"], run, size)

    def convert(self, value, element):
        was = value.element
        if was == element:
            return value
        if was in FLOATS and element in FLOATS:
            widths = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "f8E4M3FN": 8,
                      "f8E5M2": 8}
            if widths[was] == widths[element]:
                return value
            op = "extf" if widths[element] > widths[was] else "truncf"
        elif was in FLOATS:
            op = "fptosi"
            if element == "i1":
                return value
        elif element in FLOATS:
            op = "uitofp" if was == "i1" else "sitofp"
        else:
            op = "trunci" if int(element[1:]) < int(was[1:]) else (
                "extui" if was == "i1" else "extsi")

        def run(x, rank):
            if op == "trunci" and element == "i1":
                return (x & 1).astype(np.bool_)
            if op == "fptosi":
                if np.abs(wide(x)).max(initial=0) > np.iinfo(NUMPY[element]).max:
                    raise Inexact
                return np.trunc(wide(x)).astype(NUMPY[element])
            return exactly(wide(x), element)

        return self.generic([value], element,
                            [f"%r = arith.{op} %a0 : {was} to {element}"], run, value.size)

    # -- views
    def slice(self, value, offsets, sizes, strides=None, at=None):
        """`offsets` are numbers; `at` is (dimension, name, function of the rank)."""
        strides = strides or [1] * len(sizes)
        written = [str(o) for o in offsets]
        operands = [value]
        if at:
            written[at[0]] = at[1]
            operands.append(at[1])

        def run(x, *rest, rank):
            first = list(offsets)
            if rest:
                first[at[0]] = int(rest[0])
            return x[tuple(slice(o, o + (n - 1) * s + 1 if n else o, s)
                           for o, n, s in zip(first, sizes, strides))]

        kind = kind_of(sizes, value.element)
        return self.compute(
            sizes, value.element, operands,
            f"tensor.extract_slice {value}[{', '.join(written)}] "
            f"[{', '.join(map(str, sizes))}] [{', '.join(map(str, strides))}] : "
            f"{value.kind} to {kind}", run, value.size)

    def own(self, value, domain, dim, shift=0):
        """The own shard, or that of the member `shift` places on."""
        count = domain.size
        part = value.shape[dim] // count
        rank = self.scalar(self.name(), f"comm.rank @{domain.name}", domain.place)
        if shift:
            size, by = self.name(), self.name()
            self.scalar(size, f"arith.constant {count} : index", count)
            self.scalar(by, f"arith.constant {shift} : index", shift)
            moved, turned = self.name(), self.name()
            self.add(Statement([moved], [rank], f"{moved} = arith.addi {rank}, {by} : index",
                               lambda r, rank: r + shift))
            self.add(Statement([turned], [moved],
                               f"{turned} = arith.remui {moved}, {size} : index",
                               lambda r, rank: r % count))
            rank = turned
        unit, at = self.name(), self.name()
        self.scalar(unit, f"arith.constant {part} : index", part)
        self.add(Statement([at], [rank], f"{at} = arith.muli {rank}, {unit} : index",
                           lambda r, rank: r * part))
        sizes = list(value.shape)
        sizes[dim] = part
        return self.slice(value, [0] * len(sizes), sizes, at=(dim, at))

    def insert(self, part, whole, offsets):
        def run(p, w, rank):
            w = w.copy()
            w[tuple(slice(o, o + n) for o, n in zip(offsets, p.shape))] = p
            return w

        ones = ", ".join(["1"] * len(offsets))
        return self.compute(
            whole.shape, whole.element, [part, whole],
            f"tensor.insert_slice {part} into {whole}[{', '.join(map(str, offsets))}] "
            f"[{', '.join(map(str, part.shape))}] [{ones}] : {part.kind} into {whole.kind}",
            run, max(part.size, whole.size))

    def reshape(self, value):
        rank = len(value.shape)
        if rank >= 2:
            shape = [value.shape[0] * value.shape[1], *value.shape[2:]]
            groups = [[0, 1], *([i] for i in range(2, rank))]
            return self.compute(
                shape, value.element, [value],
                f"tensor.collapse_shape {value} {groups} : {value.kind} into "
                f"{kind_of(shape, value.element)}", lambda x, rank: x.reshape(shape))
        if rank == 1 and value.shape[0]:
            shape = [value.shape[0] // 2, 2] if value.shape[0] % 2 == 0 else [
                1, value.shape[0]]
            return self.compute(
                shape, value.element, [value],
                f"tensor.expand_shape {value} [[0, 1]] output_shape "
                f"{shape} : {value.kind} into {kind_of(shape, value.element)}",
                lambda x, rank: x.reshape(shape))
        return value

    def transpose(self, value):
        if len(value.shape) != 2:
            return value
        shape = value.shape[::-1]
        init = self.empty(shape, value.element)
        return self.compute(
            shape, value.element, [value],
            f"linalg.transpose ins({value} : {value.kind}) outs({init} : {init.kind}) "
            "permutation = [1, 0]", lambda x, rank: x.T)

    def product(self, a, b):
        shape = [a.shape[0], b.shape[1]]
        zero = self.name()
        self.scalar(zero, f"arith.constant 0.0 : {a.element}", 0)
        init = self.empty(shape, a.element)
        filled = self.compute(shape, a.element, [],
                              f"linalg.fill ins({zero} : {a.element}) outs({init} : "
                              f"{init.kind}) -> {init.kind}",
                              lambda rank: np.zeros(shape, NUMPY[a.element]), 0)

        def run(x, y, rank):
            exactly(np.abs(wide(x)) @ np.abs(wide(y)), a.element)
            return exactly(wide(x) @ wide(y), a.element)

        return self.compute(
            shape, a.element, [a, b],
            f"linalg.matmul ins({a}, {b} : {a.kind}, {b.kind}) outs({filled} : "
            f"{filled.kind}) -> {filled.kind}", run, a.size * b.size * a.shape[1])

    def constant(self, shape, element, splat):
        count = int(np.prod(shape))
        numbers = [self.random.randint(-2, 2) for _ in range(1 if splat else count)]
        if element == "i1":
            numbers = [n & 1 for n in numbers]
        if element in FLOATS:
            words = [f"{n}.0" for n in numbers]
        elif element == "i1":
            words = ["true" if n else "false" for n in numbers]
        else:
            words = list(map(str, numbers))

        def nested(words, shape):
            if not shape:
                return words[0]
            step = len(words) // shape[0] if shape[0] else 0
            return "[" + ", ".join(nested(words[i * step:(i + 1) * step], shape[1:])
                                   for i in range(shape[0])) + "]"

        text = words[0] if splat else nested(words, shape)
        if not splat and not count:
            text = ""
        data = np.array(numbers * (count if splat else 1)).reshape(shape)
        return self.compute(shape, element, [],
                            f"arith.constant dense<{text}> : {kind_of(shape, element)}",
                            lambda rank: data.astype(NUMPY[element]))

    # -- communication
    def issue(self, kind, domain, value, shape, how=None, attributes=(), text="",
              apply=None, size=None, later=True, outs=None):
        """`attributes` are (name, text) for the started form; `text` the synchronous
        one's parameters; `apply(inputs, place, old)` what a member gets."""
        element = value.element
        outs = outs or self.empty(shape, element)
        result = Value(self.name(), shape, element, size or value.size)
        request = (kind, domain, apply)
        if self.random.random() < 0.35:
            future = self.name()
            listed = [f"reduction = {REDUCTIONS[how]} : i32"] if how else []
            listed += [f"{n} = {t}" for n, t in attributes]
            kinds = f"ins({value} : {value.kind}) outs({outs} : {outs.kind})"
            attrs = f" {{{', '.join(listed)}}}" if listed else ""
            self.add(Start([future], [value, outs],
                           f"{future} = comm.start {kind} @{domain.name} {kinds}{attrs}",
                           request))
            wait = Wait([result], future, [value, outs],
                        f"{result} = comm.wait {future} {kinds} -> {result.kind}")
            if later and self.random.random() < 0.6:
                block = self.block

                def write():
                    assert self.block is block
                    self.add(wait)
                    self.pool.append(result)
                self.pending.append(write)
                return None
            self.add(wait)
            return result
        middle = f" {how}" if how else ""
        self.add(Issue([result], [value, outs],
                       f"{result} = comm.{kind} @{domain.name}{middle}{text} "
                       f"ins({value} : {value.kind}) outs({outs} : {outs.kind}) -> "
                       f"{result.kind}", request))
        return result

    def all_reduce(self, value, domain, how, **more):
        size = value.size * (domain.most if how in ("sum", "prod") else 1)
        return self.issue("all_reduce", domain, value, value.shape, how,
                          apply=lambda x, p, old: combine(how, x, value.element), size=size,
                          **more)

    def reduce_scatter(self, value, domain, how, dim, **more):
        shape = list(value.shape)
        shape[dim] //= domain.size
        return self.issue(
            "reduce_scatter", domain, value, shape, how, [("dim", f"{dim} : i64")],
            f" dim({dim})", lambda x, p, old: blocks(
                combine(how, x, value.element), dim, domain.size)[p],
            value.size * (domain.most if how == "sum" else 1), **more)

    def all_gather(self, value, domain, dim, **more):
        shape = list(value.shape)
        shape[dim] *= domain.size
        return self.issue("all_gather", domain, value, shape, None,
                          [("dim", f"{dim} : i64")], f" dim({dim})",
                          lambda x, p, old: np.concatenate(x, dim), **more)

    def all_to_all(self, value, domain, split, concat):
        shape = list(value.shape)
        shape[split] //= domain.size
        shape[concat] *= domain.size
        return self.issue(
            "all_to_all", domain, value, shape, None,
            [("split_dim", f"{split} : i64"), ("concat_dim", f"{concat} : i64")],
            f" split({split}) concat({concat})",
            lambda x, p, old: np.concatenate(
                [blocks(v, split, domain.size)[p] for v in x], concat))

    def broadcast(self, value, domain, root):
        return self.issue("broadcast", domain, value, value.shape, None,
                          [("root", f"{root} : i64")], f" root({root})",
                          lambda x, p, old: x[root])

    def rooted(self, kind, value, domain, root, how="sum"):
        """reduce, gather, scatter; what the others keep is in their outs."""
        shape = list(value.shape)
        if kind == "gather":
            shape[0] *= domain.size
        elif kind == "scatter":
            shape[0] //= domain.size
        outs = None
        if kind != "scatter":
            outs = self.constant(shape, value.element, True)

        def apply(x, p, old):
            if kind == "scatter":
                return blocks(x[root], 0, domain.size)[p]
            if p != root:
                return old
            return combine(how, x, value.element) if kind == "reduce" else (
                np.concatenate(x, 0))

        dims = [("dim", "0 : i64")] if kind != "reduce" else []
        text = f"{' dim(0)' if dims else ''} root({root})"
        return self.issue(kind, domain, value, shape, how if kind == "reduce" else None,
                          [*dims, ("root", f"{root} : i64")], text, apply,
                          value.size * domain.most, outs=outs)

    def permute(self, value, domain, pairs):
        sources = {t: s for s, t in pairs}
        text = "[" + ", ".join(f"[{s}, {t}]" for s, t in pairs) + "]"
        attrs = "[" + ", ".join(f"array<i64: {s}, {t}>" for s, t in pairs) + "]"
        return self.issue(
            "permute", domain, value, value.shape, None, [("pairs", attrs)],
            f" pairs({text})", lambda x, p, old: x[sources[p]] if p in sources
            else np.zeros_like(old))

    def flush(self, share=1.0):
        """Writes waits that are due."""
        for write in list(self.pending):
            if self.random.random() < share:
                self.pending.remove(write)
                write()


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
