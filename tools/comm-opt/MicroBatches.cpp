//===- MicroBatches.cpp - --micro-batches=auto ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MicroBatches.h"
#include "Simulate.h"
#include "comm/Comm.h"
#include "common/Explain.h"
#include "common/Workspace.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

using namespace mlir;
using namespace concord;

LogicalResult concord::chooseMicroBatches(ModuleOp module, PassManager &manager,
                                          StringRef topology) {
  constexpr double kLeastGain = 0.02;
  MLIRContext *context = module.getContext();
  int64_t chosen = 1, memory = 0;
  std::map<int64_t, bool> within; ///< parts that `memory` is enough for
  double least = 0;
  std::string seconds;
  for (int64_t parts : {1, 2, 4, 8}) {
    OwningOpRef<ModuleOp> copy;
    FailureOr<Prediction> prediction = failure();
    // What needs more memory than that in itself is no worse for it.
    for (bool limited : {true, false}) {
      if (limited && !memory)
        continue;
      copy = module.clone();
      for (StringRef name : {"comm.explain", "comm.explain_collect"})
        (*copy)->removeAttr(name);
      if (parts > 1)
        (*copy)->setAttr("comm.micro_batches",
                         Builder(context).getI64IntegerAttr(parts));
      if (limited)
        setMemoryLimit(*copy, memory);
      // What cannot be cut like that is no candidate; 1 is, and says what is
      // wrong below.
      std::unique_ptr<ScopedDiagnosticHandler> quiet;
      if (parts > 1)
        quiet = std::make_unique<ScopedDiagnosticHandler>(
            context, [](Diagnostic &) { return success(); });
      if (succeeded(manager.run(*copy)))
        prediction = predict(*copy, topology, /*spans=*/false);
      if (succeeded(prediction)) {
        within[parts] = limited;
        break;
      }
    }
    if (failed(prediction)) {
      if (parts == 1)
        return failure();
      seconds += " seconds_" + std::to_string(parts) + "=none";
      continue;
    }
    if (parts == 1 && !memoryLimit(*copy)) {
      bool overlaps = false;
      (*copy)->walk([&](comm::StartOp) {
        overlaps = true;
        return WalkResult::interrupt();
      });
      for (auto arena : (*copy).getOps<comm::ArenaOp>())
        memory = std::max(memory, static_cast<int64_t>(arena.getSize()));
      if (!overlaps)
        memory += memory / 10;
    }
    double time = prediction->result.seconds;
    seconds += " seconds_" + std::to_string(parts) + "=" +
               llvm::formatv("{0:e3}", time).str();
    if (parts == 1 || time < least * (chosen == 1 ? 1 - kLeastGain : 1)) {
      chosen = parts;
      least = time;
    }
  }
  explain(
      module, module.getLoc(), "comm-partition", "micro-batches",
      chosen > 1 ? "least-predicted-time" : "no-gain",
      "parts=" + Twine(chosen) + seconds +
          (memory ? " memory_bytes=" + std::to_string(memory) : std::string()));
  if (chosen > 1) {
    module->setAttr("comm.micro_batches",
                    Builder(context).getI64IntegerAttr(chosen));
    if (within[chosen])
      setMemoryLimit(module, memory);
  }
  return success();
}
