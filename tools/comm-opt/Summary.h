//===- Summary.h - What a compiled module communicates ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMOPT_SUMMARY_H
#define CONCORD_TOOLS_COMMOPT_SUMMARY_H

#include "mlir/IR/BuiltinOps.h"

namespace concord {

/// Prints `--comm-summary`: a table of collectives, bytes and groups per
/// domain, the arena, and the certificate. Stable, one item a line.
void printSummary(mlir::ModuleOp module, llvm::raw_ostream &os);

} // namespace concord

#endif // CONCORD_TOOLS_COMMOPT_SUMMARY_H
