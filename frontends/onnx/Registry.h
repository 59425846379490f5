//===- Registry.h - The pieces of the operator table ------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each Infer*.cpp contributes the operators whose shapes it knows; Registry.cpp
// joins them with the sharding rules.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_FRONTENDS_ONNX_REGISTRY_H
#define CONCORD_FRONTENDS_ONNX_REGISTRY_H

#include "concord/onnx/OpRegistry.h"

namespace concord::onnx::detail {

struct InferEntry {
  std::string_view name;
  int64_t sinceOpset;
  InferFn infer;
  std::string_view domain = "";
  bool kernel = true; ///< false: collectives and what only the compiler lowers
};

std::span<const InferEntry> elementwiseOps();
std::span<const InferEntry> movementOps();
std::span<const InferEntry> indexingOps();
std::span<const InferEntry> matrixOps();
std::span<const InferEntry> networkOps();
std::span<const InferEntry> signalOps();

/// The sharding rule of an operator, or null.
ShardFn shardingOf(std::string_view domain, std::string_view name);

} // namespace concord::onnx::detail

#endif // CONCORD_FRONTENDS_ONNX_REGISTRY_H
