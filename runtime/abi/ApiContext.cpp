//===- ApiContext.cpp - C entry points: jobs, contexts, heap ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Library facts, jobs, contexts, live status and the heap.
//
//===----------------------------------------------------------------------===//

#include "abi/Api.h"
#include "context/Lifecycle.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

using namespace concord::rt;

uint32_t concord_version(void) {
  return CONCORD_VERSION_MAJOR * 10000 + CONCORD_VERSION_MINOR * 100 +
         CONCORD_VERSION_PATCH;
}

uint32_t concord_abi_version(void) { return CONCORD_ABI_VERSION; }

const char *concord_last_error(void) { return lastError(); }

const char *concord_status_name(int32_t status) {
  return statusText(status, 3);
}

const char *concord_status_text(int32_t status, int32_t what) {
  return statusText(status, what < 0 || what > 2 ? 0 : what);
}

int32_t concord_job_create(int32_t world, uint64_t heapBytes,
                           concord_job **out) {
  CONCORD_NOT_NULL(out);
  return guarded([&] {
    auto job = std::make_unique<concord_job>();
    if (heapBytes == 0)
      heapBytes = envBytes("CONCORD_HEAP_BYTES");
    job->segment = Segment::create(world, heapBytes);
    *out = job.release();
    return CONCORD_OK;
  });
}

int32_t concord_job_destroy(concord_job *job) {
  if (!job)
    return CONCORD_OK;
  if (int left = job->contexts.load())
    return fail(CONCORD_ERROR_BUSY, "the job still has %d contexts", left);
  delete job;
  return CONCORD_OK;
}

int32_t concord_unique_id_create(concord_unique_id *out) {
  CONCORD_NOT_NULL(out);
  std::memset(out, 0, sizeof *out);
  std::memcpy(out->bytes, "concord1", 8);
  if (::getrandom(out->bytes + 8, 16, 0) != 16)
    return fail(CONCORD_ERROR_SYSTEM, "getrandom: %s", std::strerror(errno));
  return CONCORD_OK;
}

int32_t concord_context_create(const concord_context_config *config,
                               concord_context **out) {
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(config);
  *out = nullptr;
  return guarded([&] {
    *out = joinJob(takeStruct(config));
    return CONCORD_OK;
  });
}

/// A forked child has a copy of the context, and is not the rank.
static int32_t checkProcess(const concord_context &context, const char *what) {
  if (context.pid == ::getpid())
    return CONCORD_OK;
  return fail(CONCORD_ERROR_INVALID_ARGUMENT,
              "%s: the context of rank %d belongs to process %lld; this is a "
              "fork of it",
              what, context.rank, (long long)context.pid);
}

int32_t concord_context_finalize(concord_context *context) {
  if (!context)
    return CONCORD_OK;
  if (int32_t status = checkProcess(*context, __func__))
    return status;
  return guarded([&] {
    {
      CONCORD_ENTER(*context);
      if (!context->running.empty())
        return fail(CONCORD_ERROR_BUSY, "finalize inside a step of a program");
      // Let what is in flight come to its end, good or bad.
      for (size_t i = 0; i < context->comms.size(); ++i) {
        Comm &comm = *context->comms[i];
        while (comm.head)
          waitFor(*comm.head);
        while (!comm.messages.empty())
          waitFor(*comm.messages.front());
      }
    }
    leaveJob(context, true);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_context_abort(concord_context *context, const char *reason) {
  CONCORD_NOT_NULL(context);
  if (int32_t status = checkProcess(*context, __func__))
    return status;
  abortJob(*context, reason);
  return CONCORD_OK;
}

int32_t concord_context_rank(const concord_context *context, int32_t *rank,
                             int32_t *world) {
  CONCORD_NOT_NULL(context);
  if (rank)
    *rank = context->rank;
  if (world)
    *world = context->world;
  return CONCORD_OK;
}

int32_t concord_context_rank_table(concord_context *context,
                                   concord_rank_entry *entries,
                                   uint32_t count) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(entries);
  for (uint32_t r = 0; r < count && int(r) < context->world; ++r) {
    const concord_rank_entry *entry = &entries[r];
    CONCORD_SIZED(entry);
  }
  for (uint32_t r = 0; r < count && int(r) < context->world; ++r) {
    RankSlot &slot = context->segment->slot(int(r));
    concord_rank_entry value{};
    value.rank = int32_t(r);
    value.pid = slot.pid.load();
    value.core = slot.core;
    value.state = int32_t(slot.state.load(std::memory_order_acquire));
    std::memcpy(value.host, slot.host, sizeof value.host);
    value.host[sizeof value.host - 1] = 0;
    giveStruct(&entries[r], value);
  }
  return CONCORD_OK;
}

int32_t concord_context_device(const concord_context *context, int32_t rank,
                               concord_device_desc *out) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(out);
  if (rank < 0 || rank >= context->world)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "rank %d is outside a world of "
                "%d",
                rank, context->world);
  concord_device_desc value{};
  const RankSlot &slot = context->segment->slot(rank);
  value.kind = context->deviceKinds[size_t(rank)].c_str();
  value.plane = slot.plane;
  value.alignment = slot.alignment;
  value.bandwidth = slot.bandwidth;
  value.visible_id = slot.visible;
  value.physical_id = slot.physical;
  giveStruct(out, value);
  return CONCORD_OK;
}

int32_t concord_context_async_error(concord_context *context, int32_t *status) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(status);
  *status = context->asyncStatus.load(std::memory_order_acquire);
  if (*status == CONCORD_OK && context->segment->header().aborted.load())
    *status = CONCORD_ERROR_ABORTED;
  return CONCORD_OK;
}

int32_t concord_live_status_query(concord_context *context, int32_t rank,
                                  concord_live_status *out) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(out);
  if (rank < 0 || rank >= context->world)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "rank %d is outside a world of "
                "%d",
                rank, context->world);
  RankSlot &slot = context->segment->slot(rank);
  concord_live_status value{};
  value.state = int32_t(slot.state.load(std::memory_order_acquire));
  value.site = ~0u;
  if (value.state == CONCORD_RANK_WAITING) {
    value.site = slot.site.load();
    value.kind = slot.kind.load();
    value.sequence = slot.sequence.load();
    for (int i = 0; i < 4; ++i) {
      uint64_t word = slot.domain[i].load();
      std::memcpy(value.domain + 8 * i, &word, 8);
    }
    value.domain[sizeof value.domain - 1] = 0;
  }
  giveStruct(out, value);
  return CONCORD_OK;
}

/// Whole huge pages of what collectives will touch: with pages of 4 KiB every
/// rank's walks through its own page tables cost more than the data.
static void preferHuge(const Context &context, void *begin, uint64_t bytes,
                       const char *what, bool populate) {
  if (!context.hugePages || bytes < kHugePage)
    return;
  uint64_t huge = makeHuge(static_cast<char *>(begin), bytes, populate);
  context.log.write(LogLevel::Debug, "%s of %llu bytes: %llu in huge pages",
                    what, (unsigned long long)bytes, (unsigned long long)huge);
}

int32_t concord_heap_alloc(concord_context *context, uint64_t bytes,
                           uint64_t align, void **out) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(out);
  *out = nullptr;
  if (align & (align - 1) || align > kHugePage)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "concord_heap_alloc: %llu is not a power of two up to 2 MiB",
                (unsigned long long)align);
  return guarded([&] {
    CONCORD_ENTER(*context);
    *out = context->heap.allocate(
        bytes, std::max<uint64_t>(align, align ? 1 : context->alignment));
    if (!*out)
      return fail(CONCORD_ERROR_OUT_OF_MEMORY,
                  "the heap of rank %d has no room for %llu bytes: %llu of "
                  "%llu are in use (CONCORD_HEAP_BYTES)",
                  context->rank, (unsigned long long)bytes,
                  (unsigned long long)context->heap.bytesInUse(),
                  (unsigned long long)context->segment->heapBytes());
    preferHuge(*context, *out, bytes, "heap block", true);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_heap_free(concord_context *context, void *pointer) {
  CONCORD_NOT_NULL(context);
  if (!pointer)
    return CONCORD_OK;
  CONCORD_ENTER(*context);
  if (!context->heap.release(pointer))
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "concord_heap_free: %p was not allocated from this heap",
                pointer);
  return CONCORD_OK;
}

/// Make the pages of foreign memory present, as reading them would; their
/// contents stay. False where it cannot be read.
static bool makePresent(char *begin, uint64_t bytes) {
  const auto page = uint64_t(::sysconf(_SC_PAGESIZE));
  auto first = reinterpret_cast<uint64_t>(begin) & ~(page - 1), last = first;
  if (__builtin_add_overflow(reinterpret_cast<uint64_t>(begin), bytes - 1,
                             &last))
    return false;
  auto *pages = reinterpret_cast<char *>(first);
  uint64_t length = (last & ~(page - 1)) - first + page;
#ifdef MADV_POPULATE_READ
  if (::madvise(pages, length, MADV_POPULATE_READ) == 0)
    return true;
  if (errno == ENOMEM || errno == EFAULT)
    return false;
#endif
  // Linux before 5.14. The kernel copies a byte of each page, and says where it
  // cannot; it may be forbidden to.
  for (uint64_t at = 0; at < length; at += page) {
    char byte;
    iovec here{&byte, 1}, there{pages + at, 1};
    if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) != 1)
      return errno != EFAULT;
  }
  return true;
}

int32_t concord_buffer_register(concord_context *context, void *pointer,
                                uint64_t bytes) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(pointer);
  return guarded([&] {
    CONCORD_ENTER(*context);
    // Foreign buffers are staged page by page; what is present now spares the
    // first operation the faults.
    if (bytes == 0 || !makePresent(static_cast<char *>(pointer), bytes))
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "concord_buffer_register: %llu bytes at %p are not memory "
                  "of this process that can be read",
                  (unsigned long long)bytes, pointer);
    preferHuge(*context, pointer, bytes, "registered memory", false);
    ++context->registered[pointer];
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_buffer_deregister(concord_context *context, void *pointer) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(pointer);
  return guarded([&] {
    CONCORD_ENTER(*context);
    auto found = context->registered.find(pointer);
    if (found == context->registered.end())
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "concord_buffer_deregister: no buffer at %p is registered",
                  pointer);
    if (--found->second == 0)
      context->registered.erase(found);
    return int32_t(CONCORD_OK);
  });
}

void concord_poll(concord_context *context) {
  if (context)
    poll(*context, /*computing=*/false);
}
