//===- Engine.cpp - Queues, priorities and progress -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives of one communicator run one after the other, in the order of
// issue; different communicators, and messages, are independent. An operation
// of a stream starts when it is first in its stream. All queues are intrusive:
// the engine allocates nothing while operations are in flight.
//
//===----------------------------------------------------------------------===//

#include "engine/Engine.h"
#include "diagnosis/Error.h"
#include "engine/Span.h"
#include "gate/Gate.h"

#include <algorithm>

using namespace concord;
using namespace concord::rt;

static bool isMessage(const Op &op) {
  return op.request.kind == Kind::Send || op.request.kind == Kind::Recv;
}

static bool mayStart(const Op &op) {
  if (op.busy)
    return false;
  if (op.parent)
    return op.parent->started;
  return !op.stream || op.stream->head == &op;
}

/// A launch that is issued and not finished; null where slots are not counted.
static Context::Launch *launchOf(Context &context, const Op &op) {
  for (Context::Launch &launch : context.launches)
    if (launch.number == op.launch)
      return &launch;
  return nullptr;
}

/// Whether an operation of `comm`, issued before `op` in another launch, is not
/// finished: with slots, the operations of one communicator start in order.
static bool behindOwn(const Comm &comm, const Op &op) {
  auto before = [&](const Op *other) {
    return other != &op && other->number < op.number &&
           other->launch != op.launch && other->state != Op::State::Done;
  };
  if (comm.head && before(comm.head))
    return true;
  return std::any_of(comm.messages.begin(), comm.messages.end(), before);
}

/// Let `op`, which is first in its stream, start: it needs a slot of the
/// device. Under a held order a launch starts after all that were issued before
/// it.
static bool admit(Context &context, Op &op) {
  if (op.admitted)
    return true;
  if (context.deviceSlots != 0 && op.comm) {
    Context::Launch *launch = launchOf(context, op);
    if (launch && !launch->started) {
      unsigned used = 0;
      for (const Context::Launch &other : context.launches) {
        used += other.started;
        if (context.gate && context.gateMode == CONCORD_GATE_HOLD &&
            !other.started && other.number < launch->number)
          return false;
      }
      if (used >= context.deviceSlots || behindOwn(*op.comm, op))
        return false;
      launch->started = true;
    }
  }
  op.admitted = true;
  context.issues.state(op, issuelog::State::Started);
  return true;
}

Op *concord::rt::takeOp(Context &context) {
  if (context.spare.empty()) {
    context.pool.push_back(std::make_unique<Op>());
    context.spare.reserve(context.pool.size());
    context.spare.push_back(context.pool.back().get());
  }
  Op *op = context.spare.back();
  context.spare.pop_back();
  op->reset();
  op->request = OpRequest();
  op->fused = nullptr;
  return op;
}

void concord::rt::giveBack(Context &context, Op *op) {
  context.spare.push_back(op);
}

/// Keep the list of communicators with work, by priority.
static void activate(Comm &comm) {
  if (comm.active)
    return;
  auto &list = comm.context->activeComms;
  auto at = std::find_if(list.begin(), list.end(), [&](const Comm *other) {
    return other->priority < comm.priority;
  });
  list.insert(at, &comm);
  comm.active = true;
}

static void deactivateIfIdle(Comm &comm) {
  if (!comm.active || comm.head || !comm.messages.empty())
    return;
  auto &list = comm.context->activeComms;
  list.erase(std::find(list.begin(), list.end(), &comm));
  comm.active = false;
}

void concord::rt::enqueue(Op &op) {
  Comm *comm = op.comm;
  Context &context = comm ? *comm->context : *op.stream->context;
  op.state = Op::State::Queued;
  ++context.inFlight;
  if (op.stream && !op.parent) {
    concord_stream &stream = *op.stream;
    op.nextInStream = nullptr;
    (stream.tail ? stream.tail->nextInStream : stream.head) = &op;
    stream.tail = &op;
    ++stream.enqueued;
  }
  if (!comm) {
    op.number = context.issues.latest();
    context.streamOps.push_back(&op);
    return;
  }
  if (isMessage(op)) {
    auto &tickets =
        op.request.kind == Kind::Send ? comm->sendTicket : comm->receiveTicket;
    op.ticket = tickets[op.request.root]++;
    op.instance = op.ticket;
    comm->messages.push_back(&op);
  } else {
    op.nextInComm = nullptr;
    (comm->tail ? comm->tail->nextInComm : comm->head) = &op;
    comm->tail = &op;
    op.instance = comm->instances++;
  }
  context.issues.issue(op, comm->logDomain, op.stream ? op.stream->id : 0);
  if (context.deviceSlots != 0) {
    if (Context::Launch *launch = launchOf(context, op))
      ++launch->unfinished;
    else
      context.launches.push_back({op.launch, 1, false});
  }
  activate(*comm);
}

/// Take a Done operation out of all queues.
static void retire(Context &context, Op &op) {
  --context.inFlight;
  if (Comm *comm = op.comm) {
    context.issues.state(op, op.status == CONCORD_OK
                                 ? issuelog::State::Completed
                                 : issuelog::State::Failed);
    if (Context::Launch *launch = launchOf(context, op);
        launch && --launch->unfinished == 0)
      context.launches.erase(context.launches.begin() +
                             (launch - context.launches.data()));
    if (isMessage(op)) {
      comm->messages.erase(
          std::find(comm->messages.begin(), comm->messages.end(), &op));
    } else {
      comm->head = op.nextInComm;
      if (!comm->head)
        comm->tail = nullptr;
    }
    deactivateIfIdle(*comm);
  } else {
    context.streamOps.erase(
        std::find(context.streamOps.begin(), context.streamOps.end(), &op));
  }
  if (op.status != CONCORD_OK) {
    int32_t ok = CONCORD_OK;
    context.asyncStatus.compare_exchange_strong(ok, op.status);
  }
  if (op.parent) {
    --op.parent->pendingChildren;
    if (op.parent->status == CONCORD_OK)
      op.parent->status = op.status;
  } else if (op.stream) {
    concord_stream &stream = *op.stream;
    stream.head = op.nextInStream;
    if (!stream.head)
      stream.tail = nullptr;
    ++stream.completed;
    if (op.status != CONCORD_OK && stream.status == CONCORD_OK) {
      stream.status = op.status;
      stream.firstError = lastError();
    }
  }
  if (op.pooled)
    giveBack(context, &op);
}

void concord::rt::breakComm(Op &op, int32_t status, int died) {
  Comm &comm = *op.comm;
  BrokenWord word{status, comm.me, died,
                  isMessage(op) ? uint16_t(0) : sequenceOf(op)};
  op.status = status;
  op.state = Op::State::Done;
  if (op.bounce) {
    comm.context->heap.release(op.bounce);
    op.bounce = nullptr;
  }
  if (comm.status == CONCORD_OK) {
    comm.status = status;
    comm.firstError = lastError();
    tellBroken(comm, word);
    // What the plan has after this will not come either.
    if (Gate *gate = comm.context->gate.get();
        gate && gate->domainOf(comm) >= 0)
      gate->fail(status, comm.firstError);
  }
  uint64_t none = 0;
  comm.block.header->broken.compare_exchange_strong(none, word.pack());
  comm.context->segment->announce();
}

static int32_t brokenStatus(const Comm &comm) {
  return fail(comm.status == CONCORD_ERROR_REVOKED ? CONCORD_ERROR_REVOKED
                                                   : CONCORD_ERROR_BROKEN,
              "communicator '%s' is broken: %s", comm.name.c_str(),
              comm.firstError.c_str());
}

/// A group or a stream's wait for an event. True when it got further.
static bool advanceStreamOp(Context &context, Op &op) {
  if (!mayStart(op))
    return false;
  bool moved = false;
  if (!op.started) {
    op.started = true;
    moved = true;
  }
  if (op.eventWait) {
    if (op.waitStream && op.waitStream->completed < op.waitTicket)
      return moved;
  } else if (op.pendingChildren != 0) {
    return moved;
  }
  op.state = Op::State::Done;
  retire(context, op);
  return true;
}

bool concord::rt::progress(Context &context) {
  if (context.inFlight == 0)
    return false;
  // The highest priority of what waits for its peers.
  int32_t waiting = INT32_MIN;
  for (size_t i = 0; i < context.activeComms.size(); ++i) {
    Comm &comm = *context.activeComms[i];
    // What is behind an operation on its own communicator cannot start before
    // it has ended. What has low priority stays out of the way of computation,
    // too.
    bool alone = context.activeComms.size() == 1 &&
                 comm.messages.size() + (comm.head != nullptr) == 1;
    uint64_t quantum = alone && comm.priority >= 0 ? kLoneQuantum
                       : comm.priority < waiting   ? kUrgentQuantum
                                                   : kSharedQuantum;
    if (Op *op = comm.head;
        op && mayStart(*op) &&
        (comm.status != CONCORD_OK || admit(context, *op))) {
      if (comm.status != CONCORD_OK) {
        op->status = brokenStatus(comm);
        op->state = Op::State::Done;
      }
      Progress result = op->state == Op::State::Done
                            ? Progress::Done
                            : advanceCollective(*op, quantum);
      if (result == Progress::Done)
        retire(context, *op);
      // Something of higher priority may be ready by now.
      if (result != Progress::Blocked)
        return true;
      waiting = std::max(waiting, comm.priority);
    }
    for (Op *op : comm.messages) {
      if (!mayStart(*op) || (comm.status == CONCORD_OK && !admit(context, *op)))
        continue;
      if (comm.status != CONCORD_OK) {
        op->status = brokenStatus(comm);
        op->state = Op::State::Done;
      }
      Progress result = op->state == Op::State::Done
                            ? Progress::Done
                            : advanceMessage(*op, quantum);
      if (result == Progress::Done)
        retire(context, *op);
      if (result != Progress::Blocked)
        return true;
    }
  }
  for (Op *op : context.streamOps)
    if (advanceStreamOp(context, *op))
      return true;
  return false;
}

void concord::rt::poll(Context &context, bool computing) {
  bool shared = context.threadLevel == CONCORD_THREAD_MULTIPLE;
  if (shared ? !context.mutex.try_lock() : context.inFlight == 0)
    return;
  context.computing = computing;
  progress(context);
  context.computing = false;
  if (shared)
    context.mutex.unlock();
}

/// Break whatever in-flight operation cannot complete any more. True if one was
/// found.
static bool sweep(Context &context, Waiter &waiter) {
  for (Comm *comm : context.activeComms) {
    auto check = [&](Op *op) {
      if (!op || op->state == Op::State::Done || !mayStart(*op))
        return false;
      int32_t status = waiter.failure(*op);
      if (status == CONCORD_OK)
        return false;
      // What the peer wrote before it died is visible now: look once more.
      std::string words = lastError();
      uint64_t before = op->sequence;
      Op::State state = op->state;
      Progress last = !op->admitted    ? Progress::Blocked
                      : isMessage(*op) ? advanceMessage(*op, kLoneQuantum)
                                       : advanceCollective(*op, kLoneQuantum);
      if (last == Progress::Blocked && op->state == state &&
          op->sequence == before) {
        fail(status, "%s", words.c_str());
        breakComm(*op, status, waiter.died());
      }
      if (op->state == Op::State::Done)
        retire(context, *op);
      return true;
    };
    if (check(comm->head))
      return true;
    for (Op *op : comm->messages)
      if (check(op))
        return true;
  }
  return false;
}

/// Pass time while blocked. The lock of THREAD_MULTIPLE is open meanwhile.
static bool pauseOpen(Context &context, Waiter &waiter, const Op *op) {
  if (context.threadLevel != CONCORD_THREAD_MULTIPLE)
    return waiter.pause(op);
  waiter.prepare(op);
  context.mutex.unlock();
  bool look = waiter.pause(nullptr);
  context.mutex.lock();
  return look;
}

void concord::rt::passTime(Context &context, Waiter &waiter, const Op *op) {
  if (pauseOpen(context, waiter, op))
    sweep(context, waiter);
}

/// The earliest issue that is not finished; null if there is none.
static Op *oldest(Context &context) {
  Op *first = nullptr;
  for (Comm *comm : context.activeComms) {
    if (Op *op = comm->head; op && (!first || op->number < first->number))
      first = op;
    for (Op *op : comm->messages)
      if (!first || op->number < first->number)
        first = op;
  }
  return first;
}

int32_t concord::rt::waitDevice(Context &context) {
  uint64_t last = context.issues.latest();
  HostWaiting note(context.logBlock, issuelog::HostState::DeviceSync,
                   "concord_device_synchronize");
  Waiter waiter(context, true);
  auto busy = [&] {
    Op *op = oldest(context);
    return (op && op->number <= last) ||
           std::any_of(context.streamOps.begin(), context.streamOps.end(),
                       [&](const Op *each) { return each->number <= last; });
  };
  while (busy()) {
    if (progress(context)) {
      waiter.restart();
      continue;
    }
    // Not with the operation: it may be another thread's, and gone by then.
    passTime(context, waiter, nullptr);
  }
  // Who waits here instead of for each stream learns the same.
  for (const concord_stream *stream : context.streams)
    if (stream->status != CONCORD_OK)
      return fail(stream->status, "%s", stream->firstError.c_str());
  return CONCORD_OK;
}

int32_t concord::rt::waitFor(Op &op) {
  Context &context = op.comm ? *op.comm->context : *op.stream->context;
  Waiter waiter(context);
  while (op.state != Op::State::Done) {
    if (context.inFlight == 0)
      return fail(CONCORD_ERROR_INTERNAL, "%s is waited for but not in flight",
                  describe(op).c_str());
    if (progress(context)) {
      waiter.restart();
      continue;
    }
    if (pauseOpen(context, waiter, &op) && op.state != Op::State::Done)
      sweep(context, waiter);
  }
  // The words may have been another thread's.
  if (op.status != CONCORD_OK && op.comm && op.comm->status == op.status)
    return fail(op.status, "%s", op.comm->firstError.c_str());
  return op.status;
}

int32_t concord::rt::waitStream(concord_stream &stream, uint64_t ticket) {
  Context &context = *stream.context;
  Waiter waiter(context, true); // its operations may be another thread's
  if (stream.priority < 0)
    waiter.sleepEarly();
  while (stream.completed < ticket) {
    if (progress(context)) {
      waiter.restart();
      continue;
    }
    if (pauseOpen(context, waiter, stream.head) && stream.completed < ticket)
      sweep(context, waiter);
  }
  if (stream.status != CONCORD_OK)
    return fail(stream.status, "%s", stream.firstError.c_str());
  return CONCORD_OK;
}

int32_t concord::rt::runNow(Op &op) {
  Comm &comm = *op.comm;
  Context &context = *comm.context;
  if (comm.status != CONCORD_OK)
    return brokenStatus(comm);
  if (context.inFlight != 0 || context.threadLevel == CONCORD_THREAD_MULTIPLE ||
      isMessage(op)) {
    enqueue(op);
    return waitFor(op);
  }
  // The common case: nothing else to look after.
  op.state = Op::State::Queued;
  op.admitted = true;
  op.instance = comm.instances++;
  context.issues.issue(op, comm.logDomain, 0);
  context.issues.state(op, issuelog::State::Started);
  return runOn(op);
}

int32_t concord::rt::runOn(Op &op) {
  Context &context = *op.comm->context;
  auto ended = [&] {
    context.issues.state(op, op.status == CONCORD_OK
                                 ? issuelog::State::Completed
                                 : issuelog::State::Failed);
    return op.status;
  };
  Waiter waiter(context);
  for (;;) {
    Progress result = advanceCollective(op, kLoneQuantum);
    if (result == Progress::Done)
      return ended();
    if (result == Progress::Advanced) {
      waiter.restart();
      continue;
    }
    if (!waiter.pause(&op))
      continue;
    if (int32_t status = waiter.failure(op)) {
      std::string words = lastError();
      Op::State before = op.state;
      result = advanceCollective(op, kLoneQuantum);
      if (result == Progress::Done)
        return ended();
      if (result == Progress::Advanced || op.state != before)
        continue;
      fail(status, "%s", words.c_str());
      breakComm(op, status, waiter.died());
      return ended();
    }
  }
}
