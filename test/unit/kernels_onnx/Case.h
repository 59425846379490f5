//===- Case.h - One ONNX kernel, described and run by a test ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Renders the description from typed operands, runs it through the C ABI with
// guard bytes around every buffer, and hands the results back.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_KERNELS_ONNX_CASE_H
#define CONCORD_TEST_KERNELS_ONNX_CASE_H

#include "concord/kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace concord::test {

using Dims = std::vector<int64_t>;

template <class T> const char *dtypeOf() {
  if constexpr (std::is_same_v<T, float>)
    return "f32";
  else if constexpr (std::is_same_v<T, double>)
    return "f64";
  else if constexpr (std::is_same_v<T, int8_t>)
    return "i8";
  else if constexpr (std::is_same_v<T, uint8_t>)
    return "u8";
  else if constexpr (std::is_same_v<T, int32_t>)
    return "i32";
  else if constexpr (std::is_same_v<T, uint64_t>)
    return "u64";
  else
    return "i64";
}

class Case {
public:
  explicit Case(std::string name, int opset = 17)
      : name(std::move(name)), opset(opset) {}

  Case &attr(const std::string &key, const std::string &value) {
    attrs["attr." + key] = value;
    return *this;
  }

  template <class T>
  Case &in(const Dims &dims, const std::vector<T> &data,
           const char *dtype = dtypeOf<T>()) {
    inTypes.push_back(type(dtype, dims));
    buffers.emplace_back(data.size() * sizeof(T));
    if (!data.empty())
      std::memcpy(buffers.back().data(), data.data(), data.size() * sizeof(T));
    slots.push_back(int(buffers.size()) - 1);
    return *this;
  }
  Case &absent() {
    inTypes.push_back("[none]");
    slots.push_back(-1);
    return *this;
  }
  template <class T>
  Case &out(const Dims &dims, const char *dtype = dtypeOf<T>()) {
    outTypes.push_back(type(dtype, dims));
    int64_t count = 1;
    for (int64_t d : dims)
      count *= d;
    buffers.emplace_back(size_t(count) * sizeof(T));
    outSlots.push_back(int(buffers.size()) - 1);
    return *this;
  }
  Case &absentOut() {
    outTypes.push_back("[none]");
    outSlots.push_back(-1);
    return *this;
  }

  std::string description() const {
    std::string text = "onnx." + name;
    for (const auto &[key, value] : attrs)
      text += " " + key + "=" + value;
    return text + " in=" + list(inTypes) + " opset=" + std::to_string(opset) +
           " out=" + list(outTypes);
  }

  /// Makes and runs the kernel; returns the error code.
  int32_t tryRun() {
    concord_kernel *kernel = nullptr;
    concord_kernel_info info{};
    info.struct_size = sizeof info;
    int32_t code = concord_kernel_create(description().c_str(), &kernel, &info);
    if (code)
      return code;
    EXPECT_EQ(info.num_inputs, slots.size());
    EXPECT_EQ(info.num_outputs, outSlots.size());
    std::vector<void *> pointers;
    for (int slot : slots)
      pointers.push_back(slot < 0 ? nullptr : buffers[size_t(slot)].data());
    for (int slot : outSlots)
      pointers.push_back(slot < 0 ? nullptr : buffers[size_t(slot)].data());
    Buffer workspace(info.workspace_bytes);
    code = concord_kernel_run(kernel, pointers.data(), workspace.data());
    concord_kernel_destroy(kernel);
    EXPECT_TRUE(workspace.intact()) << description();
    for (const Buffer &buffer : buffers)
      EXPECT_TRUE(buffer.intact()) << description();
    return code;
  }

  Case &run() {
    EXPECT_EQ(tryRun(), 0) << concord_kernel_last_error() << "\n"
                           << description();
    return *this;
  }

  template <class T> std::vector<T> get(size_t i = 0) const {
    const Buffer &buffer = buffers[size_t(outSlots[i])];
    std::vector<T> result(buffer.size / sizeof(T));
    if (!result.empty())
      std::memcpy(result.data(), buffer.data(), buffer.size);
    return result;
  }

private:
  struct Buffer {
    explicit Buffer(size_t size)
        : size(size), bytes(static_cast<char *>(std::aligned_alloc(
                                64, (size + 2 * 64 + 63) / 64 * 64)),
                            std::free) {
      std::memset(bytes.get(), 0x5a, size + 2 * 64);
    }
    char *data() const { return bytes.get() + 64; }
    bool intact() const {
      for (size_t i = 0; i < 64; ++i)
        if (bytes.get()[i] != 0x5a || bytes.get()[64 + size + i] != 0x5a)
          return false;
      return true;
    }
    size_t size;
    std::unique_ptr<char, void (*)(void *)> bytes;
  };

  static std::string type(const char *dtype, const Dims &dims) {
    std::string text = std::string("[") + dtype;
    for (int64_t d : dims)
      text += "," + std::to_string(d);
    return text + "]";
  }
  static std::string list(const std::vector<std::string> &items) {
    std::string text = "[";
    for (size_t i = 0; i < items.size(); ++i)
      text += (i ? "," : "") + items[i];
    return text + "]";
  }

  std::string name;
  int opset;
  std::map<std::string, std::string> attrs;
  std::vector<std::string> inTypes, outTypes;
  std::vector<Buffer> buffers;
  std::vector<int> slots, outSlots;
};

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

/// Element by element, to a few units of the last place.
inline auto near(const Floats &expected, float tolerance = 1e-5f) {
  return ::testing::Pointwise(::testing::FloatNear(tolerance), expected);
}

} // namespace concord::test

#endif // CONCORD_TEST_KERNELS_ONNX_CASE_H
