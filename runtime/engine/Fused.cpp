//===- Fused.cpp - The state machine of a collective that computes --------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The protocol, which test/spin/fused_chunks.pml checks in all interleavings.
//
// Every member publishes its slot, as in any collective, with where its shared
// and written operands lie. It then does two sequences of steps:
//
//   produce   the parts of the others' shares, part by part, one owner after
//             the other; each is followed by one tick, so that a tick of
//             base + n says that the first n parts have been produced
//   combine   the parts of its own share; a part waits until all have published
//             (then their outputs may be written) and until each member's tick
//             says that it has produced the part
//
// or, where a gather or an exchange feeds the product, consume: what lies with
// a member that has published is used where it lies; where the product feeds an
// exchange, what it makes for a member that has published is stored there. One
// more tick says that a member has finished; when all have, nobody reads or
// writes another's memory any more.
// Results that were left in the members' shared operands are collected then: a
// member's share as soon as that member has finished, since from then on it
// touches nobody's memory, and no third one ever touches that share.
//
// Between the sequences a member stays `kAhead` parts ahead of what it
// combines: the part that it waits for was then produced a while ago, and still
// lies in the producer's cache.
//
//===----------------------------------------------------------------------===//

#include "engine/Fused.h"
#include "algorithms/Copy.h"
#include "diagnosis/Error.h"

#include <algorithm>
#include <cstring>

using namespace concord;
using namespace concord::rt;

extern "C" {
__attribute__((weak)) int32_t concord_kernel_fused(const concord_kernel *,
                                                   concord_fused_info *);
__attribute__((weak)) int32_t concord_kernel_step(const concord_kernel *,
                                                  const concord_fused_step *);
__attribute__((weak)) const char *concord_kernel_last_error(void);
}

namespace {

/// Own parts that are produced beyond the one that is combined.
constexpr uint32_t kAhead = 1;
constexpr uint64_t kNowhere = ~uint64_t(0);

/// What a member says of its operands.
struct Wire {
  uint64_t offsets[CONCORD_FUSED_MAX_OPERANDS];
};
static_assert(sizeof(Wire) <= kSlotPayload);

bool seenByOthers(const concord_fused_info &info, uint32_t operand) {
  return operand == info.shared || info.written >> operand & 1;
}

/// Of the n-th produced part: whose share it is of.
int producedFor(const concord_fused_info &info, int me, uint32_t n) {
  return int((uint32_t(me) + 1 + n % (info.members - 1)) % info.members);
}

/// How many parts `member` has produced when it has produced `part` for
/// `owner`.
uint32_t producedUntil(const concord_fused_info &info, int member, int owner,
                       uint32_t part) {
  uint32_t distance =
      (uint32_t(owner) + info.members - uint32_t(member)) % info.members;
  return part * (info.members - 1) + distance;
}

Slot &slotOf(const Op &op, int member) {
  return op.comm->block.members[member].slot(op.sequence);
}

bool hasPublished(const Op &op, int member) {
  return slotOf(op, member).sequence.load(std::memory_order_acquire) >=
         op.sequence;
}

void publish(Op &op) {
  Fused &f = *op.fused;
  Comm &comm = *op.comm;
  Slot &slot = slotOf(op, comm.me);
  Wire &wire = *reinterpret_cast<Wire *>(slot.payload);
  for (uint32_t i = 0; i < f.info.num_operands; ++i)
    wire.offsets[i] = seenByOthers(f.info, i)
                          ? comm.context->segment->offsetOf(
                                f.pointers[i], f.info.operand_bytes[i])
                          : kNowhere;
  publishSlot(op, slot);
}

void publishTick(Comm &comm) {
  ++comm.tick;
  comm.block.members[comm.me].tick.store(comm.tick, std::memory_order_release);
}

uint64_t tickOf(const Comm &comm, int member) {
  return comm.block.members[member].tick.load(std::memory_order_acquire);
}

enum class Seen : uint8_t { NotYet, Yes, Failed };

/// Take up what a member has published.
Seen enter(Op &op, int member) {
  Fused &f = *op.fused;
  Comm &comm = *op.comm;
  if (f.entered >> member & 1)
    return Seen::Yes;
  if (!hasPublished(op, member))
    return Seen::NotYet;
  Slot &slot = slotOf(op, member);
  if (slot.fingerprint != op.fingerprint) {
    fail(CONCORD_ERROR_MISMATCH, "%s: rank %d issued %s, but rank %d %s",
         describe(op).c_str(), comm.ranks[comm.me],
         fingerprintText(op.fingerprint).c_str(), comm.ranks[member],
         fingerprintText(slot.fingerprint).c_str());
    breakComm(op, CONCORD_ERROR_MISMATCH);
    return Seen::Failed;
  }
  const Wire &wire = *reinterpret_cast<const Wire *>(slot.payload);
  for (uint32_t i = 0; i < f.info.num_operands; ++i) {
    if (!seenByOthers(f.info, i))
      continue;
    void *at = comm.context->segment->pointerAt(wire.offsets[i],
                                                f.info.operand_bytes[i]);
    if (!at) {
      fail(CONCORD_ERROR_CORRUPT,
           "%s: rank %d published a buffer outside its heap",
           describe(op).c_str(), comm.ranks[member]);
      breakComm(op, CONCORD_ERROR_CORRUPT);
      return Seen::Failed;
    }
    f.members[i][size_t(member)] = at;
  }
  f.entered |= uint64_t(1) << member;
  return Seen::Yes;
}

Seen enterAll(Op &op) {
  for (int member = 0; member < op.comm->size; ++member)
    if (Seen seen = enter(op, member); seen != Seen::Yes)
      return seen;
  return Seen::Yes;
}

/// Whether every member has produced the next part to combine.
bool partReady(const Op &op) {
  const Fused &f = *op.fused;
  const Comm &comm = *op.comm;
  if (!f.info.produces)
    return true;
  for (int member = 0; member < comm.size; ++member)
    if (member != comm.me &&
        tickOf(comm, member) <
            f.baseTick + producedUntil(f.info, member, comm.me, f.finished))
      return false;
  return true;
}

bool step(Op &op, uint32_t what, int owner, uint32_t part) {
  Fused &f = *op.fused;
  concord_fused_step call{};
  call.struct_size = sizeof call;
  call.what = what;
  call.me = uint32_t(op.comm->me);
  call.owner = uint32_t(owner);
  call.part = part;
  call.stream = f.stream;
  call.pointers = f.pointers.data();
  call.peers = f.peers.data();
  call.workspace = f.pointers.back();
  // The kernel polls the engine, which must not come back to this operation.
  op.busy = true;
  int32_t status = concord_kernel_step(f.kernel, &call);
  op.busy = false;
  if (status == CONCORD_OK)
    return true;
  fail(CONCORD_ERROR_KERNEL, "%s: %s", describe(op).c_str(),
       concord_kernel_last_error());
  breakComm(op, CONCORD_ERROR_KERNEL);
  return false;
}

/// One step of work, if one can be done.
Progress work(Op &op) {
  Fused &f = *op.fused;
  Comm &comm = *op.comm;
  if (f.finished == f.toFinish())
    return Progress::Done;
  if (f.info.gathers) {
    int owner = (comm.me + int(f.finished / f.info.parts)) % comm.size;
    Seen seen = enter(op, owner);
    if (seen == Seen::NotYet)
      return Progress::Blocked;
    if (seen == Seen::Failed ||
        !step(op, CONCORD_STEP_CONSUME, owner, f.finished % f.info.parts))
      return Progress::Advanced;
    ++f.finished;
    return Progress::Advanced;
  }
  const uint32_t others = f.info.members - 1;
  bool ahead = f.produced == f.toProduce() ||
               f.produced >= (f.finished + 1 + kAhead) * others;
  if (ahead) {
    Seen seen = enterAll(op);
    if (seen == Seen::Failed)
      return Progress::Advanced;
    if (seen == Seen::Yes && partReady(op)) {
      if (step(op, CONCORD_STEP_COMBINE, comm.me, f.finished))
        ++f.finished;
      return Progress::Advanced;
    }
  }
  if (f.produced == f.toProduce())
    return Progress::Blocked;
  if (step(op, CONCORD_STEP_PRODUCE, producedFor(f.info, comm.me, f.produced),
           f.produced / others)) {
    ++f.produced;
    publishTick(comm);
  }
  return Progress::Advanced;
}

} // namespace

std::unique_ptr<Fused> concord::rt::makeFused(const concord_kernel *kernel) {
  auto fused = std::make_unique<Fused>();
  fitFused(*fused, kernel);
  return fused;
}

void concord::rt::fitFused(Fused &f, const concord_kernel *kernel) {
  f.kernel = kernel;
  f.info = {};
  f.info.struct_size = sizeof f.info;
  if (!concord_kernel_fused ||
      concord_kernel_fused(kernel, &f.info) != CONCORD_OK)
    raise(CONCORD_ERROR_KERNEL, "the kernel is not one with a collective");
  size_t n = f.info.num_operands;
  f.pointers.assign(n + 1, nullptr);
  f.bounce.resize(n, nullptr);
  f.foreign.assign(n, nullptr);
  f.members.resize(n);
  f.peers.assign(n, nullptr);
  for (uint32_t i = 0; i < n; ++i)
    if (seenByOthers(f.info, i)) {
      f.members[i].assign(f.info.members, nullptr);
      f.peers[i] = f.members[i].data();
    }
}

int32_t concord::rt::prepareFused(Op &op, Comm &comm, Fused &f,
                                  const concord_buffer *buffers,
                                  uint32_t numBuffers) {
  const concord_fused_info &info = f.info;
  OpRequest &r = op.request;
  op.comm = &comm;
  op.fused = &f;
  r.kind = Kind(info.kind);
  r.reduction = Reduction(info.reduction);
  r.dtype = DType(info.dtype);
  r.chunk = info.count * dtypeSize(r.dtype);
  r.root = -1;
  r.in = r.out = {};
  const char *name = kindName(r.kind);
  if (comm.span)
    return fail(CONCORD_ERROR_NOT_SUPPORTED,
                "fused %s on '%s': its members are on several hosts, and a "
                "fused kernel reads its peers' memory; compile with "
                "--comm-pipeline=\"fuse=false\", or keep the group within a "
                "host",
                name, comm.name.c_str());
  if (uint32_t(comm.size) != info.members)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "fused %s on '%s': the kernel is for %u members, the group has "
                "%d",
                name, comm.name.c_str(), info.members, comm.size);
  bool scratch = info.workspace_bytes != 0;
  // Where other sizes need a workspace there is one.
  if (numBuffers != info.num_operands + scratch &&
      numBuffers != info.num_operands + 1)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "fused %s on '%s': %u buffers given, %u needed", name,
                comm.name.c_str(), numBuffers, info.num_operands + scratch);
  uint64_t touched = 0;
  Segment &segment = *comm.context->segment;
  for (uint32_t i = 0; i < numBuffers; ++i) {
    const concord_buffer &b = buffers[i];
    uint64_t want =
        i < info.num_operands ? info.operand_bytes[i] : info.workspace_bytes;
    uint64_t bytes = b.outer * b.inner_bytes;
    if (!b.base || (b.outer > 1 && b.stride_bytes != b.inner_bytes) ||
        (want && (i < info.num_operands ? bytes != want : bytes < want)))
      return fail(
          CONCORD_ERROR_INVALID_ARGUMENT,
          "fused %s on '%s': buffer %u has %llu bytes, the kernel needs "
          "%llu, dense",
          name, comm.name.c_str(), i, (unsigned long long)bytes,
          (unsigned long long)want);
    f.pointers[i] = b.base;
    if (i == info.num_operands || !seenByOthers(info, i))
      continue;
    touched += bytes;
    f.foreign[i] = nullptr;
    if (segment.offsetOf(b.base, bytes) != kNowhere &&
        !comm.context->stageAlways)
      continue;
    // Made at the first issue that needs it, not in every step.
    const uint64_t room =
        i < f.most.size() ? std::max(f.most[i], bytes) : bytes;
    if (!f.bounce[i] && !(f.bounce[i] = comm.context->heap.allocate(room, 64)))
      return fail(CONCORD_ERROR_OUT_OF_MEMORY,
                  "fused %s on '%s': the heap has no room for %llu bytes that "
                  "stand in for a buffer outside it",
                  name, comm.name.c_str(), (unsigned long long)room);
    f.foreign[i] = b.base;
    f.pointers[i] = f.bounce[i];
  }
  if (!scratch)
    f.pointers.back() = nullptr;
  f.stream = touched * info.members > comm.context->cacheBytes;
  op.inlined = false;
  op.payload = r.chunk;
  // Where other kinds have the root: members with another kernel differ.
  op.fingerprint = uint64_t(r.kind) | uint64_t(r.dtype) << 4 |
                   uint64_t(r.reduction) << 8 |
                   (info.identity % 127 + 1) << 11 | info.count << 18;
  return CONCORD_OK;
}

Progress concord::rt::advanceFused(Op &op) {
  Fused &f = *op.fused;
  Comm &comm = *op.comm;
  switch (op.state) {
  case Op::State::Queued:
    op.sequence = ++comm.sequence;
    op.seen = 0;
    op.state = Op::State::Publish;
    [[fallthrough]];
  case Op::State::Publish:
    // The slot may still hold operation sequence - kSlots.
    if (comm.known + 1 < op.sequence) {
      for (; op.seen < comm.size; ++op.seen)
        if (op.seen != comm.me &&
            comm.block.members[op.seen]
                    .slot(op.sequence - 1)
                    .sequence.load(std::memory_order_acquire) < op.sequence - 1)
          return Progress::Blocked;
      comm.known = op.sequence - 1;
      op.seen = 0;
    }
    for (uint32_t i = 0; i < f.info.num_operands; ++i)
      if (f.foreign[i] && i == f.info.shared)
        std::memcpy(f.pointers[i], f.foreign[i], f.info.operand_bytes[i]);
    f.entered = 0;
    f.produced = f.finished = 0;
    f.baseTick = comm.tick;
    publish(op);
    op.state = Op::State::Work;
    [[fallthrough]];
  case Op::State::Work: {
    Progress result = work(op);
    if (op.state == Op::State::Done) // broken
      return Progress::Done;
    if (result != Progress::Done)
      return result;
    // A product that gathers may have needed nothing of the last to come.
    Seen seen = enterAll(op);
    if (seen == Seen::NotYet)
      return Progress::Blocked;
    if (seen == Seen::Failed)
      return Progress::Done;
    comm.known = op.sequence;
    publishTick(comm);
    op.state = Op::State::Settle;
    [[fallthrough]];
  }
  case Op::State::Settle:
    for (; op.seen < comm.size; ++op.seen) {
      if (op.seen == comm.me)
        continue;
      if (tickOf(comm, op.seen) < comm.tick)
        return Progress::Blocked;
      if (f.info.collects && !step(op, CONCORD_STEP_COLLECT, op.seen, 0))
        return Progress::Done;
    }
    for (uint32_t i = 0; i < f.info.num_operands; ++i)
      if (f.foreign[i] && f.info.written >> i & 1)
        std::memcpy(f.foreign[i], f.pointers[i], f.info.operand_bytes[i]);
    op.state = Op::State::Done;
    return Progress::Done;
  default:
    return Progress::Done;
  }
}

uint64_t concord::rt::missingFused(const Op &op) {
  const Fused &f = *op.fused;
  const Comm &comm = *op.comm;
  uint64_t mask = 0;
  for (int r = 0; r < comm.size; ++r) {
    if (r == comm.me)
      continue;
    bool late = false;
    switch (op.state) {
    case Op::State::Publish:
      late = comm.block.members[r].slot(op.sequence - 1).sequence.load() <
             op.sequence - 1;
      break;
    case Op::State::Work:
      late = !hasPublished(op, r) ||
             (f.info.produces && f.finished < f.toFinish() &&
              tickOf(comm, r) <
                  f.baseTick + producedUntil(f.info, r, comm.me, f.finished));
      break;
    case Op::State::Settle:
      late = tickOf(comm, r) < comm.tick;
      break;
    default:
      break;
    }
    mask |= uint64_t(late) << r;
  }
  return mask;
}
