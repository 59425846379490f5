//===- ElfFile.h - One section of an ELF file, without loading it -*- C++
//-*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An artefact is looked at before anything of it runs: a program for another
// machine, or a hostile file, must not get as far as dlopen.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMON_ELFFILE_H
#define CONCORD_TOOLS_COMMON_ELFFILE_H

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace concord::tools {

/// The contents of section `section` of a little-endian ELF64 shared object for
/// this machine, as a view into `file`; nothing when it has no such section.
/// Throws Error, beginning with `name`, when the file is something else or is
/// inconsistent. Reads only inside `file` and allocates nothing.
std::optional<std::span<const std::byte>>
elfSection(std::span<const std::byte> file, std::string_view section,
           const std::string &name);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMMON_ELFFILE_H
