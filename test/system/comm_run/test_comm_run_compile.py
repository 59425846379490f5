# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiling: what comm-opt is called with, and the cache.

A script stands where comm-opt would be, beside a copy of comm-run; it notes its
arguments and copies a fixture to where the program is wanted.
"""

import os
import shutil
import time

import pytest

from comm_run_support import BIN, FIXTURES

COMPILER = """#!/bin/sh
echo "$*" >> "$LOG"
echo "note from the compiler" >&2
[ -z "$SLOW" ] || sleep "$SLOW"
[ -z "$BREAK" ] || { echo "m.onnx: node 'x' is bad" >&2; exit 9; }
[ -z "$CRASH" ] || kill -SEGV $$
out=; world=1
while [ $# -gt 0 ]; do
  case "$1" in
    -o) out="$2"; shift ;;
    --tp=*|--world=*) world="${1#*=}" ;;
    --tp) world="$2"; shift ;;
  esac
  shift
done
[ -n "$EMPTY" ] || cp "$FIXTURES/fixture_$world.so" "$out"
"""


@pytest.fixture
def compiling(comm_run, tmp_path):
    """comm_run, with a compiler of its own beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("comm-run", "concord-rank"):
        shutil.copy2(BIN / tool, folder / tool)
    (folder / "comm-opt").write_text(COMPILER)
    (folder / "comm-opt").chmod(0o755)
    os.utime(folder / "comm-opt", (1, 1))
    comm_run.program = folder / "comm-run"
    comm_run.log = tmp_path / "log"
    comm_run.env.update(LOG=str(comm_run.log), FIXTURES=str(FIXTURES),
                        LD_LIBRARY_PATH=str(BIN.parent / "lib"))
    comm_run.model = tmp_path / "m.onnx"
    comm_run.model.write_text("a model")
    comm_run.calls = lambda: (comm_run.log.read_text().splitlines()
                              if comm_run.log.exists() else [])
    comm_run.cache = tmp_path / "cache"
    return comm_run


def entries(compiling):
    return [p for p in compiling.cache.iterdir() if p.is_dir()]


def test_compiles_once(compiling):
    first = compiling(compiling.model, "-n", 2)
    assert "comm-run: compiling" in first.stderr
    assert "note from the compiler" in first.stderr
    assert "(cached)" not in first.stderr
    again = compiling(compiling.model, "-n", 2)
    assert f"compiling {compiling.model} (cached)" in again.stderr
    assert len(compiling.calls()) == 1
    assert first.stdout == again.stdout
    call = compiling.calls()[0].split()
    assert call[:4] == [str(compiling.model), "--tp=2", "--comm-pipeline",
                        "--emit=so"]
    assert call[4] == "-o" and call[5].endswith("/m.so")
    assert len(entries(compiling)) == 1


def test_compile_options_are_handed_on(compiling):
    compiling(compiling.model, "--tp", 2, "--dim", "seq=8", "--comm-fuse=off")
    assert compiling.calls()[0].startswith(
        f"{compiling.model} --tp 2 --dim seq=8 --comm-fuse=off --comm-pipeline "
        "--emit=so -o ")


def test_everything_that_matters_is_in_the_key(compiling):
    compiling(compiling.model, "-n", 2)
    compiling(compiling.model, "-n", 2, "--dim=a=1")
    compiling(compiling.model, "-n", 4)
    compiling.model.write_text("another model")
    compiling(compiling.model, "-n", 4)
    os.utime(compiling.program.parent / "comm-opt", (2, 2))
    compiling(compiling.model, "-n", 4)
    assert len(compiling.calls()) == 5
    compiling.model.write_text("a model")
    os.utime(compiling.program.parent / "comm-opt", (1, 1))
    compiling(compiling.model, "-n", 2)
    assert len(compiling.calls()) == 5


def test_no_cache(compiling):
    for _ in range(2):
        compiling(compiling.model, "-n", 2, "--no-cache")
    assert len(compiling.calls()) == 2
    assert entries(compiling) == []


def test_what_prints_is_compiled_again(compiling):
    for _ in range(2):
        compiling(compiling.model, "-n", 2, "--explain")
    assert len(compiling.calls()) == 2


@pytest.mark.parametrize("env,message", [
    ({"BREAK": "1"}, "comm-opt exited with 9"),
    ({"CRASH": "1"}, "comm-opt was killed by signal 11"),
    ({"EMPTY": "1"}, "comm-opt ended well, but made no m.so"),
])
def test_failing_compiler(compiling, env, message):
    done = compiling(compiling.model, "-n", 2, code=3, **env)
    assert message in done.stderr
    if "BREAK" in env:
        assert "m.onnx: node 'x' is bad" in done.stderr
    assert entries(compiling) == [], "a failure leaves nothing behind"
    compiling(compiling.model, "-n", 2)


def test_no_compiler(compiling):
    (compiling.program.parent / "comm-opt").unlink()
    done = compiling(compiling.model, code=3)
    assert "comm-opt: not there" in done.stderr


def test_result_for_another_number_of_ranks(compiling):
    # The stand-in ignores --mesh and compiles for one rank.
    done = compiling(compiling.model, "-n", 2, "--mesh", "tp=2", code=2)
    assert "compiled for 1 rank, but -n asks for 2" in done.stderr


def test_at_the_same_time(compiling):
    runs = [compiling.start(compiling.model, "-n", 2, SLOW="1") for _ in range(3)]
    for run in runs:
        _, error = run.communicate(timeout=60)
        assert run.returncode == 0, error
    assert len(compiling.calls()) == 1
    assert len(entries(compiling)) == 1


def test_interrupted_compiler(compiling):
    run = compiling.start(compiling.model, "-n", 2, SLOW="30")
    end = time.monotonic() + 10
    while not compiling.calls() and time.monotonic() < end:
        time.sleep(0.02)
    run.terminate()
    run.communicate(timeout=20)
    assert run.returncode == 128 + 15
    assert entries(compiling) == []


def test_old_programs_make_room(compiling):
    compiling(compiling.model, "-n", 1)
    compiling(compiling.model, "-n", 2)
    assert len(entries(compiling)) == 2
    limit = (FIXTURES / "fixture_4.so").stat().st_size + 100
    compiling(compiling.model, "-n", 4, CONCORD_CACHE_LIMIT=str(limit))
    assert len(entries(compiling)) == 1
    compiling(compiling.model, "-n", 4)
    assert len(compiling.calls()) == 3


def test_half_made_programs_are_removed(compiling):
    run = compiling.start(compiling.model, "-n", 2, SLOW="3")
    end = time.monotonic() + 10
    while not compiling.calls() and time.monotonic() < end:
        time.sleep(0.02)
    compiling(compiling.model, "-n", 4)
    assert len(entries(compiling)) == 2, "one that is being made stays"
    run.kill()
    run.communicate()
    compiling(compiling.model, "-n", 1)
    assert all("." not in entry.name for entry in entries(compiling))
    assert len(entries(compiling)) == 2


def test_partitioned_mlir(compiling, tmp_path):
    program = tmp_path / "p.mlir"
    program.write_text("module attributes {comm.world = 2 : i64} {}")
    done = compiling(program, "-n", 4, code=2)
    assert "was partitioned for 2 ranks, but -n asks for 4" in done.stderr
    assert compiling.calls() == []


def test_one_model_per_rank(compiling, tmp_path):
    for rank in range(2):
        (tmp_path / f"m_{rank}.onnx").write_text(str(rank))
    compiling(f"{tmp_path}/m_{{rank}}.onnx", "-n", 2)
    assert "m_{rank}.onnx --world=2 --comm-pipeline" in compiling.calls()[0]
