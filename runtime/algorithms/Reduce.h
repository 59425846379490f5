//===- Reduce.h - Reducing several arrays into one --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The arithmetic of reductions, in variants for the processor classes, chosen
// once when a context is made.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ALGORITHMS_REDUCE_H
#define CONCORD_RUNTIME_ALGORITHMS_REDUCE_H

#include "concord/plan.h"

namespace concord::rt {

/// target[i] = sources[0][i] op sources[1][i] op ..., in that order, `count`
/// elements. target may be equal to a source, not overlap one otherwise. Avg
/// divides by the number of sources.
using ReduceFunction = void (*)(const void *const *sources, int numSources,
                                void *target, size_t count);

/// The same with `numTargets` results, all alike.
using StoreFunction = void (*)(const void *const *sources, int numSources,
                               void *const *targets, int numTargets,
                               size_t count);
/// Copy `bytes` to every target.
using SpreadFunction = void (*)(const void *source, void *const *targets,
                                int numTargets, size_t bytes);

/// What one processor class offers. The lookups return null for a pair that has
/// no meaning (see CONCORD_REDUCTIONS). What is streamed is stored past the
/// caches; the caller orders it before its next flag (streamFence).
struct Arithmetic {
  ReduceFunction (*reduce)(DType, plan::Reduction);
  StoreFunction (*store)(DType, plan::Reduction);
  StoreFunction (*stream)(DType, plan::Reduction);
  SpreadFunction spread, streamSpread;
};

/// The arithmetic of this machine.
const Arithmetic &arithmetic();

/// The variants; what the machine lacks must not be called.
namespace base {
extern const Arithmetic kArithmetic;
}
namespace avx2 {
extern const Arithmetic kArithmetic;
}
namespace avx512 {
extern const Arithmetic kArithmetic;
}

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_REDUCE_H
