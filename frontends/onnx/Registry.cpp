//===- Registry.cpp - The operator table
//------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Joins inference, sharding and kernels into the one sorted table.
//
//===----------------------------------------------------------------------===//

#include "Registry.h"

#include <algorithm>
#include <tuple>

namespace concord::onnx {

namespace {

std::vector<OpDef> makeTable() {
  std::vector<OpDef> table;
  for (auto entries :
       {detail::elementwiseOps(), detail::movementOps(), detail::indexingOps(),
        detail::matrixOps(), detail::networkOps(), detail::signalOps()})
    for (const detail::InferEntry &entry : entries)
      table.push_back({entry.domain, entry.name, entry.sinceOpset, entry.infer,
                       detail::shardingOf(entry.domain, entry.name),
                       entry.kernel ? &describe : nullptr});
  std::sort(table.begin(), table.end(), [](const OpDef &a, const OpDef &b) {
    return std::tie(a.domain, a.name) < std::tie(b.domain, b.name);
  });
  return table;
}

} // namespace

std::span<const OpDef> allOps() {
  static const std::vector<OpDef> table = makeTable();
  return table;
}

const OpDef *findOp(std::string_view domain, std::string_view name) {
  if (domain == "ai.onnx")
    domain = "";
  std::span<const OpDef> table = allOps();
  auto it = std::lower_bound(table.begin(), table.end(), std::tie(domain, name),
                             [](const OpDef &def, const auto &key) {
                               return std::tie(def.domain, def.name) < key;
                             });
  if (it == table.end() || it->domain != domain || it->name != name)
    return nullptr;
  return &*it;
}

} // namespace concord::onnx
