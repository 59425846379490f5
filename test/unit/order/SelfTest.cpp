//===- SelfTest.cpp - The order library against itself --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Random small programs, in the case notation: the reduced explorer against an
// unreduced second implementation; certificates against the explorer under all
// profiles; the walk test against the explorer both ways; and edits of ordered
// programs. CONCORD_ORDER_TRIALS multiplies the counts (default 1).
//
//===----------------------------------------------------------------------===//

#include "Naive.h"
#include "concord/order/Case.h"
#include "concord/order/Certificate.h"
#include "concord/order/Judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

using namespace concord::order;

namespace {

using Rng = std::mt19937;

uint32_t trials(uint32_t base) {
  const char *text = std::getenv("CONCORD_ORDER_TRIALS");
  double factor = text ? std::atof(text) : 1;
  return uint32_t(base * (factor > 0 ? factor : 1));
}

Program parse(const std::string &text) {
  CaseFile file;
  CaseError error;
  bool ok = parseCase(text, "random.case", file, error);
  EXPECT_TRUE(ok) << error.line << ": " << error.message << "\n" << text;
  return ok ? std::move(file.variants.at(0).program) : Program{};
}

std::string join(const std::vector<std::string> &list) {
  std::string out;
  for (const std::string &s : list)
    out += (out.empty() ? "" : " ; ") + s;
  return out;
}

/// Anything the notation can say, small.
std::string anything(Rng &rng) {
  auto pick = [&](uint32_t n) { return uint32_t(rng() % n); };
  uint32_t ranks = 2 + pick(2);
  static const char *orders[] = {"none", "none", "launch", "serial"};
  static const char *groups[] = {"indep", "inorder", "atomic"};
  std::string text =
      "cfg K=" + std::to_string(1 + pick(2)) + " order=" + orders[pick(4)] +
      " buf=" + (pick(3) ? "0" : "1") + " group=" + groups[pick(3)] +
      " L=" + (pick(5) ? "inf" : std::to_string(1 + pick(2))) +
      " samecomm=" + (pick(6) ? "serial" : "free") + "\n";
  uint32_t domains = 1 + pick(3);
  std::vector<std::vector<uint32_t>> members(domains);
  for (uint32_t d = 0; d < domains; ++d) {
    text += "comm " + std::string(1, char('A' + d)) + " =";
    uint32_t first = pick(ranks),
             second = (first + 1 + pick(ranks - 1)) % ranks;
    members[d] = {first, second};
    if (ranks == 3 && pick(3) == 0)
      members[d] = {0, 1, 2};
    for (uint32_t r : members[d])
      text += " " + std::to_string(r);
    text += "\n";
  }
  bool proc = pick(3) == 0;
  // Statements are made as matched sets and dealt to the members, then damaged.
  std::vector<std::vector<std::string>> lists(ranks);
  uint32_t sets = 2 + pick(4);
  auto stream = [&] {
    return "[" + std::string(1, char('s' + pick(2))) + "] ";
  };
  for (uint32_t i = 0; i < sets; ++i) {
    uint32_t d = pick(domains);
    std::string c(1, char('A' + d));
    uint32_t kind = pick(10);
    if (kind < 5) {
      std::string attribute = pick(12) == 0 ? ",need=2" : "";
      for (uint32_t r : members[d])
        lists[r].push_back(stream() + (pick(25) ? "AR(" : "AG(") + c +
                           attribute + ")");
    } else if (kind < 7) {
      uint32_t a = members[d][0], b = members[d][1];
      lists[a].push_back(stream() + "SND(" + c + "," + std::to_string(b) + ")");
      lists[b].push_back(stream() + "RCV(" + c + "," + std::to_string(a) + ")");
    } else if (kind < 8) {
      uint32_t a = members[d][0], b = members[d][1];
      for (auto [x, y] : {std::pair(a, b), std::pair(b, a)}) {
        std::string s = "SND(" + c + "," + std::to_string(y) + ")",
                    r = "RCV(" + c + "," + std::to_string(y) + ")";
        lists[x].push_back(stream() + "GRP{" +
                           (pick(2) ? s + ";" + r : r + ";" + s) + "}");
      }
    } else if (kind < 9)
      for (uint32_t r : members[d])
        lists[r].push_back("H:x(" + c + ")");
    else {
      uint32_t r = pick(ranks);
      static const char *more[] = {"sync",        "sync[s]",     "mm!",
                                   "free!",       "[s] K(k)",    "[s] REC(e)",
                                   "[t] WAIT(e)", "[s] SPIN(f)", "[t] SETF(f)",
                                   "set(f)",      "await(f)"};
      lists[r].push_back(more[pick(11)]);
    }
  }
  for (auto &list : lists)
    for (uint32_t k = pick(3); k > 0; --k) {
      static const char *more[] = {"sync",  "sync[s]",    "mm!",
                                   "load!", "[s] REC(e)", "[t] WAIT(e)"};
      list.insert(list.begin() + long(pick(uint32_t(list.size()) + 1)),
                  more[pick(6)]);
    }
  for (auto &list : lists) // damage: swap two, drop one
    if (list.size() > 1 && pick(2)) {
      uint32_t i = pick(uint32_t(list.size()) - 1);
      std::swap(list[i], list[i + 1]);
    }
  if (pick(8) == 0) {
    auto &list = lists[pick(ranks)];
    if (!list.empty())
      list.erase(list.begin() + long(pick(uint32_t(list.size()))));
  }
  auto locked = [&](std::vector<std::string> list) {
    if (pick(4) == 0) {
      list.insert(list.begin() + long(pick(uint32_t(list.size()) + 1)),
                  "lock(m)");
      list.push_back("unlock(m)");
    }
    return list;
  };
  uint32_t begin = 0;
  if (proc) { // ranks 0 and 1 in one process, one or two threads
    begin = 2;
    auto on = [&](uint32_t r) {
      std::vector<std::string> out;
      for (const std::string &s : lists[r])
        out.push_back("@" + std::to_string(r) + " " + s);
      return out;
    };
    std::vector<std::string> a = on(0), b = on(1);
    if (pick(2)) {
      text += "proc P T0: " + join(locked(a)) + " ; @0 nop\n";
      text += "proc P T1: " + join(locked(b)) + " ; @1 nop\n";
    } else {
      std::vector<std::string> merged;
      for (size_t i = 0, k = 0; i < a.size() || k < b.size();) {
        bool first = k >= b.size() || (i < a.size() && pick(2));
        merged.push_back(first ? a[i++] : b[k++]);
      }
      merged.push_back("@0 nop");
      merged.push_back("@1 nop");
      text += "proc P T0: " + join(merged) + "\n";
    }
  }
  for (uint32_t r = begin; r < ranks; ++r) {
    if (pick(4) == 0 && lists[r].size() > 1) { // two threads
      std::vector<std::string> a, b;
      for (const std::string &s : lists[r])
        (pick(2) ? a : b).push_back(s);
      text += "rank " + std::to_string(r) + " T0: " + join(locked(a)) + "\n";
      text += "rank " + std::to_string(r) + " T1: " + join(locked(b)) + "\n";
    } else
      text += "rank " + std::to_string(r) + ": " + join(lists[r]) + "\n";
  }
  return text;
}

TEST(Explorer, AgreesWithTheUnreducedModel) {
  Rng rng(20260101);
  uint32_t agreed = 0, over = 0, stuck = 0, some = 0, mismatched = 0, many = 0;
  uint64_t reducedStates = 0, naiveStates = 0;
  for (uint32_t i = 0; i < trials(2000); ++i) {
    std::string text = anything(rng);
    Program p = parse(text);
    naive::Result expected = naive::Model(p).run(2500);
    if (expected.over) {
      ++over;
      continue;
    }
    for (int mode = 0; mode < 4; ++mode) {
      ExploreOptions options;
      options.persistentSets = mode & 1;
      options.sleepSets = mode & 2;
      Judgement j = judge(p, options);
      ASSERT_TRUE(j.stats.complete) << text;
      Verdict want = expected.mismatch ? Verdict::Mismatch
                     : expected.stuck && expected.finished
                         ? Verdict::DeadlockSome
                     : expected.stuck ? Verdict::DeadlockAlways
                                      : Verdict::Clean;
      Verdict got = j.verdict == Verdict::Race ? Verdict::Clean : j.verdict;
      ASSERT_EQ(toString(want), toString(got)) << "mode " << mode << "\n"
                                               << text;
      if (want == Verdict::DeadlockSome || want == Verdict::DeadlockAlways) {
        ASSERT_FALSE(j.findings.empty())
            << "a stuck state without an explanation\n"
            << text;
        for (const ChainEdge &e : j.findings[0].chain)
          ASSERT_FALSE(e.why.empty());
      }
      if (mode == 3)
        reducedStates += j.stats.states;
    }
    naiveStates += expected.states;
    ++agreed;
    stuck += expected.stuck;
    some += expected.stuck && expected.finished;
    mismatched += expected.mismatch;
    many += p.threads.size() > p.devices.size();
  }
  std::printf(
      "explorer: %u agree (%u stuck, %u of them in some schedules only, %u "
      "mismatches, %u "
      "with several threads), %u over the bound; %llu states against %llu\n",
      agreed, stuck, some, mismatched, many, over,
      (unsigned long long)reducedStates, (unsigned long long)naiveStates);
  EXPECT_GT(agreed, trials(2000) / 2);
  EXPECT_GT(stuck, agreed / 20);
  EXPECT_GT(some, 20u);
}

/// Programs in the compact form's range: one thread and device per rank.
struct Generated {
  std::string text;
  std::vector<std::vector<std::string>> lists;
  std::string head;
  void render() {
    text = head;
    for (size_t r = 0; r < lists.size(); ++r)
      text += "rank " + std::to_string(r) + ": " + join(lists[r]) + "\n";
  }
};

/// `chain` in percent: how often the order is carried to the streams.
Generated compactProgram(Rng &rng, bool collectivesOnly, uint32_t chain,
                         uint32_t sets, bool oneOrder) {
  auto pick = [&](uint32_t n) { return uint32_t(rng() % n); };
  Generated g;
  uint32_t ranks = 2 + pick(3), domains = 2 + pick(3);
  std::vector<std::vector<uint32_t>> members(domains);
  for (uint32_t d = 0; d < domains; ++d) {
    std::vector<uint32_t> all;
    for (uint32_t r = 0; r < ranks; ++r)
      all.push_back(r);
    std::shuffle(all.begin(), all.end(), rng);
    all.resize(pick(4) ? 2 : std::min(ranks, 3u));
    members[d] = all;
    g.head += "comm " + std::string(1, char('A' + d)) + " =";
    for (uint32_t r : all)
      g.head += " " + std::to_string(r);
    g.head += "\n";
  }
  g.lists.resize(ranks);
  struct Set {
    std::vector<std::pair<uint32_t, std::string>> ops;
  };
  std::vector<Set> order;
  auto two = [&](uint32_t d) {
    return std::pair(members[d][0], members[d][1]);
  };
  for (uint32_t i = 0; i < sets; ++i) {
    uint32_t d = pick(domains), kind = collectivesOnly ? 0 : pick(10);
    std::string c(1, char('A' + d));
    Set s;
    auto [a, b] = two(d);
    std::string sa = std::to_string(a), sb = std::to_string(b);
    if (kind < 6)
      for (uint32_t r : members[d])
        s.ops.push_back({r, "AR(" + c + ")"});
    else if (kind < 8)
      s.ops = {{a, "SND(" + c + "," + sb + ")"},
               {b, "RCV(" + c + "," + sa + ")"}};
    else if (kind < 9) {
      switch (pick(4)) {
      case 0: // unlike grouping
        s.ops = {
            {a, "GRP{SND(" + c + "," + sb + ");SND(" + c + "," + sb + ")}"},
            {b, "RCV(" + c + "," + sa + ")"},
            {b, "RCV(" + c + "," + sa + ")"}};
        break;
      case 1: // one group, several partners
        if (members[d].size() > 2) {
          uint32_t e = members[d][2];
          std::string se = std::to_string(e);
          s.ops = {
              {a, "GRP{SND(" + c + "," + sb + ");SND(" + c + "," + se + ")}"},
              {b, "RCV(" + c + "," + sa + ")"},
              {e, "RCV(" + c + "," + sa + ")"}};
          break;
        }
        [[fallthrough]];
      default: {
        bool swapped = pick(8) == 0; // an unlike listing order
        std::string rcv = "RCV(" + c + "," + sa + ")",
                    snd = "SND(" + c + "," + sa + ")";
        s.ops = {
            {a, "GRP{SND(" + c + "," + sb + ");RCV(" + c + "," + sb + ")}"},
            {b, "GRP{" + (swapped ? snd + ";" + rcv : rcv + ";" + snd) + "}"}};
      }
      }
    } else
      for (uint32_t r : members[d])
        s.ops.push_back({r, "H:x(" + c + ")"});
    order.push_back(std::move(s));
  }
  std::vector<uint32_t> events(ranks, 0);
  std::vector<std::string> last(ranks); // stream of the last operation
  auto issue = [&](uint32_t r, const std::string &op) {
    if (op[0] == 'H') {
      g.lists[r].push_back(op);
      return;
    }
    std::string stream(1, char('s' + pick(3)));
    if (!last[r].empty() && last[r] != stream && pick(100) < chain) {
      std::string e = "e" + std::to_string(events[r]++);
      g.lists[r].push_back("[" + last[r] + "] REC(" + e + ")");
      g.lists[r].push_back("[" + stream + "] WAIT(" + e + ")");
    }
    g.lists[r].push_back("[" + stream + "] " + op);
    last[r] = stream;
    if (pick(12) == 0)
      g.lists[r].push_back(pick(2) ? "sync" : "sync[" + stream + "]");
  };
  if (oneOrder) {
    for (const Set &s : order)
      for (const auto &[r, op] : s.ops)
        issue(r, op);
  } else {
    for (uint32_t r = 0; r < ranks; ++r) {
      std::vector<std::string> own;
      for (const Set &s : order)
        for (const auto &[rank, op] : s.ops)
          if (rank == r)
            own.push_back(op);
      // Swaps of neighbours of unlike domains: index order stays.
      for (uint32_t k = pick(4); k > 0 && own.size() > 1; --k) {
        uint32_t i = pick(uint32_t(own.size()) - 1);
        if (own[i] != own[i + 1])
          std::swap(own[i], own[i + 1]);
      }
      for (const std::string &op : own)
        issue(r, op);
    }
  }
  g.render();
  return g;
}

ExploreOptions bounded(uint64_t states) {
  ExploreOptions options;
  options.bounds.states = states;
  return options;
}

bool isStuck(Verdict v) {
  return v == Verdict::DeadlockSome || v == Verdict::DeadlockAlways ||
         v == Verdict::DeadlockUnknown;
}

/// Explore under every profile and some slots and buffers: the certificate
/// promises all of them. Returns the offending configuration, or "".
std::string sticksSomewhere(Program p, uint32_t needed, bool walk,
                            uint64_t states, bool &over) {
  for (auto group : {Config::Profile::Indep, Config::Profile::InOrder,
                     Config::Profile::Atomic})
    for (uint32_t slots : {needed, needed + 1})
      for (uint64_t buffer : {0, 1}) {
        if (walk && slots != 1)
          continue;
        p.config = {};
        p.config.group = group;
        p.config.slots = slots;
        p.config.buffer = buffer;
        Judgement j = judge(p, bounded(states));
        if (isStuck(j.verdict) || j.verdict == Verdict::Mismatch)
          return p.config.str() + ": " + std::string(toString(j.verdict));
        over = over || j.verdict == Verdict::NotProven;
      }
  return {};
}

TEST(Certificate, CertifiedProgramsNeverStick) {
  Rng rng(42);
  uint32_t certified = 0, rejected = 0, rejectedStuck = 0, forests = 0,
           byOrder = 0, walks = 0, over = 0;
  for (uint32_t i = 0; i < trials(5000); ++i) {
    Generated g = compactProgram(rng, i % 3 == 0, i % 2 ? 100 : rng() % 101,
                                 2 + rng() % 5, i % 4 != 0);
    Program p = parse(g.text);
    OrderProblem problem;
    std::string why;
    ASSERT_TRUE(fromProgram(p, problem, why)) << why;
    Certificate c = verify(problem);
    if (!c.valid) {
      ++rejected;
      ASSERT_FALSE(c.faults.empty());
      if (rejected % 8 == 0) {
        p.config.group = Config::Profile::Atomic;
        rejectedStuck += isStuck(judge(p, bounded(20000)).verdict);
      }
      continue;
    }
    ++certified;
    bool walk = false, order = false;
    for (const BlockCertificate &b : c.blocks) {
      walk = walk || b.by == BlockCertificate::By::Walk;
      order = order || b.by == BlockCertificate::By::Order;
    }
    walks += walk;
    byOrder += order;
    forests += !walk && !order;
    bool tooLarge = false;
    std::string bad = sticksSomewhere(p, c.maxNeed, walk, 20000, tooLarge);
    over += tooLarge;
    ASSERT_EQ(bad, "") << c.str() << "\n" << g.text;
  }
  std::printf("certificate: %u certified (%u forests, %u by order, %u by "
              "walk), none stuck, %u over "
              "the bound; %u rejected, of every 8th %u stick\n",
              certified, forests, byOrder, walks, over, rejected,
              rejectedStuck);
  EXPECT_GT(certified, trials(5000) / 4);
  EXPECT_GT(byOrder, certified / 20);
  EXPECT_GT(walks, 0u);
  EXPECT_GT(forests, 20u);
  EXPECT_GT(rejectedStuck, 20u);
}

TEST(Certificate, WalkTestIsExact) {
  Rng rng(7);
  uint32_t clean = 0, stuck = 0, over = 0;
  for (uint32_t i = 0; i < trials(6000); ++i) {
    Generated g =
        compactProgram(rng, true, rng() % 101, 2 + rng() % 5, rng() % 2);
    Program p = parse(g.text);
    OrderProblem problem;
    std::string why;
    ASSERT_TRUE(fromProgram(p, problem, why)) << why;
    Certificate c = verify(problem);
    Judgement j = judge(p, bounded(30000));
    if (j.verdict == Verdict::NotProven) {
      ++over;
      continue;
    }
    ASSERT_EQ(c.valid, !isStuck(j.verdict)) << c.str() << "\n" << g.text;
    (c.valid ? clean : stuck)++;
  }
  std::printf("walk test: %u clean, %u stuck, 0 disagree, %u over the bound\n",
              clean, stuck, over);
  EXPECT_GT(clean, 500u);
  EXPECT_GT(stuck, 500u);
}

TEST(Certificate, EditsThatStickAreRejected) {
  Rng rng(11);
  auto pick = [&](uint32_t n) { return uint32_t(rng() % n); };
  uint32_t edits = 0, sticking = 0, harmlessAccepted = 0, harmlessRejected = 0,
           over = 0;
  uint32_t wanted = trials(1500);
  while (edits < wanted) {
    Generated g = compactProgram(rng, pick(2), 100, 3 + pick(3), true);
    OrderProblem problem;
    std::string why;
    Program p = parse(g.text);
    if (!fromProgram(p, problem, why) || !verify(problem).valid)
      continue;
    Generated e = g;
    auto &list = e.lists[pick(uint32_t(e.lists.size()))];
    if (list.size() < 2)
      continue;
    uint32_t at = pick(uint32_t(list.size()));
    switch (pick(6)) {
    case 0: { // swap two issues of one rank
      uint32_t other = pick(uint32_t(list.size()));
      if (other == at)
        continue;
      std::swap(list[at], list[other]);
      break;
    }
    case 1: // drop one
      list.erase(list.begin() + at);
      break;
    case 2: { // move a wait (or whatever stands here)
      std::string s = list[at];
      list.erase(list.begin() + at);
      list.insert(list.begin() + long(pick(uint32_t(list.size()) + 1)), s);
      break;
    }
    case 3: { // change the group
      size_t open = list[at].find('(');
      if (open == std::string::npos ||
          list[at].find("AR(") == std::string::npos)
        continue;
      Rank self = Rank(&list - e.lists.data());
      char c = char('A' + pick(uint32_t(p.domains.size())));
      if (c == list[at][open + 1] || !p.domains[size_t(c - 'A')].contains(self))
        continue;
      list[at][open + 1] = c;
      break;
    }
    case 4: // add a sync
      list.insert(list.begin() + at, pick(2) ? "sync" : "sync[s]");
      break;
    default: { // change the stream
      if (list[at][0] != '[')
        continue;
      char s = char('s' + pick(3));
      if (list[at][1] == s)
        continue;
      list[at][1] = s;
      break;
    }
    }
    e.render();
    Program edited = parse(e.text);
    OrderProblem changed;
    ASSERT_TRUE(fromProgram(edited, changed, why)) << why << "\n" << e.text;
    Certificate c = verify(changed);
    bool walk = false, tooLarge = false;
    for (const BlockCertificate &b : c.blocks)
      walk = walk || b.by == BlockCertificate::By::Walk;
    std::string bad =
        sticksSomewhere(edited, 1, walk || !c.valid, 20000, tooLarge);
    ++edits;
    if (tooLarge && bad.empty()) {
      ++over;
      continue;
    }
    if (!bad.empty()) {
      ++sticking;
      ASSERT_FALSE(c.valid) << bad << "\n" << c.str() << "\n" << e.text;
    } else
      (c.valid ? harmlessAccepted : harmlessRejected)++;
  }
  std::printf("edits: %u; %u stick (all rejected), %u harmless and accepted, "
              "%u harmless and "
              "rejected, %u over the bound\n",
              edits, sticking, harmlessAccepted, harmlessRejected, over);
  EXPECT_GT(sticking, edits / 10);
  EXPECT_GE(harmlessAccepted * 10, edits * 3);
}

TEST(Solve, ProgramsWithoutOrderGetOne) {
  Rng rng(5);
  uint32_t solved = 0, edges = 0, dropped = 0;
  for (uint32_t i = 0; i < trials(1500); ++i) {
    // Unchained; sometimes every rank has its own order, which solve may mend.
    bool ownOrder = i % 3 == 0;
    Generated g = compactProgram(rng, i % 2, 0, 2 + rng() % 5, !ownOrder);
    Program p = parse(g.text);
    OrderProblem problem;
    std::string why;
    ASSERT_TRUE(fromProgram(p, problem, why)) << why;
    SolveOptions options;
    options.keepProgramOrder = !ownOrder;
    OrderSolution s = solve(problem, options);
    if (!s.valid) {
      ASSERT_FALSE(s.faults.empty()) << g.text;
      std::string id = s.faults[0].id;
      // Host statements may contradict, and no order mends an open group.
      ASSERT_TRUE((ownOrder && id == "contradicting-dependences") ||
                  id == "unclosed-group" || id == "group-listing-order")
          << id << "\n"
          << g.text;
      continue;
    }
    ASSERT_TRUE(s.valid) << s.certificate.str() << "\n" << g.text;
    ++solved;
    edges += uint32_t(s.edges.size());
    dropped += uint32_t(s.droppedByWalk);
    ASSERT_TRUE(verify(apply(problem, s)).valid);
    ASSERT_EQ(solve(problem, options).certificate.digest, s.certificate.digest);
    // An edge that stays is needed: without it some walk closes.
    if (i % 2 && s.edges.size() > 0 && s.edges.size() < 6) {
      for (size_t k = 0; k < s.edges.size(); ++k) {
        OrderSolution less = s;
        less.edges.erase(less.edges.begin() + long(k));
        EXPECT_FALSE(verify(apply(problem, less)).valid) << g.text;
      }
    }
  }
  std::printf("solve: %u solved with %u edges, %u dropped by the walk test\n",
              solved, edges, dropped);
  EXPECT_GT(solved, trials(1500) / 2);
  EXPECT_GT(dropped, 20u);
}

} // namespace
