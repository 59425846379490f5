//===- Prepare.cpp - Checking a request before it starts ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Arguments, fingerprints, and what else can be computed before an operation's
// turn comes.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Error.h"
#include "engine/Engine.h"
#include "engine/Operands.h"
#include "engine/Span.h"

using namespace concord;
using namespace concord::rt;

/// In a fingerprint, instead of the root: counts are a list (the kinds that
/// have one have no root).
static constexpr int kCountsListed = 126;

std::string concord::rt::fingerprintText(uint64_t print) {
  Kind kind = Kind(print & 15);
  DType type = DType(print >> 4 & 15);
  auto reduction = unsigned(print >> 8 & 7);
  int root = int(print >> 11 & 127) - 1;
  static const char *const kNames[] = {
#define X(name, number, text) text,
      CONCORD_REDUCTIONS(X)
#undef X
  };
  std::string text = kindName(kind);
  if (root == kCountsListed) {
    // A list is told by its hash; all_to_all has others at every member.
    text += "_v(counts" + (kind == Kind::AllToAll
                               ? std::string(" per member")
                               : "' hash " + std::to_string(print >> 18));
    root = -1;
  } else {
    text += "(count " + std::to_string(print >> 18);
  }
  if (type != DType::Invalid)
    text += ", " + std::string(dtypeName(type));
  if (reduction)
    text += std::string(", ") + kNames[reduction];
  bool fused =
      root >= 0 && (kind == Kind::AllReduce || kind == Kind::ReduceScatter ||
                    kind == Kind::AllGather);
  if (fused)
    text += ", fused with a kernel of hash " + std::to_string(root);
  else if (root >= 0 && kind == Kind::Permute)
    text += ", pairs' hash " + std::to_string(root);
  else if (root >= 0)
    text += ", root " + std::to_string(root);
  return text + ")";
}

static uint64_t hashBytes(const void *data, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const unsigned char *>(data)[i]) *
           uint64_t(0x100000001b3);
  return hash ^ hash >> 29;
}

/// True when some member's work on `op` may go through staging memory, as far
/// as this member can tell.
static bool needsStaging(const Op &op) {
  const OpRequest &r = op.request;
  const Comm &comm = *op.comm;
  const Segment &segment = *comm.context->segment;
  auto foreign = [&](bool input) {
    return (input ? inputIsRemote(r.kind) : outputIsRemote(r.kind)) &&
           uses(op, comm.me, input) &&
           segment.offsetOf((input ? r.in : r.out).base, extent(op, input)) ==
               kStaged;
  };
  // Fetching for a reduction needs it whether or not this member is in the
  // heap.
  return op.form == Form::SingleCopy || comm.context->stageAlways ||
         copies(r) || foreign(true) || foreign(false);
}

bool concord::rt::fit(const Prepared &last, const void *input,
                      const void *output) {
  const char *in = static_cast<const char *>(input);
  const char *out = static_cast<const char *>(output);
  return (in || !last.usesIn) && (out || !last.usesOut) &&
         (!last.usesIn || !last.usesOut || out - in == last.inPlace ||
          in >= out + last.outBytes || out >= in + last.inBytes);
}

/// True when `op` is as the last one, but for addresses that are as good; then
/// it is prepared.
static bool preparedBefore(Op &op, Comm &comm) {
  const OpRequest &r = op.request;
  const Prepared &last = comm.prepared;
  if (r.chunk != last.chunk || r.kind != last.kind || r.dtype != last.dtype ||
      r.reduction != last.reduction || r.root != last.root || uneven(r) ||
      r.pairs || r.in.outer != 1 || r.out.outer != 1 || comm.destroyed)
    return false;
  if ((last.usesIn && r.in.inner_bytes != r.chunk) ||
      (last.usesOut && r.out.inner_bytes != r.chunk) ||
      !fit(last, r.in.base, r.out.base))
    return false; // the long way has the words
  op.comm = &comm;
  op.reduce = comm.reduce;
  op.reduceStored = comm.reduceStored;
  op.reduceStreamed = comm.reduceStreamed;
  op.fingerprint = last.fingerprint;
  op.payload = last.payload;
  op.measured = last.measured;
  op.form = Form::Automatic;
  op.inlined = last.inlined;
  return op.inlined || comm.size == 1 || comm.staging || !needsStaging(op);
}

int32_t concord::rt::prepare(Op &op, Comm &comm) {
  if (preparedBefore(op, comm))
    return CONCORD_OK;
  comm.prepared.chunk = ~uint64_t(0);
  comm.asked = {};
  OpRequest &r = op.request;
  const Reduction askedReduction = r.reduction;
  const int32_t askedRoot = r.root;
  op.comm = &comm;
  size_t element = dtypeSize(r.dtype);
  auto invalid = [&](const char *what) {
    return fail(CONCORD_ERROR_INVALID_ARGUMENT, "%s on '%s': %s",
                kindName(r.kind), comm.name.c_str(), what);
  };
  if (comm.destroyed)
    return invalid("the communicator was destroyed");
  if (r.kind == Kind::Barrier) {
    r.dtype = DType::Invalid;
    r.chunk = 0;
  } else if (element == 0) {
    return invalid("unknown dtype");
  }
  if (element && r.chunk % element != 0)
    return invalid("the size is not a multiple of the element's");
  bool reducing = r.kind == Kind::AllReduce || r.kind == Kind::ReduceScatter ||
                  r.kind == Kind::Reduce;
  op.reduce = nullptr;
  if (reducing) {
    auto key = uint32_t(r.dtype) << 8 | uint32_t(r.reduction);
    if (comm.reduceKey != key) {
      const Arithmetic &arithmetic = *comm.context->arithmetic;
      comm.reduceKey = key;
      comm.reduce = arithmetic.reduce(r.dtype, r.reduction);
      comm.reduceStored = arithmetic.store(r.dtype, r.reduction);
      comm.reduceStreamed = arithmetic.stream(r.dtype, r.reduction);
    }
    op.reduce = comm.reduce;
    op.reduceStored = comm.reduceStored;
    op.reduceStreamed = comm.reduceStreamed;
    if (!op.reduce)
      return invalid("this dtype does not have this reduction");
  } else {
    r.reduction = Reduction::None;
  }
  bool rooted = r.kind == Kind::Broadcast || r.kind == Kind::Reduce ||
                r.kind == Kind::Gather || r.kind == Kind::Scatter ||
                r.kind == Kind::Send || r.kind == Kind::Recv ||
                r.kind == Kind::RoundDecision;
  if (rooted && (r.root < 0 || r.root >= comm.size))
    return invalid("root or peer is not a member");
  if (!rooted)
    r.root = -1;
  uint64_t size = uint64_t(comm.size), total;
  if (__builtin_mul_overflow(r.chunk, size, &total) || total > uint64_t(1)
                                                                   << 56)
    return invalid("the count is impossible");

  uint64_t hash = 0;
  if (uneven(r)) {
    for (const uint64_t *list : {r.send, r.receive})
      for (int i = 0; list && i < comm.size; ++i)
        if (list[i] % element || list[i] > uint64_t(1) << 50)
          return invalid("a count is impossible");
    if (r.kind != Kind::AllToAll)
      hash = hashBytes(r.receive, sizeof(uint64_t) * size);
  }
  if (r.kind == Kind::Permute) {
    uint64_t targets = 0;
    for (uint32_t i = 0; i < r.numPairs; ++i) {
      auto [from, to] = r.pairs[i];
      if (from < 0 || from >= comm.size || to < 0 || to >= comm.size)
        return invalid("a pair names a rank that is not a member");
      if (targets >> to & 1)
        return invalid("a rank is the target of two pairs");
      targets |= uint64_t(1) << to;
    }
    r.root = int32_t(hashBytes(r.pairs, sizeof(*r.pairs) * r.numPairs) & 63);
  }

  bool message = r.kind == Kind::Send || r.kind == Kind::Recv;
  for (bool input : {true, false}) {
    if (r.kind == Kind::Barrier || (message && input != (r.kind == Kind::Send)))
      continue;
    const concord_buffer &b = input ? r.in : r.out;
    if (!message && !uses(op, comm.me, input))
      continue;
    bool empty = uneven(r) && chunked(r.kind, input) ? extent(op, input) == 0
                                                     : r.chunk == 0;
    if (uneven(r) && !chunked(r.kind, input))
      empty = r.receive[comm.me] == 0;
    if (empty)
      continue;
    if (!b.base)
      return invalid(input ? "input is null" : "output is null");
    if (b.outer > 1 && (b.inner_bytes % element || b.stride_bytes % element))
      return invalid("rows are not whole elements");
    if (uneven(r) ? b.outer > 1 : b.outer * b.inner_bytes != r.chunk)
      return invalid("the buffer's layout does not match the count");
  }
  if (!message && r.kind != Kind::Barrier && uses(op, comm.me, true) &&
      uses(op, comm.me, false) && r.in.outer <= 1 && r.out.outer <= 1) {
    const char *in = static_cast<const char *>(r.in.base);
    const char *out = static_cast<const char *>(r.out.base);
    uint64_t inBytes = extent(op, true), outBytes = extent(op, false);
    const char *inPlace = out;
    uint64_t before = uneven(r) ? (r.receive ? sum(r.receive, comm.me) : 0)
                                : r.chunk * comm.me;
    bool same = in == out;
    if (r.kind == Kind::AllGather || r.kind == Kind::Gather)
      same = in == inPlace + before;
    else if (r.kind == Kind::ReduceScatter || r.kind == Kind::Scatter)
      same = out == in + before;
    if (!same && inBytes && outBytes && in < out + outBytes &&
        out < in + inBytes)
      return invalid("input and output overlap without being in place");
    if (same && inBytes && r.kind == Kind::AllToAll && uneven(r))
      return invalid("an uneven exchange cannot be done in place");
  }

  uint64_t count = element ? r.chunk / element : 0;
  op.fingerprint = uint64_t(r.kind) | uint64_t(r.dtype) << 4 |
                   uint64_t(r.reduction) << 8 |
                   uint64_t((uneven(r) ? kCountsListed : r.root) + 1) << 11 |
                   (uneven(r) ? hash : count) << 18;
  if (message) // both sides say the same: dtype and count
    op.fingerprint = uint64_t(r.dtype) << 4 | count << 18;
  uint64_t payload = chunked(r.kind, true) ? total : r.chunk;
  op.payload = payload;
  if (comm.span)
    return prepareSpan(op);
  op.form = comm.context->scores.empty()
                ? Form::Automatic
                : chooseForm(comm.context->scores, r.kind, comm.size, payload);
  // Where data goes one way, who sends does not wait for those who take.
  bool oneWay = r.kind == Kind::Broadcast || r.kind == Kind::Reduce ||
                r.kind == Kind::Gather || r.kind == Kind::Scatter;
  uint64_t inlineLimit = oneWay ? kFlatMost : kInlineLimit;
  if (op.form == Form::Flat)
    inlineLimit = kFlatMost;
  else if (op.form != Form::Automatic)
    inlineLimit = 0;
  // A calibration says what travels in the slots; the rest depends on where
  // operands lie and who runs, as ever.
  op.measured =
      op.form != Form::Automatic && comm.context->scores.front().measured;
  if (op.measured)
    op.form = Form::Automatic;
  op.inlined = !uneven(r) && payload <= inlineLimit;
  if (!message && op.form == Form::Automatic && !uneven(r) && !r.pairs &&
      r.chunk != 0 && r.in.outer == 1 && r.out.outer == 1 &&
      r.reduction == askedReduction && r.root == askedRoot) {
    Prepared &done = comm.prepared;
    uint64_t before = r.chunk * uint64_t(comm.me);
    done = {r.kind,         r.reduction, r.dtype,     r.root,    r.chunk,
            op.fingerprint, op.payload,  op.measured, op.inlined};
    done.usesIn = uses(op, comm.me, true);
    done.usesOut = uses(op, comm.me, false);
    done.inBytes = done.usesIn ? extent(op, true) : 0;
    done.outBytes = done.usesOut ? extent(op, false) : 0;
    if (r.kind == Kind::AllGather || r.kind == Kind::Gather)
      done.inPlace = -int64_t(before);
    else if (r.kind == Kind::ReduceScatter || r.kind == Kind::Scatter)
      done.inPlace = int64_t(before);
  }
  if (message || op.inlined || comm.size == 1)
    return CONCORD_OK;
  // Staging is made at the first operation that needs it, not in every step.
  if (!comm.staging && needsStaging(op)) {
    comm.staging = comm.context->heap.allocate(2 * kStagingHalf, 4096);
    if (!comm.staging)
      return fail(CONCORD_ERROR_OUT_OF_MEMORY,
                  "%s on '%s': the heap has no room for staging",
                  kindName(r.kind), comm.name.c_str());
    comm.stagingBytes = 2 * kStagingHalf;
  }
  return CONCORD_OK;
}
