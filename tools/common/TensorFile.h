//===- TensorFile.h - A tensor from any file the tools take -----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// .npy, .pb (a serialised ONNX TensorProto) and .raw (bare little-endian
// bytes), by extension.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMON_TENSORFILE_H
#define CONCORD_TOOLS_COMMON_TENSORFILE_H

#include "common/HostTensor.h"

#include <filesystem>

namespace concord::tools {

/// Read a tensor that is to have `dtype` and `shape`. A .raw file has neither
/// and must have the size. BF16 and F8 may be given as U16 and U8 (NumPy has no
/// such types). Throws Error, which says what `what` (as in "input 'x'") was
/// expected to be and what the file has.
HostTensor readTensorFile(const std::filesystem::path &path, DType dtype,
                          const Shape &shape, const std::string &what);

/// The same without expectations; for .raw this throws.
HostTensor readTensorFile(const std::filesystem::path &path);

/// True when a tensor stored as `stored` can stand for `wanted` bit for bit.
bool sameStorage(DType stored, DType wanted);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMMON_TENSORFILE_H
