//===- Description.cpp - Parser of kernel descriptions --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The text comes out of an artefact, so it is foreign bytes: every count and
// every number is checked here, and kernels check meaning on top.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace concord::kernels {

namespace {
constexpr size_t kMaxText = 1 << 16;
constexpr size_t kMaxKeys = 64;
constexpr size_t kMaxItems = 1 << 16;

bool isWordChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' ||
         c == '+' || c == ':' || c == '/';
}

bool isKeyChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/// Length of the value that `text` begins with; npos if it is malformed.
size_t valueLength(std::string_view text, int depth) {
  if (text.empty())
    return std::string_view::npos;
  if (text[0] == '"') {
    size_t i = 1;
    while (i < text.size() && text[i] != '"')
      i += text[i] == '\\' ? 2 : 1;
    return i < text.size() ? i + 1 : std::string_view::npos;
  }
  if (text[0] == '[') {
    if (depth == 2)
      return std::string_view::npos;
    size_t i = 1;
    if (i < text.size() && text[i] == ']')
      return 2;
    while (true) {
      size_t length = valueLength(text.substr(i), depth + 1);
      if (length == std::string_view::npos || i + length >= text.size())
        return std::string_view::npos;
      i += length;
      if (text[i] == ']')
        return i + 1;
      if (text[i] != ',')
        return std::string_view::npos;
      ++i;
    }
  }
  size_t i = 0;
  while (i < text.size() && isWordChar(text[i]))
    ++i;
  return i ? i : std::string_view::npos;
}

/// Splits `[a,b,[c,d]]` at its outer commas.
std::vector<std::string_view> splitList(std::string_view text) {
  std::vector<std::string_view> items;
  if (text.size() < 2 || text == "[]")
    return items;
  size_t i = 1;
  while (i < text.size()) {
    size_t length = valueLength(text.substr(i), 1);
    if (length == std::string_view::npos)
      break;
    items.push_back(text.substr(i, length));
    if (items.size() > kMaxItems)
      invalidArgument("a list in a kernel description has over 65536 elements");
    i += length + 1;
  }
  return items;
}
} // namespace

void invalidArgument(const std::string &message) {
  throw KernelError(kInvalidArgument, message);
}

void notSupported(const std::string &message) {
  throw KernelError(kNotSupported, message);
}

void Description::fail(std::string_view key, const std::string &why) const {
  invalidArgument("kernel '" + kernelName + "', key '" + std::string(key) +
                  "': " + why);
}

void Description::unsupported(std::string_view key,
                              const std::string &why) const {
  notSupported("kernel '" + kernelName + "', key '" + std::string(key) +
               "': " + why);
}

Description Description::parse(std::string_view text) {
  if (text.size() > kMaxText)
    invalidArgument("kernel description longer than 65536 bytes");
  Description result;
  result.wholeText = std::string(text);
  size_t i = 0;
  while (i < text.size() && isKeyChar(text[i]))
    ++i;
  result.kernelName = std::string(text.substr(0, i));
  if (result.kernelName.empty())
    invalidArgument("kernel description does not begin with a name");
  while (i < text.size()) {
    if (text[i] != ' ')
      invalidArgument("kernel '" + result.kernelName +
                      "': expected a space at "
                      "byte " +
                      std::to_string(i) + " of its description");
    ++i;
    size_t start = i;
    while (i < text.size() && isKeyChar(text[i]))
      ++i;
    std::string key(text.substr(start, i - start));
    if (key.empty() || i >= text.size() || text[i] != '=')
      invalidArgument("kernel '" + result.kernelName +
                      "': expected key=value at byte " + std::to_string(start) +
                      " of its description");
    ++i;
    size_t length = valueLength(text.substr(i), 0);
    if (length == std::string_view::npos)
      result.fail(key, "malformed value");
    if (!result.entries.empty() && result.entries.back().key >= key)
      result.fail(key, "keys must be in alphabetical order, each once");
    if (result.entries.size() == kMaxKeys)
      result.fail(key, "more than 64 keys");
    result.entries.push_back({key, std::string(text.substr(i, length)), false});
    i += length;
  }
  return result;
}

const Description::Entry *Description::find(std::string_view key) const {
  for (const Entry &entry : entries)
    if (entry.key == key) {
      entry.read = true;
      return &entry;
    }
  return nullptr;
}

const Description::Entry &Description::get(std::string_view key) const {
  if (const Entry *entry = find(key))
    return *entry;
  fail(key, "is missing");
}

bool Description::has(std::string_view key) const {
  return find(key) != nullptr;
}

int64_t Description::toI64(const Entry &entry, std::string_view text) const {
  int64_t value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(entry.key, "'" + std::string(text) + "' is not an integer");
  return value;
}

double Description::toF64(const Entry &entry, std::string_view text) const {
  if (text == "inf" || text == "+inf")
    return std::numeric_limits<double>::infinity();
  if (text == "-inf")
    return -std::numeric_limits<double>::infinity();
  if (text == "nan" || text == "-nan")
    return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    return text.find("e-") != std::string_view::npos
               ? 0.0
               : (text[0] == '-' ? -1 : 1) *
                     std::numeric_limits<double>::infinity();
  if (error != std::errc() || end != text.data() + text.size())
    fail(entry.key, "'" + std::string(text) + "' is not a number");
  return value;
}

DType Description::toDType(const Entry &entry, std::string_view text) const {
  std::string upper(text);
  for (char &c : upper)
    if (c >= 'a' && c <= 'z')
      c = char(c - 'a' + 'A');
  DType type = dtypeFromName(upper);
  if (type == DType::Invalid || upper == text)
    fail(entry.key, "'" + std::string(text) + "' is not an element type");
  return type;
}

std::vector<std::string_view> Description::items(const Entry &entry) const {
  if (entry.text.empty() || entry.text[0] != '[')
    fail(entry.key, "'" + entry.text + "' is not a list");
  return splitList(entry.text);
}

int64_t Description::i64(std::string_view key) const {
  const Entry &entry = get(key);
  return toI64(entry, entry.text);
}

int64_t Description::i64(std::string_view key, int64_t fallback) const {
  const Entry *entry = find(key);
  return entry ? toI64(*entry, entry->text) : fallback;
}

double Description::f64(std::string_view key) const {
  const Entry &entry = get(key);
  return toF64(entry, entry.text);
}

double Description::f64(std::string_view key, double fallback) const {
  const Entry *entry = find(key);
  return entry ? toF64(*entry, entry->text) : fallback;
}

bool Description::flag(std::string_view key, bool fallback) const {
  const Entry *entry = find(key);
  if (!entry)
    return fallback;
  if (entry->text == "1" || entry->text == "true")
    return true;
  if (entry->text == "0" || entry->text == "false")
    return false;
  fail(key, "'" + entry->text + "' is not 0 or 1");
}

std::string Description::word(std::string_view key) const {
  const Entry &entry = get(key);
  if (entry.text[0] == '"' || entry.text[0] == '[')
    fail(key, "'" + entry.text + "' is not a word");
  return entry.text;
}

std::string Description::word(std::string_view key,
                              std::string_view fallback) const {
  return find(key) ? word(key) : std::string(fallback);
}

int Description::choice(std::string_view key,
                        std::initializer_list<std::string_view> choices,
                        int fallback) const {
  if (!find(key) && fallback >= 0)
    return fallback;
  std::string value = word(key);
  std::string known;
  int position = 0;
  for (std::string_view candidate : choices) {
    if (candidate == value)
      return position;
    known += (position++ ? ", " : "") + std::string(candidate);
  }
  fail(key, "'" + value + "' is not one of " + known);
}

std::string Description::string(std::string_view key) const {
  const Entry &entry = get(key);
  if (entry.text[0] != '"')
    fail(key, "'" + entry.text + "' is not a quoted string");
  std::string value;
  for (size_t i = 1; i + 1 < entry.text.size(); ++i) {
    if (entry.text[i] == '\\')
      ++i;
    value += entry.text[i];
  }
  return value;
}

std::string Description::string(std::string_view key,
                                std::string_view fallback) const {
  return find(key) ? string(key) : std::string(fallback);
}

DType Description::dtype(std::string_view key) const {
  const Entry &entry = get(key);
  return toDType(entry, entry.text);
}

DType Description::dtype(std::string_view key, DType fallback) const {
  const Entry *entry = find(key);
  return entry ? toDType(*entry, entry->text) : fallback;
}

std::vector<DType> Description::dtypes(std::string_view key) const {
  const Entry &entry = get(key);
  std::vector<DType> result;
  for (std::string_view item : items(entry))
    result.push_back(toDType(entry, item));
  return result;
}

std::vector<int64_t> Description::list(std::string_view key) const {
  const Entry &entry = get(key);
  std::vector<int64_t> result;
  for (std::string_view item : items(entry))
    result.push_back(toI64(entry, item));
  return result;
}

std::vector<int64_t>
Description::list(std::string_view key,
                  const std::vector<int64_t> &fallback) const {
  return find(key) ? list(key) : fallback;
}

std::vector<double> Description::floats(std::string_view key) const {
  const Entry &entry = get(key);
  std::vector<double> result;
  for (std::string_view item : items(entry))
    result.push_back(toF64(entry, item));
  return result;
}

std::vector<std::string> Description::words(std::string_view key) const {
  const Entry &entry = get(key);
  std::vector<std::string> result;
  for (std::string_view item : items(entry)) {
    if (item[0] == '[' || item[0] == '"')
      fail(key, "'" + std::string(item) + "' is not a word");
    result.emplace_back(item);
  }
  return result;
}

std::vector<std::vector<int64_t>>
Description::lists(std::string_view key) const {
  const Entry &entry = get(key);
  std::vector<std::vector<int64_t>> result;
  for (std::string_view item : items(entry)) {
    if (item[0] != '[')
      fail(key, "'" + std::string(item) + "' is not a list");
    std::vector<int64_t> &inner = result.emplace_back();
    for (std::string_view element : splitList(item))
      inner.push_back(toI64(entry, element));
  }
  return result;
}

int64_t Description::size(std::string_view key, int64_t least,
                          int64_t most) const {
  int64_t value = i64(key);
  if (value < least || value > most)
    fail(key, std::to_string(value) + " is outside [" + std::to_string(least) +
                  ", " + std::to_string(most) + "]");
  return value;
}

void Description::requireAllRead() const {
  for (const Entry &entry : entries)
    if (!entry.read)
      fail(entry.key, "is not a key of this kernel");
}

int64_t elementCount(const std::vector<int64_t> &dims, size_t elementSize) {
  bool zero = false;
  for (int64_t dim : dims) {
    if (dim < 0)
      invalidArgument("negative dimension " + std::to_string(dim));
    zero |= dim == 0;
  }
  if (zero)
    return 0;
  int64_t limit =
      (int64_t(1) << 48) / int64_t(std::max<size_t>(elementSize, 1));
  int64_t count = 1;
  for (int64_t dim : dims) {
    if (dim > limit / count)
      invalidArgument("a shape has over 2^48 bytes");
    count *= dim;
  }
  return count;
}

} // namespace concord::kernels
