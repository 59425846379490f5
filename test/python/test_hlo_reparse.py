# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What --emit=hlo writes is read by XLA's own parser, with its control
dependences, and is otherwise the module that was read.

Needs jaxlib, in this Python or in the one that CONCORD_JAX_PYTHON names.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CONCORD_BUILD", ROOT / "build"))
PYTHON = os.environ.get("CONCORD_JAX_PYTHON", sys.executable)
SHARED = ROOT.parent / "shared" / "models"

# Prints the module as XLA understands it.
PARSE = """
import sys
try:
    from jaxlib._hlo import hlo_module_from_text
except ImportError:
    from jaxlib.xla_client import _xla
    hlo_module_from_text = _xla.hlo_module_from_text
print(hlo_module_from_text(open(sys.argv[1]).read()).to_string())
"""


def parsed(path):
    """The module as XLA prints it."""
    return subprocess.run([PYTHON, "-c", PARSE, path], capture_output=True,
                          text=True, check=True, timeout=300).stdout


@pytest.fixture(scope="module", autouse=True)
def needs_jaxlib():
    """Skips where there is no parser."""
    if subprocess.run([PYTHON, "-c", "import jaxlib"], capture_output=True,
                      check=False).returncode:
        pytest.skip("no jaxlib (CONCORD_JAX_PYTHON)")


def sources():
    """The repository's own module, and real training steps where they lie."""
    yield ROOT / "test" / "lit" / "tools" / "hlo.hlo"
    yield from sorted(SHARED.glob("*.hlo"))


@pytest.mark.parametrize("source", list(sources()), ids=lambda path: path.stem)
def test_xla_reads_what_is_written(source, tmp_path):
    """Control dependences are all that is new, and XLA sees every one."""
    written = tmp_path / "ordered.hlo"
    subprocess.run([BUILD / "bin" / "comm-opt", source, "--comm-order",
                    "--emit=hlo", "-o", written], check=True)
    control = re.compile(r", control-predecessors=\{[^}]*\}")
    # Comments of lit tests speak of them too.
    added = [found for line in written.read_text().splitlines()
             if not line.startswith("//") for found in control.findall(line)]
    assert added
    before, after = parsed(source), parsed(written)
    assert len(control.findall(after)) == len(added) + len(control.findall(before))
    # XLA prints in an order that follows control dependences too.
    assert (sorted(control.sub("", after).splitlines()) ==
            sorted(control.sub("", before).splitlines()))
