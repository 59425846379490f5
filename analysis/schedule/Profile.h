//===- Profile.h - What lives at each position ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A segment tree over the positions of the given order: adds to ranges, and
// says how much lives at most in one.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_SCHEDULE_PROFILE_H
#define CONCORD_ANALYSIS_SCHEDULE_PROFILE_H

#include <algorithm>
#include <cstddef>
#include <vector>

namespace concord::schedule {

/// Range add, range maximum.
class Profile {
public:
  explicit Profile(size_t count) : count(std::max<size_t>(1, count)) {
    size_t size = 1;
    while (size < this->count)
      size *= 2;
    leaves = size;
    most.assign(2 * size, 0);
    add.assign(2 * size, 0);
  }
  void change(size_t first, size_t last, double value) {
    if (first <= last && value != 0)
      change(1, 0, leaves - 1, first, std::min(last, count - 1), value);
  }
  double maximum(size_t first, size_t last) const {
    return first > last
               ? 0
               : maximum(1, 0, leaves - 1, first, std::min(last, count - 1));
  }

private:
  void change(size_t node, size_t low, size_t high, size_t first, size_t last,
              double value) {
    if (first > high || last < low)
      return;
    if (first <= low && high <= last) {
      most[node] += value;
      add[node] += value;
      return;
    }
    size_t middle = (low + high) / 2;
    change(2 * node, low, middle, first, last, value);
    change(2 * node + 1, middle + 1, high, first, last, value);
    most[node] = add[node] + std::max(most[2 * node], most[2 * node + 1]);
  }
  double maximum(size_t node, size_t low, size_t high, size_t first,
                 size_t last) const {
    if (first > high || last < low)
      return -1e300;
    if (first <= low && high <= last)
      return most[node];
    size_t middle = (low + high) / 2;
    return add[node] +
           std::max(maximum(2 * node, low, middle, first, last),
                    maximum(2 * node + 1, middle + 1, high, first, last));
  }

  size_t count, leaves;
  std::vector<double> most, add;
};

} // namespace concord::schedule

#endif // CONCORD_ANALYSIS_SCHEDULE_PROFILE_H
