//===- PlanBuilder.cpp - From a module to its plan table ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads the issues of a module, in program order, through
// CollectiveOpInterface.
//
//===----------------------------------------------------------------------===//

#include "common/PlanBuilder.h"

#include "common/Communicated.h"
#include "common/NodeBridge.h"
#include "concord/order/Certificate.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <map>
#include <set>

using namespace mlir;

namespace concord {

SmallVector<func::FuncOp> entryFunctions(ModuleOp module) {
  SmallVector<func::FuncOp> result;
  for (auto program : module.getOps<comm::ProgramOp>())
    if (auto function = module.lookupSymbol<func::FuncOp>(program.getEntry()))
      result.push_back(function);
  if (!result.empty())
    return result;
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && !function.isExternal())
      result.push_back(function);
  return result;
}

SmallVector<comm::CollectiveOpInterface> issuesOf(func::FuncOp function) {
  SmallVector<comm::CollectiveOpInterface> result;
  function.walk<WalkOrder::PreOrder>(
      [&](comm::CollectiveOpInterface op) { result.push_back(op); });
  return result;
}

uint64_t elementBytes(Type type) {
  if (auto complex = dyn_cast<ComplexType>(type))
    return 2 * elementBytes(complex.getElementType());
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.getNumElements() * elementBytes(vector.getElementType());
  if (!type.isIntOrFloat()) // an index, a pointer
    return sizeof(uint64_t);
  return std::max<uint64_t>(1, type.getIntOrFloatBitWidth() / 8);
}

std::string describeLocation(Location loc) {
  if (StringRef name = nodeName(loc); !name.empty())
    return name.str();
  if (auto file = dyn_cast<FileLineColLoc>(loc))
    return (file.getFilename().getValue() + ":" + Twine(file.getLine())).str();
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location inner : fused.getLocations())
      if (std::string text = describeLocation(inner); text != "unknown")
        return text;
  return "unknown";
}

BufferShape denseShape(Value value) {
  auto type = cast<ShapedType>(value.getType());
  BufferShape shape;
  shape.innerBytes = shape.strideBytes =
      type.getNumElements() * elementBytes(type.getElementType());
  return shape;
}

BufferShape bufferShape(comm::CollectiveOpInterface op, bool isInput) {
  Value value = isInput ? op.getCollectiveInput() : op.getCollectiveOutput();
  auto type = cast<ShapedType>(value.getType());
  int64_t dim =
      isInput ? op.getCollectiveSplitDim() : op.getCollectiveConcatDim();
  uint64_t bytes = type.getNumElements() * elementBytes(type.getElementType());
  BufferShape shape;
  // A side that is one whole tensor, not chunks of one.
  if (dim < 0) {
    shape.innerBytes = shape.strideBytes = bytes;
    return shape;
  }
  comm::DomainOp domain = comm::lookupDomain(op, op.getCollectiveDomain());
  int64_t size = domain.getUniformGroupSize().value_or(1);
  for (int64_t i = 0; i < dim; ++i)
    shape.outer *= type.getDimSize(i);
  shape.strideBytes = shape.outer ? bytes / shape.outer : 0;
  shape.innerBytes = shape.strideBytes / size;
  return shape;
}

namespace {

class Builder {
public:
  Builder(ModuleOp module, bool buffers) : module(module), buffers(buffers) {}
  FailureOr<plan::Plan> run();

private:
  LogicalResult program(func::FuncOp function, StringRef name, StringRef issuer,
                        ArrayRef<int64_t> ranks);
  LogicalResult block(Block &block, plan::Node &node);
  LogicalResult issue(comm::CollectiveOpInterface op);
  LogicalResult slot(comm::CollectiveOpInterface op, plan::Issue &issue);
  LogicalResult launch(comm::GroupOp op, plan::Node &node);
  plan::Buffer buffer(Value value, BufferShape shape);
  const std::set<int32_t> &places(uint32_t domain);

  ModuleOp module;
  bool buffers;
  plan::Plan result;
  plan::Program *current = nullptr;
  func::FuncOp function;
  llvm::StringMap<uint32_t> domains;
  llvm::DenseMap<Operation *, uint32_t> sites;
  std::vector<plan::Issue> launches;
  std::map<uint32_t, std::set<int32_t>> placesOf; ///< of the current program
  llvm::StringMap<uint32_t>
      slots; ///< bits of the optional ones that have names
  uint32_t numSlots = 0;
};

} // namespace

/// Where `value` lies: follows views to the arena, an input or an output.
plan::Buffer Builder::buffer(Value value, BufferShape shape) {
  plan::Buffer result;
  result.outer = shape.outer;
  result.innerBytes = shape.innerBytes;
  result.strideBytes = shape.strideBytes;
  result.space = plan::Buffer::Space::Foreign;
  std::optional<BufferPlace> place = placeOf(value);
  auto argument = place ? dyn_cast<BlockArgument>(place->root) : nullptr;
  if (!argument)
    return result;
  unsigned index = argument.getArgNumber();
  if (function.getArgAttr(index, "comm.arena")) {
    result.space = plan::Buffer::Space::Arena;
  } else if (auto out =
                 function.getArgAttrOfType<IntegerAttr>(index, "comm.output")) {
    result.space = plan::Buffer::Space::Output;
    result.index = out.getInt();
  } else if (auto in =
                 function.getArgAttrOfType<IntegerAttr>(index, "comm.input")) {
    result.space = plan::Buffer::Space::Input;
    result.index = in.getInt();
  } else {
    return result;
  }
  result.offset = place->offset;
  return result;
}

/// `slot = "always"`, `"optional"`, or `"optional:NAME"` for issues that are
/// used or left out together. Every slot is a bit of the round's decision.
LogicalResult Builder::slot(comm::CollectiveOpInterface op,
                            plan::Issue &issue) {
  auto attribute = op->getAttrOfType<StringAttr>("slot");
  if (!attribute || attribute.getValue() == "always")
    return success();
  StringRef text = attribute.getValue();
  if (text != "optional" && !text.starts_with("optional:"))
    return op->emitOpError() << "slot \"" << text
                             << "\" is none of \"always\", \"optional\" and "
                                "\"optional:NAME\"";
  issue.optional = true;
  issue.slot = text == "optional"
                   ? numSlots++
                   : slots.try_emplace(text, numSlots).first->second;
  numSlots = std::max(numSlots, issue.slot + 1);
  if (numSlots > 64)
    return op->emitOpError("is the 65th optional slot of a round, whose "
                           "decision has 64 bits; name slots that are used "
                           "together alike (slot = \"optional:NAME\")");
  return success();
}

/// Where in the groups of `domain` the ranks of the current program stand.
const std::set<int32_t> &Builder::places(uint32_t domain) {
  auto [found, isNew] = placesOf.try_emplace(domain);
  if (!isNew)
    return found->second;
  llvm::DenseSet<int32_t> running(current->ranks.begin(), current->ranks.end());
  for (const auto &group : result.domains[domain].groups)
    for (auto [index, rank] : llvm::enumerate(group))
      if (running.contains(rank))
        found->second.insert(static_cast<int32_t>(index));
  return found->second;
}

LogicalResult Builder::issue(comm::CollectiveOpInterface op) {
  plan::Issue issue;
  issue.kind = static_cast<plan::Kind>(op.getCollectiveKind());
  issue.synchronous = !op.isAsync();
  issue.lane = op.getLane();
  issue.location = describeLocation(op->getLoc());
  auto domain = domains.find(op.getCollectiveDomain().getValue());
  if (domain == domains.end())
    return op->emitOpError()
           << "domain " << op.getCollectiveDomain() << " is not defined";
  issue.domain = domain->second;
  issue.root = op.getCollectiveRoot();
  // The dialect numbers reductions like the plan (none, sum, prod, min, max,
  // ...).
  issue.reduction = static_cast<plan::Reduction>(op.getCollectiveReduction());
  if (failed(slot(op, issue)))
    return failure();
  // A barrier that carries a value: which optional slots the round uses.
  if (auto leader = op->getAttrOfType<IntegerAttr>("decides")) {
    if (issue.kind != plan::Kind::Barrier)
      return op->emitOpError(
          "has \"decides\", which only a comm.barrier takes");
    for (const auto &group : result.domains[issue.domain].groups)
      if (leader.getInt() < 0 ||
          leader.getInt() >= static_cast<int64_t>(group.size()))
        return op->emitOpError()
               << "lets group rank " << leader.getInt()
               << " decide, which is outside a group of " << group.size();
    issue.kind = plan::Kind::RoundDecision;
    issue.root = static_cast<int32_t>(leader.getInt());
    issue.synchronous = true;
  }
  Value input = op.getCollectiveInput(), output = op.getCollectiveOutput();
  Value data = input ? input : output;
  if (data) {
    auto type = cast<ShapedType>(data.getType());
    if (!type.hasStaticShape())
      return op->emitOpError(
          "has no static shape; fix the dimension with --dim");
    issue.dtype = fromMlirType(type.getElementType());
    int64_t size = 1;
    comm::DomainOp domainOp = comm::lookupDomain(op, op.getCollectiveDomain());
    if (auto uniform = domainOp.getUniformGroupSize())
      size = *uniform;
    uint64_t count = type.getNumElements();
    issue.fused = op.getCollectiveKernel().str();
    switch (op.getCollectiveKind()) {
    case comm::CollectiveKind::reduce_scatter:
    case comm::CollectiveKind::scatter:
    case comm::CollectiveKind::all_to_all:
      count /= size;
      break;
    default:
      break;
    }
    issue.count = count;
    uint64_t row = type.getRank() && type.getDimSize(0)
                       ? type.getNumElements() / type.getDimSize(0)
                       : 1;
    for (int64_t extent : op.getCollectiveSendSizes())
      issue.sendCounts.push_back(extent * row);
    for (int64_t extent : op.getCollectiveRecvSizes())
      issue.recvCounts.push_back(extent * row);
  }
  // Who transfers to whom, by the ranks that run this program; a member that is
  // its own peer passes by.
  if (op.getCollectivePairs().empty() &&
      (issue.kind == plan::Kind::Send || issue.kind == plan::Kind::Recv)) {
    std::set<std::array<int32_t, 2>> pairs;
    auto peer = static_cast<int32_t>(issue.root);
    for (int32_t self : places(issue.domain)) {
      if (self == peer)
        continue;
      if (issue.kind == plan::Kind::Send)
        pairs.insert({self, peer});
      else
        pairs.insert({peer, self});
    }
    issue.pairs.assign(pairs.begin(), pairs.end());
  }
  for (auto [source, target] : op.getCollectivePairs())
    issue.pairs.push_back(
        {static_cast<int32_t>(source), static_cast<int32_t>(target)});
  if (buffers && !issue.fused.empty()) {
    for (Value operand : issueBuffers(op))
      issue.buffers.push_back(buffer(operand, denseShape(operand)));
  } else if (buffers) {
    if (input)
      issue.buffers.push_back(buffer(input, bufferShape(op, true)));
    if (output)
      issue.buffers.push_back(buffer(output, bufferShape(op, false)));
  }
  sites[op] = current->issues.size();
  current->issues.push_back(std::move(issue));
  return success();
}

/// One launch in place of the transfers that it groups, which are the issues
/// right before. Its number is behind those of all issues, so that theirs stay.
LogicalResult Builder::launch(comm::GroupOp op, plan::Node &node) {
  plan::Issue group;
  group.kind = plan::Kind::Group;
  group.synchronous = false;
  group.location = describeLocation(op->getLoc());
  auto site =
      static_cast<uint32_t>(issuesOf(function).size() + launches.size());
  for (Value future : op.getFutures()) {
    Operation *start = future.getDefiningOp();
    uint32_t member = sites.lookup(start);
    group.domain = current->issues[member].domain;
    group.lane = current->issues[member].lane;
    group.members.push_back(member);
    sites[start] = site;
  }
  node.children.resize(node.children.size() - group.members.size());
  plan::Node child{plan::Node::Type::Issue};
  child.site = site;
  node.children.push_back(child);
  launches.push_back(std::move(group));
  return success();
}

/// Whether `root` or anything inside it communicates.
static bool communicates(Operation *root) {
  return root
      ->walk([](Operation *op) {
        return comm::isIssue(op) ? WalkResult::interrupt()
                                 : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Communication of a function that is called is not in the plan: refused,
/// because what is not in the plan is not proven either.
static LogicalResult refuseHidden(Operation &op) {
  auto call = dyn_cast<func::CallOp>(op);
  if (!call)
    return success();
  SmallVector<func::CallOp> worklist = {call};
  llvm::SmallPtrSet<Operation *, 8> seen;
  while (!worklist.empty()) {
    func::CallOp next = worklist.pop_back_val();
    auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
        next, next.getCalleeAttr());
    if (!callee || !seen.insert(callee).second)
      continue;
    if (communicates(callee))
      return call.emitOpError() << "reaches communication in @"
                                << callee.getSymName() << "; inline it first";
    callee.walk([&](func::CallOp inner) { worklist.push_back(inner); });
  }
  return success();
}

LogicalResult Builder::block(Block &block, plan::Node &node) {
  for (Operation &op : block) {
    if (auto collective = dyn_cast<comm::CollectiveOpInterface>(op)) {
      if (failed(issue(collective)))
        return failure();
      plan::Node child{plan::Node::Type::Issue};
      child.site = sites[&op];
      node.children.push_back(child);
      continue;
    }
    if (auto group = dyn_cast<comm::GroupOp>(op)) {
      if (failed(launch(group, node)))
        return failure();
      continue;
    }
    if (auto wait = dyn_cast<comm::WaitOp>(op)) {
      comm::StartOp start = wait.getStart();
      if (!start || !sites.count(start))
        return op.emitOpError(
            "waits for a future whose comm.start is not known");
      plan::Node child{plan::Node::Type::Wait};
      child.site = sites[start];
      node.children.push_back(child);
      continue;
    }
    if (failed(refuseHidden(op)))
      return failure();
    if (op.getNumRegions() == 0 || !communicates(&op))
      continue;
    if (!isa<scf::ForOp, scf::WhileOp, scf::IfOp, scf::IndexSwitchOp,
             scf::ExecuteRegionOp>(op))
      return op.emitOpError(
          "communicates in an order that its region does not fix");
    plan::Node child{isa<scf::ForOp, scf::WhileOp>(op)
                         ? plan::Node::Type::Loop
                         : plan::Node::Type::Branch};
    if (auto loop = dyn_cast<scf::ForOp>(op))
      if (auto count = loop.getStaticTripCount())
        child.tripCount = count->getZExtValue();
    for (Region &region : op.getRegions()) {
      plan::Node arm{plan::Node::Type::Seq};
      for (Block &inner : region)
        if (failed(this->block(inner, arm)))
          return failure();
      child.children.push_back(std::move(arm));
    }
    node.children.push_back(std::move(child));
  }
  return success();
}

LogicalResult Builder::program(func::FuncOp entry, StringRef name,
                               StringRef issuer, ArrayRef<int64_t> ranks) {
  result.programs.emplace_back();
  current = &result.programs.back();
  function = entry;
  current->name = name.str();
  current->issuer = issuer.str();
  current->ranks.assign(ranks.begin(), ranks.end());
  placesOf.clear();
  if (entry.isExternal())
    return entry.emitOpError("is the entry of a program and has no body");
  if (!entry.getBody().hasOneBlock() && communicates(entry))
    return entry.emitOpError("communicates under branches between blocks; only "
                             "structured control flow (scf) can be judged");
  launches.clear();
  if (failed(block(entry.getBody().front(), current->body)))
    return failure();
  for (plan::Issue &group : launches)
    current->issues.push_back(std::move(group));
  return success();
}

FailureOr<plan::Plan> Builder::run() {
  constexpr int64_t kMostRanks = 1 << 20; // that plan::parse takes
  const int64_t world = comm::getWorld(module);
  if (world < 1 || world > kMostRanks)
    return module.emitError()
           << "comm.world is " << world << ", not 1 to " << kMostRanks;
  result.world = static_cast<uint32_t>(world);
  for (auto domain : module.getOps<comm::DomainOp>()) {
    domains[domain.getSymName()] = result.domains.size();
    plan::Domain entry;
    entry.name = domain.getSymName().str();
    entry.priority = domain.getPriority();
    for (ArrayRef<int64_t> group : domain.getGroupRanks())
      entry.groups.emplace_back(group.begin(), group.end());
    result.domains.push_back(std::move(entry));
  }
  bool any = false;
  for (auto program : module.getOps<comm::ProgramOp>()) {
    auto entry = module.lookupSymbol<func::FuncOp>(program.getEntry());
    if (!entry)
      return program.emitOpError()
             << "entry " << program.getEntryAttr() << " is not a func.func";
    if (failed(this->program(entry, program.getSymName(), program.getIssuer(),
                             program.getRanks())))
      return failure();
    any = true;
  }
  if (any)
    return result;
  SmallVector<int64_t> all =
      llvm::to_vector(llvm::seq<int64_t>(0, result.world));
  for (func::FuncOp entry : entryFunctions(module))
    if (failed(program(entry, entry.getSymName(), "", all)))
      return failure();
  return result;
}

FailureOr<plan::Plan> buildPlan(ModuleOp module, bool buffers) {
  FailureOr<plan::Plan> plan = Builder(module, buffers).run();
  // Where issuers contradict each other there is no order to add, and the
  // verifier says why.
  std::vector<order::Finding> faults;
  if (succeeded(plan) && plan->programs.size() > 1 &&
      !order::orderRounds(*plan, faults))
    plan->rounds.clear();
  if (succeeded(plan) && !plan->rounds.empty())
    plan->assumptions.push_back("gate=hold");
  return plan;
}

} // namespace concord
