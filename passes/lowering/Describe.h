//===- Describe.h - Building kernel descriptions ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The text of concord/kernel.h, and the lowerings that are built on it.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_LOWERING_DESCRIBE_H
#define CONCORD_PASSES_LOWERING_DESCRIBE_H

#include "lowering/Lowering.h"

#include <cstdio>
#include <map>

namespace concord::lowering {

/// Collects key=value pairs and renders them in alphabetical order.
class Describe {
public:
  explicit Describe(std::string name) : name(std::move(name)) {}
  Describe &set(const std::string &key, int64_t value) {
    keys[key] = std::to_string(value);
    return *this;
  }
  Describe &set(const std::string &key, const std::string &word) {
    keys[key] = word;
    return *this;
  }
  Describe &real(const std::string &key, double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.9g", value);
    keys[key] = text;
    return *this;
  }
  Describe &list(const std::string &key, llvm::ArrayRef<int64_t> values) {
    std::string text = "[";
    for (auto [i, value] : llvm::enumerate(values))
      text += (i ? "," : "") + std::to_string(value);
    keys[key] = text + "]";
    return *this;
  }
  std::string str() const {
    std::string text = name;
    for (auto &[key, value] : keys)
      text += " " + key + "=" + value;
    return text;
  }

private:
  std::string name;
  std::map<std::string, std::string> keys;
};

inline std::string lower(DType type) {
  return llvm::StringRef(dtypeName(type)).lower();
}

inline bool isFloating(DType type) {
  return type == DType::F32 || type == DType::F16 || type == DType::BF16 ||
         type == DType::F64;
}

/// `weight` packed for the kernel of `describe`, which then says so; or
/// `weight` itself, when it is not a parameter or the kernel does not pack.
mlir::Value packed(Context &context, Describe &describe, mlir::Value weight);

Results lowerSoftmax(Context &context);
Results lowerNorm(Context &context);
Results lowerTranspose(Context &context);
Results lowerGatherRows(Context &context);
Results lowerConv(Context &context);
Results lowerPool(Context &context);
Results lowerReduction(Context &context);
Results lowerAttention(Context &context);
Results lowerRotary(Context &context);
Results lowerFunction(Context &context);
Results lowerPower(Context &context);

} // namespace concord::lowering

#endif // CONCORD_PASSES_LOWERING_DESCRIBE_H
