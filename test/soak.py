# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run soak SECONDS: random collectives on 1 to 8 ranks, with random kills.

Each round runs comm-bench on a random operation, dtype and size; in a third of the
rounds one rank is killed on the way, and the others must end by themselves with an
error. Every third round starts ranks without a common launcher, which meet over a
socket and loop until one of them is killed or stopped. Every fourth lets a communicator
grow by ranks that join it early, late or never, while one of all may be killed: all
members succeed or all fail, and what comes out is the same as ever. After every round there must
be no process of it, no shared-memory segment, no socket and no temporary file left,
and this script must hold no more descriptors than before. The seed is printed;
--seed repeats a run.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCH = os.path.join(ROOT, "build", "bin", "comm-bench")
RANK = os.path.join(ROOT, "build", "bin", "unit", "fault-rank")
GROW = os.path.join(ROOT, "build", "bin", "unit", "grow-rank")
LOOPS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
         "gather", "scatter", "permute", "p2p", "barrier"]
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]


def descendants(pid):
    """Processes whose ancestor is `pid`."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                    text = file.read()
            except OSError:
                continue
            fields = text.rsplit(")", 1)[1].split()
            if fields[0] != "Z":
                parents[int(name)] = int(fields[1])
    found, frontier = [], {pid}
    while frontier:
        frontier = {p for p, q in parents.items() if q in frontier}
        found += frontier
    return sorted(found)


def shared_files():
    return {name for name in os.listdir("/dev/shm") if "concord" in name}


def sockets():
    with open("/proc/net/unix", encoding="utf-8") as file:
        return file.read().count("@concord/")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def loose_environment(rank, ranks, job, connect):
    """What a rank without a common launcher is given."""
    return dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                MASTER_ADDR="localhost", MASTER_PORT="1", CONCORD_LAUNCHER="torchrun",
                TORCHELASTIC_RUN_ID=f"soak.{os.getpid()}.{job}", CONCORD_TIMEOUT="3",
                CONCORD_CONNECT_TIMEOUT=str(connect), CONCORD_HEAP_BYTES="64M")


def grow_round(generator, number, digests):
    """A communicator grows; `digests` has what ranks of all rounds have computed."""
    members = generator.choice([1, 2, 2, 3])
    world = members + generator.choice([1, 1, 2, 3])
    name = (b"concord1" + generator.randbytes(16)).ljust(128, b"\0").hex()
    # Who does not come, and who is struck, if any.
    missing = generator.randrange(members, world) if generator.random() < 0.1 else None
    victim = generator.randrange(world) if generator.random() < 0.4 else None
    blow = generator.uniform(0.0, 1.0)
    what = (f"round {number}: {members} ranks grow to {world}" +
            (f", rank {missing} does not come" if missing is not None else "") +
            (f", SIGKILL for {victim} after {blow:.2f} s" if victim is not None else ""))
    starts = sorted((generator.uniform(0.0, 0.5) if rank >= members else 0.0, rank)
                    for rank in range(world) if rank != missing)
    processes, wrong = {}, None
    begin = time.monotonic()

    def strike():
        if victim in processes:
            processes[victim].kill()

    try:
        for start, rank in starts:
            if victim is not None and start > blow:
                time.sleep(max(0.0, blow - (time.monotonic() - begin)))
                strike()
            time.sleep(max(0.0, start - (time.monotonic() - begin)))
            steps = ([f"join:{rank}:{world}:{name}"] if rank >= members else
                     ["launched", "reduce", f"grow:{world}:{name}"])
            processes[rank] = subprocess.Popen(
                [GROW, *steps, "digest", "leave"],
                env=loose_environment(rank, members, f"grow.{number}", 8),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(max(0.0, blow - (time.monotonic() - begin)))
        strike()
        grown = set()
        for rank, process in processes.items():
            words, _ = process.communicate(timeout=90)
            if rank == victim:
                continue
            if process.returncode != 0 and process.returncode <= 40:
                wrong = f"{what}: rank {rank} ended with {process.returncode}: {words[-300:]}"
            if process.returncode != 0 and missing is None and victim is None:
                wrong = f"{what}: rank {rank}: {words[-300:]}"
            if rank < members:
                grown.add("step digest" in words)
            for line in words.splitlines():
                if line.startswith("digest "):
                    _, own, size, value = line.split()
                    if digests.setdefault((own, size), value) != value:
                        wrong = f"{what}: rank {rank} has other results than before"
        if len(grown) > 1:
            wrong = f"{what}: some members have grown and others not"
        if missing is not None and True in grown:
            wrong = f"{what}: grown without rank {missing}"
    except subprocess.TimeoutExpired:
        wrong = f"{what}: hangs"
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
            process.stdout.close()
    return wrong


def loose_round(generator, number):
    """Ranks that meet by themselves; one is struck, the others must end with an error."""
    ranks = generator.choice([2, 3, 4, 6])
    victim = generator.randrange(ranks)
    operation = generator.choice(LOOPS)
    size = generator.choice(["run", "run-large"])
    blow = generator.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
    what = f"round {number}: {operation} {size} on {ranks} loose ranks, {blow.name} for {victim}"
    processes = []
    for rank in range(ranks):
        processes.append(subprocess.Popen([RANK, size, str(victim), operation],
                                          env=loose_environment(rank, ranks, number, 10),
                                          stderr=subprocess.PIPE, text=True))
    wrong = None
    try:
        time.sleep(generator.uniform(0.02, 0.6))
        processes[victim].send_signal(blow)
        for rank, process in enumerate(processes):
            if rank == victim:
                continue
            _, words = process.communicate(timeout=60)
            if process.returncode <= 40:
                wrong = f"{what}: rank {rank} ended with {process.returncode}: {words[-300:]}"
    except subprocess.TimeoutExpired:
        wrong = f"{what}: hangs"
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stderr.close()
    return wrong


def one_round(generator, number, digests):
    """Returns what went wrong, or None."""
    loose = number % 3 == 0 and os.path.exists(RANK)
    if loose or (number % 4 == 0 and os.path.exists(GROW)):
        before = shared_files()
        wrong = (loose_round(generator, number) if loose else
                 grow_round(generator, number, digests))
        if not wrong and shared_files() - before:
            wrong = f"round {number}: leaves {shared_files() - before} in /dev/shm"
        return wrong
    ranks = generator.choice([1, 2, 2, 3, 4, 4, 5, 8])
    operation = generator.choice(OPERATIONS)
    dtype = generator.choice(["float", "double", "half", "bfloat16", "int32"])
    size = generator.choice(["64", "4K", "256K", "4M"])
    kill = ranks > 1 and generator.random() < 1 / 3
    before = shared_files()
    arguments = [BENCH, operation, "-n", str(ranks), "-b", size, "-e", size, "-d", dtype,
                 "--iters", "2000" if kill else "50", "-w", "2"]
    what = f"round {number}: {operation} {dtype} {size} on {ranks}" + (
        ", one rank killed" if kill else "")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", start_new_session=True) as process:
        killed = False
        if kill:
            time.sleep(generator.uniform(0.05, 0.6))
            children = descendants(process.pid)
            if children:
                try:
                    os.kill(generator.choice(children), signal.SIGKILL)
                    killed = True
                except ProcessLookupError:
                    pass
        try:
            output, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"{what}: hangs"
        left = descendants(process.pid)
    if left:
        return f"{what}: leaves processes {left}"
    if shared_files() - before:
        return f"{what}: leaves {shared_files() - before} in /dev/shm"
    if not kill and process.returncode != 0:
        return f"{what}: exit {process.returncode}\n{output[-2000:]}"
    if killed and process.returncode < 0:
        return f"{what}: the launcher died of signal {-process.returncode}"
    return None


def main():
    parser = argparse.ArgumentParser(prog="./run soak", description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4))
    print(f"soak: seed {seed}, {options.seconds:.0f} s")
    generator = random.Random(seed)
    end = time.monotonic() + options.seconds
    number, failed, said, digests = 0, 0, time.monotonic(), {}
    held, meeting = descriptors(), sockets()
    while time.monotonic() < end:
        number += 1
        wrong = one_round(generator, number, digests)
        if wrong:
            failed += 1
            print(f"soak: {wrong}", flush=True)
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"soak: {number} rounds, {failed} failed", flush=True)
    if descriptors() > held:
        failed += 1
        print(f"soak: holds {descriptors()} descriptors, {held} at the start")
    if sockets() > meeting:
        failed += 1
        print("soak: sockets where ranks meet are left")
    print(f"soak: {number} rounds, {failed} failed")
    return 1 if failed or not number else 0


if __name__ == "__main__":
    sys.exit(main())
