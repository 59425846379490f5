//===- Comm.cpp - Making and releasing communicators ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Members find each other's flags by a key that each computes for itself: the
// first to come takes a block from the job's table, the others find it there. A
// block goes back, zeroed, when every member has released it.
//
//===----------------------------------------------------------------------===//

#include "context/Context.h"
#include "diagnosis/Error.h"
#include "engine/Engine.h"
#include "engine/Span.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <sys/mman.h>

using namespace concord::rt;

concord_comm::concord_comm() = default;
concord_comm::~concord_comm() = default;

namespace {

/// The lock of the communicator table: names its holder, so that a rank that
/// dies inside does not take the job with it.
class TableLock {
public:
  explicit TableLock(Context &context) : context(context) {
    auto &lock = context.segment->header().commLock;
    uint64_t own = uint64_t(context.rank) + 1;
    int64_t began = nowNanoseconds();
    for (uint64_t free = 0;
         !lock.compare_exchange_weak(free, own, std::memory_order_acquire);
         free = 0) {
      if (free > 0 && free <= uint64_t(context.world)) {
        uint32_t state = context.segment->slot(int(free - 1)).state.load();
        if ((state == CONCORD_RANK_DEAD || state == CONCORD_RANK_FINALIZED) &&
            lock.compare_exchange_strong(free, own, std::memory_order_acquire))
          return;
      }
      if (nowNanoseconds() - began > 10'000'000'000)
        raise(CONCORD_ERROR_TIMEOUT,
              "rank %llu holds the table of communicators for too long",
              (unsigned long long)free - 1);
      ::sched_yield();
    }
  }
  ~TableLock() {
    context.segment->header().commLock.store(0, std::memory_order_release);
  }

private:
  Context &context;
};

} // namespace

uint64_t concord::rt::hashWords(std::initializer_list<uint64_t> words) {
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (uint64_t word : words) {
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return hash | 1; // 0 means free
}

uint64_t concord::rt::hashText(uint64_t seed, const std::string &text) {
  for (char c : text)
    seed = (seed ^ uint8_t(c)) * 0x100000001b3;
  return seed ^ seed >> 31;
}

Comm *concord::rt::makeComm(Context &context, uint64_t key,
                            std::vector<int32_t> ranks, std::string name,
                            int32_t priority, bool synchronise, bool adopt) {
  Segment &segment = *context.segment;
  auto comm = std::make_unique<Comm>();
  comm->again = std::make_unique<Op>();
  comm->context = &context;
  comm->key = key;
  comm->name = std::move(name);
  comm->priority = priority;
  uint64_t bytes = 0;
  auto setMembers = [&](std::vector<int32_t> members) {
    comm->size = int(members.size());
    comm->ranks = std::move(members);
    auto mine = std::find(comm->ranks.begin(), comm->ranks.end(), context.rank);
    if (mine == comm->ranks.end())
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "rank %d is not a member of communicator '%s'", context.rank,
            comm->name.c_str());
    comm->me = int(mine - comm->ranks.begin());
    bytes = CommBlock::bytes(comm->size);
  };
  setMembers(std::move(ranks));
  {
    TableLock lock(context);
    CommEntry *table = segment.comms();
    int found = -1, free = -1;
    for (unsigned i = 0; i < kMaxComms && found < 0; ++i) {
      if (table[i].key == key)
        found = int(i);
      // A free entry whose block has the right size, else one without a block.
      else if (table[i].key == 0 &&
               (free < 0 ||
                (table[i].bytes == bytes && table[free].bytes != bytes)) &&
               (table[i].bytes == bytes || table[i].bytes == 0))
        free = int(i);
    }
    if (found < 0) {
      if (free < 0)
        raise(CONCORD_ERROR_OUT_OF_MEMORY,
              "the job has no room for another communicator (%u at most)",
              kMaxComms);
      CommEntry &entry = table[free];
      if (entry.bytes == 0) {
        uint64_t &used = segment.header().commBytes;
        if (used > kCommAreaBytes || bytes > kCommAreaBytes - used)
          raise(CONCORD_ERROR_OUT_OF_MEMORY,
                "the job has no room for the flags of another communicator");
        entry.offset = used;
        entry.bytes = bytes;
        used += bytes;
      }
      if (!entry.holds(bytes))
        raise(CONCORD_ERROR_CORRUPT,
              "the job's table of communicators is damaged: its entry %d lies "
              "outside the memory for flags",
              free);
      entry.size = uint32_t(comm->size);
      entry.released = 0;
      auto *header =
          reinterpret_cast<CommHeader *>(segment.commArea() + entry.offset);
      std::strncpy(header->name, comm->name.c_str(), sizeof header->name - 1);
      for (int i = 0; i < comm->size; ++i)
        header->ranks[i] = static_cast<unsigned char>(comm->ranks[i]);
      entry.key = key;
      found = free;
    }
    CommEntry &entry = table[found];
    if (adopt && entry.size >= 1 && entry.size <= uint32_t(context.world) &&
        entry.holds(sizeof(CommHeader))) {
      auto *header =
          reinterpret_cast<CommHeader *>(segment.commArea() + entry.offset);
      std::vector<int32_t> members(header->ranks, header->ranks + entry.size);
      uint64_t seen = 0;
      for (int32_t rank : members) {
        if (rank >= context.world || seen >> rank & 1)
          raise(CONCORD_ERROR_CORRUPT,
                "the members of communicator '%s' in the job's memory are "
                "damaged: rank %d of %d, or twice",
                comm->name.c_str(), rank, context.world);
        seen |= uint64_t(1) << rank;
      }
      setMembers(std::move(members));
    }
    if (entry.size != uint32_t(comm->size) || entry.bytes != bytes ||
        !entry.holds(bytes))
      raise(CONCORD_ERROR_MISMATCH,
            "members disagree about the size of communicator '%s'",
            comm->name.c_str());
    comm->tableIndex = found;
    comm->block = CommBlock(segment.commArea() + entry.offset, comm->size);
    // Slots are used in turn, so that their pages would otherwise be first
    // touched in some later step.
    volatile const char *page = segment.commArea() + entry.offset;
    for (uint64_t at = 0; at < bytes; at += 4096)
      (void)page[at];
  }
  size_t n = size_t(comm->size);
  comm->in.resize(n);
  comm->out.resize(n);
  comm->peerDisplacement.resize(n);
  for (auto *list : {&comm->sendTicket, &comm->receiveTicket, &comm->sendDone,
                     &comm->receiveDone, &comm->sendPart, &comm->receivePart})
    list->assign(n, 0);
  comm->messages.reserve(16);
  makeSpan(*comm);
  // Room for every communicator, so that activating one never allocates.
  context.comms.push_back(comm.get());
  context.activeComms.reserve(context.comms.size());
  comm->logDomain = context.issues.addDomain(comm->name, comm->ranks);
  Comm *made = comm.release();
  if (synchronise && made->size > 1) {
    Op barrier;
    barrier.request.kind = Kind::Barrier;
    int32_t status = prepare(barrier, *made);
    if (status == CONCORD_OK)
      status = runNow(barrier);
    // Only who has left the barrier, so that all have come in, can have issued
    // something else or revoked it: it was made, and its next operation says
    // what became of it.
    if (status != CONCORD_OK && status != CONCORD_ERROR_MISMATCH &&
        status != CONCORD_ERROR_REVOKED) {
      std::string words = lastError();
      dropComm(made);
      throw Error(status, words);
    }
  }
  return made;
}

void concord::rt::dropComm(Comm *comm) {
  Context &context = *comm->context;
  auto &list = context.comms;
  list.erase(std::find(list.begin(), list.end(), comm));
  if (comm->active) {
    auto &active = context.activeComms;
    active.erase(std::find(active.begin(), active.end(), comm));
  }
  if (comm->staging)
    context.heap.release(comm->staging);
  dropSpan(*comm);
  {
    TableLock lock(context);
    CommEntry &entry = context.segment->comms()[comm->tableIndex];
    if (++entry.released >= entry.size) {
      // Where the block was found, whatever the table says by now.
      ::madvise(comm->block.header, CommBlock::bytes(comm->size),
                MADV_REMOVE); // reads as zeros from now on
      entry.key = 0;
    }
  }
  comm->staging = nullptr;
  context.commGraves.bury(comm);
}
