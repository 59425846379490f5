//===- Family.cpp - One program from its members --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Buffers and plans. Members are walked side by side. Whatever is not a number
// has to be the same in all of them; a number that differs has to be a
// polynomial of the bounded dimensions on which more members agree than it has
// coefficients.
//
//===----------------------------------------------------------------------===//

#include "common/Family.h"

#include "comm/Comm.h"
#include "common/FamilyNumbers.h"
#include "common/PlanBuilder.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

#include <algorithm>

using namespace mlir;

namespace concord {

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

namespace {

/// Texts of the kernels of all sizes, by the operations of member 0.
using Descriptions = llvm::DenseMap<Operation *, std::string>;

/// Fills in those of one kind of operation; each can be made at all sizes.
template <typename OpTy>
LogicalResult describe(const FamilyMembers &members, Fits &fits, Needs &needs,
                       Descriptions &descriptions) {
  std::vector<SmallVector<OpTy>> lists;
  if (failed(collect(members, lists)))
    return failure();
  std::vector<std::string> texts(lists.size());
  for (auto [i, op] : llvm::enumerate(lists[0])) {
    for (size_t k = 0; k < lists.size(); ++k)
      texts[k] = lists[k][i].getDescription().str();
    auto merged = mergeText(texts, fits);
    if (!merged)
      return refuse(members, op,
                    "its kernel depends on the sizes in a way that is no "
                    "polynomial of them (" +
                        texts[0] + ", " + texts[1] + ")");
    if (const Need &need = needs(*merged); !need.error.empty())
      return refuse(members, op, need.error);
    descriptions[op] = *merged;
  }
  return success();
}

/// Whether an operand is the workspace of a kernel, alone or fused.
bool isWorkspace(OpOperand &use) {
  auto last = [&](auto op) {
    return op && op.getWorkspace() && !op.getInits().empty() &&
           use.get() == op.getInits().back() &&
           use.getOperandNumber() + 1 == op->getNumOperands();
  };
  return last(dyn_cast<comm::KernelOp>(use.getOwner())) ||
         last(dyn_cast<comm::FusedOp>(use.getOwner()));
}

} // namespace

LogicalResult shareBufferSizes(const FamilyMembers &members) {
  std::vector<SmallVector<memref::AllocOp>> allocs;
  Fits fits(members);
  Needs needs(members);
  Descriptions descriptions;
  if (failed(describe<comm::KernelOp>(members, fits, needs, descriptions)) ||
      failed(describe<comm::FusedOp>(members, fits, needs, descriptions)) ||
      failed(collect(members, allocs)))
    return failure();
  const size_t count = members.modules.size();
  std::vector<int64_t> values(count);
  for (auto [i, alloc] : llvm::enumerate(allocs[0])) {
    int64_t bytes = 0;
    bool data = alloc->use_empty();
    for (OpOperand &use : alloc->getUses()) {
      if (isWorkspace(use))
        bytes = std::max<int64_t>(
            bytes, needs(descriptions[use.getOwner()]).workspace);
      else
        data = true;
    }
    for (size_t k = 0; k < count; ++k) {
      MemRefType type = allocs[k][i].getType();
      if (!type.hasStaticShape())
        return allocs[k][i].emitOpError("has no static shape");
      values[k] = type.getNumElements() * elementBytes(type.getElementType());
    }
    if (data) {
      const Extent *extent = fits(values);
      auto bounds =
          extent ? onnx::boundsOf(*extent, members.dims) : std::nullopt;
      if (!bounds)
        return refuse(members, alloc,
                      "a buffer's size is no polynomial of the bounded "
                      "dimensions");
      bytes = std::max(bytes, bounds->second);
    }
    Builder builder(alloc.getContext());
    for (size_t k = 0; k < count; ++k) {
      allocs[k][i]->setAttr(kMaxBytes, builder.getI64IntegerAttr(bytes));
      if (!data)
        allocs[k][i].getResult().setType(MemRefType::get(
            {std::max<int64_t>(1, bytes)}, builder.getI8Type()));
    }
  }
  for (ModuleOp module : members.modules)
    module->removeAttr(kSizesPending);
  return success();
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

FailureOr<plan::Plan> mergePlans(const FamilyMembers &members,
                                 std::vector<plan::Plan> plans) {
  Fits fits(members);
  plan::Plan result = plans[0];
  Operation *top = members.modules[0];
  std::vector<int64_t> values(plans.size());
  std::string where;
  auto merge = [&](auto &into, auto get) {
    for (size_t k = 0; k < plans.size(); ++k)
      values[k] = static_cast<int64_t>(get(plans[k]));
    const Extent *extent = fits(values);
    auto bounds = extent ? onnx::boundsOf(*extent, members.dims) : std::nullopt;
    if (!bounds || bounds->second < 0)
      return false;
    into = static_cast<uint64_t>(bounds->second);
    return true;
  };
  bool good = true;
  for (const plan::Plan &plan : plans)
    good &= plan.programs.size() == result.programs.size();
  for (size_t p = 0; good && p < result.programs.size(); ++p) {
    for (const plan::Plan &plan : plans)
      good &=
          plan.programs[p].issues.size() == result.programs[p].issues.size();
    for (size_t i = 0; good && i < result.programs[p].issues.size(); ++i) {
      plan::Issue &issue = result.programs[p].issues[i];
      where = issue.location;
      for (const plan::Plan &plan : plans) {
        const plan::Issue &other = plan.programs[p].issues[i];
        good &= other.kind == issue.kind && other.domain == issue.domain &&
                other.dtype == issue.dtype && other.root == issue.root &&
                other.fused.empty() == issue.fused.empty() &&
                other.pairs == issue.pairs &&
                other.sendCounts == issue.sendCounts &&
                other.recvCounts == issue.recvCounts &&
                other.buffers.size() == issue.buffers.size();
      }
      if (!good)
        break;
      auto at = [&](const plan::Plan &plan) -> const plan::Issue & {
        return plan.programs[p].issues[i];
      };
      std::vector<std::string> texts;
      for (const plan::Plan &plan : plans)
        texts.push_back(at(plan).fused);
      std::optional<std::string> text = mergeText(texts, fits);
      good &= text.has_value();
      issue.fused = text.value_or("");
      good &= merge(issue.count, [&](auto &plan) { return at(plan).count; });
      for (size_t b = 0; b < issue.buffers.size(); ++b) {
        plan::Buffer &buffer = issue.buffers[b];
        good &= merge(buffer.outer,
                      [&](auto &plan) { return at(plan).buffers[b].outer; });
        good &= merge(buffer.innerBytes, [&](auto &plan) {
          return at(plan).buffers[b].innerBytes;
        });
        good &= merge(buffer.strideBytes, [&](auto &plan) {
          return at(plan).buffers[b].strideBytes;
        });
        good &= merge(buffer.offset,
                      [&](auto &plan) { return at(plan).buffers[b].offset; });
      }
    }
  }
  if (!good) {
    (void)refuse(members, top,
                 "the operation '" + where +
                     "' of the plan does not follow the sizes");
    return failure();
  }
  return result;
}

} // namespace concord
