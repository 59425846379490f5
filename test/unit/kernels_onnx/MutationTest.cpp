//===- MutationTest.cpp - Damaged descriptions of every operator
//------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Descriptions come out of artefacts, and some operands are positions: neither
// may lead a kernel outside its buffers. Every operator's descriptions
// (descriptions.txt) are damaged at random, and what can still be made is run
// on random operands. Under the sanitizers any misstep is fatal; without them
// the guard bytes catch the writes. The generator's seed is fixed;
// CONCORD_MUTATIONS=N tries more.
//
//===----------------------------------------------------------------------===//

#include "Node.h"
#include "concord/kernel.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

using namespace concord;
using namespace concord::kernels::onnx;

namespace {

class Mutator {
public:
  explicit Mutator(uint32_t seed) : engine(seed) {}

  size_t below(size_t n) { return engine() % n; }

  std::string damage(std::string text) {
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "4",
                                          "5",
                                          "7",
                                          "8",
                                          "16",
                                          "-1",
                                          "-2",
                                          "nan",
                                          "-inf",
                                          "0.5",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "281474976710656",
                                          "1e30",
                                          "65536",
                                          "2147483647"};
    static const char *const dtypes[] = {"f32", "f16",  "bf16", "i64",
                                         "i32", "u8",   "i8",   "bool",
                                         "f64", "none", "u64",  "f8_e4m3"};
    for (size_t rounds = below(4); rounds > 0; --rounds) {
      auto [begin, end] = token(text);
      if (begin == end)
        return text;
      std::string old = text.substr(begin, end - begin);
      bool number =
          std::isdigit(static_cast<unsigned char>(old[0])) || old[0] == '-';
      size_t kind = below(8);
      if (kind < 5 && number) {
        text.replace(begin, end - begin, numbers[below(kind < 3 ? 20 : 8)]);
      } else if (kind < 5) {
        for (const char *dtype : dtypes)
          if (old == dtype) {
            text.replace(begin, end - begin, dtypes[below(12)]);
            break;
          }
      } else if (kind == 5 && begin > 0 && text[begin - 1] == ',') {
        text.erase(begin - 1, end - begin + 1);
      } else if (kind == 6 && number) {
        text.insert(end, std::string(",") + numbers[below(8)]);
      } else if (kind == 7 && below(8) == 0) {
        text[below(text.size())] = static_cast<char>(32 + below(95));
      }
    }
    return text;
  }

  /// Values that are plausible as indices and sizes, or extreme.
  void fill(DType dtype, int64_t count, char *data) {
    size_t size = dtypeSize(dtype), style = below(4);
    for (int64_t i = 0; i < count; ++i) {
      char *at = data + i * int64_t(size);
      if (dtype == DType::F32) {
        float value = style == 0   ? float(below(3))
                      : style == 1 ? float(below(1000)) / 100 - 5
                      : style == 2 ? 1e30f * (float(below(3)) - 1)
                      : below(4)   ? 0.5f
                                   : NAN;
        std::memcpy(at, &value, size);
      } else if (size == 8 || dtype == DType::I32) {
        int64_t value = style == 0   ? int64_t(below(4))
                        : style == 1 ? int64_t(below(20)) - 10
                        : style == 2
                            ? int64_t(uint64_t(engine()) << 32 | engine())
                            : int64_t(below(3));
        std::memcpy(at, &value, size);
      } else if (dtype == DType::BOOL) {
        *at = static_cast<char>(below(2));
      } else {
        for (size_t b = 0; b < size; ++b)
          at[b] = static_cast<char>(style == 0 ? below(3) : engine());
      }
    }
  }

private:
  std::pair<size_t, size_t> token(const std::string &text) {
    auto inside = [&](size_t i) {
      char c = text[i];
      return std::isalnum(static_cast<unsigned char>(c)) || c == '-' ||
             c == '.' || c == '_';
    };
    std::vector<std::pair<size_t, size_t>> tokens;
    for (size_t i = 0; i < text.size(); ++i) {
      if (!inside(i))
        continue;
      size_t end = i;
      while (end < text.size() && inside(end))
        ++end;
      tokens.emplace_back(i, end);
      i = end;
    }
    // The first is the kernel's name.
    if (tokens.size() < 2)
      return {0, 0};
    return tokens[1 + below(tokens.size() - 1)];
  }

  std::mt19937 engine;
};

struct Guarded {
  explicit Guarded(size_t size)
      : size(size), bytes(static_cast<char *>(std::aligned_alloc(
                              64, (size + 128 + 63) / 64 * 64)),
                          std::free) {
    std::memset(bytes.get(), 0x5a, size + 128);
  }
  char *data() { return bytes.get() + 64; }
  bool intact() const {
    for (size_t i = 0; i < 64; ++i)
      if (bytes.get()[i] != 0x5a || bytes.get()[64 + size + i] != 0x5a)
        return false;
    return true;
  }
  size_t size;
  std::unique_ptr<char, void (*)(void *)> bytes;
};

/// True when the kernel could be made; runs it if its operands are small.
bool attempt(Mutator &mutator, const std::string &text) {
  concord_kernel *kernel = nullptr;
  concord_kernel_info info{};
  info.struct_size = sizeof info;
  if (concord_kernel_create(text.c_str(), &kernel, &info))
    return false;
  NodeInfo node = NodeInfo::parse(text);
  int64_t total = 0;
  for (const auto *list : {&node.in, &node.out})
    for (const TensorInfo &operand : *list)
      total += operand.bytes();
  if (total < (1 << 16) && info.workspace_bytes < (1 << 20)) {
    std::vector<Guarded> buffers;
    std::vector<void *> pointers;
    for (const auto *list : {&node.in, &node.out})
      for (const TensorInfo &operand : *list) {
        if (!operand.present()) {
          pointers.push_back(nullptr);
          continue;
        }
        buffers.emplace_back(size_t(operand.bytes()));
        pointers.push_back(buffers.back().data());
        if (list == &node.in)
          mutator.fill(operand.dtype, operand.count, buffers.back().data());
      }
    buffers.emplace_back(info.workspace_bytes);
    concord_kernel_run(kernel, pointers.data(), buffers.back().data());
    for (const Guarded &buffer : buffers)
      EXPECT_TRUE(buffer.intact()) << text;
  }
  concord_kernel_destroy(kernel);
  return true;
}

TEST(Mutation, DamagedDescriptionsStayInBounds) {
  std::ifstream file("test/unit/kernels_onnx/descriptions.txt");
  std::vector<std::string> seeds;
  for (std::string line; std::getline(file, line);)
    seeds.push_back(line);
  ASSERT_GT(seeds.size(), 150u) << "run from the root of the sources";
  Mutator mutator(7);
  for (const std::string &seed : seeds)
    EXPECT_TRUE(attempt(mutator, seed))
        << seed << ": " << concord_kernel_last_error();
  const char *wish = std::getenv("CONCORD_MUTATIONS");
  long tries = wish ? std::atol(wish) : 50000, made = 0;
  for (long i = 0; i < tries && !HasFailure(); ++i)
    made +=
        attempt(mutator, mutator.damage(seeds[mutator.below(seeds.size())]));
  // If nothing could be made any more, the damage would be too coarse to test.
  EXPECT_GT(made, tries / 10);
}

} // namespace
