//===- Numa.cpp - Where a rank's memory lies ------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From sysfs and by system call, so that the runtime needs no library for it.
//
//===----------------------------------------------------------------------===//

#include "topology/Numa.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/syscall.h>
#include <unistd.h>

using namespace concord::rt;

int concord::rt::nodeOfCores(const cpu_set_t &cores, const std::string &root) {
  std::error_code error;
  int nodes = 0, found = -1;
  for (const auto &entry : std::filesystem::directory_iterator(root, error)) {
    std::string name = entry.path().filename().string();
    if (name.rfind("node", 0) != 0 || name.size() == 4 ||
        name.find_first_not_of("0123456789", 4) != std::string::npos)
      continue;
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    std::getline(file, list);
    // "0-3,8,10-11"; a node without cores has an empty list.
    cpu_set_t here;
    CPU_ZERO(&here);
    const char *at = list.c_str();
    while (*at >= '0' && *at <= '9') {
      char *end;
      long first = std::strtol(at, &end, 10), last = first;
      if (*end == '-')
        last = std::strtol(end + 1, &end, 10);
      for (long i = first; i <= std::min<long>(last, CPU_SETSIZE - 1); ++i)
        CPU_SET(size_t(i), &here);
      at = *end == ',' ? end + 1 : end;
    }
    if (CPU_COUNT(&here) == 0)
      continue;
    ++nodes;
    cpu_set_t both;
    CPU_AND(&both, &here, &cores);
    if (CPU_EQUAL(&both, &cores))
      found = std::atoi(name.c_str() + 4);
  }
  return nodes > 1 && CPU_COUNT(&cores) > 0 ? found : -1;
}

bool concord::rt::preferNode(void *memory, uint64_t bytes, int node) {
#ifdef SYS_mbind
  constexpr int kPreferred = 1; // MPOL_PREFERRED
  unsigned long mask[16] = {};
  constexpr int kBits = 8 * sizeof mask;
  if (node < 0 || node >= kBits)
    return false;
  mask[node / (8 * sizeof *mask)] |= 1ul << node % (8 * sizeof *mask);
  return ::syscall(SYS_mbind, memory, bytes, kPreferred, mask, kBits, 0) == 0;
#else
  return false;
#endif
}
