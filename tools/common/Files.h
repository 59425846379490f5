//===- Files.h - Reading, writing and temporary folders ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The few file operations that the tools share. Writing is all or nothing: a
// full disk leaves the old file, never half of the new one.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMON_FILES_H
#define CONCORD_TOOLS_COMMON_FILES_H

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace concord::tools {

/// A regular file mapped read-only. Throws Error naming the file.
class MappedFile {
public:
  explicit MappedFile(const std::filesystem::path &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::span<const std::byte> bytes() const { return {data, size}; }

private:
  const std::byte *data = nullptr;
  size_t size = 0;
};

/// Write `parts`, one after the other, to `path` through a temporary name
/// beside it and a rename. Throws Error naming the file and the cause.
void writeFile(const std::filesystem::path &path,
               std::initializer_list<std::span<const std::byte>> parts);
void writeFile(const std::filesystem::path &path, std::string_view text);

/// A folder of our own, mode 0700, under `parent`. Throws Error.
std::filesystem::path makePrivateDir(const std::filesystem::path &parent,
                                     std::string_view prefix);

/// Where big short-lived files go: $TMPDIR when set, else /dev/shm when that is
/// writable, else the system's temporary folder.
std::filesystem::path tempParent();

/// `name` as a file name: every character outside [A-Za-z0-9._@+-] becomes `_`,
/// as does a leading dot; empty becomes `_`.
std::string fileSafe(std::string_view name);

/// The folder that holds the running executable.
std::filesystem::path executableDir();

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMMON_FILES_H
