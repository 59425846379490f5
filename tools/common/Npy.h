//===- Npy.h - NumPy's .npy files -------------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Format versions 1, 2 and 3 as NumPy's own format description gives them:
// magic, version, length of the header, a Python dictionary literal, the data.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMON_NPY_H
#define CONCORD_TOOLS_COMMON_NPY_H

#include "common/HostTensor.h"

#include <filesystem>

namespace concord::tools {

/// Parse an .npy file from memory. C and Fortran order, both byte orders, bool,
/// 8 to 64-bit integers, 16 to 64-bit floats; 1 and 2-byte opaque elements
/// (`V1`, `V2`: how extension types are saved) come out as U8 and U16. The
/// result is in C order. Throws Error; `name` begins its message. Foreign
/// bytes: nothing is read outside and nothing allocated beyond the size of the
/// data.
HostTensor parseNpy(std::span<const std::byte> bytes, const std::string &name);

HostTensor readNpy(const std::filesystem::path &path);

/// The header NumPy would write (version 1, or 2 when it is long), padded so
/// that the data begin at a multiple of 64. BF16 is stored as `<u2`, F8 as
/// `|u1`.
std::string npyHeader(DType dtype, std::span<const int64_t> shape);

void writeNpy(const std::filesystem::path &path, const HostTensor &tensor);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMMON_NPY_H
