//===- EvidenceTest.cpp - Readers of evidence, and planted faults ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Hand-made files per format (made from the formats' documentation, not real
// dumps), hostile ones, and a generator of hung and healthy jobs at 64 to 512
// ranks. CONCORD_ORDER_TRIALS multiplies the number of jobs.
//
//===----------------------------------------------------------------------===//

#include "Jobs.h"

#include <gtest/gtest.h>

#include <cstdlib>

using namespace concord::order;
using namespace concord::order::evidence;

namespace {

uint32_t trials(uint32_t base) {
  const char *text = std::getenv("CONCORD_ORDER_TRIALS");
  double factor = text ? std::atof(text) : 1;
  return uint32_t(base * (factor > 0 ? factor : 1));
}

std::string describe(const Diagnosis &d) {
  std::string out;
  for (const Finding &f : d.findings) {
    out += f.id + ": " + f.title + "\n";
    for (const ChainEdge &e : f.chain)
      out += "   " + e.why + "\n";
    for (const std::string &s : f.details)
      out += "   " + s + "\n";
  }
  return out;
}

Job readJob(const jobs::MadeJob &made, std::mt19937 &rng) {
  Job job;
  bool hung = made.fault != jobs::Fault::None;
  for (uint32_t r = 0; r < made.ranks.size(); ++r) {
    if (!made.withoutEvidence[r]) {
      std::string error;
      EXPECT_TRUE(readFlightRecorder(jobs::flightRecorder(made, r, rng, hung),
                                     "dump_" + std::to_string(r), Rank(r), job,
                                     error))
          << error;
    }
    if (!made.ranks[r].stack.empty())
      readStack(made.ranks[r].stack, "stack_" + std::to_string(r) + ".txt",
                Rank(r), job);
  }
  return job;
}

TEST(Planted, TheCulpritIsNamedFirst) {
  const jobs::Fault faults[] = {jobs::Fault::Inversion, jobs::Fault::Missing,
                                jobs::Fault::Mismatch, jobs::Fault::HostBlock,
                                jobs::Fault::TransferCycle};
  std::mt19937 rng(99);
  uint32_t total = trials(300), named = 0, made = 0;
  std::map<int, std::pair<uint32_t, uint32_t>> perKind;
  for (uint32_t i = 0; i < total; ++i) {
    jobs::Fault fault = faults[i % 5];
    // Mostly small, up to 512: generating the text is what takes the time.
    uint32_t size = i % 50 == 0 ? 512 : i % 10 == 0 ? 256 : 64 << (i % 2);
    jobs::Maker maker(1000 + i, fault, size);
    ASSERT_TRUE(maker.made) << i;
    ++made;
    Job job = readJob(maker.job, rng);
    Diagnosis d = diagnose(job);
    bool ok = !d.findings.empty() && !d.findings[0].culprits.empty() &&
              d.findings[0].culprits[0] == maker.job.culprit && d.fault();
    named += ok;
    auto &[n, good] = perKind[int(fault)];
    ++n;
    good += ok;
    if (!ok && std::getenv("CONCORD_ORDER_VERBOSE"))
      std::printf("job %u fault %d culprit r%d: %s\n", i, int(fault),
                  maker.job.culprit, describe(d).c_str());
  }
  std::printf("planted: %u of %u named first (inversion %u/%u, missing %u/%u, "
              "mismatch %u/%u, host "
              "block %u/%u, transfer cycle %u/%u)\n",
              named, made, perKind[1].second, perKind[1].first,
              perKind[2].second, perKind[2].first, perKind[3].second,
              perKind[3].first, perKind[4].second, perKind[4].first,
              perKind[5].second, perKind[5].first);
  EXPECT_GE(named * 100, made * 99);
}

TEST(Planted, HealthyJobsHaveNoCycle) {
  std::mt19937 rng(7);
  uint32_t total = trials(100);
  for (uint32_t i = 0; i < total; ++i) {
    jobs::Maker maker(5000 + i, jobs::Fault::None,
                      i % 20 == 0 ? 512 : 64 << (i % 2));
    Job job = readJob(maker.job, rng);
    Diagnosis d = diagnose(job);
    EXPECT_FALSE(d.fault()) << i << "\n" << describe(d);
    for (const Finding &f : d.findings)
      EXPECT_NE(f.kind, Finding::Kind::Cycle) << i << "\n" << describe(d);
  }
}

} // namespace
