#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench overlap [-J FILE]: communication over a link, hidden behind computation.

Two hosts (network namespaces) with a link that tc shapes, one rank on each, Open MPI
between them. All programs of a part run in turns in one job; figures are medians of
the turns.

training: transformer.mlir, a training step of 12 layers whose computation keeps its
core busy and polls, compiled with opt=0 (every collective where it stands), as the
pipeline leaves it, and with no byte more than the given order takes; besides there are
its computation alone and its collectives alone. The bound is the least that any order
can take: every gradient is there as soon as what it is computed from, the link sends
one after the other at the best speed measured, and the last sum updates its weights.
Floor: of what the bound hides, 90 % is hidden. The memory limit is comm-overlap's, compared
with the arena that was planned.

gpt: a GPT of 12 layers at batch 8, tensor parallel over the link. Exposed is what a
step takes more than its computation alone, which is the opt=0 program with local copies
in place of collectives. The link's rate is what makes communication about 46 % of the
step with opt=0, by a short run before. Floors: it is 30 to 50 %; with two
micro-batches, in 1.1 times the memory of the opt=0 step, the pipeline leaves 0.3 of
that exposed; and a step in which nothing can be hidden is not slower for being
optimised (1.02).

micro: the same GPT with 1, 2, 4 and 8 micro-batches, as predicted and as measured, with
nominal figures of the device and with a calibration of this host. Floor: what
--micro-batches=auto takes is at most 1.05 times the fastest.

--only training, gpt or micro. --quick takes short turns, and says that its figures do not
count. Needs root and Open MPI; without them it says so and measures nothing.
"""

import json
import os
import re
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "hosts")]

from floors import ROOT, Failed, Table, arguments, call, tool  # noqa: E402
from link import Link, LinkError, unavailable  # noqa: E402

MBITS = 1000  # of the link, but for gpt
SHARE = 0.46  # of communication in gpt's step
LAYERS, HIDDEN, HEADS, BATCH, SEQUENCE = 12, 768, 12, 8, 64


def write_topology(folder, device=None, mbits=MBITS):
    """What comm-opt is told of the two hosts: the link's nominal rate."""
    path = os.path.join(folder, "topology.json" if not device else "calibrated.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({
            "concord_topology": 1, "name": f"two hosts, {mbits} Mbit/s",
            "device": device or {"machine": "cpu"},
            "hosts": [{"name": "host", "count": 2, "ranks": 1, "cores": 1, "nics": 1}],
            "inside": {"name": "host", "kind": "memory"},
            "network": [{"name": "link", "bytes_per_second": mbits * 125e3,
                         "latency_us": 50}]}, file)
    return path


class Program:
    """A compiled program, and what comm-overlap and the planner say of memory."""

    def __init__(self, source, folder, name, pipeline, *options):
        self.path = os.path.join(folder, name + ".so")
        said = call([tool("comm-opt"), source, *options,
                     f"--comm-pipeline={pipeline} to=lowered", "--explain",
                     "--emit=so", "-o", self.path]).stderr
        held = re.findall(r"comm-overlap memory .* bytes_before=(\d+) bytes_after=(\d+) "
                          r"arena_bytes=\d+ limit_bytes=(\d+)", said)
        self.before, self.after, self.limit = (
            (int(x) for x in held[-1]) if held else (None, None, None))
        asked = re.search(r"memory=(\d+)", pipeline)
        if asked:
            self.limit = int(asked[1])
        self.arena = sum(int(x) for x in re.findall(
            r"comm-plan-workspace place .*? bytes=(\d+)", said))


class OverlapTable(Table):
    def memory(self, name, program):
        """What the schedule holds, and what was planned for it, over the limit."""
        self.add(f"{name}_memory_over_limit",
                 max(program.after, program.arena) / program.limit, "x", 1.0)

def run(link, programs, rounds, seconds):
    """Of each: microseconds of a step, the least of all turns, and the largest
    difference to the first."""
    report = json.loads(link.mpirun(
        2, [tool("bench_fuse"), 2, rounds, seconds, 1 << 20,
            *(program.path for program in programs.values())], BENCH_CORES="0,1"))
    times, least, differences = {}, {}, {}
    for name, one in zip(programs, report["programs"]):
        times[name] = statistics.median(one["rounds"])
        least[name] = min(one["rounds"])
        differences[name] = one["difference"]
        held = (f"  holds {max(programs[name].after, programs[name].arena):,} of "
                f"{programs[name].limit:,} bytes" if programs[name].limit else "")
        print(f"  {name:24} {times[name]:12.1f} us{held}", flush=True)
    return times, least, differences


# training ---------------------------------------------------------------------------


class Step:
    """The lines of transformer.mlir, and what of them computes and communicates."""

    KERNEL = re.compile(r'^ *(%\w+) = comm\.kernel "busy [^"]*ns=(\d+)" '
                        r"ins\(([^:]*):")
    SUM = re.compile(r"^ *(%\w+) = comm\.all_reduce @dp sum ins\((%\w+) : "
                     r"tensor<(\d+)x(\d+)xf32>\)")

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.lines = file.read().splitlines()

    def without_collectives(self):
        """Who used a sum uses the gradient."""
        lines, renamed = [], {}
        for line in self.lines:
            found = self.SUM.match(line)
            if found:
                renamed[found[1]] = found[2]
            elif "_sum_out = " not in line and "comm.domain" not in line:
                lines.append(re.sub(r"%\w+", lambda m: renamed.get(m[0], m[0]), line))
        return "\n".join(lines) + "\n"

    def collectives_alone(self):
        sums = [found for found in map(self.SUM.match, self.lines) if found]
        head = [line for line in self.lines
                if line.startswith("module") or "comm.domain" in line]
        arguments = ", ".join(f"{s[2]}: tensor<{s[3]}x{s[4]}xf32>" for s in sums)
        types = ", ".join(f"tensor<{s[3]}x{s[4]}xf32>" for s in sums)
        body = [line for line in self.lines if "_sum_out = " in line or
                self.SUM.match(line)]
        return "\n".join(head + [f"  func.func @main({arguments}) -> ({types}) {{"] +
                         body + ["    return " + ", ".join(s[1] for s in sums) +
                                 f" : {types}", "  }", "}"]) + "\n"

    def bound(self, compute, communication):
        """The least a step can take, from the measured time of both alone."""
        took, needs, sums, updates = {}, {}, {}, {}
        for line in self.lines:
            kernel, reduction = self.KERNEL.match(line), self.SUM.match(line)
            if kernel:
                used = re.findall(r"%\w+", kernel[3])
                took[kernel[1]] = int(kernel[2])
                needs[kernel[1]] = {value for value in used if value in took}
                for value in used:
                    if value in sums:
                        updates[value] = int(kernel[2])
            elif reduction:
                sums[reduction[1]] = (reduction[2], 4 * int(reduction[3]) *
                                      int(reduction[4]))
        scale = compute / sum(took.values())
        size = sum(bytes_ for _, bytes_ in sums.values())
        behind = {}  # all that a value is computed from, itself included

        def closure(value):
            if value not in behind:
                behind[value] = {value}.union(*map(closure, needs[value]))
            return behind[value]

        ready = {s: scale * sum(took[v] for v in closure(gradient))
                 for s, (gradient, _) in sums.items()}
        link = 0.0
        for value in sorted(sums, key=ready.get):
            link = max(link, ready[value]) + communication * sums[value][1] / size
        return max(compute, link + scale * min(updates.values()))


def bench_training(table, folder, rounds, seconds):
    step = Step(os.path.join(HERE, "transformer.mlir"))
    machine = f"machine={write_topology(folder)}"

    def compiled(name, text, pipeline):
        source = os.path.join(folder, name + ".mlir")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        return Program(source, folder, name, pipeline)

    text = "\n".join(step.lines) + "\n"
    programs = {"opt=0": compiled("plain", text, f"{machine} opt=0"),
                "optimised": compiled("optimised", text, machine)}
    given = programs["optimised"].before
    programs |= {"not a byte more": compiled("tight", text, f"{machine} memory={given}"),
                 "computation": compiled("computation", step.without_collectives(),
                                         f"{machine} opt=0"),
                 "collectives": compiled("collectives", step.collectives_alone(),
                                         f"{machine} opt=0")}
    print(f"training step of 12 layers, data parallel over {MBITS} Mbit/s")
    with Link(f"{MBITS}mbit") as link:
        times, least, differences = run(link, programs, rounds, seconds)
    bound = step.bound(least["computation"], least["collectives"])
    hideable = times["opt=0"] - bound
    print(f"  {'bound':24} {bound:12.1f} us  hideable {hideable:.1f} us")
    table.add("training_share", 1 - times["computation"] / times["opt=0"], "of a step")
    for name, key in (("optimised", "training"), ("not a byte more", "training_tight")):
        table.add(f"{key}_hidden", (times["opt=0"] - times[name]) / hideable,
                  "of hideable", 0.9, at_most=False)
        table.memory(key, programs[name])
        table.add(f"{key}_difference", differences[name], "relative", 0.0)


# gpt --------------------------------------------------------------------------------


COLLECTIVE = re.compile(
    r"^( *)(%\w+) = comm\.(all_gather|reduce_scatter|all_reduce) @\w+ (?:sum )?"
    r"(?:dim\((\d+)\) )?ins\(([^ ]+) : (tensor<[^>]*>)\) outs\(([^ ]+) : "
    r"(tensor<[^>]*>)\) -> tensor<[^>]*>")


def with_copies(text):
    """A decomposed program with a local copy for every collective."""
    lines = []

    def list_of(numbers):
        return "[" + ", ".join(map(str, numbers)) + "]"

    def extents(kind):
        return [int(n) for n in re.findall(r"(\d+)x", kind)]

    for line in text.splitlines():
        found = COLLECTIVE.match(line)
        if not found:
            if re.search(r" = comm\.(all_|reduce|broadcast|gather|scatter|permute)", line):
                raise Failed(f"a collective that has no local copy: {line.strip()}")
            lines.append(line)
            continue
        indent, result, kind, dim, value, given, out, made = found.groups()
        own, whole = extents(given), extents(made)
        one, zero = list_of([1] * len(own)), [0] * len(own)
        if kind == "all_gather":
            at = int(dim)
            count = whole[at] // own[at]
            for i in range(count):
                name = result if i + 1 == count else f"%part_{result[1:]}_{i}"
                offset = zero[:at] + [i * own[at]] + zero[at + 1:]
                lines.append(f"{indent}{name} = tensor.insert_slice {value} into {out}"
                             f"{list_of(offset)} {list_of(own)} {one} : {given} into "
                             f"{made}")
                out = name
        else:
            lines.append(f"{indent}{result} = tensor.extract_slice {value}"
                         f"{list_of(zero)} {list_of(whole)} {one} : {given} to {made}")
    return "\n".join(lines) + "\n"


def make_gpt(folder):
    """The model, and the options that fix its sizes."""
    model = os.path.join(folder, "gpt.onnx")
    call([sys.executable, os.path.join(ROOT, "test", "models", "generate.py"), "gpt2",
          "-o", model, "--layers", LAYERS, "--hidden", HIDDEN, "--heads", HEADS,
          "--inner", 4 * HIDDEN, "--vocab", 2048, "--positions", SEQUENCE, "--external"])
    return model, ["--tp=2", f"--dim=batch={BATCH}", f"--dim=seq={SEQUENCE}"]


def rate_for_share(programs, rounds, seconds):
    """The link that leaves the opt=0 step of `programs` SHARE of communication: hosts
    that compute faster get a faster one. In Mbit/s."""
    print(f"GPT of {LAYERS} layers over {MBITS} Mbit/s, for the rate of the link")
    with Link(f"{MBITS}mbit") as link:
        times, _, _ = run(link, {name: programs[name] for name in
                                 ("opt=0", "computation")}, rounds, seconds)
    exposed = times["opt=0"] - times["computation"]
    rate = MBITS * exposed * (1 - SHARE) / SHARE / times["computation"]
    return max(10, 10 * round(rate / 10))


def bench_gpt(table, folder, rounds, seconds):
    model, sizes = make_gpt(folder)
    apart = os.path.join(folder, "decomposed.mlir")
    call([tool("comm-opt"), model, *sizes,
          "--comm-pipeline=opt=0 to=decomposed", "-o", apart])
    with open(apart, encoding="utf-8") as file:
        text = with_copies(file.read())
    with open(apart, "w", encoding="utf-8") as file:
        file.write(text)
    machine = f"machine={write_topology(folder)}"
    computation = Program(apart, folder, "computation", "opt=0")
    mbits = rate_for_share(
        {"opt=0": Program(model, folder, "probe", f"{machine} opt=0", *sizes),
         "computation": computation}, 2, min(seconds, 1))
    machine = f"machine={write_topology(folder, mbits=mbits)}"
    plain = Program(model, folder, "plain", f"{machine} opt=0", *sizes)
    memory = int(1.1 * plain.arena)
    programs = {
        "opt=0": plain,
        "optimised": Program(model, folder, "optimised", machine, *sizes),
        "opt=0, 2 micro-batches": Program(model, folder, "plain2", f"{machine} opt=0",
                                          *sizes, "--micro-batches=2"),
        "2 micro-batches": Program(model, folder, "optimised2",
                                   f"{machine} memory={memory}", *sizes,
                                   "--micro-batches=2"),
        "computation": computation}
    print(f"GPT of {LAYERS} layers, batch {BATCH} x {SEQUENCE}, tensor parallel over "
          f"{mbits} Mbit/s")
    with Link(f"{mbits}mbit") as link:
        times, _, differences = run(link, programs, rounds, seconds)
    exposed = {name: value - times["computation"] for name, value in times.items()}
    table.add("gpt_share", exposed["opt=0"] / times["opt=0"], "of a step", 0.3,
              at_most=False)
    table.add("gpt_share_at_most", exposed["opt=0"] / times["opt=0"], "of a step", 0.5)
    # Of the better one of the two without passes.
    table.add("gpt_exposed", exposed["2 micro-batches"] /
              min(exposed["opt=0"], exposed["opt=0, 2 micro-batches"]), "of opt=0's", 0.3)
    table.add("gpt_optimised_over_opt=0", times["optimised"] / times["opt=0"], "x", 1.02)
    table.memory("gpt", programs["2 micro-batches"])
    table.add("gpt_difference", max(differences[name] for name in
                                    ("optimised", "2 micro-batches")), "relative", 1e-4)


# micro ------------------------------------------------------------------------------


def bench_micro(table, folder, rounds, seconds):
    calibration = os.path.join(folder, "calibration.json")
    call([tool("comm-bench"), "--calibrate", calibration, "-n", 2, "-b", 64, "-e",
          1 << 20])
    model, sizes = make_gpt(folder)
    for name, device in (("nominal", None),
                         ("calibrated", {"calibration": "calibration.json"})):
        machine = f"machine={write_topology(folder, device)}"
        said = call([tool("comm-opt"), model, *sizes, "--micro-batches=auto",
                     f"--comm-pipeline={machine}", "--explain", "-o", "/dev/null"]).stderr
        found = re.search(r"micro-batches .* parts=(\d+)((?: seconds_\d+=\S+)+)"
                          r" memory_bytes=(\d+)", said)
        if not found:
            raise Failed("no choice of micro-batches in\n" + said[-2000:])
        chosen = int(found[1])
        predicted = {int(parts): 1e6 * float(time) for parts, time in
                     re.findall(r"seconds_(\d+)=([0-9.e+-]+)", found[2])}
        programs = {parts: Program(
            model, folder, f"{name}{parts}",
            machine + (f" memory={found[3]}" if parts > 1 else ""), *sizes,
            f"--micro-batches={parts}") for parts in predicted}
        print(f"GPT of {LAYERS} layers, batch {BATCH} x {SEQUENCE}, micro-batches, "
              f"device {name}: auto takes {chosen}")
        with Link(f"{MBITS}mbit") as link:
            times, _, _ = run(link, programs, rounds, seconds)
        for parts, time in times.items():
            print(f"  {parts} parts: predicted {predicted[parts]:.0f} us, "
                  f"{predicted[parts] / time - 1:+.1%}")
            table.add(f"micro_{name}_{parts}_measured", time, "us")
            table.add(f"micro_{name}_{parts}_predicted", predicted[parts] / time - 1,
                      "relative")
        table.add(f"micro_{name}_auto_over_best", times[chosen] / min(times.values()), "x",
                  1.05)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--only", choices=["training", "gpt", "micro"])
    options = parser.parse_args()
    missing = unavailable()
    if missing:
        print(f"bench overlap: skipped: {missing}")
        return 0
    rounds, seconds = (2, 0.1) if options.quick else (5, 2)
    table = OverlapTable()
    try:
        for name, part in (("training", bench_training), ("gpt", bench_gpt),
                           ("micro", bench_micro)):
            if options.only in (None, name):
                with tempfile.TemporaryDirectory() as folder:
                    part(table, folder, rounds, seconds)
    except (Failed, LinkError, OSError, ValueError) as error:
        print(f"bench overlap: {error}")
        return 1
    return table.finish(options)


if __name__ == "__main__":
    sys.exit(main())
