//===- Error.h - Errors inside the runtime ----------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How failures travel: set-up code throws Error, hot paths return a status;
// both end at the C ABI, where the words are kept per thread for
// concord_last_error.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_DIAGNOSIS_ERROR_H
#define CONCORD_RUNTIME_DIAGNOSIS_ERROR_H

#include "concord/concord.h"

#include <exception>
#include <string>

namespace concord::rt {

struct Error : std::exception {
  Error(int32_t status, std::string text)
      : status(status), text(std::move(text)) {}
  const char *what() const noexcept override { return text.c_str(); }

  int32_t status;
  std::string text;
};

/// Keep the words for concord_last_error and hand the status on. Does not
/// allocate, so that it can be used when memory has run out.
int32_t fail(int32_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/// Words of the last failure of this thread.
const char *lastError();

[[noreturn]] void raise(int32_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/// As raise(CONCORD_ERROR_SYSTEM), with the words for errno appended.
[[noreturn]] void raiseErrno(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/// Documented words of a status: 0 message, 1 cause, 2 cure, 3 name.
const char *statusText(int32_t status, int what);

/// Run set-up code behind a C entry point.
template <typename Body> int32_t guarded(Body body) noexcept {
  try {
    return body();
  } catch (const Error &error) {
    return fail(error.status, "%s", error.text.c_str());
  } catch (const std::bad_alloc &) {
    return fail(CONCORD_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    return fail(CONCORD_ERROR_INTERNAL, "unexpected: %s", error.what());
  }
}

} // namespace concord::rt

#endif // CONCORD_RUNTIME_DIAGNOSIS_ERROR_H
