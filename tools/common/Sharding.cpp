//===- Sharding.cpp - Global tensors to local ones and back ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Index lists, and the walk over their product.
//
//===----------------------------------------------------------------------===//

#include "common/Sharding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>

namespace concord::tools {

std::vector<std::vector<int64_t>>
localIndices(const ProgramMeta &meta, const Entry &entry, int64_t rank) {
  std::vector<std::vector<int64_t>> indices(entry.shape.size());
  for (size_t d = 0; d < indices.size(); ++d) {
    indices[d].resize(static_cast<size_t>(entry.shape[d]));
    std::iota(indices[d].begin(), indices[d].end(), 0);
  }
  std::vector<int64_t> coordinate = meta.coordinates(rank);
  for (const Split &split : entry.splits) {
    std::vector<int64_t> &list = indices[split.dim], picked;
    size_t blocks = static_cast<size_t>(split.outer);
    size_t block = list.size() / blocks;
    size_t part = block / static_cast<size_t>(meta.mesh[split.axis].second);
    size_t from = static_cast<size_t>(coordinate[split.axis]) * part;
    picked.reserve(part * blocks);
    for (size_t b = 0; part && b < blocks; ++b)
      for (size_t i = 0; i < part; ++i)
        picked.push_back(list[b * block + from + i]);
    list = std::move(picked);
  }
  return indices;
}

int64_t representative(const ProgramMeta &meta, const Entry &entry,
                       int64_t rank) {
  if (entry.kind == Entry::Kind::PerRank)
    return rank;
  std::vector<int64_t> coordinate = meta.coordinates(rank);
  std::vector<bool> matters(meta.mesh.size());
  for (const Split &split : entry.splits)
    matters[split.axis] = true;
  int64_t result = 0;
  for (size_t i = 0; i < meta.mesh.size(); ++i)
    result = result * meta.mesh[i].second + (matters[i] ? coordinate[i] : 0);
  if (entry.on(result))
    return result;
  // Not every rank has it: the first of those that hold the same part.
  for (int64_t candidate : entry.ranks) {
    std::vector<int64_t> other = meta.coordinates(candidate);
    bool same = true;
    for (size_t i = 0; i < meta.mesh.size(); ++i)
      same &= !matters[i] || other[i] == coordinate[i];
    if (same)
      return candidate;
  }
  return rank;
}

namespace {

/// Calls `copy(global byte offset, local byte offset, bytes)` for each
/// contiguous piece of the rank's part.
template <typename Copy>
void forEachPiece(const Entry &entry,
                  const std::vector<std::vector<int64_t>> &indices, Copy copy) {
  size_t rank = entry.shape.size();
  uint64_t size = dtypeSize(entry.dtype);
  for (const std::vector<int64_t> &list : indices)
    if (list.empty())
      return;
  // The dimensions that are whole at the end form one block with the last
  // dimension that is not; runs of consecutive indices in that one are copied
  // together.
  size_t tail = rank;
  uint64_t block = size;
  while (tail > 0 && indices[tail - 1].size() ==
                         static_cast<size_t>(entry.shape[tail - 1])) {
    --tail;
    block *= static_cast<uint64_t>(entry.shape[tail]);
  }
  if (tail == 0) {
    copy(uint64_t(0), uint64_t(0), block);
    return;
  }
  size_t runDim = tail - 1;
  struct Run {
    uint64_t from, length;
  };
  std::vector<Run> runs;
  for (int64_t i : indices[runDim]) {
    uint64_t at = static_cast<uint64_t>(i);
    if (!runs.empty() && runs.back().from + runs.back().length == at)
      ++runs.back().length;
    else
      runs.push_back({at, 1});
  }
  std::vector<uint64_t> stride(runDim + 1);
  stride[runDim] = block;
  for (size_t d = runDim; d-- > 0;)
    stride[d] = stride[d + 1] * static_cast<uint64_t>(entry.shape[d + 1]);
  std::vector<size_t> counter(runDim, 0);
  uint64_t local = 0;
  for (;;) {
    uint64_t base = 0;
    for (size_t d = 0; d < runDim; ++d)
      base += static_cast<uint64_t>(indices[d][counter[d]]) * stride[d];
    for (const Run &run : runs) {
      copy(base + run.from * block, local, run.length * block);
      local += run.length * block;
    }
    size_t d = runDim;
    while (d > 0 && ++counter[d - 1] == indices[d - 1].size())
      counter[--d] = 0;
    if (d == 0)
      return;
  }
}

void requireSize(const Entry &entry, const Shape &shape, size_t bytes) {
  if (numBytes(entry.dtype, shape).value_or(UINT64_MAX) != bytes)
    throw Error("'" + entry.name + "': " + std::to_string(bytes) +
                " bytes do not hold shape " + shapeToString(shape) + " of " +
                std::string(dtypeName(entry.dtype)));
}

} // namespace

std::vector<std::byte> sliceFor(const ProgramMeta &meta, const Entry &entry,
                                int64_t rank,
                                std::span<const std::byte> global) {
  requireSize(entry, entry.shape, global.size());
  std::vector<std::byte> local(
      numBytes(entry.dtype, entry.localShape).value_or(0));
  forEachPiece(entry, localIndices(meta, entry, rank),
               [&](uint64_t from, uint64_t to, uint64_t bytes) {
                 std::memcpy(local.data() + to, global.data() + from, bytes);
               });
  return local;
}

void placeFrom(const ProgramMeta &meta, const Entry &entry, int64_t rank,
               std::span<const std::byte> local, std::span<std::byte> global) {
  requireSize(entry, entry.shape, global.size());
  requireSize(entry, entry.localShape, local.size());
  forEachPiece(entry, localIndices(meta, entry, rank),
               [&](uint64_t to, uint64_t from, uint64_t bytes) {
                 std::memcpy(global.data() + to, local.data() + from, bytes);
               });
}

HostTensor gather(const ProgramMeta &meta, const Entry &entry,
                  std::span<const std::span<const std::byte>> locals) {
  HostTensor result{entry.dtype, entry.shape, {}};
  result.bytes.resize(numBytes(entry.dtype, entry.shape).value_or(0));
  for (int64_t rank = 0; rank < meta.world; ++rank) {
    if (!entry.on(rank))
      continue;
    std::span<const std::byte> local = locals[static_cast<size_t>(rank)];
    int64_t first = representative(meta, entry, rank);
    if (first == rank) {
      placeFrom(meta, entry, rank, local, result.bytes);
      continue;
    }
    std::span<const std::byte> other = locals[static_cast<size_t>(first)];
    requireSize(entry, entry.localShape, local.size());
    if (std::memcmp(other.data(), local.data(), local.size()) == 0)
      continue;
    uint64_t at = static_cast<uint64_t>(
        std::mismatch(local.begin(), local.end(), other.begin()).first -
        local.begin());
    uint64_t element = at / dtypeSize(entry.dtype);
    std::ostringstream message;
    message.precision(17);
    message << "output '" << entry.name << "': ranks " << first << " and "
            << rank << " hold the same part and differ at element "
            << indexToString(element, entry.localShape) << ": "
            << elementAt(entry.dtype, other, element) << " on rank " << first
            << ", " << elementAt(entry.dtype, local, element) << " on rank "
            << rank;
    throw RankError(message.str());
  }
  return result;
}

} // namespace concord::tools
