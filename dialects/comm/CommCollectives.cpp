//===- CommCollectives.cpp - Collectives: interface, effects, verifiers ---===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One verifier serves the synchronous operations and comm.start: it asks the
// interface, not the operation.
//
//===----------------------------------------------------------------------===//

#include "comm/Comm.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace concord::comm;

using Pairs = SmallVector<std::pair<int64_t, int64_t>>;

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

static Pairs pairsOf(Operation *op) {
  Pairs pairs;
  if (auto attr = op->getAttrOfType<ArrayAttr>("pairs"))
    for (Attribute entry : attr) {
      auto pair = dyn_cast<DenseI64ArrayAttr>(entry);
      // Anything that is no pair becomes one that no group contains, so that
      // the verifier refuses it.
      pairs.push_back(pair && pair.size() == 2
                          ? std::make_pair(pair[0], pair[1])
                          : std::make_pair(int64_t(-1), int64_t(-1)));
    }
  return pairs;
}

static ArrayRef<int64_t> sizesOf(Operation *op, StringRef name) {
  if (auto attr = op->getAttrOfType<DenseI64ArrayAttr>(name))
    return attr.asArrayRef();
  return {};
}

static void addIssueEffects(Effects &effects, Operation *op, Value input,
                            Value output) {
  effects.emplace_back(MemoryEffects::Read::get(), IssueResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), IssueResource::get());
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    if (operand.get() == input)
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
    if (operand.get() == output)
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
}

/// The extent check `actual == wanted` where both are known.
static bool extentsDiffer(int64_t actual, int64_t wanted) {
  return !ShapedType::isDynamic(actual) && !ShapedType::isDynamic(wanted) &&
         actual != wanted;
}

static int64_t times(int64_t extent, int64_t factor) {
  return ShapedType::isDynamic(extent) ? extent : extent * factor;
}

/// Input and output shapes for a kind that scales `scaledDim` of the input by
/// `numerator / denominator` (-1: shapes are equal).
static LogicalResult verifyShapes(Operation *op, ShapedType input,
                                  ShapedType output, int64_t dim,
                                  int64_t inputFactor, int64_t outputFactor) {
  if (input.getElementType() != output.getElementType())
    return op->emitOpError()
           << "input has element type " << input.getElementType() << ", output "
           << output.getElementType();
  if (input.getRank() != output.getRank())
    return op->emitOpError("input and output differ in rank");
  if (dim >= 0 && dim >= input.getRank())
    return op->emitOpError() << "dimension " << dim << " is outside a rank-"
                             << input.getRank() << " tensor";
  for (int64_t i = 0; i < input.getRank(); ++i) {
    int64_t in = input.getDimSize(i), out = output.getDimSize(i);
    if (i == dim) {
      in = times(in, inputFactor);
      out = times(out, outputFactor);
    }
    if (extentsDiffer(in, out))
      return op->emitOpError()
             << "dimension " << i << ": input has " << input.getDimSize(i)
             << ", output " << output.getDimSize(i)
             << (i == dim ? ", which do not fit the group size" : "");
  }
  return success();
}

/// Uneven blocks: one extent per member, together the whole dimension.
static LogicalResult verifyBlockSizes(Operation *op, ArrayRef<int64_t> sizes,
                                      int64_t groupSize, int64_t whole,
                                      StringRef side) {
  if (static_cast<int64_t>(sizes.size()) != groupSize)
    return op->emitOpError() << "has " << sizes.size() << " block sizes of the "
                             << side << " for a group of " << groupSize;
  int64_t total = 0;
  for (int64_t extent : sizes)
    if (extent < 0 || llvm::AddOverflow(total, extent, total))
      return op->emitOpError("a block size is negative or too large");
  if (extentsDiffer(whole, total))
    return op->emitOpError() << "block sizes add up to " << total << ", the "
                             << side << " has " << whole;
  return success();
}

static LogicalResult verifyAllToAll(CollectiveOpInterface op, ShapedType input,
                                    ShapedType output, int64_t size) {
  int64_t split = op.getCollectiveSplitDim(),
          concat = op.getCollectiveConcatDim();
  if (input.getElementType() != output.getElementType() ||
      input.getRank() != output.getRank())
    return op->emitOpError("input and output differ in rank or element type");
  if (split < 0 || split >= input.getRank() || concat < 0 ||
      concat >= input.getRank())
    return op->emitOpError()
           << "dimension is outside a rank-" << input.getRank() << " tensor";
  if (!op.getCollectiveSendSizes().empty() ||
      !op.getCollectiveRecvSizes().empty()) {
    if (split != 0 || concat != 0)
      return op->emitOpError("uneven blocks need dimension 0 on both sides");
    if (failed(verifyBlockSizes(op, op.getCollectiveSendSizes(), size,
                                input.getDimSize(0), "input")) ||
        failed(verifyBlockSizes(op, op.getCollectiveRecvSizes(), size,
                                output.getDimSize(0), "output")))
      return failure();
    for (int64_t i = 1; i < input.getRank(); ++i)
      if (extentsDiffer(input.getDimSize(i), output.getDimSize(i)))
        return op->emitOpError()
               << "dimension " << i << ": input has " << input.getDimSize(i)
               << ", output " << output.getDimSize(i);
    return success();
  }
  for (int64_t i = 0; i < input.getRank(); ++i) {
    int64_t in = input.getDimSize(i), out = output.getDimSize(i);
    if (i == concat)
      in = times(in, size);
    if (i == split)
      out = times(out, size);
    if (extentsDiffer(in, out))
      return op->emitOpError()
             << "dimension " << i << ": input has " << input.getDimSize(i)
             << ", output " << output.getDimSize(i)
             << ", which do not fit the group size";
  }
  return success();
}

static LogicalResult verifyPairs(CollectiveOpInterface op, int64_t size) {
  llvm::SmallSet<int64_t, 8> sources, targets;
  for (auto [source, target] : op.getCollectivePairs()) {
    if (source < 0 || source >= size || target < 0 || target >= size)
      return op->emitOpError() << "pairs are two group ranks below " << size;
    if (!sources.insert(source).second)
      return op->emitOpError() << "group rank " << source << " sends twice";
    if (!targets.insert(target).second)
      return op->emitOpError() << "group rank " << target << " receives twice";
  }
  return success();
}

static LogicalResult verifyCollective(CollectiveOpInterface op) {
  CollectiveKind kind = op.getCollectiveKind();
  DomainOp domain = lookupDomain(op, op.getCollectiveDomain());
  if (!domain)
    return op->emitOpError()
           << "domain " << op.getCollectiveDomain() << " is not defined";
  auto uniform = domain.getUniformGroupSize();
  int64_t size = uniform ? *uniform : 0;

  bool needsInput =
      kind != CollectiveKind::recv && kind != CollectiveKind::barrier;
  bool needsOutput =
      kind != CollectiveKind::send && kind != CollectiveKind::barrier;
  Value input = op.getCollectiveInput(), output = op.getCollectiveOutput();
  if (needsInput != static_cast<bool>(input))
    return op->emitOpError(needsInput ? "needs an input" : "takes no input");
  if (needsOutput != static_cast<bool>(output))
    return op->emitOpError(needsOutput ? "needs outs" : "takes no outs");
  if (input && output &&
      isa<TensorType>(input.getType()) != isa<TensorType>(output.getType()))
    return op->emitOpError("mixes a tensor and a memref");
  for (Value data : {input, output})
    if (data &&
        !cast<ShapedType>(data.getType()).getElementType().isIntOrFloat())
      return op->emitOpError()
             << "cannot move elements of type "
             << cast<ShapedType>(data.getType()).getElementType();
  if (!op.isAsync() && output) {
    bool tensor = isa<TensorType>(output.getType());
    if (op->getNumResults() != (tensor ? 1u : 0u))
      return op->emitOpError(tensor ? "on tensors has one result"
                                    : "on memrefs has no result");
    if (tensor && op->getResult(0).getType() != output.getType())
      return op->emitOpError()
             << "result type " << op->getResult(0).getType()
             << " differs from outs type " << output.getType();
  }

  bool reduces = kind == CollectiveKind::all_reduce ||
                 kind == CollectiveKind::reduce_scatter ||
                 kind == CollectiveKind::reduce;
  ReductionKind reduction = op.getCollectiveReduction();
  if (reduces == (reduction == ReductionKind::none))
    return op->emitOpError(reduces ? "needs a reduction"
                                   : "takes no reduction");
  if (reduces) {
    Type element = cast<ShapedType>(input.getType()).getElementType();
    bool logical =
        reduction == ReductionKind::and_ || reduction == ReductionKind::or_;
    if (logical && !element.isInteger())
      return op->emitOpError() << stringifyReductionKind(reduction)
                               << " needs integers, not " << element;
    if (auto type = dyn_cast<FloatType>(element); type && type.getWidth() < 16)
      return op->emitOpError()
             << "cannot reduce " << element << "; it can only be moved";
  }

  bool rooted =
      kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce ||
      kind == CollectiveKind::gather || kind == CollectiveKind::scatter ||
      kind == CollectiveKind::send || kind == CollectiveKind::recv;
  if (rooted) {
    int64_t root = op.getCollectiveRoot();
    for (ArrayRef<int64_t> group : domain.getGroupRanks())
      if (root < 0 || root >= static_cast<int64_t>(group.size()))
        return op->emitOpError()
               << "root " << root << " is outside a group of " << group.size();
  }
  bool scales = kind == CollectiveKind::all_gather ||
                kind == CollectiveKind::gather ||
                kind == CollectiveKind::scatter ||
                kind == CollectiveKind::reduce_scatter ||
                kind == CollectiveKind::all_to_all;
  if (scales && !uniform)
    return op->emitOpError() << "runs on " << op.getCollectiveDomain()
                             << ", whose groups differ in size";
  if (kind == CollectiveKind::permute)
    for (ArrayRef<int64_t> group : domain.getGroupRanks())
      if (failed(verifyPairs(op, static_cast<int64_t>(group.size()))))
        return failure();
  if (!input || !output)
    return success();

  auto in = cast<ShapedType>(input.getType()),
       out = cast<ShapedType>(output.getType());
  switch (kind) {
  case CollectiveKind::all_gather:
  case CollectiveKind::gather:
    if (op.getCollectiveConcatDim() < 0)
      return op->emitOpError("dimension must not be negative");
    return verifyShapes(op, in, out, op.getCollectiveConcatDim(), size, 1);
  case CollectiveKind::reduce_scatter:
  case CollectiveKind::scatter:
    if (op.getCollectiveSplitDim() < 0)
      return op->emitOpError("dimension must not be negative");
    return verifyShapes(op, in, out, op.getCollectiveSplitDim(), 1, size);
  case CollectiveKind::all_to_all:
    return verifyAllToAll(op, in, out, size);
  default:
    return verifyShapes(op, in, out, -1, 1, 1);
  }
}

static constexpr ReductionKind kNone = ReductionKind::none;

// What differs between the synchronous collectives, as expressions over the op.
#define ISSUE(OP, KIND, REDUCTION, ROOT, SPLIT, CONCAT, INPUT, OUTPUT)         \
  CollectiveKind OP::getCollectiveKind() { return CollectiveKind::KIND; }      \
  FlatSymbolRefAttr OP::getCollectiveDomain() { return getDomainAttr(); }      \
  ReductionKind OP::getCollectiveReduction() { return REDUCTION; }             \
  int64_t OP::getCollectiveRoot() { return ROOT; }                             \
  int64_t OP::getCollectiveSplitDim() { return SPLIT; }                        \
  int64_t OP::getCollectiveConcatDim() { return CONCAT; }                      \
  Value OP::getCollectiveInput() { return INPUT; }                             \
  Value OP::getCollectiveOutput() { return OUTPUT; }                           \
  bool OP::isAsync() { return false; }                                         \
  Pairs OP::getCollectivePairs() { return pairsOf(*this); }                    \
  ArrayRef<int64_t> OP::getCollectiveSendSizes() {                             \
    return sizesOf(*this, "send_sizes");                                       \
  }                                                                            \
  ArrayRef<int64_t> OP::getCollectiveRecvSizes() {                             \
    return sizesOf(*this, "recv_sizes");                                       \
  }                                                                            \
  LogicalResult OP::verify() {                                                 \
    return verifyCollective(cast<CollectiveOpInterface>(getOperation()));      \
  }                                                                            \
  void OP::getEffects(Effects &effects) {                                      \
    addIssueEffects(effects, *this, INPUT, OUTPUT);                            \
  }
#define COLLECTIVE(OP, KIND, REDUCTION, ROOT, SPLIT, CONCAT)                   \
  ISSUE(OP, KIND, REDUCTION, ROOT, SPLIT, CONCAT, getInput(), getInit())

COLLECTIVE(AllReduceOp, all_reduce, getReduction(), -1, -1, -1)
COLLECTIVE(AllGatherOp, all_gather, kNone, -1, -1, getDim())
COLLECTIVE(ReduceScatterOp, reduce_scatter, getReduction(), -1, getDim(), -1)
COLLECTIVE(AllToAllOp, all_to_all, kNone, -1, getSplitDim(), getConcatDim())
COLLECTIVE(BroadcastOp, broadcast, kNone, getRoot(), -1, -1)
COLLECTIVE(ReduceOp, reduce, getReduction(), getRoot(), -1, -1)
COLLECTIVE(GatherOp, gather, kNone, getRoot(), -1, getDim())
COLLECTIVE(ScatterOp, scatter, kNone, getRoot(), getDim(), -1)
COLLECTIVE(PermuteOp, permute, kNone, -1, -1, -1)
ISSUE(SendOp, send, kNone, getPeer(), -1, -1, getInput(), Value())
ISSUE(RecvOp, recv, kNone, getPeer(), -1, -1, Value(), getInit())
ISSUE(BarrierOp, barrier, kNone, -1, -1, -1, Value(), Value())

#undef COLLECTIVE
#undef ISSUE

//===----------------------------------------------------------------------===//
// StartOp, WaitOp, GroupOp
//===----------------------------------------------------------------------===//

CollectiveKind StartOp::getCollectiveKind() { return getKind(); }
FlatSymbolRefAttr StartOp::getCollectiveDomain() { return getDomainAttr(); }
ReductionKind StartOp::getCollectiveReduction() {
  return getReduction().value_or(kNone);
}
int64_t StartOp::getCollectiveRoot() {
  if (getKind() == CollectiveKind::send || getKind() == CollectiveKind::recv)
    return getPeer() ? static_cast<int64_t>(*getPeer()) : -1;
  return getRoot() ? static_cast<int64_t>(*getRoot()) : -1;
}
int64_t StartOp::getCollectiveSplitDim() {
  switch (getKind()) {
  case CollectiveKind::reduce_scatter:
  case CollectiveKind::scatter:
    return getDim() ? static_cast<int64_t>(*getDim()) : -1;
  case CollectiveKind::all_to_all:
    return getSplitDim() ? static_cast<int64_t>(*getSplitDim()) : -1;
  default:
    return -1;
  }
}
int64_t StartOp::getCollectiveConcatDim() {
  switch (getKind()) {
  case CollectiveKind::all_gather:
  case CollectiveKind::gather:
    return getDim() ? static_cast<int64_t>(*getDim()) : -1;
  case CollectiveKind::all_to_all:
    return getConcatDim() ? static_cast<int64_t>(*getConcatDim()) : -1;
  default:
    return -1;
  }
}
Value StartOp::getCollectiveInput() { return getInput(); }
Value StartOp::getCollectiveOutput() { return getInit(); }
bool StartOp::isAsync() { return true; }
Pairs StartOp::getCollectivePairs() { return pairsOf(*this); }
ArrayRef<int64_t> StartOp::getCollectiveSendSizes() {
  return sizesOf(*this, "send_sizes");
}
ArrayRef<int64_t> StartOp::getCollectiveRecvSizes() {
  return sizesOf(*this, "recv_sizes");
}
void StartOp::getEffects(Effects &effects) {
  addIssueEffects(effects, *this, getInput(), getInit());
}

//===----------------------------------------------------------------------===//
// FusedOp
//===----------------------------------------------------------------------===//

CollectiveKind FusedOp::getCollectiveKind() { return getKind(); }
FlatSymbolRefAttr FusedOp::getCollectiveDomain() { return getDomainAttr(); }
ReductionKind FusedOp::getCollectiveReduction() {
  return getReduction().value_or(kNone);
}
int64_t FusedOp::getCollectiveRoot() { return -1; }
int64_t FusedOp::getCollectiveSplitDim() { return -1; }
int64_t FusedOp::getCollectiveConcatDim() { return -1; }
Value FusedOp::getCollectiveInput() { return getOperand(getShared()); }
Value FusedOp::getCollectiveOutput() { return getInits().front(); }
bool FusedOp::isAsync() { return false; }
StringRef FusedOp::getCollectiveKernel() { return getDescription(); }
Pairs FusedOp::getCollectivePairs() { return {}; }
ArrayRef<int64_t> FusedOp::getCollectiveSendSizes() { return {}; }
ArrayRef<int64_t> FusedOp::getCollectiveRecvSizes() { return {}; }

void FusedOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), IssueResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), IssueResource::get());
  for (OpOperand &operand : getInputsMutable())
    if (isa<MemRefType>(operand.get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  for (OpOperand &operand : getInitsMutable())
    if (isa<MemRefType>(operand.get().getType()))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
}

LogicalResult FusedOp::verify() {
  DomainOp domain = lookupDomain(*this, getDomainAttr());
  if (!domain)
    return emitOpError() << "domain " << getDomainAttr() << " is not defined";
  if (!domain.getUniformGroupSize())
    return emitOpError() << "runs on " << getDomainAttr()
                         << ", whose groups differ in size";
  bool reduces = getKind() == CollectiveKind::all_reduce ||
                 getKind() == CollectiveKind::reduce_scatter;
  if (!reduces && getKind() != CollectiveKind::all_gather &&
      getKind() != CollectiveKind::all_to_all)
    return emitOpError() << "cannot be a " << stringifyCollectiveKind(getKind())
                         << "; it is an all_reduce, reduce_scatter, "
                            "all_gather or all_to_all";
  if (reduces != (getCollectiveReduction() == ReductionKind::sum))
    return emitOpError(reduces ? "needs the reduction sum"
                               : "takes no reduction");
  if (getDescription().empty())
    return emitOpError("needs a description");
  if (getInits().empty() || getInputs().empty())
    return emitOpError("needs inputs and outs");
  auto operands = static_cast<int64_t>(getNumOperands() - getWorkspace());
  auto firstOut = static_cast<int64_t>(getInputs().size());
  auto shared = static_cast<int64_t>(getShared());
  if (shared < 0 || shared >= operands)
    return emitOpError() << "shared " << shared << " is no operand";
  for (int64_t index : getWritten())
    if (index < firstOut || index >= operands)
      return emitOpError() << "written " << index << " is no output";
  for (Value data : getOperands())
    if (isa<TensorType>(data.getType()) !=
        isa<TensorType>(getOperand(0).getType()))
      return emitOpError("mixes a tensor and a memref");
  if (!isa<TensorType>(getOperand(0).getType()))
    return getNumResults() ? emitOpError("on memrefs has no result")
                           : success();
  if (getNumResults() != getInits().size())
    return emitOpError() << "has " << getNumResults() << " results for "
                         << getInits().size() << " outs";
  for (auto [init, result] : llvm::zip(getInits(), getResults()))
    if (init.getType() != result.getType())
      return emitOpError() << "result type " << result.getType()
                           << " differs from outs type " << init.getType();
  return success();
}

/// Whether `value` is `buffer` or a view of it.
static bool isViewOf(Value value, Value buffer) {
  while (value != buffer) {
    auto view = value.getDefiningOp<ViewLikeOpInterface>();
    if (!view)
      return false;
    value = view.getViewSource();
  }
  return true;
}

/// Whether the two share memory as far as one can see: one is a view of the
/// other. Two views of a third are taken to be apart; for those of the arena
/// comm-verify-workspace proves it.
static bool mayAlias(Value a, Value b) {
  // What has no elements lies anywhere, and in the place of others.
  for (Value value : {a, b})
    if (auto type = dyn_cast<MemRefType>(value.getType());
        type && type.hasStaticShape() && !type.getNumElements())
      return false;
  return isViewOf(a, b) || isViewOf(b, a);
}

/// Whether a call says of an operand that its callee only reads it
/// (comm-outline).
static bool isReadByCall(OpOperand &operand) {
  auto call = dyn_cast<CallOpInterface>(operand.getOwner());
  auto attributes = dyn_cast<ArgAndResultAttrsOpInterface>(operand.getOwner());
  if (!call || !attributes)
    return false;
  ArrayAttr given = attributes.getArgAttrsAttr();
  int64_t index = static_cast<int64_t>(operand.getOperandNumber()) -
                  call.getArgOperands().getBeginOperandIndex();
  return given && index >= 0 && index < static_cast<int64_t>(given.size()) &&
         cast<DictionaryAttr>(given[index]).contains("llvm.readonly");
}

/// Refuses `op` when it, or anything in its regions, writes the input of
/// `start` or touches its output. An operation whose effects are unknown is
/// taken to read and write whatever it is handed.
static LogicalResult verifyUntouched(StartOp start, Operation *op) {
  Value input = start.getInput(), init = start.getInit();
  WalkResult result = op->walk([&](Operation *inner) {
    // A view alone touches nothing; and another wait ends another start, whose
    // operands are judged by themselves.
    if (isa<WaitOp, ViewLikeOpInterface>(inner))
      return WalkResult::advance();
    auto effects = dyn_cast<MemoryEffectOpInterface>(inner);
    for (OpOperand &use : inner->getOpOperands()) {
      Value operand = use.get();
      if (!isa<MemRefType>(operand.getType()))
        continue;
      bool isInput = input && mayAlias(operand, input);
      bool isOutput = init && mayAlias(operand, init);
      if (!isInput && !isOutput)
        continue;
      SmallVector<MemoryEffects::EffectInstance> list;
      if (effects)
        effects.getEffectsOnValue(operand, list);
      bool writes = !effects && !isReadByCall(use), reads = !effects;
      for (auto &effect : list) {
        writes |=
            isa<MemoryEffects::Write, MemoryEffects::Free>(effect.getEffect());
        reads |= isa<MemoryEffects::Read>(effect.getEffect());
      }
      if ((isInput && writes) || (isOutput && (reads || writes))) {
        inner->emitOpError()
            << (writes ? "writes" : "reads") << " a buffer that a started "
            << stringifyCollectiveKind(start.getKind()) << " still "
            << (isOutput ? "writes" : "reads")
            << "; move it behind the comm.wait";
        return WalkResult::interrupt();
      }
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// On memrefs, what lies between a start and its wait leaves the buffers alone.
/// The wait may be in a region of an operation behind the start, but not in a
/// loop that the start is not in.
static LogicalResult verifyInFlight(StartOp start, WaitOp wait) {
  Operation *last = wait;
  while (last && last->getBlock() != start->getBlock()) {
    // Branches between blocks: what lies between was looked at while control
    // flow was structured.
    if (!last->getBlock() ||
        last->getParentRegion() == start->getParentRegion())
      return success();
    for (Operation *op = &last->getBlock()->front(); op != last;
         op = op->getNextNode())
      if (failed(verifyUntouched(start, op)))
        return failure();
    last = last->getParentOp();
    if (last && isa<LoopLikeOpInterface>(last))
      return wait.emitOpError(
          "is in a loop that its comm.start is not in, and would "
          "wait more than once");
  }
  if (!last)
    return success();
  for (Operation *op = start->getNextNode(); op && op != last;
       op = op->getNextNode())
    if (failed(verifyUntouched(start, op)))
      return failure();
  return success();
}

LogicalResult StartOp::verify() {
  if (failed(verifyCollective(cast<CollectiveOpInterface>(getOperation()))))
    return failure();
  unsigned waits = 0;
  for (Operation *user : getFuture().getUsers())
    waits += isa<WaitOp>(user);
  if (waits > 1)
    return emitOpError("is waited for more than once");
  // A future that is handed on (yielded, returned) is waited for elsewhere.
  if (llvm::all_of(getFuture().getUsers(),
                   [](Operation *user) { return isa<GroupOp>(user); }))
    return emitOpError("is never waited for");
  return success();
}

StartOp WaitOp::getStart() { return getFuture().getDefiningOp<StartOp>(); }

LogicalResult WaitOp::verify() {
  if (getInit()) {
    bool tensor = isa<TensorType>(getInit().getType());
    if (tensor != static_cast<bool>(getResult()))
      return emitOpError(tensor ? "on tensors has one result"
                                : "on memrefs has no result");
    if (tensor && getResult().getType() != getInit().getType())
      return emitOpError("result and outs differ in type");
  } else if (getResult()) {
    return emitOpError("without outs has no result");
  }
  StartOp start = getStart();
  if (!start)
    return success();
  if (start.getInput() != getInput() || start.getInit() != getInit())
    return emitOpError("must take the operands of its comm.start");
  return verifyInFlight(start, *this);
}

void WaitOp::getEffects(Effects &effects) {
  addIssueEffects(effects, *this, getInput(), getInit());
}

LogicalResult GroupOp::verify() {
  if (getFutures().empty())
    return emitOpError("needs at least one future");
  Operation *previous = nullptr;
  for (Value future : getFutures()) {
    auto start = future.getDefiningOp<StartOp>();
    if (!start || (start.getKind() != CollectiveKind::send &&
                   start.getKind() != CollectiveKind::recv))
      return emitOpError("groups started sends and recvs only");
    if (start->getBlock() != (*this)->getBlock())
      return emitOpError("is in another block than its starts");
    if (previous && !previous->isBeforeInBlock(start))
      return emitOpError("lists its starts in another order than they have");
    previous = start;
  }
  for (Operation *op = getFutures().front().getDefiningOp();
       op != getOperation(); op = op->getNextNode()) {
    auto start = dyn_cast<StartOp>(op);
    bool member = start && llvm::is_contained(getFutures(), start.getFuture());
    if (isIssue(op) && !member)
      return emitOpError("has another issue between its starts and itself");
  }
  return success();
}

void GroupOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), IssueResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), IssueResource::get());
}
