//===- JobBuilder.h - From a module to a job to simulate --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_JOBBUILDER_H
#define CONCORD_PASSES_COMMON_JOBBUILDER_H

#include "common/CostBridge.h"
#include "concord/simulate/Simulate.h"

namespace concord {

/// What every rank of the module computes, issues and waits for, with predicted
/// times, loops unrolled. Emits a diagnostic on failure.
mlir::FailureOr<simulate::Job> buildJob(mlir::ModuleOp module,
                                        const CostModel &cost);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_JOBBUILDER_H
