# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tests' own material: models, oracles, opset variants, suite manifest."""

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

import model_runs as runs
import oracle

sys.path.insert(0, os.path.join(runs.ROOT, "test", "node_suite"))

import manifest  # noqa: E402
import run_suite  # noqa: E402


def test_models_are_what_the_generator_writes():
    done = subprocess.run([sys.executable, runs.MODELS + "/generate.py",
                           "--check"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("first,second", (
    ("bert_tiny", "bert_tiny_op13"), ("gpt2_tiny", "gpt2_gemm_tiny"),
    ("llama_tiny", "llama_tiny_op23"),
    ("mixtral_tiny", "mixtral_unrolled_tiny")))
def test_two_forms_of_a_model_compute_the_same(first, second):
    """Different operators, same weights: a check of the graphs by each other."""
    one, two = runs.expected(first)[1], runs.expected(second)[1]
    for key in one:
        np.testing.assert_allclose(one[key], two[key], rtol=1e-5, atol=1e-6)


def test_growing_and_static_cache_continue_the_prefill():
    """A prompt at once, and the same prompt token by token, end alike."""
    length = 6
    ids = np.random.RandomState(3).randint(0, 256, (1, length))
    position = np.arange(length)[None, :]
    whole = oracle.run_onnxruntime(
        runs.model_path("llama_tiny"),
        {"input_ids": ids, "attention_mask": np.ones_like(ids),
         "position_ids": position})["logits"][:, -1]
    for name, cache in (("llama_tiny_decode", 0), ("llama_tiny_static", 64)):
        state = {i.name: np.zeros((1, 4, cache, 8), np.float32)
                 for i in runs.load(name).graph.input if "past" in i.name}
        for t in range(length):
            feed = {"input_ids": ids[:, t:t + 1], **state}
            if cache:
                feed["cache_position"] = np.array([t])
            else:
                feed["position_ids"] = position[:, t:t + 1]
            out = oracle.run_onnxruntime(runs.model_path(name), feed)
            state = {k: out[k.replace("past_key_values", "present")]
                     for k in state}
        np.testing.assert_allclose(out["logits"][:, -1], whole, rtol=1e-4,
                                   atol=1e-4)


@pytest.mark.parametrize("form", ("allreduce", "nccl"))
def test_shards_of_the_mlp_sum_to_the_whole(form):
    x = runs.inputs("mlp_tiny")["x"].astype(np.float64)
    total, bias = 0.0, None
    for rank in range(2):
        model = runs.load(f"mlp_{form}_{rank}")
        p = {t.name: onnx.numpy_helper.to_array(t).astype(np.float64)
             for t in model.graph.initializer}
        hidden = np.maximum(x @ p["fc1.weight"] + p["fc1.bias"], 0.0)
        total, bias = total + hidden @ p["fc2.weight"], p["fc2.bias"]
    np.testing.assert_allclose(total + bias, runs.expected("mlp_tiny")[1]["y"],
                               rtol=1e-9, atol=1e-12)


def test_annotations_survive_serialisation():
    model = runs.load("mlp_annotated")
    assert model.ir_version == 11
    assert model.configuration[0].num_devices == 2
    annotated = [n for n in model.graph.node if n.device_configurations]
    assert [n.op_type for n in annotated] == ["MatMul", "Add", "Relu",
                                              "MatMul"]


def test_models_are_small():
    for name in os.listdir(runs.MODELS):
        if name.endswith(".onnx"):
            assert os.path.getsize(os.path.join(runs.MODELS, name)) < 400_000


def test_comparison_finds_the_worst_element():
    a = np.zeros((2, 3), np.float32)
    b = a.copy()
    b[1, 2], b[0, 1] = 0.5, 0.1
    assert "[1, 2]" in oracle.compare("y", a, b, 1e-3, 1e-3)
    assert oracle.compare("y", a, a, 0, 0) is None
    assert "shape" in oracle.compare("y", a, b[:1], 1, 1)
    b[0, 0] = np.nan
    assert "[0, 0]" in oracle.compare("y", b, a, 1, 1)


# The node suite ------------------------------------------------------------------


def test_every_left_out_case_has_a_listed_reason():
    cases = manifest.load()
    assert len(cases) > 1700
    allowed = set(manifest.CLASSES) | {"opset"}
    assert {c.excluded[0] for c in cases if c.excluded} <= allowed
    for case in cases:
        if case.excluded and case.excluded[0] == "opset":
            assert case.opset > 23 or case.opset == 0, case.name


def answers(tmp_path, body):
    """A driver that is a script, to try the runner on."""
    path = tmp_path / "driver.py"
    path.write_text("import sys, os\nfor line in sys.stdin:\n"
                    "  model, data, ranks, axis = line.split('\\t')[:4]\n"
                    + body)
    return [sys.executable, "-u", str(path)]


def jobs_of(pattern):
    import re
    cases = manifest.load(pattern=re.compile(pattern))
    return [run_suite.Job(c, "test_data_set_0", 1, "-") for c in cases
            if not c.excluded]


def test_runner_survives_a_crash_and_a_hang(tmp_path):
    driver = answers(tmp_path, """
  if '/test_add/' in model: os._exit(7)
  if '/test_add_bcast/' in model: os.kill(os.getpid(), 11)
  if '/test_add_uint8/' in model:
    import time
    time.sleep(60)
  print('PASS')
""")
    got = {o.job.case.name: o for o in run_suite.run_jobs(
        jobs_of("^test_add"), driver, 2, 2.0, False)}
    assert "exit status 7" in got["test_add"].message
    assert "signal 11" in got["test_add_bcast"].message
    assert "no answer" in got["test_add_uint8"].message
    assert {o.verdict for n, o in got.items()
            if n not in ("test_add", "test_add_bcast", "test_add_uint8")
            } == {"PASS"}


def test_runner_judges_by_the_list():
    case = jobs_of("^test_add$")[0]
    two = case._replace(ranks=2, axis="dp")
    outcome = lambda job, verdict: run_suite.Outcome(job, verdict, "")
    size = lambda groups: {k: len(v) for k, v in groups.items() if v}
    judge = run_suite.judge
    assert size(judge([outcome(case, "PASS")], {})) == {"passed": 1}
    assert size(judge([outcome(case, "FAIL")], {})) == {"failed": 1}
    assert size(judge([outcome(case, "FAIL")], {"test_add": "x"})) == {
        "known": 1}
    assert size(judge([outcome(case, "PASS")], {"test_add": "x"})) == {
        "fixed": 1}
    assert size(judge([outcome(two, "FAIL")], {"test_add@dp2": "x"})) == {
        "known": 1}
    assert size(judge([outcome(two, "PASS")], {"test_add@dp2": "x"})) == {
        "fixed": 1}
    assert size(judge([outcome(two, "SKIP")], {})) == {"unsplit": 1}
    assert size(judge([outcome(case, "SKIP")], {})) == {"failed": 1}


def test_expected_failures_need_reasons(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("# comment\ntest_add  because\n")
    assert run_suite.read_expected(path) == {"test_add": "because"}
    path.write_text("test_add\n")
    with pytest.raises(SystemExit):
        run_suite.read_expected(path)
    path.write_text("test_add a\ntest_add b\n")
    with pytest.raises(SystemExit):
        run_suite.read_expected(path)


# Opset variants ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def variants(tmp_path_factory):
    import opset_variants
    folder = str(tmp_path_factory.mktemp("variants"))
    return folder, opset_variants.generate(folder)


def test_every_version_of_every_operator_has_a_variant(variants):
    import opset_variants
    _, found = variants
    versions = opset_variants.history()
    for op in opset_variants.OPERATORS:
        assert {e["version"] for e in found.values() if e["op"] == op} == set(
            opset_variants.reachable(versions[op], 23)), op
    assert {e["oracle"] for e in found.values()} == {"onnxruntime"}


def test_variants_have_the_layout_of_the_node_tests(variants):
    folder, found = variants
    for name in found:
        data = os.path.join(folder, name, "test_data_set_0")
        model = onnx.load(os.path.join(folder, name, "model.onnx"))
        assert len(os.listdir(data)) == len(model.graph.input) + len(
            model.graph.output)


DRIVER = os.path.join(runs.BIN, "comm-node-suite")


@pytest.mark.skipif(not os.access(DRIVER, os.X_OK),
                    reason="build/bin/comm-node-suite is not built")
def test_variants_run(variants):
    """Every variant through the compiler, on one rank."""
    folder, found = variants
    jobs = [run_suite.Job(manifest.Case(
        name, os.path.join(folder, name), entry["opset"], None, [], [],
        ["test_data_set_0"]), "test_data_set_0", 1, "-")
        for name, entry in found.items()]
    outcomes = run_suite.run_jobs(jobs, [DRIVER], 2, 60.0, False)
    bad = [f"{o.job.case.name}: {o.verdict} {o.message}" for o in outcomes
           if o.verdict != "PASS"]
    assert not bad, f"{len(bad)} of {len(jobs)}:\n" + "\n".join(bad)


# What the demo and the bench read -------------------------------------------------


def test_hostile_artefacts_are_refused(tmp_path):
    path = tmp_path / "x.so"
    for data in (b"", b"text", b"\x7fELF\x02\x01" + b"\0" * 10,
                 b"\x7fELF\x02\x01" + b"\xff" * 200):
        path.write_bytes(data)
        with pytest.raises(ValueError):
            runs.artefact.elf_section(str(path), ".concord.meta")


def test_plan_summary_counts_whole_arrays():
    plan = {"domains": [{"name": "tp", "groups": [[0, 1], [2, 3]]}],
            "programs": [{"issues": [
                {"kind": "AllReduce", "dtype": "F32", "count": 10,
                 "domain": 0},
                {"kind": "all_gather", "dtype": "F16", "count": 10,
                 "domain": 0}]}]}
    one, two = runs.artefact.issues(plan)
    assert (one["kind"], one["elements"], one["bytes"]) == ("all_reduce", 10,
                                                            40)
    assert (two["kind"], two["elements"], two["bytes"]) == ("all_gather", 20,
                                                            40)
    assert runs.artefact.moved_bytes(one) == 40
