//===- Compare.cpp - Is a result what was expected? -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One pass that keeps the element with the largest excess over its tolerance.
//
//===----------------------------------------------------------------------===//

#include "common/Compare.h"

#include "common/TensorFile.h"

#include <cmath>
#include <limits>

namespace concord::tools {

Comparison compare(const HostTensor &got, const HostTensor &expected,
                   double rtol, double atol) {
  Comparison result;
  bool comparable = sameStorage(expected.dtype, got.dtype) ||
                    (isFloat(got.dtype) && isFloat(expected.dtype));
  if (!comparable) {
    result.ok = false;
    result.problem = "dtype " + std::string(dtypeName(got.dtype)) +
                     ", expected " + std::string(dtypeName(expected.dtype));
    return result;
  }
  if (got.shape != expected.shape) {
    result.ok = false;
    result.problem = "shape " + shapeToString(got.shape) + ", expected " +
                     shapeToString(expected.shape);
    return result;
  }
  DType expectedType = isFloat(expected.dtype) || !isFloat(got.dtype)
                           ? expected.dtype
                           : got.dtype;
  result.elements = got.numElements();
  long double worstExcess = -std::numeric_limits<long double>::infinity();
  for (uint64_t i = 0; i < result.elements; ++i) {
    long double a = elementAt(got.dtype, got.bytes, i);
    long double b = elementAt(expectedType, expected.bytes, i);
    long double error;
    if (std::isnan(a) || std::isnan(b))
      error = std::isnan(a) && std::isnan(b)
                  ? 0
                  : std::numeric_limits<long double>::infinity();
    else if (std::isinf(a) || std::isinf(b))
      error = a == b ? 0 : std::numeric_limits<long double>::infinity();
    else
      error = std::fabs(a - b);
    long double tolerance = atol;
    if (std::isfinite(b))
      tolerance += static_cast<long double>(rtol) * std::fabs(b);
    long double excess = error - tolerance;
    if (excess > 0)
      ++result.wrong;
    if (static_cast<double>(error) > result.maxAbsError)
      result.maxAbsError = static_cast<double>(error);
    if (excess > worstExcess) {
      worstExcess = excess;
      result.worst = i;
      result.got = static_cast<double>(a);
      result.expected = static_cast<double>(b);
    }
  }
  result.ok = result.wrong == 0;
  return result;
}

} // namespace concord::tools
