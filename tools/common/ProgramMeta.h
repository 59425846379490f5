//===- ProgramMeta.h - What a compiled program says of itself ---*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The `.concord.meta` section (concord/artefact.h) as structs, checked in full:
// whoever holds a ProgramMeta need not look at any number in it again.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMON_PROGRAMMETA_H
#define CONCORD_TOOLS_COMMON_PROGRAMMETA_H

#include "common/HostTensor.h"
#include "concord/extent.h"

#include <filesystem>
#include <utility>

namespace concord::tools {

/// Dimension `dim` of a tensor split over mesh axis `axis`; see artefact.h.
struct Split {
  size_t dim = 0;
  size_t axis = 0; ///< index into ProgramMeta::mesh
  int64_t outer = 1;
};

struct Entry {
  enum class Kind { Replicated, Split, PerRank };

  std::string name;
  DType dtype = DType::Invalid;
  Shape shape; ///< global; the maximum where a dimension is bounded
  /// Least and greatest size per dimension; empty when all are fixed.
  std::vector<std::pair<int64_t, int64_t>> bounds;
  std::vector<Extent> extents; ///< of `shape`; empty when all are fixed
  Kind kind = Kind::Replicated;
  std::vector<Split> splits;
  Shape localShape;
  /// World ranks that read or write it, ascending; empty: all of them.
  std::vector<int64_t> ranks;

  bool on(int64_t rank) const;
};

/// A bounded dimension of the model.
struct BoundedDim {
  std::string name;
  int64_t min = 0, max = 0;
};

struct ProgramMeta {
  int64_t abi = 0;
  std::string name;
  int64_t world = 1;
  std::vector<std::pair<std::string, int64_t>> mesh;
  std::string targetCpu, digest, weights, gate;
  uint64_t arenaBytes = 0;
  uint64_t parameterBytes = 0; ///< over all ranks, shared sections once
  std::vector<Entry> inputs, outputs;
  std::vector<std::string> assumes;
  std::vector<BoundedDim> dims;

  /// Coordinates of `rank` on the mesh: row-major, the last axis fastest.
  std::vector<int64_t> coordinates(int64_t rank) const;
  /// The shapes of an input or output at sizes of the dimensions. Throws Error
  /// where the mesh does not divide them.
  void resize(Entry &entry, std::span<const int64_t> sizes) const;
};

/// Parse and check the JSON. `name` begins the message of the Error that is
/// thrown when anything in it is missing, of the wrong type or inconsistent (a
/// mesh whose product is not the world, a split that does not divide, a local
/// shape that does not follow). A different `abi` is refused by number.
ProgramMeta parseMeta(std::string_view json, const std::string &name);

/// The metadata of an artefact, from its section, without loading it.
ProgramMeta readMeta(const std::filesystem::path &path);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMMON_PROGRAMMETA_H
