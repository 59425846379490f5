# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A job on several hosts, where "hosts" are parts of this machine
(CONCORD_HOST_ID): all but the network is as between machines. ./run test hosts
does the same over a network."""

import os
import re
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))))
BUILD = os.environ.get("CONCORD_BUILD", os.path.join(ROOT, "build"))
RANK = os.path.join(BUILD, "bin", "unit", "hosts-rank")


def has(library):
    return (shutil.which(f"mpirun.{library}") is not None and os.path.exists(
        os.path.join(BUILD, "lib", f"libconcord_mpi_{library}.so")))


@pytest.fixture(params=["openmpi", "mpich"])
def library(request):
    if not has(request.param):
        pytest.skip(f"{request.param} is not installed (apt install "
                    f"{'openmpi-bin libopenmpi-dev' if request.param == 'openmpi' else 'mpich libmpich-dev'})")
    return request.param


def mpirun(library, *command, hosts=(2, 2), more=(), timeout=240, **env):
    """The command on ranks whose hosts are called h0, h1, ..."""
    arguments = [f"mpirun.{library}"]
    if library == "openmpi":
        arguments += ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    arguments += more
    for number, ranks in enumerate(hosts):
        if number:
            arguments.append(":")
        arguments += ["-n", str(ranks), "env", f"CONCORD_HOST_ID=h{number}", *command]
    return subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=timeout, check=False,
                          env={**os.environ, **env})


@pytest.mark.parametrize("what", ["table", "bits", "messages", "comms", "allocations"])
def test_ranks(library, what):
    result = mpirun(library, RANK, what)
    assert result.returncode == 0, result.stdout
    assert f"{what}: ok" in result.stdout
    if what == "table":
        assert "rank 1 on h0" in result.stdout and "rank 2 on h1" in result.stdout


def test_collectives(library):
    result = mpirun(library, RANK, "collectives", "quick")
    assert result.returncode == 0, result.stdout
    assert "collectives: ok" in result.stdout


def test_uneven_hosts(library):
    """Three hosts with two, one and one rank."""
    result = mpirun(library, RANK, "bits", hosts=(2, 1, 1))
    assert result.returncode == 0 and "bits: ok" in result.stdout, result.stdout
    result = mpirun(library, RANK, "messages", hosts=(1, 2))
    assert result.returncode == 0 and "messages: ok" in result.stdout, result.stdout


@pytest.mark.parametrize("what", ["mismatch", "revoke", "early"])
def test_all_are_told(library, what):
    result = mpirun(library, RANK, what)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("was told") == {"mismatch": 4, "revoke": 3, "early": 3}[what]


def test_abort_reaches_the_other_host(library):
    result = mpirun(library, RANK, "abort")
    assert result.stdout.count("rank 1 aborted the job: enough of it") >= 1, result.stdout


@pytest.mark.parametrize("victim", [0, 3])
def test_death_is_named(library, victim):
    """mpirun ends the job at once; whoever it lets speak names the rank. MPICH's
    may be faster than any survivor, and then only says that a process was killed."""
    result = mpirun(library, RANK, "death", str(victim), timeout=60)
    assert result.returncode != 0
    process = re.search(rf"rank {victim} is process (\d+)", result.stdout)[1]
    assert (f"rank {victim} (pid {process}" in result.stdout
            or f"process rank {victim} " in result.stdout
            or f"connection to rank {victim} on host" in result.stdout
            or library == "mpich" and "Killed (signal 9)" in result.stdout), result.stdout


def test_survivors_go_on():
    """Where mpirun lets them: all see the same death and shrink."""
    if not has("openmpi"):
        pytest.skip("Open MPI is not installed")
    result = mpirun("openmpi", RANK, "death", "3", more=["--enable-recovery"],
                    timeout=60, HOSTS_SHRINK="1")
    assert result.stdout.count("CONCORD_ERROR_PEER_DIED") == 3, result.stdout
    assert result.stdout.count("goes on with 3") == 3, result.stdout


def test_the_wrong_library_is_named(library):
    other = {"openmpi": "mpich", "mpich": "openmpi"}[library]
    if not has(other):
        pytest.skip("only one MPI is installed")
    result = mpirun(library, RANK, "table", CONCORD_MPI=other)
    assert result.returncode != 0
    assert "set CONCORD_MPI to the right one" in result.stdout, result.stdout


def test_a_missing_module_is_named(library, tmp_path):
    """The library where its modules are not."""
    shutil.copy(os.path.realpath(os.path.join(BUILD, "lib", "libconcord.so")),
                tmp_path / "libconcord.so.0")
    result = mpirun(library, RANK, "table", LD_LIBRARY_PATH=str(tmp_path),
                    LD_PRELOAD=str(tmp_path / "libconcord.so.0"))
    assert result.returncode != 0
    assert "apt install" in result.stdout, result.stdout
    assert f"libconcord_mpi_{library}.so is not there" in result.stdout, result.stdout


def test_torchrun_has_no_transport():
    environment = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                   "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": "29500"}
    result = subprocess.run([RANK, "table"], env={**os.environ, **environment},
                            stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert result.returncode == 3
    assert "torchrun started 2 ranks on several hosts" in result.stderr
    assert "start the ranks with mpirun" in result.stderr
