//===- VerifyUniform.cpp - comm-verify-uniform ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A collective under a condition must be reached by all members of its group or
// by none (common/Uniform.h).
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/PlanBuilder.h"
#include "common/Uniform.h"

#include "mlir/Interfaces/LoopLikeInterface.h"

namespace concord {
#define GEN_PASS_DEF_COMMVERIFYUNIFORM
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

struct VerifyUniform
    : public concord::impl::CommVerifyUniformBase<VerifyUniform> {
  using CommVerifyUniformBase::CommVerifyUniformBase;

  LogicalResult verify(comm::CollectiveOpInterface issue) {
    Divergence divergence = reach.of(issue);
    if (!divergence.parent)
      return success();
    InFlightDiagnostic diagnostic =
        issue->emitOpError()
        << "on " << issue.getCollectiveDomain() << " is under a "
        << (isa<LoopLikeOpInterface>(divergence.parent) ? "loop" : "condition")
        << " that may differ between the members of its group; make the value "
           "equal on them first (all_reduce or broadcast it), or decide it "
           "once "
           "for the round";
    diagnostic.attachNote(divergence.origin.getLoc())
        << "the value comes from here";
    diagnostic.attachNote(divergence.parent->getLoc()) << "and decides here";
    return diagnostic;
  }

  void runOnOperation() override {
    markAllAnalysesPreserved();
    reach = Reach();
    bool ok = true;
    for (func::FuncOp function : entryFunctions(getOperation()))
      for (comm::CollectiveOpInterface issue : issuesOf(function))
        ok &= succeeded(verify(issue));
    if (!ok)
      signalPassFailure();
  }

  Reach reach;
};

} // namespace
