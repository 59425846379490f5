//===- Recognize.cpp - comm-recognize -------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the patterns of passes/recognize. Norms and activations go from the last
// node of a pattern backwards, so that the longest match is tried first;
// products go forwards, and come last, because they take over activations that
// were recognised before.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "recognize/Match.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace concord {
#define GEN_PASS_DEF_COMMRECOGNIZE
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;
using namespace concord::recognize;

namespace {

struct Recognize : public concord::impl::CommRecognizeBase<Recognize> {
  using CommRecognizeBase::CommRecognizeBase;

  void forEach(bool backwards,
               llvm::function_ref<void(Rewrite &, NodeOp)> visit) {
    SmallVector<NodeOp> nodes;
    getOperation().walk([&](NodeOp op) {
      if (op.getNumResults() == 1)
        nodes.push_back(op);
    });
    if (backwards)
      std::reverse(nodes.begin(), nodes.end());
    Rewrite rewrite(&getContext());
    for (NodeOp op : nodes)
      if (!rewrite.erased(op))
        visit(rewrite, op);
  }

  void runOnOperation() override {
    forEach(true, [&](Rewrite &rewrite, NodeOp op) {
      if (recognizeNorm(rewrite, op))
        ++numNorms;
      else if (recognizeActivation(rewrite, op))
        ++numActivations;
    });
    // Forwards: the view of a rotated query ends at the rotation.
    forEach(false,
            [&](Rewrite &rewrite, NodeOp op) { recognizeRotary(rewrite, op); });
    forEach(false, [&](Rewrite &rewrite, NodeOp op) {
      numAttentions += recognizeAttention(rewrite, op);
    });
    forEach(false, [&](Rewrite &rewrite, NodeOp op) {
      numEpilogues += recognizeProduct(rewrite, op);
      if (!rewrite.erased(op))
        numEpilogues += recognizeConvolution(rewrite, op);
    });
  }
};

} // namespace
