//===- Artefact.h - Metadata and parameters of an artefact ------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_ARTEFACT_H
#define CONCORD_PASSES_COMMON_ARTEFACT_H

#include "comm/Comm.h"
#include "concord/plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

#include <string>
#include <vector>

namespace concord {

/// The three sections of the artefact (concord/artefact.h).
struct Metadata {
  std::string json, kernels;
  std::vector<std::byte> plan;
};

/// A program on its way to code.
struct LoweredProgram {
  mlir::func::FuncOp function;
  std::vector<int64_t> parameters, kernels; ///< numbers in the artefact's lists
  size_t numInputs = 0, numOutputs = 0;     ///< filled by describeArtefact
};

/// All of comm.weight that is needed to write its data once the module is
/// lowered: section, file, dtype, shape, parts per rank, packing, bytes.
mlir::DictionaryAttr describeParameter(comm::WeightOp op);

/// `programs` are those of the plan, in its order; `predicted` as predictStep
/// has it.
Metadata describeArtefact(mlir::ModuleOp module,
                          std::vector<LoweredProgram> &programs,
                          const plan::Plan &plan,
                          llvm::ArrayRef<std::string> kernels,
                          llvm::ArrayRef<mlir::Attribute> parameters,
                          llvm::json::Object predicted);

/// Writes NAME.weights for a lowered module: every parameter of
/// `comm.parameters`, sliced and packed per rank. Empty string or the error.
std::string writeParameters(mlir::ModuleOp module, const std::string &path);

/// For a module that is saved as text: writes every section that comm.weight
/// refers to into `path`, whole, and makes the operations refer to `fileName`.
std::string writeReferencedWeights(mlir::ModuleOp module,
                                   const std::string &path,
                                   const std::string &fileName);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_ARTEFACT_H
