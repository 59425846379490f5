# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench collectives [PART ...] [-J FILE] [--quick]: Concord's collectives against the
best of Open MPI, MPICH and Gloo in alternating runs of comm-bench, then a line per floor.

A floor is met (ok), MISSED, or out of reach (LIMIT). Out of reach is said only with two
numbers of the same turns: the time of a bare loop of the loads, stores and flags that the
operation cannot do without (`comm-bench --limits`), which misses the floor itself, and
Concord's time within 25 % of it, at every size that misses. Everything else that misses is
MISSED, with the limit beside it where there is one.

Exit status: 0 when every floor is met or out of reach, 1 when one is missed or a result is
wrong, 2 when something is not installed or not built, or for bad usage.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from floors import BIN, arguments, tool  # noqa: E402

BENCH = pathlib.Path(tool("comm-bench"))
MEMCOUNT = pathlib.Path(BIN, "..", "lib", "libconcord_memcount.so")
KIB, MIB = 1 << 10, 1 << 20
NEAR = 1.25  # times the bare loop's time: no longer a matter of Concord's code

MOVES = [(8, 8, 1.2), (4 * KIB, MIB, 2), (MIB + 1, 64 * MIB, 1.5)]
REDUCES = [(8, 8, 1.2), (512, 512, 2), (4 * KIB, 8 * MIB, 4), (8 * MIB + 1, 64 * MIB, 3)]
FLOORS = {
    "all_reduce": REDUCES,
    "reduce_scatter": [(8, 8, 1.2), (4 * KIB, 128 * KIB - 1, 3), (128 * KIB, 64 * MIB, 10)],
    "all_gather": MOVES, "all_to_all": MOVES, "broadcast": MOVES,
}
PARTS = [*FLOORS, "reused", "p4", "p8", "flood", "issue"]


class Runs:
    """Runs of comm-bench; their tables are shown as they come."""

    def __init__(self, number):
        self.number, self.done, self.began, self.failed = number, 0, time.monotonic(), False

    def run(self, *arguments, **environment):
        """Rows of one comm-bench run."""
        self.done += 1
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            print(f"\n== {self.done}/{self.number}, {time.monotonic() - self.began:.0f} s: "
                  + " ".join(["comm-bench", *arguments]), flush=True)
            code = subprocess.run([str(BENCH), *arguments, "-J", out.name], check=False,
                                  env={**os.environ, **environment}).returncode
            text = pathlib.Path(out.name).read_text()
            if not text:
                print(f"bench collectives: comm-bench ended with {code}", file=sys.stderr)
                sys.exit(2 if code == 2 else 1)
            self.failed |= code != 0
            return json.loads(text)["rows"]


def text(size):
    """8 B, 4 KiB, 64 MiB."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def best_peer(row):
    """The least ratio of a peer's time to Concord's; None without a peer."""
    return min((peer["ratio"] for peer in row["peers"].values()), default=None)


def judge(name, rows, floor, unit, value):
    """The line of one floor: of the sizes that miss it, or else of all, the worst."""
    points = []
    for row in rows:
        reached = value(row)
        if reached is None:
            continue
        time_us, limit_us = row["time_us"], row.get("limit_us")
        # Both the ratio to a peer and the efficiency are a constant over the time.
        limit = reached * time_us / limit_us if limit_us else None
        missed = reached < floor
        points.append({
            "bytes": row["bytes"], "value": reached, "time_us": time_us,
            "limit": limit, "limit_us": limit_us, "limit_by": row.get("limit_by"),
            "verdict": "ok" if not missed
            else "limit" if limit is not None and limit < floor and time_us <= NEAR * limit_us
            else "missed"})
    if not points:
        return None
    order = ["missed", "limit", "ok"]
    worst = min(points, key=lambda point: (order.index(point["verdict"]), point["value"]))
    return {"name": name, "unit": unit, "floor": floor, "ok": worst["verdict"] == "ok",
            **worst, "misses": [point for point in points if point["verdict"] != "ok"]}


def show(result):
    """Print one floor, and the other sizes that miss it."""
    def words(point):
        line = f"{point['value']:.2f} at {text(point['bytes'])} ({point['time_us']:.3g} us)"
        if point["verdict"] == "ok":
            return line
        if point["limit"] is None:
            return line + "; no limit was measured"
        beside = f"{point['limit']:.2f} ({point['limit_us']:.3g} us, {point['limit_by']})"
        if point["verdict"] == "limit":
            return f"{line}; out of reach: the limit here is {beside}"
        return f"{line}; the limit here is {beside}"

    sign = {"ok": "ok    ", "limit": "LIMIT ", "missed": "MISSED"}[result["verdict"]]
    if "words" in result:
        print(f"{sign} {result['name']}: {result['words']}")
        return
    print(f"{sign} {result['name']}, {result['unit']} >= {result['floor']:g}: {words(result)}")
    for point in result["misses"]:
        if point["bytes"] != result["bytes"]:
            print(f"         {'limit ' if point['verdict'] == 'limit' else 'missed'} "
                  f"{words(point)}")


def plain(name, good, words, **more):
    """A floor that is not a ratio."""
    return {"name": name, "ok": good, "verdict": "ok" if good else "missed",
            "words": words, "limit": None, **more}


def measure(part, runs, options):
    """The floors of one part of the table."""
    step = ["-f", "8" if options.quick else "2"]
    coarse = ["-f", "8" if options.quick else "4", "--rounds", "5"]
    peers = ["--peer", options.peer]
    results = []

    def ratios(name, rows, floors):
        for first, last, floor in floors:
            inside = [row for row in rows if first <= row["bytes"] <= last]
            span = text(first) if first == last else f"{text(first)} to {text(last)}"
            results.append(judge(f"{name}, {span}", inside, floor, "ratio", best_peer))

    if part in FLOORS:
        rows = runs.run(part, "-n", "2", "-b", "8", "-e", "64M", *step, *peers, "--limits")
        ratios(f"{part} p=2", rows, FLOORS[part])
        large = [row for row in rows if row["bytes"] >= 256 * KIB]
        results.append(judge(f"{part} p=2, from 256 KiB", large, 0.8, "efficiency",
                             lambda row: row["eff"]))
        rows = runs.run(part, "-n", "2", "-b", "8", "-e", "16M", *coarse, *peers, "-R", "0",
                        "--limits")
        sums = part in ("all_reduce", "reduce_scatter")
        ratios(f"{part} p=2 of malloc", rows,
               [(8, 64 * MIB, 1)] + ([(64 * KIB, 64 * MIB, 1.5)] if sums else []))
    elif part == "reused":
        # As the anchors of the floors were taken.
        rows = runs.run("all_reduce", "-n", "2", "-b", "8", "-e", "32M", *coarse,
                        "--rotate", "0", *peers, "--limits")
        ratios("all_reduce p=2, reused buffers", rows, REDUCES)
    elif part in ("p4", "p8"):
        # MPICH spins without yielding there: a second an operation.
        some = ",".join(peer for peer in options.peer.split(",") if peer != "mpich")
        for op in ("all_reduce", "reduce_scatter"):
            rows = runs.run(op, "-n", part[1], "-b", "64", "-e", "4M", "-f", "8",
                            "--rounds", "5", *(["--peer", some] if some else []), "--limits")
            ratios(f"{op} p={part[1]}", rows, [(8, 64 * MIB, 1), (64 * KIB, 64 * MIB, 3)])
    elif part == "flood":
        row = runs.run("all_reduce", "-n", "2", "--flood")[0]
        results.append(plain(
            "1 KiB at high priority under 64 MiB at low, p99", row["ok"],
            f"{row['p99_us']:.2f} us <= {row['limit_us']:.2f} us: alone "
            f"{row['idle_p99_us']:.2f} and 1.5 chunks of {row['chunk_us']:.2f}",
            value=row["p99_us"], floor=row["limit_us"], unit="us", bytes=1024))
    else:
        if not MEMCOUNT.exists():
            print(f"bench collectives: {MEMCOUNT.name} counts allocations and is not built: "
                  "./run build", file=sys.stderr)
            sys.exit(2)
        rows = runs.run("all_reduce", "-n", "2", "-b", "8", "-e", "1M", "-f", "32",
                        "--issue-path", LD_PRELOAD=str(MEMCOUNT))
        if any(row["allocations"] is None for row in rows):
            print(f"bench collectives: {MEMCOUNT} does not count", file=sys.stderr)
            sys.exit(2)
        calls = sum(row["system_calls"] for row in rows)
        memory = sum(row["allocations"] for row in rows)
        results.append(plain(
            "issue path, allocations and system calls but for sleeping",
            calls == 0 and memory == 0,
            f"{memory} and {calls} in {sum(row['operations'] for row in rows)} operations of "
            + ", ".join(text(row["bytes"]) for row in rows),
            value=calls + memory, floor=0, unit="calls", bytes=rows[-1]["bytes"]))
    return [result for result in results if result]


def main():
    parser = arguments(__doc__)
    parser.prog = "./run bench collectives"
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help="of " + ", ".join(PARTS) + " (all)")
    parser.add_argument("--peer", default="openmpi,mpich,gloo",
                        help="libraries to compare with (%(default)s)")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part '{part}'; there are {', '.join(PARTS)}")
    if not BENCH.exists():
        print(f"bench collectives: {BENCH} is not built: ./run build", file=sys.stderr)
        return 2
    parts = options.parts or PARTS
    runs = Runs(sum(1 if part in ("reused", "flood", "issue") else 2 for part in parts))
    results = []
    for part in parts:
        results += measure(part, runs, options)
    print()
    for result in results:
        show(result)
    counts = {verdict: sum(result["verdict"] == verdict for result in results)
              for verdict in ("ok", "limit", "missed")}
    print(f"{len(results)} floors: {counts['ok']} met, {counts['limit']} out of reach, "
          f"{counts['missed']} missed; {time.monotonic() - runs.began:.0f} s")
    if runs.failed:
        print("a run of comm-bench failed: its messages are above")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": results}, indent=1) + "\n")
    if options.quick:
        print("--quick: every eighth size only")
    return 1 if runs.failed or counts["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
