# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Communicators, streams and the gate, for modules that issue by themselves.

Calls go straight to libconcord.so through ctypes, which releases the
interpreter lock for as long as a call lasts: a Python module that waits (for its
turn, for a round that uses its slot, for a peer) does not hold up the threads of
the same process that are written in C++, nor other Python threads.
"""

import ctypes

import numpy as np

from . import _abi

REDUCTIONS = {"sum": 1, "prod": 2, "min": 3, "max": 4, "avg": 5, "and": 6, "or": 7}
_NUMBERS = {name: number for number, (_, name) in reversed(_abi.DTYPES.items())}


def _array(array, writes):
    """Address, elements and dtype number of a dense array."""
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        raise ValueError("needs a C-contiguous NumPy array")
    if writes and not array.flags.writeable:
        raise ValueError("the array is read-only")
    number = _NUMBERS.get(array.dtype.name)
    if number is None:
        raise ValueError(f"arrays of {array.dtype} cannot be sent")
    return ctypes.c_void_p(array.ctypes.data), array.size, number


class Stream:
    """An ordered queue of operations; they run while something waits or polls."""

    def __init__(self, context, priority=0):
        self._library = context._library
        self._handle = ctypes.c_void_p()
        self._library.concord_stream_create(
            context._handle, priority, ctypes.byref(self._handle)
        )

    def synchronize(self):
        """Wait until the stream is empty; raises its first error."""
        self._library.concord_stream_synchronize(self._handle)


def unique_id():
    """A fresh name for a job, 128 bytes: made by one process, carried to the others
    by the application, good for one job."""
    name = (ctypes.c_uint8 * _abi.ID_BYTES)()
    _abi.library().concord_unique_id_create(ctypes.byref(name))
    return bytes(name)


class Communicator:
    """The members ``ranks`` (world ranks, in group order), under ``name``.

    Collective over those ranks. Where a plan is loaded, ``name`` is the domain
    whose order the calls follow. Arrays are dense NumPy arrays and are used where
    they lie: on a stream, keep them until it is synchronised.
    """

    def __init__(self, context, name, ranks, priority=0):
        self._library = context._library
        self._context_type = type(context)
        self.name, self.ranks = name, list(ranks)
        config = _abi.made(_abi.CommConfig)
        self._name = name.encode()
        config.name = self._name
        config.priority = priority
        self._handle = ctypes.c_void_p()
        self._library.concord_comm_create_group(
            context._handle, (ctypes.c_int32 * len(self.ranks))(*self.ranks),
            len(self.ranks), ctypes.byref(config), ctypes.byref(self._handle)
        )

    @property
    def handle(self):
        """The ``concord_comm *``, for code of the same process in another
        language."""
        return self._handle.value

    def grow(self, world, unique_id=None):
        """The Context of a job of ``world`` ranks: the members, which keep their group
        ranks, and the processes that make a ``Context(unique_id=..., rank=...,
        world=world)`` with one of the ranks from the number of members on.

        Collective over the members; nothing may be in flight. ``unique_id`` is needed
        at group rank 0 only. All members succeed or all raise the same ConcordError;
        this communicator stays as it is."""
        name = None if unique_id is None else _abi.id_buffer(unique_id)
        handle, context = ctypes.c_void_p(), ctypes.c_void_p()
        self._library.concord_comm_grow(
            self._handle, world, name and ctypes.byref(name), ctypes.byref(handle)
        )
        self._library.concord_comm_context(handle, ctypes.byref(context))
        grown = object.__new__(self._context_type)
        grown._adopt(self._library, context)
        return grown

    def all_reduce(self, source, target, reduction="sum", stream=None):
        """``target`` = the reduction of all members' ``source``."""
        data, count, dtype = _array(source, False)
        out, size, other = _array(target, True)
        if size != count or other != dtype:
            raise ValueError("source and target differ in size or dtype")
        self._library.concord_all_reduce(
            self._handle, data, out, count, dtype, REDUCTIONS[reduction],
            stream and stream._handle
        )

    def broadcast(self, array, root=0, stream=None):
        """``array`` = that of group rank ``root``."""
        data, count, dtype = _array(array, True)
        self._library.concord_broadcast(
            self._handle, data, data, count, dtype, root,
            stream and stream._handle
        )

    def send(self, array, peer, stream=None):
        """To one member, by group rank."""
        data, count, dtype = _array(array, False)
        self._library.concord_send(
            self._handle, data, count, dtype, peer, stream and stream._handle
        )

    def recv(self, array, peer, stream=None):
        """From one member, by group rank."""
        data, count, dtype = _array(array, True)
        self._library.concord_recv(
            self._handle, data, count, dtype, peer, stream and stream._handle
        )

    def exchange(self, messages, stream=None):
        """Transfers that start together, so that they cannot wait for each other:
        a list of ``("send" or "recv", array, peer)``."""
        batch = (_abi.P2p * max(1, len(messages)))()
        for entry, (kind, array, peer) in zip(batch, messages):
            data, count, dtype = _array(array, kind == "recv")
            entry.send = {"send": 1, "recv": 0}[kind]
            entry.peer, entry.count, entry.dtype = peer, count, dtype
            entry.buffer = data
        self._library.concord_batch_p2p(
            self._handle, batch, len(messages), stream and stream._handle
        )

    def barrier(self, stream=None):
        """Completed when every member has issued it."""
        self._library.concord_barrier(self._handle, stream and stream._handle)

    def round_decision(self, root=0, bits=0):
        """The optional slots that the coming round uses: ``bits`` of group rank
        ``root``, and what issuers have asked for there."""
        value = ctypes.c_uint64(bits)
        self._library.concord_round_decision(
            self._handle, root, ctypes.byref(value)
        )
        return value.value


class Issuer:
    """One issuer of a loaded plan, run by the calling thread."""

    def __init__(self, context, name):
        self._library, self._context = context._library, context
        self._name = name.encode()
        self._library.concord_issuer_attach(context._handle, self._name)

    def request(self, bits=0):
        """Ask for optional slots (0: all of this issuer's) in a coming round; on
        the rank that decides."""
        self._library.concord_slot_request(
            self._context._handle, self._name, bits
        )

    def wait(self, seconds=-1.0):
        """``(round, bits)`` of the next round that uses a slot of this issuer; None
        when ``seconds`` have passed without one."""
        number, bits = ctypes.c_uint64(), ctypes.c_uint64()
        try:
            self._library.concord_slot_wait(
                self._context._handle, self._name, seconds,
                ctypes.byref(number), ctypes.byref(bits)
            )
        except _abi.ConcordError as error:
            if error.name == "CONCORD_ERROR_NOT_READY":
                return None
            raise
        return number.value, bits.value

    def leave(self):
        """It will issue nothing more."""
        self._library.concord_issuer_leave(self._context._handle, self._name)
