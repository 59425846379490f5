//===- Compare.h - Is a result what was expected? ---------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// |got - expected| <= atol + rtol * |expected|, element by element, as NumPy's
// allclose has it; NaN equals NaN, and an infinity only itself.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMON_COMPARE_H
#define CONCORD_TOOLS_COMMON_COMPARE_H

#include "common/HostTensor.h"

namespace concord::tools {

struct Comparison {
  bool ok = true;
  std::string
      problem; ///< dtype or shape differ: said here, nothing was compared
  uint64_t elements = 0;
  uint64_t wrong = 0;           ///< elements beyond the tolerance
  double maxAbsError = 0;       ///< infinity where one side is not finite
  uint64_t worst = 0;           ///< the element with the largest excess
  double got = 0, expected = 0; ///< its values
};

/// Floats compare with floats of any width; integers and bool only with their
/// own dtype. Differences are taken in extended precision.
Comparison compare(const HostTensor &got, const HostTensor &expected,
                   double rtol, double atol);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMMON_COMPARE_H
