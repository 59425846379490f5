//===- FormTest.cpp - Forms of collectives and their choice -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every form that CONCORD_ALGORITHM can ask for gives the same bits, is the one
// that was taken, and strings that cannot be understood are refused.
//
//===----------------------------------------------------------------------===//

#include "Ranks.h"
#include "concord/cost/Machine.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sys/uio.h>
#include <unistd.h>

using namespace concord::test;

namespace {

/// The variable, for as long as a test runs.
struct Algorithm {
  explicit Algorithm(const std::string &text) {
    ::setenv("CONCORD_ALGORITHM", text.c_str(), 1);
  }
  ~Algorithm() { ::unsetenv("CONCORD_ALGORITHM"); }
};

std::string lastForm(const Rank &rank) {
  char text[600];
  EXPECT_OK(concord_comm_last_form(rank.world, text, sizeof text));
  return text;
}

/// The form that the ranks have for one that is asked for: an emulator may not
/// let them read each other's memory.
std::string having(const std::string &form) {
  uint64_t from = 1, to = 0;
  iovec here{&to, sizeof to}, there{&from, sizeof from};
  bool reads = ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) ==
               ssize_t(sizeof to);
  return form == "single_copy" && !reads ? "staged" : form;
}

float valueOf(int rank, uint64_t i) { return float((rank * 7 + i * 3) % 11); }

/// All kinds that move between all ranks, with a check of every element.
void runKinds(const Rank &rank, float *in, float *out, uint64_t count,
              const std::string &form) {
  uint64_t n = uint64_t(rank.size), me = uint64_t(rank.rank);
  auto sum = [&](uint64_t i) {
    float total = 0;
    for (int r = 0; r < rank.size; ++r)
      total += valueOf(r, i);
    return total;
  };
  auto prepare = [&](uint64_t elements) {
    for (uint64_t i = 0; i < elements; ++i)
      in[i] = valueOf(rank.rank, i);
    std::memset(out, 0x5a, elements * n * sizeof(float));
  };
  auto taken = [&] {
    EXPECT_NE(lastForm(rank).find(": " + having(form) + " ("),
              std::string::npos)
        << lastForm(rank);
  };
  int type = CONCORD_DTYPE_F32, add = CONCORD_REDUCTION_SUM;
  prepare(count);
  ASSERT_OK(concord_all_reduce(rank.world, in, out, count, type, add, nullptr));
  taken();
  for (uint64_t i = 0; i < count; ++i)
    ASSERT_EQ(out[i], sum(i)) << i;
  prepare(count);
  ASSERT_OK(concord_all_gather(rank.world, in, out, count, type, nullptr));
  for (uint64_t i = 0; i < count * n; ++i)
    ASSERT_EQ(out[i], valueOf(int(i / count), i % count)) << i;
  uint64_t part = count / n;
  prepare(part * n);
  ASSERT_OK(
      concord_reduce_scatter(rank.world, in, out, part, type, add, nullptr));
  for (uint64_t i = 0; i < part; ++i)
    ASSERT_EQ(out[i], sum(me * part + i)) << i;
  prepare(part * n);
  ASSERT_OK(concord_all_to_all(rank.world, in, out, part, type, nullptr));
  taken();
  for (uint64_t i = 0; i < part * n; ++i)
    ASSERT_EQ(out[i], valueOf(int(i / part), me * part + i % part)) << i;
  prepare(count);
  ASSERT_OK(concord_broadcast(rank.world, in, out, count, type, rank.size - 1,
                              nullptr));
  taken();
  for (uint64_t i = 0; i < count; ++i)
    ASSERT_EQ(out[i], valueOf(rank.size - 1, i)) << i;
}

std::string forAllKinds(const std::string &rest) {
  std::string text;
  for (const char *kind : {"all_reduce", "all_gather", "reduce_scatter",
                           "all_to_all", "broadcast"})
    text += std::string(kind) + ":" + rest + ";";
  return text;
}

} // namespace

TEST(Forms, EveryFormGivesTheSameBits) {
  struct {
    const char *rest, *form;
    uint64_t count;
    bool heap;
  } cases[] = {{"0-6k:flat", "flat", 1440, true},
               {"0-6k:flat", "flat", 1440, false},
               {"0-inf:direct", "direct", 1440, true},
               {"0-inf:direct", "direct", 24, true},
               {"0-inf:claimed", "claimed", 24, true},
               {"0-inf:claimed", "claimed", 1440, true},
               {"0-inf:claimed", "claimed", 420'000, true},
               {"0-inf:claimed", "staged", 1440, false},
               {"0-inf:staged", "staged", 1440, false},
               {"0-inf:staged", "staged", 420'000, false},
               {"0-inf:single_copy", "single_copy", 1440, false},
               {"0-inf:single_copy", "single_copy", 420'000, false}};
  for (const auto &c : cases)
    for (int ranks : {2, 3}) {
      SCOPED_TRACE(std::string(c.form) + " " + std::to_string(c.count) + " " +
                   std::to_string(ranks));
      Algorithm algorithm(forAllKinds(c.rest));
      runRanks(ranks, [&](Rank &rank) {
        uint64_t bytes = c.count * uint64_t(ranks);
        std::vector<float> a(bytes), b(bytes);
        float *in = c.heap ? rank.heap<float>(bytes) : a.data();
        float *out = c.heap ? rank.heap<float>(bytes) : b.data();
        runKinds(rank, in, out, c.count, c.form);
      });
    }
}

TEST(Forms, HeapAndForeignMembersMix) {
  // Rank 0 is in the heap, the others are not; the forms have to agree.
  for (const char *rest : {"0-inf:staged", "0-inf:single_copy"}) {
    Algorithm algorithm(forAllKinds(rest));
    std::string form = std::strchr(rest, ':') + 1;
    runRanks(3, [&](Rank &rank) {
      uint64_t n = 3 * 40'000;
      std::vector<float> a(n), b(n);
      bool heap = rank.rank == 0;
      runKinds(rank, heap ? rank.heap<float>(n) : a.data(),
               heap ? rank.heap<float>(n) : b.data(), 40'000, form);
    });
  }
}

TEST(Forms, ChosenBySizeAndState) {
  runRanks(2, [](Rank &rank) {
    auto *in = rank.heap<float>(4096);
    auto *out = rank.heap<float>(4096);
    auto run = [&](uint64_t count) {
      ASSERT_OK(concord_all_reduce(rank.world, in, out, count,
                                   CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                                   nullptr));
    };
    run(4);
    EXPECT_NE(lastForm(rank).find("flat"), std::string::npos);
    run(4096);
    EXPECT_NE(lastForm(rank).find("direct"), std::string::npos);
    // Written a moment ago: no copies into the slots.
    run(1024);
    run(1024);
    EXPECT_NE(lastForm(rank).find("direct"), std::string::npos)
        << lastForm(rank);
  });
}

TEST(Forms, SmallOutputsThatLeftTheCachesAreStoredPastThem) {
  ::setenv("CONCORD_CACHE_BYTES", "65536", 1);
  // Where ranks outnumber cores, one that comes late has nothing to store.
  std::atomic<bool> streamed{false};
  runRanks(3, [&](Rank &rank) {
    constexpr uint64_t kCount = 1000, kSlots = 64;
    auto *in = rank.heap<float>(kCount * kSlots);
    auto *out = rank.heap<float>(kCount * kSlots);
    for (uint64_t i = 0; i < kCount * kSlots; ++i)
      in[i] = valueOf(rank.rank, i);
    for (int pass = 0; pass < 3; ++pass)
      for (uint64_t slot = 0; slot < kSlots; ++slot) {
        float *to = out + slot * kCount;
        std::memset(to, 0x5a, kCount * sizeof(float));
        ASSERT_OK(concord_all_reduce(rank.world, in + slot * kCount, to, kCount,
                                     CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                                     nullptr));
        for (uint64_t i = 0; i < kCount; ++i) {
          float sum = 0;
          for (int r = 0; r < rank.size; ++r)
            sum += valueOf(r, slot * kCount + i);
          ASSERT_EQ(to[i], sum) << i;
        }
      }
    if (lastForm(rank).find("past the caches") != std::string::npos)
      streamed = true;
  });
  EXPECT_TRUE(streamed);
  ::unsetenv("CONCORD_CACHE_BYTES");
}

TEST(Forms, WhoReturnsMayOverwriteItsInput) {
  // Also where each of two members computes all of its own output, and where
  // that is not possible, as one of them works in place.
  ::setenv("CONCORD_CACHE_BYTES", "65536", 1);
  runRanks(2, [&](Rank &rank) {
    constexpr uint64_t kMost = 3000, kSlots = 16;
    auto *in = rank.heap<float>(kMost * kSlots);
    auto *out = rank.heap<float>(kMost * kSlots);
    for (int i = 0; i < 300; ++i) {
      uint64_t count = 200 + uint64_t(i) * 37 % (kMost - 200);
      uint64_t slot = uint64_t(i) % kSlots * kMost;
      float *from = in + slot, *to = out + slot;
      if ((i / 20 & 1) && (rank.rank == 0 || (i / 40 & 1)))
        to = from;
      for (uint64_t j = 0; j < count; ++j)
        from[j] = valueOf(rank.rank, j + uint64_t(i));
      ASSERT_OK(concord_all_reduce(rank.world, from, to, count,
                                   CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                                   nullptr));
      if (to != from)
        std::memset(from, 0x5a, count * sizeof(float));
      for (uint64_t j = 0; j < count; ++j)
        ASSERT_EQ(to[j],
                  valueOf(0, j + uint64_t(i)) + valueOf(1, j + uint64_t(i)))
            << "operation " << i << ", element " << j;
    }
  });
  ::unsetenv("CONCORD_CACHE_BYTES");
}

TEST(Forms, CalibrationChooses) {
  // Flat wins to 256 B in latency and never in throughput.
  auto form = [](const char *name, const char *objective, double alpha,
                 double beta) {
    return std::string(
               "{\"kind\": \"all_reduce\", \"ranks\": 2, \"form\": \"") +
           name + "\", \"objective\": \"" + objective +
           "\", \"segments\": [{\"alpha_us\": " + std::to_string(alpha) +
           ", \"beta_ns_per_byte\": " + std::to_string(beta) + "}]}";
  };
  std::string path = testing::TempDir() + "calibration.json";
  std::ofstream(path) << "{\"concord_calibration\": 1, \"forms\": ["
                      << form("flat", "latency", 0.1, 1) << ","
                      << form("direct", "latency", 0.4, 0) << ","
                      << form("flat", "throughput", 1, 1) << ","
                      << form("direct", "throughput", 0.5, 0) << "]}";
  ::setenv("CONCORD_CALIBRATION", path.c_str(), 1);
  auto taken = [](uint64_t bytes) {
    std::string text;
    runRanks(2, [&](Rank &rank) {
      uint64_t count = bytes / sizeof(float);
      auto *in = rank.heap<float>(count), *out = rank.heap<float>(count);
      for (uint64_t i = 0; i < count; ++i)
        in[i] = valueOf(rank.rank, i);
      ASSERT_OK(concord_all_reduce(rank.world, in, out, count,
                                   CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                                   nullptr));
      for (uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(out[i], valueOf(0, i) + valueOf(1, i)) << i;
      if (rank.rank == 0)
        text = lastForm(rank);
    });
    return text;
  };
  using testing::HasSubstr;
  ::setenv("CONCORD_OBJECTIVE", "latency", 1);
  EXPECT_THAT(taken(256), HasSubstr(": flat ("));
  EXPECT_THAT(taken(256), HasSubstr("costs less by the calibration"));
  EXPECT_THAT(taken(512), testing::Not(HasSubstr(": flat (")));
  ::setenv("CONCORD_OBJECTIVE", "throughput", 1);
  EXPECT_THAT(taken(64), testing::Not(HasSubstr(": flat (")));
  {
    // Who asks for a form gets it.
    Algorithm algorithm("all_reduce:0-4k:flat");
    EXPECT_THAT(taken(512), HasSubstr(": flat ("));
  }
  std::ofstream(path) << "{\"concord_calibration\": 1}";
  concord_context *context = nullptr;
  EXPECT_EQ(concord_context_create(nullptr, &context),
            CONCORD_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(concord_last_error(), HasSubstr("has no forms for throughput"));
  ::unsetenv("CONCORD_CALIBRATION");
  ::unsetenv("CONCORD_OBJECTIVE");
  std::remove(path.c_str());
}

TEST(Forms, HostCalibrationIsNoReasonToFail) {
  // What nobody has asked for and cannot be read is left out, and said.
  std::string cache = testing::TempDir() + "host-calibration";
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  std::string path = concord::cost::defaultCalibrationPath();
  ASSERT_EQ(path.rfind(cache, 0), 0u) << path;
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream(path) << "{\"concord_calibration\": ";
  runRanks(2, [&](Rank &rank) {
    auto *data = rank.heap<float>(16);
    ASSERT_OK(concord_all_reduce(rank.world, data, data, 16, CONCORD_DTYPE_F32,
                                 CONCORD_REDUCTION_SUM, nullptr));
  });
  ::setenv("CONCORD_CALIBRATION", path.c_str(), 1);
  concord_context *context = nullptr;
  EXPECT_EQ(concord_context_create(nullptr, &context),
            CONCORD_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(concord_last_error(), "CONCORD_CALIBRATION: "), nullptr)
      << concord_last_error();
  ::unsetenv("CONCORD_CALIBRATION");
  ::unsetenv("XDG_CACHE_HOME");
  std::filesystem::remove_all(cache);
}

TEST(Forms, BadStringsAreRefused) {
  for (const char *text :
       {"all_reduce", "all_reduce:0-4k", "everything:0-4k:flat",
        "all_reduce:4k-0:flat", "all_reduce:0-4k:fast", "0-4k:flat",
        "all_reduce:0-1m:flat", "all_reduce:0-x:direct",
        "all_reduce:0-4k:flat;;4k-inf:direct",
        // Between hosts, of which there is one; a form that the kind has not.
        "all_reduce:0-inf:ring", "all_gather:0-inf:tree"}) {
    SCOPED_TRACE(text);
    Algorithm algorithm(text);
    concord_context *context = nullptr;
    EXPECT_EQ(concord_context_create(nullptr, &context),
              CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(concord_last_error(), "CONCORD_ALGORITHM"), nullptr)
        << concord_last_error();
  }
}
