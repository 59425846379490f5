//===- Simulate.h - --simulate --------------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_OPT_SIMULATE_H
#define CONCORD_TOOLS_COMM_OPT_SIMULATE_H

#include "common/CostBridge.h"
#include "concord/simulate/Simulate.h"

namespace concord {

struct Prediction {
  cost::Machine machine;
  simulate::Job job;
  simulate::Result result;
};

/// Simulates the module on `topology` (what loadMachine takes). Emits a
/// diagnostic on failure.
mlir::FailureOr<Prediction> predict(mlir::ModuleOp module,
                                    llvm::StringRef topology, bool spans);

/// The tables of --simulate.
void printPrediction(const Prediction &prediction, llvm::raw_ostream &os);

} // namespace concord

#endif // CONCORD_TOOLS_COMM_OPT_SIMULATE_H
