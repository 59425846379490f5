//===- ElfFileTest.cpp - Tests of common/ElfFile.h -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A shared object of three sections, made by hand, and what damage does to it.
//
//===----------------------------------------------------------------------===//

#include "common/ElfFile.h"

#include "Mutate.h"
#include "common/HostTensor.h"

#include <cstring>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace concord::tools;
using ::testing::HasSubstr;

namespace {

#if defined(__x86_64__)
constexpr unsigned kMachine = EM_X86_64;
#else
constexpr unsigned kMachine = EM_AARCH64;
#endif

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

std::string errorOf(const Image &image) {
  try {
    elfSection(image.bytes(), ".concord.meta", "p.so");
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

TEST(ElfFile, FindsASection) {
  std::vector<std::byte> file = Image().bytes();
  auto section = elfSection(file, ".concord.meta", "p.so");
  ASSERT_TRUE(section);
  EXPECT_EQ(std::string(reinterpret_cast<const char *>(section->data()),
                        section->size()),
            "{\"abi\":1}");
  EXPECT_FALSE(elfSection(file, ".concord.plan", "p.so"));
  // A prefix of a name is not the name.
  EXPECT_FALSE(elfSection(file, ".concord", "p.so"));
}

TEST(ElfFile, CountsBeyondTheHeader) {
  Image image;
  image.header.e_shnum = 0;
  image.sections[0].sh_size = 3;
  image.header.e_shstrndx = SHN_XINDEX;
  image.sections[0].sh_link = 1;
  EXPECT_TRUE(elfSection(image.bytes(), ".concord.meta", "p.so"));
}

TEST(ElfFile, RefusesByName) {
  Image image;
  image.header.e_machine = EM_RISCV;
  EXPECT_THAT(errorOf(image), HasSubstr("another processor architecture"));
  image = Image();
  image.header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_THAT(errorOf(image), HasSubstr("64-bit"));
  image = Image();
  image.header.e_type = ET_EXEC;
  EXPECT_THAT(errorOf(image), HasSubstr("not a shared object"));
  image = Image();
  image.header.e_shoff = UINT64_MAX - 10;
  EXPECT_THAT(errorOf(image), HasSubstr("damaged"));
  image = Image();
  image.header.e_shnum = 0;
  image.sections[0].sh_size = UINT64_MAX / 64 + 2;
  EXPECT_THAT(errorOf(image), HasSubstr("damaged"));
  image = Image();
  image.sections[2].sh_size = UINT64_MAX;
  EXPECT_THAT(errorOf(image), HasSubstr("damaged"));
  image = Image();
  image.sections[2].sh_type = SHT_NOBITS;
  EXPECT_THAT(errorOf(image), HasSubstr("damaged"));
  image = Image();
  image.sections[1].sh_offset = 1 << 20;
  EXPECT_THAT(errorOf(image), HasSubstr("names are damaged"));
  EXPECT_THROW(elfSection({}, ".x", "p.so"), Error);
}

TEST(ElfFile, SurvivesDamage) {
  std::mt19937 random(2);
  std::vector<std::byte> good = Image().bytes();
  int failed = 0;
  for (int i = 0; i < 50000; ++i) {
    // A heap copy of the exact size, so that a sanitizer sees the edges.
    std::vector<std::byte> bad = mutate(good, random);
    try {
      auto section = elfSection(bad, ".concord.meta", "p.so");
      if (section) {
        EXPECT_LE(section->size(), bad.size());
        EXPECT_GE(section->data(), bad.data());
      }
    } catch (const Error &) {
      ++failed;
    }
  }
  EXPECT_GT(failed, 1000);
}

} // namespace
