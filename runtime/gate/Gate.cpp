//===- Gate.cpp - The order that a plan gives a rank's issuers ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every issuer counts its own rounds; the gate has one position for all of
// them: the round and the turn that come next. An issuer with optional slots
// only sleeps through the rounds that use none of them.
//
//===----------------------------------------------------------------------===//

#include "gate/Gate.h"
#include "diagnosis/Error.h"
#include "engine/Engine.h"
#include "transport/Hosts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

using namespace concord;
using namespace concord::rt;

/// Issues of one rank in one round; beyond it a plan is refused.
static constexpr size_t kMaxSteps = size_t(1) << 20;

static bool isMessage(Kind kind) {
  return kind == Kind::Send || kind == Kind::Recv;
}

bool Gate::needsHold(const plan::Plan &plan) { return !plan.rounds.empty(); }

Gate::Gate(Context &context, plan::Plan given)
    : context(context), plan(std::move(given)), sum(plan::digest(plan)),
      owner(plan.domains.size(), -1) {
  if (plan.programs.size() > kMaxIssuers && needsHold(plan))
    raise(CONCORD_ERROR_NOT_SUPPORTED,
          "the plan has %zu programs and ranks with several issuers; at most "
          "%u are supported then",
          plan.programs.size(), kMaxIssuers);
  for (uint32_t p = 0; p < plan.programs.size(); ++p) {
    const plan::Program &program = plan.programs[p];
    if (!program.ranks.empty() &&
        std::find(program.ranks.begin(), program.ranks.end(), context.rank) ==
            program.ranks.end())
      continue;
    Issuer issuer;
    issuer.program = p;
    issuer.planned = &program;
    issuers.push_back(std::move(issuer));
  }
  if (issuers.size() > 1 && context.threadLevel != CONCORD_THREAD_MULTIPLE)
    raise(CONCORD_ERROR_THREAD,
          "rank %d has %zu issuers ('%s', '%s', ...), each with a thread of "
          "its own: create the context with CONCORD_THREAD_MULTIPLE",
          context.rank, issuers.size(), issuers[0].planned->name.c_str(),
          issuers[1].planned->name.c_str());
  for (Issuer &issuer : issuers)
    prepareIssuer(issuer);

  // The turns of this rank.
  const plan::Round *own = nullptr;
  for (const plan::Round &each : plan.rounds)
    if (std::find(each.ranks.begin(), each.ranks.end(), context.rank) !=
        each.ranks.end())
      own = &each;
  if (own)
    for (const plan::Turn &turn : own->turns) {
      int32_t index = issuerOf(turn.program);
      if (index < 0)
        raise(CONCORD_ERROR_CORRUPT,
              "the plan's round for rank %d names program '%s', which it does "
              "not run",
              context.rank, plan.programs[turn.program].name.c_str());
      Issuer &issuer = issuers[size_t(index)];
      Turn made{uint32_t(index), ~0u, 0};
      for (uint32_t i = 0; i < issuer.steps.size(); ++i)
        if (issuer.steps[i].unit == turn.unit) {
          made.first = std::min(made.first, i);
          made.last = i + 1;
          issuer.steps[i].turn = uint32_t(turns.size());
        }
      if (made.last != 0)
        turns.push_back(made);
    }
  bool decides = false;
  for (uint32_t i = 0; i < issuers.size(); ++i)
    for (const Step &step : issuers[i].steps) {
      const plan::Issue &issue = issuers[i].planned->issues[step.site];
      int32_t &who = owner[issue.domain];
      who = who == -1 || who == int32_t(i) ? int32_t(i) : -2;
      if (!step.decision)
        continue;
      if (decides)
        raise(CONCORD_ERROR_NOT_SUPPORTED,
              "the plan has two round decisions on rank %d; decide once, for "
              "all slots",
              context.rank);
      decides = true;
      decider = i;
      for (const auto &group : plan.domains[issue.domain].groups)
        if (std::find(group.begin(), group.end(), context.rank) !=
                group.end() &&
            size_t(std::max(issue.root, 0)) < group.size())
          leader = group[size_t(std::max(issue.root, 0))];
    }
  for (const Issuer &issuer : issuers)
    if (issuer.slots && !decides)
      raise(CONCORD_ERROR_NOT_SUPPORTED,
            "program '%s' has optional slots, but no program of rank %d has a "
            "round decision that says when they are used",
            issuer.planned->name.c_str(), context.rank);
  // What the ranks of the job see of each other's issuers.
  for (auto &thread : context.segment->slot(context.rank).issuers)
    thread.store(0, std::memory_order_relaxed);
  context.issues.gate(uint64_t(context.gateMode), 0, turns.empty() ? ~0ull : 0);
}

void Gate::prepareIssuer(Issuer &issuer) {
  std::vector<plan::Step> all;
  std::string why;
  issuer.fixed = plan::flatten(*issuer.planned, kMaxSteps, all, why);
  if (!issuer.fixed)
    raise(CONCORD_ERROR_NOT_SUPPORTED,
          "program '%s' cannot be followed from direct calls: %s",
          issuer.planned->name.c_str(), why.c_str());
  bool always = false;
  issuer.takesPart.assign(issuer.planned->issues.size(), false);
  for (const plan::Step &step : all) {
    const plan::Issue &issue = issuer.planned->issues[step.site];
    const plan::Domain &domain = plan.domains[issue.domain];
    const std::vector<int32_t> *group = nullptr;
    for (const auto &each : domain.groups)
      if (std::find(each.begin(), each.end(), context.rank) != each.end())
        group = &each;
    if (!group)
      raise(CONCORD_ERROR_CORRUPT,
            "program '%s' issues site %u on domain '%s', which rank %d is not "
            "in",
            issuer.planned->name.c_str(), step.site, domain.name.c_str(),
            context.rank);
    // Transfers are in the plan of all ranks; some only pass by.
    auto takesPart = [&](const plan::Issue &x) {
      if (!isMessage(x.kind))
        return true;
      int side = x.kind == Kind::Send ? 0 : 1;
      for (const auto &pair : x.pairs)
        if (size_t(pair[side]) < group->size() &&
            (*group)[size_t(pair[side])] == context.rank)
          return true;
      return false;
    };
    if (issue.optional)
      issuer.offered |= uint64_t(1) << issue.slot;
    bool part = takesPart(issue);
    if (issue.kind == Kind::Group) {
      part = false;
      for (uint32_t member : issue.members)
        part |= takesPart(issuer.planned->issues[member]);
    }
    if (!part)
      continue;
    Step made;
    made.site = step.site;
    made.unit = step.unit;
    made.slot = issue.optional ? int32_t(issue.slot) : -1;
    made.decision = issue.kind == Kind::RoundDecision;
    if (issue.optional)
      issuer.slots |= uint64_t(1) << issue.slot;
    always |= !issue.optional;
    issuer.steps.push_back(made);
    issuer.takesPart[made.site] = true;
  }
  // Also where this rank has no part in any: it asks for slots of others.
  issuer.optionalOnly = !always && issuer.offered;
}

int32_t Gate::issuerOf(uint32_t program) const {
  for (size_t i = 0; i < issuers.size(); ++i)
    if (issuers[i].program == program)
      return int32_t(i);
  return -1;
}

Gate::Issuer *Gate::find(const char *name) {
  for (Issuer &issuer : issuers)
    if (issuer.planned->issuer == name || issuer.planned->name == name)
      return &issuer;
  return nullptr;
}

int32_t Gate::domainOf(const Comm &comm) const {
  int32_t found = -1;
  for (size_t d = 0; d < plan.domains.size(); ++d) {
    if (plan.domains[d].name != comm.name)
      continue;
    found = -2;
    for (const auto &group : plan.domains[d].groups)
      if (group == comm.ranks)
        return int32_t(d);
  }
  return found;
}

static std::string nameOf(const plan::Program &program) {
  return "'" + (program.issuer.empty() ? program.name : program.issuer) + "'";
}

std::string Gate::stepText(const Issuer &issuer, const Step &step) const {
  const plan::Issue &issue = issuer.planned->issues[step.site];
  std::string text = "site " + std::to_string(step.site) + " of issuer " +
                     nameOf(*issuer.planned) + ", " + kindName(issue.kind) +
                     " on '" + plan.domains[issue.domain].name + "'";
  if (!issue.location.empty() && issue.location != "unknown")
    text += " (" + issue.location + ")";
  return text;
}

std::string Gate::position() const {
  std::string text = "round " + std::to_string(round);
  if (at < turns.size()) {
    const Turn &turn = turns[at];
    const Issuer &issuer = issuers[turn.issuer];
    text += ", turn " + std::to_string(at) + ": " +
            stepText(issuer,
                     issuer.steps[std::min(turn.first + taken, turn.last - 1)]);
  }
  return text;
}

int32_t Gate::broken() const {
  return rt::fail(failed, "the gate of rank %d is broken: %s", context.rank,
                  words.c_str());
}

void Gate::fail(int32_t status, const std::string &text) {
  if (failed == CONCORD_OK) {
    failed = status;
    words = text;
  }
}

bool Gate::knows(uint64_t r, uint64_t &bits) const {
  auto it = bitsOf.find(r);
  if (it == bitsOf.end())
    return false;
  bits = it->second;
  return true;
}

/// Steps of a turn that the current round uses; ~0 while that is not decided.
uint32_t Gate::needed(const Turn &turn) const {
  const Issuer &issuer = issuers[turn.issuer];
  uint64_t bits = 0;
  bool known = knows(round, bits);
  uint32_t count = 0;
  for (uint32_t i = turn.first; i < turn.last; ++i) {
    int32_t slot = issuer.steps[i].slot;
    if (slot >= 0 && !known)
      return ~0u;
    count += slot < 0 || (bits >> slot & 1);
  }
  return count;
}

/// Pass over turns that the round does not use, or that have been taken.
void Gate::settle() {
  if (turns.empty())
    return;
  uint64_t began = round;
  for (;;) {
    if (at == turns.size()) {
      at = 0;
      taken = 0;
      ++round;
      // A round in which nothing at all is used must not spin here.
      if (round > began + 1)
        break;
      continue;
    }
    if (taken < needed(turns[at]))
      break;
    ++at;
    taken = 0;
  }
  context.issues.gate(uint64_t(context.gateMode), round, at);
}

void Gate::note(Issuer &issuer) {
  uint32_t thread = threadId();
  if (issuer.thread == thread)
    return;
  issuer.thread = thread;
  issuer.left = false;
  showThread(issuer.program, thread);
}

void Gate::showThread(uint32_t program, uint32_t thread) {
  if (program >= kMaxIssuers)
    return;
  context.segment->slot(context.rank)
      .issuers[program]
      .store(thread, std::memory_order_release);
  if (!context.hosts)
    return;
  Notice notice;
  notice.kind = Notice::Kind::Issuer;
  notice.value = program;
  notice.status = int32_t(thread);
  context.hosts->mesh().tell(context.hosts->remoteMask(), notice);
}

bool Gate::alive(const Issuer &issuer) const {
  if (issuer.left)
    return false;
  return issuer.thread == 0 ||
         ::syscall(SYS_tgkill, ::getpid(), issuer.thread, 0) == 0 ||
         errno != ESRCH;
}

bool Gate::attachedEverywhere(uint64_t slots) const {
  for (uint32_t p = 0; p < plan.programs.size() && p < kMaxIssuers; ++p) {
    const plan::Program &program = plan.programs[p];
    bool concerned = false;
    for (const plan::Issue &issue : program.issues)
      concerned |= issue.optional && (slots >> issue.slot & 1);
    if (!concerned)
      continue;
    for (int32_t rank : program.ranks) {
      RankSlot &slot = context.segment->slot(rank);
      uint32_t thread = slot.issuers[p].load(std::memory_order_acquire);
      if (thread == 0)
        return false;
      // Of a thread on another host only its own word is known.
      if (context.hosts && !context.hosts->isLocal(rank))
        continue;
      if (::syscall(SYS_tgkill, pid_t(slot.pid.load()), thread, 0) != 0 &&
          errno == ESRCH)
        return false;
    }
  }
  return true;
}

uint64_t Gate::propose(uint64_t bits) {
  uint64_t granted = 0;
  for (uint64_t left = asked; left;) {
    // Slots of one request go together only if they are one bit; the issuer
    // sees which bits its round uses.
    uint64_t bit = left & -left;
    left &= left - 1;
    if (attachedEverywhere(bit))
      granted |= bit;
  }
  asked &= ~granted;
  return bits | granted;
}

void Gate::decided(uint64_t bits) {
  uint64_t r = decisions++;
  bitsOf[r] = bits;
  for (Issuer &issuer : issuers)
    if (issuer.optionalOnly && (bits & issuer.slots))
      issuer.used.emplace_back(r, bits & issuer.slots);
  settle();
  prune();
}

/// Forget the decisions that nobody can ask for any more.
void Gate::prune() {
  uint64_t least = turns.empty() ? decisions : std::min(round, decisions);
  for (const Issuer &issuer : issuers)
    if (!issuer.optionalOnly)
      least = std::min(least, issuer.round);
    else if (issuer.next != 0)
      least = std::min(least, issuer.round);
    else if (!issuer.used.empty())
      least = std::min(least, issuer.used.front().first);
  while (!bitsOf.empty() && bitsOf.begin()->first < least)
    bitsOf.erase(bitsOf.begin());
}

int32_t Gate::late(uint32_t waiting, const std::string &what, double seconds) {
  std::string who;
  int32_t status = CONCORD_ERROR_LATE_ISSUER;
  if (at < turns.size() && turns[at].issuer != waiting) {
    const Turn &turn = turns[at];
    const Issuer &issuer = issuers[turn.issuer];
    uint32_t first = turn.first;
    who =
        stepText(issuer, issuer.steps[std::min(first + taken, turn.last - 1)]);
    if (issuer.left)
      who += ", which has left";
    else if (issuer.thread == 0)
      who += ", which has not come yet";
    else if (!alive(issuer))
      who += ", whose thread (" + std::to_string(issuer.thread) + ") has ended";
    else
      who += ", whose thread " + std::to_string(issuer.thread) +
             " has not issued it";
  } else {
    who = "the decision of round " + std::to_string(issuers[waiting].round) +
          ", which " + nameOf(*issuers[decider].planned) + " issues";
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  std::string why = "rank " + std::to_string(context.rank) + ": " + what +
                    " waited " + text +
                    " for its turn (CONCORD_GATE_TIMEOUT), in round " +
                    std::to_string(round) + ", behind " + who;
  fail(status, why);
  return rt::fail(status, "%s", why.c_str());
}

namespace {
/// Counts the threads that wait.
class Inside {
public:
  explicit Inside(unsigned &count) : count(count) { ++count; }
  ~Inside() { --count; }

private:
  unsigned &count;
};

/// How long a thread waits, and whether it is time to look at the other one.
class Deadline {
public:
  explicit Deadline(double seconds) : seconds(seconds) {}
  double passed() const { return double(nowNanoseconds() - began) * 1e-9; }
  bool over() const { return seconds > 0 && passed() > seconds; }
  /// Once in a while.
  bool look() {
    int64_t now = nowNanoseconds();
    if (now - looked < 20'000'000)
      return false;
    looked = now;
    return true;
  }

private:
  double seconds;
  int64_t began = nowNanoseconds(), looked = began;
};
} // namespace

int32_t Gate::advance(uint32_t index, const What &what, bool *skip) {
  Issuer &issuer = issuers[index];
  if (issuer.steps.empty())
    return rt::fail(
        CONCORD_ERROR_PLAN,
        "rank %d: %s of issuer %s, which issues nothing on this rank",
        context.rank, what.text().c_str(), nameOf(*issuer.planned).c_str());
  Waiter waiter(context, true);
  Inside inside(waiters);
  Deadline deadline(context.gateSeconds);
  std::unique_ptr<HostWaiting> waiting;
  for (;;) {
    if (failed != CONCORD_OK)
      return broken();
    if (issuer.next == issuer.steps.size()) {
      issuer.next = 0;
      ++issuer.round;
      prune();
    }
    // Straight to the next round that uses a slot.
    if (issuer.optionalOnly && issuer.next == 0 && !issuer.used.empty())
      issuer.round = issuer.used.front().first;
    const Step &step = issuer.steps[issuer.next];
    uint64_t bits = 0;
    if (step.slot < 0)
      return CONCORD_OK;
    if (!(issuer.optionalOnly && issuer.next == 0 && issuer.used.empty()) &&
        knows(issuer.round, bits)) {
      if (bits >> step.slot & 1)
        return CONCORD_OK;
      ++issuer.next;
      if (!skip)
        continue;
      *skip = true;
      return CONCORD_OK;
    }
    if (!holds())
      return rt::fail(CONCORD_ERROR_PLAN,
                      "rank %d: %s comes in an optional slot, and no round has "
                      "been decided that uses it",
                      context.rank, what.text().c_str());
    if (!waiting)
      waiting = std::make_unique<HostWaiting>(
          context.logBlock, issuelog::HostState::Gate,
          "a round that uses the slot of " + stepText(issuer, step));
    if (progress(context)) {
      waiter.restart();
      continue;
    }
    passTime(context, waiter, nullptr);
    bool look = deadline.look();
    if (look && context.segment->header().aborted.load())
      return aborted(what);
    if (deadline.over() || (look && !alive(issuers[decider])))
      return late(index, what.text(), deadline.passed());
  }
}

int32_t Gate::aborted(const What &what) {
  std::string why = "rank " + std::to_string(context.rank) + ": " +
                    what.text() +
                    " waited for its turn when the job was aborted";
  fail(CONCORD_ERROR_ABORTED, why);
  return rt::fail(CONCORD_ERROR_ABORTED, "%s", why.c_str());
}

int32_t Gate::await(uint32_t index, const Step &step, const What &what) {
  Issuer &issuer = issuers[index];
  settle();
  auto mine = [&] { return round == issuer.round && at == step.turn; };
  if (mine())
    return CONCORD_OK;
  if (context.threadLevel != CONCORD_THREAD_MULTIPLE) {
    std::string why = "rank " + std::to_string(context.rank) + ": " +
                      what.text() + " is out of turn: " + position() +
                      " comes first";
    fail(CONCORD_ERROR_PLAN, why);
    return rt::fail(CONCORD_ERROR_PLAN, "%s", why.c_str());
  }
  HostWaiting waiting(context.logBlock, issuelog::HostState::Gate,
                      "its turn, behind " + position());
  Waiter waiter(context, true);
  Inside inside(waiters);
  Deadline deadline(context.gateSeconds);
  while (!mine()) {
    if (failed != CONCORD_OK)
      return broken();
    if (progress(context)) {
      waiter.restart();
      continue;
    }
    passTime(context, waiter, nullptr);
    settle();
    if (mine())
      break;
    if (deadline.over())
      return late(index, what.text(), deadline.passed());
    if (deadline.look()) {
      if (context.segment->header().aborted.load())
        return aborted(what);
      if (at < turns.size() && turns[at].issuer != index &&
          !alive(issuers[turns[at].issuer]))
        return late(index, what.text(), deadline.passed());
    }
  }
  return failed != CONCORD_OK ? broken() : CONCORD_OK;
}

void Gate::take(uint32_t index) {
  Issuer &issuer = issuers[index];
  const Step &step = issuer.steps[issuer.next++];
  if (!issuer.used.empty() && issuer.used.front().first == issuer.round)
    issuer.used.pop_front();
  if (step.turn != kFree && holds()) {
    ++taken;
    settle();
  }
}

static std::string callText(const Comm &comm, const Op *const *launch,
                            uint32_t count) {
  std::string text = count == 1
                         ? std::string(kindName(launch[0]->request.kind))
                         : "a group of " + std::to_string(count) + " transfers";
  return text + " on '" + comm.name + "'";
}

/// Compare a call with the plan; the words of a difference are kept.
int32_t Gate::match(Comm &comm, const Issuer &issuer, const Step &step,
                    const Op *const *launch, uint32_t count) {
  const plan::Issue &issue = issuer.planned->issues[step.site];
  auto differs = [&](const std::string &what) {
    std::string why = "rank " + std::to_string(context.rank) + ": " +
                      callText(comm, launch, count) +
                      " is not what the plan "
                      "has next, " +
                      stepText(issuer, step) + ": " + what;
    return rt::fail(CONCORD_ERROR_PLAN, "%s", why.c_str());
  };
  auto one = [&](const OpRequest &r, const plan::Issue &x) {
    if (r.kind != x.kind)
      return differs(std::string("it is ") + kindName(x.kind) + " there");
    if (r.kind == Kind::Barrier)
      return int32_t(CONCORD_OK);
    if (r.kind == Kind::RoundDecision)
      return r.root == std::max(x.root, 0)
                 ? int32_t(CONCORD_OK)
                 : differs("group rank " + std::to_string(x.root) +
                           " decides there");
    if (r.dtype != x.dtype)
      return differs("dtype " + std::string(dtypeName(x.dtype)) + " there, " +
                     std::string(dtypeName(r.dtype)) + " here");
    if (r.reduction != x.reduction)
      return differs("another reduction there");
    uint64_t elements = r.chunk / std::max<uint64_t>(1, dtypeSize(r.dtype));
    bool even =
        !r.send && !r.receive && x.sendCounts.empty() && x.recvCounts.empty();
    if (even && elements != x.count)
      return differs("count " + std::to_string(x.count) + " there, " +
                     std::to_string(elements) + " here");
    if (isMessage(r.kind)) {
      int side = r.kind == Kind::Send ? 0 : 1;
      bool listed = std::any_of(x.pairs.begin(), x.pairs.end(), [&](auto &p) {
        return p[side] == comm.me && p[1 - side] == r.root;
      });
      if (!listed)
        return differs("another peer than group rank " +
                       std::to_string(r.root) + " there");
    } else if (r.kind != Kind::Permute && x.root >= 0 && r.root != x.root) {
      return differs("root " + std::to_string(x.root) + " there, " +
                     std::to_string(r.root) + " here");
    }
    return int32_t(CONCORD_OK);
  };
  if (issue.kind != Kind::Group)
    return count == 1 ? one(launch[0]->request, issue)
                      : differs("no group there");
  // The transfers of a group, in one common order (C4).
  std::vector<const plan::Issue *> mine;
  for (uint32_t member : issue.members) {
    const plan::Issue &x = issuer.planned->issues[member];
    int side = x.kind == Kind::Send ? 0 : 1;
    if (std::any_of(x.pairs.begin(), x.pairs.end(),
                    [&](auto &p) { return p[side] == comm.me; }))
      mine.push_back(&x);
  }
  if (mine.size() != count)
    return differs("a group of " + std::to_string(mine.size()) + " there");
  for (uint32_t i = 0; i < count; ++i)
    if (int32_t status = one(launch[i]->request, *mine[i]))
      return status;
  return CONCORD_OK;
}

int32_t Gate::enter(Comm &comm, const Op *const *launch, uint32_t count) {
  if (failed != CONCORD_OK)
    return broken();
  int32_t domain = domainOf(comm);
  if (domain == -2)
    return rt::fail(CONCORD_ERROR_PLAN,
                    "communicator '%s' has the name of a domain of the plan, "
                    "but other members",
                    comm.name.c_str());
  if (domain < 0 || owner[size_t(domain)] == -1) {
    if (!holds())
      return CONCORD_OK;
    return rt::fail(CONCORD_ERROR_PLAN,
                    "%s: rank %d has no such domain in its plan, and gate mode "
                    "hold issues only what is planned; name the communicator "
                    "after its domain",
                    callText(comm, launch, count).c_str(), context.rank);
  }
  if (owner[size_t(domain)] == -2)
    return rt::fail(CONCORD_ERROR_NOT_SUPPORTED,
                    "two programs of rank %d issue on domain '%s', so that a "
                    "direct call does not tell whose it is",
                    context.rank, plan.domains[size_t(domain)].name.c_str());
  auto index = uint32_t(owner[size_t(domain)]);
  Issuer &issuer = issuers[index];
  note(issuer);
  struct Call final : What {
    Call(const Comm &comm, const Op *const *launch, uint32_t count,
         const Issuer &issuer)
        : comm(comm), launch(launch), count(count), issuer(issuer) {}
    std::string text() const override {
      return callText(comm, launch, count) + " of issuer " +
             nameOf(*issuer.planned);
    }
    const Comm &comm;
    const Op *const *launch;
    uint32_t count;
    const Issuer &issuer;
  } what(comm, launch, count, issuer);
  const Step *step =
      issuer.next < issuer.steps.size() ? &issuer.steps[issuer.next] : nullptr;
  if (!step || step->slot >= 0) {
    if (int32_t status = advance(index, what, nullptr))
      return status;
    step = &issuer.steps[issuer.next];
  }
  if (int32_t status = match(comm, issuer, *step, launch, count)) {
    // The others are told at once: nobody need wait for what will not come.
    fail(status, lastError());
    Op broken;
    broken.comm = &comm;
    breakComm(broken, status);
    return status;
  }
  if (holds() && step->turn != kFree &&
      !(round == issuer.round && at == step->turn && failed == CONCORD_OK))
    if (int32_t status = await(index, *step, what)) {
      Op broken;
      broken.comm = &comm;
      std::string kept = lastError();
      breakComm(broken, status);
      return rt::fail(status, "%s", kept.c_str());
    }
  take(index);
  return CONCORD_OK;
}

int32_t Gate::enterSite(uint32_t program, uint32_t site, Comm *comm,
                        bool &skip) {
  if (failed != CONCORD_OK)
    return broken();
  int32_t found = issuerOf(program);
  if (found < 0 || site >= issuers[size_t(found)].planned->issues.size())
    return rt::fail(CONCORD_ERROR_INTERNAL,
                    "the gate's plan has no site %u of program %u", site,
                    program);
  auto index = uint32_t(found);
  Issuer &issuer = issuers[index];
  note(issuer);
  if (!issuer.takesPart[site])
    return CONCORD_OK;
  if (issuer.next == issuer.steps.size()) {
    issuer.next = 0;
    ++issuer.round;
    prune();
  }
  const Step &step = issuer.steps[issuer.next];
  struct Name final : What {
    Name(const Gate &gate, const Issuer &issuer, const Step &step)
        : gate(gate), issuer(issuer), step(step) {}
    std::string text() const override { return gate.stepText(issuer, step); }
    const Gate &gate;
    const Issuer &issuer;
    const Step &step;
  } what(*this, issuer, step);
  int32_t status = CONCORD_OK;
  if (step.site != site) {
    // The code and its plan come from one compilation; a step that another one
    // has broken off is the way to get here.
    std::string why =
        "rank " + std::to_string(context.rank) + ": site " +
        std::to_string(site) + " of issuer " + nameOf(*issuer.planned) +
        " is not what the plan has next, " + stepText(issuer, step);
    fail(CONCORD_ERROR_PLAN, why);
    status = rt::fail(CONCORD_ERROR_PLAN, "%s", why.c_str());
  }
  if (status == CONCORD_OK && step.slot >= 0)
    status = advance(index, what, &skip);
  if (status == CONCORD_OK && skip) {
    settle();
    return CONCORD_OK;
  }
  if (status == CONCORD_OK && holds() && step.turn != kFree &&
      !(round == issuer.round && at == step.turn))
    status = await(index, step, what);
  if (status != CONCORD_OK) {
    if (comm) {
      Op broken;
      broken.comm = comm;
      std::string kept = lastError();
      breakComm(broken, status);
      return rt::fail(status, "%s", kept.c_str());
    }
    return status;
  }
  take(index);
  return CONCORD_OK;
}

static int32_t noIssuer(const Context &context, const char *name) {
  return rt::fail(CONCORD_ERROR_NOT_FOUND,
                  "the plan has no issuer '%s' on rank %d", name, context.rank);
}

int32_t Gate::request(const char *name, uint64_t bits) {
  Issuer *issuer = find(name);
  if (!issuer)
    return noIssuer(context, name);
  if (bits == 0)
    bits = issuer->offered;
  if (bits == 0 || (bits & ~issuer->offered))
    return rt::fail(CONCORD_ERROR_INVALID_ARGUMENT,
                    "issuer '%s' has the optional slots 0x%llx, not 0x%llx",
                    name, (unsigned long long)issuer->offered,
                    (unsigned long long)bits);
  if (!leads())
    return rt::fail(CONCORD_ERROR_INVALID_ARGUMENT,
                    "rank %d decides which slots a round uses; ask there, not "
                    "on rank %d",
                    leader, context.rank);
  asked |= bits;
  return CONCORD_OK;
}

int32_t Gate::wait(const char *name, double seconds, uint64_t *r,
                   uint64_t *bits) {
  Issuer *issuer = find(name);
  if (!issuer)
    return noIssuer(context, name);
  if (!issuer->optionalOnly)
    return rt::fail(CONCORD_ERROR_INVALID_ARGUMENT,
                    "issuer '%s' issues in every round; only one with optional "
                    "slots alone waits for them",
                    name);
  note(*issuer);
  Inside inside(waiters);
  int64_t began = nowNanoseconds();
  int64_t looked = began;
  HostWaiting waiting(context.logBlock, issuelog::HostState::Slot,
                      "a round that uses a slot of '" + std::string(name) +
                          "'");
  for (;;) {
    if (failed != CONCORD_OK)
      return broken();
    for (auto [round, used] : issuer->used)
      if (round + 1 > issuer->told) {
        issuer->told = round + 1;
        *r = round;
        *bits = used;
        return CONCORD_OK;
      }
    int64_t now = nowNanoseconds();
    if (seconds >= 0 && double(now - began) > seconds * 1e9)
      return rt::fail(CONCORD_ERROR_NOT_READY,
                      "no round has used a slot of '%s'", name);
    if (now - looked > 20'000'000) {
      looked = now;
      if (context.segment->header().aborted.load())
        return rt::fail(CONCORD_ERROR_ABORTED, "the job was aborted");
      if (!alive(issuers[decider]))
        return rt::fail(CONCORD_ERROR_LATE_ISSUER,
                        "issuer %s, which decides the rounds, has ended",
                        nameOf(*issuers[decider].planned).c_str());
    }
    // Asleep, so that the rounds are not slowed by those who wait for one.
    bool open = context.threadLevel == CONCORD_THREAD_MULTIPLE;
    if (open)
      context.mutex.unlock();
    timespec span{0, 100'000};
    ::nanosleep(&span, nullptr);
    if (open)
      context.mutex.lock();
  }
}

int32_t Gate::attach(const char *name) {
  Issuer *issuer = find(name);
  if (!issuer)
    return noIssuer(context, name);
  note(*issuer);
  return CONCORD_OK;
}

int32_t Gate::leave(const char *name) {
  Issuer *issuer = find(name);
  if (!issuer)
    return noIssuer(context, name);
  issuer->left = true;
  issuer->thread = 0;
  showThread(issuer->program, 0);
  return CONCORD_OK;
}
