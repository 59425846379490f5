//===- Compile.h - From a model to a cached artefact ------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the comm-opt beside this program and keeps what it makes, by content:
// the key covers the model, the data files it refers to, the options, the
// compiler and the CPU class. Several comm-runs may use one cache at a time.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_COMPILE_H
#define CONCORD_TOOLS_COMM_RUN_COMPILE_H

#include "Options.h"
#include "common/HostTensor.h"

#include <filesystem>
#include <memory>

namespace concord::tools {

/// The compiler failed; it has said why on standard error.
class CompileError : public Error {
public:
  using Error::Error;
};

/// A signal (SIGINT, SIGTERM, SIGHUP) asked comm-run to stop.
class Interrupted : public Error {
public:
  explicit Interrupted(int signal);
  int signal;
};

/// Make SIGINT, SIGTERM and SIGHUP end in Interrupted instead of at once, so
/// that temporary files go.
void catchSignals();
/// The signal that has arrived, or 0.
int interruptedBy();
/// Throws Interrupted when one has arrived.
void checkInterrupted();

/// A folder that is removed with what is in it on destruction.
class ScratchDir {
public:
  ScratchDir() = default;
  explicit ScratchDir(std::filesystem::path path) : folder(std::move(path)) {}
  ~ScratchDir();
  ScratchDir(ScratchDir &&other) { std::swap(folder, other.folder); }
  ScratchDir &operator=(ScratchDir &&other) {
    std::swap(folder, other.folder);
    return *this;
  }
  const std::filesystem::path &path() const { return folder; }
  /// Leave it where it is.
  void release() { folder.clear(); }

private:
  std::filesystem::path folder;
};

/// A file held open and locked; released on destruction.
class FileLock {
public:
  FileLock() = default;
  explicit FileLock(int fd) : fd(fd) {}
  ~FileLock();
  FileLock(FileLock &&other) : fd(other.fd) { other.fd = -1; }
  FileLock &operator=(FileLock &&other) {
    std::swap(fd, other.fd);
    return *this;
  }

private:
  int fd = -1;
};

struct Artefact {
  std::filesystem::path path; ///< of the .so
  bool compiled = false;      ///< it is not the user's own .so
  bool cached = false;
  double seconds = 0; ///< spent compiling
  FileLock inUse;     ///< keeps the cache from dropping it meanwhile
  ScratchDir own;     ///< with --no-cache: where it lies
};

/// What a program file is, by name and, for .mlir, by content.
struct Source {
  enum class Kind { Artefact, Model, PerRankModels, Partitioned } kind;
  int64_t world = 0; ///< Partitioned, when the text says it; else 0
};
Source classify(const std::string &program);

/// Everything the result of a compilation depends on, as a hexadecimal SHA-256.
/// `compiler` is comm-opt's path; it need not exist.
std::string cacheKey(const std::string &program, int64_t ranks,
                     const std::vector<std::string> &arguments,
                     const std::filesystem::path &compiler);

/// Names of external-data files that an .onnx file mentions, without parsing
/// it: a scan for the field that holds them. At most 4,096.
std::vector<std::string> externalDataNames(std::span<const std::byte> onnx);

/// The folder that holds compiled programs; made when it is not there.
std::filesystem::path cacheDir();

/// The arguments for comm-opt, without input and output.
std::vector<std::string> compileArguments(const Options &options,
                                          const Source &source);

/// Compile, or find in the cache, or take as it is. Throws Error, CompileError
/// or Interrupted.
Artefact obtainArtefact(const Options &options);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_COMPILE_H
