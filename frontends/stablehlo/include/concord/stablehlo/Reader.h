//===- Reader.h - StableHLO text as an HLO module ---------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads the text of a StableHLO module, as JAX prints it or in MLIR's generic
// form, into the same structure as HLO text: functions and regions become
// computations, operations instructions. What surrounds the collectives in a
// Shardy program is understood: `sdy.mesh`, `sdy.manual_computation`, groups of
// ranks as dense attributes or as axes of a mesh.
//
// Names follow HLO ("all-reduce", "dot"); an operation of a dialect that is
// neither stablehlo, chlo, sdy nor func becomes a custom call of its name,
// which later stages take to touch every domain.
//
// Pure functions; they throw hlo::Error, whose message begins with
// `path:line:column:`. Time and memory are linear in the text.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_STABLEHLO_READER_H
#define CONCORD_STABLEHLO_READER_H

#include "concord/hlo/Module.h"

#include <string>
#include <string_view>

namespace concord::stablehlo {

/// Whether MLIR text holds operations of StableHLO or Shardy.
bool looksLikeStablehlo(std::string_view text);

/// What the module says beyond its instructions.
struct Notes {
  /// Operations outside every manual computation of a Shardy program: at the
  /// global view, so what its partitioner adds for them is not in the result.
  size_t globalOperations = 0;
};

/// Reads a module. `path` is used in messages only.
hlo::Module parse(std::string text, const std::string &path, Notes &notes);

} // namespace concord::stablehlo

#endif // CONCORD_STABLEHLO_READER_H
