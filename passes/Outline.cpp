//===- Outline.cpp - comm-outline -----------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per distinct loop nest. LLVM's loop passes and scalar evolution
// take time that grows with the square of a function's loops; a transformer has
// thousands in one function, of which a few dozen differ.
//
// What a nest has from outside becomes an argument, in the order of first use,
// so that the nests of equal layers come out equal: buffers (views of the arena
// at different places) and what is known only at run time. Constants move into
// the function, since bounds and strides have to be known there.
//
// With bounded dimensions the first member says which nests are alike; buffers
// count as large as they are at most, so that all members see the same ones
// overlap. A nest that has sizes gets the table of sizes as one more argument
// when the members become one (common/FamilyCode.cpp).
//
// Within one function LLVM sees that two places in the arena are disjoint;
// behind arguments it does not, so this is shown here and said with `noalias`.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "common/Choices.h"
#include "common/FamilyNumbers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SetVector.h"

namespace concord {
#define GEN_PASS_DEF_COMMOUTLINE
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

/// Bytes of a buffer: [begin, end) of an argument of the entry function.
/// Without `root` nothing is known.
struct Range {
  Value root;
  int64_t begin = 0, end = 0;
};

/// What a nest has from outside.
struct Captured {
  llvm::SetVector<Value> values; ///< become arguments, by first use
  /// Cloned into the function, in an order in which they can stand.
  llvm::SetVector<Operation *> operations;
};

/// One argument of a function: a value as it is, or the bytes of several
/// buffers that overlap, which LLVM then knows to be at a fixed distance.
struct Argument {
  SmallVector<Value, 1> values;
  Range range;
};

/// A buffer that the bare-pointer convention can hand over.
bool isPlainBuffer(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  return memref && memref.hasStaticShape() && memref.getNumElements() != 0 &&
         memref.getLayout().isIdentity() && !memref.getMemorySpace() &&
         memref.getElementType().isIntOrIndexOrFloat();
}

int64_t bytesOf(Type type) {
  auto memref = cast<MemRefType>(type);
  Type element = memref.getElementType();
  return memref.getNumElements() *
         (element.isIndex() ? 8 : (element.getIntOrFloatBitWidth() + 7) / 8);
}

Range rangeOf(Value buffer) {
  int64_t begin = 0, bytes = bytesOf(buffer.getType());
  Value root = buffer;
  if (auto view = buffer.getDefiningOp<memref::ViewOp>()) {
    if (auto most = view->getAttrOfType<IntegerAttr>(kMaxBytes))
      bytes = most.getInt();
    else if (view->getParentOfType<ModuleOp>()->hasAttr(kDims))
      return {};
    std::optional<int64_t> shift = getConstantIntValue(view.getByteShift());
    if (!shift)
      return {};
    begin = *shift;
    root = view.getSource();
  }
  auto argument = dyn_cast<BlockArgument>(root);
  if (!argument || !isa<func::FuncOp>(argument.getOwner()->getParentOp()))
    return {};
  return {root, begin, begin + bytes};
}

/// Arguments of an entry function are disjoint: comm-lower tells LLVM so, too.
bool disjoint(const Range &a, const Range &b) {
  if (!a.root || !b.root)
    return false;
  return a.root != b.root || a.end <= b.begin || b.end <= a.begin;
}

/// Nothing in it calls or communicates, so it may stand in a function that has
/// no step's arguments.
bool onlyComputes(Operation *nest) {
  return !nest->walk([](Operation *op) {
                return isa<arith::ArithDialect, math::MathDialect,
                           memref::MemRefDialect, scf::SCFDialect,
                           ub::UBDialect>(op->getDialect())
                           ? WalkResult::advance()
                           : WalkResult::interrupt();
              })
              .wasInterrupted();
}

/// Whether `value`, defined outside of a nest, can get into a function.
bool capture(Value value, Captured &captured) {
  Operation *definer = value.getDefiningOp();
  if (captured.values.contains(value) ||
      (definer && captured.operations.contains(definer)))
    return true;
  bool views = definer && isa<ViewLikeOpInterface>(definer) &&
               !isa<memref::ViewOp>(definer) && isPure(definer);
  if (definer && (views || matchPattern(definer, m_Constant()) ||
                  isa<memref::GetGlobalOp>(definer))) {
    for (Value operand : definer->getOperands())
      if (!capture(operand, captured))
        return false;
    captured.operations.insert(definer);
    return true;
  }
  if (!isPlainBuffer(value.getType()) && !value.getType().isIntOrIndexOrFloat())
    return false;
  captured.values.insert(value);
  return true;
}

/// Joins buffers that overlap: passed apart, the vectoriser would find out at
/// run time, each time, that what is written in place may not be reordered.
SmallVector<Argument> argumentsOf(const Captured &captured) {
  SmallVector<Argument> arguments;
  for (Value value : captured.values) {
    Argument next{{value}, {}};
    if (isPlainBuffer(value.getType()))
      next.range = rangeOf(value);
    if (next.range.root)
      for (unsigned i = 0; i < arguments.size();) {
        Argument &other = arguments[i];
        if (!other.range.root || disjoint(next.range, other.range)) {
          ++i;
          continue;
        }
        // The joined one may overlap with those before it.
        next.values.insert(next.values.begin(), other.values.begin(),
                           other.values.end());
        next.range.begin = std::min(next.range.begin, other.range.begin);
        next.range.end = std::max(next.range.end, other.range.end);
        arguments.erase(arguments.begin() + i);
        i = 0;
      }
    arguments.push_back(std::move(next));
  }
  return arguments;
}

/// Whether nothing in `function` writes through `argument` or a view of it.
bool onlyRead(BlockArgument argument) {
  SmallVector<Value> worklist = {argument};
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    for (Operation *user : value.getUsers()) {
      if (isa<ViewLikeOpInterface>(user)) {
        llvm::append_range(worklist, user->getResults());
        continue;
      }
      auto effects = dyn_cast<MemoryEffectOpInterface>(user);
      if (!effects || !effects.onlyHasEffect<MemoryEffects::Read>())
        return false;
    }
  }
  return true;
}

struct Outline : public concord::impl::CommOutlineBase<Outline> {
  using CommOutlineBase::CommOutlineBase;

  void runOnOperation() override;
  void outline(scf::ForOp nest);
  func::FuncOp build(scf::ForOp nest, const Captured &captured,
                     ArrayRef<Argument> arguments, TypeRange types);
  func::FuncOp findOrInsert(func::FuncOp function);

  SymbolTable *symbols = nullptr;
  std::optional<Choices> choices;
  SmallVector<func::FuncOp> functions;
  /// Numbers in `functions`.
  DenseMap<llvm::hash_code, SmallVector<size_t, 1>> made;
};

} // namespace

/// The nest in a function of its own, which is not in the module yet.
func::FuncOp Outline::build(scf::ForOp nest, const Captured &captured,
                            ArrayRef<Argument> arguments, TypeRange types) {
  Location loc = UnknownLoc::get(&getContext());
  OpBuilder builder(&getContext());
  func::FuncOp function =
      func::FuncOp::create(loc, kNestName, builder.getFunctionType(types, {}));
  function.setPrivate();
  function->setAttr(
      "llvm.linkage",
      LLVM::LinkageAttr::get(&getContext(), LLVM::Linkage::Internal));
  // Inlined again they would be what they were.
  function->setAttr("passthrough", builder.getStrArrayAttr({"noinline"}));
  Block *body = function.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  IRMapping mapping;
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    bool apart = isa<MemRefType>(types[i]);
    for (auto [j, other] : llvm::enumerate(arguments))
      apart &= i == j || !isa<MemRefType>(types[j]) ||
               disjoint(argument.range, other.range);
    if (apart)
      function.setArgAttr(i, "llvm.noalias", builder.getUnitAttr());
    if (argument.values.size() == 1) {
      mapping.map(argument.values[0], body->getArgument(i));
      continue;
    }
    for (Value value : argument.values) {
      Value shift = arith::ConstantIndexOp::create(
          builder, loc, rangeOf(value).begin - argument.range.begin);
      mapping.map(value, memref::ViewOp::create(
                             builder, loc, cast<MemRefType>(value.getType()),
                             body->getArgument(i), shift, ValueRange()));
    }
  }
  for (Operation *op : captured.operations)
    builder.clone(*op, mapping);
  builder.clone(*nest, mapping);
  func::ReturnOp::create(builder, loc);
  for (BlockArgument argument : body->getArguments())
    if (isa<MemRefType>(argument.getType()) && onlyRead(argument))
      function.setArgAttr(argument.getArgNumber(),
                          LLVM::LLVMDialect::getReadonlyAttrName(),
                          builder.getUnitAttr());
  return function;
}

/// `function`, or one that is already in the module and does the same.
func::FuncOp Outline::findOrInsert(func::FuncOp function) {
  const auto flags = OperationEquivalence::IgnoreLocations;
  llvm::hash_code hash = hash_value(function.getFunctionType());
  hash = llvm::hash_combine(hash, function.getArgAttrsAttr());
  function.getBody().walk([&](Operation *op) {
    hash = llvm::hash_combine(
        hash, OperationEquivalence::computeHash(
                  op, OperationEquivalence::ignoreHashValue,
                  OperationEquivalence::ignoreHashValue, flags));
  });
  auto isEqual = [&](func::FuncOp other) {
    return other.getFunctionType() == function.getFunctionType() &&
           other.getArgAttrsAttr() == function.getArgAttrsAttr() &&
           OperationEquivalence::isRegionEquivalentTo(
               &other.getBody(), &function.getBody(), flags);
  };
  SmallVector<size_t, 1> &equal = made[hash];
  auto found = llvm::find_if(
      equal, [&](size_t index) { return isEqual(functions[index]); });
  int64_t own = found == equal.end() ? functions.size() : *found;
  int64_t index = (*choices)(own);
  if (index != own && index != static_cast<int64_t>(functions.size()))
    choices->mismatch();
  else if (index != static_cast<int64_t>(functions.size())) {
    function->destroy();
    return functions[index];
  }
  symbols->insert(function);
  equal.push_back(functions.size());
  functions.push_back(function);
  ++numFunctions;
  return function;
}

/// Views of the arena move out of a nest: what is handed over then are its
/// buffers, and not everything that lies beside them.
static void hoistViews(scf::ForOp nest) {
  SmallVector<memref::ViewOp> views;
  nest->walk([&](memref::ViewOp view) { views.push_back(view); });
  for (memref::ViewOp view : views) {
    std::optional<int64_t> shift = getConstantIntValue(view.getByteShift());
    if (!shift || !view.getType().hasStaticShape() ||
        nest->isAncestor(view.getSource().getParentRegion()->getParentOp()))
      continue;
    OpBuilder builder(nest);
    view.getByteShiftMutable().assign(
        arith::ConstantIndexOp::create(builder, view.getLoc(), *shift));
    view->moveBefore(nest);
  }
}

void Outline::outline(scf::ForOp nest) {
  hoistViews(nest);
  Captured captured;
  WalkResult all = nest->walk<WalkOrder::PreOrder>([&](Operation *op) {
    for (Value operand : op->getOperands())
      // Bounds and step are operands of the nest, and from outside.
      if (!nest.getRegion().isAncestor(operand.getParentRegion()) &&
          !capture(operand, captured))
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  if (all.wasInterrupted())
    return;
  SmallVector<Argument> arguments = argumentsOf(captured);
  OpBuilder builder(nest);
  SmallVector<Value> operands;
  for (Argument &argument : arguments) {
    if (argument.values.size() == 1) {
      operands.push_back(argument.values[0]);
      continue;
    }
    auto bytes = MemRefType::get({argument.range.end - argument.range.begin},
                                 builder.getI8Type());
    Value begin = arith::ConstantIndexOp::create(builder, nest.getLoc(),
                                                 argument.range.begin);
    operands.push_back(memref::ViewOp::create(builder, nest.getLoc(), bytes,
                                              argument.range.root, begin,
                                              ValueRange()));
  }
  func::FuncOp function = findOrInsert(
      build(nest, captured, arguments, ValueRange(operands).getTypes()));
  auto call = func::CallOp::create(builder, nest.getLoc(), function, operands);
  // Collectives in flight share what the nest reads.
  call.setArgAttrsAttr(function.getArgAttrsAttr());
  nest.erase();
  ++numNests;
}

void Outline::runOnOperation() {
  ModuleOp module = getOperation();
  SymbolTable table(module);
  symbols = &table;
  made.clear();
  functions.clear();
  choices.emplace(module, "comm-outline");
  SmallVector<scf::ForOp> nests;
  for (auto function : module.getOps<func::FuncOp>())
    function.walk<WalkOrder::PreOrder>([&](scf::ForOp nest) {
      if (nest.getNumResults() || !onlyComputes(nest))
        return WalkResult::advance();
      nests.push_back(nest);
      return WalkResult::skip();
    });
  for (scf::ForOp nest : nests)
    outline(nest);
  if (failed(choices->finish()))
    signalPassFailure();
}
