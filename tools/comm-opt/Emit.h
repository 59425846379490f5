//===- Emit.h - From a lowered module to files ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMOPT_EMIT_H
#define CONCORD_TOOLS_COMMOPT_EMIT_H

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace concord {

/// Compiles a lowered module for this machine's CPU class. Returns the object
/// file's bytes, or an empty string after setting `error`.
std::string emitObject(mlir::ModuleOp module, std::string &error);

/// Object, link, parameters: writes `path` (NAME.so) and NAME.weights beside
/// it, each complete or not at all. Returns an empty string or the error.
std::string emitSharedObject(mlir::ModuleOp module, const std::string &path);

/// Writes text or bytes to a temporary file and renames it; "-" is standard
/// output. Returns an empty string or the error.
std::string writeFile(const std::string &path, llvm::StringRef data);

} // namespace concord

#endif // CONCORD_TOOLS_COMMOPT_EMIT_H
