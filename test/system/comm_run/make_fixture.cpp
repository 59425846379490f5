//===- make_fixture.cpp - Plan and metadata for fixture.c -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Usage: make_fixture WORLD OUTPUT.inc. Writes C definitions of kWorld, kPlan
// and kMeta, the latter two in the sections of an artefact.
//
//===----------------------------------------------------------------------===//

#include "common/CpuClass.h"
#include "concord/plan.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

using namespace concord;
using nlohmann::json;

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  int world = std::atoi(argv[1]);

  plan::Plan plan;
  plan.world = static_cast<uint32_t>(world);
  plan::Program program;
  program.name = "fixture";
  program.ranks.resize(static_cast<size_t>(world));
  std::iota(program.ranks.begin(), program.ranks.end(), 0);
  if (world > 1) {
    plan.domains.push_back({"tp", 0, {program.ranks}});
    plan::Issue issue;
    issue.kind = plan::Kind::AllReduce;
    issue.reduction = plan::Reduction::Sum;
    issue.dtype = DType::F32;
    issue.count = 24;
    issue.buffers = {{plan::Buffer::Space::Arena, 0, 0, 1, 96, 96},
                     {plan::Buffer::Space::Arena, 0, 128, 1, 96, 96}};
    issue.location = "fixture/sum";
    program.issues.push_back(issue);
    plan::Node node{plan::Node::Type::Issue};
    program.body.children.push_back(node);
  }
  plan.programs.push_back(program);

  json replicated = {{"kind", "replicated"}};
  json split = {{"kind", "split"},
                {"splits", {{{"dim", 1}, {"axis", "tp"}, {"outer", 3}}}}};
  auto entry = [](const char *name, const char *dtype, json shape,
                  json sharding, json local) {
    return json{{"name", name},         {"dtype", dtype},
                {"shape", shape},       {"sharding", sharding},
                {"local_shape", local}, {"arena_offset", -1}};
  };
  json meta = {{"abi", 1},
               {"phase", "lowered"},
               {"name", "fixture"},
               {"world", world},
               {"mesh", json::array({json::array({"tp", world})})},
               {"target_cpu", tools::cpuClass()},
               {"digest", plan::toHex(plan::digest(plan))},
               {"weights", ""},
               {"arena_bytes", 256},
               {"arena_align", 64},
               {"parameters", json::array()},
               {"kernels", 0},
               {"gate", "check"},
               {"assumes", json::array()},
               {"inputs",
                {entry("x", "F32", {4, 6}, replicated, {4, 6}),
                 entry("s", "F32", {2, 6 * world}, split, {2, 6}),
                 entry("p", "I32", {3}, {{"kind", "per_rank"}}, {3}),
                 entry("past", "F32", {5}, replicated, {5})}},
               {"outputs",
                {entry("sum", "F32", {4, 6}, replicated, {4, 6}),
                 entry("twice", "F32", {2, 6 * world}, split, {2, 6}),
                 entry("plus", "I32", {3}, {{"kind", "per_rank"}}, {3}),
                 entry("present", "F32", {5}, replicated, {5})}}};

  std::ofstream out(argv[2]);
  out << "enum { kWorld = " << world << " };\n"
      << "static const unsigned char kPlan[] "
         "__attribute__((section(\".concord.plan\"), aligned(8))) = {";
  for (std::byte value : plan::serialize(plan))
    out << std::to_integer<int>(value) << ",";
  out << "};\nstatic const char kMeta[] "
         "__attribute__((section(\".concord.meta\"))) = "
      << json(meta.dump()).dump() << ";\n";
  out.close();
  return out ? 0 : 1;
}
