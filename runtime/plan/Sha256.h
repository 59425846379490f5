//===- Sha256.h - Incremental SHA-256 ---------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The incremental form behind plan::sha256, for data that is not in one piece.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_PLAN_SHA256_H
#define CONCORD_RUNTIME_PLAN_SHA256_H

#include "concord/plan.h"

namespace concord::plan {

class Sha256 {
public:
  void update(std::span<const std::byte> bytes);
  /// The digest of all updates; the object is spent afterwards.
  Digest finish();

private:
  void block(const uint8_t *data);

  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t length = 0;
  size_t fill = 0;
  uint8_t buffer[64];
};

} // namespace concord::plan

#endif // CONCORD_RUNTIME_PLAN_SHA256_H
