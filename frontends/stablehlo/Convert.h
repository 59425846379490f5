//===- Convert.h - From the tree of operations to computations --*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the parts of the reader share: Types.cpp reads types and attributes,
// Operations.cpp converts operations, Reader.cpp builds computations of them.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_FRONTENDS_STABLEHLO_CONVERT_H
#define CONCORD_FRONTENDS_STABLEHLO_CONVERT_H

#include "Syntax.h"
#include "concord/stablehlo/Reader.h"

#include <set>

namespace concord::stablehlo::detail {

inline bool startsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool readInteger(std::string_view text, int64_t &value);
/// What `key = ` names inside an attribute, or nothing: `<a = 1, b = [2]>`.
std::string_view field(std::string_view text, std::string_view key);
/// A quoted string's inside.
std::string_view unquote(std::string_view text);
std::string_view inBrackets(std::string_view text);
/// Whether a sharding of sdy lets devices hold different values.
bool namesAxis(std::string_view sharding);

using Groups = std::vector<std::vector<int64_t>>;

/// Named axes; ranks are row-major over them unless `devices` says otherwise.
struct Mesh {
  std::vector<std::pair<std::string_view, int64_t>> axes;
  std::vector<int64_t> devices;
};

class Reader {
public:
  Reader(hlo::Module &module, Notes &notes) : module(module), notes(notes) {}
  void run();

private:
  /// A value: an instruction, or one element of its tuple.
  struct Ref {
    uint32_t instruction = 0;
    int64_t element = -1;
  };
  /// What a computation sees while it is built.
  struct Scope {
    uint32_t computation = 0;
    std::map<std::pair<std::string_view, uint32_t>, Ref> values;
    std::map<std::pair<uint32_t, int64_t>, uint32_t> elements; ///< made already
    bool manual = false; ///< at the view of one device
  };
  using Names = std::vector<std::pair<std::string_view, uint32_t>>;

  [[noreturn]] void fail(const Op &op, const std::string &what) const {
    throw hlo::Error(module.locate(op.begin) + ": " + std::string(op.name) +
                     ": " + what);
  }
  std::string_view keep(std::string text) {
    module.derived->push_back(std::move(text));
    return module.derived->back();
  }
  std::string_view resolve(std::string_view value) const {
    for (unsigned i = 0;
         i < 8 && !value.empty() && (value[0] == '#' || value[0] == '!'); ++i) {
      auto found = file.aliases.find(value);
      if (found == file.aliases.end())
        break;
      value = found->second;
    }
    return value;
  }

  void collect(const Region &region);
  hlo::Shape shapeOf(const Op &op, std::string_view type);
  hlo::Shape tuple(std::vector<hlo::Shape> elements) {
    hlo::Shape shape;
    shape.kind = hlo::Shape::Kind::Tuple;
    shape.elements = std::move(elements);
    return shape;
  }
  std::vector<int64_t> integers(const Op &op, std::string_view key);
  int64_t integer(const Op &op, std::string_view key, int64_t otherwise);

  uint32_t add(Scope &scope, const Op &op, std::string_view opcode,
               hlo::Shape shape, std::vector<uint32_t> operands);
  std::vector<hlo::Instruction> &list(Scope &scope) {
    return module.computations[scope.computation].instructions;
  }
  uint32_t use(Scope &scope, const Op &op, std::string_view name,
               uint32_t part);
  std::vector<uint32_t> operandsOf(Scope &scope, const Op &op);
  void define(Scope &scope, const Op &op, uint32_t instruction);
  hlo::Shape resultShape(const Op &op);
  std::vector<std::string_view> resultTypes(const Op &op);

  void captures(const Region &region, Names &found) const;
  uint32_t beginComputation(std::string name);
  void endComputation(Scope &scope, const Op &op, std::vector<uint32_t> results,
                      bool packed);
  uint32_t tupleRegion(Scope &outer, const Op &op, const Region &region,
                       const Names &outside, const std::string &name,
                       bool passOn, bool manual);
  uint32_t plainRegion(const Op &op, const Region &region,
                       const std::string &name);
  uint32_t callee(const Op &op, bool manual);
  uint32_t function(const Op &op, bool manual);
  void attach(Scope &scope, uint32_t instruction, std::string_view key,
              uint32_t computation);

  std::vector<uint32_t> body(Scope &scope, const Region &region,
                             const Op &parent);
  void convert(Scope &scope, const Op &op);
  void collective(Scope &scope, const Op &op, std::string_view opcode);
  void transfer(Scope &scope, const Op &op);
  void async(Scope &scope, const Op &op);
  void whileLoop(Scope &scope, const Op &op);
  void conditional(Scope &scope, const Op &op);
  void manual(Scope &scope, const Op &op);
  void compute(Scope &scope, const Op &op);

  Mesh readMesh(const Op &op, std::string_view text);
  Groups meshGroups(const Op &op, std::string_view text);
  std::string partsText(std::string_view sharding);
  void attachParts(Scope &scope, uint32_t instruction,
                   std::string_view sharding) {
    std::string parts = partsText(sharding);
    if (!parts.empty())
      list(scope)[instruction].attributes.push_back(
          {"parts", keep(std::move(parts))});
  }
  std::string groupsText(const Op &op, std::string_view key);
  Groups denseGroups(const Op &op, std::string_view text);

  hlo::Module &module;
  Notes &notes;
  File file;
  std::map<std::string_view, const Op *> functions;
  /// Functions at the view of the whole program, or of one device.
  std::map<std::pair<std::string_view, bool>, uint32_t> built;
  std::set<std::string_view> building;
  std::map<std::string_view, Mesh> meshes;
  std::set<std::string> names; ///< of computations
};

} // namespace concord::stablehlo::detail

#endif // CONCORD_FRONTENDS_STABLEHLO_CONVERT_H
