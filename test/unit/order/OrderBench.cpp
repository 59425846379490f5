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
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

/// A partitioned training step as XLA prints it, of the size of a Mixtral
/// 8x7B's (44,000 instructions, 2,255 collectives) and with its three domains.
void writeHlo(const std::string &path) {
  std::ofstream out(path);
  out << "HloModule step, num_partitions=16\n\n"
         "%add (a: bf16[], b: bf16[]) -> bf16[] {\n  %a = bf16[] parameter(0)\n"
         "  %b = bf16[] parameter(1)\n"
         "  ROOT %sum = bf16[] add(%a, %b)\n}\n\n"
         "ENTRY %main (p: bf16[1024,4096]) -> bf16[1024,4096] {\n"
         "  %v0 = bf16[1024,4096]{1,0} parameter(0)\n";
  const char *groups[] = {"[1,16]<=[16]", "[2,8]<=[16]", "[8,2]<=[2,8]T(1,0)"};
  unsigned value = 0, channel = 0;
  for (unsigned i = 0; i < 44000; ++i) {
    bool last = i + 1 == 44000;
    std::string in = "%v" + std::to_string(value),
                other = "%v" + std::to_string(value > 7 ? value - 7 : 0);
    out << (last ? "  ROOT %v" : "  %v") << ++value
        << " = bf16[1024,4096]{1,0} ";
    if (i % 39 == 38 && !last) {
      // A reduction, and behind it an exchange over another domain.
      ++channel;
      out << "all-reduce(" << in << "), channel_id=" << channel
          << ", replica_groups=" << groups[channel % 3]
          << ", use_global_device_ids=true, to_apply=%add\n  %v" << value + 1
          << " = bf16[1024,4096]{1,0} collective-permute(" << other
          << "), channel_id=" << 100000 + channel
          << ", source_target_pairs={{0,8},{8,0},{1,9},{9,1}}\n";
      ++value;
    } else
      out << (i % 3 ? "multiply(" : "add(") << in << ", " << other << ")\n";
  }
  out << "}\n";
}

/// comm-opt, on one core: reads, orders and verifies; seconds and GiB, or
/// false.
bool compile(const std::string &tool, const std::string &hlo, double &seconds,
             double &gib) {
  double begin = now();
  pid_t child = fork();
  if (child < 0)
    return false;
  if (child == 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    execl(tool.c_str(), tool.c_str(), hlo.c_str(), "--comm-order",
          "--comm-verify-order", "-o", "/dev/null", nullptr);
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child)
    return false;
  seconds = now() - begin;
  gib = double(usage.ru_maxrss) / (1 << 20);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// `--hlo FILE`, or a module made here.
void hloRows(BenchRows &rows, int argc, char **argv) {
  namespace fs = std::filesystem;
  fs::path tool = fs::read_symlink("/proc/self/exe").parent_path() / "comm-opt";
  if (!fs::exists(tool)) {
    std::fprintf(stderr, "no %s: the HLO rows are left out\n", tool.c_str());
    return;
  }
  std::string given, name = "HLO of 44000 instructions";
  for (int i = 1; i + 1 < argc; ++i)
    if (!std::strcmp(argv[i], "--hlo"))
      given = argv[i + 1];
  char made[] = "/tmp/concord-hlo-XXXXXX";
  if (given.empty()) {
    int fd = mkstemp(made);
    if (fd < 0)
      return;
    close(fd);
    writeHlo(made);
  } else
    name = fs::path(given).stem();
  double seconds = 0, gib = 0;
  bool good = compile(tool, given.empty() ? made : given, seconds, gib);
  if (given.empty())
    unlink(made);
  rows.add(name + ": read, order, verify", seconds, "s", 2,
           good && seconds < 2);
  rows.add(name + ": peak memory", gib, "GiB", 1, good && gib < 1);
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
  hloRows(rows, argc, argv);
  concord::bench::gateCost(rows);
  rows.add("peak memory", peakGiB(), "GiB", 4, peakGiB() < 4);
  return rows.finish();
}
