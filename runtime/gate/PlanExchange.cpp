//===- PlanExchange.cpp - All ranks have the same plan --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One report from every rank, those that have failed included, so that no rank
// waits for one that will not come. Where digests differ, the prefix chain is
// bisected: every message is one digest, and all ranks see the same messages,
// so all take the same steps.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Certificate.h"
#include "diagnosis/Error.h"
#include "engine/Exchange.h"
#include "gate/Gate.h"

#include <algorithm>
#include <cstring>
#include <utility>

using namespace concord;
using namespace concord::rt;

namespace {

std::string siteText(const plan::Plan &plan, size_t site) {
  for (const plan::Program &program : plan.programs) {
    if (site < program.issues.size()) {
      const plan::Issue &issue = program.issues[site];
      return "site " + std::to_string(site) + " of program '" + program.name +
             "', " + kindName(issue.kind) + " on '" +
             plan.domains[issue.domain].name + "' (" + issue.location + ")";
    }
    site -= program.issues.size();
  }
  return "the end of the plan";
}

const char *modeName(int32_t mode) {
  static const char *const kNames[] = {"default", "off", "record", "check",
                                       "hold"};
  return mode < 0 || mode > 4 ? "?" : kNames[mode];
}

[[noreturn]] void reportDifference(Context &context, const plan::Plan &plan,
                                   const std::vector<PlanReport> &reports) {
  auto chain = plan::prefixDigests(plan);
  uint32_t shortest = reports[0].issues;
  int other = 0;
  for (size_t r = 0; r < reports.size(); ++r) {
    shortest = std::min(shortest, reports[r].issues);
    if (other == 0 && reports[r].digest != reports[0].digest)
      other = int(r);
  }
  auto differsAt = [&](uint32_t length) {
    auto all = tellAll(*context.worldComm, chain[length]);
    return std::any_of(all.begin(), all.end(),
                       [&](const plan::Digest &d) { return d != all[0]; });
  };
  std::string where;
  if (differsAt(0)) {
    where = "in its world, domains or assumptions";
  } else if (!differsAt(shortest)) {
    bool lengths =
        std::any_of(reports.begin(), reports.end(), [&](const PlanReport &r) {
          return r.issues != reports[0].issues;
        });
    where = lengths ? "after the first " + std::to_string(shortest) +
                          " operations, where one ends"
                    : "in the order tree or the rounds, not in the operations";
  } else {
    uint32_t same = 0, different = shortest;
    while (different - same > 1) {
      uint32_t middle = same + (different - same) / 2;
      (differsAt(middle) ? different : same) = middle;
    }
    where = "at operation " + std::to_string(same) + ", here " +
            siteText(plan, same);
  }
  raise(CONCORD_ERROR_PLAN_DIFFERS,
        "ranks 0 and %d have loaded different programs: the plans first differ "
        "%s (plan of rank %d: %.16s...)",
        other, where.c_str(), context.rank,
        plan::toHex(reports[size_t(context.rank)].digest).c_str());
}

} // namespace

void concord::rt::agreeOnPlan(Context &context, const PlanReport &mine,
                              const std::string &words, const plan::Plan &plan,
                              const std::string &what) {
  // Under the deadline of bring-up: CONCORD_TIMEOUT may be "for ever".
  Deadline deadline(context, context.connectSeconds);
  auto reports = tellAll(*context.worldComm, mine);
  if (mine.status != CONCORD_OK)
    throw Error(mine.status, words);
  for (size_t r = 0; r < reports.size(); ++r)
    if (reports[r].status != CONCORD_OK) {
      reports[r].text[sizeof reports[r].text - 1] = 0;
      raise(reports[r].status, "rank %zu could not load its %s: %s", r,
            what.c_str(), reports[r].text);
    }
  for (const PlanReport &each : reports)
    if (each.digest != reports[0].digest)
      reportDifference(context, plan, reports);
  for (size_t r = 0; r < reports.size(); ++r)
    if (reports[r].gateMode != reports[0].gateMode)
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "rank 0 has gate mode %s, rank %zu has %s: the mode is one for the "
            "job",
            modeName(reports[0].gateMode), r, modeName(reports[r].gateMode));
}

void concord::rt::loadPlan(Context &context, const void *bytes, uint64_t size,
                           const std::string &what) {
  PlanReport report{};
  std::string words, error;
  plan::Plan plan;
  std::unique_ptr<Gate> gate;
  int mode = context.gateMode;
  try {
    if (context.gate && (context.gate->busy() || context.inFlight != 0))
      raise(CONCORD_ERROR_BUSY, "operations of the plan that is loaded now are "
                                "in flight");
    std::span given(static_cast<const std::byte *>(bytes), size_t(size));
    if (!plan::parseAny(given, plan, error))
      raise(CONCORD_ERROR_CORRUPT, "%s: %s", what.c_str(), error.c_str());
    if (int(plan.world) != context.world)
      raise(CONCORD_ERROR_WRONG_WORLD,
            "%s: the plan is for %u ranks, but the job has %d", what.c_str(),
            plan.world, context.world);
    // Several issuers that need an order, and none is there: the plan did not
    // come from comm-order.
    if (plan.rounds.empty() && plan.programs.size() > 1) {
      plan::Plan copy = plan;
      std::vector<order::Finding> faults;
      if (!order::orderRounds(copy, faults) || !copy.rounds.empty())
        raise(CONCORD_ERROR_PLAN,
              "%s has several issuers on a rank and no order of their rounds "
              "(%s); run comm-order",
              what.c_str(),
              faults.empty() ? "they can wait for each other"
                             : faults.front().title.c_str());
    }
    if (Gate::needsHold(plan)) {
      if (context.gateChosen && mode != CONCORD_GATE_HOLD)
        raise(CONCORD_ERROR_INVALID_ARGUMENT,
              "%s has several issuers on a rank and is certified with "
              "gate=hold only; it does not start in gate mode %s",
              what.c_str(), modeName(mode));
      mode = CONCORD_GATE_HOLD;
    }
    for (const plan::Program &program : plan.programs)
      report.issues += uint32_t(program.issues.size());
    report.gateMode = mode;
    report.digest = plan::digest(plan);
    int before = std::exchange(context.gateMode, mode);
    try {
      gate = std::make_unique<Gate>(context, plan);
    } catch (...) {
      context.gateMode = before;
      throw;
    }
    context.gateMode = before;
  } catch (const Error &failure) {
    report.status = failure.status;
    words = failure.text;
  } catch (const std::exception &failure) {
    report.status = CONCORD_ERROR_INTERNAL;
    words = what + ": " + failure.what();
  }
  std::strncpy(report.text, words.c_str(), sizeof report.text - 1);
  agreeOnPlan(context, report, words, plan, "plan");
  context.gateMode = mode;
  context.gate = std::move(gate);
  context.gateModeBefore.reset();
}
