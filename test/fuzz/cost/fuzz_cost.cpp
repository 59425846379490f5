//===- fuzz_cost.cpp - Fuzz target of calibrations and topologies ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The text of a calibration or of a topology (--simulate --topology). On the
// machine that comes of it a small job must be predicted.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "concord/cost/Cost.h"
#include "concord/simulate/Simulate.h"

#include <cstdlib>

using namespace concord;

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all = filesUnder("test/topologies", ".json", 100000);
  all.push_back(R"({"concord_calibration": 1, "name": "here", "cores": 2,
    "flops_per_second": {"f32": 1e11, "bf16": 2e11},
    "memory": {"cache_core_bytes_per_second": 5e10,
      "cache_node_bytes_per_second": 9e10,
      "dram_core_bytes_per_second": 1e10, "dram_node_bytes_per_second": 2e10,
      "cache_bytes": 33554432, "contended_bytes_per_second": 2.4e9},
    "op_us": 0.1, "issue_us": 0.2, "message_us": 0.3, "flag_round_us": 0.1,
    "inline_bytes": 512,
    "collectives": [{"kind": "all_reduce", "ranks": 2, "segments": [
      {"up_to_bytes": 4096, "alpha_us": 0.3, "beta_ns_per_byte": 0.1},
      {"alpha_us": 0.9, "beta_ns_per_byte": 0.02}]}],
    "forms": [{"form": "flat", "objective": "latency", "kind": "all_reduce",
      "ranks": 2, "segments": [{"alpha_us": 0.3, "beta_ns_per_byte": 0.1}]}]})");
  all.push_back(R"({"concord_topology": 1, "name": "two",
    "device": {"machine": "accelerator", "op_us": 3},
    "hosts": [{"count": 2, "ranks": 4, "nics": 2}, {"ranks": 3}],
    "inside": {"kind": "link", "latency_us": 1, "bytes_per_second": 1e11},
    "network": [{"name": "rack", "latency_us": 2, "bytes_per_second": 1e10,
      "joins": 2}, {"latency_us": 5, "bytes_per_second": 1e9, "ports": 4}]})");
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  cost::Machine machine;
  std::string error;
  // A topology may name a calibration beside it: there is none.
  const std::string path = "/nonexistent/file.json";
  bool read = text.find("concord_topology") != text.npos
                  ? cost::parseTopology(text, path, machine, error)
                  : cost::parseCalibration(text, path, machine, error);
  if (!read) {
    if (error.empty())
      std::abort();
    fuzz::refuse(error);
    return 0;
  }
  fuzz::accept();
  (void)cost::describe(machine);
  if (machine.calibrated) {
    // What is written is read back.
    cost::Machine again;
    if (!cost::parseCalibration(cost::writeCalibration(machine), path, again,
                                error))
      std::abort();
  }
  simulate::Job job;
  job.world = 4;
  job.domains = {{"all", 0, {{0, 1, 2, 3}}}, {"pairs", 0, {{0, 1}, {2, 3}}}};
  simulate::Program &program = job.programs.emplace_back();
  program.ranks = {0, 1, 2, 3};
  program.names = {"work"};
  for (uint32_t domain : {0, 1}) {
    simulate::Issue issue;
    issue.kind = plan::Kind::AllReduce;
    issue.domain = domain;
    issue.bytes = domain ? 1 << 20 : 1 << 10;
    program.issues.push_back(issue);
    simulate::Step compute;
    compute.seconds = 1e-5;
    program.steps.push_back(compute);
    program.steps.push_back({simulate::Step::Type::Issue, domain, 0});
  }
  simulate::Result result;
  simulate::simulate(job, machine, {}, result, error);
  return 0;
}
