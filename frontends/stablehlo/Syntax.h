//===- Syntax.h - MLIR text as a tree of operations -------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The syntax only: names, operands, attributes as text, types as text, regions.
// The generic form is read exactly. Of custom forms, which are as many as there
// are operations, it reads what they share: operands begin with '%', attributes
// are `name = value`, types follow the last ':', regions are in braces.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_FRONTENDS_STABLEHLO_SYNTAX_H
#define CONCORD_FRONTENDS_STABLEHLO_SYNTAX_H

#include "concord/hlo/Module.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace concord::stablehlo {

struct Op;

/// One block; a region of more is refused.
struct Region {
  struct Argument {
    std::string_view name; ///< without '%'
    std::string_view type;
    std::string_view attributes; ///< `{...}` after it, or empty
  };
  std::vector<Argument> arguments;
  std::vector<Op> ops;
};

struct Operand {
  std::string_view name; ///< without '%' and '#'
  uint32_t part = 0;     ///< of `%name#part`
};

struct Op {
  std::string_view name; ///< "stablehlo.add"
  size_t begin = 0;      ///< byte in the text
  std::vector<std::pair<std::string_view, uint32_t>>
      results; ///< name, how many
  std::vector<Operand> operands;
  std::vector<hlo::Attribute> attributes; ///< properties and discardable ones
  std::string_view symbol;                ///< first `@name` of a custom form
  std::vector<Region> regions;
  std::vector<std::string_view> operandTypes; ///< empty if the form lists none
  std::vector<std::string_view> types; ///< of the results, or of all values
  bool arrow = false;                  ///< `types` are the results'

  std::string_view attribute(std::string_view key) const;
  bool has(std::string_view key) const;
};

struct File {
  Region top;
  std::map<std::string_view, std::string_view> aliases; ///< `#name = value`
};

/// Throws hlo::Error with a position made by `module.locate`.
File parseSyntax(const hlo::Module &module);

/// `text` cut at commas outside brackets and strings; parts are trimmed.
std::vector<std::string_view> splitTopLevel(std::string_view text);
std::string_view trim(std::string_view text);
/// `{a = 1, b}`, `<{a = 1}>` or without braces as attributes.
std::vector<hlo::Attribute> parseDictionary(std::string_view text);

} // namespace concord::stablehlo

#endif // CONCORD_FRONTENDS_STABLEHLO_SYNTAX_H
