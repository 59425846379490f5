# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes statements (comm_statements.py) with their MLIR: one method per operation."""

import numpy as np

from comm_statements import (FLOATS, NUMPY, REDUCTIONS, Inexact, Issue, Start, Statement, Value,
                             Wait, blocks, combine, exactly, kind_of, wide)


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
