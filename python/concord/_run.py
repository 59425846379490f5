# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All ranks of a program as threads of this process."""

import threading

import numpy as np

from . import _elf
from ._abi import ConcordError
from ._program import Context, Job
from ._sharding import gather, shard


def run(path, inputs, steps=1, states=None, timeout=0.0, heap_bytes=0):
    """Run a compiled program, one thread per rank, and return its outputs.

    ``inputs`` maps names to global arrays; for a per-rank input it is a list with
    one local array per rank. ``states`` maps inputs to the outputs that feed them
    from step to step. Inputs that are not given are zeros; where dimensions are
    bounded, the arrays' shapes say at which sizes to run. ``steps`` steps are
    run; the outputs of the last are returned, by name: global arrays, and a list
    of local ones for per-rank outputs. Raises the first rank's ConcordError, or
    ValueError when ranks that should hold the same data differ.
    """
    world = _elf.read_meta(path)["world"]
    parts = [None] * world
    failures = [None] * world
    described = [None] * world

    def rank_main(job, rank):
        try:
            with Context(job, rank, timeout, heap_bytes) as context:
                program = context.load(path)
                mesh = program.meta.get("mesh", [])
                for name in inputs:
                    program._index(program.inputs, name, "input")
                # First: a state that grows may get another buffer.
                for source, target in (states or {}).items():
                    program.bind_state(source, target)
                if program.dims:
                    program.bind_shapes(
                        {
                            name: np.shape(given)
                            for name, given in inputs.items()
                            if not isinstance(given, list)
                        }
                    )
                for entry in program.inputs:
                    if entry.name in inputs:
                        given = inputs[entry.name]
                        if entry.sharding.get("kind") == "per_rank":
                            local = np.asarray(given[rank])
                        else:
                            local = shard(np.asarray(given), entry, mesh, rank)
                        program._checked(entry, local, "input")
                        program.input_view(entry.name)[...] = local
                    else:
                        program.input_view(entry.name)[...] = 0
                for _ in range(steps):
                    program.step()
                parts[rank] = {
                    entry.name: program.output_view(entry.name).copy()
                    for entry in program.outputs
                }
                described[rank] = (program.outputs, mesh)
        except BaseException as error:  # handed to the caller's thread
            failures[rank] = error

    with Job(world, heap_bytes) as job:
        threads = [
            threading.Thread(target=rank_main, args=(job, rank), daemon=True)
            for rank in range(world)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # The rank that failed by itself says more than those that lost a peer.
    failed = [error for error in failures if error is not None]
    for error in failed:
        if not isinstance(error, ConcordError):
            raise error
    if failed:
        raise failed[0]
    outputs, mesh = described[0]
    return {
        entry.name: gather([part[entry.name] for part in parts], entry, mesh)
        for entry in outputs
    }
