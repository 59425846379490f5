# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Global arrays to each rank's part and back.

A split dimension of size n over a mesh axis of size T, with ``outer`` = k, is seen
as [k, n/k]; coordinate c holds [:, c*n/k/T : (c+1)*n/k/T]. Splits apply in order
(runtime/include/concord/artefact.h).
"""

import numpy as np


def _coordinates(mesh, rank):
    """Row-major, the last axis fastest."""
    result = {}
    for name, size in reversed(mesh):
        result[name] = rank % size
        rank //= size
    return result


def _indices(shape, sharding, mesh, rank):
    indices = [np.arange(size) for size in shape]
    coordinates = _coordinates(mesh, rank)
    sizes = dict((name, size) for name, size in mesh)
    for split in sharding.get("splits", []):
        dim, axis, outer = split["dim"], split["axis"], split.get("outer", 1)
        blocks = indices[dim].reshape(outer, sizes[axis], -1)
        indices[dim] = blocks[:, coordinates[axis]].reshape(-1)
    return indices


def shard(array, entry, mesh, rank):
    """The part of a global ``array`` that ``rank`` holds, as a new C-contiguous
    array. ``mesh`` is the artefact's list of [name, size]."""
    if tuple(array.shape) != entry.shape:
        raise ValueError(
            f"{entry.name!r} has global shape {list(entry.shape)}, not "
            f"{list(array.shape)}"
        )
    if not entry.sharding.get("splits"):
        return np.array(array, order="C")
    picked = array[np.ix_(*_indices(array.shape, entry.sharding, mesh, rank))]
    return np.ascontiguousarray(picked)


def gather(parts, entry, mesh):
    """The global array from every rank's part (a list in rank order). Parts that
    several ranks hold must be equal bit for bit; else ValueError names the ranks.
    For a per-rank entry: the list itself."""
    if entry.sharding.get("kind") == "per_rank":
        return list(parts)
    split_axes = [split["axis"] for split in entry.sharding.get("splits", [])]
    result = np.empty(entry.shape, entry.numpy_dtype)
    first = {}
    for rank, part in enumerate(parts):
        coordinates = _coordinates(mesh, rank)
        key = tuple(coordinates[axis] for axis in split_axes)
        if key in first:
            if parts[first[key]].tobytes() != part.tobytes():
                raise ValueError(
                    f"{entry.name!r}: ranks {first[key]} and {rank} hold the "
                    "same part and differ"
                )
            continue
        first[key] = rank
        if entry.shape:
            result[np.ix_(*_indices(entry.shape, entry.sharding, mesh, rank))] = part
        else:
            result[...] = part
    return result
