//===- Fuse.cpp - comm-fuse -----------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Makes one operation of a collective and the computation around it. A match
// starts at the collective and looks up (a matrix product) and down (sums with
// bias and residual, a normalisation), through reshapes; what is found is
// priced with and without fusion, and only a gain is taken.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/Choices.h"
#include "common/Explain.h"
#include "common/Members.h"
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "common/Predicted.h"
#include "concord/cost/Cost.h"
#include "concord/kernel.h"
#include "fuse/Exchange.h"
#include "fuse/Neighbours.h"
#include "fuse/Update.h"
#include "lowering/Describe.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"

#include <cmath>

namespace concord {
#define GEN_PASS_DEF_COMMFUSE
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;
using namespace concord::fuse;

namespace {

/// Payload that the runtime sends along with its flag (engine/Collective.cpp).
constexpr int64_t kInlineBytes = 512;
/// With fewer rows for each member a product runs whole, not in parts.
constexpr int64_t kRowsPerMember = 32;
/// Rows of a product in one part (kernels/lib/Fused.cpp).
constexpr int64_t kRowsOfPart = 112;
/// The steps of a product take others' lines a part at a time, between loads
/// and stores of their own: so much slower than a collective, which does
/// nothing else (measured, in cache).
constexpr double kTakenByStep = 3;
/// Columns that a member has at the least where columns are shared out.
constexpr int64_t kColumnsOfShare = 64;
/// How much less stores over what another core has read cost where the cores
/// lie close together (measured, against the other times of the same cores). A
/// compiler cannot know where they will, and virtual ones move: what pays only
/// where they lie apart is not taken.
constexpr double kCloseCores = 3;
/// Of product and collective, what the collective takes at the least: with less
/// to gain than this, the error of the prediction decides.
constexpr double kLeastShare = 0.1;
/// Of the time to read a weight once more, what computing does not hide.
constexpr double kShareOfRereading = 0.1;

/// What is added to the collective's result.
struct Sums {
  linalg::LinalgOp op;
  Value bias, residual;
};

/// A collective and its neighbours.
struct Match {
  comm::CollectiveOpInterface collective;
  comm::KernelOp product; ///< before a reduction, or after a gather
  Sums sums;
  comm::KernelOp norm;
  std::string normKind = "none";
  Value gamma, beta;
  Value before;       ///< what the norm takes: the collective's or sums' result
  bool sum = false;   ///< `before` is needed, too
  bool every = false; ///< every member does all rows
  bool fits = true;   ///< has rows enough to be worth a thought
  int64_t members = 1, rows = 0, cols = 0;
  int64_t m = 0, n = 0, k = 0; ///< of the product
  bool gathers = false, scatters = false;
  DType type = DType::Invalid;

  std::string pair() {
    std::string name =
        stringifyCollectiveKind(collective.getCollectiveKind()).str();
    if (product)
      name = gathers ? name + "+gemm" : "gemm+" + name;
    if (sums.bias)
      name += "+bias";
    if (sums.residual)
      name += "+residual";
    return norm ? name + "+" + normKind : name;
  }
};

/// A fused kernel as made from its description.
struct Made {
  std::string text;
  concord_kernel_info kernel = {};
  concord_fused_info info = {};
};

/// Seconds; `compute` is the product's, which both ways have.
struct Price {
  double compute = 0, unfused = 0, fused = 0;
};

struct Fuse : public concord::impl::CommFuseBase<Fuse> {
  using CommFuseBase::CommFuseBase;

  void runOnOperation() override;
  void tryFuse(comm::CollectiveOpInterface op);
  bool matchSums(Match &match, OpOperand &use);
  bool matchNorm(Match &match, OpOperand &use);
  bool matchProduct(Match &match, comm::KernelOp kernel);
  const char *matchReduction(Match &match);
  const char *matchGather(Match &match);
  bool make(Match &match, Made &made, std::string &why);
  Price price(Match &match);
  cost::Placement placement(Match &match);
  Operation *place(Match &match);
  void rewrite(Match &match, const Made &made, Operation *at);
  void keep(comm::CollectiveOpInterface op, StringRef reason,
            const Twine &keys = "");

  cost::Machine machine;
  std::optional<Members> members;
  std::optional<Choices> choices;
  /// Collectives that went away together with an earlier one.
  llvm::DenseSet<Operation *> erased;
};

} // namespace

void Fuse::keep(comm::CollectiveOpInterface op, StringRef reason,
                const Twine &keys) {
  ++numRefused;
  explain(op, op->getLoc(), "comm-fuse", "keep", reason,
          "collective=" +
              stringifyCollectiveKind(op.getCollectiveKind()).str() + keys);
}

/// `use` is an operand of a sum of tensors and rows.
bool Fuse::matchSums(Match &match, OpOperand &use) {
  auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
  if (!op || op.getNumDpsInits() != 1 || !op.hasPureTensorSemantics() ||
      op.getNumParallelLoops() != op.getNumLoops())
    return false;
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  unsigned loops = op.getNumLoops();
  Block *body = op.getBlock();
  if (loops == 0 ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity() ||
      !body->getArguments().back().use_empty())
    return false;
  // The value that is yielded is a sum of arguments, each used once.
  llvm::SmallPtrSet<Value, 4> terms;
  SmallVector<Value> worklist = {body->getTerminator()->getOperand(0)};
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (auto add = value.getDefiningOp<arith::AddFOp>()) {
      worklist.push_back(add.getLhs());
      worklist.push_back(add.getRhs());
    } else if (!isa<BlockArgument>(value) || !terms.insert(value).second) {
      return false;
    }
  }
  Sums sums;
  sums.op = op;
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (!terms.contains(op.getMatchingBlockArgument(input)))
      return false;
    AffineMap map = op.getMatchingIndexingMap(input);
    auto own = dyn_cast<RankedTensorType>(input->get().getType());
    if (!own || own.getElementType() != type.getElementType())
      return false;
    if (input == &use) {
      if (!map.isIdentity())
        return false;
      continue;
    }
    bool row = map.getNumResults() >= 1 &&
               map.getResult(map.getNumResults() - 1) ==
                   getAffineDimExpr(loops - 1, op.getContext());
    for (unsigned i = 0; row && i + 1 < map.getNumResults(); ++i)
      row = map.getResult(i) == getAffineConstantExpr(0, op.getContext()) ||
            own.getDimSize(i) == 1;
    if (map.isIdentity() && !sums.residual)
      sums.residual = input->get();
    else if (!map.isIdentity() && row && !sums.bias &&
             own.getNumElements() == type.getShape().back())
      sums.bias = input->get();
    else
      return false;
  }
  match.sums = sums;
  return true;
}

/// `use` is what a normalisation is taken of.
bool Fuse::matchNorm(Match &match, OpOperand &use) {
  auto kernel = dyn_cast<comm::KernelOp>(use.getOwner());
  if (!kernel || kernel.getAbsent())
    return false;
  KernelText text(kernel.getDescription());
  if ((text.name != "layernorm" && text.name != "rmsnorm") ||
      !text.only({"rows", "cols", "dtype", "eps", "gamma", "beta"}) ||
      use.getOperandNumber() != 0)
    return false;
  match.norm = kernel;
  match.normKind = text.name;
  unsigned next = 1;
  if (text.number("gamma", 1))
    match.gamma = kernel.getInputs()[next++];
  if (text.number("beta", 0))
    match.beta = kernel.getInputs()[next++];
  match.cols = text.number("cols", 0);
  return match.cols > 0;
}

bool Fuse::matchProduct(Match &match, comm::KernelOp kernel) {
  if (!kernel || kernel.getAbsent())
    return false;
  KernelText text(kernel.getDescription());
  if (text.name != "gemm")
    return false;
  match.n = text.number("n", 0);
  match.k = text.number("k", 0);
  // With batch dimensions that are more rows, as the kernel sees it, too.
  int64_t out = elements(kernel.getResult(0));
  if (match.n <= 0 || out % match.n)
    return false;
  match.m = out / match.n;
  match.product = kernel;
  return true;
}

/// Fills the match of an all_reduce or reduce_scatter; else says what is amiss.
const char *Fuse::matchReduction(Match &match) {
  comm::CollectiveOpInterface op = match.collective;
  if (op.getCollectiveReduction() != comm::ReductionKind::sum)
    return "not-a-sum";
  auto type = cast<RankedTensorType>(op.getCollectiveInput().getType());
  if (match.scatters) {
    int64_t outer = 1;
    for (int64_t i = 0; i < op.getCollectiveSplitDim(); ++i)
      outer *= type.getDimSize(i);
    if (outer != 1)
      return "split-inside-rows";
  }
  match.before = op->getResult(0);
  SmallVector<OpOperand *> uses = usesOf(match.before);
  if (uses.size() == 1 && matchSums(match, *uses[0])) {
    match.before = match.sums.op->getResult(0);
    uses = usesOf(match.before);
  }
  match.cols =
      cast<RankedTensorType>(match.before.getType()).getShape().empty()
          ? 1
          : cast<RankedTensorType>(match.before.getType()).getShape().back();
  int64_t last = match.cols;
  for (OpOperand *use : uses)
    if (matchNorm(match, *use))
      break;
  if (match.norm && match.sums.bias && match.cols != last) {
    match.norm = {}; // a bias over other rows than the norm's
    match.normKind = "none";
    match.gamma = match.beta = {};
    match.cols = last;
  }
  match.sum = match.norm && uses.size() > 1;
  if (match.cols == 0 || type.getNumElements() % match.cols)
    return "empty";
  match.rows = type.getNumElements() / match.cols;
  if (match.scatters && match.rows % match.members)
    return "split-inside-rows";
  Value input = op.getCollectiveInput();
  bool single = true;
  for (Value v = input;; v = v.getDefiningOp()->getOperand(0)) {
    single &= v.hasOneUse();
    if (!v.getDefiningOp() || !onlyReshapes(v.getDefiningOp()))
      break;
  }
  if (single)
    matchProduct(match, strip(input).getDefiningOp<comm::KernelOp>());
  if (match.product && (match.n != match.cols || match.m != match.rows))
    match.product = {};
  if (!match.product && !match.norm && !match.sums.op)
    return "no-neighbour";
  return nullptr;
}

const char *Fuse::matchGather(Match &match) {
  comm::CollectiveOpInterface op = match.collective;
  auto type = cast<RankedTensorType>(op.getCollectiveInput().getType());
  for (int64_t i = 0; i < op.getCollectiveConcatDim(); ++i)
    if (type.getDimSize(i) != 1)
      return "gathers-inside-rows";
  SmallVector<OpOperand *> uses = usesOf(op->getResult(0));
  if (uses.empty())
    return "no-neighbour";
  auto kernel = dyn_cast<comm::KernelOp>(uses[0]->getOwner());
  if (!kernel || uses[0]->getOperandNumber() != 0 ||
      !matchProduct(match, kernel))
    return "no-neighbour";
  if (uses.size() != 1)
    return "other-uses";
  if (match.m % match.members ||
      match.m * match.k != elements(op->getResult(0)))
    return "gathers-inside-rows";
  match.rows = match.m;
  match.cols = match.k;
  return nullptr;
}

/// The kernel of a match; false, and why, when there is none.
bool Fuse::make(Match &match, Made &made, std::string &why) {
  lowering::Describe describe(match.gathers ? "fused_gather" : "fused_reduce");
  describe.set("members", match.members)
      .set("dtype", lowering::lower(match.type));
  if (match.product) {
    std::string quoted = "\"" + match.product.getDescription().str() + "\"";
    describe.set("product", quoted);
  }
  if (!match.gathers) {
    describe.set("rows", match.rows).set("cols", match.cols);
    auto flag = [&](const char *key, bool value) {
      if (value)
        describe.set(key, 1);
    };
    flag("bias", bool(match.sums.bias));
    flag("residual", bool(match.sums.residual));
    flag("gamma", bool(match.gamma));
    flag("beta", bool(match.beta));
    flag("sum", match.sum);
    flag("scatter", match.scatters);
    flag("every", match.every);
    if (match.norm) {
      KernelText text(match.norm.getDescription());
      describe.set("norm", match.normKind);
      if (auto it = text.keys.find("eps"); it != text.keys.end())
        describe.set("eps", it->second);
    }
  }
  made.text = describe.str();
  made.kernel.struct_size = sizeof made.kernel;
  made.info.struct_size = sizeof made.info;
  concord_kernel *kernel = nullptr;
  if (concord_kernel_create(made.text.c_str(), &kernel, &made.kernel) != 0 ||
      concord_kernel_fused(kernel, &made.info) != 0) {
    why = concord_kernel_last_error();
    concord_kernel_destroy(kernel);
    return false;
  }
  concord_kernel_destroy(kernel);
  return true;
}

/// Whether a product's columns are shared out, not its rows
/// (kernels/lib/Fused.cpp), and so few rows that its tiles hide what they
/// fetch: with twice as many it takes what a product by rows takes (measured).
static bool byColumns(const Match &match) {
  return match.product && !match.norm && !match.scatters && !match.gathers &&
         match.rows < match.members * kRowsOfPart / 8 &&
         match.cols >= match.members * kColumnsOfShare;
}

/// Predicted seconds of the operations as they are and as one, the product
/// apart. On one host the cores that communicate also compute: time is
/// computation plus bytes.
Price Fuse::price(Match &match) {
  const double es = static_cast<double>(dtypeSize(match.type));
  const double p = static_cast<double>(match.members);
  const double whole = static_cast<double>(match.rows * match.cols) * es;
  const double own = whole / p, others = whole - own;
  const double flag = machine.flagSeconds;
  const double sides = match.sums.residual ? 1 : 0;
  const double sum = match.sum ? 1 : 0;
  const double norm = match.norm ? 1 : 0;
  const double adds = match.sums.op ? 1 : 0;
  const double arrays = match.gathers ? 2 : 2 + norm + sides + sum;
  auto seconds = [&](cost::Traffic traffic) {
    if (match.product && !match.gathers &&
        arrays * whole * p <= static_cast<double>(machine.cacheBytes))
      traffic.taken *= kTakenByStep;
    return cost::exchange(machine, traffic, arrays * whole * p, match.members);
  };
  auto again = [&](double times, double weight) {
    // Most of the time for which a weight is read again is hidden by computing.
    return times * kShareOfRereading * weight /
           cost::memoryBandwidth(machine, weight, match.members);
  };
  Price price;
  double weight = 0;
  if (match.product) {
    weight = static_cast<double>(match.k * match.n) * es;
    price.compute = productSeconds(machine, match.type,
                                   2.0 * static_cast<double>(match.m) *
                                       static_cast<double>(match.n) *
                                       static_cast<double>(match.k),
                                   weight, match.members);
  }
  comm::CollectiveOpInterface op = match.collective;
  cost::Machine apart = machine;
  if (match.product && !match.gathers)
    apart.contended *= kCloseCores;
  price.unfused =
      cost::collective(apart, static_cast<plan::Kind>(op.getCollectiveKind()),
                       whole, placement(match))
          .seconds +
      (match.product ? machine.opSeconds : 0);
  if (match.gathers) {
    // The others' parts are read where they lie, and B once for each member's
    // rows; whoever writes the own part next finds that others have read it.
    price.fused = machine.issueSeconds + 2 * flag + seconds({0, others, own}) +
                  again(p - 1, weight);
    return price;
  }
  const double after = match.scatters ? own : whole;
  price.unfused +=
      adds * (seconds({(2 + sides) * after, 0, 0}) + machine.opSeconds) +
      norm * (seconds({2 * after, 0, 0}) + machine.opSeconds);
  price.fused = machine.issueSeconds + 2 * flag;
  double outputs = 1 + sum;
  if (match.product && byColumns(match)) {
    // The others' parts arrive while the own one is computed; what is waited
    // for is the result of theirs.
    price.fused +=
        p * flag + seconds({own * (sides + outputs) + others, others, 0});
  } else if (match.product) {
    // Every part reads B anew. Results go through the partial sums.
    double parts = std::ceil(static_cast<double>(match.rows) / p /
                             static_cast<double>(kRowsOfPart)) *
                   p;
    price.fused += again(parts - 1, weight) + parts * flag;
    price.fused +=
        match.scatters
            ? seconds({own * (1 + sides + outputs), others, 0})
            : seconds({own * (1 + sides + outputs) + others * (1 + 3 * sum),
                       2 * others, 0});
  } else if (match.every) {
    // All read all: what the next one writes, others have read.
    price.fused +=
        seconds({whole * (1 + sides + outputs), whole * (p - 1), whole});
  } else if (match.scatters) {
    price.fused += seconds({own * (1 + sides + outputs), 2 * others, 0});
  } else {
    // Results are stored at the other members.
    price.fused += seconds({own * (1 + sides + outputs), others * (2 + outputs),
                            others * outputs});
  }
  return price;
}

/// Where the collective's groups lie on the machine.
cost::Placement Fuse::placement(Match &match) {
  comm::DomainOp domain = comm::lookupDomain(
      match.collective, match.collective.getCollectiveDomain());
  std::vector<std::vector<int32_t>> groups;
  for (ArrayRef<int64_t> group : domain.getGroupRanks())
    groups.emplace_back(group.begin(), group.end());
  return cost::place(machine, groups);
}

/// Where the fused operation goes: before the operation returned, at which all
/// operands exist, and behind which all uses are. Null when there is no place.
Operation *Fuse::place(Match &match) {
  DominanceInfo dominance;
  SmallVector<Value> operands = {match.sums.bias, match.sums.residual,
                                 match.gamma, match.beta};
  if (match.product)
    llvm::append_range(operands, match.product.getInputs());
  SmallVector<Operation *> candidates = {match.collective.getOperation()};
  if (match.gathers)
    candidates[0] = match.product;
  if (match.sums.op)
    candidates.push_back(match.sums.op);
  if (match.norm)
    candidates.push_back(match.norm);
  for (Operation *candidate : candidates)
    if (candidate->getBlock() != match.collective->getBlock())
      return nullptr;
  // Parameters and constants can be moved to where they are needed.
  for (Value operand : operands) {
    if (!operand)
      continue;
    Operation *definer = operand.getDefiningOp();
    if (definer && definer->getNumOperands() == 0 && isPure(definer) &&
        definer->getBlock() == match.collective->getBlock() &&
        !definer->isBeforeInBlock(match.collective))
      definer->moveBefore(match.collective);
  }
  for (Operation *candidate : candidates) {
    bool exist = llvm::all_of(operands, [&](Value operand) {
      return !operand || dominance.properlyDominates(operand, candidate);
    });
    if (!exist)
      continue;
    auto behind = [&](Value value) {
      return llvm::all_of(usesOf(value), [&](OpOperand *use) {
        Operation *user =
            candidate->getBlock()->findAncestorOpInBlock(*use->getOwner());
        return user && (user == candidate || candidate->isBeforeInBlock(user) ||
                        user == match.norm || user == match.sums.op);
      });
    };
    if (match.gathers || behind(match.before))
      return candidate;
  }
  return nullptr;
}

void Fuse::rewrite(Match &match, const Made &made, Operation *at) {
  OpBuilder builder(at);
  Location loc = match.collective->getLoc();
  comm::CollectiveOpInterface op = match.collective;
  SmallVector<Value> inputs, inits;
  SmallVector<Type> types;
  auto out = [&](Type type) {
    auto tensor = cast<RankedTensorType>(type);
    inits.push_back(tensor::EmptyOp::create(builder, loc, tensor.getShape(),
                                            tensor.getElementType()));
    types.push_back(type);
  };
  Value result;
  if (match.gathers) {
    inputs.push_back(op.getCollectiveInput());
    llvm::append_range(inputs, match.product.getInputs().drop_front());
    result = match.product.getResult(0);
    out(result.getType());
  } else {
    if (match.product)
      llvm::append_range(inputs, match.product.getInputs());
    else
      inputs.push_back(op.getCollectiveInput());
    for (Value operand :
         {match.sums.bias, match.sums.residual, match.gamma, match.beta})
      if (operand)
        inputs.push_back(operand);
    result = match.norm ? match.norm.getResult(0) : match.before;
    out(result.getType());
    if (match.sum)
      out(match.before.getType());
    if (match.product)
      out(match.product.getResult(0).getType());
  }
  // Of bounded sizes every one has some workspace, as kernels do
  // (lowering/GenericKernel.cpp), and other sizes of a product may exchange
  // their results in another way: whatever one of them writes counts.
  auto scratch = static_cast<int64_t>(made.info.workspace_bytes);
  uint32_t mask = made.info.written;
  if (choices->bounded()) {
    scratch = 64;
    if (match.product && !match.gathers && !match.scatters)
      for (size_t i = inputs.size(); i < inputs.size() + inits.size(); ++i)
        mask |= 1u << i;
  }
  if (scratch)
    out(RankedTensorType::get({scratch}, builder.getI8Type()));
  SmallVector<int64_t> written;
  for (int64_t i = 0; i < CONCORD_FUSED_MAX_OPERANDS; ++i)
    if (mask >> i & 1)
      written.push_back(i);
  auto fused = comm::FusedOp::create(
      builder, loc, types,
      comm::CollectiveKindAttr::get(&getContext(), op.getCollectiveKind()),
      op.getCollectiveDomain(), builder.getStringAttr(made.text),
      match.gathers ? comm::ReductionKindAttr()
                    : comm::ReductionKindAttr::get(&getContext(),
                                                   comm::ReductionKind::sum),
      builder.getI64IntegerAttr(made.info.shared),
      builder.getDenseI64ArrayAttr(written), inputs, inits,
      scratch ? builder.getUnitAttr() : UnitAttr());
  for (NamedAttribute attr : op->getDiscardableAttrs())
    fused->setDiscardableAttr(attr.getName(), attr.getValue());
  result.replaceAllUsesWith(fused.getResult(0));
  if (match.sum) {
    // The norm goes; all other users take the sum.
    match.norm.erase();
    match.norm = {};
    match.before.replaceAllUsesWith(fused.getResult(1));
  }
  // From the last to the first; reshapes between them hang on nothing then.
  auto eraseUsers = [&](Value value) {
    SmallVector<Operation *> reshapes;
    SmallVector<Value> worklist = {value};
    while (!worklist.empty())
      for (Operation *user : worklist.pop_back_val().getUsers())
        if (onlyReshapes(user)) {
          reshapes.push_back(user);
          worklist.push_back(user->getResult(0));
        }
    for (Operation *reshape : llvm::reverse(reshapes))
      if (reshape->use_empty())
        reshape->erase();
  };
  if (match.gathers)
    match.product.erase();
  if (match.norm)
    match.norm.erase();
  if (match.sums.op) {
    eraseUsers(match.sums.op->getResult(0));
    match.sums.op.erase();
  }
  eraseUsers(op->getResult(0));
  Value input = op.getCollectiveInput();
  op->erase();
  while (Operation *definer = input.getDefiningOp()) {
    if (!isOpTriviallyDead(definer) || definer->getNumOperands() == 0)
      break;
    input = definer->getOperand(0);
    bool product = isa<comm::KernelOp>(definer);
    definer->erase();
    if (product)
      break;
  }
}

void Fuse::tryFuse(comm::CollectiveOpInterface op) {
  comm::CollectiveKind kind = op.getCollectiveKind();
  if (kind != comm::CollectiveKind::all_to_all &&
      kind != comm::CollectiveKind::all_gather &&
      kind != comm::CollectiveKind::reduce_scatter &&
      kind != comm::CollectiveKind::all_reduce)
    return;
  if (op.isAsync() || !op.getCollectiveKernel().empty())
    return;
  // Another member that does not fuse it alike would wait for another issue.
  if (auto view = viewIssue(op))
    if (StringRef why = members->whyNotAll(*view); !why.empty())
      return keep(op, why);
  if (kind == comm::CollectiveKind::all_to_all) {
    if (choices->bounded())
      return keep(op, "bounded-sizes");
    Outcome outcome =
        fuseExchange(op, {machine, force, exact, double(minGainPercent)});
    ++(outcome == Outcome::Fused ? numFused : numRefused);
    return;
  }
  Match match;
  match.collective = op;
  match.gathers = kind == comm::CollectiveKind::all_gather;
  match.scatters = kind == comm::CollectiveKind::reduce_scatter;
  auto type = dyn_cast<RankedTensorType>(op.getCollectiveInput().getType());
  if (!type || !type.hasStaticShape())
    return keep(op, "shape");
  match.type = fromMlirType(type.getElementType());
  if (!lowering::isFloating(match.type))
    return keep(op, "dtype");
  comm::DomainOp domain = comm::lookupDomain(op, op.getCollectiveDomain());
  auto size = domain ? domain.getUniformGroupSize() : std::nullopt;
  if (!size || *size < 2)
    return keep(op, "group-size");
  match.members = *size;
  // The kernels read and write the members' memory.
  cost::Placement where = placement(match);
  if (where.top() > 0 || !machine.levels[0].memory)
    return keep(op, "no-shared-memory");
  if (match.scatters && !choices->bounded() &&
      fuse::fuseUpdate(op, {machine, force, exact, minGainPercent}, erased) ==
          Outcome::Fused) {
    ++numFused;
    return;
  }
  if (const char *reason =
          match.gathers ? matchGather(match) : matchReduction(match))
    return keep(op, reason);
  int64_t bytes =
      match.rows * match.cols * static_cast<int64_t>(dtypeSize(match.type));
  // So small a payload travels with its flag, in one round instead of two.
  if ((*choices)(bytes <= kInlineBytes))
    return keep(op, "inline", " pair=" + match.pair());

  // The ways to fuse it; the one that gains most is taken.
  SmallVector<Match> ways;
  if (match.gathers) {
    ways.push_back(match);
  } else {
    bool plain = match.norm || match.sums.op;
    // Few rows cannot be divided: everyone needs whole ones.
    if (match.product) {
      ways.push_back(match);
      ways.back().fits =
          !match.norm || match.rows >= match.members * kRowsPerMember;
    }
    if (plain) {
      Match without = match;
      without.product = {};
      ways.push_back(without);
      ways.back().fits = match.rows >= match.members;
      without.every = !match.scatters;
      if (without.every)
        ways.push_back(without);
    }
  }
  if ((*choices)(llvm::none_of(ways, [](Match &way) { return way.fits; })))
    return keep(op, "few-rows", " pair=" + match.pair());
  Match *best = nullptr;
  Price bestPrice;
  Made bestMade;
  std::string why;
  for (Match &way : ways) {
    Made made;
    if (!way.fits || !make(way, made, why))
      continue;
    Price price = this->price(way);
    if (!best ||
        price.unfused - price.fused > bestPrice.unfused - bestPrice.fused) {
      best = &way;
      bestPrice = price;
      bestMade = made;
    }
  }
  int64_t chosen = (*choices)(int64_t(best ? best - ways.data() : -1));
  if (chosen >= 0 && (!best || chosen != best - ways.data())) {
    if (chosen >= static_cast<int64_t>(ways.size()) ||
        !make(ways[chosen], bestMade, why))
      return choices->mismatch();
    best = &ways[chosen];
    bestPrice = price(*best);
  }
  if (chosen < 0)
    return keep(op, "kernel",
                " pair=" + match.pair() + " message=\"" + why + "\"");
  std::string keys =
      " pair=" + best->pair() + " bytes=" + std::to_string(bytes) +
      " product_us=" + micro(bestPrice.compute) +
      " predicted_unfused_us=" + micro(bestPrice.compute + bestPrice.unfused) +
      " predicted_fused_us=" + micro(bestPrice.compute + bestPrice.fused);
  if ((*choices)(!force && bestPrice.unfused - bestPrice.fused <
                               minGainPercent / 100.0 * bestPrice.unfused))
    return keep(op, "no-gain", keys);
  if ((*choices)(!force && best->product && !best->gathers &&
                 bestPrice.unfused <
                     kLeastShare * (bestPrice.compute + bestPrice.unfused)))
    return keep(op, "small-share", keys);
  Operation *at = place(*best);
  if (!at)
    return keep(op, "order-of-uses", keys);
  explain(op, op->getLoc(), "comm-fuse", "fuse",
          best->every ? "every-rank-whole" : "fewer-bytes",
          "collective=" + stringifyCollectiveKind(kind).str() + keys);
  ++numFused;
  // For who measures it.
  double apart = bestPrice.compute + bestPrice.unfused;
  double together = bestPrice.compute + bestPrice.fused;
  op->setDiscardableAttr(
      kPredictedFusion,
      DenseF64ArrayAttr::get(&getContext(), {bestPrice.compute * 1e6,
                                             apart * 1e6, together * 1e6}));
  rewrite(*best, bestMade, at);
}

void Fuse::runOnOperation() {
  std::string error;
  if (!cost::loadMachine(machineName, "cpu", machine, error)) {
    getOperation().emitError() << "comm-fuse: " << error;
    return signalPassFailure();
  }
  choices.emplace(getOperation(), "comm-fuse");
  for (func::FuncOp function : entryFunctions(getOperation())) {
    SmallVector<comm::CollectiveOpInterface> issues = issuesOf(function);
    erased.clear();
    members.emplace(getOperation(), function);
    for (comm::CollectiveOpInterface op : issues)
      if (!erased.contains(op.getOperation()) && op->getNumResults() == 1)
        tryFuse(op);
  }
  if (failed(choices->finish()))
    signalPassFailure();
}
