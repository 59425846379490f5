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

#include "OperatorLog.h"

#include <algorithm>
#include <charconv>
#include <cstring>

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
  operators::Processes processes; // (folder, pid)
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
      operators::Process &process = processes[{folder, pid}];
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
      const operators::Operator *op = operators::find(name);
      std::string_view tag = field(rest, "tag");
      if (!op || tag.empty()) {
        if (op || name.find("Comm") == std::string_view::npos)
          notUnderstood();
        else
          ++job.linesOther;
        continue;
      }
      operators::Entry e;
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

  bool unknownPeers = false;
  if (operators::addProcesses(processes, job, unknownPeers))
    job.haveHccl = true;
  if (unknownPeers)
    job.notes.push_back("HCCL entry lines of send and receive name no peer; of "
                        "domains with more "
                        "than two members they cannot be paired");
}

} // namespace concord::order::evidence
