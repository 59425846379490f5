# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of an artefact with two issuers, each stepped by a thread of its own.

    program_rank.py ARTEFACT.so STEPS
"""

import os
import random
import sys
import threading

import concord

STEPS = int(sys.argv[2])
context = concord.Context(threads=True)
try:
    serving = context.load(sys.argv[1])
except concord.ConcordError as error:
    sys.stderr.write(f"rank {context.rank}: {error}\n")
    sys.stderr.flush()
    os._exit(3)
placement = serving.issuer("placement")
errors, moves = [], 0
served = threading.Event()


def place():
    """Exchange in the rounds that use the slot; both ranks in the same one."""
    global moves
    issuer = context.issuer("placement")
    source, target = placement.inputs[0].name, placement.outputs[0].name
    while True:
        last = served.is_set()
        turn = issuer.wait(0.0 if last else 0.05)
        if turn is None:
            if last:
                return
            continue
        placement.input_view(source)[:] = turn[0] + context.rank
        placement.step()
        if not (placement.output_view(target) == 2 * turn[0] + 1).all():
            raise RuntimeError("the ranks moved in different rounds")
        moves += 1


def serve():
    """A step in every round; rank 0 asks for a move now and then."""
    context.issuer("serving")
    asking = context.issuer("placement") if context.rank == 0 else None
    chance = random.Random(3)
    for step in range(STEPS):
        # The last round has no time left for what it would use.
        if asking and chance.random() < 0.05 and step < STEPS - 1:
            asking.request()
        serving.input_view(serving.inputs[0].name)[:] = step
        serving.step()
        if not (serving.output_view(serving.outputs[0].name) == 4 * step).all():
            raise RuntimeError(f"step {step} has a wrong result")


def guarded(function):
    try:
        function()
    except (concord.ConcordError, RuntimeError) as error:
        errors.append(f"{function.__name__}: {error}")
    if function is serve:
        served.set()


thread = threading.Thread(target=guarded, args=(place,))
thread.start()
guarded(serve)
thread.join()
print(f"rank {context.rank}: {STEPS} steps, {moves} moves, gate {context.gate}",
      flush=True)
if errors:
    sys.stderr.write("".join(f"rank {context.rank}: {e}\n" for e in errors))
    sys.stderr.flush()
    os._exit(3)
# The plan goes with its programs: what it does not have is issued again.
everybody = context.communicator("everybody")
try:
    everybody.barrier()
    refused = "nothing"
except concord.ConcordError as error:
    refused = error.name
serving.close()
everybody.barrier()
print(f"rank {context.rank}: {refused} was refused, then gate {context.gate}", flush=True)
# A context that is left takes what is loaded with it.
context.load(sys.argv[1])
context._programs.clear()
context.close()
