//===- Chunk.cpp - comm-chunk ---------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "overlap/Rewrite.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace concord {
#define GEN_PASS_DEF_COMMCHUNK
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

struct Chunk : public concord::impl::CommChunkBase<Chunk> {
  using CommChunkBase::CommChunkBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (bytes < 1) {
      module.emitError("comm-chunk: bytes is ")
          << bytes.getValue() << "; it takes the size of a piece, 1 or more";
      return signalPassFailure();
    }
    if (getPhase(module) >= Phase::Planned) {
      module.emitError("comm-chunk works on tensors; this module has its "
                       "memory planned already, run it before comm-bufferize");
      return signalPassFailure();
    }
    FailureOr<CostModel> cost = CostModel::create(module, "cpu");
    if (failed(cost))
      return signalPassFailure();
    numChunks += splitLargeCollectives(module, *cost, bytes, "comm-chunk");
  }
};

} // namespace
