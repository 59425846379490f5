//===- CollectiveTest.cpp - Every collective against a reference --------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All kinds, dtypes and reductions, at sizes from nothing to several chunks, on
// 1 to 8 ranks as threads, with buffers in the heap and outside, in place and
// not, with random delays, against a scalar reference.
//
//===----------------------------------------------------------------------===//

#include "Ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

using namespace concord;
using namespace concord::test;

namespace {

/// memcmp takes no null pointer, not even one with nothing behind it, and an
/// operation of no elements has such.
int compareBytes(const void *left, const void *right, size_t bytes) {
  return bytes ? std::memcmp(left, right, bytes) : 0;
}

/// Value of element i of rank r: small, so that sums and products of eight are
/// exact in every dtype that can hold them.
int valueOf(int rank, uint64_t i, bool isUnsigned) {
  int value = int((uint64_t(rank) * 7 + i * 3 + i / 5) % 5) - 2;
  if (value == 0)
    value = 1;
  return isUnsigned ? std::abs(value) : value;
}

bool isFloat(DType type) {
  return type == DType::F32 || type == DType::F64 || type == DType::F16 ||
         type == DType::BF16;
}
bool isUnsigned(DType type) {
  return type == DType::U8 || type == DType::U16 || type == DType::U32 ||
         type == DType::U64 || type == DType::BOOL;
}
bool isData(DType type) {
  return type == DType::F8E4M3 || type == DType::F8E5M2;
}

/// Store a number as `type`; floats round once from f32 (f64 from f64).
void store(DType type, void *at, double number, int64_t integer) {
  auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (type) {
  case DType::F32:
    return put(float(number));
  case DType::F64:
    return put(number);
  case DType::F16:
    return put(_Float16(float(number)));
  case DType::BF16: {
    float value = float(number);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return put(uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
  }
  case DType::BOOL:
    return put(uint8_t(integer != 0));
  default:
    std::memcpy(at, &integer, dtypeSize(type)); // little-endian, wraps
  }
}

void fillInput(DType type, std::vector<char> &data, int rank) {
  size_t size = dtypeSize(type);
  for (size_t i = 0; i < data.size() / size; ++i) {
    int value = valueOf(rank, i, isUnsigned(type));
    if (type == DType::BOOL)
      value = value != 1;
    if (isData(type))
      value = int(i * 13 + rank);
    store(type, &data[i * size], value, value);
  }
}

std::vector<char> makeInput(DType type, uint64_t count, int rank) {
  std::vector<char> data(count * dtypeSize(type));
  fillInput(type, data, rank);
  return data;
}

/// Reduce element i over all ranks, the slow way.
void reduceElement(DType type, concord_reduction reduction, int ranks,
                   uint64_t i, void *at) {
  int64_t integer = 0;
  for (int r = 0; r < ranks; ++r) {
    int value = valueOf(r, i, isUnsigned(type));
    if (type == DType::BOOL)
      value = value != 1;
    if (r == 0) {
      integer = value;
      continue;
    }
    switch (reduction) {
    case CONCORD_REDUCTION_SUM:
    case CONCORD_REDUCTION_AVG:
      integer += value;
      break;
    case CONCORD_REDUCTION_PROD:
      integer *= value;
      break;
    case CONCORD_REDUCTION_MIN:
      integer = std::min<int64_t>(integer, value);
      break;
    case CONCORD_REDUCTION_MAX:
      integer = std::max<int64_t>(integer, value);
      break;
    case CONCORD_REDUCTION_AND:
      integer &= value;
      break;
    default:
      integer |= value;
    }
  }
  double number = double(integer);
  if (reduction == CONCORD_REDUCTION_AVG) {
    number = type == DType::F64 ? number / ranks
                                : double(float(number) / float(ranks));
    integer /= ranks;
  }
  store(type, at, number, integer);
}

struct Case {
  DType type;
  concord_reduction reduction;
};

std::vector<Case> allCases() {
  std::vector<Case> cases;
#define X(name, number, bytes, text) cases.push_back({DType::name, {}});
  CONCORD_DTYPES(X)
#undef X
  std::vector<Case> all;
  for (Case c : cases)
    for (int r = CONCORD_REDUCTION_SUM; r <= CONCORD_REDUCTION_OR; ++r) {
      if (isData(c.type) || (isFloat(c.type) && r >= CONCORD_REDUCTION_AND) ||
          (c.type == DType::BOOL && r == CONCORD_REDUCTION_AVG))
        continue;
      all.push_back({c.type, concord_reduction(r)});
    }
  return all;
}

std::vector<DType> allTypes() {
  std::vector<DType> types;
#define X(name, number, bytes, text) types.push_back(DType::name);
  CONCORD_DTYPES(X)
#undef X
  return types;
}

enum class Where { Heap, Foreign, InPlace, ForeignInPlace };
const Where kPlaces[] = {Where::Heap, Where::Foreign, Where::InPlace,
                         Where::ForeignInPlace};

/// Input and output buffers of one call.
struct Buffers {
  const Rank &rank;
  std::vector<char> foreignIn, foreignOut;
  char *heapIn, *heapOut;
  char *in = nullptr, *out = nullptr;

  Buffers(const Rank &rank, uint64_t most)
      : rank(rank), foreignIn(most + 64), foreignOut(most + 64),
        heapIn(rank.heap<char>(most)), heapOut(rank.heap<char>(most)) {}

  /// `inAt` / `outAt`: bytes from the shared base when in place.
  void place(Where where, const std::vector<char> &input, uint64_t outBytes,
             uint64_t inAt, uint64_t outAt) {
    bool heap = where == Where::Heap || where == Where::InPlace;
    bool same = where == Where::InPlace || where == Where::ForeignInPlace;
    char *a = heap ? heapIn : foreignIn.data();
    char *b = heap ? heapOut : foreignOut.data();
    in = same ? b + inAt : a;
    out = same ? b + outAt : b;
    std::memset(out, 0x5a, outBytes);
    if (!input.empty())
      std::copy(input.begin(), input.end(), in);
  }
};

void delay(std::mt19937 &random) {
  if (random() % 16 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
}

const uint64_t kCounts[] = {0, 1, 37, 1500, 9001};

/// Number of ranks.
class Collectives : public ::testing::TestWithParam<int> {};

/// The same with every store past the caches that may go there.
class PastTheCaches : public ::testing::TestWithParam<int> {
protected:
  PastTheCaches() { ::setenv("CONCORD_CACHE_BYTES", "1", 1); }
  ~PastTheCaches() override { ::unsetenv("CONCORD_CACHE_BYTES"); }
};

/// The same in one form where it can be had, whatever the runtime would choose.
struct Forced {
  const char *form;
  int ranks;
};
class OneForm : public ::testing::TestWithParam<Forced> {
protected:
  OneForm() {
    std::string text;
    for (const char *kind :
         {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
          "broadcast", "reduce", "gather", "scatter"})
      text += std::string(kind) + ":0-inf:" + GetParam().form + ";";
    ::setenv("CONCORD_ALGORITHM", text.c_str(), 1);
  }
  ~OneForm() override { ::unsetenv("CONCORD_ALGORITHM"); }
};

} // namespace

static void reductionsOfEveryKind(int ranks, bool longOnes) {
  runRanks(ranks, [longOnes](Rank &rank) {
    std::mt19937 random(unsigned(rank.rank));
    int n = rank.size;
    Buffers b(rank, 9001 * 8 * 8);
    for (Case c : allCases())
      for (uint64_t count : kCounts) {
        if (count > 2000 && !longOnes && c.type != DType::F32 &&
            c.type != DType::BF16)
          continue;
        Where where = kPlaces[(count + unsigned(c.type)) % 4];
        size_t size = dtypeSize(c.type);
        int type = int(c.type);
        std::string label = std::string(dtypeName(c.type)) + " reduction " +
                            std::to_string(c.reduction) + " count " +
                            std::to_string(count) + " place " +
                            std::to_string(int(where));
        // all_reduce and reduce
        auto input = makeInput(c.type, count, rank.rank);
        std::vector<char> expected(count * size);
        for (uint64_t i = 0; i < count; ++i)
          reduceElement(c.type, c.reduction, n, i, &expected[i * size]);
        b.place(where, input, count * size, 0, 0);
        delay(random);
        ASSERT_OK(concord_all_reduce(rank.world, b.in, b.out, count, type,
                                     c.reduction, nullptr));
        ASSERT_EQ(compareBytes(b.out, expected.data(), expected.size()), 0)
            << "all_reduce " << label;
        int root = int(count) % n;
        b.place(where, input, count * size, 0, 0);
        delay(random);
        ASSERT_OK(concord_reduce(rank.world, b.in, b.out, count, type,
                                 c.reduction, root, nullptr));
        if (rank.rank == root) {
          ASSERT_EQ(compareBytes(b.out, expected.data(), expected.size()), 0)
              << "reduce " << label;
        }
        // reduce_scatter
        auto wide = makeInput(c.type, count * n, rank.rank);
        std::vector<char> mine(count * size);
        for (uint64_t i = 0; i < count; ++i)
          reduceElement(c.type, c.reduction, n, rank.rank * count + i,
                        &mine[i * size]);
        b.place(where, wide, count * size, 0, rank.rank * count * size);
        std::copy(wide.begin(), wide.end(), b.in);
        delay(random);
        ASSERT_OK(concord_reduce_scatter(rank.world, b.in, b.out, count, type,
                                         c.reduction, nullptr));
        ASSERT_EQ(compareBytes(b.out, mine.data(), mine.size()), 0)
            << "reduce_scatter " << label;
      }
  });
}
TEST_P(Collectives, ReductionsOfEveryKind) {
  reductionsOfEveryKind(GetParam(), false);
}
TEST_P(PastTheCaches, ReductionsOfEveryKind) {
  reductionsOfEveryKind(GetParam(), true);
}
TEST_P(OneForm, ReductionsOfEveryKind) {
  reductionsOfEveryKind(GetParam().ranks, true);
}

static void movesOfEveryKind(int ranks) {
  runRanks(ranks, [](Rank &rank) {
    std::mt19937 random(unsigned(rank.rank) + 100);
    int n = rank.size, me = rank.rank;
    Buffers b(rank, 9001 * 8 * 8);
    for (DType type : allTypes())
      for (uint64_t count : kCounts)
        for (Where where : kPlaces) {
          if (count > 2000 && type != DType::F32 && type != DType::F8E4M3)
            continue;
          size_t size = dtypeSize(type);
          uint64_t bytes = count * size;
          int root = int(count + 1) % n;
          std::string label = std::string(dtypeName(type)) + " count " +
                              std::to_string(count) + " place " +
                              std::to_string(int(where));
          auto input = makeInput(type, count, me);
          auto wide = makeInput(type, count * n, me);
          std::vector<char> all(bytes * n);
          for (int r = 0; r < n; ++r) {
            auto theirs = makeInput(type, count, r);
            if (bytes)
              std::memcpy(&all[r * bytes], theirs.data(), bytes);
          }
          auto same = [&](const char *expected, uint64_t length) {
            return compareBytes(b.out, expected, length) == 0;
          };
          b.place(where, input, 0, me * bytes, 0);
          delay(random);
          ASSERT_OK(concord_all_gather(rank.world, b.in, b.out, count,
                                       int(type), nullptr));
          ASSERT_TRUE(same(all.data(), all.size())) << "all_gather " << label;

          b.place(where, input, 0, me * bytes, 0);
          ASSERT_OK(concord_gather(rank.world, b.in, b.out, count, int(type),
                                   root, nullptr));
          if (me == root) {
            ASSERT_TRUE(same(all.data(), all.size())) << "gather " << label;
          }

          b.place(where, input, 0, 0, 0);
          delay(random);
          ASSERT_OK(concord_broadcast(rank.world, b.in, b.out, count, int(type),
                                      root, nullptr));
          ASSERT_TRUE(same(all.data() + root * bytes, bytes))
              << "broadcast " << label;

          b.place(where, wide, 0, 0, me * bytes);
          if (!wide.empty())
            std::copy(wide.begin(), wide.end(), b.in);
          ASSERT_OK(concord_scatter(rank.world, b.in, b.out, count, int(type),
                                    root, nullptr));
          auto fromRoot = makeInput(type, count * n, root);
          ASSERT_TRUE(same(fromRoot.data() + me * bytes, bytes))
              << "scatter " << label;

          b.place(where, wide, 0, 0, 0);
          delay(random);
          ASSERT_OK(concord_all_to_all(rank.world, b.in, b.out, count,
                                       int(type), nullptr));
          for (int r = 0; r < n; ++r) {
            auto theirs = makeInput(type, count * n, r);
            ASSERT_EQ(compareBytes(b.out + r * bytes,
                                   theirs.data() + me * bytes, bytes),
                      0)
                << "all_to_all " << label << " from " << r;
          }

          // A ring that leaves the last rank out when there are three or more.
          std::vector<int32_t> pairs;
          int ring = n >= 3 ? n - 1 : n;
          for (int r = 0; r < ring; ++r) {
            pairs.push_back(r);
            pairs.push_back((r + 1) % ring);
          }
          b.place(where, input, 0, 0, 0);
          ASSERT_OK(concord_permute(rank.world, b.in, b.out, count, int(type),
                                    pairs.data(), uint32_t(ring), nullptr));
          std::vector<char> moved(bytes);
          if (me < ring)
            moved = makeInput(type, count, (me + ring - 1) % ring);
          ASSERT_TRUE(same(moved.data(), bytes)) << "permute " << label;

          ASSERT_OK(concord_barrier(rank.world, nullptr));
        }
  });
}
TEST_P(Collectives, MovesOfEveryKind) { movesOfEveryKind(GetParam()); }
TEST_P(PastTheCaches, MovesOfEveryKind) { movesOfEveryKind(GetParam()); }
TEST_P(OneForm, MovesOfEveryKind) { movesOfEveryKind(GetParam().ranks); }

TEST_P(Collectives, UnevenKinds) {
  runRanks(GetParam(), [](Rank &rank) {
    int n = rank.size, me = rank.rank;
    Buffers b(rank, 1 << 20);
    for (uint64_t scale : {uint64_t(0), uint64_t(3), uint64_t(4000)})
      for (Where where : {Where::Heap, Where::Foreign}) {
        // Member r has r * scale elements, so rank 0 has none.
        std::vector<uint64_t> counts, send, receive;
        uint64_t total = 0, before = 0;
        for (int r = 0; r < n; ++r) {
          counts.push_back(uint64_t(r) * scale);
          before += r < me ? counts[r] : 0;
          total += counts[r];
          send.push_back(uint64_t(r + 2 * me) * scale / 4);
          receive.push_back(uint64_t(me + 2 * r) * scale / 4);
        }
        auto input = makeInput(DType::I16, counts[me], me);
        b.place(where, input, 0, 0, 0);
        ASSERT_OK(concord_all_gather_v(rank.world, b.in, b.out, counts.data(),
                                       CONCORD_DTYPE_I16, nullptr));
        uint64_t at = 0;
        for (int r = 0; r < n; ++r) {
          auto theirs = makeInput(DType::I16, counts[r], r);
          ASSERT_EQ(compareBytes(b.out + at, theirs.data(), theirs.size()), 0);
          at += theirs.size();
        }
        auto wide = makeInput(DType::I32, total, me);
        b.place(where, wide, 0, 0, 0);
        ASSERT_OK(concord_reduce_scatter_v(rank.world, b.in, b.out,
                                           counts.data(), CONCORD_DTYPE_I32,
                                           CONCORD_REDUCTION_SUM, nullptr));
        for (uint64_t i = 0; i < counts[me]; ++i) {
          int32_t expected, got;
          reduceElement(DType::I32, CONCORD_REDUCTION_SUM, n, before + i,
                        &expected);
          std::memcpy(&got, b.out + 4 * i, 4);
          ASSERT_EQ(got, expected);
        }
        uint64_t sent = 0;
        for (uint64_t s : send)
          sent += s;
        auto packed = makeInput(DType::F32, sent, me);
        b.place(where, packed, 0, 0, 0);
        ASSERT_OK(concord_all_to_all_v(rank.world, b.in, b.out, send.data(),
                                       receive.data(), CONCORD_DTYPE_F32,
                                       nullptr));
        at = 0;
        for (int r = 0; r < n; ++r) {
          uint64_t skip = 0, all = 0;
          for (int t = 0; t < n; ++t) {
            uint64_t s = uint64_t(t + 2 * r) * scale / 4;
            skip += t < me ? s : 0;
            all += s;
          }
          auto theirs = makeInput(DType::F32, all, r);
          ASSERT_EQ(compareBytes(b.out + at, theirs.data() + 4 * skip,
                                 4 * receive[r]),
                    0)
              << "from " << r;
          at += 4 * receive[r];
        }
      }
  });
}

TEST_P(Collectives, LargerThanCaches) {
  // Several quanta and, outside the heap, several staging segments.
  runRanks(GetParam(), [](Rank &rank) {
    uint64_t count = 700'001;
    Buffers b(rank, count * 4);
    for (Where where : {Where::Heap, Where::ForeignInPlace}) {
      b.place(where, makeInput(DType::F32, count, rank.rank), 0, 0, 0);
      ASSERT_OK(concord_all_reduce(rank.world, b.in, b.out, count,
                                   CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                                   nullptr));
      for (uint64_t i = 0; i < count; i += 97) {
        float expected, got;
        reduceElement(DType::F32, CONCORD_REDUCTION_SUM, rank.size, i,
                      &expected);
        std::memcpy(&got, b.out + 4 * i, 4);
        ASSERT_EQ(got, expected) << i;
      }
    }
  });
}

static void sameBitsEverywhere(int ranks) {
  // Values whose sum depends on the order: all members must agree, and again.
  runRanks(ranks, [](Rank &rank) {
    const uint64_t count = 5000;
    auto *in = rank.heap<float>(count);
    auto *out = rank.heap<float>(count);
    auto *all = rank.heap<float>(count * rank.size);
    std::mt19937 random(unsigned(rank.rank));
    std::normal_distribution<float> normal(0, 1e3f);
    for (uint64_t i = 0; i < count; ++i)
      in[i] = normal(random) * std::exp2(float(random() % 40) - 20);
    in[7] = std::nanf("");
    in[8] = rank.rank == 0 ? INFINITY : 1.0f;
    std::vector<float> first;
    for (int round = 0; round < 3; ++round) {
      ASSERT_OK(concord_all_reduce(rank.world, in, out, count,
                                   CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                                   nullptr));
      ASSERT_OK(concord_all_gather(rank.world, out, all, count,
                                   CONCORD_DTYPE_F32, nullptr));
      for (int r = 0; r < rank.size; ++r)
        ASSERT_EQ(compareBytes(all + r * count, out, count * 4), 0);
      if (round == 0)
        first.assign(out, out + count);
      ASSERT_EQ(compareBytes(first.data(), out, count * 4), 0);
      ASSERT_TRUE(std::isnan(out[7]));
      ASSERT_TRUE(std::isinf(out[8]));
    }
  });
}
TEST_P(Collectives, SameBitsEverywhere) { sameBitsEverywhere(GetParam()); }
TEST_P(PastTheCaches, SameBitsEverywhere) { sameBitsEverywhere(GetParam()); }
TEST_P(OneForm, SameBitsEverywhere) { sameBitsEverywhere(GetParam().ranks); }

INSTANTIATE_TEST_SUITE_P(Ranks, PastTheCaches, ::testing::Values(2, 3),
                         [](const auto &info) {
                           return std::to_string(info.param);
                         });
// Ranks that outnumber the cores take pieces, others have shares.
INSTANTIATE_TEST_SUITE_P(
    Forms, OneForm,
    ::testing::Values(Forced{"claimed", 2}, Forced{"claimed", 3},
                      Forced{"claimed", 8}, Forced{"direct", 3},
                      Forced{"direct", 8}),
    [](const auto &info) {
      return info.param.form + std::to_string(info.param.ranks);
    });
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives,
                         ::testing::Values(1, 2, 3, 4, 5, 8),
                         [](const auto &info) {
                           return std::to_string(info.param);
                         });
