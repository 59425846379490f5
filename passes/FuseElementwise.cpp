//===- FuseElementwise.cpp - comm-fuse-elementwise ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Upstream's elementwise fusion under a rule of its own: the producer has this
// one consumer, and the consumer does not run it more often than it runs now.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace concord {
#define GEN_PASS_DEF_COMMFUSEELEMENTWISE
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;

namespace {

/// Operands of one fused operation at the most: beyond, the loop's pointers no
/// longer fit in registers and the vectoriser's alias checks grow.
constexpr unsigned kMaxOperands = 12;

bool shouldFuse(OpOperand *operand) {
  auto producer = operand->get().getDefiningOp<linalg::GenericOp>();
  auto consumer = dyn_cast<linalg::GenericOp>(operand->getOwner());
  if (!producer || !consumer || !producer->hasOneUse())
    return false;
  if (producer->getNumOperands() + consumer->getNumOperands() > kMaxOperands)
    return false;
  int64_t producerPoints = 1, consumerPoints = 1;
  for (int64_t extent : producer.getStaticLoopRanges())
    producerPoints *= extent;
  for (int64_t extent : consumer.getStaticLoopRanges())
    consumerPoints *= extent;
  return consumerPoints <= producerPoints;
}

struct FuseElementwise
    : public concord::impl::CommFuseElementwiseBase<FuseElementwise> {
  using CommFuseElementwiseBase::CommFuseElementwiseBase;
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    linalg::populateElementwiseOpsFusionPatterns(patterns, shouldFuse);
    linalg::GenericOp::getCanonicalizationPatterns(patterns, &getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
