//===- Uniform.cpp - What the members of a group have in common -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Uniform for control is: a constant; a whole (not split) argument of the entry
// function; the result of a collective that leaves the same value on every
// member; and what pure operations compute from uniform values. Where a search
// backwards finds something that may differ, the walk forwards has the last
// word: it knows which ranks a sharding gives the same part, and what two
// reductions after one another leave.
//
// Equal for data is finer. What a collective leaves on a rank depends on what
// its group's members brought, in order, and for some kinds on the rank's place
// among them; so two groups that brought the same leave the same, which is how
// the second step of a reduction over rows and then columns makes a value equal
// everywhere.
//
//===----------------------------------------------------------------------===//

#include "common/Uniform.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace concord {

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

/// Whether every member of `domain`'s groups gets the same value from `op`.
static bool makesEqual(comm::CollectiveOpInterface op,
                       FlatSymbolRefAttr domain) {
  // What a fused kernel makes of it may differ: a product with other weights.
  if (!op.getCollectiveKernel().empty())
    return false;
  switch (op.getCollectiveKind()) {
  case comm::CollectiveKind::all_reduce:
  case comm::CollectiveKind::all_gather:
  case comm::CollectiveKind::broadcast:
    break;
  default:
    return false;
  }
  comm::DomainOp from = comm::lookupDomain(op, op.getCollectiveDomain());
  comm::DomainOp to = comm::lookupDomain(op, domain);
  if (!from || !to)
    return false;
  // Each group of `domain` lies inside one group that was made equal.
  for (ArrayRef<int64_t> group : to.getGroupRanks()) {
    bool inside =
        llvm::any_of(from.getGroupRanks(), [&](ArrayRef<int64_t> wide) {
          return llvm::all_of(group, [&](int64_t rank) {
            return llvm::is_contained(wide, rank);
          });
        });
    if (!inside)
      return false;
  }
  return true;
}

/// A parameter of a set of models, one per rank.
static bool ofEachRank(comm::WeightOp weight) {
  return weight.getFile().contains("{rank}") ||
         weight.getSection().contains("{rank}");
}

/// Operations that yield something else on each run or device.
static bool isRandom(Operation *op) {
  StringRef name;
  if (auto compute = dyn_cast<comm::ComputeOp>(op))
    name = compute.getName();
  else if (auto kernel = dyn_cast<comm::KernelOp>(op))
    name = kernel.getDescription();
  return name.starts_with("rng") || name.starts_with_insensitive("random");
}

/// HLO's generators with a state of the device's own; the others compute from
/// the state that they are given.
static bool drawsItsOwn(Operation *op) {
  auto compute = dyn_cast<comm::ComputeOp>(op);
  return compute && (compute.getName() == "rng" ||
                     compute.getName() == "rng-get-and-update-state");
}

/// From here on each device has its own part of a value that was seen whole.
static bool takesOwnPart(Operation *op) {
  auto compute = dyn_cast<comm::ComputeOp>(op);
  return compute && (compute.getName() == "sdy.global_to_local" ||
                     compute.getName() == "SPMDFullToShardShape");
}

/// From here on the devices' parts are one value.
static bool makesWhole(Operation *op) {
  auto compute = dyn_cast<comm::ComputeOp>(op);
  return compute && (compute.getName() == "sdy.local_to_global" ||
                     compute.getName() == "SPMDShardToFullShape");
}

/// Whether an integer that follows from the rank alone is one number within
/// each group of `domain`: a place along another axis of the mesh.
static bool sameInGroups(Value value, FlatSymbolRefAttr domain,
                         RankValues &ranks) {
  const RankValues::Values *values = ranks.of(value);
  Operation *op = value.getDefiningOp();
  comm::DomainOp within =
      values && op ? comm::lookupDomain(op, domain) : comm::DomainOp();
  if (!within)
    return false;
  for (ArrayRef<int64_t> group : within.getGroupRanks())
    for (int64_t rank : group)
      if (rank < 0 || rank >= static_cast<int64_t>(values->size()) ||
          (*values)[rank] == RankValues::kUnknown ||
          (*values)[rank] != (*values)[group.front()])
        return false;
  return true;
}

static int64_t worldOf(ModuleOp module) {
  auto world =
      module ? module->getAttrOfType<IntegerAttr>("comm.world") : IntegerAttr();
  return world ? world.getInt() : 0;
}

static Value origin(Value value, FlatSymbolRefAttr domain, RankValues &ranks,
                    llvm::SmallPtrSetImpl<void *> &seen) {
  if (!seen.insert(value.getAsOpaquePointer()).second ||
      sameInGroups(value, domain, ranks))
    return {};
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *parent = argument.getOwner()->getParentOp();
    if (auto function = dyn_cast<func::FuncOp>(parent))
      return function.getArgAttr(argument.getArgNumber(), "comm.sharding")
                 ? value
                 : Value();
    // The arguments of the second region are what the first one hands on.
    if (auto loop = dyn_cast<scf::WhileOp>(parent);
        loop && argument.getOwner() == loop.getAfterBody())
      return origin(loop.getConditionOp().getArgs()[argument.getArgNumber()],
                    domain, ranks, seen);
    if (auto loop = dyn_cast<scf::WhileOp>(parent)) {
      unsigned index = argument.getArgNumber();
      if (Value from = origin(loop.getInits()[index], domain, ranks, seen))
        return from;
      return origin(loop.getYieldOp().getOperands()[index], domain, ranks,
                    seen);
    }
    if (auto loop = dyn_cast<LoopLikeOpInterface>(parent)) {
      for (Value operand : parent->getOperands())
        if (Value from = origin(operand, domain, ranks, seen))
          return from;
      if (auto *init = loop.getTiedLoopYieldedValue(argument))
        return origin(init->get(), domain, ranks, seen);
      return {};
    }
    return value;
  }
  Operation *op = value.getDefiningOp();
  if (auto loop = dyn_cast<scf::WhileOp>(op)) {
    // How often it ran is part of what comes out.
    if (Value from =
            origin(loop.getConditionOp().getCondition(), domain, ranks, seen))
      return from;
    return origin(loop.getConditionOp()
                      .getArgs()[cast<OpResult>(value).getResultNumber()],
                  domain, ranks, seen);
  }
  if (auto collective = dyn_cast<comm::CollectiveOpInterface>(op))
    return makesEqual(collective, domain) ? Value() : value;
  if (auto wait = dyn_cast<comm::WaitOp>(op)) {
    comm::StartOp start = wait.getStart();
    return start && makesEqual(start, domain) ? Value() : value;
  }
  if (auto weight = dyn_cast<comm::WeightOp>(op))
    return weight.getSplits() || ofEachRank(weight) ? value : Value();
  if (isa<comm::RankOp>(op) || takesOwnPart(op) || drawsItsOwn(op) ||
      (!isMemoryEffectFree(op) && op->getNumRegions() == 0))
    return value;
  for (Value operand : op->getOperands())
    if (Value from = origin(operand, domain, ranks, seen))
      return from;
  // What a branch yields is uniform if all that the arms yield is.
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (block.mightHaveTerminator())
        for (Value yielded : block.getTerminator()->getOperands())
          if (Value from = origin(yielded, domain, ranks, seen))
            return from;
  return {};
}

/// The value that may make `value` differ between the members of `domain`'s
/// groups, or null when it is uniform.
static Value originOfDifference(Value value, FlatSymbolRefAttr domain) {
  llvm::SmallPtrSet<void *, 16> seen;
  auto *parent = value.getParentRegion()->getParentOp();
  auto module = isa<ModuleOp>(parent) ? cast<ModuleOp>(parent)
                                      : parent->getParentOfType<ModuleOp>();
  RankValues ranks(module, worldOf(module));
  return origin(value, domain, ranks, seen);
}

SmallVector<Value> decidingValues(Operation *parent) {
  if (auto loop = dyn_cast<scf::WhileOp>(parent))
    return {loop.getConditionOp().getCondition()};
  SmallVector<Value> deciding;
  for (Value operand : parent->getOperands()) {
    // What a loop merely carries does not decide how often it runs.
    auto loop = dyn_cast<scf::ForOp>(parent);
    if (!loop || !llvm::is_contained(loop.getInits(), operand))
      deciding.push_back(operand);
  }
  return deciding;
}

bool Reach::isEqual(Value value, comm::CollectiveOpInterface issue) {
  auto asked = issue->getParentOfType<func::FuncOp>();
  comm::DomainOp domain =
      comm::lookupDomain(issue, issue.getCollectiveDomain());
  if (!asked || !domain)
    return false;
  if (asked != function) {
    auto module = asked->getParentOfType<ModuleOp>();
    equality = std::make_shared<Equality>(module, worldOf(module),
                                          Equality::Arguments::Whole);
    equality->run(asked);
    function = asked;
  }
  return equality->isEqual(value, domain);
}

Divergence Reach::of(comm::CollectiveOpInterface issue) {
  for (Operation *parent = issue->getParentOp();
       parent && !isa<func::FuncOp, ModuleOp>(parent);
       parent = parent->getParentOp()) {
    auto [entry, isNew] = known.try_emplace(
        std::make_pair(parent, Attribute(issue.getCollectiveDomain())));
    if (isNew)
      for (Value operand : decidingValues(parent))
        if (Value from =
                originOfDifference(operand, issue.getCollectiveDomain());
            from && !isEqual(operand, issue)) {
          entry->second = {parent, from};
          break;
        }
    if (entry->second.parent)
      return entry->second;
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

Equality::Equality(ModuleOp module, int64_t world, Arguments arguments)
    : module(module), world(std::max<int64_t>(world, 1)), arguments(arguments),
      wholeArguments(module->hasAttr("comm.mesh") || world <= 1) {
  intern(Labels(this->world, 0));
  Labels each(this->world);
  for (size_t rank = 0; rank < each.size(); ++rank)
    each[rank] = rank;
  different = intern(std::move(each));
}

/// The id of a partition; labels are made canonical (first come, first named).
Equality::Id Equality::intern(Labels labels) {
  llvm::DenseMap<uint32_t, uint32_t> names;
  for (uint32_t &label : labels)
    label = names.try_emplace(label, names.size()).first->second;
  auto [entry, isNew] = ids.try_emplace(labels, ids.size());
  if (isNew)
    table.push_back(std::move(labels));
  return entry->second;
}

/// The coarsest partition that is finer than both.
Equality::Id Equality::meet(Id a, Id b) {
  if (a == b || b == kSame)
    return a;
  if (a == kSame)
    return b;
  if (a == different || b == different)
    return different;
  auto key = std::minmax(a, b);
  auto found = meets.find(key);
  if (found != meets.end())
    return found->second;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> names;
  Labels labels(world);
  for (int64_t rank = 0; rank < world; ++rank)
    labels[rank] =
        names.try_emplace({table[a][rank], table[b][rank]}, names.size())
            .first->second;
  Id id = intern(std::move(labels));
  meets[key] = id;
  return id;
}

Equality::Id Equality::get(Value value) const {
  auto found = classes.find(value);
  return found == classes.end() ? different : found->second;
}

/// Whether that is news.
bool Equality::set(Value value, Id id) {
  auto [entry, isNew] = classes.try_emplace(value, id);
  if (!isNew && entry->second == id)
    return false;
  entry->second = id;
  return true;
}

void Equality::alike(Value value, Value like) {
  Id id = get(like);
  classes.try_emplace(value, id);
}

bool Equality::isEqual(Value value, comm::DomainOp domain) {
  const Labels &labels = table[get(value)];
  for (ArrayRef<int64_t> group : domain.getGroupRanks())
    for (int64_t rank : group)
      if (rank >= world || labels[rank] != labels[group.front()])
        return false;
  return true;
}

const std::vector<std::pair<int32_t, int32_t>> &
Equality::placesOf(comm::DomainOp domain) {
  auto [entry, isNew] = places.try_emplace(domain);
  if (!isNew)
    return entry->second;
  entry->second.assign(world, {-1, -1});
  for (auto [index, group] : llvm::enumerate(domain.getGroupRanks()))
    for (auto [position, rank] : llvm::enumerate(group))
      if (rank < world)
        entry->second[rank] = {static_cast<int32_t>(index),
                               static_cast<int32_t>(position)};
  return entry->second;
}

/// Ranks of one place in their groups; a rank outside is like no other.
Equality::Id Equality::byGroupRank(comm::DomainOp domain) {
  Labels labels(world);
  for (auto [rank, place] : llvm::enumerate(placesOf(domain)))
    labels[rank] = place.second < 0 ? world + rank : place.second;
  return intern(std::move(labels));
}

Equality::Id Equality::bySplits(ArrayAttr splits) {
  if (splits.empty())
    return different;
  Id id = kSame;
  for (Attribute attr : splits) {
    auto split = dyn_cast<comm::SplitAttr>(attr);
    auto domain = split ? module.lookupSymbol<comm::DomainOp>(split.getDomain())
                        : comm::DomainOp();
    if (!domain)
      return different;
    id = meet(id, byGroupRank(domain));
  }
  return id;
}

/// By the part of a value that a sharding gives each rank.
Equality::Id Equality::byParts(DenseI64ArrayAttr parts) {
  if (static_cast<int64_t>(parts.size()) != world)
    return different;
  llvm::DenseMap<int64_t, uint32_t> names;
  Labels labels;
  for (int64_t part : parts.asArrayRef())
    labels.push_back(names.try_emplace(part, names.size()).first->second);
  return intern(std::move(labels));
}

/// Inputs are what each rank was given. They are equal where the partitioner
/// says so, or whoever made the module (`comm.replicated`).
Equality::Id Equality::ofArgument(func::FuncOp function, unsigned index) {
  if (auto parts =
          function.getArgAttrOfType<DenseI64ArrayAttr>(index, "comm.parts"))
    return byParts(parts);
  if (auto splits =
          function.getArgAttrOfType<ArrayAttr>(index, "comm.sharding"))
    return bySplits(splits);
  if (wholeArguments || arguments == Arguments::Whole ||
      function.getArgAttr(index, "comm.replicated"))
    return kSame;
  return different;
}

/// A value where it becomes each device's own, or one value again.
std::optional<Equality::Id> Equality::ofChangedView(Operation &op) {
  bool own = takesOwnPart(&op);
  if (!own && !makesWhole(&op))
    return std::nullopt;
  Id id = kSame;
  for (Value operand : op.getOperands())
    id = meet(id, get(operand));
  auto parts = op.getAttrOfType<DenseI64ArrayAttr>("parts");
  auto copies = op.getAttrOfType<DenseI64ArrayAttr>("copies");
  if (own)
    return parts ? meet(id, byParts(parts)) : different;
  if (!parts || !copies || static_cast<int64_t>(parts.size()) != world ||
      static_cast<int64_t>(copies.size()) != world ||
      arguments != Arguments::Whole)
    return id;
  // As a gather would leave it: each copy of the whole is made of one copy of
  // each part.
  std::map<int64_t, std::map<int64_t, uint32_t>> wholes;
  for (int64_t rank = 0; rank < world; ++rank)
    wholes[copies[rank]][parts[rank]] = table[id][rank];
  std::map<std::map<int64_t, uint32_t>, uint32_t> names;
  Labels labels(world);
  for (int64_t rank = 0; rank < world; ++rank)
    labels[rank] =
        names.try_emplace(wholes[copies[rank]], names.size()).first->second;
  return intern(std::move(labels));
}

Equality::Id Equality::ofCollective(comm::CollectiveOpInterface op) {
  comm::DomainOp domain =
      module.lookupSymbol<comm::DomainOp>(op.getCollectiveDomain());
  Value input = op.getCollectiveInput();
  // What a fused kernel makes of it may differ: a product with other weights.
  if (!domain || !input || !op.getCollectiveKernel().empty())
    return different;
  auto kind = op.getCollectiveKind();
  bool whole = kind == comm::CollectiveKind::all_reduce ||
               kind == comm::CollectiveKind::all_gather ||
               kind == comm::CollectiveKind::broadcast;
  bool placed = kind == comm::CollectiveKind::reduce_scatter ||
                kind == comm::CollectiveKind::all_to_all ||
                kind == comm::CollectiveKind::scatter ||
                kind == comm::CollectiveKind::permute;
  if (!whole && !placed)
    return different;
  Id brought = get(input);
  // Rooted kinds and pairs depend on more than the domain; they are rare.
  bool plain = kind != comm::CollectiveKind::broadcast &&
               kind != comm::CollectiveKind::scatter &&
               kind != comm::CollectiveKind::permute;
  Operation *key = domain;
  std::pair<Operation *, Id> memo{key, brought * 2 + placed};
  if (plain)
    if (auto found = combined.find(memo); found != combined.end())
      return found->second;

  const Labels &labels = table[brought];
  const auto &place = placesOf(domain);
  std::vector<Labels> groups;
  for (ArrayRef<int64_t> group : domain.getGroupRanks()) {
    Labels sequence;
    for (int64_t rank : group)
      sequence.push_back(rank < world ? labels[rank] : world);
    if (kind == comm::CollectiveKind::broadcast ||
        kind == comm::CollectiveKind::scatter) {
      int64_t root = op.getCollectiveRoot();
      if (root < 0 || root >= static_cast<int64_t>(sequence.size()))
        return different;
      sequence = {sequence[root]};
    }
    groups.push_back(std::move(sequence));
  }
  llvm::DenseMap<int64_t, int64_t> sources;
  for (auto [source, target] : op.getCollectivePairs())
    sources[target] = source;
  std::map<std::pair<Labels, int64_t>, uint32_t> names;
  Labels result(world);
  for (int64_t rank = 0; rank < world; ++rank) {
    auto [group, position] = place[rank];
    std::pair<Labels, int64_t> what{{}, -2 - rank}; // in no group: alone
    if (group >= 0 && kind == comm::CollectiveKind::permute) {
      auto source = sources.find(position);
      if (source == sources.end())
        what = {{}, -1}; // zeros
      else if (source->second < static_cast<int64_t>(groups[group].size()))
        what = {{groups[group][source->second]}, 0};
    } else if (group >= 0) {
      what = {groups[group], placed ? position : 0};
    }
    result[rank] =
        names.try_emplace(std::move(what), names.size()).first->second;
  }
  Id id = intern(std::move(result));
  if (plain)
    combined[memo] = id;
  return id;
}

void Equality::run(func::FuncOp function) {
  classes.clear();
  started.clear();
  if (function.isExternal())
    return;
  RankValues ranks(module, world);
  rankValues = &ranks;
  for (Block &block : function.getBody())
    for (BlockArgument argument : block.getArguments())
      (void)set(argument, block.isEntryBlock()
                              ? ofArgument(function, argument.getArgNumber())
                              : different);
  for (Block &block : function.getBody())
    (void)visit(block);
  rankValues = nullptr;
}

bool Equality::visit(Block &block) {
  bool news = false;
  for (Operation &op : block)
    news |= visit(op);
  return news;
}

bool Equality::visit(Operation &op) {
  auto all = [&](Id id) {
    bool news = false;
    for (Value result : op.getResults())
      news |= set(result, id);
    return news;
  };
  if (auto rank = dyn_cast<comm::RankOp>(op)) {
    auto domain = module.lookupSymbol<comm::DomainOp>(rank.getDomain());
    return all(domain ? byGroupRank(domain) : different);
  }
  if (auto size = dyn_cast<comm::SizeOp>(op)) {
    auto domain = module.lookupSymbol<comm::DomainOp>(size.getDomain());
    return all(domain && domain.getUniformGroupSize() ? kSame : different);
  }
  if (auto weight = dyn_cast<comm::WeightOp>(op)) {
    if (ofEachRank(weight))
      return all(different);
    return all(weight.getSplits() ? bySplits(*weight.getSplits()) : kSame);
  }
  if (auto start = dyn_cast<comm::StartOp>(op)) {
    started[start] = ofCollective(start);
    return false;
  }
  if (auto wait = dyn_cast<comm::WaitOp>(op)) {
    auto found = started.find(wait.getFuture().getDefiningOp());
    return all(found == started.end() ? different : found->second);
  }
  if (auto collective = dyn_cast<comm::CollectiveOpInterface>(op))
    return all(ofCollective(collective));
  bool controls = isa<scf::ForOp, scf::WhileOp, scf::IfOp, scf::IndexSwitchOp,
                      scf::ExecuteRegionOp>(op);
  if (controls)
    return visitRegions(op);
  if (std::optional<Id> id = ofChangedView(op))
    return all(*id);
  if (!isMemoryEffectFree(&op) || isRandom(&op))
    return all(different);
  // A number that follows from the rank alone may be the same where the ranks
  // are not: a place along an axis of the mesh.
  if (op.getNumResults() == 1 && op.getNumRegions() == 0)
    if (const RankValues::Values *values = rankValues->of(op.getResult(0));
        values && !llvm::is_contained(*values, RankValues::kUnknown)) {
      llvm::DenseMap<int64_t, uint32_t> names;
      Labels labels;
      for (int64_t value : *values)
        labels.push_back(names.try_emplace(value, names.size()).first->second);
      return all(intern(std::move(labels)));
    }
  Id id = kSame;
  for (Value operand : op.getOperands())
    id = meet(id, get(operand));
  if (op.getNumRegions()) {
    llvm::SetVector<Value> captured;
    getUsedValuesDefinedAbove(op.getRegions(), captured);
    for (Value value : captured)
      id = meet(id, get(value));
    // Inside a body of scalars nothing is asked about.
  }
  return all(id);
}

bool Equality::visitRegions(Operation &op) {
  bool news = false;
  // How often a loop runs, or which arm, is part of what comes out.
  Id decision = kSame;
  auto finish = [&](ValueRange results, ArrayRef<Id> yielded) {
    for (auto [result, id] : llvm::zip(results, yielded))
      news |= set(result, meet(id, decision));
  };
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    for (Value bound :
         {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()})
      decision = meet(decision, get(bound));
    (void)set(loop.getInductionVar(),
              meet(get(loop.getLowerBound()), get(loop.getStep())));
    SmallVector<Id> carried;
    for (Value init : loop.getInits())
      carried.push_back(get(init));
    // Partitions only get finer, so this ends; in practice after two rounds.
    while (true) {
      for (auto [argument, id] : llvm::zip(loop.getRegionIterArgs(), carried))
        news |= set(argument, id);
      (void)visit(*loop.getBody());
      bool finer = false;
      for (auto [id, value] : llvm::zip(carried, loop.getYieldedValues())) {
        Id next = meet(id, get(value));
        finer |= next != id;
        id = next;
      }
      if (!finer)
        break;
    }
    finish(loop.getResults(), carried);
    return news;
  }
  if (auto loop = dyn_cast<scf::WhileOp>(op)) {
    SmallVector<Id> carried;
    for (Value init : loop.getInits())
      carried.push_back(get(init));
    while (true) {
      for (auto [argument, id] : llvm::zip(loop.getBeforeArguments(), carried))
        news |= set(argument, id);
      (void)visit(*loop.getBeforeBody());
      for (auto [argument, value] :
           llvm::zip(loop.getAfterArguments(), loop.getConditionOp().getArgs()))
        news |= set(argument, get(value));
      (void)visit(*loop.getAfterBody());
      bool finer = false;
      for (auto [id, value] :
           llvm::zip(carried, loop.getYieldOp().getOperands())) {
        Id next = meet(id, get(value));
        finer |= next != id;
        id = next;
      }
      if (!finer)
        break;
    }
    decision = get(loop.getConditionOp().getCondition());
    SmallVector<Id> handed;
    for (Value value : loop.getConditionOp().getArgs())
      handed.push_back(get(value));
    finish(loop.getResults(), handed);
    return news;
  }
  for (Value operand : op.getOperands())
    decision = meet(decision, get(operand));
  SmallVector<Id> yielded(op.getNumResults(), kSame);
  for (Region &region : op.getRegions())
    for (Block &block : region) {
      news |= visit(block);
      if (auto yield = dyn_cast_or_null<scf::YieldOp>(
              block.mightHaveTerminator() ? block.getTerminator() : nullptr))
        for (auto [id, value] : llvm::zip(yielded, yield.getOperands()))
          id = meet(id, get(value));
    }
  finish(op.getResults(), yielded);
  return news;
}

} // namespace concord
