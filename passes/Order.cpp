//===- Order.cpp - comm-order ---------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With one program that every rank runs, program order is one order that all
// ranks agree on and that respects data dependences; carrying all issues on one
// lane carries it to the device. The certificate says so, and its digest covers
// the ordered issues.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/PlanBuilder.h"

namespace concord {
#define GEN_PASS_DEF_COMMORDER
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

struct Order : public concord::impl::CommOrderBase<Order> {
  using CommOrderBase::CommOrderBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder(&getContext());
    // A solution of an earlier run is replaced.
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      if (isa<comm::OrderOp, comm::CertificateOp>(op))
        op.erase();

    builder.setInsertionPointToEnd(module.getBody());
    for (func::FuncOp function : entryFunctions(module)) {
      SmallVector<int64_t> sites;
      for (comm::CollectiveOpInterface issue : issuesOf(function)) {
        issue->setAttr("site", builder.getI64IntegerAttr(sites.size()));
        sites.push_back(sites.size());
      }
      numSites += sites.size();
      comm::OrderOp::create(builder, function.getLoc(),
                            function.getSymName(), sites);
    }
    FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/false);
    if (failed(plan))
      return signalPassFailure();
    bool several = plan->programs.size() > 1;
    SmallVector<StringRef> assumes = {several ? "gate=hold" : "gate=check",
                                      "one issue thread per rank"};
    comm::CertificateOp::create(builder, module.getLoc(), 1, "order",
                                plan::toHex(plan::digest(*plan)),
                                builder.getStrArrayAttr(assumes));
    setPhase(module, std::max(getPhase(module), Phase::Ordered));
  }
};

} // namespace
