//===- ApiPool.cpp - C entry points: pools of communicators ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whether a communicator is reused, made or evicted must be decided alike by
// all its members. So every member of the parent keeps the whole list, of its
// own communicators and of the others', and every decision depends on nothing
// but the list and the arguments. A hit needs no message at all.
//
//===----------------------------------------------------------------------===//

#include "abi/Api.h"

using namespace concord::rt;

namespace {

/// Staging that a member may come to hold.
constexpr uint64_t kStagingBytes = uint64_t(1) << 20;

struct Use {
  uint64_t comms = 0, bytes = 0, connections = 0;
};

Use total(const concord_pool &pool) {
  Use use;
  for (const auto &kept : pool.kept) {
    ++use.comms;
    use.bytes += kept.bytes;
    use.connections += kept.connections;
  }
  return use;
}

bool fits(const concord_pool &pool, const Use &use,
          const concord_pool::Kept &more) {
  return (!pool.maxComms || use.comms < pool.maxComms) &&
         (!pool.maxBytes || use.bytes + more.bytes <= pool.maxBytes) &&
         (!pool.maxConnections ||
          use.connections + more.connections <= pool.maxConnections);
}

void drop(concord_pool &pool, size_t index) {
  if (Comm *comm = pool.kept[index].comm)
    dropComm(comm);
  pool.kept.erase(pool.kept.begin() + ptrdiff_t(index));
}

bool busy(const Comm *comm) {
  return comm && (comm->head || !comm->messages.empty());
}

} // namespace

int32_t concord_pool_create(concord_comm *parent,
                            const concord_pool_config *config,
                            concord_pool **out) {
  CONCORD_NOT_NULL(parent);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(config);
  *out = nullptr;
  return guarded([&] {
    CONCORD_ENTER(*parent->context);
    if (int32_t status = checkAlive(*parent, "concord_pool_create"))
      return status;
    concord_pool_config settings = takeStruct(config);
    auto pool = std::make_unique<concord_pool>();
    pool->parent = parent;
    pool->number = ++parent->pools;
    pool->maxComms = settings.max_comms;
    pool->maxBytes = settings.max_bytes;
    pool->maxConnections = settings.max_connections;
    parent->context->pools.push_back(pool.get());
    *out = pool.release();
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_pool_acquire(concord_pool *pool, const int32_t *members,
                             uint32_t count, const concord_comm_config *config,
                             int32_t resident, uint32_t *ticket,
                             concord_comm **out) {
  CONCORD_NOT_NULL(pool);
  CONCORD_NOT_NULL(members);
  CONCORD_NOT_NULL(ticket);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(config);
  *out = nullptr;
  return guarded([&] {
    Comm &parent = *pool->parent;
    Context &context = *parent.context;
    CONCORD_ENTER(context);
    concord_comm_config settings = takeStruct(config);
    if (count == 0 || count > uint32_t(parent.size))
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "a communicator of %u members of '%s', which has %d", count,
                  parent.name.c_str(), parent.size);
    concord_pool::Kept wanted;
    wanted.members.assign(members, members + count);
    uint64_t seen = 0, key = hashWords({parent.key, pool->number, count, 4});
    std::vector<int32_t> ranks;
    bool mine = false;
    for (int32_t member : wanted.members) {
      if (member < 0 || member >= parent.size || seen >> member & 1)
        return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                    "member %d is not in '%s' or listed twice", member,
                    parent.name.c_str());
      seen |= uint64_t(1) << member;
      key = hashWords({key, uint64_t(member)});
      ranks.push_back(parent.ranks[size_t(member)]);
      mine |= member == parent.me;
    }
    ++pool->uses;
    for (auto &kept : pool->kept)
      if (!kept.inUse && kept.members == wanted.members &&
          kept.priority == settings.priority) {
        if (kept.comm && kept.comm->status != CONCORD_OK)
          return fail(CONCORD_ERROR_BROKEN,
                      "communicator '%s' was released broken; release it with "
                      "discard: %s",
                      kept.comm->name.c_str(), kept.comm->firstError.c_str());
        kept.inUse = true;
        kept.resident |= resident != 0;
        kept.lastUse = pool->uses;
        ++pool->hits;
        *ticket = kept.ticket;
        *out = kept.comm;
        return int32_t(CONCORD_OK);
      }

    wanted.priority = settings.priority;
    wanted.resident = resident != 0;
    wanted.inUse = true;
    wanted.lastUse = pool->uses;
    wanted.bytes = CommBlock::bytes(int(count)) + count * kStagingBytes;
    wanted.connections = uint64_t(count) * (count - 1) / 2;
    // See whether it can be made room for before anything is given up.
    Use left = total(*pool);
    for (const auto &kept : pool->kept)
      if (!kept.inUse && !kept.resident) {
        --left.comms;
        left.bytes -= kept.bytes;
        left.connections -= kept.connections;
      }
    if (!fits(*pool, left, wanted))
      return fail(
          CONCORD_ERROR_OUT_OF_MEMORY,
          "the pool of '%s' has no room for a communicator of %u: %llu "
          "communicators, %llu bytes and %llu connections are in use or "
          "resident; its budgets are %u, %llu and %llu",
          parent.name.c_str(), count, (unsigned long long)left.comms,
          (unsigned long long)left.bytes, (unsigned long long)left.connections,
          pool->maxComms, (unsigned long long)pool->maxBytes,
          (unsigned long long)pool->maxConnections);
    while (!fits(*pool, total(*pool), wanted)) {
      size_t oldest = pool->kept.size();
      for (size_t i = 0; i < pool->kept.size(); ++i)
        if (!pool->kept[i].inUse && !pool->kept[i].resident &&
            (oldest == pool->kept.size() ||
             pool->kept[i].lastUse < pool->kept[oldest].lastUse))
          oldest = i;
      drop(*pool, oldest);
      ++pool->evictions;
    }
    wanted.ticket = ++pool->tickets;
    ++pool->misses;
    if (mine) {
      std::string name = settings.name && *settings.name
                             ? settings.name
                             : parent.name + ".pool" +
                                   std::to_string(pool->number) + "." +
                                   std::to_string(wanted.ticket);
      wanted.comm = makeComm(context, hashWords({key, wanted.ticket}),
                             std::move(ranks), name, settings.priority, true);
    }
    *ticket = wanted.ticket;
    *out = wanted.comm;
    pool->kept.push_back(std::move(wanted));
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_pool_release(concord_pool *pool, uint32_t ticket,
                             int32_t discard) {
  CONCORD_NOT_NULL(pool);
  return guarded([&] {
    CONCORD_ENTER(*pool->parent->context);
    for (size_t i = 0; i < pool->kept.size(); ++i) {
      concord_pool::Kept &kept = pool->kept[i];
      if (kept.ticket != ticket || !(kept.inUse || discard))
        continue;
      if (busy(kept.comm))
        return fail(CONCORD_ERROR_BUSY,
                    "concord_pool_release: operations are in flight on "
                    "communicator '%s'; drain it first",
                    kept.comm->name.c_str());
      kept.inUse = false;
      if (discard)
        drop(*pool, i);
      return int32_t(CONCORD_OK);
    }
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "concord_pool_release: nothing with ticket %u is in use",
                ticket);
  });
}

int32_t concord_pool_stats_query(const concord_pool *pool,
                                 concord_pool_stats *out) {
  CONCORD_NOT_NULL(pool);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(out);
  concord_pool_stats value{};
  for (const auto &kept : pool->kept)
    ++(kept.inUse ? value.in_use : value.idle);
  Use use = total(*pool);
  value.bytes = use.bytes;
  value.connections = use.connections;
  value.hits = pool->hits;
  value.misses = pool->misses;
  value.evictions = pool->evictions;
  giveStruct(out, value);
  return CONCORD_OK;
}

int32_t concord_pool_destroy(concord_pool *pool) {
  if (!pool)
    return CONCORD_OK;
  return guarded([&] {
    Context &context = *pool->parent->context;
    CONCORD_ENTER(context);
    for (const auto &kept : pool->kept)
      if (kept.inUse || busy(kept.comm))
        return fail(CONCORD_ERROR_BUSY,
                    "concord_pool_destroy: the communicator with ticket %u is "
                    "in use",
                    kept.ticket);
    while (!pool->kept.empty())
      drop(*pool, pool->kept.size() - 1);
    std::erase(context.pools, pool);
    delete pool;
    return int32_t(CONCORD_OK);
  });
}
