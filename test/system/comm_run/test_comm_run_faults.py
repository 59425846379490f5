# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that fail, runs that are stopped: exit codes, messages, nothing left."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from comm_run_support import fixture


def ranks_alive(marker):
    """Processes called concord-rank whose job lies under the folder `marker`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if "concord-rank" in command and str(marker) in command:
            found.append(int(entry.name))
    return found


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("fault,words", [
    ("segv", "was killed by signal 11 (Segmentation fault)"),
    ("kill", "was killed by signal 9 (Killed)"),
    ("exit", "ended with exit code 7"),
    ("error", "CONCORD_ERROR_KERNEL in step 3"),
])
def test_failed_rank_is_named(comm_run, tmp_path, fault, words):
    began = time.monotonic()
    done = comm_run(fixture(2), "--repeat", 5, "--json", tmp_path / "r.json", code=4,
                    FIXTURE_FAULT=f"{fault}:1:3")
    assert "comm-run: rank 1 " in done.stderr
    assert words in done.stderr
    # Promised within 1 s; ten times that is a failure.
    assert time.monotonic() - began < 10
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["exit"] == 4
    assert report["failure"]["rank"] == 1
    assert ranks_alive(comm_run.temporary) == []
    assert comm_run.left_behind() == []


def test_last_words(comm_run):
    done = comm_run(fixture(4), code=4, FIXTURE_FAULT="kill:2")
    assert "[rank 2] about to be killed" in done.stderr
    assert "last words of rank 2:\n  about to be killed" in done.stderr


def test_hanging_rank_meets_the_timeout(comm_run):
    done = comm_run(fixture(2), "--timeout", 1.5, code=5, FIXTURE_FAULT="hang:0")
    assert "comm-run: " in done.stderr
    assert ranks_alive(comm_run.temporary) == []
    assert comm_run.left_behind() == []


def test_ranks_that_disagree(comm_run, tmp_path):
    done = comm_run(fixture(4), "--input", "past=fill:1", "--output-dir",
                    tmp_path / "out", "--json", tmp_path / "r.json", code=4,
                    FIXTURE_FAULT="disagree:2")
    assert ("output 'present': ranks 0 and 2 hold the same part and differ at "
            "element [3]: 2 on rank 0, 42 on rank 2") in done.stderr
    assert not (tmp_path / "out" / "present.npy").exists()
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["exit"] == 4
    assert "'present'" in report["failure"]["message"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(comm_run, number):
    run = comm_run.start(fixture(2), FIXTURE_FAULT="hang:0")
    try:
        assert until(lambda: len(ranks_alive(comm_run.temporary)) == 2)
        run.send_signal(number)
        _, error = run.communicate(timeout=20)
    finally:
        run.kill()
    assert run.returncode == 128 + number, error
    assert f"stopped by {number.name}" in error
    assert ranks_alive(comm_run.temporary) == []
    assert comm_run.left_behind() == []


def test_killed_launcher_takes_its_ranks_along(comm_run):
    run = comm_run.start(fixture(2), FIXTURE_FAULT="hang:0")
    try:
        assert until(lambda: len(ranks_alive(comm_run.temporary)) == 2)
    finally:
        run.kill()
        run.communicate()
    assert until(lambda: not ranks_alive(comm_run.temporary))
    assert len(comm_run.left_behind()) == 1, "nobody was left to remove it"
    comm_run(fixture(2))
    assert comm_run.left_behind() == [], "the next run sweeps up"


def test_no_sweep_of_a_job_that_runs(comm_run):
    run = comm_run.start(fixture(2), FIXTURE_FAULT="hang:0")
    try:
        assert until(lambda: len(ranks_alive(comm_run.temporary)) == 2)
        comm_run(fixture(2))
        assert len(comm_run.left_behind()) == 1
    finally:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=20)


def test_output_into_a_closed_pipe(comm_run):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(comm_run.command(fixture(2)), env=comm_run.env,
                          stdout=write, stderr=subprocess.PIPE, timeout=60,
                          check=False)
    os.close(write)
    assert done.returncode >= 0, "it must not die of SIGPIPE before cleaning up"
    assert comm_run.left_behind() == []
