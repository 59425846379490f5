# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`--comm-pipeline=opt=0` leaves the passes over communication out, and nothing else:
what is computed is the same, and so are the outputs."""

import re
from collections import Counter

import numpy as np
import pytest

import model_runs as runs

pytestmark = pytest.mark.skipif(
    not runs.built(), reason="build/bin/comm-opt and comm-run are not built")

MODELS = ("bert_tiny", "gpt2_tiny", "llama_tiny")
# What fusion takes in: it goes on inside of a comm.fused.
ABSORBED = ("layernorm", "rmsnorm")


def module(name, options):
    path = runs.scratch(f"{name}.opt.mlir")
    runs.tool("comm-opt", runs.model_path(name), "--tp", "2", *runs.dim_options(name),
              f"--comm-pipeline={options} to=ordered", "-o", path)
    with open(path, encoding="utf-8") as file:
        return file.read()


def computations(text):
    """Kernels by their descriptions, those of products inside of fused ones, too."""
    text = text.replace("\\22", "'")
    found = Counter()
    for line in text.splitlines():
        kernel = re.search(r'comm\.kernel "([^"]*)"', line)
        fused = re.search(r'comm\.fused \w+ @\w+ "([^"]*)"', line)
        if kernel:
            found[kernel.group(1)] += 1
        elif fused:
            product = re.search(r"product='([^']*)'", fused.group(1))
            if product:
                found[product.group(1)] += 1
    return found


@pytest.mark.parametrize("name", MODELS)
def test_computes_the_same(name):
    off = module(name, "opt=0")
    assert "comm.fused" not in off and "comm.start" not in off
    assert "comm.all_reduce" in off
    on = module(name, "opt=1")

    def kept(counts):
        return {text: n for text, n in counts.items()
                if not text.startswith(ABSORBED)}

    assert kept(computations(off)) == kept(computations(on))
    # The same as leaving each of them out, with every computation in its place.
    each = module(name, "simplify=false bucket=false fuse=false overlap=false")
    assert computations(each) == computations(off)
    assert each.count("linalg.generic") == off.count("linalg.generic")


@pytest.mark.parametrize("name", MODELS[:1])
def test_outputs_agree(name):
    names = [o.name for o in runs.load(name).graph.output]
    results = []
    for options in ("opt=0", "opt=1"):
        path = runs.scratch(f"{name}.{options}.so")
        runs.tool("comm-opt", runs.model_path(name), "--tp", "2",
                  *runs.dim_options(name), f"--comm-pipeline={options}", "--emit=so",
                  "-o", path)
        got, _ = runs.run(path, 2, runs.inputs(name), names, f"{name}.{options}")
        results.append(got)
    for one, other in zip(results[0].values(), results[1].values()):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
