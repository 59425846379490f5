//===- Explain.h - Why a pass did what it did -------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_EXPLAIN_H
#define CONCORD_PASSES_COMMON_EXPLAIN_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/Twine.h"

namespace concord {

/// Prints `explain: PASS ACTION LOCATION reason=ID KEYS` to standard error,
/// when the module around `at` carries `comm.explain` (comm-opt --explain), and
/// emits it as a remark for `comm.explain_collect` (comm-opt --report).
/// `keys` are `name=value` pairs with units in the names. Reason ids are listed
/// in docs/explain.md.
void explain(mlir::Operation *at, mlir::Location loc, llvm::StringRef pass,
             llvm::StringRef action, llvm::StringRef reason,
             const llvm::Twine &keys = "");

/// Whether anybody wants to know: what costs time to explain is asked first.
bool explains(mlir::Operation *at);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_EXPLAIN_H
