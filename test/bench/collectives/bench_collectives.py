# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench collectives [-J FILE] [--quick]: Concord's collectives against the best of
Open MPI, MPICH and Gloo in one alternating run each, then a line per floor. The exit
status is 1 when a floor is missed or a result is wrong.

Beside a ratio stands how much the memory allows: the peer's time over the bound of that
row (docs/comm-bench.md), measured in the same turns. A floor above it cannot be met on this
machine by any library.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from floors import Table, arguments, tool  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20


class Runs:
    """Runs of comm-bench, counted; their tables are shown."""

    def __init__(self, number):
        self.number, self.done, self.began, self.failed = number, 0, time.monotonic(), False

    def run(self, *options):
        """Rows of one comm-bench run."""
        self.done += 1
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            print(f"\n== {self.done}/{self.number}, {time.monotonic() - self.began:.0f} s: "
                  + " ".join(["comm-bench", *options]), flush=True)
            code = subprocess.run([tool("comm-bench"), *options, "-J", out.name],
                                  check=False).returncode
            text = pathlib.Path(out.name).read_text()
            if not text:
                sys.exit(f"bench collectives: comm-bench ended with {code}")
            self.failed |= code not in (0, 1) or (code == 1 and "--flood" not in options)
            return json.loads(text)["rows"]


def worst_ratio(rows, first, last):
    """Of the sizes in [first, last], the least ratio against the best peer of the row; its
    size; the ratio that the memory's bound allows there. None without such a row."""
    ratios = [
        (ratio, row["bytes"], ratio / row["eff"])
        for row in rows
        if first <= row["bytes"] <= last and row["peers"]
        for ratio in [min(peer["ratio"] for peer in row["peers"].values())]
    ]
    return min(ratios, default=None)


def text(size):
    """8 B, 4 KiB, 64 MiB."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def main():
    options = arguments(__doc__).parse_args()
    step = ["-f", "8" if options.quick else "2"]
    coarse = ["-f", "8" if options.quick else "4", "--rounds", "5"]
    peers = ["--peer", "openmpi,mpich,gloo"]
    table = Table()

    def floor(name, value, limit, where, unit="ratio", reach=None):
        note = f"at {text(where)}"
        if reach:
            note += f"; the memory allows {reach:.1f}"
            note += ", less than the floor" if reach < limit else ""
        table.add(name, value, unit, limit, at_most=unit == "us", note=note, bytes=where,
                  reach=reach)

    def ratios(name, rows, floors):
        for first, last, limit in floors:
            worst = worst_ratio(rows, first, last)
            if worst:
                floor(f"{name}, {text(first)} to {text(last)}, least", worst[0], limit,
                      worst[1], reach=worst[2])

    moves = [(8, 8, 1.2), (4 * KIB, MIB, 2), (MIB + 1, 64 * MIB, 1.5)]
    reduces = [(8, 8, 1.2), (512, 512, 2), (4 * KIB, 8 * MIB, 4), (8 * MIB + 1, 64 * MIB, 3)]
    limits = {
        "all_reduce": reduces,
        "reduce_scatter": [(8, 8, 1.2), (4 * KIB, 128 * KIB - 1, 3),
                           (128 * KIB, 64 * MIB, 10)],
        "all_gather": moves, "all_to_all": moves, "broadcast": moves,
    }
    runs = Runs(2 * len(limits) + 6)
    for op, floors in limits.items():
        rows = runs.run(op, "-n", "2", "-b", "8", "-e", "64M", *step, *peers)
        ratios(f"{op} p=2", rows, floors)
        eff, where = min((row["eff"], row["bytes"]) for row in rows
                         if row["bytes"] >= 256 * KIB)
        floor(f"{op} p=2, efficiency from 256 KiB", eff, 0.8, where, "efficiency")
        rows = runs.run(op, "-n", "2", "-b", "8", "-e", "16M", *coarse, *peers, "-R", "0")
        sums = op in ("all_reduce", "reduce_scatter")
        ratios(f"{op} p=2 of malloc", rows,
               [(8, 64 * MIB, 1)] + ([(64 * KIB, 64 * MIB, 1.5)] if sums else []))
    # As the anchors of the floors were taken.
    rows = runs.run("all_reduce", "-n", "2", "-b", "8", "-e", "32M", *coarse, "--rotate", "0",
                    *peers)
    ratios("all_reduce p=2, reused buffers", rows, reduces)
    for ranks in ("4", "8"):
        for op in ("all_reduce", "reduce_scatter"):
            # MPICH spins without yielding there: a second an operation.
            rows = runs.run(op, "-n", ranks, "-b", "64", "-e", "4M", "-f", "8",
                            "--rounds", "5", "--peer", "openmpi,gloo")
            ratios(f"{op} p={ranks}", rows, [(8, 64 * MIB, 1), (64 * KIB, 64 * MIB, 3)])
    flood = runs.run("all_reduce", "-n", "2", "--flood")[0]
    floor("1 KiB at high priority, p99 under 64 MiB at low", flood["p99_us"],
          flood["limit_us"], 1024, "us")

    return table.finish(options) or int(runs.failed)


if __name__ == "__main__":
    sys.exit(main())
