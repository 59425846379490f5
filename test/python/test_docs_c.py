# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The C program of docs/runtime.md, compiled and run as that page says."""

import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_program_of_the_page(tmp_path):
    """Its command compiles it without a warning, and it prints what is said."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler is called cc")
    page = (ROOT / "docs" / "runtime.md").read_text()
    source = re.search(r"```c\n(.*?)```", page, re.DOTALL).group(1)
    command = re.search(r"^cc .* sums\.c .*$", page, re.MULTILINE).group(0)
    (tmp_path / "sums.c").write_text(source)
    for folder in ("runtime", "kernels", "build"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    arguments = shlex.split(command.replace("$PWD", str(tmp_path)))
    subprocess.run([*arguments, "-Wall", "-Wextra", "-Werror", "-pedantic"],
                   cwd=tmp_path, check=True)
    run = subprocess.run([tmp_path / "sums"], capture_output=True, text=True,
                         check=True, timeout=60)
    assert sorted(run.stdout.splitlines()) == ["rank 0 has 3", "rank 1 has 3"]
