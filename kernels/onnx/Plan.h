//===- Plan.h - How an ONNX operator becomes a kernel -----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An operator is one function from Plan to Body. It reads the node, says which
// operands it wants in which type of computation and how much scratch memory,
// and returns a closure that computes. Operands whose dtype differs from the
// wanted type are converted in the workspace before and after the closure runs,
// so an algorithm is written once for f32, f16 and bf16 alike.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_ONNX_PLAN_H
#define CONCORD_KERNELS_ONNX_PLAN_H

#include "Convert.h"
#include "Node.h"

#include <functional>
#include <vector>

namespace concord::kernels::onnx {

/// Handle of an input as elements of T; false when the input is absent.
template <class T> struct In {
  int index = -1;
  int64_t offset = -1; ///< in the workspace, or -1: the pointer itself
  explicit operator bool() const { return index >= 0; }
};
/// Handle of an output as elements of T.
template <class T> struct Out {
  int index = -1;
  int64_t offset = -1;
  explicit operator bool() const { return index >= 0; }
};
/// Handle of scratch memory, uninitialised, private to one run.
template <class T> struct Scratch {
  int64_t offset = -1;
};

/// The pointers of one run.
class Run {
public:
  Run(void *const *pointers, char *workspace, size_t numInputs)
      : pointers(pointers), workspace(workspace), numInputs(numInputs) {}

  /// Null for an absent operand.
  template <class T> const T *operator()(In<T> in) const {
    if (in.index < 0)
      return nullptr;
    return in.offset >= 0 ? reinterpret_cast<const T *>(workspace + in.offset)
                          : static_cast<const T *>(pointers[in.index]);
  }
  template <class T> T *operator()(Out<T> out) const {
    if (out.index < 0)
      return nullptr;
    return out.offset >= 0 ? reinterpret_cast<T *>(workspace + out.offset)
                           : static_cast<T *>(pointers[numInputs + out.index]);
  }
  template <class T> T *operator()(Scratch<T> scratch) const {
    return reinterpret_cast<T *>(workspace + scratch.offset);
  }
  const char *in(size_t i) const {
    return static_cast<const char *>(pointers[i]);
  }
  char *out(size_t i) const {
    return static_cast<char *>(pointers[numInputs + i]);
  }

private:
  void *const *pointers;
  char *workspace;
  size_t numInputs;
};

/// Throws InvalidError on bad data; allocates nothing otherwise.
using Body = std::function<void(const Run &)>;

class Plan {
public:
  explicit Plan(const NodeInfo &node) : node(node) {}

  const NodeInfo &node;

  /// Input `i` as T; throws when it is absent.
  template <class T> In<T> read(size_t i) {
    node.input(i);
    return readIf<T>(i);
  }
  template <class T> In<T> readIf(size_t i) {
    if (!node.hasIn(i))
      return {};
    const TensorInfo &info = node.in[i];
    if (info.dtype == nativeDType<T>())
      return {static_cast<int>(i), -1};
    int64_t offset = reserve(info.count, sizeof(T));
    before.push_back({static_cast<int>(i), offset, info.count, info.dtype,
                      nativeDType<T>()});
    return {static_cast<int>(i), offset};
  }
  /// Output `i` as T; throws when it is absent.
  template <class T> Out<T> write(size_t i) {
    node.output(i);
    return writeIf<T>(i);
  }
  template <class T> Out<T> writeIf(size_t i) {
    if (!node.hasOut(i))
      return {};
    const TensorInfo &info = node.out[i];
    if (info.dtype == nativeDType<T>())
      return {static_cast<int>(i), -1};
    int64_t offset = reserve(info.count, sizeof(T));
    after.push_back({static_cast<int>(i), offset, info.count, info.dtype,
                     nativeDType<T>()});
    return {static_cast<int>(i), offset};
  }
  template <class T> Scratch<T> scratch(int64_t count) {
    return {reserve(count, sizeof(T))};
  }

  uint64_t workspaceBytes() const { return static_cast<uint64_t>(used); }

  struct Conversion {
    int operand;
    int64_t offset;
    int64_t count;
    DType dtype;   ///< in the caller's memory
    DType compute; ///< in the workspace
  };
  std::vector<Conversion> before, after;

private:
  int64_t reserve(int64_t count, size_t size) {
    int64_t offset = used;
    used += (count * static_cast<int64_t>(size) + 63) / 64 * 64;
    return offset;
  }
  int64_t used = 0;
};

using Builder = Body (*)(Plan &);

/// The table of operators: lower-case name and builder.
using OpTable = std::map<std::string_view, Builder>;

void addElementwise(OpTable &);
void addReduce(OpTable &);
void addShape(OpTable &);
void addIndexing(OpTable &);
void addSelect(OpTable &);
void addMatMul(OpTable &);
void addEinsum(OpTable &);
void addCast(OpTable &);
void addConv(OpTable &);
void addPool(OpTable &);
void addNorm(OpTable &);
void addAttention(OpTable &);
void addQuant(OpTable &);
void addSignal(OpTable &);
void addImage(OpTable &);
void addResize(OpTable &);
void addLoss(OpTable &);

/// Throws InvalidError with `message` unless `condition` holds.
inline void require(bool condition, const char *message) {
  if (!condition)
    throw InvalidError(message);
}

/// Sizes of the two operands' dims must be equal.
inline void requireSameDims(const TensorInfo &a, const TensorInfo &b,
                            const char *message) {
  require(a.dims == b.dims, message);
}

} // namespace concord::kernels::onnx

#endif // CONCORD_KERNELS_ONNX_PLAN_H
