//===- HloExport.cpp - The order back into HLO text -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Edits the text that the module came from: what this compiler does not model
// is preserved to the byte. An edge joins two collectives of one computation;
// the first one's completion (its -done, where it has one) precedes the second
// one's start.
//
//===----------------------------------------------------------------------===//

#include "import/HloImport.h"

#include "comm/Comm.h"
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace concord {

namespace {

struct Place {
  uint32_t computation, instruction;
};

} // namespace

std::string exportHlo(ModuleOp module, std::string &error) {
  auto attr = module->getAttrOfType<ArrayAttr>("comm.hlo_source");
  if (!attr || attr.size() != 2 || !isa<StringAttr>(attr[0]) ||
      !isa<StringAttr>(attr[1])) {
    error = "--emit=hlo needs a module that was imported from HLO text";
    return "";
  }
  if (module->hasAttr("comm.hlo_rewritten")) {
    error =
        "--emit=hlo writes the order into the text that the module came from, "
        "but its collectives were rewritten; run it without comm-simplify and "
        "comm-bucket";
    return "";
  }
  std::string path = cast<StringAttr>(attr[0]).str();
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer) {
    error = "--emit=hlo edits the text that the module came from, but '" +
            path + "' cannot be read: " + buffer.getError().message();
    return "";
  }
  std::string text = (*buffer)->getBuffer().str();
  if (llvm::utohexstr(llvm::xxh3_64bits(text), true) !=
      cast<StringAttr>(attr[1]).getValue()) {
    error = "'" + path + "' has changed since the module was imported from it";
    return "";
  }
  hlo::Module source;
  try {
    source = hlo::parse(std::move(text), path);
  } catch (const hlo::Error &failure) {
    error = failure.what();
    return "";
  }
  llvm::StringMap<Place> places;
  llvm::StringSet<> ambiguous;
  for (uint32_t c = 0; c < source.computations.size(); ++c)
    for (uint32_t i = 0; i < source.computations[c].instructions.size(); ++i) {
      std::string_view name = source.computations[c].instructions[i].name;
      if (!places.try_emplace({name.data(), name.size()}, Place{c, i}).second)
        ambiguous.insert({name.data(), name.size()});
    }
  std::vector<hlo::ControlEdge> edges;
  for (auto order : module.getOps<comm::OrderOp>()) {
    auto function = module.lookupSymbol<func::FuncOp>(order.getProgram());
    auto list = order->getAttrOfType<DenseI64ArrayAttr>("edges");
    if (!function || !list)
      continue;
    SmallVector<comm::CollectiveOpInterface> issues = issuesOf(function);
    ArrayRef<int64_t> ends = list.asArrayRef();
    for (size_t i = 0; i + 1 < ends.size(); i += 2) {
      if (std::min(ends[i], ends[i + 1]) < 0 ||
          std::max(ends[i], ends[i + 1]) >=
              static_cast<int64_t>(issues.size())) {
        error = "comm.order names a site that its program does not have";
        return "";
      }
      Operation *ops[2] = {issues[ends[i]], issues[ends[i + 1]]};
      // A collective in a loop or a branch is ordered with what is outside by
      // the instruction that holds it.
      Region *common = ops[1]->getParentRegion();
      while (common && !common->findAncestorOpInRegion(*ops[0]))
        common = common->getParentRegion();
      if (!common) {
        error = "an edge of comm.order joins two programs";
        return "";
      }
      for (Operation *&op : ops)
        op = common->findAncestorOpInRegion(*op);
      // What follows waits for the completion, where that comes first in the
      // text.
      if (auto start = dyn_cast<comm::StartOp>(ops[0]))
        for (Operation *user : start.getFuture().getUsers())
          if (isa<comm::WaitOp>(user) &&
              user->getBlock() == start->getBlock() &&
              user->isBeforeInBlock(ops[1]))
            ops[0] = user;
      Place at[2];
      for (int side : {0, 1}) {
        StringRef name = nodeName(ops[side]->getLoc());
        auto found = places.find(name);
        if (found == places.end() || ambiguous.contains(name)) {
          error = "'" + path + "' has " +
                  (found == places.end() ? "no" : "several") +
                  " instructions named '" + name.str() +
                  "'; was the module changed after its import?";
          return "";
        }
        at[side] = found->second;
      }
      // A called computation was inlined: its caller orders it.
      if (at[0].computation != at[1].computation) {
        error = "the order joins '" + nodeName(ops[0]->getLoc()).str() +
                "' and '" + nodeName(ops[1]->getLoc()).str() +
                "' of two computations, which HLO cannot say; inline the calls "
                "first";
        return "";
      }
      if (at[0].instruction != at[1].instruction)
        edges.push_back(
            {at[0].computation, at[0].instruction, at[1].instruction});
    }
  }
  return hlo::addControlEdges(source, edges);
}

} // namespace concord
