//===- Jobs.h - Made-up jobs with planted faults ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs a pipeline x data x tensor parallel training step on up to 512 ranks,
// one in-order queue per device and a host that issues a window ahead, plants
// one fault, stops when nothing moves (or, in a healthy job, at a random
// moment), and leaves behind what a Flight Recorder or HCCL log would hold.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_ORDER_JOBS_H
#define CONCORD_TEST_ORDER_JOBS_H

#include "concord/order/Evidence.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace jobs {

using concord::order::Rank;

enum class Fault {
  None,
  Inversion,
  Missing,
  Mismatch,
  HostBlock,
  TransferCycle
};

struct Operation {
  // Instances that it takes part in: (domain, kind char, source, destination).
  struct Key {
    uint32_t domain;
    Rank source, destination; // -1, -1: collective
    auto operator<=>(const Key &) const = default;
  };
  std::vector<Key> keys;
  std::string name; // "all_reduce", "send", …
  uint64_t count = 1;
  std::vector<int64_t> index; // per key, when issued
  uint32_t launch = 0;
};

struct RankState {
  std::vector<Operation> program;
  size_t issued = 0, done = 0;
  std::string stack; // what the host stands in
};

struct MadeJob {
  Fault fault = Fault::None;
  Rank culprit = -1, second = -1;
  uint32_t pp, dp, tp;
  std::vector<std::vector<Rank>> members; // per domain
  std::vector<std::string> names, descriptions;
  std::vector<RankState> ranks;
  std::vector<bool> withoutEvidence;
  std::vector<size_t> dropped; // records lost at the start of the ring
};

class Maker {
public:
  Maker(uint32_t seed, Fault fault, uint32_t size) : rng(seed) {
    // Not every departure hangs; take one that does.
    for (int attempt = 0; attempt < 60; ++attempt) {
      job = {};
      job.fault = fault;
      job.tp = 1u << (1 + pick(3));
      job.pp = 1u << (1 + pick(2));
      job.dp = std::max(2u, size / job.tp / job.pp);
      build();
      if (fault != Fault::None && !plant())
        continue;
      run();
      bool finished = true;
      for (const RankState &s : job.ranks)
        finished = finished && s.done == s.program.size();
      made = fault == Fault::None || !finished;
      if (made)
        break;
    }
    lose();
  }
  bool made = false;
  MadeJob job;

private:
  std::mt19937 rng;
  uint32_t pick(uint32_t n) { return uint32_t(rng() % n); }
  uint32_t world() const { return job.pp * job.dp * job.tp; }
  std::vector<uint32_t> tpOf, dpOf, ppOf, epOf;

  uint32_t domain(std::vector<Rank> members, std::string description) {
    job.members.push_back(std::move(members));
    job.names.push_back(std::to_string(job.names.size()));
    job.descriptions.push_back(std::move(description));
    return uint32_t(job.names.size()) - 1;
  }

  void build() {
    uint32_t n = world();
    auto rank = [&](uint32_t p, uint32_t d, uint32_t t) {
      return Rank((p * job.dp + d) * job.tp + t);
    };
    tpOf.assign(n, 0);
    dpOf.assign(n, 0);
    ppOf.assign(n, 0);
    epOf.assign(n, 0);
    for (uint32_t p = 0; p < job.pp; ++p)
      for (uint32_t d = 0; d < job.dp; ++d) {
        std::vector<Rank> m;
        for (uint32_t t = 0; t < job.tp; ++t)
          m.push_back(rank(p, d, t));
        uint32_t id = domain(m, "tp");
        for (Rank r : m)
          tpOf[size_t(r)] = id;
      }
    for (uint32_t p = 0; p < job.pp; ++p)
      for (uint32_t t = 0; t < job.tp; ++t) {
        std::vector<Rank> m;
        for (uint32_t d = 0; d < job.dp; ++d)
          m.push_back(rank(p, d, t));
        uint32_t id = domain(m, "dp");
        for (Rank r : m)
          dpOf[size_t(r)] = id;
      }
    for (uint32_t d = 0; d < job.dp; ++d)
      for (uint32_t t = 0; t < job.tp; ++t) {
        std::vector<Rank> m;
        for (uint32_t p = 0; p < job.pp; ++p)
          m.push_back(rank(p, d, t));
        uint32_t id = domain(m, "pp");
        for (Rank r : m)
          ppOf[size_t(r)] = id;
      }
    for (uint32_t p = 0; p < job.pp; ++p) {
      std::vector<Rank> m;
      for (uint32_t k = 0; k < job.dp * job.tp; ++k)
        m.push_back(Rank(p * job.dp * job.tp + k));
      uint32_t id = domain(m, "ep");
      for (Rank r : m)
        epOf[size_t(r)] = id;
    }
    job.ranks.resize(n);
    uint32_t steps = 3 + pick(3), micro = 2, layers = 2;
    uint32_t launch = 0;
    for (uint32_t r = 0; r < n; ++r) {
      auto &program = job.ranks[r].program;
      uint32_t stage = r / (job.dp * job.tp);
      Rank before = Rank(r) - Rank(job.dp * job.tp),
           after = Rank(r + job.dp * job.tp);
      auto add = [&](Operation o) {
        o.launch = launch++;
        program.push_back(std::move(o));
      };
      auto collective = [&](uint32_t d, const char *name, uint64_t count) {
        add({{{d, -1, -1}}, name, count, {}, 0});
      };
      auto transfer = [&](Rank s, Rank t, bool send) {
        add({{{ppOf[r], s, t}}, send ? "send" : "recv", 512, {}, 0});
      };
      for (uint32_t step = 0; step < steps; ++step) {
        for (uint32_t m = 0; m < micro; ++m) {
          if (stage > 0)
            transfer(before, Rank(r), false);
          for (uint32_t l = 0; l < layers; ++l) {
            collective(tpOf[r], "all_reduce", 1000 + l);
            if (l == 1)
              collective(epOf[r], "all_to_all", 640);
          }
          if (stage + 1 < job.pp)
            transfer(Rank(r), after, true);
        }
        for (uint32_t m = 0; m < micro; ++m) {
          if (stage + 1 < job.pp)
            transfer(after, Rank(r), false);
          for (uint32_t l = 0; l < layers; ++l)
            collective(tpOf[r], "all_reduce", 2000 + l);
          if (stage > 0)
            transfer(Rank(r), before, true);
        }
        collective(dpOf[r], "reduce_scatter", 4000);
        collective(tpOf[r], "all_reduce", 3000);
        collective(dpOf[r], "all_gather", 4000);
      }
    }
  }

  size_t somewhere(const std::vector<Operation> &program, auto match) {
    std::vector<size_t> places;
    // Not in the first step: there has to be a history.
    for (size_t i = program.size() / 3; i + 1 < program.size(); ++i)
      if (match(i))
        places.push_back(i);
    return places.empty() ? program.size()
                          : places[pick(uint32_t(places.size()))];
  }

  bool plant() {
    Rank r = Rank(pick(world()));
    RankState &state = job.ranks[size_t(r)];
    auto &program = state.program;
    size_t none = program.size(), at = none;
    auto isCollective = [&](size_t i) { return program[i].keys[0].source < 0; };
    job.culprit = r;
    switch (job.fault) {
    case Fault::Inversion:
      at = somewhere(program, [&](size_t i) {
        return isCollective(i) && isCollective(i + 1) &&
               program[i].keys[0].domain != program[i + 1].keys[0].domain;
      });
      if (at != none)
        std::swap(program[at], program[at + 1]);
      break;
    case Fault::Missing:
      at = somewhere(program, [&](size_t i) { return isCollective(i); });
      if (at != none)
        program.erase(program.begin() + long(at));
      break;
    case Fault::Mismatch:
      at = somewhere(program,
                     [&](size_t i) { return program[i].name == "all_reduce"; });
      if (at != none)
        program[at].count += 7;
      // The library does not compare: the job may run on, or the rank crashes.
      if (at != none)
        program.resize(std::min(program.size(), at + 1 + pick(3)));
      break;
    case Fault::HostBlock:
      at = somewhere(program, [&](size_t i) { return isCollective(i); });
      if (at != none) {
        program.resize(at);
        static const char *stacks[] = {
            "Thread 1 (LWP 77):\n#0  0x00007f00 in syscall () from libc\n"
            "#1  0x00007f01 in aclrtSynchronizeDevice () from libascendcl.so\n"
            "#2  0x00007f02 in placement::Rebalancer::apply (this=0x1) at "
            "rebalance.cpp:10\n",
            "Thread 0x7F (active): \"MainThread\"\n    npuSynchronizeDevice "
            "(libtorch_npu.so)\n"
            "    item (trainer.py:88)\n    main (trainer.py:12)\n",
            "Thread 3 (LWP 9):\n#0  0x0000 in poll ()\n#1  0x0000 in "
            "cudaMalloc () from libcudart\n"
            "#2  0x0000 in Allocator::grow (this=0x2) at allocator.cpp:3\n"};
        state.stack = stacks[pick(3)];
      }
      break;
    case Fault::TransferCycle:
      // The receive of what answers a send is moved in front of that send.
      at = somewhere(program, [&](size_t i) {
        return program[i].keys[0].source == r &&
               program[i + 1].keys[0].destination == r &&
               program[i].keys[0].destination == program[i + 1].keys[0].source;
      });
      if (at != none) {
        job.second = program[at].keys[0].destination;
        std::swap(program[at], program[at + 1]);
      }
      break;
    case Fault::None:
      break;
    }
    return at != none;
  }

  /// In-order devices: an operation runs when it is first on every member.
  void run() {
    uint32_t n = world();
    std::vector<std::map<Operation::Key, int64_t>> counters(n);
    std::map<std::pair<Operation::Key, int64_t>, std::vector<Rank>> standing;
    size_t window = 2 + pick(8);
    uint64_t stop =
        job.fault == Fault::None ? 1 + rng() % (uint64_t(n) * 40) : UINT64_MAX;
    std::vector<uint32_t> work;
    for (uint32_t r = 0; r < n; ++r)
      work.push_back(r);
    std::shuffle(work.begin(), work.end(), rng);
    std::vector<size_t> stood(
        n, SIZE_MAX); // which operation is entered in `standing`
    while (!work.empty() && stop > 0) {
      uint32_t r = work.back();
      work.pop_back();
      RankState &s = job.ranks[r];
      while (s.issued < s.program.size() && s.issued < s.done + window) {
        Operation &o = s.program[s.issued++];
        for (const auto &k : o.keys)
          o.index.push_back(counters[r][k]++);
      }
      if (s.done >= s.issued || stood[r] == s.done)
        continue;
      stood[r] = s.done;
      const Operation &o = s.program[s.done];
      auto &list = standing[{o.keys[0], o.index[0]}];
      list.push_back(Rank(r));
      size_t need =
          o.keys[0].source < 0 ? job.members[o.keys[0].domain].size() : 2;
      if (list.size() < need)
        continue;
      std::vector<Rank> all = std::move(list);
      standing.erase({o.keys[0], o.index[0]});
      for (Rank m : all) {
        ++job.ranks[size_t(m)].done;
        work.push_back(uint32_t(m));
      }
      // Any order of progress is possible.
      if (work.size() > 1)
        std::swap(work.back(), work[pick(uint32_t(work.size()))]);
      --stop;
    }
  }

  void lose() {
    uint32_t n = world();
    job.withoutEvidence.assign(n, false);
    job.dropped.assign(n, 0);
    if (pick(2))
      for (uint32_t k = pick(1 + n / 32); k > 0; --k) {
        uint32_t r = pick(n);
        if (Rank(r) != job.culprit && Rank(r) != job.second)
          job.withoutEvidence[r] = true;
      }
    if (pick(3) == 0)
      for (uint32_t r = 0; r < n; ++r)
        job.dropped[r] = pick(uint32_t(job.ranks[r].issued / 3 + 1));
  }
};

/// A Flight Recorder dump of one rank.
inline std::string flightRecorder(const MadeJob &job, uint32_t r,
                                  std::mt19937 &rng, bool hung) {
  const RankState &s = job.ranks[r];
  std::string out = "{\"version\": \"2.10\", \"comm_lib_version\": \"2.21.5\", "
                    "\"pg_config\": {";
  bool first = true;
  for (uint32_t d = 0; d < job.members.size(); ++d) {
    const auto &m = job.members[d];
    if (std::find(m.begin(), m.end(), Rank(r)) == m.end())
      continue;
    out += std::string(first ? "" : ", ") + "\"" + job.names[d] +
           "\": {\"name\": \"" + job.names[d] + "\", \"desc\": \"" +
           job.descriptions[d] + "\", \"ranks\": \"[";
    for (size_t k = 0; k < m.size(); ++k)
      out += (k ? ", " : "") + std::to_string(m[k]);
    out += "]\"}";
    first = false;
  }
  out += "}, \"pg_status\": {}, \"entries\": [";
  uint64_t skew = rng() % 1000000000;
  std::map<uint32_t, int64_t> p2p;
  for (size_t i = 0; i < s.issued; ++i) {
    const Operation &o = s.program[i];
    const auto &k = o.keys[0];
    const auto &m = job.members[k.domain];
    bool isP2p = k.source >= 0;
    int64_t seq = isP2p ? p2p[k.domain]++ : o.index[0] + 1;
    if (i < job.dropped[r])
      continue;
    std::string name = o.name;
    if (isP2p) {
      auto groupRank = [&](Rank x) {
        return std::to_string(std::find(m.begin(), m.end(), x) - m.begin());
      };
      name =
          o.name == "send"
              ? "send " + groupRank(k.source) + "->" + groupRank(k.destination)
              : "recv " + groupRank(k.destination) + "<-" + groupRank(k.source);
    }
    // The watchdog sees progress late.
    bool lag = i + 2 > s.done && rng() % 3 == 0;
    const char *state = i < s.done    ? (lag ? "started" : "completed")
                        : i == s.done ? "started"
                                      : "scheduled";
    out +=
        std::string(i > job.dropped[r] ? ", " : "") +
        "{\"record_id\": " + std::to_string(i) +
        ", \"pg_id\": " + job.names[k.domain] + ", \"process_group\": [\"" +
        job.names[k.domain] + "\", \"" + job.descriptions[k.domain] +
        "\"], \"collective_seq_id\": " + std::to_string(isP2p ? 0 : seq) +
        ", \"p2p_seq_id\": " + std::to_string(isP2p ? seq : 0) +
        ", \"op_id\": " + std::to_string(i) +
        ", \"profiling_name\": \"nccl:" + name + "\", \"time_created_ns\": " +
        std::to_string(1700000000000000000ull + skew + i * 1000) +
        ", \"duration_ms\": null, \"input_sizes\": [[" +
        std::to_string(o.count) +
        "]], \"input_dtypes\": [\"Float\"], \"output_sizes\": [[" +
        std::to_string(o.count) +
        "]], \"output_dtypes\": [\"Float\"], \"state\": \"" + state +
        "\", \"time_discovered_started_ns\": null, "
        "\"time_discovered_completed_ns\": null, "
        "\"retired\": " +
        ((hung && i == s.done) || (i < s.done && !lag) ? "true" : "false") +
        ", \"timeout_ms\": 600000, \"is_p2p\": " + (isP2p ? "true" : "false") +
        ", \"thread_id\": \"140\", \"frames\": [{\"name\": \"step\", "
        "\"filename\": \"train.py\", \"line\": " +
        std::to_string(10 + i % 90) + "}]}";
  }
  return out + "]}";
}

} // namespace jobs

#endif // CONCORD_TEST_ORDER_JOBS_H
