//===- FusedRanks.h - What tests of fused kernels share ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operands whose elements every rank can compute, a kernel with the buffers of
// one rank, and delays that make ranks meet in every order.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_UNIT_RUNTIME_FUSEDRANKS_H
#define CONCORD_TEST_UNIT_RUNTIME_FUSEDRANKS_H

#include "Ranks.h"

#include "concord/dtype.h"
#include "concord/kernel.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace concord::test {

inline float fromBits(DType type, const char *at) {
  if (type == DType::F32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  if (type == DType::F64) {
    double value;
    std::memcpy(&value, at, 8);
    return float(value);
  }
  if (type == DType::F16) {
    _Float16 value;
    std::memcpy(&value, at, 2);
    return float(value);
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

inline void toBits(DType type, float value, char *at) {
  if (type == DType::F32) {
    std::memcpy(at, &value, 4);
  } else if (type == DType::F64) {
    double wide = value;
    std::memcpy(at, &wide, 8);
  } else if (type == DType::F16) {
    _Float16 half = _Float16(value);
    std::memcpy(at, &half, 2);
  } else {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    uint16_t half = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(at, &half, 2);
  }
}

inline float rounded(DType type, float value) {
  char bits[8];
  toBits(type, value, bits);
  return fromBits(type, bits);
}

/// Element i of a rank's operand, in [-1, 1): the same wherever it is asked
/// for. `run`: where operands are written anew.
inline float valueOf(DType type, int operand, int rank, uint64_t i,
                     int run = 0) {
  uint64_t hash = (uint64_t(operand) * 1000003 + uint64_t(rank) * 7919 +
                   uint64_t(run) * 104729 + i) *
                  0x9e3779b97f4a7c15;
  return rounded(type, float(int(hash >> 40 & 0xffff) - 32768) / 32768);
}

/// Busy for up to some microseconds, so that ranks meet in every order.
inline void delay(std::mt19937 &random) {
  auto end = std::chrono::steady_clock::now() +
             std::chrono::microseconds(random() % 8 == 0 ? random() % 300
                                                         : random() % 10);
  while (std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
}

/// A fused kernel and one rank's buffers for it, in the order of its operands.
class FusedRank {
public:
  /// `outside`: no buffer lies in the heap.
  FusedRank(Rank &rank, const std::string &text, bool outside, unsigned seed)
      : rank(rank), outside(outside), random(unsigned(rank.rank) * 31 + seed) {
    info.struct_size = sizeof info;
    fused.struct_size = sizeof fused;
    EXPECT_EQ(concord_kernel_create(text.c_str(), &kernel, &info), 0)
        << text << ": " << concord_kernel_last_error();
    if (kernel) {
      EXPECT_EQ(concord_kernel_fused(kernel, &fused), 0);
    }
  }
  FusedRank(const FusedRank &) = delete;
  ~FusedRank() { concord_kernel_destroy(kernel); }

  /// The next operand; `heap`: where peers can reach it.
  char *add(uint64_t bytes, bool heap = true) {
    char *at;
    if (heap && !outside) {
      at = rank.heap<char>(bytes + 64);
    } else {
      kept.push_back(std::make_unique<char[]>(bytes + 64));
      at = kept.back().get();
      at += -reinterpret_cast<uintptr_t>(at) & 63;
    }
    buffers.push_back({at, 1, bytes, bytes});
    return at;
  }

  /// Issues it after a delay; the workspace is added by the first call.
  void issue() {
    if (info.workspace_bytes && buffers.size() == fused.num_operands)
      add(info.workspace_bytes, false);
    delay(random);
    ASSERT_OK(concord_fused(rank.world, kernel, buffers.data(),
                            uint32_t(buffers.size())));
  }

  Rank &rank;
  concord_kernel *kernel = nullptr;
  concord_kernel_info info{};
  concord_fused_info fused{};
  std::vector<concord_buffer> buffers;

private:
  bool outside;
  std::vector<std::unique_ptr<char[]>> kept;
  std::mt19937 random;
};

} // namespace concord::test

#endif // CONCORD_TEST_UNIT_RUNTIME_FUSEDRANKS_H
