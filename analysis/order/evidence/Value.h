//===- Value.h - JSON and pickle as plain data ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One small document tree for both formats. Nodes lie in one vector and refer
// to each other by index; strings without escapes point into the input, which
// has to outlive the document.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_VALUE_H
#define CONCORD_ANALYSIS_ORDER_VALUE_H

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace concord::order::evidence {

class Document {
public:
  enum class Type : uint8_t { Null, Bool, Int, Double, String, List, Dict };
  static constexpr uint32_t kNil = ~0u;
  struct Node {
    Type type = Type::Null;
    std::string_view text; ///< String
    std::string_view key;  ///< set for members of a Dict
    int64_t integer = 0;   ///< Bool, Int
    double real = 0;
    uint32_t child = kNil, last = kNil, next = kNil, count = 0;
  };

  std::vector<Node> nodes;
  uint32_t root = kNil;

  /// Set before parsing: of a text that ends too early take what is there.
  bool tolerant = false;
  /// It did; these lists and dicts were not closed.
  bool cut = false;
  std::vector<uint32_t> unfinished;

  const Node *at(uint32_t i) const { return i == kNil ? nullptr : &nodes[i]; }
  /// Member of a Dict; nullptr if `dict` is none or has no such key.
  const Node *member(const Node *dict, std::string_view key) const;
  const Node *first(const Node *list) const {
    return list ? at(list->child) : nullptr;
  }
  const Node *next(const Node *n) const { return at(n->next); }
  /// Integer from a number or a numeric string; `fallback` otherwise.
  static int64_t integer(const Node *n, int64_t fallback);
  static std::string_view string(const Node *n) {
    return n && n->type == Type::String ? n->text : std::string_view();
  }

  /// Values of members named in `skip` are checked and dropped.
  bool parseJson(std::string_view text,
                 const std::vector<std::string_view> &skip, std::string &error);
  /// Protocols 0 to 5, containers and scalars only. Any opcode that would
  /// import or call something is an error, with one exception that is data: the
  /// list builders that torch's own pickler writes for typed lists.
  bool parsePickle(std::string_view bytes, std::string &error);

private:
  std::deque<std::string> owned;
  uint32_t add(Node n) {
    nodes.push_back(n);
    return uint32_t(nodes.size()) - 1;
  }
  void append(uint32_t parent, uint32_t child);
  std::string_view own(std::string text) {
    owned.push_back(std::move(text));
    return owned.back();
  }
};

/// "all_reduce" of "allreduce", "ALLREDUCE_COALESCED"; what is none of the
/// collectives stays as it is.
std::string_view canonicalKind(std::string_view name);

} // namespace concord::order::evidence

#endif // CONCORD_ANALYSIS_ORDER_VALUE_H
