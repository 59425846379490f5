# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the comm-run tests share: where the build is, and how to call it.

CONCORD_BIN names another build's bin folder.
"""

import glob
import os
import pathlib
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("CONCORD_BIN", ROOT / "build" / "bin")).resolve()
FIXTURES = BIN.parent / "test" / "comm_run"


BUILT = all(os.access(BIN / tool, os.X_OK) for tool in ("comm-run", "concord-rank"))


class Tool:
    """comm-run with a cache and a temporary folder of the test's own."""

    def __init__(self, folder):
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.program = BIN / "comm-run"
        self.env = dict(
            os.environ,
            TMPDIR=str(self.temporary),
            CONCORD_CACHE_DIR=str(folder / "cache"),
        )
        self.env.pop("FIXTURE_FAULT", None)

    def command(self, *arguments):
        return [str(self.program), *map(str, arguments)]

    def start(self, *arguments, **env):
        return subprocess.Popen(
            self.command(*arguments), env=dict(self.env, **env), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, *arguments, code=0, **env):
        done = subprocess.run(
            self.command(*arguments), env=dict(self.env, **env), text=True,
            capture_output=True, timeout=120, check=False)
        assert done.returncode == code, (
            f"exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}")
        return done

    def left_behind(self):
        return glob.glob(str(self.temporary / "*"))


def fixture(world):
    return FIXTURES / f"fixture_{world}.so"


def fixture_inputs(world):
    random = np.random.RandomState(world)
    return {
        "x": random.standard_normal((4, 6)).astype(np.float32),
        "s": random.standard_normal((2, 6 * world)).astype(np.float32),
        "p": [random.randint(-9, 9, 3).astype(np.int32) for _ in range(world)],
        "past": random.standard_normal(5).astype(np.float32),
    }


def fixture_outputs(inputs, world, steps=1):
    total = np.zeros((4, 6), np.float32)
    for rank in range(world):
        total = total + np.float32(rank + 1) * inputs["x"]
    return {
        "sum": total,
        "twice": 2 * inputs["s"],
        "plus": [p + rank for rank, p in enumerate(inputs["p"])],
        "present": inputs["past"] + np.float32(steps),
    }


def input_options(folder, inputs):
    """Write the inputs as .npy and give the --input options for them."""
    options = []
    for name, value in inputs.items():
        parts = {name: value} if not isinstance(value, list) else {
            f"{name}@{rank}": part for rank, part in enumerate(value)}
        for key, array in parts.items():
            np.save(folder / f"{key}.npy", array)
            options += ["--input", f"{key}={folder / key}.npy"]
    return options
