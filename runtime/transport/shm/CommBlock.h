//===- CommBlock.h - Flags of one communicator in shared memory -*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the members of a communicator share. Every line has one writer but for
// the counters of claims, and nothing else is ever read-modify-written on the
// fast path.
//
// Slots. Operation number s of a communicator uses slot s mod K of every
// member. A member fills its slot (a small payload itself, or a description of
// where its buffers lie) and then stores s to `sequence`. There is no closing
// barrier: a member that writes slot s has seen, or makes sure, that all others
// have published s-K+1, so they have finished s-K, which used the same slot.
// Two slots would be enough; with more, the root of small one-way operations
// does not wait for those who take in each. And where it has to look, it waits
// until they have published s-K/2: looking costs a line from another core, and
// so it is done once in K/2 operations.
//
// Where data goes one way, a member compares fingerprints with those alone from
// which it takes something, and not even with them if it takes itself for the
// root. So slots also carry a hash of all such operations, which is compared
// when something is waited for anyway.
//
// Ticks. An operation that reads or writes peers' memory is divided into
// phases; a member that has finished phase n stores n to its `tick` and goes on
// when all ticks have reached n. All members count the same phases.
//
// Claims. Where ranks outnumber cores, an operation must not wait until every
// member has run once more: its work is cut into pieces, and who runs takes the
// next one, whosever share it is. `next` and `finished` count the pieces of all
// operations; they alone are read-modify-written, once a piece. All members
// know how many pieces an operation has, so each knows at which count it ends.
// A piece is taken by compare-and-swap below that end: one that was late, and
// finds its operation finished, takes nothing of the next.
//
// Mailboxes, one per ordered pair of members, carry point-to-point messages:
// `posted` is written by the sender, `taken` by the receiver.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_TRANSPORT_SHM_COMMBLOCK_H
#define CONCORD_RUNTIME_TRANSPORT_SHM_COMMBLOCK_H

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace concord::rt {

constexpr int kMaxRanks = 64;
constexpr size_t kSlotPayload = 8192 - 24;
constexpr uint64_t kSlots = 8;
constexpr size_t kMailboxPayload = 1024;

static_assert(std::atomic<uint64_t>::is_always_lock_free,
              "flags in shared memory must not need locks");

/// Adjacent lines are fetched in pairs, so writers are kept 128 bytes apart.
struct alignas(128) Slot {
  std::atomic<uint64_t> sequence;
  uint64_t fingerprint;
  unsigned char payload[kSlotPayload];
  /// Of all one-way operations up to this one, if there were any: a hash, and
  /// in the last 16 bits the number of this one.
  std::atomic<uint64_t> oneWay;
};
static_assert(sizeof(Slot) == 8192);

struct alignas(128) Member {
  std::atomic<uint64_t> tick;
  /// Number of the piece that it works on, from 1, or 0. For those who wait.
  std::atomic<uint64_t> holding;
  Slot slots[kSlots];
  Slot &slot(uint64_t sequence) { return slots[sequence % kSlots]; }
  const Slot &slot(uint64_t sequence) const { return slots[sequence % kSlots]; }
};

struct alignas(128) Mailbox {
  std::atomic<uint64_t> posted;
  uint64_t fingerprint; ///< of the whole message
  uint64_t offset;      ///< of this part in the segment, or ~0: in payload
  uint64_t bytes;       ///< of this part
  uint64_t outer, inner, stride; ///< its layout when it lies in the segment
  unsigned char payload[kMailboxPayload];
  alignas(128) std::atomic<uint64_t> taken;
};

/// Pieces of work, over all operations that are divided in this way.
struct alignas(128) Claims {
  std::atomic<uint64_t> next; ///< taken
  alignas(128) std::atomic<uint64_t> finished;
};

/// What broke a communicator first, as all members read it: one word, so that
/// status, rank and member are always of one cause.
struct BrokenWord {
  int32_t status = 0;
  int member = -1; ///< who saw it
  /// PEER_DIED: the world rank that did; TIMEOUT: that was waited for.
  int died = -1;
  /// The last bits of the number of the operation in which it did, 0: none.
  uint16_t sequence = 0;

  uint64_t pack() const {
    return uint64_t(uint16_t(status)) | uint64_t(died + 1) << 16 |
           uint64_t(uint16_t(member + 1)) << 32 | uint64_t(sequence) << 48;
  }
  static BrokenWord unpack(uint64_t word) {
    return {int32_t(word & 0xffff), int(word >> 32 & 0xffff) - 1,
            int(word >> 16 & 0xffff) - 1, uint16_t(word >> 48)};
  }
};

struct alignas(128) CommHeader {
  /// 0, or a BrokenWord.
  std::atomic<uint64_t> broken;
  std::atomic<uint64_t> revoked;
  /// For those who look at a running job; written once, by who made the block.
  char name[40];
  unsigned char ranks[kMaxRanks]; ///< world ranks, in group order
};
static_assert(sizeof(CommHeader) == 128);

/// A view of the block of a communicator of `size` members.
struct CommBlock {
  CommHeader *header = nullptr;
  Claims *claims = nullptr;
  Member *members = nullptr;
  Mailbox *mailboxes = nullptr;
  int size = 0;

  CommBlock() = default;
  CommBlock(char *base, int size)
      : header(reinterpret_cast<CommHeader *>(base)),
        claims(reinterpret_cast<Claims *>(base + sizeof(CommHeader))),
        members(reinterpret_cast<Member *>(claims + 1)),
        mailboxes(reinterpret_cast<Mailbox *>(members + size)), size(size) {}

  static uint64_t bytes(int size) {
    uint64_t n = sizeof(CommHeader) + sizeof(Claims) +
                 uint64_t(size) * sizeof(Member) +
                 uint64_t(size) * size * sizeof(Mailbox);
    return (n + 4095) / 4096 * 4096;
  }
  Mailbox &mailbox(int from, int to) const {
    return mailboxes[from * size + to];
  }
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_TRANSPORT_SHM_COMMBLOCK_H
