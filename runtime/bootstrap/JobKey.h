//===- JobKey.h - What names a job ------------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// By which the ranks of a job meet where no common parent has brought them
// together.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_BOOTSTRAP_JOBKEY_H
#define CONCORD_RUNTIME_BOOTSTRAP_JOBKEY_H

#include "concord/concord.h"

#include <cstdint>
#include <string>

namespace concord::rt {

/// What names a job: 16 bytes that its ranks share.
struct JobKey {
  uint8_t bytes[16] = {};
  /// From a unique id. Throws when it is not one.
  static JobKey of(const concord_unique_id &id);
  /// From text that all ranks compute.
  static JobKey of(const std::string &text);
  std::string hex() const;
  bool operator==(const JobKey &) const = default;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_BOOTSTRAP_JOBKEY_H
