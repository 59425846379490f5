//===- Prefault.cpp - Pages that must be present before steps -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Touches the loaded segments of the objects that run during a step.
//
//===----------------------------------------------------------------------===//

#include "program/Program.h"

#include <cstring>
#include <link.h>

using namespace concord::rt;

static constexpr uint64_t kPage = 4096;
/// Larger objects (a toolkit in the same process) are none of ours.
static constexpr uint64_t kLargest = uint64_t(32) << 20;

/// Looks at memory that belongs to others, only to have its page mapped.
__attribute__((no_sanitize("address", "thread"))) static int
touchObject(dl_phdr_info *info, size_t, void *data) {
  const char *name = info->dlpi_name ? info->dlpi_name : "";
  const char *base = std::strrchr(name, '/');
  base = base ? base + 1 : name;
  // The executable itself has no name here.
  bool ours = !*name || std::strcmp(name, static_cast<const char *>(data)) == 0;
  for (const char *prefix : {"libconcord", "libc.so", "libm.so", "libmvec",
                             "libstdc++", "libgcc_s", "ld-linux", "linux-vdso"})
    ours |= std::strncmp(base, prefix, std::strlen(prefix)) == 0;
  if (!ours)
    return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto &segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_R) ||
        segment.p_memsz > kLargest)
      continue;
    uint64_t begin = (info->dlpi_addr + segment.p_vaddr) / kPage * kPage;
    uint64_t end = info->dlpi_addr + segment.p_vaddr + segment.p_memsz;
    for (uint64_t at = begin; at < end; at += kPage)
      (void)*reinterpret_cast<volatile const char *>(at);
  }
  return 0;
}

/// Not inlined, so that its frame really lies below the caller's.
__attribute__((noinline)) static void touchStack() {
  volatile char deep[128 * 1024];
  for (size_t i = 0; i < sizeof deep; i += kPage)
    deep[i] = 0;
}

void concord::rt::prefaultCode(const std::string &program) {
  ::dl_iterate_phdr(touchObject, const_cast<char *>(program.c_str()));
  touchStack();
}
