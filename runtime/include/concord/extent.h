//===- extent.h - Sizes as polynomials of bounded dimensions ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An artefact whose model has bounded dimensions (`--dim seq=1..512`) holds
// sizes as text: `1536*d0+4`, `d0*d1/2`. d0, d1, ... are the dimensions in the
// order of the metadata's "dims"; a term is NUMBER[*dN]...[/NUMBER]. Shared by
// the compiler, which writes them, and the runtime, which evaluates them when a
// shape is bound. Header only: neither side depends on the other.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_EXTENT_H
#define CONCORD_EXTENT_H

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace concord {

/// A polynomial with rational coefficients in the bounded dimensions.
class Extent {
public:
  struct Term {
    int64_t number = 0, divisor = 1;
    std::vector<uint32_t> dims; ///< factors, sorted; empty: a constant
    bool operator==(const Term &) const = default;
  };
  std::vector<Term> terms;

  static Extent constant(int64_t value) {
    Extent extent;
    if (value)
      extent.terms.push_back({value, 1, {}});
    return extent;
  }

  bool isConstant() const {
    return std::all_of(terms.begin(), terms.end(),
                       [](const Term &term) { return term.dims.empty(); });
  }
  /// The one dimension that this is, as `d3` is 3; else none.
  std::optional<uint32_t> lone() const {
    if (terms.size() == 1 && terms[0].number == 1 && terms[0].divisor == 1 &&
        terms[0].dims.size() == 1)
      return terms[0].dims[0];
    return std::nullopt;
  }

  /// The value for sizes of the dimensions; none when it is no integer, or does
  /// not fit.
  std::optional<int64_t> at(std::span<const int64_t> dims) const {
    __int128 sum = 0;
    int64_t divisor = 1;
    for (const Term &term : terms)
      if (__builtin_mul_overflow(divisor / std::gcd(divisor, term.divisor),
                                 term.divisor, &divisor))
        return std::nullopt;
    for (const Term &term : terms) {
      __int128 value = term.number;
      for (uint32_t dim : term.dims)
        if (dim >= dims.size() ||
            __builtin_mul_overflow(value, __int128(dims[dim]), &value))
          return std::nullopt;
      if (__builtin_mul_overflow(value, __int128(divisor / term.divisor),
                                 &value) ||
          __builtin_add_overflow(sum, value, &sum))
        return std::nullopt;
    }
    if (sum % divisor != 0)
      return std::nullopt;
    sum /= divisor;
    if (sum > INT64_MAX || sum < INT64_MIN)
      return std::nullopt;
    return static_cast<int64_t>(sum);
  }

  std::string text() const {
    std::string result;
    for (const Term &term : terms) {
      if (!result.empty() && term.number >= 0)
        result += '+';
      bool bare = !term.dims.empty() && term.number == 1;
      if (!bare)
        result += std::to_string(term.number);
      for (size_t i = 0; i < term.dims.size(); ++i)
        result += (bare && i == 0 ? "d" : "*d") + std::to_string(term.dims[i]);
      if (term.divisor != 1)
        result += "/" + std::to_string(term.divisor);
    }
    return result.empty() ? "0" : result;
  }

  /// Reads what `text` writes, of foreign origin too.
  static std::optional<Extent> parse(std::string_view text, size_t numDims) {
    Extent extent;
    size_t at = 0;
    auto number = [&](int64_t &value) {
      size_t begin = at;
      value = 0;
      while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text[at] - '0', &value))
          return false;
        ++at;
      }
      return at > begin;
    };
    while (at < text.size()) {
      Term term;
      bool minus = text[at] == '-';
      if (minus || text[at] == '+')
        ++at;
      term.number = 1;
      bool first = true;
      do {
        if (!first)
          ++at; // the '*'
        int64_t value = 0;
        if (at < text.size() && text[at] == 'd') {
          ++at;
          if (!number(value) || value >= static_cast<int64_t>(numDims) ||
              term.dims.size() >= 8)
            return std::nullopt;
          term.dims.push_back(static_cast<uint32_t>(value));
        } else if (!first || !number(term.number)) {
          return std::nullopt;
        }
        first = false;
      } while (at < text.size() && text[at] == '*');
      if (at < text.size() && text[at] == '/') {
        ++at;
        if (!number(term.divisor) || term.divisor < 1)
          return std::nullopt;
      }
      if (at < text.size() && text[at] != '+' && text[at] != '-')
        return std::nullopt;
      if (minus)
        term.number = -term.number;
      std::sort(term.dims.begin(), term.dims.end());
      extent.terms.push_back(std::move(term));
      if (extent.terms.size() > 64)
        return std::nullopt;
    }
    if (extent.terms.empty())
      return std::nullopt;
    return extent;
  }
};

/// Text with extents in braces (`m={8*d0} n=64`) for sizes of the dimensions;
/// none when a brace holds no extent, or one without a value.
inline std::optional<std::string> instantiate(std::string_view text,
                                              std::span<const int64_t> dims) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t open = std::min(text.find('{', at), text.size());
    result += text.substr(at, open - at);
    if (open == text.size())
      break;
    size_t close = text.find('}', open);
    if (close == std::string_view::npos)
      return std::nullopt;
    auto extent =
        Extent::parse(text.substr(open + 1, close - open - 1), dims.size());
    auto value = extent ? extent->at(dims) : std::nullopt;
    if (!value)
      return std::nullopt;
    result += std::to_string(*value);
    at = close + 1;
  }
  return result;
}

} // namespace concord

#endif // CONCORD_EXTENT_H
