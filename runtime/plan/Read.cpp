//===- Read.cpp - A plan in any of its forms ------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// JSON is turned into a plan without looking at indices, and then goes through
// the canonical bytes: there is one reader that checks. The digest in the text
// is compared, so that an edited file is noticed.
//
//===----------------------------------------------------------------------===//

#include "Names.h"
#include "concord/plan.h"

#include <cstring>
#include <elf.h>
#include <nlohmann/json.hpp>

using namespace concord;
using namespace concord::plan;
using nlohmann::json;

namespace {

struct Failure {
  std::string message;
};

[[noreturn]] void fail(const std::string &what) { throw Failure{what}; }

template <typename T> T take(const json &object, const char *key) {
  auto it = object.find(key);
  if (it == object.end())
    fail(std::string("the plan has no '") + key + "' where it needs one");
  bool negative = it->is_number_integer() && !it->is_number_unsigned();
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (!it->is_number_integer())
      fail(std::string("'") + key + "' is no integer");
    if (negative) {
      int64_t value = it->get<int64_t>();
      if (std::is_unsigned_v<T> ||
          value < int64_t(std::numeric_limits<T>::min()))
        fail(std::string("'") + key + "' is out of range");
      return T(value);
    }
    uint64_t value = it->get<uint64_t>();
    if (value > uint64_t(std::numeric_limits<T>::max()))
      fail(std::string("'") + key + "' is out of range");
    return T(value);
  } else {
    try {
      return it->get<T>();
    } catch (const json::exception &) {
      fail(std::string("'") + key + "' has the wrong type");
    }
  }
}

const json &array(const json &object, const char *key) {
  auto it = object.find(key);
  if (it == object.end() || !it->is_array())
    fail(std::string("the plan has no list '") + key + "' where it needs one");
  return *it;
}

template <typename T>
std::vector<T> numbers(const json &object, const char *key) {
  std::vector<T> values;
  for (const json &value : array(object, key))
    values.push_back(take<T>(json{{"value", value}}, "value"));
  return values;
}

template <size_t N>
uint8_t choice(const json &object, const char *key,
               const char *const (&names)[N]) {
  std::string text = take<std::string>(object, key);
  for (size_t i = 0; i < N; ++i)
    if (*names[i] && text == names[i])
      return uint8_t(i);
  fail("'" + text + "' is no " + key);
}

Issue issueOf(const json &object, const Plan &plan) {
  Issue x{};
  x.kind = Kind(choice(object, "kind", kKinds));
  x.reduction = Reduction(choice(object, "reduction", kReductions));
  std::string type = take<std::string>(object, "dtype");
  x.dtype = type.empty() ? DType::Invalid : dtypeFromName(type);
  if (!type.empty() && x.dtype == DType::Invalid)
    fail("'" + type + "' is no dtype");
  x.synchronous = take<bool>(object, "synchronous");
  x.optional = take<bool>(object, "optional");
  x.slot = take<uint32_t>(object, "slot");
  std::string domain = take<std::string>(object, "domain");
  while (x.domain < plan.domains.size() &&
         plan.domains[x.domain].name != domain)
    ++x.domain;
  if (x.domain == plan.domains.size())
    fail("an issue names domain '" + domain + "', which is not defined");
  x.lane = take<uint32_t>(object, "lane");
  x.root = take<int32_t>(object, "root");
  x.count = take<uint64_t>(object, "count");
  x.sendCounts = numbers<uint64_t>(object, "send_counts");
  x.recvCounts = numbers<uint64_t>(object, "recv_counts");
  for (const json &pair : array(object, "pairs")) {
    auto both = numbers<int32_t>(json{{"pair", pair}}, "pair");
    if (both.size() != 2)
      fail("a pair has " + std::to_string(both.size()) + " ranks");
    x.pairs.push_back({both[0], both[1]});
  }
  x.waits = numbers<uint32_t>(object, "waits");
  x.records = numbers<uint32_t>(object, "records");
  x.members = numbers<uint32_t>(object, "members");
  for (const json &entry : array(object, "buffers")) {
    Buffer b{Buffer::Space(choice(entry, "space", kSpaces))};
    b.index = take<uint64_t>(entry, "index");
    b.offset = take<uint64_t>(entry, "offset");
    b.outer = take<uint64_t>(entry, "outer");
    b.innerBytes = take<uint64_t>(entry, "inner_bytes");
    b.strideBytes = take<uint64_t>(entry, "stride_bytes");
    x.buffers.push_back(b);
  }
  x.location = take<std::string>(object, "location");
  x.fused = take<std::string>(object, "fused");
  return x;
}

Node nodeOf(const json &object, unsigned depth) {
  if (depth > 64)
    fail("the order tree is nested too deeply");
  Node n{Node::Type(choice(object, "type", kNodes))};
  if (n.type == Node::Type::Loop)
    n.tripCount = take<uint64_t>(object, "trip_count");
  if (n.type == Node::Type::Issue || n.type == Node::Type::Wait)
    n.site = take<uint32_t>(object, "site");
  if (n.type == Node::Type::Compute)
    n.seconds = take<double>(object, "seconds");
  if (n.type <= Node::Type::Branch)
    for (const json &child : array(object, "children"))
      n.children.push_back(nodeOf(child, depth + 1));
  return n;
}

Plan planOf(const json &root) {
  if (!root.is_object())
    fail("this JSON is no plan");
  uint32_t version = take<uint32_t>(root, "version");
  if (version != kVersion)
    fail("plan version " + std::to_string(version) +
         " is not the version known here, " + std::to_string(kVersion));
  Plan plan;
  plan.world = take<uint32_t>(root, "world");
  for (const json &text : array(root, "assumptions"))
    plan.assumptions.push_back(
        take<std::string>(json{{"assumption", text}}, "assumption"));
  for (const json &entry : array(root, "domains")) {
    Domain d;
    d.name = take<std::string>(entry, "name");
    d.priority = take<int32_t>(entry, "priority");
    for (const json &group : array(entry, "groups"))
      d.groups.push_back(numbers<int32_t>(json{{"group", group}}, "group"));
    plan.domains.push_back(std::move(d));
  }
  for (const json &entry : array(root, "programs")) {
    Program p;
    p.name = take<std::string>(entry, "name");
    p.issuer = take<std::string>(entry, "issuer");
    p.ranks = numbers<int32_t>(entry, "ranks");
    for (const json &issue : array(entry, "issues"))
      p.issues.push_back(issueOf(issue, plan));
    p.body = nodeOf(take<json>(entry, "body"), 0);
    plan.programs.push_back(std::move(p));
  }
  for (const json &entry : array(root, "rounds")) {
    Round round;
    round.ranks = numbers<int32_t>(entry, "ranks");
    for (const json &turn : array(entry, "turns"))
      round.turns.push_back(
          {take<uint32_t>(turn, "program"), take<uint32_t>(turn, "unit")});
    plan.rounds.push_back(std::move(round));
  }
  return plan;
}

/// The section of a 64-bit little-endian ELF file; empty if it has none.
std::span<const std::byte> section(std::span<const std::byte> file,
                                   std::string_view name) {
  Elf64_Ehdr header;
  auto inside = [&](uint64_t offset, uint64_t size) {
    return offset <= file.size() && size <= file.size() - offset;
  };
  if (file.size() < sizeof header)
    fail("a truncated ELF file");
  std::memcpy(&header, file.data(), sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_shentsize != sizeof(Elf64_Shdr) ||
      !inside(header.e_shoff, uint64_t(header.e_shnum) * sizeof(Elf64_Shdr)) ||
      header.e_shstrndx >= header.e_shnum)
    fail("no 64-bit little-endian ELF file with a section table");
  auto at = [&](uint64_t i) {
    Elf64_Shdr s;
    std::memcpy(&s, file.data() + header.e_shoff + i * sizeof s, sizeof s);
    return s;
  };
  Elf64_Shdr strings = at(header.e_shstrndx);
  if (!inside(strings.sh_offset, strings.sh_size))
    fail("a truncated ELF file");
  std::string_view table(reinterpret_cast<const char *>(file.data()) +
                             strings.sh_offset,
                         strings.sh_size);
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr s = at(i);
    if (s.sh_name >= table.size())
      continue;
    std::string_view own = table.substr(s.sh_name);
    if (own.substr(0, own.find('\0')) != name || s.sh_type == SHT_NOBITS)
      continue;
    if (!inside(s.sh_offset, s.sh_size))
      fail("the section " + std::string(name) + " is truncated");
    return file.subspan(s.sh_offset, s.sh_size);
  }
  fail("no section " + std::string(name) + ": not an artefact of comm-opt");
}

class Flattener {
public:
  Flattener(size_t limit, std::vector<Step> &steps)
      : limit(limit), steps(steps) {}

  void walk(const Node &node, uint32_t unit, bool top) {
    switch (node.type) {
    case Node::Type::Issue:
      if (steps.size() >= limit)
        fail("it has more than " + std::to_string(limit) +
             " issues in one round");
      steps.push_back({node.site, unit});
      return;
    case Node::Type::Branch: {
      size_t before = steps.size();
      for (const Node &arm : node.children)
        walk(arm, unit, false);
      if (steps.size() != before)
        fail("it communicates under a branch; make that an optional slot");
      return;
    }
    case Node::Type::Loop: {
      size_t before = steps.size();
      for (const Node &child : node.children)
        walk(child, unit, false);
      size_t body = steps.size() - before;
      if (body == 0)
        return;
      if (node.tripCount == 0)
        fail("a loop's trip count is not known");
      if (node.tripCount > limit / body)
        fail("it has more than " + std::to_string(limit) +
             " issues in one round");
      for (uint64_t i = 1; i < node.tripCount; ++i)
        for (size_t k = 0; k < body; ++k)
          steps.push_back(Step(steps[before + k]));
      return;
    }
    case Node::Type::Seq:
      for (uint32_t i = 0; i < node.children.size(); ++i)
        walk(node.children[i], top ? i : unit, false);
      return;
    default:
      return;
    }
  }

private:
  size_t limit;
  std::vector<Step> &steps;
};

} // namespace

bool concord::plan::parseJson(std::string_view text, Plan &plan,
                              std::string &error) {
  try {
    json root = json::parse(text, nullptr, false);
    if (root.is_discarded())
      fail("this is not JSON");
    Plan read = planOf(root);
    auto bytes = serialize(read);
    if (!parse(bytes, plan, error))
      return false;
    std::string said = take<std::string>(root, "digest");
    if (said != toHex(sha256(bytes)))
      fail("the digest in the file is not that of its plan: it was edited or "
           "damaged");
    return true;
  } catch (const Failure &failure) {
    error = failure.message;
  } catch (const json::exception &failure) {
    error = failure.what();
  } catch (const std::bad_alloc &) {
    error = "no memory for the plan";
  }
  return false;
}

bool concord::plan::parseAny(std::span<const std::byte> bytes, Plan &plan,
                             std::string &error) {
  auto begins = [&](std::string_view with) {
    return bytes.size() >= with.size() &&
           std::memcmp(bytes.data(), with.data(), with.size()) == 0;
  };
  if (begins("CPLN"))
    return parse(bytes, plan, error);
  if (begins(ELFMAG)) {
    try {
      return parse(section(bytes, ".concord.plan"), plan, error);
    } catch (const Failure &failure) {
      error = failure.message;
      return false;
    }
  }
  std::string_view text(reinterpret_cast<const char *>(bytes.data()),
                        bytes.size());
  size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{')
    return parseJson(text, plan, error);
  error = "neither a plan table, nor a shared object of comm-opt, nor JSON";
  return false;
}

bool concord::plan::flatten(const Program &program, size_t limit,
                            std::vector<Step> &steps, std::string &error) {
  steps.clear();
  try {
    Flattener(limit, steps).walk(program.body, 0, true);
    return true;
  } catch (const Failure &failure) {
    error = failure.message;
    return false;
  }
}
