//===- Predicted.h - What a step should take, for the artefact --*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The prediction that an artefact carries (concord/artefact.h), so that
// `comm-run --trace` can set it beside what was measured.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_PREDICTED_H
#define CONCORD_PASSES_COMMON_PREDICTED_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

namespace concord {

/// On a fused collective: predicted microseconds of its product, of both apart,
/// and of both fused, as comm-fuse has decided by.
inline constexpr llvm::StringLiteral kPredictedFusion = "comm.predicted_us";

/// On a module: the figures that it was compiled by, where they were named.
inline constexpr llvm::StringLiteral kMachine = "comm.machine";

/// `module` is planned and not lowered yet. {"machine", "validated",
/// "programs":
/// [{"step_us", "compute_us", "exposed_us", "sites": [[issues, transfer_us,
/// exposed_us, compute_us]..], "fused": [[site, product_us, apart_us,
/// fused_us]..]}..]}: of a site the sums over a step, `compute_us` since the
/// issue before it. Where nothing can be predicted {"error"} says why. Fails,
/// with a message, when the figures cannot be read.
mlir::FailureOr<llvm::json::Object> predictStep(mlir::ModuleOp module);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_PREDICTED_H
