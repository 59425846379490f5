//===- Inputs.h - Where each input of a program comes from ------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matches --input, --input-dir, --state and --seed with what the program wants.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_INPUTS_H
#define CONCORD_TOOLS_COMM_RUN_INPUTS_H

#include "Options.h"
#include "common/ProgramMeta.h"

#include <filesystem>

namespace concord::tools {

struct InputSource {
  enum class Kind { Drawn, Zero, File, Fill, Range } kind = Kind::Drawn;
  std::filesystem::path file;
  double value = 0;          ///< Fill
  int64_t low = 0, high = 2; ///< Range; also what integers are drawn from

  /// For the report: "drawn", "zeros", the file's name, "fill:1", "range:0..2".
  std::string describe() const;
};

/// The sources of one input: one, or one per rank for a per-rank entry.
using InputSources = std::vector<InputSource>;

/// sources[i] belongs to meta.inputs[i]. Throws Error for a name that the
/// program does not have (listing those it has), a rank that does not exist, a
/// state pair whose types differ, two sources for one input.
std::vector<InputSources> resolveInputs(const Options &options,
                                        const ProgramMeta &meta);

/// The tensor of one source; global shape, or the local one for per-rank
/// entries.
HostTensor makeInput(const Entry &entry, const InputSource &source,
                     uint64_t seed, int64_t rank);

/// DIR/NAME.npy, DIR/NAME.pb, DIR/PREFIX_I.npy or DIR/PREFIX_I.pb, the first
/// that exists; else an empty path.
std::filesystem::path findTensorFile(const std::filesystem::path &dir,
                                     const std::string &name,
                                     const char *prefix, size_t index);

/// `'a', 'b', 'c'`, cut short after twenty.
std::string listNames(const std::vector<Entry> &entries);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_INPUTS_H
