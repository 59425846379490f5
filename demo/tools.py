# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calling comm-opt and comm-run, with the outcome of a compilation cached."""

import hashlib
import json
import os
import subprocess
import time

import minilm
from artefact import read_meta

ROOT = minilm.ROOT


class Failed(Exception):
    """A tool did not do what it was called for; the text has the whole story."""


def tool(name):
    """Path of a built tool; CONCORD_BIN names another folder than build/bin."""
    folder = os.environ.get("CONCORD_BIN", os.path.join(ROOT, "build", "bin"))
    path = os.path.join(folder, name)
    if not os.access(path, os.X_OK):
        raise Failed(f"{os.path.relpath(path, ROOT)} is not built; run "
                     "./run build")
    return path


def call(arguments, timeout=600):
    """Run a tool; (standard output, standard error, seconds)."""
    begin = time.monotonic()
    try:
        done = subprocess.run(arguments, capture_output=True, text=True,
                              errors="replace", timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(arguments)}\nhas not ended after {timeout} s"
                     ) from error
    seconds = time.monotonic() - begin
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-3000:]
        raise Failed(f"{' '.join(arguments)}\nended with {done.returncode}:\n"
                     f"{said}")
    return done.stdout, done.stderr, seconds


def call_alone(arguments, timeout=600):
    """Seconds and peak resident bytes of one child, by wait4."""
    begin = time.monotonic()
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE) as process:
        error = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begin
    if seconds > timeout or process.returncode:
        raise Failed(f"{' '.join(arguments)}\nended with {process.returncode}:"
                     f"\n{error.decode(errors='replace')[-3000:]}")
    return seconds, usage.ru_maxrss * 1024


def compile_key(model, arguments):
    digest = hashlib.sha256()
    digest.update(json.dumps(arguments).encode())
    digest.update(minilm.content_key(model, tool("comm-opt")).encode())
    if os.path.exists(model + ".data"):
        digest.update(minilm.content_key(model + ".data").encode())
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        digest.update("".join(line for line in file if line.startswith(
            ("model name", "flags"))).encode())
    return digest.hexdigest()


class Program:
    """A model compiled for a number of ranks: NAME.so, plan and messages."""

    def __init__(self, path, world):
        self.path, self.world = path, world
        self.built = False
        self.seconds = 0.0

    @property
    def meta(self):
        return read_meta(self.path)

    @property
    def plan(self):
        with open(self.path[:-3] + ".plan.json", encoding="utf-8") as file:
            return json.load(file)

    @property
    def messages(self):
        with open(self.path[:-3] + ".log", encoding="utf-8") as file:
            return file.read()


def compile_model(model, world, dims, folder, name):
    """Compile for `world` ranks unless that very program is already there."""
    program = Program(os.path.join(folder, f"{name}.so"), world)
    base = [model, "--tp", str(world)]
    for key, value in dims.items():
        base += ["--dim", f"{key}={value}"]
    base += ["--comm-pipeline"]
    stamp = program.path + ".key"
    key = compile_key(model, base)
    files = [program.path, program.path[:-3] + ".plan.json",
             program.path[:-3] + ".log", stamp]
    if all(os.path.exists(f) for f in files):
        with open(stamp, encoding="ascii") as file:
            if file.read() == key:
                return program
    os.makedirs(folder, exist_ok=True)
    out, err, program.seconds = call(
        [tool("comm-opt"), *base, "--emit=so", "-o", program.path,
         "--comm-summary", "--explain"])
    program.built = True
    with open(files[2], "w", encoding="utf-8") as file:
        file.write(err + out)
    call([tool("comm-opt"), *base, "--emit=plan", "-o", files[1]])
    with open(stamp, "w", encoding="ascii") as file:
        file.write(key)
    return program


def run_program(program, inputs, output_dir, json_path, repeat=1, warmup=3,
                timeout=300):
    """comm-run on .npy files; the object it wrote with --json.

    With `repeat` above 1, `warmup` further steps come first and are not timed.
    """
    arguments = [tool("comm-run"), program.path, "-n", str(program.world)]
    for key, path in inputs.items():
        arguments += ["--input", f"{key}={path}"]
    if output_dir:
        arguments += ["--output-dir", output_dir]
    if repeat > 1:
        arguments += ["--repeat", str(repeat), "--warmup", str(warmup)]
    call([*arguments, "--json", json_path, "--timeout", str(timeout)],
         timeout + 30)
    with open(json_path, encoding="utf-8") as file:
        return json.load(file)


def step_seconds(report):
    """Seconds of every timed step, the slowest rank's, from comm-run's report."""
    steps = report.get("step_seconds")
    if not isinstance(steps, list) or not steps:
        raise Failed("comm-run's --json has no step_seconds")
    return [float(v) for v in steps]
