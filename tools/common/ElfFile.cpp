//===- ElfFile.cpp - One section of an ELF file, without loading it -------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Field by field with memcpy: offsets in a foreign file need not be aligned.
//
//===----------------------------------------------------------------------===//

#include "common/ElfFile.h"

#include "common/HostTensor.h"

#include <cstring>
#include <elf.h>

namespace concord::tools {

std::optional<std::span<const std::byte>>
elfSection(std::span<const std::byte> file, std::string_view section,
           const std::string &name) {
  auto fail = [&](const std::string &what) { throw Error(name + ": " + what); };
  // True when [offset, offset + size) lies in the file, without overflow.
  auto inside = [&](uint64_t offset, uint64_t size) {
    return offset <= file.size() && size <= file.size() - offset;
  };
  auto readHeader = [&](uint64_t offset) {
    Elf64_Shdr header;
    std::memcpy(&header, file.data() + offset, sizeof(header));
    return header;
  };

  Elf64_Ehdr elf;
  if (file.size() < sizeof(elf) ||
      std::memcmp(file.data(), ELFMAG, SELFMAG) != 0)
    fail("not an ELF file, so not a compiled program");
  std::memcpy(&elf, file.data(), sizeof(elf));
  if (elf.e_ident[EI_CLASS] != ELFCLASS64 ||
      elf.e_ident[EI_DATA] != ELFDATA2LSB)
    fail("not a 64-bit little-endian ELF file");
#if defined(__x86_64__)
  constexpr unsigned machine = EM_X86_64;
#elif defined(__aarch64__)
  constexpr unsigned machine = EM_AARCH64;
#else
#error "Concord runs on x86-64 and aarch64"
#endif
  if (elf.e_machine != machine)
    fail("compiled for another processor architecture (ELF machine " +
         std::to_string(elf.e_machine) + ", this is " +
         std::to_string(machine) + ")");
  if (elf.e_type != ET_DYN)
    fail("not a shared object (ELF type " + std::to_string(elf.e_type) + ")");
  if (elf.e_shoff == 0)
    fail("its section table was stripped; Concord needs it");
  if (elf.e_shentsize != sizeof(Elf64_Shdr) ||
      !inside(elf.e_shoff, sizeof(Elf64_Shdr)))
    fail("its ELF section table is damaged");
  uint64_t count = elf.e_shnum, names = elf.e_shstrndx;
  Elf64_Shdr first = readHeader(elf.e_shoff);
  if (count == 0) // more than 65,279 sections: the count is in the first
    count = first.sh_size;
  if (names == SHN_XINDEX)
    names = first.sh_link;
  if (count > file.size() / sizeof(Elf64_Shdr) ||
      !inside(elf.e_shoff, count * sizeof(Elf64_Shdr)) || names >= count)
    fail("its ELF section table is damaged");

  Elf64_Shdr strings = readHeader(elf.e_shoff + names * sizeof(Elf64_Shdr));
  if (strings.sh_type != SHT_STRTAB ||
      !inside(strings.sh_offset, strings.sh_size))
    fail("its ELF section names are damaged");
  std::string_view table(reinterpret_cast<const char *>(file.data()) +
                             strings.sh_offset,
                         strings.sh_size);
  for (uint64_t i = 0; i < count; ++i) {
    Elf64_Shdr header = readHeader(elf.e_shoff + i * sizeof(Elf64_Shdr));
    if (header.sh_name >= table.size())
      continue;
    std::string_view rest = table.substr(header.sh_name);
    if (rest.size() <= section.size() || rest[section.size()] != '\0' ||
        rest.substr(0, section.size()) != section)
      continue;
    if (header.sh_type == SHT_NOBITS ||
        (header.sh_flags & SHF_COMPRESSED) != 0 ||
        !inside(header.sh_offset, header.sh_size))
      fail("its section " + std::string(section) + " is damaged");
    return file.subspan(header.sh_offset, header.sh_size);
  }
  return std::nullopt;
}

} // namespace concord::tools
