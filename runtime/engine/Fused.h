//===- Fused.h - Collectives that compute -----------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A collective whose work is done by a kernel, step by step (kernel.h). To the
// queues, the order, the fingerprints and the watchdog it is a collective like
// any other.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ENGINE_FUSED_H
#define CONCORD_RUNTIME_ENGINE_FUSED_H

#include "concord/kernel.h"
#include "engine/Engine.h"

#include <memory>
#include <vector>

namespace concord::rt {

/// Everything of a fused collective that is made before it is issued.
struct Fused {
  const concord_kernel *kernel = nullptr;
  concord_fused_info info{};
  std::vector<void *> pointers; ///< the own operands, workspace last
  std::vector<std::vector<void *>> members; ///< per operand, where members' lie
  std::vector<void *const *> peers;         ///< what the kernel is given
  /// Heap memory that stands in for an operand outside the heap which members
  /// touch, and the caller's own.
  std::vector<void *> bounce, foreign;
  /// Bytes of each operand at the most, where its kernel changes with the sizes
  /// of the program; empty: those of the kernel.
  std::vector<uint64_t> most;

  // Progress of the operation in flight.
  uint64_t entered = 0;  ///< members whose operands are known
  uint64_t baseTick = 0; ///< the communicator's tick when it began
  uint32_t produced = 0, finished = 0;
  bool stream = false;

  /// Parts of others that each member produces.
  uint32_t toProduce() const {
    return info.produces ? (info.members - 1) * info.parts : 0;
  }
  /// Steps that each member finishes.
  uint32_t toFinish() const {
    return info.gathers ? info.members * info.parts : info.parts;
  }
};

/// Ask the kernel what it is. Throws Error when it is not fused.
std::unique_ptr<Fused> makeFused(const concord_kernel *kernel);
/// Goes on with the kernel of other sizes: as many operands, of the same group.
/// Not while the operation is in flight. Throws Error.
void fitFused(Fused &fused, const concord_kernel *kernel);
/// Check and take the operands, workspace last, and fill `op`; as `prepare`.
int32_t prepareFused(Op &op, Comm &comm, Fused &fused,
                     const concord_buffer *buffers, uint32_t numBuffers);

Progress advanceFused(Op &op);
uint64_t missingFused(const Op &op);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ENGINE_FUSED_H
