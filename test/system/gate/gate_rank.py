# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of the gate's test: serving in C++ at every step (the library of the
demo), placement in a Python thread at a random 1 to 5 % of the steps.

    gate_rank.py SERVING.so PLAN STEPS HOW

HOW: late (placement starts late and stays), dies (the placement of rank 1 ends in
the middle, between two moves), vanishes (it ends in the middle of one: its slot is
used, and it does not come).
"""

import ctypes
import os
import random
import sys
import threading
import time

import numpy as np

import concord

LIBRARY, PLAN, STEPS, HOW = ctypes.CDLL(sys.argv[1]), *sys.argv[2:5]
LIBRARY.serving_start.restype = ctypes.c_void_p
LIBRARY.serving_start.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int32] * 4
LIBRARY.serving_words.restype = ctypes.c_char_p
for name in ("serving_step", "serving_finish", "serving_words"):
    getattr(LIBRARY, name).argtypes = [ctypes.c_void_p]

context = concord.Context(threads=True)
control = context.communicator("ctl", priority=9)
domain1 = context.communicator("domain1", priority=5)
domain2 = context.communicator("domain2", priority=-1)
context.load_plan(PLAN)
steps = int(STEPS)
serving = LIBRARY.serving_start(context.handle, control.handle, domain1.handle,
                                steps, 1, -1, 300)  # a step takes 0.3 ms at least
moves, errors = 0, []


def step():
    return LIBRARY.serving_step(serving)


def place():
    """The placement module of this rank."""
    global moves
    time.sleep(0.2)  # Python is started late
    issuer = context.issuer("placement")
    chance = random.Random(7)
    asked = -1
    source = np.ones(4096, dtype=np.float32)
    target = np.zeros(4096, dtype=np.float32)
    while step() < steps - 1:
        # Rank 0 asks for a move every 20 to 100 steps.
        if context.rank == 0 and asked < step() < steps - 200:
            issuer.request()
            asked = step() + chance.randint(20, 100)
        turn = issuer.wait(0.005)
        if turn is None:
            continue
        if HOW == "vanishes" and context.rank == 1 and moves == 2:
            return
        source[:] = turn[0]
        domain2.all_reduce(source, target)
        if not (target == 2 * source).all():
            raise RuntimeError("the ranks moved in different rounds")
        moves += 1
        if HOW == "dies" and context.rank == 1 and moves == 3:
            return


def guarded():
    try:
        place()
    except (concord.ConcordError, RuntimeError) as error:
        errors.append(f"placement: {error}")


placement = threading.Thread(target=guarded)
placement.start()
if LIBRARY.serving_finish(serving):
    errors.append("serving: " + LIBRARY.serving_words(serving).decode())
placement.join()
print(f"rank {context.rank}: {step() + 1} steps, {moves} moves", flush=True)
if errors:
    sys.stderr.write("".join(f"rank {context.rank}: {e}\n" for e in errors))
    sys.stderr.flush()
    os._exit(3)
context.close()
