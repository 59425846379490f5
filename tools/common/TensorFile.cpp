//===- TensorFile.cpp - A tensor from any file the tools take -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dispatch by extension, and the checks against what a program wants.
//
//===----------------------------------------------------------------------===//

#include "common/TensorFile.h"

#include "common/Files.h"
#include "common/Npy.h"
#ifdef CONCORD_TOOLS_HAVE_ONNX
#include "concord/onnx/Reader.h"
#endif

namespace concord::tools {

namespace {

HostTensor readProto(const std::filesystem::path &path) {
#ifdef CONCORD_TOOLS_HAVE_ONNX
  try {
    onnx::Tensor tensor = onnx::readTensorProto(path.string());
    HostTensor result{tensor.type.dtype, tensor.type.shape, {}};
    std::optional<uint64_t> size = numBytes(result.dtype, result.shape);
    if (!size || *size != tensor.bytes.size())
      throw Error(path.string() +
                  ": its data do not have the size of its shape");
    result.bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
    return result;
  } catch (const onnx::Error &error) {
    throw Error(error.what());
  }
#else
  throw Error(path.string() + ": this build has no ONNX reader (the room "
                              "'frontends' was not configured); give an .npy "
                              "file");
#endif
}

} // namespace

bool sameStorage(DType stored, DType wanted) {
  return stored == wanted || (stored == DType::U16 && wanted == DType::BF16) ||
         (stored == DType::U8 &&
          (wanted == DType::F8E4M3 || wanted == DType::F8E5M2));
}

HostTensor readTensorFile(const std::filesystem::path &path) {
  if (path.extension() == ".npy")
    return readNpy(path);
  if (path.extension() == ".pb")
    return readProto(path);
  throw Error(path.string() +
              ": tensors are read from .npy, .pb and .raw files");
}

HostTensor readTensorFile(const std::filesystem::path &path, DType dtype,
                          const Shape &shape, const std::string &what) {
  std::string expected = what + " is " + std::string(dtypeName(dtype)) + " " +
                         shapeToString(shape);
  if (path.extension() == ".raw") {
    MappedFile file(path);
    uint64_t size = numBytes(dtype, shape).value_or(0);
    if (file.bytes().size() != size)
      throw Error(path.string() + ": has " +
                  std::to_string(file.bytes().size()) + " bytes, " + expected +
                  " and needs " + std::to_string(size));
    return {dtype, shape, {file.bytes().begin(), file.bytes().end()}};
  }
  HostTensor tensor = readTensorFile(path);
  if (!sameStorage(tensor.dtype, dtype))
    throw Error(path.string() + ": dtype " +
                std::string(dtypeName(tensor.dtype)) + ", but " + expected);
  if (tensor.shape != shape)
    throw Error(path.string() + ": shape " + shapeToString(tensor.shape) +
                ", but " + expected);
  tensor.dtype = dtype;
  return tensor;
}

} // namespace concord::tools
