# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libconcord.so through ctypes: structs, prototypes, errors.

Mirrors runtime/include/concord/concord.h. Structs begin with ``struct_size``;
a library that knows more fields gives those that are missing here their default.
"""

import ctypes
import os
import pathlib
import threading

ABI_VERSION = 1

# Numbers of concord/dtype.h, with the NumPy type that stores each. NumPy has no
# bfloat16 and no float8: their bits are handled as unsigned integers.
DTYPES = {
    1: ("F32", "float32"),
    2: ("F64", "float64"),
    3: ("F16", "float16"),
    4: ("BF16", "uint16"),
    5: ("I8", "int8"),
    6: ("I16", "int16"),
    7: ("I32", "int32"),
    8: ("I64", "int64"),
    9: ("U8", "uint8"),
    10: ("U16", "uint16"),
    11: ("U32", "uint32"),
    12: ("U64", "uint64"),
    13: ("BOOL", "bool"),
    14: ("F8_E4M3", "uint8"),
    15: ("F8_E5M2", "uint8"),
}


class ConcordError(RuntimeError):
    """A call into libconcord.so failed.

    ``status`` is the error number of concord.h, ``name`` its name
    (``CONCORD_ERROR_TIMEOUT``), and the text says what happened.
    """

    def __init__(self, status, name, message):
        super().__init__(f"{name}: {message}" if message else name)
        self.status = status
        self.name = name


class ContextConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("abi_version", ctypes.c_uint32),
        ("thread_level", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("world", ctypes.c_int32),
        ("job", ctypes.c_void_p),
        ("unique_id", ctypes.c_void_p),
        ("heap_bytes", ctypes.c_uint64),
        ("timeout_seconds", ctypes.c_double),
        ("connect_timeout_seconds", ctypes.c_double),
        ("device", ctypes.c_void_p),
        ("gate_mode", ctypes.c_int32),
        ("stage_always", ctypes.c_int32),
        ("gate_timeout_seconds", ctypes.c_double),
        ("device_slots", ctypes.c_uint32),
    ]


class CommConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("priority", ctypes.c_int32),
    ]


class P2p(ctypes.Structure):
    _fields_ = [
        ("send", ctypes.c_int32),
        ("peer", ctypes.c_int32),
        ("buffer", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
    ]


class ProgramOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("verify_weights", ctypes.c_int32),
        ("gate_mode", ctypes.c_int32),
        ("trace", ctypes.c_void_p),
        ("trace_user", ctypes.c_void_p),
    ]


class EntryInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
        ("global_shape", ctypes.POINTER(ctypes.c_int64)),
        ("local_shape", ctypes.POINTER(ctypes.c_int64)),
        ("local_bytes", ctypes.c_uint64),
        ("arena_offset", ctypes.c_int64),
        ("sharding_json", ctypes.c_char_p),
    ]


class DimInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("min", ctypes.c_int64),
        ("max", ctypes.c_int64),
        ("size", ctypes.c_int64),
    ]


class ProgramInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("world", ctypes.c_int32),
        ("arena_bytes", ctypes.c_uint64),
        ("weight_bytes", ctypes.c_uint64),
        ("num_sites", ctypes.c_uint32),
        ("num_kernels", ctypes.c_uint32),
        ("digest", ctypes.c_char_p),
        ("meta_json", ctypes.c_char_p),
    ]


ID_BYTES = 128  # of a concord_unique_id


def id_buffer(unique_id):
    """A concord_unique_id of these bytes."""
    if len(unique_id) != ID_BYTES:
        raise ValueError(f"a unique id has {ID_BYTES} bytes, not {len(unique_id)}")
    return (ctypes.c_uint8 * ID_BYTES).from_buffer_copy(unique_id)


def made(struct):
    """A zeroed struct with its size filled in."""
    value = struct()
    value.struct_size = ctypes.sizeof(struct)
    return value


_PTR = ctypes.c_void_p
_U32 = ctypes.c_uint32
_I32 = ctypes.c_int32
_U64 = ctypes.c_uint64
_P = ctypes.POINTER

# name -> (result, arguments). A result of None marks a function that returns a
# status, which is checked.
_PROTOTYPES = {
    "concord_version": (_U32, []),
    "concord_abi_version": (_U32, []),
    "concord_last_error": (ctypes.c_char_p, []),
    "concord_status_name": (ctypes.c_char_p, [_I32]),
    "concord_unique_id_create": (None, [_PTR]),
    "concord_job_create": (None, [_I32, ctypes.c_uint64, _P(_PTR)]),
    "concord_job_destroy": (None, [_PTR]),
    "concord_context_create": (None, [_P(ContextConfig), _P(_PTR)]),
    "concord_context_finalize": (None, [_PTR]),
    "concord_context_abort": (None, [_PTR, ctypes.c_char_p]),
    "concord_context_rank": (None, [_PTR, _P(_I32), _P(_I32)]),
    "concord_comm_grow": (None, [_PTR, _I32, _PTR, _P(_PTR)]),
    "concord_comm_context": (None, [_PTR, _P(_PTR)]),
    "concord_comm_create_group": (
        None, [_PTR, _P(_I32), _U32, _P(CommConfig), _P(_PTR)]),
    "concord_stream_create": (None, [_PTR, _I32, _P(_PTR)]),
    "concord_stream_synchronize": (None, [_PTR]),
    "concord_device_synchronize": (None, [_PTR]),
    "concord_all_reduce": (None, [_PTR, _PTR, _PTR, _U64, _I32, _I32, _PTR]),
    "concord_broadcast": (None, [_PTR, _PTR, _PTR, _U64, _I32, _I32, _PTR]),
    "concord_send": (None, [_PTR, _PTR, _U64, _I32, _I32, _PTR]),
    "concord_recv": (None, [_PTR, _PTR, _U64, _I32, _I32, _PTR]),
    "concord_batch_p2p": (None, [_PTR, _P(P2p), _U32, _PTR]),
    "concord_barrier": (None, [_PTR, _PTR]),
    "concord_round_decision": (None, [_PTR, _I32, _P(_U64)]),
    "concord_gate_mode_set": (None, [_PTR, _I32]),
    "concord_gate_mode_get": (None, [_PTR, _P(_I32)]),
    "concord_plan_load_file": (None, [_PTR, ctypes.c_char_p]),
    "concord_slot_request": (None, [_PTR, ctypes.c_char_p, _U64]),
    "concord_slot_wait": (
        None, [_PTR, ctypes.c_char_p, ctypes.c_double, _P(_U64), _P(_U64)]),
    "concord_issuer_attach": (None, [_PTR, ctypes.c_char_p]),
    "concord_issuer_leave": (None, [_PTR, ctypes.c_char_p]),
    "concord_issue_log_write": (None, [_PTR, ctypes.c_char_p]),
    "concord_state_print": (None, [_PTR, _I32]),
    "concord_program_load": (
        None,
        [_PTR, ctypes.c_char_p, _P(ProgramOptions), _P(_PTR)],
    ),
    "concord_program_issuer": (None, [_PTR, ctypes.c_char_p, _P(_PTR)]),
    "concord_program_unload": (None, [_PTR]),
    "concord_program_info_query": (None, [_PTR, _P(ProgramInfo)]),
    "concord_program_num_inputs": (None, [_PTR, _P(_U32)]),
    "concord_program_num_outputs": (None, [_PTR, _P(_U32)]),
    "concord_program_input": (None, [_PTR, _U32, _P(EntryInfo)]),
    "concord_program_output": (None, [_PTR, _U32, _P(EntryInfo)]),
    "concord_program_bind_input": (None, [_PTR, _U32, _PTR]),
    "concord_program_bind_output": (None, [_PTR, _U32, _PTR]),
    "concord_program_bind_state": (None, [_PTR, _U32, _U32]),
    "concord_program_num_dims": (None, [_PTR, _P(_U32)]),
    "concord_program_dim": (None, [_PTR, _U32, _P(DimInfo)]),
    "concord_program_bind_shape": (
        None,
        [_PTR, _U32, _P(ctypes.c_int64), _U32],
    ),
    "concord_program_prepare": (None, [_PTR]),
    "concord_program_input_data": (None, [_PTR, _U32, _P(_PTR)]),
    "concord_program_output_data": (None, [_PTR, _U32, _P(_PTR)]),
    "concord_program_step": (None, [_PTR]),
    "concord_program_plan_json": (None, [_PTR, _P(ctypes.c_char_p)]),
}

_lock = threading.Lock()
_library = None


def library_path():
    """Where libconcord.so is: $CONCORD_LIBRARY, beside this package, or in the
    ``build/lib`` of the source tree that holds it. None when it is nowhere."""
    named = os.environ.get("CONCORD_LIBRARY")
    if named:
        return pathlib.Path(named)
    here = pathlib.Path(__file__).resolve().parent
    for folder in (here, here.parent.parent / "build" / "lib"):
        if (folder / "libconcord.so").is_file():
            return folder / "libconcord.so"
    return None


def library():
    """The loaded library, as ctypes.CDLL with prototypes set. Raises OSError when
    it cannot be found or loaded, ImportError when its ABI is another one."""
    global _library
    with _lock:
        if _library is None:
            path = library_path()
            if path is None:
                raise OSError(
                    "libconcord.so is neither in build/lib nor named by "
                    "CONCORD_LIBRARY"
                )
            # Programs find the functions they call among the global symbols.
            loaded = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            for name, (result, arguments) in _PROTOTYPES.items():
                function = getattr(loaded, name)
                function.argtypes = arguments
                function.restype = _I32 if result is None else result
                if result is None:
                    function.errcheck = _check
            if loaded.concord_abi_version() != ABI_VERSION:
                raise ImportError(
                    f"{path} has ABI {loaded.concord_abi_version()}, this "
                    f"package knows {ABI_VERSION}"
                )
            _library = loaded
        return _library


def _check(status, function, arguments):
    if status:
        # The text of the last error belongs to the thread that failed: this one.
        message = _library.concord_last_error() or b""
        name = _library.concord_status_name(status) or b""
        raise ConcordError(
            status, name.decode("utf-8", "replace"),
            message.decode("utf-8", "replace"),
        )
    return status


def version():
    """Version of the loaded library, as ``(major, minor, patch)``."""
    number = library().concord_version()
    return number // 10000, number // 100 % 100, number % 100
