//===- ApiCollectives.cpp - C entry points: collectives -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives, messages and groups of calls.
//
// A call on stream NULL outside a group runs an operation that lives on the
// caller's stack; everything else takes one from the context's pool.
//
//===----------------------------------------------------------------------===//

#include "abi/Api.h"
#include "engine/Fused.h"
#include "gate/Gate.h"

#include <optional>
#include <utility>

using namespace concord;
using namespace concord::rt;

namespace {

int32_t passGate(Comm &comm, const Op &op) {
  const Op *launch = &op;
  return comm.context->gate->enter(comm, &launch, 1);
}

/// Also a number that is none, which no dtype has.
Reduction reductionOf(int32_t number) {
  return Reduction(number < 0 || number > 255 ? 255 : number);
}

/// Operations of `context` may be put on `stream`.
int32_t checkStream(const Context &context, const concord_stream *stream,
                    const char *what) {
  if (stream->destroyed)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "%s: the stream was destroyed already", what);
  if (stream->context != &context)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "%s: stream and communicator belong to different contexts",
                what);
  return CONCORD_OK;
}

concord_buffer dense(const void *base, uint64_t bytes, uint64_t chunks = 1) {
  return {const_cast<void *>(base), 1, bytes, bytes * chunks};
}

/// A call that asks for what the last one on `comm` did, with other operands,
/// and has nothing else to look after: done, or none.
inline std::optional<int32_t> repeat(Comm &comm, const Asked &asked,
                                     const void *in, void *out,
                                     const concord_stream *stream) {
  Context &context = *comm.context;
  if (stream || context.threadLevel == CONCORD_THREAD_MULTIPLE)
    return {};
  Entry entry(context);
  if (entry.status() != CONCORD_OK || !(comm.asked == asked) ||
      context.inFlight != 0 || !context.groups.empty() || comm.destroyed ||
      comm.status != CONCORD_OK || !fit(comm.prepared, in, out))
    return {}; // the long way has the words
  return runAgain(*comm.again, in, out);
}

/// What a call asks for, before it is known where the operation lives.
struct Call {
  Comm &comm;
  /// What a call on stream NULL runs. The request is written where it is used:
  /// copying what was just stored in smaller pieces stalls the processor.
  Op own;
  OpRequest &r = own.request;
  /// Counts in elements, one per member, or null.
  const uint64_t *send = nullptr, *receive = nullptr;
  const int32_t *pairs = nullptr;
  uint64_t element;

  Call(Comm &comm, Kind kind, int32_t dtype, uint64_t count)
      : comm(comm),
        element(dtype > 0 && dtype < 256 ? dtypeSize(DType(dtype)) : 0) {
    r.kind = kind;
    r.dtype = element ? DType(dtype) : DType::Invalid;
    // A product that does not fit is caught by prepare's own limit.
    if (__builtin_mul_overflow(count, element, &r.chunk))
      r.chunk = ~uint64_t(0) / 64 * element;
  }

  int32_t run(concord_stream *stream, const Asked &asked = {});

private:
  bool isMessage() const {
    return r.kind == Kind::Send || r.kind == Kind::Recv;
  }
  static int32_t groupRefused(const Comm &comm) {
    return fail(CONCORD_ERROR_NOT_SUPPORTED,
                "a collective on '%s' inside a group of calls cannot follow a "
                "plan; group transfers only",
                comm.name.c_str());
  }
  /// What a round decision has brought is the gate's to know.
  int32_t decide(int32_t status) {
    if (status == CONCORD_OK && r.kind == Kind::RoundDecision &&
        comm.context->gate)
      comm.context->gate->decided(*static_cast<uint64_t *>(r.out.base));
    return status;
  }
  int32_t fillLists(Op &op) const;
};

int32_t Call::fillLists(Op &op) const {
  op.request = r;
  if (pairs) {
    op.pairCopy.resize(r.numPairs);
    for (uint32_t i = 0; i < r.numPairs; ++i)
      op.pairCopy[i] = {pairs[2 * i], pairs[2 * i + 1]};
    op.request.pairs = op.pairCopy.data();
  }
  if (receive) {
    int n = comm.size;
    op.counts.resize(size_t(n) * 2);
    for (int i = 0; i < n; ++i)
      for (int side = 0; side < 2; ++side) {
        const uint64_t *list = side ? send : receive;
        uint64_t &bytes = op.counts[size_t(side * n + i)];
        bytes = 0;
        if (list && __builtin_mul_overflow(list[i], element, &bytes))
          return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                      "a count of %llu elements is impossible",
                      (unsigned long long)list[i]);
      }
    op.request.receive = op.counts.data();
    if (send)
      op.request.send = op.counts.data() + n;
    uint64_t mine = op.counts[size_t(comm.me)];
    if (r.kind == Kind::AllGather)
      op.request.in = dense(r.in.base, mine);
    if (r.kind == Kind::ReduceScatter)
      op.request.out = dense(r.out.base, mine);
  }
  return CONCORD_OK;
}

int32_t Call::run(concord_stream *stream, const Asked &asked) {
  Context &context = *comm.context;
  CONCORD_ENTER(context);
  if (stream)
    if (int32_t status = checkStream(context, stream, kindName(r.kind)))
      return status;
  Context::Group *group = context.group();
  if (!stream && !group && !receive && !pairs) {
    // The pool's operation has room for lists; this one needs none.
    if (int32_t status = prepare(own, comm))
      return status;
    if (context.gate) {
      int32_t status = guarded([&] { return passGate(comm, own); });
      if (status != CONCORD_OK)
        return status;
    }
    int32_t status = runNow(own);
    if (status == CONCORD_OK && asked.kind != Kind::Group)
      keepForCalls(own, asked);
    return decide(status);
  }
  return guarded([&] {
    if (context.gate && group && !isMessage())
      return groupRefused(comm);
    Op *op = takeOp(context);
    int32_t status = fillLists(*op);
    if (status == CONCORD_OK)
      status = prepare(*op, comm);
    if (status != CONCORD_OK || (!stream && !group)) {
      op->pooled = false;
      if (status == CONCORD_OK && context.gate && !group)
        status = passGate(comm, *op);
      if (status == CONCORD_OK)
        status = runNow(*op);
      giveBack(context, op);
      return status;
    }
    if (comm.status != CONCORD_OK) {
      giveBack(context, op);
      return fail(CONCORD_ERROR_BROKEN, "communicator '%s' is broken: %s",
                  comm.name.c_str(), comm.firstError.c_str());
    }
    op->stream = stream;
    op->pooled = true;
    if (group) {
      group->ops.push_back(op);
      return int32_t(CONCORD_OK);
    }
    if (context.gate)
      if (int32_t refused = passGate(comm, *op)) {
        giveBack(context, op);
        return refused;
      }
    enqueue(*op);
    return int32_t(CONCORD_OK);
  });
}

/// The gate, for the transfers of a group: all on one communicator.
int32_t passGroup(const std::vector<Op *> &ops) {
  if (ops.empty())
    return CONCORD_OK;
  Comm &comm = *ops.front()->comm;
  for (const Op *op : ops)
    if (op->comm != &comm)
      return fail(CONCORD_ERROR_NOT_SUPPORTED,
                  "a group with transfers on '%s' and '%s' cannot follow a "
                  "plan; group those of one domain",
                  comm.name.c_str(), op->comm->name.c_str());
  return comm.context->gate->enter(comm, ops.data(), uint32_t(ops.size()));
}

/// Start what a group has collected. Operations of one stream become the
/// members of one entry of that stream, so that they run side by side. They are
/// issued in the order of the calls, whatever their streams: that is the order
/// which the members of a communicator share, as their other calls differ.
int32_t startGroup(Context &context, std::vector<Op *> ops) {
  if (context.gate)
    if (int32_t status = passGroup(ops)) {
      for (Op *op : ops)
        giveBack(context, op);
      return status;
    }
  std::vector<Op *> waits;
  for (size_t i = 0; i < ops.size(); ++i) {
    Op *op = ops[i];
    size_t first = 0;
    while (ops[first]->stream != op->stream)
      ++first;
    // One launch per stream: its operations share a slot of the device.
    op->launch = first == i ? context.issues.latest() + 1 : ops[first]->launch;
    if (!op->stream) {
      op->pooled = false;
      waits.push_back(op);
    } else if (first == i) {
      Op *parent = takeOp(context);
      parent->request.kind = Kind::Group;
      parent->comm = nullptr;
      parent->stream = op->stream;
      parent->pooled = true;
      enqueue(*parent);
      op->parent = parent;
    } else {
      op->parent = ops[first]->parent;
    }
    if (op->parent) {
      ++op->parent->pendingChildren;
      op->parent->children.push_back(op);
    }
    enqueue(*op);
  }
  int32_t status = CONCORD_OK;
  for (Op *op : waits) {
    int32_t result = waitFor(*op);
    if (status == CONCORD_OK)
      status = result;
    giveBack(context, op);
  }
  return status;
}

} // namespace

int32_t concord_all_reduce(concord_comm *comm, const void *in, void *out,
                           uint64_t count, int32_t dtype, int32_t reduction,
                           concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  const Asked asked{Kind::AllReduce, dtype, reduction, -1, count};
  if (auto status = repeat(*comm, asked, in, out, stream))
    return *status;
  Call call(*comm, Kind::AllReduce, dtype, count);
  call.r.reduction = reductionOf(reduction);
  call.r.in = dense(in, call.r.chunk);
  call.r.out = dense(out, call.r.chunk);
  return call.run(stream, asked);
}

int32_t concord_all_gather(concord_comm *comm, const void *in, void *out,
                           uint64_t count, int32_t dtype,
                           concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  const Asked asked{Kind::AllGather, dtype, 0, -1, count};
  if (auto status = repeat(*comm, asked, in, out, stream))
    return *status;
  Call call(*comm, Kind::AllGather, dtype, count);
  call.r.in = dense(in, call.r.chunk);
  call.r.out = dense(out, call.r.chunk, uint64_t(comm->size));
  return call.run(stream, asked);
}

int32_t concord_all_gather_v(concord_comm *comm, const void *in, void *out,
                             const uint64_t *counts, int32_t dtype,
                             concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  CONCORD_NOT_NULL(counts);
  Call call(*comm, Kind::AllGather, dtype, 0);
  call.receive = counts;
  call.r.in = dense(in, 0);
  call.r.out = dense(out, 0);
  return call.run(stream);
}

int32_t concord_reduce_scatter(concord_comm *comm, const void *in, void *out,
                               uint64_t count, int32_t dtype, int32_t reduction,
                               concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  const Asked asked{Kind::ReduceScatter, dtype, reduction, -1, count};
  if (auto status = repeat(*comm, asked, in, out, stream))
    return *status;
  Call call(*comm, Kind::ReduceScatter, dtype, count);
  call.r.reduction = reductionOf(reduction);
  call.r.in = dense(in, call.r.chunk, uint64_t(comm->size));
  call.r.out = dense(out, call.r.chunk);
  return call.run(stream, asked);
}

int32_t concord_reduce_scatter_v(concord_comm *comm, const void *in, void *out,
                                 const uint64_t *counts, int32_t dtype,
                                 int32_t reduction, concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  CONCORD_NOT_NULL(counts);
  Call call(*comm, Kind::ReduceScatter, dtype, 0);
  call.r.reduction = reductionOf(reduction);
  call.receive = counts;
  call.r.in = dense(in, 0);
  call.r.out = dense(out, 0);
  return call.run(stream);
}

int32_t concord_all_to_all(concord_comm *comm, const void *in, void *out,
                           uint64_t count, int32_t dtype,
                           concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  const Asked asked{Kind::AllToAll, dtype, 0, -1, count};
  if (auto status = repeat(*comm, asked, in, out, stream))
    return *status;
  Call call(*comm, Kind::AllToAll, dtype, count);
  call.r.in = dense(in, call.r.chunk, uint64_t(comm->size));
  call.r.out = dense(out, call.r.chunk, uint64_t(comm->size));
  return call.run(stream, asked);
}

int32_t concord_all_to_all_v(concord_comm *comm, const void *in, void *out,
                             const uint64_t *sendCounts,
                             const uint64_t *recvCounts, int32_t dtype,
                             concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  CONCORD_NOT_NULL(sendCounts);
  CONCORD_NOT_NULL(recvCounts);
  Call call(*comm, Kind::AllToAll, dtype, 0);
  call.send = sendCounts;
  call.receive = recvCounts;
  call.r.in = dense(in, 0);
  call.r.out = dense(out, 0);
  return call.run(stream);
}

int32_t concord_broadcast(concord_comm *comm, const void *in, void *out,
                          uint64_t count, int32_t dtype, int32_t root,
                          concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  const Asked asked{Kind::Broadcast, dtype, 0, root, count};
  if (auto status = repeat(*comm, asked, in, out, stream))
    return *status;
  Call call(*comm, Kind::Broadcast, dtype, count);
  call.r.root = root;
  call.r.in = dense(in, call.r.chunk);
  call.r.out = dense(out, call.r.chunk);
  return call.run(stream, asked);
}

int32_t concord_reduce(concord_comm *comm, const void *in, void *out,
                       uint64_t count, int32_t dtype, int32_t reduction,
                       int32_t root, concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  const Asked asked{Kind::Reduce, dtype, reduction, root, count};
  if (auto status = repeat(*comm, asked, in, out, stream))
    return *status;
  Call call(*comm, Kind::Reduce, dtype, count);
  call.r.reduction = reductionOf(reduction);
  call.r.root = root;
  call.r.in = dense(in, call.r.chunk);
  call.r.out = dense(out, call.r.chunk);
  return call.run(stream, asked);
}

int32_t concord_gather(concord_comm *comm, const void *in, void *out,
                       uint64_t count, int32_t dtype, int32_t root,
                       concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  const Asked asked{Kind::Gather, dtype, 0, root, count};
  if (auto status = repeat(*comm, asked, in, out, stream))
    return *status;
  Call call(*comm, Kind::Gather, dtype, count);
  call.r.root = root;
  call.r.in = dense(in, call.r.chunk);
  call.r.out = dense(out, call.r.chunk, uint64_t(comm->size));
  return call.run(stream, asked);
}

int32_t concord_scatter(concord_comm *comm, const void *in, void *out,
                        uint64_t count, int32_t dtype, int32_t root,
                        concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  const Asked asked{Kind::Scatter, dtype, 0, root, count};
  if (auto status = repeat(*comm, asked, in, out, stream))
    return *status;
  Call call(*comm, Kind::Scatter, dtype, count);
  call.r.root = root;
  call.r.in = dense(in, call.r.chunk, uint64_t(comm->size));
  call.r.out = dense(out, call.r.chunk);
  return call.run(stream, asked);
}

int32_t concord_permute(concord_comm *comm, const void *in, void *out,
                        uint64_t count, int32_t dtype, const int32_t *pairs,
                        uint32_t numPairs, concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  static const int32_t kNone[2] = {};
  if (numPairs)
    CONCORD_NOT_NULL(pairs);
  if (numPairs > uint32_t(comm->size))
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "%u pairs for %d members: a rank is the target of two",
                numPairs, comm->size);
  Call call(*comm, Kind::Permute, dtype, count);
  call.pairs = numPairs ? pairs : kNone;
  call.r.numPairs = numPairs;
  call.r.in = dense(in, call.r.chunk);
  call.r.out = dense(out, call.r.chunk);
  return call.run(stream);
}

int32_t concord_send(concord_comm *comm, const void *buffer, uint64_t count,
                     int32_t dtype, int32_t peer, concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  Call call(*comm, Kind::Send, dtype, count);
  call.r.root = peer;
  call.r.in = dense(buffer, call.r.chunk);
  return call.run(stream);
}

int32_t concord_recv(concord_comm *comm, void *buffer, uint64_t count,
                     int32_t dtype, int32_t peer, concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  Call call(*comm, Kind::Recv, dtype, count);
  call.r.root = peer;
  call.r.out = dense(buffer, call.r.chunk);
  return call.run(stream);
}

int32_t concord_batch_p2p(concord_comm *comm, const concord_p2p *messages,
                          uint32_t count, concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  if (count)
    CONCORD_NOT_NULL(messages);
  Context &context = *comm->context;
  return guarded([&] {
    CONCORD_ENTER(context);
    if (stream)
      if (int32_t status = checkStream(context, stream, "concord_batch_p2p"))
        return status;
    for (uint32_t i = 0; i < count; ++i)
      if (messages[i].send != 0 && messages[i].send != 1)
        return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                    "concord_batch_p2p: send of message %u is %d: 1 sends, 0 "
                    "receives",
                    i, messages[i].send);
    std::vector<Op *> ops;
    for (uint32_t i = 0; i < count; ++i) {
      const concord_p2p &m = messages[i];
      Call call(*comm, m.send ? Kind::Send : Kind::Recv, m.dtype, m.count);
      call.r.root = m.peer;
      (m.send ? call.r.in : call.r.out) = dense(m.buffer, call.r.chunk);
      Op *op = takeOp(context);
      op->request = call.r;
      ops.push_back(op);
      if (int32_t status = prepare(*op, *comm)) {
        for (Op *other : ops)
          giveBack(context, other);
        return status;
      }
      op->stream = stream;
      op->pooled = true;
    }
    if (Context::Group *group = context.group()) {
      group->ops.insert(group->ops.end(), ops.begin(), ops.end());
      return int32_t(CONCORD_OK);
    }
    return startGroup(context, std::move(ops));
  });
}

int32_t concord_barrier(concord_comm *comm, concord_stream *stream) {
  CONCORD_NOT_NULL(comm);
  Call call(*comm, Kind::Barrier, 0, 0);
  return call.run(stream);
}

int32_t concord_fused(concord_comm *comm, const concord_kernel *kernel,
                      const concord_buffer *buffers, uint32_t numBuffers) {
  CONCORD_NOT_NULL(comm);
  CONCORD_NOT_NULL(kernel);
  CONCORD_NOT_NULL(buffers);
  Context &context = *comm->context;
  return guarded([&] {
    CONCORD_ENTER(context);
    if (context.group())
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "concord_fused inside a group: it returns when it is done");
    std::unique_ptr<Fused> fused = makeFused(kernel);
    Op op;
    int32_t status = prepareFused(op, *comm, *fused, buffers, numBuffers);
    if (status == CONCORD_OK)
      status = runNow(op);
    for (void *block : fused->bounce)
      if (block)
        context.heap.release(block);
    return status;
  });
}

int32_t concord_round_decision(concord_comm *comm, int32_t root,
                               uint64_t *bits) {
  CONCORD_NOT_NULL(comm);
  CONCORD_NOT_NULL(bits);
  Context &context = *comm->context;
  if (root == comm->me && context.gate) {
    CONCORD_ENTER(context);
    if (context.gate->leads() && context.gate->domainOf(*comm) >= 0)
      *bits = context.gate->propose(*bits);
  }
  Call call(*comm, Kind::RoundDecision, CONCORD_DTYPE_U64, 1);
  call.r.root = root;
  call.r.in = dense(bits, 8);
  call.r.out = dense(bits, 8);
  return call.run(nullptr);
}

int32_t concord_group_start(concord_context *context) {
  CONCORD_NOT_NULL(context);
  return guarded([&] {
    CONCORD_ENTER(*context);
    Context::Group *group = context->group();
    if (!group) {
      group = &context->groups.emplace_back();
      group->thread = context->groupThread();
    }
    ++group->depth;
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_group_end(concord_context *context) {
  CONCORD_NOT_NULL(context);
  return guarded([&] {
    CONCORD_ENTER(*context);
    Context::Group *group = context->group();
    if (!group)
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "concord_group_end without a group start");
    if (--group->depth)
      return int32_t(CONCORD_OK);
    std::vector<Op *> ops = std::move(group->ops);
    context->groups.erase(context->groups.begin() +
                          (group - context->groups.data()));
    return startGroup(*context, std::move(ops));
  });
}
