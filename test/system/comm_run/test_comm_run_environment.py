# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The list of environment variables: complete, and `comm-run --env` shows it."""

import re
import subprocess

from comm_run_support import ROOT, fixture

READ = re.compile(r'[eE]nv\w*\s*\(\s*"((?:CONCORD|XDG)_[A-Z0-9_]+)"|'
                  r'environ\.get\(\s*"(CONCORD_[A-Z0-9_]+)"|'
                  r'givenFile\([^,]*,\s*"(CONCORD_[A-Z0-9_]+)"')
ROOMS = ("runtime", "kernels", "frontends", "analysis", "passes", "dialects",
         "tools", "python")
ROW = re.compile(r'X\("([A-Z0-9_]+)", (\w+), (\w+),')


def rows():
    """Name to reader, from the header."""
    text = (ROOT / "runtime/include/concord/environment.h").read_text()
    return {match.group(1): match.group(2) for match in ROW.finditer(text)}


def test_list_is_complete():
    found = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            if path.suffix in (".cpp", ".h", ".c", ".py", ".inc"):
                for match in READ.finditer(path.read_text(errors="replace")):
                    found.add(next(filter(None, match.groups())))
    listed = set(rows())
    assert len(listed) > 12
    assert found - listed == set(), "read somewhere, and not in the list"
    assert listed - found - {"TMPDIR"} == set(), "in the list, and read nowhere"


def test_value_and_source(comm_run):
    done = comm_run("--env", CONCORD_TIMEOUT="7.5")
    table = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    assert table["CONCORD_TIMEOUT"][1:3] == ["7.5", "environment"]
    assert table["CONCORD_HEAP_BYTES"][1:3] == ["16G", "default"]
    assert "HCCL_EXEC_TIMEOUT" in table["CONCORD_TIMEOUT"]
    assert set(rows()) <= set(table)


def test_unusable_value(comm_run):
    done = comm_run("--env", code=2, CONCORD_LOG="loud", CONCORD_CONNECT_TIMEOUT="0")
    assert "CONCORD_LOG=loud is not one of off|error|warn|info|debug" in done.stderr
    assert "CONCORD_CONNECT_TIMEOUT=0 is outside its range, 0.001 to 86400" in done.stderr


def test_unknown_names_are_warned_about(comm_run):
    words = "CONCORD_TIMEOUTS is set, but nothing reads it; is CONCORD_TIMEOUT meant?"
    assert words in comm_run("--env", CONCORD_TIMEOUTS="1").stderr
    # Once by rank 0, not by each.
    assert comm_run(fixture(2), CONCORD_TIMEOUTS="1").stderr.count(words) == 1
    assert "nothing reads it" not in comm_run(fixture(2)).stderr


def test_settings_are_logged(comm_run, tmp_path):
    comm_run(fixture(2), CONCORD_LOG="info", CONCORD_LOG_FILE=tmp_path / "log.%r",
             CONCORD_TIMEOUT="33")
    for rank in range(2):
        text = (tmp_path / f"log.{rank}").read_text()
        assert f"rank {rank} info: CONCORD_ENV CONCORD_TIMEOUT set by environment to 33" in text
        assert "CONCORD_ENV CONCORD_CONNECT_TIMEOUT set by default to 120" in text


def test_heap_bytes_count(comm_run):
    """The launcher makes the heaps, so it reads what says how large they are."""
    limited = ["sh", "-c", 'ulimit -v 4000000; exec "$@"', "sh",
               *map(str, comm_run.command(fixture(2)))]
    for heap, code in (("16G", 4), ("256M", 0)):
        done = subprocess.run(limited, env=dict(comm_run.env, CONCORD_HEAP_BYTES=heap),
                              text=True, capture_output=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
    assert "(CONCORD_HEAP_BYTES)" in subprocess.run(
        limited, env=dict(comm_run.env), text=True, capture_output=True, timeout=120,
        check=False).stderr
    comm_run(fixture(2), code=4, CONCORD_HEAP_BYTES="much")
