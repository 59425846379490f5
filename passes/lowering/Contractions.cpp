//===- Contractions.cpp - Matrix products of linalg -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A matrix product that was written as linalg (a named operation or a generic)
// becomes a call of the product's kernel, as one of an ONNX model does: it is
// as fast then, and comm-fuse sees it.
//
//===----------------------------------------------------------------------===//

#include "comm/Comm.h"
#include "common/NodeBridge.h"
#include "concord/kernel.h"
#include "lowering/Describe.h"
#include "lowering/Lowering.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace concord::lowering {

/// Whether `map` takes the loops `first` and `second`, in this order.
static bool takes(AffineMap map, unsigned first, unsigned second) {
  MLIRContext *context = map.getContext();
  return map.getNumResults() == 2 &&
         map.getResult(0) == getAffineDimExpr(first, context) &&
         map.getResult(1) == getAffineDimExpr(second, context);
}

/// The result starts at zero: the kernel does not add to what is there.
static bool startsAtZero(Value init) {
  auto fill = init.getDefiningOp<linalg::FillOp>();
  return fill && (matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) ||
                  matchPattern(fill.getInputs()[0], m_Zero()));
}

static bool toKernel(RewriterBase &rewriter, linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || op.getNumLoops() != 3 ||
      !linalg::isaContractionOpInterface(op) ||
      !startsAtZero(op.getDpsInits()[0]))
    return false;
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(op);
  if (failed(dims) || !dims->batch.empty() || dims->m.size() != 1 ||
      dims->n.size() != 1 || dims->k.size() != 1)
    return false;
  unsigned m = dims->m[0], n = dims->n[0], k = dims->k[0];
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  bool transA = takes(maps[0], k, m), transB = takes(maps[1], n, k);
  if ((!transA && !takes(maps[0], m, k)) ||
      (!transB && !takes(maps[1], k, n)) || !takes(maps[2], m, n))
    return false;
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  for (Value input : op.getDpsInputs())
    if (auto own = dyn_cast<RankedTensorType>(input.getType());
        !own || !own.hasStaticShape() || !own.getNumElements() ||
        own.getElementType() != type.getElementType())
      return false;
  if (!type.hasStaticShape() || !isa<FloatType>(type.getElementType()))
    return false;
  SmallVector<int64_t> loops = op.getStaticLoopRanges();
  Describe describe("gemm");
  describe.set("m", loops[m])
      .set("n", loops[n])
      .set("k", loops[k])
      .set("dtype", lower(fromMlirType(type.getElementType())));
  if (transA)
    describe.set("transa", 1);
  if (transB)
    describe.set("transb", 1);
  concord_kernel *kernel = nullptr;
  concord_kernel_info info = {};
  info.struct_size = sizeof(info);
  if (concord_kernel_create(describe.str().c_str(), &kernel, &info) != 0)
    return false; // a type that the kernel lacks: it stays what it is
  concord_kernel_destroy(kernel);
  rewriter.setInsertionPoint(op);
  Location loc = op.getLoc();
  SmallVector<Value> inits = {tensor::EmptyOp::create(
      rewriter, loc, type.getShape(), type.getElementType())};
  if (info.workspace_bytes)
    inits.push_back(tensor::EmptyOp::create(
        rewriter, loc, {static_cast<int64_t>(info.workspace_bytes)},
        rewriter.getI8Type()));
  auto call = comm::KernelOp::create(
      rewriter, loc, ValueRange(inits).getTypes(),
      rewriter.getStringAttr(describe.str()), op.getDpsInputs(), inits,
      DenseBoolArrayAttr(),
      info.workspace_bytes ? rewriter.getUnitAttr() : UnitAttr());
  rewriter.replaceOp(op, call.getResult(0));
  return true;
}

void contractionsToKernels(RewriterBase &rewriter, ModuleOp module) {
  SmallVector<linalg::LinalgOp> products;
  module.walk([&](linalg::LinalgOp op) { products.push_back(op); });
  for (linalg::LinalgOp op : products)
    (void)toKernel(rewriter, op);
}

} // namespace concord::lowering
