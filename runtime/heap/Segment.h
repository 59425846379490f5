//===- Segment.h - The memory that the ranks of a job share -----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One memory file per job: control data (who the ranks are, what they do, the
// table of communicators and their flags), then one heap per rank. The file is
// sparse: address space is reserved generously, memory is used when touched. It
// has no name: a common parent hands it on, or rank 0 over a socket
// (bootstrap/Rendezvous.h), so a dead job leaves nothing.
//
// Everything in it may have been written by a peer that has crashed; readers
// check what they use as an index, size or address.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_HEAP_SEGMENT_H
#define CONCORD_RUNTIME_HEAP_SEGMENT_H

#include "concord/concord.h"
#include "concord/issuelog.h"
#include "transport/shm/CommBlock.h"

#include <atomic>
#include <memory>
#include <string>

namespace concord::rt {

constexpr uint64_t kSegmentMagic = 0x31424f4a434e4f43; // "CONCJOB1"
constexpr uint64_t kDefaultHeapBytes = uint64_t(16) << 30;
constexpr uint64_t kHugePage = uint64_t(2) << 20;
constexpr unsigned kMaxComms = 4096;
constexpr uint32_t kLibraryVersion = CONCORD_VERSION_MAJOR * 10000 +
                                     CONCORD_VERSION_MINOR * 100 +
                                     CONCORD_VERSION_PATCH;
constexpr unsigned kMaxSharedSettings = 32;
constexpr unsigned kMaxIssuers = 16; ///< programs of a plan that has rounds
constexpr uint64_t kCommAreaBytes = uint64_t(1) << 30;

struct alignas(128) JobHeader {
  std::atomic<uint64_t> magic; ///< stored last by the creator
  uint32_t abi;
  uint32_t world;
  uint64_t heapBytes;
  /// Size of the communicator that this job was grown from; 0: it was not.
  uint32_t grownFrom;
  /// Grows whenever a waiting rank should look closer: a rank has died or left,
  /// a communicator broke, the job was aborted.
  alignas(128) std::atomic<uint64_t> events;
  std::atomic<uint64_t> aborting;  ///< rank + 1 of who may write the reason
  std::atomic<uint64_t> aborted;   ///< the same, once the reason is there
  std::atomic<uint64_t> firstDead; ///< rank + 1 of the first seen dead
  /// What firstDead was when the job was aborted. A death that comes later is a
  /// consequence: ranks that abort, or learn of it, end.
  std::atomic<uint64_t> deadBeforeAbort;
  char abortReason[256];
  /// rank + 1 of who explains that nothing moves any more; 0: nobody yet.
  std::atomic<uint64_t> explaining;
  /// Holder (rank + 1) of the lock of the communicator table.
  alignas(128) std::atomic<uint64_t> commLock;
  uint64_t commBytes; ///< used of the communicator area
};

/// What a rank says of itself when it joins; the same on every host.
struct RankFacts {
  uint64_t startTime; ///< of the process, in clock ticks since boot
  uint32_t abi;
  uint32_t version; ///< concord_version of the rank's library
  int32_t core;
  char host[64];
  // The rank's device; physical -1 where nothing says which.
  char deviceKind[16];
  uint32_t plane, alignment;
  double bandwidth;
  int32_t visible, physical;
  uint64_t rankTable; ///< hash of the rank table, 0 for none
  /// Hash of the calibration that comm-bench has left for this rank's host; 0:
  /// there is none, or CONCORD_CALIBRATION says something else.
  uint64_t calibration;
  /// Hashes of the variables on which all ranks must agree, in their order in
  /// concord/environment.h.
  uint32_t settings[kMaxSharedSettings];
};

struct alignas(128) RankSlot : RankFacts {
  std::atomic<uint32_t> state; ///< concord_rank_state
  std::atomic<int64_t> pid;    ///< 0 until taken
  uint64_t pidNamespace;
  uint64_t self; ///< address of this slot in its rank, for peers to try
  /// What it waits in; written by the rank when it has waited for a while.
  alignas(128) std::atomic<uint32_t> site;
  std::atomic<int32_t> kind;
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> domain[4]; ///< 32 characters
  /// Threads of the issuers of the plan, by program; 0: has not come, or left.
  std::atomic<uint32_t> issuers[kMaxIssuers];
};

struct CommEntry {
  uint64_t key; ///< 0: free
  uint64_t offset;
  uint64_t bytes;
  uint32_t size;
  uint32_t released;

  /// A block of so many bytes lies in the area, where one can lie.
  bool holds(uint64_t block) const {
    return offset % alignof(CommHeader) == 0 && block <= kCommAreaBytes &&
           offset <= kCommAreaBytes - block;
  }
};

/// A mapping of a job's memory file. Shared by the contexts of one process that
/// were made from one concord_job, so that ThreadSanitizer sees one address.
class Segment {
public:
  /// A new file for `world` ranks.
  static std::shared_ptr<Segment> create(int world, uint64_t heapBytes);
  /// Map an existing one; takes over `fd`. Throws on anything malformed.
  static std::shared_ptr<Segment> open(int fd);
  ~Segment();
  Segment(const Segment &) = delete;
  Segment &operator=(const Segment &) = delete;

  int fd() const { return file; }
  int world() const { return ranks; }
  uint64_t heapBytes() const { return heapSize; }
  JobHeader &header() const { return *reinterpret_cast<JobHeader *>(control); }
  RankSlot &slot(int rank) const {
    return reinterpret_cast<RankSlot *>(control + kSlotsAt)[rank];
  }
  CommEntry *comms() const {
    return reinterpret_cast<CommEntry *>(control + kCommsAt);
  }
  char *commArea() const { return control + kCommAreaAt; }
  issuelog::Block &log(int rank) const {
    return reinterpret_cast<issuelog::Block *>(control + kLogsAt)[rank];
  }
  /// Begin of a rank's heap.
  char *heap(int rank) const { return heaps + uint64_t(rank) * pitch; }

  /// Position of `pointer` in the heaps, the same at all ranks; ~0 if
  /// [pointer, pointer + bytes) is not inside one rank's heap.
  uint64_t offsetOf(const void *pointer, uint64_t bytes) const;
  /// Undo offsetOf; null when the range is not inside one heap.
  char *pointerAt(uint64_t offset, uint64_t bytes) const;

  /// Tell waiting ranks to look closer.
  void announce() const {
    header().events.fetch_add(1, std::memory_order_release);
  }

  /// `rank` has aborted the job; of several, the first one's words stay.
  void recordAbort(int rank, const char *reason) const;
  /// "rank 3 aborted the jobWHEN: its words", empty when nobody has.
  std::string abortText(const char *when = "") const;
  /// Throw ABORTED with these words, if somebody has.
  void throwIfAborted(const char *when) const;

private:
  Segment() = default;
  static uint64_t fileBytes(int world, uint64_t heapBytes);
  static void initialise(int fd, int world, uint64_t heapBytes);
  void map(int fd);

  static constexpr uint64_t kSlotsAt = 4096;
  static constexpr uint64_t kCommsAt = kSlotsAt + kMaxRanks * sizeof(RankSlot);
  static constexpr uint64_t kLogsAt =
      (kCommsAt + kMaxComms * sizeof(CommEntry) + 4095) / 4096 * 4096;
  static constexpr uint64_t kCommAreaAt =
      (kLogsAt + kMaxRanks * sizeof(issuelog::Block) + 4095) / 4096 * 4096;
  static constexpr uint64_t kControlBytes =
      (kCommAreaAt + kCommAreaBytes + kHugePage - 1) / kHugePage * kHugePage;

  int file = -1;
  int ranks = 0;
  uint64_t heapSize = 0;
  uint64_t pitch = 0; ///< between heaps in memory: a guard lies between
  char *control = nullptr;
  char *heaps = nullptr;
  char *reserved = nullptr;
  uint64_t reservedBytes = 0;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_HEAP_SEGMENT_H
