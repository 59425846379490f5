//===- Levels.cpp - Reductions over two levels ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A large reduction over several hosts is cheaper in three steps: scattered
// within each host, reduced between hosts, gathered within. Two small ones
// after another, over the rows and then the columns of a mesh, are cheaper as
// one.
//
//===----------------------------------------------------------------------===//

#include "common/Explain.h"
#include "simplify/Simplifier.h"

#include <map>
#include <set>

using namespace mlir;
using namespace concord;

using comm::CollectiveKind;
using comm::ReductionKind;

using Groups = SmallVector<SmallVector<int64_t>>;

static bool keepsBits(ReductionKind reduction, Type element) {
  return !isa<FloatType>(element) || reduction == ReductionKind::max ||
         reduction == ReductionKind::min;
}

/// A domain of exactly these groups: one that is there, or a new one.
comm::DomainOp Simplifier::domainFor(ArrayRef<SmallVector<int64_t>> groups,
                                     StringRef name) {
  for (auto domain : module.getOps<comm::DomainOp>())
    if (ArrayRef(domain.getGroupRanks()) == groups)
      return domain;
  OpBuilder builder(&module.getBody()->front());
  SmallVector<Attribute> list;
  for (ArrayRef<int64_t> group : groups)
    list.push_back(builder.getDenseI64ArrayAttr(group));
  std::string symbol = name.str();
  for (unsigned i = 2; module.lookupSymbol(symbol); ++i)
    symbol = (name + "_" + Twine(i)).str();
  return comm::DomainOp::create(builder, module.getLoc(), symbol,
                                builder.getArrayAttr(list), /*priority=*/0,
                                /*sym_visibility=*/nullptr);
}

/// Groups of what a reduction over `first`'s groups and then `second`'s
/// combines, when that counts every rank once; empty otherwise.
static Groups join(comm::DomainOp first, comm::DomainOp second) {
  Groups inner = first.getGroupRanks(), outer = second.getGroupRanks();
  std::map<int64_t, size_t> innerOf;
  for (auto [index, group] : llvm::enumerate(inner))
    for (int64_t rank : group)
      innerOf[rank] = index;
  // By the inner groups that they reach, outer groups fall into joined ones.
  std::map<std::set<size_t>, std::set<int64_t>> joined;
  std::set<int64_t> covered;
  for (ArrayRef<int64_t> group : outer) {
    std::set<size_t> reached;
    for (int64_t rank : group) {
      auto found = innerOf.find(rank);
      // Twice the same inner group would count it twice.
      if (found == innerOf.end() || !reached.insert(found->second).second)
        return {};
    }
    joined[reached].insert(group.begin(), group.end());
    covered.insert(group.begin(), group.end());
  }
  Groups result;
  std::set<int64_t> all;
  for (auto &[reached, ranks] : joined) {
    std::set<int64_t> combined;
    for (size_t index : reached)
      combined.insert(inner[index].begin(), inner[index].end());
    // Whoever takes part in the sum gets it.
    if (combined != ranks)
      return {};
    for (int64_t rank : ranks)
      if (!all.insert(rank).second)
        return {};
    result.emplace_back(ranks.begin(), ranks.end());
  }
  if (innerOf.size() != all.size() || covered != all)
    return {};
  llvm::sort(result, [](ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
    return a.front() < b.front();
  });
  return result;
}

bool Simplifier::joinLevels(Issue issue) {
  if (issue.kind() != CollectiveKind::all_reduce)
    return false;
  auto inner = viewIssueOf(issue.input());
  if (!inner || inner->kind() != CollectiveKind::all_reduce ||
      inner->op->getBlock() != issue.op->getBlock() ||
      inner->op.getCollectiveReduction() != issue.op.getCollectiveReduction())
    return false;
  ReductionKind reduction = issue.op.getCollectiveReduction();
  // An average of averages is the average only of groups of one size.
  if (reduction == ReductionKind::avg &&
      (!inner->domain().getUniformGroupSize() ||
       !issue.domain().getUniformGroupSize() || !isFloat(issue)))
    return false;
  Groups groups = join(inner->domain(), issue.domain());
  if (groups.empty())
    return false;
  StringRef action = "keep-all_reduce";
  if (llvm::any_of(inner->result.getUsers(), [&](Operation *user) {
        return user != issue.op.getOperation() && user != issue.last();
      }))
    return refuse(*inner, action, "used-between");
  bool same = keepsBits(reduction, issue.inputType().getElementType());
  if (options.exact && !same)
    return refuse(issue, action, "exact");
  auto bytes = static_cast<double>(wholeBytes(issue));
  double one = cost.seconds(CollectiveKind::all_reduce, bytes, groups);
  double two = seconds(CollectiveKind::all_reduce, bytes, *inner) +
               seconds(CollectiveKind::all_reduce, bytes, issue);
  // As long is good enough: there is one less to issue.
  if (choices(one > 1.001 * two))
    return refuse(issue, action, "cost");
  if (!fences.areNear(inner->op, issue.op))
    return refuse(issue, action, "fence");
  for (Issue each : {*inner, issue})
    if (StringRef why = whyNotAll(each); !why.empty())
      return refuse(each, action, why);
  std::string name = (inner->op.getCollectiveDomain().getValue() + "_" +
                      issue.op.getCollectiveDomain().getValue())
                         .str();
  comm::DomainOp domain = domainFor(groups, name);
  done(issue, "join-all_reduce", "two-levels",
       "with=@" + inner->op.getCollectiveDomain().getValue() + " over=@" +
           domain.getSymName() +
           (same ? " rounding=same" : " rounding=differs"));
  IssueForm form;
  form.kind = CollectiveKind::all_reduce;
  form.domain = FlatSymbolRefAttr::get(domain.getSymNameAttr());
  form.reduction = reduction;
  Issue joined =
      made(buildIssue(issue, form, inner->input(), issue.type()), issue);
  replace(issue.result, joined.result);
  Issue first = *inner;
  erase(issue);
  erase(first);
  return true;
}

bool Simplifier::splitLevels(Issue issue) {
  if (!cost.hasHosts() || issue.kind() != CollectiveKind::all_reduce)
    return false;
  // Each group as many members on each of its hosts.
  Groups within, between;
  int64_t members = 0, hosts = 0;
  for (ArrayRef<int64_t> group : issue.domain().getGroupRanks()) {
    std::map<int64_t, SmallVector<int64_t>> byHost;
    for (int64_t rank : group)
      byHost[cost.hostOf(rank)].push_back(rank);
    auto count = static_cast<int64_t>(byHost.begin()->second.size());
    if (!members) {
      members = count;
      hosts = static_cast<int64_t>(byHost.size());
    }
    if (static_cast<int64_t>(byHost.size()) != hosts || count != members)
      return false;
    for (auto &[host, list] : byHost) {
      if (static_cast<int64_t>(list.size()) != members)
        return false;
      within.push_back(list);
    }
    for (int64_t i = 0; i < members; ++i) {
      SmallVector<int64_t> across;
      for (auto &[host, list] : byHost)
        across.push_back(list[i]);
      between.push_back(across);
    }
  }
  if (members < 2 || hosts < 2)
    return false;
  StringRef action = "keep-all_reduce";
  // What divides at some sizes may not at others.
  if (choices.bounded())
    return refuse(issue, action, "bounded-sizes");
  ReductionKind reduction = issue.op.getCollectiveReduction();
  RankedTensorType type = issue.type();
  auto bytes = static_cast<double>(tensorBytes(type));
  // Whoever runs it may go level by level by himself, as recursive halving
  // does: rings, trees and direct exchange are what is known to be there.
  double one =
      cost.flatSeconds(CollectiveKind::all_reduce, bytes, issue.domain());
  double three = cost.seconds(CollectiveKind::reduce_scatter, bytes, within) +
                 cost.seconds(CollectiveKind::all_reduce,
                              bytes / static_cast<double>(members), between) +
                 cost.seconds(CollectiveKind::all_gather, bytes, within);
  if (three >= one)
    return refuse(issue, action, "cost");
  bool same = keepsBits(reduction, type.getElementType());
  if (options.exact && !same)
    return refuse(issue, action, "exact");
  if (reduction == ReductionKind::avg && !isFloat(issue))
    return refuse(issue, action, "integer-average");
  if (issue.wait)
    return refuse(issue, action, "started");
  if (type.getNumElements() % members)
    return refuse(issue, action, "does-not-divide");
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, action, why);
  done(issue, "split-all_reduce", "two-levels",
       "saved_ns=" + Twine(static_cast<int64_t>((one - three) * 1e9)) +
           (same ? " rounding=same" : " rounding=differs"));
  std::string name = issue.op.getCollectiveDomain().getValue().str();
  auto symbol = [](comm::DomainOp domain) {
    return FlatSymbolRefAttr::get(domain.getSymNameAttr());
  };
  FlatSymbolRefAttr inside = symbol(domainFor(within, name + "_host"));
  FlatSymbolRefAttr across = symbol(domainFor(between, name + "_hosts"));
  OpBuilder builder(issue.op);
  Location loc = issue.op->getLoc();
  Value flat = reshapeTo(builder, loc, issue.input(), type.getNumElements());
  auto part = RankedTensorType::get({type.getNumElements() / members},
                                    type.getElementType());
  IssueForm form;
  form.kind = CollectiveKind::reduce_scatter;
  form.domain = inside;
  form.reduction = reduction;
  form.dim = 0;
  Issue scattered = made(buildIssue(issue, form, flat, part), issue);
  form.kind = CollectiveKind::all_reduce;
  form.domain = across;
  Issue reduced = made(buildIssue(issue, form, scattered.result, part), issue);
  form.kind = CollectiveKind::all_gather;
  form.domain = inside;
  form.reduction = ReductionKind::none;
  Issue gathered = made(buildIssue(issue, form, reduced.result,
                                   cast<RankedTensorType>(flat.getType())),
                        issue);
  Value whole = reshapeTo(builder, loc, gathered.result, type.getShape());
  replace(issue.result, whole);
  erase(issue);
  return true;
}
