//===- Frontiers.h - What is open, and who came an odd way ------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The second layer: the earliest open instance of every sequence, and whether a
// rank came to an issue on its usual way.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_EVIDENCE_FRONTIERS_H
#define CONCORD_ANALYSIS_ORDER_EVIDENCE_FRONTIERS_H

#include "Numbering.h"

namespace concord::order::evidence {

class Frontiers : public Numbering {
public:
  using Numbering::Numbering;

protected:
  /// The earliest instance of every sequence that is not known to be complete.
  void frontiers() {
    frontier.assign(job.sequences.size(), kNoFrontier);
    std::vector<int64_t> done(job.sequences.size(), INT64_MIN);
    for (const View &v : views) {
      size_t settled = statesKnown ? settledOf(v) : 0;
      for (size_t n = 0; n < v.index.size(); ++n) {
        const Issue &i = v.evidence->issues[n];
        if (i.state == State::Completed || n < settled)
          done[i.sequence] = std::max(done[i.sequence], v.index[n]);
      }
    }
    auto lower = [&](uint32_t s, int64_t index) {
      if (index > done[s] && index < frontier[s]) {
        frontier[s] = index;
        return true;
      }
      return false;
    };
    auto open = [&] {
      for (const View &v : views)
        for (size_t n = 0; n < v.index.size(); ++n) {
          const Issue &i = v.evidence->issues[n];
          if (i.state == State::Scheduled || i.state == State::Started)
            lower(i.sequence, v.index[n]);
        }
    };
    open();
    // An instance that has started on every member can complete: the dumps were
    // written before the watchdogs saw it. (If nothing else explains the hang,
    // diagnose() tries again without this.)
    for (int round = 0; trustStarted && round < 4; ++round) {
      std::vector<size_t> started(job.sequences.size(), 0);
      for (const View &v : views)
        for (size_t n = 0; n < v.index.size(); ++n) {
          const Issue &i = v.evidence->issues[n];
          if (v.index[n] == frontier[i.sequence] && i.state >= State::Started)
            ++started[i.sequence];
        }
      bool changed = false;
      for (uint32_t s = 0; s < started.size(); ++s)
        if (frontier[s] != kNoFrontier && !members[s].empty() &&
            started[s] == members[s].size()) {
          done[s] = frontier[s];
          frontier[s] = kNoFrontier;
          changed = true;
        }
      if (!changed)
        break;
      open();
    }
    // Without states: instances that some member, whose log is whole, has not
    // issued; what an error line names; what a synchronising host has issued
    // last.
    if (!statesKnown) {
      for (uint32_t s = 0; s < job.sequences.size(); ++s) {
        int64_t most = INT64_MIN, least = INT64_MAX;
        for (Rank r : members[s]) {
          auto it = viewOf.find(r);
          if (it == viewOf.end())
            continue;
          const View &v = views[it->second];
          auto l = v.last.find(s);
          int64_t k = l == v.last.end() ? -1 : l->second;
          most = std::max(most, k);
          if (!v.evidence->truncatedStart)
            least = std::min(least, k);
        }
        if (least < most)
          lower(s, least + 1);
      }
      for (const View &v : views) {
        for (const ErrorLine &e : v.evidence->errors) {
          std::string id =
              e.tag.substr(std::min(e.tag.size(), e.tag.find('_') + 1));
          for (auto [s, last] : v.last) {
            const std::string &name = job.domains[job.sequences[s].domain].name;
            if (!name.empty() &&
                (id == name || e.group == name || e.tag == name))
              lower(s, last);
          }
        }
        bool syncs =
            std::any_of(v.evidence->waits.begin(), v.evidence->waits.end(),
                        [](const HostWait &w) {
                          return w.kind == HostWait::Kind::DeviceSync ||
                                 w.kind == HostWait::Kind::StreamSync ||
                                 w.kind == HostWait::Kind::Allocation ||
                                 w.kind == HostWait::Kind::Free;
                        });
        if (syncs && !v.evidence->issues.empty())
          lower(v.evidence->issues.back().sequence, v.index.back());
      }
      // What stands behind a held-up operation on a rank is held up as well.
      for (bool changed = true; changed;) {
        changed = false;
        for (const View &v : views) {
          bool behind = false;
          for (size_t n = 0; n < v.index.size(); ++n) {
            uint32_t s = v.evidence->issues[n].sequence;
            if (behind)
              changed |= lower(s, v.index[n]);
            behind = behind || v.index[n] >= frontier[s];
          }
        }
      }
    }
  }

  struct At {
    uint64_t order;
    uint32_t sequence;
    const Issue *issue;
  };
  struct Wait {
    uint32_t to; ///< sequence
    Rank rank;   ///< where
    const Issue *from, *held;
    bool issued; ///< `from` was issued there
  };
  std::vector<std::vector<Wait>> waits; ///< per sequence

  /// The blocking wait that a rank's stacks tell, if any.
  const HostWait *hostWait(Rank rank) const {
    auto it = job.ranks.find(rank);
    if (it == job.ranks.end())
      return nullptr;
    const HostWait *best = nullptr;
    for (const HostWait &w : it->second.waits)
      // Of equals the one that tells who called, and of these the main thread.
      if (!best || w.kind < best->kind ||
          (w.kind == best->kind &&
           (best->via.empty() != w.via.empty() ? best->via.empty()
                                               : w.main && !best->main)))
        best = &w;
    return best;
  }

  /// What an issue is, apart from which ranks take part: comparable over ranks.
  uint64_t classOf(const Issue &i) const {
    const Sequence &q = job.sequences[i.sequence];
    const Domain &d = job.domains[q.domain];
    uint64_t h = std::hash<std::string>{}(d.description.empty() ||
                                                  d.description == "undefined"
                                              ? std::to_string(d.members.size())
                                              : d.description);
    return (h * 31 + i.signature) * 31 + i.kind;
  }
  /// The issue and the four before it.
  uint64_t context(const View &v, size_t n) const {
    uint64_t h = 0;
    for (size_t back = 0; back < 5 && back <= n; ++back)
      h = (h ^ classOf(v.evidence->issues[n - back])) * 0x9E3779B97F4A7C15ull +
          back;
    return h;
  }
  size_t placeOf(const View &v, const Issue *issue) const {
    return size_t(issue - v.evidence->issues.data());
  }

  /// Whether a rank came to an issue on a way that is not its own usual one
  /// (its history), nor that of the other members. 2: usual, 1: cannot tell, 0:
  /// odd.
  int oddnessOf(Rank rank, const Issue *issue) const {
    const View &v = views[viewOf.at(rank)];
    size_t at = placeOf(v, issue);
    uint64_t own = context(v, at), kind = classOf(*issue);
    uint32_t before = 0, alike = 0;
    for (size_t n = 4; n < at; ++n)
      if (classOf(v.evidence->issues[n]) == kind) {
        ++before;
        alike += context(v, n) == own;
      }
    uint32_t others = 0, agree = 0, among = 0;
    std::map<uint64_t, uint32_t> camps;
    for (Rank r : members[issue->sequence]) {
      const Issue *other = r == rank ? nullptr : openIssue(r, issue->sequence);
      if (!other)
        continue;
      uint64_t c =
          context(views[viewOf.at(r)], placeOf(views[viewOf.at(r)], other));
      ++others;
      agree += c == own;
      among = std::max(among, ++camps[c]);
    }
    if (others >= 2 && agree == 0 && among * 2 > others)
      return 0; // most others came alike, and not like this rank
    if (before >= 2 && alike == 0)
      return others >= 2 && agree * 2 > others ? 1 : 0;
    if ((before >= 1 && alike > 0) || (others >= 2 && agree * 2 > others))
      return 2;
    return 1;
  }
  std::map<std::pair<Rank, uint32_t>, const Issue *> openAt;
  const Issue *openIssue(Rank r, uint32_t s) const {
    auto it = openAt.find({r, s});
    return it == openAt.end() ? nullptr : it->second;
  }

  int oddness(uint32_t, const Wait &w) const {
    int score = oddnessOf(w.rank, w.held);
    if (w.from)
      score = std::min(score, oddnessOf(w.rank, w.from));
    return score;
  }
};

} // namespace concord::order::evidence

#endif // CONCORD_ANALYSIS_ORDER_EVIDENCE_FRONTIERS_H
