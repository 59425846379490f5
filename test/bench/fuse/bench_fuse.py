#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench fuse [-J FILE]: collectives fused with computation against apart.

Every row is a pair compiled by comm-opt as comm-fuse leaves it, with fuse=0, and the
computation alone without the collective; where comm-fuse refuses, also as it would be
if it had not. The programs run in short turns in one job of two pinned ranks, and so
does oneDNN + Open MPI (bench/peers/onednn.cpp) beside them. Ratios are medians of the
ratios of neighbouring turns; times are medians, in microseconds.

The share of communication is what the unfused pair takes more than its computation,
measured; shapes are chosen so that the share comes closest to 5, 20, 40 and 60 %. The
bound is computation plus the bytes that a fused pair cannot avoid at the speed at which
both cores copy, and two flags (what is used has been made, what was read may be written
again), measured in the same run.

Floors: from a share of 20 % on, a fused pair takes at most
max(computation + 0.5 x communication, 1.15 x bound); below, and where comm-fuse
refuses, at most 1.02 x unfused. all_reduce + residual + norm is at least 1.5 times
as fast as apart once it has left the cache; in the cache its input is made in the step, as
the lines that a collective leaves behind are paid for there. A pair that comm-fuse refuses is printed
as refused and counted; it is no fused row.

Two hosts (network namespaces, a link that tc shapes): fused kernels read their peers'
memory, so between hosts every pair is refused, which is shown and counted. Root and
Open MPI; without them it says so and the part is left out.

--only takes a part of the rows: norms, updates, links, or one of the pairs' kinds, with
:f32 or :bf16 behind it. --quick takes short turns and few rows, and says that its
figures do not count.
"""

import concurrent.futures
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "hosts")]

from floors import MIB, Failed, Table, arguments, call, tool  # noqa: E402
from link import Link, LinkError, unavailable  # noqa: E402
from pairs import (BYTES, ExchangePair, Pair, norm_module,  # noqa: E402
                   update_module)

WANTED = (5, 20, 40, 60)
LADDER = (16, 32, 64, 128, 256, 512, 1024, 2048)
PEER = "oneDNN + Open MPI"
RATE, BYTES_PER_SECOND = "1gbit", 125e6
# Kind, rows, width: of B's columns, or of what is gathered or sent. The ladder is K, or
# B's columns where A is what communicates.
SHAPES = [
    ("gemm+all_reduce", 1024, 1024), ("gemm+all_reduce", 16, 4096),
    ("gemm+all_reduce", 1, 4096),
    ("gemm+reduce_scatter", 1024, 1024), ("gemm+reduce_scatter", 32, 4096),
    ("all_gather+gemm", 1024, 1024), ("all_gather+gemm", 32, 4096),
    ("all_to_all+grouped_gemm", 1024, 1024), ("all_to_all+grouped_gemm", 32, 4096),
    ("all_to_all+gemm", 1024, 4096), ("all_to_all+gemm", 32, 4096),
    ("grouped_gemm+all_to_all", 1024, 1024), ("grouped_gemm+all_to_all", 32, 4096)]


def make_pair(kind, dtype, m, width, step):
    """The pair of a family at one step of the ladder; None where there is no such."""
    n, k = (step, width) if kind.startswith("all_") else (width, step)
    if "all_to_all" not in kind:
        return Pair(kind, dtype, m, n, k)
    return ExchangePair(kind, dtype, m, n, k, groups=2 if "grouped" in kind else 1)


class Measure:
    """How long is measured: seconds of a row, of one of its turns, turns at the most and
    at the least; rounds and seconds of choosing a shape."""

    def __init__(self, quick):
        self.quick = quick
        self.row, self.turn, self.most, self.least = (
            (1, 0.004, 21, 5) if quick else (5, 0.008, 101, 25))
        self.probes = (3, 0.004) if quick else (5, 0.008)

    def rounds(self, programs, step):
        """Of a row of so many programs, one step of which takes about `step` us."""
        turn = max(self.turn, 2e-6 * step)
        return min(self.most, max(self.least, int(self.row / (programs * turn)))) | 1


class Peer:
    """oneDNN + Open MPI, where both are installed."""

    PROGRAM = tool("bench_peer_onednn")
    HOW = ("apt install openmpi-bin libopenmpi-dev libdnnl-dev, then ./run build (the build "
           "looks for them when it is configured)")

    @classmethod
    def missing(cls):
        return not (shutil.which("mpirun.openmpi") and os.path.exists(cls.PROGRAM))

    @classmethod
    def start(cls, name):
        # Ranks bind themselves; transports between hosts are not looked for.
        return subprocess.Popen(
            ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to",
             "none", "--mca", "btl", "self,vader", "-n", "2", cls.PROGRAM, name, "0", "0",
             "0", "1", "-"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            # A thread for each rank, as Concord has.
            env={**os.environ, "OMP_NUM_THREADS": "1"})


def compile_program(text, folder, name, options="", forced=False, source=""):
    """(path, explain lines of comm-fuse). A program has the names of its source and its
    file in it, so that only those from the same `source` can be the same."""
    source = os.path.join(folder, (source or name) + ".mlir")
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    target = os.path.join(folder, name, "program.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    if forced:
        fused = os.path.join(folder, name + ".fused.mlir")
        machine = " ".join(re.findall(r"machine=\S+", options))
        why = call([tool("comm-opt"), source, f"--comm-fuse=force {machine}",
                    "--explain", "-o", fused]).stderr
        call([tool("comm-opt"), fused, f"--comm-pipeline={options} fuse=0 to=lowered",
              "--emit=so", "-o", target])
    else:
        why = call([tool("comm-opt"), source, f"--comm-pipeline={options} to=lowered",
                    "--explain", "--emit=so", "-o", target]).stderr
    return target, [line for line in why.splitlines()
                    if line.startswith("explain: comm-fuse")]


def taken(why):
    """Whether something was fused, and if not, the reason."""
    if any(line.startswith("explain: comm-fuse fuse ") for line in why):
        return True, ""
    return False, re.search(r"reason=(\S+)", why[0]).group(1) if why else "no-collective"


def unchanged(fused, apart):
    """Where comm-fuse refuses, nothing changes: the program without it takes both turns
    then, with the same buffers, and its ratio to itself is what the measurement is worth.
    Its path. Raises Failed where the two differ in a byte."""
    with open(fused, "rb") as one, open(apart, "rb") as two:
        if one.read() != two.read():
            raise Failed("comm-fuse has refused, and yet the program differs from that with "
                         "fuse=0")
    return apart


def run_programs(paths, rounds, seconds, copy_bytes=MIB, pair=None):
    """bench_fuse's report; with a pair, its peer takes turns, too."""
    command = [tool("bench_fuse"), "2", str(rounds), str(seconds), str(int(copy_bytes)),
               *paths]
    if not pair or Peer.missing():
        return json.loads(call(command).stdout)
    name = f"concord-bench-fuse-{os.getpid()}"
    words = " ".join(map(str, [name, *pair.peer()]))
    peer = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env={**os.environ, "BENCH_PEER": words}) as job:
        try:
            if job.stdout.readline().strip() == "listening":
                peer = Peer.start(name)
            out, errors = job.communicate(timeout=300)
            if job.returncode:
                if peer:
                    peer.wait(timeout=10)
                    errors += peer.stderr.read()
                raise Failed(" ".join(command) + "\n" + errors[-2000:])
        except subprocess.TimeoutExpired as error:
            raise Failed(" ".join(command) + "\nnot done after 300 s") from error
        finally:
            for process in filter(None, (job, peer)):
                if process.poll() is None:
                    try:
                        process.wait(timeout=5)
                    except subprocess.TimeoutExpired:
                        process.kill()
            if peer:
                peer.stderr.close()
    return json.loads(out)


def median_ratio(turns, others):
    """Of neighbouring turns."""
    return statistics.median(a / b for a, b in zip(turns, others))


def copy_bytes_of(pair):
    return max(MIB, pair.footprint())


def shares_of(pairs, folder, measure):
    """Of each unfused pair: the measured share of communication, and its step, us."""
    def compile_one(pair):
        pair.write_weight(folder)
        return [compile_program(pair.make(communicates), folder,
                                f"{pair.stem()}_{communicates}", "fuse=0")[0]
                for communicates in (True, False)]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        paths = [path for both in pool.map(compile_one, pairs) for path in both]
    programs = run_programs(paths, *measure.probes)["programs"]
    turns = [program["rounds"] for program in programs]
    return [(1 - median_ratio(turns[i + 1], turns[i]), statistics.median(turns[i]))
            for i in range(0, len(turns), 2)]


class Rows:
    """Rows of pairs: measured, printed, added to the table."""

    def __init__(self, table, measure):
        self.table, self.measure = table, measure
        self.fused, self.refused, self.reasons = 0, 0, {}

    def count(self, fused, reason):
        self.fused += fused
        self.refused += not fused
        if not fused:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def head(self):
        print(f"  {'pair':46} {'share':>6} {'product':>9} {'apart':>9} "
              f"{'comm-fuse':>9} {'ratio':>6} {'floor':>6} {'bound':>9} {'forced':>7} "
              f"{PEER:>17}", flush=True)

    def add(self, pair, folder, step):
        pair.write_weight(folder)
        text = pair.make(True)
        fused, why = compile_program(text, folder, "fused", source="pair")
        apart, _ = compile_program(text, folder, "apart", "fuse=0", source="pair")
        alone, _ = compile_program(pair.make(False), folder, "alone", "fuse=0")
        ok, reason = taken(why)
        if not ok:
            fused = unchanged(fused, apart)
        paths = [apart, fused, alone]
        if not ok:
            forced, how = compile_program(text, folder, "forced", forced=True)
            if taken(how)[0]:
                paths.append(forced)
        report = run_programs(paths, self.measure.rounds(len(paths) + 1, step),
                              self.measure.turn, copy_bytes_of(pair), pair)
        turns = [program["rounds"] for program in report["programs"]]
        unfused = statistics.median(turns[0])
        ratio = median_ratio(turns[1], turns[0])
        compute = median_ratio(turns[2], turns[0])
        share = 1 - compute
        bound = compute + (1e6 * pair.unavoidable() / report["copy"] +
                           2 * report["flag"]) / unfused
        floor = 1.02
        if ok and share >= 0.2:
            floor = max(compute + 0.5 * share, 1.15 * bound)
        forced = median_ratio(turns[3], turns[0]) if len(turns) > 3 else None
        name = pair.stem()
        beside = "not installed"
        if "peer" in report:
            peer = report["peer"]
            times = peer["rounds"]
            beside = "none for this CPU"
        if "peer" in report and times:
            over = median_ratio(times, turns[1])
            beside = f"{statistics.median(times):9.1f} {over:6.2f}x"
            self.table.add(name + "_peer_over_concord", over, "x")
            self.table.add(name + "_peer_error", peer["error"], "relative",
                           1e-5 if pair.dtype == "f32" else 2e-2)
        print(f"  {pair.label():46} {100 * share:5.1f}% {compute * unfused:9.1f} "
              f"{unfused:9.1f} {ratio * unfused:9.1f} {ratio:6.3f} {floor:6.3f} "
              f"{bound * unfused:9.1f} {f'{forced:7.3f}' if forced else '':7} "
              f"{beside:>17}  {'fused' if ok else f'refused ({reason})'}"
              f"{'' if ratio <= floor else '  MISS'}", flush=True)
        self.count(ok, reason)
        self.table.add(name, ratio, "of unfused", floor,
                       note=f"share {100 * share:.0f} %, "
                            f"{'fused' if ok else 'refused, ' + reason}",
                       share=share, product_us=compute * unfused, unfused_us=unfused,
                       bound_us=bound * unfused, fused=ok)
        if forced:
            self.table.add(name + "_forced", forced, "of unfused")
        if ok:
            self.table.add(name + "_difference", report["programs"][1]["difference"],
                           "relative", 1e-5 if pair.dtype == "f32" else 2e-2)


def bench_family(rows, folder, kind, dtype, m, width):
    steps = LADDER[::3] if rows.measure.quick else LADDER
    pairs = [make_pair(kind, dtype, m, width, step) for step in steps]
    shares = shares_of(pairs, folder, rows.measure)
    done = []
    for wanted in WANTED:
        best = min(range(len(pairs)), key=lambda i: abs(100 * shares[i][0] - wanted))
        if best not in done:
            done.append(best)
    for i in sorted(done, reverse=True):
        rows.add(pairs[i], folder, shares[i][1])


def bench_norms(rows, folder, dtype):
    cases = {"f32": [(16, 768), (128, 768), (1024, 1024), (8192, 1024)],
             "bf16": [(8192, 2048)]}[dtype]
    for count, cols in cases[-1:] if rows.measure.quick else cases:
        for kind in ("rmsnorm", "layernorm"):
            size = count * cols * BYTES[dtype]
            # x, residual, y and sum of both ranks against a 32 MiB cache.
            left = 8 * size > 32 * MIB
            # In the caches it matters who wrote a line and who has read it since,
            # as somebody does in every step of a model.
            text = norm_module(dtype, count, cols, kind, made=not left)
            bench_whole(rows, folder, text,
                        f"all_reduce+residual+{kind}_{dtype}_{count}x{cols}", 8 * size,
                        1.5 if left else 1 / 1.02, 1e-4 if dtype == "f32" else 5e-2,
                        "out of the cache" if left else "its input made in the step")


def bench_updates(rows, folder, dtype):
    cases = {"f32": [1 << 14, 1 << 17, 1 << 22], "bf16": [1 << 22]}[dtype]
    for share in cases[:1] if rows.measure.quick else cases:
        # Adam divides: where the second moment is next to nothing, rounding shows.
        bench_whole(rows, folder, update_module(dtype, share),
                    f"reduce_scatter+adam+all_gather_{dtype}_{2 * share}",
                    8 * share * BYTES[dtype], 1 / 1.02,
                    1e-3 if dtype == "f32" else 5e-2)


def bench_whole(rows, folder, text, label, footprint, floor, tolerance, note=""):
    """What has no computation of its own to be compared with: a speedup."""
    fused, why = compile_program(text, folder, "fused", source="pair")
    apart, _ = compile_program(text, folder, "apart", "fuse=0", source="pair")
    ok, reason = taken(why)
    if not ok:
        fused = unchanged(fused, apart)
    # Past the caches a byte takes about as long everywhere: four times there and back.
    step = 8 * footprint / 2e10 * 1e6
    report = run_programs([apart, fused], rows.measure.rounds(2, step),
                          rows.measure.turn, max(MIB, footprint))
    rows.count(ok, reason)
    turns = [program["rounds"] for program in report["programs"]]
    speedup = median_ratio(turns[0], turns[1])
    note = ", ".join(filter(None, (note, "" if ok else f"refused, {reason}")))
    print(f"  {label:52} apart {statistics.median(turns[0]):9.1f}  with comm-fuse "
          f"{statistics.median(turns[1]):9.1f}  {speedup:5.2f} x faster  {note}",
          flush=True)
    rows.table.add(label, speedup, "x", floor, at_most=False, note=note)
    if ok:
        rows.table.add(label + "_difference", report["programs"][1]["difference"],
                       "relative", tolerance)


def bench_links(rows, folder, link):
    """Pairs whose ranks are on two hosts."""
    machine = os.path.join(folder, "two_hosts.json")
    with open(machine, "w", encoding="utf-8") as file:
        json.dump({"concord_topology": 1, "name": f"two hosts, {RATE}",
                   "device": {"machine": "cpu"},
                   "hosts": [{"name": "host", "count": 2, "ranks": 1, "cores": 1}],
                   "inside": {"name": "host", "kind": "memory"},
                   "network": [{"name": "link", "bytes_per_second": BYTES_PER_SECOND,
                                "latency_us": 50}]}, file)
    for kind, m, n, k in (("gemm+all_reduce", 128, 1024, 8192),
                          ("gemm+reduce_scatter", 128, 1024, 4096),
                          ("all_gather+gemm", 128, 4096, 1024),
                          ("all_to_all+grouped_gemm", 128, 2048, 1024),
                          ("grouped_gemm+all_to_all", 128, 1024, 2048)):
        pair = (ExchangePair if "all_to_all" in kind else Pair)(kind, "f32", m, n, k)
        pair.write_weight(folder)
        fused, why = compile_program(pair.make(True), folder, "fused",
                                     f"machine={machine}", source="pair")
        apart, _ = compile_program(pair.make(True), folder, "apart",
                                   f"machine={machine} fuse=0", source="pair")
        alone, _ = compile_program(pair.make(False), folder, "alone", "fuse=0")
        ok, reason = taken(why)
        if not ok:
            fused = unchanged(fused, apart)
        report = json.loads(link.mpirun(
            2, [tool("bench_fuse"), 2, rows.measure.least, rows.measure.turn, MIB, apart,
                fused, alone], BENCH_CORES="0,1"))
        turns = [program["rounds"] for program in report["programs"]]
        rows.count(ok, reason)
        ratio = median_ratio(turns[1], turns[0])
        share = 1 - median_ratio(turns[2], turns[0])
        print(f"  {pair.label():58} share {100 * share:4.1f} %  apart "
              f"{statistics.median(turns[0]):9.1f}  with comm-fuse "
              f"{statistics.median(turns[1]):9.1f}  {ratio:6.3f}  "
              f"{'fused' if ok else f'refused ({reason})'}", flush=True)
        rows.table.add(f"{RATE}_{pair.stem()}", ratio, "of unfused", 1.02,
                       note="fused" if ok else f"refused, {reason}", share=share)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="PART")
    options = parser.parse_args()
    table, measure = Table(), Measure(options.quick)
    rows = Rows(table, measure)

    def wants(kind, dtype):
        return not options.only or any(
            part in (kind, f"{kind}:{dtype}") for part in options.only)

    dtypes = ["f32"] if options.quick else ["f32", "bf16"]
    parts = [(bench, name, (dtype,)) for dtype in dtypes
             for bench, name in ((bench_norms, "norms"), (bench_updates, "updates"))
             if wants(name, dtype)]
    parts += [(bench_family, kind, (kind, dtype, m, width)) for dtype in dtypes
              for kind, m, width in (SHAPES[::3] if options.quick else SHAPES)
              if wants(kind, dtype)]
    known = {"norms", "updates", "links"} | {kind for kind, _, _ in SHAPES}
    for part in options.only:
        if part.split(":")[0] not in known:
            parser.error(f"--only {part}: there are {', '.join(sorted(known))}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            if Peer.missing():
                print(f"{PEER}: not installed: {Peer.HOW}")
            for i, (bench, name, more) in enumerate(parts):
                print(f"== {i + 1}/{len(parts) + 1}, {table.seconds():.0f} s: "
                      f"{' '.join(map(str, [name, *more[-3:]]))}", flush=True)
                if bench is bench_family:
                    rows.head()
                bench(rows, folder, *more)
            if wants("links", "f32"):
                print(f"== {len(parts) + 1}/{len(parts) + 1}, {table.seconds():.0f} s: "
                      f"two hosts, {RATE} between them", flush=True)
                missing = unavailable()
                if missing:
                    print(f"  skipped: {missing}")
                else:
                    with Link(RATE) as link:
                        bench_links(rows, folder, link)
    except (Failed, LinkError, OSError, ValueError) as error:
        print(f"bench fuse: {error}")
        return 1
    reasons = ", ".join(f"{count} {reason}" for reason, count in
                        sorted(rows.reasons.items(), key=lambda item: -item[1]))
    print(f"\n{rows.fused} pairs fused, {rows.refused} refused by comm-fuse"
          f"{': ' + reasons if reasons else ''}")
    return table.finish(options)


if __name__ == "__main__":
    sys.exit(main())
