//===- Parse.cpp - Reading foreign plan bytes -----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reader of the canonical bytes. It trusts nothing: every count is held
// against the bytes that are left before anything is allocated, recursion is
// bounded, and every index is checked, so that users of a parsed plan need not.
//
//===----------------------------------------------------------------------===//

#include "Utf8.h"
#include "concord/plan.h"

#include <bit>
#include <cmath>

using namespace concord;
using namespace concord::plan;

namespace {

constexpr uint32_t kMaxWorld = 1 << 20;
constexpr unsigned kMaxDepth = 64;
constexpr uint64_t kMaxBytes = uint64_t(1) << 56;

struct Failure {
  std::string message;
};

class Reader {
public:
  explicit Reader(std::span<const std::byte> bytes) : rest(bytes) {}
  std::span<const std::byte> rest;

  [[noreturn]] void fail(const std::string &what) { throw Failure{what}; }
  void need(size_t bytes) {
    if (rest.size() < bytes)
      fail("the plan ends in the middle of a value");
  }
  uint8_t u8() {
    need(1);
    uint8_t value = uint8_t(rest[0]);
    rest = rest.subspan(1);
    return value;
  }
  uint32_t u32() {
    need(4);
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i)
      value |= uint32_t(rest[i]) << (8 * i);
    rest = rest.subspan(4);
    return value;
  }
  uint64_t u64() {
    uint64_t low = u32();
    return low | uint64_t(u32()) << 32;
  }
  int32_t i32() { return int32_t(u32()); }
  uint8_t choice(uint8_t low, uint8_t high, const char *what) {
    uint8_t value = u8();
    if (value < low || value > high)
      fail(std::string("unknown ") + what + " " + std::to_string(value));
    return value;
  }
  /// A count of things that take at least `least` bytes each.
  uint32_t count(size_t least, const char *what) {
    uint32_t n = u32();
    if (n > rest.size() / least)
      fail(std::string("the plan is too short for its number of ") + what);
    return n;
  }
  std::string string() {
    uint32_t n = count(1, "characters");
    std::string text(reinterpret_cast<const char *>(rest.data()), n);
    rest = rest.subspan(n);
    if (!wellFormed(text))
      fail("a text in it is not UTF-8");
    return text;
  }
  template <typename T, typename Each>
  std::vector<T> list(size_t least, const char *what, Each each) {
    uint32_t n = count(least, what);
    std::vector<T> values;
    values.reserve(n);
    for (uint32_t i = 0; i < n; ++i)
      values.push_back(each());
    return values;
  }
  std::vector<int32_t> ranks(uint32_t world, std::vector<bool> &seen) {
    return list<int32_t>(4, "ranks", [&] {
      int32_t rank = i32();
      if (rank < 0 || uint32_t(rank) >= world)
        fail("rank " + std::to_string(rank) + " is outside the world of " +
             std::to_string(world));
      if (seen[rank])
        fail("rank " + std::to_string(rank) + " is listed twice");
      seen[rank] = true;
      return rank;
    });
  }

  Domain domain(uint32_t world) {
    Domain d;
    d.name = string();
    d.priority = i32();
    std::vector<bool> seen(world);
    d.groups = list<std::vector<int32_t>>(4, "groups",
                                          [&] { return ranks(world, seen); });
    for (const auto &group : d.groups)
      if (group.empty())
        fail("domain '" + d.name + "' has an empty group");
    return d;
  }

  Issue issue(const Plan &plan) {
    Issue x;
    x.kind = Kind(choice(1, uint8_t(Kind::RoundDecision), "kind"));
    x.reduction = Reduction(choice(0, uint8_t(Reduction::Or), "reduction"));
    x.dtype = DType(choice(0, uint8_t(DType::F8E5M2), "dtype"));
    uint8_t flags = choice(0, 3, "flags");
    x.synchronous = flags & 1;
    x.optional = flags & 2;
    x.slot = choice(0, 63, "slot");
    if (x.slot && !x.optional)
      fail("an issue that is always there has a slot");
    x.domain = u32();
    if (x.domain >= plan.domains.size())
      fail("an issue names domain " + std::to_string(x.domain) + " of " +
           std::to_string(plan.domains.size()));
    size_t size = 0;
    for (const auto &group : plan.domains[x.domain].groups)
      size = std::max(size, group.size());
    auto member = [&](int32_t rank, const char *what) {
      if (rank < 0 || size_t(rank) >= size)
        fail(std::string(what) + " " + std::to_string(rank) +
             " is outside the groups of domain '" +
             plan.domains[x.domain].name + "'");
      return rank;
    };
    x.lane = u32();
    x.root = i32();
    if (x.root != -1)
      member(x.root, "root");
    auto bounded = [&](uint64_t value, const char *what) {
      if (value > kMaxBytes)
        fail(std::string("impossible ") + what);
      return value;
    };
    x.count = bounded(u64(), "count");
    for (auto *counts : {&x.sendCounts, &x.recvCounts}) {
      *counts = list<uint64_t>(8, "split sizes",
                               [&] { return bounded(u64(), "split size"); });
      if (!counts->empty() && counts->size() != size)
        fail("split sizes do not match the group's size");
    }
    x.pairs = list<std::array<int32_t, 2>>(8, "pairs", [&] {
      int32_t source = member(i32(), "source");
      return std::array<int32_t, 2>{source, member(i32(), "target")};
    });
    x.waits = list<uint32_t>(4, "events", [&] { return u32(); });
    x.records = list<uint32_t>(4, "events", [&] { return u32(); });
    x.members = list<uint32_t>(4, "members", [&] { return u32(); });
    x.buffers = list<Buffer>(41, "buffers", [&] {
      Buffer b;
      b.space = Buffer::Space(
          choice(0, uint8_t(Buffer::Space::Foreign), "address space"));
      b.index = u64();
      b.offset = bounded(u64(), "offset");
      b.outer = bounded(u64(), "outer count");
      b.innerBytes = bounded(u64(), "inner size");
      b.strideBytes = bounded(u64(), "stride");
      uint64_t end;
      if (__builtin_mul_overflow(b.outer, b.strideBytes, &end) ||
          __builtin_mul_overflow(b.outer, b.innerBytes, &end))
        fail("impossible buffer");
      return b;
    });
    x.location = string();
    x.fused = string();
    return x;
  }

  Node node(size_t sites, unsigned depth) {
    if (depth > kMaxDepth)
      fail("the order tree is nested too deeply");
    Node n;
    n.type = Node::Type(choice(0, uint8_t(Node::Type::Compute), "node type"));
    n.tripCount = u64();
    n.site = u32();
    n.seconds = std::bit_cast<double>(u64());
    if (!std::isfinite(n.seconds))
      fail("a predicted time is not a number");
    bool leaf = n.type == Node::Type::Issue || n.type == Node::Type::Wait;
    if (leaf && n.site >= sites)
      fail("the order tree names site " + std::to_string(n.site) + " of " +
           std::to_string(sites));
    // What a node of its type has not is no second spelling of the same plan.
    if ((n.tripCount && n.type != Node::Type::Loop) || (n.site && !leaf) ||
        (n.seconds != 0 && n.type != Node::Type::Compute) ||
        std::signbit(n.seconds))
      fail("a node of the order tree has a number that its type has not");
    n.children =
        list<Node>(25, "children", [&] { return node(sites, depth + 1); });
    if ((leaf || n.type == Node::Type::Compute) && !n.children.empty())
      fail("a leaf of the order tree has children");
    return n;
  }

  Program program(const Plan &plan) {
    Program p;
    p.name = string();
    p.issuer = string();
    std::vector<bool> seen(plan.world);
    p.ranks = ranks(plan.world, seen);
    p.issues = list<Issue>(61, "issues", [&] { return issue(plan); });
    for (const Issue &x : p.issues)
      for (uint32_t site : x.members)
        if (x.kind != Kind::Group || site >= p.issues.size() ||
            p.issues[site].kind == Kind::Group)
          fail("a group's member is not an operation that can be grouped");
    p.body = node(p.issues.size(), 0);
    return p;
  }

  void plan(Plan &p) {
    for (char c : {'C', 'P', 'L', 'N'})
      if (u8() != uint8_t(c))
        fail("these bytes are not a plan table");
    uint32_t version = u32();
    if (version != kVersion)
      fail("plan version " + std::to_string(version) +
           " is not the version known here, " + std::to_string(kVersion));
    p.world = u32();
    // A domain or program of n bytes may cost a bit per rank; bounding the
    // world by the input keeps that a small multiple.
    if (p.world == 0 || p.world > kMaxWorld ||
        (p.world > 64 && p.world > rest.size()))
      fail("impossible world size " + std::to_string(p.world));
    p.assumptions =
        list<std::string>(4, "assumptions", [&] { return string(); });
    p.domains = list<Domain>(12, "domains", [&] { return domain(p.world); });
    p.programs = list<Program>(41, "programs", [&] { return program(p); });
    p.rounds = list<Round>(8, "rounds", [&] {
      Round round;
      std::vector<bool> seen(p.world);
      round.ranks = ranks(p.world, seen);
      round.turns = list<Turn>(8, "turns", [&] {
        Turn turn;
        turn.program = u32();
        turn.unit = u32();
        if (turn.program >= p.programs.size() ||
            turn.unit >= p.programs[turn.program].body.children.size())
          fail("a round names part " + std::to_string(turn.unit) +
               " of program " + std::to_string(turn.program) +
               ", which does not exist");
        return turn;
      });
      return round;
    });
    if (!rest.empty())
      fail(std::to_string(rest.size()) + " bytes follow the plan");
  }
};

} // namespace

bool concord::plan::parse(std::span<const std::byte> bytes, Plan &plan,
                          std::string &error) {
  Plan result;
  try {
    Reader(bytes).plan(result);
  } catch (const Failure &failure) {
    error = failure.message;
    return false;
  } catch (const std::bad_alloc &) {
    error = "no memory for the plan";
    return false;
  }
  plan = std::move(result);
  return true;
}
