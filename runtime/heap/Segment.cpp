//===- Segment.cpp - The memory that the ranks of a job share -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Creating, checking and mapping the memory file of a job.
//
//===----------------------------------------------------------------------===//

#include "heap/Segment.h"
#include "diagnosis/Error.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace concord::rt;

namespace {
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
  int release() { return std::exchange(fd, -1); }
};
} // namespace

uint64_t Segment::fileBytes(int world, uint64_t heapBytes) {
  return kControlBytes + uint64_t(world) * heapBytes;
}

void Segment::initialise(int fd, int world, uint64_t heapBytes) {
  if (::ftruncate(fd, off_t(fileBytes(world, heapBytes))) != 0)
    raiseErrno("cannot size the job's memory file to %d heaps of %llu bytes "
               "(CONCORD_HEAP_BYTES)",
               world, (unsigned long long)heapBytes);
  // All else is zero, which is what atomics and tables start from.
  void *page = ::mmap(nullptr, sizeof(JobHeader), PROT_READ | PROT_WRITE,
                      MAP_SHARED, fd, 0);
  if (page == MAP_FAILED)
    raiseErrno("cannot map the job's memory file");
  auto *header = static_cast<JobHeader *>(page);
  header->abi = CONCORD_ABI_VERSION;
  header->world = uint32_t(world);
  header->heapBytes = heapBytes;
  header->magic.store(kSegmentMagic, std::memory_order_release);
  ::munmap(page, sizeof(JobHeader));
}

static uint64_t roundHeap(int world, uint64_t heapBytes) {
  if (world < 1 || world > kMaxRanks)
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "%d ranks: a job has 1 to %d ranks on one host", world, kMaxRanks);
  if (heapBytes == 0)
    heapBytes = kDefaultHeapBytes;
  if (heapBytes > uint64_t(1) << 40)
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "a heap of %llu bytes is beyond the limit of 1 TiB",
          (unsigned long long)heapBytes);
  return (heapBytes + kHugePage - 1) / kHugePage * kHugePage;
}

std::shared_ptr<Segment> Segment::create(int world, uint64_t heapBytes) {
  heapBytes = roundHeap(world, heapBytes);
  Descriptor fd{::memfd_create("concord-job", MFD_CLOEXEC)};
  if (fd.fd < 0)
    raiseErrno("cannot create the job's memory file");
  initialise(fd.fd, world, heapBytes);
  return open(fd.release());
}

std::shared_ptr<Segment> Segment::open(int fd) {
  std::shared_ptr<Segment> segment(new Segment);
  segment->file = fd;
  segment->map(fd);
  return segment;
}

void Segment::map(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0)
    raiseErrno("descriptor %d is not the job's memory file", fd);
  void *page = ::mmap(nullptr, sizeof(JobHeader), PROT_READ, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED)
    raiseErrno("descriptor %d is not the job's memory file", fd);
  bool sized = uint64_t(info.st_size) >= kControlBytes;
  auto *first = static_cast<JobHeader *>(page);
  bool good =
      sized && first->magic.load(std::memory_order_acquire) == kSegmentMagic;
  uint32_t abi = good ? first->abi : 0;
  ranks = good ? int(first->world) : 0;
  heapSize = good ? first->heapBytes : 0;
  ::munmap(page, sizeof(JobHeader));
  if (!good)
    raise(CONCORD_ERROR_CORRUPT,
          "descriptor %d is not the memory file of a Concord job", fd);
  if (abi != CONCORD_ABI_VERSION)
    raise(CONCORD_ERROR_VERSION_MISMATCH,
          "the job was started by a launcher of ABI version %u; this library "
          "has version %d",
          abi, CONCORD_ABI_VERSION);
  if (ranks < 1 || ranks > kMaxRanks || heapSize % kHugePage ||
      heapSize > uint64_t(1) << 40 ||
      uint64_t(info.st_size) != fileBytes(ranks, heapSize))
    raise(CONCORD_ERROR_CORRUPT, "the job's memory file is malformed");

  // A gap between the heaps keeps their mappings apart in /proc/PID/smaps, and
  // turns a run over the end of a heap into a fault.
  pitch = heapSize + kHugePage;
  reservedBytes = kControlBytes + uint64_t(ranks) * pitch + 2 * kHugePage;
  void *range = ::mmap(nullptr, reservedBytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    raiseErrno("cannot reserve %llu bytes of address space for %d heaps "
               "(CONCORD_HEAP_BYTES)",
               (unsigned long long)reservedBytes, ranks);
  reserved = static_cast<char *>(range);
  char *aligned = reinterpret_cast<char *>(
      (reinterpret_cast<uintptr_t>(reserved) + kHugePage - 1) / kHugePage *
      kHugePage);
  auto place = [&](char *where, uint64_t bytes, uint64_t offset) {
    void *got =
        ::mmap(where, bytes, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, off_t(offset));
    if (got == MAP_FAILED)
      raiseErrno("cannot map the job's memory file");
    return static_cast<char *>(got);
  };
  control = place(aligned, kControlBytes, 0);
  heaps = aligned + kControlBytes + kHugePage;
  for (int rank = 0; rank < ranks; ++rank) {
    char *heap = place(heaps + uint64_t(rank) * pitch, heapSize,
                       kControlBytes + uint64_t(rank) * heapSize);
    ::madvise(heap, heapSize, MADV_HUGEPAGE); // a wish only
  }
}

Segment::~Segment() {
  if (reserved)
    ::munmap(reserved, reservedBytes);
  if (file >= 0)
    ::close(file);
}

uint64_t Segment::offsetOf(const void *pointer, uint64_t bytes) const {
  uint64_t at = uint64_t(static_cast<const char *>(pointer) - heaps);
  if (at >= uint64_t(ranks) * pitch || bytes > heapSize ||
      at % pitch > heapSize - bytes)
    return ~uint64_t(0);
  return at;
}

char *Segment::pointerAt(uint64_t offset, uint64_t bytes) const {
  if (offset >= uint64_t(ranks) * pitch || bytes > heapSize ||
      offset % pitch > heapSize - bytes)
    return nullptr;
  return heaps + offset;
}

void Segment::recordAbort(int rank, const char *reason) const {
  JobHeader &job = header();
  uint64_t none = 0, who = uint64_t(rank) + 1;
  if (job.aborting.compare_exchange_strong(none, who)) {
    std::strncpy(job.abortReason, reason ? reason : "",
                 sizeof job.abortReason - 1);
    job.deadBeforeAbort.store(job.firstDead.load());
    job.aborted.store(who, std::memory_order_release);
  }
  slot(rank).state.store(CONCORD_RANK_ABORTED);
  announce();
}

std::string Segment::abortText(const char *when) const {
  const JobHeader &job = header();
  uint64_t who = job.aborted.load(std::memory_order_acquire);
  if (!who)
    return "";
  std::string text = "rank " + std::to_string(who - 1) + " aborted the job";
  text += when;
  text += ": ";
  return text.append(job.abortReason,
                     ::strnlen(job.abortReason, sizeof job.abortReason));
}

void Segment::throwIfAborted(const char *when) const {
  if (std::string text = abortText(when); !text.empty())
    raise(CONCORD_ERROR_ABORTED, "%s", text.c_str());
}
