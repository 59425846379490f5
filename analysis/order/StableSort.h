//===- StableSort.h - Stable sort without deprecated calls ------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// libstdc++ 12's std::stable_sort uses a function that it marks deprecated from
// C++17 on, which clang reports as a warning in the including file. Sorting
// positions and permuting gives the same result.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_STABLESORT_H
#define CONCORD_ANALYSIS_ORDER_STABLESORT_H

#include <algorithm>
#include <numeric>
#include <vector>

namespace concord::order {

template <typename T, typename Less>
void stableSort(std::vector<T> &items, Less less) {
  std::vector<size_t> at(items.size());
  std::iota(at.begin(), at.end(), size_t(0));
  std::sort(at.begin(), at.end(), [&](size_t a, size_t b) {
    if (less(items[a], items[b]))
      return true;
    if (less(items[b], items[a]))
      return false;
    return a < b;
  });
  std::vector<T> out;
  out.reserve(items.size());
  for (size_t i : at)
    out.push_back(std::move(items[i]));
  items = std::move(out);
}

} // namespace concord::order

#endif // CONCORD_ANALYSIS_ORDER_STABLESORT_H
