//===- Launchers.cpp - What launchers say of ranks that ended -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lines of Open MPI's mpirun, of srun and of torchrun's summary that tell which
// rank ended and how. A rank that was killed leaves nothing else.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Evidence.h"

#include <algorithm>
#include <charconv>

namespace concord::order::evidence {

namespace {

constexpr std::string_view kNoticed = " noticed that process rank ",
                           kSrun = "srun: error: ", kSummary = " (local_rank: ";

bool holds(std::string_view s, std::string_view part) {
  return s.find(part) != std::string_view::npos;
}

/// The number at the beginning, which is taken off.
bool number(std::string_view &text, int64_t &out) {
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (ec != std::errc())
    return false;
  text.remove_prefix(size_t(end - text.data()));
  return true;
}

class Reader {
public:
  Reader(Job &job, const std::string &path) : job(job), path(path) {}

  void take(std::string_view line, uint32_t lineNo) {
    this->lineNo = lineNo;
    if (size_t at = line.find(kNoticed); at != std::string_view::npos) {
      // "… rank 3 with PID 4711 on node n7 exited on signal 11 (…)."
      std::string_view rest = line.substr(at + kNoticed.size());
      int64_t rank = -1;
      size_t how = rest.find("exited on ");
      if (number(rest, rank) && how != std::string_view::npos)
        add(rank, withoutDot(line.substr(line.find("exited on ") + 10)));
      return;
    }
    if (size_t at = line.find(kSrun); at != std::string_view::npos) {
      // "srun: error: n7: task 3: Segmentation fault (core dumped)", "tasks
      // 0-2,5: Killed".
      size_t task = line.find(": task", at);
      size_t end =
          task == std::string_view::npos ? task : line.find(": ", task + 6);
      if (end == std::string_view::npos)
        return;
      std::string_view ranks = line.substr(task + 6, end - task - 6);
      ranks.remove_prefix(
          std::min(ranks.find_first_of("0123456789"), ranks.size()));
      std::string_view how = line.substr(end + 2);
      if (how.starts_with("Exited with "))
        how.remove_prefix(12);
      for (int64_t first = 0; number(ranks, first);) {
        int64_t last = first;
        if (!ranks.empty() && ranks[0] == '-') {
          ranks.remove_prefix(1);
          if (!number(ranks, last))
            return;
        }
        for (int64_t r = first; r <= last && r - first < 65536; ++r)
          add(r, how);
        if (ranks.empty() || ranks[0] != ',')
          return;
        ranks.remove_prefix(1);
      }
      return;
    }
    // torchrun: "rank      : 3 (local_rank: 3)", then "exitcode  : -9 (pid:
    // 7)".
    size_t colon = line.find(" : ");
    if (colon == std::string_view::npos)
      return;
    std::string_view value = line.substr(colon + 3);
    if (holds(line, kSummary) && holds(line.substr(0, colon), "rank")) {
      if (!number(value, summary))
        summary = -1;
    } else if (int64_t code = 0; summary >= 0 &&
                                 holds(line.substr(0, colon), "exitcode") &&
                                 number(value, code)) {
      add(summary, code < 0 ? "signal " + std::to_string(-code)
                            : "exit code " + std::to_string(code));
      summary = -1;
    }
  }

private:
  Job &job;
  const std::string &path;
  uint32_t lineNo = 0;
  int64_t summary = -1; ///< the rank that torchrun's summary speaks of

  static std::string_view withoutDot(std::string_view text) {
    while (!text.empty() && (text.back() == '.' || text.back() == '\r'))
      text.remove_suffix(1);
    return text;
  }

  void add(int64_t rank, std::string_view how) {
    if (rank < 0 || rank >= (1 << 20) || how.empty())
      return;
    // So ends whoever hung, when somebody ends the job.
    if (how.starts_with("signal 15") || how.starts_with("Terminated"))
      return;
    ++job.linesUnderstood;
    RankEvidence &own = job.ranks[Rank(rank)];
    HostWait wait;
    wait.kind = HostWait::Kind::Exception;
    wait.died = true;
    wait.function = std::string(withoutDot(how).substr(0, 200));
    wait.file = path;
    wait.line = lineNo;
    if (own.waits.size() < 4096)
      own.waits.push_back(std::move(wait));
    if (own.files.empty() || own.files.back() != path)
      own.files.push_back(path);
    job.haveStacks = true;
  }
};

} // namespace

bool looksLikeLauncherOutput(std::string_view text) {
  return holds(text, kNoticed) || holds(text, kSrun) || holds(text, kSummary);
}

void readLauncherOutput(std::string_view text, const std::string &path,
                        Job &job) {
  Reader reader(job, path);
  uint32_t lineNo = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    reader.take(text.substr(at, std::min<size_t>(end - at, 4096)), ++lineNo);
    at = end + 1;
  }
}

} // namespace concord::order::evidence
