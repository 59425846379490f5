//===- Value.cpp - JSON and pickle as plain data --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both readers are iterative. Nodes are bounded by the input's length; the
// pickle reader copies shared values, so it has a budget of its own.
//
//===----------------------------------------------------------------------===//

#include "Value.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <unordered_map>

namespace concord::order::evidence {

namespace {
constexpr uint32_t kMaxDepth = 200;
constexpr size_t kMaxNodes = 200u << 20;
} // namespace

const Document::Node *Document::member(const Node *dict,
                                       std::string_view key) const {
  if (!dict || dict->type != Type::Dict)
    return nullptr;
  for (const Node *n = at(dict->child); n; n = at(n->next))
    if (n->key == key)
      return n;
  return nullptr;
}

int64_t Document::integer(const Node *n, int64_t fallback) {
  if (!n)
    return fallback;
  if (n->type == Type::Int || n->type == Type::Bool)
    return n->integer;
  if (n->type == Type::Double && std::isfinite(n->real) &&
      std::fabs(n->real) < 9e18)
    return int64_t(n->real);
  if (n->type == Type::String) {
    int64_t v = 0;
    auto [end, ec] =
        std::from_chars(n->text.data(), n->text.data() + n->text.size(), v);
    if (ec == std::errc() && end == n->text.data() + n->text.size())
      return v;
  }
  return fallback;
}

void Document::append(uint32_t parent, uint32_t child) {
  Node &p = nodes[parent];
  nodes[child].next = kNil;
  if (p.child == kNil)
    p.child = child;
  else
    nodes[p.last].next = child;
  p.last = child;
  ++p.count;
}

bool Document::parseJson(std::string_view text,
                         const std::vector<std::string_view> &skip,
                         std::string &error) {
  nodes.clear();
  owned.clear();
  unfinished.clear();
  cut = false;
  root = kNil;
  size_t i = 0, n = text.size();
  auto fail = [&](const char *why) {
    error = std::string(why) + " at byte " + std::to_string(i);
    return false;
  };
  std::vector<uint32_t> open;
  // The text is at its end, and something is open.
  auto ended = [&](const char *why) {
    if (!tolerant || open.empty())
      return fail(why);
    cut = true;
    unfinished = open;
    return true;
  };
  auto blank = [&] {
    while (i < n && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' ||
                     text[i] == '\t'))
      ++i;
  };
  auto string = [&](std::string_view &out) {
    size_t begin = ++i;
    // memchr is much faster than a byte loop on the long strings of frames.
    for (;;) {
      const void *q =
          i < n ? std::memchr(text.data() + i, '"', n - i) : nullptr;
      if (!q) {
        i = n;
        return false;
      }
      size_t end = size_t(static_cast<const char *>(q) - text.data());
      const void *b = std::memchr(text.data() + i, '\\', end - i);
      if (!b) {
        out = text.substr(begin, end - begin);
        i = end + 1;
        return true;
      }
      break;
    }
    i = begin;
    std::string copy;
    while (i < n && text[i] != '"') {
      if (text[i] != '\\') {
        copy += text[i++];
        continue;
      }
      if (++i >= n)
        return false;
      char c = text[i++];
      switch (c) {
      case 'n':
        copy += '\n';
        break;
      case 't':
        copy += '\t';
        break;
      case 'r':
        copy += '\r';
        break;
      case 'b':
        copy += '\b';
        break;
      case 'f':
        copy += '\f';
        break;
      case 'u': {
        if (i + 4 > n) {
          i = n;
          return false;
        }
        unsigned v = 0;
        auto [end, ec] =
            std::from_chars(text.data() + i, text.data() + i + 4, v, 16);
        if (ec != std::errc() || end != text.data() + i + 4)
          return false;
        i += 4;
        if (v < 0x80)
          copy += char(v);
        else if (v < 0x800) {
          copy += char(0xC0 | v >> 6);
          copy += char(0x80 | (v & 63));
        } else {
          copy += char(0xE0 | v >> 12);
          copy += char(0x80 | (v >> 6 & 63));
          copy += char(0x80 | (v & 63));
        }
        break;
      }
      case '"':
      case '\\':
      case '/':
        copy += c;
        break;
      default:
        return false;
      }
    }
    if (i >= n)
      return false;
    ++i;
    out = own(std::move(copy));
    return true;
  };
  // Skips a value without building it; brackets are matched, strings honoured.
  auto drop = [&] {
    uint32_t depth = 0;
    do {
      blank();
      if (i >= n)
        return false;
      char c = text[i];
      if (c == '"') {
        for (++i;; ++i) {
          const void *q =
              i < n ? std::memchr(text.data() + i, '"', n - i) : nullptr;
          if (!q) {
            i = n;
            return false;
          }
          i = size_t(static_cast<const char *>(q) - text.data());
          size_t back = i;
          while (text[back - 1] == '\\')
            --back;
          if (((i - back) & 1) == 0)
            break;
        }
        ++i;
      } else if (c == '[' || c == '{') {
        if (++depth > kMaxDepth)
          return false;
        ++i;
      } else if (c == ']' || c == '}') {
        if (depth == 0)
          return false;
        --depth;
        ++i;
      } else if (c == ',' || c == ':') {
        if (depth == 0)
          return false;
        ++i;
      } else {
        size_t begin = i;
        while (i < n && text[i] != '\0' &&
               !std::strchr(",:[]{}\" \n\r\t", text[i]))
          ++i;
        if (i == begin)
          return false; // a NUL
      }
    } while (depth > 0);
    return true;
  };
  std::string_view key;
  bool done = false;
  while (!done) {
    blank();
    if (i >= n)
      return ended("the text ends in the middle of a value");
    if (nodes.size() > kMaxNodes)
      return fail("too many values");
    // A value, with `key` if inside a dict.
    Node node;
    node.key = key;
    char c = text[i];
    bool container = false;
    if (c == '{' || c == '[') {
      node.type = c == '{' ? Type::Dict : Type::List;
      container = true;
      ++i;
    } else if (c == '"') {
      node.type = Type::String;
      if (!string(node.text))
        return i >= n ? ended("the text ends inside a string")
                      : fail("a broken string");
    } else if (text.substr(i, 4) == "true") {
      node.type = Type::Bool;
      node.integer = 1;
      i += 4;
    } else if (text.substr(i, 5) == "false") {
      node.type = Type::Bool;
      i += 5;
    } else if (text.substr(i, 4) == "null") {
      i += 4;
    } else if (text.substr(i, 3) == "NaN") {
      node.type = Type::Double;
      node.real = NAN;
      i += 3;
    } else {
      size_t begin = i;
      while (i < n &&
             (std::isdigit(uint8_t(text[i])) || std::strchr("+-.eE", text[i])))
        ++i;
      if (i == begin)
        return n - i < 5 ? ended("an unexpected character")
                         : fail("an unexpected character");
      // It may go on.
      if (i == n && tolerant && !open.empty())
        return ended("the text ends inside a number");
      const char *first = text.data() + begin, *last = text.data() + i;
      auto [end, ec] = std::from_chars(first, last, node.integer);
      node.type = Type::Int;
      if (ec != std::errc() || end != last) {
        auto [end2, ec2] = std::from_chars(first, last, node.real);
        if (ec2 == std::errc::invalid_argument || end2 != last)
          return fail("a broken number");
        node.type = Type::Double;
      }
    }
    uint32_t id = add(node);
    if (open.empty())
      root = id;
    else
      append(open.back(), id);
    if (container) {
      if (open.size() >= kMaxDepth)
        return fail("nested deeper than 200");
      open.push_back(id);
    }
    // Then: separators and closing brackets, up to the next value.
    bool fresh = container;
    for (;;) {
      if (open.empty()) {
        done = true;
        break;
      }
      blank();
      if (i >= n)
        return ended("the text ends inside a container");
      bool dict = nodes[open.back()].type == Type::Dict;
      if (text[i] == (dict ? '}' : ']')) {
        ++i;
        open.pop_back();
        fresh = false;
        continue;
      }
      if (!fresh) {
        if (text[i] != ',')
          return fail("expected ',' or a closing bracket");
        ++i;
        blank();
      }
      fresh = false;
      if (!dict) {
        key = {};
        break;
      }
      if (i < n && text[i] != '"')
        return fail("expected a key");
      if (i >= n || !string(key))
        return i >= n ? ended("the text ends before a key")
                      : fail("expected a key");
      blank();
      if (i >= n)
        return ended("the text ends behind a key");
      if (text[i] != ':')
        return fail("expected ':'");
      ++i;
      bool dropped = false;
      for (std::string_view s : skip)
        if (s == key) {
          if (!drop())
            return i >= n ? ended("the text ends in the middle of a value")
                          : fail("a broken value");
          dropped = true;
          break;
        }
      if (!dropped)
        break;
    }
  }
  blank();
  if (i != n)
    return fail("text after the end of the document");
  return true;
}

namespace {

/// Values on the pickle machine's stack are node ids; marks and the permitted
/// list builders are kept apart from them.
struct Slot {
  enum class Kind : uint8_t { Value, Mark, Builder } kind = Kind::Value;
  uint32_t node = 0;
};

} // namespace

bool Document::parsePickle(std::string_view in, std::string &error) {
  nodes.clear();
  owned.clear();
  unfinished.clear();
  cut = false;
  root = kNil;
  size_t i = 0, budget = 64 + in.size() * 8;
  std::vector<Slot> stack;
  std::unordered_map<uint64_t, Slot> memo;
  auto fail = [&](std::string why) {
    error = why + " at byte " + std::to_string(i);
    return false;
  };
  auto have = [&](size_t k) { return k <= in.size() - i; };
  auto little = [&](size_t k) {
    uint64_t v = 0;
    for (size_t b = 0; b < k; ++b)
      v |= uint64_t(uint8_t(in[i + b])) << (8 * b);
    i += k;
    return v;
  };
  auto line = [&](std::string_view &out) {
    size_t end = in.find('\n', i);
    if (end == std::string_view::npos)
      return false;
    out = in.substr(i, end - i);
    i = end + 1;
    return true;
  };
  auto push = [&](Node n) { stack.push_back({Slot::Kind::Value, add(n)}); };
  auto pushInt = [&](int64_t v) {
    Node n;
    n.type = Type::Int;
    n.integer = v;
    push(n);
  };
  auto pushText = [&](std::string_view t) {
    Node n;
    n.type = Type::String;
    n.text = t;
    push(n);
  };
  auto pushEmpty = [&](Type t) {
    Node n;
    n.type = t;
    push(n);
  };
  // A value may be referred to twice through the memo; as a child of a second
  // parent it has to be copied. Copies are charged to the budget. The chain of
  // children is copied with an explicit stack.
  std::vector<bool> attached;
  auto attach = [&](uint32_t parent, uint32_t child, std::string_view key) {
    attached.resize(nodes.size(), false);
    uint32_t id = child;
    if (attached[child] || child == parent) {
      struct Job {
        uint32_t from, parent;
      };
      Node top = nodes[child];
      top.child = top.last = top.next = kNil;
      top.count = 0;
      id = add(top);
      std::vector<Job> jobs{{child, id}};
      while (!jobs.empty()) {
        Job j = jobs.back();
        jobs.pop_back();
        std::vector<uint32_t> children;
        for (uint32_t c = nodes[j.from].child; c != kNil; c = nodes[c].next)
          children.push_back(c);
        for (uint32_t c : children) {
          if (budget-- == 0)
            return false;
          Node n = nodes[c];
          n.child = n.last = n.next = kNil;
          n.count = 0;
          uint32_t copy = add(n);
          append(j.parent, copy);
          if (nodes[c].child != kNil)
            jobs.push_back({c, copy});
        }
      }
      attached.resize(nodes.size(), false);
    }
    attached[id] = true;
    nodes[id].key = key;
    append(parent, id);
    return true;
  };
  auto popMark = [&](std::vector<uint32_t> &items) {
    while (!stack.empty() && stack.back().kind == Slot::Kind::Value) {
      items.push_back(stack.back().node);
      stack.pop_back();
    }
    if (stack.empty() || stack.back().kind != Slot::Kind::Mark)
      return false;
    stack.pop_back();
    for (size_t a = 0, b = items.size(); a + 1 < b; ++a, --b)
      std::swap(items[a], items[b - 1]);
    return true;
  };
  auto isValue = [&](size_t fromTop) {
    return stack.size() > fromTop &&
           stack[stack.size() - 1 - fromTop].kind == Slot::Kind::Value;
  };
  auto keyText = [&](uint32_t id) {
    const Node &n = nodes[id];
    if (n.type == Type::String)
      return n.text;
    if (n.type == Type::Int)
      return own(std::to_string(n.integer));
    return std::string_view("?");
  };
  auto setItems = [&](uint32_t dict, const std::vector<uint32_t> &items) {
    if (nodes[dict].type != Type::Dict || items.size() % 2)
      return false;
    for (size_t k = 0; k < items.size(); k += 2) {
      std::string_view key = keyText(items[k]);
      if (!attach(dict, items[k + 1], key))
        return false;
    }
    return true;
  };
  auto tuple = [&](std::vector<uint32_t> items) {
    Node n;
    n.type = Type::List;
    uint32_t id = add(n);
    for (uint32_t item : items)
      if (!attach(id, item, {}))
        return false;
    stack.push_back({Slot::Kind::Value, id});
    return true;
  };
  // The bytes are at their end: what is open gets what stands above its mark.
  auto ended = [&](const char *why) {
    if (!tolerant || stack.empty() || stack[0].kind != Slot::Kind::Value)
      return fail(why);
    cut = true;
    if (stack.back().kind == Slot::Kind::Value &&
        nodes[stack.back().node].type >= Type::List)
      unfinished.push_back(stack.back().node);
    root = stack[0].node;
    while (stack.size() > 1) {
      std::vector<uint32_t> above;
      if (!popMark(above))
        break;
      if (stack.empty() || stack.back().kind != Slot::Kind::Value)
        continue; // a tuple's
      uint32_t into = stack.back().node;
      if (nodes[into].type == Type::List) {
        for (uint32_t item : above)
          if (!attach(into, item, {}))
            return fail("too many values");
      } else if (nodes[into].type == Type::Dict) {
        above.resize(above.size() / 2 * 2);
        if (!setItems(into, above))
          return fail("too many values");
      } else {
        continue;
      }
      unfinished.push_back(into);
    }
    return true;
  };
  auto builder = [&](std::string_view module, std::string_view name) {
    return module == "torch.jit._pickle" &&
           (name == "build_intlist" || name == "build_doublelist" ||
            name == "build_boollist" || name == "build_tensorlist");
  };

  while (i < in.size()) {
    if (nodes.size() > kMaxNodes || budget == 0)
      return fail("too many values");
    --budget;
    uint8_t op = uint8_t(in[i++]);
    std::vector<uint32_t> items;
    std::string_view text;
    switch (op) {
    case 0x80: // PROTO
      if (!have(1) || uint8_t(in[i]) > 5)
        return fail("an unknown pickle protocol");
      ++i;
      break;
    case 0x95: // FRAME
      if (!have(8))
        return ended("truncated");
      i += 8;
      break;
    case '.': // STOP
      if (!isValue(0))
        return fail("nothing on the stack at the end");
      root = stack.back().node;
      return true;
    case '(': // MARK
      stack.push_back({Slot::Kind::Mark, 0});
      break;
    case '0': // POP
      if (stack.empty())
        return fail("stack underflow");
      stack.pop_back();
      break;
    case '1': // POP_MARK
      if (!popMark(items))
        return fail("no mark");
      break;
    case '2': // DUP
      if (!isValue(0))
        return fail("stack underflow");
      stack.push_back(stack.back());
      break;
    case 'N':
      push(Node());
      break;
    case 0x88:
    case 0x89: {
      Node n;
      n.type = Type::Bool;
      n.integer = op == 0x88;
      push(n);
      break;
    }
    case 'I': {
      if (!line(text))
        return ended("truncated");
      if (text == "00" || text == "01") {
        Node n;
        n.type = Type::Bool;
        n.integer = text == "01";
        push(n);
        break;
      }
      [[fallthrough]];
    }
    case 'L': {
      if (op == 'L' && !line(text))
        return ended("truncated");
      if (!text.empty() && text.back() == 'L')
        text.remove_suffix(1);
      int64_t v = 0;
      auto [end, ec] =
          std::from_chars(text.data(), text.data() + text.size(), v);
      if (ec != std::errc() || end != text.data() + text.size())
        return fail("a broken integer");
      pushInt(v);
      break;
    }
    case 'J':
      if (!have(4))
        return ended("truncated");
      pushInt(int32_t(uint32_t(little(4))));
      break;
    case 'K':
      if (!have(1))
        return ended("truncated");
      pushInt(int64_t(little(1)));
      break;
    case 'M':
      if (!have(2))
        return ended("truncated");
      pushInt(int64_t(little(2)));
      break;
    case 0x8a:
    case 0x8b: { // LONG1, LONG4
      size_t width = op == 0x8a ? 1 : 4;
      if (!have(width))
        return ended("truncated");
      uint64_t k = little(width);
      if (k > in.size() || !have(size_t(k)))
        return ended("truncated");
      if (k > 8) { // larger than any field of a dump: keep its sign only
        bool negative = uint8_t(in[i + k - 1]) & 0x80;
        i += size_t(k);
        pushInt(negative ? INT64_MIN : INT64_MAX);
        break;
      }
      uint64_t v = little(size_t(k));
      if (k > 0 && k < 8 && (v >> (8 * k - 1)) & 1)
        v |= ~uint64_t(0) << (8 * k);
      pushInt(int64_t(v));
      break;
    }
    case 'G': { // BINFLOAT, big-endian
      if (!have(8))
        return ended("truncated");
      uint64_t bits = 0;
      for (int b = 0; b < 8; ++b)
        bits = bits << 8 | uint8_t(in[i + size_t(b)]);
      i += 8;
      Node n;
      n.type = Type::Double;
      std::memcpy(&n.real, &bits, 8);
      push(n);
      break;
    }
    case 'F': {
      if (!line(text))
        return ended("truncated");
      Node n;
      n.type = Type::Double;
      auto [end, ec] =
          std::from_chars(text.data(), text.data() + text.size(), n.real);
      if (ec != std::errc() || end != text.data() + text.size())
        return fail("a broken number");
      push(n);
      break;
    }
    case 'X':    // BINUNICODE
    case 'B':    // BINBYTES
    case 'T':    // BINSTRING
    case 0x8c:   // SHORT_BINUNICODE
    case 'C':    // SHORT_BINBYTES
    case 'U':    // SHORT_BINSTRING
    case 0x8d:   // BINUNICODE8
    case 0x8e: { // BINBYTES8
      size_t width = op == 'X' || op == 'B' || op == 'T' ? 4
                     : op == 0x8d || op == 0x8e          ? 8
                                                         : 1;
      if (!have(width))
        return ended("truncated");
      uint64_t k = little(width);
      if (k > in.size() || !have(size_t(k)))
        return ended("a string longer than the file");
      pushText(in.substr(i, size_t(k)));
      i += size_t(k);
      break;
    }
    case 'V': // UNICODE
      if (!line(text))
        return ended("truncated");
      pushText(text);
      break;
    case 'S': // STRING
      if (!line(text) || text.size() < 2)
        return ended("truncated");
      pushText(text.substr(1, text.size() - 2));
      break;
    case '}':
      pushEmpty(Type::Dict);
      break;
    case ']':
    case ')':
    case 0x8f: // EMPTY_SET
      pushEmpty(Type::List);
      break;
    case 'd': { // DICT
      if (!popMark(items))
        return fail("no mark");
      Node n;
      n.type = Type::Dict;
      uint32_t id = add(n);
      if (!setItems(id, items))
        return fail("a broken dict");
      stack.push_back({Slot::Kind::Value, id});
      break;
    }
    case 'l': // LIST
    case 't': // TUPLE
      if (!popMark(items) || !tuple(std::move(items)))
        return fail("a broken list");
      break;
    case 0x85:
    case 0x86:
    case 0x87: { // TUPLE1..3
      size_t k = op - 0x84;
      for (size_t a = 0; a < k; ++a)
        if (!isValue(a))
          return fail("stack underflow");
      for (size_t a = k; a-- > 0;)
        items.push_back(stack[stack.size() - 1 - a].node);
      stack.resize(stack.size() - k);
      if (!tuple(std::move(items)))
        return fail("a broken tuple");
      break;
    }
    case 'a': { // APPEND
      if (!isValue(0) || !isValue(1))
        return fail("stack underflow");
      uint32_t item = stack.back().node;
      stack.pop_back();
      if (nodes[stack.back().node].type != Type::List ||
          !attach(stack.back().node, item, {}))
        return fail("append to no list");
      break;
    }
    case 'e':    // APPENDS
    case 0x90: { // ADDITEMS
      if (!popMark(items) || !isValue(0) ||
          nodes[stack.back().node].type != Type::List)
        return fail("append to no list");
      for (uint32_t item : items)
        if (!attach(stack.back().node, item, {}))
          return fail("too many values");
      break;
    }
    case 's': { // SETITEM
      if (!isValue(0) || !isValue(1) || !isValue(2))
        return fail("stack underflow");
      items = {stack[stack.size() - 2].node, stack.back().node};
      stack.resize(stack.size() - 2);
      if (!setItems(stack.back().node, items))
        return fail("set item of no dict");
      break;
    }
    case 'u': // SETITEMS
      if (!popMark(items) || !isValue(0) || !setItems(stack.back().node, items))
        return fail("set items of no dict");
      break;
    case 'q':
    case 'r':
    case 'p':
    case 0x94: { // BINPUT, LONG_BINPUT, PUT, MEMOIZE
      uint64_t at = memo.size();
      if (op == 'q' || op == 'r') {
        size_t width = op == 'q' ? 1 : 4;
        if (!have(width))
          return ended("truncated");
        at = little(width);
      } else if (op == 'p') {
        if (!line(text))
          return ended("truncated");
        auto [end, ec] =
            std::from_chars(text.data(), text.data() + text.size(), at);
        if (ec != std::errc() || end != text.data() + text.size())
          return fail("a broken memo index");
      }
      if (stack.empty() || stack.back().kind == Slot::Kind::Mark)
        return fail("nothing to memoise");
      memo[at] = stack.back();
      break;
    }
    case 'h':
    case 'j':
    case 'g': {
      uint64_t at = 0;
      if (op == 'g') {
        if (!line(text))
          return ended("truncated");
        auto [end, ec] =
            std::from_chars(text.data(), text.data() + text.size(), at);
        if (ec != std::errc() || end != text.data() + text.size())
          return fail("a broken memo index");
      } else {
        size_t width = op == 'h' ? 1 : 4;
        if (!have(width))
          return ended("truncated");
        at = little(width);
      }
      auto it = memo.find(at);
      if (it == memo.end())
        return fail("a memo entry that was never made");
      stack.push_back(it->second);
      break;
    }
    case 'c': { // GLOBAL
      std::string_view module, name;
      if (!line(module) || !line(name))
        return ended("truncated");
      if (!builder(module, name))
        return fail("refused: the file asks to import " +
                    std::string(module.substr(0, 60)) + "." +
                    std::string(name.substr(0, 60)));
      stack.push_back({Slot::Kind::Builder, 0});
      break;
    }
    case 'R': { // REDUCE: only the list builders, and they only hand on their
                // list
      if (!isValue(0) || stack.size() < 2 ||
          stack[stack.size() - 2].kind != Slot::Kind::Builder)
        return fail("refused: the file asks to call something");
      uint32_t arguments = stack.back().node;
      stack.resize(stack.size() - 2);
      if (nodes[arguments].count != 1)
        return fail("a list builder without a list");
      uint32_t list = nodes[arguments].child;
      stack.push_back({Slot::Kind::Value, list});
      break;
    }
    default:
      return fail("refused: pickle opcode " + std::to_string(op) +
                  " is not plain data");
    }
  }
  return ended("the pickle does not end");
}

} // namespace concord::order::evidence
