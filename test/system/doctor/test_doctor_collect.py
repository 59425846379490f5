# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The script of comm-doctor --collect-script gathers what comm-doctor reads.

Hosts are this one: an ssh that runs the command here.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import uuid

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("CONCORD_BUILD", HERE.parents[2] / "build"))

SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
shift
exec sh -c "$*"
"""
# As debuggers print; the real ones may not attach in a container.
PSTACK = """#!/bin/sh
printf 'Thread 1 (LWP %s):\\n#0  0x1 in cudaDeviceSynchronize () from libcudart.so\\n' "$1"
printf '#1  0x2 in move_expert () at place.cpp:7\\n'
"""


def test_the_evidence_of_a_job_is_gathered(tmp_path):
    """Dumps that the ranks' environment names, stacks with the rank."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("ssh", SSH), ("pstack", PSTACK)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    script = tmp_path / "collect.sh"
    script.write_text(subprocess.run(
        [BUILD / "bin" / "comm-doctor", "--collect-script"], check=True,
        capture_output=True, text=True).stdout)
    dumps = tmp_path / "dumps"
    shutil.copytree(HERE / "flight_recorder", dumps)
    pattern = "job-" + uuid.uuid4().hex
    ranks = [subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", pattern],
        env={**os.environ, "RANK": str(rank),
             "TORCH_FR_DUMP_TEMP_FILE": str(dumps / "trace_rank_")})
        for rank in range(2)]
    try:
        subprocess.run(["sh", script, tmp_path / "out", pattern, "here"],
                       env={**os.environ, "HOME": str(tmp_path),
                            "FR_GLOB": str(tmp_path / "none*"),
                            "PATH": f"{tools}:{os.environ['PATH']}"},
                       check=True, timeout=60)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    found = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {f"trace_rank_{r}.json" for r in range(4)} <= found
    assert sum("rank_0" in name and "pid" in name for name in found) == 1, found
    done = subprocess.run([BUILD / "bin" / "comm-doctor", tmp_path / "out"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "4 ranks with issue records" in done.stdout
    assert "cross-domain-cycle" in done.stdout or "host-block" in done.stdout
