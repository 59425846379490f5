//===- Elf.h - A section of a shared object ---------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds one section of a 64-bit little-endian ELF file by name. Every offset
// and count is checked against the file's length.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_DOCTOR_ELF_H
#define CONCORD_TOOLS_DOCTOR_ELF_H

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace concord::doctor {

bool findSection(std::span<const std::byte> file, std::string_view name,
                 std::span<const std::byte> &section, std::string &error);

} // namespace concord::doctor

#endif // CONCORD_TOOLS_DOCTOR_ELF_H
