//===- CommBufferize.cpp - One-shot bufferization of comm operations ------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Destination style gives most of it. What is particular: comm.start only
// *reads* its outs as far as the analysis is concerned, and comm.wait is the
// writer. So an in-place write between the two to either buffer is seen as a
// conflict (a later read of the old value), and one-shot bufferization makes a
// copy instead.
//
//===----------------------------------------------------------------------===//

#include "comm/Comm.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace concord::comm;

namespace {

/// The same operation with other operands and results; regions are none.
Operation *createLike(RewriterBase &rewriter, Operation *op, TypeRange types,
                      ValueRange operands) {
  return rewriter.insert(Operation::create(
      op->getLoc(), op->getName(), types, operands,
      op->getDiscardableAttrDictionary(), op->getPropertiesStorage(),
      /*successors=*/BlockRange(), /*numRegions=*/0));
}

/// Replaces tensors by their buffers, keeping attributes; results that are tied
/// to outs become the outs' buffers.
LogicalResult bufferizeByName(Operation *op, RewriterBase &rewriter,
                              const BufferizationOptions &options,
                              BufferizationState &state) {
  SmallVector<Value> operands;
  bool changed = false;
  for (Value operand : op->getOperands()) {
    if (!isa<TensorType>(operand.getType())) {
      operands.push_back(operand);
      continue;
    }
    FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
    if (failed(buffer))
      return failure();
    operands.push_back(*buffer);
    changed = true;
  }
  if (!changed)
    return success();
  if (llvm::none_of(op->getResultTypes(), llvm::IsaPred<TensorType>)) {
    rewriter.modifyOpInPlace(op, [&] { op->setOperands(operands); });
    return success();
  }
  SmallVector<Type> keptTypes;
  for (Value result : op->getResults())
    if (!isa<TensorType>(result.getType()))
      keptTypes.push_back(result.getType());
  Operation *newOp = createLike(rewriter, op, keptTypes, operands);

  SmallVector<Value> replacements;
  unsigned kept = 0, tied = 0;
  SmallVector<Value> inits;
  if (auto dst = dyn_cast<DestinationStyleOpInterface>(newOp))
    llvm::append_range(inits, dst.getDpsInits());
  for (Value result : op->getResults()) {
    if (isa<TensorType>(result.getType()))
      replacements.push_back(inits[tied++]);
    else
      replacements.push_back(newOp->getResult(kept++));
  }
  replaceOpWithBufferizedValues(rewriter, op, replacements);
  return success();
}

/// Collectives and kernels: inputs are read, outs are written.
template <typename OpTy, bool ReadsOuts>
struct DestinationModel : public DstBufferizableOpInterfaceExternalModel<
                              DestinationModel<OpTy, ReadsOuts>, OpTy> {
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    if (cast<DestinationStyleOpInterface>(op).isDpsInit(&operand))
      return ReadsOuts;
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *op, OpOperand &operand,
                               const AnalysisState &) const {
    return cast<DestinationStyleOpInterface>(op).isDpsInit(&operand);
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    return bufferizeByName(op, rewriter, options, state);
  }
};

/// comm.wait writes its outs. When the analysis finds that it may not do so in
/// place, the copy is made before the start, and both use it: a start and its
/// wait speak of one buffer.
struct WaitModel
    : public DstBufferizableOpInterfaceExternalModel<WaitModel, WaitOp> {
  // Its input is read once more, and so are its outs, because whoever writes
  // them after the start would write into a buffer in flight.
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *op, OpOperand &operand,
                               const AnalysisState &) const {
    return cast<DestinationStyleOpInterface>(op).isDpsInit(&operand);
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    return bufferizeByName(op, rewriter, options, state);
  }
  LogicalResult
  resolveConflicts(Operation *op, RewriterBase &rewriter,
                   const AnalysisState &state,
                   const BufferizationState &bufferizationState) const {
    auto wait = cast<WaitOp>(op);
    StartOp start = wait.getStart();
    Value init = wait.getInit();
    if (!start || !init || !isa<TensorType>(init.getType()) ||
        state.isInPlace(wait.getInitMutable()[0]))
      return success();
    // Only these keep what outs held, on the members other than the root.
    bool keeps = start.getKind() == CollectiveKind::reduce ||
                 start.getKind() == CollectiveKind::gather;
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPoint(start);
    FailureOr<Value> copy = allocateTensorForShapedValue(
        rewriter, start.getLoc(), init, state.getOptions(), bufferizationState,
        /*copy=*/keeps);
    if (failed(copy))
      return failure();
    rewriter.modifyOpInPlace(start,
                             [&] { start.getInitMutable().assign(*copy); });
    rewriter.modifyOpInPlace(wait,
                             [&] { wait.getInitMutable().assign(*copy); });
    return success();
  }
};

/// Operations that only read as far as the analysis is concerned.
template <typename OpTy>
struct ReadOnlyModel
    : public BufferizableOpInterface::ExternalModel<ReadOnlyModel<OpTy>, OpTy> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    return bufferizeByName(op, rewriter, options, state);
  }
};

struct WeightModel
    : public BufferizableOpInterface::ExternalModel<WeightModel, WeightOp> {
  bool bufferizesToAllocation(Operation *, Value) const { return false; }
  bool isWritable(Operation *, Value, const AnalysisState &) const {
    return false; // Parameters are mapped read-only.
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &,
                          BufferizationState &) const {
    auto weight = cast<WeightOp>(op);
    auto type = dyn_cast<RankedTensorType>(weight.getResult().getType());
    if (!type)
      return success();
    Operation *newOp = createLike(
        rewriter, op, MemRefType::get(type.getShape(), type.getElementType()),
        ValueRange());
    replaceOpWithBufferizedValues(rewriter, op, newOp->getResults());
    return success();
  }
};

/// Opaque compute: every tensor result gets a buffer of its own, which becomes
/// an operand behind the others.
struct ComputeModel
    : public BufferizableOpInterface::ExternalModel<ComputeModel, ComputeOp> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }
  bool bufferizesToAllocation(Operation *, Value value) const {
    return isa<TensorType>(value.getType());
  }
  FailureOr<BufferLikeType> getBufferType(Operation *, Value value,
                                          const BufferizationOptions &,
                                          const BufferizationState &,
                                          SmallVector<Value> &) const {
    auto type = cast<RankedTensorType>(value.getType());
    return cast<BufferLikeType>(
        MemRefType::get(type.getShape(), type.getElementType()));
  }
  bool resultBufferizesToMemoryWrite(Operation *, OpResult result,
                                     const AnalysisState &) const {
    return isa<TensorType>(result.getType());
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    SmallVector<Value> operands, replacements;
    SmallVector<Type> keptTypes;
    for (Value operand : op->getOperands()) {
      if (!isa<TensorType>(operand.getType())) {
        operands.push_back(operand);
        continue;
      }
      FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
      if (failed(buffer))
        return failure();
      operands.push_back(*buffer);
    }
    SmallVector<Value> buffers;
    for (Value result : op->getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      if (!type) {
        keptTypes.push_back(result.getType());
        continue;
      }
      if (!type.hasStaticShape())
        return op->emitOpError("has a result whose shape is only known at run "
                               "time; fix the dimension with --dim");
      FailureOr<Value> buffer = options.createAlloc(
          rewriter, op->getLoc(),
          MemRefType::get(type.getShape(), type.getElementType()), {});
      if (failed(buffer))
        return failure();
      buffers.push_back(*buffer);
    }
    operands.append(buffers);
    Operation *newOp = createLike(rewriter, op, keptTypes, operands);
    newOp->setAttr("destinations", rewriter.getI64IntegerAttr(
                                       static_cast<int64_t>(buffers.size())));
    unsigned kept = 0, written = 0;
    for (Value result : op->getResults())
      replacements.push_back(isa<TensorType>(result.getType())
                                 ? buffers[written++]
                                 : Value(newOp->getResult(kept++)));
    replaceOpWithBufferizedValues(rewriter, op, replacements);
    return success();
  }
};

template <typename... Ops> void attachDestination(MLIRContext *context) {
  (Ops::template attachInterface<DestinationModel<Ops, false>>(*context), ...);
}

} // namespace

void concord::comm::registerBufferizationModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, CommDialect *) {
    attachDestination<AllReduceOp, AllGatherOp, ReduceScatterOp, AllToAllOp,
                      BroadcastOp, ScatterOp, PermuteOp, KernelOp, FusedOp>(
        context);
    SendOp::attachInterface<ReadOnlyModel<SendOp>>(*context);
    // Outside the root, and where a member is its own peer, these leave their
    // outs as they are.
    RecvOp::attachInterface<DestinationModel<RecvOp, true>>(*context);
    ReduceOp::attachInterface<DestinationModel<ReduceOp, true>>(*context);
    GatherOp::attachInterface<DestinationModel<GatherOp, true>>(*context);
    WaitOp::attachInterface<WaitModel>(*context);
    StartOp::attachInterface<ReadOnlyModel<StartOp>>(*context);
    WeightOp::attachInterface<WeightModel>(*context);
    ComputeOp::attachInterface<ComputeModel>(*context);
  });
}
