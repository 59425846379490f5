//===- Options.h - Command line of comm-opt ---------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMOPT_OPTIONS_H
#define CONCORD_TOOLS_COMMOPT_OPTIONS_H

#include "import/OnnxImport.h"

#include "concord/onnx/Family.h"
#include "concord/onnx/Reader.h"

#include <optional>
#include <string>

namespace concord {

/// What `--mesh`, `--dim` and the like say, checked.
struct CompileOptions {
  Mesh mesh;
  int64_t world = 1;
  int64_t microBatches = 1;      ///< 0: the number of least predicted time
  std::optional<int64_t> memory; ///< bytes that an arena may have
  std::map<int64_t, std::string> groupTypes;
  onnx::ReadOptions read;
  /// `--dim seq=1..512`, in the order given.
  std::vector<onnx::BoundedDim> bounded;
};

/// Whether the command line says anything that CompileOptions holds.
bool hasCompileOptions();

/// Collects the options from the command line; sets `error` on a bad one.
CompileOptions collectCompileOptions(std::string &error);

} // namespace concord

#endif // CONCORD_TOOLS_COMMOPT_OPTIONS_H
