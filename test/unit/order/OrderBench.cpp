//===- OrderBench.cpp - Speed of the certificate check and the solver -----===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Not a test: nothing here decides whether the build is good.
//
//===----------------------------------------------------------------------===//

#include "../runtime/GateCost.h"
#include "BenchRows.h"
#include "concord/order/Certificate.h"

#include <chrono>
#include <cstdio>
#include <sys/resource.h>

using namespace concord::order;

namespace {

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double peakGiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) / (1 << 20);
}

/// Eight domains over 16 ranks; n collectives, one lane per domain.
OrderProblem mesh(uint32_t n) {
  OrderProblem p;
  p.world = 16;
  for (uint32_t d = 0; d < 8; ++d) {
    OrderDomain domain{"d" + std::to_string(d), {}, 0};
    uint32_t stride = 1u << (d % 4), size = d < 4 ? 2 : 4;
    std::vector<bool> used(16, false);
    for (Rank r = 0; r < 16; ++r) {
      if (used[size_t(r)])
        continue;
      std::vector<Rank> group;
      for (uint32_t k = 0; k < size; ++k) {
        Rank member = Rank((uint32_t(r) + k * stride) % 16);
        if (used[size_t(member)])
          continue;
        used[size_t(member)] = true;
        group.push_back(member);
      }
      domain.groups.push_back(group);
    }
    p.domains.push_back(domain);
  }
  ProgramForm f;
  f.name = "main";
  for (Rank r = 0; r < 16; ++r)
    f.ranks.push_back(r);
  for (uint32_t i = 0; i < n; ++i)
    f.collective((i * 5 + i / 7) % 8, (i * 5 + i / 7) % 8, i % 3);
  p.programs.push_back(std::move(f));
  return p;
}

} // namespace

int main(int argc, char **argv) {
  BenchRows rows(argc, argv);
  SolveOptions options;
  options.dropByWalk = false;
  double last = 0;
  for (uint32_t n : {10000u, 100000u, 1000000u}) {
    OrderProblem p = mesh(n);
    double begin = now();
    OrderSolution s = solve(p, options);
    double seconds = now() - begin;
    std::string name =
        "order " + std::to_string(n) + " collectives x 8 domains";
    rows.add(name, seconds, "s", n == 1000000 ? 30 : 0,
             s.valid && (n < 1000000 || seconds < 30));
    if (last > 0)
      rows.add(("growth to " + std::to_string(n)).c_str(), seconds / last, "x",
               12, seconds / last <= 12);
    last = seconds;
  }
  {
    // 1,024 programs that share no text: each its own lanes.
    OrderProblem p;
    p.world = 1024;
    p.domains = {{"tp", {}, 0}, {"dp", {}, 0}, {"world", {{}}, 0}};
    for (Rank r = 0; r < 1024; ++r) {
      if (r % 8 == 0)
        p.domains[0].groups.emplace_back();
      p.domains[0].groups.back().push_back(r);
      p.domains[2].groups[0].push_back(r);
    }
    p.domains[1].groups.resize(8);
    for (Rank r = 0; r < 1024; ++r)
      p.domains[1].groups[size_t(r % 8)].push_back(r);
    for (Rank r = 0; r < 1024; ++r) {
      ProgramForm f;
      f.name = "p" + std::to_string(r);
      f.ranks = {r};
      for (uint32_t i = 0; i < 10000; ++i) {
        uint32_t d = i % 50 == 49 ? 2 : i % 3 == 2;
        f.collective(d, uint32_t(r % 5), i % 7, {});
      }
      p.programs.push_back(std::move(f));
    }
    double begin = now();
    Certificate c = verify(p);
    double seconds = now() - begin;
    rows.add("verify 1024 distinct programs of 10000", seconds, "s", 10,
             c.valid && seconds < 10);
  }
  concord::bench::gateCost(rows);
  rows.add("peak memory", peakGiB(), "GiB", 4, peakGiB() < 4);
  return rows.finish();
}
