//===- Fuzz.h - What the fuzz targets share ---------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A target defines LLVMFuzzerTestOneInput and seeds(). Any bytes must end in a
// result or in the reader's own error, soon and in little memory; a crash,
// another exception, a sanitizer's report or an abort is a finding.
//
// One source, two programs. With -DCONCORD_FUZZ=ON (./run fuzz) libFuzzer looks
// for inputs. Without, Fuzz.cpp runs the seeds and so many mutations of them,
// the same ones every time: a test of ./run test.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_FUZZ_FUZZ_H
#define CONCORD_TEST_FUZZ_FUZZ_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace concord::fuzz {

/// Inputs to start from, each of which the target accepts. Defined by it; runs
/// in the project's root.
std::vector<std::string> seeds();

/// The target calls this when the reader took the input. A test whose seeds are
/// not all accepted fails: its mutations would only meet the first check.
void accept();
/// Or this, with its reason, which is printed for seeds.
void refuse(std::string_view why);

/// Contents of the regular files under `path` (or `path` itself) whose names
/// end with `suffix`, sorted by name, none larger than `most`; `before` is put
/// in front of each.
std::vector<std::string> filesUnder(const std::string &path,
                                    std::string_view suffix, size_t most,
                                    std::string_view before = {});

inline void append(std::vector<std::string> &to,
                   const std::vector<std::string> &more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// A file in memory with `bytes` in it, for readers that take a path.
class MemoryFile {
public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  const std::string &path() const { return name; }

private:
  int fd;
  std::string name;
};

} // namespace concord::fuzz

#endif // CONCORD_TEST_FUZZ_FUZZ_H
