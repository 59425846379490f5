//===- Graph.h - An ONNX model in memory, without MLIR ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the ONNX reader produces: values, nodes and initialisers, with every
// shape static and every foldable node folded. Tensor data is referred to, not
// copied: it lies in the mapped model file, in a mapped external-data file, or
// in a buffer that constant folding made.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ONNX_GRAPH_H
#define CONCORD_ONNX_GRAPH_H

#include "concord/dtype.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace concord::onnx {

using Shape = std::vector<int64_t>;

/// Dtype and static shape. `DType::Invalid` marks an absent optional operand.
struct TensorType {
  DType dtype = DType::Invalid;
  Shape shape;

  int64_t numElements() const {
    int64_t count = 1;
    for (int64_t dim : shape)
      count *= dim;
    return count;
  }
  uint64_t numBytes() const {
    return static_cast<uint64_t>(numElements()) * dtypeSize(dtype);
  }
  bool operator==(const TensorType &) const = default;
};

/// A constant tensor: little-endian, dense, row-major; bool is one byte. The
/// bytes stay valid as long as `owner` lives.
struct Tensor {
  TensorType type;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;

  /// Element `i` as an integer; only for integer and bool tensors.
  int64_t intAt(size_t i) const;
  /// All elements as int64; only for integer and bool tensors.
  std::vector<int64_t> ints() const;
  /// Element `i` as a double, for any numeric tensor.
  double floatAt(size_t i) const;
  /// A zero-filled tensor that owns its bytes; write through `mutableBytes`.
  static Tensor allocate(TensorType type);
  /// The bytes of a tensor made by `allocate`.
  std::span<std::byte> mutableBytes();
};

struct Graph;

using Attribute =
    std::variant<int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>, Tensor,
                 std::shared_ptr<Graph>>;

using ValueId = int32_t;
constexpr ValueId kNoValue = -1; ///< an optional operand that is not given

/// A tensor of the graph: a model input, an initialiser or constant, or a
/// node's result.
struct Value {
  std::string name;
  TensorType type;
  std::optional<Tensor> constant; ///< its data, when known at compile time
};

/// One axis of one tensor split over devices: IR 11's ShardingSpecProto,
/// resolved to axis numbers and counts.
struct ShardedDim {
  int64_t axis;
  std::vector<std::pair<int64_t, int64_t>> dims; ///< (dim value or -1, shards)
};
struct ShardingSpec {
  std::string
      tensorName;       ///< as the model calls it; names may have changed since
  int32_t operand = -1; ///< which operand of the node it is, or -1
  int32_t result = -1;  ///< which result, or -1
  std::vector<std::vector<int64_t>>
      devices; ///< groups; one device each unless replicated
  std::vector<ShardedDim> dims;
};

struct Node {
  std::string
      name; ///< the model's own name, or "OpType#index" where it has none
  std::string domain; ///< "" is ai.onnx
  std::string opType;
  int64_t opset = 0;            ///< the opset version imported for `domain`
  std::vector<ValueId> inputs;  ///< kNoValue for an absent optional
  std::vector<ValueId> outputs; ///< kNoValue for an output nobody takes
  std::map<std::string, Attribute> attributes;
  /// IR 11 annotations of the chosen configuration
  /// (ReadOptions::configuration).
  std::vector<ShardingSpec> shardings;
  int64_t pipelineStage =
      -1; ///< hint of the same annotation; -1 when not given
  std::map<std::string, std::string> metadata;

  const Attribute *attribute(std::string_view name) const;
  int64_t intAttr(std::string_view name, int64_t otherwise) const;
  double floatAttr(std::string_view name, double otherwise) const;
  std::string stringAttr(std::string_view name,
                         std::string_view otherwise) const;
  std::vector<int64_t> intsAttr(std::string_view name,
                                std::vector<int64_t> otherwise = {}) const;
};

/// A graph. `outputs` carry the model's output names: where the model returns
/// an input or another output under a new name, an Identity node makes the
/// name.
///
/// `If` whose condition is only known at run time keeps its branches as graphs
/// in the attributes `then_branch` and `else_branch`. What a branch captures
/// from outside is explicit: the node's operands are the condition, then the
/// captured values; both branches have one input per captured value, in that
/// order (branch `inputs[i]` is node `inputs[1 + i]`), whether they use it or
/// not. Captured constants are not operands but constants of the branch.
struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;     ///< in a topological order
  std::vector<ValueId> inputs; ///< model inputs that have no initialiser
  std::vector<ValueId> outputs;
};

/// A named set of devices that sharding annotations refer to (IR 11).
struct DeviceConfiguration {
  std::string name;
  int64_t numDevices = 0;
  std::vector<std::string> devices; ///< names; empty or numDevices of them
};

struct Model {
  std::string path;
  int64_t irVersion = 0;
  std::map<std::string, int64_t> opsets; ///< domain -> version
  std::vector<DeviceConfiguration> configurations;
  Graph graph;
};

} // namespace concord::onnx

#endif // CONCORD_ONNX_GRAPH_H
