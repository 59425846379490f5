//===- Syntax.cpp - MLIR text as a tree of operations ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One pass over the text, with one character of look-ahead but at line ends and
// opening braces, where custom forms need more.
//
//===----------------------------------------------------------------------===//

#include "Syntax.h"

#include <algorithm>

namespace concord::stablehlo {

static constexpr unsigned kMaxDepth = 200;

static bool isBlank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
static bool isDigit(char c) { return c >= '0' && c <= '9'; }
static bool isIdentStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool isIdent(char c) {
  return isIdentStart(c) || isDigit(c) || c == '$' || c == '.';
}
static bool isSuffix(char c) { return isIdent(c) || c == '-'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && isBlank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && isBlank(text.back()))
    text.remove_suffix(1);
  return text;
}

/// The position after the string that begins at `at`, or npos.
static size_t afterString(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\')
      ++at;
    else if (text[at] == '"')
      return at + 1;
  }
  return std::string_view::npos;
}

/// The position after the bracket that closes the one at `at`, or npos.
static size_t afterBracket(std::string_view text, size_t at) {
  std::string open;
  while (at < text.size()) {
    char c = text[at];
    if (c == '"') {
      at = afterString(text, at);
      if (at == std::string_view::npos)
        return at;
      continue;
    }
    if (c == '(' || c == '[' || c == '{' || c == '<') {
      open.push_back(c);
    } else if (c == ')' || c == ']' || c == '}' || c == '>') {
      bool arrow = c == '>' && at > 0 && text[at - 1] == '-';
      if (!arrow) {
        char wanted = c == ')' ? '(' : c == ']' ? '[' : c == '}' ? '{' : '<';
        if (open.back() != wanted)
          return std::string_view::npos;
        open.pop_back();
        if (open.empty())
          return at + 1;
      }
    }
    ++at;
  }
  return std::string_view::npos;
}

std::vector<std::string_view> splitTopLevel(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t from = 0, at = 0;
  while (at < text.size()) {
    char c = text[at];
    size_t next = at + 1;
    if (c == '"')
      next = afterString(text, at);
    else if (c == '(' || c == '[' || c == '{' || c == '<')
      next = afterBracket(text, at);
    else if (c == ',') {
      parts.push_back(trim(text.substr(from, at - from)));
      from = at + 1;
    }
    at = std::min(next, text.size());
  }
  std::string_view last = trim(text.substr(from));
  if (!last.empty() || !parts.empty())
    parts.push_back(last);
  return parts;
}

std::vector<hlo::Attribute> parseDictionary(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && text.front() == '<') {
    text.remove_prefix(1);
    text.remove_suffix(1);
  }
  if (text.size() >= 2 && text.front() == '{') {
    text.remove_prefix(1);
    text.remove_suffix(1);
  }
  std::vector<hlo::Attribute> list;
  for (std::string_view part : splitTopLevel(text)) {
    if (part.empty())
      continue;
    size_t at = part.front() == '"' ? afterString(part, 0) : 0;
    size_t equal = part.find('=', std::min(at, part.size()));
    std::string_view name = trim(part.substr(0, equal));
    if (name.size() >= 2 && name.front() == '"') {
      name.remove_prefix(1);
      name.remove_suffix(1);
    }
    std::string_view value;
    if (equal != std::string_view::npos)
      value = trim(part.substr(equal + 1));
    list.push_back({name, value});
  }
  return list;
}

std::string_view Op::attribute(std::string_view key) const {
  for (const hlo::Attribute &attribute : attributes)
    if (attribute.name == key)
      return attribute.value;
  return {};
}

bool Op::has(std::string_view key) const {
  return std::any_of(attributes.begin(), attributes.end(),
                     [&](const hlo::Attribute &a) { return a.name == key; });
}

namespace {

class Parser {
public:
  explicit Parser(const hlo::Module &module)
      : module(module), text(*module.text) {}

  File run() {
    File file;
    aliases = &file.aliases;
    ops(file.top, /*top=*/true);
    return file;
  }

private:
  [[noreturn]] void fail(size_t at, const std::string &what) const {
    throw hlo::Error(module.locate(std::min(at, text.size())) + ": " + what);
  }
  char peek(size_t ahead = 0) const {
    return pos + ahead < text.size() ? text[pos + ahead] : '\0';
  }
  static bool isLineComment(std::string_view text, size_t at) {
    return text.substr(at, 2) == "//";
  }
  size_t afterBlanks(size_t at, bool lines = true) const {
    while (at < text.size()) {
      if (isLineComment(text, at))
        at = std::min(text.find('\n', at), text.size());
      else if (isBlank(text[at]) && (lines || text[at] != '\n'))
        ++at;
      else
        break;
    }
    return at;
  }
  void blanks(bool lines = true) { pos = afterBlanks(pos, lines); }
  bool accept(std::string_view what) {
    blanks();
    if (text.substr(pos, what.size()) != what)
      return false;
    pos += what.size();
    return true;
  }
  void expect(std::string_view what) {
    if (!accept(what))
      fail(pos, "expected '" + std::string(what) + "'");
  }
  std::string_view bracket() {
    size_t end = afterBracket(text, pos);
    if (end == std::string_view::npos)
      fail(pos, "this bracket is not closed");
    std::string_view inside = text.substr(pos, end - pos);
    pos = end;
    return inside;
  }
  std::string_view quoted() {
    size_t end = afterString(text, pos);
    if (end == std::string_view::npos)
      fail(pos, "this string is not closed");
    std::string_view inside = text.substr(pos + 1, end - pos - 2);
    pos = end;
    return inside;
  }
  std::string_view suffix() {
    size_t from = pos;
    while (pos < text.size() && isSuffix(text[pos]))
      ++pos;
    if (from == pos)
      fail(pos, "expected a name");
    return text.substr(from, pos - from);
  }
  std::string_view word() {
    size_t from = pos;
    while (pos < text.size() && isIdent(text[pos]))
      ++pos;
    return text.substr(from, pos - from);
  }
  uint32_t number() {
    uint64_t value = 0;
    size_t from = pos;
    while (isDigit(peek()) && value <= 100000000)
      value = value * 10 + static_cast<uint64_t>(text[pos++] - '0');
    if (from == pos || value > 100000000)
      fail(from, "expected a number below 100000000");
    return static_cast<uint32_t>(value);
  }

  Operand operand() {
    expect("%");
    Operand read{suffix(), 0};
    if (peek() == '#') {
      ++pos;
      read.part = number();
    }
    return read;
  }

  std::string_view type() {
    blanks(false);
    size_t from = pos;
    if (peek() == '(') {
      bracket();
    } else {
      if (peek() == '!')
        ++pos;
      word();
      if (peek() == '<')
        bracket();
    }
    if (from == pos)
      fail(pos, "expected a type");
    return text.substr(from, pos - from);
  }

  void arguments(Region &region) {
    expect("(");
    blanks();
    while (!accept(")")) {
      if (!region.arguments.empty())
        expect(",");
      expect("%");
      Region::Argument argument{suffix(), {}, {}};
      expect(":");
      argument.type = type();
      region.arguments.push_back(argument);
      location();
      blanks();
    }
  }

  void location() {
    size_t at = afterBlanks(pos, false);
    if (text.substr(at, 4) != "loc(")
      return;
    pos = at + 3;
    bracket();
  }

  /// Operations up to the '}' that ends the region, or the end of the text.
  void ops(Region &region, bool top) {
    if (++depth > kMaxDepth)
      fail(pos, "regions are nested deeper than " + std::to_string(kMaxDepth));
    bool named = false;
    while (true) {
      blanks();
      char c = peek();
      if (c == '\0') {
        if (!top)
          fail(pos, "the text ends inside a region");
        break;
      }
      if (c == '}' && !top)
        break;
      if (c == '^') {
        if (named || !region.ops.empty())
          fail(pos, "a region of more than one block is not supported");
        named = true;
        ++pos;
        suffix();
        blanks();
        region.arguments.clear();
        if (peek() == '(')
          arguments(region);
        expect(":");
        continue;
      }
      if (top && text.substr(pos, 3) == "{-#") {
        size_t end = text.find("#-}", pos);
        if (end == std::string_view::npos)
          fail(pos, "this section is not closed");
        pos = end + 3;
        continue;
      }
      if (top && (c == '#' || c == '!')) {
        alias();
        continue;
      }
      region.ops.push_back(op());
    }
    --depth;
  }

  void alias() {
    size_t from = pos++;
    suffix();
    std::string_view name = text.substr(from, pos - from);
    expect("=");
    blanks(false);
    from = pos;
    while (pos < text.size() && text[pos] != '\n') {
      char c = text[pos];
      if (c == '"')
        quoted();
      else if (c == '(' || c == '[' || c == '{' || c == '<')
        bracket();
      else
        ++pos;
    }
    (*aliases)[name] = trim(text.substr(from, pos - from));
  }

  Op op() {
    Op made;
    made.begin = pos;
    if (peek() == '%') {
      do {
        expect("%");
        std::string_view name = suffix();
        uint32_t count = 1;
        if (peek() == ':') {
          ++pos;
          count = number();
        }
        made.results.push_back({name, count});
      } while (accept(","));
      expect("=");
      blanks();
    }
    if (peek() == '"') {
      made.name = quoted();
      generic(made);
    } else {
      if (!isIdentStart(peek()))
        fail(pos, "expected an operation");
      made.name = word();
      custom(made);
    }
    return made;
  }

  void addAttributes(Op &made, std::string_view dictionary) {
    for (const hlo::Attribute &attribute : parseDictionary(dictionary))
      made.attributes.push_back(attribute);
  }

  /// What follows the arrow of a function type.
  void results(Op &made) {
    made.arrow = true;
    made.types.clear();
    blanks();
    if (peek() != '(') {
      made.types.push_back(type());
      return;
    }
    std::string_view inside = bracket();
    for (std::string_view one :
         splitTopLevel(inside.substr(1, inside.size() - 2)))
      made.types.push_back(one);
  }

  void signature(Op &made) {
    blanks(false);
    if (peek() == '(') {
      std::string_view inside = bracket();
      for (std::string_view one :
           splitTopLevel(inside.substr(1, inside.size() - 2)))
        made.operandTypes.push_back(one);
      size_t at = afterBlanks(pos, false);
      if (text.substr(at, 2) == "->") {
        pos = at + 2;
        results(made);
      }
      return;
    }
    made.types = {type()};
    while (true) {
      size_t at = afterBlanks(pos, false);
      if (text.substr(at, 2) == "->") {
        pos = at + 2;
        made.operandTypes = std::move(made.types);
        results(made);
        return;
      }
      if (at >= text.size() || text[at] != ',')
        return;
      pos = at + 1;
      made.types.push_back(type());
    }
  }

  void generic(Op &made) {
    expect("(");
    while (!accept(")")) {
      if (!made.operands.empty())
        expect(",");
      blanks();
      made.operands.push_back(operand());
    }
    blanks();
    if (peek() == '[')
      fail(pos, "branches between blocks are not supported");
    if (peek() == '<') {
      addAttributes(made, bracket());
      blanks();
    }
    if (peek() == '(') {
      ++pos;
      do {
        expect("{");
        made.regions.emplace_back();
        ops(made.regions.back(), /*top=*/false);
        expect("}");
      } while (accept(","));
      expect(")");
      blanks();
    }
    if (peek() == '{')
      addAttributes(made, bracket());
    expect(":");
    signature(made);
    if (!made.arrow)
      fail(made.begin, "the generic form ends with a function type");
    location();
  }

  /// Whether the brace at `pos` opens a region and not a dictionary.
  bool opensRegion() const {
    size_t at = pos + 1;
    bool line = false;
    while (at < text.size() && (isBlank(text[at]) || isLineComment(text, at))) {
      if (isLineComment(text, at)) {
        at = std::min(text.find('\n', at), text.size());
        continue;
      }
      line |= text[at++] == '\n';
    }
    if (at >= text.size())
      return true; // and the text ends too early
    char c = text[at];
    if (c == '%' || c == '^')
      return true;
    if (c == '}')
      return line;
    if (c == '"') {
      size_t end = afterString(text, at);
      return end != std::string_view::npos && end < text.size() &&
             text[end] == '(';
    }
    if (!isIdentStart(c))
      return line;
    while (at < text.size() && isIdent(text[at]))
      ++at;
    at = afterBlanks(at);
    return at < text.size() && text[at] != '=' && text[at] != ',' &&
           text[at] != '}';
  }

  /// Whether the operation goes on after the end of this line.
  bool continues() const {
    size_t at = afterBlanks(pos);
    if (at >= text.size())
      return false;
    char c = text[at];
    if (c == ':' || c == ',' || c == '(' || c == '[' || c == '{' ||
        text.substr(at, 2) == "->")
      return text.substr(at, 3) != "{-#";
    if (!isIdentStart(c))
      return false;
    size_t end = at;
    while (end < text.size() && isIdent(text[end]))
      ++end;
    std::string_view next = text.substr(at, end - at);
    for (std::string_view part :
         {"cond", "do", "reducer", "applies", "across", "attributes", "else",
          "in_shardings", "out_shardings", "manual_axes"})
      if (next == part)
        return true;
    return false;
  }

  void custom(Op &made) {
    unsigned open = 0;
    std::vector<Region::Argument> typed;  // `%a: type`, of the next region
    std::vector<std::string_view> looped; // `%a = %init`, of every region
    while (true) {
      char c = peek();
      if (c == '\0' || (c == '}' && open == 0))
        break;
      if (c == '\n') {
        if (open == 0 && !continues())
          break;
        ++pos;
      } else if (isBlank(c)) {
        ++pos;
      } else if (isLineComment(text, pos)) {
        blanks(false);
      } else if (c == '"') {
        quoted();
      } else if (c == '%') {
        Operand read = operand();
        size_t at = afterBlanks(pos);
        char next = at < text.size() ? text[at] : '\0';
        if (next == '=' && open > 0) {
          pos = at + 1;
          looped.push_back(read.name);
        } else if (next == ':' && open > 0) {
          pos = at + 1;
          typed.push_back({read.name, type(), {}});
          blanks();
          if (peek() == '{')
            typed.back().attributes = bracket();
          location();
        } else {
          made.operands.push_back(read);
        }
      } else if (c == '@') {
        size_t from = ++pos;
        if (peek() == '"') {
          std::string_view name = quoted();
          if (made.symbol.empty())
            made.symbol = name;
        } else {
          suffix();
          if (made.symbol.empty())
            made.symbol = text.substr(from, pos - from);
        }
      } else if (c == '(' || c == '[') {
        ++open;
        ++pos;
      } else if (c == ')' || c == ']') {
        if (open == 0)
          break;
        --open;
        ++pos;
      } else if (c == '<') {
        std::string_view inside = bracket();
        if (made.name == "sdy.mesh")
          made.attributes.push_back({"mesh", inside});
        else if (made.name == "stablehlo.constant" && !made.has("value"))
          made.attributes.push_back({"value", inside});
      } else if (c == '{') {
        if (open == 0 && opensRegion()) {
          ++pos;
          made.regions.emplace_back();
          made.regions.back().arguments = std::move(typed);
          typed.clear();
          ops(made.regions.back(), /*top=*/false);
          expect("}");
        } else {
          addAttributes(made, bracket());
        }
      } else if (c == '-' && peek(1) == '>') {
        pos += 2;
      } else if (c == ':' && open == 0) {
        ++pos;
        signature(made);
      } else if (isIdentStart(c)) {
        customWord(made, open);
      } else {
        ++pos;
      }
    }
    if (open != 0)
      fail(made.begin, "a bracket of this operation is not closed");
    if (!looped.empty() && made.types.size() != looped.size())
      fail(made.begin, "carries " + std::to_string(looped.size()) +
                           " values and names " +
                           std::to_string(made.types.size()) + " types");
    for (Region &region : made.regions)
      for (size_t i = 0; i < looped.size(); ++i)
        region.arguments.push_back({looped[i], made.types[i], {}});
  }

  /// A keyword, a type, a location, or `name = value`.
  void customWord(Op &made, unsigned open) {
    size_t from = pos;
    std::string_view name = word();
    if (name == "loc" && peek() == '(') {
      bracket();
      return;
    }
    // `stablehlo.compare LT, %a, %b`.
    if (made.name == "stablehlo.compare" && name.size() == 2 &&
        !made.has("comparison_direction")) {
      made.attributes.push_back({"comparison_direction", name});
      return;
    }
    size_t at = afterBlanks(pos, false);
    if (open != 0 || at >= text.size() || text[at] != '=')
      return;
    pos = at + 1;
    blanks(false);
    size_t value = pos, end = pos;
    while (pos < text.size()) {
      char c = text[pos];
      if (c == '"')
        quoted();
      else if (c == '(' || c == '[' || c == '{' || c == '<')
        bracket();
      else if (text.substr(pos, 2) == "->")
        pos += 2;
      else if (c == '@' || c == '#' || c == '-' || c == '+' || isIdent(c))
        ++pos;
      else if (c == ' ' && text.substr(pos, 3) == " x ")
        pos += 3;
      else
        break;
      end = pos;
    }
    if (end == value)
      fail(from, "'" + std::string(name) + "' has no value");
    made.attributes.push_back({name, text.substr(value, end - value)});
  }

  const hlo::Module &module;
  std::string_view text;
  size_t pos = 0;
  unsigned depth = 0;
  std::map<std::string_view, std::string_view> *aliases = nullptr;
};

} // namespace

File parseSyntax(const hlo::Module &module) { return Parser(module).run(); }

} // namespace concord::stablehlo
