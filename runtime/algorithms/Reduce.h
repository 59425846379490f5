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

/// Null for a pair that has no meaning (see CONCORD_REDUCTIONS).
using ReduceLookup = ReduceFunction (*)(DType, plan::Reduction);

/// The lookup for this machine.
ReduceLookup reduceLookup();

/// The variants; those that the machine lacks must not be called.
namespace base {
ReduceFunction lookupReduce(DType, plan::Reduction);
}
namespace avx2 {
ReduceFunction lookupReduce(DType, plan::Reduction);
}
namespace avx512 {
ReduceFunction lookupReduce(DType, plan::Reduction);
}

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_REDUCE_H
