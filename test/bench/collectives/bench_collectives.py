# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench collectives [-J FILE] [--quick]: Concord's collectives against the best of
Open MPI, MPICH and Gloo in one alternating run each, then a line per floor."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BENCH = ROOT / "build/bin/comm-bench"
KIB, MIB = 1 << 10, 1 << 20


def run(arguments):
    """Rows of one comm-bench run; its table is shown."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(BENCH), *arguments, "-J", out.name]
        print("\n== " + " ".join(["comm-bench", *arguments]), flush=True)
        code = subprocess.run(command, check=False).returncode
        text = pathlib.Path(out.name).read_text()
        if not text:
            sys.exit(f"bench collectives: comm-bench ended with {code}")
        return json.loads(text)["rows"], code


def worst_ratio(rows, first, last):
    """The least ratio, against the best peer of each row, of sizes in [first, last]."""
    ratios = [
        (min(peer["ratio"] for peer in row["peers"].values()), row["bytes"])
        for row in rows
        if first <= row["bytes"] <= last and row["peers"]
    ]
    return min(ratios, default=None)


def main():
    parser = argparse.ArgumentParser(prog="./run bench collectives")
    parser.add_argument("-J", "--json")
    parser.add_argument("--quick", action="store_true", help="every eighth size")
    options = parser.parse_args()
    step = ["-f", "8" if options.quick else "2"]
    peers = ["--peer", "openmpi,mpich,gloo"]
    results, failed = [], False

    def floor(name, measured, limit, at_most=False):
        value, where = measured
        good = value <= limit if at_most else value >= limit
        results.append({"name": name, "value": value, "unit": "us" if at_most else "ratio",
                        "floor": limit, "ok": good, "bytes": where})

    def ratios(name, rows, floors):
        for first, last, limit in floors:
            worst = worst_ratio(rows, first, last)
            if worst:
                floor(f"{name}, {first} to {last} B, least", worst, limit)

    moves = [(8, 8, 1.2), (4 * KIB, MIB, 2), (MIB + 1, 64 * MIB, 1.5)]
    table = {
        "all_reduce": [(8, 8, 1.2), (512, 512, 2), (4 * KIB, 8 * MIB, 4),
                       (8 * MIB + 1, 64 * MIB, 3)],
        "reduce_scatter": [(8, 8, 1.2), (4 * KIB, 128 * KIB - 1, 3),
                           (128 * KIB, 64 * MIB, 10)],
        "all_gather": moves, "all_to_all": moves, "broadcast": moves,
    }
    for op, floors in table.items():
        rows, code = run([op, "-n", "2", "-b", "8", "-e", "64M", *step, *peers])
        failed |= code != 0
        ratios(f"{op} p=2", rows, floors)
        large = [(row["eff"], row["bytes"]) for row in rows if row["bytes"] >= 256 * KIB]
        floor(f"{op} p=2, efficiency from 256 KiB", min(large), 0.8)
        rows, code = run([op, "-n", "2", "-b", "8", "-e", "16M", *step, *peers, "-R", "0"])
        failed |= code != 0
        reduces = op in ("all_reduce", "reduce_scatter")
        ratios(f"{op} p=2 of malloc", rows,
               [(8, 64 * MIB, 1)] + ([(64 * KIB, 64 * MIB, 1.5)] if reduces else []))
    for ranks in ("4", "8"):
        for op in ("all_reduce", "reduce_scatter"):
            # MPICH spins without yielding there: a second an operation.
            rows, code = run([op, "-n", ranks, "-b", "64", "-e", "4M", "-f", "8",
                              "--rounds", "5", "--peer", "openmpi,gloo"])
            failed |= code != 0
            ratios(f"{op} p={ranks}", rows,
                   [(8, 64 * MIB, 1), (64 * KIB, 64 * MIB, 3)])
    rows, code = run(["all_reduce", "-n", "2", "--flood"])
    failed |= code != 0
    floor("1 KiB at high priority, p99 under 64 MiB at low", (rows[0]["p99_us"], 1024),
          rows[0]["limit_us"], at_most=True)

    print()
    for result in results:
        sign = "<=" if result["unit"] == "us" else ">="
        print(f"{'ok  ' if result['ok'] else 'MISS'} {result['name']}: "
              f"{result['value']:.2f} {sign} {result['floor']:.2f} (at {result['bytes']} B)")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": results}, indent=1) + "\n")
    return 1 if failed or not all(result["ok"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
