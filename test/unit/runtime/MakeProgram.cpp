//===- MakeProgram.cpp - Plan and metadata of the test program ----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `make-program VARIANT` prints C arrays with the plan table and the metadata
// that TestProgram.c includes. Variant 1 differs from 0 in one operation;
// variant 2 has two issuers.
//
//===----------------------------------------------------------------------===//

#include "concord/plan.h"

#include <cstdio>
#include <cstdlib>
#include <string>

using namespace concord;
using namespace concord::plan;

static Issue makeIssue(Kind kind, uint64_t count, const char *location) {
  Issue issue{};
  issue.kind = kind;
  issue.dtype = DType::F32;
  issue.count = count;
  issue.location = location;
  return issue;
}

int main(int argc, char **argv) {
  int variant = argc > 1 ? std::atoi(argv[1]) : 0;
  Plan plan;
  plan.world = 2;
  plan.domains = {{"tp", 0, {{0, 1}}}, {"moves", 3, {{1, 0}}}};
  Program program;
  program.name = "test";
  program.ranks = {0, 1};
  auto &sites = program.issues;
  // 0: gather [4, 3] along dimension 1 to [4, 6], waited for later
  sites.push_back(makeIssue(Kind::AllGather, 12, "gather"));
  sites.back().synchronous = false;
  sites.back().lane = 1;
  sites.back().records = {7};
  // 1: sum of [4, 3]
  sites.push_back(makeIssue(Kind::AllReduce, 12, "sum"));
  sites.back().reduction = variant == 1 ? Reduction::Max : Reduction::Sum;
  // 2: exchange as a group of 3 and 4; domain 1 lists the ranks in reverse
  sites.push_back(makeIssue(Kind::Group, 0, "exchange"));
  sites.back().members = {3, 4};
  sites.push_back(makeIssue(Kind::Send, 12, "exchange/send"));
  sites.push_back(makeIssue(Kind::Recv, 12, "exchange/recv"));
  for (int i = 2; i <= 4; ++i)
    sites[i].domain = 1;
  for (int i = 3; i <= 4; ++i)
    sites[i].pairs = {{0, 1}, {1, 0}};
  // 5: reduce_scatter of [4, 6] along dimension 1 to [4, 3], after event 7
  sites.push_back(makeIssue(Kind::ReduceScatter, 12, "reduce_scatter"));
  sites.back().reduction = Reduction::Sum;
  sites.back().waits = {7};
  Node leaf{Node::Type::Issue};
  for (uint32_t site : {0, 1, 2, 5}) {
    leaf.site = site;
    program.body.children.push_back(leaf);
  }
  plan.programs.push_back(program);
  if (variant == 2) {
    program.name = "second";
    program.issuer = "serving";
    plan.programs.push_back(program);
  }

  auto bytes = serialize(plan);
  std::printf("#define PLAN_BYTES %zu\n"
              "#define PLAN_VALUES ",
              bytes.size());
  for (std::byte b : bytes)
    std::printf("%u,", unsigned(b));
  auto entry = [](const char *name, const char *shape) {
    return std::string("{\"name\":\"") + name +
           "\",\"dtype\":\"F32\",\"shape\":[" + shape +
           "],\"sharding\":{\"kind\":\"per_rank\"},\"local_shape\":[" + shape +
           "],\"arena_offset\":-1}";
  };
  std::string meta =
      "{\"abi\":1,\"phase\":\"lowered\",\"name\":\"test\",\"world\":2,"
      "\"mesh\":[[\"tp\",2]],\"target_cpu\":\"" TEST_CPU "\",\"digest\":\"" +
      toHex(digest(plan)) +
      "\",\"weights\":\"test.weights\",\"arena_bytes\":4096,"
      "\"arena_align\":64,\"inputs\":[" +
      entry("x", "4,3") + "," + entry("past", "5") + "],\"outputs\":[" +
      entry("gathered", "4,6") + "," + entry("sum", "4,3") + "," +
      entry("moved", "4,3") + "," + entry("scattered", "4,3") + "," +
      entry("present", "5") +
      "],\"parameters\":[{\"section\":\"w\",\"bytes\":48},"
      "{\"section\":\"shared\",\"bytes\":4}],"
      "\"kernels\":0,\"gate\":\"check\",\"assumes\":[]}";
  std::string quoted;
  for (char c : meta) {
    if (c == '"' || c == '\\')
      quoted += '\\';
    quoted += c;
  }
  std::printf("\n#define META \"%s\"\n", quoted.c_str());
  return 0;
}
