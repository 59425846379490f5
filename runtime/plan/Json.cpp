//===- Json.cpp - The plan table as JSON ----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writes a plan in the form of docs/plan-schema.json, for other tools to read
// and enforce. Fields are always all there, in one order, so that two plans can
// be compared by a text diff.
//
//===----------------------------------------------------------------------===//

#include "concord/plan.h"

#include <cstdio>

using namespace concord;
using namespace concord::plan;

namespace {

const char *const kKinds[] = {
    "",           "all_reduce", "all_gather",    "reduce_scatter",
    "all_to_all", "broadcast",  "reduce",        "gather",
    "scatter",    "permute",    "send",          "recv",
    "barrier",    "group",      "round_decision"};
const char *const kReductions[] = {"none", "sum", "prod", "min",
                                   "max",  "avg", "and",  "or"};
const char *const kSpaces[] = {"arena", "input", "output", "parameter",
                               "foreign"};
const char *const kNodes[] = {"seq",   "loop", "branch",
                              "issue", "wait", "compute"};

/// Length of the well-formed UTF-8 sequence at `at`, or 0.
size_t utf8Length(const std::string &text, size_t at) {
  auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : 0; };
  uint8_t lead = byte(at);
  size_t length = lead < 0x80   ? 1
                  : lead < 0xc2 ? 0
                  : lead < 0xe0 ? 2
                  : lead < 0xf0 ? 3
                  : lead < 0xf5 ? 4
                                : 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xc0) != 0x80)
      return 0;
  uint8_t second = byte(at + 1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
      (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
    return 0;
  return length;
}

class JsonWriter {
public:
  std::string out;

  void string(const std::string &text) {
    out += '"';
    for (size_t i = 0; i < text.size();) {
      size_t length = utf8Length(text, i);
      if (length == 0) {
        out += "\\ufffd";
        ++i;
        continue;
      }
      if (text[i] == '"' || text[i] == '\\') {
        out += '\\';
        out += text[i];
      } else if (uint8_t(text[i]) < 0x20 || text[i] == 0x7f) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", text[i]);
        out += escape;
      } else {
        out.append(text, i, length);
      }
      i += length;
    }
    out += '"';
  }
  void key(const char *name) {
    if (out.back() != '{')
      out += ',';
    out += '"';
    out += name;
    out += "\":";
  }
  template <typename T> void number(const char *name, T value) {
    key(name);
    out += std::to_string(value);
  }
  void text(const char *name, const std::string &value) {
    key(name);
    string(value);
  }
  void flag(const char *name, bool value) {
    key(name);
    out += value ? "true" : "false";
  }
  template <typename List, typename Each>
  void list(const List &values, Each each, const char *separator = ",") {
    out += '[';
    bool first = true;
    for (const auto &value : values) {
      if (!first)
        out += separator;
      first = false;
      each(value);
    }
    out += ']';
  }
  template <typename List> void numbers(const char *name, const List &values) {
    key(name);
    list(values, [&](auto value) { out += std::to_string(value); });
  }

  void issue(const Issue &x, size_t site, const Plan &plan) {
    out += "\n      {";
    number("site", site);
    text("kind", kKinds[size_t(x.kind)]);
    text("reduction", kReductions[size_t(x.reduction)]);
    text("dtype", x.dtype == DType::Invalid ? std::string()
                                            : std::string(dtypeName(x.dtype)));
    flag("synchronous", x.synchronous);
    flag("optional", x.optional);
    text("domain", plan.domains[x.domain].name);
    number("lane", x.lane);
    number("root", x.root);
    number("count", x.count);
    numbers("send_counts", x.sendCounts);
    numbers("recv_counts", x.recvCounts);
    key("pairs");
    list(x.pairs, [&](const std::array<int32_t, 2> &pair) {
      out +=
          "[" + std::to_string(pair[0]) + "," + std::to_string(pair[1]) + "]";
    });
    numbers("waits", x.waits);
    numbers("records", x.records);
    numbers("members", x.members);
    key("buffers");
    list(x.buffers, [&](const Buffer &b) {
      out += '{';
      text("space", kSpaces[size_t(b.space)]);
      number("index", b.index);
      number("offset", b.offset);
      number("outer", b.outer);
      number("inner_bytes", b.innerBytes);
      number("stride_bytes", b.strideBytes);
      out += '}';
    });
    text("location", x.location);
    text("fused", x.fused);
    out += '}';
  }
  void node(const Node &n) {
    out += '{';
    text("type", kNodes[size_t(n.type)]);
    switch (n.type) {
    case Node::Type::Loop:
      number("trip_count", n.tripCount);
      break;
    case Node::Type::Issue:
    case Node::Type::Wait:
      number("site", n.site);
      break;
    case Node::Type::Compute: {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.9g", n.seconds);
      key("seconds");
      out += seconds;
      break;
    }
    default:
      break;
    }
    if (n.type <= Node::Type::Branch) {
      key("children");
      list(n.children, [&](const Node &child) { node(child); });
    }
    out += '}';
  }
  void plan(const Plan &p) {
    out += '{';
    number("version", kVersion);
    text("digest", toHex(digest(p)));
    number("world", p.world);
    key("assumptions");
    list(p.assumptions, [&](const std::string &value) { string(value); });
    key("domains");
    list(p.domains, [&](const Domain &domain) {
      out += "\n  {";
      text("name", domain.name);
      number("priority", domain.priority);
      key("groups");
      list(domain.groups, [&](const std::vector<int32_t> &group) {
        list(group, [&](int32_t rank) { out += std::to_string(rank); });
      });
      out += '}';
    });
    key("programs");
    list(p.programs, [&](const Program &program) {
      out += "\n  {";
      text("name", program.name);
      text("issuer", program.issuer);
      numbers("ranks", program.ranks);
      key("issues");
      size_t site = 0;
      list(program.issues, [&](const Issue &x) { issue(x, site++, p); });
      out += ",\n    \"body\":";
      node(program.body);
      out += '}';
    });
    out += "}\n";
  }
};

} // namespace

std::string concord::plan::toJson(const Plan &plan) {
  JsonWriter writer;
  writer.plan(plan);
  return std::move(writer.out);
}
