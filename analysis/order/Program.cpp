//===- Program.cpp - A multi-rank program of issues -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Names and small queries of the issue model.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Program.h"

#include <algorithm>

namespace concord::order {

std::string Location::str() const {
  if (!line)
    return file;
  return file + ":" + std::to_string(line) +
         (column ? ":" + std::to_string(column) : "");
}

Config Config::portable() const {
  Config c;
  c.group = Profile::Atomic;
  c.sameDomainSerial = sameDomainSerial;
  return c;
}

std::string Config::str() const {
  static constexpr const char *orders[] = {"none", "launch", "serial"};
  static constexpr const char *profiles[] = {"indep", "inorder", "atomic"};
  return "K=" + std::to_string(slots) + " order=" + orders[size_t(order)] +
         " buf=" + std::to_string(buffer) +
         " group=" + profiles[size_t(group)] + " L=" +
         (launchDepth == kUnlimited ? "inf" : std::to_string(launchDepth)) +
         " samecomm=" + (sameDomainSerial ? "serial" : "free");
}

bool Domain::contains(Rank rank) const {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

std::string_view mnemonic(OpKind kind) {
  static constexpr std::string_view names[] = {
      "AR",  "AG",  "RS",  "A2A", "BC",  "RD",   "GA",   "SC",  "BAR",
      "SND", "RCV", "GRP", "K",   "REC", "WAIT", "SPIN", "SETF"};
  return names[size_t(kind)];
}

std::string_view longName(OpKind kind) {
  static constexpr std::string_view names[] = {
      "all_reduce", "all_gather",   "reduce_scatter", "all_to_all",
      "broadcast",  "reduce",       "gather",         "scatter",
      "barrier",    "send",         "recv",           "grouped launch",
      "kernel",     "event record", "event wait",     "spinning kernel",
      "flag store"};
  return names[size_t(kind)];
}

std::string toString(const Attributes &attributes) {
  std::string out;
  for (const auto &[key, value] : attributes)
    out += (out.empty() ? "" : ",") + key + "=" + value;
  return out;
}

uint32_t Program::deviceOfRank(Rank rank) const {
  for (uint32_t d = 0; d < devices.size(); ++d)
    if (devices[d].rank == rank)
      return d;
  return kNone;
}

std::string Program::describe(const Part &part, bool attributes) const {
  std::string out(mnemonic(part.kind));
  out += "(" + domains[part.domain].name;
  if (isTransfer(part.kind))
    out += "," + std::to_string(part.peer);
  if (attributes && !part.compared.empty())
    out += "," + toString(part.compared);
  return out + ")";
}

std::string Program::describe(const Operation &op) const {
  if (op.kind == OpKind::Group) {
    std::string out = "GRP{";
    for (size_t i = 0; i < op.parts.size(); ++i) {
      if (i == 4) {
        out += " ; .. " + std::to_string(op.parts.size()) + " transfers";
        break;
      }
      out += (i ? " ; " : "") + describe(op.parts[i]);
    }
    return out + "}";
  }
  if (!op.parts.empty())
    return describe(op.parts.front());
  std::string out(mnemonic(op.kind));
  if (op.kind == OpKind::Kernel)
    return out + "(" + op.label + ")";
  if (op.kind == OpKind::Record || op.kind == OpKind::Wait)
    return out + "(" + events[op.name] + ")";
  return out + "(" + flags[op.name] + ")";
}

std::string Program::describe(const Statement &stmt) const {
  switch (stmt.kind) {
  case StmtKind::Issue:
    return describe(ops[stmt.op]);
  case StmtKind::SyncDevice:
  case StmtKind::SyncProcess:
    return "sync";
  case StmtKind::SyncStream:
    return "sync[" + streams[stmt.stream] + "]";
  case StmtKind::MapMemory:
    return "mm!";
  case StmtKind::Free:
    return "free!";
  case StmtKind::LoadKernel:
    return "load!";
  case StmtKind::HostCollective:
    return "H:" + stmt.label + "(" + domains[stmt.domain].name +
           (stmt.compared.empty() ? "" : "," + toString(stmt.compared)) + ")";
  case StmtKind::Lock:
    return "lock(" + locks[stmt.name] + ")";
  case StmtKind::Unlock:
    return "unlock(" + locks[stmt.name] + ")";
  case StmtKind::SetFlag:
    return "set(" + flags[stmt.name] + ")";
  case StmtKind::AwaitFlag:
    return "await(" + flags[stmt.name] + ")";
  case StmtKind::Nop:
    return "nop";
  case StmtKind::Stall:
    return "stall";
  }
  return "?";
}

std::string Program::threadName(uint32_t thread) const {
  const Process &p = processes[threads[thread].process];
  if (p.threads.size() == 1 && p.devices.size() <= 1)
    return p.name;
  return p.name +
         (threads[thread].name.empty() ? "" : " " + threads[thread].name);
}

} // namespace concord::order
