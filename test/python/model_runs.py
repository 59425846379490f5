# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiling and running the test models through the tools, once per session."""

import concurrent.futures
import functools
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODELS = os.path.join(ROOT, "test", "models")
BIN = os.environ.get("CONCORD_BIN", os.path.join(ROOT, "build", "bin"))
sys.path[:0] = [MODELS, os.path.join(ROOT, "demo")]

import artefact  # noqa: E402
import oracle  # noqa: E402

DIMS = {"batch": 2, "seq": 8, "past": 6}
_FOLDER = tempfile.TemporaryDirectory(prefix="concord-models-")


def built():
    return all(os.access(os.path.join(BIN, t), os.X_OK)
               for t in ("comm-opt", "comm-run"))


def model_path(name):
    return os.path.join(MODELS, f"{name}.onnx")


@functools.lru_cache(maxsize=None)
def load(name):
    return onnx.load(model_path(name))


def symbols(name):
    """The model's own symbolic dimensions that DIMS binds."""
    found = {d.dim_param for v in load(name).graph.input
             for d in v.type.tensor_type.shape.dim if d.dim_param}
    return {k: v for k, v in DIMS.items() if k in found}


def tool(name, *arguments, ok=True, timeout=120):
    done = subprocess.run([os.path.join(BIN, name), *map(str, arguments)],
                          capture_output=True, text=True, errors="replace",
                          timeout=timeout, check=False)
    if ok:
        assert done.returncode == 0, (
            f"{' '.join(map(str, done.args))}\nended with {done.returncode}\n"
            f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done


def scratch(*parts):
    path = os.path.join(_FOLDER.name, *parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def dim_options(name):
    return [f"--dim={k}={v}" for k, v in symbols(name).items()]


_POOL = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1)
_STARTED = {}


def _start(work, name, mesh):
    key = (work.__name__, name, mesh)
    if key not in _STARTED:
        _STARTED[key] = _POOL.submit(work, name, mesh)
    return _STARTED[key]


def prefetch(programs, plans):
    """Start compiling (name, mesh) on all cores; each test waits for its own."""
    for name, mesh in programs:
        _start(_compile, name, mesh)
    for name, mesh in plans:
        _start(_plan, name, mesh)


def cancel():
    _POOL.shutdown(wait=True, cancel_futures=True)


def compiled(name, mesh):
    """Path of the program of a test model for a mesh such as 'tp=2'."""
    return _start(_compile, name, mesh).result()


def plan(name, mesh):
    """The issues of its plan, as artefact.issues gives them."""
    return _start(_plan, name, mesh).result()


def _compile(name, mesh):
    path = scratch(f"{name}.{mesh.replace('=', '')}.so")
    tool("comm-opt", model_path(name), f"--mesh={mesh}", *dim_options(name),
         "--comm-pipeline", "--emit=so", "-o", path)
    return path


def _plan(name, mesh):
    path = scratch(f"{name}.{mesh.replace('=', '')}.plan.json")
    tool("comm-opt", model_path(name), f"--mesh={mesh}", *dim_options(name),
         "--comm-pipeline", "--emit=plan", "-o", path)
    with open(path, encoding="utf-8") as file:
        return artefact.issues(json.load(file))


@functools.lru_cache(maxsize=None)
def inputs(name):
    return oracle.make_inputs(load(name), DIMS)


@functools.lru_cache(maxsize=None)
def expected(name):
    """(onnxruntime's outputs, the same in double)."""
    return (oracle.run_onnxruntime(model_path(name), inputs(name)),
            oracle.run_float64(load(name), inputs(name)))


def world(mesh):
    return int(np.prod([int(p.split("=")[1]) for p in mesh.split(",")]))


def run(program, ranks, arrays, outputs, label, *extra):
    """comm-run; outputs by name, and the report of --json."""
    folder = scratch(label, "out", "x")[:-2]
    command = [program, "-n", ranks, "--output-dir", folder, "--json",
               folder + ".json", "--timeout", 60]
    for key, array in arrays.items():
        path = scratch(label, oracle.file_name(key))
        np.save(path, array)
        command += ["--input", f"{key}={path}"]
    tool("comm-run", *command, *extra)
    with open(folder + ".json", encoding="utf-8") as file:
        report = json.load(file)
    return oracle.load(folder, outputs), report


@functools.lru_cache(maxsize=None)
def outputs(name, mesh, attempt=0):
    names = [o.name for o in load(name).graph.output]
    got, _ = run(compiled(name, mesh), world(mesh), inputs(name), names,
                 f"{name}.{mesh}.{attempt}")
    return got
