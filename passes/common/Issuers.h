//===- Issuers.h - Who issues on a rank -------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_ISSUERS_H
#define CONCORD_PASSES_COMMON_ISSUERS_H

#include "concord/plan.h"

#include <set>

namespace concord {

/// Whether some rank runs more than one of the programs.
inline bool severalIssuers(const plan::Plan &plan) {
  std::set<int32_t> seen;
  for (const plan::Program &program : plan.programs)
    for (int32_t rank : program.ranks)
      if (!seen.insert(rank).second)
        return true;
  return false;
}

} // namespace concord

#endif // CONCORD_PASSES_COMMON_ISSUERS_H
