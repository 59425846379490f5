//===- Module.h - HLO text as data ------------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the HLO reader returns: computations, instructions and their operands as
// indices; attributes stay text. All string views point into `Module::text` or
// `Module::derived`, which the module owns, so a module may be moved but its
// text never changes.
//
// The functions are pure; they throw hlo::Error, whose message begins with
// `name:line:column:`, on anything that is not well-formed HLO text. Time and
// memory are linear in the text.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_HLO_MODULE_H
#define CONCORD_HLO_MODULE_H

#include <cstdint>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace concord::hlo {

/// Malformed text: "file:line:column: what".
class Error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

constexpr uint32_t kNone = UINT32_MAX;

/// An array, a tuple, a token or opaque data.
struct Shape {
  enum class Kind : uint8_t { Array, Tuple, Token, Opaque };
  Kind kind = Kind::Array;
  std::string_view element; ///< "bf16", "pred"; of arrays only
  /// Extents; a dimension of bounded dynamic size has its bound, an unbounded
  /// one -1.
  std::vector<int64_t> dims;
  std::vector<Shape> elements; ///< of a tuple

  /// Elements of an array (a product that saturates); 0 for other kinds.
  uint64_t numElements() const;
  /// Bytes of all arrays in it; sub-byte elements are packed.
  uint64_t numBytes() const;
};

/// Bits of an element type of HLO, or 0 when the name is not one.
uint32_t elementBits(std::string_view element);

struct Attribute {
  std::string_view name, value; ///< as written
};

struct Instruction {
  std::string_view name; ///< without '%'
  Shape shape;
  std::string_view opcode;
  std::vector<uint32_t> operands; ///< earlier instructions of the computation
  std::vector<Attribute> attributes;
  /// Computations named by `to_apply`, `calls`, `body`, ... in textual order.
  std::vector<uint32_t> called;
  std::string_view
      payload; ///< what a constant's or parameter's parentheses hold
  uint32_t begin = 0, end = 0; ///< bytes in the text, for textual edits
  bool root = false;

  /// The value of an attribute, or an empty view.
  std::string_view attribute(std::string_view key) const;
};

struct Computation {
  std::string_view name;
  std::vector<Instruction> instructions;
  std::vector<uint32_t> parameters; ///< instruction of each parameter number
  uint32_t root = kNone;
};

struct Module {
  std::shared_ptr<const std::string> text;
  /// Strings that the text does not hold, of a reader of another syntax.
  std::shared_ptr<std::deque<std::string>> derived;
  std::string path; ///< for messages
  std::string_view name;
  std::vector<Attribute> attributes;
  std::vector<Computation> computations;
  uint32_t entry = kNone;
  int64_t numPartitions = 0, replicaCount = 0; ///< 0: not in the header

  std::string_view attribute(std::string_view key) const;
  uint32_t find(std::string_view computation) const;
  /// "path:line:column" of a byte of the text.
  std::string locate(size_t offset) const;
};

/// Whether `text` begins like HLO text (comments and blanks skipped).
bool looksLikeHlo(std::string_view text);

/// Reads a module. `path` is used in messages only.
Module parse(std::string text, const std::string &path);

/// Groups of ranks, or pairs: `{{0,1},{2,3}}`, `{}` (empty: all), the iota form
/// `[2,8]<=[16]`, `[8,2]<=[2,8]T(1,0)`, or axes of a mesh
/// `mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}`. Throws Error without a
/// position. At most `kMaxRanks` ranks in all.
constexpr int64_t kMaxRanks = 1 << 20;
std::vector<std::vector<int64_t>> parseGroups(std::string_view text);

/// The devices that hold the same part of an array of this sharding, one group
/// for each part: of `{devices=[2,1,4]<=[8] last_tile_dim_replicate}` {0,1,2,3}
/// and {4,5,6,7}. Tiles written as `devices=[2,2]0,2,1,3` are read, too, and
/// `last_tile_dims={manual, replicated}`. Empty for `{replicated}` and for
/// whatever else does not tell parts apart by device. Throws Error without a
/// position when tiles and devices do not agree; at most `kMaxRanks` devices.
std::vector<std::vector<int64_t>> sameParts(std::string_view sharding);

/// `{1,0}` or `{}` as numbers. Throws Error without a position.
std::vector<int64_t> parseIntegers(std::string_view text);

/// Shape-derived cost of an instruction; a fusion is the sum of what it calls.
struct Cost {
  uint64_t flops = 0;
  uint64_t bytesRead = 0, bytesWritten = 0;
};
Cost costOf(const Module &module, uint32_t computation, uint32_t instruction);

/// The text with one `control-predecessors` entry added per pair: instruction
/// `first` of the computation runs before instruction `second`. Nothing else
/// changes; entries that are there already are kept and not repeated.
struct ControlEdge {
  uint32_t computation = 0, first = 0, second = 0;
};
std::string addControlEdges(const Module &module,
                            const std::vector<ControlEdge> &edges);

} // namespace concord::hlo

#endif // CONCORD_HLO_MODULE_H
