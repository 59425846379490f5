# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run compiled Concord programs from Python.

The same artefact that ``comm-run`` runs (``NAME.so`` and ``NAME.weights``) is
loaded into this process through libconcord.so. Needs NumPy and nothing else.

All ranks as threads of this process, global arrays in and out::

    import concord
    outputs = concord.run("model.so", {"input_ids": ids})

One rank per process, under a launcher (``comm-run`` starts such jobs; any
program may call ``concord_launch_job``), local arrays in and out::

    with concord.Context() as context:
        program = context.load("model.so")
        local = program.run({"input_ids": ids})

A module that issues collectives by itself, in the order that a plan gives it and
the other issuers of the process::

    context = concord.Context(threads=True)
    moves = context.communicator("placement")
    context.load_plan("step.json")
    moves.all_reduce(source, target)

The interpreter lock is released while a step runs, or a call waits.
"""

from ._abi import ConcordError, library, library_path, version
from ._comm import Communicator, Issuer, Stream, unique_id
from ._launch import launch
from ._program import Context, Entry, Job, Program
from ._run import run
from ._sharding import gather, shard

__all__ = [
    "Communicator",
    "ConcordError",
    "Context",
    "Entry",
    "Issuer",
    "Job",
    "Program",
    "Stream",
    "gather",
    "launch",
    "library",
    "library_path",
    "run",
    "shard",
    "unique_id",
    "version",
]
