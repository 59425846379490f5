# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python binding: the artefacts that comm-run runs, inside this process."""

import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("CONCORD_BIN", ROOT / "build" / "bin")).resolve()
LIBRARY = BIN.parent / "lib" / "libconcord.so"
os.environ.setdefault("CONCORD_LIBRARY", str(LIBRARY))
sys.path[:0] = [str(ROOT / "python")]

import concord  # noqa: E402
from concord import _elf  # noqa: E402

FIXTURES = BIN.parent / "test" / "comm_run"

pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason="build/lib/libconcord.so is not built")


def fixture(world):
    return FIXTURES / f"fixture_{world}.so"


def inputs_for(world):
    random = np.random.RandomState(world)
    return {
        "x": random.standard_normal((4, 6)).astype(np.float32),
        "s": random.standard_normal((2, 6 * world)).astype(np.float32),
        "p": [random.randint(-9, 9, 3).astype(np.int32) for _ in range(world)],
        "past": random.standard_normal(5).astype(np.float32),
    }


def all_ranks(world, body):
    """Run body(context) on every rank as a thread; results in rank order."""
    results, failures = [None] * world, []

    def main(job, rank):
        try:
            with concord.Context(job, rank, timeout=20) as context:
                results[rank] = body(context)
        except BaseException as error:
            failures.append((rank, error))

    with concord.Job(world) as job:
        threads = [threading.Thread(target=main, args=(job, r)) for r in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0][1]
    return results


@pytest.mark.parametrize("world", [1, 2, 4])
def test_run(world):
    inputs = inputs_for(world)
    outputs = concord.run(fixture(world), inputs)
    total = sum((np.float32(r + 1) * inputs["x"] for r in range(world)),
                np.zeros((4, 6), np.float32))
    np.testing.assert_array_equal(outputs["sum"], total)
    np.testing.assert_array_equal(outputs["twice"], 2 * inputs["s"])
    for rank in range(world):
        np.testing.assert_array_equal(outputs["plus"][rank], inputs["p"][rank] + rank)
    np.testing.assert_array_equal(outputs["present"], inputs["past"] + 1)


def test_same_bits_as_comm_run(tmp_path):
    if not (BIN / "comm-run").exists():
        pytest.fail("libconcord.so is built and comm-run is not")
    inputs = inputs_for(2)
    options = []
    for name in ("x", "s", "past"):
        np.save(tmp_path / f"{name}.npy", inputs[name])
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    subprocess.run([BIN / "comm-run", fixture(2), *options, "--output-dir",
                    tmp_path / "out"], check=True, capture_output=True, timeout=60)
    outputs = concord.run(fixture(2), inputs)
    for name in ("sum", "twice", "present"):
        assert np.load(tmp_path / "out" / f"{name}.npy").tobytes() == \
            outputs[name].tobytes()


@pytest.mark.parametrize("world", [1, 2])
def test_compiled_model_has_the_same_bits(tmp_path, world):
    """A transformer by comm-opt, in this process and by comm-run."""
    if not (BIN / "comm-opt").exists():
        pytest.skip("build/bin/comm-opt is not built")
    program = tmp_path / "bert.so"
    mesh = [f"--tp={world}"] if world > 1 else []
    subprocess.run([BIN / "comm-opt", ROOT / "test" / "models" / "bert_tiny.onnx",
                    "--dim=batch=2", "--dim=seq=8", *mesh, "--comm-pipeline",
                    "--emit=so", "-o", program], check=True, timeout=120)
    inputs = {"input_ids": np.arange(16).reshape(2, 8),
              "attention_mask": np.ones((2, 8), np.int64),
              "token_type_ids": np.zeros((2, 8), np.int64)}
    options = []
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    subprocess.run([BIN / "comm-run", program, *options, "--output-dir",
                    tmp_path / "out"], check=True, capture_output=True, timeout=60)
    outputs = concord.run(program, inputs, steps=3)
    assert len(outputs) == 2
    for name, array in outputs.items():
        assert np.isfinite(array).all() and array.any()
        assert np.load(tmp_path / "out" / f"{name}.npy").tobytes() == array.tobytes()


def test_states_and_steps():
    outputs = concord.run(fixture(2), {}, steps=5, states={"past": "present"})
    np.testing.assert_array_equal(outputs["present"], np.full(5, 5))


def test_metadata():
    def body(context):
        program = context.load(fixture(2))
        return (context.rank, context.world, program.name, program.world,
                len(program.digest), program.inputs, program.plan(),
                [e.name for e in program.outputs])

    for rank, got in enumerate(all_ranks(2, body)):
        assert got[:5] == (rank, 2, "fixture", 2, 64)
        x, s, p, past = got[5]
        assert (x.dtype, x.numpy_dtype, x.shape) == ("F32", np.float32, (4, 6))
        assert (s.shape, s.local_shape) == ((2, 12), (2, 6))
        assert s.sharding["splits"][0]["outer"] == 3
        assert p.sharding["kind"] == "per_rank"
        assert got[6]["world"] == 2
        assert got[7] == ["sum", "twice", "plus", "present"]


def test_bound_arrays_are_used_in_place():
    def body(context):
        program = context.load(fixture(2))
        x = np.ones((4, 6), np.float32)
        total = np.zeros((4, 6), np.float32)
        program.bind_input("x", x)
        program.bind_output("sum", total)
        program.step()
        first = total.copy()
        x[...] = 2
        program.step()
        return first, total

    for first, second in all_ranks(2, body):
        np.testing.assert_array_equal(first, np.full((4, 6), 3))
        np.testing.assert_array_equal(second, np.full((4, 6), 6))


def test_wrong_arguments():
    def body(context):
        program = context.load(fixture(1))
        with pytest.raises(KeyError, match="the inputs are 'x', 's', 'p', 'past'"):
            program.input_view("none")
        with pytest.raises(TypeError, match="'x' is F32"):
            program.run({"x": np.zeros((4, 6))})
        with pytest.raises(ValueError, match=r"local shape \[4, 6\]"):
            program.run({"x": np.zeros((6, 4), np.float32)})
        with pytest.raises(ValueError, match="C-contiguous"):
            program.bind_input("x", np.zeros((6, 4), np.float32).T)
        frozen = np.zeros((4, 6), np.float32)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            program.bind_output("sum", frozen)
        program.close()
        with pytest.raises(ValueError, match="closed"):
            program.step()

    all_ranks(1, body)


def test_missing_program():
    with concord.Context() as context:
        assert (context.rank, context.world) == (0, 1)
        with pytest.raises(concord.ConcordError) as caught:
            context.load("/nowhere/none.so")
        assert caught.value.name == "CONCORD_ERROR_NOT_FOUND"
        assert "none.so" in str(caught.value)


def test_wrong_world():
    with concord.Context() as context:
        with pytest.raises(concord.ConcordError) as caught:
            context.load(fixture(2))
        assert caught.value.name == "CONCORD_ERROR_WRONG_WORLD"


def test_failing_rank_stops_the_others():
    """A rank that raises in Python aborts the job; its peer does not hang."""
    seen = []

    def main(job, rank):
        try:
            with concord.Context(job, rank, timeout=60) as context:
                program = context.load(fixture(2))
                if rank == 1:
                    raise ZeroDivisionError("mine")
                program.step()
        except (concord.ConcordError, ZeroDivisionError) as error:
            seen.append((rank, error))

    job = concord.Job(2)
    threads = [threading.Thread(target=main, args=(job, r)) for r in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a rank waits for one that has failed"
    errors = dict(seen)
    assert isinstance(errors[1], ZeroDivisionError)
    assert errors[0].name in ("CONCORD_ERROR_ABORTED", "CONCORD_ERROR_PEER_LEFT")


def test_interpreter_lock_is_released():
    """Two ranks in one interpreter wait for each other inside a step; with the lock
    held this would hang."""
    def body(context):
        program = context.load(fixture(2))
        for _ in range(200):
            program.step()
        return True

    assert all_ranks(2, body) == [True, True]


@pytest.mark.parametrize("damage", [b"", b"text", b"\x7fELF\x02\x01" + b"\0" * 100])
def test_damaged_files(tmp_path, damage):
    (tmp_path / "x.so").write_bytes(damage)
    with pytest.raises(ValueError):
        _elf.read_meta(tmp_path / "x.so")


def test_version():
    assert concord.version() >= (0, 1, 0)
    assert concord.library_path() == pathlib.Path(os.environ["CONCORD_LIBRARY"])


def test_shard_and_gather_round_trip():
    entry = concord.Entry("t", "I32", np.dtype(np.int32), (16, 3), (4, 3),
                          {"kind": "split", "splits": [
                              {"dim": 0, "axis": "a", "outer": 1},
                              {"dim": 0, "axis": "b", "outer": 2}]})
    mesh = [["a", 2], ["b", 2], ["c", 2]]
    array = np.arange(48, dtype=np.int32).reshape(16, 3)
    parts = [concord.shard(array, entry, mesh, rank) for rank in range(8)]
    np.testing.assert_array_equal(parts[0][:, 0] // 3, [0, 1, 4, 5])
    np.testing.assert_array_equal(parts[2][:, 0] // 3, [2, 3, 6, 7])
    np.testing.assert_array_equal(parts[4][:, 0] // 3, [8, 9, 12, 13])
    np.testing.assert_array_equal(concord.gather(parts, entry, mesh), array)
    parts[7] = parts[7] + 1
    with pytest.raises(ValueError, match="ranks 6 and 7"):
        concord.gather(parts, entry, mesh)
