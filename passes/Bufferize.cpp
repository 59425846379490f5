//===- Bufferize.cpp - comm-bufferize -------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Results become destination arguments before bufferization, so that what
// computes them can write there directly. Inputs are never written. Afterwards
// every buffer that a collective or kernel takes is dense.
//
//===----------------------------------------------------------------------===//

#include "bufferize/Bufferize.h"
#include "Passes.h"
#include "comm/Comm.h"
#include "common/CarriedLayouts.h"
#include "common/PlanBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace concord {
#define GEN_PASS_DEF_COMMBUFFERIZE
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

class Bufferizer {
public:
  explicit Bufferizer(ModuleOp module) : module(module) {}
  LogicalResult run(bool &straight);

private:
  /// `-> tensor` becomes a destination argument that the tensor is materialised
  /// in.
  void resultsToArguments(func::FuncOp function) {
    OpBuilder builder(function.getContext());
    auto ret = cast<func::ReturnOp>(function.getBody().front().getTerminator());
    SmallVector<DictionaryAttr> argAttrs;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      NamedAttrList attrs(function.getArgAttrDict(i));
      attrs.set("comm.input", builder.getI64IntegerAttr(i));
      argAttrs.push_back(attrs.getDictionary(function.getContext()));
    }
    function.setAllArgAttrs(argAttrs);
    SmallVector<DictionaryAttr> resultAttrs;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      resultAttrs.push_back(function.getResultAttrDict(i)
                                ? function.getResultAttrDict(i)
                                : builder.getDictionaryAttr({}));
    builder.setInsertionPoint(ret);
    for (auto [i, value] : llvm::enumerate(ret.getOperands())) {
      auto type = cast<RankedTensorType>(value.getType());
      auto memref = MemRefType::get(type.getShape(), type.getElementType());
      unsigned index = function.getNumArguments();
      NamedAttrList attrs(resultAttrs[i]);
      attrs.set("comm.output", builder.getI64IntegerAttr(i));
      (void)function.insertArgument(index, memref,
                                    attrs.getDictionary(function.getContext()),
                                    function.getLoc());
      bufferization::MaterializeInDestinationOp::create(
          builder, ret.getLoc(), /*result=*/Type(), value,
          function.getArgument(index), /*restrict=*/true, /*writable=*/true);
    }
    ret->setOperands({});
    function.setType(builder.getFunctionType(function.getArgumentTypes(), {}));
    function.removeResAttrsAttr();
  }

  /// One tensor.empty per user, a start and its wait counting as one. CSE makes
  /// one of all that have the same type, and the analysis would then weigh
  /// every write of the program against every other.
  void splitEmpty(ArrayRef<tensor::EmptyOp> empties) {
    SmallVector<tensor::EmptyOp> shared;
    for (tensor::EmptyOp op : empties) {
      bool carried = llvm::any_of(op->getUsers(), [](Operation *user) {
        auto wait = dyn_cast<comm::WaitOp>(user);
        return wait && !wait.getStart();
      });
      if (!op->hasOneUse() && !op->use_empty() && !carried)
        shared.push_back(op);
    }
    for (tensor::EmptyOp op : shared) {
      llvm::MapVector<Operation *, SmallVector<OpOperand *>> users;
      for (OpOperand &use : op->getUses()) {
        auto wait = dyn_cast<comm::WaitOp>(use.getOwner());
        users[wait ? wait.getStart().getOperation() : use.getOwner()].push_back(
            &use);
      }
      for (auto &[user, uses] : users) {
        OpBuilder builder(user);
        Value copy = builder.clone(*op)->getResult(0);
        for (OpOperand *use : uses)
          use->set(copy);
      }
      op.erase();
    }
  }

  /// What is put together of parts (buckets) becomes a buffer here: the
  /// analysis weighs every write into such a tensor against every read of it,
  /// for each part anew. Nothing else ever sees the buffer, so there is nothing
  /// to find out; and producers that were given their place in it keep it.
  void partsToBuffers(ArrayRef<tensor::InsertSliceOp> inserts) {
    SmallVector<tensor::InsertSliceOp> ends;
    for (tensor::InsertSliceOp op : inserts)
      if (llvm::none_of(op->getUsers(), [&](Operation *user) {
            auto next = dyn_cast<tensor::InsertSliceOp>(user);
            return next && next.getDest() == op.getResult();
          }))
        ends.push_back(op);
    for (tensor::InsertSliceOp end : ends)
      partsToBuffer(end);
  }

  using Place = std::pair<int64_t, int64_t>; ///< offset and size

  /// The place of a dense part of a tensor of one dimension.
  template <typename OpTy> static std::optional<Place> placeOf(OpTy op) {
    if (op.getStaticOffsets().size() != 1 || !op.hasUnitStride() ||
        op.getSourceType().getRank() != 1 ||
        op.getResultType().getRank() != 1 ||
        ShapedType::isDynamic(op.getStaticOffset(0)) ||
        ShapedType::isDynamic(op.getStaticSize(0)))
      return std::nullopt;
    return Place(op.getStaticOffset(0), op.getStaticSize(0));
  }

  /// Whether what holds `value` is computed for its one user alone, back to
  /// where it is allocated: then nobody writes there later, not even while the
  /// bucket is in flight.
  static bool isForOneUser(Value value) {
    while (Operation *definer = value.getDefiningOp()) {
      // Each of its users gets one of its own (splitEmpty).
      if (isa<tensor::EmptyOp>(definer))
        return true;
      if (!value.hasOneUse())
        return false;
      if (isa<tensor::ExtractSliceOp, comm::ComputeOp>(definer))
        return true;
      if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::CastOp>(
              definer))
        value = definer->getOperand(0);
      else if (auto dst = dyn_cast<DestinationStyleOpInterface>(definer))
        value = dst.getTiedOpOperand(cast<OpResult>(value))->get();
      else
        return false;
    }
    return false;
  }

  void partsToBuffer(tensor::InsertSliceOp end) {
    llvm::MapVector<Place, tensor::InsertSliceOp> parts;
    Value whole = end.getResult();
    Block *block = end->getBlock();
    while (auto part = whole.getDefiningOp<tensor::InsertSliceOp>()) {
      std::optional<Place> place = placeOf(part);
      if (!place || part->getBlock() != block ||
          (part != end && !whole.hasOneUse()) ||
          !parts.insert({*place, part}).second)
        return;
      whole = part.getDest();
    }
    auto empty = whole.getDefiningOp<tensor::EmptyOp>();
    if (parts.size() < 2 || !empty || !empty.getType().hasStaticShape())
      return;
    // A part that is written early must not be written over later.
    SmallVector<Place> taken(llvm::make_first_range(parts));
    llvm::sort(taken);
    for (size_t i = 1; i < taken.size(); ++i)
      if (taken[i - 1].first + taken[i - 1].second > taken[i].first)
        return;
    llvm::DenseMap<Place, bool> own;
    for (auto &[place, part] : parts)
      own[place] = isForOneUser(part.getSource());
    // Where producers write: at the places that they were given, if any.
    SmallVector<std::pair<tensor::ExtractSliceOp, Place>> given;
    for (Operation *user : empty->getUsers())
      if (auto extract = dyn_cast<tensor::ExtractSliceOp>(user))
        if (std::optional<Place> place = placeOf(extract);
            place && extract->getBlock() == block && own.lookup(*place))
          given.push_back({extract, *place});
    // The buffer stands before whoever may write into it; its lifetime counts
    // from the first use.
    Operation *first = parts.back().second;
    auto before = [&](Operation *op) {
      if (op && op->getBlock() == block && op->isBeforeInBlock(first))
        first = op;
    };
    for (auto &[place, part] : parts)
      before(part.getSource().getDefiningOp());
    for (auto &[extract, place] : given)
      before(extract);
    OpBuilder builder(first);
    auto type = MemRefType::get(empty.getType().getShape(),
                                empty.getType().getElementType());
    Value buffer = memref::AllocOp::create(builder, end.getLoc(), type);
    llvm::DenseMap<Place, Value> views;
    for (auto &[place, part] : llvm::reverse(parts))
      views[place] = memref::SubViewOp::create(
          builder, part.getLoc(), buffer, part.getMixedOffsets(),
          part.getMixedSizes(), part.getMixedStrides());
    partViews.insert_range(llvm::make_second_range(views));
    for (auto &[extract, place] : given) {
      builder.setInsertionPoint(extract);
      extract.getResult().replaceAllUsesWith(bufferization::ToTensorOp::create(
          builder, extract.getLoc(), extract.getType(), views[place],
          /*restrict=*/true, /*writable=*/true));
      extract.erase();
    }
    for (auto &[place, part] : parts) {
      builder.setInsertionPoint(part);
      Location loc = part.getLoc();
      Value source = part.getSource();
      if (own[place]) {
        bufferization::MaterializeInDestinationOp::create(
            builder, loc, /*result=*/Type(), source, views[place],
            /*restrict=*/true, /*writable=*/true);
        continue;
      }
      auto read = bufferization::ToBufferOp::create(
          builder, loc,
          MemRefType::get(part.getSourceType().getShape(),
                          part.getSourceType().getElementType()),
          source, /*read_only=*/true);
      memref::CopyOp::create(builder, loc, read, views[place]);
    }
    builder.setInsertionPoint(end);
    Value result = bufferization::ToTensorOp::create(
        builder, end.getLoc(), end.getResultType(), buffer, /*restrict=*/true);
    end.getResult().replaceAllUsesWith(result);
    for (tensor::InsertSliceOp part : llvm::make_second_range(parts))
      part.erase();
  }

  /// A value apart from its shape.
  static Value stripReshapes(Value value) {
    while (Operation *op = value.getDefiningOp()) {
      if (!isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::CastOp>(
              op))
        break;
      value = op->getOperand(0);
    }
    return value;
  }

  /// Whether it is a slice, or may be one.
  static bool isSlice(Value value) {
    value = stripReshapes(value);
    if (auto select = value.getDefiningOp<arith::SelectOp>())
      return isSlice(select.getTrueValue()) || isSlice(select.getFalseValue());
    return value.getDefiningOp<tensor::ExtractSliceOp>() != nullptr;
  }

  /// What a loop carries, or a branch yields, is dense: a slice would give the
  /// buffer of all rounds, or of both arms, a layout that is only known at run
  /// time.
  void carryDense(ArrayRef<Operation *> carriers) {
    auto densify = [](OpOperand &operand) {
      auto type = dyn_cast<RankedTensorType>(operand.get().getType());
      if (!type || !type.hasStaticShape() || !isSlice(operand.get()))
        return;
      OpBuilder builder(operand.getOwner());
      operand.set(bufferization::AllocTensorOp::create(
          builder, operand.getOwner()->getLoc(), type, ValueRange(),
          operand.get()));
    };
    for (Operation *op : carriers)
      for (OpOperand &operand : op->getOpOperands())
        densify(operand);
  }

  /// Values that may lie where the used one does, one step on.
  static void aliasesOf(OpOperand &use, llvm::SetVector<Value> &aliases) {
    Operation *user = use.getOwner();
    if (auto dst = dyn_cast<DestinationStyleOpInterface>(user)) {
      if (dst.isDpsInit(&use) && user->getNumResults())
        aliases.insert(dst.getTiedOpResult(&use));
    } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(user)) {
      if (&use == &insert.getDestMutable())
        aliases.insert(insert.getResult());
    } else if (auto loop = dyn_cast<LoopLikeOpInterface>(user)) {
      if (BlockArgument argument = loop.getTiedLoopRegionIterArg(&use))
        aliases.insert(argument);
      if (OpResult result = loop.getTiedLoopResult(&use))
        aliases.insert(result);
    } else if (user->hasTrait<OpTrait::IsTerminator>()) {
      for (Value result : user->getParentOp()->getResults())
        aliases.insert(result);
    } else if (isa<tensor::ExtractSliceOp, tensor::CollapseShapeOp,
                   tensor::ExpandShapeOp, tensor::CastOp, arith::SelectOp>(
                   user)) {
      aliases.insert(user->getResult(0));
    }
  }

  /// Whether something that was computed at `empty` is read when the `result`,
  /// another value, is at its place.
  static bool isReadLater(Value empty,
                          bufferization::MaterializeInDestinationOp result) {
    Value written = stripReshapes(result.getSource());
    llvm::SetVector<Value> values;
    values.insert(empty);
    for (size_t i = 0; i < values.size(); ++i) {
      Value value = values[i];
      for (OpOperand &use : value.getUses()) {
        // Results are written last, one after another.
        Operation *reader = use.getOwner();
        if (stripReshapes(value) != written &&
            reader->getBlock() == result->getBlock() &&
            result->isBeforeInBlock(reader))
          return true;
        aliasesOf(use, values);
      }
    }
    return false;
  }

  /// Elimination of empty tensors lets a value be computed where a result of
  /// the function belongs. The analysis does not see that the result is written
  /// there at the end: what is computed on the way must not be read then.
  void keepDestinationsApart(ModuleOp module) {
    module.walk([](bufferization::ToTensorOp op) {
      bufferization::MaterializeInDestinationOp result;
      if (isa<BlockArgument>(op.getBuffer()))
        for (Operation *user : op.getBuffer().getUsers())
          if (auto end =
                  dyn_cast<bufferization::MaterializeInDestinationOp>(user))
            result = end;
      if (!result || !isReadLater(op.getResult(), result))
        return;
      OpBuilder builder(op);
      auto type = cast<RankedTensorType>(op.getType());
      op.getResult().replaceAllUsesWith(tensor::EmptyOp::create(
          builder, op.getLoc(), type.getShape(), type.getElementType()));
    });
  }

  /// Elimination of empty tensors gives a wait the final destination as its
  /// outs and leaves its start alone. The start follows where that destination
  /// is known before it; otherwise the wait goes back to what the start has.
  void rejoinStarts() {
    DominanceInfo dominance(module);
    module.walk([&](comm::WaitOp wait) {
      comm::StartOp start = wait.getStart();
      if (!start || !start.getInit() || start.getInit() == wait.getInit())
        return;
      if (dominance.properlyDominates(wait.getInit(), start))
        start.getInitMutable().assign(wait.getInit());
      else
        wait.getInitMutable().assign(start.getInit());
    });
  }

  /// Whether `op` leaves its outs alone on some members, so that what they held
  /// counts.
  static bool keepsOuts(Operation *op) {
    auto collective = dyn_cast<comm::CollectiveOpInterface>(op);
    return collective &&
           (collective.getCollectiveKind() == comm::CollectiveKind::reduce ||
            collective.getCollectiveKind() == comm::CollectiveKind::gather);
  }

  /// Collectives and kernels take plain pointers: a strided operand is copied
  /// to a dense buffer before, or from one after. What was started takes its
  /// results from there behind its wait.
  void makeDense(Operation *op) {
    auto dst = dyn_cast<DestinationStyleOpInterface>(op);
    auto start = dyn_cast<comm::StartOp>(op);
    comm::WaitOp wait;
    if (start)
      for (Operation *user : start.getFuture().getUsers())
        if (auto found = dyn_cast<comm::WaitOp>(user))
          wait = found;
    if (start && !wait)
      return;
    OpBuilder builder(op);
    for (OpOperand &operand : op->getOpOperands()) {
      auto type = dyn_cast<MemRefType>(operand.get().getType());
      if (!type || type.getLayout().isIdentity())
        continue;
      bool written = dst ? dst.isDpsInit(&operand)
                         : start && start.getInit() &&
                               &operand == &start.getInitMutable()[0];
      auto dense = MemRefType::get(type.getShape(), type.getElementType());
      auto use = [&](Value buffer) {
        operand.set(buffer);
        if (wait)
          (written ? wait.getInitMutable() : wait.getInputMutable())
              .assign(buffer);
      };
      Value strided = operand.get();
      // Perhaps it is dense, and only its type does not say so.
      if (Value source = stripCasts(strided); source.getType() == dense) {
        use(source);
        continue;
      }
      builder.setInsertionPoint(op);
      SmallVector<Value> extents;
      for (int64_t dim = 0; dim < type.getRank(); ++dim)
        if (type.isDynamicDim(dim))
          extents.push_back(
              memref::DimOp::create(builder, op->getLoc(), strided, dim));
      Value buffer =
          memref::AllocOp::create(builder, op->getLoc(), dense, extents);
      if (!written || keepsOuts(op))
        memref::CopyOp::create(builder, op->getLoc(), strided, buffer);
      use(buffer);
      if (written) {
        builder.setInsertionPointAfter(wait ? wait.getOperation() : op);
        memref::CopyOp::create(builder, op->getLoc(), buffer, strided);
      }
    }
  }

  /// Says to the analysis, or no longer, that inputs are not written. At once:
  /// each change of one would copy the list of all.
  void markInputs(bool marked) {
    for (func::FuncOp function : entryFunctions(module)) {
      OpBuilder builder(function.getContext());
      SmallVector<DictionaryAttr> all;
      for (unsigned i = 0; i < function.getNumArguments(); ++i) {
        NamedAttrList attrs(function.getArgAttrDict(i));
        if (marked && attrs.get("comm.input"))
          attrs.set("bufferization.writable", builder.getBoolAttr(false));
        else
          attrs.erase("bufferization.writable");
        all.push_back(attrs.getDictionary(function.getContext()));
      }
      function.setAllArgAttrs(all);
    }
  }

  /// Copies that in-place decisions left without effect, and what nothing uses.
  void tidy() {
    module.walk<WalkOrder::PostOrder, ReverseIterator>([](Operation *op) {
      auto copy = dyn_cast<memref::CopyOp>(op);
      if ((copy && copy.getSource() == copy.getTarget()) ||
          isOpTriviallyDead(op))
        op->erase();
    });
  }

  LogicalResult bufferize(bool &straight) {
    IRRewriter rewriter(module.getContext());
    bufferization::OneShotBufferizationOptions options;
    options.bufferizeFunctionBoundaries = true;
    options.setFunctionBoundaryTypeConversion(
        bufferization::LayoutMapOption::IdentityLayoutMap);
    options.bufferAlignment = 0;
    // What a loop hands on in a new buffer is settled by comm-plan-workspace.
    options.allowReturnAllocsFromLoops = true;
    bufferization::BufferizationState state;
    SmallVector<Operation *> carriers;
    SmallVector<tensor::InsertSliceOp> inserts;
    SmallVector<tensor::EmptyOp> empties;
    module.walk([&](Operation *op) {
      if (auto empty = dyn_cast<tensor::EmptyOp>(op))
        empties.push_back(empty);
      else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
        inserts.push_back(insert);
      else if (isa<scf::ForOp, scf::WhileOp, scf::YieldOp, scf::ConditionOp>(
                   op))
        carriers.push_back(op);
    });
    carryDense(carriers);
    partsToBuffers(inserts);
    splitEmpty(empties);
    straight = bufferizesInPlace(module, options);
    if (straight) {
      writeToDestinations(module, partViews);
      if (failed(bufferization::bufferizeModuleOp(module, options, state)))
        return failure();
      tidy();
      return success();
    }
    markInputs(true);
    if (failed(bufferization::eliminateEmptyTensors(rewriter, module)))
      return failure();
    keepDestinationsApart(module);
    rejoinStarts();
    if (failed(bufferization::insertTensorCopies(module, options, state)))
      return failure();
    markInputs(false);
    if (failed(bufferization::bufferizeModuleOp(module, options, state)))
      return failure();
    settleCarriedLayouts(module);
    return success();
  }

  ModuleOp module;
  llvm::DenseSet<Value>
      partViews; ///< of buffers that are put together of parts
};

LogicalResult Bufferizer::run(bool &straight) {
  for (func::FuncOp function : entryFunctions(module)) {
    // A stage that only receives or only sends has no results, and inputs all
    // the same.
    if (!function.getNumResults() &&
        (!function.getBody().hasOneBlock() ||
         !llvm::any_of(function.getArgumentTypes(),
                       llvm::IsaPred<RankedTensorType>)))
      continue;
    if (!function.getBody().hasOneBlock() ||
        !llvm::all_of(function.getResultTypes(),
                      llvm::IsaPred<RankedTensorType>)) {
      return function.emitError(
          "is an entry function: it returns ranked tensors, from one "
          "block");
    }
    resultsToArguments(function);
  }

  if (failed(bufferize(straight)))
    return failure();

  SmallVector<Operation *> pointerUsers;
  module.walk([&](Operation *op) {
    if (isa<comm::KernelOp, comm::CollectiveOpInterface>(op))
      pointerUsers.push_back(op);
  });
  for (Operation *op : pointerUsers)
    makeDense(op);
  return success();
}

struct Bufferize : public concord::impl::CommBufferizeBase<Bufferize> {
  using CommBufferizeBase::CommBufferizeBase;
  void runOnOperation() override {
    bool straight = false;
    if (failed(bufferizeModule(getOperation(), straight)))
      signalPassFailure();
  }
};

} // namespace

LogicalResult concord::bufferizeModule(ModuleOp module, bool &straight) {
  return Bufferizer(module).run(straight);
}
