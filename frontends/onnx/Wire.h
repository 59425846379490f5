//===- Wire.h - Files, wire bytes and tensors of ONNX -----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What lies between bytes on disk and the graph builder: read-only mappings,
// taking large tensor data out of a message before protobuf would copy it, and
// turning a wire tensor into a `Tensor` that refers to the mapped bytes.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_FRONTENDS_ONNX_WIRE_H
#define CONCORD_FRONTENDS_ONNX_WIRE_H

#include "concord/onnx/Graph.h"

#include <string>
#include <unordered_map>

namespace concord::onnx_wire {
class Tensor;
}

namespace concord::onnx::detail {

namespace wire = concord::onnx_wire;

/// A read-only private mapping of a regular file.
struct MappedFile {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// Map `path`. Throws `Error` "PATH: reason" where it is missing, not a regular
/// file or not readable.
MappedFile mapFile(const std::string &path);

/// What a model is read from.
struct Source {
  std::string name;      ///< for messages
  std::string directory; ///< where external data may lie; empty: nowhere
  MappedFile file;
  /// External files mapped so far, by their location string.
  std::unordered_map<std::string, MappedFile> external;
};

/// What the outermost message is.
enum class Message : uint8_t {
  Model,
  Graph,
  Node,
  Function,
  Attribute,
  Tensor
};

/// Check the framing of a serialised message all the way down and return it
/// with every large `raw_data` replaced by its place in `bytes`. Throws `Error`
/// (without a file prefix) when the bytes are truncated, nested too deeply or
/// not of the wire format.
std::string takeOutRawData(std::span<const std::byte> bytes, Message kind);

/// A wire tensor as a `Tensor`; `what` ("initializer 'w'") opens messages,
/// which have no file prefix. Throws `Error` for unsupported dtypes, counts
/// that do not fit the shape, and external data that is missing, too short or
/// outside `source.directory`.
Tensor tensorFromWire(const wire::Tensor &proto, Source &source,
                      const std::string &what);

/// ONNX's TensorProto.DataType number to a dtype; Invalid when not supported.
DType dtypeFromWire(int64_t number);
int32_t dtypeToWire(DType dtype);
/// ONNX's name of a data type number ("FLOAT", "STRING", "INT4").
std::string wireDtypeName(int64_t number);

/// A hash of a tensor's bytes (FNV-1a); no cryptographic one.
uint64_t hashOf(const Tensor &tensor);

/// Elements of `shape` times the size of `dtype`, or an `Error` when a
/// dimension is negative or the tensor could not exist on any machine (2^46
/// bytes).
void checkTensorSize(const TensorType &type, const std::string &what);

} // namespace concord::onnx::detail

#endif // CONCORD_FRONTENDS_ONNX_WIRE_H
