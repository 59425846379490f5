//===- Weights.h - The file of parameters -----------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NAME.weights: the safetensors container with page-aligned sections. Only the
// sections of this rank are mapped, read-only and with their pages present, so
// that steps take no page faults on them.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_PROGRAM_WEIGHTS_H
#define CONCORD_RUNTIME_PROGRAM_WEIGHTS_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace concord::rt {

class Weights {
public:
  struct Section {
    uint64_t offset; ///< in the file, a multiple of 4096
    uint64_t bytes;
    std::string hash; ///< SHA-256 in hex, "" when the file does not say
  };

  Weights() = default;
  ~Weights();
  Weights(const Weights &) = delete;
  Weights &operator=(const Weights &) = delete;

  /// Read and check the header. Throws Error: NOT_FOUND, CORRUPT.
  void open(const std::string &path);
  /// The section of a parameter for a rank: PARAMETER#RANK, else PARAMETER#*.
  /// `section` is the parameter's name, with or without such a suffix. Null
  /// when there is none.
  const Section *find(const std::string &section, int rank) const;
  /// Map a section, compare its hash if asked to. Throws Error.
  const void *map(const Section &section, bool verify);
  uint64_t mappedBytes() const { return mapped; }

private:
  std::string file;
  int fd = -1;
  std::map<std::string, Section> sections;
  std::vector<std::pair<void *, uint64_t>> maps;
  uint64_t mapped = 0;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_PROGRAM_WEIGHTS_H
