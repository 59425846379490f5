//===- PlainText.cpp - Foreign text as plain UTF-8 ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What terminals and other systems' tools do to a log on its way here: a byte
// order mark, UTF-16, and the escape sequences of colours.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Evidence.h"

#include <algorithm>
#include <cstring>

namespace concord::order::evidence {

namespace {

constexpr char kEscape = '\x1b';

void appendUtf8(std::string &out, uint32_t point) {
  if (point < 0x80) {
    out += char(point);
    return;
  }
  if (point < 0x800) {
    out += char(0xC0 | point >> 6);
  } else {
    if (point < 0x10000) {
      out += char(0xE0 | point >> 12);
    } else {
      out += char(0xF0 | point >> 18);
      out += char(0x80 | (point >> 12 & 63));
    }
    out += char(0x80 | (point >> 6 & 63));
  }
  out += char(0x80 | (point & 63));
}

/// A unit without its partner becomes U+FFFD.
std::string fromUtf16(std::string_view bytes, bool bigEndian) {
  auto unit = [&](size_t i) {
    auto a = uint8_t(bytes[i]), b = uint8_t(bytes[i + 1]);
    return uint32_t(bigEndian ? a << 8 | b : b << 8 | a);
  };
  std::string out;
  out.reserve(bytes.size() / 2);
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    uint32_t point = unit(i);
    if (point >= 0xD800 && point < 0xE000) {
      uint32_t low = point < 0xDC00 && i + 3 < bytes.size() ? unit(i + 2) : 0;
      if (low >= 0xDC00 && low < 0xE000) {
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        i += 2;
      } else {
        point = 0xFFFD;
      }
    }
    appendUtf8(out, point);
  }
  return out;
}

/// ECMA-48: "ESC [ parameters final", "ESC ] text BEL" (or "ESC \"), and pairs.
std::string withoutEscapes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t escape = std::min(text.find(kEscape, i), text.size());
    out.append(text.substr(i, escape - i));
    i = escape + 1;
    if (i >= text.size())
      break;
    char kind = text[i++];
    if (kind == '[') {
      while (i < text.size() && text[i] >= 0x20 && text[i] < 0x40)
        ++i;
      if (i < text.size() && text[i] >= 0x40 && text[i] < 0x7f)
        ++i;
    } else if (kind == ']') {
      while (i < text.size() && text[i] != '\a' && text[i] != '\n' &&
             text[i] != kEscape)
        ++i;
      if (i < text.size() && text[i] == '\a')
        ++i;
      else if (text.substr(i, 2) == "\x1b\\")
        i += 2;
    } else if (kind == '\n') {
      out += kind;
    }
  }
  return out;
}

} // namespace

std::optional<std::string> plainText(std::string_view bytes) {
  if (bytes.empty() || uint8_t(bytes[0]) == 0x80) // a pickle
    return {};
  std::optional<std::string> plain;
  if (bytes.substr(0, 3) == "\xef\xbb\xbf")
    plain = std::string(bytes.substr(3));
  else if (bytes.substr(0, 2) == "\xff\xfe")
    plain = fromUtf16(bytes.substr(2), /*bigEndian=*/false);
  else if (bytes.substr(0, 2) == "\xfe\xff")
    plain = fromUtf16(bytes.substr(2), /*bigEndian=*/true);
  std::string_view text = plain ? std::string_view(*plain) : bytes;
  if (std::memchr(text.data(), kEscape, text.size()) &&
      !std::memchr(text.data(), '\0', std::min<size_t>(text.size(), 4096)))
    plain = withoutEscapes(text);
  return plain;
}

} // namespace concord::order::evidence
