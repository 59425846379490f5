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

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace concord {

void explain(Operation *at, Location loc, StringRef pass, StringRef action,
             StringRef reason, const Twine &keys) {
  Operation *module = at;
  while (module->getParentOp())
    module = module->getParentOp();
  bool print = module->hasAttr("comm.explain");
  bool collect = module->hasAttr("comm.explain_collect");
  if (!print && !collect)
    return;
  std::string where = describeLocation(loc);
  std::string line;
  llvm::raw_string_ostream os(line);
  os << "explain: " << pass << " " << action << " "
     << (where.empty() ? "unknown" : where) << " reason=" << reason;
  std::string text = keys.str();
  if (!text.empty())
    os << " " << text;
  if (print)
    llvm::errs() << line << "\n";
  if (collect)
    emitRemark(loc) << line;
}

bool explains(Operation *at) {
  while (at->getParentOp())
    at = at->getParentOp();
  return at->hasAttr("comm.explain") || at->hasAttr("comm.explain_collect");
}

} // namespace concord
