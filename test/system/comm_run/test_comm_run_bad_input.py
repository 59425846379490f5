# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Unusable programs, inputs and folders: exit 2, and a message that says what."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from comm_run_support import BIN, fixture


def with_meta(tmp_path, **changes):
    """A copy of the two-rank fixture with other metadata."""
    data = fixture(2).read_bytes()
    begin = data.index(b'{"abi":')
    end = data.index(b"\0", begin)
    meta = json.loads(data[begin:end])
    for key in ("phase", "gate", "assumes"):  # room for the changes
        del meta[key]
    meta.update(changes)
    text = json.dumps(meta, separators=(",", ":")).encode()
    assert len(text) <= end - begin
    path = tmp_path / "patched.so"
    path.write_bytes(data[:begin] + text.ljust(end - begin) + data[end:])
    return path


def test_missing_file(comm_run, tmp_path):
    done = comm_run(tmp_path / "none.so", code=2)
    assert "none.so: cannot open: No such file or directory" in done.stderr


def test_text_as_program(comm_run, tmp_path):
    (tmp_path / "x.so").write_text("hello")
    assert "not an ELF file" in comm_run(tmp_path / "x.so", code=2).stderr


def test_folder_as_program(comm_run, tmp_path):
    assert "not a regular file" in comm_run(tmp_path, code=2).stderr


def test_fifo_as_program(comm_run, tmp_path):
    os.mkfifo(tmp_path / "x.so")
    assert "not a regular file" in comm_run(tmp_path / "x.so", code=2).stderr


def test_foreign_shared_object(comm_run):
    done = comm_run(BIN.parent / "lib" / "libconcord.so", code=2)
    assert "not a program compiled by comm-opt" in done.stderr


@pytest.mark.parametrize("size", [10, 70, 1000, 8000])
def test_truncated(comm_run, tmp_path, size):
    (tmp_path / "x.so").write_bytes(fixture(2).read_bytes()[:size])
    assert "x.so: " in comm_run(tmp_path / "x.so", code=2).stderr


def test_other_abi(comm_run, tmp_path):
    done = comm_run(with_meta(tmp_path, abi=7), code=2)
    assert "compiled for artefact ABI 7, this comm-run knows ABI 1" in done.stderr


def test_other_cpu(comm_run, tmp_path):
    done = comm_run(with_meta(tmp_path, target_cpu="z80"), code=2)
    assert "compiled for z80 processors, this one is " in done.stderr


def test_other_world(comm_run):
    done = comm_run(fixture(2), "-n", 4, code=2)
    assert "compiled for 2 ranks, but -n asks for 4; give -n 2" in done.stderr


def test_other_machine(comm_run, tmp_path):
    data = bytearray(fixture(2).read_bytes())
    data[18] = 0xF3  # RISC-V
    (tmp_path / "x.so").write_bytes(data)
    done = comm_run(tmp_path / "x.so", code=2)
    assert "another processor architecture" in done.stderr


def test_weights_missing(comm_run, tmp_path):
    done = comm_run(with_meta(tmp_path, weights="m.weights"), code=2)
    assert "m.weights: the program's weights are not there" in done.stderr
    done = comm_run(with_meta(tmp_path, weights="../m"), code=2)
    assert "'weights' is not a plain file name" in done.stderr


def test_inconsistent_metadata(comm_run, tmp_path):
    done = comm_run(with_meta(tmp_path, mesh=[["tp", 4]]), code=2)
    assert "the mesh has 4 ranks, 'world' is 2" in done.stderr
    # What comm-run cannot see, the rank that loads the program does: the plan in
    # the file has another digest.
    done = comm_run(with_meta(tmp_path, digest="0" * 64), code=4)
    assert "digest" in done.stderr


def test_wrong_inputs(comm_run, tmp_path):
    np.save(tmp_path / "f64.npy", np.zeros((4, 6)))
    np.save(tmp_path / "shape.npy", np.zeros((6, 4), np.float32))
    (tmp_path / "text.npy").write_text("hello")

    def error(*arguments):
        return comm_run(fixture(2), *arguments, code=2).stderr

    assert "no such input; its inputs are 'x', 's', 'p', 'past'" in error(
        "--input", "ids=a.npy")
    assert "dtype F64, but input 'x' is F32 [4, 6]" in error(
        "--input", f"x={tmp_path}/f64.npy")
    assert "shape [6, 4], but input 'x' is F32 [4, 6]" in error(
        "--input", f"x={tmp_path}/shape.npy")
    assert "text.npy: not a usable .npy file" in error(
        "--input", f"x={tmp_path}/text.npy")
    assert "none.npy: cannot open" in error("--input", f"x={tmp_path}/none.npy")
    assert comm_run.left_behind() == []


def test_wrong_usage(comm_run):
    assert "no PROGRAM" in comm_run(code=2).stderr
    assert "'--tp=2' cannot be applied" in comm_run(fixture(2), "--tp=2",
                                                    code=2).stderr


def test_full_disk(comm_run, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", disk],
        capture_output=True, check=False).returncode == 0
    if not mounted:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        done = comm_run(fixture(2), "--output-dir", disk, code=2)
        assert "No space left on device" in done.stderr
        # What is there is whole.
        for path in disk.iterdir():
            np.load(path)
        assert len(list(disk.iterdir())) >= 1
        done = comm_run(fixture(2), code=2, TMPDIR=str(disk))
        assert "No space left on device" in done.stderr
    finally:
        subprocess.run(["umount", disk], check=True)


def test_output_folder_cannot_be_made(comm_run, tmp_path):
    (tmp_path / "file").write_text("")
    done = comm_run(fixture(2), "--output-dir", tmp_path / "file" / "out", code=2)
    assert "cannot be made" in done.stderr
