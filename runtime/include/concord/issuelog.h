//===- issuelog.h - What a rank has issued, as bytes ------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One block per rank: a header, the communicators, the host threads that wait,
// and a ring of the latest issues. It lies in the job's memory, where a peer's
// watchdog can read it while the rank hangs or after it has died; the same
// bytes written to a file are an issue log (`rank_N.issues`), which comm-doctor
// reads. Everything is 64-bit words, each written by one rank, so that copying
// a block that is being written gives whole words.
//
// A record's first word is its number, from 1, and is written last; it is zero
// while the record changes.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ISSUELOG_H
#define CONCORD_ISSUELOG_H

#include <cstddef>
#include <cstdint>

namespace concord::issuelog {

constexpr uint64_t kMagic = 0x31474f4c43434e43; // "CNCCLOG1"
constexpr uint64_t kVersion = 1;
constexpr size_t kDomains = 96, kThreads = 16, kRecords = 2048;
constexpr size_t kMaxMembers = 64;
/// Words of text in a domain's name and a thread's note.
constexpr size_t kNameWords = 6, kNoteWords = 12;

/// What a host thread waits in.
enum class HostState : uint64_t {
  None,
  DeviceSync,
  StreamSync,
  Gate,      ///< for its turn
  Operation, ///< for one operation
  Slot,      ///< until a round uses one of its optional slots
  Allocation,
};

enum class State : uint64_t { Issued, Started, Completed, Failed };

struct Record {
  uint64_t number;   ///< from 1; 0: empty
  uint64_t instance; ///< of the collective on its domain, or of the transfer
  uint64_t count;    ///< elements
  uint64_t launch;   ///< number of the first issue of its launch
  uint64_t site;     ///< of the plan, ~0: none; high half: the thread's id
  uint64_t what;     ///< kind, dtype, reduction, root or peer + 1: 16 bits each
  uint64_t place;    ///< domain, stream: 32 bits each
  uint64_t state;
};

struct Domain {
  uint64_t size; ///< members; 0: free
  uint64_t name[kNameWords];
  uint64_t members[kMaxMembers / 8]; ///< a byte each: world rank
};

struct Thread {
  uint64_t state; ///< HostState; high half: the thread's id
  uint64_t since; ///< monotonic ns
  uint64_t after; ///< number of the latest issue when it began
  uint64_t spare;
  uint64_t note[kNoteWords];
};

struct Block {
  uint64_t magic, version;
  uint64_t rank, world;
  uint64_t pid;
  uint64_t issued;    ///< number of the latest record
  uint64_t completed; ///< operations that have ended
  uint64_t gateMode;  ///< concord_gate_mode
  uint64_t round;     ///< of the gate, where a plan orders it
  uint64_t turn;      ///< within the round; ~0: no order
  uint64_t
      stoodStill; ///< in a file: ns for which nothing had moved; 0: not known
  uint64_t spare[5];
  Domain domains[kDomains];
  Thread threads[kThreads];
  Record records[kRecords]; ///< record n is at (n - 1) % kRecords
};

static_assert(sizeof(Record) == 64 && sizeof(Thread) == 128 &&
              sizeof(Block) % 8 == 0);

} // namespace concord::issuelog

#endif // CONCORD_ISSUELOG_H
