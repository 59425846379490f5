//===- Issue.cpp - Sites of a running program -----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What generated code calls. A site's operation is made once, at load; issuing
// fills in the buffers. A domain has one communicator per lane, so that
// operations of different lanes are independent; within one they keep the order
// of issue, which the compiler has made the same everywhere.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Direct.h"
#include "diagnosis/Error.h"
#include "engine/Engine.h"
#include "engine/Span.h"
#include "gate/Gate.h"
#include "program/Program.h"

#include <algorithm>
#include <cstring>

using namespace concord;
using namespace concord::rt;

// A library without kernels loads programs that need none.
extern "C" {
__attribute__((weak)) int32_t concord_kernel_create(const char *,
                                                    concord_kernel **,
                                                    concord_kernel_info *);
__attribute__((weak)) const char *concord_kernel_last_error(void);
}

bool concord::rt::isSized(const concord_program &program, const Site &site) {
  return !program.dims.empty() &&
         site.issue->fused.find('{') != std::string::npos;
}

concord_kernel *concord::rt::makeFusedKernel(concord_program &program,
                                             const Site &site,
                                             const std::string &text) {
  const plan::Issue &issue = *site.issue;
  if (!concord_kernel_create)
    raise(CONCORD_ERROR_NOT_SUPPORTED,
          "%s needs kernels, this library has none", program.path.c_str());
  concord_kernel *kernel = nullptr;
  if (concord_kernel_create(text.c_str(), &kernel, nullptr) != CONCORD_OK)
    raise(CONCORD_ERROR_KERNEL, "%s: site %u (%s), kernel %s: %s",
          program.path.c_str(), site.op.request.site, issue.location.c_str(),
          text.c_str(), concord_kernel_last_error());
  return kernel;
}

void concord::rt::fuseSite(concord_program &program, Site &site,
                           const concord_kernel *kernel) {
  const plan::Issue &issue = *site.issue;
  const bool sized = isSized(program, site);
  if (!site.fused) {
    site.fused = makeFused(kernel);
    if (sized)
      for (const plan::Buffer &buffer : issue.buffers)
        site.fused->most.push_back(buffer.outer * buffer.innerBytes);
  } else {
    fitFused(*site.fused, kernel);
  }
  const concord_fused_info &info = site.fused->info;
  bool scratch = info.workspace_bytes != 0;
  // The compiler planned for these; another library's kernel may differ. With
  // bounded sizes the plan has the maximum.
  bool same = Kind(info.kind) == issue.kind &&
              Reduction(info.reduction) == issue.reduction &&
              DType(info.dtype) == issue.dtype &&
              (sized ? info.count <= issue.count : info.count == issue.count) &&
              (issue.buffers.size() == info.num_operands + scratch ||
               issue.buffers.size() == info.num_operands + 1);
  if (same && scratch)
    same = issue.buffers.back().innerBytes >= info.workspace_bytes;
  if (!same)
    raise(CONCORD_ERROR_KERNEL,
          "%s: site %u (%s): the plan does not fit the kernel '%s'; compile "
          "again with the comm-opt of this library",
          program.path.c_str(), site.op.request.site, issue.location.c_str(),
          issue.fused.c_str());
}

static void prepareFusedSite(concord_program &program, Site &site) {
  const plan::Issue &issue = *site.issue;
  if (site.comm->span)
    raise(CONCORD_ERROR_NOT_SUPPORTED,
          "%s: site %zu (%s) is a fused kernel on '%s', which reads its peers' "
          "memory, but the group has ranks on several hosts; compile with "
          "--comm-pipeline=\"fuse=false\", or keep the group within a host",
          program.path.c_str(), program.sites.size() - 1,
          issue.location.c_str(), site.comm->name.c_str());
  if (isSized(program, site))
    return;
  site.kernel = makeFusedKernel(program, site, issue.fused);
  fuseSite(program, site, site.kernel);
}

void concord::rt::prepareSites(concord_program &program) {
  Context &context = *program.context;
  const plan::Plan &plan = program.plan;
  uint64_t seed;
  std::memcpy(&seed, program.digest.data(), sizeof seed);
  for (size_t i = 0; i + 8 <= program.digest.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, program.digest.data() + i, 8);
    seed = hashWords({seed, word});
  }
  std::vector<std::pair<std::pair<uint32_t, uint32_t>, Comm *>> made;
  for (const plan::Issue &issue : program.planned->issues) {
    Site &site = program.sites.emplace_back();
    site.issue = &issue;
    for (uint32_t event : issue.records)
      program.events.emplace_back(event, nullptr);
    if (issue.kind == Kind::Group)
      continue;
    const plan::Domain &domain = plan.domains[issue.domain];
    const std::vector<int32_t> *group = nullptr;
    size_t index = 0;
    for (; index < domain.groups.size() && !group; ++index)
      if (std::find(domain.groups[index].begin(), domain.groups[index].end(),
                    context.rank) != domain.groups[index].end())
        group = &domain.groups[index];
    if (!group)
      raise(CONCORD_ERROR_CORRUPT,
            "%s: rank %d issues site %zu on domain '%s' without being in it",
            program.path.c_str(), context.rank, program.sites.size() - 1,
            domain.name.c_str());
    auto key = std::pair(issue.domain, issue.lane);
    auto found = std::find_if(made.begin(), made.end(), [&](const auto &entry) {
      return entry.first == key;
    });
    if (found != made.end()) {
      site.comm = found->second;
    } else {
      site.comm = makeComm(
          context,
          hashWords({seed, context.loads, issue.domain, issue.lane, index}),
          *group, domain.name, domain.priority, false);
      made.emplace_back(key, site.comm);
      program.comms.push_back(site.comm);
    }

    OpRequest &r = site.op.request;
    r.site = uint32_t(program.sites.size() - 1);
    if (!issue.fused.empty())
      prepareFusedSite(program, site);

    uint64_t element = dtypeSize(issue.dtype);
    r.kind = issue.kind;
    r.reduction = issue.reduction;
    r.dtype = issue.dtype;
    r.root = issue.root;
    r.chunk = issue.count * element;
    r.pairs = issue.pairs.data();
    r.numPairs = uint32_t(issue.pairs.size());
    r.location = issue.location.c_str();
    if (issue.kind == Kind::RoundDecision) {
      r.dtype = DType::U64;
      r.chunk = 8;
      r.root = std::max(issue.root, 0);
    }
    if (issue.kind == Kind::Send || issue.kind == Kind::Recv) {
      // Each rank is in at most one pair on its side; the others only pass by.
      site.takesPart = false;
      int side = issue.kind == Kind::Send ? 0 : 1;
      for (const auto &pair : issue.pairs)
        if (pair[side] == site.comm->me) {
          site.takesPart = true;
          r.root = pair[1 - side];
        }
    }
    auto toBytes = [&](const std::vector<uint64_t> &counts) {
      std::vector<uint64_t> bytes;
      for (uint64_t count : counts)
        bytes.push_back(count * element);
      return bytes;
    };
    site.sendBytes = toBytes(issue.sendCounts);
    site.receiveBytes = toBytes(issue.recvCounts);
    if (!site.receiveBytes.empty()) {
      r.send = site.sendBytes.empty() ? nullptr : site.sendBytes.data();
      r.receive = site.receiveBytes.data();
      if (issue.kind == Kind::AllToAll && !r.send)
        raise(CONCORD_ERROR_CORRUPT,
              "%s: site %u has sizes to receive but none to send",
              program.path.c_str(), r.site);
    }
  }
  // Issues that can be in flight at once, so that queues never grow in a step.
  for (Comm *comm : program.comms)
    comm->messages.reserve(program.sites.size());
}

/// Buffers that a kind takes.
static uint32_t bufferCount(Kind kind) {
  switch (kind) {
  case Kind::Barrier:
  case Kind::Group:
    return 0;
  case Kind::Send:
  case Kind::Recv:
  case Kind::RoundDecision:
    return 1;
  default:
    return 2;
  }
}

/// Put the buffers in, check against the plan. Returns buffers consumed through
/// `used`. `gate`: of a program whose rounds it decides, else null.
static int32_t fill(Gate *gate, Site &site, uint32_t index,
                    const concord_buffer *buffers, uint32_t numBuffers,
                    uint32_t &used) {
  Op &op = site.op;
  const plan::Issue &issue = *site.issue;
  if (op.state != Op::State::Idle && op.state != Op::State::Done)
    return fail(CONCORD_ERROR_BUSY,
                "%s is issued again before it was waited for",
                describe(op).c_str());
  if (site.fused) {
    used = numBuffers;
    op.reset();
    return prepareFused(op, *site.comm, *site.fused, buffers, numBuffers);
  }
  // A decision's value is the runtime's own unless the code wants to see it.
  const concord_buffer own = {&site.decision, 1, 8, 8};
  if (issue.kind == Kind::RoundDecision) {
    if (numBuffers == 0) {
      buffers = &own;
      numBuffers = 1;
      site.decision = 0;
    }
    auto *bits = static_cast<uint64_t *>(buffers[0].base);
    if (gate && gate->leads())
      *bits = gate->propose(*bits);
  }
  // One buffer stands for input and output in place.
  uint32_t wanted =
      std::min(bufferCount(issue.kind),
               issue.buffers.empty() ? ~0u : uint32_t(issue.buffers.size()));
  if (numBuffers < wanted && !(numBuffers == 1 && wanted == 2))
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "site %u (%s): %u buffers given, %u needed", index,
                kindName(issue.kind), numBuffers, wanted);
  used = std::min(wanted, numBuffers);
  op.reset();
  OpRequest &r = op.request;
  r.dtype = issue.kind == Kind::RoundDecision ? DType::U64 : issue.dtype;
  r.reduction = issue.reduction;
  if (issue.kind == Kind::Permute)
    r.root = -1;
  if (used) {
    r.in = buffers[0];
    r.out = buffers[used - 1];
    if (!uneven(r) && issue.kind != Kind::RoundDecision) {
      // The plan has the maximum where a dimension is bounded.
      bool outputSide =
          issue.kind == Kind::Recv || issue.kind == Kind::ReduceScatter ||
          (!uses(op, site.comm->me, true) && issue.kind != Kind::Send);
      const concord_buffer &b = outputSide ? r.out : r.in;
      uint64_t bytes = b.outer * b.inner_bytes;
      if (bytes > issue.count * dtypeSize(issue.dtype))
        return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                    "site %u (%s): %llu bytes given, the plan has at most %llu",
                    index, kindName(issue.kind), (unsigned long long)bytes,
                    (unsigned long long)issue.count * dtypeSize(issue.dtype));
      r.chunk = bytes;
    }
  }
  return site.takesPart ? prepare(op, *site.comm) : CONCORD_OK;
}

/// What the round's decision has brought is the gate's to know.
static void decide(const concord_program &program, const Site &site) {
  if (program.gated && site.issue->kind == Kind::RoundDecision)
    program.context->gate->decided(
        *static_cast<const uint64_t *>(site.op.request.out.base));
}

/// The program whose step the calling thread runs.
static concord_program *runningIn(const Context &context) {
  if (context.running.size() == 1)
    return context.running.front().program;
  uint32_t thread = threadId();
  for (const Context::Running &each : context.running)
    if (each.thread == thread)
      return each.program;
  return nullptr;
}

int32_t concord::rt::issueSite(Context &context, uint32_t index,
                               const concord_buffer *buffers,
                               uint32_t numBuffers) {
  concord_program *program = runningIn(context);
  if (!program)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "concord_issue outside a program's step");
  if (index >= program->sites.size())
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "concord_issue: site %u of a plan with %zu", index,
                program->sites.size());
  Site &site = program->sites[index];
  const plan::Issue &issue = *site.issue;
  if (program->trace)
    program->trace(program->traceUser, index, 0, nowNanoseconds());
  // An event has happened when the operation that records it has completed.
  for (uint32_t event : issue.waits)
    for (auto &[id, op] : program->events)
      if (id == event && op && op->state != Op::State::Idle)
        if (int32_t status = waitFor(*op))
          return status;
  int32_t status = CONCORD_OK;
  Gate *gate = program->gated ? context.gate.get() : nullptr;
  if (gate) {
    Comm *comm =
        site.comm ? site.comm : program->sites[issue.members.front()].comm;
    bool skip = false;
    status = guarded(
        [&] { return gate->enterSite(program->planIndex, index, comm, skip); });
    if (status != CONCORD_OK)
      return status;
    if (skip)
      return CONCORD_OK;
  }
  uint32_t used = 0;
  if (issue.kind == Kind::Group) {
    for (uint32_t member : issue.members) {
      status =
          fill(gate, program->sites[member], member, buffers, numBuffers, used);
      if (status != CONCORD_OK)
        return status;
      buffers += used;
      numBuffers -= used;
    }
    // One launch, which holds one slot of the device.
    uint64_t launch = context.issues.latest() + 1;
    for (uint32_t member : issue.members)
      if (program->sites[member].takesPart) {
        program->sites[member].op.launch = launch;
        enqueue(program->sites[member].op);
      }
    if (issue.synchronous)
      status = waitSite(context, index);
  } else {
    status = fill(gate, site, index, buffers, numBuffers, used);
    if (status == CONCORD_OK && site.takesPart) {
      if (issue.synchronous) {
        status = runNow(site.op);
        if (status == CONCORD_OK)
          decide(*program, site);
      } else
        enqueue(site.op);
    }
  }
  for (uint32_t event : issue.records)
    for (auto &[id, op] : program->events)
      if (id == event)
        op = issue.kind == Kind::Group || !site.takesPart ? nullptr : &site.op;
  if (program->trace) {
    int64_t now = nowNanoseconds();
    program->trace(program->traceUser, index, 1, now);
    if (issue.synchronous)
      program->trace(program->traceUser, index, 2, now);
  }
  return status;
}

int32_t concord::rt::waitSite(Context &context, uint32_t index) {
  concord_program *program = runningIn(context);
  if (!program || index >= program->sites.size())
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "concord_site_wait: site %u is not one of a running program",
                index);
  Site &site = program->sites[index];
  if (program->trace && !site.issue->synchronous)
    program->trace(program->traceUser, index, 3, nowNanoseconds());
  int32_t status = CONCORD_OK;
  auto settle = [&](Site &one) {
    if (!one.takesPart || one.op.state == Op::State::Idle)
      return;
    int32_t result = waitFor(one.op);
    if (result == CONCORD_OK)
      decide(*program, one);
    if (status == CONCORD_OK)
      status = result;
    one.op.state = Op::State::Idle;
  };
  if (site.issue->kind == Kind::Group)
    for (uint32_t member : site.issue->members)
      settle(program->sites[member]);
  else
    settle(site);
  if (program->trace && !site.issue->synchronous)
    program->trace(program->traceUser, index, 2, nowNanoseconds());
  return status;
}
