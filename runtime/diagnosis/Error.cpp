//===- Error.cpp - Errors inside the runtime ------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The per-thread text of the last failure and the texts of the error list.
//
//===----------------------------------------------------------------------===//

#include "Error.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

using namespace concord::rt;

static constexpr size_t kTextBytes = 1024;

static char *threadText() {
  static thread_local char text[kTextBytes] = "no error";
  return text;
}

const char *concord::rt::lastError() { return threadText(); }

int32_t concord::rt::fail(int32_t status, const char *format, ...) {
  // The arguments may point into the old text.
  char text[kTextBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::memcpy(threadText(), text, sizeof text);
  return status;
}

void concord::rt::raise(int32_t status, const char *format, ...) {
  char text[kTextBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Error(status, text);
}

void concord::rt::raiseErrno(const char *format, ...) {
  int number = errno;
  char text[kTextBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Error(CONCORD_ERROR_SYSTEM,
              std::string(text) + ": " + std::strerror(number));
}

const char *concord::rt::statusText(int32_t status, int what) {
  switch (status) {
  case CONCORD_OK:
    return what == 3 ? "CONCORD_OK" : what == 0 ? "no error" : "";
#define X(name, number, message, cause, cure)                                  \
  case number:                                                                 \
    return what == 3   ? "CONCORD_ERROR_" #name                                \
           : what == 0 ? message                                               \
           : what == 1 ? cause                                                 \
                       : cure;
    CONCORD_ERRORS(X)
#undef X
  default:
    return what == 3 ? "CONCORD_ERROR_UNKNOWN" : "unknown status";
  }
}
