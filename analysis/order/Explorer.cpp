//===- Explorer.cpp - All terminal states of a program --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The search and the exact state store. States are compared byte by byte; the
// hash only chooses a bucket.
//
//===----------------------------------------------------------------------===//

#include "Explorer.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace concord::order {

namespace {

using Moves = std::vector<uint32_t>; // sorted when used as a sleep set

/// All states of one program have the same number of entries, stored with the
/// narrowest width that holds every possible value.
class StateStore {
public:
  StateStore(size_t entries, uint32_t maxValue)
      : entries(entries), width(maxValue < 0x100     ? 1
                                : maxValue < 0x10000 ? 2
                                                     : 4),
        table(1024, 0) {}

  /// Index of the state; `fresh` if it was not there.
  uint32_t insert(const Machine::State &s, bool &fresh) {
    key.resize(entries * width);
    for (size_t i = 0; i < entries; ++i)
      std::memcpy(key.data() + i * width, &s[i], width); // little-endian
    uint64_t h = hash();
    size_t mask = table.size() - 1;
    for (size_t at = h & mask;; at = (at + 1) & mask) {
      uint32_t id = table[at];
      if (id == 0) {
        fresh = true;
        data.insert(data.end(), key.begin(), key.end());
        table[at] = uint32_t(++count);
        hashes.push_back(h);
        if (count * 2 > table.size())
          grow();
        return uint32_t(count - 1);
      }
      if (hashes[id - 1] == h &&
          std::memcmp(data.data() + (id - 1) * key.size(), key.data(),
                      key.size()) == 0) {
        fresh = false;
        return id - 1;
      }
    }
  }
  size_t size() const { return count; }
  uint64_t bytes() const {
    return data.capacity() + hashes.capacity() * 8 + table.capacity() * 4;
  }

private:
  size_t entries, width, count = 0;
  std::vector<uint8_t> key, data;
  std::vector<uint64_t> hashes;
  std::vector<uint32_t> table;

  uint64_t hash() const {
    uint64_t h = 0xCBF29CE484222325ull;
    for (uint8_t b : key)
      h = (h ^ b) * 0x100000001B3ull;
    return h ^ (h >> 31);
  }
  void grow() {
    std::vector<uint32_t> bigger(table.size() * 2, 0);
    size_t mask = bigger.size() - 1;
    for (uint32_t id = 0; id < count; ++id) {
      size_t at = hashes[id] & mask;
      while (bigger[at])
        at = (at + 1) & mask;
      bigger[at] = id + 1;
    }
    table = std::move(bigger);
  }
};

struct Frame {
  Machine::State state;
  Moves todo;
  size_t next = 0;
  Moves sleep; // grows with every explored move
};

bool contains(const Moves &sorted, uint32_t m) {
  return std::binary_search(sorted.begin(), sorted.end(), m);
}

uint32_t largestValue(const Program &p) {
  uint64_t most = std::max<uint64_t>(p.ops.size() + 1, p.threads.size() + 1);
  uint64_t statements = 1;
  for (const Thread &t : p.threads)
    statements += t.body.size();
  uint64_t parts = 1;
  for (const Operation &o : p.ops)
    parts += o.parts.size();
  return uint32_t(std::max({most, statements, parts}));
}

} // namespace

ExploreStats explore(const Machine &machine, const ExploreOptions &options,
                     const TerminalFn &onTerminal) {
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  ExploreStats stats;
  Machine::State start = machine.initial();
  StateStore store(start.size(), largestValue(machine.program()));
  std::vector<Moves> storedSleep; // by state index
  std::vector<Frame> stack;
  Moves moves;
  bool stopped = false;

  // Enter a state: returns false if nothing is left to explore below it.
  auto enter = [&](Machine::State &&s, Moves &&sleep) {
    machine.close(s);
    bool fresh = false;
    uint32_t id = store.insert(s, fresh);
    Frame frame;
    if (fresh) {
      machine.moves(s, moves);
      if (moves.empty()) {
        ++stats.terminals;
        storedSleep.emplace_back();
        if (!onTerminal(s, machine.finished(s)))
          stopped = true;
        return;
      }
      if (options.persistentSets)
        machine.reduce(s, moves);
      for (uint32_t m : moves)
        if (!contains(sleep, m))
          frame.todo.push_back(m);
      storedSleep.push_back(sleep);
    } else {
      // Explore only what every earlier visit had put to sleep.
      Moves &stored = storedSleep[id];
      Moves kept;
      for (uint32_t m : stored)
        (contains(sleep, m) ? kept : frame.todo).push_back(m);
      if (frame.todo.empty())
        return;
      stored = std::move(kept);
    }
    if (frame.todo.empty())
      return;
    frame.state = std::move(s);
    frame.sleep = std::move(sleep);
    stack.push_back(std::move(frame));
  };

  enter(std::move(start), {});
  while (!stack.empty() && !stopped) {
    if (store.size() >= options.bounds.states) {
      stats.bound = "states";
      break;
    }
    if ((stats.transitions & 255) == 0) {
      double elapsed =
          std::chrono::duration<double>(Clock::now() - begin).count();
      if (elapsed > options.bounds.seconds) {
        stats.bound = "seconds";
        break;
      }
      if (store.bytes() > options.bounds.bytes) {
        stats.bound = "bytes";
        break;
      }
    }
    Frame &top = stack.back();
    if (top.next == top.todo.size()) {
      stack.pop_back();
      continue;
    }
    uint32_t m = top.todo[top.next++];
    ++stats.transitions;
    Moves sleep;
    if (options.sleepSets) {
      uint32_t c = machine.component(m);
      for (uint32_t other : top.sleep)
        if (machine.component(other) != c)
          sleep.push_back(other);
      top.sleep.insert(std::lower_bound(top.sleep.begin(), top.sleep.end(), m),
                       m);
    }
    Machine::State next = top.state;
    machine.fire(next, m);
    enter(std::move(next), std::move(sleep));
  }
  stats.states = store.size();
  if (stopped && stats.bound.empty())
    stats.bound = "stopped";
  stats.complete = stats.bound.empty();
  stats.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return stats;
}

} // namespace concord::order
