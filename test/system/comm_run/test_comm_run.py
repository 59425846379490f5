# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""comm-run on a program that runs: inputs, outputs, checks, timing, traces."""

import json
import os

import numpy as np
import pytest

from comm_run_support import fixture, fixture_inputs, fixture_outputs, input_options


def outputs_of(folder, world):
    names = ["sum", "twice", "present"]
    loaded = {name: np.load(folder / f"{name}.npy") for name in names}
    loaded["plus"] = [np.load(folder / f"plus@{r}.npy") for r in range(world)]
    return loaded


@pytest.mark.parametrize("world", [1, 2, 4])
def test_scatters_runs_and_gathers(comm_run, tmp_path, world):
    inputs = fixture_inputs(world)
    report = tmp_path / "report.json"
    done = comm_run(fixture(world), "-n", world, *input_options(tmp_path, inputs),
                    "--output-dir", tmp_path / "out", "--json", report)
    got, want = outputs_of(tmp_path / "out", world), fixture_outputs(inputs, world)
    for name in ("sum", "twice", "present"):
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
    for rank in range(world):
        np.testing.assert_array_equal(got["plus"][rank], want["plus"][rank])
    assert "drawn" not in done.stderr
    told = json.loads(report.read_text())
    assert told["exit"] == 0 and told["world"] == world
    assert len(told["ranks"]) == world
    assert [o["name"] for o in told["outputs"]][:2] == ["sum", "twice"]
    assert comm_run.left_behind() == []


def test_world_comes_from_the_program(comm_run):
    assert "output sum F32 [4, 6]" in comm_run(fixture(2)).stdout


def test_drawn_inputs_are_announced_and_repeat(comm_run):
    first, again = comm_run(fixture(2)), comm_run(fixture(2))
    assert ("not given, drawn from seed 0 (floats normal, integers 0 or 1): "
            "x, s, p, past") in first.stderr
    assert first.stdout == again.stdout
    assert comm_run(fixture(2), "--seed", 1).stdout != first.stdout


def test_raw_fill_and_range(comm_run, tmp_path):
    (tmp_path / "past.raw").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    comm_run(fixture(2), "--input", f"past={tmp_path}/past.raw", "--input",
             "x=fill:2", "--input", "p=range:10..12", "--output-dir",
             tmp_path / "out")
    got = outputs_of(tmp_path / "out", 2)
    np.testing.assert_array_equal(got["present"], np.arange(1, 6))
    np.testing.assert_array_equal(got["sum"], np.full((4, 6), 6))
    assert set(got["plus"][0]) <= {10, 11}


def test_input_dir(comm_run, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 6), np.float32, order="F"))
    np.save(tmp_path / "input_3.npy", np.zeros(5, np.float32))
    comm_run(fixture(2), "--input-dir", tmp_path, "--output-dir", tmp_path / "out")
    got = outputs_of(tmp_path / "out", 2)
    np.testing.assert_array_equal(got["sum"], np.full((4, 6), 3))
    np.testing.assert_array_equal(got["present"], np.ones(5))


class TestExpect:
    @pytest.fixture
    def run(self, comm_run, tmp_path):
        inputs = fixture_inputs(2)
        (tmp_path / "in").mkdir()
        (tmp_path / "want").mkdir()
        options = input_options(tmp_path / "in", inputs)
        self.want = fixture_outputs(inputs, 2)

        def call(*arguments, code=0, **wanted):
            for name, array in wanted.items():
                np.save(tmp_path / "want" / f"{name}.npy", array)
            return comm_run(fixture(2), *options, "--expect", tmp_path / "want",
                            *arguments, code=code)

        return call

    def test_equal(self, run):
        done = run(sum=self.want["sum"], output_1=self.want["twice"])
        assert done.stdout.count("ok: max abs err") == 2
        assert "not compared" in done.stdout

    def test_different(self, run):
        wrong = self.want["sum"].copy()
        wrong[2, 3] += 0.5
        done = run(sum=wrong, code=1)
        assert "DIFFERS" in done.stdout
        assert "1 of 24 elements beyond rtol 0.001 atol 1e-05" in done.stdout
        assert "worst at [2, 3]" in done.stdout
        run("--atol", "0.51", sum=wrong)

    def test_shape(self, run):
        done = run(sum=self.want["sum"].reshape(6, 4), code=1)
        assert "shape [4, 6], expected [6, 4]" in done.stdout

    def test_wider_reference(self, run):
        run(sum=self.want["sum"].astype(np.float64))

    def test_nothing_to_compare(self, run):
        done = run(code=2)
        assert "has a file for none of the outputs 'sum', 'twice'" in done.stderr


def test_decode_loop(comm_run, tmp_path):
    done = comm_run(fixture(2), "--state", "past=present", "--repeat", 7,
                    "--output-dir", tmp_path)
    assert "states that begin as zeros: past" in done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "present.npy"), np.full(5, 7))
    # With an even number of steps the buffers have changed places once more.
    comm_run(fixture(2), "--state", "past=present", "--repeat", 4, "--warmup", 2,
             "--output-dir", tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "present.npy"), np.full(5, 6))


def test_without_state_steps_are_independent(comm_run, tmp_path):
    comm_run(fixture(2), "--input", "past=fill:1", "--repeat", 3, "--output-dir",
             tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "present.npy"), np.full(5, 2))


def test_repeat_reports_latency(comm_run, tmp_path):
    report = tmp_path / "r.json"
    done = comm_run(fixture(2), "--repeat", 20, "--json", report)
    assert "latency of 20 steps on 2 ranks: min " in done.stdout
    told = json.loads(report.read_text())
    assert len(told["step_seconds"]) == 20
    assert all(seconds > 0 for seconds in told["step_seconds"])
    latency = told["latency"]
    assert latency["min_s"] <= latency["median_s"] <= latency["p99_s"]
    assert [len(rank["step_seconds"]) for rank in told["ranks"]] == [20, 20]


def test_trace(comm_run, tmp_path):
    done = comm_run(fixture(2), "--repeat", 3, "--trace", tmp_path / "t.json")
    # An artefact that was not made by this comm-opt.
    assert "predicted against measured: no prediction: the artefact has none" in done.stdout
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events
                 if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
               if e["name"] == "thread_name"}
    assert processes == {0: "rank 0", 1: "rank 1"}
    for rank in (0, 1):
        rows = {name for (pid, _), name in threads.items() if pid == rank}
        assert rows == {"compute", "stream 0"}
        issues = [e for e in events if e["ph"] == "X" and e["pid"] == rank
                  and threads[rank, e["tid"]] == "stream 0"]
        assert len(issues) >= 3
        for event in issues:
            assert event["name"] == "all_reduce tp fixture/sum"
            assert event["args"]["bytes"] == 96
            assert event["ts"] >= 0 and event["dur"] >= 0
        compute = [e for e in events if e["ph"] == "X" and e["pid"] == rank
                   and threads[rank, e["tid"]] == "compute"]
        # What the host does is one thing after the other.
        parts = sorted((e["ts"], e["ts"] + e["dur"]) for e in compute
                       if e["cat"] in ("compute", "wait"))
        assert parts and all(a[1] <= b[0] + 1e-3 for a, b in zip(parts, parts[1:]))
        assert len([e for e in compute if e["cat"] == "step"]) == 3


def test_keep_and_verbose(comm_run):
    done = comm_run(fixture(2), "--keep", "--verbose")
    assert "the job's folder is" in done.stderr
    assert len(comm_run.left_behind()) == 1
    # A later run does not take it for the remains of a killed one.
    comm_run(fixture(2))
    assert len(comm_run.left_behind()) == 1


def test_answers(comm_run):
    assert "Exit codes" in comm_run("--help").stdout
    assert comm_run("--version").stdout.startswith("comm-run, Concord ")
    table = comm_run("--env", CONCORD_TIMEOUT="7").stdout
    assert "CONCORD_CACHE_DIR" in table
    assert any("CONCORD_TIMEOUT" in line and "7" in line
               for line in table.splitlines())


def srun(comm_run, ranks, *arguments, nodes=1, job="4711", **env):
    """The command as srun would start it once per rank, without an srun."""
    processes = [
        comm_run.start(*arguments, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank),
                       SLURM_STEP_NUM_TASKS=str(ranks), SLURM_STEP_NUM_NODES=str(nodes),
                       SLURM_JOB_ID=f"{job}.{os.getpid()}", SLURM_STEP_ID="0",
                       CONCORD_CONNECT_TIMEOUT="30", **env)
        for rank in range(ranks)]
    return [(*process.communicate(timeout=120), process.returncode)
            for process in processes]


def test_srun_starts_the_ranks(comm_run, tmp_path):
    inputs = fixture_inputs(2)
    done = srun(comm_run, 2, fixture(2), *input_options(tmp_path, inputs),
                "--output-dir", tmp_path / "out")
    assert [code for _, _, code in done] == [0, 0], done
    got, want = outputs_of(tmp_path / "out", 2), fixture_outputs(inputs, 2)
    np.testing.assert_array_equal(got["sum"], want["sum"])
    # One speaks for both.
    assert "output sum" in done[0][0] and "output sum" not in done[1][0]


def test_srun_with_another_number_of_ranks_is_refused(comm_run):
    done = srun(comm_run, 3, fixture(2))
    assert all(code == 2 for _, _, code in done), done
    assert "compiled for 2 ranks, but slurm started 3" in done[0][1]


def test_srun_over_nodes_without_a_library_is_refused(comm_run):
    """Nothing says which MPI srun's processes can reach each other with."""
    done = srun(comm_run, 2, fixture(2), nodes=2)
    assert all(code != 0 for _, _, code in done), done
    assert "set CONCORD_MPI=openmpi or mpich" in done[0][1] + done[1][1], done
