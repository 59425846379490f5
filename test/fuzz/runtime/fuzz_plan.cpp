//===- fuzz_plan.cpp - Fuzz target of the plan table ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan as bytes or as JSON. What is accepted is written again and has to be
// the same, is flattened, and its order is verified, as the runtime and the
// doctor do with it.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "concord/order/Certificate.h"
#include "concord/plan.h"

#include <cstdio>
#include <cstdlib>

using namespace concord;
using namespace concord::plan;

[[noreturn]] static void wrong(const char *what, const std::string &error) {
  std::fprintf(stderr, "fuzz_plan: %s: %s\n", what, error.c_str());
  std::abort();
}

static Plan sample() {
  Plan plan;
  plan.world = 4;
  plan.assumptions = {"spmd", "na\xc3\xafve \"quoted\"\n"};
  plan.domains = {{"tp", 7, {{0, 1}, {3, 2}}}, {"world", 0, {{0, 1, 2, 3}}}};
  Program program;
  program.name = "main";
  program.ranks = {0, 1, 2, 3};
  Buffer buffer{Buffer::Space::Arena};
  buffer.offset = 128;
  buffer.innerBytes = 1536;
  Issue reduce{};
  reduce.kind = Kind::AllReduce;
  reduce.reduction = Reduction::Sum;
  reduce.dtype = DType::F32;
  reduce.count = 384;
  reduce.buffers = {buffer, buffer};
  reduce.location = "layer.0/MatMul";
  Issue exchange{};
  exchange.kind = Kind::AllToAll;
  exchange.dtype = DType::BF16;
  exchange.domain = 1;
  exchange.synchronous = false;
  exchange.sendCounts = {1, 2, 3, 4};
  exchange.recvCounts = {4, 3, 2, 1};
  exchange.records = {0};
  Issue shift{};
  shift.kind = Kind::Permute;
  shift.dtype = DType::I8;
  shift.count = 5;
  shift.domain = 1;
  shift.pairs = {{0, 1}, {1, 2}};
  program.issues = {reduce, exchange, shift};
  Node loop{Node::Type::Loop};
  loop.tripCount = 3;
  Node first{Node::Type::Issue}, second{Node::Type::Issue},
      third{Node::Type::Issue}, compute{Node::Type::Compute};
  second.site = 1;
  third.site = 2;
  compute.seconds = 0.25;
  loop.children = {second, compute};
  program.body.children = {first, loop, third};
  plan.programs = {program};
  return plan;
}

/// Two issuers on each rank, and the order of their parts.
static Plan rounds() {
  Plan plan = sample();
  plan.programs[0].issues.resize(1);
  plan.programs[0].body.children.resize(1);
  plan.programs.push_back(plan.programs[0]);
  plan.programs[1].name = "second";
  plan.programs[1].issues[0].domain = 1;
  std::vector<order::Finding> faults;
  order::orderRounds(plan, faults);
  return plan;
}

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all;
  for (const Plan &plan : {sample(), rounds()}) {
    std::vector<std::byte> bytes = serialize(plan);
    all.emplace_back(reinterpret_cast<const char *>(bytes.data()),
                     bytes.size());
    all.push_back(toJson(plan));
  }
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Plan plan;
  std::string error;
  std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  bool binary = parse(bytes, plan, error);
  if (binary &&
      serialize(plan) != std::vector<std::byte>(bytes.begin(), bytes.end()))
    wrong("other bytes of the same plan", error);
  if (!binary) {
    std::string again;
    if (!parseAny(bytes, plan, again)) {
      if (error.empty() || again.empty())
        wrong("refused without a reason", error);
      fuzz::refuse(again);
      return 0;
    }
  }
  fuzz::accept();
  Plan back;
  if (!parseJson(toJson(plan), back, error) || digest(back) != digest(plan))
    wrong(("its JSON is not read back\n" + toJson(plan) + "\n" + toJson(back))
              .c_str(),
          error);
  (void)prefixDigests(plan);
  for (const Program &program : plan.programs) {
    std::vector<Step> steps;
    flatten(program, 1000, steps, error);
  }
  if (plan.world > 256)
    return 0;
  (void)order::verifyPlan(plan, {.maxWalkEdges = 1000});
  std::vector<order::Finding> faults;
  order::orderRounds(plan, faults);
  return 0;
}
