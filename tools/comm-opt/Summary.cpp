//===- Summary.cpp - What a compiled module communicates ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counts from the plan, so that the table shows what will run.
//
//===----------------------------------------------------------------------===//

#include "Summary.h"

#include "Passes.h"
#include "comm/Comm.h"
#include "common/PlanBuilder.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace concord {

void printSummary(ModuleOp module, llvm::raw_ostream &os) {
  FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/false);
  if (failed(plan))
    return;
  os << "world: " << plan->world << " ranks\n";
  os << llvm::format("%-12s %7s %6s %-16s %6s %16s\n", "domain", "groups", "ranks",
                     "kind", "count", "bytes per step");
  for (auto [index, domain] : llvm::enumerate(plan->domains)) {
    // Per kind: number of issues and bytes of the logical array per rank.
    std::map<std::string, std::pair<int64_t, uint64_t>> kinds;
    for (const plan::Program &program : plan->programs)
      for (const plan::Issue &issue : program.issues) {
        if (issue.domain != index)
          continue;
        auto kind = static_cast<comm::CollectiveKind>(issue.kind);
        auto &entry = kinds[stringifyCollectiveKind(kind).str()];
        entry.first += 1;
        entry.second += issue.count * dtypeSize(issue.dtype);
      }
    if (kinds.empty())
      kinds["(none)"] = {0, 0};
    for (auto &[kind, entry] : kinds)
      os << llvm::format("%-12s %7zu %6zu %-16s %6lld %16llu\n",
                         ("@" + domain.name).c_str(), domain.groups.size(),
                         domain.groups.front().size(), kind.c_str(),
                         static_cast<long long>(entry.first),
                         static_cast<unsigned long long>(entry.second));
  }
  for (auto arena : module.getOps<comm::ArenaOp>())
    os << "arena: " << arena.getSize() << " bytes, lower bound "
       << arena.getLowerBound() << ", " << arena.getOffsets().size() << " buffers\n";
  for (auto order : module.getOps<comm::OrderOp>())
    os << "order: " << order.getProgram() << ", " << order.getSites().size()
       << " issues\n";
  for (auto certificate : module.getOps<comm::CertificateOp>()) {
    os << "certificate: by " << certificate.getBy() << ", digest "
       << certificate.getDigest() << ", assumes";
    for (auto text : certificate.getAssumptions().getAsRange<StringAttr>())
      os << " [" << text.getValue() << "]";
    os << "\n";
  }
}

} // namespace concord
