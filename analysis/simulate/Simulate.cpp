//===- Simulate.cpp - Predicted time of a step ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Events are ends: of a computation, of the latency of a transfer, of its
// bytes. Between two events everything proceeds at constant rates, which links
// and cores share out: by priority first, and evenly within one priority.
//
//===----------------------------------------------------------------------===//

#include "concord/simulate/Simulate.h"

#include "Classes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <queue>
#include <unordered_map>

namespace concord::simulate {
namespace {

using plan::Kind;

constexpr uint32_t kNone = ~0u;
/// Rates below this are none: a starved transfer ends when others have.
constexpr double kLeast = 1e-9;

bool isTransfer(Kind kind) { return kind == Kind::Send || kind == Kind::Recv; }

/// What a node of the history is, and what let it begin.
struct Node {
  Span::Kind kind;
  uint32_t rankClass, lane, index, before;
  double begin, end;
};

struct Operation {
  uint32_t rankClass, site, issuedAfter; ///< history before the issue
  uint32_t startedAfter = kNone;         ///< history that let it start
  uint32_t pending = 0;                  ///< instances to complete
  std::vector<uint32_t> instances{};
  double issued = 0, started = 0, transfer = -1;
  bool hasStarted = false, done = false;
};

struct Instance {
  uint32_t group, needed, started = 0;
  std::vector<uint32_t> operations{};
  const cost::CollectiveCost *cost = nullptr;
  double remaining = 0, rate = 0, last = 0, begin = 0, core = 0;
  int32_t priority = 0;
  uint32_t version = 0, node = kNone;
  bool inLatency = true;
};

struct Event {
  double time;
  uint64_t sequence;
  uint32_t what, version;
  bool isCompute;
  bool operator>(const Event &other) const {
    return time != other.time ? time > other.time : sequence > other.sequence;
  }
};

struct ClassState {
  uint32_t step = 0;
  bool computing = false, finished = false;
  double remaining = 0, rate = 1, last = 0, began = 0;
  uint32_t version = 0;
  uint32_t after = kNone;   ///< history that let the host go on
  uint32_t blocked = kNone; ///< operation that the host waits for
  double blockedSince = 0;
  std::map<uint32_t, std::deque<uint32_t>> lanes;
  std::vector<uint32_t> lastOfSite, instancesOfDomain;
  std::map<std::array<uint32_t, 3>, uint32_t> messages; ///< domain, from, to
  std::vector<double> busy, exposed, exposedQueue;
  std::vector<uint64_t> issues;
};

class Simulation {
public:
  Simulation(const Job &job, const cost::Machine &machine,
             const Options &options, const Classes &classes, Result &result)
      : job(job), machine(machine), options(options), classes(classes),
        result(result) {}
  bool run(std::string &error);

private:
  const Program *programOf(uint32_t c) const {
    uint32_t program = classes.ranks[c].program;
    return program < job.programs.size() ? &job.programs[program] : nullptr;
  }
  const Issue &issueOf(const Operation &op) const {
    return programOf(op.rankClass)->issues[op.site];
  }
  void push(double time, uint32_t what, uint32_t version, bool isCompute) {
    events.push({time, sequence++, what, version, isCompute});
  }
  void advance(uint32_t c);
  void issue(uint32_t c, uint32_t site);
  void pump(uint32_t c, uint32_t lane);
  void start(uint32_t op, uint32_t after);
  void begin(uint32_t instance);
  void finish(uint32_t instance);
  void complete(uint32_t op, uint32_t after);
  void share();
  const cost::CollectiveCost *costOf(uint32_t group, const Issue &issue,
                                     int32_t from, int32_t to);
  uint32_t note(Span::Kind kind, uint32_t c, uint32_t lane, uint32_t index,
                uint32_t before, double begin, double end) {
    history.push_back({kind, c, lane, index, before, begin, end});
    return static_cast<uint32_t>(history.size() - 1);
  }
  void report();
  std::string stuck() const;

  const Job &job;
  const cost::Machine &machine;
  const Options &options;
  const Classes &classes;
  Result &result;

  double now = 0;
  uint64_t sequence = 0;
  bool dirty = false;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  std::vector<ClassState> states;
  std::vector<Operation> operations;
  std::vector<Instance> instances;
  std::vector<std::vector<uint32_t>> collectivesOf; ///< by group class, index
  std::map<std::array<uint32_t, 4>, uint32_t> messagesOf;
  std::vector<uint32_t> active; ///< instances that move bytes
  std::vector<uint32_t> advanceList;
  std::vector<std::pair<uint32_t, uint32_t>> pumpList;
  std::vector<uint32_t> coreUsers; ///< classes whose core a transfer uses
  std::vector<double> resourceBytes, coreLeft;
  std::vector<Node> history;
  std::map<std::array<uint64_t, 5>, cost::CollectiveCost> costs;
};

} // namespace

const cost::CollectiveCost *Simulation::costOf(uint32_t group,
                                               const Issue &issue, int32_t from,
                                               int32_t to) {
  auto bytes = static_cast<uint64_t>(issue.bytes);
  auto [at, fresh] = costs.try_emplace(
      {group, static_cast<uint64_t>(issue.kind), bytes,
       static_cast<uint64_t>(from + 1), static_cast<uint64_t>(to + 1)});
  if (fresh) {
    const GroupClass &entry = classes.groups[group];
    if (from >= 0) {
      std::vector<std::vector<int32_t>> two = {
          {entry.members[from], entry.members[to]}};
      at->second = cost::collective(machine, issue.kind, issue.bytes,
                                    cost::place(machine, two));
    } else {
      at->second =
          cost::collective(machine, issue.kind, issue.bytes, entry.placement);
    }
  }
  return &at->second;
}

/// Runs the host of a class until it computes, waits or ends.
void Simulation::advance(uint32_t c) {
  ClassState &state = states[c];
  const Program *program = programOf(c);
  while (!state.computing && state.blocked == kNone && !state.finished) {
    if (!program || state.step == program->steps.size()) {
      state.finished = true;
      result.classes[c].seconds = now;
      return;
    }
    const Step &step = program->steps[state.step];
    switch (step.type) {
    case Step::Type::Compute:
      if (step.seconds <= 0) {
        ++state.step;
        continue;
      }
      state.computing = true;
      state.remaining = step.seconds;
      state.rate = 0; // share() sets it
      state.began = state.last = now;
      dirty = true;
      // Nobody may be sharing the core: the common case needs no sharing out.
      if (coreLeft[c] >= 1) {
        state.rate = 1;
        push(now + step.seconds, c, ++state.version, true);
      }
      return;
    case Step::Type::Issue:
      ++state.step;
      issue(c, step.index);
      break;
    case Step::Type::Wait: {
      ++state.step;
      uint32_t op = state.lastOfSite[step.index];
      if (op != kNone && !operations[op].done) {
        state.blocked = op;
        state.blockedSince = now;
      }
      break;
    }
    }
  }
}

void Simulation::issue(uint32_t c, uint32_t site) {
  ClassState &state = states[c];
  const Issue &what = programOf(c)->issues[site];
  auto id = static_cast<uint32_t>(operations.size());
  operations.push_back({c, site, state.after});
  Operation &op = operations.back();
  op.issued = now;
  state.lastOfSite[site] = id;
  ++state.issues[what.domain];
  int32_t group = classes.groupOf[c][what.domain];
  if (group >= 0) {
    const GroupClass &entry = classes.groups[group];
    auto join = [&](uint32_t instance) {
      op.instances.push_back(instance);
      instances[instance].operations.push_back(id);
      ++op.pending;
    };
    if (isTransfer(what.kind)) {
      bool sends = what.kind == Kind::Send;
      for (auto [from, to] : what.pairs) {
        int32_t mine = sends ? from : to;
        if (static_cast<size_t>(std::max(from, to)) >= entry.members.size() ||
            entry.memberClasses[mine] != c || from == to)
          continue;
        std::array<uint32_t, 3> key = {what.domain,
                                       static_cast<uint32_t>(2 * from + sends),
                                       static_cast<uint32_t>(to)};
        uint32_t index = state.messages[key]++;
        auto [at, fresh] = messagesOf.try_emplace(
            {static_cast<uint32_t>(group), static_cast<uint32_t>(from),
             static_cast<uint32_t>(to), index},
            static_cast<uint32_t>(instances.size()));
        if (fresh) {
          instances.push_back({static_cast<uint32_t>(group), 2});
          instances.back().cost = costOf(group, what, from, to);
        }
        join(at->second);
      }
    } else {
      uint32_t index = state.instancesOfDomain[what.domain]++;
      auto &list = collectivesOf[group];
      if (index == list.size()) {
        list.push_back(static_cast<uint32_t>(instances.size()));
        instances.push_back({static_cast<uint32_t>(group),
                             static_cast<uint32_t>(entry.classes.size())});
        instances.back().cost = costOf(group, what, -1, -1);
      }
      join(list[index]);
    }
    for (uint32_t instance : op.instances)
      instances[instance].priority = job.domains[what.domain].priority;
  }
  state.lanes[what.lane].push_back(id);
  if (what.synchronous) {
    state.blocked = id;
    state.blockedSince = now;
  }
  pump(c, what.lane);
}

/// Starts what may start: the head of a lane, and messages right behind
/// messages.
void Simulation::pump(uint32_t c, uint32_t lane) {
  auto &queue = states[c].lanes[lane];
  bool onlyMessages = true;
  for (size_t i = 0; i < queue.size(); ++i) {
    uint32_t id = queue[i];
    bool message = isTransfer(issueOf(operations[id]).kind);
    if (i && !(message && onlyMessages))
      break;
    onlyMessages &= message;
    if (!operations[id].hasStarted) {
      // Held up by the one before it in the lane, or only now issued.
      uint32_t after = operations[id].startedAfter != kNone
                           ? operations[id].startedAfter
                           : operations[id].issuedAfter;
      start(id, after);
      if (operations[id].done) // it passes by
        return pump(c, lane);
    }
  }
}

void Simulation::start(uint32_t id, uint32_t after) {
  Operation &op = operations[id];
  op.hasStarted = true;
  op.started = now;
  op.startedAfter = after;
  if (op.pending == 0) {
    complete(id, after);
    return;
  }
  for (uint32_t instance : std::vector<uint32_t>(op.instances))
    if (++instances[instance].started == instances[instance].needed)
      begin(instance);
}

void Simulation::begin(uint32_t id) {
  Instance &instance = instances[id];
  // The last to start is what it waited for.
  uint32_t last = instance.operations.front();
  for (uint32_t op : instance.operations)
    if (operations[op].started >= operations[last].started)
      last = op;
  for (uint32_t op : instance.operations)
    if (operations[op].transfer < 0)
      operations[op].transfer = now;
  const Operation &op = operations[last];
  instance.node = note(Span::Kind::Transfer, op.rankClass, issueOf(op).lane,
                       op.site, op.startedAfter, now, now);
  instance.begin = now;
  instance.inLatency = true;
  push(now + instance.cost->latency, id, ++instance.version, false);
}

void Simulation::finish(uint32_t id) {
  Instance &instance = instances[id];
  history[instance.node].end = now;
  const GroupClass &group = classes.groups[instance.group];
  for (const GroupClass::Use &use : group.uses)
    if (use.level < instance.cost->levelBytes.size())
      resourceBytes[use.resource] +=
          use.groups * instance.cost->levelBytes[use.level];
  uint32_t node = instance.node;
  double begin = instance.begin;
  for (uint32_t op : std::vector<uint32_t>(instance.operations)) {
    states[operations[op].rankClass].busy[group.domain] += now - begin;
    if (--operations[op].pending == 0)
      complete(op, node);
  }
}

void Simulation::complete(uint32_t id, uint32_t after) {
  Operation &op = operations[id];
  op.done = true;
  uint32_t c = op.rankClass;
  ClassState &state = states[c];
  const Issue &what = issueOf(op);
  if (options.spans && op.transfer >= 0) {
    if (op.transfer > op.issued)
      result.spans.push_back({Span::Kind::Queue, false, c, what.lane, op.site,
                              op.issued, op.transfer});
    result.spans.push_back(
        {Span::Kind::Transfer, false, c, what.lane, op.site, op.transfer, now});
  }
  auto &queue = state.lanes[what.lane];
  queue.erase(std::find(queue.begin(), queue.end(), id));
  if (!queue.empty() && !operations[queue.front()].hasStarted) {
    operations[queue.front()].startedAfter = after;
    pumpList.emplace_back(c, what.lane);
  }
  if (state.blocked == id) {
    double exposed = now - state.blockedSince;
    state.exposed[what.domain] += exposed;
    if (op.transfer > state.blockedSince)
      state.exposedQueue[what.domain] += op.transfer - state.blockedSince;
    if (exposed > 0) {
      state.after = after;
      if (options.spans)
        result.spans.push_back({Span::Kind::Wait, false, c, what.lane, op.site,
                                state.blockedSince, now});
    }
    state.blocked = kNone;
    advanceList.push_back(c);
  }
}

/// Gives every transfer and every computation its rate.
void Simulation::share() {
  std::vector<double> linkLeft(classes.resources.size(), 1.0);
  for (uint32_t c : coreUsers)
    coreLeft[c] = 1;
  std::vector<uint32_t> touched = std::move(coreUsers);
  coreUsers.clear();
  for (uint32_t id : active)
    if (instances[id].core > 0 && !result.timedWait)
      for (uint32_t c : classes.groups[instances[id].group].classes) {
        coreUsers.push_back(c);
        // A computation keeps half of its core: the engine takes turns with it.
        coreLeft[c] = states[c].computing ? 0.5 : 1;
      }
  touched.insert(touched.end(), coreUsers.begin(), coreUsers.end());

  std::vector<uint32_t> order = active;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return instances[a].priority > instances[b].priority;
  });
  std::vector<double> rates(order.size(), 0);
  auto amount = [&](const Instance &instance, const GroupClass::Use &use) {
    double seconds = instance.cost->seconds - instance.cost->latency;
    double capacity = classes.resources[use.resource].capacity;
    return std::min(1.0, use.groups * instance.cost->levelBytes[use.level] /
                             std::max(1e-12, seconds * capacity));
  };
  for (size_t first = 0; first < order.size();) {
    size_t end = first;
    while (end < order.size() &&
           instances[order[end]].priority == instances[order[first]].priority)
      ++end;
    std::vector<bool> frozen(end - first, false);
    while (true) {
      // The largest step that all who are not frozen can take together.
      std::unordered_map<uint32_t, double> linkUse, coreUse;
      double step = 1;
      bool any = false;
      for (size_t i = first; i < end; ++i) {
        if (frozen[i - first])
          continue;
        any = true;
        const Instance &instance = instances[order[i]];
        const GroupClass &group = classes.groups[instance.group];
        step = std::min(step, 1 - rates[i]);
        for (const GroupClass::Use &use : group.uses)
          linkUse[use.resource] += amount(instance, use);
        if (instance.core > 0 && !result.timedWait)
          for (uint32_t c : group.classes)
            coreUse[c] += instance.core;
      }
      if (!any)
        break;
      for (auto [resource, use] : linkUse)
        if (use > 0)
          step = std::min(step, linkLeft[resource] / use);
      for (auto [c, use] : coreUse)
        if (use > 0)
          step = std::min(step, coreLeft[c] / use);
      step = std::max(0.0, step);
      for (auto [resource, use] : linkUse)
        linkLeft[resource] -= step * use;
      for (auto [c, use] : coreUse)
        coreLeft[c] -= step * use;
      for (size_t i = first; i < end; ++i) {
        if (frozen[i - first])
          continue;
        rates[i] += step;
        const Instance &instance = instances[order[i]];
        const GroupClass &group = classes.groups[instance.group];
        bool full = rates[i] >= 1 - kLeast;
        for (const GroupClass::Use &use : group.uses)
          full |= linkLeft[use.resource] <= kLeast && amount(instance, use) > 0;
        if (instance.core > 0 && !result.timedWait)
          for (uint32_t c : group.classes)
            full |= coreLeft[c] <= kLeast;
        frozen[i - first] = full;
      }
    }
    first = end;
  }
  for (size_t i = 0; i < order.size(); ++i) {
    Instance &instance = instances[order[i]];
    if (instance.rate == rates[i])
      continue;
    instance.remaining -= (now - instance.last) * instance.rate;
    instance.last = now;
    instance.rate = rates[i];
    ++instance.version;
    if (instance.rate > kLeast)
      push(now + std::max(0.0, instance.remaining) / instance.rate, order[i],
           instance.version, false);
  }
  for (uint32_t c : coreUsers)
    if (states[c].computing)
      coreLeft[c] += 0.5; // of the whole core
  for (uint32_t c : touched) {
    ClassState &state = states[c];
    double rate = std::max(kLeast, std::min(1.0, coreLeft[c]));
    if (!state.computing || state.rate == rate)
      continue;
    state.remaining -= (now - state.last) * state.rate;
    state.last = now;
    state.rate = rate;
    push(now + std::max(0.0, state.remaining) / rate, c, ++state.version, true);
  }
}

std::string Simulation::stuck() const {
  for (size_t c = 0; c < states.size(); ++c) {
    if (states[c].finished)
      continue;
    std::string text = "the job does not finish: rank " +
                       std::to_string(classes.ranks[c].ranks.front());
    if (states[c].blocked != kNone) {
      const Issue &what = issueOf(operations[states[c].blocked]);
      text += " waits for " + what.name + " on " +
              job.domains[what.domain].name +
              ", which a member never starts; see comm-verify-order";
    }
    return text;
  }
  return "";
}

bool Simulation::run(std::string &error) {
  size_t count = classes.ranks.size(), domains = job.domains.size();
  result.classes = classes.ranks;
  states.resize(count);
  coreLeft.assign(count, 1);
  collectivesOf.resize(classes.groups.size());
  resourceBytes.assign(classes.resources.size(), 0);
  for (size_t c = 0; c < count; ++c) {
    ClassState &state = states[c];
    const Program *program = programOf(static_cast<uint32_t>(c));
    state.lastOfSite.assign(program ? program->issues.size() : 0, kNone);
    state.instancesOfDomain.assign(domains, 0);
    state.busy.assign(domains, 0);
    state.exposed.assign(domains, 0);
    state.exposedQueue.assign(domains, 0);
    state.issues.assign(domains, 0);
    advanceList.push_back(static_cast<uint32_t>(c));
  }
  while (true) {
    while (!advanceList.empty() || !pumpList.empty()) {
      if (!pumpList.empty()) {
        auto [c, lane] = pumpList.back();
        pumpList.pop_back();
        pump(c, lane);
        continue;
      }
      uint32_t c = advanceList.back();
      advanceList.pop_back();
      advance(c);
    }
    // Rates change once for all that happens at one time.
    if (dirty && (events.empty() || events.top().time > now)) {
      dirty = false;
      if (!active.empty() || !coreUsers.empty())
        share();
    }
    if (events.empty())
      break;
    Event event = events.top();
    events.pop();
    if (event.isCompute) {
      ClassState &state = states[event.what];
      if (event.version != state.version || !state.computing)
        continue;
      now = event.time;
      state.computing = false;
      const Program *program = programOf(event.what);
      const Step &step = program->steps[state.step];
      result.classes[event.what].compute += step.seconds;
      state.after = note(Span::Kind::Compute, event.what, 0, step.index,
                         state.after, state.began, now);
      if (options.spans)
        result.spans.push_back({Span::Kind::Compute, false, event.what, 0,
                                step.index, state.began, now});
      ++state.step;
      if (coreLeft[event.what] < 1)
        dirty = true;
      advanceList.push_back(event.what);
      continue;
    }
    Instance &instance = instances[event.what];
    if (event.version != instance.version)
      continue;
    now = event.time;
    if (instance.inLatency) {
      instance.inLatency = false;
      double seconds = instance.cost->seconds - instance.cost->latency;
      if (seconds <= 0) {
        finish(event.what);
        continue;
      }
      instance.remaining = seconds;
      instance.rate = 0;
      instance.last = now;
      double core = instance.cost->coreSeconds - machine.issueSeconds;
      instance.core = std::clamp(core / seconds, 0.0, 1.0);
      active.push_back(event.what);
      dirty = true;
      continue;
    }
    active.erase(std::find(active.begin(), active.end(), event.what));
    dirty = true;
    finish(event.what);
  }
  error = stuck();
  if (!error.empty())
    return false;
  report();
  return true;
}

void Simulation::report() {
  uint32_t longest = 0;
  for (size_t c = 0; c < states.size(); ++c)
    if (result.classes[c].seconds > result.classes[longest].seconds)
      longest = static_cast<uint32_t>(c);
  result.seconds = result.classes[longest].seconds;
  result.domains.assign(job.domains.size(), {});
  for (size_t d = 0; d < job.domains.size(); ++d) {
    DomainLoad &load = result.domains[d];
    load.exposed = states[longest].exposed[d];
    load.exposedQueue = states[longest].exposedQueue[d];
    for (const ClassState &state : states) {
      load.busy = std::max(load.busy, state.busy[d]);
      load.issues = std::max(load.issues, state.issues[d]);
    }
  }
  for (size_t l = 0; l < machine.levels.size(); ++l) {
    LinkLoad load;
    load.level = machine.levels[l].name;
    double sum = 0;
    for (size_t r = 0; r < classes.resources.size(); ++r) {
      const Resource &resource = classes.resources[r];
      if (resource.level != l)
        continue;
      load.blocks += resource.blocks;
      load.capacity = resource.capacity;
      load.busiest = std::max(load.busiest, resourceBytes[r]);
      sum += resourceBytes[r] * static_cast<double>(resource.blocks);
    }
    if (!load.blocks)
      continue;
    load.mean = sum / static_cast<double>(load.blocks);
    load.utilisation =
        result.seconds > 0 ? load.busiest / load.capacity / result.seconds : 0;
    result.links.push_back(load);
  }
  // Back from the end through what let each thing begin.
  std::map<std::array<uint64_t, 3>, bool> critical;
  for (uint32_t node = states[longest].after; node != kNone;
       node = history[node].before) {
    const Node &entry = history[node];
    (entry.kind == Span::Kind::Compute ? result.criticalCompute
                                       : result.criticalComm) +=
        entry.end - entry.begin;
    if (options.spans) {
      uint64_t bits;
      static_assert(sizeof bits == sizeof entry.begin);
      std::copy_n(reinterpret_cast<const char *>(&entry.begin), sizeof bits,
                  reinterpret_cast<char *>(&bits));
      critical[{entry.rankClass,
                entry.index * 4ull + static_cast<uint64_t>(entry.kind), bits}] =
          true;
    }
  }
  for (Span &span : result.spans) {
    uint64_t bits;
    std::copy_n(reinterpret_cast<const char *>(&span.begin), sizeof bits,
                reinterpret_cast<char *>(&bits));
    span.critical =
        critical.count({span.rankClass,
                        span.index * 4ull + static_cast<uint64_t>(span.kind),
                        bits}) > 0;
  }
}

bool simulate(const Job &job, const cost::Machine &machine,
              const Options &options, Result &result, std::string &error) {
  result = Result();
  Classes classes;
  if (!classify(job, machine, classes, error))
    return false;
  result.timedWait =
      machine.coresPerHost && machine.ranksPerHost > machine.coresPerHost;
  return Simulation(job, machine, options, classes, result).run(error);
}

std::string validatedRange(const cost::Machine &machine) {
  // What ./run bench simulate measured (docs/simulate.md). It holds for figures
  // that comm-bench has measured, not for described ones.
  static constexpr const char *kOneHost =
      "on one host with shared memory: 18 programs on 2, 4 and 8 ranks of a "
      "virtual AMD Zen 4 with 2 cores, calibrated there, 2026-11-30: median "
      "error 2.1 %, worst 6.7 %; links: nowhere";
  static constexpr const char *kLinked =
      "on two hosts with a link: 21 programs on 2 x 1, 2 x 2 and 2 x 4 ranks, "
      "1 Gbit/s between network namespaces of a virtual AMD Zen 4, a core "
      "each, calibrated there, 2026-11-30: median error 1.0 %, worst 14.9 %";
  std::string given = machine.validated.empty() ? "nowhere" : machine.validated;
  if (!machine.calibrated || machine.levels.empty() ||
      !machine.levels[0].memory || machine.levels.size() > 2)
    return given;
  if (machine.levels.size() == 1)
    return kOneHost;
  for (const cost::Curve &curve : machine.curves)
    if (curve.level == machine.levels[1].name)
      return kLinked;
  return given;
}

} // namespace concord::simulate
