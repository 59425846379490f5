//===- plan.h - The plan table ----------------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Contract (b) of the design. One read-only, versioned table describes every
// communication operation of a whole job: all ranks, all programs. The
// compiler writes it, and the gate, the strict mode, the trace, the doctor and
// the verification of lowered programs read it. MLIR-free.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PLAN_H
#define CONCORD_PLAN_H

#include "concord/dtype.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace concord::plan {

constexpr uint32_t kVersion = 2;

enum class Kind : uint8_t {
  AllReduce = 1,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Reduce,
  Gather,
  Scatter,
  Permute,
  Send,
  Recv,
  Barrier,
  Group,
  RoundDecision,
};
enum class Reduction : uint8_t { None, Sum, Prod, Min, Max, Avg, And, Or };

/// A communication domain: a partition of world ranks into groups, in order.
struct Domain {
  std::string name;
  int32_t priority = 0;                     ///< higher goes first
  std::vector<std::vector<int32_t>> groups; ///< world ranks
};

/// Where a buffer of an issue lies.
struct Buffer {
  enum class Space : uint8_t { Arena, Input, Output, Parameter, Foreign } space;
  uint64_t index = 0;  ///< which input/output/parameter
  uint64_t offset = 0; ///< bytes from its start
  uint64_t outer = 1, innerBytes = 0, strideBytes = 0; ///< concord_buffer
};

/// One communication operation of a program. `site` is its index.
struct Issue {
  Kind kind;
  Reduction reduction = Reduction::None;
  DType dtype = DType::Invalid;
  bool synchronous = true; ///< completed when concord_issue returns
  bool optional = false;   ///< in an optional slot of its round
  uint32_t slot = 0;       ///< of an optional one: its bit in the round's
                     ///< decision, below 64; one slot may have several issues
  uint32_t domain = 0; ///< index into Plan::domains
  uint32_t lane = 0;   ///< stream within the program
  int32_t root = -1;   ///< group rank, for rooted kinds
  uint64_t count = 0;  ///< elements of the logical array per rank: the input
                       ///< of all_reduce, one chunk of all_gather (input),
                       ///< reduce_scatter (output) and all_to_all
  std::vector<uint64_t> sendCounts,
      recvCounts; ///< uneven all_to_all, in elements
  std::vector<std::array<int32_t, 2>>
      pairs;                     ///< permute, send, recv: group ranks
  std::vector<uint32_t> waits;   ///< events waited for before the start
  std::vector<uint32_t> records; ///< events recorded at completion
  std::vector<uint32_t> members; ///< sites inside a Group
  std::vector<Buffer> buffers;   ///< inputs, then outputs
  std::string location;          ///< the model's own node name, or file:line
  std::string fused;             ///< description of the kernel that this is one
                     ///< with (kernel.h), whose operands the buffers
                     ///< are then; "" for a plain operation
};

/// The order of issues in a program.
struct Node {
  enum class Type : uint8_t { Seq, Loop, Branch, Issue, Wait, Compute } type;
  uint64_t tripCount = 0;       ///< Loop; 0 = not known at compile time
  uint32_t site = 0;            ///< Issue and Wait
  double seconds = 0;           ///< Compute: predicted
  std::vector<Node> children{}; ///< Seq, Loop, Branch (one per arm)
};

/// What one set of ranks runs.
struct Program {
  std::string name;
  std::string issuer;         ///< "" for the only issuer
  std::vector<int32_t> ranks; ///< world ranks that run it
  std::vector<Issue> issues;
  Node body{Node::Type::Seq};
};

/// One part of a program that keeps together in a round: a child of its body.
struct Turn {
  uint32_t program = 0; ///< index into Plan::programs
  uint32_t unit = 0;    ///< index into that program's body.children
};

/// The agreed order of what several issuers of a rank do in one round. Parts
/// that are in no list need no order (design, rounds and optional slots).
struct Round {
  std::vector<int32_t> ranks; ///< world ranks that follow it
  std::vector<Turn> turns;
};

struct Plan {
  uint32_t world = 1;
  std::vector<Domain> domains;
  std::vector<Program> programs;
  std::vector<Round> rounds; ///< of ranks with several issuers
  std::vector<std::string> assumptions;
};

using Digest = std::array<uint8_t, 32>;

/// The canonical bytes: little-endian, length-prefixed, no padding; equal plans
/// give equal bytes on every machine.
std::vector<std::byte> serialize(const Plan &plan);

/// Parse and check foreign bytes: every index, count and length. On failure
/// returns false and says why; never reads outside, never allocates more than a
/// small multiple of the input's size.
bool parse(std::span<const std::byte> bytes, Plan &plan, std::string &error);

/// SHA-256 of the canonical bytes.
Digest digest(const Plan &plan);

/// Prefix chain: entry i covers the header and the first i issues (programs in
/// order, sites in order). Two jobs bisect it to the first site that differs.
std::vector<Digest> prefixDigests(const Plan &plan);

std::string toHex(const Digest &digest);
Digest sha256(std::span<const std::byte> bytes);

/// JSON with the schema of docs/plan-schema.json.
std::string toJson(const Plan &plan);
/// Read it back. The digest in the text has to be that of the plan.
bool parseJson(std::string_view text, Plan &plan, std::string &error);
/// A plan in any form that the tools write: the canonical bytes, a shared
/// object with a section .concord.plan, JSON.
bool parseAny(std::span<const std::byte> bytes, Plan &plan, std::string &error);

/// Every issue of one round of a rank's program, in order, where the program
/// fixes it: loops are unrolled. False with the reason where it does not (a
/// branch, a trip count that is not known, more than `limit` issues).
struct Step {
  uint32_t site = 0;
  uint32_t unit = 0; ///< child of the body that it belongs to
};
bool flatten(const Program &program, size_t limit, std::vector<Step> &steps,
             std::string &error);

} // namespace concord::plan

#endif // CONCORD_PLAN_H
