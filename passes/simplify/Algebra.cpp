//===- Algebra.cpp - One collective for another ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/Explain.h"
#include "common/PlanBuilder.h"
#include "simplify/Simplifier.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace concord;

using comm::CollectiveKind;
using comm::ReductionKind;

/// Elements of a constant that a gather may be folded to.
static constexpr int64_t kMaxFolded = 1 << 16;

/// Whether combining in another order, or once more or less, keeps all bits.
static bool isExact(ReductionKind reduction, Type element) {
  return !isa<FloatType>(element) || reduction == ReductionKind::max ||
         reduction == ReductionKind::min;
}

//===----------------------------------------------------------------------===//
// What is equal on all members already
//===----------------------------------------------------------------------===//

bool Simplifier::reduceEqual(Issue issue) {
  if (issue.kind() != CollectiveKind::all_reduce ||
      !equality.isEqual(issue.input(), issue.domain()))
    return false;
  StringRef action = "keep-all_reduce";
  ReductionKind reduction = issue.op.getCollectiveReduction();
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, action, why);
  auto size = issue.domain().getUniformGroupSize();
  OpBuilder builder(issue.op);
  Value value = issue.input();
  switch (reduction) {
  case ReductionKind::max:
  case ReductionKind::min:
  case ReductionKind::and_:
  case ReductionKind::or_:
    done(issue, "remove-all_reduce", "equal-on-members");
    break;
  case ReductionKind::avg:
    if (!isFloat(issue))
      return refuse(issue, action, "integer-average");
    if (options.exact)
      return refuse(issue, action, "exact");
    done(issue, "remove-all_reduce", "equal-on-members", "rounding=differs");
    break;
  case ReductionKind::sum: {
    if (!size)
      return refuse(issue, action, "groups-differ-in-size");
    // x + x is 2 x; three and more terms are rounded on the way.
    bool same = !isFloat(issue) || *size <= 2;
    if (options.exact && !same)
      return refuse(issue, action, "exact");
    bool opaque = foreign && isForeign(issue.result);
    value = multiply(builder, issue.op->getLoc(), value, *size, opaque);
    if (!value)
      return refuse(issue, action, "factor-not-representable",
                    "factor=" + Twine(*size));
    done(issue, "multiply-all_reduce", "equal-on-members",
         same ? "rounding=same" : "rounding=differs");
    break;
  }
  default:
    return refuse(issue, action, "product");
  }
  replace(issue.result, value);
  erase(issue);
  return true;
}

/// Data that is moved to where it is already.
bool Simplifier::moveEqual(Issue issue) {
  if (issue.kind() == CollectiveKind::permute) {
    size_t targets = issue.op.getCollectivePairs().size();
    for (ArrayRef<int64_t> group : issue.domain().getGroupRanks())
      if (targets != group.size())
        return false; // some members get zeros
  } else if (issue.kind() != CollectiveKind::broadcast) {
    return false;
  }
  if (!equality.isEqual(issue.input(), issue.domain()))
    return false;
  std::string name = stringifyCollectiveKind(issue.kind()).str();
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, "keep-" + name, why);
  done(issue, "remove-" + name, "equal-on-members");
  replace(issue.result, issue.input());
  erase(issue);
  return true;
}

/// A constant of a foreign graph: its instruction, or a scalar one in all
/// places.
static comm::ComputeOp foreignConstant(Value value) {
  auto compute = value.getDefiningOp<comm::ComputeOp>();
  if (!compute || compute.getNumResults() != 1)
    return {};
  if (compute.getName() == "constant" && compute.getOperands().empty())
    return compute;
  if (compute.getName() != "broadcast" || compute.getOperands().size() != 1)
    return {};
  auto scalar = compute.getOperands()[0].getDefiningOp<comm::ComputeOp>();
  auto type = dyn_cast<RankedTensorType>(compute.getOperands()[0].getType());
  return scalar && scalar.getName() == "constant" &&
                 scalar.getOperands().empty() && type && type.getRank() == 0
             ? compute
             : comm::ComputeOp();
}

/// What an all_gather along `dim` makes of the same elements on all members.
static DenseElementsAttr gatherElements(DenseElementsAttr elements,
                                        RankedTensorType type, int64_t dim) {
  if (elements.isSplat())
    return elements.resizeSplat(type);
  auto values = llvm::to_vector(elements.getValues<Attribute>());
  int64_t outer = 1;
  for (int64_t i = 0; i < dim; ++i)
    outer *= type.getDimSize(i);
  int64_t part = static_cast<int64_t>(values.size()) / outer;
  int64_t members = type.getDimSize(dim) / elements.getType().getDimSize(dim);
  SmallVector<Attribute> all;
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t m = 0; m < members; ++m)
      all.append(values.begin() + i * part, values.begin() + (i + 1) * part);
  return DenseElementsAttr::get(type, all);
}

/// The same on all members, and known: gathered here and now.
bool Simplifier::foldConstant(Issue issue) {
  RankedTensorType type = issue.type();
  if (issue.kind() != CollectiveKind::all_gather || !type.getNumElements())
    return false;
  OpBuilder builder(issue.op);
  Location loc = issue.op->getLoc();
  Value folded;
  DenseElementsAttr elements;
  if (matchPattern(issue.input(), m_Constant(&elements))) {
    if (!elements.isSplat() && type.getNumElements() > kMaxFolded)
      return refuse(issue, "keep-all_gather", "large-constant");
    if (StringRef why = whyNotAll(issue); !why.empty())
      return refuse(issue, "keep-all_gather", why);
    folded = arith::ConstantOp::create(
        builder, loc,
        gatherElements(elements, type, issue.op.getCollectiveConcatDim()));
  } else if (auto fill = issue.input().getDefiningOp<linalg::FillOp>()) {
    Value scalar = fill.getInputs().front();
    if (!matchPattern(scalar, m_Constant()))
      return false;
    if (StringRef why = whyNotAll(issue); !why.empty())
      return refuse(issue, "keep-all_gather", why);
    Value init = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                         type.getElementType());
    folded = linalg::FillOp::create(builder, loc, scalar, init).getResult(0);
  } else if (comm::ComputeOp constant = foreignConstant(issue.input())) {
    bool splat = !constant.getOperands().empty();
    if (!splat && type.getNumElements() > kMaxFolded)
      return refuse(issue, "keep-all_gather", "large-constant");
    if (StringRef why = whyNotAll(issue); !why.empty())
      return refuse(issue, "keep-all_gather", why);
    // What the instruction's elements are is known for tables of integers only;
    // others are repeated as they are.
    auto known = constant->getAttrOfType<DenseElementsAttr>("value");
    int64_t dim = issue.op.getCollectiveConcatDim();
    int64_t members = type.getDimSize(dim) / issue.inputType().getDimSize(dim);
    bool repeat = !splat && !known;
    SmallVector<Value> operands(constant.getOperands());
    if (repeat)
      operands.assign(static_cast<size_t>(members), issue.input());
    auto bytes = [&](uint64_t count) {
      return count ? builder.getI64IntegerAttr(static_cast<int64_t>(count))
                   : IntegerAttr();
    };
    auto made = comm::ComputeOp::create(
        builder, loc, TypeRange(type),
        repeat ? builder.getStringAttr("concatenate") : constant.getNameAttr(),
        operands, nullptr, bytes(repeat ? tensorBytes(type) : 0),
        bytes(repeat || splat ? tensorBytes(type) : 0), nullptr, nullptr,
        nullptr, nullptr);
    if (repeat)
      made->setAttr("dim", builder.getI64IntegerAttr(dim));
    if (known)
      made->setAttr("value", gatherElements(known, type, dim));
    folded = made.getResult(0);
  } else {
    return false;
  }
  done(issue, "fold-all_gather", "constant");
  replace(issue.result, folded);
  erase(issue);
  return true;
}

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

/// The leaves of `value` under reshapes: operations that are none.
static void leavesOf(Value value, SmallVectorImpl<Operation *> &leaves,
                     unsigned depth = 0) {
  for (Operation *user : value.getUsers()) {
    if (depth < 8 && isReshape(user) && !user->use_empty())
      leavesOf(user->getResult(0), leaves, depth + 1);
    else
      leaves.push_back(user);
  }
}

bool Simplifier::reduceThenSlice(Issue issue) {
  if (issue.kind() != CollectiveKind::all_reduce)
    return false;
  SmallVector<Operation *> leaves;
  leavesOf(issue.result, leaves);
  SmallVector<SliceView> slices;
  int64_t dim = -1;
  bool alike = true, sliced = false;
  for (Operation *leaf : leaves) {
    auto slice = matchSlice(leaf);
    if (slice && slice->sizes ==
                     cast<RankedTensorType>(slice->source.getType()).getShape())
      slice.reset();
    sliced |= slice.has_value();
    int64_t own = slice ? ownShardDim(*slice, issue.domain(), rankValues) : -1;
    if (own < 0 ||
        (!slices.empty() && (own != dim || slices.front().source.getType() !=
                                               slice->source.getType()))) {
      alike = false;
      continue;
    }
    dim = own;
    slices.push_back(*slice);
  }
  if (!sliced)
    return false;
  if (slices.empty())
    return refuse(issue, "keep-all_reduce", "not-own-shard");
  if (!alike)
    return refuse(issue, "keep-all_reduce", "used-whole");
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, "keep-all_reduce", why);
  done(issue, "make-reduce_scatter", "own-shard", "dim=" + Twine(dim));
  OpBuilder builder(issue.op);
  auto seen = cast<RankedTensorType>(slices.front().source.getType());
  Value input =
      reshapeTo(builder, issue.op->getLoc(), issue.input(), seen.getShape());
  IssueForm form;
  form.kind = CollectiveKind::reduce_scatter;
  form.domain = issue.op.getCollectiveDomain();
  form.reduction = issue.op.getCollectiveReduction();
  form.dim = dim;
  Issue scattered =
      made(buildIssue(issue, form, input,
                      cast<RankedTensorType>(slices.front().result.getType())),
           issue);
  for (SliceView &slice : slices) {
    replace(slice.result, scattered.result);
    erase(slice.op);
  }
  // The reshapes between went with the slices.
  erase(issue);
  return true;
}

bool Simplifier::gatherThenSlice(Issue issue) {
  if (issue.kind() != CollectiveKind::all_gather)
    return false;
  int64_t dim = issue.op.getCollectiveConcatDim();
  bool changed = false;
  for (Operation *user : llvm::make_early_inc_range(issue.result.getUsers())) {
    auto slice = matchSlice(user);
    if (!slice || slice->source != issue.result ||
        ownShardDim(*slice, issue.domain(), rankValues) != dim)
      continue;
    done(issue, "drop-slice", "own-shard", "dim=" + Twine(dim));
    replace(slice->result, issue.input());
    erase(slice->op);
    changed = true;
  }
  if (changed) // what is left of the collective is looked at anew
    return true;
  if (!issue.result.hasOneUse())
    return false;
  auto slice = matchSlice(*issue.result.user_begin());
  if (!slice || slice->source != issue.result)
    return false;
  RankedTensorType in = issue.inputType(), out = issue.type();
  auto size = issue.domain().getUniformGroupSize();
  if (!size || *size < 2)
    return false;
  // One member's block is all that anyone takes.
  if (auto block = fixedBlock(*slice, *size, rankValues);
      block && block->first == dim) {
    auto wanted = static_cast<double>(tensorBytes(in));
    if (choices(seconds(CollectiveKind::broadcast, wanted, issue) >=
                seconds(CollectiveKind::all_gather,
                        static_cast<double>(tensorBytes(out)), issue)))
      return refuse(issue, "keep-all_gather", "cost");
    if (StringRef why = whyNotAll(issue); !why.empty())
      return refuse(issue, "keep-all_gather", why);
    done(issue, "make-broadcast", "one-block", "root=" + Twine(block->second));
    IssueForm form;
    form.kind = CollectiveKind::broadcast;
    form.domain = issue.op.getCollectiveDomain();
    form.root = block->second;
    Issue sent = made(buildIssue(issue, form, issue.input(), in), issue);
    replace(slice->result, sent.result);
    erase(slice->op);
    erase(issue);
    return true;
  }
  // A part along other dimensions can be taken before.
  auto extract = dyn_cast<tensor::ExtractSliceOp>(slice->op);
  if (!extract || slice->sizes[dim] != out.getDimSize(dim) ||
      slice->sizes == out.getShape() ||
      ShapedType::isDynamicShape(extract.getStaticOffsets()))
    return false;
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, "keep-all_gather", why);
  done(issue, "narrow-all_gather", "part-taken",
       "saved_bytes=" +
           Twine(tensorBytes(out) - tensorBytes(slice->result.getType())));
  OpBuilder builder(issue.op);
  SmallVector<OpFoldResult> sizes;
  for (auto [i, extent] : llvm::enumerate(slice->sizes))
    sizes.push_back(builder.getIndexAttr(
        static_cast<int64_t>(i) == dim ? in.getDimSize(dim) : extent));
  SmallVector<OpFoldResult> strides(sizes.size(), builder.getIndexAttr(1));
  Value part = tensor::ExtractSliceOp::create(
      builder, extract.getLoc(), issue.input(), slice->offsets, sizes, strides);
  Issue gathered = made(
      cloneIssue(issue, part, cast<RankedTensorType>(slice->result.getType())),
      issue);
  replace(slice->result, gathered.result);
  erase(slice->op);
  erase(issue);
  return true;
}

bool Simplifier::gatherOwnSlice(Issue issue) {
  Operation *source = issue.input().getDefiningOp();
  if (issue.kind() != CollectiveKind::all_gather || !source)
    return false;
  auto slice = matchSlice(source);
  if (!slice || slice->source.getType() != issue.type() ||
      ownShardDim(*slice, issue.domain(), rankValues) !=
          issue.op.getCollectiveConcatDim())
    return false;
  // Member r's block of its own value: the value itself only where all have it.
  if (!equality.isEqual(slice->source, issue.domain()))
    return refuse(issue, "keep-all_gather", "differs-between-members");
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, "keep-all_gather", why);
  done(issue, "remove-all_gather", "own-shard-of-equal");
  replace(issue.result, slice->source);
  erase(issue);
  return true;
}

//===----------------------------------------------------------------------===//
// all_gather of reduce_scatter, and all_reduce
//===----------------------------------------------------------------------===//

bool Simplifier::gatherScattered(Issue issue) {
  if (issue.kind() != CollectiveKind::all_gather)
    return false;
  auto inner = viewIssueOf(issue.input());
  if (!inner || inner->kind() != CollectiveKind::reduce_scatter ||
      inner->op.getCollectiveDomain() != issue.op.getCollectiveDomain() ||
      inner->op.getCollectiveSplitDim() != issue.op.getCollectiveConcatDim())
    return false;
  StringRef action = "keep-reduce_scatter";
  // The wait of a start reads its input once more.
  if (llvm::any_of(inner->result.getUsers(), [&](Operation *user) {
        return user != issue.op.getOperation() && user != issue.last();
      }))
    return refuse(*inner, action, "part-used");
  auto bytes = static_cast<double>(wholeBytes(issue));
  if (choices(seconds(CollectiveKind::all_reduce, bytes, issue) >
              seconds(CollectiveKind::reduce_scatter, bytes, issue) +
                  seconds(CollectiveKind::all_gather, bytes, issue)))
    return refuse(*inner, action, "cost");
  if (!fences.areNear(inner->op, issue.op))
    return refuse(*inner, action, "fence");
  for (Issue one : {*inner, issue})
    if (StringRef why = whyNotAll(one); !why.empty())
      return refuse(one, action, why);
  done(issue, "make-all_reduce", "scatter-and-gather");
  IssueForm form;
  form.kind = CollectiveKind::all_reduce;
  form.domain = issue.op.getCollectiveDomain();
  form.reduction = inner->op.getCollectiveReduction();
  Issue reduced =
      made(buildIssue(issue, form, inner->input(), issue.type()), issue);
  replace(issue.result, reduced.result);
  erase(issue);
  erase(*inner);
  return true;
}

/// The other direction, where it pays: what everybody narrows after the
/// reduction is narrowed while it is scattered, so that the gather moves less.
bool Simplifier::narrowReduction(Issue issue) {
  if (issue.kind() != CollectiveKind::all_reduce || !issue.result.hasOneUse())
    return false;
  Operation *convert = *issue.result.user_begin();
  if (matchConvert(convert) != issue.result)
    return false;
  Value narrow = convert->getResult(0);
  auto bytes = static_cast<double>(tensorBytes(issue.type()));
  auto less = static_cast<double>(tensorBytes(narrow.getType()));
  auto size = issue.domain().getUniformGroupSize();
  if (less >= bytes || !size || *size < 2)
    return false;
  StringRef action = "keep-all_reduce";
  // What divides at some sizes may not at others.
  if (choices.bounded())
    return refuse(issue, action, "bounded-sizes");
  double before = seconds(CollectiveKind::all_reduce, bytes, issue);
  double after = seconds(CollectiveKind::reduce_scatter, bytes, issue) +
                 seconds(CollectiveKind::all_gather, less, issue);
  if (after >= before)
    return refuse(issue, action, "cost");
  if (issue.wait)
    return refuse(issue, action, "started");
  RankedTensorType type = issue.type();
  // Whole along the first dimension that divides, else as one row.
  SmallVector<int64_t> shape(type.getShape());
  int64_t dim = 0;
  while (dim < type.getRank() && shape[dim] % *size)
    ++dim;
  if (dim == type.getRank()) {
    shape = {type.getNumElements()};
    dim = 0;
  }
  if (shape[dim] % *size || !shape[dim])
    return refuse(issue, action, "does-not-divide");
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, action, why);
  done(issue, "split-all_reduce", "narrowed-after",
       "saved_ns=" + Twine(static_cast<int64_t>((before - after) * 1e9)));
  OpBuilder builder(issue.op);
  Location loc = issue.op->getLoc();
  Value input = reshapeTo(builder, loc, issue.input(), shape);
  SmallVector<int64_t> part(shape);
  part[dim] /= *size;
  IssueForm form;
  form.kind = CollectiveKind::reduce_scatter;
  form.domain = issue.op.getCollectiveDomain();
  form.reduction = issue.op.getCollectiveReduction();
  form.dim = dim;
  Issue scattered =
      made(buildIssue(issue, form, input,
                      RankedTensorType::get(part, type.getElementType())),
           issue);
  Value own = cloneElementwise(builder, convert, scattered.result, part);
  form.kind = CollectiveKind::all_gather;
  form.reduction = ReductionKind::none;
  auto narrowType = cast<RankedTensorType>(narrow.getType());
  Issue gathered = made(
      buildIssue(issue, form, own,
                 RankedTensorType::get(shape, narrowType.getElementType())),
      issue);
  builder.setInsertionPoint(issue.op);
  Value whole = reshapeTo(builder, loc, gathered.result, narrowType.getShape());
  replace(narrow, whole);
  erase(convert);
  erase(issue);
  return true;
}

//===----------------------------------------------------------------------===//
// Sums of reductions
//===----------------------------------------------------------------------===//

static bool distributes(ReductionKind reduction, Elementwise kind) {
  switch (reduction) {
  case ReductionKind::sum:
  case ReductionKind::avg:
    return kind == Elementwise::Add || kind == Elementwise::Sub;
  case ReductionKind::prod:
    return kind == Elementwise::Mul;
  case ReductionKind::max:
    return kind == Elementwise::Max;
  case ReductionKind::min:
    return kind == Elementwise::Min;
  case ReductionKind::and_:
    return kind == Elementwise::And;
  case ReductionKind::or_:
    return kind == Elementwise::Or;
  default:
    return false;
  }
}

bool Simplifier::addTwo(Issue issue) {
  if ((issue.kind() != CollectiveKind::all_reduce &&
       issue.kind() != CollectiveKind::reduce_scatter) ||
      issue.result.use_empty())
    return false;
  Operation *user = *issue.result.user_begin();
  Value left, right;
  Elementwise kind = matchBinary(user, left, right);
  if (!distributes(issue.op.getCollectiveReduction(), kind) || left == right ||
      (left != issue.result && right != issue.result))
    return false;
  auto other = viewIssueOf(left == issue.result ? right : left);
  // The later one of the two does the work.
  if (!other || other->kind() != issue.kind() ||
      other->op->getBlock() != issue.op->getBlock() ||
      fences.position(other->op) >= fences.position(issue.op))
    return false;
  StringRef action = "keep-add";
  if (other->op.getCollectiveDomain() != issue.op.getCollectiveDomain() ||
      other->op.getCollectiveReduction() != issue.op.getCollectiveReduction() ||
      other->op.getCollectiveSplitDim() != issue.op.getCollectiveSplitDim())
    return refuse(issue, action, "other-form");
  if (!issue.result.hasOneUse() || !other->result.hasOneUse())
    return refuse(issue, action, "used-apart");
  ReductionKind reduction = issue.op.getCollectiveReduction();
  if (reduction == ReductionKind::avg && !isFloat(issue))
    return refuse(issue, action, "integer-average");
  bool same = isExact(reduction, issue.inputType().getElementType());
  if (options.exact && !same)
    return refuse(issue, action, "exact");
  if (!fences.areNear(other->op, issue.op))
    return refuse(issue, action, "fence");
  for (Issue one : {*other, issue})
    if (StringRef why = whyNotAll(one); !why.empty())
      return refuse(one, action, why);
  done(issue, ("merge-" + stringifyCollectiveKind(issue.kind())).str(),
       "add-of-two", same ? "rounding=same" : "rounding=differs");
  OpBuilder builder(issue.op);
  Value a = left == issue.result ? issue.input() : other->input();
  Value b = left == issue.result ? other->input() : issue.input();
  // The inputs keep their places: the body of a generic names them by those.
  SmallVector<Value> operands = {a, b};
  Value sum =
      cloneElementwise(builder, user, operands, issue.inputType().getShape());
  Issue merged = made(cloneIssue(issue, sum, issue.type()), issue);
  replace(user->getResult(0), merged.result);
  erase(user);
  Issue earlier = *other;
  erase(issue);
  erase(earlier);
  return true;
}

//===----------------------------------------------------------------------===//
// Conversions
//===----------------------------------------------------------------------===//

/// Moves data and never computes with it.
static bool movesOnly(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::all_gather:
  case CollectiveKind::all_to_all:
  case CollectiveKind::broadcast:
  case CollectiveKind::scatter:
  case CollectiveKind::permute: // zeros, where none arrive, stay zeros
    return true;
  default:
    return false;
  }
}

static RankedTensorType withElement(RankedTensorType type, Type element) {
  return RankedTensorType::get(type.getShape(), element);
}

bool Simplifier::narrowMoved(Issue issue) {
  if (!movesOnly(issue.kind()) || issue.result.use_empty())
    return false;
  Type element;
  SmallVector<Operation *> converts;
  bool alike = true;
  for (Operation *user : issue.result.getUsers()) {
    bool isConvert = matchConvert(user) == issue.result;
    Type to =
        isConvert ? getElementTypeOrSelf(user->getResult(0).getType()) : Type();
    if (!isConvert || (element && to != element)) {
      alike = false;
      continue;
    }
    element = to;
    converts.push_back(user);
  }
  if (converts.empty() ||
      elementBytes(element) >= elementBytes(issue.type().getElementType()))
    return false;
  std::string action = ("keep-" + stringifyCollectiveKind(issue.kind())).str();
  if (!alike)
    return refuse(issue, action, "used-wide");
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, action, why);
  done(issue, ("narrow-" + stringifyCollectiveKind(issue.kind())).str(),
       "converted-after",
       "saved_bytes=" + Twine(tensorBytes(issue.type()) -
                              tensorBytes(withElement(issue.type(), element))));
  OpBuilder builder(issue.op);
  Value narrow = cloneElementwise(builder, converts.front(), issue.input(),
                                  issue.inputType().getShape());
  Issue moved = made(
      cloneIssue(issue, narrow, withElement(issue.type(), element)), issue);
  for (Operation *convert : converts) {
    replace(convert->getResult(0), moved.result);
    erase(convert);
  }
  erase(issue);
  return true;
}

bool Simplifier::widenAfterMove(Issue issue) {
  Operation *convert = issue.input().getDefiningOp();
  if (!movesOnly(issue.kind()) || !convert)
    return false;
  Value narrow = matchConvert(convert);
  if (!narrow)
    return false;
  Type element = getElementTypeOrSelf(narrow.getType());
  if (elementBytes(element) >= elementBytes(issue.type().getElementType()))
    return false;
  std::string name = stringifyCollectiveKind(issue.kind()).str();
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, "keep-" + name, why);
  done(issue, "narrow-" + name, "converted-before",
       "saved_bytes=" + Twine(tensorBytes(issue.type()) -
                              tensorBytes(withElement(issue.type(), element))));
  Issue moved = made(
      cloneIssue(issue, narrow, withElement(issue.type(), element)), issue);
  OpBuilder builder(issue.op->getContext());
  builder.setInsertionPointAfter(moved.last());
  Value wide =
      cloneElementwise(builder, convert, moved.result, issue.type().getShape());
  replace(issue.result, wide);
  erase(issue);
  return true;
}
