# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Jobs, contexts and programs: one Python object per object of the C ABI."""

import ctypes
import dataclasses
import json
import os

import numpy as np

from . import _abi
from ._comm import Communicator, Issuer, Stream

# By number of concord_gate_mode.
_GATE_MODES = [None, "off", "record", "check", "hold"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """An input or output of a program.

    ``dtype`` is Concord's name (``"F32"``, ``"BF16"``), ``numpy_dtype`` the NumPy
    type that stores it (uint16 for BF16). ``shape`` is the global shape,
    ``local_shape`` what this rank reads or writes, ``sharding`` the artefact's
    description as a dict (``{"kind": "replicated"}``, ...).
    """

    name: str
    dtype: str
    numpy_dtype: np.dtype
    shape: tuple
    local_shape: tuple
    sharding: dict


class Job:
    """A job whose ranks are threads of this process.

    ``world`` is the number of ranks; ``heap_bytes`` the address space per rank
    (0: the default). Each thread makes its own ``Context(job=job, rank=r)``. The
    job must outlive its contexts; ``close`` (or the end of a ``with`` block)
    releases it.
    """

    def __init__(self, world, heap_bytes=0):
        self._library = _abi.library()
        handle = ctypes.c_void_p()
        self._library.concord_job_create(world, heap_bytes, ctypes.byref(handle))
        self._handle = handle
        self.world = world

    def close(self):
        """Release the job. Raises ConcordError (BUSY) while a context is left."""
        if self._handle:
            self._library.concord_job_destroy(self._handle)
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()


class Context:
    """One rank of one job.

    Without ``job``, the job that a launcher describes in the environment
    (CONCORD_RANK, CONCORD_WORLD, CONCORD_JOB_FD), or a job of one rank when there
    is none. Collective: returns when all ranks have joined. ``timeout`` in seconds
    is how long a call waits for its peers (0: CONCORD_TIMEOUT). A context is used
    by one thread at a time, unless ``threads`` is true: then by any number.
    ``gate`` is "off", "record", "check" or "hold" (None: what the environment or
    the plan asks for). ``device_slots`` is the number of communication slots of
    the device (0: CONCORD_DEVICE_SLOTS).

    With ``unique_id`` (concord.unique_id()), ``rank`` and ``world`` processes that
    no launcher has started meet under that name, or join a communicator that grows
    by it (``Communicator.grow``), within ``connect_timeout`` seconds (0:
    CONCORD_CONNECT_TIMEOUT).
    """

    def __init__(self, job=None, rank=0, timeout=0.0, heap_bytes=0,
                 threads=False, gate=None, gate_timeout=0.0, device_slots=0,
                 unique_id=None, world=0, connect_timeout=0.0):
        library = _abi.library()
        config = _abi.made(_abi.ContextConfig)
        config.abi_version = _abi.ABI_VERSION
        config.thread_level = 2 if threads else 1
        config.gate_mode = _GATE_MODES.index(gate)
        config.gate_timeout_seconds = gate_timeout
        config.device_slots = device_slots
        config.rank = rank
        config.timeout_seconds = timeout
        config.connect_timeout_seconds = connect_timeout
        config.heap_bytes = heap_bytes
        if unique_id is not None:
            name = _abi.id_buffer(unique_id)
            config.unique_id = ctypes.addressof(name)
            config.world = world
        if job is not None:
            config.job = job._handle
            config.world = job.world
        handle = ctypes.c_void_p()
        library.concord_context_create(
            ctypes.byref(config), ctypes.byref(handle)
        )
        self._adopt(library, handle, job)

    def _adopt(self, library, handle, job=None):
        self._library, self._handle, self._job = library, handle, job
        own, world = ctypes.c_int32(), ctypes.c_int32()
        self._library.concord_context_rank(
            handle, ctypes.byref(own), ctypes.byref(world)
        )
        self.rank = own.value
        self.world = world.value
        self._programs = []

    def load(self, path, verify_weights=False):
        """Load ``NAME.so`` (and ``NAME.weights`` beside it) as a Program.
        Collective over all ranks: if one fails, all raise ConcordError."""
        program = Program(self, path, verify_weights)
        self._programs.append(program)
        return program

    @property
    def handle(self):
        """The ``concord_context *``, for code of the same process in another
        language."""
        return self._handle.value

    @property
    def gate(self):
        """The gate mode in use."""
        mode = ctypes.c_int32()
        self._library.concord_gate_mode_get(self._handle, ctypes.byref(mode))
        return _GATE_MODES[mode.value]

    def load_plan(self, path):
        """Let the communicators that are named after domains of the plan follow
        it: ``NAME.so``, or what ``comm-opt --emit=plan`` wrote. Collective over all
        ranks."""
        self._library.concord_plan_load_file(self._handle, os.fsencode(path))

    def communicator(self, name, ranks=None, priority=0):
        """A Communicator of ``ranks`` (default: all)."""
        members = range(self.world) if ranks is None else ranks
        return Communicator(self, name, members, priority)

    def stream(self, priority=0):
        """A Stream."""
        return Stream(self, priority)

    def issuer(self, name):
        """The calling thread as the Issuer ``name`` of the plan."""
        return Issuer(self, name)

    def synchronize(self):
        """Wait until all that this rank has issued has completed."""
        self._library.concord_device_synchronize(self._handle)

    def write_issue_log(self, path):
        """Write this rank's issue log for comm-doctor."""
        self._library.concord_issue_log_write(self._handle, os.fsencode(path))

    def abort(self, reason):
        """Make every call of every rank of the job fail with ABORTED. May be
        called from any thread."""
        self._library.concord_context_abort(self._handle, reason.encode())

    def close(self):
        """Unload the programs and leave the job in good order."""
        if self._handle:
            for program in self._programs:
                program.close()
            handle, self._handle = self._handle, None
            self._library.concord_context_finalize(handle)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is not None and self._handle:
            # Peers may be waiting for what this rank will not issue any more.
            try:
                self.abort(f"{kind.__name__} on rank {self.rank}: {value}")
                self.close()
            except _abi.ConcordError:
                pass
            return
        self.close()


class Program:
    """A compiled program, loaded for one rank. Made by ``Context.load``.

    ``inputs`` and ``outputs`` are lists of Entry in the model's order; ``meta`` is
    the artefact's metadata as a dict; ``digest`` names the plan.

    ``dims`` are the bounded dimensions (``comm-opt --dim seq=1..512``): name to
    ``(min, max)``. Such a program runs at the sizes that ``bind_shapes`` gives,
    or the arrays of ``bind_input`` and ``run`` have; before, at the maximum. The
    shapes of ``inputs`` and ``outputs`` are those in use.
    """

    def __init__(self, context, path, verify_weights=False):
        self._owner = None
        options = _abi.made(_abi.ProgramOptions)
        options.verify_weights = int(verify_weights)
        handle = ctypes.c_void_p()
        context._library.concord_program_load(
            context._handle,
            os.fsencode(os.path.abspath(path)),
            ctypes.byref(options),
            ctypes.byref(handle),
        )
        self._describe(context, handle)

    def issuer(self, name):
        """Of a rank with several issuers: the Program of another one, loaded and
        closed with this one, to be stepped by a thread of its own. Optional slots
        that a round does not use are passed over: what they would have written
        stays as it was. ConcordError where this rank has no such issuer."""
        self._require_open()
        handle = ctypes.c_void_p()
        self._library.concord_program_issuer(
            self._handle, name.encode(), ctypes.byref(handle)
        )
        other = object.__new__(Program)
        other._owner = self
        other._describe(self._context, handle)
        return other

    def _describe(self, context, handle):
        """Read what a loaded program is."""
        self._library = context._library
        self._context = context
        self._handle = handle
        info = _abi.made(_abi.ProgramInfo)
        self._library.concord_program_info_query(handle, ctypes.byref(info))
        self.name = info.name.decode()
        self.world = info.world
        self.digest = info.digest.decode()
        self.arena_bytes = info.arena_bytes
        self.weight_bytes = info.weight_bytes
        self.meta = json.loads(info.meta_json)
        self.dims = self._dims()
        self.inputs = self._entries("input")
        self.outputs = self._entries("output")
        bounded = {
            entry["name"]: "extents" in entry
            for entry in self.meta.get("inputs", [])
        }
        self._bounded = [bounded[entry.name] for entry in self.inputs]
        self._bound = {}

    def _dims(self):
        count = ctypes.c_uint32()
        self._library.concord_program_num_dims(self._handle, ctypes.byref(count))
        dims = {}
        for index in range(count.value):
            info = _abi.made(_abi.DimInfo)
            self._library.concord_program_dim(
                self._handle, index, ctypes.byref(info)
            )
            dims[info.name.decode()] = (info.min, info.max)
        return dims

    def sizes(self):
        """Sizes of the bounded dimensions now in use, by name."""
        self._require_open()
        result = {}
        for index, name in enumerate(self.dims):
            info = _abi.made(_abi.DimInfo)
            self._library.concord_program_dim(
                self._handle, index, ctypes.byref(info)
            )
            result[name] = info.size
        return result

    def bind_shapes(self, shapes):
        """Let the steps to come run at these global shapes, a dict by input;
        inputs that are left out follow. The same on all ranks. ConcordError when
        a size is out of bounds, or two inputs contradict each other."""
        self._require_open()
        for name, shape in shapes.items():
            index = self._index(self.inputs, name, "input")
            self._bind_shape(index, shape)
        self._prepare()

    def _bind_shape(self, index, shape):
        array = (ctypes.c_int64 * len(shape))(*shape)
        self._library.concord_program_bind_shape(
            self._handle, index, array, len(shape)
        )

    def _bind_local_shape(self, index, local):
        """The same from what one rank holds of it."""
        entry = self.inputs[index]
        shape = list(local)
        if len(shape) == len(entry.shape):
            mesh = dict(self.meta.get("mesh", []))
            for split in entry.sharding.get("splits", []):
                shape[split["dim"]] *= mesh[split["axis"]]
        self._bind_shape(index, shape)

    def _prepare(self):
        """Make what follows from new shapes, and read them."""
        if self.dims:
            self._library.concord_program_prepare(self._handle)
            self.inputs = self._entries("input")
            self.outputs = self._entries("output")

    def _entries(self, kind):
        count = ctypes.c_uint32()
        getattr(self._library, f"concord_program_num_{kind}s")(
            self._handle, ctypes.byref(count)
        )
        entries = []
        for index in range(count.value):
            info = _abi.made(_abi.EntryInfo)
            getattr(self._library, f"concord_program_{kind}")(
                self._handle, index, ctypes.byref(info)
            )
            name, storage = _abi.DTYPES[info.dtype]
            entries.append(
                Entry(
                    name=info.name.decode(),
                    dtype=name,
                    numpy_dtype=np.dtype(storage),
                    shape=tuple(info.global_shape[: info.rank]),
                    local_shape=tuple(info.local_shape[: info.rank]),
                    sharding=json.loads(info.sharding_json or b"{}"),
                )
            )
        return entries

    def _index(self, entries, name, kind):
        for index, entry in enumerate(entries):
            if entry.name == name:
                return index
        names = ", ".join(repr(entry.name) for entry in entries)
        raise KeyError(f"no {kind} {name!r}; the {kind}s are {names}")

    def _require_open(self):
        if not self._handle or (self._owner and not self._owner._handle):
            raise ValueError("the program was closed")

    def _view(self, getter, index, entry):
        self._require_open()
        pointer = ctypes.c_void_p()
        getter(self._handle, index, ctypes.byref(pointer))
        size = int(np.prod(entry.local_shape, dtype=np.int64))
        size *= entry.numpy_dtype.itemsize
        if size == 0:
            return np.empty(entry.local_shape, entry.numpy_dtype)
        raw = (ctypes.c_char * size).from_address(pointer.value)
        raw.owner = self  # the program lives at least as long as the view
        return np.frombuffer(raw, entry.numpy_dtype).reshape(entry.local_shape)

    def input_view(self, name):
        """The buffer now bound to an input, as an array of the local shape that
        shares its memory. Not to be used after ``close``."""
        index = self._index(self.inputs, name, "input")
        return self._view(
            self._library.concord_program_input_data, index, self.inputs[index]
        )

    def output_view(self, name):
        """The buffer that the last step wrote, sharing memory as above."""
        index = self._index(self.outputs, name, "output")
        return self._view(
            self._library.concord_program_output_data, index, self.outputs[index]
        )

    def _checked_dtype(self, entry, array, kind):
        if array.dtype != entry.numpy_dtype:
            raise TypeError(
                f"{kind} {entry.name!r} is {entry.dtype} (NumPy "
                f"{entry.numpy_dtype}), not {array.dtype}"
            )

    def _checked(self, entry, array, kind):
        self._checked_dtype(entry, array, kind)
        if array.shape != entry.local_shape:
            raise ValueError(
                f"{kind} {entry.name!r} has local shape "
                f"{list(entry.local_shape)}, not {list(array.shape)}"
            )

    def bind_input(self, name, array):
        """Let the steps to come read ``array`` itself (no copy). It must be
        C-contiguous, of the exact dtype and local shape; the program keeps it
        alive. None: back to the program's own buffer."""
        self._bind(name, array, self.inputs, "input")

    def bind_output(self, name, array):
        """Let the steps to come write ``array`` itself; as ``bind_input``, and it
        must be writable."""
        self._bind(name, array, self.outputs, "output")

    def _bind(self, name, array, entries, kind):
        self._require_open()
        index = self._index(entries, name, kind)
        bind = getattr(self._library, f"concord_program_bind_{kind}")
        if array is None:
            bind(self._handle, index, None)
            self._bound.pop((kind, index), None)
            return
        if kind == "input" and self._bounded[index]:
            self._checked_dtype(entries[index], array, kind)
            self._bind_local_shape(index, array.shape)
        elif kind == "input" or not self.dims:
            self._checked(entries[index], array, kind)
        else:
            # It may be for a larger size than the one in use.
            self._checked_dtype(entries[index], array, kind)
        if not array.flags.c_contiguous:
            raise ValueError(f"{kind} {name!r}: the array is not C-contiguous")
        if kind == "output" and not array.flags.writeable:
            raise ValueError(f"{kind} {name!r}: the array is read-only")
        bind(self._handle, index, array.ctypes.data)
        self._bound[kind, index] = array

    def bind_state(self, input, output):
        """After every step the buffer of ``output`` becomes that of ``input`` and
        the other way round, without a copy: decode loops."""
        self._require_open()
        self._library.concord_program_bind_state(
            self._handle,
            self._index(self.inputs, input, "input"),
            self._index(self.outputs, output, "output"),
        )

    def step(self):
        """Run once with what is bound. All ranks of the program call it. Raises
        ConcordError when a peer died, timed out or disagrees."""
        self._require_open()
        self._prepare()
        if self.dims:
            self._check_room()
        self._library.concord_program_step(self._handle)

    def _check_room(self):
        """Bound arrays must hold the shapes that the step is about to use."""
        for (kind, index), array in self._bound.items():
            entry = (self.inputs if kind == "input" else self.outputs)[index]
            size = int(np.prod(entry.local_shape, dtype=np.int64))
            if array.nbytes < size * entry.numpy_dtype.itemsize:
                raise ValueError(
                    f"the array bound to {kind} {entry.name!r} has shape "
                    f"{list(array.shape)}, the step needs "
                    f"{list(entry.local_shape)}"
                )

    def run(self, inputs):
        """Copy local arrays in (a dict by name; those left out keep what they
        had), run one step, and return copies of all outputs, by name. Of a
        program with pipeline stages, inputs that other stages read are passed
        over, and the outputs are those of this rank's stage."""
        own = {entry.name for entry in self.inputs}
        elsewhere = {entry["name"] for entry in self.meta["inputs"]} - own
        if self.dims:
            for name, array in inputs.items():
                index = self._index(self.inputs, name, "input")
                if self._bounded[index]:
                    self._bind_local_shape(index, np.shape(array))
            self._prepare()
        for name, array in inputs.items():
            if name in elsewhere:
                continue
            entry = self.inputs[self._index(self.inputs, name, "input")]
            array = np.asarray(array)
            self._checked(entry, array, "input")
            self.input_view(name)[...] = array
        self.step()
        return {e.name: self.output_view(e.name).copy() for e in self.outputs}

    def plan(self):
        """The plan table as a dict (docs/plan-schema.json)."""
        self._require_open()
        text = ctypes.c_char_p()
        self._library.concord_program_plan_json(self._handle, ctypes.byref(text))
        return json.loads(text.value)

    def close(self):
        """Unload. Views of its buffers must not be used any more."""
        if self._handle:
            handle, self._handle = self._handle, None
            if not self._owner:
                self._library.concord_program_unload(handle)
            self._bound.clear()
