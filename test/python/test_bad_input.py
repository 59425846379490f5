# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tools say to input that is wrong.

Every case must end with an error that names the file and what is wrong in it:
no crash, no hang, and nothing half-written at the output's place.
"""

import os
import re
import resource
import shutil
import signal
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import model_runs as runs

pytestmark = pytest.mark.skipif(
    not runs.built(), reason="build/bin/comm-opt and comm-run are not built")

FLOAT = TensorProto.FLOAT


def value(name, shape):
    return helper.make_tensor_value_info(name, FLOAT, shape)


def model_of(nodes, inputs, outputs, tensors=(), opset=17):
    graph = helper.make_graph(nodes, "bad", inputs, outputs, list(tensors))
    model = helper.make_model(graph,
                              opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def weight(name, *shape):
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def compile_bad(path, tmp_path, tp=2, dims=(), limit=None):
    """comm-opt on a bad input: its messages, after the checks common to all."""
    out = tmp_path / "out.so"
    command = [os.path.join(runs.BIN, "comm-opt"), str(path), "--tp", str(tp),
               *[f"--dim={d}" for d in dims], "--comm-pipeline", "--emit=so",
               "-o", str(out)]

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(command, capture_output=True, text=True,
                          errors="replace", timeout=60, check=False,
                          preexec_fn=limited if limit else None)
    assert done.returncode > 0, (
        f"exit {done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}")
    assert "Stack dump" not in done.stderr and "Assertion" not in done.stderr
    left = [p.name for p in tmp_path.iterdir() if p.name.startswith("out")]
    assert not left, f"left behind: {left}"
    return done.stdout + done.stderr


def written(model, tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def says(text, *patterns):
    for pattern in patterns:
        assert re.search(pattern, text, re.IGNORECASE), (
            f"no /{pattern}/ in:\n{text[-2000:]}")


def test_missing_file(tmp_path):
    says(compile_bad(tmp_path / "none.onnx", tmp_path), r"none\.onnx",
         "no such file|not found|cannot (be )?open|does not exist")


def test_text_instead_of_onnx(tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_text("This is a text file, and not a model at all.\n" * 20)
    says(compile_bad(path, tmp_path), r"bad\.onnx")


def test_empty_file(tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"")
    says(compile_bad(path, tmp_path), r"bad\.onnx")


@pytest.mark.parametrize("part", (0.02, 0.5, 0.999))
def test_truncated_file(tmp_path, part):
    with open(runs.model_path("bert_tiny"), "rb") as file:
        data = file.read()
    path = tmp_path / "bad.onnx"
    path.write_bytes(data[:int(part * len(data))])
    says(compile_bad(path, tmp_path, dims=("batch=2", "seq=8")),
         r"bad\.onnx")


def test_cycle(tmp_path):
    model = model_of([helper.make_node("Add", ["x", "b"], ["a"], name="first"),
                      helper.make_node("Relu", ["a"], ["b"], name="second")],
                     [value("x", [2, 2])], [value("b", [2, 2])])
    says(compile_bad(written(model, tmp_path), tmp_path), r"bad\.onnx",
         "cycle|circular", "first|second")


def test_missing_initializer(tmp_path):
    model = model_of([helper.make_node("MatMul", ["x", "gone"], ["y"],
                                       name="product")],
                     [value("x", [2, 4])], [value("y", [2, 4])])
    says(compile_bad(written(model, tmp_path), tmp_path), r"bad\.onnx",
         "gone", "product")


def test_unknown_operator(tmp_path):
    model = model_of([helper.make_node("FancyActivation", ["x"], ["y"],
                                       name="act_7")],
                     [value("x", [2, 4])], [value("y", [2, 4])])
    says(compile_bad(written(model, tmp_path), tmp_path), r"bad\.onnx",
         "act_7", "FancyActivation", "17")


def test_unbound_dimension(tmp_path):
    says(compile_bad(runs.model_path("bert_tiny"), tmp_path, dims=("batch=2",)),
         "bert_tiny", "seq", "--dim")


def test_dimension_that_the_model_does_not_have(tmp_path):
    says(compile_bad(runs.model_path("bert_tiny"), tmp_path,
                     dims=("batch=2", "seq=8", "sequence=8")),
         "sequence", "seq")


def test_shape_mismatch(tmp_path):
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"],
                                       name="product")],
                     [value("x", [2, 4])], [value("y", [2, 4])],
                     [weight("w", 5, 4)])
    says(compile_bad(written(model, tmp_path), tmp_path), r"bad\.onnx",
         "product", "4", "5")


def test_mesh_that_does_not_divide_the_heads(tmp_path):
    text = compile_bad(runs.model_path("bert_tiny"), tmp_path, tp=3,
                       dims=("batch=2", "seq=8"))
    says(text, r"\b3\b", "divide|divisible", r"\b2\b", r"\b4\b")


def test_external_data_outside_the_folder(tmp_path):
    (tmp_path / "secret.bin").write_bytes(b"\0" * 64)
    inner = tmp_path / "model"
    inner.mkdir()
    for location in ("../secret.bin", str(tmp_path / "secret.bin"),
                     "link.bin", "sub/../../secret.bin"):
        tensor = weight("w", 4, 4)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", location
        model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"],
                                           name="product")],
                         [value("x", [2, 4])], [value("y", [2, 4])], [tensor])
        if location == "link.bin" and not (inner / "link.bin").exists():
            os.symlink("../secret.bin", inner / "link.bin")
        (inner / "bad.onnx").write_bytes(model.SerializeToString())
        says(compile_bad(inner / "bad.onnx", tmp_path), r"bad\.onnx",
             re.escape(os.path.basename(location)))


def test_external_data_that_is_too_short(tmp_path):
    (tmp_path / "short.bin").write_bytes(b"\0" * 60)
    tensor = weight("w", 4, 4)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "short.bin"), ("offset", "0"),
                      ("length", "64")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])],
                     [value("x", [2, 4])], [value("y", [2, 4])], [tensor])
    says(compile_bad(written(model, tmp_path), tmp_path), r"short\.bin")


def test_huge_counts_are_refused_quickly(tmp_path):
    """A tensor that claims 2^50 elements and brings four bytes."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[1 << 25, 1 << 25],
                         raw_data=b"\0\0\0\0")
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"],
                                       name="product")],
                     [value("x", [2, 1 << 25])], [value("y", [2, 1 << 25])],
                     [tensor])
    says(compile_bad(written(model, tmp_path), tmp_path), r"bad\.onnx", "w")


@pytest.mark.parametrize("limit", (4096, 65536))
def test_full_disk(tmp_path, limit):
    """Files cannot grow beyond a limit: as a full disk, without a mount."""
    compile_bad(runs.model_path("bert_tiny"), tmp_path, limit=limit,
                dims=("batch=2", "seq=8"))


def test_output_folder_that_does_not_exist(tmp_path):
    done = runs.tool("comm-opt", runs.model_path("mlp_tiny"), "--tp", 2,
                     "--dim=batch=2", "--comm-pipeline", "--emit=so", "-o",
                     tmp_path / "no" / "where.so", ok=False)
    assert done.returncode > 0
    says(done.stdout + done.stderr, r"where\.so")


# comm-run ---------------------------------------------------------------------------


def run_bad(program, *arguments, expect=None):
    done = runs.tool("comm-run", program, "--timeout", 30, *arguments, ok=False)
    assert done.returncode > 0, done.stdout + done.stderr
    if expect is not None:
        assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_input_name_that_is_wrong(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((2, 32), np.float32))
    says(run_bad(runs.compiled("mlp_tiny", "tp=2"), "-n", 2, "--input",
                 f"pixels={path}"), "pixels", r"\bx\b")


@pytest.mark.parametrize("array,words", (
    (np.zeros((2, 32), np.float64), ("F64|float64|double",)),
    (np.zeros((3, 32), np.float32), ("3", "2")),
    (np.zeros((2, 32, 1), np.float32), (r"\bx\b",))))
def test_input_of_the_wrong_type_or_shape(tmp_path, array, words):
    path = tmp_path / "x.npy"
    np.save(path, array)
    says(run_bad(runs.compiled("mlp_tiny", "tp=2"), "-n", 2, "--input",
                 f"x={path}"), r"\bx\b", *words)


def test_data_that_a_kernel_refuses():
    """A token that the vocabulary does not have: the kernel's own words."""
    text = run_bad(runs.compiled("bert_tiny_static", "tp=2"), "-n", 2, "--input",
                   "input_ids=fill:123456", expect=4)
    says(text, "CONCORD_ERROR_KERNEL in step 0", "program 'bert",
         "gather_rows: index 123456 at position 0 is outside a table of 256 rows")


def test_input_file_that_is_not_an_array(tmp_path):
    path = tmp_path / "x.npy"
    path.write_text("not an array")
    says(run_bad(runs.compiled("mlp_tiny", "tp=2"), "-n", 2, "--input",
                 f"x={path}"), r"x\.npy")


def test_wrong_number_of_ranks():
    says(run_bad(runs.compiled("mlp_tiny", "tp=2"), "-n", 3), r"\b2\b",
         r"\b3\b")


def patched(tmp_path, pattern, replacement):
    """A copy of a program in which the metadata says something else."""
    source = runs.compiled("mlp_tiny", "tp=2")
    with open(source, "rb") as file:
        data = file.read()
    name = os.path.basename(source)[:-3] + ".weights"
    shutil.copy(source[:-3] + ".weights", tmp_path / name)
    changed, count = re.subn(pattern, lambda m: replacement(m.group(0)), data)
    assert count and len(changed) == len(data)
    path = tmp_path / os.path.basename(source)
    path.write_bytes(changed)
    return path


def test_program_for_another_cpu(tmp_path):
    path = patched(tmp_path, rb'"target_cpu": ?"[^"]+"',
                   lambda old: old[:-2] + b'Q"')
    says(run_bad(path, "-n", 2), "cpu|target")


def test_program_of_another_abi(tmp_path):
    path = patched(tmp_path, rb'"abi": ?1\b', lambda old: old[:-1] + b"7")
    says(run_bad(path, "-n", 2), "abi", "7")


def test_program_without_its_weights(tmp_path):
    source = runs.compiled("mlp_tiny", "tp=2")
    shutil.copy(source, tmp_path / os.path.basename(source))
    says(run_bad(tmp_path / os.path.basename(source), "-n", 2), "weights")


def test_weights_that_were_cut_short(tmp_path):
    source = runs.compiled("mlp_tiny", "tp=2")
    for suffix in (".so", ".weights"):
        shutil.copy(source[:-3] + suffix,
                    tmp_path / os.path.basename(source[:-3] + suffix))
    path = tmp_path / os.path.basename(source[:-3] + ".weights")
    data = bytearray(path.read_bytes())
    path.write_bytes(data[:len(data) // 2])
    says(run_bad(tmp_path / os.path.basename(source), "-n", 2), "weights")


def test_difference_is_exit_1_with_the_worst_element(tmp_path):
    arrays = runs.inputs("mlp_tiny")
    np.save(tmp_path / "x.npy", arrays["x"])
    wrong = runs.expected("mlp_tiny")[0]["y"].copy()
    wrong[1, 3] += 1.0
    expect = tmp_path / "expect"
    expect.mkdir()
    np.save(expect / "y.npy", wrong)
    text = run_bad(runs.compiled("mlp_tiny", "tp=2"), "-n", 2, "--input",
                   f"x={tmp_path / 'x.npy'}", "--expect", expect, expect=1)
    says(text, r"\by\b", r"1\s*,\s*3")


def test_expectation_that_holds_is_exit_0(tmp_path):
    arrays = runs.inputs("mlp_tiny")
    np.save(tmp_path / "x.npy", arrays["x"])
    expect = tmp_path / "expect"
    expect.mkdir()
    np.save(expect / "y.npy", runs.expected("mlp_tiny")[0]["y"])
    runs.tool("comm-run", runs.compiled("mlp_tiny", "tp=2"), "-n", 2,
              "--input", f"x={tmp_path / 'x.npy'}", "--expect", expect)
