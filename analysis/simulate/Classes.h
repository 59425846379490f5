//===- Classes.h - Ranks and groups that behave alike -----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_SIMULATE_CLASSES_H
#define CONCORD_ANALYSIS_SIMULATE_CLASSES_H

#include "concord/simulate/Simulate.h"

namespace concord::simulate {

/// Groups of one domain with members of the same classes.
struct GroupClass {
  uint32_t domain = 0;
  std::vector<int32_t> members; ///< of one of them, the representative
  /// Class of each member, and each class once.
  std::vector<uint32_t> memberClasses, classes;
  cost::Placement placement;
  /// Resources that a transfer of these groups takes bytes through: index, the
  /// level, and how many of the groups do so there.
  struct Use {
    uint32_t resource;
    uint32_t level;
    double groups;
  };
  std::vector<Use> uses;
};

/// The links out of blocks that are used alike.
struct Resource {
  uint32_t level = 0;
  int64_t blocks = 1;
  double capacity = 0;
};

struct Classes {
  std::vector<RankClass> ranks;
  std::vector<uint32_t> classOf; ///< by rank
  std::vector<GroupClass> groups;
  /// By class and domain: index into groups, or -1.
  std::vector<std::vector<int32_t>> groupOf;
  std::vector<Resource> resources;
};

/// Colours ranks until no two of one colour differ in their program, in the
/// placement of their groups, or in the colours of those they communicate with.
bool classify(const Job &job, const cost::Machine &machine, Classes &classes,
              std::string &error);

} // namespace concord::simulate

#endif // CONCORD_ANALYSIS_SIMULATE_CLASSES_H
