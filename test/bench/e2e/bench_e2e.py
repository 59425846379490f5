#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench e2e [-J FILE]: the demo model against onnxruntime.

all-MiniLM-L6-v2, sequence 128, batch 1 and 8: Concord on one and two ranks and
onnxruntime on one and two threads, pinned to the same cores, 5 alternations of
at least 100 steps each. A step is the time from inputs ready to outputs ready
inside the process: comm-run's own step times, and run_with_iobinding on bound
buffers for onnxruntime, with every optimisation. The outputs are compared in
the same run. Further: what a rank holds in memory, and what compiling costs.

Prints a table and a line per floor; exit 1 when a floor is missed. --quick
takes fewer steps and says that its figures do not count.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [os.path.join(ROOT, "demo"), os.path.join(ROOT, "test", "bench")]

import minilm  # noqa: E402
from artefact import weight_bytes  # noqa: E402
from floors import Table, arguments  # noqa: E402
from tools import (Failed, call_alone, compile_model, run_program,  # noqa: E402
                   step_seconds, tool)

MIB = 2.0 ** 20
SEQUENCE = 128
ABSOLUTE, RELATIVE = 1e-4, 1e-4


def cores():
    """Two cores to pin to; one twice on a machine that has only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[:2] if len(allowed) > 1 else allowed * 2


# onnxruntime, in its own process, so that its threads are pinned from birth -----


def worker(model, inputs_file, threads, outputs_file):
    """Answers each line `N` on standard input with N step times as JSON."""
    pinned = cores()
    os.sched_setaffinity(0, set(pinned[:1]))
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    if threads > 1:  # the pool's threads; cores are counted from 1
        options.add_session_config_entry(
            "session.intra_op_thread_affinities",
            ";".join(str(c + 1) for c in pinned[1:threads]))
        os.sched_setaffinity(0, set(pinned))
    session = ort.InferenceSession(model, options,
                                   providers=["CPUExecutionProvider"])
    os.sched_setaffinity(0, set(pinned[:1]))
    inputs = dict(np.load(inputs_file))
    binding = session.io_binding()
    values = {}
    for name, array in inputs.items():
        values[name] = ort.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, values[name])
    names = [o.name for o in session.get_outputs()]
    first = session.run(names, inputs)
    for name, array in zip(names, first):
        values[name] = ort.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_output(name, values[name])
    session.run_with_iobinding(binding)
    np.savez(outputs_file, **{n: values[n].numpy() for n in names})
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(3):
            session.run_with_iobinding(binding)
        for _ in range(int(line)):
            begin = time.perf_counter()
            session.run_with_iobinding(binding)
            times.append(time.perf_counter() - begin)
        print(json.dumps(times), flush=True)


class Onnxruntime:
    def __init__(self, model, inputs_file, threads, outputs_file):
        self.outputs_file = outputs_file
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--worker", model,
             inputs_file, str(threads), outputs_file],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise Failed("onnxruntime's process did not start")

    def measure(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# Memory ---------------------------------------------------------------------------


def descendants(pid):
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                path = f"/proc/{parent}/task/{task}/children"
                with open(path, encoding="ascii") as file:
                    children = [int(p) for p in file.read().split()]
                found += children
                todo += children
        except OSError:
            continue
    return found


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def command_of(pid):
    with open(f"/proc/{pid}/comm", encoding="ascii") as file:
        return file.read().strip()


def rank_memory(program, files, json_path, steps):
    """Largest Pss of any rank while it steps, sampled in a run of its own.

    The ranks are the processes called concord-rank below this one.
    """
    highest, stop = {}, threading.Event()

    def sample():
        while not stop.wait(0.1):
            for pid in descendants(os.getpid()):
                try:
                    if command_of(pid).startswith("concord-rank"):
                        highest[pid] = max(highest.get(pid, 0), pss(pid))
                except OSError:
                    continue

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        run_program(program, files, None, json_path, repeat=steps)
    finally:
        stop.set()
        thread.join()
    return max(highest.values(), default=None)


# The benchmark ----------------------------------------------------------------------


def bench_inputs(batch):
    """Full-length rows: no engine can gain from padding."""
    random = np.random.RandomState(7)
    return {"input_ids": random.randint(1000, 30000, (batch, SEQUENCE)),
            "attention_mask": np.ones((batch, SEQUENCE), np.int64),
            "token_type_ids": np.zeros((batch, SEQUENCE), np.int64)}


def excess(actual, expected):
    """Largest of |error| / (ABSOLUTE + RELATIVE * |expected|); below 1 is equal."""
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    if a.shape != e.shape or not np.isfinite(a).all():
        return float("inf")
    return float((np.abs(a - e) / (ABSOLUTE + RELATIVE * np.abs(e))).max())


def concord_steps(program, files, folder, steps, output_dir=None):
    """Step times of one run, pinned like onnxruntime."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(cores()[:program.world]))
    try:
        report = run_program(program, files, output_dir,
                             os.path.join(folder, "run.json"),
                             repeat=steps)
    finally:
        os.sched_setaffinity(0, before)
    return step_seconds(report)


def bench_batch(rows, model, batch, folder, alternations, steps):
    inputs = bench_inputs(batch)
    files = {}
    for name, array in inputs.items():
        files[name] = os.path.join(folder, f"{name}.b{batch}.npy")
        np.save(files[name], array)
    archive = os.path.join(folder, f"inputs.b{batch}.npz")
    np.savez(archive, **inputs)
    programs = {n: compile_model(model, n, {"batch": batch, "seq": SEQUENCE},
                                 folder, f"minilm.b{batch}.tp{n}")
                for n in (1, 2)}
    peers = {n: Onnxruntime(model, archive, n, os.path.join(
        folder, f"ort.b{batch}.t{n}.npz")) for n in (1, 2)}
    times, worst = {}, 0.0
    try:
        expected = dict(np.load(peers[1].outputs_file))
        for i in range(alternations):
            for n, program in programs.items():
                target = os.path.join(folder, f"out.b{batch}.tp{n}")
                os.makedirs(target, exist_ok=True)
                times.setdefault(("concord", n), []).append(
                    concord_steps(program, files, folder, steps, target))
                for name, array in expected.items():
                    got = np.load(os.path.join(target, f"{name}.npy"))
                    worst = max(worst, excess(got, array))
            for n, peer in peers.items():
                times.setdefault(("onnxruntime", n), []).append(
                    peer.measure(steps))
            print(f"  batch {batch}: alternation {i + 1} of {alternations}",
                  flush=True)
    finally:
        for peer in peers.values():
            peer.close()
    median = {k: 1e3 * statistics.median(t for run in v for t in run)
              for k, v in times.items()}
    label = f"b{batch}_s{SEQUENCE}"
    for (who, n), value in median.items():
        unit_name = "ranks" if who == "concord" else "threads"
        rows.add(f"{label}_{who}_{n}_{unit_name}", value, "ms")
    rows.add(f"{label}_1_rank_over_onnxruntime_1",
             median["concord", 1] / median["onnxruntime", 1], "x", 1.3)
    rows.add(f"{label}_speedup_of_2_ranks",
             median["concord", 1] / median["concord", 2], "x", 1.7,
             at_most=False)
    rows.add(f"{label}_2_ranks_over_onnxruntime_2",
             median["concord", 2] / median["onnxruntime", 2], "x", 1.0)
    rows.add(f"{label}_outputs_worst_of_tolerance", worst, "x", 1.0)
    for n, program in programs.items():
        meta = program.meta
        parts = [weight_bytes(program.path, meta, r) for r in range(n)]
        allowed = max(parts) + meta["arena_bytes"] + 40 * MIB
        held = rank_memory(program, files, os.path.join(folder, "run.json"),
                           max(5, steps // 4))
        rows.add(f"{label}_pss_of_a_rank_of_{n}",
                 None if held is None else held / MIB, "MiB", allowed / MIB)


def bench_compile(rows, model, folder):
    weights = os.path.getsize(model + ".data")
    for n in (1, 2):
        target = os.path.join(folder, f"cold.tp{n}.so")
        seconds, peak = call_alone(
            [tool("comm-opt"), model, "--tp", str(n), "--dim", "batch=8",
             "--dim", f"seq={SEQUENCE}", "--comm-pipeline", "--emit=so", "-o",
             target])
        rows.add(f"compile_tp{n}", seconds, "s", 15.0)
        rows.add(f"compile_tp{n}_peak", peak / MIB, "MiB",
                 1.2 * weights / MIB + 600)


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
        return 0
    parser = arguments(__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--build-dir",
                        default=os.path.join(ROOT, "build", "demo"))
    options = parser.parse_args()
    alternations, steps = (2, 10) if options.quick else (5, 100)
    rows = Table()
    try:
        model, _ = minilm.build(options.build_dir)
        with tempfile.TemporaryDirectory(dir=options.build_dir) as folder:
            bench_compile(rows, model, folder)
            for batch in options.batch:
                bench_batch(rows, model, batch, folder, alternations, steps)
    except (Failed, minilm.Missing, ValueError, OSError) as error:
        print(f"bench e2e: {error}")
        return 1
    print(f"\nall-MiniLM-L6-v2, {alternations} alternations of {steps} steps, "
          f"cores {cores()}; medians")
    for row in rows.rows:
        value = "not measured" if row["value"] is None else f"{row['value']:.3f}"
        print(f"  {row['name']:44} {value:>12} {row['unit']}")
    return rows.finish(options)


if __name__ == "__main__":
    sys.exit(main())
