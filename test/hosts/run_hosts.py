# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks on two and on three hosts with links of known rate: ./run test hosts.

The hosts are network namespaces (netns.sh), two ranks on each of two, then two, one and
one on three, started by mpirun of Open MPI and of MPICH across them. Root only. Ends with "N passed, N failed, N
skipped"; leaves no namespace and no process behind.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from link import cleaned

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NETNS = os.path.join(ROOT, "test", "hosts", "netns.sh")
BUILD = os.path.join(ROOT, "build")
BIN = os.path.join(BUILD, "bin")
STEP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "step.mlir")
RANK = os.path.join(BIN, "unit", "hosts-rank")
MODEL = os.path.join(ROOT, "test", "models", "bert_tiny.onnx")
NAME = f"cch{os.getpid() % 100000}"
RATE = "1gbit"
RANKS = 4
HOST_OF = "aabb"  # of each rank


class Failed(Exception):
    """What was wrong, in words."""


def call(*command, timeout=300, **env):
    """Run; (exit status, output)."""
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, timeout=timeout, check=False, cwd=ROOT,
                             env={**os.environ, **env})
    return process.returncode, process.stdout


def mpirun(library, *command, timeout=180, **env):
    """The command on all ranks, two per host."""
    return call(NETNS, "mpirun", library, NAME, str(RANKS), *command, timeout=timeout,
                **env)


def need(condition, output):
    if not condition:
        raise Failed(output)


def sent(side):
    """Bytes that a host has sent over the link, as its shaper has counted them."""
    _, text = call("ip", "netns", "exec", f"{NAME}-{side}", "tc", "-s", "qdisc", "show",
                   "dev", f"{NAME}-{side}")
    return int(re.search(r"qdisc tbf.*?Sent (\d+) bytes", text, re.S)[1])


def hosts_are_found(library):
    """Every rank is on the host that it is on."""
    status, output = mpirun(library, RANK, "table")
    need(status == 0, output)
    for rank in range(RANKS):
        need(f"rank {rank} on {NAME}-{HOST_OF[rank]}" in output, output)


def ranks_check(*arguments, **env):
    """hosts-rank WHAT compares with a computed reference."""
    def check(library):
        before = sent("a")
        status, output = mpirun(library, RANK, *arguments, **env)
        need(status == 0 and f"{arguments[0]}: ok" in output, output)
        # Over the link, and not behind its back.
        moved = sent("a") - before
        need(moved > 10_000, f"only {moved} bytes went over the link\n{output}")
    return check


def told(what, count):
    """Every rank that can know is told what happened, in time."""
    def check(library):
        status, output = mpirun(library, RANK, what, timeout=60)
        need(status == 0 and output.count("was told") == count, output)
    return check


def death(victim):
    """The job ends at once, and the dead rank is named: by the survivors whom
    mpirun lets speak, or by mpirun."""
    def check(library):
        begin = time.monotonic()
        status, output = mpirun(library, RANK, "death", str(victim), timeout=60)
        took = time.monotonic() - begin
        # MPICH's mpirun now and then returns 0 when the survivors were faster.
        need((status != 0 or library == "mpich") and took < 30,
             f"status {status} after {took:.1f} s:\n{output}")
        host = f"{NAME}-{HOST_OF[victim]}"
        named = (f"rank {victim} (pid" in output
                 or f"connection to rank {victim} on host {host}" in output
                 or f"process rank {victim} " in output)
        need(named or library == "mpich" and "Killed (signal 9)" in output, output)
    return check


def survivors(victim, kind, **env):
    """Where mpirun lets them, the others go on without the dead one, which died in the
    middle of an operation."""
    def check(library):
        if library != "openmpi":
            return "its mpirun ends all ranks"
        try:
            _, output = mpirun(library, RANK, "death", str(victim), kind, timeout=20,
                               HOSTS_SHRINK="1", MPIRUN_MORE="--enable-recovery", **env)
        except subprocess.TimeoutExpired as stuck:
            # mpirun itself does not always end after a death that it was told to bear.
            output = stuck.output or b""
            output = output if isinstance(output, str) else output.decode()
        need(output.count("goes on with 3") == 3, output)
        return None
    return check


def host_is_lost(library):
    """The link goes down: no connection ends, and still each side is told."""
    if library != "openmpi":
        return "one library is enough"
    process = subprocess.Popen(
        [NETNS, "mpirun", library, NAME, str(RANKS), RANK, "lost"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        env={**os.environ, "CONCORD_HOST_TIMEOUT": "3"})
    try:
        time.sleep(4)
        call("ip", "-n", f"{NAME}-b", "link", "set", f"{NAME}-b", "down")
        # Well over the host's timeout; mpirun itself waits longer for its daemon.
        time.sleep(12)
    finally:
        call("ip", "-n", f"{NAME}-b", "link", "set", f"{NAME}-b", "up")
        process.terminate()
        try:
            output, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate(timeout=20)
    need("CONCORD_ERROR_PEER_DIED" in output and f"on host {NAME}-b" in output, output)
    return None


def model(mesh, *more):
    """A compiled transformer equals one rank."""
    def check(library):
        if not os.path.exists(os.path.join(BIN, "comm-opt")):
            return "comm-opt is not built"
        sizes = ["--dim", "batch=4", "--dim", "seq=32"]
        with tempfile.TemporaryDirectory(prefix="concord-hosts-") as folder:
            env = {"CONCORD_CACHE_DIR": os.path.join(folder, "cache")}
            run = os.path.join(BIN, "comm-run")
            status, output = call(run, MODEL, "-n", "1", *sizes, "--output-dir",
                                  os.path.join(folder, "one"), **env)
            need(status == 0, output)
            report = os.path.join(folder, "report.json")
            status, output = mpirun(library, run, MODEL, *mesh, *more, *sizes, "--expect",
                                    os.path.join(folder, "one"), "--repeat", "3",
                                    "--json", report, **env)
            need(status == 0 and output.count("ok: max abs err") == 2, output)
            with open(report, encoding="utf-8") as stream:
                need(len(json.load(stream)["ranks"]) == RANKS, output)
        return None
    return check


def health(library):
    """The check is a slot of the program on all hosts; what it finds over the link is
    within what the link can do, and a baseline that was faster is a report."""
    if not os.path.exists(os.path.join(BIN, "comm-opt")):
        return "comm-opt is not built"
    with tempfile.TemporaryDirectory(prefix="concord-hosts-") as folder:
        report, baseline = (os.path.join(folder, name)
                            for name in ("report.json", "base.json"))
        command = (os.path.join(BIN, "comm-run"), STEP, "--health", "--repeat", "20",
                   "--slots", "0.5", "--json", report, "--baseline", baseline)
        env = {"CONCORD_CACHE_DIR": os.path.join(folder, "cache")}
        status, output = mpirun(library, *command, **env)
        need(status == 0 and "stored as the baseline" in output, output)
        with open(report, encoding="utf-8") as stream:
            found = json.load(stream)
        need([rank["rank"] for rank in found["ranks"]] == list(range(RANKS)), output)
        with open(baseline, encoding="utf-8") as stream:
            base = json.load(stream)
        # 4 MiB leave each host once, at 125 MB/s: 33 ms, but for what the shaper lets
        # through at once.
        need(base["large_us"] > 25_000 and base["latency_us"] > 0, f"{base}\n{output}")
        with open(baseline, "w", encoding="utf-8") as stream:
            json.dump(dict(base, large_us=base["large_us"] / 1000), stream)
        status, output = mpirun(library, *command, "--tolerance", "100", **env)
        need(status != 0 and "DEGRADED" in output, output)
    return None


def bench(operation):
    """comm-bench between the hosts, with plain MPI in turns; results are checked, and
    what it says of the link is within what the shaper lets through."""
    def check(library):
        with tempfile.TemporaryDirectory(prefix="concord-hosts-") as folder:
            file = os.path.join(folder, "rows.json")
            # What the shaper lets through at once (256 KiB) has to be little of it all.
            status, output = mpirun(
                library, os.path.join(BIN, "comm-bench"), operation, "-b", "1M", "-e", "1M",
                "--iters", "20", "--rounds", "1", "--peer", "mpi", "--link", RATE, "-J", file)
            need(status == 0 and f"# 2 hosts: {NAME}-a 2, {NAME}-b 2" in output, output)
            with open(file, encoding="utf-8") as stream:
                row = json.load(stream)["rows"][0]
        need(row["wrong"] == 0 and row["peers"][library]["wrong"] == 0 and row["busbw"] > 0
             and 0 < row["eff"] <= 1.05 and row["link_gbs"] == 0.125, output)
    return check


CHECKS = [
    ("the hosts are found", hosts_are_found),
    ("all collectives, types, sizes", ranks_check("collectives", "quick")),
    ("bits of a sum in the order of ranks and hosts", ranks_check("bits")),
    ("send, recv, batches", ranks_check("messages")),
    ("splits, groups, priorities, streams", ranks_check("comms")),
    *[(f"comm-bench {operation}", bench(operation))
      for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                        "broadcast", "send_recv")],
    ("mismatch is told on both hosts", told("mismatch", 4)),
    ("revoke", told("revoke", 3)),
    ("a rank leaves early", told("early", 3)),
    ("a rank of the first host is killed", death(0)),
    ("a rank of the second host is killed", death(3)),
    ("survivors go on", survivors(3, "all_reduce")),
    ("the link goes down", host_is_lost),
    ("a model, dp between hosts, tp within", model(["--dp", "2", "--tp", "2"])),
    ("health, a slot of a program", health),
    ("a model, tp over all", model(["--tp", "4"], "--comm-pipeline=fuse=false")),
]

RING = ("all_reduce:0-inf:ring;reduce_scatter:0-inf:ring;all_gather:0-inf:ring;"
        "broadcast:0-inf:ring;reduce:0-inf:ring")
THREE = [
    ("three hosts are found", hosts_are_found),
    ("all collectives on three hosts", ranks_check("collectives", "quick")),
    ("all collectives on three hosts, by rings",
     ranks_check("collectives", "quick", CONCORD_ALGORITHM=RING)),
    ("bits on three hosts", ranks_check("bits")),
    ("mismatch is told on three hosts", told("mismatch", 4)),
    ("of three hosts one is killed", death(3)),
    ("survivors on three hosts go on", survivors(2, "all_reduce")),
    ("survivors of a ring go on", survivors(1, "all_reduce", CONCORD_ALGORITHM=RING)),
]


def leftovers():
    """What must not be there afterwards."""
    _, spaces = call("ip", "netns", "list")
    found = [line for line in spaces.splitlines() if line.startswith(NAME)]
    _, processes = call("ps", "-eo", "pid,args")
    found += [line.strip() for line in processes.splitlines()
              if NAME in line and "run_hosts.py" not in line]
    return found


def main(only):
    global HOST_OF
    if os.geteuid() != 0:
        print("run: test hosts makes network namespaces, which needs root: sudo ./run "
              "test hosts", file=sys.stderr)
        return 2
    libraries = []
    for library in ("openmpi", "mpich"):
        if (shutil.which(f"mpirun.{library}") and os.path.exists(
                os.path.join(BUILD, "lib", f"libconcord_mpi_{library}.so"))):
            libraries.append(library)
    os.environ["HOSTS_OWNER"] = str(os.getpid())
    passed = failed = skipped = 0
    if not libraries:
        print("no MPI library with Concord's module is there")
        failed = 1
    def run(checks):
        nonlocal passed, failed, skipped
        status, output = call(NETNS, "up", NAME, RATE)
        if status != 0:
            print(output, end="")
            print("the namespaces cannot be made here: the kernel needs network "
                  "namespaces, veth, a bridge and tbf")
            failed += 1
            return
        for library in libraries:
            for what, check in checks:
                if only and not any(word in what for word in only):
                    continue
                begin = time.monotonic()
                try:
                    reason = check(library)
                except (Failed, subprocess.TimeoutExpired, OSError, KeyError,
                        ValueError) as error:
                    print(f"{library}: {what}: FAILED\n{error}", flush=True)
                    output = getattr(error, "output", None)
                    if output:
                        print(output if isinstance(output, str) else output.decode())
                    failed += 1
                    continue
                if reason:
                    print(f"{library}: {what}: skipped, {reason}", flush=True)
                    skipped += 1
                else:
                    print(f"{library}: {what}: ok ({time.monotonic() - begin:.1f} s)",
                          flush=True)
                    passed += 1

    for hosts, where, checks in (("2", "aabb", CHECKS), ("3", "aabc", THREE)):
        # What netns.sh is told in every call.
        os.environ["HOSTS"] = hosts
        HOST_OF = where
        with cleaned(lambda: call(NETNS, "down", NAME)):
            run(checks)
    left = leftovers()
    if left:
        print("left behind:", *left, sep="\n  ")
        failed += 1
    else:
        passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
