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
#include "llvm/ADT/StringExtras.h"

namespace concord {
#define GEN_PASS_DEF_COMMVERIFYORDER
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

/// What a call of a device library may wait for, by its name; "" for others.
StringRef hazardOf(StringRef callee) {
  auto has = [&](StringRef part) { return callee.contains(part); };
  bool device =
      llvm::any_of(ArrayRef<StringRef>{"cuda", "hip", "aclrt", "rt", "cu"},
                   [&](StringRef prefix) {
                     return callee.starts_with(prefix) &&
                            callee.size() > prefix.size() &&
                            llvm::isUpper(callee[prefix.size()]);
                   });
  if (has("CommInit") || has("CommSplit") || has("CommDestroy") ||
      has("CommFinalize") || has("CreateSubComm") || has("MPI_Comm_"))
    return "creates or ends a communicator, in which every member takes part; "
           "create them before the first issue";
  if (!device)
    return "";
  if (has("Synchronize"))
    return "waits for what was issued, while peers may wait for what comes "
           "after it; take it out of the region";
  if (has("Malloc") || has("MemAlloc") || has("Free"))
    return "may wait for the device; reserve the memory before the first issue";
  if (has("ModuleLoad") || has("LibraryLoad"))
    return "loads code, which may wait for the device; load it before the "
           "first issue";
  return "";
}

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

  /// What the order alone cannot show: calls between the issues that may wait
  /// for them, and domains that mix captured and single issues.
  void warn(func::FuncOp function) {
    SmallVector<Operation *> calls;
    llvm::StringMap<std::pair<Operation *, bool>> captured;
    bool issued = false;
    function.walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (auto call = dyn_cast<func::CallOp>(op)) {
        if (issued && !hazardOf(call.getCallee()).empty())
          calls.push_back(op);
        return;
      }
      auto issue = dyn_cast<comm::CollectiveOpInterface>(op);
      if (!issue)
        return;
      // Only what stands between two issues is told.
      for (Operation *each : calls) {
        StringRef callee = cast<func::CallOp>(each).getCallee();
        each->emitWarning()
            << "'" << callee << "' between communication issues "
            << hazardOf(callee);
      }
      calls.clear();
      issued = true;
      FlatSymbolRefAttr domain = issue.getCollectiveDomain();
      if (!domain) // a group: its members tell
        return;
      bool single = !op->hasAttr("captured");
      auto [entry, fresh] = captured.try_emplace(domain.getValue(), op, single);
      if (fresh || entry->second.second == single || !entry->second.first)
        return;
      InFlightDiagnostic diagnostic =
          op->emitWarning()
          << "domain @" << domain.getValue()
          << " mixes captured and single issues; capture all of a domain's or "
             "none";
      diagnostic.attachNote(entry->second.first->getLoc())
          << (single ? "captured here" : "not captured here");
      entry->second.first = nullptr; // once a domain
    });
  }

  /// What communicates in another dialect's words is in no plan, and a module
  /// that holds nothing else would pass as one without communication.
  LogicalResult refuseForeign(ModuleOp module) {
    bool issues = false;
    Operation *foreign = nullptr;
    WalkResult walk = module.walk([&](Operation *op) {
      issues = issues || isa<comm::CollectiveOpInterface>(op);
      StringRef name = op->getName().getStringRef();
      if (name.consume_front("shard.") &&
          llvm::is_contained({"all_gather", "all_reduce", "all_to_all",
                              "broadcast", "gather", "recv", "reduce",
                              "reduce_scatter", "scatter", "send", "shift",
                              "update_halo"},
                             name)) {
        op->emitOpError("communicates, but only operations of comm are judged; "
                        "run --comm-import-shard first");
        return WalkResult::interrupt();
      }
      if (!foreign && name.consume_front("mpi.") &&
          !llvm::is_contained({"init", "finalize", "comm_world", "comm_rank",
                               "comm_size", "error_class", "retval_check"},
                              name))
        foreign = op;
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return failure();
    if (foreign && !issues)
      return foreign->emitOpError(
          "communicates, but only operations of comm are judged, and there are "
          "none");
    return success();
  }

  void runOnOperation() override {
    markAllAnalysesPreserved();
    ModuleOp module = getOperation();
    if (failed(refuseForeign(module)))
      return signalPassFailure();
    for (func::FuncOp function : entryFunctions(module))
      warn(function);
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
