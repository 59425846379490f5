//===- Orders.cpp - Buffers placed one after another ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Orders.h"

#include <algorithm>

namespace concord::memory {

/// Sorting takes longer than looks at this many places for each that is sorted.
static constexpr int64_t kDense = 4;

int64_t Gaps::lowest(int64_t bytes) {
  int64_t top = 0;
  for (auto [begin, end] : taken)
    top = std::max(top, end);
  int64_t places = top / unit;
  if (places < kDense * static_cast<int64_t>(taken.size())) {
    covered.assign(static_cast<size_t>(places) + 1, 0);
    for (auto [begin, end] : taken) {
      ++covered[static_cast<size_t>(begin / unit)];
      --covered[static_cast<size_t>(end / unit)];
    }
    int64_t wanted = bytes / unit, free = 0;
    int32_t cover = 0;
    for (int64_t at = 0; at < places; ++at) {
      cover += covered[static_cast<size_t>(at)];
      free = cover ? 0 : free + 1;
      if (free == wanted)
        return (at + 1 - wanted) * unit;
    }
    return top - free * unit;
  }
  std::sort(taken.begin(), taken.end());
  int64_t offset = 0;
  for (auto [begin, end] : taken) {
    if (offset + bytes <= begin)
      break;
    offset = std::max(offset, end);
  }
  return offset;
}

OrderSearch::OrderSearch(const Meetings &meetings, int64_t unit)
    : at(meetings.size()), meetings(meetings), place(meetings.size()) {
  gaps.unit = unit;
}

void OrderSearch::start(std::vector<Index> next) {
  order = std::move(next);
  for (Index i = 0; i < order.size(); ++i)
    place[order[i]] = i;
  index = 0;
}

/// The lowest place for `buffer` beside those that come before it.
int64_t OrderSearch::lowest(Index buffer) {
  gaps.taken.clear();
  for (uint64_t i = meetings.from[buffer]; i < meetings.from[buffer + 1]; ++i)
    if (Index other = meetings.meets[i]; place[other] < place[buffer])
      gaps.taken.emplace_back(at[other], at[other] + meetings.bytes[other]);
  return gaps.lowest(meetings.bytes[buffer]);
}

/// Before one that it meets; the search goes on from there.
void OrderSearch::move(Index buffer) {
  before.clear();
  for (uint64_t i = meetings.from[buffer]; i < meetings.from[buffer + 1]; ++i)
    if (place[meetings.meets[i]] < index)
      before.push_back(place[meetings.meets[i]]);
  if (before.empty())
    return;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  Index to = before[state % before.size()];
  std::rotate(order.begin() + to, order.begin() + static_cast<int64_t>(index),
              order.begin() + static_cast<int64_t>(index) + 1);
  for (size_t i = to; i <= index; ++i)
    place[order[i]] = static_cast<Index>(i);
  index = to;
}

} // namespace concord::memory
