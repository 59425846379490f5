//===- KernelTestUtil.h - Running kernels in tests --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A handle with its workspace and packed weight, exactly as large as asked for
// and followed by guard bytes; conversion of 16-bit types; random data.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_KERNELS_UTIL_H
#define CONCORD_TEST_KERNELS_UTIL_H

#include "concord/dtype.h"
#include "concord/kernel.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace concord::test {

inline float halfToFloat(uint16_t bits) {
  _Float16 h;
  memcpy(&h, &bits, 2);
  return float(h);
}
inline uint16_t floatToHalf(float f) {
  _Float16 h = _Float16(f);
  uint16_t bits;
  memcpy(&bits, &h, 2);
  return bits;
}
inline float bfloatToFloat(uint16_t bits) {
  uint32_t u = uint32_t(bits) << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline uint16_t floatToBfloat(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if (f != f)
    return uint16_t(u >> 16 | 0x40);
  return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/// A tensor of any floating type, seen as doubles.
class Data {
public:
  Data(DType type, size_t count)
      : type(type), count(count),
        // Exactly the size, so that the address sanitizer sees overruns.
        bytes(static_cast<char *>(aligned_alloc(
            64,
            std::max<size_t>(64, (count * dtypeSize(type) + 63) / 64 * 64)))) {
    memset(bytes, 0, count * dtypeSize(type));
  }
  Data(Data &&other)
      : type(other.type), count(other.count), bytes(other.bytes) {
    other.bytes = nullptr;
  }
  Data(const Data &) = delete;
  ~Data() { free(bytes); }

  void set(size_t i, double value) {
    switch (type) {
    case DType::F32: {
      float f = float(value);
      memcpy(bytes + i * 4, &f, 4);
      break;
    }
    case DType::F64:
      memcpy(bytes + i * 8, &value, 8);
      break;
    case DType::F16: {
      uint16_t h = floatToHalf(float(value));
      memcpy(bytes + i * 2, &h, 2);
      break;
    }
    default: {
      uint16_t h = floatToBfloat(float(value));
      memcpy(bytes + i * 2, &h, 2);
      break;
    }
    }
  }
  double get(size_t i) const {
    switch (type) {
    case DType::F32: {
      float f;
      memcpy(&f, bytes + i * 4, 4);
      return f;
    }
    case DType::F64: {
      double d;
      memcpy(&d, bytes + i * 8, 8);
      return d;
    }
    default: {
      uint16_t h;
      memcpy(&h, bytes + i * 2, 2);
      return type == DType::F16 ? halfToFloat(h) : bfloatToFloat(h);
    }
    }
  }
  Data &random(std::mt19937 &rng, double low = -1, double high = 1) {
    std::uniform_real_distribution<double> distribution(low, high);
    for (size_t i = 0; i < count; ++i)
      set(i, distribution(rng));
    return *this;
  }
  Data &fill(double value) {
    for (size_t i = 0; i < count; ++i)
      set(i, value);
    return *this;
  }

  DType type;
  size_t count;
  char *bytes;
};

inline std::string lower(DType type) {
  std::string name(dtypeName(type));
  for (char &c : name)
    c = char(tolower(c));
  return name;
}

/// Relative precision of a type.
inline double epsilonOf(DType type) {
  switch (type) {
  case DType::F64:
    return 0x1p-52;
  case DType::F32:
    return 0x1p-23;
  case DType::F16:
    return 0x1p-10;
  default:
    return 0x1p-7;
  }
}

class Handle {
public:
  explicit Handle(const std::string &text) {
    info.struct_size = sizeof info;
    status = concord_kernel_create(text.c_str(), &kernel, &info);
    EXPECT_EQ(status, 0) << text << ": " << concord_kernel_last_error();
    if (status)
      return;
    workspace = allocate(info.workspace_bytes);
    packed = allocate(info.packed_weight_bytes);
  }
  Handle(const Handle &) = delete;
  ~Handle() {
    check(workspace, info.workspace_bytes);
    check(packed, info.packed_weight_bytes);
    free(workspace);
    free(packed);
    concord_kernel_destroy(kernel);
  }
  void run(std::vector<void *> pointers) {
    ASSERT_EQ(pointers.size(), info.num_inputs + info.num_outputs);
    ASSERT_EQ(concord_kernel_run(kernel, pointers.data(), workspace), 0)
        << concord_kernel_last_error();
  }
  void *pack(const void *weight) {
    EXPECT_EQ(concord_kernel_pack(kernel, weight, packed), 0);
    return packed;
  }

  int32_t status;
  concord_kernel *kernel = nullptr;
  concord_kernel_info info = {};
  char *workspace = nullptr, *packed = nullptr;

private:
  static constexpr size_t kGuard = 64;
  static char *allocate(uint64_t size) {
    char *memory =
        static_cast<char *>(aligned_alloc(64, (size + kGuard + 63) / 64 * 64));
    memset(memory, 0xa5, size + kGuard);
    return memory;
  }
  static void check(const char *memory, uint64_t size) {
    if (!memory)
      return;
    for (size_t i = 0; i < kGuard; ++i)
      ASSERT_EQ(uint8_t(memory[size + i]), 0xa5) << "written past the end";
  }
};

/// Bits of a float as an ordered integer, for distances in ulp.
inline int64_t ordered(float f) {
  int32_t i;
  memcpy(&i, &f, 4);
  return i < 0 ? int64_t(INT32_MIN) - i : i;
}

} // namespace concord::test

#endif // CONCORD_TEST_KERNELS_UTIL_H
