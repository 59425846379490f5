//===- Limits.cpp - What the host allows an operation ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bare loops. Every rank with a core of its own works; where ranks outnumber
// cores the workers do the work of all, as it need not matter who does it.
//
//===----------------------------------------------------------------------===//

#include "Limits.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <sys/mman.h>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace concord::bench;

const char *const concord::bench::kBareWayNames[kNumBareWays] = {
    "slots",
    "in place",
    "in place, past the caches",
    "in place, past the caches by blocks",
    "own output, in place",
    "own output, in place, past the caches",
    "staged",
    "staged, past the caches"};

bool concord::bench::hasLimit(int32_t kind) {
  return kind >= kAllReduce && kind <= kBroadcast;
}

void concord::bench::bareMixture(int32_t kind, int ranks, int &loads,
                                 int &stores) {
  loads = kind == kAllReduce || kind == kReduceScatter ? ranks : 1;
  stores = kind == kReduceScatter || kind == kAllToAll ? 1 : ranks;
}

//===----------------------------------------------------------------------===//
// Moving bytes
//===----------------------------------------------------------------------===//

namespace {

constexpr uint64_t kLine = 64;
constexpr int kMostRanks = 64;
constexpr uint64_t kHugePage = uint64_t(2) << 20;

struct Move {
  const char *from[kMostRanks];
  char *to[kMostRanks];
  int loads = 0, stores = 0;
  uint64_t bytes = 0; ///< a multiple of a line
};
using Line = float __attribute__((vector_size(64), aligned(64), may_alias));
using LooseLine = float __attribute__((vector_size(64), aligned(4), may_alias));

/// The sum of L arrays to S; 0: as many as the move says.
template <int L, int S, bool kPast>
[[gnu::always_inline]] inline void moveLines(const Move &m) {
  constexpr uint64_t kAhead = 1024;
  const int loads = L ? L : m.loads, stores = S ? S : m.stores;
  const char *const *from = m.from;
  char *const *to = m.to;
  for (uint64_t i = 0; i < m.bytes; i += kLine) {
    if (kPast && i + kAhead < m.bytes)
      for (int l = 0; l < loads; ++l)
        __builtin_prefetch(from[l] + i + kAhead);
    LooseLine sum = *reinterpret_cast<const LooseLine *>(from[0] + i);
    for (int l = 1; l < loads; ++l)
      sum += *reinterpret_cast<const LooseLine *>(from[l] + i);
    for (int s = 0; s < stores; ++s)
      if (kPast)
        __builtin_nontemporal_store(Line(sum),
                                    reinterpret_cast<Line *>(to[s] + i));
      else
        *reinterpret_cast<LooseLine *>(to[s] + i) = sum;
  }
}

/// Past the caches, one target after the other, so that each takes whole rows
/// of the memory.
template <int L> [[gnu::always_inline]] inline void moveBlocks(const Move &m) {
  constexpr uint64_t kBlock = 4096;
  alignas(64) char block[kBlock];
  Move part = m, out;
  part.stores = out.loads = out.stores = 1;
  part.to[0] = block;
  out.from[0] = block;
  for (uint64_t at = 0; at < m.bytes; at += kBlock) {
    part.bytes = out.bytes = std::min(kBlock, m.bytes - at);
    for (int l = 0; l < m.loads; ++l)
      part.from[l] = m.from[l] + at;
    moveLines<L, 1, false>(part);
    for (int s = 0; s < m.stores; ++s) {
      out.to[0] = m.to[s] + at;
      moveLines<1, 1, true>(out);
    }
  }
}

template <int L, int S>
[[gnu::always_inline]] inline void moveAs(const Move &m, int way) {
  if (way == kBareBlocks)
    moveBlocks<L>(m);
  else if (way == kBarePast || way == kBareOwnPast || way == kBareStagedPast)
    moveLines<L, S, true>(m);
  else
    moveLines<L, S, false>(m);
}

[[gnu::always_inline]] inline void moveAny(const Move &m, int way) {
  switch (m.loads << 8 | m.stores) {
  case 0x101:
    return moveAs<1, 1>(m, way);
  case 0x102:
    return moveAs<1, 2>(m, way);
  case 0x201:
    return moveAs<2, 1>(m, way);
  case 0x202:
    return moveAs<2, 2>(m, way);
  case 0x404:
    return moveAs<4, 4>(m, way);
  case 0x808:
    return moveAs<8, 8>(m, way);
  default:
    return moveAs<0, 0>(m, way);
  }
}

#if defined(__x86_64__)
[[gnu::target("avx512f")]] void moveAvx512(const Move &m, int way) {
  moveAny(m, way);
}
[[gnu::target("avx2")]] void moveAvx2(const Move &m, int way) {
  moveAny(m, way);
}
#endif
void moveBase(const Move &m, int way) { moveAny(m, way); }

void move(const Move &m, int way) {
  using Function = void (*)(const Move &, int);
  static const Function function = [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
      return Function(moveAvx512);
    if (__builtin_cpu_supports("avx2"))
      return Function(moveAvx2);
#endif
    return Function(moveBase);
  }();
  function(m, way);
}

void drainStores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

void makeHuge(char *at, uint64_t bytes) {
  // MADV_POPULATE_WRITE and MADV_COLLAPSE; where the system lacks them the
  // pages stay as they come, as the heap's do.
  for (uint64_t i = 0; i + kHugePage <= bytes; i += kHugePage)
    if (::madvise(at + i, kHugePage, 23) != 0 ||
        ::madvise(at + i, kHugePage, 25) != 0)
      return;
}

void await(const std::atomic<uint64_t> &flag, uint64_t value) {
  for (int spins = 0; flag.load(std::memory_order_acquire) < value;) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (++spins > 2000)
      ::sched_yield();
  }
}

} // namespace

//===----------------------------------------------------------------------===//
// The loops
//===----------------------------------------------------------------------===//

struct BareLoops::Area {
  static constexpr uint64_t kPayload = 4096, kSlots = 16;
  /// Payload that lies beside the flag.
  static constexpr uint64_t kBeside = 48;
  struct alignas(128) Word {
    std::atomic<uint64_t> value;
  };
  struct alignas(128) Slot {
    std::atomic<uint64_t> sequence;
    uint64_t unused;
    char beside[kBeside];
    char behind[kPayload];
    char *payload(uint64_t bytes) { return bytes <= kBeside ? beside : behind; }
  };
  Word ready[kMostRanks], done[kMostRanks];
  Slot slots[kMostRanks][kSlots];
};

static uint64_t areaBytes(uint64_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

uint64_t concord::bench::limitBytes(int ranks, uint64_t capacity) {
  constexpr uint64_t kAreaMost = uint64_t(8) << 20;
  return kAreaMost + 2 * uint64_t(ranks) * areaBytes(capacity);
}

char *BareLoops::shared(int rank, bool out) const {
  static_assert(sizeof(Area) <= uint64_t(8) << 20);
  return base + (uint64_t(8) << 20) +
         (2 * uint64_t(rank) + out) * areaBytes(capacity);
}
char *BareLoops::input(int rank) const {
  return foreign[0] ? foreign[0] : shared(rank, false);
}
char *BareLoops::output(int rank) const {
  return foreign[1] ? foreign[1] : shared(rank, true);
}

BareLoops::BareLoops(int fd, uint64_t capacity, int me, int ranks, bool rotate,
                     bool isForeign)
    : capacity(capacity), me(me), ranks(ranks),
      workers(std::min(ranks, int(std::thread::hardware_concurrency()))),
      rotate(rotate) {
  uint64_t bytes = limitBytes(ranks, capacity);
  mapped = bytes + kHugePage;
  void *room =
      ::mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    throw std::runtime_error("no room for the buffers of the bare loops");
  mapping = static_cast<char *>(room);
  base = mapping + (-reinterpret_cast<uintptr_t>(mapping) & (kHugePage - 1));
  if (::mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             off_t(kLimitsAt)) == MAP_FAILED)
    throw std::runtime_error("the buffers of the bare loops cannot be mapped");
  uint64_t own = 2 * areaBytes(capacity);
  makeHuge(shared(me, false), own);
  // A number in every type, and not the same page of zeros for all.
  std::memset(shared(me, false), 0x3c, own);
  if (!isForeign)
    return;
  for (char *&operand : foreign) {
    // As the operations' own: of malloc, in whatever pages that gives.
    operand =
        static_cast<char *>(std::aligned_alloc(4096, areaBytes(capacity)));
    if (!operand)
      throw std::runtime_error("no memory for the operands of the bare loops");
    std::memset(operand, 0x3c, areaBytes(capacity));
  }
}

BareLoops::~BareLoops() {
  for (char *operand : foreign)
    std::free(operand);
  ::munmap(mapping, mapped);
}

void BareLoops::meet(bool done, uint64_t value) {
  Area::Word *words = done ? area().done : area().ready;
  words[me].value.store(value, std::memory_order_release);
  for (int w = 0; w < workers; ++w)
    if (w != me)
      await(words[w].value, value);
}

/// As operations of up to a few KiB: everybody's input beside its flag.
void BareLoops::throughSlots(const Call &call, uint64_t chunk, uint64_t at) {
  const bool wide = wideInput(call.kind);
  const bool sends = call.kind != kBroadcast || me == call.root;
  auto slot = [&](int rank) -> Area::Slot & {
    return area().slots[rank][counter % Area::kSlots];
  };
  // Of two ranks' wide input only the peer's chunk travels.
  const bool onlyPeer = wide && ranks == 2;
  uint64_t bytes = wide && !onlyPeer ? chunk * uint64_t(ranks) : chunk;
  Area::Slot &mine = slot(me);
  if (sends) {
    std::memcpy(mine.payload(bytes),
                input(me) + at + (onlyPeer ? uint64_t(1 - me) * chunk : 0),
                bytes);
    mine.sequence.store(counter, std::memory_order_release);
  }
  if (call.kind == kBroadcast) {
    // The root looks once in a while whether its slots are free again.
    constexpr uint64_t kOften = Area::kSlots / 2;
    if (me != call.root)
      await(slot(call.root).sequence, counter);
    const char *from =
        me == call.root ? input(me) + at : slot(call.root).payload(bytes);
    std::memcpy(output(me) + at, from, bytes);
    if (counter % kOften == 0) {
      if (me != call.root)
        area().ready[me].value.store(counter, std::memory_order_release);
      else if (counter > kOften)
        for (int r = 0; r < ranks; ++r)
          if (r != me)
            await(area().ready[r].value, counter - kOften);
    }
    return;
  }
  for (int r = 0; r < ranks; ++r)
    if (r != me)
      await(slot(r).sequence, counter);
  auto from = [&](int r) -> const char * {
    uint64_t skip = wide ? uint64_t(me) * chunk : 0;
    return r == me ? input(me) + at + skip
                   : slot(r).payload(bytes) + (onlyPeer ? 0 : skip);
  };
  if (call.kind == kAllReduce || call.kind == kReduceScatter) {
    auto *to = reinterpret_cast<float *>(output(me) + at);
    uint64_t count = chunk / sizeof(float);
    const auto *first = reinterpret_cast<const float *>(from(0));
    const auto *second = reinterpret_cast<const float *>(from(1));
#pragma clang loop vectorize(assume_safety)
    for (uint64_t i = 0; i < count; ++i)
      to[i] = first[i] + second[i];
    for (int r = 2; r < ranks; ++r) {
      const auto *next = reinterpret_cast<const float *>(from(r));
#pragma clang loop vectorize(assume_safety)
      for (uint64_t i = 0; i < count; ++i)
        to[i] += next[i];
    }
    return;
  }
  for (int r = 0; r < ranks; ++r)
    std::memcpy(output(me) + at + uint64_t(r) * chunk, from(r), chunk);
}

/// Ask for a line before it is stored to, when no other core reads it.
static void claim(const std::atomic<uint64_t> &flag) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(flag));
#endif
}

/// A flag when the operands are there, the work, a flag when it is done.
void BareLoops::inPlace(const Call &call, uint64_t chunk, uint64_t at,
                        BareWay way) {
  meet(false, counter);
  claim(area().done[me].value);
  auto carry = [&](auto from, auto to, uint64_t begin, uint64_t bytes) {
    Move m;
    bareMixture(call.kind, ranks, m.loads, m.stores);
    m.bytes = bytes;
    for (int l = 0; l < m.loads; ++l)
      m.from[l] = from(l) + at + begin;
    for (int s = 0; s < m.stores; ++s)
      m.to[s] = to(s) + at + begin;
    move(m, way);
  };
  uint64_t p = uint64_t(ranks), w = uint64_t(workers);
  if (way >= kBareOwn) {
    Move m;
    m.loads = call.kind == kAllReduce ? ranks : 1;
    m.stores = 1;
    m.bytes = chunk;
    for (int part = 0; part < (call.kind == kAllGather ? ranks : 1); ++part) {
      for (int l = 0; l < m.loads; ++l)
        m.from[l] = input(call.kind == kAllReduce   ? l
                          : call.kind == kAllGather ? part
                                                    : call.root) +
                    at;
      m.to[0] = output(me) + at + uint64_t(part) * chunk;
      move(m, way);
    }
    meet(true, counter);
    if (way == kBareOwnPast)
      drainStores();
    claim(area().ready[me].value);
    return;
  }
  uint64_t first = chunk / kLine * uint64_t(me) / w * kLine;
  uint64_t last = chunk / kLine * uint64_t(me + 1) / w * kLine;
  switch (call.kind) {
  case kAllReduce:
    carry([&](int l) { return input(l); }, [&](int s) { return output(s); },
          first, last - first);
    break;
  case kBroadcast:
    carry([&](int) { return input(call.root); },
          [&](int s) { return output(s); }, first, last - first);
    break;
  case kReduceScatter:
    for (uint64_t c = uint64_t(me); c < p; c += w)
      carry([&](int l) { return input(l) + c * chunk; },
            [&](int) { return output(int(c)); }, 0, chunk);
    break;
  case kAllGather:
    for (uint64_t c = uint64_t(me); c < p; c += w)
      carry([&](int) { return input(int(c)); },
            [&](int s) { return output(s) + c * chunk; }, 0, chunk);
    break;
  default: // all_to_all
    for (uint64_t c = uint64_t(me); c < p; c += w)
      for (uint64_t i = 0; i < p; ++i) {
        uint64_t r = (c + i) % p; // the own block first, as all do
        carry([&](int) { return input(int(r)) + c * chunk; },
              [&](int) { return output(int(c)) + r * chunk; }, 0, chunk);
      }
  }
  // Who has written its own output only, has only read what others wait for.
  const bool own = call.kind == kReduceScatter || call.kind == kAllToAll;
  if (way >= kBarePast && !own)
    drainStores();
  meet(true, counter);
  if (way >= kBarePast && own)
    drainStores();
  claim(area().ready[me].value);
}

/// Segment by segment: what others need to memory that all share, a flag, the
/// work there, a flag, and back what others have left. Every rank has a core.
void BareLoops::staged(const Call &call, uint64_t chunk, uint64_t at,
                       BareWay way) {
  // As long as the runtime's; shorter ones take no less, but more flags.
  constexpr uint64_t kSegment = uint64_t(512) << 10;
  const uint64_t p = uint64_t(ranks), own = uint64_t(me);
  const bool past = way == kBareStagedPast;
  auto copy = [&](char *to, const char *from, uint64_t bytes) {
    Move m;
    m.loads = m.stores = 1;
    m.from[0] = from;
    m.to[0] = to;
    m.bytes = bytes;
    move(m, way);
  };
  auto flag = [&] {
    if (past)
      drainStores();
    meet(false, ++counter);
  };
  const uint64_t chunks = wideInput(call.kind) ? p : 1;
  const uint64_t part = std::min(chunk, kSegment / chunks / kLine * kLine);
  for (uint64_t from = 0; from < chunk; from += part) {
    const uint64_t n = std::min(part, chunk - from);
    const uint64_t first = n / kLine * own / p * kLine;
    const uint64_t last = n / kLine * (own + 1) / p * kLine;
    char *in = input(me) + at + from, *out = output(me) + at + from;
    char *inStage = shared(me, false), *outStage = shared(me, true);
    switch (call.kind) {
    case kAllReduce:
      copy(inStage, in, first);
      copy(inStage + last, in + last, n - last);
      break;
    case kReduceScatter:
    case kAllToAll:
      for (uint64_t c = 0; c < p; ++c)
        if (c != own)
          copy(inStage + c * part, in + c * chunk, n);
      break;
    case kAllGather:
      copy(inStage, in, n);
      break;
    default:
      if (me == call.root)
        copy(inStage, in, n);
    }
    flag();
    Move m;
    m.loads = ranks;
    switch (call.kind) {
    case kAllReduce:
      m.bytes = last - first;
      m.stores = ranks;
      for (int r = 0; r < ranks; ++r) {
        m.from[r] = (r == me ? in : shared(r, false)) + first;
        m.to[r] = (r == me ? out : shared(r, true)) + first;
      }
      move(m, way);
      break;
    case kReduceScatter:
      m.bytes = n;
      m.stores = 1;
      for (uint64_t r = 0; r < p; ++r)
        m.from[r] =
            r == own ? in + own * chunk : shared(int(r), false) + own * part;
      m.to[0] = out;
      move(m, way);
      break;
    case kAllGather:
    case kAllToAll:
      for (uint64_t r = 0; r < p; ++r) {
        uint64_t skip = call.kind == kAllToAll ? own : 0;
        copy(out + r * chunk,
             r == own ? in + skip * chunk : shared(int(r), false) + skip * part,
             n);
      }
      break;
    default:
      copy(out, me == call.root ? in : shared(call.root, false), n);
    }
    flag();
    if (call.kind == kAllReduce) {
      copy(out, outStage, first);
      copy(out + last, outStage + last, n - last);
    }
  }
  if (past)
    drainStores();
}

double BareLoops::run(const Call &call, BareWay way, uint64_t iterations) {
  uint64_t chunk = call.count * typeSize(call.type);
  bool wide = wideInput(call.kind) || wideOutput(call.kind);
  uint64_t p = uint64_t(ranks), whole = wide ? chunk * p : chunk;
  bool fits = wideInput(call.kind) && ranks != 2 ? whole <= Area::kPayload
                                                 : chunk <= Area::kPayload;
  const bool isStaged = way >= kBareStaged;
  if (me >= workers || !hasLimit(call.kind) || ranks < 2 ||
      (way != kBareSlots && isStaged != (foreign[0] != nullptr)) ||
      (isStaged && workers < ranks) ||
      (way == kBareSlots
           ? workers < ranks || !fits || call.type != kF32
           : chunk % kLine != 0 || chunk / kLine < uint64_t(workers)) ||
      (way == kBareBlocks && (ranks < 3 || chunk < 4096)) ||
      // The others write but their own output anyway.
      (way >= kBareOwn && !isStaged &&
       (workers < ranks || call.kind == kReduceScatter ||
        call.kind == kAllToAll)))
    return 0;
  if (!present) {
    // What the others have made present, this rank's tables have yet to show.
    ::madvise(base, limitBytes(ranks, capacity), 23);
    present = true;
  }
  // Where ranks outnumber cores, nobody has bound them.
  cpu_set_t before, own;
  bool bind =
      workers < ranks && ::sched_getaffinity(0, sizeof before, &before) == 0;
  if (bind) {
    CPU_ZERO(&own);
    for (int core = 0, nth = me; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &before) && nth-- == 0)
        CPU_SET(core, &own);
    bind = ::sched_setaffinity(0, sizeof own, &own) == 0;
  }
  uint64_t pitch = std::max<uint64_t>((whole + 63) / 64 * 64, 64);
  uint64_t slots = rotate ? std::max<uint64_t>(capacity / pitch, 1) : 1;
  auto once = [&] {
    ++counter;
    turn = (turn + 1) % slots;
    if (way == kBareSlots)
      throughSlots(call, chunk, turn * pitch);
    else if (isStaged)
      staged(call, chunk, turn * pitch, way);
    else
      inPlace(call, chunk, turn * pitch, way);
  };
  turn %= slots;
  for (int i = 0; i < 2; ++i)
    once();
  // All begin at once, and nobody reads a slot of former operations.
  counter += Area::kSlots;
  meet(true, counter);
  double began = microseconds();
  for (uint64_t i = 0; i < iterations; ++i)
    once();
  double took = microseconds() - began;
  counter += Area::kSlots;
  meet(true, counter);
  if (bind)
    ::sched_setaffinity(0, sizeof before, &before);
  return took / double(std::max<uint64_t>(iterations, 1));
}
