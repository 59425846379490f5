//===- Orders.h - Buffers placed one after another --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What placements by orders share: the lowest place that is free beside what
// has one, and the search over orders. It knows who meets whom, not when.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_MEMORY_ORDERS_H
#define CONCORD_ANALYSIS_MEMORY_ORDERS_H

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace concord::memory {

using Index = uint32_t;

/// Up to how many pairs of buffers that meet are listed.
constexpr int64_t kMaxListed = 8'000'000;
/// Steps of the search over orders without a better arena, per buffer.
constexpr int64_t kPatience = 20;

/// Finds holes.
class Gaps {
public:
  /// Bytes [begin, end) that are not free.
  std::vector<std::pair<int64_t, int64_t>> taken;
  int64_t unit = 1; ///< that all sizes, so all offsets, are made of

  /// The lowest place for `bytes` beside what is `taken`.
  int64_t lowest(int64_t bytes);

private:
  std::vector<int32_t> covered; ///< where something begins or ends
};

/// Who is live together with whom. A pair may be listed more than once.
struct Meetings {
  std::vector<int64_t> bytes; ///< of each buffer
  std::vector<uint64_t> from; ///< of each buffer's list in `meets`
  std::vector<Index> meets;

  size_t size() const { return bytes.size(); }
  /// Fills the lists from `each`, which calls its argument for every pair.
  template <typename Each> void list(const Each &each);
};

/// An order in which each buffer lies at the lowest place beside those before
/// it, and its neighbours: a buffer that did not fit goes before one that was
/// in its way.
class OrderSearch {
public:
  OrderSearch(const Meetings &meetings, int64_t unit);

  /// Goes on with another order.
  void start(std::vector<Index> next);
  /// From the first buffer again.
  void again() { index = 0; }
  /// Until every buffer ends at or below its limit: true, `at` has the
  /// offsets. False after `patience` moves, or when `work` is used up.
  /// `failed(buffer)` is told what did not fit.
  template <typename Limit, typename Failed>
  bool fit(const Limit &limit, int64_t patience, int64_t &work,
           const Failed &failed);

  std::vector<int64_t> at; ///< by buffer

private:
  int64_t lowest(Index buffer);
  void move(Index buffer);

  const Meetings &meetings;
  Gaps gaps;
  std::vector<Index> order, place; ///< and where in it each buffer is
  size_t index = 0; ///< orders are kept up to the first that does not fit
  uint64_t state = 0x9e3779b97f4a7c15;
  std::vector<Index> before;
};

template <typename Each> void Meetings::list(const Each &each) {
  from.assign(bytes.size() + 1, 0);
  each([&](Index a, Index b) {
    ++from[a + 1];
    ++from[b + 1];
  });
  for (size_t i = 1; i < from.size(); ++i)
    from[i] += from[i - 1];
  meets.resize(from.back());
  std::vector<uint64_t> next(from.begin(), from.end() - 1);
  each([&](Index a, Index b) {
    meets[next[a]++] = b;
    meets[next[b]++] = a;
  });
}

template <typename Limit, typename Failed>
bool OrderSearch::fit(const Limit &limit, int64_t patience, int64_t &work,
                      const Failed &failed) {
  /// What one step costs beside the neighbours that it looks at.
  constexpr int64_t kStep = 32;
  for (int64_t tries = 0; work > 0;) {
    for (; index < order.size(); ++index) {
      Index buffer = order[index];
      work -= static_cast<int64_t>(meetings.from[buffer + 1] -
                                   meetings.from[buffer]) +
              kStep;
      at[buffer] = lowest(buffer);
      if (at[buffer] + meetings.bytes[buffer] > limit(buffer))
        break;
    }
    if (index == order.size())
      return true;
    failed(order[index]);
    move(order[index]);
    if (++tries > patience)
      return false;
  }
  return false;
}

} // namespace concord::memory

#endif // CONCORD_ANALYSIS_MEMORY_ORDERS_H
