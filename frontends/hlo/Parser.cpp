//===- Parser.cpp - Reads HLO text ----------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One pass over the text. An instruction ends at the first line break outside
// brackets, so attributes that this reader does not know are carried as they
// are written. Nothing recurses but tuple shapes, whose depth is bounded.
//
//===----------------------------------------------------------------------===//

#include "concord/hlo/Module.h"

#include <algorithm>
#include <unordered_map>

namespace concord::hlo {

namespace {

constexpr int kMaxTupleDepth = 64;
constexpr size_t kMaxText = size_t(1) << 31;

bool isNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' ||
         c == '$' || c == '@' || c == '/' || c == '~';
}

bool isDigit(char c) { return c >= '0' && c <= '9'; }

class Parser {
public:
  explicit Parser(Module &module) : module(module), text(*module.text) {}
  void run();

private:
  [[noreturn]] void fail(size_t at, const std::string &what) const {
    throw Error(module.locate(at) + ": " + what);
  }
  bool atEnd() const { return pos >= text.size(); }
  char peek() const { return atEnd() ? '\0' : text[pos]; }
  void skipComment();
  void skipBlanks(bool lines);
  bool accept(char c);
  void expect(char c, const char *where);
  bool acceptWord(std::string_view word);
  std::string_view name(const char *what);
  int64_t integer();
  Shape shape(int depth);
  void skipNested(char stop1, char stop2);
  std::string_view attributeValue();
  void attributes(std::vector<Attribute> &out);
  void header();
  void tables();
  void computation();
  void instruction(uint32_t self);
  void operands(Instruction &op, uint32_t self);
  void resolveCalls();

  Module &module;
  std::string_view text;
  size_t pos = 0;
  /// Name -> (computation, instruction). A name of an earlier computation is
  /// overwritten: operands never reach across.
  std::unordered_map<std::string_view, std::pair<uint32_t, uint32_t>> names;
};

void Parser::skipComment() {
  size_t from = pos;
  pos = text.find("*/", pos + 2);
  if (pos == std::string_view::npos)
    fail(from, "this comment does not end");
  pos += 2;
}

void Parser::skipBlanks(bool lines) {
  while (!atEnd()) {
    char c = text[pos];
    if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
      ++pos;
    } else if (text.substr(pos, 2) == "/*") {
      skipComment();
    } else if (text.substr(pos, 2) == "//") {
      pos = std::min(text.find('\n', pos), text.size());
    } else {
      return;
    }
  }
}

bool Parser::accept(char c) {
  if (peek() != c || atEnd())
    return false;
  ++pos;
  return true;
}

void Parser::expect(char c, const char *where) {
  if (!accept(c))
    fail(pos, std::string("expected '") + c + "' " + where);
}

bool Parser::acceptWord(std::string_view word) {
  if (text.substr(pos, word.size()) != word)
    return false;
  size_t after = pos + word.size();
  if (after < text.size() && isNameChar(text[after]))
    return false;
  pos = after;
  return true;
}

std::string_view Parser::name(const char *what) {
  accept('%');
  size_t from = pos;
  while (!atEnd() && isNameChar(text[pos]))
    ++pos;
  if (pos == from)
    fail(from, std::string("expected ") + what);
  return text.substr(from, pos - from);
}

int64_t Parser::integer() {
  size_t from = pos;
  int64_t value = 0;
  while (!atEnd() && isDigit(text[pos])) {
    if (value > (INT64_MAX - 9) / 10)
      fail(from, "this number is too large");
    value = value * 10 + (text[pos++] - '0');
  }
  if (pos == from)
    fail(from, "expected a number");
  return value;
}

Shape Parser::shape(int depth) {
  Shape result;
  skipBlanks(true);
  if (accept('(')) {
    if (depth >= kMaxTupleDepth)
      fail(pos,
           "tuples are nested deeper than " + std::to_string(kMaxTupleDepth));
    result.kind = Shape::Kind::Tuple;
    skipBlanks(true);
    while (!accept(')')) {
      if (!result.elements.empty())
        expect(',', "between the elements of a tuple");
      result.elements.push_back(shape(depth + 1));
      skipBlanks(true);
    }
    return result;
  }
  size_t from = pos;
  while (!atEnd() && ((peek() >= 'a' && peek() <= 'z') || isDigit(peek())))
    ++pos;
  result.element = text.substr(from, pos - from);
  if (result.element == "token")
    result.kind = Shape::Kind::Token;
  else if (result.element == "opaque")
    result.kind = Shape::Kind::Opaque;
  else if (!elementBits(result.element))
    fail(from, "expected a shape");
  expect('[', "after an element type");
  while (!accept(']')) {
    if (!result.dims.empty())
      expect(',', "between dimensions");
    skipBlanks(false);
    if (text.substr(pos, 2) == "<=")
      pos += 2;
    if (accept('?'))
      result.dims.push_back(-1);
    else
      result.dims.push_back(integer());
    skipBlanks(false);
  }
  // A layout stands right behind; a brace after a blank opens a body.
  if (peek() == '{') {
    ++pos;
    skipNested('}', '}');
    expect('}', "after a layout");
  }
  return result;
}

/// Moves to the first `stop1` or `stop2` (or line break, or end) that is
/// outside brackets, strings and comments. Inside brackets line breaks are
/// blanks.
void Parser::skipNested(char stop1, char stop2) {
  std::string open;
  size_t from = pos;
  while (!atEnd()) {
    char c = text[pos];
    if (open.empty() && (c == stop1 || c == stop2 || c == '\n'))
      return;
    switch (c) {
    case '(':
      open.push_back(')');
      break;
    case '[':
      open.push_back(']');
      break;
    case '{':
      open.push_back('}');
      break;
    case ')':
    case ']':
    case '}':
      if (open.empty() || open.back() != c)
        fail(pos, std::string("unexpected '") + c + "'");
      open.pop_back();
      break;
    case '"':
      for (++pos; !atEnd() && text[pos] != '"'; ++pos)
        if (text[pos] == '\\')
          ++pos;
      if (atEnd())
        fail(from, "this string does not end");
      break;
    case '/':
      if (text.substr(pos, 2) == "/*") {
        skipComment();
        continue;
      }
      break;
    default:
      break;
    }
    ++pos;
  }
  if (!open.empty())
    fail(from, std::string("'") + open.back() + "' is missing");
}

std::string_view Parser::attributeValue() {
  skipBlanks(false);
  size_t from = pos;
  skipNested(',', '}');
  size_t to = pos;
  while (to > from &&
         (text[to - 1] == ' ' || text[to - 1] == '\t' || text[to - 1] == '\r'))
    --to;
  return text.substr(from, to - from);
}

/// `, key=value` as often as it comes.
void Parser::attributes(std::vector<Attribute> &out) {
  while (true) {
    skipBlanks(false);
    size_t comma = pos;
    if (!accept(','))
      return;
    skipBlanks(true);
    if (atEnd())
      fail(comma, "expected an attribute after ','");
    Attribute attribute;
    attribute.name = name("an attribute's name");
    skipBlanks(false);
    expect('=', "after an attribute's name");
    attribute.value = attributeValue();
    if (attribute.value.empty())
      fail(pos, "attribute '" + std::string(attribute.name) + "' has no value");
    // The ids of a mesh's devices stand behind a comma, before the axes of the
    // groups; all of it is one value.
    if (attribute.value.substr(0, 5) == "mesh[" &&
        attribute.value.back() == ']' &&
        text.substr(pos, 13) == ", device_ids=") {
      size_t from = static_cast<size_t>(attribute.value.data() - text.data());
      ++pos;
      std::string_view rest = attributeValue();
      size_t to = static_cast<size_t>(rest.data() - text.data()) + rest.size();
      attribute.value = text.substr(from, to - from);
    }
    out.push_back(attribute);
  }
}

void Parser::header() {
  skipBlanks(true);
  if (!acceptWord("HloModule"))
    fail(pos, "expected 'HloModule'");
  skipBlanks(false);
  module.name = name("the module's name");
  attributes(module.attributes);
  auto count = [&](std::string_view key, int64_t &value) {
    std::string_view found = module.attribute(key);
    if (found.empty())
      return;
    size_t at = static_cast<size_t>(found.data() - text.data());
    size_t back = pos;
    pos = at;
    value = integer();
    if (pos != at + found.size() || value < 1 || value > kMaxRanks)
      fail(at, std::string(key) + " must be from 1 to " +
                   std::to_string(kMaxRanks));
    pos = back;
  };
  count("num_partitions", module.numPartitions);
  count("replica_count", module.replicaCount);
}

/// The tables of stack frames that newer dumps hold: a word alone on its line,
/// then numbered lines.
void Parser::tables() {
  while (true) {
    skipBlanks(true);
    bool found = false;
    for (std::string_view word :
         {"FileNames", "FunctionNames", "FileLocations", "StackFrames"})
      found |= acceptWord(word);
    if (!found)
      return;
    while (true) {
      skipBlanks(true);
      if (!isDigit(peek()))
        break;
      pos = std::min(text.find('\n', pos), text.size());
    }
  }
}

void Parser::operands(Instruction &op, uint32_t self) {
  skipBlanks(true);
  if (accept(')'))
    return;
  while (true) {
    skipBlanks(true);
    // An operand is a name, with its shape before it or not.
    if (peek() != '%') {
      size_t from = pos;
      bool typed = peek() == '(';
      while (!typed && pos < text.size() && isNameChar(text[pos]))
        ++pos;
      typed = typed || peek() == '[';
      pos = from;
      if (typed) {
        shape(0);
        skipBlanks(true);
      }
    }
    size_t at = pos;
    std::string_view operand = name("an operand");
    auto found = names.find(operand);
    if (found == names.end() || found->second.first != self)
      fail(at, "operand '" + std::string(operand) +
                   "' is not defined before this use in its computation");
    op.operands.push_back(found->second.second);
    skipBlanks(true);
    if (accept(')'))
      return;
    expect(',', "between operands");
  }
}

void Parser::instruction(uint32_t self) {
  Computation &parent = module.computations[self];
  Instruction op;
  op.begin = static_cast<uint32_t>(pos);
  if (acceptWord("ROOT")) {
    op.root = true;
    skipBlanks(false);
  }
  size_t nameAt = pos;
  op.name = name("an instruction");
  skipBlanks(false);
  expect('=', "after an instruction's name");
  op.shape = shape(0);
  skipBlanks(false);
  op.opcode = name("an opcode");
  skipBlanks(false);
  expect('(', "after an opcode");
  if (op.opcode == "constant" || op.opcode == "parameter") {
    size_t from = pos;
    // Literals run over lines; they have no line structure of their own.
    while (true) {
      skipNested(')', ')');
      if (atEnd())
        fail(from, "')' is missing");
      if (text[pos] == ')')
        break;
      ++pos;
    }
    op.payload = text.substr(from, pos - from);
    ++pos;
  } else {
    operands(op, self);
  }
  attributes(op.attributes);
  size_t to = pos;
  while (to > op.begin &&
         (text[to - 1] == ' ' || text[to - 1] == '\t' || text[to - 1] == '\r'))
    --to;
  op.end = static_cast<uint32_t>(to);
  auto index = static_cast<uint32_t>(parent.instructions.size());
  auto [entry, fresh] = names.try_emplace(op.name, self, index);
  if (!fresh) {
    if (entry->second.first == self)
      fail(nameAt, "'" + std::string(op.name) + "' is defined twice");
    entry->second = {self, index};
  }
  if (op.root) {
    if (parent.root != kNone)
      fail(op.begin,
           "computation '" + std::string(parent.name) + "' has two roots");
    parent.root = index;
  }
  if (op.opcode == "parameter") {
    size_t back = pos;
    pos = static_cast<size_t>(op.payload.data() - text.data());
    skipBlanks(false);
    size_t at = pos;
    int64_t number = integer();
    if (number > 1 << 20)
      fail(at, "this parameter's number is too large");
    pos = back;
    auto slot = static_cast<size_t>(number);
    // Numbers are dense in the end; holes are found when the body is complete.
    if (slot >= parent.parameters.size())
      parent.parameters.resize(slot + 1, kNone);
    if (parent.parameters[slot] != kNone)
      fail(at, "parameter " + std::to_string(number) + " is defined twice");
    parent.parameters[slot] = index;
  }
  parent.instructions.push_back(std::move(op));
}

void Parser::computation() {
  size_t from = pos;
  bool entry = acceptWord("ENTRY");
  skipBlanks(false);
  auto self = static_cast<uint32_t>(module.computations.size());
  module.computations.emplace_back();
  module.computations[self].name = name("a computation");
  skipBlanks(true);
  if (accept('(')) {
    // Parameters are declared again by their instructions.
    while (true) {
      skipNested(')', ')');
      if (atEnd())
        fail(from, "the list of parameters does not end");
      if (accept(')'))
        break;
      ++pos;
    }
    skipBlanks(true);
    if (text.substr(pos, 2) == "->") {
      pos += 2;
      shape(0);
    }
  }
  skipBlanks(true);
  expect('{', "before the body of a computation");
  while (true) {
    skipBlanks(true);
    if (atEnd())
      fail(from, "the body of this computation does not end");
    if (accept('}'))
      break;
    instruction(self);
  }
  std::vector<Attribute> ignored; // execution_thread
  attributes(ignored);
  Computation &made = module.computations[self];
  if (made.instructions.empty())
    fail(from, "computation '" + std::string(made.name) + "' is empty");
  if (made.root == kNone)
    made.root = static_cast<uint32_t>(made.instructions.size() - 1);
  for (size_t i = 0; i < made.parameters.size(); ++i)
    if (made.parameters[i] == kNone)
      fail(from, "computation '" + std::string(made.name) +
                     "' lacks parameter " + std::to_string(i));
  if (entry) {
    if (module.entry != kNone)
      fail(from, "there are two ENTRY computations");
    module.entry = self;
  }
}

void Parser::resolveCalls() {
  static constexpr std::string_view keys[] = {"to_apply",
                                              "calls",
                                              "condition",
                                              "body",
                                              "select",
                                              "scatter",
                                              "branch_computations",
                                              "true_computation",
                                              "false_computation",
                                              "called_computations"};
  std::unordered_map<std::string_view, uint32_t> byName;
  for (uint32_t i = 0; i < module.computations.size(); ++i)
    if (!byName.try_emplace(module.computations[i].name, i).second)
      throw Error(module.path + ": computation '" +
                  std::string(module.computations[i].name) +
                  "' is defined twice");
  for (Computation &computation : module.computations)
    for (Instruction &op : computation.instructions)
      for (const Attribute &attribute : op.attributes) {
        if (std::find(std::begin(keys), std::end(keys), attribute.name) ==
            std::end(keys))
          continue;
        pos = static_cast<size_t>(attribute.value.data() - text.data());
        size_t end = pos + attribute.value.size();
        bool list = accept('{');
        skipBlanks(true);
        while (pos < end && peek() != '}') {
          size_t at = pos;
          std::string_view callee = name("a computation's name");
          auto found = byName.find(callee);
          if (found == byName.end())
            fail(at,
                 "computation '" + std::string(callee) + "' is not defined");
          op.called.push_back(found->second);
          skipBlanks(true);
          if (!list || !accept(','))
            break;
          skipBlanks(true);
        }
      }
}

void Parser::run() {
  header();
  tables();
  while (true) {
    skipBlanks(true);
    if (atEnd())
      break;
    computation();
  }
  if (module.entry == kNone) {
    if (module.computations.size() != 1)
      fail(0, "there is no ENTRY computation");
    module.entry = 0;
  }
  resolveCalls();
}

} // namespace

bool looksLikeHlo(std::string_view text) {
  while (true) {
    while (!text.empty() && (text[0] == ' ' || text[0] == '\t' ||
                             text[0] == '\r' || text[0] == '\n'))
      text.remove_prefix(1);
    if (text.substr(0, 2) == "//") {
      size_t end = text.find('\n');
      text.remove_prefix(end == std::string_view::npos ? text.size() : end);
    } else if (text.substr(0, 2) == "/*") {
      size_t end = text.find("*/", 2);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
    } else {
      return text.substr(0, 10) == "HloModule ";
    }
  }
}

Module parse(std::string text, const std::string &path) {
  Module module;
  module.path = path;
  if (text.size() > kMaxText)
    throw Error(path + ": is larger than 2 GiB");
  module.text = std::make_shared<const std::string>(std::move(text));
  Parser(module).run();
  return module;
}

} // namespace concord::hlo
