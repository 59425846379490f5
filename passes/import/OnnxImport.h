//===- OnnxImport.h - From an ONNX model to a module ------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_IMPORT_ONNXIMPORT_H
#define CONCORD_PASSES_IMPORT_ONNXIMPORT_H

#include "concord/onnx/Graph.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringRef.h"

namespace concord {

/// One axis of the mesh: name and size. Ranks are row-major, last axis fastest.
using Mesh = std::vector<std::pair<std::string, int64_t>>;

/// On an onnx.node: the stage that an IR 11 annotation asks for.
inline constexpr llvm::StringLiteral kPipelineStage = "pipeline_stage";

struct ImportOptions {
  Mesh mesh;         ///< axes to partition over, or that the model already uses
  int64_t world = 1; ///< ranks; the product of the mesh where there is one
  /// `--group-type 4=tp`: which axes an Nccl* operator's group_type means.
  std::map<int64_t, std::string> groupTypes;
};

/// World ranks of each group of `axes` in the mesh, in order.
std::vector<std::vector<int64_t>>
meshGroups(const Mesh &mesh, const std::vector<std::string> &axes);

/// A name with `{rank}` replaced; unchanged where it has none.
std::string forRank(const std::string &pattern, int64_t rank);

/// Builds `module { func @main }` in phase `imported`, or `partitioned` when
/// the model holds collectives of its own. Parameters stay in the mapped file;
/// the dialect's WeightStore refers to them. With several models, one per rank,
/// the graphs must be the same but for the data of their constants: the module
/// is one program, and parameters that differ are named by a pattern with
/// `{rank}`. `pattern` is the path as given. On failure emits a diagnostic and
/// returns null.
mlir::OwningOpRef<mlir::ModuleOp>
importOnnx(mlir::MLIRContext *context, const std::vector<onnx::Model> &models,
           const std::string &pattern, const ImportOptions &options);

} // namespace concord

#endif // CONCORD_PASSES_IMPORT_ONNXIMPORT_H
