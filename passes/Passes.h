//===- Passes.h - Concord's passes and pipelines ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_PASSES_H
#define CONCORD_PASSES_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassOptions.h"

#include <memory>

namespace concord {

#define GEN_PASS_DECL
#include "Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "Passes.h.inc"

/// The phases of a module, in order (design §4).
enum class Phase {
  Foreign, ///< no comm.phase: IR that Concord did not make
  Imported,
  Partitioned,
  Decomposed,
  Ordered,
  Planned,
  Lowered,
};

Phase getPhase(mlir::Operation *module);
void setPhase(mlir::Operation *module, Phase phase);

struct PipelineOptions : public mlir::PassPipelineOptions<PipelineOptions> {
  Option<std::string> to{
      *this, "to",
      llvm::cl::desc("Stop after this phase: partitioned, "
                     "decomposed, ordered, planned, lowered"),
      llvm::cl::init("planned")};
  Option<std::string> experts{
      *this, "experts",
      llvm::cl::desc(
          "How a mixture of experts is split over the axis ep: send, "
          "reduce, cost (comm-partition)"),
      llvm::cl::init("send")};
  Option<bool> recognize{*this, "recognize",
                         llvm::cl::desc("Recognise composite operations "
                                        "(normalisation, GELU, attention)"),
                         llvm::cl::init(true)};
  Option<bool> fuseElementwise{
      *this, "fuse-elementwise",
      llvm::cl::desc("Fuse chains of elementwise operations"),
      llvm::cl::init(true)};
  Option<bool> opt{*this, "opt",
                   llvm::cl::desc("Optimise communication; 0 leaves simplify, "
                                  "bucket, fuse and overlap out, and nothing "
                                  "else"),
                   llvm::cl::init(true)};
  Option<bool> simplify{*this, "simplify",
                        llvm::cl::desc("Rewrite collectives to fewer, smaller "
                                       "and cheaper ones (comm-simplify)"),
                        llvm::cl::init(true)};
  Option<bool> exact{*this, "exact",
                     llvm::cl::desc("Refuse rewrites that round otherwise"),
                     llvm::cl::init(false)};
  Option<bool> bucket{*this, "bucket",
                      llvm::cl::desc("Join small collectives (comm-bucket)"),
                      llvm::cl::init(true)};
  Option<bool> fuse{*this, "fuse",
                    llvm::cl::desc("Fuse collectives with the computation "
                                   "around them"),
                    llvm::cl::init(true)};
  Option<bool> overlap{*this, "overlap",
                       llvm::cl::desc("Hide communication behind computation"),
                       llvm::cl::init(true)};
  Option<bool> health{*this, "health",
                      llvm::cl::desc("Add a health check as an optional slot "
                                     "(comm-health)"),
                      llvm::cl::init(false)};
  Option<std::string> machine{
      *this, "machine",
      llvm::cl::desc("Figures of the cost model: cpu, accelerator, or a "
                     "calibration or topology file"),
      llvm::cl::init("")};
  Option<int64_t> memory{*this, "memory",
                         llvm::cl::desc("Bytes that the arena may have; "
                                        "negative: overlapping takes 1.1 times "
                                        "what the given order holds"),
                         llvm::cl::init(-1)};
};

/// From any phase up to `options.to`; a phase that the module is already past
/// is skipped.
void buildPipeline(mlir::OpPassManager &manager,
                   const PipelineOptions &options);

/// Registers all passes and `comm-pipeline`.
void registerConcordPasses();

} // namespace concord

#endif // CONCORD_PASSES_PASSES_H
