# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of ./run demo hang: a serving loop in C++ and a placement module in
Python, which share the process, its context and the device.

    rank.py SERVING.so STEPS [PLAN]

Without a plan each module issues when it sees fit. With one, the placement asks
for its moves on rank 0 and issues them in the rounds that use them.
"""

import ctypes
import os
import sys
import time

import numpy as np

import concord

# (source, target) of the expert that moves, by slot; and by step, in turn.
MOVES = ((2, 5), (7, 8), (11, 14))
FIRST_MOVE, BETWEEN_MOVES, SLOW_FROM = 2, 2, 6
EXPERT = 16384
# Rounds at the end in which no move is asked for, so that none is left over.
LAST_ROUNDS = 10
# A planned step takes this long at least (us), so that Python, which starts later
# than C++, has steps left to move experts in.
PACE = 20000


def slot_of_step(step):
    """Which move a step has, or None."""
    turn, odd = divmod(step - FIRST_MOVE, BETWEEN_MOVES)
    return None if odd or turn < 0 else turn % len(MOVES)


class Placement:
    """Moves experts between ranks over domain 2."""

    def __init__(self, context, domain):
        self.rank, self.context, self.domain = context.rank, context, domain
        self.stream = context.stream()
        self.moved = 0

    def move(self, slot):
        """This rank's part of a move."""
        source, target = MOVES[slot]
        expert = np.full(EXPERT, float(slot + 1), dtype=np.float32)
        if self.rank == source:
            self.domain.send(expert, target, self.stream)
        elif self.rank == target:
            expert[:] = 0
            self.domain.recv(expert, source, self.stream)
        else:
            return
        self.stream.synchronize()
        if not (expert == slot + 1).all():
            raise RuntimeError("the expert did not arrive as it was sent")
        self.moved += 1

    def run_freely(self, step, steps, failed):
        """Issue whenever the serving loop has come to a step with a move."""
        for number in range(steps):
            while step() < number:
                if failed():
                    return
                time.sleep(0.001)
            slot = slot_of_step(number)
            if slot is None or self.rank not in MOVES[slot]:
                continue
            # Usually the module is behind the serving loop. Rank 14's is not.
            if self.rank != 14:
                time.sleep(0.1)
            self.move(slot)

    def run_planned(self, step, steps, failed):
        """Issue in the rounds that the plan gives."""
        issuer = self.context.issuer("placement")
        wanted = [s for s in map(slot_of_step, range(steps)) if s is not None]
        asked = 0
        while True:
            # Rank 0 asks for the next move; slots not used are passed over.
            if (self.rank == 0 and asked < len(wanted) and
                    step() < steps - LAST_ROUNDS):
                issuer.request(1 << wanted[asked])
                asked += 1
            turn = issuer.wait(0.02)
            if turn is None:
                if step() >= steps - 1 or failed():
                    return
                continue
            for slot in range(len(MOVES)):
                if turn[1] >> slot & 1:
                    self.move(slot)


def main():
    """Run the two modules until one fails or both have done their steps."""
    library, steps = ctypes.CDLL(sys.argv[1]), int(sys.argv[2])
    plan = sys.argv[3] if len(sys.argv) > 3 else None
    library.serving_start.restype = ctypes.c_void_p
    library.serving_start.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int32] * 4
    library.serving_words.restype = ctypes.c_char_p
    for name in ("serving_step", "serving_failed", "serving_finish",
                 "serving_words"):
        getattr(library, name).argtypes = [ctypes.c_void_p]

    context = concord.Context(threads=True)
    control = context.communicator("ctl", priority=9)
    domain1 = context.communicator("domain1", priority=5)
    domain2 = context.communicator("domain2")
    if plan:
        context.load_plan(plan)
    slow = SLOW_FROM if context.rank == 14 and not plan else -1
    serving = library.serving_start(context.handle, control.handle,
                                    domain1.handle, steps, bool(plan), slow,
                                    PACE if plan else 0)
    placement = Placement(context, domain2)
    status, words = 0, ""
    try:
        run = placement.run_planned if plan else placement.run_freely
        run(lambda: library.serving_step(serving), steps,
            lambda: library.serving_failed(serving))
    except (concord.ConcordError, RuntimeError) as error:
        status, words = 1, f"placement: {error}"
    if library.serving_finish(serving):
        status, words = 1, "serving: " + library.serving_words(serving).decode()
    elif plan and context.rank in (11, 14) and placement.moved == 0:
        status, words = 1, "the two modules never met: no expert was moved"
    if status:
        sys.stderr.write(f"rank {context.rank}: {words}\n")
        # The job is broken; nothing is left to be finalized in order.
        os._exit(3)
    if context.rank == 11:
        print(f"rank 11: {steps} steps, gate {context.gate}, "
              f"{placement.moved} experts sent", flush=True)
    context.close()


main()
