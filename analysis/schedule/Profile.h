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

/// Range add, range maximum; a node's `most` counts its own `add`, but not
/// those above it. Position `i` is the leaf `leaves + i + 1`, so that the
/// leaves on both sides of a range exist.
class Profile {
public:
  explicit Profile(size_t count) : count(count) {
    while (leaves < count + 2)
      leaves *= 2;
    most.assign(2 * leaves, 0);
    add.assign(2 * leaves, 0);
  }
  /// Position `i` gets the sum of `changes` up to there.
  void set(const std::vector<double> &changes) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
      most[leaves + i + 1] = sum += changes[i];
    for (size_t node = leaves; --node > 0;)
      most[node] = std::max(most[2 * node], most[2 * node + 1]);
  }
  void change(size_t first, size_t last, double value) {
    last = std::min(last, count - 1);
    if (first > last || value == 0)
      return;
    // From the bottom: between these two, both outside.
    size_t left = leaves + first, right = leaves + last + 2;
    auto apply = [&](size_t node) {
      most[node] += value;
      add[node] += value;
    };
    auto pull = [&](size_t node) {
      most[node] = add[node] + std::max(most[2 * node], most[2 * node + 1]);
    };
    while ((left ^ right) != 1) {
      if (!(left & 1))
        apply(left ^ 1);
      if (right & 1)
        apply(right ^ 1);
      pull(left /= 2);
      pull(right /= 2);
    }
    while (left /= 2)
      pull(left);
  }
  double maximum(size_t first, size_t last) const {
    if (first > last)
      return 0;
    last = std::min(last, count - 1);
    size_t left = leaves + first, right = leaves + last + 2;
    double fromLeft = kNothing, fromRight = kNothing;
    while ((left ^ right) != 1) {
      if (!(left & 1))
        fromLeft = std::max(fromLeft, most[left ^ 1]);
      if (right & 1)
        fromRight = std::max(fromRight, most[right ^ 1]);
      fromLeft += add[left /= 2];
      fromRight += add[right /= 2];
    }
    double result = std::max(fromLeft, fromRight);
    while (left /= 2)
      result += add[left];
    return result;
  }

private:
  static constexpr double kNothing = -1e300;

  size_t count, leaves = 1;
  std::vector<double> most, add;
};

} // namespace concord::schedule

#endif // CONCORD_ANALYSIS_SCHEDULE_PROFILE_H
