//===- Serialize.cpp - The plan table as canonical bytes ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writer and digests. Integers are little-endian, lists and strings are
// prefixed by a 32-bit count, nothing is padded, and no value has two
// spellings, so equal plans give equal bytes on every machine.
//
// The prefix chain is a hash chain: entry 0 is the hash of the header, entry i
// the hash of entry i-1 and the i-th issue (with the program's own fields in
// front of its first issue). Equality at i therefore means equality of all that
// comes before, which is what bisection needs.
//
//===----------------------------------------------------------------------===//

#include "Sha256.h"
#include "Utf8.h"
#include "concord/plan.h"

#include <bit>

using namespace concord::plan;

namespace {

class Writer {
public:
  std::vector<std::byte> out;

  void u8(uint8_t value) { out.push_back(std::byte(value)); }
  void u32(uint32_t value) {
    for (int i = 0; i < 4; ++i)
      u8(uint8_t(value >> (8 * i)));
  }
  void u64(uint64_t value) {
    for (int i = 0; i < 8; ++i)
      u8(uint8_t(value >> (8 * i)));
  }
  void i32(int32_t value) { u32(uint32_t(value)); }
  void string(const std::string &text) {
    std::string clean;
    for (size_t i = 0; i < text.size();) {
      size_t length = utf8Length(text, i);
      clean.append(length ? std::string_view(text).substr(i, length)
                          : kReplacement);
      i += length ? length : 1;
    }
    u32(uint32_t(clean.size()));
    for (char c : clean)
      u8(uint8_t(c));
  }
  template <typename List, typename Each>
  void list(const List &values, Each each) {
    u32(uint32_t(values.size()));
    for (const auto &value : values)
      each(value);
  }
  void ranks(const std::vector<int32_t> &values) {
    list(values, [&](int32_t value) { i32(value); });
  }
  void numbers(const std::vector<uint64_t> &values) {
    list(values, [&](uint64_t value) { u64(value); });
  }
  void indices(const std::vector<uint32_t> &values) {
    list(values, [&](uint32_t value) { u32(value); });
  }

  void header(const Plan &plan) {
    for (char c : {'C', 'P', 'L', 'N'})
      u8(uint8_t(c));
    u32(kVersion);
    u32(plan.world);
    list(plan.assumptions, [&](const std::string &text) { string(text); });
    list(plan.domains, [&](const Domain &domain) {
      string(domain.name);
      i32(domain.priority);
      list(domain.groups,
           [&](const std::vector<int32_t> &group) { ranks(group); });
    });
  }
  void programHeader(const Program &program) {
    string(program.name);
    string(program.issuer);
    ranks(program.ranks);
  }
  void issue(const Issue &issue) {
    u8(uint8_t(issue.kind));
    u8(uint8_t(issue.reduction));
    u8(uint8_t(issue.dtype));
    u8(uint8_t(issue.synchronous) | uint8_t(issue.optional) << 1);
    u8(uint8_t(issue.slot));
    u32(issue.domain);
    u32(issue.lane);
    i32(issue.root);
    u64(issue.count);
    numbers(issue.sendCounts);
    numbers(issue.recvCounts);
    list(issue.pairs, [&](const std::array<int32_t, 2> &pair) {
      i32(pair[0]);
      i32(pair[1]);
    });
    indices(issue.waits);
    indices(issue.records);
    indices(issue.members);
    list(issue.buffers, [&](const Buffer &buffer) {
      u8(uint8_t(buffer.space));
      u64(buffer.index);
      u64(buffer.offset);
      u64(buffer.outer);
      u64(buffer.innerBytes);
      u64(buffer.strideBytes);
    });
    string(issue.location);
    string(issue.fused);
  }
  void node(const Node &n) {
    u8(uint8_t(n.type));
    u64(n.tripCount);
    u32(n.site);
    u64(std::bit_cast<uint64_t>(n.seconds));
    list(n.children, [&](const Node &child) { node(child); });
  }
};

} // namespace

std::vector<std::byte> concord::plan::serialize(const Plan &plan) {
  Writer writer;
  writer.header(plan);
  writer.list(plan.programs, [&](const Program &program) {
    writer.programHeader(program);
    writer.list(program.issues,
                [&](const Issue &issue) { writer.issue(issue); });
    writer.node(program.body);
  });
  writer.list(plan.rounds, [&](const Round &round) {
    writer.ranks(round.ranks);
    writer.list(round.turns, [&](const Turn &turn) {
      writer.u32(turn.program);
      writer.u32(turn.unit);
    });
  });
  return std::move(writer.out);
}

Digest concord::plan::digest(const Plan &plan) {
  return sha256(serialize(plan));
}

std::vector<Digest> concord::plan::prefixDigests(const Plan &plan) {
  std::vector<Digest> chain;
  Writer writer;
  writer.header(plan);
  chain.push_back(sha256(writer.out));
  writer.out.clear();
  for (const Program &program : plan.programs) {
    writer.programHeader(program);
    for (const Issue &issue : program.issues) {
      writer.issue(issue);
      Sha256 hash;
      hash.update(std::as_bytes(std::span(chain.back())));
      hash.update(writer.out);
      chain.push_back(hash.finish());
      writer.out.clear();
    }
  }
  return chain;
}
