//===- Comm.h - The comm dialect --------------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_DIALECTS_COMM_COMM_H
#define CONCORD_DIALECTS_COMM_COMM_H

#include "comm/WeightStore.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <memory>
#include <optional>

#include "comm/CommDialect.h.inc"
#include "comm/CommEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "comm/CommTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "comm/CommAttrs.h.inc"

#include "comm/CommInterfaces.h.inc"

#define GET_OP_CLASSES
#include "comm/CommOps.h.inc"

namespace concord::comm {

/// The resource that every communication operation writes: it keeps them in
/// program order and alive, whatever their operands are.
struct IssueResource : mlir::SideEffects::Resource::Base<IssueResource> {
  llvm::StringRef getName() override { return "comm.issue"; }
};

/// Attaches the bufferization models of the dialect's operations.
void registerBufferizationModels(mlir::DialectRegistry &registry);

/// Number of ranks of the job: the module's `comm.world`, or 1.
int64_t getWorld(mlir::Operation *module);

/// Groups of `domain` with respect to the symbol table around `from`; null when
/// there is no such domain.
DomainOp lookupDomain(mlir::Operation *from, mlir::FlatSymbolRefAttr domain);

/// Whether the operation is synchronous or asynchronous communication, or a
/// wait: what a round's order is about.
bool isIssue(mlir::Operation *op);

} // namespace concord::comm

#endif // CONCORD_DIALECTS_COMM_COMM_H
