//===- OperatorLog.h - Logs with a line per issued operator -----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What HCCL's and NCCL's logs have in common: processes that join domains under
// an identifier and then issue operators on them. Global ranks, members and
// instance numbers follow from these.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_EVIDENCE_OPERATORLOG_H
#define CONCORD_ANALYSIS_ORDER_EVIDENCE_OPERATORLOG_H

#include "concord/order/Evidence.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace concord::order::evidence::operators {

struct Operator {
  std::string_view name, kind;
  bool reduction, root, sized, transfer;
};
/// The operator that a name begins with, "AllReduceInner"; nullptr if none.
const Operator *find(std::string_view name);

struct Entry {
  uint64_t time = 0; ///< orders only; 0: none
  uint32_t file = 0, line = 0;
  const Operator *op = nullptr;
  uint32_t identifier = kNone, stream = kNone, thread = kNone; ///< strings
  uint32_t signature = kNone;
  int64_t peer = -1;     ///< group rank
  uint64_t launch = 0;   ///< neighbours with one number were one launch; 0: own
  bool variable = false; ///< counts differ legally
};

struct Membership {
  uint32_t identifier;
  int64_t size, rank;
};

struct Process {
  std::vector<Entry> entries;
  std::vector<Membership> memberships;
  std::vector<ErrorLine> errors;
  std::set<uint32_t> files;
  Rank fromPath = -1;
  Rank rank = -1;
};

/// By what tells a process from others: a folder or host, and a number.
using Processes = std::map<std::pair<std::string, std::string>, Process>;

/// Put the processes into the job as ranks: global ranks are those of the
/// largest domain, else those of the files' names, else any. Returns whether
/// there were any; `unknownPeers` whether some transfer could not be paired.
bool addProcesses(Processes &processes, Job &job, bool &unknownPeers);

} // namespace concord::order::evidence::operators

#endif // CONCORD_ANALYSIS_ORDER_EVIDENCE_OPERATORLOG_H
