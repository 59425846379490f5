//===- Reader.h - From an .onnx file to a Model -----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ONNX_READER_H
#define CONCORD_ONNX_READER_H

#include "concord/onnx/Graph.h"

#include <set>
#include <stdexcept>

namespace concord::onnx {

/// Every failure of the reader. `what()` is complete and ready to print:
/// `FILE: node 'NAME' (OP, opset N): what is wrong; what to do`.
/// Names come from the file and may hold any bytes; control characters are
/// shown as \xNN.
class Error : public std::runtime_error {
public:
  explicit Error(const std::string &message)
      : std::runtime_error(printable(message)) {}

private:
  static std::string printable(const std::string &message);
};

/// A shape depends on data that is not known at compile time. `inputs` are the
/// model inputs that decide it: bound to data (ReadOptions::constantInputs),
/// the model can be read.
class NeedsConstantInput : public Error {
public:
  NeedsConstantInput(const std::string &message,
                     std::vector<std::string> inputs)
      : Error(message), inputs(std::move(inputs)) {}
  std::vector<std::string> inputs;
};

/// What constant folding made of the nodes that it folded; by node name, the
/// type of every result and a hash of its data.
using FoldTrace =
    std::map<std::string, std::vector<std::pair<TensorType, uint64_t>>>;

struct ReadOptions {
  /// Values of symbolic dimensions (`--dim seq=128`).
  std::map<std::string, int64_t> dims;
  /// Shapes for inputs that declare none, or override them: name -> shape.
  std::map<std::string, Shape> inputShapes;
  /// Inputs to take as constants (a shape given as an input, say).
  std::map<std::string, Tensor> constantInputs;
  /// Constant folding keeps a folded result only up to this many bytes, unless
  /// all of the node's inputs die with it (a transposed weight).
  uint64_t foldLimit = 1 << 20;
  /// Number of ranks that collectives of the model span; needed for the shapes
  /// of gathers and scatters that do not say their group size themselves.
  int64_t world = 1;
  /// Group sizes for `group_type` of the Nccl* operators where they differ from
  /// `world` (`--group-type 4=tp` resolved by the caller): type -> size.
  std::map<int64_t, int64_t> groupSizes;
  /// Which device configuration's sharding annotations to take; the model's
  /// first when empty.
  std::string configuration;
  /// For members of a family (Family.h): nodes that stay although they could be
  /// folded; where to note what is folded; whether parameters are rearranged.
  const std::set<std::string> *keptNodes = nullptr;
  FoldTrace *folds = nullptr;
  bool rearrangeWeights = true;
};

/// Read, check, infer every shape, fold constants, inline `If` with a known
/// condition and model-local functions, remove dead nodes. Throws `Error`.
Model readModel(const std::string &path, const ReadOptions &options = {});

/// The same from bytes; `directory` is where external data may lie.
Model readModelFromMemory(std::span<const std::byte> bytes,
                          const std::string &nameForMessages,
                          const std::string &directory,
                          const ReadOptions &options = {});

/// A model file that is parsed once and read for several sizes.
class ModelFile {
public:
  explicit ModelFile(const std::string &path);
  ~ModelFile();
  ModelFile(const ModelFile &) = delete;
  ModelFile &operator=(const ModelFile &) = delete;
  Model read(const ReadOptions &options) const;
  /// All sizes that initialisers have, for finding sizes that none has.
  std::set<int64_t> initializerExtents() const;
  /// Symbolic dimensions that are dimension 0 of an input.
  std::set<std::string> leadingDims() const;

private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed;
};

/// A serialised TensorProto (`input_0.pb` of the ONNX node tests).
Tensor readTensorProto(const std::string &path);
/// Serialise one, name included.
void writeTensorProto(const std::string &path, const std::string &name,
                      const Tensor &tensor);

} // namespace concord::onnx

#endif // CONCORD_ONNX_READER_H
