# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A job on several hosts, where "hosts" are parts of this machine
(CONCORD_HOST_ID): all but the network is as between machines. ./run test hosts
does the same over a network."""

import json
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


KINDS = {"all_reduce": ("direct", "pairwise", "ring", "recursive", "halving"),
         "reduce_scatter": ("direct", "pairwise", "ring", "halving"),
         "all_gather": ("direct", "pairwise", "ring", "recursive"),
         "broadcast": ("direct", "pairwise", "ring", "tree"),
         "reduce": ("direct", "pairwise", "ring", "tree")}
FORMS = ("direct", "pairwise", "ring", "recursive", "halving", "tree")


def asks(form):
    """CONCORD_ALGORITHM for a form, of all kinds that have it."""
    return ";".join(f"{kind}:0-inf:{form}" for kind, forms in KINDS.items()
                    if form in forms)


def runs(library, *command, hosts, **env):
    result = mpirun(library, RANK, *command, hosts=hosts, **env)
    assert result.returncode == 0, result.stdout
    assert f"{command[0]}: ok" in result.stdout, result.stdout


def test_collectives(library):
    runs(library, "collectives", "quick", hosts=(2, 2))


@pytest.mark.parametrize("hosts", [(2, 1, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("form", FORMS)
def test_collectives_by_every_form(form, hosts):
    """Every kind, type, size and layout against a reference."""
    library = "openmpi" if has("openmpi") else "mpich"
    if not has(library):
        pytest.skip("no MPI is installed")
    runs(library, "collectives", "quick", hosts=hosts, CONCORD_ALGORITHM=asks(form))


def test_uneven_hosts(library):
    runs(library, "bits", hosts=(2, 1, 1))
    runs(library, "collectives", "quick", hosts=(1, 3))
    runs(library, "collectives", "quick", hosts=(1, 2, 2))
    runs(library, "messages", hosts=(1, 2))


@pytest.mark.parametrize("form", ("direct", "pairwise", "ring", "recursive", "halving"))
def test_bits_of_every_form(library, form):
    """The same at all ranks and twice; of direct and pairwise those of the documented
    order."""
    for hosts in ((2, 2), (2, 1, 1)) if form != "recursive" else ((1, 1, 1, 1),):
        runs(library, "bits", hosts=hosts, CONCORD_ALGORITHM=f"all_reduce:0-inf:{form}")


@pytest.mark.parametrize("kind, size, link, form", [
    ("all_reduce", 64, "30us,10gbit", "flat"),
    ("all_reduce", 1 << 16, "100us,50gbit", "recursive"),
    ("all_reduce", 1 << 23, "30us,1gbit", "direct"),  # pairwise, of one member each
    ("broadcast", 1 << 16, "30us,10gbit", "tree"),
    ("broadcast", 1 << 23, "30us,1gbit", "ring"),
])
def test_the_form_follows_the_link(kind, size, link, form):
    if not has("openmpi"):
        pytest.skip("Open MPI is not installed")
    result = mpirun("openmpi", RANK, "form", kind, str(size), form, hosts=(1, 1, 1, 1),
                    CONCORD_LINK=link)
    assert result.returncode == 0, result.stdout
    assert f" B: {form} (" in result.stdout
    assert ("by CONCORD_LINK" in result.stdout) == (form != "flat"), result.stdout


@pytest.mark.parametrize("variable, value, words", [
    ("CONCORD_ALGORITHM", "all_gather:0-inf:tree",
     "all_gather has no form 'tree'; between hosts it has pairwise, ring, recursive"),
    ("CONCORD_ALGORITHM", "all_to_all:0-inf:ring", "all_to_all has no form 'ring'"),
    ("CONCORD_LINK", "30us", "'30us' is not LATENCY,RATE"),
])
def test_what_cannot_be_is_refused(variable, value, words):
    if not has("openmpi"):
        pytest.skip("Open MPI is not installed")
    result = mpirun("openmpi", RANK, "table", hosts=(1, 1), **{variable: value})
    assert result.returncode != 0 and words in result.stdout, result.stdout


@pytest.mark.parametrize("what, told", [("mismatch", 4), ("revoke", 3), ("early", 3),
                                        ("fused", 4)])
def test_all_are_told(library, what, told):
    result = mpirun(library, RANK, what)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("was told") == told, result.stdout


def test_abort_reaches_the_other_host(library):
    result = mpirun(library, RANK, "abort")
    assert result.stdout.count("rank 1 aborted the job: enough of it") >= 1, result.stdout


@pytest.mark.parametrize("victim", [0, 3])
def test_death_is_named(library, victim):
    """mpirun ends the job at once; whoever it lets speak names the rank. MPICH's
    may be faster than any survivor, and then only says that a process was killed; and
    now and then it returns 0 when the survivors were faster."""
    result = mpirun(library, RANK, "death", str(victim), timeout=60)
    assert result.returncode != 0 or library == "mpich"
    process = re.search(rf"rank {victim} is process (\d+)", result.stdout)[1]
    assert (f"rank {victim} (pid {process}" in result.stdout
            or f"process rank {victim} " in result.stdout
            or f"connection to rank {victim} on host" in result.stdout
            or library == "mpich" and "Killed (signal 9)" in result.stdout), result.stdout


@pytest.mark.parametrize("kind, form, victim", [
    ("all_reduce", "ring", 1), ("all_reduce", "recursive", 2), ("all_reduce", "halving", 3),
    ("all_reduce", "pairwise", 0), ("all_gather", "ring", 2), ("reduce_scatter", "ring", 3),
    ("broadcast", "tree", 0), ("reduce", "tree", 3), ("barrier", "", 2)])
def test_survivors_go_on(kind, form, victim):
    """A death in the middle of each form; where mpirun lets them, all others see it and
    shrink."""
    if not has("openmpi"):
        pytest.skip("Open MPI is not installed")
    result = mpirun("openmpi", RANK, "death", str(victim), kind, hosts=(2, 1, 1),
                    more=["--enable-recovery"], timeout=60, HOSTS_SHRINK="1",
                    CONCORD_ALGORITHM=f"{kind}:0-inf:{form}" if form else "")
    assert result.stdout.count("CONCORD_ERROR_PEER_DIED") == 3, result.stdout
    assert result.stdout.count("goes on with 3") == 3, result.stdout


@pytest.mark.parametrize("victim", [0, 1, 3])
def test_a_stopped_rank_is_named(victim):
    """On whichever host, leader or not; each of the others names it."""
    if not has("openmpi"):
        pytest.skip("Open MPI is not installed")
    result = mpirun("openmpi", RANK, "stopped", str(victim), hosts=(2, 1, 1),
                    more=["--enable-recovery"], timeout=60, CONCORD_TIMEOUT="2")
    assert result.stdout.count("was told") == 3, result.stdout


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


#===----------------------------------------------------------------------===#
# comm-run, once per rank
#===----------------------------------------------------------------------===#

COMM_RUN = os.path.join(BUILD, "bin", "comm-run")
MODELS = os.path.join(ROOT, "test", "models")
needs_compiler = pytest.mark.skipif(
    not os.path.exists(os.path.join(BUILD, "bin", "comm-opt")),
    reason="comm-opt is not built")


def alone(*arguments, **env):
    result = subprocess.run([COMM_RUN, *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=240,
                            check=False, env={**os.environ, **env})
    assert result.returncode == 0, result.stdout


@needs_compiler
@pytest.mark.parametrize("mesh", [["--dp", "2", "--tp", "2"], ["--tp", "4"]])
def test_a_model_across_hosts_equals_one_rank(library, mesh, tmp_path):
    """dp between hosts and tp within, where fused kernels may stay; and tp over
    all, without them."""
    model = os.path.join(MODELS, "bert_tiny.onnx")
    sizes = ["--dim", "batch=4", "--dim", "seq=16"]
    env = {"CONCORD_CACHE_DIR": str(tmp_path / "cache")}
    alone(model, "-n", "1", *sizes, "--output-dir", str(tmp_path / "one"), **env)
    more = [] if "--dp" in mesh else ["--comm-pipeline=fuse=false"]
    result = mpirun(library, COMM_RUN, model, *mesh, *more, *sizes, "--expect",
                    str(tmp_path / "one"), "--output-dir", str(tmp_path / "four"),
                    "--repeat", "2", "--trace", str(tmp_path / "trace.json"), "--json",
                    str(tmp_path / "report.json"), **env)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("ok: max abs err") == 2, result.stdout
    # One of four speaks.
    assert result.stdout.count("output last_hidden_state") == 1
    with open(tmp_path / "report.json", encoding="utf-8") as stream:
        report = json.load(stream)
    assert report["world"] == 4 and len(report["ranks"]) == 4
    with open(tmp_path / "trace.json", encoding="utf-8") as stream:
        pids = {event["pid"] for event in json.load(stream)["traceEvents"]}
    assert pids == {0, 1, 2, 3}


@needs_compiler
def test_a_model_on_one_host_by_mpirun(library, tmp_path):
    """Without CONCORD_HOST_ID mpirun's ranks share memory, and no MPI is used."""
    model = os.path.join(MODELS, "mlp_tiny.onnx")
    env = {"CONCORD_CACHE_DIR": str(tmp_path / "cache")}
    alone(model, "-n", "1", "--dim", "batch=8", "--output-dir", str(tmp_path / "one"),
          **env)
    arguments = [f"mpirun.{library}"]
    if library == "openmpi":
        arguments += ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    result = subprocess.run(
        arguments + ["-n", "2", COMM_RUN, model, "--dim", "batch=8", "--expect",
                     str(tmp_path / "one")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
        check=False, env={**os.environ, **env})
    assert result.returncode == 0, result.stdout
    assert "ok: max abs err" in result.stdout


@needs_compiler
@pytest.mark.parametrize("hosts", [(2, 2), (4,)])
def test_health_is_a_slot_of_a_program_under_mpirun(library, hosts, tmp_path):
    """Several issuers on a rank, between hosts: certified order, outputs and statistics
    of all ranks at the one that speaks, and the same output as from comm-run."""
    program, report = os.path.join(ROOT, "test", "hosts", "step.mlir"), tmp_path / "r.json"
    env = {"CONCORD_CACHE_DIR": str(tmp_path / "cache")}
    alone(program, "--output-dir", str(tmp_path / "alone"), **env)
    call = (COMM_RUN, program, "--health", "--repeat", "30", "--json", str(report),
            "--expect", str(tmp_path / "alone"), "--rtol", "0", "--atol", "0")
    result = mpirun(library, *call, hosts=hosts, **env)
    assert result.returncode == 0, result.stdout
    assert "stored as the baseline" in result.stdout
    name = r"health-.*-4-slot-2-hosts\.json" if len(hosts) > 1 else r"health-.*-4-slot\.json"
    stored = [path for path in (tmp_path / "cache").iterdir() if re.fullmatch(name, path.name)]
    assert len(stored) == 1, list((tmp_path / "cache").iterdir())
    found = json.loads(report.read_text())
    base = json.loads(stored[0].read_text())
    assert found["health"]["latency_us"] == base["latency_us"] > 0
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    for rank in found["ranks"]:
        assert 0 < rank["issuers"]["health_program"] <= 31
        assert rank["issuers"]["step_program"] == 31
    # It has become slow: the exit status says so.
    stored[0].write_text(json.dumps(dict(base, large_us=base["large_us"] / 1e5)))
    result = mpirun(library, *call, "--tolerance", "900", hosts=hosts, **env)
    assert result.returncode != 0 and "DEGRADED" in result.stdout, result.stdout


@needs_compiler
def test_wrong_numbers_of_ranks_are_named(tmp_path):
    if not has("openmpi"):
        pytest.skip("Open MPI is not installed")
    result = mpirun("openmpi", COMM_RUN, os.path.join(MODELS, "mlp_tiny.onnx"), "--tp",
                    "2", CONCORD_CACHE_DIR=str(tmp_path / "cache"))
    assert result.returncode != 0
    assert "the mesh on the command line has 2 ranks, but openmpi started 4" in result.stdout
