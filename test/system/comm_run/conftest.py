# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every test here gets a comm-run with folders of its own."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import comm_run_support  # noqa: E402


@pytest.fixture
def comm_run(tmp_path):
    if not comm_run_support.BUILT:
        pytest.skip("build/bin/comm-run is not built")
    return comm_run_support.Tool(tmp_path)
