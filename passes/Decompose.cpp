//===- Decompose.cpp - comm-decompose -------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lowers each onnx.node by the first family of lowerings that knows it
// (passes/lowering), the generic kernels last.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "lowering/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace concord {
#define GEN_PASS_DEF_COMMDECOMPOSE
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

struct Decompose : public concord::impl::CommDecomposeBase<Decompose> {
  using CommDecomposeBase::CommDecomposeBase;

  LogicalResult lowerNode(IRRewriter &rewriter, onnxir::NodeOp op) {
    rewriter.setInsertionPoint(op);
    BoundNode bound;
    bindNode(op, bound);
    lowering::Context context{rewriter, op, bound};
    using Lowering = lowering::Results (*)(lowering::Context &);
    for (Lowering lower :
         {&lowering::lowerElementwise, &lowering::lowerDataMovement,
          &lowering::lowerFastKernel, &lowering::lowerGenericKernel}) {
      lowering::Results results = lower(context);
      if (failed(results))
        return failure();
      if (results->empty())
        continue;
      rewriter.replaceOp(op, *results);
      return success();
    }
    return failure();
  }

  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<onnxir::NodeOp> nodes;
    getOperation().walk([&](onnxir::NodeOp op) { nodes.push_back(op); });
    bool ok = true;
    for (onnxir::NodeOp op : nodes) {
      // What the reader would have refused can stand in hand-written IR.
      try {
        ok &= succeeded(lowerNode(rewriter, op));
      } catch (const std::exception &error) {
        op.emitOpError() << op.getOp() << ": " << error.what();
        ok = false;
      }
    }
    if (!ok)
      return signalPassFailure();
    lowering::contractionsToKernels(rewriter, getOperation());
    getOperation().walk([&](Operation *op) {
      numKernels += isa<comm::KernelOp>(op);
      numGenerics += isa<linalg::LinalgOp>(op);
    });
    setPhase(getOperation(), Phase::Decomposed);
  }
};

} // namespace
