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

#include "concord/cost/Machine.h"

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

/// Microseconds, as `--explain` prints them.
inline std::string micro(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds * 1e6);
  return text;
}

} // namespace concord::fuse

#endif // CONCORD_PASSES_FUSE_FUSION_H
