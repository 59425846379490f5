# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks of other launchers, and what happens when one of them fails.

The ranks are processes without a common memory file: they meet as those of
torchrun and mpirun do. Deadlines are ten times the promise.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import time
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("CONCORD_BUILD", ROOT / "build"))
RANK = BUILD / "bin" / "unit" / "fault-rank"
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
              "reduce", "gather", "scatter", "permute", "p2p", "barrier"]
OK, SYSTEM, TIMEOUT, DIED, BROKEN, ABORTED = 0, 44, 45, 46, 49, 51
WRONG_WORLD, TAKEN, INVALID, MAPPING = 55, 59, 41, 66


def clean_environment(**more):
    """Without what another launcher around the tests may have set."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("CONCORD_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC"))
           and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")}
    env.update(CONCORD_TIMEOUT="15", CONCORD_CONNECT_TIMEOUT="15",
               CONCORD_HEAP_BYTES="64M")
    env.update({name: str(value) for name, value in more.items()})
    return env


class Job:
    """Ranks with the environment that torchrun would give them."""

    def __init__(self, world, *arguments, only=None, job=None, per_rank=None, **env):
        self.name = job or uuid.uuid4().hex
        self.processes = {}
        for rank in only if only is not None else range(world):
            own = dict(RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=world,
                       MASTER_ADDR="localhost", MASTER_PORT="29500",
                       TORCHELASTIC_RUN_ID=self.name)
            own.update(env)
            own.update((per_rank or {}).get(rank, {}))
            self.processes[rank] = subprocess.Popen(
                [RANK, *map(str, arguments)], env=clean_environment(**own),
                stderr=subprocess.PIPE, text=True)
        self.began = time.monotonic()

    def wait(self, *stopped, seconds=60):
        """Exit codes and words per rank; stopped ones are let go at the end."""
        codes, words = {}, {}
        try:
            for rank, process in self.processes.items():
                if rank not in stopped:
                    _, words[rank] = process.communicate(timeout=seconds)
                    codes[rank] = process.returncode
            self.seconds = time.monotonic() - self.began
            for rank in stopped:
                self.processes[rank].send_signal(signal.SIGCONT)
                _, words[rank] = self.processes[rank].communicate(timeout=seconds)
                codes[rank] = self.processes[rank].returncode
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
        return codes, words


def test_torchrun_ranks_meet():
    codes, words = Job(3, "none", 0).wait()
    assert codes == {0: OK, 1: OK, 2: OK}, words


def test_restart_is_another_job():
    first = Job(2, "none", 0, job="same")
    second = Job(2, "none", 0, job="same", TORCHELASTIC_RESTART_COUNT=1)
    assert first.wait()[0] == second.wait()[0] == {0: OK, 1: OK}


@pytest.mark.parametrize("launcher", [
    ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"],
    ["mpirun.mpich", "-n", "2"]])
def test_mpirun_ranks_meet(launcher):
    if not shutil.which(launcher[0]):
        pytest.skip(f"{launcher[0]} is not installed")
    done = subprocess.run([*launcher, RANK, "none", "0"], capture_output=True, text=True,
                          env=clean_environment(CONCORD_LOG="info"), timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "rank 1 of 2 by " + launcher[0].split(".")[1] in done.stderr


def test_srun_ranks_meet():
    own = {rank: dict(SLURM_PROCID=rank, SLURM_LOCALID=rank) for rank in range(2)}
    job = Job(2, "none", 0, per_rank=own, CONCORD_LAUNCHER="slurm", SLURM_STEP_NUM_TASKS=2,
              SLURM_STEP_NUM_NODES=1, SLURM_JOB_ID=uuid.uuid4().int % 10**9, SLURM_STEP_ID=0)
    assert job.wait()[0] == {0: OK, 1: OK}


def test_rank_table_brings_up(tmp_path):
    table = tmp_path / "table.json"
    table.write_text('{"version":"1.0","status":"completed","server_count":"1",'
                     '"server_list":[{"server_id":"%s","device":['
                     '{"device_id":"4","rank_id":"0"},{"device_id":"5","rank_id":"1"}]}]}'
                     % uuid.uuid4())
    own = {rank: dict(CONCORD_RANK=rank) for rank in range(2)}
    env = dict(CONCORD_LAUNCHER="concord", CONCORD_RANK_TABLE=table)
    codes, words = Job(2, "none", 0, per_rank=own, **env).wait()
    assert codes == {0: OK, 1: OK}, words
    # Ranks counted by physical number under a list of visible ones.
    codes, words = Job(2, "none", 0, per_rank=own, CONCORD_VISIBLE_DEVICES="5,4", **env).wait()
    assert MAPPING in codes.values()
    assert "the rank table gives it physical device" in words[0] + words[1]
    # Two ranks on one device.
    env.pop("CONCORD_RANK_TABLE")
    codes, words = Job(2, "none", 0, CONCORD_VISIBLE_DEVICES="4").wait()
    assert codes == {0: MAPPING, 1: MAPPING}
    assert "ranks 0 and 1 both use physical device 4" in words[1]


def test_missing_rank_is_named():
    codes, words = Job(3, "none", 0, only=[0, 2], CONCORD_CONNECT_TIMEOUT="0.5").wait()
    assert codes == {0: TIMEOUT, 2: TIMEOUT}
    assert "for rank(s) 1 to join" in words[0] and "for rank(s) 1 to join" in words[2]


def test_leader_missing_or_stale_id():
    job = Job(2, "none", 0, only=[1], CONCORD_CONNECT_TIMEOUT="0.5")
    codes, words = job.wait()
    assert codes == {1: TIMEOUT} and job.seconds < 10
    assert "a stale id" in words[1]


def test_duplicate_rank_is_refused():
    # The ranks of the job wait for rank 2 while a second rank 1 comes.
    job = Job(3, "none", 0, only=[0, 1])
    time.sleep(0.3)
    codes, words = Job(3, "none", 0, only=[1], job=job.name).wait()
    assert codes == {1: TAKEN}
    assert "rank 1 is already taken by process" in words[1]
    codes, words = Job(3, "none", 0, only=[0], job=job.name).wait()
    assert codes == {0: TAKEN}
    last = Job(3, "none", 0, only=[2], job=job.name)
    assert last.wait()[0] == {2: OK}
    assert job.wait()[0] == {0: OK, 1: OK}


def test_worlds_differ():
    other = {1: dict(WORLD_SIZE=3, LOCAL_WORLD_SIZE=3)}
    codes, words = Job(2, "none", 0, per_rank=other).wait()
    assert codes == {0: WRONG_WORLD, 1: WRONG_WORLD}
    assert "wants a job of 3 ranks, rank 0 one of 2" in words[0]


def test_death_before_all_have_joined():
    job = Job(3, "none", 0, only=[0, 1])
    time.sleep(0.3)
    job.processes[1].kill()
    codes, words = job.wait()
    assert codes[0] == DIED and job.seconds < 10
    assert "rank 1" in words[0] and "died before all ranks had joined" in words[0]


@pytest.mark.parametrize("point", ["kill", "mid-kill", "kill-large", "mid-kill-large"])
def test_killed_in_every_collective(point):
    """SIGKILL before an operation, and somewhere inside one; short and long ones."""
    jobs = {operation: Job(3, point, 1, operation) for operation in OPERATIONS}
    for operation, job in jobs.items():
        codes, words = job.wait()
        assert codes[1] == -signal.SIGKILL
        for rank in (0, 2):
            assert codes[rank] in (DIED, BROKEN), (operation, codes, words)
            assert "rank 1" in words[rank], (operation, words)
        assert DIED in codes.values()


@pytest.mark.parametrize("point", ["stop", "mid-stop", "stop-large", "mid-stop-large"])
def test_stopped_in_every_collective(point):
    """SIGSTOP is an error after CONCORD_TIMEOUT, and the late one learns of it."""
    jobs = {operation: Job(2, point, 1, operation, CONCORD_TIMEOUT="0.5")
            for operation in OPERATIONS}
    for operation, job in jobs.items():
        codes, words = job.wait(1)
        assert codes[0] == TIMEOUT, (operation, codes, words)
        assert "rank 1 is stopped" in words[0], (operation, words)
        # It must not go on as if nothing had been.
        assert codes[1] in (BROKEN, DIED, TIMEOUT, 47), (operation, codes, words)


@pytest.mark.parametrize("mode", ["abort-thread", "abort-exit"])
def test_abort_from_another_thread(mode):
    """Also where who aborts, and those who learn of it, are gone at once."""
    for _ in range(4):
        codes, words = Job(4, mode, 1).wait()
        assert set(codes.values()) == {ABORTED}, (codes, words)
        for rank in (0, 2, 3):
            assert "rank 1 aborted the job: the watch said so" in words[rank]


def test_one_more_dies_while_they_shrink():
    for _ in range(8):
        codes, words = Job(4, "shrink", 1, "all_reduce").wait()
        assert codes[1] == codes[2] == -signal.SIGKILL, (codes, words)
        assert codes[0] == codes[3] == OK, (codes, words)


def test_fork_does_not_speak_for_the_rank():
    assert Job(2, "fork", 1).wait()[0] == {0: OK, 1: OK}


@pytest.mark.parametrize("mode,words", [
    ("descriptors", "Too many open files"),
    ("address-space", "Cannot allocate memory")])
def test_exhausted_limits_are_named(mode, words):
    job = Job(2, mode, 1, CONCORD_CONNECT_TIMEOUT="1", CONCORD_HEAP_BYTES="1G")
    codes, texts = job.wait()
    assert codes[1] == SYSTEM, (codes, texts)
    assert words in texts[1]
    assert codes[0] in (TIMEOUT, DIED) and "rank" in texts[0]


def test_full_shared_memory_does_not_matter():
    """The job's memory has no name, so /dev/shm may be full."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare")
    script = ("mount -t tmpfs -o size=4k tmpfs /dev/shm && "
              "head -c 4096 /dev/zero > /dev/shm/full; exec \"$@\"")
    env = dict(RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, MASTER_ADDR="x", MASTER_PORT="1")
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", RANK, "none", "0"],
                          env=clean_environment(**env), capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_left():
    # The node suite, which may have been stopped, has its models there.
    assert not [name for name in os.listdir("/dev/shm")
                if name.startswith("concord-") and not name.startswith("concord-nodes-")]
    with open("/proc/net/unix", encoding="utf-8") as file:
        names = file.read()
    job = Job(2, "none", 0)
    assert job.wait()[0] == {0: OK, 1: OK}
    with open("/proc/net/unix", encoding="utf-8") as file:
        assert file.read().count("@concord/") <= names.count("@concord/")
