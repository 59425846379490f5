//===- WeightStore.h - The data behind comm.weight --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Maps (file, section) to bytes. The importer adds sections that lie in the
// mapped model file; a parameter file written by an earlier comm-opt is opened
// by name when first asked for. Nothing is copied.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_DIALECTS_COMM_WEIGHTSTORE_H
#define CONCORD_DIALECTS_COMM_WEIGHTSTORE_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace concord::comm {

class WeightStore {
public:
  struct Section {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner; ///< keeps `bytes` valid
  };

  /// Adds a section; replaces one of the same name.
  void add(const std::string &file, const std::string &section, Section data);

  /// Folder that relative file names are resolved against.
  void setDirectory(std::string path) { directory = std::move(path); }

  /// Finds a section, opening `file` when it has not been seen. On failure
  /// returns nullopt and sets `error` to a complete sentence. Thread-safe.
  std::optional<Section> lookup(const std::string &file,
                                const std::string &section, std::string &error);

private:
  bool open(const std::string &file, std::string &error);

  std::mutex mutex;
  std::string directory = ".";
  std::map<std::pair<std::string, std::string>, Section> sections;
  std::map<std::string, bool> opened;
};

/// One section to be written.
struct WeightSection {
  std::string name;
  std::string dtype; ///< safetensors name
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  std::string sha256; ///< filled by the writer
};

/// Writes a safetensors container with page-aligned sections
/// (docs/contracts.md), one section at a time. Writes a temporary file first
/// and renames, so that nothing half-written is ever seen.
class WeightWriter {
public:
  /// `sections` gives names, types and sizes; hashes are filled as data comes.
  WeightWriter(std::string path, std::vector<WeightSection> sections,
               std::map<std::string, std::string> metadata);
  ~WeightWriter();
  /// Appends the next section's bytes. False on an I/O error.
  bool append(std::span<const std::byte> bytes);
  /// Writes the header and renames into place. Empty string or the error.
  std::string finish();

  const std::vector<WeightSection> &getSections() const { return sections; }

private:
  std::string path, temporary, error;
  std::vector<WeightSection> sections;
  std::map<std::string, std::string> metadata;
  uint64_t headerBytes = 0;
  uint64_t position = 0;
  size_t next = 0;
  int fd = -1;
};

} // namespace concord::comm

#endif // CONCORD_DIALECTS_COMM_WEIGHTSTORE_H
