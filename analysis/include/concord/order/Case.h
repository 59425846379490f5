//===- Case.h - Reader of the case notation ---------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `.case` files hold small multi-rank programs with an expected verdict; the
// notation is described in docs/comm-doctor.md. The reader takes foreign bytes:
// every count is bounded, no recursion depends on the input, and every error
// names line and column.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ORDER_CASE_H
#define CONCORD_ORDER_CASE_H

#include "concord/order/Program.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace concord::order {

enum class Verdict : uint8_t {
  Clean,
  Race,
  DeadlockSome,
  DeadlockAlways,
  Mismatch,
  DeadlockUnknown, ///< one schedule sticks; bound hit before "some" or "always"
  NotProven,       ///< bound hit and nothing found
};
std::string_view toString(Verdict verdict);

struct Variant {
  std::string label;
  uint32_t line = 0; ///< of its first statement
  Program program;
  std::optional<Verdict> expect;
  bool noCheck = false;
  std::string noCheckText;
};

struct CaseFile {
  std::string path;
  std::string title; ///< the first comment line
  std::vector<Variant> variants;
};

struct CaseError {
  uint32_t line = 0, column = 0;
  std::string message;
};

/// Limits of the reader; exceeding one is an error, never a truncation.
constexpr size_t kMaxCaseBytes = 64u << 20;
constexpr uint32_t kMaxCaseOps = 200000;

/// Parse a whole file. Returns false and fills `error` on the first fault.
bool parseCase(std::string_view text, std::string_view path, CaseFile &file,
               CaseError &error);

} // namespace concord::order

#endif // CONCORD_ORDER_CASE_H
