//===- Update.cpp - A sharded update between two collectives --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A match starts at the reduce_scatter of a gradient. Elementwise operations of
// the same shape that depend on its result are taken in, as far as they stand
// in the same block and what else they read exists where the parameters are
// gathered; their bodies become the program of a `fused_update` kernel.
//
//===----------------------------------------------------------------------===//

#include "fuse/Update.h"
#include "common/CostBridge.h"
#include "common/Explain.h"
#include "common/Fences.h"
#include "common/NodeBridge.h"
#include "concord/cost/Cost.h"
#include "concord/kernel.h"
#include "lowering/Describe.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace concord;
using namespace concord::fuse;

namespace {

std::string numberOf(size_t value) { return std::to_string(value); }

/// The body of elementwise operations as a straight program (docs/kernels.md).
class Program {
public:
  /// Values 0 and 1 to `inputs`.
  explicit Program(Value gradient, ArrayRef<Value> inputs) {
    values[gradient] = next++;
    for (Value input : inputs)
      values[input] = next++;
  }

  /// Adds an operation; false when one in its body has no counterpart.
  bool add(linalg::LinalgOp op) {
    Block &body = op->getRegion(0).front();
    for (OpOperand *operand : op.getDpsInputOperands())
      values[op.getMatchingBlockArgument(operand)] = values.at(operand->get());
    for (Operation &inner : body.without_terminator())
      if (!instruction(inner))
        return false;
    for (auto [value, result] :
         llvm::zip(body.getTerminator()->getOperands(), op->getResults())) {
      size_t number = 0;
      if (!find(value, number))
        return false;
      values[result] = number;
    }
    return true;
  }

  size_t operator[](Value value) const { return values.at(value); }
  const std::string &text() const { return code; }
  /// Without constants, which are there once.
  size_t instructions() const { return arithmetic; }
  /// Generated code makes one operation of a product and a sum, with one
  /// rounding; the kernel rounds both.
  bool roundsOtherwise() const { return contractible; }
  /// The first operation without a counterpart.
  StringRef unknown() const { return stranger; }

private:
  static bool isNarrow(Type type) { return type.isF16() || type.isBF16(); }

  size_t emit(const std::string &line) {
    code += (code.empty() ? "" : ";") + line;
    return next++;
  }

  /// The number of a value; constants get theirs when first met.
  bool find(Value value, size_t &number) {
    if (auto at = values.find(value); at != values.end()) {
      number = at->second;
      return true;
    }
    FloatAttr constant;
    if (!matchPattern(value, m_Constant(&constant)))
      return strange(value.getDefiningOp());
    APFloat single = constant.getValue();
    bool lost = false;
    single.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven, &lost);
    if (lost)
      return strange(value.getDefiningOp());
    number = emit("const " + llvm::utohexstr(
                                 single.bitcastToAPInt().getZExtValue(), true));
    values[value] = number;
    return true;
  }

  bool strange(Operation *op) {
    if (stranger.empty())
      stranger = op ? op->getName().getStringRef().str() : "an outer value";
    return false;
  }

  bool instruction(Operation &op) {
    if (isa<arith::ConstantOp>(op))
      return true;
    const char *name = llvm::TypeSwitch<Operation *, const char *>(&op)
                           .Case([](arith::AddFOp) { return "add"; })
                           .Case([](arith::SubFOp) { return "sub"; })
                           .Case([](arith::MulFOp) { return "mul"; })
                           .Case([](arith::DivFOp) { return "div"; })
                           .Case([](arith::NegFOp) { return "neg"; })
                           .Case([](math::AbsFOp) { return "abs"; })
                           .Case([](math::SqrtOp) { return "sqrt"; })
                           .Case([](arith::MaximumFOp) { return "max"; })
                           .Case([](arith::MinimumFOp) { return "min"; })
                           .Case([](arith::ExtFOp) { return "extend"; })
                           .Case([](arith::TruncFOp) { return "round"; })
                           .Default([](Operation *) { return nullptr; });
    if (!name || op.getNumResults() != 1)
      return strange(&op);
    Type type = op.getResult(0).getType();
    if (!type.isF32() && !isNarrow(type))
      return strange(&op);
    std::string line = name;
    size_t last = 0;
    for (Value operand : op.getOperands()) {
      if (!find(operand, last))
        return false;
      line += " " + numberOf(last);
      contractible |=
          isa<arith::AddFOp, arith::SubFOp>(op) && products.contains(operand);
    }
    // What is held in strips is f32: wider already, and rounded by hand.
    if (isa<arith::ExtFOp>(op)) {
      values[op.getResult(0)] = last;
      return true;
    }
    if (isa<arith::TruncFOp>(op)) {
      if (!op.getOperand(0).getType().isF32())
        return strange(&op);
    } else {
      last = emit(line);
    }
    ++arithmetic;
    if (isNarrow(type))
      last = emit(std::string("round ") + (type.isF16() ? "f16 " : "bf16 ") +
                  numberOf(last));
    values[op.getResult(0)] = last;
    if (isa<arith::MulFOp>(op))
      products.insert(op.getResult(0));
    return true;
  }

  DenseMap<Value, size_t> values;
  size_t next = 0, arithmetic = 0;
  std::string code, stranger;
  DenseSet<Value> products;
  bool contractible = false;
};

/// Every operand is a tensor of the result's shape, or has one element.
bool isElementwise(linalg::LinalgOp op, ArrayRef<int64_t> shape) {
  if (!op.hasPureTensorSemantics() ||
      op.getNumParallelLoops() != op.getNumLoops() || op.hasIndexSemantics())
    return false;
  for (OpOperand &init : op.getDpsInitsMutable())
    if (!op.getMatchingIndexingMap(&init).isIdentity() ||
        !op.getMatchingBlockArgument(&init).use_empty() ||
        cast<RankedTensorType>(init.get().getType()).getShape() != shape)
      return false;
  return llvm::all_of(op.getDpsInputOperands(), [&](OpOperand *input) {
    auto type = dyn_cast<RankedTensorType>(input->get().getType());
    return type && type.hasStaticShape() &&
           (type.getNumElements() == 1
                ? llvm::all_of(op.getMatchingIndexingMap(input).getResults(),
                               [&](AffineExpr e) {
                                 return e == getAffineConstantExpr(
                                                 0, op.getContext()) ||
                                        type.getShape() == shape;
                               })
                : op.getMatchingIndexingMap(input).isIdentity());
  });
}

/// Whether a share is a contiguous piece of the whole.
bool outermost(RankedTensorType type, int64_t dim) {
  for (int64_t i = 0; i < dim; ++i)
    if (type.getDimSize(i) != 1)
      return false;
  return true;
}

struct Match {
  comm::CollectiveOpInterface scatter, gather;
  llvm::SetVector<Operation *> ops; ///< in program order
  SmallVector<Value> inputs;        ///< what they read of others
  SmallVector<Value> results;       ///< the gathered one first
};

/// Fills `match` from its reduce_scatter; null, or why it is none. `found` says
/// whether there is an all_gather at all.
const char *find(Match &match, const Fences &fences, bool &found) {
  comm::CollectiveOpInterface scatter = match.scatter;
  Value reduced = scatter->getResult(0);
  auto shape = cast<RankedTensorType>(reduced.getType()).getShape();
  Block *block = scatter->getBlock();
  llvm::SetVector<Operation *> cone;
  DenseSet<Value> inside = {reduced};
  SmallVector<comm::CollectiveOpInterface> gathers;
  SmallVector<Value> worklist = {reduced};
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers()) {
      if (user->getBlock() != block)
        continue;
      if (auto op = dyn_cast<linalg::LinalgOp>(user)) {
        if (isElementwise(op, shape) && cone.insert(user))
          for (Value result : user->getResults()) {
            inside.insert(result);
            worklist.push_back(result);
          }
      } else if (auto gather = dyn_cast<comm::CollectiveOpInterface>(user);
                 gather && !gather.isAsync() &&
                 gather.getCollectiveKernel().empty() &&
                 gather.getCollectiveKind() ==
                     comm::CollectiveKind::all_gather &&
                 gather.getCollectiveDomain() ==
                     scatter.getCollectiveDomain() &&
                 gather.getCollectiveInput() != reduced) {
        gathers.push_back(gather);
      }
    }
  found = !gathers.empty() && !cone.empty();
  if (!found)
    return nullptr;
  if (gathers.size() > 1)
    return "several-gathers";
  match.gather = gathers.front();
  Value gathered = match.gather.getCollectiveInput();
  auto whole = cast<RankedTensorType>(match.gather->getResult(0).getType());
  if (!outermost(cast<RankedTensorType>(scatter.getCollectiveInput().getType()),
                 scatter.getCollectiveSplitDim()) ||
      !outermost(whole, match.gather.getCollectiveConcatDim()))
    return "split-inside-rows";
  if (whole.getElementType() !=
      cast<RankedTensorType>(reduced.getType()).getElementType())
    return "differing-types";
  if (!fences.areNear(scatter, match.gather))
    return "fence";

  // What the rest of an operation reads must exist where the parameters are
  // gathered. One that cannot be taken in takes its users with it.
  DominanceInfo dominance;
  bool changed = true;
  while (changed) {
    changed = false;
    SmallVector<Operation *> ops = cone.takeVector();
    for (Operation *op : ops) {
      bool exists = llvm::all_of(op->getOperands(), [&](Value operand) {
        if (operand.getDefiningOp<tensor::EmptyOp>())
          return true;
        return inside.contains(operand) ||
               dominance.properlyDominates(operand,
                                           match.gather.getOperation());
      });
      if (exists) {
        cone.insert(op);
        continue;
      }
      changed = true;
      for (Value result : op->getResults())
        inside.erase(result);
    }
  }
  if (!inside.contains(gathered))
    return "order-of-uses";
  SmallVector<Operation *> sorted(cone.begin(), cone.end());
  llvm::sort(sorted,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  match.ops.insert(sorted.begin(), sorted.end());

  llvm::SetVector<Value> inputs;
  for (Operation *op : match.ops)
    for (OpOperand *input : cast<linalg::LinalgOp>(op).getDpsInputOperands())
      if (!inside.contains(input->get()))
        inputs.insert(input->get());
  match.inputs = inputs.takeVector();
  // Whatever is used outside becomes a result, behind the fused operation only.
  match.results.push_back(gathered);
  for (Value value : inside) {
    bool outside = false;
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (match.ops.contains(user) || user == match.gather.getOperation())
        continue;
      outside = true;
      Operation *at = block->findAncestorOpInBlock(*user);
      if (!at || at->isBeforeInBlock(match.gather))
        return "order-of-uses";
    }
    if (!outside)
      continue;
    match.results.push_back(value);
  }
  // Sets have no order of their own.
  llvm::sort(match.results.begin() + 1, match.results.end(),
             [&](Value a, Value b) {
               Operation *x = a.getDefiningOp(), *y = b.getDefiningOp();
               return x != y ? x->isBeforeInBlock(y)
                             : cast<OpResult>(a).getResultNumber() <
                                   cast<OpResult>(b).getResultNumber();
             });
  return nullptr;
}

double bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return static_cast<double>(type.getNumElements()) *
         type.getElementTypeBitWidth() / 8;
}

} // namespace

Outcome concord::fuse::fuseUpdate(comm::CollectiveOpInterface scatter,
                                  const FusionOptions &options,
                                  llvm::DenseSet<Operation *> &erased) {
  Match match;
  match.scatter = scatter;
  Fences fences;
  fences.run(scatter->getParentOfType<func::FuncOp>());
  bool found = false;
  const char *why = find(match, fences, found);
  if (!found)
    return Outcome::NotOne;
  auto keep = [&](StringRef reason, const Twine &keys) {
    explain(scatter, scatter->getLoc(), "comm-fuse", "keep", reason,
            "collective=reduce_scatter pair=reduce_scatter+update+all_gather" +
                keys);
    return Outcome::Kept;
  };
  if (why)
    return keep(why, "");

  Value reduced = scatter->getResult(0);
  auto type = cast<RankedTensorType>(reduced.getType());
  comm::DomainOp domain =
      comm::lookupDomain(scatter, scatter.getCollectiveDomain());
  const int64_t members = *domain.getUniformGroupSize();
  auto dtypeOf = [](Value value) {
    return fromMlirType(
        cast<RankedTensorType>(value.getType()).getElementType());
  };
  Program program(reduced, match.inputs);
  for (Operation *op : match.ops)
    if (!program.add(cast<linalg::LinalgOp>(op)))
      return keep("update", " operation=" + program.unknown());

  if (options.exact && program.roundsOtherwise())
    return keep("exact", "");

  auto join = [](const std::vector<std::string> &words) {
    return "[" + llvm::join(words, ",") + "]";
  };
  std::vector<std::string> inputs, outputs, numbers;
  SmallVector<int64_t> single;
  for (auto [i, input] : llvm::enumerate(match.inputs)) {
    inputs.push_back(lowering::lower(dtypeOf(input)));
    if (cast<RankedTensorType>(input.getType()).getNumElements() == 1 &&
        type.getNumElements() != 1)
      single.push_back(static_cast<int64_t>(i));
  }
  for (auto [i, result] : llvm::enumerate(match.results)) {
    numbers.push_back(numberOf(program[result]));
    if (i)
      outputs.push_back(lowering::lower(dtypeOf(result)));
  }
  lowering::Describe describe("fused_update");
  describe.set("count", type.getNumElements())
      .set("dtype", lowering::lower(dtypeOf(reduced)))
      .set("inputs", join(inputs))
      .set("members", members)
      .set("outputs", join(outputs))
      .set("program", "\"" + program.text() + "\"")
      .set("results", join(numbers));
  if (!single.empty())
    describe.list("single", single);
  concord_kernel_info info = {};
  concord_fused_info fused = {};
  info.struct_size = sizeof info;
  fused.struct_size = sizeof fused;
  concord_kernel *kernel = nullptr;
  bool made =
      concord_kernel_create(describe.str().c_str(), &kernel, &info) == 0 &&
      concord_kernel_fused(kernel, &fused) == 0;
  std::string message = made ? "" : concord_kernel_last_error();
  concord_kernel_destroy(kernel);
  if (!made)
    return keep("kernel", " message=\"" + message + "\"");

  // Seconds, as they are and as one.
  const cost::Machine &machine = options.machine;
  const double p = static_cast<double>(members), own = bytesOf(reduced),
               whole = own * p, others = whole - own;
  double read = 0, written = 0, footprint = 2 * whole, steps = 0;
  for (Value input : match.inputs)
    read += bytesOf(input);
  for (Value result : ArrayRef(match.results).drop_front())
    written += bytesOf(result);
  footprint = (footprint + read + written) * p;
  for (Operation *op : match.ops)
    for (Value operand : op->getOperands())
      steps += bytesOf(operand);
  auto seconds = [&](cost::Traffic traffic) {
    return cost::exchange(machine, traffic, footprint, members);
  };
  std::vector<std::vector<int32_t>> groups;
  for (ArrayRef<int64_t> group : domain.getGroupRanks())
    groups.emplace_back(group.begin(), group.end());
  cost::Placement placement = cost::place(machine, groups);
  double unfused =
      cost::collective(machine, plan::Kind::ReduceScatter, whole, placement)
          .seconds +
      cost::collective(machine, plan::Kind::AllGather, whole, placement)
          .seconds +
      seconds({steps, 0, 0}) +
      machine.opSeconds * static_cast<double>(match.ops.size());
  // Beyond the caches the arithmetic goes on beside the loads.
  double moved = seconds({own * 2 + read + written, 2 * others, others});
  double computed = machine.updateSeconds *
                    static_cast<double>(program.instructions()) *
                    static_cast<double>(type.getNumElements());
  bool cached = footprint <= static_cast<double>(machine.cacheBytes);
  double together = machine.issueSeconds + 2 * machine.flagSeconds +
                    (cached ? moved + computed : std::max(moved, computed));
  std::string keys = " bytes=" + numberOf(static_cast<size_t>(whole)) +
                     " operations=" + numberOf(match.ops.size()) +
                     (program.roundsOtherwise() ? " rounding=differs" : "") +
                     " predicted_unfused_us=" + micro(unfused) +
                     " predicted_fused_us=" + micro(together);
  if (!options.force &&
      unfused - together < options.minGainPercent / 100 * unfused)
    return keep("no-gain", keys);
  explain(scatter, scatter->getLoc(), "comm-fuse", "fuse", "fewer-bytes",
          "collective=reduce_scatter pair=reduce_scatter+update+all_gather" +
              keys);

  OpBuilder builder(match.gather);
  Location loc = scatter->getLoc();
  SmallVector<Value> operands = {scatter.getCollectiveInput()}, inits;
  llvm::append_range(operands, match.inputs);
  SmallVector<Type> types;
  auto out = [&](RankedTensorType tensor) {
    inits.push_back(tensor::EmptyOp::create(builder, loc, tensor.getShape(),
                                            tensor.getElementType()));
    types.push_back(tensor);
  };
  out(cast<RankedTensorType>(match.gather->getResult(0).getType()));
  for (Value result : ArrayRef(match.results).drop_front())
    out(cast<RankedTensorType>(result.getType()));
  out(RankedTensorType::get({static_cast<int64_t>(fused.workspace_bytes)},
                            builder.getI8Type()));
  SmallVector<int64_t> all;
  for (int64_t i = 0; i < CONCORD_FUSED_MAX_OPERANDS; ++i)
    if (fused.written >> i & 1)
      all.push_back(i);
  auto op = comm::FusedOp::create(
      builder, loc, types,
      comm::CollectiveKindAttr::get(builder.getContext(),
                                    comm::CollectiveKind::all_reduce),
      scatter.getCollectiveDomain(), builder.getStringAttr(describe.str()),
      comm::ReductionKindAttr::get(builder.getContext(),
                                   comm::ReductionKind::sum),
      builder.getI64IntegerAttr(fused.shared),
      builder.getDenseI64ArrayAttr(all), operands, inits,
      builder.getUnitAttr());
  for (NamedAttribute attr : scatter->getDiscardableAttrs())
    op->setDiscardableAttr(attr.getName(), attr.getValue());
  match.gather->getResult(0).replaceAllUsesWith(op.getResult(0));
  erased.insert(match.gather);
  match.gather->erase();
  for (auto [i, result] : llvm::enumerate(match.results))
    if (i)
      result.replaceUsesWithIf(op.getResult(i), [&](OpOperand &use) {
        return !match.ops.contains(use.getOwner());
      });
  for (Operation *dead : llvm::reverse(match.ops))
    dead->erase();
  erased.insert(scatter);
  scatter->erase();
  return Outcome::Fused;
}
