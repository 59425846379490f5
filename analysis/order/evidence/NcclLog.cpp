//===- NcclLog.cpp - NCCL's own lines, and PyTorch's about it -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL prints a line where a
// communicator is made and one per issued operation. A communicator is a
// pointer in its process; the line of its creation tells the id that its
// members share.
//
// PyTorch's watchdog prints, per process group that it gives up on, the
// operation and how far the group has come. That is less than a Flight Recorder
// dump, and is used of ranks that have left nothing better.
//
//===----------------------------------------------------------------------===//

#include "OperatorLog.h"
#include "Value.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>

namespace concord::order::evidence {

namespace {

constexpr std::string_view kInfo = " NCCL INFO ",
                           kTimeout = "Watchdog caught collective operation "
                                      "timeout: WorkNCCL(",
                           kStatus = "last enqueued ";

bool holds(std::string_view s, std::string_view part) {
  return ::memmem(s.data(), s.size(), part.data(), part.size()) != nullptr;
}

/// The word behind `key`, which begins a word and ends with what stands
/// between.
std::string_view wordAfter(std::string_view line, std::string_view key) {
  for (size_t at = 0; (at = line.find(key, at)) != std::string_view::npos;
       at += key.size()) {
    if (at > 0 && !std::strchr(" [(,", line[at - 1]))
      continue;
    std::string_view rest = line.substr(at + key.size());
    return rest.substr(0, rest.find_first_of(" ,)]\r\t"));
  }
  return {};
}

bool number(std::string_view text, int64_t &out, int base = 10) {
  if (base == 16 && text.substr(0, 2) == "0x")
    text.remove_prefix(2);
  auto [end, ec] =
      std::from_chars(text.data(), text.data() + text.size(), out, base);
  return !text.empty() && ec == std::errc() && end == text.data() + text.size();
}

std::string named(std::string_view value, const char *const *names,
                  size_t count) {
  int64_t n = -1;
  return number(value, n) && n >= 0 && size_t(n) < count ? names[n]
                                                         : std::string(value);
}

constexpr const char *kTypes[] = {"int8",   "uint8",    "int32",   "uint32",
                                  "int64",  "uint64",   "half",    "float",
                                  "double", "bfloat16", "fp8e4m3", "fp8e5m2"};
constexpr const char *kReductions[] = {"sum", "prod", "max", "min", "avg"};

/// How far a rank has come on a process group, by its watchdog.
struct Given {
  int64_t timedOut = -1, enqueued = -1, completed = -1;
  std::string kind, signature;
  uint32_t file = kNone, line = 0;
};

class Reader {
public:
  explicit Reader(Job &job) : job(job) {}

  void read(const std::string &path, std::string_view text) {
    file = job.strings.id(path);
    lineNo = 0;
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min(text.find('\n', at), text.size());
      std::string_view line = text.substr(at, std::min<size_t>(end - at, 8192));
      at = end + 1;
      ++lineNo;
      size_t info = line.find(kInfo);
      if (info != std::string_view::npos)
        nccl(line.substr(0, info), line.substr(info + kInfo.size()), path,
             line);
      else if (size_t t = line.find(kTimeout); t != std::string_view::npos)
        timeout(line.substr(0, t), line.substr(t + kTimeout.size()));
      else if (size_t s = line.find(kStatus); s != std::string_view::npos)
        status(line.substr(0, s), line.substr(s));
    }
  }

  void finish() {
    bool unknownPeers = false;
    if (operators::addProcesses(processes, job, unknownPeers))
      job.haveNccl = true;
    if (unnamed)
      job.notes.push_back(
          std::to_string(unnamed) +
          " NCCL lines are of communicators whose creation is not in the logs, "
          "and were left out: log the subsystem INIT as well "
          "(NCCL_DEBUG_SUBSYS=INIT,COLL)");
    addWatchdogs();
  }

private:
  Job &job;
  uint32_t file = kNone, lineNo = 0;
  operators::Processes processes;
  struct Comm {
    uint32_t identifier;
    std::pair<std::string, std::string> process;
  };
  std::map<std::pair<std::string, std::string>, Comm>
      comms; ///< (host and pid, pointer)
  uint64_t unnamed = 0;
  std::map<Rank, std::map<std::string, Given>> given; ///< by group

  void nccl(std::string_view head, std::string_view rest,
            const std::string &path, std::string_view whole) {
    // "… host:pid:tid [device]".
    while (!head.empty() && head.back() == ' ')
      head.remove_suffix(1);
    size_t open = head.rfind('[');
    if (open == std::string_view::npos || open == 0)
      return;
    std::string_view device = head.substr(open);
    head = head.substr(0, open);
    while (!head.empty() && head.back() == ' ')
      head.remove_suffix(1);
    std::string_view origin = head.substr(head.rfind(' ') + 1);
    size_t tid = origin.rfind(':');
    size_t pid = tid == std::string_view::npos || tid == 0
                     ? std::string_view::npos
                     : origin.rfind(':', tid - 1);
    if (pid == std::string_view::npos) {
      ++job.linesOther;
      return;
    }
    std::string host(origin.substr(0, std::min<size_t>(pid, 200)));
    std::string process(origin.substr(pid + 1, tid - pid - 1));
    std::string_view pointer = wordAfter(rest, "comm ");
    std::pair<std::string, std::string> key{host,
                                            process + std::string(device)};
    if (std::string_view id = wordAfter(rest, "commId "); !id.empty()) {
      int64_t rank = -1, size = -1;
      if (pointer.empty() || !number(wordAfter(rest, "rank "), rank) ||
          !number(wordAfter(rest, "nranks "), size) || size < 1 ||
          size > (1 << 20) || rank < 0 || rank >= size)
        return notUnderstood(path, whole);
      ++job.linesUnderstood;
      uint32_t identifier = job.strings.id("comm " + std::string(id));
      auto [it, fresh] = comms.try_emplace(
          {host + ":" + process, std::string(pointer)}, Comm{identifier, key});
      if (!fresh) {
        if (it->second.identifier == identifier)
          return;                       // its start and its end
        it->second = {identifier, key}; // the address was used again
      }
      operators::Process &p = processes[key];
      p.files.insert(file);
      p.memberships.push_back({identifier, size, rank});
      return;
    }
    size_t colon = rest.find(": opCount ");
    const operators::Operator *op =
        colon == std::string_view::npos ? nullptr : operators::find(rest);
    if (!op || pointer.empty()) {
      if (colon != std::string_view::npos)
        notUnderstood(path, whole);
      else
        ++job.linesOther;
      return;
    }
    auto comm = comms.find({host + ":" + process, std::string(pointer)});
    if (comm == comms.end()) {
      ++unnamed;
      return;
    }
    ++job.linesUnderstood;
    operators::Entry e;
    e.file = file;
    e.line = lineNo;
    e.op = op;
    e.identifier = comm->second.identifier;
    e.stream = job.strings.id(wordAfter(rest, "stream "));
    e.thread = job.strings.id(origin.substr(tid + 1));
    std::string count(wordAfter(rest, "count ")),
        type = named(wordAfter(rest, "datatype "), kTypes, std::size(kTypes)),
        root(wordAfter(rest, "root "));
    std::string signature = op->transfer ? "transfer" : std::string(op->kind);
    signature += "(n=" + count + "," + type;
    if (op->reduction)
      signature += "," + named(wordAfter(rest, "op "), kReductions,
                               std::size(kReductions));
    if (op->root)
      signature += ",root=" + root;
    e.signature = job.strings.id(signature + ")");
    operators::Process &p = processes[comm->second.process];
    if (op->transfer) {
      number(root, e.peer);
      // Transfers of one launch have one count of launches.
      int64_t launches = 0;
      if (number(wordAfter(rest, "opCount "), launches, 16) && launches >= 0)
        e.launch = (uint64_t(launches) + 1) << 32 | e.identifier;
    }
    p.entries.push_back(e);
  }

  void notUnderstood(const std::string &path, std::string_view line) {
    ++job.linesNotUnderstood;
    if (job.examplesNotUnderstood.size() < 8)
      job.examplesNotUnderstood.push_back(path + ":" + std::to_string(lineNo) +
                                          ": " +
                                          std::string(line.substr(0, 160)));
  }

  /// "[PG ID 1 PG GUID 2(tp) Rank 3] ", older "[Rank 3] ".
  Given *of(std::string_view head) {
    size_t at = head.rfind("Rank ");
    int64_t rank = -1;
    if (at == std::string_view::npos ||
        !number(head.substr(at + 5, head.find(']', at) - at - 5), rank) ||
        rank < 0 || rank >= (1 << 20))
      return nullptr;
    std::string group;
    if (size_t guid = head.rfind("PG GUID ", at);
        guid != std::string_view::npos)
      group =
          std::string(head.substr(guid + 8, std::max(at, guid + 9) - guid - 9)
                          .substr(0, 200));
    Given &g = given[Rank(rank)][group];
    if (g.file == kNone) {
      g.file = file;
      g.line = lineNo;
    }
    ++job.linesUnderstood;
    return &g;
  }

  void timeout(std::string_view head, std::string_view work) {
    Given *g = of(head);
    if (!g || g->timedOut >= 0) // the first one counts
      return;
    if (!number(wordAfter(work.substr(0, work.find(')')), "SeqNum="),
                g->timedOut))
      return;
    g->line = lineNo;
    g->kind = std::string(canonicalKind(wordAfter(work, "OpType=")));
    bool transfer = g->kind == "SEND" || g->kind == "RECV";
    // Sizes differ legally where members give or take unlike parts.
    if (!transfer)
      g->signature =
          g->kind +
          (g->kind == "all_reduce" || g->kind == "broadcast" ||
                   g->kind == "all_gather" || g->kind == "reduce_scatter" ||
                   g->kind == "reduce"
               ? "(n=" + std::string(wordAfter(work, "NumelIn=")) + ")"
               : "");
  }

  void status(std::string_view head, std::string_view rest) {
    Given *g = of(head);
    if (!g)
      return;
    for (const char *work : {"work: ", "NCCL work: "}) {
      number(wordAfter(rest, std::string("last enqueued ") + work),
             g->enqueued);
      number(wordAfter(rest, std::string("last completed ") + work),
             g->completed);
    }
  }

  void addWatchdogs() {
    if (given.empty())
      return;
    Rank last = std::max(given.rbegin()->first,
                         job.ranks.empty() ? 0 : job.ranks.rbegin()->first);
    std::vector<Rank> world;
    for (Rank r = 0; r <= last && last < (1 << 16); ++r)
      world.push_back(r);
    bool used = false;
    for (auto &[rank, groups] : given) {
      RankEvidence &own = job.ranks[rank];
      if (own.present)
        continue;
      auto add = [&](const std::string &group, const Given &g, int64_t index,
                     State state) -> Issue & {
        // "0(default_pg)": the number is the name, as in a dump.
        size_t open = group.find('(');
        std::string description =
            open == std::string::npos
                ? std::string()
                : group.substr(open + 1, group.find(')', open) - open - 1);
        Issue issue;
        issue.sequence = job.sequenceId(job.domainId(group.substr(0, open),
                                                     description == "default_pg"
                                                         ? world
                                                         : std::vector<Rank>(),
                                                     description),
                                        false);
        issue.index = index;
        issue.kind = job.strings.id("work");
        issue.state = state;
        issue.file = g.file;
        issue.line = g.line;
        own.issues.push_back(issue);
        return own.issues.back();
      };
      // What has completed comes first. Of the rest no order is known, over
      // groups: all get one place.
      for (auto &[group, g] : groups)
        if (!group.empty() && g.completed >= 0)
          add(group, g, g.completed, State::Completed).order = 1;
      for (auto &[group, g] : groups) {
        if (group.empty()) // sequences cannot be told apart
          continue;
        if (g.timedOut >= 0) {
          Issue &issue = add(group, g, g.timedOut, State::Scheduled);
          issue.order = 2;
          issue.timedOut = true;
          if (!g.kind.empty())
            issue.kind = job.strings.id(g.kind);
          if (!g.signature.empty())
            issue.signature = job.strings.id(g.signature);
        }
        if (g.enqueued > std::max(g.timedOut, g.completed)) {
          Issue &issue = add(group, g, g.enqueued, State::Scheduled);
          issue.order = 2;
          issue.timedOut = g.timedOut < 0; // the other line is lost
        }
      }
      own.present = !own.issues.empty();
      used = used || own.present;
      if (own.present)
        own.files.push_back(job.strings[groups.begin()->second.file]);
    }
    if (used)
      job.notes.push_back(
          "the watchdog's lines tell only what has timed out; Flight Recorder "
          "dumps tell all that was issued (TORCH_NCCL_TRACE_BUFFER_SIZE=20000 "
          "and TORCH_NCCL_DUMP_ON_TIMEOUT=1)");
  }
};

} // namespace

bool looksLikeNcclLog(std::string_view text) {
  return holds(text, kInfo) || holds(text, kTimeout);
}

void readNcclLogs(
    const std::vector<std::pair<std::string, std::string_view>> &files,
    Job &job) {
  if (job.haveFlightRecorder)
    return; // which tells more, and of the same operations
  Reader reader(job);
  for (const auto &[path, text] : files)
    reader.read(path, text);
  reader.finish();
}

} // namespace concord::order::evidence
