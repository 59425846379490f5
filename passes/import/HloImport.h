//===- HloImport.h - From HLO text to a module ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_IMPORT_HLOIMPORT_H
#define CONCORD_PASSES_IMPORT_HLOIMPORT_H

#include "concord/hlo/Module.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace concord {

struct HloImportOptions {
  /// Ranks where the header names neither partitions nor replicas; 0: as many
  /// as the collectives name.
  int64_t world = 0;
  /// Targets of custom calls that do not communicate, beyond those known.
  std::vector<std::string> pureCalls;
};

/// Builds `module { func @main }` in phase `partitioned`. Collectives become
/// comm operations on domains named by their structure; `while` and
/// `conditional` become scf operations, `call` is inlined, tuples are
/// flattened, and any other instruction becomes a comm.compute whose key is its
/// name. Every operation's location is its instruction's name. On failure emits
/// a diagnostic and returns null.
mlir::OwningOpRef<mlir::ModuleOp> importHlo(mlir::MLIRContext *context,
                                            const hlo::Module &source,
                                            const HloImportOptions &options);

/// The HLO text that `module` was imported from, with the control dependencies
/// that carry the `edges` of its comm.order. Reads the file that
/// `comm.hlo_source` names and refuses one that has changed. Sets `error` on
/// failure.
std::string exportHlo(mlir::ModuleOp module, std::string &error);

} // namespace concord

#endif // CONCORD_PASSES_IMPORT_HLOIMPORT_H
