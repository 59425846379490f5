//===- Elf.cpp - A section of a shared object -----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See the System V ABI, chapter 4, for the structures.
//
//===----------------------------------------------------------------------===//

#include "Elf.h"

#include <cstring>
#include <elf.h>

namespace concord::doctor {

bool findSection(std::span<const std::byte> file, std::string_view name,
                 std::span<const std::byte> &section, std::string &error) {
  Elf64_Ehdr header;
  if (file.size() < sizeof header) {
    error = "too short for a shared object";
    return false;
  }
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_shentsize != sizeof(Elf64_Shdr)) {
    error = "no 64-bit little-endian ELF file";
    return false;
  }
  auto inside = [&](uint64_t offset, uint64_t size) {
    return offset <= file.size() && size <= file.size() - offset;
  };
  uint64_t tableSize = uint64_t(header.e_shnum) * sizeof(Elf64_Shdr);
  if (!inside(header.e_shoff, tableSize) ||
      header.e_shstrndx >= header.e_shnum) {
    error = "a truncated ELF file";
    return false;
  }
  auto at = [&](uint64_t i) {
    Elf64_Shdr s;
    std::memcpy(&s, file.data() + header.e_shoff + i * sizeof s, sizeof s);
    return s;
  };
  Elf64_Shdr names = at(header.e_shstrndx);
  if (!inside(names.sh_offset, names.sh_size)) {
    error = "a truncated ELF file";
    return false;
  }
  std::string_view table(reinterpret_cast<const char *>(file.data()) +
                             names.sh_offset,
                         names.sh_size);
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr s = at(i);
    if (s.sh_name >= table.size() ||
        table.substr(s.sh_name, table.find('\0', s.sh_name) - s.sh_name) !=
            name)
      continue;
    if (s.sh_type == SHT_NOBITS || !inside(s.sh_offset, s.sh_size)) {
      error = "the section " + std::string(name) + " is truncated";
      return false;
    }
    section = file.subspan(s.sh_offset, s.sh_size);
    return true;
  }
  error = "no section " + std::string(name) + ": not an artefact of comm-opt";
  return false;
}

} // namespace concord::doctor
