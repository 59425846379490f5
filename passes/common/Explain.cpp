//===- Explain.cpp - Why a pass did what it did ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One line per decision, in a form that scripts can split at spaces.
//
//===----------------------------------------------------------------------===//

#include "common/Explain.h"

#include "common/PlanBuilder.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace concord {

void explain(Operation *at, Location loc, StringRef pass, StringRef action,
             StringRef reason, const Twine &keys) {
  Operation *module = at;
  while (module->getParentOp())
    module = module->getParentOp();
  if (!module->hasAttr("comm.explain"))
    return;
  std::string where = describeLocation(loc);
  llvm::errs() << "explain: " << pass << " " << action << " "
               << (where.empty() ? "unknown" : where) << " reason=" << reason;
  std::string text = keys.str();
  if (!text.empty())
    llvm::errs() << " " << text;
  llvm::errs() << "\n";
}

} // namespace concord
