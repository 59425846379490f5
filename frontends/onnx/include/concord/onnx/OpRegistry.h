//===- OpRegistry.h - What Concord knows of each ONNX operator --*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One table: per operator the versions that are supported, its shape inference,
// its sharding rule, and the kernel description that computes it (the compiler
// has faster lowerings for the common ones; passes/OnnxLowering). MLIR-free.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ONNX_OPREGISTRY_H
#define CONCORD_ONNX_OPREGISTRY_H

#include "concord/onnx/Graph.h"
#include "concord/sharding/Rule.h"

#include <functional>

namespace concord::onnx {

/// A node as an operator's functions see it: attributes, operand and result
/// types, and the data of operands that are compile-time constants. Built from
/// a Graph node by the reader and from an `onnx.node` operation by the passes.
struct NodeView {
  const Node *node = nullptr;     ///< opType, domain, opset, attributes, name
  std::vector<TensorType> inputs; ///< dtype Invalid when absent
  std::vector<const Tensor *> constants; ///< null when not a constant
  std::vector<TensorType> outputs;       ///< filled by `infer`

  bool hasInput(size_t i) const {
    return i < inputs.size() && inputs[i].dtype != DType::Invalid;
  }
};

/// Fills `outputs`; throws `Error` (Reader.h) with a message that says what is
/// wrong and what to do. The caller prefixes file, node, op and opset.
using InferFn = void (*)(NodeView &);

/// Which dimensions may be split over ranks; see concord/sharding/Rule.h.
using ShardFn = sharding::Rule (*)(const NodeView &);

/// The description for concord_kernel_create of a kernel that computes the node
/// on dense row-major tensors: pointers are the node's inputs in order (absent
/// ones NULL), then its outputs. Operands the description already contains
/// (a Reshape's target) are still passed.
using KernelFn = std::string (*)(const NodeView &);

struct OpDef {
  std::string_view domain;
  std::string_view name;
  int64_t sinceOpset; ///< lowest opset version of the domain that is accepted
  InferFn infer;
  ShardFn shard;   ///< null: no dimension may be split
  KernelFn kernel; ///< null: only the compiler lowers it (collectives, If)
};

/// The mechanical description of any node: `onnx.NAME key=value ...` with the
/// operator's name in lower case and the keys sorted: `attr.KEY` per attribute,
/// `in` and `out` as lists of `[dtype,d0,d1,...]` (`[none]` when absent) and
/// `opset`. A tensor attribute of one element is `[dtype,value]`; larger ones
/// and graphs have no description (returns an empty string).
std::string describe(const NodeView &view);

/// The attributes of a node for one rank's part of its operands: counts of
/// heads and groups shrink with the dimension they count. `localInputs` are the
/// operands' types on that rank. Shapes given as operands (a Reshape's target)
/// need no adapting: kernels take them from their result's type.
std::map<std::string, Attribute>
localAttributes(const NodeView &whole,
                const std::vector<TensorType> &localInputs);

/// The entry for an operator, or null when it is not supported.
const OpDef *findOp(std::string_view domain, std::string_view name);

/// All entries, sorted by domain and name (for docs and tests).
std::span<const OpDef> allOps();

} // namespace concord::onnx

#endif // CONCORD_ONNX_OPREGISTRY_H
