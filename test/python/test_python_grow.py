# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Communicators that grow, from Python: members and those who join end in one job."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("CONCORD_BIN", ROOT / "build" / "bin")).resolve()
LIBRARY = BIN.parent / "lib" / "libconcord.so"
os.environ.setdefault("CONCORD_LIBRARY", str(LIBRARY))
sys.path[:0] = [str(ROOT / "python")]

import concord  # noqa: E402

pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason="build/lib/libconcord.so is not built")

RANK = """
import sys
import numpy as np
import concord

first, second, rank, members, world = (bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2]),
                                       *map(int, sys.argv[3:]))
base = None
if rank < members:
    base = concord.Context(unique_id=first, rank=rank, world=members)
    old = base.communicator("old")
    context = old.grow(world, second if rank == 0 else None)
else:
    context = concord.Context(unique_id=second, rank=rank, world=world)
assert (context.rank, context.world) == (rank, world)
everyone = context.communicator("everyone")
x = np.full(1000, rank + 1, dtype=np.float32)
everyone.all_reduce(x, x)
assert (x == world * (world + 1) // 2).all(), x
if base:
    # The smaller one is as it was, before and after the larger has gone.
    for _ in range(2):
        y = np.ones(4, dtype=np.int32)
        old.all_reduce(y, y)
        assert (y == members).all(), y
        context.close()
    for name, size in ((second, world), (concord.unique_id(), members)):
        try:
            old.grow(size, name if rank == 0 else None)
        except concord.ConcordError as error:
            assert error.name == "CONCORD_ERROR_INVALID_ARGUMENT", error
        else:
            raise AssertionError("an id that was used, and a size that is none larger")
    base.close()
else:
    context.close()
print("ok")
"""


@pytest.mark.parametrize("members, world", [(1, 2), (2, 3), (3, 5)])
def test_members_and_joiners_meet(members, world):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"),
           "CONCORD_CONNECT_TIMEOUT": "30"}
    names = [concord.unique_id().hex() for _ in range(2)]
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, *names,
                               *map(str, (rank, members, world))],
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
             for rank in range(world)]
    try:
        for rank in ranks:
            words, _ = rank.communicate(timeout=120)
            assert rank.returncode == 0 and words == "ok\n", words
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_ids_are_of_one_size():
    with pytest.raises(ValueError, match="128 bytes, not 3"):
        concord.Context(unique_id=b"abc", rank=0, world=1)
