//===- Utf8.h - Well-formed text in a plan ----------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Names and locations come from models and may be any bytes. A plan has
// well-formed UTF-8 only, so that its JSON says the same as its bytes: the
// writer replaces what is none, the reader refuses it.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_PLAN_UTF8_H
#define CONCORD_RUNTIME_PLAN_UTF8_H

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace concord::plan {

/// Length of the well-formed UTF-8 sequence at `at`, or 0.
inline size_t utf8Length(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : 0; };
  uint8_t lead = byte(at);
  size_t length = lead < 0x80   ? 1
                  : lead < 0xc2 ? 0
                  : lead < 0xe0 ? 2
                  : lead < 0xf0 ? 3
                  : lead < 0xf5 ? 4
                                : 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xc0) != 0x80)
      return 0;
  uint8_t second = byte(at + 1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
      (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
    return 0;
  return length;
}

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd"; ///< U+FFFD

inline bool wellFormed(std::string_view text) {
  for (size_t i = 0, n; i < text.size(); i += n)
    if (n = utf8Length(text, i); n == 0)
      return false;
  return true;
}

} // namespace concord::plan

#endif // CONCORD_RUNTIME_PLAN_UTF8_H
