#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run bench pipeline [-J FILE]: what compiling costs, and where memory ends up.

Time: the passes over a real training step in HLO (Mixtral 8x7B on 16 devices; only
where the file is given with --hlo), over synthetic graphs of 10^4 and 10^5
operations beside `mlir-opt -canonicalize -cse` on the same files, and code for GPT-2
of 12 and 24 layers. Reading and writing the files is part of every figure; a figure
is the least of the turns, which alternate.

Memory: the arena of the models in test/models and of the HLO file against its lower
bound (the largest live set of the schedule), and against the arena without
comm-overlap.

Floors: HLO in 6 s; ten times the graph in at most 12 times the time, and in at most 5
times mlir-opt's; twice the layers in at most 2.4 times the time; an arena at most
1.05 times the largest live set, and 1.10 times what it is without comm-overlap.

--only time|memory takes a part; --quick one turn and the small graphs, and says that
its figures do not count.
"""

import os
import re
import shutil
import sys
import tempfile

import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))

from floors import BIN, MIB, ROOT, Failed, Table, arguments, call, tool  # noqa: E402

MODELS = os.path.join(ROOT, "test", "models")
PASSES = ["--comm-simplify", "--comm-bucket", "--comm-overlap", "--comm-order",
          "--comm-verify-order", "--comm-plan-workspace",
          "--comm-verify-workspace"]
# Whatever has symbolic dimensions gets these.
DIMS = {"batch": 1, "seq": 8, "past": 4}


def allocator():
    """The allocator that comm-opt is linked with; "" where it is the C library's."""
    libraries = call(["ldd", tool("comm-opt")]).stdout
    found = re.search(r"libjemalloc\S* => (\S+)", libraries)
    return found[1] if found else ""


def timed(command):
    """(seconds of the command and its children on a core, all that it said)"""
    begin = os.times()
    done = call(command)
    end = os.times()
    return (end.children_user + end.children_system - begin.children_user
            - begin.children_system), done.stdout + done.stderr


def opt(*options):
    return [tool("comm-opt"), *options]


def mlir_opt(path):
    """Upstream's tool of the version that is built against, with our dialects and
    comm-opt's allocator."""
    preload = ["env", f"LD_PRELOAD={allocator()}"] if allocator() else []
    for name in ("mlir-opt-22", "/usr/lib/llvm-22/bin/mlir-opt", "mlir-opt"):
        found = shutil.which(name)
        if found:
            plugin = os.path.join(BIN, "..", "lib", "ConcordPlugin.so")
            return [*preload, found, f"--load-dialect-plugin={plugin}", path, "-canonicalize",
                    "-cse", "-o", "/dev/null"]
    raise Failed("no mlir-opt 22; install mlir-22-tools")


def synthetic(operations):
    """A training step on 2 x 4 ranks: forward over tp, and back with gradients that
    are reduced over dp while the next layer back is computed."""
    t = "tensor<4096xf32>"
    layers = operations // 10
    weights = "".join(f", %w{i}: {t}" for i in range(layers))
    lines = [
        "module attributes {comm.world = 8 : i64} {",
        "  comm.domain @tp groups([[0, 1, 2, 3], [4, 5, 6, 7]])",
        "  comm.domain @dp groups([[0, 4], [1, 5], [2, 6], [3, 7]])",
        f"  func.func @main(%x: {t}{weights}) -> ({t}, {t}) {{",
        f"    %e = tensor.empty() : {t}",
    ]
    count, x = 0, "%x"
    saved = []

    def compute(name, *operands):
        nonlocal count
        count += 1
        types = ", ".join([t] * len(operands))
        lines.append(f'    %{count} = comm.compute "{name}"({", ".join(operands)}) '
                     f"{{flops = 40000000 : i64}} : ({types}) -> {t}")
        return f"%{count}"

    def reduce(domain, value):
        nonlocal count
        count += 1
        lines.append(f"    %{count} = comm.all_reduce @{domain} sum ins({value} : {t})"
                     f" outs(%e : {t}) -> {t}")
        return f"%{count}"

    for layer in range(layers):
        saved.append(x)
        h = compute("up", x, f"%w{layer}")
        h = compute("act", h)
        h = compute("down", h, f"%w{layer}")
        x = compute("add", x, reduce("tp", h))
    g, total = x, "%x"
    for layer, value in reversed(list(enumerate(saved))):
        total = compute("update", total, reduce("dp", compute("wgrad", g, value)))
        g = compute("dgrad", g, f"%w{layer}")
        g = reduce("tp", g)
    lines += [f"    return {g}, {total} : {t}, {t}", "  }", "}", ""]
    return "\n".join(lines)


class PipelineTable(Table):
    def add(self, name, value, unit, floor=None, quiet=False):
        super().add(name, value, unit, floor)
        if not quiet:
            print(f"  {name:40} {value:12.3f} {unit}", flush=True)


def least(commands, turns):
    """Seconds of each command, the least of alternating turns."""
    best = {}
    for _ in range(turns):
        for name, command in commands.items():
            seconds, _ = timed(command)
            best[name] = min(best.get(name, seconds), seconds)
    return best


def bench_time(table, options, folder):
    turns = 1 if options.quick else 3
    if options.hlo:
        seconds = least({"hlo": opt(options.hlo, *PASSES, "-o", "/dev/null")},
                        turns)["hlo"]
        table.add("hlo_passes", seconds, "s", 6.0)
    sizes = [1000, 10000] if options.quick else [10000, 100000]
    commands = {}
    for size in sizes:
        path = os.path.join(folder, f"graph{size}.mlir")
        with open(path, "w", encoding="utf-8") as file:
            file.write(synthetic(size))
        commands[size] = opt(path, *PASSES, "-o", "/dev/null")
        commands[size, "mlir-opt"] = mlir_opt(path)
    best = least(commands, turns)
    for size in sizes:
        table.add(f"graph_{size}_passes", best[size], "s")
        table.add(f"graph_{size}_mlir_opt", best[size, "mlir-opt"], "s")
        table.add(f"graph_{size}_over_mlir_opt",
                  best[size] / best[size, "mlir-opt"], "x", 5.0)
    table.add("ten_times_the_graph", best[sizes[1]] / best[sizes[0]], "x", 12.0)
    layers = (2, 4) if options.quick else (12, 24)
    commands = {}
    for count in layers:
        path = os.path.join(folder, f"gpt2.{count}.onnx")
        call([sys.executable, os.path.join(MODELS, "generate.py"), "gpt2", "-o",
              path, "--layers", str(count), "--hidden", "256", "--heads", "4"])
        commands[count] = opt(path, "--tp", "2", "--dim", "batch=1", "--dim",
                              "seq=64", "--comm-pipeline=to=lowered", "--emit=obj",
                              "-o", os.path.join(folder, f"gpt2.{count}.o"))
    best = least(commands, turns)
    for count in layers:
        table.add(f"gpt2_{count}_layers_code", best[count], "s")
    table.add("twice_the_layers", best[layers[1]] / best[layers[0]], "x", 2.4)


def arena(*options):
    """(bytes, largest live set), summed over the programs of the module."""
    _, text = timed(opt(*options, "--comm-summary", "-o", "/dev/null"))
    found = re.findall(r"^arena: (\d+) bytes, lower bound (\d+)", text, re.M)
    if not found:
        raise Failed("no arena in the summary of " + " ".join(options))
    return sum(int(a) for a, _ in found), sum(int(b) for _, b in found)


def bench_memory(table, options):
    cases = []
    for name in sorted(os.listdir(MODELS)):
        if not name.endswith(".onnx") or "_0." in name or "_1." in name:
            continue
        base = [os.path.join(MODELS, name), "--tp", "2"]
        symbols = {d.dim_param for v in onnx.load(base[0]).graph.input
                   for d in v.type.tensor_type.shape.dim}
        for dim in sorted(symbols & set(DIMS)):
            base += ["--dim", f"{dim}={DIMS[dim]}"]
        # On shared memory, the built-in cpu, nothing is overlapped.
        cases.append((name[:-5], base + ["--comm-pipeline=machine=accelerator"],
                      base + ["--comm-pipeline=machine=accelerator "
                              "overlap=false"]))
    if options.hlo:
        without = [p for p in PASSES if p != "--comm-overlap"]
        cases.append(("hlo", [options.hlo, *PASSES], [options.hlo, *without]))
    for name, overlapped, given in cases:
        size, live = arena(*overlapped)
        plain, _ = arena(*given)
        table.add(f"{name}_arena", size / MIB, "MiB", quiet=True)
        table.add(f"{name}_arena_over_live", size / live, "x", 1.05, quiet=True)
        table.add(f"{name}_arena_over_unoverlapped", size / plain, "x", 1.10,
                  quiet=True)
        print(f"  {name:40} arena {size / MIB:12.3f} MiB  over live "
              f"{size / live:6.3f} x  over unoverlapped {size / plain:6.3f} x",
              flush=True)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--hlo", help="a training step in HLO text")
    parser.add_argument("--only", choices=("time", "memory"))
    options = parser.parse_args()
    table = PipelineTable()
    try:
        with tempfile.TemporaryDirectory() as folder:
            if options.only != "memory":
                bench_time(table, options, folder)
            if options.only != "time":
                bench_memory(table, options)
    except (Failed, OSError, ValueError) as error:
        print(f"bench pipeline: {error}")
        return 1
    if not options.hlo:
        print("no --hlo: without the training step")
    return table.finish(options)


if __name__ == "__main__":
    sys.exit(main())
