//===- HostFindings.cpp - What hosts tell without an order of issue -------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostFindings.h"

#include "Numbering.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace concord::order;

void evidence::exceptions(const Job &job, Diagnosis &out) {
  auto consequence = [](const std::string &text) {
    for (std::string_view part :
         {"losed by peer", "onnection reset", "roken pipe", "imed out",
          "imeout", "DistBackendError", "DistNetworkError", "remote worker",
          "CONCORD_ERROR_PEER", "CONCORD_ERROR_ABORTED", "KeyboardInterrupt"})
      if (text.find(part) != std::string::npos)
        return true;
    return false;
  };
  // An exit code has a reason, and ranks abort that wait too long; another
  // rank's exception or signal says more.
  auto isWeak = [](const HostWait &w) {
    return w.died && (w.function.starts_with("exit code") ||
                      w.function.starts_with("signal 6"));
  };
  bool reasons = false;
  for (const auto &[rank, evidence] : job.ranks)
    for (const HostWait &w : evidence.waits)
      reasons |= w.kind == HostWait::Kind::Exception &&
                 !consequence(w.function) && !isWeak(w);
  Finding f;
  f.kind = Finding::Kind::Blocked;
  f.id = "exception";
  std::vector<Rank> after;
  const HostWait *first = nullptr;
  for (const auto &[rank, evidence] : job.ranks)
    for (const HostWait &w : evidence.waits) {
      if (w.kind != HostWait::Kind::Exception)
        continue;
      std::string text = rankName(rank) + " " + hostText(w) + ", " + w.file +
                         ":" + std::to_string(w.line);
      if (!out.findings.empty()) {
        if (out.warnings.size() < 24)
          out.warnings.push_back(text);
        continue;
      }
      bool root = !consequence(w.function) && !(reasons && isWeak(w));
      auto &list = root ? f.culprits : after;
      if (std::find(list.begin(), list.end(), rank) == list.end())
        list.push_back(rank);
      if (root && !first)
        first = &w;
      if (f.details.size() < 16)
        f.details.insert(root ? f.details.begin() : f.details.end(), text);
    }
  if (f.details.empty())
    return;
  f.title =
      f.culprits.empty()
          ? rankList(after) + " have lost a peer, and no rank has left a reason"
          : rankList(f.culprits) + (f.culprits.size() > 1
                                        ? " have ended early"
                                        : " " + endText(*first));
  f.cause = f.culprits.empty()
                ? "a rank that ended without a trace, or a link"
                : "what comes after an exception is never issued; the other "
                  "ranks wait for it or lose their peer";
  f.cure = f.culprits.empty()
               ? "get the output and exit status of the ranks that left none"
           : first->died
               ? "look at that rank's own output, its core file and the "
                 "system's log (out of memory?)"
               : "mend what it threw, and end the job when a rank throws";
  f.culprits.insert(f.culprits.end(), after.begin(), after.end());
  out.findings.push_back(std::move(f));
}

void evidence::stacksAlone(const Job &job, Diagnosis &out) {
  // What the main thread says of itself counts most: workers of a library may
  // stand in parts of the same collective.
  auto moreTelling = [](const HostWait &a, const HostWait &b) {
    bool x = a.main && a.kind <= HostWait::Kind::HostCollective,
         y = b.main && b.kind <= HostWait::Kind::HostCollective;
    return x != y ? x : a.kind < b.kind;
  };
  std::map<std::string, std::vector<Rank>> camps;
  std::map<Rank, const HostWait *> at;
  for (const auto &[rank, evidence] : job.ranks) {
    if (evidence.present)
      return; // the order of issue tells more
    if (evidence.waits.empty())
      continue;
    const HostWait &wait = *std::min_element(evidence.waits.begin(),
                                             evidence.waits.end(), moreTelling);
    at[rank] = &wait;
    camps[std::string(waitName(wait.kind)) + " " +
          (wait.via.empty() ? wait.function : wait.via)]
        .push_back(rank);
  }
  const std::vector<Rank> *most = nullptr;
  for (auto &[_, ranks] : camps)
    if (!most || ranks.size() > most->size())
      most = &ranks;
  if (!most || most->size() * 2 <= at.size() || most->size() == at.size() ||
      at.at(most->front())->kind > HostWait::Kind::HostCollective)
    return;
  Finding f;
  f.kind = Finding::Kind::Missing;
  f.id = "stands-elsewhere";
  for (const auto &[rank, wait] : at)
    if (std::find(most->begin(), most->end(), rank) == most->end())
      f.culprits.push_back(rank);
  auto text = [&](Rank rank) { return hostText(*at.at(rank)); };
  f.title = rankList(*most) + (most->size() > 1 ? " are in " : " is in ") +
            text(most->front()) + "; " + rankList(f.culprits) +
            (f.culprits.size() > 1 ? " are not" : " is not");
  for (Rank rank : f.culprits)
    if (f.details.size() < 16)
      f.details.push_back(rankName(rank) + " is in " + text(rank) + ", " +
                          at.at(rank)->file + ":" +
                          std::to_string(at.at(rank)->line));
  f.cause = "the others wait for what these ranks have not issued, or do not "
            "wait for what these do";
  f.cure = "look at what these ranks do there; record what is issued to know "
           "which operation it is";
  out.findings.push_back(std::move(f));
}
