//===- Exchange.cpp - All-to-alls with the products around them -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dispatch: rows that an all_to_all brings go into products of stacked
// matrices. Combine: rows of a product of stacked matrices, as they are or each
// times a factor and added up over the stack, are what an all_to_all returns.
// Both end at whole blocks: what is sent to a member is one contiguous piece at
// both ends.
//
//===----------------------------------------------------------------------===//

#include "fuse/Exchange.h"

#include "common/Explain.h"
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "concord/cost/Cost.h"
#include "concord/kernel.h"
#include "fuse/Neighbours.h"
#include "lowering/Describe.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

using namespace mlir;

namespace concord::fuse {
namespace {

/// Rows of a product in one part (kernels/lib/FusedKernel.h).
constexpr int64_t kRowsOfPart = 112;
/// Products that read what one dispatch brings (kernels/lib/FusedExchange.cpp).
constexpr size_t kMostProducts = 3;
/// Of the time to read a weight once more, what computing does not hide.
constexpr double kShareOfRereading = 0.1;
/// Of products and collective, what fusing gains at the least: the weight is
/// read again for every member's rows, and with less to gain the error of what
/// that takes decides (measured: a predicted gain of 0.1 % was 8 % lost).
constexpr double kLeastGain = 0.01;
/// Of the time to take others' rows, what the product that reads them, instead
/// of its own, does not hide (measured: nothing that can be told from noise,
/// for 16 columns and more).
constexpr double kShareOfTaking = 0.1;
/// Rows that a core has taken stay in its own cache up to so many bytes.
constexpr double kOwnCacheBytes = 1 << 20;

/// A product of `groups` stacked matrices, and the text of one of them.
struct Grouped {
  comm::KernelOp op;
  int64_t groups = 1, m = 0, n = 0, k = 0;
  int64_t aStride = 0;
  std::string text;
};

SmallVector<int64_t> listOf(const KernelText &text, const std::string &key) {
  SmallVector<int64_t> list;
  auto it = text.keys.find(key);
  if (it == text.keys.end())
    return list;
  SmallVector<StringRef> items;
  StringRef(it->second).trim("[]").split(items, ',', -1, false);
  for (StringRef item : items) {
    int64_t value = -1;
    (void)item.getAsInteger(10, value);
    list.push_back(value);
  }
  return list;
}

std::optional<Grouped> groupedProduct(Operation *op) {
  auto kernel = dyn_cast_or_null<comm::KernelOp>(op);
  if (!kernel || kernel.getAbsent())
    return std::nullopt;
  KernelText text(kernel.getDescription());
  if (text.name != "gemm")
    return std::nullopt;
  Grouped made;
  made.op = kernel;
  made.m = text.number("m", 0);
  made.n = text.number("n", 0);
  made.k = text.number("k", 0);
  SmallVector<int64_t> batch = listOf(text, "batch"),
                       a = listOf(text, "astrides"),
                       b = listOf(text, "bstrides"),
                       c = listOf(text, "cstrides");
  if (made.m <= 0 || made.n <= 0 || made.k <= 0 || a.size() != batch.size() ||
      b.size() != batch.size() || c.size() != batch.size() ||
      text.keys.count("biasstrides"))
    return std::nullopt;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i] == 1)
      continue;
    // One dimension of stacked, dense matrices.
    if (made.groups != 1 || b[i] != made.k * made.n || c[i] != made.m * made.n)
      return std::nullopt;
    made.groups = batch[i];
    made.aStride = a[i];
  }
  made.text = text.name;
  for (auto &[key, value] : text.keys)
    if (!StringRef(key).ends_with("strides") && key != "batch")
      made.text += " " + key + "=" + value;
  return made;
}

int64_t outside(ArrayRef<int64_t> shape, int64_t dim) {
  int64_t count = 1;
  for (int64_t extent : shape.take_front(dim))
    count *= extent;
  return count;
}

/// Whether nobody but the next step of a chain takes a value.
bool onlyFor(Value value, Operation *user) {
  SmallVector<OpOperand *> uses = usesOf(value);
  return uses.size() == 1 && uses[0]->getOwner() == user;
}

class Exchange {
public:
  Exchange(comm::CollectiveOpInterface op, const FusionOptions &options)
      : op(op), options(options) {}
  Outcome run();

private:
  Outcome keep(StringRef reason, const Twine &keys = "");
  bool matchDispatch();
  bool matchCombine();
  bool weighs(Operation *user, Value &product);
  std::string describe() const;
  std::string pair() const {
    std::string gemm = products.front().groups > 1 ? "grouped_gemm" : "gemm";
    return dispatches ? "all_to_all+" + gemm : gemm + "+all_to_all";
  }
  void price();
  Operation *place();
  void rewrite(Operation *at);

  comm::CollectiveOpInterface op;
  const FusionOptions &options;
  DType type = DType::Invalid;
  int64_t members = 1;
  bool dispatches = false;
  SmallVector<Grouped> products;
  Value factors;      ///< [groups, rows, 1], where rows are weighed
  int64_t summed = 1; ///< matrices that are added up
  /// What a combine replaces, from the product to the last before the exchange.
  SmallVector<Operation *> chain;
  concord_kernel_info kernel = {};
  concord_fused_info info = {};
  double compute = 0, unfused = 0, fused = 0;
};

Outcome Exchange::keep(StringRef reason, const Twine &keys) {
  explain(op, op->getLoc(), "comm-fuse", "keep", reason,
          "collective=all_to_all" + keys);
  return Outcome::Kept;
}

bool Exchange::matchDispatch() {
  SmallVector<OpOperand *> uses = usesOf(op->getResult(0));
  for (OpOperand *use : uses) {
    auto product = groupedProduct(use->getOwner());
    if (!product || use->getOperandNumber() != 0 || product->aStride != 0 ||
        product->op->getBlock() != op->getBlock())
      return false;
    products.push_back(*product);
  }
  llvm::sort(products, [](const Grouped &a, const Grouped &b) {
    return a.op->isBeforeInBlock(b.op);
  });
  dispatches = true;
  return !products.empty();
}

/// Whether `user` is a product of rows with factors, added up over the groups
/// where there are several; `product` is what the rows come from.
bool Exchange::weighs(Operation *user, Value &product) {
  // A sum over one group is a reshape, and not there.
  if (auto sum = dyn_cast_or_null<comm::KernelOp>(user)) {
    KernelText text(sum.getDescription());
    DenseElementsAttr axes;
    auto type = dyn_cast<RankedTensorType>(sum.getInputs()[0].getType());
    if (text.name != "onnx.reducesum" || sum.getInputs().size() != 2 || !type ||
        !matchPattern(sum.getInputs()[1], m_Constant(&axes)) ||
        axes.getNumElements() != 1 || !axes.getElementType().isInteger(64))
      return false;
    // The outermost dimension, apart from those of one.
    int64_t axis = axes.getValues<int64_t>()[0];
    axis += axis < 0 ? type.getRank() : 0;
    if (axis < 0 || axis >= type.getRank() ||
        outside(type.getShape(), axis) != 1)
      return false;
    summed = type.getDimSize(axis);
    chain.push_back(user);
    user = strip(sum.getInputs()[0]).getDefiningOp();
    if (!user || !onlyFor(user->getResult(0), sum))
      return false;
  }
  auto generic = dyn_cast_or_null<linalg::GenericOp>(user);
  if (!generic || generic.getNumDpsInits() != 1 ||
      generic.getNumDpsInputs() != 2 || !generic.hasPureTensorSemantics() ||
      generic.getNumParallelLoops() != generic.getNumLoops() ||
      generic.getNumLoops() < 2 ||
      !generic.getMatchingIndexingMap(generic.getDpsInitOperand(0))
           .isIdentity())
    return false;
  Block *body = generic.getBody();
  auto mul =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::MulFOp>();
  if (!mul || body->getOperations().size() != 2 ||
      !isa<BlockArgument>(mul.getLhs()) || !isa<BlockArgument>(mul.getRhs()) ||
      mul.getLhs() == mul.getRhs())
    return false;
  // Elements meet at equal places; dimensions of one may be written as 0.
  for (OpOperand *input : generic.getDpsInputOperands()) {
    AffineMap map = generic.getMatchingIndexingMap(input);
    auto own = dyn_cast<RankedTensorType>(input->get().getType());
    if (!own || map.getNumResults() != generic.getNumLoops())
      return false;
    for (unsigned i = 0; i < map.getNumResults(); ++i)
      if (map.getResult(i) != getAffineDimExpr(i, op->getContext()) &&
          own.getDimSize(i) != 1)
        return false;
  }
  const unsigned last = generic.getNumLoops() - 1;
  for (OpOperand *input : generic.getDpsInputOperands()) {
    if (!product && input->get().getType() == generic.getResultTypes()[0]) {
      product = input->get();
      continue;
    }
    // All dimensions but the last, which is one.
    auto own = dyn_cast<RankedTensorType>(input->get().getType());
    bool rows =
        own && own.getRank() == int64_t(last) + 1 && own.getShape().back() == 1;
    if (!rows || own.getNumElements() *
                         cast<RankedTensorType>(generic.getResultTypes()[0])
                             .getShape()
                             .back() !=
                     elements(generic.getResult(0)))
      return false;
    factors = input->get();
  }
  if (!product || !factors)
    return false;
  chain.push_back(generic);
  return true;
}

bool Exchange::matchCombine() {
  Value input = strip(op.getCollectiveInput());
  Operation *definer = input.getDefiningOp();
  if (!definer || !onlyFor(input, op))
    return false;
  auto product = groupedProduct(definer);
  if (!product) {
    Value rows;
    if (!weighs(definer, rows))
      return false;
    Value made = strip(rows);
    product = groupedProduct(made.getDefiningOp());
    if (!product || !onlyFor(made, chain.back()))
      return false;
    // Weighed rows that are not added up are as many as before.
    if (product->groups != summed)
      return false;
  } else if (product->groups > 1) {
    return false;
  }
  if (product->groups > 1 && product->aStride != product->m * product->k)
    return false;
  chain.push_back(product->op);
  std::reverse(chain.begin(), chain.end());
  products.push_back(*product);
  return true;
}

std::string Exchange::describe() const {
  lowering::Describe describe(dispatches ? "fused_dispatch" : "fused_combine");
  describe.set("dtype", lowering::lower(type))
      .set("groups", products.front().groups)
      .set("members", members);
  for (auto [i, product] : llvm::enumerate(products)) {
    std::string key = i ? "product" + std::to_string(i) : "product";
    describe.set(key.c_str(), "\"" + product.text + "\"");
  }
  if (factors)
    describe.set("weighed", 1);
  return describe.str();
}

/// Predicted seconds of the operations as they are and as one, the products
/// apart, as comm-fuse's other pairs are priced.
void Exchange::price() {
  const cost::Machine &machine = options.machine;
  const double es = static_cast<double>(dtypeSize(type));
  const double p = static_cast<double>(members);
  const Grouped &first = products.front();
  const double groups = static_cast<double>(first.groups);
  const double whole =
      static_cast<double>(first.m * (dispatches ? first.k : first.n)) * es;
  const double own = whole / p, others = whole - own;
  comm::DomainOp domain = comm::lookupDomain(op, op.getCollectiveDomain());
  std::vector<std::vector<int32_t>> ranks;
  for (ArrayRef<int64_t> group : domain.getGroupRanks())
    ranks.emplace_back(group.begin(), group.end());
  auto seconds = [&](cost::Traffic traffic) {
    return cost::exchange(machine, traffic, 2 * whole * p, members);
  };
  double weights = 0;
  for (const Grouped &product : products) {
    double weight = groups * static_cast<double>(product.k * product.n) * es;
    compute += productSeconds(machine, type,
                              2.0 * groups * static_cast<double>(product.m) *
                                  static_cast<double>(product.n) *
                                  static_cast<double>(product.k),
                              weight, members);
    weights += weight;
  }
  auto again = [&](double times) {
    return times * kShareOfRereading * weights /
           cost::memoryBandwidth(machine, weights, members);
  };
  unfused = cost::collective(machine, plan::Kind::AllToAll, whole,
                             cost::place(machine, ranks))
                .seconds +
            machine.opSeconds;
  fused = machine.issueSeconds + 2 * machine.flagSeconds;
  if (dispatches) {
    // Each product of each group reads the rows; from the second on they lie in
    // this core's cache, if they fit there.
    double times = own > kOwnCacheBytes
                       ? groups * static_cast<double>(products.size())
                       : 1;
    double taken = seconds({0, others * times, own});
    fused += std::max(kShareOfTaking * taken, taken - compute) + again(p - 1);
    return;
  }
  if (factors) {
    // What comes of every group is read and written once, then read and added.
    const double made = whole * groups;
    unfused += seconds({2 * made, 0, 0}) + machine.opSeconds;
    if (first.groups > 1)
      unfused += seconds({made + whole, 0, 0}) + machine.opSeconds;
  }
  double parts =
      std::ceil(static_cast<double>(first.m) / p / double(kRowsOfPart)) * p;
  fused += seconds({own, 0, others}) + again(parts - 1);
}

/// Where the fused operation goes: all its operands exist there, and all uses
/// are behind. Null when there is no such place.
Operation *Exchange::place() {
  Operation *at = dispatches ? products.front().op : op.getOperation();
  SmallVector<Value> operands;
  for (Grouped &product : products)
    llvm::append_range(operands, dispatches
                                     ? product.op.getInputs().drop_front()
                                     : product.op.getInputs());
  if (factors)
    operands.push_back(factors);
  DominanceInfo dominance;
  for (Value operand : operands) {
    Operation *definer = operand.getDefiningOp();
    if (definer && definer->getNumOperands() == 0 && isPure(definer) &&
        definer->getBlock() == at->getBlock() && !definer->isBeforeInBlock(at))
      definer->moveBefore(at);
    if (!dominance.properlyDominates(operand, at))
      return nullptr;
  }
  return at;
}

void Exchange::rewrite(Operation *at) {
  OpBuilder builder(at);
  Location loc = op->getLoc();
  SmallVector<Value> inputs, inits;
  SmallVector<Type> types;
  auto out = [&](RankedTensorType type) {
    inits.push_back(tensor::EmptyOp::create(builder, loc, type.getShape(),
                                            type.getElementType()));
    types.push_back(type);
  };
  SmallVector<Value> results;
  if (dispatches) {
    inputs.push_back(op.getCollectiveInput());
    for (Grouped &product : products) {
      llvm::append_range(inputs, product.op.getInputs().drop_front());
      results.push_back(product.op.getResult(0));
    }
  } else {
    llvm::append_range(inputs, products.front().op.getInputs());
    if (factors)
      inputs.push_back(factors);
    results.push_back(op->getResult(0));
  }
  for (Value result : results)
    out(cast<RankedTensorType>(result.getType()));
  if (info.workspace_bytes)
    out(RankedTensorType::get({static_cast<int64_t>(info.workspace_bytes)},
                              builder.getI8Type()));
  SmallVector<int64_t> written;
  for (int64_t i = 0; i < CONCORD_FUSED_MAX_OPERANDS; ++i)
    if (info.written >> i & 1)
      written.push_back(i);
  auto fusedOp = comm::FusedOp::create(
      builder, loc, types,
      comm::CollectiveKindAttr::get(op->getContext(), op.getCollectiveKind()),
      op.getCollectiveDomain(), builder.getStringAttr(describe()),
      comm::ReductionKindAttr(), builder.getI64IntegerAttr(info.shared),
      builder.getDenseI64ArrayAttr(written), inputs, inits,
      info.workspace_bytes ? builder.getUnitAttr() : UnitAttr());
  for (NamedAttribute attr : op->getDiscardableAttrs())
    fusedOp->setDiscardableAttr(attr.getName(), attr.getValue());
  for (auto [i, result] : llvm::enumerate(results))
    result.replaceAllUsesWith(fusedOp.getResult(i));
  // What nobody takes any more, from the last to the first.
  SmallVector<Operation *> dead;
  if (dispatches) {
    for (Grouped &product : products)
      dead.push_back(product.op);
    SmallVector<Value> worklist = {op->getResult(0)};
    SmallVector<Operation *> views;
    while (!worklist.empty())
      for (Operation *user : worklist.pop_back_val().getUsers())
        if (onlyReshapes(user)) {
          views.push_back(user);
          worklist.push_back(user->getResult(0));
        }
    dead.append(views.rbegin(), views.rend());
    dead.push_back(op);
  } else {
    Value input = op.getCollectiveInput();
    dead.push_back(op);
    for (Operation *step : llvm::reverse(chain)) {
      for (; input.getDefiningOp() != step;
           input = input.getDefiningOp()->getOperand(0))
        dead.push_back(input.getDefiningOp());
      dead.push_back(step);
      if (step == chain.front())
        break;
      // The operand that comes from the step before.
      Operation *before = *(std::find(chain.begin(), chain.end(), step) - 1);
      for (Value operand : step->getOperands())
        if (strip(operand).getDefiningOp() == before)
          input = operand;
    }
  }
  for (Operation *next : dead)
    next->erase();
}

Outcome Exchange::run() {
  auto in = dyn_cast<RankedTensorType>(op.getCollectiveInput().getType());
  auto out = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!in || !out || !in.hasStaticShape() || !out.hasStaticShape())
    return keep("shape");
  type = fromMlirType(in.getElementType());
  if (!lowering::isFloating(type))
    return keep("dtype");
  comm::DomainOp domain = comm::lookupDomain(op, op.getCollectiveDomain());
  auto size = domain ? domain.getUniformGroupSize() : std::nullopt;
  if (!size || *size < 2)
    return keep("group-size");
  members = *size;
  std::vector<std::vector<int32_t>> groups;
  for (ArrayRef<int64_t> group : domain.getGroupRanks())
    groups.emplace_back(group.begin(), group.end());
  if (cost::place(options.machine, groups).top() > 0 ||
      !options.machine.levels[0].memory)
    return keep("no-shared-memory");
  if (!matchDispatch()) {
    products.clear();
    dispatches = false;
    if (!matchCombine()) {
      bool other = llvm::any_of(usesOf(op->getResult(0)), [](OpOperand *use) {
        return groupedProduct(use->getOwner()).has_value();
      });
      return keep(other ? "other-uses" : "no-neighbour");
    }
  }
  std::string keys = " pair=" + pair();
  // A kernel knows its own sizes, not where in a peer's buffer its block
  // begins.
  if (!op.getCollectiveSendSizes().empty())
    return keep("uneven-blocks", keys);
  if (outside(in.getShape(), op.getCollectiveSplitDim()) != 1 ||
      outside(out.getShape(), op.getCollectiveConcatDim()) != 1)
    return keep("not-whole-blocks", keys);
  // Where it weighs and adds up, sums are not in the separate operations'
  // order.
  if (options.exact && factors)
    return keep("exact", keys);
  const Grouped &first = products.front();
  if (first.m % members != 0 ||
      first.m * (dispatches ? first.k : first.n) != in.getNumElements())
    return keep("split-inside-rows", keys);
  if (products.size() > kMostProducts)
    return keep("many-products", keys);
  for (const Grouped &product : products)
    if (product.groups != first.groups || product.m != first.m ||
        product.k != first.k)
      return keep("other-uses", keys);
  info.struct_size = sizeof info;
  kernel.struct_size = sizeof kernel;
  concord_kernel *handle = nullptr;
  std::string why;
  if (concord_kernel_create(describe().c_str(), &handle, &kernel) != 0 ||
      concord_kernel_fused(handle, &info) != 0)
    why = concord_kernel_last_error();
  concord_kernel_destroy(handle);
  if (!why.empty())
    return keep("kernel", keys + " message=\"" + why + "\"");
  price();
  keys += " bytes=" +
          std::to_string(in.getNumElements() *
                         static_cast<int64_t>(dtypeSize(type))) +
          " product_us=" + micro(compute) +
          " predicted_unfused_us=" + micro(compute + unfused) +
          " predicted_fused_us=" + micro(compute + fused);
  if (!options.force &&
      unfused - fused < options.minGainPercent / 100.0 * unfused)
    return keep("no-gain", keys);
  if (!options.force && unfused - fused < kLeastGain * (compute + unfused))
    return keep("small-gain", keys);
  Operation *at = place();
  if (!at)
    return keep("order-of-uses", keys);
  explain(op, op->getLoc(), "comm-fuse", "fuse", "fewer-bytes",
          "collective=all_to_all" + keys);
  rewrite(at);
  return Outcome::Fused;
}

} // namespace

Outcome fuseExchange(comm::CollectiveOpInterface op,
                     const FusionOptions &options) {
  return Exchange(op, options).run();
}

} // namespace concord::fuse
