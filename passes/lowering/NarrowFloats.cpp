//===- NarrowFloats.cpp - Conversions of narrow floats --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "lowering/NarrowFloats.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace concord {

/// Integers become bfloat16 by way of f32; canonicalization makes the direct
/// conversion.
template <typename OpTy> static void integersThroughF32(ModuleOp module) {
  SmallVector<OpTy> ops;
  module.walk([&](OpTy op) {
    if (op.getType().isBF16())
      ops.push_back(op);
  });
  for (OpTy op : ops) {
    OpBuilder builder(op);
    Value wide =
        OpTy::create(builder, op.getLoc(), builder.getF32Type(), op.getIn());
    Value narrow =
        arith::TruncFOp::create(builder, op.getLoc(), op.getType(), wide);
    op.replaceAllUsesWith(narrow);
    op.erase();
  }
}

/// `x` as an f32 that rounds to half precision as `x` does: where it is not
/// exact, its last bit is set ("round to odd"; Boldo and Melquiond, Emulation
/// of FMA and correctly rounded sums, 2008).
static Value roundToOdd(OpBuilder &builder, Location loc, Value x) {
  Type i32 = builder.getI32Type(), f32 = builder.getF32Type();
  auto number = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getI32IntegerAttr(value));
  };
  Value nearest = arith::TruncFOp::create(builder, loc, f32, x);
  Value again = arith::ExtFOp::create(builder, loc, x.getType(), nearest);
  Value inexact =
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::ONE, again, x);
  Value bits = arith::BitcastOp::create(builder, loc, i32, nearest);
  Value last = arith::AndIOp::create(builder, loc, bits, number(1));
  Value even = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq,
                                     last, number(0));
  Value below = arith::CmpFOp::create(
      builder, loc, arith::CmpFPredicate::OLT,
      math::AbsFOp::create(builder, loc, again).getResult(),
      math::AbsFOp::create(builder, loc, x).getResult());
  // Floats of one sign are ordered as their bits are.
  Value step =
      arith::SelectOp::create(builder, loc, below, number(1), number(-1));
  Value moved = arith::AddIOp::create(builder, loc, bits, step);
  Value moves = arith::AndIOp::create(builder, loc, inexact, even);
  Value odd = arith::SelectOp::create(builder, loc, moves, moved, bits);
  return arith::BitcastOp::create(builder, loc, f32, odd);
}

static bool isHalf(Type type) { return type.isF16() || type.isBF16(); }

LogicalResult narrowFloatsThroughF32(ModuleOp module) {
  SmallVector<arith::ExtFOp> widenings;
  SmallVector<arith::TruncFOp> narrowings;
  WalkResult result = module.walk([&](Operation *op) {
    if (auto widening = dyn_cast<arith::ExtFOp>(op);
        widening && widening.getType().isF64() &&
        isHalf(widening.getIn().getType()))
      widenings.push_back(widening);
    if (auto narrowing = dyn_cast<arith::TruncFOp>(op);
        narrowing && narrowing.getIn().getType().isF64() &&
        isHalf(narrowing.getType()))
      narrowings.push_back(narrowing);
    if (!isa_and_present<arith::ArithDialect, math::MathDialect>(
            op->getDialect()) ||
        isa<arith::ConstantOp, arith::SelectOp, arith::BitcastOp>(op))
      return WalkResult::advance();
    auto types = llvm::concat<Type>(llvm::to_vector(op->getOperandTypes()),
                                    llvm::to_vector(op->getResultTypes()));
    for (Type type : types)
      if (auto real = dyn_cast<FloatType>(getElementTypeOrSelf(type));
          real && real.getWidth() < 16) {
        op->emitOpError() << "computes with " << real
                          << "; floats of 8 bits can only be moved. Convert "
                             "with an ONNX Cast, or keep it in 16 bits";
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  integersThroughF32<arith::SIToFPOp>(module);
  integersThroughF32<arith::UIToFPOp>(module);
  for (arith::ExtFOp op : widenings) {
    OpBuilder builder(op);
    op.getInMutable().assign(arith::ExtFOp::create(
        builder, op.getLoc(), builder.getF32Type(), op.getIn()));
  }
  for (arith::TruncFOp op : narrowings) {
    OpBuilder builder(op);
    op.getInMutable().assign(roundToOdd(builder, op.getLoc(), op.getIn()));
  }
  return success();
}

} // namespace concord
