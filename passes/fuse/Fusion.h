//===- Fusion.h - What the parts of comm-fuse share -------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How a part is asked, and what it answers.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_FUSE_FUSION_H
#define CONCORD_PASSES_FUSE_FUSION_H

#include "concord/cost/Cost.h"

#include <algorithm>
#include <cstdio>
#include <string>

namespace concord::fuse {

struct FusionOptions {
  const cost::Machine &machine;
  bool force = false;        ///< whatever is predicted
  bool exact = false;        ///< refuse what rounds otherwise
  double minGainPercent = 0; ///< of the unfused time without the products
};

/// NotOne: nothing that one would think of fusing, and nothing is explained.
enum class Outcome { Fused, Kept, NotOne };

/// Of a product that the members do at the same time: with few rows it takes as
/// long as reading its weight.
inline double productSeconds(const cost::Machine &machine, DType type,
                             double flops, double weight, int64_t members) {
  auto rate = machine.flops.find(type);
  double arithmetic =
      flops / (rate != machine.flops.end() ? rate->second
                                           : machine.flops.at(DType::F32));
  double footprint = weight * static_cast<double>(members);
  double bandwidth = cost::memoryBandwidth(machine, footprint, members);
  return std::max(arithmetic, weight / bandwidth);
}

/// Microseconds, as `--explain` prints them.
inline std::string micro(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds * 1e6);
  return text;
}

} // namespace concord::fuse

#endif // CONCORD_PASSES_FUSE_FUSION_H
