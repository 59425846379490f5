//===- HloCollectives.cpp - Collectives of HLO as comm ops ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rank = replica * partitions + partition. Groups are meant in one of four
// ways, by whether there is a channel and `use_global_device_ids`.
//
//===----------------------------------------------------------------------===//

#include "import/HloCollectives.h"

#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <set>

using namespace mlir;

namespace concord {

static const char *const pureCalls[] = {
    "TopK",
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "te_fused_attn_forward_ffi",
    "te_fused_attn_backward_ffi",
    "__cublas$gemm",
    "__cublas$lt$matmul",
    "__cublas$lt$matmul$f8",
    "__cublas$triangularSolve",
    "__cudnn$convForward",
    "__cudnn$convBackwardInput",
    "__cudnn$convBackwardFilter",
    "__cudnn$convBiasActivationForward",
    "__cudnn$fmhaSoftmax",
    "__cudnn$fmhaSoftmaxBackward",
    "__cudnn$norm",
    "__onednn$matmul",
    "__onednn$softmax",
    "__onednn$layernorm",
    "__onednn$convolution",
    "Eigh",
    "Qr",
    "LuDecomposition",
    "ProductOfElementaryHouseholderReflectors",
    "cu_threefry2x32",
    "cu_threefry2x32_ffi",
    "AllocateBuffer",
    "annotate_device_placement"};
const ArrayRef<const char *> kPureCustomCalls(pureCalls);

static StringRef ref(std::string_view text) {
  return {text.data(), text.size()};
}

Type hloElementType(MLIRContext *context, StringRef element) {
  if (element == "pred")
    return IntegerType::get(context, 1);
  if (element == "c64")
    return ComplexType::get(Float32Type::get(context));
  if (element == "c128")
    return ComplexType::get(Float64Type::get(context));
  unsigned width;
  if (element.size() > 1 && !element.drop_front().getAsInteger(10, width)) {
    if (element[0] == 's')
      return IntegerType::get(context, width);
    if (element[0] == 'u')
      return IntegerType::get(context, width, IntegerType::Unsigned);
  }
  return llvm::StringSwitch<Type>(element)
      .Case("bf16", BFloat16Type::get(context))
      .Case("f16", Float16Type::get(context))
      .Case("f64", Float64Type::get(context))
      .Case("f8e5m2", Float8E5M2Type::get(context))
      .Case("f8e4m3", Float8E4M3Type::get(context))
      .Case("f8e4m3fn", Float8E4M3FNType::get(context))
      .Case("f8e4m3b11fnuz", Float8E4M3B11FNUZType::get(context))
      .Case("f8e4m3fnuz", Float8E4M3FNUZType::get(context))
      .Case("f8e5m2fnuz", Float8E5M2FNUZType::get(context))
      .Case("f8e3m4", Float8E3M4Type::get(context))
      .Case("f8e8m0fnu", Float8E8M0FNUType::get(context))
      .Case("f4e2m1fn", Float4E2M1FNType::get(context))
      .Default(Float32Type::get(context));
}

bool HloCollectives::isCollective(StringRef opcode) {
  return llvm::StringSwitch<bool>(opcode)
      .Cases({"all-reduce", "all-gather", "reduce-scatter", "all-to-all",
              "collective-permute", "collective-broadcast",
              "ragged-all-to-all"},
             true)
      .Default(false);
}

bool HloCollectives::isTransfer(const hlo::Instruction &op) {
  return (op.opcode == "send" || op.opcode == "recv") &&
         op.attribute("is_host_transfer") != "true";
}

bool HloCollectives::isCommunication(const hlo::Instruction &op) {
  StringRef code = ref(op.opcode);
  code.consume_back("-start");
  return isCollective(code) || isTransfer(op);
}

/// The largest rank that a module's collectives name, plus one.
static int64_t namedRanks(const hlo::Module &source, bool &channels) {
  int64_t ranks = 1;
  channels = false;
  std::set<std::string_view> seen;
  for (const hlo::Computation &computation : source.computations)
    for (const hlo::Instruction &op : computation.instructions) {
      if (!HloCollectives::isCommunication(op))
        continue;
      channels |= !op.attribute("channel_id").empty();
      for (std::string_view key : {"replica_groups", "source_target_pairs"}) {
        std::string_view text = op.attribute(key);
        if (text.empty() || !seen.insert(text).second)
          continue;
        for (auto &group : hlo::parseGroups(text))
          for (int64_t rank : group)
            ranks = std::max(ranks, rank + 1);
      }
    }
  return ranks;
}

bool HloCollectives::begin(ModuleOp into, int64_t world, std::string &error) {
  module = into;
  partitions = std::max<int64_t>(1, source.numPartitions);
  replicas = std::max<int64_t>(1, source.replicaCount);
  if (!source.numPartitions && !source.replicaCount) {
    bool channels;
    int64_t ranks = std::max(world, namedRanks(source, channels));
    (channels ? partitions : replicas) = ranks;
  } else if (!source.numPartitions) {
    bool channels;
    int64_t ranks = namedRanks(source, channels);
    // Flattened ids beyond the replicas: the header left the partitions out.
    if (channels && ranks > replicas && ranks % replicas == 0)
      partitions = ranks / replicas;
  }
  if (partitions > hlo::kMaxRanks / replicas) {
    error = "has more than " + std::to_string(hlo::kMaxRanks) + " ranks";
    return false;
  }
  if (world && world != this->world()) {
    error = "--world " + std::to_string(world) + " contradicts the module's " +
            std::to_string(this->world()) + " ranks";
    return false;
  }
  return true;
}

/// A name that says how the groups lie: @world, @x8 (8 neighbours), @x2s8 (2
/// ranks 8 apart), else @d0, @d1, ...
FlatSymbolRefAttr HloCollectives::domainFor(const Groups &groups) {
  auto found = domains.find(groups);
  if (found != domains.end())
    return found->second;
  size_t size = groups.front().size();
  int64_t stride = size > 1 ? groups.front()[1] - groups.front()[0] : 1;
  bool regular = stride > 0;
  for (const auto &group : groups) {
    regular = regular && group.size() == size;
    for (size_t i = 1; regular && i < size; ++i)
      regular = group[i] - group[i - 1] == stride;
  }
  std::string name = "d" + std::to_string(domains.size());
  if (regular && groups.size() == 1 && static_cast<int64_t>(size) == world() &&
      stride == 1)
    name = "world";
  else if (regular)
    name = "x" + std::to_string(size) +
           (stride > 1 ? "s" + std::to_string(stride) : "");
  std::string unique = name;
  for (unsigned i = 1; module.lookupSymbol(unique); ++i)
    unique = name + "_" + std::to_string(i);
  SmallVector<Attribute> list;
  for (const auto &group : groups)
    list.push_back(builder.getDenseI64ArrayAttr(group));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(module.getBody());
  comm::DomainOp::create(builder, builder.getUnknownLoc(), unique,
                         builder.getArrayAttr(list), 0, nullptr);
  return domains[groups] = FlatSymbolRefAttr::get(builder.getContext(), unique);
}

FlatSymbolRefAttr HloCollectives::worldDomain() {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < world(); ++rank)
    all.push_back(rank);
  return domainFor({all});
}

/// How groups are meant (HLO's "collective op group mode").
enum Mode { CrossReplica, CrossPartition, CrossBoth, Flattened };

static Mode modeOf(const hlo::Instruction &op, StringRef kind) {
  bool channel =
      !op.attribute("channel_id").empty() && op.attribute("channel_id") != "0";
  if (!channel)
    return CrossReplica;
  if (op.attribute("use_global_device_ids") == "true")
    return Flattened;
  bool both =
      kind == "all-reduce" || kind == "all-gather" || kind == "reduce-scatter";
  return both ? CrossBoth : CrossPartition;
}

bool HloCollectives::spend(int64_t ranks, std::string &error) {
  if (ranks <= budget) {
    budget -= ranks;
    return true;
  }
  error = "brings the groups of all collectives above 67108864 ranks";
  return false;
}

bool HloCollectives::resolve(const hlo::Instruction &op, StringRef kind,
                             Groups &groups, std::string &error) {
  Mode mode = modeOf(op, kind);
  std::string_view text = op.attribute("replica_groups");
  Groups named = text.empty() ? Groups() : hlo::parseGroups(text);
  int64_t limit = mode == Flattened        ? world()
                  : mode == CrossPartition ? partitions
                                           : replicas;
  if (named.empty()) {
    named.emplace_back();
    for (int64_t i = 0; i < limit; ++i)
      named.back().push_back(i);
  }
  std::vector<char> seen(limit, 0);
  for (const auto &group : named) {
    if (group.empty()) {
      error = "has an empty replica group";
      return false;
    }
    for (int64_t id : group) {
      if (id < 0 || id >= limit) {
        error = "names " + std::to_string(id) + " in its replica groups, of " +
                std::to_string(limit);
        return false;
      }
      if (seen[id]++) {
        error = "names " + std::to_string(id) +
                " in two places of its replica groups";
        return false;
      }
    }
  }
  // Who is in no group takes part in no broadcast; anything else every rank
  // calls.
  for (int64_t id = 0; id < limit; ++id) {
    if (seen[id])
      continue;
    if (kind != "collective-broadcast") {
      error = "does not name " + std::to_string(id) + " in its replica groups";
      return false;
    }
    named.push_back({id});
  }
  // A few words may stand for very many ranks; all groups together are bounded.
  if (!spend(world(), error))
    return false;
  groups.clear();
  switch (mode) {
  case Flattened:
    groups = std::move(named);
    break;
  case CrossReplica:
    for (const auto &group : named)
      for (int64_t partition = 0; partition < partitions; ++partition) {
        groups.emplace_back();
        for (int64_t replica : group)
          groups.back().push_back(replica * partitions + partition);
      }
    break;
  case CrossPartition:
    for (int64_t replica = 0; replica < replicas; ++replica)
      for (const auto &group : named) {
        groups.emplace_back();
        for (int64_t partition : group)
          groups.back().push_back(replica * partitions + partition);
      }
    break;
  case CrossBoth:
    for (const auto &group : named) {
      groups.emplace_back();
      for (int64_t replica : group)
        for (int64_t partition = 0; partition < partitions; ++partition)
          groups.back().push_back(replica * partitions + partition);
    }
    break;
  }
  return true;
}

/// Pairs as world ranks. Those of send and recv may stand among the frontend
/// attributes.
bool HloCollectives::resolvePairs(const hlo::Instruction &op, StringRef kind,
                                  Groups &pairs, std::string &error) {
  StringRef text = ref(op.attribute("source_target_pairs"));
  if (text.empty()) {
    StringRef frontend = ref(op.attribute("frontend_attributes"));
    StringRef key = "_xla_send_recv_source_target_pairs=";
    size_t at = frontend.find(key);
    if (at != StringRef::npos) {
      text = frontend.drop_front(at + key.size()).ltrim("\"");
      size_t end = text.find("}}");
      text = end == StringRef::npos ? StringRef() : text.take_front(end + 2);
    }
  }
  if (text.empty()) {
    error = "does not say who sends to whom (source_target_pairs)";
    return false;
  }
  Mode mode = modeOf(op, kind);
  int64_t limit = mode == Flattened      ? world()
                  : mode == CrossReplica ? replicas
                                         : partitions;
  // Modules without replicas number devices by partition, whatever the channel.
  if (mode == CrossReplica && replicas == 1) {
    mode = Flattened;
    limit = world();
  }
  Groups named = hlo::parseGroups({text.data(), text.size()});
  int64_t copies = mode == Flattened      ? 1
                   : mode == CrossReplica ? partitions
                                          : replicas;
  if (!spend(static_cast<int64_t>(named.size()) * copies, error))
    return false;
  for (auto &pair : named) {
    if (pair.size() != 2 || pair[0] >= limit || pair[1] >= limit) {
      error = "has a source_target_pair that is not two of " +
              std::to_string(limit) + " ranks";
      return false;
    }
    if (mode == Flattened)
      pairs.push_back(pair);
    else if (mode == CrossReplica)
      for (int64_t i = 0; i < partitions; ++i)
        pairs.push_back({pair[0] * partitions + i, pair[1] * partitions + i});
    else
      for (int64_t i = 0; i < replicas; ++i)
        pairs.push_back({i * partitions + pair[0], i * partitions + pair[1]});
  }
  return true;
}

/// The reduction that an applied computation is: its root, conversions around
/// it not counted.
std::optional<comm::ReductionKind>
HloCollectives::reductionOf(const hlo::Instruction &op) {
  if (op.called.size() != 1)
    return std::nullopt;
  const hlo::Computation &body = source.computations[op.called.front()];
  uint32_t at = body.root;
  while (true) {
    const hlo::Instruction &root = body.instructions[at];
    // In a partly manual computation JAX says of the sum too how it is sharded.
    bool passes = root.opcode == "convert" || root.opcode == "copy" ||
                  root.opcode == "bitcast" ||
                  root.opcode == "sdy.sharding_constraint" ||
                  root.attribute("custom_call_target") == "\"Sharding\"";
    if (!passes || root.operands.size() != 1)
      break;
    at = root.operands.front();
  }
  return llvm::StringSwitch<std::optional<comm::ReductionKind>>(
             ref(body.instructions[at].opcode))
      .Case("add", comm::ReductionKind::sum)
      .Case("multiply", comm::ReductionKind::prod)
      .Case("minimum", comm::ReductionKind::min)
      .Case("maximum", comm::ReductionKind::max)
      .Case("and", comm::ReductionKind::and_)
      .Case("or", comm::ReductionKind::or_)
      .Default(std::nullopt);
}

std::optional<HloCollectives::Description>
HloCollectives::describe(const hlo::Instruction &op, StringRef kind,
                         std::string &error) {
  Description what;
  what.kind = llvm::StringSwitch<comm::CollectiveKind>(kind)
                  .Case("all-gather", comm::CollectiveKind::all_gather)
                  .Case("reduce-scatter", comm::CollectiveKind::reduce_scatter)
                  .Cases({"all-to-all", "ragged-all-to-all"},
                         comm::CollectiveKind::all_to_all)
                  .Case("collective-permute", comm::CollectiveKind::permute)
                  .Case("collective-broadcast", comm::CollectiveKind::broadcast)
                  .Case("send", comm::CollectiveKind::send)
                  .Case("recv", comm::CollectiveKind::recv)
                  .Default(comm::CollectiveKind::all_reduce);
  bool paired =
      kind == "collective-permute" || kind == "send" || kind == "recv";
  try {
    if (paired) {
      Groups pairs;
      if (!resolvePairs(op, kind, pairs, error))
        return std::nullopt;
      SmallVector<Attribute> list;
      for (auto &pair : pairs)
        list.push_back(builder.getDenseI64ArrayAttr(pair));
      what.pairs = builder.getArrayAttr(list);
      what.domain = worldDomain();
      return what;
    }
    auto textKey =
        std::make_pair(op.attribute("replica_groups"),
                       2 * modeOf(op, kind) + (kind == "collective-broadcast"));
    auto known = byText.find(textKey);
    if (known == byText.end()) {
      Groups groups;
      if (!resolve(op, kind, groups, error))
        return std::nullopt;
      known = byText.try_emplace(textKey, domainFor(groups)).first;
    }
    what.domain = known->second;
    std::string_view dims = op.attribute("dimensions");
    if (kind == "all-gather" || kind == "reduce-scatter" ||
        (kind == "all-to-all" && !dims.empty())) {
      std::vector<int64_t> list =
          dims.empty() ? std::vector<int64_t>() : hlo::parseIntegers(dims);
      if (list.size() != 1) {
        error = "needs exactly one of `dimensions`";
        return std::nullopt;
      }
      what.dim = what.concat = list.front();
      std::string_view joined = op.attribute("concat_dimension");
      if (!joined.empty())
        what.concat = hlo::parseIntegers(joined).at(0);
    }
  } catch (const hlo::Error &failure) {
    error = std::string("is not well formed: ") + failure.what();
    return std::nullopt;
  }
  if (kind == "all-reduce" || kind == "reduce-scatter") {
    auto reduction = reductionOf(op);
    if (!reduction) {
      error =
          "applies a reduction that is none of sum, prod, min, max, and, or";
      return std::nullopt;
    }
    what.reduction = *reduction;
  }
  return what;
}

Value HloCollectives::issue(Location loc, const Description &what, Type type,
                            Value input, Value init) {
  FlatSymbolRefAttr at = what.domain;
  switch (what.kind) {
  case comm::CollectiveKind::all_gather:
    return comm::AllGatherOp::create(builder, loc, type, at.getValue(),
                                     what.dim, input, init)
        .getResult();
  case comm::CollectiveKind::reduce_scatter:
    return comm::ReduceScatterOp::create(builder, loc, type, at.getValue(),
                                         what.reduction, what.dim, input, init)
        .getResult();
  case comm::CollectiveKind::all_to_all:
    return comm::AllToAllOp::create(builder, loc, type, at.getValue(), what.dim,
                                    what.concat, nullptr, nullptr, input, init)
        .getResult();
  case comm::CollectiveKind::broadcast:
    return comm::BroadcastOp::create(builder, loc, type, at.getValue(), 0,
                                     input, init)
        .getResult();
  case comm::CollectiveKind::permute:
    return comm::PermuteOp::create(builder, loc, type, at.getValue(),
                                   what.pairs, input, init)
        .getResult();
  default:
    return comm::AllReduceOp::create(builder, loc, type, at.getValue(),
                                     what.reduction, input, init)
        .getResult();
  }
}

comm::StartOp HloCollectives::start(Location loc, const Description &what,
                                    Value input, Value init) {
  auto number = [&](bool wanted, int64_t value) {
    return wanted ? builder.getI64IntegerAttr(value) : IntegerAttr();
  };
  using K = comm::CollectiveKind;
  bool transfer = what.kind == K::send || what.kind == K::recv;
  bool exchange = what.kind == K::all_to_all;
  return comm::StartOp::create(
      builder, loc, comm::FutureType::get(builder.getContext()),
      comm::CollectiveKindAttr::get(builder.getContext(), what.kind),
      what.domain,
      what.reduction == comm::ReductionKind::none
          ? comm::ReductionKindAttr()
          : comm::ReductionKindAttr::get(builder.getContext(), what.reduction),
      number(what.kind == K::all_gather || what.kind == K::reduce_scatter,
             what.dim),
      number(exchange, what.dim), number(exchange, what.concat),
      number(what.kind == K::broadcast, 0),
      // With pairs, one start serves every rank; `peer` names the first one's.
      number(transfer,
             transfer && !what.pairs.empty()
                 ? cast<DenseI64ArrayAttr>(what.pairs[0])[what.kind == K::send]
                 : 0),
      what.pairs, DenseI64ArrayAttr(), DenseI64ArrayAttr(), input, init);
}

} // namespace concord
