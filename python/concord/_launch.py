# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starting the processes of a job from Python."""

import ctypes

from . import _abi


class _Config(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("world", ctypes.c_int32),
        ("argv", ctypes.c_void_p),
        ("argv_all", ctypes.POINTER(ctypes.c_char_p)),
        ("env", ctypes.POINTER(ctypes.c_char_p)),
        ("heap_bytes", ctypes.c_uint64),
        ("bind_cores", ctypes.c_int32),
        ("grace_seconds", ctypes.c_double),
        ("timeout_seconds", ctypes.c_double),
        ("started", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
        ("stdout_fds", ctypes.POINTER(ctypes.c_int32)),
        ("stderr_fds", ctypes.POINTER(ctypes.c_int32)),
    ]


class _Result(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("failed_rank", ctypes.c_int32),
        ("exit_status", ctypes.c_int32),
        ("timed_out", ctypes.c_int32),
        ("interrupted", ctypes.c_int32),
        ("message", ctypes.c_char * 256),
    ]


def launch(world, arguments, env=None, timeout=0.0, grace=0.0, heap_bytes=0,
           stderr=None):
    """Start ``world`` processes with ``arguments`` as the ranks of one job, and
    wait for their end. ``env`` is added to this process's environment; ``stderr``
    is a file that all ranks write to instead of this process's. Returns
    ``(failed_rank, message)``: -1 and "" when every rank has exited with 0."""
    library = _abi.library()
    config = _abi.made(_Config)
    config.world = world
    words = [word.encode() for word in arguments]
    config.argv_all = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    added = [f"{name}={value}".encode() for name, value in (env or {}).items()]
    config.env = (ctypes.c_char_p * (len(added) + 1))(*added, None)
    config.timeout_seconds, config.grace_seconds = timeout, grace
    config.heap_bytes = heap_bytes
    if stderr is not None:
        config.stderr_fds = (ctypes.c_int32 * world)(*[stderr.fileno()] * world)
    result = _abi.made(_Result)
    function = library.concord_launch_job
    function.restype = ctypes.c_int32
    status = function(ctypes.byref(config), ctypes.byref(result))
    message = result.message.decode("utf-8", "replace")
    if status and not message:
        message = f"the job failed with status {status}"
    return (result.failed_rank, message) if status else (-1, "")
