//===- Node.h - The text of an ONNX kernel, parsed --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kernel of this room is described by a mechanical rendering of the node:
//
//   onnx.NAME attr.KEY=value ... in=[[f32,2,3],[none]] opset=17 out=[[f32,3]]
//
// NAME is the operator's name in lower case (with its domain and a dot before
// it unless the domain is ai.onnx), `[none]` an absent operand. The description
// may come from a file that nobody vouches for, so the parser bounds ranks,
// counts and nesting.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_ONNX_NODE_H
#define CONCORD_KERNELS_ONNX_NODE_H

#include "Kernel.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace concord::kernels::onnx {

/// The description (or, in run, the data of an operand) is malformed or
/// contradicts the operator.
class InvalidError : public KernelError {
public:
  explicit InvalidError(const std::string &message)
      : KernelError(kInvalidArgument, message) {}
};

/// The description is well-formed but asks for something not built.
class UnsupportedError : public KernelError {
public:
  explicit UnsupportedError(const std::string &message)
      : KernelError(kNotSupported, message) {}
};

/// Highest rank of an operand.
constexpr int kMaxTensorRank = 12;
/// Highest rank of an internal loop nest (an operator may split dimensions).
constexpr int kMaxRank = 24;

/// Dtype and shape of an operand; `DType::Invalid` when it is absent.
struct TensorInfo {
  DType dtype = DType::Invalid;
  std::vector<int64_t> dims;
  int64_t count = 0;

  bool present() const { return dtype != DType::Invalid; }
  int rank() const { return static_cast<int>(dims.size()); }
  size_t elementSize() const { return dtypeSize(dtype); }
  int64_t bytes() const {
    return count * static_cast<int64_t>(dtypeSize(dtype));
  }
  /// Dimension `axis`; negative counts from the back. Throws out of range.
  int64_t dim(int axis) const;
};

/// One attribute: a scalar or a flat list, each element kept as every reading
/// of it that makes sense.
struct AttrValue {
  struct Item {
    bool isText = false, isInteger = false;
    int64_t i = 0;
    double f = 0;
    std::string s;
  };
  bool isList = false;
  std::vector<Item> items;
};

class NodeInfo {
public:
  std::string name; ///< lower case, without "onnx."
  int64_t opset = 0;
  std::vector<TensorInfo> in, out;

  /// Parses a description; throws InvalidError.
  static NodeInfo parse(std::string_view text);

  bool hasIn(size_t i) const { return i < in.size() && in[i].present(); }
  bool hasOut(size_t i) const { return i < out.size() && out[i].present(); }
  /// Operand `i`; throws InvalidError when it is absent.
  const TensorInfo &input(size_t i) const;
  const TensorInfo &output(size_t i) const;

  bool has(std::string_view key) const;
  int64_t intAttr(std::string_view key, int64_t otherwise) const;
  double floatAttr(std::string_view key, double otherwise) const;
  std::string strAttr(std::string_view key, std::string_view otherwise) const;
  std::vector<int64_t> intsAttr(std::string_view key) const;
  std::vector<double> floatsAttr(std::string_view key) const;
  /// `attr.value=[dtype,v...]` and its like; null when absent.
  const AttrValue *rawAttr(std::string_view key) const;

  /// `axis` attribute made non-negative for `rank`; throws when out of range.
  int axisAttr(std::string_view key, int64_t otherwise, int rank) const;

private:
  std::map<std::string, AttrValue, std::less<>> attrs;
};

/// Makes a possibly negative axis non-negative; throws InvalidError.
int normalizeAxis(int64_t axis, int rank);

/// Row-major strides, in elements.
std::vector<int64_t> denseStrides(const std::vector<int64_t> &dims);

/// Product of dims[from, to).
int64_t product(const std::vector<int64_t> &dims, int from, int to);

/// The dtype number of ONNX's TensorProto as Concord's; Invalid if it has none.
DType dtypeFromOnnx(int64_t number);

} // namespace concord::kernels::onnx

#endif // CONCORD_KERNELS_ONNX_NODE_H
