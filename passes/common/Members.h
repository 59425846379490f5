//===- Members.h - Whether all members do the same --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_MEMBERS_H
#define CONCORD_PASSES_COMMON_MEMBERS_H

#include "common/Issues.h"
#include "common/Uniform.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace concord {

/// A collective may be taken away, merged or moved only where every member of
/// its groups does that too.
class Members {
public:
  Members(mlir::ModuleOp module, mlir::func::FuncOp function) {
    for (auto program : module.getOps<comm::ProgramOp>()) {
      spmd = false;
      if (program.getEntry() == function.getSymName())
        ranks.insert(program.getRanks().begin(), program.getRanks().end());
    }
  }

  /// Empty when all members run this very operation and agree to reach it; else
  /// the reason id.
  llvm::StringRef whyNotAll(IssueView issue) {
    auto [entry, isNew] =
        split.try_emplace(issue.op.getCollectiveDomain(), false);
    if (isNew && !spmd)
      for (llvm::ArrayRef<int64_t> group : issue.domain().getGroupRanks()) {
        auto runs = [&](int64_t rank) { return ranks.contains(rank); };
        entry->second |=
            llvm::any_of(group, runs) && !llvm::all_of(group, runs);
      }
    if (entry->second)
      return "several-programs";
    auto slot = issue.op->getAttrOfType<mlir::StringAttr>("slot");
    if (slot && slot.getValue().starts_with("optional"))
      return "optional-slot";
    return reach.of(issue.op).parent ? "differing-condition" : "";
  }
  /// Operations went away or came: what is known of conditions is not any more.
  void reset() { reach = Reach(); }

private:
  bool spmd = true;
  llvm::DenseSet<int64_t> ranks; ///< that run the function
  llvm::DenseMap<mlir::Attribute, bool> split;
  Reach reach;
};

} // namespace concord

#endif // CONCORD_PASSES_COMMON_MEMBERS_H
