# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The repository's models, partitioned, executed, and compared.

Every model runs on 1, 2 and 4 ranks through comm-opt and comm-run. Errors are
judged against float64: at most four times onnxruntime's and twice one rank's,
plus 4 ulp of the largest output. Collectives are counted in the plan.
"""

import json
import re

import numpy as np
import pytest

import model_runs as runs
import oracle

pytestmark = pytest.mark.skipif(
    not runs.built(), reason="build/bin/comm-opt and comm-run are not built")

TRANSFORMERS = {"bert_tiny": 64, "bert_tiny_op13": 64, "gpt2_tiny": 64,
                "gpt2_gemm_tiny": 64, "llama_tiny": 64, "llama_tiny_op23": 64,
                "mixtral_tiny": 64, "mixtral_unrolled_tiny": 64}
LAYERS = 2
OTHERS = ("llama_tiny_decode", "llama_tiny_static", "resnet_tiny", "mlp_tiny",
          "mlp_annotated")
MESHES = ("tp=1", "tp=2", "tp=4")


def largest_error(actual, exact):
    return float(np.max(np.abs(actual.astype(np.float64) - exact), initial=0.0))


def check_outputs(name, mesh, got):
    ort, exact = runs.expected(name)
    for key, reference in ort.items():
        assert got[key].shape == reference.shape, key
        assert got[key].dtype == reference.dtype, key
        if not np.issubdtype(reference.dtype, np.floating):
            np.testing.assert_array_equal(got[key], reference, err_msg=key)
            continue
        error = largest_error(got[key], exact[key])
        ort_error = largest_error(reference, exact[key])
        one = float("inf") if mesh == "tp=1" else largest_error(
            runs.outputs(name, "tp=1")[key], exact[key])
        bound = oracle.error_bound(one, ort_error, exact[key])
        assert error <= bound, (
            f"{name} {mesh} {key}: error {error:.3e} above {bound:.3e} "
            f"(onnxruntime {ort_error:.3e}, one rank {one:.3e})\n"
            + str(oracle.compare(key, got[key], reference, 1e-5, bound)))


# Models with annotations of their own are partitioned for the device count these
# name, so they run on that many ranks only.
CASES = [(name, mesh) for name in (*TRANSFORMERS, *OTHERS) for mesh in MESHES
         if name != "mlp_annotated" or mesh == "tp=2"]


@pytest.mark.parametrize("name,mesh", CASES)
def test_equals_float64_and_onnxruntime(name, mesh):
    if mesh != "tp=1" and name == "mlp_annotated":
        got, reference = runs.outputs(name, mesh), runs.expected(name)[0]
        assert oracle.compare("y", got["y"], reference["y"], 1e-5,
                              1e-5) is None
        return
    check_outputs(name, mesh, runs.outputs(name, mesh))


@pytest.mark.parametrize("name", ("bert_tiny", "resnet_tiny"))
def test_data_parallel(name):
    check_outputs(name, "dp=2", runs.outputs(name, "dp=2"))
    assert runs.plan(name, "dp=2") == [], "inference over dp communicates"


def test_two_axes():
    check_outputs("bert_tiny", "dp=2,tp=2", runs.outputs("bert_tiny",
                                                         "dp=2,tp=2"))


def test_experts_over_three_axes():
    """Eight ranks, each with its part of the experts."""
    mesh = "dp=2,ep=2,tp=2"
    check_outputs("mixtral_tiny_static", mesh,
                  runs.outputs("mixtral_tiny_static", mesh))
    # In every layer tokens go to the owners of their experts and back.
    sent = [i for i in runs.plan("mixtral_tiny_static", mesh)
            if i["kind"] == "all_to_all" and i["domain"] == "ep"]
    assert len(sent) >= 2 * LAYERS, sent


@pytest.mark.parametrize("mesh", ("ep=2", "ep=4", "dp=2,ep=4"))
@pytest.mark.parametrize("name", ("mixtral_tiny_static", "mixtral_unrolled_tiny"))
def test_experts(name, mesh):
    """One and several experts a rank; and one exported expert by expert."""
    check_outputs(name, mesh, runs.outputs(name, mesh))
    sent = [i for i in runs.plan(name, mesh) if i["kind"] == "all_to_all"]
    assert len(sent) >= 2 * LAYERS, sent


@pytest.mark.parametrize("name", ("bert_tiny", "mixtral_tiny", "resnet_tiny"))
@pytest.mark.parametrize("mesh", ("tp=2", "tp=4"))
def test_bitwise_equal_over_runs(name, mesh):
    first, second = (runs.outputs(name, mesh, attempt) for attempt in (0, 1))
    for key, array in first.items():
        assert array.tobytes() == second[key].tobytes(), key


def collective_units(issues):
    """Collectives, a reduce-scatter with its all-gather counted as one."""
    kinds = [i["kind"] for i in issues]
    scatters, gathers = kinds.count("reduce_scatter"), kinds.count("all_gather")
    return len(kinds) - min(scatters, gathers)


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("mesh", ("tp=2", "tp=4"))
def test_two_all_reduces_a_layer(name, mesh):
    issues = runs.plan(name, mesh)
    hidden = TRANSFORMERS[name]
    tokens = runs.DIMS["batch"] * runs.DIMS["seq"]
    listing = "\n".join(f"{i['kind']} of {i['elements']} {i['dtype']} at "
                        f"{i['location']}" for i in issues)
    of_layer = [i for i in issues if i["elements"] == tokens * hidden]
    rest = [i for i in issues if i["elements"] != tokens * hidden]
    assert {i["kind"] for i in of_layer} <= {
        "all_reduce", "reduce_scatter", "all_gather"}, listing
    # Two a layer, and at most two more for the embedding and the logits.
    assert collective_units(of_layer) >= 2 * LAYERS, listing
    assert collective_units(of_layer) + collective_units(
        rest) <= 2 * LAYERS + 2, listing
    vocabulary = 256
    most = (2 * LAYERS + 1) * tokens * hidden + tokens * vocabulary
    paired = sum(i["elements"] for i in issues
                 if i["kind"] != "reduce_scatter")
    assert paired <= most, listing


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_one_rank_does_not_communicate(name):
    assert runs.plan(name, "tp=1") == []


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("mesh", ("tp=2", "tp=4"))
def test_weights_are_split(name, mesh):
    """A rank maps at most 1.10 x weights / T + 1 MiB; tiny models: no 1 MiB."""
    path = runs.compiled(name, mesh)
    meta = runs.artefact.read_meta(path)
    whole = runs.artefact.weight_bytes(
        runs.compiled(name, "tp=1"),
        runs.artefact.read_meta(runs.compiled(name, "tp=1")), 0)
    ranks = runs.world(mesh)
    for rank in range(ranks):
        part = runs.artefact.weight_bytes(path, meta, rank)
        assert part <= 1.10 * whole / ranks + 2 ** 20
        # Norm scales, biases and position tables stay whole and pages are
        # 4 KiB; the matrices do not stay whole.
        assert part <= 0.75 * whole


def test_annotations_of_ir_11_are_honoured():
    issues = runs.plan("mlp_annotated", "tp=2")
    kinds = [i["kind"] for i in issues]
    assert kinds == ["all_reduce"], kinds
    assert issues[0]["elements"] == runs.DIMS["batch"] * 32


@pytest.mark.parametrize("form", ("allreduce", "nccl"))
def test_collectives_in_the_graph(form):
    """A set of per-rank models whose collectives are operators."""
    path = runs.scratch(f"mlp_{form}.so")
    pattern = runs.model_path(f"mlp_{form}_" + "{rank}")
    extra = ["--group-type", "4=tp"] if form == "nccl" else []
    runs.tool("comm-opt", pattern, "--world", 2, "--mesh=tp=2", *extra,
              "--dim=batch=2", "--comm-pipeline", "--emit=so", "-o", path)
    arrays = runs.inputs("mlp_tiny")
    got, _ = runs.run(path, 2, arrays, ["y"], f"mlp_{form}")
    reference = runs.expected("mlp_tiny")[0]["y"]
    assert oracle.compare("y", got["y"], reference, 1e-5, 1e-5) is None


def greedy_loop(steps):
    """onnxruntime's own decode loop on the static cache."""
    import onnxruntime as ort
    session = ort.InferenceSession(runs.model_path("llama_tiny_static"),
                                   providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    feed = dict(runs.inputs("llama_tiny_static"))
    for _ in range(steps):
        out = dict(zip(names, session.run(names, feed)))
        for name in feed:
            feed[name] = out[name.replace("past_key_values", "present")
                             .replace("input_ids", "next_ids")
                             .replace("cache_position", "next_position")]
    return out


@pytest.mark.parametrize("ranks", (1, 2))
def test_decode_loop_with_bound_state(ranks):
    steps = 12
    name = "llama_tiny_static"
    states = ["--state", "input_ids=next_ids", "--state",
              "cache_position=next_position"]
    for layer in range(LAYERS):
        for part in ("key", "value"):
            states += ["--state", f"past_key_values.{layer}.{part}="
                       f"present.{layer}.{part}"]
    outputs = [o.name for o in runs.load(name).graph.output]
    got, _ = runs.run(runs.compiled(name, f"tp={ranks}"), ranks,
                      runs.inputs(name), outputs, f"decode.{ranks}", *states,
                      "--repeat", steps, "--warmup", 0)
    reference = greedy_loop(steps)
    np.testing.assert_array_equal(got["next_position"],
                                  reference["next_position"])
    np.testing.assert_array_equal(got["next_ids"], reference["next_ids"])
    np.testing.assert_allclose(got["logits"], reference["logits"], rtol=1e-4,
                               atol=1e-4)


def test_mlir_program_runs_and_is_traced(tmp_path):
    """Compiling to readable IR, then running it, with a row per rank."""
    program, trace = tmp_path / "p.mlir", tmp_path / "t.json"
    runs.tool("comm-opt", runs.model_path("bert_tiny"), "--tp", 2,
              "--dim=batch=2", "--dim=seq=8", "--comm-pipeline", "-o", program)
    # The weights are referred to, not held: 370 kB of them as text would be
    # above a megabyte.
    assert program.stat().st_size < 1_000_000
    done = runs.tool("comm-run", program, "-n", 2, "--repeat", 3, "--trace", trace,
                     "--timeout", 60)
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["pid"] for e in events if e.get("ph") == "X"} == {0, 1}
    # Predicted beside measured, for people and in the trace.
    assert "predicted against measured, us of a step; figures of " in done.stdout
    assert "3 steps of 2 ranks" in done.stdout
    for what in ("step", "computation", "exposed communication"):
        (line,) = re.findall(rf"^  {what} +([0-9.]+) +([0-9.]+)$", done.stdout, re.M)
        assert all(float(value) > 0 for value in line), what
    issues = [e for e in events if e.get("cat") == "collective"]
    assert issues and all(e["args"]["predicted_us"] > 0 and
                          e["args"]["exposed_us"] >= 0 for e in issues)
    assert all(e["args"]["predicted_us"] > 0 for e in events if e.get("cat") == "step")


def test_a_fused_collective_is_measured_against_its_prediction(tmp_path):
    """What comm-fuse decided by is there after the run."""
    apart, fused, trace = (tmp_path / name for name in ("a.mlir", "f.mlir", "t.json"))
    runs.tool("comm-opt", runs.model_path("bert_tiny"), "--tp", 2, "--dim=batch=4",
              "--dim=seq=32", "--comm-pipeline=to=decomposed", "-o", apart)
    done = runs.tool("comm-opt", apart, "--comm-fuse=force=true", "--explain", "-o", fused)
    taken = re.findall(r"explain: comm-fuse fuse .* predicted_unfused_us=([0-9.]+) "
                       r"predicted_fused_us=([0-9.]+)", done.stderr)
    assert taken
    done = runs.tool("comm-run", fused, "-n", 2, "--trace", trace, "--timeout", 60)
    (said,) = re.findall(r"(\d+) fused: predicted ([0-9.]+) us instead of ([0-9.]+) "
                         r"apart, measured ([0-9.]+)", done.stdout)
    assert int(said[0]) == len(taken)
    assert abs(float(said[1]) - sum(float(t[1]) for t in taken)) < 0.2 * len(taken)
    assert abs(float(said[2]) - sum(float(t[0]) for t in taken)) < 0.2 * len(taken)
    assert float(said[3]) > 0


def test_model_runs_in_one_go():
    """comm-run MODEL.onnx -n 2 compiles and runs, drawing inputs itself."""
    done = runs.tool("comm-run", runs.model_path("bert_tiny"), "-n", 2,
                     "--dim=batch=2", "--dim=seq=8", "--timeout", 60)
    assert "seed" in done.stdout + done.stderr
