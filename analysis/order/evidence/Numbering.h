//===- Numbering.h - Instances of a job, and where they diverge -*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first layer of the diagnosis: every issue gets an instance number that
// all members share, and the earliest divergence of every sequence is reported.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_EVIDENCE_NUMBERING_H
#define CONCORD_ANALYSIS_ORDER_EVIDENCE_NUMBERING_H

#include "../StableSort.h"
#include "concord/order/Evidence.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace concord::order::evidence {

using Reason = ChainEdge::Reason;

constexpr int64_t kAligned = int64_t(1)
                             << 40; ///< index of the first open transfer
constexpr int64_t kNoFrontier = INT64_MAX;

inline std::string rankName(Rank r) { return "r" + std::to_string(r); }

inline std::string rankList(const std::vector<Rank> &ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 8 && ranks.size() > 9)
      return out + " and " + std::to_string(ranks.size() - 8) + " more";
    out += (i ? (i + 1 == ranks.size() ? " and " : ", ") : "") +
           rankName(ranks[i]);
  }
  return out;
}

inline std::string_view waitName(HostWait::Kind kind) {
  static constexpr std::string_view names[] = {"a device synchronisation",
                                               "a stream synchronisation",
                                               "a memory allocation",
                                               "a memory free",
                                               "loading a kernel",
                                               "a full launch queue",
                                               "creating a communicator",
                                               "a blocking collective",
                                               "the gate",
                                               "a lock",
                                               "an exception",
                                               "another wait",
                                               "running code"};
  return names[size_t(kind)];
}

/// "has thrown ValueError: no", "has died of signal 9 (Killed)".
inline std::string endText(const HostWait &wait) {
  return (wait.died ? "has died of " : "has thrown ") + wait.function;
}

/// Where a host is, or how it ended.
inline std::string hostText(const HostWait &wait) {
  if (wait.kind == HostWait::Kind::Exception)
    return endText(wait) + (wait.via.empty() ? "" : " in " + wait.via);
  return std::string(waitName(wait.kind)) + " (" + wait.function +
         (wait.via.empty() ? "" : ", called from " + wait.via) + ")";
}

class Numbering {
public:
  Numbering(const Job &job, Diagnosis &out, bool trustStarted)
      : job(job), out(out), trustStarted(trustStarted) {}

protected:
  const Job &job;
  Diagnosis &out;
  bool trustStarted;

  struct View {
    Rank rank;
    const RankEvidence *evidence;
    std::vector<int64_t> index;       ///< per issue: instance number, aligned
    std::map<uint32_t, int64_t> last; ///< per sequence: largest instance issued
    std::vector<bool> pending;
  };
  std::vector<View> views;
  std::map<Rank, size_t> viewOf;
  std::vector<int64_t> frontier;          ///< per sequence
  std::vector<std::vector<Rank>> members; ///< per sequence: global ranks
  bool anyTimedOut = false, anyError = false;
  bool statesKnown = false;
  std::set<Rank> absent; ///< members without evidence

  std::vector<int64_t> recordedDone; ///< per sequence with recorded numbers

  /// How many of a rank's issues, from the start, are known to be complete: up
  /// to the last one that this rank or another member has seen complete.
  size_t settledOf(const View &v) const {
    for (size_t n = v.evidence->issues.size(); n-- > 0;) {
      const Issue &i = v.evidence->issues[n];
      if (i.state == State::Completed ||
          (i.index >= 0 && i.index <= recordedDone[i.sequence]))
        return n + 1;
    }
    return 0;
  }

  void number() {
    recordedDone.assign(job.sequences.size(), -1);
    for (const auto &[rank, evidence] : job.ranks)
      for (const Issue &i : evidence.issues)
        if (i.state == State::Completed && i.index >= 0)
          recordedDone[i.sequence] =
              std::max(recordedDone[i.sequence], i.index);
    for (const auto &[rank, evidence] : job.ranks) {
      for (const ErrorLine &e : evidence.errors)
        anyError = anyError || e.code.size() > 1;
      if (!evidence.present)
        continue;
      viewOf[rank] = views.size();
      views.push_back({rank, &evidence, {}, {}, {}});
    }
    members.resize(job.sequences.size());
    for (uint32_t s = 0; s < job.sequences.size(); ++s) {
      const Sequence &q = job.sequences[s];
      if (!q.transfer)
        for (Rank r : job.domains[q.domain].members) {
          if (r >= 0)
            members[s].push_back(r);
        }
      else if (q.source >= 0)
        members[s] = {q.source, q.destination};
    }
    for (View &v : views) {
      v.index.resize(v.evidence->issues.size());
      std::map<uint32_t, int64_t> counter, firstOpen;
      for (const Issue &i : v.evidence->issues) {
        anyTimedOut = anyTimedOut || i.timedOut;
        statesKnown = statesKnown || i.state != State::Unknown;
      }
      // Transfers carry no number that both sides share: count them. Where the
      // ring has dropped the start, count from the first open one instead.
      // States lag, so what stands before something known to be complete is
      // complete.
      bool align = v.evidence->truncatedStart;
      size_t settled = settledOf(v);
      if (align)
        for (size_t n = 0; n < v.evidence->issues.size(); ++n) {
          const Issue &i = v.evidence->issues[n];
          if (i.index < 0) {
            int64_t k = counter[i.sequence]++;
            if (i.state != State::Completed && n >= settled)
              firstOpen.try_emplace(i.sequence, k);
          }
        }
      std::map<uint32_t, int64_t> total = counter;
      counter.clear();
      for (size_t n = 0; n < v.index.size(); ++n) {
        const Issue &i = v.evidence->issues[n];
        int64_t k = i.index >= 0 ? i.index : counter[i.sequence]++;
        if (i.index < 0 && align && statesKnown) {
          auto it = firstOpen.find(i.sequence);
          k += kAligned -
               (it == firstOpen.end() ? total[i.sequence] : it->second);
        }
        v.index[n] = k;
        auto [it, fresh] = v.last.try_emplace(i.sequence, k);
        if (!fresh)
          it->second = std::max(it->second, k);
      }
    }
    // If one side of a direction is aligned from its open end, so must the
    // other.
    alignPartners();
    // Members of a domain whose list the evidence does not give.
    for (uint32_t s = 0; s < job.sequences.size(); ++s)
      if (members[s].empty() && !job.sequences[s].transfer)
        for (const View &v : views)
          if (v.last.count(s))
            members[s].push_back(v.rank);
    for (uint32_t s = 0; s < members.size(); ++s)
      for (Rank r : members[s])
        if (!viewOf.count(r))
          absent.insert(r);
  }

  std::vector<bool> uncertain; ///< per sequence: numbered from its open end

  void alignPartners() {
    uncertain.assign(job.sequences.size(), false);
    for (const View &v : views)
      if (v.evidence->truncatedStart)
        for (const Issue &i : v.evidence->issues)
          if (i.index < 0)
            uncertain[i.sequence] = true;
    for (uint32_t s = 0; s < job.sequences.size(); ++s) {
      if (!job.sequences[s].transfer || members[s].size() != 2)
        continue;
      auto a = viewOf.find(members[s][0]), b = viewOf.find(members[s][1]);
      if (a == viewOf.end() || b == viewOf.end())
        continue;
      View &x = views[a->second], &y = views[b->second];
      bool xa = x.evidence->truncatedStart, ya = y.evidence->truncatedStart;
      if (xa == ya || !statesKnown)
        continue;
      View &plain = xa ? y : x;
      int64_t open = -1, total = 0;
      for (size_t n = 0; n < plain.index.size(); ++n) {
        const Issue &i = plain.evidence->issues[n];
        if (i.sequence != s || i.index >= 0)
          continue;
        if (i.state != State::Completed && n >= settledOf(plain) && open < 0)
          open = total;
        ++total;
      }
      int64_t shift = kAligned - (open < 0 ? total : open);
      for (size_t n = 0; n < plain.index.size(); ++n)
        if (plain.evidence->issues[n].sequence == s &&
            plain.evidence->issues[n].index < 0)
          plain.index[n] += shift;
      if (auto it = plain.last.find(s); it != plain.last.end())
        it->second += shift;
    }
  }

  std::string instanceName(uint32_t s, int64_t index) const {
    std::string name = job.sequenceName(s);
    if (index >= kAligned / 2)
      return name + "#(open+" + std::to_string(index - kAligned) + ")";
    return name + "#" + std::to_string(index);
  }

  ChainEdge::End end(uint32_t s, Rank rank, const Issue *issue) const {
    ChainEdge::End e;
    std::string kind = issue && issue->kind != kNone
                           ? job.strings[issue->kind] + " "
                           : std::string();
    e.text = kind + instanceName(s, frontier[s]) + "@" + rankName(rank);
    e.rank = rank;
    e.domain = job.domains[job.sequences[s].domain].name;
    e.instance = frontier[s];
    if (issue) {
      if (issue->stream != kNone)
        e.stream = job.strings[issue->stream];
      e.loc.file = issue->file == kNone ? "" : job.strings[issue->file];
      e.loc.line = issue->line;
    }
    return e;
  }

  /// C5 on the evidence: the earliest divergence per sequence.
  void mismatches() {
    struct Seen {
      uint32_t signature;
      bool differs = false;
    };
    std::unordered_map<uint64_t, Seen> seen;
    std::map<uint32_t, int64_t> earliest;
    size_t total = 0;
    for (const View &v : views)
      total += v.index.size();
    seen.reserve(total / 4 + 16);
    for (const View &v : views)
      for (size_t n = 0; n < v.index.size(); ++n) {
        const Issue &i = v.evidence->issues[n];
        const Sequence &q = job.sequences[i.sequence];
        if (i.signature == kNone || v.index[n] < 0 ||
            (q.transfer && q.source < 0))
          continue;
        if (!q.transfer && v.evidence->truncatedStart &&
            (job.haveHccl || job.haveNccl) && !statesKnown)
          continue; // counted from an unknown start
        uint64_t key = uint64_t(i.sequence) << 44 ^ uint64_t(v.index[n]);
        auto [it, fresh] = seen.try_emplace(key, Seen{i.signature, false});
        if (fresh || it->second.signature == i.signature)
          continue;
        auto [at, isNew] = earliest.try_emplace(i.sequence, v.index[n]);
        if (!isNew)
          at->second = std::min(at->second, v.index[n]);
      }
    struct Ranked {
      uint64_t order;
      Finding finding;
    };
    std::vector<Ranked> found;
    for (auto [s, index] : earliest) {
      struct Camp {
        uint32_t signature;
        std::vector<Rank> ranks;
        const Issue *example;
      };
      std::vector<Camp> camps;
      uint64_t order = UINT64_MAX;
      for (const View &v : views)
        for (size_t n = 0; n < v.index.size(); ++n) {
          const Issue &i = v.evidence->issues[n];
          if (i.sequence != s || v.index[n] != index)
            continue;
          auto it =
              std::find_if(camps.begin(), camps.end(), [&](const Camp &c) {
                return c.signature == i.signature;
              });
          if (it == camps.end())
            camps.push_back({i.signature, {v.rank}, &i});
          else
            it->ranks.push_back(v.rank);
          order = std::min(order, uint64_t(n));
          break;
        }
      stableSort(camps, [](const Camp &a, const Camp &b) {
        return a.ranks.size() > b.ranks.size();
      });
      Finding f;
      f.kind = Finding::Kind::Mismatch;
      f.id = "mismatch";
      f.title = "instance " + instanceName(s, index) + " differs: ";
      for (size_t c = 0; c < camps.size(); ++c)
        f.title += (c ? ", " : "") + job.strings[camps[c].signature] + " on " +
                   rankList(camps[c].ranks);
      bool majority =
          camps.size() > 1 && camps[0].ranks.size() > camps[1].ranks.size();
      for (size_t c = 1; c < camps.size(); ++c)
        for (Rank r : camps[c].ranks)
          f.culprits.push_back(r);
      if (majority)
        f.details.push_back("odd one out by majority: " + rankList(f.culprits));
      else {
        std::optional<Rank> odd =
            oddByHistory(s, index, camps[0].ranks, f.culprits);
        f.culprits.insert(f.culprits.end(), camps[0].ranks.begin(),
                          camps[0].ranks.end());
        if (odd) {
          f.details.push_back("no majority here; " + rankName(*odd) +
                              " departs from what its other domains suggest");
          f.culprits.erase(
              std::find(f.culprits.begin(), f.culprits.end(), *odd));
          f.culprits.insert(f.culprits.begin(), *odd);
        } else
          f.details.push_back(
              "no majority: the evidence does not say which side is wrong");
      }
      for (const Camp &c : camps)
        f.details.push_back(
            job.strings[c.signature] + ": " +
            (c.example->file == kNone ? "" : job.strings[c.example->file]) +
            " record " + std::to_string(c.example->line));
      if (skipped(s, index, camps[0].ranks.front(), f.culprits.front()))
        f.details.insert(
            f.details.begin(),
            rankName(f.culprits.front()) + " seems to have skipped instance " +
                instanceName(s, index) +
                ": what it issues from there equals what " +
                rankName(camps[0].ranks.front()) +
                " issues one instance later; later hangs are a consequence");
      f.cause = "the members do not issue the same sequence on this domain";
      f.cure = "find what made " + rankName(f.culprits.front()) +
               " take another path before this instance: a branch, a size or a "
               "trip count from "
               "rank-local data";
      found.push_back({order, std::move(f)});
    }
    stableSort(found, [](const Ranked &a, const Ranked &b) {
      return a.order < b.order;
    });
    for (Ranked &r : found)
      out.findings.push_back(std::move(r.finding));
  }

  const Issue *issueAt(Rank rank, uint32_t s, int64_t index) const {
    auto it = viewOf.find(rank);
    if (it == viewOf.end())
      return nullptr;
    const View &v = views[it->second];
    for (size_t n = 0; n < v.index.size(); ++n)
      if (v.evidence->issues[n].sequence == s && v.index[n] == index)
        return &v.evidence->issues[n];
    return nullptr;
  }

  bool skipped(uint32_t s, int64_t index, Rank normal, Rank odd) const {
    for (int64_t k = 0; k < 4; ++k) {
      const Issue *a = issueAt(odd, s, index + k),
                  *b = issueAt(normal, s, index + k + 1);
      if (!a || !b)
        return k > 0;
      if (a->signature != b->signature)
        return false;
    }
    return true;
  }

  /// Two equal camps: the rank whose signature differs from what most ranks of
  /// the job issue at the same place of sequences with the same description.
  std::optional<Rank> oddByHistory(uint32_t s, int64_t index,
                                   const std::vector<Rank> &a,
                                   const std::vector<Rank> &b) const {
    std::map<uint32_t, size_t> votes;
    size_t size = members[s].size();
    const Domain &own = job.domains[job.sequences[s].domain];
    for (const View &v : views)
      for (size_t n = 0; n < v.index.size(); ++n) {
        const Issue &i = v.evidence->issues[n];
        if (i.sequence == s || v.index[n] != index || i.signature == kNone ||
            members[i.sequence].size() != size ||
            job.domains[job.sequences[i.sequence].domain].description !=
                own.description)
          continue;
        ++votes[i.signature];
      }
    auto count = [&](Rank r) {
      const Issue *i = issueAt(r, s, index);
      auto it = i ? votes.find(i->signature) : votes.end();
      return it == votes.end() ? size_t(0) : it->second;
    };
    if (a.empty() || b.empty())
      return {};
    size_t va = count(a.front()), vb = count(b.front());
    if (va == vb)
      return {};
    return va > vb ? b.front() : a.front();
  }
};

} // namespace concord::order::evidence

#endif // CONCORD_ANALYSIS_ORDER_EVIDENCE_NUMBERING_H
