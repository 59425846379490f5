//===- HcclLog.cpp - HCCL entry logs and error lines ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One line per issued operator. Files may be rotated (several per process) and
// interleaved (several processes in one), so lines are gathered per process and
// put in the order of their time stamps, which come from one clock per process.
// Domains are joined by the identifier in the tag, never by the pointer; global
// ranks come from the largest domain that a process has joined.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Evidence.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

namespace concord::order::evidence {

namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t'))
    s.remove_prefix(1);
  while (!s.empty() &&
         (s.back() == ' ' || s.back() == '\t' || s.back() == '\r'))
    s.remove_suffix(1);
  return s;
}

bool wordChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

/// The value of `key[value]`, `key [value]` or `key:[value]`, where key is a
/// whole word (blanks inside the key count). Values may hold brackets.
std::string_view field(std::string_view line, std::string_view key) {
  for (size_t at = 0; (at = line.find(key, at)) != std::string_view::npos;
       at += key.size()) {
    if (at > 0 && wordChar(line[at - 1]))
      continue;
    size_t i = at + key.size();
    while (i < line.size() && (line[i] == ' ' || line[i] == ':'))
      ++i;
    if (i >= line.size() || line[i] != '[')
      continue;
    size_t depth = 0;
    for (size_t k = i; k < line.size(); ++k) {
      depth += line[k] == '[';
      if (line[k] == ']' && --depth == 0)
        return trim(line.substr(i + 1, k - i - 1));
    }
    return {};
  }
  return {};
}

bool number(std::string_view text, int64_t &out) {
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && ec == std::errc() && end == text.data() + text.size();
}

struct Operator {
  std::string_view name, kind;
  bool reduction, root, sized, transfer;
};

constexpr Operator kOperators[] = {
    {"ReduceScatter", "reduce_scatter", true, false, true, false},
    {"AllReduce", "all_reduce", true, false, true, false},
    {"AllGather", "all_gather", false, false, true, false},
    {"AlltoAll", "all_to_all", false, false, false, false},
    {"AllToAll", "all_to_all", false, false, false, false},
    {"Broadcast", "broadcast", false, true, true, false},
    {"Scatter", "scatter", false, true, true, false},
    {"Gather", "gather", false, true, false, false},
    {"Reduce", "reduce", true, true, true, false},
    {"Barrier", "barrier", false, false, false, false},
    {"BatchSendRecv", "batch_send_recv", false, false, false, true},
    {"Send", "send", false, false, true, true},
    {"Recv", "recv", false, false, true, true},
    {"Receive", "recv", false, false, true, true},
};

struct Entry {
  uint64_t time =
      0; ///< microseconds since the start of the year, roughly; orders only
  uint32_t file = 0, line = 0;
  const Operator *op = nullptr;
  uint32_t identifier = kNone, stream = kNone, thread = kNone; ///< strings
  uint32_t signature = kNone;
  int64_t peer = -1;
  bool variable = false; ///< …V: counts differ legally
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

/// "2026-01-23-15:17:47.397.117" and the like: the digits in order, without the
/// century, so that 64 bits hold them down to the microsecond.
uint64_t timeStamp(std::string_view text) {
  uint64_t v = 0;
  int digits = 0, skip = 2;
  for (char c : text) {
    if (c < '0' || c > '9')
      continue;
    if (skip-- > 0)
      continue;
    if (digits++ < 18)
      v = v * 10 + uint64_t(c - '0');
  }
  for (; digits > 0 && digits < 18; ++digits)
    v *= 10;
  return v;
}

std::string folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

} // namespace

void readHcclLogs(
    const std::vector<std::pair<std::string, std::string_view>> &files,
    Job &job) {
  std::map<std::pair<std::string, std::string>, Process>
      processes; // (folder, pid)
  for (const auto &[path, text] : files) {
    uint32_t file = job.strings.id(path);
    std::string folder = folderOf(path);
    // Of a plog file the name tells the process; otherwise each line does.
    std::string pathPid;
    size_t plog = path.rfind("plog-");
    if (plog != std::string::npos)
      for (size_t i = plog + 5;
           i < path.size() && path[i] >= '0' && path[i] <= '9'; ++i)
        pathPid += path[i];
    Rank fromPath = rankOfPath(plog == std::string::npos ? path : folder);
    uint32_t lineNo = 0;
    const char *data = text.data(), *end = data + text.size();
    std::string signature;
    while (data < end) {
      const void *nl = std::memchr(data, '\n', size_t(end - data));
      const char *stop = nl ? static_cast<const char *>(nl) : end;
      std::string_view line(data, std::min<size_t>(size_t(stop - data), 16384));
      data = stop + 1;
      ++lineNo;
      auto find = [&](const char *needle, size_t n) {
        const void *p = ::memmem(line.data(), line.size(), needle, n);
        return p ? size_t(static_cast<const char *>(p) - line.data())
                 : std::string_view::npos;
      };
      size_t entry = find("Entry-", 6);
      size_t error = std::string_view::npos;
      std::string code;
      if (entry == std::string_view::npos) {
        // Error codes: EI0002, EI0006, E39999, EZ9999 …
        for (size_t at = 0; (at = line.find('E', at)) != std::string_view::npos;
             ++at) {
          if (at > 0 && wordChar(line[at - 1]))
            continue;
          size_t k = at + 1;
          while (k < line.size() && k < at + 3 && line[k] >= 'A' &&
                 line[k] <= 'Z')
            ++k;
          size_t digits = k;
          while (k < line.size() && line[k] >= '0' && line[k] <= '9')
            ++k;
          if (k - digits >= 4 && k - digits <= 5 &&
              (k == line.size() || !wordChar(line[k]))) {
            error = at;
            code = std::string(line.substr(at, k - at));
            break;
          }
        }
        if (error == std::string_view::npos) {
          job.linesOther += !trim(line).empty();
          continue;
        }
      }
      auto notUnderstood = [&] {
        ++job.linesNotUnderstood;
        if (job.examplesNotUnderstood.size() < 8)
          job.examplesNotUnderstood.push_back(path + ":" +
                                              std::to_string(lineNo) + ": " +
                                              std::string(line.substr(0, 160)));
      };
      // "HCCL(<pid>,<name>):<time> [<file>:<line>][<tid>]"
      std::string pid = pathPid;
      uint64_t time = 0;
      uint32_t thread = kNone;
      size_t open = find("HCCL(", 5);
      if (open != std::string_view::npos) {
        size_t comma = line.find_first_of(",)", open);
        if (comma != std::string_view::npos)
          pid = std::string(trim(line.substr(open + 5, comma - open - 5)));
        size_t close = line.find("):", open);
        if (close != std::string_view::npos) {
          size_t bracket = line.find('[', close);
          time = timeStamp(line.substr(
              close + 2,
              bracket == std::string_view::npos ? 0 : bracket - close - 2));
          size_t tidOpen = bracket == std::string_view::npos
                               ? bracket
                               : line.find("][", bracket);
          if (tidOpen != std::string_view::npos) {
            size_t tidClose = line.find(']', tidOpen + 2);
            if (tidClose != std::string_view::npos)
              thread = job.strings.id(
                  trim(line.substr(tidOpen + 2, tidClose - tidOpen - 2)));
          }
        }
      }
      if (pid.size() > 40)
        pid.resize(40);
      Process &process = processes[{folder, pid}];
      process.files.insert(file);
      if (process.fromPath < 0)
        process.fromPath = fromPath;
      if (error != std::string_view::npos) {
        ErrorLine e;
        e.code = code;
        e.text = std::string(trim(line.substr(error, 600)));
        e.file = path;
        e.line = lineNo;
        e.tag = std::string(field(line, "tag"));
        e.group = std::string(field(line, "group"));
        e.stream = std::string(field(line, "streamID"));
        if (e.stream.empty())
          e.stream = std::string(field(line, "streamId"));
        int64_t v = -1;
        for (const char *key : {"rankId", "rank id", "rank"})
          if (number(field(line, key), v)) {
            e.rank = Rank(std::clamp<int64_t>(v, -1, INT32_MAX));
            break;
          }
        for (const char *key : {"remote rank", "remoteRank", "remote_rank"})
          if (number(field(line, key), v)) {
            e.remote = Rank(std::clamp<int64_t>(v, -1, INT32_MAX));
            break;
          }
        if (process.errors.size() < 10000)
          process.errors.push_back(std::move(e));
        ++job.linesUnderstood;
        continue;
      }
      std::string_view rest = line.substr(entry + 6);
      if (rest.substr(0, 4) != "Hccl") {
        notUnderstood();
        continue;
      }
      rest.remove_prefix(4);
      size_t nameEnd = 0;
      while (nameEnd < rest.size() && wordChar(rest[nameEnd]))
        ++nameEnd;
      std::string_view name = rest.substr(0, nameEnd);
      if (name.substr(0, 8) == "CommInit" ||
          name.find("CommInit") != std::string_view::npos ||
          name.find("CreateSubComm") != std::string_view::npos) {
        std::string_view identifier = field(rest, "identifier");
        if (identifier.empty())
          identifier = field(rest, "commName");
        int64_t size = -1, rank = -1;
        if (!identifier.empty() && number(field(rest, "ranks"), size) &&
            number(field(rest, "rank"), rank) && size > 0 &&
            size <= (1 << 20) && rank >= 0 && rank < size) {
          process.memberships.push_back(
              {job.strings.id(identifier), size, rank});
          ++job.linesUnderstood;
        } else if (!identifier.empty() || !field(rest, "ranks").empty())
          notUnderstood();
        else
          ++job.linesOther;
        continue;
      }
      const Operator *op = nullptr;
      for (const Operator &o : kOperators)
        if (name.substr(0, o.name.size()) == o.name) {
          op = &o;
          break;
        }
      std::string_view tag = field(rest, "tag");
      if (!op || tag.empty()) {
        if (op || name.find("Comm") == std::string_view::npos)
          notUnderstood();
        else
          ++job.linesOther;
        continue;
      }
      Entry e;
      e.time = time;
      e.file = file;
      e.line = lineNo;
      e.op = op;
      e.thread = thread;
      // "AllReduce_<identifier>": the identifier itself may hold underscores.
      size_t underscore = tag.find('_');
      e.identifier = job.strings.id(underscore == std::string_view::npos
                                        ? tag
                                        : tag.substr(underscore + 1));
      std::string_view stream = field(rest, "streamId");
      if (stream.empty())
        stream = field(rest, "streamID");
      if (!stream.empty())
        e.stream = job.strings.id(stream);
      std::string_view suffix = name.substr(op->name.size());
      e.variable =
          !suffix.empty() && suffix[0] == 'V' && suffix.substr(0, 2) != "V2";
      signature = op->transfer ? "transfer" : std::string(op->kind);
      signature += "(";
      auto add = [&](std::string_view key, std::string_view label) {
        std::string_view v = field(rest, key);
        if (!v.empty())
          signature += (signature.back() == '(' ? "" : ",") +
                       std::string(label) + std::string(v);
        return !v.empty();
      };
      if (op->sized && !e.variable && !add("count", "n=") &&
          !add("sendCount", "n="))
        add("recvCount", "n=");
      if (op->kind != std::string_view("barrier") && !add("dataType", "") &&
          !add("sendType", ""))
        add("datatype", "");
      if (op->reduction)
        add("op", "");
      if (op->root)
        add("root", "root=");
      signature += ")";
      e.signature = job.strings.id(signature);
      for (const char *key : {"destRank", "srcRank", "remoteRank", "peer"})
        if (number(field(rest, key), e.peer))
          break;
      process.entries.push_back(e);
      ++job.linesUnderstood;
    }
  }

  // Global ranks: from the largest domain that any process has joined.
  int64_t world = 0;
  uint32_t worldId = kNone;
  for (auto &[_, p] : processes)
    for (const Membership &m : p.memberships)
      if (m.size > world) {
        world = m.size;
        worldId = m.identifier;
      }
  std::set<Rank> taken;
  for (auto &[key, p] : processes) {
    for (const Membership &m : p.memberships)
      if (m.identifier == worldId)
        p.rank = Rank(m.rank);
    if (p.rank < 0)
      p.rank = p.fromPath;
    if (p.rank >= 0 && !taken.insert(p.rank).second) {
      job.notes.push_back("processes " + key.second + " in " + key.first +
                          " and another one both claim rank " +
                          std::to_string(p.rank) + ": logs of two runs?");
      p.rank = -1;
    }
  }
  Rank next = 0;
  for (auto &[key, p] : processes) {
    if (p.rank >= 0 || (p.entries.empty() && p.errors.empty()))
      continue;
    while (taken.count(next))
      ++next;
    p.rank = next;
    taken.insert(next);
    job.notes.push_back("process " + key.second + " in " + key.first +
                        " tells no rank; it is called rank " +
                        std::to_string(next) + " here");
  }
  // Members by group rank.
  std::map<uint32_t, std::vector<Rank>> members;
  for (auto &[_, p] : processes)
    for (const Membership &m : p.memberships) {
      auto &list = members[m.identifier];
      if (list.size() < size_t(m.size))
        list.resize(size_t(m.size), -1);
      if (p.rank >= 0)
        list[size_t(m.rank)] = p.rank;
    }
  std::map<uint32_t, std::set<Rank>>
      users; // domains whose creation was not logged
  for (auto &[_, p] : processes)
    for (const Entry &e : p.entries)
      if (!members.count(e.identifier) && p.rank >= 0)
        users[e.identifier].insert(p.rank);
  // A member whose creation line is lost but that uses the tag fills a gap.
  for (auto &[_, p] : processes) {
    std::set<uint32_t> used;
    for (const Entry &e : p.entries)
      used.insert(e.identifier);
    for (uint32_t id : used) {
      auto it = members.find(id);
      if (it == members.end() || std::find(it->second.begin(), it->second.end(),
                                           p.rank) != it->second.end())
        continue;
      std::vector<size_t> gaps;
      for (size_t k = 0; k < it->second.size(); ++k)
        if (it->second[k] < 0)
          gaps.push_back(k);
      if (gaps.size() == 1)
        it->second[gaps[0]] = p.rank;
    }
  }
  // Of the world domain, group ranks are the global ranks, logged or not.
  if (worldId != kNone)
    for (size_t k = 0; k < members[worldId].size(); ++k)
      members[worldId][k] = Rank(k);
  std::map<uint32_t, uint32_t> domainOf;
  for (auto &[id, list] : members)
    domainOf[id] = job.domainId(job.strings[id], list);
  for (auto &[id, set] : users) {
    domainOf[id] = job.domainId(job.strings[id],
                                std::vector<Rank>(set.begin(), set.end()));
    job.notes.push_back(
        "the creation of domain " + job.strings[id] +
        " is not in the logs; its members are taken to be those that use it");
  }
  bool unknownPeers = false;
  for (auto &[key, p] : processes) {
    if (p.rank < 0 ||
        (p.entries.empty() && p.errors.empty() && p.memberships.empty()))
      continue;
    job.haveHccl = true;
    std::vector<uint32_t> at(p.entries.size());
    for (uint32_t i = 0; i < at.size(); ++i)
      at[i] = i;
    // Stable by time; lines without one stay where they are.
    bool timed = std::all_of(p.entries.begin(), p.entries.end(),
                             [](const Entry &e) { return e.time; });
    if (timed)
      std::sort(at.begin(), at.end(), [&](uint32_t a, uint32_t b) {
        const Entry &x = p.entries[a], &y = p.entries[b];
        return x.time != y.time ? x.time < y.time : a < b;
      });
    RankEvidence &own = job.ranks[p.rank];
    own.present = own.present || !p.entries.empty();
    for (uint32_t f : p.files)
      own.files.push_back(job.strings[f]);
    own.errors.insert(own.errors.end(), p.errors.begin(), p.errors.end());
    own.truncatedStart =
        own.truncatedStart || (p.memberships.empty() && !p.entries.empty());
    std::map<uint32_t, int64_t> counters;
    uint64_t order = 0;
    for (uint32_t i : at) {
      const Entry &e = p.entries[i];
      uint32_t domain = domainOf.at(e.identifier);
      Issue issue;
      issue.order = ++order;
      issue.file = e.file;
      issue.line = e.line;
      issue.stream = e.stream;
      issue.thread = e.thread;
      issue.signature = e.signature;
      issue.kind = job.strings.id(e.op->kind);
      if (e.op->transfer) {
        const auto &m = job.domains[domain].members;
        Rank peer = e.peer >= 0 && size_t(e.peer) < m.size() ? m[size_t(e.peer)]
                                                             : Rank(-1);
        if (peer < 0 && m.size() == 2 &&
            e.op->kind != std::string_view("batch_send_recv"))
          peer = m[0] == p.rank ? m[1] : m[0];
        if (e.op->kind == std::string_view("batch_send_recv") &&
            m.size() == 2) {
          // Both directions in one launch; as a two-member sequence.
          issue.sequence = job.sequenceId(domain, false);
          issue.index = counters[issue.sequence]++;
          own.issues.push_back(issue);
          continue;
        }
        if (peer < 0) {
          unknownPeers = true;
          issue.sequence = job.sequenceId(domain, true, -1, -1);
        } else if (e.op->kind == std::string_view("send"))
          issue.sequence = job.sequenceId(domain, true, p.rank, peer);
        else
          issue.sequence = job.sequenceId(domain, true, peer, p.rank);
      } else {
        issue.sequence = job.sequenceId(domain, false);
        issue.index = counters[issue.sequence]++;
      }
      own.issues.push_back(issue);
    }
  }
  if (unknownPeers)
    job.notes.push_back("HCCL entry lines of send and receive name no peer; of "
                        "domains with more "
                        "than two members they cannot be paired");
}

} // namespace concord::order::evidence
