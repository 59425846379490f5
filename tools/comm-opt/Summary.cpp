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
#include "concord/order/Certificate.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <map>
#include <set>

using namespace mlir;

namespace concord {

/// Where the rank-group graph needs an order, and which domains take part.
static void printGraph(const plan::Plan &plan, llvm::raw_ostream &os) {
  order::Certificate certificate = order::verifyPlan(plan);
  const order::RankGroupGraph &graph = certificate.graph;
  if (graph.forest()) {
    os << "rank-group graph: forest, no order needed\n";
    return;
  }
  // Blocks of the same domains and size are one line.
  std::map<uint32_t, std::pair<std::set<std::string>, uint32_t>> blocks;
  for (auto [node, list] : llvm::zip(graph.nodes, graph.edgeBlock))
    for (uint32_t block : std::set<uint32_t>(list.begin(), list.end()))
      if (graph.blockEdges[block] > 1 && node.domain < plan.domains.size()) {
        blocks[block].first.insert("@" + plan.domains[node.domain].name);
        blocks[block].second += 1;
      }
  std::map<std::pair<std::set<std::string>, uint32_t>, uint32_t> kinds;
  for (auto &[block, what] : blocks)
    kinds[what] += 1;
  os << "rank-group graph: " << blocks.size() << " cyclic blocks\n";
  for (auto &[what, count] : kinds) {
    os << "  " << count << " x " << what.second << " groups of";
    for (const std::string &name : what.first)
      os << " " << name;
    os << "\n";
  }
}

void printSummary(ModuleOp module, llvm::raw_ostream &os) {
  FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/false);
  if (failed(plan))
    return;
  os << "world: " << plan->world << " ranks\n";
  os << llvm::format("%-12s %7s %6s %-16s %6s %16s\n", "domain", "groups",
                     "ranks", "kind", "count", "bytes per step");
  for (auto [index, domain] : llvm::enumerate(plan->domains)) {
    // Per kind: number of issues and bytes of the logical array per rank.
    std::map<std::string, std::pair<int64_t, uint64_t>> kinds;
    for (const plan::Program &program : plan->programs)
      for (const plan::Issue &issue : program.issues) {
        if (issue.domain != index)
          continue;
        // A barrier that decides a round is no collective of the dialect's.
        auto kind = static_cast<comm::CollectiveKind>(issue.kind);
        auto &entry = kinds[issue.kind == plan::Kind::RoundDecision
                                ? "round_decision"
                                : stringifyCollectiveKind(kind).str()];
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
  printGraph(*plan, os);
  if (auto calls = module->getAttrOfType<IntegerAttr>("comm.opaque_calls"))
    os << "custom calls that touch all domains: " << calls.getInt() << "\n";
  for (auto arena : module.getOps<comm::ArenaOp>())
    os << "arena: " << arena.getSize() << " bytes, lower bound "
       << arena.getLowerBound() << ", " << arena.getOffsets().size()
       << " buffers\n";
  for (auto order : module.getOps<comm::OrderOp>()) {
    os << "order: " << order.getProgram() << ", " << order.getSites().size()
       << " issues";
    if (auto edges = order->getAttrOfType<DenseI64ArrayAttr>("edges"))
      os << ", " << edges.size() / 2 << " edges beyond data dependences";
    os << "\n";
    auto path = order->getAttrOfType<IntegerAttr>("path_ns");
    auto unordered = order->getAttrOfType<IntegerAttr>("unordered_path_ns");
    if (path && unordered && unordered.getInt() > 0)
      os << llvm::format(
          "price of the order: critical path %.3f ms, %.3f ms without "
          "(+%.1f %%)\n",
          path.getInt() * 1e-6, unordered.getInt() * 1e-6,
          100.0 * (path.getInt() - unordered.getInt()) / unordered.getInt());
    if (auto domains = order->getAttrOfType<DictionaryAttr>("domain_path_ns"))
      for (NamedAttribute entry : domains)
        if (auto pair = dyn_cast<DenseI64ArrayAttr>(entry.getValue());
            pair && pair.size() == 2 && pair[1] > 0)
          os << llvm::format(
              "  through @%s: %.3f ms, %.3f ms without (+%.1f %%)\n",
              entry.getName().str().c_str(), pair[0] * 1e-6, pair[1] * 1e-6,
              100.0 * (pair[0] - pair[1]) / pair[1]);
  }
  for (auto certificate : module.getOps<comm::CertificateOp>()) {
    os << "certificate: by " << certificate.getBy() << ", digest "
       << certificate.getDigest() << ", assumes";
    for (auto text : certificate.getAssumptions().getAsRange<StringAttr>())
      os << " [" << text.getValue() << "]";
    os << "\n";
  }
}

} // namespace concord
