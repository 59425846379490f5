//===- Plugin.cpp - Concord as a plugin of mlir-opt -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The two entry points that mlir-opt looks up: one for the dialects and their
// bufferization, one for the passes and comm-pipeline. Passes of a plugin are
// named in --pass-pipeline, not as flags of their own.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "onnx/Onnx.h"

#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Support/Compiler.h"

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT mlir::DialectPluginLibraryInfo
mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "Concord", "0.1.0",
          [](mlir::DialectRegistry *registry) {
            registry->insert<concord::comm::CommDialect,
                             concord::onnxir::OnnxDialect>();
            concord::comm::registerBufferizationModels(*registry);
          }};
}

extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT mlir::PassPluginLibraryInfo
mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "Concord", "0.1.0",
          [] { concord::registerConcordPasses(); }};
}
