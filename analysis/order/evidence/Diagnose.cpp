//===- Diagnose.cpp - Who holds up whom in a hung job ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Evidence is a snapshot, not a program, so the wait-for graph is smaller than
// that of the model. Every sequence (collectives of a domain, one direction of
// its transfers) has at most one *frontier*: its earliest instance that is not
// known to have completed. At a member that has issued it, the frontier waits
// for the frontiers issued before it on that rank; at a member that has not, it
// waits for the frontiers that hold that rank's device or host. A cycle of
// sequences is a cross-domain cycle; a member that has not issued its frontier
// and waits for nothing is the one that everybody waits for.
//
// What is assumed, and printed: what was issued earlier on a rank holds up what
// was issued later unless the later one is seen to have started.
//
//===----------------------------------------------------------------------===//

#include "../StableSort.h"
#include "concord/order/Evidence.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

namespace concord::order::evidence {

using Reason = ChainEdge::Reason;

bool Diagnosis::fault() const {
  return std::any_of(findings.begin(), findings.end(), [](const Finding &f) {
    return f.kind != Finding::Kind::Warning;
  });
}

namespace {

constexpr int64_t kAligned = int64_t(1)
                             << 40; ///< index of the first open transfer
constexpr int64_t kNoFrontier = INT64_MAX;

std::string rankName(Rank r) { return "r" + std::to_string(r); }

std::string rankList(const std::vector<Rank> &ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 8 && ranks.size() > 9)
      return out + " and " + std::to_string(ranks.size() - 8) + " more";
    out += (i ? (i + 1 == ranks.size() ? " and " : ", ") : "") +
           rankName(ranks[i]);
  }
  return out;
}

std::string_view waitName(HostWait::Kind kind) {
  static constexpr std::string_view names[] = {"a device synchronisation",
                                               "a stream synchronisation",
                                               "a memory allocation",
                                               "a memory free",
                                               "loading a kernel",
                                               "creating a communicator",
                                               "a host collective",
                                               "a lock",
                                               "running code"};
  return names[size_t(kind)];
}

class Doctor {
public:
  Doctor(const Job &job, Diagnosis &out, bool trustStarted)
      : job(job), out(out), trustStarted(trustStarted) {}

  void run() {
    number();
    mismatches();
    frontiers();
    chains();
    missingEvidence();
  }

private:
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
        if (!q.transfer && v.evidence->truncatedStart && job.haveHccl &&
            !statesKnown)
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
      if (!best || w.kind < best->kind)
        best = &w;
    return best;
  }

  void chains() {
    waits.resize(job.sequences.size());
    std::map<Rank, std::vector<uint32_t>> notIssued;
    std::map<Rank, std::vector<At>> open;
    std::vector<uint32_t> live;
    for (uint32_t s = 0; s < frontier.size(); ++s)
      if (frontier[s] != kNoFrontier)
        live.push_back(s);
    if (live.empty())
      return;
    for (const View &v : views) {
      std::vector<At> &at = open[v.rank];
      std::set<uint32_t> have;
      for (size_t n = 0; n < v.index.size(); ++n) {
        const Issue &i = v.evidence->issues[n];
        if (v.index[n] == frontier[i.sequence] && i.state != State::Completed &&
            have.insert(i.sequence).second) {
          at.push_back({i.order, i.sequence, &i});
          openAt[{v.rank, i.sequence}] = &i;
        }
      }
    }
    for (uint32_t s : live)
      for (Rank r : members[s]) {
        auto it = viewOf.find(r);
        if (it == viewOf.end())
          continue;
        const View &v = views[it->second];
        auto l = v.last.find(s);
        if (l == v.last.end() || l->second < frontier[s]) {
          // A whole log without the sequence, or one that ends before it.
          if (l == v.last.end() && v.evidence->truncatedStart && !statesKnown)
            continue;
          notIssued[r].push_back(s);
        }
      }
    for (auto &[rank, list] : open) {
      for (size_t k = 1; k < list.size(); ++k) {
        if (list[k].issue->state == State::Started)
          continue; // it holds resources of its own
        // The nearest earlier one; and, past started ones, further ones.
        size_t added = 0;
        for (size_t j = k; j-- > 0 && added < 16;) {
          if (list[j].order == list[k].order)
            continue; // one launch
          if (list[j].sequence == list[k].sequence)
            continue;
          waits[list[k].sequence].push_back(
              {list[j].sequence, rank, list[k].issue, list[j].issue, true});
          ++added;
        }
      }
    }
    std::vector<Rank> idle; // held up by nothing, and not there
    for (auto &[rank, list] : notIssued) {
      auto it = open.find(rank);
      const std::vector<At> *at = it == open.end() ? nullptr : &it->second;
      if (!at || at->empty()) {
        idle.push_back(rank);
        continue;
      }
      for (uint32_t s : list)
        for (size_t j = 0; j < at->size() && j < 16; ++j)
          waits[s].push_back(
              {(*at)[j].sequence, rank, nullptr, (*at)[j].issue, false});
    }

    // Ranked by how sure they are: 0 a cycle over certain numbers, 1 a host
    // seen to block, 2 a member that nothing holds up, 3 a cycle that leans on
    // transfers numbered from their open end.
    std::vector<std::pair<int, Finding>> ranked;
    std::vector<Cycle> cycles = findCycles(live);
    bool hangs = anyTimedOut || anyError || job.haveStacks;
    if (!cycles.empty() && (hangs || !cycles.front().uncertain)) {
      Finding f = cycleFinding(cycles.front());
      ranked.push_back({cycles.front().uncertain ? 3 : 0, std::move(f)});
    }
    for (Rank r : idle) {
      Finding f = absentee(r, notIssued[r]);
      ranked.push_back({f.id == "host-block" ? 1 : 2, std::move(f)});
    }
    for (auto &[rank, list] : notIssued) {
      const HostWait *host = hostWait(rank);
      if (!host || host->kind >= HostWait::Kind::Lock ||
          std::find(idle.begin(), idle.end(), rank) != idle.end())
        continue;
      if (!cycles.empty() && !cycles.front().uncertain &&
          std::any_of(
              cycles.front().edges.begin(), cycles.front().edges.end(),
              [&, r = rank](const auto &e) { return e.second->rank == r; }))
        continue; // told by the cycle
      ranked.push_back({1, absentee(rank, list)});
    }
    stableSort(ranked,
               [](const auto &a, const auto &b) { return a.first < b.first; });
    std::vector<Finding> found;
    for (auto &[_, f] : ranked)
      found.push_back(std::move(f));
    if (found.empty() && !absent.empty())
      suspectAbsent(live, found);
    if (found.empty() && (anyTimedOut || anyError))
      unexplained(live, found);
    for (Finding &f : found)
      if (out.findings.size() < 64)
        out.findings.push_back(std::move(f));
  }

  struct Cycle {
    std::vector<std::pair<uint32_t, const Wait *>> edges;
    bool uncertain = false, odd = false;
  };

  /// For every open sequence a shortest cycle through it; the most telling
  /// first.
  std::vector<Cycle> findCycles(const std::vector<uint32_t> &live) {
    std::vector<Cycle> cycles;
    size_t searches = 0;
    for (uint32_t start : live) {
      if (waits[start].empty() || ++searches > 4000 || cycles.size() > 256)
        continue;
      std::map<uint32_t, std::pair<uint32_t, const Wait *>> parent;
      std::set<uint32_t> seen{start};
      std::deque<uint32_t> queue{start};
      bool found = false;
      while (!queue.empty() && !found) {
        uint32_t u = queue.front();
        queue.pop_front();
        for (const Wait &w : waits[u]) {
          if (w.to == start) {
            // A cycle needs at least two ranks: one rank cannot hold itself up.
            std::vector<std::pair<uint32_t, const Wait *>> path{{u, &w}};
            for (uint32_t x = u; x != start;) {
              auto [p, edge] = parent[x];
              path.push_back({p, edge});
              x = p;
            }
            std::set<Rank> ranks;
            for (auto &[_, edge] : path)
              ranks.insert(edge->rank);
            if (ranks.size() < 2)
              continue;
            std::reverse(path.begin(), path.end());
            Cycle c{std::move(path)};
            for (auto &[s, edge] : c.edges) {
              c.uncertain = c.uncertain || uncertain[s] || uncertain[edge->to];
              c.odd = c.odd || oddness(s, *edge) == 0;
            }
            cycles.push_back(std::move(c));
            found = true;
            break;
          }
          if (seen.insert(w.to).second) {
            parent[w.to] = {u, &w};
            queue.push_back(w.to);
          }
        }
      }
    }
    stableSort(cycles, [](const Cycle &a, const Cycle &b) {
      if (a.uncertain != b.uncertain)
        return !a.uncertain;
      if (a.odd != b.odd)
        return a.odd;
      return a.edges.size() < b.edges.size();
    });
    return cycles;
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

  Finding cycleFinding(const Cycle &found) {
    const auto &cycle = found.edges;
    Finding f;
    f.kind = Finding::Kind::Cycle;
    std::set<uint32_t> domains;
    bool transfersOnly = true, hostSync = false;
    std::vector<std::pair<int, Rank>> blame; // smaller is more suspicious
    for (auto &[s, w] : cycle) {
      domains.insert(job.sequences[s].domain);
      transfersOnly = transfersOnly && job.sequences[s].transfer;
      const HostWait *host = hostWait(w->rank);
      ChainEdge held;
      held.from = end(s, w->rank, w->from);
      held.to = end(w->to, w->rank, w->held);
      if (w->issued) {
        held.reason = Reason::Slot;
        held.why = held.from.text + " was issued after " + held.to.text +
                   " and waits behind it";
      } else {
        held.reason = host ? Reason::HostSync : Reason::NotIssued;
        held.why = held.from.text + " is not issued: ";
        if (host) {
          hostSync = true;
          held.why += "the host of " + rankName(w->rank) + " is in " +
                      std::string(waitName(host->kind)) + " (" +
                      host->function +
                      (host->via.empty() ? "" : ", called from " + host->via) +
                      ", " + host->file + ":" + std::to_string(host->line) +
                      ") and waits for " + held.to.text;
        } else
          held.why += rankName(w->rank) + " stands at " + held.to.text;
      }
      f.chain.push_back(std::move(held));
      // A host seen to block between two issues is the decisive edge.
      blame.push_back({!w->issued && host ? -1 : oddness(s, *w), w->rank});
    }
    // Across members: `to` needs its next member.
    std::vector<ChainEdge> full;
    for (size_t i = 0; i < f.chain.size(); ++i) {
      full.push_back(f.chain[i]);
      const ChainEdge &next = f.chain[(i + 1) % f.chain.size()];
      if (f.chain[i].to.rank == next.from.rank)
        continue;
      ChainEdge partner;
      partner.from = f.chain[i].to;
      partner.to = next.from;
      partner.reason = Reason::Partner;
      partner.why = partner.from.text + " needs " + partner.to.text;
      full.push_back(std::move(partner));
    }
    f.chain = std::move(full);
    stableSort(blame,
               [](const auto &a, const auto &b) { return a.first < b.first; });
    // Without a history: the odd rank by what most ranks of the same domains
    // do.
    for (auto &[score, rank] : blame)
      if (std::find(f.culprits.begin(), f.culprits.end(), rank) ==
          f.culprits.end())
        f.culprits.push_back(rank);
    if (blame.front().first == 0)
      f.details.push_back(
          rankName(f.culprits.front()) +
          " came here on another way than before, or than the other members");
    // A rank that went past an instance which it usually issues first, and
    // whose host is not seen to wait: it left the instance out.
    for (auto &[s, w] : cycle) {
      if (w->rank != f.culprits.front() || w->issued || hostWait(w->rank) ||
          blame.front().first != 0)
        continue;
      f.kind = Finding::Kind::Missing;
      f.id = "skipped-participant";
      f.title = rankName(w->rank) + " went on to " +
                instanceName(w->to, frontier[w->to]) + " without issuing " +
                instanceName(s, frontier[s]) +
                ", which it usually issues first";
      f.cause = "a branch or early return on rank-local data (or another "
                "issuer overtook it)";
      f.cure = "make the call unconditional, and keep one order over all "
               "domains on every rank";
      return f;
    }
    std::string names;
    for (uint32_t d : domains)
      names += (names.empty() ? "" : ", ") + job.domains[d].name;
    bool cross = domains.size() > 1;
    f.id = hostSync        ? "host-block-cycle"
           : cross         ? "cross-domain-cycle"
           : transfersOnly ? "transfer-cycle"
                           : "order-cycle";
    f.title =
        cross ? "operations of domains " + names +
                    " wait for each other in a cycle"
        : transfersOnly
            ? "transfers on " + names + " wait for each other in a cycle"
            : "operations on " + names + " wait for each other in a cycle";
    f.cause = hostSync ? "a host thread synchronises between issues of several "
                         "domains, while another "
                         "rank's issue order makes it wait for what that host "
                         "has not issued"
              : cross  ? "the ranks issue (or start) operations of several "
                         "domains in different orders"
                       : "both sides put the transfer that the other waits for "
                         "behind the one it waits for";
    f.cure = "one order over all domains and all issuing modules on every "
             "rank, carried to the "
             "streams; no synchronisation or allocation between the issues";
    if (transfersOnly && !cross)
      f.cure = "group the exchange, or derive both sides' order from one list "
               "of transfers";
    return f;
  }

  Finding absentee(Rank rank, const std::vector<uint32_t> &list) {
    const View &v = views[viewOf.at(rank)];
    Finding f;
    uint32_t s = list.front();
    for (uint32_t c : list)
      if (frontier[c] != kNoFrontier && issueCount(c) > issueCount(s))
        s = c;
    const HostWait *host = hostWait(rank);
    bool hang = anyTimedOut || anyError ||
                (host && host->kind != HostWait::Kind::Running);
    f.kind = hang ? Finding::Kind::Missing : Finding::Kind::Warning;
    auto l = v.last.find(s);
    int64_t last = l == v.last.end() ? -1 : l->second;
    std::vector<Rank> waiting;
    for (Rank r : members[s])
      if (issueAtFrontier(r, s))
        waiting.push_back(r);
    const Issue *example =
        waiting.empty() ? nullptr : issueAt(waiting.front(), s, frontier[s]);
    ChainEdge e;
    e.from = end(s, waiting.empty() ? rank : waiting.front(), example);
    e.to = end(s, rank, nullptr);
    e.reason = Reason::NeverIssued;
    e.why =
        e.from.text +
        (waiting.size() > 1
             ? " (and on " + std::to_string(waiting.size() - 1) + " more ranks)"
             : "") +
        " needs " + e.to.text +
        ", which is not issued; nothing else holds up " + rankName(rank);
    f.chain.push_back(std::move(e));
    if (host) {
      f.id = host->kind == HostWait::Kind::Running ? "straggler" : "host-block";
      f.title = rankName(rank) + " has not issued " +
                instanceName(s, frontier[s]) + ": its host is in " +
                std::string(waitName(host->kind)) + " (" + host->function +
                (host->via.empty() ? "" : ", called from " + host->via) + ")";
      f.details.push_back(host->file + ":" + std::to_string(host->line) + ": " +
                          host->function);
      f.cause =
          "the host thread of " + rankName(rank) + " does not get to the issue";
    } else {
      f.id = hang ? "missing-participant" : "late-participant";
      f.title = rankName(rank) + " has not issued " +
                instanceName(s, frontier[s]) + ", which " + rankList(waiting) +
                (waiting.size() > 1 ? " wait" : " waits") + " for";
      f.cause = "a branch or early return on rank-local data, an exception, a "
                "dead or slow process";
    }
    if (last >= 0 && last < kAligned / 2)
      f.details.push_back(rankName(rank) + "'s last instance of " +
                          job.sequenceName(s) + " is #" + std::to_string(last));
    if (!v.evidence->issues.empty()) {
      const Issue &i = v.evidence->issues.back();
      f.details.push_back("the last thing it issued: " + job.strings[i.kind] +
                          " on " + job.sequenceName(i.sequence) +
                          (i.file == kNone
                               ? ""
                               : " (" + job.strings[i.file] + " record " +
                                     std::to_string(i.line) + ")"));
    }
    f.cure = host ? "take the wait out of the region between the issues"
                  : "look at that rank's stack and log at this point; make the "
                    "call unconditional";
    f.culprits.push_back(rank);
    return f;
  }

  size_t issueCount(uint32_t s) const {
    size_t n = 0;
    for (Rank r : members[s])
      n += issueAtFrontier(r, s);
    return n;
  }
  bool issueAtFrontier(Rank r, uint32_t s) const {
    auto it = viewOf.find(r);
    if (it == viewOf.end())
      return false;
    auto l = views[it->second].last.find(s);
    return l != views[it->second].last.end() && l->second >= frontier[s];
  }

  /// Everybody that left evidence has issued; so it is somebody without.
  void suspectAbsent(const std::vector<uint32_t> &live,
                     std::vector<Finding> &found) {
    std::map<Rank, size_t> votes;
    std::map<Rank, uint32_t> of;
    for (uint32_t s : live) {
      // Only a frontier that nothing else holds up points at a missing member.
      if (!waits[s].empty())
        continue;
      for (Rank r : members[s])
        if (absent.count(r)) {
          ++votes[r];
          of.try_emplace(r, s);
        }
    }
    std::vector<std::pair<size_t, Rank>> order;
    for (auto [r, n] : votes)
      order.push_back({n, r});
    stableSort(order,
               [](const auto &a, const auto &b) { return a.first > b.first; });
    if (order.empty() || (!anyTimedOut && !anyError))
      return;
    Finding f;
    f.kind = Finding::Kind::Missing;
    f.id = "suspect-without-evidence";
    std::vector<Rank> ranks;
    for (auto &[_, r] : order)
      ranks.push_back(r);
    uint32_t s = of[ranks.front()];
    f.title = "every member of " + job.sequenceName(s) +
              " that left evidence has issued " + instanceName(s, frontier[s]) +
              "; " + rankList(ranks) + " left none";
    f.cause = "a rank that died or hangs before it could write its dump";
    f.cure = "get the log, stack or exit status of " + rankList(ranks);
    f.culprits = ranks;
    found.push_back(std::move(f));
  }

  void unexplained(const std::vector<uint32_t> &live,
                   std::vector<Finding> &found) {
    Finding f;
    f.kind = Finding::Kind::Blocked;
    f.id = "unexplained-timeout";
    std::string list;
    size_t n = 0;
    for (uint32_t s : live) {
      if (n++ < 8)
        list += (list.empty() ? "" : ", ") + instanceName(s, frontier[s]);
      if (f.culprits.size() < 8)
        for (Rank r : members[s])
          if (std::find(f.culprits.begin(), f.culprits.end(), r) ==
              f.culprits.end())
            f.culprits.push_back(r);
    }
    f.title = "operations timed out although every member has issued them, and "
              "nothing in the "
              "evidence holds them up: " +
              list;
    f.cause = "the order of issue is not at fault; the link, a device, or a "
              "process outside the evidence";
    f.cure = "check the interfaces and the device logs of these ranks";
    found.push_back(std::move(f));
  }

  void missingEvidence() {
    if (!absent.empty()) {
      std::vector<Rank> ranks(absent.begin(), absent.end());
      out.missing.push_back("no issue record of " + rankList(ranks) + " (" +
                            std::to_string(ranks.size()) +
                            " ranks): gather their dumps or logs as well");
    }
    size_t truncated = 0;
    for (const View &v : views)
      truncated += v.evidence->truncatedStart;
    if (truncated && job.haveFlightRecorder)
      out.missing.push_back("the ring of " + std::to_string(truncated) +
                            " rank(s) has dropped the start: set "
                            "TORCH_NCCL_TRACE_BUFFER_SIZE (or "
                            "TORCH_FR_BUFFER_SIZE) larger, e.g. 20000");
    else if (truncated)
      out.missing.push_back("the logs of " + std::to_string(truncated) +
                            " rank(s) do not begin at the creation of their "
                            "domains, so instances "
                            "cannot be numbered: keep all rotated files");
    if (job.haveFlightRecorder)
      out.missing.push_back("Flight Recorder dumps hold no streams, roots, "
                            "reductions or host waits: "
                            "differing roots cannot be seen; add stacks "
                            "(py-spy dump --native, or "
                            "pstack) taken while the job hangs");
    if (job.haveHccl && !job.haveStacks)
      out.missing.push_back(
          "HCCL entry lines tell neither completion nor what the host waits "
          "for: add "
          "pstack or gdb stacks of every rank taken while the job hangs");
    if (!job.haveHccl && !job.haveFlightRecorder && job.haveStacks)
      out.missing.push_back(
          "stacks alone do not tell what was issued: record it with "
          "HCCL_ENTRY_LOG_ENABLE=1, or with a Flight Recorder dump");
    if (views.empty() && !job.haveStacks && !job.haveRankTable)
      out.missing.push_back(
          "no issue records: set HCCL_ENTRY_LOG_ENABLE=1, or "
          "TORCH_NCCL_TRACE_BUFFER_SIZE with TORCH_NCCL_DUMP_ON_TIMEOUT=1");
  }
};

} // namespace

Diagnosis diagnose(const Job &job) {
  Diagnosis out;
  Doctor(job, out, true).run();
  auto explained = [](const Diagnosis &d) {
    return std::any_of(d.findings.begin(), d.findings.end(),
                       [](const Finding &f) {
                         return f.kind != Finding::Kind::Warning &&
                                f.id != "unexplained-timeout";
                       });
  };
  if (!explained(out)) {
    Diagnosis again;
    Doctor(job, again, false).run();
    if (explained(again))
      out = std::move(again);
  }
  // Error lines beside the analysis: what the library itself said.
  size_t shown = 0;
  for (const auto &[rank, evidence] : job.ranks)
    for (const ErrorLine &e : evidence.errors) {
      if (++shown > 8)
        break;
      out.warnings.push_back(
          "r" + std::to_string(rank) + " " + e.code +
          (e.tag.empty() ? "" : " tag " + e.tag) +
          (e.code == "EI0002"
               ? std::string(", remote rank ") +
                     (e.remote < 0 ? "unknown" : std::to_string(e.remote))
               : std::string()) +
          " (" + e.file + ":" + std::to_string(e.line) + ")");
    }
  if (shown > 8)
    out.warnings.push_back(std::to_string(shown - 8) + " more error lines");
  for (const Finding &f : job.tableFindings)
    out.findings.push_back(f);
  // Hosts seen waiting, where no finding has told it.
  if (out.findings.empty())
    for (const auto &[rank, evidence] : job.ranks)
      for (const HostWait &w : evidence.waits)
        if (out.warnings.size() < 24 && w.kind != HostWait::Kind::Lock)
          out.warnings.push_back("r" + std::to_string(rank) + ": host in " +
                                 std::string(waitName(w.kind)) + " (" +
                                 w.function + ", " + w.file + ":" +
                                 std::to_string(w.line) + ")");
  return out;
}

std::string collectScript() {
  return R"SCRIPT(#!/bin/sh
# Gathers the evidence of a hung multi-rank job from hosts over ssh.
# Usage: collect.sh OUTDIR PATTERN HOST...
#   PATTERN  what the command line of the job's processes contains
# Environment, where the files are on the hosts (defaults in brackets):
#   FR_GLOB    Flight Recorder dumps      [/tmp/nccl_trace_rank_*]
#   HCCL_LOG   HCCL logs                  [$HOME/ascend/log]
#   TABLE      rank table                 [$RANK_TABLE_FILE]
# Reads only; no process is stopped for longer than a stack takes.
set -u
if [ $# -lt 3 ]; then
  sed -n '2,8p' "$0"
  exit 2
fi
out=$1 pattern=$2
shift 2
FR_GLOB=${FR_GLOB:-/tmp/nccl_trace_rank_*}
mkdir -p "$out" || exit 1
for host in "$@"; do
  echo "gathering from $host" >&2
  ssh -o BatchMode=yes -o ConnectTimeout=10 "$host" \
    PATTERN="'$pattern'" FR_GLOB="'$FR_GLOB'" HCCL_LOG="'${HCCL_LOG:-}'" TABLE="'${TABLE:-}'" sh -s <<'REMOTE' > "$out/$host.tar" || echo "$host: incomplete" >&2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/fr" "$work/hccl" "$work/stacks"
cp $FR_GLOB "$work/fr/" 2>/dev/null
logs=${HCCL_LOG:-$HOME/ascend/log}
[ -d "$logs" ] && cp -R "$logs/." "$work/hccl/" 2>/dev/null
table=${TABLE:-${RANK_TABLE_FILE:-}}
[ -n "$table" ] && cp "$table" "$work/rank_table.json" 2>/dev/null
for pid in $(pgrep -f -- "$PATTERN"); do
  [ "$pid" = $$ ] && continue
  rank=$(tr '\0' '\n' < "/proc/$pid/environ" 2>/dev/null | sed -n 's/^\(RANK\|RANK_ID\|OMPI_COMM_WORLD_RANK\|PMI_RANK\|SLURM_PROCID\)=//p' | head -n 1)
  file="$work/stacks/pid$pid-rank_${rank:-unknown}.txt"
  if command -v pstack >/dev/null; then pstack "$pid"
  elif command -v gdb >/dev/null; then gdb -p "$pid" -batch -ex 'thread apply all bt' 2>/dev/null
  fi > "$file" 2>/dev/null
  command -v py-spy >/dev/null && py-spy dump --pid "$pid" >> "$file" 2>/dev/null
done
tar -C "$work" -cf - .
REMOTE
  mkdir -p "$out/$host" && tar -C "$out/$host" -xf "$out/$host.tar" && rm -f "$out/$host.tar"
done
echo "now: comm-doctor $out" >&2
)SCRIPT";
}

} // namespace concord::order::evidence
