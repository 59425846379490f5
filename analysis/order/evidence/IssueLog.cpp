//===- IssueLog.cpp - Concord's own issue logs ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One block per rank (concord/issuelog.h), from a file or from the memory of a
// job that hangs. Unlike foreign evidence it has streams, launches, peers,
// numbers that members share, and what the host threads wait in.
//
//===----------------------------------------------------------------------===//

#include "concord/issuelog.h"
#include "concord/dtype.h"
#include "concord/order/Evidence.h"
#include "concord/plan.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace concord::order::evidence {

using namespace concord::issuelog;

namespace {

constexpr const char *kKinds[] = {
    "none",       "all_reduce", "all_gather",    "reduce_scatter",
    "all_to_all", "broadcast",  "reduce",        "gather",
    "scatter",    "permute",    "send",          "recv",
    "barrier",    "group",      "round_decision"};
constexpr const char *kReductions[] = {"none", "sum", "prod", "min",
                                       "max",  "avg", "and",  "or"};

std::string text(const uint64_t *words, size_t count) {
  std::string out(count * 8, '\0');
  std::memcpy(out.data(), words, count * 8);
  return out.substr(0, out.find('\0'));
}

/// A record, taken apart and checked.
struct Line {
  uint64_t number, instance, count, launch;
  uint32_t site, thread, domain, stream, kind, dtype, reduction;
  int32_t root;
  issuelog::State state;

  bool read(const Record &r) {
    number = r.number;
    instance = r.instance;
    count = r.count;
    launch = r.launch;
    site = uint32_t(r.site);
    thread = uint32_t(r.site >> 32);
    domain = uint32_t(r.place);
    stream = uint32_t(r.place >> 32);
    kind = uint16_t(r.what);
    dtype = uint16_t(r.what >> 16);
    reduction = uint16_t(r.what >> 32);
    root = int32_t(uint16_t(r.what >> 48)) - 1;
    state = issuelog::State(r.state);
    return number && kind > 0 && kind < std::size(kKinds) &&
           dtype <= uint32_t(DType::F8E5M2) &&
           reduction < std::size(kReductions) && domain < kDomains &&
           r.state <= uint64_t(issuelog::State::Failed) &&
           instance < uint64_t(1) << 48;
  }
  bool transfer() const {
    return plan::Kind(kind) == plan::Kind::Send ||
           plan::Kind(kind) == plan::Kind::Recv;
  }
  std::string signature() const {
    std::string out = kKinds[kind];
    // Both sides of a transfer have to say the same.
    if (transfer())
      out = "transfer";
    if (count)
      out += "(n=" + std::to_string(count) + "," +
             std::string(dtypeName(DType(dtype)));
    else
      out += "(";
    if (reduction)
      out += std::string(",") + kReductions[reduction];
    if (root >= 0 && !transfer() && plan::Kind(kind) != plan::Kind::Permute)
      out += ",root=" + std::to_string(root);
    return out + ")";
  }
};

std::vector<Rank> membersOf(const issuelog::Domain &domain) {
  std::vector<Rank> members;
  for (size_t i = 0; i < std::min<uint64_t>(domain.size, kMaxMembers); ++i)
    members.push_back(Rank(uint8_t(domain.members[i / 8] >> (8 * (i % 8)))));
  return members;
}

/// The records in order of issue.
std::vector<Line> linesOf(const Block &block, uint64_t &bad) {
  std::vector<Line> lines;
  for (const Record &record : block.records) {
    Line line;
    if (record.number == 0)
      continue;
    if (line.read(record))
      lines.push_back(line);
    else
      ++bad;
  }
  std::sort(lines.begin(), lines.end(),
            [](const Line &a, const Line &b) { return a.number < b.number; });
  return lines;
}

const char *waitText(HostState state) {
  switch (state) {
  case HostState::DeviceSync:
    return "synchronises the device";
  case HostState::StreamSync:
    return "synchronises a stream";
  case HostState::Gate:
    return "waits at the gate for";
  case HostState::Operation:
    return "waits for";
  case HostState::Slot:
    return "waits for";
  case HostState::Allocation:
    return "allocates";
  default:
    return "is in an unknown state:";
  }
}

} // namespace

bool isIssueLog(std::string_view bytes) {
  uint64_t magic = 0;
  if (bytes.size() >= 8)
    std::memcpy(&magic, bytes.data(), 8);
  return magic == kMagic;
}

bool readIssueLog(std::string_view bytes, const std::string &path, Job &job,
                  std::string &error) {
  if (!isIssueLog(bytes)) {
    error = "no issue log";
    return false;
  }
  if (bytes.size() != sizeof(Block)) {
    error = "an issue log of " + std::to_string(bytes.size()) +
            " bytes; a whole one has " + std::to_string(sizeof(Block));
    return false;
  }
  auto block = std::make_unique<Block>();
  std::memcpy(block.get(), bytes.data(), sizeof(Block));
  if (block->version != issuelog::kVersion) {
    error = "issue log version " + std::to_string(block->version) +
            " is not the version known here, " +
            std::to_string(issuelog::kVersion);
    return false;
  }
  if (block->world == 0 || block->world > kMaxMembers ||
      block->rank >= block->world) {
    error = "an issue log of rank " + std::to_string(block->rank) + " of " +
            std::to_string(block->world);
    return false;
  }
  auto rank = Rank(block->rank);
  RankEvidence &own = job.ranks[rank];
  own.files.push_back(path);
  own.present = true;
  job.haveIssueLogs = true;
  job.nothingMoves = job.nothingMoves || block->stoodStill != 0;
  uint64_t bad = 0;
  std::vector<Line> lines = linesOf(*block, bad);
  job.linesUnderstood += lines.size();
  job.linesNotUnderstood += bad;
  if (bad && job.examplesNotUnderstood.size() < 8)
    job.examplesNotUnderstood.push_back(path + ": " + std::to_string(bad) +
                                        " damaged records");
  own.truncatedStart = !lines.empty() && lines.front().number != 1;
  uint32_t file = job.strings.id(path);
  for (const Line &line : lines) {
    const issuelog::Domain &domain = block->domains[line.domain];
    std::vector<Rank> members = membersOf(domain);
    if (members.empty() ||
        (line.transfer() && size_t(line.root) >= members.size())) {
      ++job.linesNotUnderstood;
      continue;
    }
    uint32_t id = job.domainId(text(domain.name, kNameWords), members);
    Issue issue;
    if (line.transfer()) {
      Rank peer = members[size_t(line.root)];
      bool send = plan::Kind(line.kind) == plan::Kind::Send;
      issue.sequence = send ? job.sequenceId(id, true, rank, peer)
                            : job.sequenceId(id, true, peer, rank);
    } else {
      issue.sequence = job.sequenceId(id, false);
    }
    issue.index = int64_t(line.instance);
    issue.signature = job.strings.id(line.signature());
    issue.kind = job.strings.id(kKinds[line.kind]);
    switch (line.state) {
    case issuelog::State::Issued:
      issue.state = State::Scheduled;
      break;
    case issuelog::State::Started:
      issue.state = State::Started;
      break;
    case issuelog::State::Completed:
      issue.state = State::Completed;
      break;
    case issuelog::State::Failed:
      issue.state = State::Started;
      issue.timedOut = true;
      break;
    }
    issue.stream = job.strings.id("stream " + std::to_string(line.stream));
    issue.thread = job.strings.id(std::to_string(line.thread));
    issue.order = line.launch;
    issue.file = file;
    issue.line = uint32_t(line.number);
    own.issues.push_back(issue);
  }
  for (const issuelog::Thread &thread : block->threads) {
    HostWait wait;
    switch (HostState(uint32_t(thread.state))) {
    case HostState::DeviceSync:
      wait.kind = HostWait::Kind::DeviceSync;
      break;
    case HostState::StreamSync:
      wait.kind = HostWait::Kind::StreamSync;
      break;
    case HostState::Allocation:
      wait.kind = HostWait::Kind::Allocation;
      break;
    case HostState::Gate:
      wait.kind = HostWait::Kind::Gate;
      break;
    default:
      continue; // told by the issues themselves
    }
    wait.function = text(thread.note, kNoteWords);
    wait.thread = std::to_string(thread.state >> 32);
    wait.file = path;
    own.waits.push_back(std::move(wait));
  }
  return true;
}

std::string issueLogText(const Block &block) {
  std::string out = "concord: rank " + std::to_string(block.rank) + " of " +
                    std::to_string(block.world) + " (pid " +
                    std::to_string(block.pid) + "): ";
  if (block.magic != kMagic)
    return out + "gate mode off remembers no issues\n";
  out += std::to_string(block.issued) + " issued, " +
         std::to_string(block.completed) + " ended\n";
  if (block.turn != ~uint64_t(0))
    out += "  gate: round " + std::to_string(block.round) + ", turn " +
           std::to_string(block.turn) + "\n";
  uint64_t bad = 0;
  size_t shown = 0, open = 0;
  std::string list;
  for (const Line &line : linesOf(block, bad)) {
    if (line.state == issuelog::State::Completed)
      continue;
    ++open;
    if (++shown > 32)
      continue;
    const issuelog::Domain &domain = block.domains[line.domain];
    list += "  #" + std::to_string(line.number) + " " + kKinds[line.kind] +
            " of '" + text(domain.name, kNameWords) + "', instance " +
            std::to_string(line.instance);
    std::vector<Rank> members = membersOf(domain);
    if (line.transfer() && size_t(line.root) < members.size())
      list += plan::Kind(line.kind) == plan::Kind::Send
                  ? " to rank " + std::to_string(members[size_t(line.root)])
                  : " from rank " + std::to_string(members[size_t(line.root)]);
    if (line.site != ~0u)
      list += ", site " + std::to_string(line.site);
    list += ", stream " + std::to_string(line.stream) + ", by thread " +
            std::to_string(line.thread);
    list += line.state == issuelog::State::Issued    ? ": issued, not started"
            : line.state == issuelog::State::Started ? ": started"
                                                     : ": failed";
    list += "\n";
  }
  if (open == 0)
    list = "  nothing is in flight\n";
  else if (open > 32)
    list += "  and " + std::to_string(open - 32) + " more\n";
  out += list;
  for (const issuelog::Thread &thread : block.threads) {
    auto state = HostState(uint32_t(thread.state));
    if (state == HostState::None)
      continue;
    out += "  thread " + std::to_string(thread.state >> 32) + " " +
           waitText(state) + " " + text(thread.note, kNoteWords) + "\n";
  }
  return out;
}

} // namespace concord::order::evidence
