//===- Sharding.cpp - Which dimensions of an operator may be split
//----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Registry.h"

namespace concord::onnx::detail {

ShardFn shardingOf(std::string_view domain, std::string_view name) {
  return nullptr;
}

} // namespace concord::onnx::detail
