//===- Shapes.h - Sizes of bounded dimensions for a run ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_SHAPES_H
#define CONCORD_TOOLS_COMM_RUN_SHAPES_H

#include "Inputs.h"

namespace concord::tools {

/// `--dim NAME=N` of a program that is compiled already; empty for others.
/// Throws Error for one that is not such a pair.
std::vector<std::pair<std::string, int64_t>> runDims(const Options &options);

/// Chooses the sizes of a program's bounded dimensions - from `--dim`, from the
/// shapes of the files that are inputs; else a state begins with the least, and
/// everything else has the greatest - and gives the entries of `meta` their
/// shapes: inputs those of the first step, outputs those of the last. Returns a
/// line that says what was chosen, "" when nothing is bounded. `fills` gets the
/// shapes that inputs have at most, for data that last. Throws Error for sizes
/// that are out of bounds, now or in a later step.
std::string chooseSizes(const Options &options,
                        const std::vector<InputSources> &sources,
                        ProgramMeta &meta, std::vector<Entry> &fills);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_SHAPES_H
