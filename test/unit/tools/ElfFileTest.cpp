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

#include "ElfImage.h"
#include "common/HostTensor.h"

#include <cstring>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace concord::tools;
using ::testing::HasSubstr;

namespace {

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

} // namespace
