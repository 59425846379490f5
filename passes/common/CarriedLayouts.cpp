//===- CarriedLayouts.cpp - Layouts of what loops hand on -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/CarriedLayouts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace concord {

namespace {

/// Values of one buffer from round to round, and what they come from.
struct Carried {
  SmallVector<Value, 2> values;
  SmallVector<OpOperand *, 2> sources;
};

} // namespace

Value stripCasts(Value buffer) {
  while (auto cast = buffer.getDefiningOp<memref::CastOp>())
    buffer = cast.getSource();
  return buffer;
}

/// The dense type of a value whose layout is not; null otherwise.
static MemRefType denseTypeOf(Value value) {
  auto type = dyn_cast<MemRefType>(value.getType());
  return type && type.hasStaticShape() && !type.getLayout().isIdentity()
             ? MemRefType::get(type.getShape(), type.getElementType(),
                               MemRefLayoutAttrInterface(),
                               type.getMemorySpace())
             : MemRefType();
}

static void collect(ModuleOp module, SmallVectorImpl<Carried> &found) {
  auto add = [&](ArrayRef<Value> values, ArrayRef<OpOperand *> sources) {
    if (denseTypeOf(values.front()))
      found.push_back({SmallVector<Value, 2>(values),
                       SmallVector<OpOperand *, 2>(sources)});
  };
  module.walk([&](Operation *op) {
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      Operation *yield = loop.getBody()->getTerminator();
      for (unsigned i = 0; i < loop.getNumResults(); ++i)
        add({loop.getRegionIterArg(i), loop.getResult(i)},
            {&loop.getInitArgsMutable()[i], &yield->getOpOperand(i)});
    } else if (auto loop = dyn_cast<scf::WhileOp>(op)) {
      for (auto [i, argument] : llvm::enumerate(loop.getBeforeArguments()))
        add({argument},
            {&loop.getInitsMutable()[i], &loop.getYieldOp()->getOpOperand(i)});
      for (unsigned i = 0; i < loop.getNumResults(); ++i)
        add({loop.getAfterArguments()[i], loop.getResult(i)},
            {&loop.getConditionOp().getArgsMutable()[i]});
    } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
      for (unsigned i = 0; i < branch.getNumResults(); ++i)
        add({branch.getResult(i)}, {&branch.thenYield()->getOpOperand(i),
                                    &branch.elseYield()->getOpOperand(i)});
    } else if (isa<arith::SelectOp>(op)) {
      add({op->getResult(0)}, {&op->getOpOperand(1), &op->getOpOperand(2)});
    }
  });
}

void settleCarriedLayouts(ModuleOp module) {
  SmallVector<Carried> carried;
  collect(module, carried);
  // All are taken to be dense until one comes from something that is not.
  llvm::DenseSet<Value> dense;
  for (const Carried &one : carried)
    dense.insert(one.values.begin(), one.values.end());
  bool changed = true;
  while (changed) {
    changed = false;
    for (const Carried &one : carried) {
      if (!dense.contains(one.values.front()) ||
          llvm::all_of(one.sources, [&](OpOperand *source) {
            Value from = stripCasts(source->get());
            return from.getType() == denseTypeOf(one.values.front()) ||
                   (dense.contains(from) &&
                    denseTypeOf(from) == denseTypeOf(one.values.front()));
          }))
        continue;
      for (Value value : one.values)
        dense.erase(value);
      changed = true;
    }
  }
  llvm::erase_if(carried, [&](const Carried &one) {
    return !dense.contains(one.values.front());
  });
  for (const Carried &one : carried)
    for (Value value : one.values) {
      Type before = value.getType();
      value.setType(denseTypeOf(value));
      OpBuilder builder(module.getContext());
      builder.setInsertionPointAfterValue(value);
      auto cast =
          memref::CastOp::create(builder, value.getLoc(), before, value);
      value.replaceAllUsesExcept(cast, cast);
    }
  for (const Carried &one : carried)
    for (OpOperand *source : one.sources)
      source->set(stripCasts(source->get()));
}

} // namespace concord
