# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""comm-doctor --live: what a running job's ranks do, and which one is behind."""

import json
import os
import pathlib
import signal
import subprocess
import time
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("CONCORD_BUILD", ROOT / "build"))


@pytest.fixture(name="job")
def start_job():
    processes = []

    def start(world, *arguments):
        name = uuid.uuid4().hex
        for rank in range(world):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                       MASTER_ADDR="localhost", MASTER_PORT="1", TORCHELASTIC_RUN_ID=name,
                       CONCORD_HEAP_BYTES="64M", CONCORD_TIMEOUT="60",
                       CONCORD_LAUNCHER="torchrun")
            processes.append(subprocess.Popen(
                [BUILD / "bin" / "unit" / "fault-rank", *arguments], env=env,
                stderr=subprocess.DEVNULL))
        return processes

    yield start
    for process in processes:
        process.kill()
        process.wait()


def look(process):
    """Exit code and report; a list of reports where the process is in several jobs."""
    done = subprocess.run([BUILD / "bin" / "comm-doctor", "--live", str(process.pid), "--json"],
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def until(process, condition):
    """Look until it is so; bring-up takes its time."""
    end = time.monotonic() + 30
    while True:
        code, report = look(process)
        if code != 2 and condition(code, report):
            return report
        assert time.monotonic() < end, (code, report)
        time.sleep(0.05)


def world_of(report):
    return next((comm for comm in report["communicators"] if comm["name"] == "world"), None)


def test_a_job_that_moves(job):
    ranks = job(2, "run", "0", "all_reduce")
    report = until(ranks[1], lambda code, r: world_of(r) and world_of(r)["moving"])
    assert report["world"] == 2
    world = world_of(report)
    assert world["verdict"] == "ok" and world["stragglers"] == []
    assert [member["rank"] for member in world["members"]] == [0, 1]
    assert world["members"][0]["operation"] == "all_reduce count 4 F32"


def test_who_is_behind(job):
    ranks = job(3, "stop", "1", "all_reduce")
    report = until(ranks[0], lambda code, r: world_of(r) and
                   world_of(r)["verdict"] == "INCOMPLETE")
    assert world_of(report)["stragglers"] == [1]
    assert "STOPPED" in report["ranks"][1]["state"]
    assert report["fault"]
    # One that dies is seen by those who cannot say so themselves.
    ranks[2].send_signal(signal.SIGSTOP)
    ranks[1].kill()
    report = until(ranks[2], lambda code, r: r["ranks"][1]["state"] == "DEAD")
    assert world_of(report)["verdict"] == "DEAD"


def test_a_process_in_two_jobs():
    """One that has grown: both are looked at, the older one first."""
    name = (b"concord1" + uuid.uuid4().bytes).ljust(128, b"\0").hex()
    env = {key: value for key, value in os.environ.items() if not key.startswith("CONCORD_")}
    env.update(CONCORD_HEAP_BYTES="64M", CONCORD_LAUNCHER="concord")
    rank = BUILD / "bin" / "unit" / "grow-rank"
    steps = [["launched", f"grow:2:{name}", "reduce", "line"],
             [f"join:1:2:{name}", "reduce", "line"]]
    ranks = [subprocess.Popen([rank, *each], env=env, stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL) for each in steps]
    try:
        old, grown = until(ranks[0], lambda code, r: code == 0 and isinstance(r, list) and
                           world_of(r[1])["members"][1]["sequence"] > 1)
        assert old["world"] == 1 and grown["world"] == 2
        code, report = look(ranks[1])
        assert code == 0 and report["world"] == 2
        done = subprocess.run([BUILD / "bin" / "comm-doctor", "--live", str(ranks[0].pid)],
                              capture_output=True, text=True, timeout=60, check=False)
        assert "job of 1 ranks" in done.stdout and "job of 2 ranks" in done.stdout
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def test_no_job():
    # Not this process: other tests may have made jobs in it.
    with subprocess.Popen(["sleep", "60"]) as stranger:
        done = subprocess.run([BUILD / "bin" / "comm-doctor", "--live",
                               str(stranger.pid)],
                              capture_output=True, text=True, timeout=60, check=False)
        stranger.kill()
    assert done.returncode == 2
    assert "has no memory of a Concord job" in done.stderr
    done = subprocess.run([BUILD / "bin" / "comm-doctor", "--live", "job"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "give the pid" in done.stderr
