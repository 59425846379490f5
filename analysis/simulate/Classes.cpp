//===- Classes.cpp - Ranks and groups that behave alike -------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Classes.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace concord::simulate {
namespace {

using Signature = std::vector<int64_t>;

/// Dense numbers for equal signatures.
class Numbers {
public:
  uint32_t of(Signature signature) {
    return numbers.try_emplace(std::move(signature), numbers.size())
        .first->second;
  }
  size_t size() const { return numbers.size(); }

private:
  std::map<Signature, uint32_t> numbers;
};

/// Whether members of a domain's groups play different parts.
std::vector<bool> domainsWithParts(const Job &job) {
  std::vector<bool> result(job.domains.size());
  for (const Program &program : job.programs)
    for (const Issue &issue : program.issues)
      if (issue.kind == plan::Kind::Send || issue.kind == plan::Kind::Recv)
        result[issue.domain] = true;
  return result;
}

bool check(const Job &job, const cost::Machine &machine, std::string &error) {
  if (machine.ranks && job.world > machine.ranks) {
    error = "the program has " + std::to_string(job.world) + " ranks, '" +
            machine.name + "' (" + machine.source + ") has " +
            std::to_string(machine.ranks);
    return false;
  }
  for (const plan::Domain &domain : job.domains)
    for (const auto &group : domain.groups)
      for (int32_t rank : group)
        if (rank < 0 || static_cast<uint32_t>(rank) >= job.world) {
          error = "domain " + domain.name + " names rank " +
                  std::to_string(rank) + " of " + std::to_string(job.world);
          return false;
        }
  return true;
}

/// Size of a group and the blocks it lies in at every level.
Signature shapeOf(const cost::Machine &machine,
                  const std::vector<int32_t> &group) {
  cost::Placement placement = cost::place(machine, {{group}});
  Signature signature = {placement.ranks};
  for (const auto &span : placement.levels) {
    signature.push_back(span.members);
    signature.push_back(span.blocks);
  }
  return signature;
}

} // namespace

bool classify(const Job &job, const cost::Machine &machine, Classes &classes,
              std::string &error) {
  if (!check(job, machine, error))
    return false;
  uint32_t world = job.world;
  size_t domains = job.domains.size();
  // Which group of each domain a rank is in, and where.
  std::vector<std::vector<int32_t>> groupOf(domains), position(domains);
  std::vector<std::vector<uint32_t>> shapes(domains);
  Numbers shapeNumbers;
  for (size_t d = 0; d < domains; ++d) {
    groupOf[d].assign(world, -1);
    position[d].assign(world, -1);
    for (size_t g = 0; g < job.domains[d].groups.size(); ++g) {
      const auto &group = job.domains[d].groups[g];
      shapes[d].push_back(shapeNumbers.of(shapeOf(machine, group)));
      for (size_t i = 0; i < group.size(); ++i) {
        groupOf[d][group[i]] = static_cast<int32_t>(g);
        position[d][group[i]] = static_cast<int32_t>(i);
      }
    }
  }
  std::vector<bool> parts = domainsWithParts(job);

  std::vector<uint32_t> colour(world, 0);
  size_t colours = 0;
  {
    std::vector<int64_t> program(world, -1);
    for (size_t p = 0; p < job.programs.size(); ++p)
      for (int32_t rank : job.programs[p].ranks)
        if (rank >= 0 && static_cast<uint32_t>(rank) < world) {
          if (program[rank] >= 0) {
            error = "rank " + std::to_string(rank) + " runs both " +
                    job.programs[program[rank]].name + " and " +
                    job.programs[p].name +
                    "; several issuers on a rank cannot be simulated";
            return false;
          }
          program[rank] = static_cast<int64_t>(p);
        }
    Numbers numbers;
    for (uint32_t rank = 0; rank < world; ++rank) {
      Signature signature = {program[rank]};
      for (size_t d = 0; d < domains; ++d) {
        int32_t group = groupOf[d][rank];
        signature.push_back(group < 0 ? -1 : shapes[d][group]);
        signature.push_back(parts[d] ? position[d][rank] : 0);
      }
      colour[rank] = numbers.of(std::move(signature));
    }
    colours = numbers.size();
  }
  while (true) {
    // The colours of a group's members, in order where they play parts.
    std::vector<std::vector<uint32_t>> groupColour(domains);
    for (size_t d = 0; d < domains; ++d) {
      Numbers numbers;
      for (const auto &group : job.domains[d].groups) {
        Signature signature;
        for (int32_t rank : group)
          signature.push_back(colour[rank]);
        if (!parts[d]) {
          std::sort(signature.begin(), signature.end());
          signature.erase(std::unique(signature.begin(), signature.end()),
                          signature.end());
        }
        groupColour[d].push_back(numbers.of(std::move(signature)));
      }
    }
    Numbers numbers;
    std::vector<uint32_t> next(world);
    for (uint32_t rank = 0; rank < world; ++rank) {
      Signature signature = {colour[rank]};
      for (size_t d = 0; d < domains; ++d) {
        int32_t group = groupOf[d][rank];
        signature.push_back(group < 0 ? -1 : groupColour[d][group]);
      }
      next[rank] = numbers.of(std::move(signature));
    }
    colour = std::move(next);
    if (numbers.size() == colours)
      break;
    colours = numbers.size();
  }

  classes.classOf = colour;
  classes.ranks.assign(colours, {});
  for (uint32_t rank = 0; rank < world; ++rank)
    classes.ranks[colour[rank]].ranks.push_back(static_cast<int32_t>(rank));
  std::vector<int64_t> programOf(world, -1);
  for (size_t p = 0; p < job.programs.size(); ++p)
    for (int32_t rank : job.programs[p].ranks)
      if (rank >= 0 && static_cast<uint32_t>(rank) < world)
        programOf[rank] = static_cast<int64_t>(p);
  for (RankClass &one : classes.ranks)
    one.program = static_cast<uint32_t>(programOf[one.ranks.front()]);

  classes.groupOf.assign(colours, std::vector<int32_t>(domains, -1));
  // Links that are used: by block, how many groups of each class leave it.
  size_t levels = machine.levels.size();
  std::vector<std::map<int64_t, std::map<uint32_t, int64_t>>> leaving(levels);
  for (size_t d = 0; d < domains; ++d) {
    std::map<Signature, uint32_t> numbers;
    std::vector<std::vector<std::vector<int32_t>>> together;
    std::vector<uint32_t> classOfGroup;
    for (size_t g = 0; g < job.domains[d].groups.size(); ++g) {
      const auto &group = job.domains[d].groups[g];
      Signature signature;
      for (int32_t rank : group)
        signature.push_back(colour[rank]);
      if (!parts[d])
        std::sort(signature.begin(), signature.end());
      signature.push_back(shapes[d][g]);
      auto [at, fresh] = numbers.try_emplace(
          std::move(signature), static_cast<uint32_t>(classes.groups.size()));
      if (fresh) {
        GroupClass entry;
        entry.domain = static_cast<uint32_t>(d);
        entry.members = group;
        for (int32_t rank : group) {
          entry.memberClasses.push_back(colour[rank]);
          classes.groupOf[colour[rank]][d] = static_cast<int32_t>(at->second);
        }
        entry.classes = entry.memberClasses;
        std::sort(entry.classes.begin(), entry.classes.end());
        entry.classes.erase(
            std::unique(entry.classes.begin(), entry.classes.end()),
            entry.classes.end());
        classes.groups.push_back(std::move(entry));
        together.emplace_back();
      }
      together[at->second - (classes.groups.size() - together.size())]
          .push_back(group);
      classOfGroup.push_back(at->second);
    }
    for (size_t i = 0; i < together.size(); ++i)
      classes.groups[classes.groups.size() - together.size() + i].placement =
          cost::place(machine, together[i]);
    for (size_t l = 0; l < levels; ++l) {
      if (machine.levels[l].memory)
        continue;
      for (size_t g = 0; g < job.domains[d].groups.size(); ++g) {
        std::set<int64_t> blocks;
        for (int32_t rank : job.domains[d].groups[g])
          blocks.insert(l == 0 ? rank : machine.levels[l - 1].blockOf(rank));
        if (blocks.size() > 1)
          for (int64_t block : blocks)
            ++leaving[l][block][classOfGroup[g]];
      }
    }
  }
  for (size_t l = 0; l < levels; ++l) {
    std::map<std::map<uint32_t, int64_t>, uint32_t> seen;
    for (auto &[block, counts] : leaving[l]) {
      auto [at, fresh] = seen.try_emplace(
          counts, static_cast<uint32_t>(classes.resources.size()));
      if (fresh) {
        Resource resource;
        resource.level = static_cast<uint32_t>(l);
        resource.capacity = machine.levels[l].bandwidth *
                            static_cast<double>(machine.levels[l].ports);
        resource.blocks = 0;
        for (auto [group, count] : counts)
          classes.groups[group].uses.push_back({at->second,
                                                static_cast<uint32_t>(l),
                                                static_cast<double>(count)});
        classes.resources.push_back(resource);
      }
      ++classes.resources[at->second].blocks;
    }
  }
  return true;
}

} // namespace concord::simulate
