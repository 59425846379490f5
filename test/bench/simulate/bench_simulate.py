#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench simulate [-J FILE]: predicted against measured steps.

Calibrates this host with comm-bench for 2, 4 and 8 ranks, then predicts programs
with comm-opt --simulate on that calibration alone, and runs the same programs. Where
ranks outnumber cores, computation is a timed wait (the kernel `busy`), and the row
says so; with a core for each rank, matrix products and norms compute.

The second part does the same for two hosts (network namespaces) with a link that tc
shapes, 1, 2 and 4 ranks on each: comm-bench measures the collectives over the link,
and a topology file states hosts, cores (one per host) and that calibration. Root and
Open MPI; without them it says so and the part is left out.

On one host the bandwidth of memory and the cores' speed may change by the minute, by what
other machines do on the same hardware. So every program is measured between two
calibrations and predicted by both; the prediction is the mean. Where the two differ by more
than 15 % the host was not steady meanwhile, and the program is measured anew, between the
second calibration and another one, up to four times. What is never steady is shown and not
judged; at least two thirds have to be. Neither knows what was measured of the program.

Floors, of each part: the median of |predicted / measured - 1| is at most 15 %, the
worst 30 %. The control predicts every program with the costs of others (its
computations and the sizes of its collectives shuffled among the programs): it must
miss both.

--ranks 2 takes a part, of the jobs with links --linked 1 by the ranks per host.
--quick takes short turns, and says that its figures do not count.
"""

import json
import os
import random
import re
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "hosts")]

from floors import (Failed, Table, arguments, call, kernel_workspace,  # noqa: E402
                    tool)
from link import Link, LinkError, unavailable  # noqa: E402

RATE, BYTES_PER_SECOND = "1gbit", 125e6
MEDIAN, WORST = 0.15, 0.30
STEADY, TURNS, JUDGED = 0.15, 4, 2 / 3
UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


# Programs ---------------------------------------------------------------------------


class Builder:
    """One function of a module, in decomposed form: a chain from the input to the
    output. Every step takes the value of the one before."""

    def __init__(self, name, ranks, domains, real, overlaps=False):
        self.name, self.ranks, self.real = name, ranks, real
        self.domains, self.overlaps = domains, overlaps
        self.steps = []  # ("compute", us) | (kind, domain, elements) | ("gemm", m, n, k)

    def compute(self, us, elements=None):
        """Reads the value of the step before, or an input of `elements`."""
        self.steps.append(("compute", us, elements))
        return self

    def gemm(self, m, n, k):
        self.steps.append(("gemm", m, n, k))
        return self

    def collective(self, kind, domain, elements):
        self.steps.append((kind, domain, elements))
        return self

    def text(self, steps=None):
        """The module; `steps` instead of its own for the control."""
        body, inputs, count = [], {}, 0
        last = None  # (value, elements), flat f32

        def fresh(elements):
            """A flat value of that many elements, from the input of the size."""
            nonlocal last
            if last and last[1] == elements:
                return last[0]
            inputs[elements] = f"%x{elements}"
            return inputs[elements]

        for step in steps or self.steps:
            count += 1
            if step[0] == "compute":
                n = step[2] or (last[1] if last else 1024)
                source = fresh(n)
                body.append(
                    f"    %e{count} = tensor.empty() : tensor<{n}xf32>\n"
                    f'    %v{count} = comm.kernel "busy bytes={4 * n} '
                    f'ns={round(1000 * step[1])}{"" if self.real else " yield=1"}" ins({source} : tensor<{n}xf32>) '
                    f"outs(%e{count} : tensor<{n}xf32>) -> tensor<{n}xf32>\n")
                last = (f"%v{count}", n)
            elif step[0] == "gemm":
                _, m, n, k = step
                a = fresh(m * k)
                inputs[k * n] = f"%x{k * n}"
                text = f"gemm dtype=f32 k={k} m={m} n={n}"
                scratch = kernel_workspace(text)
                body.append(
                    f"    %a{count} = tensor.expand_shape {a} [[0, 1]] output_shape "
                    f"[{m}, {k}] : tensor<{m * k}xf32> into tensor<{m}x{k}xf32>\n"
                    f"    %b{count} = tensor.expand_shape %x{k * n} [[0, 1]] "
                    f"output_shape [{k}, {n}] : tensor<{k * n}xf32> into "
                    f"tensor<{k}x{n}xf32>\n"
                    f"    %e{count} = tensor.empty() : tensor<{m}x{n}xf32>\n")
                outs, types, flag, result = (f"%e{count}", f"tensor<{m}x{n}xf32>", "",
                                             f"%c{count}")
                if scratch:
                    body.append(f"    %s{count} = tensor.empty() : "
                                f"tensor<{scratch}xi8>\n")
                    outs += f", %s{count}"
                    types += f", tensor<{scratch}xi8>"
                    flag = " {workspace}"
                    result = f"%c{count}:2"
                body.append(
                    f'    {result} = comm.kernel "{text}" ins(%a{count}, %b{count} : '
                    f"tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) outs({outs} : {types})"
                    f"{flag} -> {types}\n")
                value = f"%c{count}#0" if scratch else f"%c{count}"
                body.append(f"    %v{count} = tensor.collapse_shape {value} [[0, 1]] : "
                            f"tensor<{m}x{n}xf32> into tensor<{m * n}xf32>\n")
                last = (f"%v{count}", m * n)
            else:
                kind, domain, n = step
                p = len(self.domains[domain][0])
                out = (n * p if kind == "all_gather" else
                       n // p if kind == "reduce_scatter" else n)
                source = fresh(n)
                words = {"all_reduce": "sum ", "reduce_scatter": "sum dim(0) ",
                         "all_gather": "dim(0) ",
                         "all_to_all": "split(0) concat(0) "}[kind]
                body.append(
                    f"    %e{count} = tensor.empty() : tensor<{out}xf32>\n"
                    f"    %v{count} = comm.{kind} @{domain} {words}ins({source} : "
                    f"tensor<{n}xf32>) outs(%e{count} : tensor<{out}xf32>) -> "
                    f"tensor<{out}xf32>\n")
                last = (f"%v{count}", out)
        groups = "".join(f"  comm.domain @{name} groups({json.dumps(list_)})\n"
                         for name, list_ in self.domains.items())
        args = ", ".join(f"{value}: tensor<{n}xf32>"
                         for n, value in sorted(inputs.items()))
        mesh = ", ".join(f'["{name}", {len(list_[0])}]'
                         for name, list_ in self.domains.items())
        return (f"module attributes {{comm.world = {self.ranks} : i64, comm.phase = "
                f'"decomposed", comm.mesh = [{mesh}]}} {{\n{groups}'
                f"  func.func @main({args}) -> (tensor<{last[1]}xf32>) {{\n"
                f"{''.join(body)}    return {last[0]} : tensor<{last[1]}xf32>\n"
                "  }\n}\n")


def whole(ranks):
    return {"all": [list(range(ranks))]}


def grid(rows, cols):
    ranks = rows * cols
    return {"tp": [list(range(r * cols, (r + 1) * cols)) for r in range(rows)],
            "dp": [list(range(c, ranks, cols)) for c in range(cols)]}


def programs(wanted, cores):
    """At least a dozen; where there is a core for each rank, products compute."""
    result = []

    def add(name, ranks, domains):
        real = ranks <= cores
        program = Builder(f"{name}_{ranks}", ranks, domains, real)
        result.append(program)
        return program

    def work(program, m, n, k, us):
        return program.gemm(m, n, k) if program.real else program.compute(us)

    for ranks in (2, 4, 8):
        if ranks not in wanted:
            continue
        unit = 1 if ranks == 2 else ranks  # of computation, where cores are shared
        layers = add("tensor_parallel", ranks, whole(ranks))
        for _ in range(4):
            work(layers, 128, 512, 256, 150 * unit)
            layers.collective("all_reduce", "all", 128 * 512)
            work(layers, 128, 256, 512, 150 * unit)
            layers.collective("all_reduce", "all", 128 * 256)
        sequence = add("sequence_parallel", ranks, whole(ranks))
        for _ in range(3):
            sequence.collective("all_gather", "all", 64 * 512 * 2 // ranks)
            sequence.compute(200 * unit)
            sequence.collective("reduce_scatter", "all", 64 * 512 * 2)
            sequence.compute(100 * unit)
        data = add("data_parallel", ranks, whole(ranks))
        for elements in (1 << 18, 1 << 17, 1 << 16):
            # Somebody writes a gradient, and somebody reads the sum.
            data.compute(200 * unit, elements)
            data.collective("all_reduce", "all", elements).compute(100 * unit)
        experts = add("experts", ranks, whole(ranks))
        experts.compute(100 * unit, 1 << 16)
        for _ in range(2):
            experts.collective("all_to_all", "all", 1 << 16)
            experts.compute(200 * unit)
            experts.collective("all_to_all", "all", 1 << 16)
        latency = add("small", ranks, whole(ranks))
        for _ in range(24):
            latency.collective("all_reduce", "all", 1024).compute(5 * unit)
    for rows, cols in ((2, 2), (2, 4), (4, 2)):
        if rows * cols not in wanted:
            continue
        mixed = add(f"grid_{rows}x{cols}", rows * cols, grid(rows, cols))
        for _ in range(3):
            mixed.compute(150 * rows * cols)
            mixed.collective("all_reduce", "tp", 1 << 15)
        for _ in range(2):
            mixed.collective("all_reduce", "dp", 1 << 16)
    return result


def linked_programs(per_host):
    """On two hosts, a core each: where ranks share it, computation is a timed wait."""
    ranks, result = 2 * per_host, []

    def add(name, domains, overlaps=False):
        program = Builder(f"{name}_2x{per_host}", ranks, domains, per_host == 1,
                          overlaps)
        result.append(program)
        return program

    layers = add("tensor_parallel", whole(ranks))
    for _ in range(3):
        layers.compute(3000, 1 << 18)
        layers.collective("all_reduce", "all", 1 << 18).compute(1500)
        layers.collective("all_reduce", "all", 1 << 18)
    sequence = add("sequence_parallel", whole(ranks))
    for _ in range(2):
        sequence.collective("all_gather", "all", (1 << 18) // ranks)
        sequence.compute(3000)
        sequence.collective("reduce_scatter", "all", 1 << 18)
        sequence.compute(1000)
    for overlaps in (False, True):
        data = add("data_parallel" + ("_overlapped" if overlaps else ""), whole(ranks),
                   overlaps)
        for elements in (1 << 19, 1 << 18, 1 << 17):
            data.compute(5000, elements)
            data.collective("all_reduce", "all", elements).compute(1000)
    experts = add("experts", whole(ranks))
    experts.compute(1000, 1 << 17)
    for _ in range(2):
        experts.collective("all_to_all", "all", 1 << 17)
        experts.compute(3000)
        experts.collective("all_to_all", "all", 1 << 17)
    small = add("small", whole(ranks))
    for _ in range(12):
        small.collective("all_reduce", "all", 1 << 10).compute(500 * per_host)
    # Tensor parallel within a host: over all its ranks, and over two of them.
    for cols in sorted({2, per_host} - {1}) if per_host > 1 else []:
        rows = ranks // cols
        mixed = add(f"grid_{rows}x{cols}", grid(rows, cols))
        for _ in range(3):
            mixed.compute(3000, 1 << 16)
            mixed.collective("all_reduce", "tp", 1 << 16)
        for _ in range(2):
            mixed.compute(1000, 1 << 18)
            mixed.collective("all_reduce", "dp", 1 << 18)
    return result


# Measuring --------------------------------------------------------------------------


def calibrate(ranks, folder, largest):
    """The calibration of one number of ranks, as comm-bench writes it."""
    path = os.path.join(folder, f"calibration{ranks}.json")
    # comm-bench gives up first, and says on whom.
    call([tool("comm-bench"), "--calibrate", path, "-n", str(ranks), "-b",
          "64", "-e", str(largest), "--timeout", "240"], timeout=600)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def merge(calibrations):
    """Figures of the first, the last measured curve of each kind and number of
    ranks. A grid communicates in groups of which some are as small as that."""
    result, curves = dict(calibrations[0]), {}
    for one in calibrations:
        for curve in one["collectives"]:
            curves[curve["kind"], curve["ranks"]] = curve
    result["collectives"] = list(curves.values())
    return result


def host_cores(ranks):
    """A core per host. One rank each is bound only once it runs: to the runtime, ranks
    that are bound to fewer cores than there are ranks on the machine share them."""
    return ({"BENCH_CORES": "0,1"} if ranks == 2 else {"HOSTS_CORES": "0,1"})


def calibrate_link(link, ranks, folder, quick):
    """Curves of the collectives that leave a host, from the rows of comm-bench."""
    curves, path = [], os.path.join(folder, "rows.json")
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        try:
            link.mpirun(ranks, [tool("comm-bench"), kind, "-n", ranks,
                                "-b", "1K", "-e", "4M", "-f", "4", "--rounds",
                                "3" if quick else "5", "-J", path],
                        **host_cores(ranks))
        except LinkError:
            # It doubts its own bound of the link, of which nothing is used here.
            if not os.path.exists(path):
                raise
        with open(path, encoding="utf-8") as file:
            points = [(row["bytes"], row["time_us"]) for row in json.load(file)["rows"]]
        os.remove(path)
        segments, before = [], (0, points[0][1])
        for bytes_, time in points:
            slope = max(0.0, (time - before[1]) / (bytes_ - before[0]))
            slope = min(slope, time / bytes_)
            segments.append({"up_to_bytes": bytes_, "alpha_us": time - slope * bytes_,
                             "beta_ns_per_byte": 1e3 * slope})
            before = (bytes_, time)
        segments[-1].pop("up_to_bytes")
        curves.append({"kind": kind, "ranks": ranks, "level": "link",
                       "segments": segments})
    return curves


def write_topology(per_host, calibration, folder):
    """Two hosts with a core each and what comm-bench has measured of them."""
    file_name = f"linked{per_host}.json"
    with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
        json.dump(calibration, file, indent=1)
    path = os.path.join(folder, f"two_hosts_{per_host}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({
            "concord_topology": 1, "name": f"two hosts of {per_host}, {RATE}",
            "device": {"calibration": file_name},
            "hosts": [{"name": "host", "count": 2, "ranks": per_host, "cores": 1,
                       "nics": 1}],
            "inside": {"name": "host", "kind": "memory"},
            "network": [{"name": "link", "bytes_per_second": BYTES_PER_SECOND,
                         "latency_us": 50}]}, file)
    return path


def predict(text, machine, folder, overlaps=False):
    """Microseconds of a step."""
    source = os.path.join(folder, "predicted.mlir")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    out = call([tool("comm-opt"), source,
                pipeline(machine, overlaps, "ordered"), "--simulate", "--topology",
                machine]).stdout
    match = re.search(r"predicted step: ([0-9.]+) (s|ms|us):", out)
    if not match:
        raise Failed("no prediction in\n" + out)
    return float(match.group(1)) * UNITS[match.group(2)]


def pipeline(machine, overlaps, to):
    return (f"--comm-pipeline=simplify=false bucket=false fuse=0 "
            f"overlap={int(overlaps)} machine={machine} to={to}")


def measure(program, machine, folder, rounds, seconds, link=None):
    source = os.path.join(folder, "measured.mlir")
    target = os.path.join(folder, "measured.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(program.text())
    call([tool("comm-opt"), source,
          pipeline(machine, program.overlaps, "lowered"), "--emit=so", "-o", target])
    command = [tool("bench_fuse"), str(program.ranks), str(rounds),
               str(seconds), "65536", target]
    if link:
        report = json.loads(link.mpirun(program.ranks, command,
                                        **host_cores(program.ranks)))
    else:
        report = json.loads(call(command).stdout)
    return statistics.median(report["programs"][0]["rounds"])


def between_calibrations(before, calibrate_now, measure_now, predict_by):
    """Measures between two calibrations until both predict the same within STEADY, at most
    TURNS times. Returns the last calibration, the mean prediction, what was measured, the
    turns, and whether it was steady. What was measured decides nothing."""
    for turn in range(1, TURNS + 1):
        measured = measure_now(before)
        after = calibrate_now()
        first, second = predict_by(before), predict_by(after)
        mean = (first + second) / 2
        steady = abs(first - second) <= STEADY * mean
        before = after
        if steady:
            break
    return after, mean, measured, turn, steady


class Part:
    """Programs of one part, predicted and measured one by one; then the control."""

    def __init__(self, table, name, folder, rounds, seconds):
        self.table = table
        self.name, self.folder = name, folder
        self.rounds, self.seconds = rounds, seconds
        self.programs, self.machines = [], []
        self.predicted, self.measured = [], []
        self.skipped = 0

    def measure(self, program, machine, link=None):
        return measure(program, machine, self.folder, self.rounds, self.seconds, link)

    def predict(self, program, machine, steps=None):
        return predict(program.text(steps), machine, self.folder, program.overlaps)

    def add(self, program, machine, link=None):
        predicted = self.predict(program, machine)
        self.judge(program, machine, predicted, self.measure(program, machine, link))

    def skip(self, program, predicted, measured):
        print(f"  {program.name:30} predicted {predicted:9.1f} us  measured "
              f"{measured:9.1f} us  not judged: the host was not steady in {TURNS} turns",
              flush=True)
        self.skipped += 1

    def judge(self, program, machine, predicted, measured, note=""):
        self.programs.append(program)
        self.machines.append(machine)
        self.predicted.append(predicted)
        self.measured.append(measured)
        kind = "" if program.real else "  timed wait"
        print(f"  {program.name:30} predicted {predicted:9.1f} us  measured "
              f"{measured:9.1f} us  {predicted / measured - 1:+6.1%}{kind}{note}", flush=True)
        self.table.add(program.name, predicted / measured - 1, "relative")

    def finish(self):
        """The floors. The control has of each program the steps of another one of as
        many ranks."""
        shuffled, shuffle = [], random.Random(7)
        for i, program in enumerate(self.programs):
            others = [p for j, p in enumerate(self.programs) if j != i and
                      p.ranks == program.ranks and
                      p.domains.keys() == program.domains.keys()]
            other = shuffle.choice(others) if others else program
            shuffled.append(self.predict(program, self.machines[i], other.steps))

        if self.skipped:
            self.table.add(self.name + "judged", len(self.programs) /
                           (len(self.programs) + self.skipped), "of the programs", JUDGED,
                           at_most=False)
        if not self.programs:
            return

        def errors(predictions):
            return [abs(p / m - 1) for p, m in zip(predictions, self.measured)]

        own, control = errors(self.predicted), errors(shuffled)
        for name, value, floor, at_most in (
                ("median_error", statistics.median(own), MEDIAN, True),
                ("worst_error", max(own), WORST, True),
                ("control_median_error", statistics.median(control), MEDIAN, False),
                ("control_worst_error", max(control), WORST, False)):
            self.table.add(self.name + name, value, "relative", floor, at_most)
        print(f"{len(self.programs)} programs\n")


def one_host(table, options, folder, rounds, seconds):
    part = Part(table, "", folder, rounds, seconds)
    cores = len(os.sched_getaffinity(0))
    measured_at = {}  # of each number of ranks, the last calibration

    def calibrate_now(ranks):
        measured_at[ranks] = calibrate(ranks, folder, 1 << 20)
        path = os.path.join(folder, f"machine{ranks}_{len(os.listdir(folder))}.json")
        with open(path, "w", encoding="utf-8") as file:
            # A grid communicates in groups of fewer ranks too.
            json.dump(merge([measured_at[n] for n in sorted(measured_at) if n <= ranks]),
                      file, indent=1)
        return path

    machine, at = options.calibration, None
    for program in sorted(programs(options.ranks, cores), key=lambda p: p.ranks):
        if options.calibration:
            part.add(program, machine)
            continue
        if program.ranks != at:
            at = program.ranks
            machine = calibrate_now(at)
        machine, predicted, measured, turns, steady = between_calibrations(
            machine, lambda: calibrate_now(at),
            lambda by, program=program: part.measure(program, by),
            lambda by, program=program: part.predict(program, by))
        if steady:
            part.judge(program, machine, predicted, measured,
                       f"  in turn {turns}" if turns > 1 else "")
        else:
            part.skip(program, predicted, measured)
    part.finish()


def two_hosts(table, options, folder, rounds, seconds):
    part, curves = Part(table, "linked_", folder, rounds, seconds), []
    calibrations = [calibrate(2, folder, 1 << 20)]
    if 4 in options.linked:
        calibrations.append(calibrate(4, folder, 1 << 20))
    # The shaper lets little pass at once: how much depends on the pauses before.
    with Link(RATE, burst="48kb") as link:
        for per_host in options.linked:
            curves += calibrate_link(link, 2 * per_host, folder, options.quick)
            calibration = merge(calibrations)
            calibration["collectives"] += curves
            machine = write_topology(per_host, calibration, folder)
            for program in linked_programs(per_host):
                part.add(program, machine, link)
    part.finish()


def main():
    parser = arguments(__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--linked", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--calibration",
                        help="figures that were measured before, instead of now")
    options = parser.parse_args()
    rounds, seconds = (3, 0.1) if options.quick else (9, 0.2)
    table = Table()
    try:
        with tempfile.TemporaryDirectory() as folder:
            if options.ranks:
                print(f"one host, {len(os.sched_getaffinity(0))} cores")
                one_host(table, options, folder, rounds, seconds)
            missing = unavailable()
            if options.linked and missing:
                print(f"two hosts: skipped: {missing}")
            elif options.linked:
                print(f"two hosts, a core each, {RATE} between them")
                two_hosts(table, options, folder, rounds, seconds)
    except (Failed, LinkError, OSError, ValueError) as error:
        print(f"bench simulate: {error}")
        return 1
    return table.finish(options)


if __name__ == "__main__":
    sys.exit(main())
