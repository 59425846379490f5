//===- GenericKernel.cpp - Kernel calls -----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Makes comm.kernel operations: asks the kernel for its workspace, packs
// weights, and serves every operator whose registry entry describes a generic
// kernel.
//
//===----------------------------------------------------------------------===//

#include "lowering/Lowering.h"

#include "comm/Comm.h"
#include "common/Family.h"
#include "concord/kernel.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace concord::lowering {

Results makeKernel(Context &context, const std::string &description,
                   ArrayRef<Value> inputs, ArrayRef<RankedTensorType> outputs) {
  OpBuilder &builder = context.rewriter;
  concord_kernel *kernel = nullptr;
  concord_kernel_info info = {};
  info.struct_size = sizeof(info);
  if (concord_kernel_create(description.c_str(), &kernel, &info) != 0)
    return emitError(context.loc())
           << "node '" << context.bound.node.name << "' (" << context.name()
           << ", opset " << context.bound.node.opset
           << "): " << concord_kernel_last_error();
  concord_kernel_destroy(kernel);

  SmallVector<Value> present, inits;
  SmallVector<Type> types;
  SmallVector<bool> absent;
  for (Value input : inputs) {
    absent.push_back(!input);
    if (input)
      present.push_back(input);
  }
  for (RankedTensorType type : outputs) {
    absent.push_back(!type);
    if (!type)
      continue;
    inits.push_back(context.empty(type));
    types.push_back(type);
  }
  unsigned results = types.size();
  // With bounded dimensions every kernel has some, of one size until the sizes
  // that are needed at most are known (common/Family.h).
  auto module =
      builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  const bool bounded = module && module->hasAttr(kSizesPending);
  const int64_t scratchBytes =
      bounded ? 64 : static_cast<int64_t>(info.workspace_bytes);
  if (scratchBytes) {
    auto scratch = RankedTensorType::get({scratchBytes}, builder.getI8Type());
    inits.push_back(context.empty(scratch));
    types.push_back(scratch);
  }
  DenseBoolArrayAttr absentAttr;
  if (llvm::is_contained(absent, true))
    absentAttr = builder.getDenseBoolArrayAttr(absent);
  auto op = comm::KernelOp::create(
      builder, context.loc(), types, builder.getStringAttr(description),
      present, inits, absentAttr,
      scratchBytes ? builder.getUnitAttr() : UnitAttr());
  return SmallVector<Value>(op.getResults().take_front(results));
}

Value packWeight(OpBuilder &builder, Value value,
                 const std::string &description, uint64_t bytes) {
  auto weight = value.getDefiningOp<comm::WeightOp>();
  if (!weight || weight.getPack() || !bytes)
    return {};
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfter(weight);
  auto type =
      RankedTensorType::get({static_cast<int64_t>(bytes)}, builder.getI8Type());
  return comm::WeightOp::create(
      builder, weight.getLoc(), type, weight.getSectionAttr(),
      weight.getFileAttr(), weight.getGlobalAttr(), weight.getSplitsAttr(),
      builder.getStringAttr(description), TypeAttr::get(value.getType()));
}

Results lowerGenericKernel(Context &context) {
  BoundNode &bound = context.bound;
  if (!bound.def || !bound.def->kernel)
    return emitError(context.loc())
           << "node '" << bound.node.name << "' (" << context.name()
           << ", opset " << bound.node.opset
           << "): no lowering for this operator"
           << (bound.node.domain.empty() ? ""
                                         : " of domain " + bound.node.domain);
  std::string description;
  try {
    description = bound.def->kernel(bound.view);
  } catch (const std::exception &error) {
    return emitError(context.loc())
           << "node '" << bound.node.name << "' (" << context.name()
           << ", opset " << bound.node.opset << "): " << error.what();
  }
  SmallVector<Value> inputs;
  for (size_t i = 0; i < bound.view.inputs.size(); ++i)
    inputs.push_back(context.operand(i));
  SmallVector<RankedTensorType> outputs;
  unsigned next = 0;
  for (onnx::ValueId id : bound.node.outputs)
    outputs.push_back(id == onnx::kNoValue ? RankedTensorType()
                                           : context.resultType(next++));
  return makeKernel(context, description, inputs, outputs);
}

} // namespace concord::lowering
