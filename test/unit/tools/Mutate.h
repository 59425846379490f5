//===- Mutate.h - Random damage for reader tests -------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Copies of good bytes with a few random changes, for tests that a reader of
// foreign bytes either succeeds or throws Error, and does nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_UNIT_TOOLS_MUTATE_H
#define CONCORD_TEST_UNIT_TOOLS_MUTATE_H

#include <cstddef>
#include <random>
#include <vector>

namespace concord::tools {

inline std::vector<std::byte> mutate(const std::vector<std::byte> &good,
                                     std::mt19937 &random) {
  std::vector<std::byte> bad = good;
  for (unsigned changes = 1 + random() % 4; changes > 0 && !bad.empty();
       --changes) {
    size_t at = random() % bad.size();
    switch (random() % 5) {
    case 0:
      bad[at] = std::byte(random());
      break;
    case 1:
      bad[at] ^= std::byte(1u << (random() % 8));
      break;
    case 2:
      bad.resize(at);
      break;
    case 3: // a run of ones: large numbers wherever a length lies
      for (size_t i = at; i < bad.size() && i < at + 8; ++i)
        bad[i] = std::byte(0xff);
      break;
    case 4:
      bad.insert(bad.begin() + static_cast<ptrdiff_t>(at), bad[at]);
      break;
    }
  }
  return bad;
}

} // namespace concord::tools

#endif // CONCORD_TEST_UNIT_TOOLS_MUTATE_H
