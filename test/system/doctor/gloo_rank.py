# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of a real hang of torch.distributed over Gloo, which leaves its
Flight Recorder dump (JSON and pickle) and its Python stacks.

    gloo_rank.py RANK WORLD STORE OUT HOW

HOW: healthy; inversion (rank 1 issues its two domains the other way round in the
last step); missing (rank 2 waits for data that do not come); mismatch (rank 3
reduces with another dtype); raises (rank 1 throws before the last step).
"""

import datetime
import faulthandler
import os
import queue
import sys
import threading
import time

import torch
import torch.distributed as dist

RANK, WORLD = int(sys.argv[1]), int(sys.argv[2])
STORE, OUT, HOW = sys.argv[3:6]
STEPS = 6
TIMEOUT = float(os.environ.get("GLOO_TIMEOUT", "120"))


def leave_evidence(seconds):
    """In a thread of its own, while the main one hangs (or has thrown)."""
    time.sleep(seconds)
    recorder = torch._C._distributed_c10d
    with open(os.path.join(OUT, "json", f"trace_rank_{RANK}.json"), "wb") as file:
        dump = recorder._dump_fr_trace_json()
        file.write(dump if isinstance(dump, bytes) else dump.encode())
    with open(os.path.join(OUT, "pickle", f"nccl_trace_rank_{RANK}"), "wb") as file:
        file.write(recorder._dump_fr_trace(
            True, not os.environ.get("NO_FRAMES"), False))
    with open(os.path.join(OUT, "stacks", f"stack_rank_{RANK}.txt"), "w",
              encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    # All have written before the first one goes, whose end is an error to others.
    time.sleep(seconds / 2)
    os._exit(0)


def wait_for_shard():
    """Data that this rank never gets."""
    queue.Queue().get()


def main():
    """A step reduces over tp, then over the world; then two ranks exchange."""
    dist.init_process_group(
        "gloo", init_method=f"file://{STORE}", rank=RANK, world_size=WORLD,
        timeout=datetime.timedelta(seconds=TIMEOUT))
    pairs = [dist.new_group([2 * i, 2 * i + 1]) for i in range(WORLD // 2)]
    tp, everybody = pairs[RANK // 2], dist.group.WORLD
    dist.barrier()
    for step in range(STEPS):
        last = step == STEPS - 1
        order = [(tp, 8), (everybody, 16)]
        kind = torch.float32
        if last and HOW == "inversion" and RANK == 1:
            order.reverse()
        if last and HOW == "missing" and RANK == 2:
            wait_for_shard()
        if last and HOW == "raises" and RANK == 1:
            raise KeyError("shard-7")
        if last and HOW == "mismatch" and RANK == 3:
            kind = torch.float64
        for group, count in order:
            dist.all_reduce(torch.ones(count, dtype=kind), group=group)
        if RANK == 0:
            dist.send(torch.ones(4), 3)
        elif RANK == 3:
            dist.recv(torch.ones(4), 0)


threading.Thread(target=leave_evidence, args=(float(os.environ.get("HANG", "6")),),
                 daemon=True).start()
try:
    main()
except Exception:  # pylint: disable=broad-except
    import traceback
    with open(os.path.join(OUT, "stacks", f"log_rank_{RANK}.txt"), "w",
              encoding="utf-8") as log:
        traceback.print_exc(file=log)
time.sleep(60)
