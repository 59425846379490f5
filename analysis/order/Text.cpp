//===- Text.cpp - Findings for people -------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Formatting only; nothing here decides anything. Used by comm-doctor and by
// the runtime's watchdog.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Judge.h"

namespace concord::order {

std::string printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    uint8_t c = uint8_t(text[i]);
    size_t n = c < 0x80         ? 1
               : (c >> 5) == 6  ? 2
               : (c >> 4) == 14 ? 3
               : (c >> 3) == 30 ? 4
                                : 0;
    bool ok = n && i + n <= text.size();
    for (size_t k = 1; ok && k < n; ++k)
      ok = (uint8_t(text[i + k]) & 0xC0) == 0x80;
    // C1 controls (U+0080..U+009F) drive terminals as well.
    if (ok && n == 2 && c == 0xC2 && uint8_t(text[i + 1]) < 0xA0)
      ok = false;
    if (!ok || c < 0x20 || c == 0x7F) {
      out += '?';
      ++i;
      continue;
    }
    out.append(text.substr(i, n));
    i += n;
  }
  return out;
}

std::string_view kindName(Finding::Kind kind) {
  static constexpr std::string_view names[] = {
      "mismatch", "cycle",      "missing", "blocked",
      "race",     "divergence", "warning"};
  return names[size_t(kind)];
}

std::string findingText(const Finding &f, const std::string &indent) {
  std::string out = indent + std::string(kindName(f.kind)) + " [" + f.id +
                    "]: " + printable(f.title) + "\n";
  for (size_t i = 0; i < f.chain.size(); ++i) {
    const ChainEdge &e = f.chain[i];
    out += indent + "  " + std::to_string(i + 1) + ". " + printable(e.why);
    if (e.from.loc.line)
      out += "   (" + printable(e.from.loc.str()) + ")";
    else if (!e.from.loc.file.empty())
      out += "   (" + printable(e.from.loc.file) + ")";
    out += "\n";
  }
  // Of what is never issued nothing leads back.
  if (f.kind != Finding::Kind::Missing && f.kind != Finding::Kind::Blocked &&
      !f.chain.empty() &&
      f.chain.back().reason != ChainEdge::Reason::NeverIssued)
    out += indent + "  and so back to 1: a cycle of " +
           std::to_string(f.chain.size()) + " waits\n";
  for (const std::string &d : f.details)
    out += indent + "  " + printable(d) + "\n";
  if (!f.cause.empty())
    out += indent + "  cause: " + printable(f.cause) + "\n";
  if (!f.cure.empty())
    out += indent + "  cure:  " + printable(f.cure) + "\n";
  return out;
}

} // namespace concord::order
