# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench hosts: comm-bench between two hosts with a link of known rate.

The hosts are network namespaces joined by a shaped veth pair (test/hosts/netns.sh), two
ranks on each, started by mpirun of Open MPI; plain MPI of the same library takes turns
with Concord in the same processes. Efficiency is against the link: the least bytes that a
host has to send or receive at the rate that the shaper was given, and one message's
latency (docs/comm-bench.md). Root only; leaves nothing behind.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
NETNS = ROOT / "test/hosts/netns.sh"
sys.path[:0] = [str(ROOT / "test/bench"), str(ROOT / "test/hosts")]

from floors import Table, arguments, tool  # noqa: E402
from link import Link, LinkError  # noqa: E402

RATE = "1gbit"
KIB, MIB = 1 << 10, 1 << 20
# Operation, floor of efficiency from 1 MiB, floor of the ratio to plain MPI from 64 KiB.
# Large messages fill the link with either, so their ratio is 1 but for noise.
FLOORS = [("all_reduce", 0.8, 1), ("reduce_scatter", 0.8, 1), ("all_gather", 0.8, 1),
          ("all_to_all", 0.8, 1), ("send_recv", 0.8, 0.9)]


def measure(options, link, sizes, table):
    """The rows of all operations; the number of those that failed."""
    failed = 0
    for op, efficiency, ratio in FLOORS:
        with tempfile.TemporaryDirectory(prefix="concord-bench-") as folder:
            rows = pathlib.Path(folder) / "rows.json"
            command = [NETNS, "mpirun", options.library, link.name, "4", tool("comm-bench"),
                       op, *sizes,
                       "--peer", "mpi", "--link", RATE, "-J", rows]
            code = subprocess.run(command, check=False).returncode
            if code != 0 or not rows.exists():
                print(f"bench hosts: {op} ended with {code}")
                failed += 1
                continue
            rows = json.loads(rows.read_text())["rows"]
        for what, floor, unit, found in (
                ("efficiency of the link from 1 MiB", efficiency, "efficiency",
                 [(row["eff"], row["bytes"]) for row in rows if row["bytes"] >= MIB]),
                (f"plain {options.library} / Concord, least", ratio, "ratio",
                 [(row["peers"][options.library]["ratio"], row["bytes"])
                  for row in rows])):
            value, where = min(found)
            table.add(f"{op}, {what}", value, unit, floor, at_most=False,
                      note=f"at {where // KIB} KiB", bytes=where)
    return failed


def main():
    parser = arguments(__doc__)
    parser.add_argument("--library", default="openmpi", choices=["openmpi", "mpich"])
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("bench hosts: makes network namespaces, which needs root", file=sys.stderr)
        return 2
    if not shutil.which(f"mpirun.{options.library}"):
        print(f"bench hosts: needs {options.library}: apt install openmpi-bin libopenmpi-dev "
              "mpich libmpich-dev", file=sys.stderr)
        return 2
    table, failed = Table(), 0
    sizes = ["-b", "64K", "-e", "4M", "-f", "64" if options.quick else "8",
             "--rounds", "3" if options.quick else "5"]
    try:
        with Link(RATE, burst="256kb") as link:
            failed = measure(options, link, sizes, table)
    except LinkError as error:
        print(f"bench hosts: {error}", file=sys.stderr)
        return 2
    return table.finish(options) or int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
