# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs (comm_programs.py) through the passes over communication, alone and
one after another: what they leave gives what each rank has to get, to the bit.

`python test_comm_programs.py FIRST LAST` runs more of them, and keeps what fails.
"""

import os
import pathlib
import random
import sys
import tempfile

import numpy as np
import pytest

import comm_programs
import comm_statements
import model_runs as runs

pytestmark = pytest.mark.skipif(
    not runs.built(), reason="build/bin/comm-opt and comm-run are not built")

HOSTS = """{"concord_topology": 1, "name": "two hosts of two",
 "device": {"machine": "accelerator"},
 "hosts": [{"name": "node", "count": 2, "ranks": 2, "cores": 2, "nics": 1}],
 "inside": {"name": "fabric", "kind": "link", "bytes_per_second": 3e11, "latency_us": 2},
 "network": [{"name": "leaf", "bytes_per_second": 5e9, "latency_us": 5}]}
"""


def passes_of(seed, hosts):
    """Options of comm-opt: what is run before the pipeline, and the pipeline."""
    pick = random.Random(seed).choice

    def one(name):
        machine = pick(["machine=cpu", "machine=accelerator", f"machine={hosts}"])
        more = {"comm-simplify": ["", " exact"],
                "comm-bucket": ["", " mixed=false", " max-count=2", " max-growth=512"],
                "comm-overlap": ["", " chunk-bytes=64", " growth=4", " keep-issue-order",
                                 " pipeline=false"],
                "comm-chunk": [f"bytes={n}" for n in (16, 64, 256)],
                "comm-fuse": ["force", "force exact"]}[name]
        if name in ("comm-chunk", "comm-fuse"):
            machine = ""
        return f"--{name}={machine}{pick(more)}"

    names = ["comm-simplify", "comm-bucket", "comm-chunk", "comm-fuse", "comm-overlap"]
    picked = pick([[], [pick(names)], [pick(names), pick(names)],
                   ["comm-simplify", "comm-bucket", "comm-overlap"],
                   ["comm-simplify", "comm-bucket", "comm-fuse", "comm-overlap"]])
    tail = pick(["opt=0", "opt=0", "", f"machine={hosts}", "exact=true"])
    return [*map(one, picked), f"--comm-pipeline={tail}"]


def bits(array):
    """As comm-run reads and writes it: NumPy has no narrow floats."""
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16)
    return array.view(np.uint8) if array.dtype.name.startswith("float8") else array


def arguments_of(program, folder):
    arguments = []
    for _, ranks, writer, _ in program.functions:
        for value, _ in writer.inputs:
            for rank in ranks:
                path = folder / f"{value.name[1:]}.{rank}.npy"
                np.save(path, bits(program.given[value.name][rank]))
                arguments += ["--input", f"{value.name[1:]}@{rank}={path}"]
    return arguments


def check(program, passes, folder):
    expected = program.expected()
    source, so, out = folder / "m.mlir", folder / "m.so", folder / "out"
    source.write_text(program.text())
    runs.tool("comm-opt", source, *passes, "--emit=so", "-o", so)
    runs.tool("comm-run", so, "-n", program.world, *arguments_of(program, folder),
              "--timeout", 60, "--output-dir", out)
    assert expected
    for (name, rank), want in expected.items():
        path = out / f"{name}@{rank}.npy"
        got = np.load(path if path.exists() else out / f"{name}.npy")
        # Zeros may differ in sign.
        np.testing.assert_array_equal(
            got if got.dtype == want.dtype else got.view(want.dtype), want,
            err_msg=f"{name} of rank {rank}, {' '.join(passes)}")


def program_of(seed):
    pick = random.Random(-seed).choice
    stages = seed % 5 == 4
    world = pick([2, 4]) if stages else pick([2, 2, 3, 4])
    return comm_programs.Program(seed, world, stages=stages)


def run(seed, folder):
    hosts = folder / "hosts.json"
    hosts.write_text(HOSTS)
    try:
        program = program_of(seed)
        program.expected()
    except comm_statements.Inexact:
        return False
    check(program, passes_of(seed, hosts), folder)
    return True


# Seeds whose values are all exact.
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6, 9, 14, 19, 24])
def test_leaves_the_same(seed, tmp_path):
    assert run(seed, tmp_path)


def main(first, last):
    counts = {}
    for seed in range(first, last):
        with tempfile.TemporaryDirectory() as folder:
            try:
                verdict = "same" if run(seed, pathlib.Path(folder)) else "inexact"
            except AssertionError as error:
                verdict = "failed"
                kept = pathlib.Path(f"comm-program-{seed}.mlir")
                kept.write_text(program_of(seed).text())
                print(f"{seed}: {kept}\n{error}", flush=True)
        counts[verdict] = counts.get(verdict, 0) + 1
    print(counts)
    return int("failed" in counts)


if __name__ == "__main__":
    os.environ.setdefault("XDG_CACHE_HOME", tempfile.gettempdir())
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
