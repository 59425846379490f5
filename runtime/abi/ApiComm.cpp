//===- ApiComm.cpp - C entry points: communicators, streams -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Communicators, streams and events.
//
//===----------------------------------------------------------------------===//

#include "abi/Api.h"
#include "context/Grow.h"
#include "context/Lifecycle.h"
#include "diagnosis/Watchdog.h"
#include "engine/Exchange.h"
#include "engine/Span.h"

#include <algorithm>

using namespace concord;
using namespace concord::rt;

namespace {

struct SplitWord {
  int32_t color, key;
};

std::string nameOf(const concord_comm_config &config, const Comm *parent,
                   uint32_t number) {
  if (config.name && *config.name)
    return config.name;
  return (parent ? parent->name : std::string("group")) + "." +
         std::to_string(number);
}

int32_t checkAlive(const concord_stream &stream, const char *what) {
  return stream.destroyed ? fail(CONCORD_ERROR_INVALID_ARGUMENT,
                                 "%s: the stream was destroyed already", what)
                          : CONCORD_OK;
}

int32_t checkAlive(const concord_event &event, const char *what) {
  return event.destroyed ? fail(CONCORD_ERROR_INVALID_ARGUMENT,
                                "%s: the event was destroyed already", what)
                         : CONCORD_OK;
}

int32_t checkIdle(const Comm &comm, const char *what) {
  if (comm.head || !comm.messages.empty())
    return fail(CONCORD_ERROR_BUSY,
                "%s: operations are in flight on communicator '%s'", what,
                comm.name.c_str());
  if (comm.context->inGroup([&](const Op &op) { return op.comm == &comm; }))
    return fail(CONCORD_ERROR_BUSY,
                "%s: a group that is open has operations on communicator "
                "'%s'",
                what, comm.name.c_str());
  return CONCORD_OK;
}

/// What a pool gave belongs to it, and its parent must outlive it.
int32_t checkPools(const Comm &comm, const char *what) {
  for (const concord_pool *pool : comm.context->pools) {
    if (pool->parent == &comm)
      return fail(CONCORD_ERROR_BUSY,
                  "%s: a pool over communicator '%s' is left; destroy it first",
                  what, comm.name.c_str());
    for (const auto &kept : pool->kept)
      if (kept.comm == &comm)
        return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                    "%s: communicator '%s' belongs to a pool; give it back "
                    "with concord_pool_release",
                    what, comm.name.c_str());
  }
  return CONCORD_OK;
}

/// Nothing but the communicator of all ranks may be left of a grown context
/// that is to go with it.
int32_t checkEmpty(const Context &context) {
  size_t others = context.comms.size() - 1 + context.streams.size() +
                  context.events.size() + context.programs.size() +
                  context.pools.size();
  if (others == 0)
    return CONCORD_OK;
  return fail(CONCORD_ERROR_BUSY,
              "concord_comm_destroy: %zu communicators, streams, events, "
              "programs or pools are left in the grown communicator's context; "
              "destroy them first, or finalize the context",
              others);
}

} // namespace

int32_t concord_comm_world(concord_context *context, concord_comm **out) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(out);
  *out = context->worldComm;
  return CONCORD_OK;
}

int32_t concord_comm_split(concord_comm *parent, int32_t color, int32_t key,
                           const concord_comm_config *config,
                           concord_comm **out) {
  CONCORD_NOT_NULL(parent);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(config);
  *out = nullptr;
  return guarded([&] {
    Context &context = *parent->context;
    CONCORD_ENTER(context);
    if (int32_t status = checkAlive(*parent, "concord_comm_split"))
      return status;
    concord_comm_config settings = takeStruct(config);
    uint32_t number = ++parent->splits;
    std::vector<SplitWord> all = tellAll(*parent, SplitWord{color, key});
    if (color < 0)
      return int32_t(CONCORD_OK);
    std::vector<int> members;
    for (int i = 0; i < parent->size; ++i)
      if (all[i].color == color)
        members.push_back(i);
    std::sort(members.begin(), members.end(), [&](int a, int b) {
      return std::pair(all[a].key, a) < std::pair(all[b].key, b);
    });
    std::vector<int32_t> ranks;
    for (int member : members)
      ranks.push_back(parent->ranks[member]);
    *out =
        makeComm(context, hashWords({parent->key, number, uint64_t(color), 1}),
                 std::move(ranks), nameOf(settings, parent, number),
                 settings.priority, true);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_comm_create_group(concord_context *context,
                                  const int32_t *worldRanks, uint32_t count,
                                  const concord_comm_config *config,
                                  concord_comm **out) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(worldRanks);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(config);
  *out = nullptr;
  return guarded([&] {
    CONCORD_ENTER(*context);
    concord_comm_config settings = takeStruct(config);
    if (count == 0 || count > uint32_t(context->world))
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "a group of %u ranks in a world of %d", count,
                  context->world);
    std::vector<int32_t> ranks(worldRanks, worldRanks + count);
    uint64_t seen = 0, key = hashWords({count, 2});
    for (int32_t rank : ranks) {
      if (rank < 0 || rank >= context->world || seen >> rank & 1)
        return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                    "rank %d of the group is outside the world or listed twice",
                    rank);
      seen |= uint64_t(1) << rank;
      key = hashWords({key, uint64_t(rank)});
    }
    std::string name = nameOf(settings, nullptr, count);
    key = hashText(key, name);
    auto &made = context->groupsMade;
    auto times = std::find_if(made.begin(), made.end(), [&](const auto &entry) {
      return entry.first == key;
    });
    if (times == made.end())
      times = made.insert(made.end(), {key, 0});
    *out = makeComm(*context, hashWords({key, ++times->second}),
                    std::move(ranks), name, settings.priority, true);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_comm_shrink(concord_comm *parent,
                            const concord_comm_config *config,
                            concord_comm **out) {
  CONCORD_NOT_NULL(parent);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(config);
  *out = nullptr;
  return guarded([&] {
    Context &context = *parent->context;
    CONCORD_ENTER(context);
    if (int32_t status = checkAlive(*parent, "concord_comm_shrink"))
      return status;
    concord_comm_config settings = takeStruct(config);
    // Another context, of a communicator that grew, may know of a death before
    // this one's watchdog does.
    if (context.watchdog)
      context.watchdog->lookForDead();
    // A rank's state in the job's memory is the one that all survivors see.
    std::vector<int32_t> ranks;
    uint64_t mask = 0;
    for (int32_t rank : parent->ranks) {
      uint32_t state =
          context.segment->slot(rank).state.load(std::memory_order_acquire);
      if (state != CONCORD_RANK_DEAD && state != CONCORD_RANK_FINALIZED) {
        ranks.push_back(rank);
        mask |= uint64_t(1) << rank;
      }
    }
    uint32_t number = ++parent->splits;
    // One may die while they do this, seen by some before and by others after.
    // The first decides for all; if the dead one is among the members, all fail
    // alike and can shrink again. Between hosts there is no first: those who
    // have seen the same deaths meet.
    bool first = !context.hosts;
    *out =
        makeComm(context, hashWords({parent->key, number, first ? 0 : mask, 3}),
                 std::move(ranks), nameOf(settings, parent, number),
                 settings.priority, true, first);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_comm_grow(concord_comm *parent, int32_t newWorld,
                          const concord_unique_id *id, concord_comm **out) {
  CONCORD_NOT_NULL(parent);
  CONCORD_NOT_NULL(out);
  *out = nullptr;
  return guarded([&] {
    if (int32_t status = checkAlive(*parent, "concord_comm_grow"))
      return status;
    *out = growComm(*parent, newWorld, id)->worldComm;
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_comm_context(concord_comm *comm, concord_context **out) {
  CONCORD_NOT_NULL(comm);
  CONCORD_NOT_NULL(out);
  *out = comm->context;
  return CONCORD_OK;
}

int32_t concord_comm_rank(const concord_comm *comm, int32_t *rank,
                          int32_t *size) {
  CONCORD_NOT_NULL(comm);
  if (rank)
    *rank = comm->me;
  if (size)
    *size = comm->size;
  return CONCORD_OK;
}

int32_t concord_comm_drain(concord_comm *comm) {
  CONCORD_NOT_NULL(comm);
  return guarded([&] {
    CONCORD_ENTER(*comm->context);
    if (int32_t status = checkAlive(*comm, "concord_comm_drain"))
      return status;
    while (comm->head)
      waitFor(*comm->head);
    while (!comm->messages.empty())
      waitFor(*comm->messages.front());
    if (comm->status != CONCORD_OK)
      return fail(comm->status, "%s", comm->firstError.c_str());
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_comm_revoke(concord_comm *comm) {
  CONCORD_NOT_NULL(comm);
  if (int32_t status = checkAlive(*comm, __func__))
    return status;
  comm->block.header->revoked.store(1, std::memory_order_release);
  comm->context->segment->announce();
  if (comm->span) {
    Notice notice;
    notice.kind = Notice::Kind::Revoked;
    notice.key = comm->key;
    comm->context->hosts->mesh().tell(comm->span->remoteRanks, notice);
  }
  return CONCORD_OK;
}

int32_t concord_comm_abort(concord_comm *comm) {
  CONCORD_NOT_NULL(comm);
  return guarded([&] {
    Context &context = *comm->context;
    CONCORD_ENTER(context);
    if (int32_t status = checkAlive(*comm, "concord_comm_abort"))
      return status;
    if (comm == context.worldComm)
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "the communicator of all ranks belongs to the context");
    if (int32_t status = checkPools(*comm, "concord_comm_abort"))
      return status;
    if (context.inGroup([&](const Op &op) { return op.comm == comm; }))
      return checkIdle(*comm, "concord_comm_abort");
    fail(CONCORD_ERROR_ABORTED, "rank %d aborted communicator '%s'",
         context.rank, comm->name.c_str());
    Op op;
    op.comm = comm;
    breakComm(op, CONCORD_ERROR_ABORTED);
    while (comm->head || !comm->messages.empty())
      progress(context);
    dropComm(comm);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_comm_destroy(concord_comm *comm) {
  if (!comm)
    return CONCORD_OK;
  Context &context = *comm->context;
  int32_t status = guarded([&] {
    CONCORD_ENTER(context);
    if (int32_t status = checkAlive(*comm, "concord_comm_destroy"))
      return status;
    if (comm == context.worldComm && !context.grown)
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "the communicator of all ranks belongs to the context");
    if (int32_t status = checkIdle(*comm, "concord_comm_destroy"))
      return status;
    if (int32_t status = checkPools(*comm, "concord_comm_destroy"))
      return status;
    if (comm == context.worldComm)
      return checkEmpty(context);
    dropComm(comm);
    return int32_t(CONCORD_OK);
  });
  // The context of a grown communicator goes with it.
  return status == CONCORD_OK && comm == context.worldComm
             ? concord_context_finalize(&context)
             : status;
}

int32_t concord_comm_last_form(const concord_comm *comm, char *text,
                               uint64_t bytes) {
  CONCORD_NOT_NULL(comm);
  CONCORD_NOT_NULL(text);
  if (int32_t status = checkAlive(*comm, __func__))
    return status;
  if (bytes == 0)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT, "no room for the text");
  std::string words = formOf(*comm);
  uint64_t n = std::min<uint64_t>(words.size(), bytes - 1);
  std::memcpy(text, words.data(), n);
  text[n] = 0;
  return CONCORD_OK;
}

int32_t concord_comm_async_error(concord_comm *comm, int32_t *status) {
  CONCORD_NOT_NULL(comm);
  CONCORD_NOT_NULL(status);
  if (int32_t gone = checkAlive(*comm, __func__))
    return gone;
  *status = comm->status;
  if (*status == CONCORD_OK)
    if (uint64_t broken = comm->block.header->broken.load())
      *status = BrokenWord::unpack(broken).status;
  if (*status == CONCORD_OK && comm->block.header->revoked.load())
    *status = CONCORD_ERROR_REVOKED;
  return CONCORD_OK;
}

int32_t concord_stream_create(concord_context *context, int32_t priority,
                              concord_stream **out) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(out);
  return guarded([&] {
    CONCORD_ENTER(*context);
    auto stream = std::make_unique<concord_stream>();
    stream->context = context;
    stream->priority = priority;
    stream->id = ++context->streamsMade;
    context->streams.push_back(stream.get());
    *out = stream.release();
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_stream_destroy(concord_stream *stream) {
  if (!stream)
    return CONCORD_OK;
  return guarded([&] {
    Context &context = *stream->context;
    CONCORD_ENTER(context);
    if (int32_t status = checkAlive(*stream, "concord_stream_destroy"))
      return status;
    if (stream->head)
      return fail(CONCORD_ERROR_BUSY, "the stream still has operations");
    if (context.inGroup([&](const Op &op) { return op.stream == stream; }))
      return fail(CONCORD_ERROR_BUSY,
                  "a group that is open has operations on the stream");
    // Its events have all happened.
    for (concord_event *event : context.events)
      if (event->stream == stream)
        event->stream = nullptr;
    for (Op *op : context.streamOps)
      if (op->waitStream == stream)
        op->waitStream = nullptr;
    std::erase(context.streams, stream);
    context.streamGraves.bury(stream);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_stream_synchronize(concord_stream *stream) {
  CONCORD_NOT_NULL(stream);
  return guarded([&] {
    CONCORD_ENTER(*stream->context);
    if (int32_t status = checkAlive(*stream, "concord_stream_synchronize"))
      return status;
    return waitStream(*stream, stream->enqueued);
  });
}

int32_t concord_stream_query(concord_stream *stream) {
  CONCORD_NOT_NULL(stream);
  return guarded([&] {
    CONCORD_ENTER(*stream->context);
    if (int32_t status = checkAlive(*stream, "concord_stream_query"))
      return status;
    progress(*stream->context);
    if (stream->head)
      return fail(CONCORD_ERROR_NOT_READY, "the stream is not empty");
    if (stream->status != CONCORD_OK)
      return fail(stream->status, "%s", stream->firstError.c_str());
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_stream_wait_event(concord_stream *stream,
                                  concord_event *event) {
  CONCORD_NOT_NULL(stream);
  CONCORD_NOT_NULL(event);
  return guarded([&] {
    Context &context = *stream->context;
    CONCORD_ENTER(context);
    if (int32_t status = checkAlive(*stream, "concord_stream_wait_event"))
      return status;
    if (int32_t status = checkAlive(*event, "concord_stream_wait_event"))
      return status;
    if (event->context != &context)
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "stream and event belong to different contexts");
    if (!event->stream || event->stream == stream ||
        event->stream->completed >= event->ticket)
      return int32_t(CONCORD_OK);
    Op *op = takeOp(context);
    op->request.kind = Kind::Group;
    op->comm = nullptr;
    op->stream = stream;
    op->eventWait = true;
    op->waitStream = event->stream;
    op->waitTicket = event->ticket;
    op->pooled = true;
    enqueue(*op);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_event_create(concord_context *context, concord_event **out) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(out);
  return guarded([&] {
    CONCORD_ENTER(*context);
    auto event = std::make_unique<concord_event>();
    event->context = context;
    context->events.push_back(event.get());
    *out = event.release();
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_event_destroy(concord_event *event) {
  if (!event)
    return CONCORD_OK;
  return guarded([&] {
    CONCORD_ENTER(*event->context);
    if (int32_t status = checkAlive(*event, "concord_event_destroy"))
      return status;
    std::erase(event->context->events, event);
    event->context->eventGraves.bury(event);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_event_record(concord_event *event, concord_stream *stream) {
  CONCORD_NOT_NULL(event);
  CONCORD_NOT_NULL(stream);
  CONCORD_ENTER(*event->context);
  if (int32_t status = checkAlive(*event, __func__))
    return status;
  if (int32_t status = checkAlive(*stream, __func__))
    return status;
  if (event->context != stream->context)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "stream and event belong to different contexts");
  event->stream = stream;
  event->ticket = stream->enqueued;
  return CONCORD_OK;
}

int32_t concord_event_query(concord_event *event) {
  CONCORD_NOT_NULL(event);
  return guarded([&] {
    CONCORD_ENTER(*event->context);
    if (int32_t status = checkAlive(*event, "concord_event_query"))
      return status;
    progress(*event->context);
    if (!event->stream || event->stream->completed >= event->ticket)
      return int32_t(CONCORD_OK);
    return fail(CONCORD_ERROR_NOT_READY, "the event has not happened");
  });
}

int32_t concord_event_synchronize(concord_event *event) {
  CONCORD_NOT_NULL(event);
  return guarded([&] {
    CONCORD_ENTER(*event->context);
    if (int32_t status = checkAlive(*event, "concord_event_synchronize"))
      return status;
    return event->stream ? waitStream(*event->stream, event->ticket)
                         : int32_t(CONCORD_OK);
  });
}
