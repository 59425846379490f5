# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`comm-run --env` lists exactly the variables that the sources read."""

import re

from comm_run_support import ROOT

READ = re.compile(r'[eE]nv\w*\s*\(\s*"((?:CONCORD|XDG)_[A-Z0-9_]+)"|'
                  r'environ\.get\(\s*"(CONCORD_[A-Z0-9_]+)"')
ROOMS = ("runtime", "kernels", "frontends", "analysis", "passes", "dialects",
         "tools", "python")


def test_table_is_complete(comm_run):
    found = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            if path.suffix in (".cpp", ".h", ".c", ".py", ".inc"):
                for match in READ.finditer(path.read_text(errors="replace")):
                    found.add(match.group(1) or match.group(2))
    listed = {line.split()[0]
              for line in comm_run("--env").stdout.splitlines()[1:]}
    assert found - listed == set(), "read somewhere, and not in the table"
    assert listed - found - {"TMPDIR"} == set(), "in the table, and read nowhere"
