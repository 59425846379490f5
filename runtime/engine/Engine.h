//===- Engine.h - Progress and waiting --------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The cooperative engine of one rank. Operations are state machines; `advance`
// takes one as far as it goes without waiting, or by one chunk of data. The
// engine polls by priority and begins again at the top whenever something of
// higher priority may have become ready, so a high-priority operation goes
// first at the next chunk boundary.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ENGINE_ENGINE_H
#define CONCORD_RUNTIME_ENGINE_ENGINE_H

#include "context/Context.h"

#include <optional>

namespace concord::rt {

/// Bytes moved between two looks at other operations, when there are any.
constexpr uint64_t kSharedQuantum = 32 * 1024;
/// While something of higher priority waits for its peers, which may come at
/// any moment.
constexpr uint64_t kUrgentQuantum = 8 * 1024;
/// The same for an operation that is alone.
constexpr uint64_t kLoneQuantum = 512 * 1024;

enum class Progress : uint8_t { Blocked, Advanced, Done };

/// Collectives (Collective.cpp).
Progress advanceCollective(Op &op, uint64_t quantum);
/// Members that `op` still waits for, as a bit mask of group ranks.
uint64_t missingMembers(const Op &op);
/// Keep how `op` was done (Forms.cpp).
void noteForm(const Op &op);
/// How the last collective was done and why, in words.
std::string formOf(const Comm &comm);
/// Messages (P2p.cpp).
Progress advanceMessage(Op &op, uint64_t quantum);
uint64_t missingPeer(const Op &op);

/// Check a request and fill what can be computed before it starts
/// (Prepare.cpp). Returns 0 or
/// INVALID_ARGUMENT; the communicator is unaffected.
int32_t prepare(Op &op, Comm &comm);
/// Whether an operation like the last one may have these operands.
bool fit(const Prepared &last, const void *input, const void *output);

/// Run at once and to the end (stream NULL, no group open).
int32_t runNow(Op &op);
/// From where an operation of that kind is, to the end.
int32_t runOn(Op &op);
/// `op` has been prepared and run like this: let a call that asks for the same
/// go without both, if there is nothing else that it would have to pass.
void keepForCalls(const Op &op, const Asked &asked);
/// The operation of the last such call once more, with other operands.
int32_t runAgain(Op &op, const void *in, void *out);
/// Hand over; op.stream may be null.
void enqueue(Op &op);
/// Make progress where possible; true if anything moved.
bool progress(Context &context);
/// The same from outside a wait. `computing`: inside a kernel.
void poll(Context &context, bool computing);
/// Wait until `op` is Done; returns its status.
int32_t waitFor(Op &op);
/// Wait until a stream has completed `ticket` operations.
int32_t waitStream(concord_stream &stream, uint64_t ticket);

/// Wait until everything that this rank has issued so far has completed.
int32_t waitDevice(Context &context);
/// Pass time while blocked: the lock of THREAD_MULTIPLE is open meanwhile, and
/// what cannot complete any more is broken.
void passTime(Context &context, class Waiter &waiter, const Op *op);

Op *takeOp(Context &context);
void giveBack(Context &context, Op *op);

/// Fail `op` and mark its communicator broken for all members. `died`: the
/// world rank whose death is the cause.
void breakComm(Op &op, int32_t status, int died = -1);

/// Words for one side of a mismatch: what an operation's fingerprint says.
std::string fingerprintText(uint64_t print);

/// "all_reduce #12 of 'tp' at site 3 (layer.0/MatMul)"
std::string describe(const Op &op);

/// Between two looks at a flag.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The last step of publishing: peers may read the slot.
inline void publishSlot(const Op &op, Slot &slot) {
  slot.fingerprint = op.fingerprint;
  if (uint64_t hash = op.comm->oneWay)
    slot.oneWay.store((hash & ~uint64_t(0xffff)) | (op.sequence & 0xffff),
                      std::memory_order_relaxed);
  slot.sequence.store(op.sequence, std::memory_order_release);
}

/// The last bits of the number that a collective has or will have.
uint16_t sequenceOf(const Op &op);

/// Spinning, yielding, sleeping; and looking out for dead peers meanwhile.
class Waiter {
public:
  /// `noted`: what the thread waits in is in the issue log already.
  explicit Waiter(Context &context, bool noted = false)
      : context(context), noted(noted) {}
  ~Waiter();
  /// Pass some time. True when the op should be checked for failure.
  bool pause(const Op *op);
  /// Before a pause with the context's lock open: whatever of `op` the pause
  /// would write down, for another thread may drive the operation meanwhile.
  void prepare(const Op *op);
  /// Leave the core to others at once: what is waited for has low priority.
  void sleepEarly() { lazy = true; }
  /// 0, or why `op`, which is blocked, cannot complete; keeps the words.
  int32_t failure(const Op &op);
  /// The rank that its PEER_DIED or TIMEOUT is about, else -1.
  int died() const { return deadRank; }
  void restart() { rounds = 0; }

private:
  void enterSlow(const Op *op);

  Context &context;
  bool noted, lazy = false;
  std::optional<HostWaiting> waiting;
  uint32_t rounds = 0;
  bool slow = false;
  uint64_t seenEvents = ~uint64_t(0);
  int64_t began = 0;
  int64_t lastLook = 0;
  int deadRank = -1;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ENGINE_ENGINE_H
