//===- VerifyOrder.cpp - comm-verify-order --------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads the module's issues into a plan and has analysis/order judge it; never
// looks at comm.order or at `site` attributes.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/PlanBuilder.h"
#include "concord/order/Certificate.h"

namespace concord {
#define GEN_PASS_DEF_COMMVERIFYORDER
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

struct VerifyOrder : public concord::impl::CommVerifyOrderBase<VerifyOrder> {
  using CommVerifyOrderBase::CommVerifyOrderBase;

  /// The operation that a link of the chain speaks of, by its location's text.
  Location locate(const llvm::StringMap<Location> &locations,
                  const order::ChainEdge::End &end) {
    auto it = locations.find(end.loc.file);
    return it != locations.end() ? it->second : getOperation().getLoc();
  }

  void report(const order::Finding &finding,
              const llvm::StringMap<Location> &locations) {
    Location where = getOperation().getLoc();
    if (!finding.chain.empty())
      where = locate(locations, finding.chain.front().from);
    InFlightDiagnostic diagnostic = emitError(where) << finding.title;
    for (const order::ChainEdge &edge : finding.chain)
      diagnostic.attachNote(locate(locations, edge.from))
          << edge.from.text << " waits for " << edge.to.text;
    for (const std::string &detail : finding.details)
      diagnostic.attachNote(where) << detail;
    if (!finding.cure.empty())
      diagnostic.attachNote(where) << "cure: " << finding.cure;
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/false);
    if (failed(plan))
      return signalPassFailure();
    order::Certificate certificate = order::verifyPlan(*plan);
    if (certificate.valid)
      return;
    llvm::StringMap<Location> locations;
    for (func::FuncOp function : entryFunctions(module))
      for (comm::CollectiveOpInterface issue : issuesOf(function))
        locations.try_emplace(describeLocation(issue->getLoc()),
                              issue->getLoc());
    for (const order::Finding &finding : certificate.faults)
      report(finding, locations);
    if (certificate.faults.empty())
      module.emitError("the order of issues is not proven free of deadlock");
    signalPassFailure();
  }
};

} // namespace
