//===- Infer.h - Helpers of the shape inference functions -------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the inference functions share: access to operands with errors that name
// them, broadcasting, axes, and values that must be known at compile time.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_FRONTENDS_ONNX_INFER_H
#define CONCORD_FRONTENDS_ONNX_INFER_H

#include "concord/onnx/OpRegistry.h"
#include "concord/onnx/Reader.h"

namespace concord::onnx::detail {

/// Thrown where a shape depends on data that isn't constant. The builder turns
/// the operand into the names of the model inputs it comes from.
class NeedsConstant : public Error {
public:
  NeedsConstant(size_t operand, const std::string &message)
      : Error(message), operand(operand) {}
  size_t operand;
};

[[noreturn]] void fail(const std::string &message);

std::string text(const Shape &shape);
std::string text(const TensorType &type);

/// Operand `i`, which must be given; `name` is the schema's name of it.
const TensorType &in(const NodeView &view, size_t i, const char *name);
/// The constant data of operand `i`, which must be given and constant.
const Tensor &constant(const NodeView &view, size_t i, const char *name);
/// The same as integers, a 1-D or scalar tensor.
std::vector<int64_t> constantInts(const NodeView &view, size_t i,
                                  const char *name);
/// The one integer of operand `i`.
int64_t constantInt(const NodeView &view, size_t i, const char *name);

/// Set result `i` if the node has it.
void out(NodeView &view, size_t i, DType dtype, Shape shape);

/// `axis` in [-rank, rank) as a number in [0, rank).
int64_t axisOf(int64_t axis, size_t rank, const char *name = "axis");
/// Several of them, which must differ; sorted when `sorted`.
std::vector<int64_t> axesOf(std::vector<int64_t> axes, size_t rank,
                            bool sorted = true);
/// Attribute `axes` or constant operand `i`, whichever is there.
std::optional<std::vector<int64_t>>
axesAttrOrInput(const NodeView &view, size_t i, const char *name = "axes");

/// Numpy broadcasting; an error that shows both shapes where they don't fit.
Shape broadcast(const Shape &a, const Shape &b);

/// A product or sum of sizes from the model, which may be anything: an error
/// where it overflows.
int64_t times(int64_t a, int64_t b);
int64_t plus(int64_t a, int64_t b);

/// An integer attribute list whose values are between `low` and 2^31, with
/// `count` entries; `otherwise` repeated when absent.
std::vector<int64_t> smallInts(const NodeView &view, const char *name,
                               size_t count, int64_t otherwise, int64_t low);

/// The operands' dtypes must be equal.
void sameDtype(const NodeView &view, size_t i, size_t j);
bool isFloat(DType dtype);
bool isInteger(DType dtype); ///< bool is none

/// A dtype attribute (`to`, `dtype`).
DType dtypeAttr(const NodeView &view, const char *name, DType otherwise);

inline int64_t opset(const NodeView &view) { return view.node->opset; }

} // namespace concord::onnx::detail

#endif // CONCORD_FRONTENDS_ONNX_INFER_H
