# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bounded dimensions: one program for all sizes within `--dim NAME=MIN..MAX`."""

import functools
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import model_runs
import oracle

os.environ.setdefault(
    "CONCORD_LIBRARY",
    os.path.join(os.path.dirname(model_runs.BIN), "lib", "libconcord.so"))
sys.path[:0] = [os.path.join(model_runs.ROOT, "python")]

import concord  # noqa: E402
from concord import _elf  # noqa: E402

pytestmark = pytest.mark.skipif(not model_runs.built(),
                                reason="comm-opt is not built")

# Model -> (mesh, bounds, sizes to run at). The first and the last size are the
# least and the greatest.
CASES = {
    "bert_tiny": (
        ("tp=1", "tp=2"), {"batch": (1, 3), "seq": (1, 32)},
        [(1, 1), (1, 13), (3, 1), (2, 7), (3, 32)]),
    "gpt2_tiny": (
        ("tp=1", "tp=2"), {"seq": (1, 32)}, [(1,), (2,), (31,), (32,)]),
    "llama_tiny": (
        ("tp=2",), {"batch": (1, 2), "seq": (1, 24)},
        [(1, 1), (2, 3), (1, 24), (2, 24)]),
    "resnet_tiny": (
        ("tp=2",), {"batch": (1, 4)}, [(1,), (3,), (4,)]),
}
FIXED = {"batch": 2}


def compiled(path, mesh, bounds, fixed, label):
    return model_runs.tool(
        "comm-opt", path, f"--mesh={mesh}",
        *(f"--dim={k}={low}..{high}" for k, (low, high) in bounds.items()),
        *(f"--dim={k}={v}" for k, v in fixed.items()),
        "--emit=so", "-o", label) and label


@functools.lru_cache(maxsize=None)
def program(name, mesh):
    _, bounds, _ = CASES[name]
    symbols = model_runs.symbols(name)
    fixed = {k: FIXED.get(k, v) for k, v in symbols.items() if k not in bounds}
    return compiled(model_runs.model_path(name), mesh, bounds, fixed,
                    model_runs.scratch(f"bounded.{name}.{mesh}.so"))


def close(got, want, label):
    for name, array in want.items():
        assert got[name].shape == array.shape, (label, name)
        np.testing.assert_allclose(got[name], array, rtol=2e-3, atol=2e-5,
                                   err_msg=f"{label}: {name}")


@pytest.mark.parametrize("name,mesh", [
    (name, mesh) for name, case in CASES.items() for mesh in case[0]])
def test_every_size_equals_onnxruntime(name, mesh):
    _, bounds, sizes = CASES[name]
    path = program(name, mesh)
    for point in sizes:
        dims = dict(model_runs.symbols(name), **FIXED)
        dims.update(zip(bounds, point))
        inputs = oracle.make_inputs(model_runs.load(name), dims, seed=sum(point))
        want = oracle.run_onnxruntime(model_runs.model_path(name), inputs)
        close(concord.run(path, inputs), want, f"{name} {mesh} {point}")


def test_metadata_hold_bounds():
    meta = _elf.read_meta(program("bert_tiny", "tp=2"))
    assert meta["dims"] == [{"name": "batch", "min": 1, "max": 3},
                            {"name": "seq", "min": 1, "max": 32}]
    ids = meta["inputs"][0]
    assert ids["shape"] == [3, 32]
    assert ids["dims"] == [["1", "3"], ["1", "32"]]
    assert ids["extents"] == ["d0", "d1"]


def test_sizes_change_within_one_loaded_program():
    """Shapes are bound between steps; the arena stays, and going back to sizes
    that were run before gives the same bits."""
    path = program("bert_tiny", "tp=1")
    model = model_runs.load("bert_tiny")
    with concord.Job(1) as job, concord.Context(job, 0) as context:
        loaded = context.load(path)
        assert loaded.dims == {"batch": (1, 3), "seq": (1, 32)}
        results = {}
        for point in [(1, 9), (3, 32), (1, 9), (2, 1), (3, 32)]:
            inputs = oracle.make_inputs(model, dict(zip(loaded.dims, point)))
            got = loaded.run(inputs)
            assert loaded.sizes() == dict(zip(loaded.dims, point))
            if point in results:
                for key, array in got.items():
                    assert array.tobytes() == results[point][key].tobytes()
            results[point] = got
            close(got, oracle.run_onnxruntime(
                model_runs.model_path("bert_tiny"), inputs), str(point))


def test_out_of_bounds_names_input_dimension_and_bounds():
    path = program("bert_tiny", "tp=1")
    ids = np.zeros((1, 33), np.int64)
    with pytest.raises(concord.ConcordError) as error:
        concord.run(path, {"input_ids": ids})
    assert ("input 'input_ids': dimension 1 (seq) is 33, but the program was "
            "compiled for seq=1..32") in str(error.value)
    with pytest.raises(concord.ConcordError) as error:
        concord.run(path, {"input_ids": ids[:, :5],
                           "attention_mask": ids[:, :6]})
    assert re.search(r"input '\w+' has shape \[1,\d\], but the shapes of the "
                     r"other inputs ask for \[1,\d\]", str(error.value))
    file = model_runs.scratch("bounded.ids.npy")
    np.save(file, ids)
    done = model_runs.tool("comm-run", path, "--input", f"input_ids={file}",
                           ok=False)
    assert done.returncode == 2
    assert ("dimension 1, seq is 33, but the program was compiled for "
            "seq=1..32") in done.stderr


def test_comm_run_takes_sizes_from_files_and_options():
    path = program("bert_tiny", "tp=2")
    names = [o.name for o in model_runs.load("bert_tiny").graph.output]
    inputs = oracle.make_inputs(model_runs.load("bert_tiny"),
                                {"batch": 2, "seq": 11})
    got, _ = model_runs.run(path, 2, inputs, names, "bounded.run", "--repeat", 3)
    close(got, oracle.run_onnxruntime(model_runs.model_path("bert_tiny"),
                                      inputs), "comm-run")
    done = model_runs.tool("comm-run", path, "--dim", "seq=5", "--dim=batch=1")
    assert "batch=1 (--dim batch), seq=5 (--dim seq)" in done.stderr
    done = model_runs.tool("comm-run", path, "--dim", "seq=99", ok=False)
    assert "--dim seq: seq is 99" in done.stderr


def decode_inputs(step, past):
    random = np.random.RandomState(step)
    return dict(past, input_ids=random.randint(0, 200, (1, 1)),
                position_ids=np.array([[step]]))


@functools.lru_cache(maxsize=None)
def decoder(mesh):
    return compiled(model_runs.model_path("llama_tiny_decode"), mesh,
                    {"past": (0, 20)}, {"batch": 1},
                    model_runs.scratch(f"bounded.decode.{mesh}.so"))


STATES = {f"past_key_values.{i}.{k}": f"present.{i}.{k}"
          for i in range(2) for k in ("key", "value")}


def test_a_state_grows_from_nothing():
    """In one process: the state's buffer goes from output to input, without a
    copy, and its size with it."""
    want = {name: np.zeros((1, 4, 0, 8), np.float32) for name in STATES}
    expected = []
    for step in range(6):
        outputs = oracle.run_onnxruntime(
            model_runs.model_path("llama_tiny_decode"),
            decode_inputs(step, want))
        expected.append(outputs)
        want = {i: outputs[o] for i, o in STATES.items()}
    with concord.Job(1) as job, concord.Context(job, 0) as context:
        loaded = context.load(decoder("tp=1"))
        for source, target in STATES.items():
            loaded.bind_state(source, target)
        loaded.bind_shapes({name: (1, 4, 0, 8) for name in STATES})
        for step in range(6):
            inputs = decode_inputs(step, {})
            got = loaded.run(inputs)
            assert loaded.sizes() == {"past": step}
            close(got, expected[step], f"step {step}")
        # And to its end: 20 is the largest.
        for step in range(6, 21):
            loaded.run(decode_inputs(step, {}))
        with pytest.raises(concord.ConcordError) as error:
            loaded.step()
        assert "is 21, but the program was compiled for past=0..20" in str(
            error.value)


def test_comm_run_decodes():
    steps = 5
    want = {name: np.zeros((1, 4, 0, 8), np.float32) for name in STATES}
    inputs = decode_inputs(3, {})
    for _ in range(steps):
        outputs = oracle.run_onnxruntime(
            model_runs.model_path("llama_tiny_decode"), dict(inputs, **want))
        want = {i: outputs[o] for i, o in STATES.items()}
    names = [o.name for o in model_runs.load("llama_tiny_decode").graph.output]
    states = [f"--state={i}={o}" for i, o in STATES.items()]
    got, _ = model_runs.run(decoder("tp=2"), 2, inputs, names, "bounded.decode",
                            *states, "--repeat", steps)
    close(got, outputs, "comm-run --state")
    done = model_runs.tool("comm-run", decoder("tp=2"), *states, "--repeat",
                           22, ok=False)
    assert "for step 22 of 22: dimension 2, past is 21, but" in done.stderr


@pytest.mark.parametrize("decode", [False, True])
def test_steps_take_no_memory(decode, tmp_path):
    """At a size that is not the maximum, and while a state grows: what a new size
    needs is made between steps."""
    counter = os.path.join(os.path.dirname(model_runs.BIN), "lib",
                           "libconcord_memcount.so")
    environment = {**os.environ, "LD_PRELOAD": counter,
                   "CONCORD_MEMCOUNT_FILE": str(tmp_path / "count")}
    if decode:
        command = [decoder("tp=2"), *(f"--state={i}={o}"
                                      for i, o in STATES.items())]
    else:
        command = [program("bert_tiny", "tp=2"), "--dim=seq=13", "--dim=batch=2"]
    done = subprocess.run(
        [os.path.join(model_runs.BIN, "comm-run"), *command, "--repeat", "20"],
        env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        counts = dict(re.findall(
            r"(\w+) (\d+)", (tmp_path / f"count.{rank}").read_text("utf-8")))
        faults = counts.pop("minor_faults")
        assert counts and faults.isdigit()
        assert not {k: v for k, v in counts.items() if int(v)}, counts


def small_model(nodes, inputs, outputs, constants=()):
    model = helper.make_model(
        helper.make_graph(nodes, "small", inputs, outputs, list(constants)),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model


def saved(model, label):
    path = model_runs.scratch(label + ".onnx")
    onnx.save(model, path)
    return path


def test_what_sizes_decide_is_computed():
    """A causal mask that an exporter spells out, a slice of a table, a mean over
    the bounded dimension, a division by a size: not folded for one size."""
    table = numpy_helper.from_array(
        np.arange(512, dtype=np.float32).reshape(128, 4) / 64, "table")

    def scalar(name, value):
        return numpy_helper.from_array(np.array(value, np.int64), name)

    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axis"], ["n1"]),
        helper.make_node("Range", ["zero", "n", "one"], ["r"]),
        helper.make_node("Unsqueeze", ["r", "axis1"], ["rows"]),
        helper.make_node("Unsqueeze", ["r", "axis"], ["columns"]),
        helper.make_node("Less", ["rows", "columns"], ["future"]),
        helper.make_node("Cast", ["future"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Slice", ["table", "axis", "n1", "axis"], ["part"]),
        helper.make_node("MatMul", ["m", "part"], ["mixed"]),
        helper.make_node("Add", ["x", "mixed"], ["sum"]),
        helper.make_node("ReduceMean", ["sum"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["sum", "mean"], ["centred"]),
        helper.make_node("Cast", ["n"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["centred", "number"], ["y"]),
        helper.make_node("Concat", ["n1", "axis"], ["sizes"], axis=0),
    ]
    model = small_model(
        nodes,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "n", 4]),
         helper.make_tensor_value_info("sizes", TensorProto.INT64, [2])],
        [table, scalar("zero", 0), scalar("one", 1), scalar("axis", [0]),
         scalar("axis1", [1])])
    path = saved(model, "bounded.mask")
    artefact = compiled(path, "tp=1", {"b": (1, 4), "n": (1, 16)}, {},
                        model_runs.scratch("bounded.mask.so"))
    for b, n in [(1, 1), (2, 5), (4, 16), (3, 2)]:
        x = np.random.RandomState(n).standard_normal((b, n, 4))
        x = {"x": x.astype(np.float32)}
        close(concord.run(artefact, x), oracle.run_onnxruntime(path, x),
              f"{b}, {n}")


@pytest.mark.parametrize("rows,bounds,fits", [
    # Primes above the narrow bounds of the batch are not taken from the sequence.
    (32, "1..16", True),
    # The bounds are all that the table has, and hold few primes.
    (16, "1..16", True),
    (6, "5..6", False)])
def test_a_table_that_ends_with_the_bounds(rows, bounds, fits, tmp_path):
    random = np.random.default_rng(5)
    table = numpy_helper.from_array(
        random.standard_normal((1, rows, 6)).astype(np.float32), "table")
    numbers = {"zero": [0], "one": [1], "two": [2]}
    nodes = [helper.make_node("Shape", ["x"], ["shape"]),
             helper.make_node("Slice", ["shape", "one", "two"], ["seq"]),
             helper.make_node("Slice", ["table", "zero", "seq", "one"], ["places"]),
             helper.make_node("Add", ["x", "places"], ["y"], name="add")]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", "seq", 6])
            for n in ("x", "y")]
    graph = helper.make_graph(nodes, "places", info[:1], info[1:], [table] + [
        numpy_helper.from_array(np.array(v, np.int64), k) for k, v in numbers.items()])
    model, so = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(helper.make_model(graph, ir_version=8,
                                opset_imports=[helper.make_opsetid("", 17)]), model)
    options = ["--dim=batch=1..4", f"--dim=seq={bounds}", "--emit=so", "-o", so]
    if not fits:
        done = model_runs.tool("comm-opt", model, *options, ok=False)
        assert done.returncode != 0
        assert "node 'add'" in done.stderr
        assert "above its bounds" in done.stderr and "--dim seq=N" in done.stderr
        return
    model_runs.tool("comm-opt", model, *options)
    weights = numpy_helper.to_array(table)
    for batch, seq in ((1, 1), (4, 16), (3, 7)):
        x = random.standard_normal((batch, seq, 6)).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        model_runs.tool("comm-run", so, "-n", 1, "--input", f"x={tmp_path / 'x.npy'}",
                        "--output-dir", tmp_path / "out")
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"),
                                      x + weights[:, :seq])


def test_another_behaviour_within_the_bounds_is_refused():
    """At n = 1 the dimension is squeezed away; beyond 8 a slice is clamped."""
    value = helper.make_tensor_value_info
    squeeze = saved(small_model(
        [helper.make_node("Squeeze", ["x"], ["y"], name="squash")],
        [value("x", TensorProto.FLOAT, ["n", 1, 4])],
        [value("y", TensorProto.FLOAT, None)]), "bounded.squeeze")
    done = model_runs.tool("comm-opt", squeeze, "--dim", "n=1..32", ok=False)
    assert "node 'squash' (Squeeze)" in done.stderr
    assert "at n=1 than" in done.stderr
    model_runs.tool("comm-opt", squeeze, "--dim", "n=2..32", "-o", os.devnull)

    constants = [numpy_helper.from_array(np.array([v], np.int64), n)
                 for n, v in (("from", 0), ("to", 8), ("over", 0))]
    clamp = saved(small_model(
        [helper.make_node("Slice", ["x", "from", "to", "over"], ["y"],
                          name="first")],
        [value("x", TensorProto.FLOAT, ["n", 4])],
        [value("y", TensorProto.FLOAT, None)], constants), "bounded.clamp")
    done = model_runs.tool("comm-opt", clamp, "--dim", "n=1..32", ok=False)
    assert "node 'first' (Slice)" in done.stderr
    model_runs.tool("comm-opt", clamp, "--dim", "n=8..32", "-o", os.devnull)


def places_model(label, rows):
    """x plus rows 0 to n-1 of a table, which are looked up by number."""
    random = np.random.default_rng(7)
    table = random.standard_normal((rows, 4)).astype(np.float32)
    constants = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in
                 {"zero": 0, "one": 1, "last": [-1]}.items()]
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Range", ["zero", "n", "one"], ["r"]),
        helper.make_node("Unsqueeze", ["r", "last"], ["at"], name="numbers"),
        helper.make_node("GatherND", ["table", "at"], ["places"], name="look"),
        helper.make_node("Add", ["x", "places"], ["y"], name="add")]
    info = [helper.make_tensor_value_info(v, TensorProto.FLOAT, ["batch", "n", 4])
            for v in "xy"]
    return saved(small_model(nodes, info[:1], info[1:],
                             [*constants, numpy_helper.from_array(table, "table")]),
                 label)


def test_a_table_that_is_looked_up_by_number():
    """Sizes above the bounds are beyond the table, which is no error there."""
    path = places_model("bounded.places", 32)
    so = compiled(path, "tp=1", {"batch": (1, 4), "n": (1, 16)}, {},
                  model_runs.scratch("bounded.places.so"))
    for batch, n in [(1, 1), (4, 16), (2, 7)]:
        x = {"x": np.random.RandomState(n).standard_normal(
            (batch, n, 4)).astype(np.float32)}
        close(concord.run(so, x), oracle.run_onnxruntime(path, x), f"{batch}, {n}")


def test_members_of_several_dimensions_differ(tmp_path):
    """The dimension whose table ends soon takes its sizes first, and no size is one of
    another dimension, those that data parallelism multiplies neither."""
    random = np.random.default_rng(3)
    weights = [numpy_helper.from_array(random.standard_normal(s).astype(np.float32), n)
               for n, s in (("table", (1, 32, 6)), ("w", (6, 100)))]
    numbers = [numpy_helper.from_array(np.array([v], np.int64), k)
               for k, v in (("zero", 0), ("one", 1), ("two", 2))]
    nodes = [helper.make_node("Shape", ["x"], ["shape"]),
             helper.make_node("Slice", ["shape", "one", "two"], ["seq"]),
             helper.make_node("Slice", ["table", "zero", "seq", "one"], ["places"]),
             helper.make_node("Add", ["x", "places"], ["sum"], name="add"),
             helper.make_node("MatMul", ["sum", "w"], ["y"], name="wide"),
             helper.make_node("MatMul", ["image", "w"], ["z"], name="image_wide")]

    def info(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    path = saved(small_model(
        nodes, [info("x", ["batch", "seq", 6]), info("image", ["images", 6])],
        [info("y", ["batch", "seq", 100]), info("z", ["images", 100])],
        weights + numbers), "bounded.three")
    for mesh in ("tp=2", "dp=2"):
        text, so = tmp_path / "m.mlir", tmp_path / "m.so"
        bounds = ["--dim=batch=1..64", "--dim=seq=1..32", "--dim=images=1..64"]
        model_runs.tool("comm-opt", path, f"--mesh={mesh}", *bounds, "-o", text)
        points = [tuple(map(int, found)) for found in re.findall(
            r"comm\.point = array<i64: (\d+), (\d+), (\d+)>", text.read_text("utf-8"))]
        assert len(points) >= 8
        batch, seq, images = map(set, zip(*points))
        assert not (batch & seq or batch & images or seq & images)
        model_runs.tool("comm-opt", path, f"--mesh={mesh}", *bounds, "--emit=so", "-o", so)
        x = {"x": random.standard_normal((2, 5, 6)).astype(np.float32),
             "image": random.standard_normal((4, 6)).astype(np.float32)}
        close(concord.run(str(so), x), oracle.run_onnxruntime(path, x), mesh)


def test_a_value_that_no_size_is_names_its_node():
    value = helper.make_tensor_value_info
    path = saved(small_model(
        [helper.make_node("Shape", ["x"], ["s"]),
         helper.make_node("Gather", ["s", "zero"], ["n"]),
         helper.make_node("Cast", ["n"], ["number"], to=TensorProto.FLOAT),
         helper.make_node("Sqrt", ["number"], ["root"], name="rooted"),
         helper.make_node("Div", ["x", "root"], ["y"])],
        [value("x", TensorProto.FLOAT, ["n", 4])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(0, np.int64), "zero")]), "bounded.root")
    done = model_runs.tool("comm-opt", path, "--dim", "n=1..32", "--emit=so", "-o",
                           model_runs.scratch("bounded.root.so"), ok=False)
    assert done.returncode == 1
    assert ("node 'rooted': a value that is computed with depends on the sizes"
            in done.stderr), done.stderr


def test_a_node_that_only_some_sizes_have_is_named():
    value = helper.make_tensor_value_info

    def branch(nodes, name):
        return helper.make_graph(nodes, name, [],
                                 [value(name, TensorProto.FLOAT, None)])

    many = [helper.make_node("Neg", ["x"], ["m"], name="negated"),
            helper.make_node("Relu", ["m"], ["of_many"], name="of_many")]
    few = [helper.make_node("Neg", ["x"], ["of_few"], name="negated")]
    constants = [numpy_helper.from_array(np.array(v, np.int64), k)
                 for k, v in (("zero", 0), ("eight", 8))]
    path = saved(small_model(
        [helper.make_node("Shape", ["x"], ["s"]),
         helper.make_node("Gather", ["s", "zero"], ["n"]),
         helper.make_node("Greater", ["n", "eight"], ["many"]),
         helper.make_node("If", ["many"], ["y"], name="choice",
                          then_branch=branch(many, "of_many"),
                          else_branch=branch(few, "of_few"))],
        [value("x", TensorProto.FLOAT, ["n", 4])],
        [value("y", TensorProto.FLOAT, None)], constants), "bounded.choice")
    done = model_runs.tool("comm-opt", path, "--dim", "n=1..32", ok=False)
    assert "node 'choice/of_many' (Relu): behaves in another way at n=1" in done.stderr
