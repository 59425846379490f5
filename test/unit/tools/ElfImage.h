//===- ElfImage.h - The least shared object for reader tests --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_UNIT_TOOLS_ELFIMAGE_H
#define CONCORD_TEST_UNIT_TOOLS_ELFIMAGE_H

#include <cstddef>
#include <cstring>
#include <elf.h>
#include <span>
#include <string>
#include <vector>

namespace concord::tools {

#if defined(__x86_64__)
inline constexpr unsigned kMachine = EM_X86_64;
#else
inline constexpr unsigned kMachine = EM_AARCH64;
#endif

/// Two sections besides the empty one: the names, and .concord.meta.
struct Image {
  Elf64_Ehdr header{};
  Elf64_Shdr sections[3]{};
  std::string names = std::string("\0.shstrtab\0.concord.meta\0", 25);
  std::string data = "{\"abi\":1}";

  Image() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_machine = kMachine;
    header.e_shoff = sizeof(header);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 3;
    header.e_shstrndx = 1;
    uint64_t at = sizeof(header) + sizeof(sections);
    sections[1].sh_name = 1;
    sections[1].sh_type = SHT_STRTAB;
    sections[1].sh_offset = at;
    sections[1].sh_size = names.size();
    sections[2].sh_name = 11;
    sections[2].sh_type = SHT_PROGBITS;
    sections[2].sh_offset = at + names.size();
    sections[2].sh_size = data.size();
  }

  std::vector<std::byte> bytes() const {
    std::string all(reinterpret_cast<const char *>(&header), sizeof(header));
    all.append(reinterpret_cast<const char *>(sections), sizeof(sections));
    all += names + data;
    auto view = std::as_bytes(std::span(all.data(), all.size()));
    return {view.begin(), view.end()};
  }
};

} // namespace concord::tools

#endif // CONCORD_TEST_UNIT_TOOLS_ELFIMAGE_H
