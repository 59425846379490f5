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

#include "Frontiers.h"
#include "HostFindings.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

namespace concord::order::evidence {

bool Diagnosis::fault() const {
  return std::any_of(findings.begin(), findings.end(), [](const Finding &f) {
    return f.kind != Finding::Kind::Warning;
  });
}

namespace {

class Doctor : public Frontiers {
public:
  Doctor(const Job &job, Diagnosis &out, bool trustStarted, bool moving)
      : Frontiers(job, out, trustStarted), moving(moving) {}

  void run() {
    number();
    mismatches();
    frontiers();
    chains();
    if (!out.fault())
      divergences();
    missingEvidence();
  }

private:
  bool moving;
  bool standsStill = false;

  /// No open instance can move until an idle member issues: each one lacks a
  /// member, or stands behind another one.
  bool quiescent(const std::vector<uint32_t> &live) const {
    return statesKnown &&
           std::none_of(live.begin(), live.end(), [&](uint32_t s) {
             return waits[s].empty() &&
                    std::all_of(members[s].begin(), members[s].end(),
                                [&](Rank r) { return issueAtFrontier(r, s); });
           });
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
          if (v.evidence->truncatedEnd)
            continue; // it may have, behind the end of the file
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
    bool hangs = anyTimedOut || anyError || job.haveStacks || job.nothingMoves;
    if (!cycles.empty() && (hangs || !cycles.front().uncertain)) {
      Finding f = cycleFinding(cycles.front());
      ranked.push_back({cycles.front().uncertain ? 3 : 0, std::move(f)});
    }
    // Issue logs say themselves whether anything moved.
    standsStill = !moving && !job.haveIssueLogs && quiescent(live);
    for (Rank r : idle) {
      Finding f = absentee(r, notIssued[r]);
      ranked.push_back({f.id == "host-block" ? 1 : 2, std::move(f)});
    }
    for (auto &[rank, list] : notIssued) {
      const HostWait *host = hostWait(rank);
      // One that stands in a collective waits for what it has issued, which
      // is told of the rank that holds that up.
      if (!host || host->kind >= HostWait::Kind::HostCollective ||
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
    if (found.empty())
      suspectAbsent(live, found);
    if (found.empty() && (anyTimedOut || anyError || job.nothingMoves))
      unexplained(live, found);
    for (Finding &f : found)
      if (out.findings.size() < 64)
        out.findings.push_back(std::move(f));
  }

  /// Two collectives of two domains that ranks issue in different orders, where
  /// nothing shows that they hang: they do on a device with one communication
  /// slot, or once a host waits between them.
  void divergences() {
    // Per rank and sequence, the place of each instance in the rank's order;
    // only what is numbered for sure.
    using Places = std::map<int64_t, uint64_t>;
    std::map<Rank, std::map<uint32_t, Places>> issued;
    for (const View &v : views)
      for (size_t n = 0; n < v.index.size(); ++n) {
        const Issue &i = v.evidence->issues[n];
        if (!job.sequences[i.sequence].transfer && !uncertain[i.sequence])
          issued[v.rank][i.sequence].try_emplace(v.index[n], i.order);
      }
    std::map<std::pair<uint32_t, uint32_t>, std::vector<Rank>> shared;
    for (auto &[rank, lists] : issued)
      for (auto a = lists.begin(); a != lists.end(); ++a)
        for (auto b = std::next(a); b != lists.end(); ++b)
          shared[{a->first, b->first}].push_back(rank);
    size_t found = 0;
    for (auto &[pair, ranks] : shared) {
      auto [s, t] = pair;
      // Against the first rank: of each instance of the one, the nearest ones
      // of the other.
      const Places &firstS = issued[ranks.front()][s],
                   &firstT = issued[ranks.front()][t];
      for (size_t n = 1; n < ranks.size(); ++n) {
        const Rank rank = ranks[n];
        const Places &ownS = issued[rank][s], &ownT = issued[rank][t];
        auto inverted = [&]() -> std::optional<std::pair<int64_t, int64_t>> {
          auto j = firstT.begin();
          for (auto [i, order] : firstS) {
            auto own = ownS.find(i);
            if (own == ownS.end())
              continue;
            while (j != firstT.end() && j->second < order)
              ++j;
            auto check = [&](auto k) {
              auto other = ownT.find(k->first);
              return other != ownT.end() && k->second != order &&
                     other->second != own->second &&
                     (k->second < order) != (other->second < own->second);
            };
            if (j != firstT.end() && check(j))
              return {{i, j->first}};
            if (j != firstT.begin() && check(std::prev(j)))
              return {{i, std::prev(j)->first}};
          }
          return std::nullopt;
        }();
        if (!inverted)
          continue;
        auto [i, j] = *inverted;
        bool before = firstS.at(i) < firstT.at(j);
        if (++found <= 8)
          out.warnings.push_back(
              rankName(ranks.front()) + " issues " +
              instanceName(before ? s : t, before ? i : j) + " before " +
              instanceName(before ? t : s, before ? j : i) + ", " +
              rankName(rank) +
              " the other way round: order-divergent; it hangs on a device "
              "with one communication slot, or when a host waits between them");
        break;
      }
    }
    if (found > 8)
      out.warnings.push_back(std::to_string(found - 8) +
                             " more pairs of domains are order-divergent");
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
      if (host && host->kind >= HostWait::Kind::Exception)
        host = nullptr; // tells nothing of the device
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
          hostSync = hostSync || host->kind < HostWait::Kind::HostCollective;
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
      // A host seen to block between two issues is the decisive edge; that it
      // stands in a collective only says that it has come to this one.
      bool decisive =
          !w->issued && host && host->kind < HostWait::Kind::HostCollective;
      blame.push_back({decisive ? -1 : oddness(s, *w), w->rank});
    }
    for (auto &[s, w] : cycle)
      if (w->held && w->held->where != kNone)
        f.details.push_back(end(w->to, w->rank, w->held).text +
                            " was issued at " + job.strings[w->held->where]);
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
      const HostWait *host = hostWait(w->rank);
      if (w->rank != f.culprits.front() || w->issued ||
          (host && host->kind < HostWait::Kind::HostCollective) ||
          blame.front().first != 0)
        continue;
      f.kind = Finding::Kind::Missing;
      f.id = "skipped-participant";
      f.title = rankName(w->rank) + " went on to " +
                instanceName(w->to, frontier[w->to]) + " without issuing " +
                instanceName(s, frontier[s]) +
                ", which it usually issues first";
      f.cause = "a branch or early return on rank-local data, or this rank "
                "issues the two in the other order (another issuer overtook "
                "it)";
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
    const HostWait *host = hostWait(rank), *standing = nullptr;
    bool hang = anyTimedOut || anyError || job.nothingMoves ||
                (host && host->kind < HostWait::Kind::Waiting);
    // A stack shows whether it computes; without one, evidence is of a hang
    // unless something in it can still move.
    bool presumed = !hang && !host && standsStill;
    hang = hang || presumed;
    if (host && host->kind >= HostWait::Kind::Waiting) {
      standing = std::exchange(host, nullptr);
      // It waits for something else, and a host that has come waits for it.
      if (standing->kind == HostWait::Kind::Waiting)
        for (Rank r : members[s])
          if (const HostWait *other = r == rank ? nullptr : hostWait(r);
              other && other->kind <= HostWait::Kind::HostCollective &&
              issueAtFrontier(r, s))
            hang = true;
    }
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
      bool threw = host->kind == HostWait::Kind::Exception;
      f.id = "host-block";
      f.title = rankName(rank) + " has not issued " +
                instanceName(s, frontier[s]) +
                (threw ? ": it " : ": its host is in ") + hostText(*host);
      f.details.push_back(host->file + ":" + std::to_string(host->line) + ": " +
                          host->function);
      f.cause = threw ? "an exception on " + rankName(rank) +
                            ": what comes after it is never issued"
                      : "the host thread of " + rankName(rank) +
                            " does not get to the issue";
    } else {
      f.id = hang       ? "missing-participant"
             : standing ? "straggler"
                        : "late-participant";
      f.title = rankName(rank) + " has not issued " +
                instanceName(s, frontier[s]) + ", which " + rankList(waiting) +
                (waiting.size() > 1 ? " wait" : " waits") + " for";
      f.cause = "a branch or early return on rank-local data, an exception, a "
                "dead or slow process";
    }
    if (example && example->where != kNone)
      f.details.push_back(rankName(waiting.front()) + " has issued it at " +
                          job.strings[example->where]);
    if (standing)
      f.details.push_back(
          "its main thread stands in " + standing->function +
          (standing->via.empty() ? "" : ", called from " + standing->via) +
          " (" + standing->file + ":" + std::to_string(standing->line) + ")");
    if (presumed)
      f.details.push_back(
          "nothing in the evidence can move until then; if the job still ran "
          "when this was recorded, the rank may only be late (--moving)");
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
    f.cure = host && host->kind == HostWait::Kind::Exception
                 ? "mend what it threw, and end the job when a rank throws"
             : host
                 ? "take the wait out of the region between the issues"
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

  /// Ranks without issue records that the numbers of the others tell of.
  std::vector<Rank> gaps() const {
    std::vector<Rank> gaps;
    if (views.size() > 1)
      for (Rank r = 0; r < views.back().rank && gaps.size() < 64; ++r)
        if (!viewOf.count(r) && !absent.count(r))
          gaps.push_back(r);
    return gaps;
  }

  /// Everybody that left evidence has issued; so it is somebody without, or
  /// whose evidence ends before that.
  void suspectAbsent(const std::vector<uint32_t> &live,
                     std::vector<Finding> &found) {
    std::map<Rank, size_t> votes;
    std::map<Rank, uint32_t> of;
    for (uint32_t s : live) {
      // Only a frontier that nothing else holds up points at a missing member.
      if (!waits[s].empty())
        continue;
      auto vote = [&](Rank r) {
        ++votes[r];
        of.try_emplace(r, s);
      };
      for (Rank r : members[s])
        if (!issueAtFrontier(r, s))
          vote(r);
      // Of a group whose members are not told it may be anybody.
      if (!job.sequences[s].transfer &&
          job.domains[job.sequences[s].domain].members.empty())
        for (Rank r : gaps())
          vote(r);
    }
    std::vector<std::pair<size_t, Rank>> order;
    for (auto [r, n] : votes)
      order.push_back({n, r});
    stableSort(order,
               [](const auto &a, const auto &b) { return a.first > b.first; });
    if (order.empty() ||
        (!anyTimedOut && !anyError && !job.nothingMoves && !standsStill))
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
              "; " + rankList(ranks) + " left none" +
              (std::any_of(ranks.begin(), ranks.end(),
                           [&](Rank r) { return viewOf.count(r) != 0; })
                   ? ", or one that was cut off before that"
                   : "");
    f.cause = "a rank that died or hangs before it could write its dump";
    f.cure = "get the log, stack or exit status of " + rankList(ranks);
    // One whose stack was found, or that has thrown, tells more than the rest.
    stableSort(ranks, [&](Rank a, Rank b) {
      return hostWait(a) != nullptr && hostWait(b) == nullptr;
    });
    for (Rank r : ranks)
      if (const HostWait *host = hostWait(r); host && f.details.size() < 8) {
        bool threw = host->kind == HostWait::Kind::Exception;
        f.details.push_back(rankName(r) + (threw ? " " : " is in ") +
                            hostText(*host) + " (" + host->file + ":" +
                            std::to_string(host->line) + ")");
        if (threw && r == ranks.front()) {
          f.title = instanceName(s, frontier[s]) + " waits for " + rankName(r) +
                    ", which " + endText(*host);
          f.cause = "an exception on " + rankName(r) +
                    ": what comes after it is never issued";
          f.cure = "mend what it threw, and end the job when a rank throws";
        }
      }
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
    // Where the evidence does not tell members, a gap still tells of a rank.
    if (std::vector<Rank> ranks = gaps(); !ranks.empty())
      out.missing.push_back("no issue record of " + rankList(ranks) +
                            ", by the numbers of the others");
    size_t truncated = 0;
    for (const View &v : views)
      truncated += v.evidence->truncatedStart;
    if (truncated && job.haveFlightRecorder)
      out.missing.push_back("the ring of " + std::to_string(truncated) +
                            " rank(s) has dropped the start: set "
                            "TORCH_NCCL_TRACE_BUFFER_SIZE (or "
                            "TORCH_FR_BUFFER_SIZE) larger, e.g. 20000");
    else if (truncated && job.haveHccl)
      out.missing.push_back("the logs of " + std::to_string(truncated) +
                            " rank(s) do not begin at the creation of their "
                            "domains, so instances "
                            "cannot be numbered: keep all rotated files");
    if (job.haveFlightRecorder)
      out.missing.push_back(
          std::string("Flight Recorder dumps hold no streams, roots, "
                      "reductions or host waits: differing roots cannot be "
                      "seen") +
          (job.haveStacks ? ""
                          : "; add stacks (py-spy dump --native, or pstack) "
                            "taken while the job hangs"));
    if (job.haveHccl && !job.haveStacks)
      out.missing.push_back(
          "HCCL entry lines tell neither completion nor what the host waits "
          "for: add "
          "pstack or gdb stacks of every rank taken while the job hangs");
    if (job.haveNccl && !job.haveStacks)
      out.missing.push_back(
          "NCCL's lines tell neither completion nor what the host waits for: "
          "add stacks (py-spy dump --native, or pstack) of every rank taken "
          "while the job hangs");
    if (views.empty() && job.haveStacks)
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

Diagnosis diagnose(const Job &job, bool moving) {
  Diagnosis out;
  Doctor(job, out, true, moving).run();
  auto explained = [](const Diagnosis &d) {
    return std::any_of(d.findings.begin(), d.findings.end(),
                       [](const Finding &f) {
                         return f.kind != Finding::Kind::Warning &&
                                f.id != "unexplained-timeout";
                       });
  };
  if (!explained(out)) {
    Diagnosis again;
    Doctor(job, again, false, moving).run();
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
  if (out.findings.empty())
    stacksAlone(job, out);
  exceptions(job, out);
  for (const Finding &f : job.tableFindings)
    out.findings.push_back(f);
  // Hosts seen waiting, where no finding has told it.
  if (out.findings.empty())
    for (const auto &[rank, evidence] : job.ranks)
      for (const HostWait &w : evidence.waits)
        if (out.warnings.size() < 24 && w.kind < HostWait::Kind::Lock)
          out.warnings.push_back("r" + std::to_string(rank) + ": host in " +
                                 std::string(waitName(w.kind)) + " (" +
                                 w.function + ", " + w.file + ":" +
                                 std::to_string(w.line) + ")");
  return out;
}

} // namespace concord::order::evidence
