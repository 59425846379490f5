//===- Bucket.cpp - comm-bucket -------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One walk over each block. A bucket is open from its first member on; every
// operation that uses a member's result, directly or not, is marked with it. A
// marked operation that communicates, or may, closes the bucket before it: so a
// member never depends on another one, and no two buckets depend on each other
// in a circle. What is marked and stands before the last member is pure, and
// moves behind the bucket.
//
// Collectives that were started go into a bucket that is started where its last
// member was, and waited for where its first member was: a wait is an operation
// that is marked and not pure, so it closes the bucket. What that takes from
// the overlap of the members is counted against the gain.
//
// The layout of a bucket follows from the program's text alone, which is the
// same on all members, so nothing has to be agreed on at run time.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "common/Choices.h"
#include "common/CommCost.h"
#include "common/Explain.h"
#include "common/Fences.h"
#include "common/Issues.h"
#include "common/Members.h"
#include "common/PlanBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Transforms/RegionUtils.h"

#include <tuple>

namespace concord {
#define GEN_PASS_DEF_COMMBUCKET
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

using comm::CollectiveKind;

namespace {

/// Marks are bits of a word; when they run out, all buckets are closed.
constexpr unsigned kMaxOpen = 64;
/// A member's latency is at least this part of its time, and a bucket grows
/// until it is at most that.
constexpr double kWorthJoining = 0.1, kLargeEnough = 0.01;

struct Options {
  uint64_t maxBytes = 0, maxGrowth = 0;
  size_t maxCount = 0;
  bool mixed = true;
};

/// What the members of a bucket share.
using Key = std::tuple<int, const void *, int, const void *, int64_t,
                       const void *, const void *>;

struct Bucket {
  Key key;
  unsigned slot = 0;
  SmallVector<IssueView> members;
  uint64_t bytes = 0, growth = 0;
};

/// Elements of one member's part on each rank, as the bucket sees it: of the
/// whole tensor, of the input of an all_gather, of the output of a
/// reduce_scatter.
int64_t partElements(IssueView view) {
  return view.kind() == CollectiveKind::reduce_scatter
             ? view.type().getNumElements()
             : view.inputType().getNumElements();
}

/// Only moves data, so that element types may mix.
bool movesOnly(CollectiveKind kind) {
  return kind == CollectiveKind::all_gather ||
         kind == CollectiveKind::broadcast || kind == CollectiveKind::permute;
}

class Bucketer {
public:
  Bucketer(ModuleOp module, func::FuncOp function, const Options &options,
           CommCost &cost, Choices &choices)
      : function(function), options(options), cost(cost), choices(choices),
        members(module, function), foreign(module->hasAttr("comm.hlo_source")),
        explaining(explains(module)) {}
  void run();

  int64_t buckets = 0, joined = 0;

private:
  void visit(Block &block);
  void close(uint64_t slots, StringRef why);
  void finish(Bucket &bucket, StringRef why);
  bool make(Bucket &bucket);
  StringRef whyNot(IssueView view);
  Key keyOf(IssueView view);
  uint64_t marksOf(Operation &op);
  void refuse(IssueView view, StringRef reason, const Twine &keys = "") {
    if (!explaining)
      return;
    explain(function, view.op->getLoc(), "comm-bucket",
            ("keep-" + stringifyCollectiveKind(view.kind())).str(), reason,
            "domain=@" + view.op.getCollectiveDomain().getValue() +
                " bytes=" + Twine(wholeBytes(view)) + keys);
  }
  double seconds(IssueView view, double bytes) {
    return cost.seconds(view.kind(), bytes, view.domain());
  }

  Value pack(Bucket &bucket, OpBuilder &builder, Location loc, Type element,
             RankedTensorType type, uint64_t &copied, unsigned &inPlace);
  SmallVector<Value> unpack(Bucket &bucket, OpBuilder &builder, Location loc,
                            Type element, Value whole);

  double lostOverlap(Bucket &bucket);

  func::FuncOp function;
  Options options;
  CommCost &cost;
  Choices &choices;
  Members members;
  bool foreign;    ///< the module came from HLO
  bool explaining; ///< somebody reads the reasons
  Fences fences;
  /// Members that went into a bucket, waits before their starts. The walk over
  /// the block may stand on one, so they go when it is over.
  SmallVector<Operation *> dead;
  std::vector<Bucket> open; ///< by slot; an empty one is closed
  llvm::DenseMap<Operation *, uint64_t> marks;
};

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

/// A flat tensor as bytes, in the order in which memory holds them.
Value toBytes(OpBuilder &builder, Location loc, Value flat) {
  auto type = cast<RankedTensorType>(flat.getType());
  int64_t count = type.getNumElements();
  auto width = static_cast<int64_t>(elementBytes(type.getElementType()));
  Type byte = builder.getI8Type();
  if (type.getElementType() == byte)
    return flat;
  MLIRContext *context = builder.getContext();
  AffineExpr d0 = builder.getAffineDimExpr(0);
  AffineMap from = AffineMap::get(2, 0, {d0}, context);
  AffineMap to = builder.getMultiDimIdentityMap(2);
  auto out = RankedTensorType::get({count, width}, byte);
  Value init = tensor::EmptyOp::create(builder, loc, out.getShape(), byte);
  SmallVector<utils::IteratorType> loops(2, utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      builder, loc, out, flat, init, ArrayRef<AffineMap>{from, to}, loops,
      [&](OpBuilder &b, Location l, ValueRange arguments) {
        Type element = type.getElementType();
        unsigned bits = element.getIntOrFloatBitWidth();
        Value value = arguments[0];
        if (isa<FloatType>(element))
          value = arith::BitcastOp::create(b, l, b.getIntegerType(bits), value);
        if (bits < 8)
          value = arith::ExtUIOp::create(b, l, byte, value);
        if (width > 1) {
          Type word = b.getIntegerType(bits);
          Value place = linalg::IndexOp::create(b, l, 1);
          Value eight = arith::ConstantIndexOp::create(b, l, 8);
          Value shift = arith::IndexCastOp::create(
              b, l, word, arith::MulIOp::create(b, l, place, eight));
          value = arith::TruncIOp::create(
              b, l, byte, arith::ShRUIOp::create(b, l, value, shift));
        }
        linalg::YieldOp::create(b, l, value);
      });
  return reshapeTo(builder, loc, generic.getResult(0), {count * width});
}

/// And back.
Value fromBytes(OpBuilder &builder, Location loc, Value bytes, Type element) {
  auto type = cast<RankedTensorType>(bytes.getType());
  auto width = static_cast<int64_t>(elementBytes(element));
  if (element == builder.getI8Type())
    return bytes;
  int64_t count = type.getNumElements() / width;
  Value rows = reshapeTo(builder, loc, bytes, {count, width});
  auto out = RankedTensorType::get({count}, element);
  Value init = tensor::EmptyOp::create(builder, loc, out.getShape(), element);
  // One operand per byte: the same rows, at a fixed column each.
  SmallVector<AffineMap> maps;
  for (int64_t i = 0; i < width; ++i)
    maps.push_back(AffineMap::get(
        1, 0, {builder.getAffineDimExpr(0), builder.getAffineConstantExpr(i)},
        builder.getContext()));
  maps.push_back(builder.getMultiDimIdentityMap(1));
  SmallVector<Value> operands(width, rows);
  SmallVector<utils::IteratorType> loops(1, utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      builder, loc, out, operands, init, maps, loops,
      [&](OpBuilder &b, Location l, ValueRange arguments) {
        unsigned bits = element.getIntOrFloatBitWidth();
        Value value = arguments[0];
        if (width > 1) {
          Type word = b.getIntegerType(bits);
          value = arith::ExtUIOp::create(b, l, word, value);
          for (int64_t i = 1; i < width; ++i) {
            Value next = arith::ExtUIOp::create(b, l, word, arguments[i]);
            Value shift =
                arith::ConstantOp::create(b, l, b.getIntegerAttr(word, 8 * i));
            next = arith::ShLIOp::create(b, l, next, shift);
            value = arith::OrIOp::create(b, l, value, next);
          }
        }
        if (bits < 8)
          value = arith::TruncIOp::create(b, l, element, value);
        else if (isa<FloatType>(element))
          value = arith::BitcastOp::create(b, l, element, value);
        linalg::YieldOp::create(b, l, value);
      });
  return generic.getResult(0);
}

//===----------------------------------------------------------------------===//
// Into the bucket and out of it
//===----------------------------------------------------------------------===//

/// The operation that can write `value` into the bucket itself: it computes it
/// for the collective alone, into memory of its own.
Operation *ownProducer(IssueView view) {
  Value value = view.input();
  auto producer = value.getDefiningOp<DestinationStyleOpInterface>();
  // The wait of a started one reads its operands again.
  auto itsOwn = [&](Operation *user) {
    return user == view.op.getOperation() ||
           (view.wait && user == view.wait.getOperation());
  };
  if (!producer || !llvm::all_of(value.getUsers(), itsOwn) ||
      producer->getNumResults() != 1 || producer.getNumDpsInits() != 1 ||
      producer->getBlock() != view.op->getBlock() ||
      isa<comm::WaitOp, comm::CollectiveOpInterface>(producer.getOperation()))
    return nullptr;
  auto empty = producer.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>();
  return empty && empty->getBlock() == view.op->getBlock()
             ? producer.getOperation()
             : nullptr;
}

} // namespace

Value Bucketer::pack(Bucket &bucket, OpBuilder &builder, Location loc,
                     Type element, RankedTensorType type, uint64_t &copied,
                     unsigned &inPlace) {
  bool rows = type.getRank() == 2; // [blocks, elements]
  SmallVector<OpFoldResult> strides(type.getRank(), builder.getIndexAttr(1));
  auto place = [&](int64_t at, int64_t extent,
                   SmallVectorImpl<OpFoldResult> &offsets,
                   SmallVectorImpl<OpFoldResult> &sizes) {
    if (rows) {
      offsets.push_back(builder.getIndexAttr(0));
      sizes.push_back(builder.getIndexAttr(type.getDimSize(0)));
    }
    offsets.push_back(builder.getIndexAttr(at));
    sizes.push_back(builder.getIndexAttr(extent));
  };
  // A producer that writes into the bucket needs the bucket before it.
  Operation *where = bucket.members.back().op;
  SmallVector<Operation *> producers;
  for (IssueView &member : bucket.members) {
    bool contiguous = !rows || type.getDimSize(0) == 1;
    bool alike = member.inputType().getElementType() == element;
    Operation *producer = contiguous && alike ? ownProducer(member) : nullptr;
    producers.push_back(producer);
    if (producer && producer->isBeforeInBlock(where))
      where = producer;
  }
  builder.setInsertionPoint(where);
  Value whole = tensor::EmptyOp::create(builder, loc, type.getShape(), element);
  int64_t at = 0;
  for (auto [member, producer] : llvm::zip(bucket.members, producers)) {
    RankedTensorType in = member.inputType();
    bool alike = in.getElementType() == element;
    int64_t extent = partElements(member);
    if (!alike)
      extent *= static_cast<int64_t>(elementBytes(in.getElementType()));
    SmallVector<OpFoldResult> offsets, sizes;
    place(at, extent, offsets, sizes);
    if (producer) {
      auto dst = cast<DestinationStyleOpInterface>(producer);
      builder.setInsertionPoint(producer);
      Value part = tensor::ExtractSliceOp::create(builder, loc, whole, offsets,
                                                  sizes, strides);
      dst.getDpsInitsMutable()[0].set(
          reshapeTo(builder, loc, part, in.getShape()));
      ++inPlace;
    } else {
      copied += tensorBytes(in);
    }
    at += extent;
  }
  builder.setInsertionPoint(bucket.members.back().op);
  at = 0;
  for (IssueView &member : bucket.members) {
    RankedTensorType in = member.inputType();
    bool alike = in.getElementType() == element;
    int64_t extent = partElements(member);
    Value value = member.input();
    if (!alike) {
      value = toBytes(builder, loc,
                      reshapeTo(builder, loc, value, {in.getNumElements()}));
      extent *= static_cast<int64_t>(elementBytes(in.getElementType()));
    }
    SmallVector<int64_t> shape;
    if (rows)
      shape.push_back(type.getDimSize(0));
    shape.push_back(extent);
    value = reshapeTo(builder, loc, value, shape);
    SmallVector<OpFoldResult> offsets, sizes;
    place(at, extent, offsets, sizes);
    whole = tensor::InsertSliceOp::create(builder, loc, value, whole, offsets,
                                          sizes, strides);
    at += extent;
  }
  return whole;
}

SmallVector<Value> Bucketer::unpack(Bucket &bucket, OpBuilder &builder,
                                    Location loc, Type element, Value whole) {
  auto type = cast<RankedTensorType>(whole.getType());
  bool rows = type.getRank() == 2;
  SmallVector<OpFoldResult> strides(type.getRank(), builder.getIndexAttr(1));
  SmallVector<Value> results;
  int64_t at = 0;
  for (IssueView &member : bucket.members) {
    RankedTensorType out = member.type();
    Type wanted = out.getElementType();
    int64_t extent = partElements(member);
    if (wanted != element)
      extent *= static_cast<int64_t>(elementBytes(wanted));
    SmallVector<OpFoldResult> offsets, sizes;
    if (rows) {
      offsets.push_back(builder.getIndexAttr(0));
      sizes.push_back(builder.getIndexAttr(type.getDimSize(0)));
    }
    offsets.push_back(builder.getIndexAttr(at));
    sizes.push_back(builder.getIndexAttr(extent));
    Value part = tensor::ExtractSliceOp::create(builder, loc, whole, offsets,
                                                sizes, strides);
    if (wanted != element) {
      int64_t bytes = extent * (rows ? type.getDimSize(0) : 1);
      part = fromBytes(builder, loc, reshapeTo(builder, loc, part, {bytes}),
                       wanted);
    }
    results.push_back(reshapeTo(builder, loc, part, out.getShape()));
    at += extent;
  }
  return results;
}

//===----------------------------------------------------------------------===//
// What may go together
//===----------------------------------------------------------------------===//

StringRef Bucketer::whyNot(IssueView view) {
  int64_t dim = -1;
  switch (view.kind()) {
  case CollectiveKind::all_reduce:
  case CollectiveKind::broadcast:
  case CollectiveKind::permute:
    break;
  case CollectiveKind::all_gather:
    dim = view.op.getCollectiveConcatDim();
    break;
  case CollectiveKind::reduce_scatter:
    dim = view.op.getCollectiveSplitDim();
    break;
  default:
    return "kind";
  }
  // The blocks of the members would have to be taken apart and put together.
  for (int64_t i = 0; i < dim; ++i)
    if (view.type().getDimSize(i) != 1)
      return "not-outermost";
  Type element = view.inputType().getElementType();
  if (!partElements(view) || !view.domain())
    return "empty";
  if (!element.isSignlessIntOrFloat() && !(foreign && element.isIntOrFloat()))
    return "element-type";
  auto bytes = static_cast<double>(wholeBytes(view));
  if (choices(seconds(view, 0) < kWorthJoining * seconds(view, bytes)))
    return "large";
  return members.whyNotAll(view);
}

Key Bucketer::keyOf(IssueView view) {
  NamedAttrList kept(view.op->getDiscardableAttrDictionary());
  kept.erase("site");
  MLIRContext *context = view.op->getContext();
  Type element = view.inputType().getElementType();
  // A reduction computes in one type; what moves data does not look at it.
  bool bytes = options.mixed && movesOnly(view.kind());
  bool opaque = foreign && isForeign(view.result);
  return {static_cast<int>(view.kind()),
          view.op.getCollectiveDomain().getAsOpaquePointer(),
          static_cast<int>(view.op.getCollectiveReduction()),
          bytes ? nullptr : element.getAsOpaquePointer(),
          view.op.getCollectiveRoot() * 4 + opaque * 2 + bool(view.wait),
          kept.getDictionary(context).getAsOpaquePointer(),
          view.op->getAttr("pairs").getAsOpaquePointer()};
}

/// Buckets whose members `op` depends on.
uint64_t Bucketer::marksOf(Operation &op) {
  uint64_t mask = 0;
  auto add = [&](Value value) {
    if (Operation *source = value.getDefiningOp())
      if (auto found = marks.find(source); found != marks.end())
        mask |= found->second;
  };
  for (Value operand : op.getOperands())
    add(operand);
  if (op.getNumRegions()) {
    llvm::SetVector<Value> captured;
    getUsedValuesDefinedAbove(op.getRegions(), captured);
    for (Value value : captured)
      add(value);
  }
  return mask;
}

void Bucketer::run() {
  fences.run(function);
  SmallVector<Block *> blocks;
  function.walk([&](Block *block) { blocks.push_back(block); });
  for (Block *block : blocks)
    visit(*block);
}

void Bucketer::visit(Block &block) {
  // Bodies of scalars hold nothing that communicates.
  if (llvm::none_of(block, [](Operation &op) {
        return isa<comm::CollectiveOpInterface>(op);
      }))
    return;
  open.clear();
  marks.clear();
  std::map<Key, unsigned> slots;
  auto closeAll = [&](StringRef why) {
    close(~uint64_t(0), why);
    open.clear();
    marks.clear();
    slots.clear();
  };
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      break;
    if (fences.hasFence(&op)) {
      closeAll("fence");
      continue;
    }
    uint64_t mask = open.empty() ? 0 : marksOf(op);
    auto issue = dyn_cast<comm::CollectiveOpInterface>(op);
    if (!issue) {
      // What is not pure cannot move behind the bucket.
      if (mask && !isMemoryEffectFree(&op)) {
        close(mask, "dependence");
        mask = 0;
      }
      if (mask)
        marks[&op] = mask;
      continue;
    }
    if (mask)
      close(mask, "dependence");
    auto view = viewIssue(issue);
    if (!view)
      continue;
    if (StringRef why = whyNot(*view); !why.empty()) {
      refuse(*view, why);
      continue;
    }
    Key key = keyOf(*view);
    uint64_t bytes = wholeBytes(*view);
    uint64_t growth =
        tensorBytes(view->inputType()) + tensorBytes(view->type());
    if (auto found = slots.find(key); found != slots.end()) {
      Bucket &bucket = open[found->second];
      double total = static_cast<double>(bucket.bytes + bytes);
      bool full = choices(
          bucket.members.size() >= options.maxCount ||
          bucket.growth + growth > options.maxGrowth ||
          (options.maxBytes
               ? bucket.bytes + bytes > options.maxBytes
               : seconds(*view, 0) <
                     kLargeEnough *
                         seconds(*view, static_cast<double>(bucket.bytes))) ||
          total > static_cast<double>(INT32_MAX));
      if (full && !bucket.members.empty())
        close(uint64_t(1) << found->second, "full");
      if (bucket.members.empty())
        slots.erase(found);
    }
    auto found = slots.find(key);
    if (found == slots.end()) {
      if (open.size() == kMaxOpen)
        closeAll("many-open");
      found = slots.emplace(key, open.size()).first;
      Bucket fresh;
      fresh.key = key;
      fresh.slot = open.size();
      open.push_back(std::move(fresh));
    }
    Bucket &bucket = open[found->second];
    bucket.members.push_back(*view);
    bucket.bytes += bytes;
    bucket.growth += growth;
    marks[&op] = uint64_t(1) << found->second;
  }
  closeAll("");
  for (Operation *op : dead)
    op->erase();
  dead.clear();
}

void Bucketer::close(uint64_t which, StringRef why) {
  for (Bucket &bucket : open)
    if ((which >> bucket.slot & 1) && !bucket.members.empty()) {
      finish(bucket, why);
      bucket.members.clear();
      bucket.bytes = bucket.growth = 0;
    }
}

void Bucketer::finish(Bucket &bucket, StringRef why) {
  if (bucket.members.size() < 2) {
    refuse(bucket.members.front(), why.empty() ? "alone" : why);
    return;
  }
  if (!make(bucket))
    refuse(bucket.members.front(), "cost",
           " members=" + Twine(bucket.members.size()));
}

/// Seconds of transfer that computation hides while the members are apart, and
/// no longer when they start with the last and are waited for with the first.
double Bucketer::lostOverlap(Bucket &bucket) {
  if (!bucket.members.front().wait)
    return 0;
  llvm::SmallPtrSet<Operation *, 8> starts, waits;
  Operation *begin = bucket.members.front().op, *end = nullptr;
  for (IssueView &member : bucket.members) {
    starts.insert(member.op);
    waits.insert(member.wait);
    if (!end || end->isBeforeInBlock(member.wait))
      end = member.wait;
  }
  // Computation since the first start, up to each start and wait.
  llvm::DenseMap<Operation *, double> before;
  double passed = 0, firstWait = -1, lastStart = 0;
  for (Operation *op = begin;; op = op->getNextNode()) {
    if (starts.contains(op))
      lastStart = before[op] = passed;
    else if (waits.contains(op)) {
      before[op] = passed;
      firstWait = firstWait < 0 ? passed : firstWait;
    } else
      passed += cost.computeSeconds(op);
    if (op == end)
      break;
  }
  double lost = 0;
  for (IssueView &member : bucket.members)
    lost += std::min(seconds(member, static_cast<double>(wholeBytes(member))),
                     lastStart - before[member.op] + before[member.wait] -
                         firstWait);
  return lost;
}

bool Bucketer::make(Bucket &bucket) {
  IssueView first = bucket.members.front(), last = bucket.members.back();
  CollectiveKind kind = first.kind();
  Type element = first.inputType().getElementType();
  int64_t total = 0;
  for (IssueView &member : bucket.members)
    if (member.inputType().getElementType() != element)
      element = IntegerType::get(first.op->getContext(), 8);
  bool bytes = element != first.inputType().getElementType() ||
               llvm::any_of(bucket.members, [&](IssueView &member) {
                 return member.inputType().getElementType() != element;
               });
  uint64_t apart = 0;
  double before = 0;
  for (IssueView &member : bucket.members) {
    before += seconds(member, static_cast<double>(wholeBytes(member)));
    Type own = member.inputType().getElementType();
    total += partElements(member) *
             (own == element ? 1 : static_cast<int64_t>(elementBytes(own)));
    apart += tensorBytes(member.type());
    if (bytes || !ownProducer(member) || kind == CollectiveKind::reduce_scatter)
      apart += tensorBytes(member.inputType());
  }
  double after = seconds(last, static_cast<double>(bucket.bytes)) +
                 cost.copySeconds(static_cast<double>(apart)) +
                 lostOverlap(bucket);
  if (choices(after >= before))
    return false;

  auto size = first.domain().getUniformGroupSize();
  int64_t blocks = size.value_or(1);
  SmallVector<int64_t> inShape = {total}, outShape = {total};
  if (kind == CollectiveKind::all_gather) {
    inShape = {1, total};
    outShape = {blocks, total};
  } else if (kind == CollectiveKind::reduce_scatter) {
    inShape = {blocks, total};
    outShape = {1, total};
  }
  auto inType = RankedTensorType::get(inShape, element);
  auto outType = RankedTensorType::get(outShape, element);
  SmallVector<Location> locs;
  for (IssueView &member : bucket.members)
    locs.push_back(member.op->getLoc());
  Location loc = FusedLoc::get(first.op->getContext(), locs);

  OpBuilder builder(last.op);
  uint64_t copied = 0;
  unsigned inPlace = 0;
  bool opaque = foreign && isForeign(first.result);
  Value whole;
  auto opaqueCompute = [&](StringRef name, ValueRange operands,
                           TypeRange results, uint64_t moved) {
    return comm::ComputeOp::create(
        builder, loc, results, builder.getStringAttr(name), operands, nullptr,
        builder.getI64IntegerAttr(static_cast<int64_t>(moved)),
        builder.getI64IntegerAttr(static_cast<int64_t>(moved)), nullptr,
        nullptr, nullptr, nullptr);
  };
  if (opaque) {
    SmallVector<Value> inputs;
    for (IssueView &member : bucket.members)
      inputs.push_back(member.input());
    copied += tensorBytes(inType);
    whole = opaqueCompute("bucket_pack", inputs, inType, tensorBytes(inType))
                .getResult(0);
  } else {
    whole = pack(bucket, builder, loc, element, inType, copied, inPlace);
    builder.setInsertionPoint(last.op);
  }
  Value init = tensor::EmptyOp::create(builder, loc, outShape, element);
  Operation *made = last.op->clone();
  builder.insert(made);
  made->setLoc(loc);
  made->removeDiscardableAttr("site");
  made->setOperand(0, whole);
  made->setOperand(1, init);
  if (!first.wait)
    made->getResult(0).setType(outType);
  if (kind == CollectiveKind::all_gather ||
      kind == CollectiveKind::reduce_scatter)
    made->setAttr("dim", builder.getI64IntegerAttr(0));
  Value reduced = made->getResult(0);
  if (first.wait) {
    comm::WaitOp wait = first.wait;
    for (IssueView &member : bucket.members)
      if (member.wait->isBeforeInBlock(wait))
        wait = member.wait;
    builder.setInsertionPoint(wait);
    reduced = comm::WaitOp::create(builder, loc, TypeRange(outType),
                                   made->getResult(0), whole, init)
                  .getResult();
  }
  SmallVector<Value> results;
  if (opaque) {
    SmallVector<Type> types;
    for (IssueView &member : bucket.members)
      types.push_back(member.type());
    auto parts =
        opaqueCompute("bucket_unpack", reduced, types, tensorBytes(outType));
    results.assign(parts.getResults().begin(), parts.getResults().end());
  } else {
    results = unpack(bucket, builder, loc, element, reduced);
  }
  copied += tensorBytes(outType);

  // What used an earlier member's result, and stands before the bucket.
  uint64_t bit = uint64_t(1) << bucket.slot;
  SmallVector<Operation *> late;
  for (Operation *op = first.op; op != last.op.getOperation();
       op = op->getNextNode())
    if (auto found = marks.find(op); found != marks.end() &&
                                     (found->second & bit) &&
                                     !isa<comm::CollectiveOpInterface>(op))
      late.push_back(op);
  Operation *behind = last.op;
  for (Operation *op : late) {
    op->moveAfter(behind);
    behind = op;
  }
  explain(function, first.op->getLoc(), "comm-bucket",
          ("bucket-" + stringifyCollectiveKind(kind)).str(), "latency",
          "domain=@" + first.op.getCollectiveDomain().getValue() + " members=" +
              Twine(bucket.members.size()) + " bytes=" + Twine(bucket.bytes) +
              " growth_bytes=" + Twine(bucket.growth) +
              " in_place=" + Twine(inPlace) + " copied_bytes=" + Twine(copied) +
              (bytes ? " as=bytes" : "") + " saved_ns=" +
              Twine(static_cast<int64_t>((before - after) * 1e9)));
  for (auto [member, result] : llvm::zip(bucket.members, results)) {
    member.result.replaceAllUsesWith(result);
    marks.erase(member.op);
    if (member.wait)
      dead.push_back(member.wait);
    dead.push_back(member.op);
  }
  ++buckets;
  joined += static_cast<int64_t>(bucket.members.size());
  return true;
}

namespace {

struct BucketPass : public concord::impl::CommBucketBase<BucketPass> {
  using CommBucketBase::CommBucketBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (maxBytes < 0 || maxCount < 0 || maxGrowth < 0) {
      module.emitError("comm-bucket: limits are not negative");
      return signalPassFailure();
    }
    FailureOr<CommCost> cost = CommCost::create(module, machine);
    if (failed(cost))
      return signalPassFailure();
    Options options;
    options.maxBytes = maxBytes;
    options.maxGrowth = maxGrowth;
    options.maxCount = maxCount;
    options.mixed = mixed;
    Choices choices(module, "comm-bucket");
    int64_t made = 0;
    for (func::FuncOp entry : entryFunctions(module)) {
      if (entry.isExternal())
        continue;
      Bucketer bucketer(module, entry, options, *cost, choices);
      bucketer.run();
      numBuckets += bucketer.buckets;
      numMembers += bucketer.joined;
      made += bucketer.buckets;
    }
    if (failed(choices.finish()))
      return signalPassFailure();
    if (!made)
      markAllAnalysesPreserved();
    if (made && module->hasAttr("comm.hlo_source"))
      module->setAttr("comm.hlo_rewritten", UnitAttr::get(&getContext()));
  }
};

} // namespace
