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

#include "Names.h"
#include "Utf8.h"
#include "concord/plan.h"

#include <algorithm>
#include <cstdio>
#include <map>

using namespace concord;
using namespace concord::plan;

namespace {

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
    number("slot", x.slot);
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
      std::snprintf(seconds, sizeof seconds, "%.17g", n.seconds);
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
    key("rounds");
    list(p.rounds, [&](const Round &round) {
      out += "\n  {";
      numbers("ranks", round.ranks);
      key("turns");
      list(round.turns, [&](const Turn &turn) {
        out += '{';
        number("program", turn.program);
        number("unit", turn.unit);
        out += '}';
      });
      out += '}';
    });
    key("sequences");
    sequences(p);
    out += "}\n";
  }

  /// What each rank issues, in order, over all its programs: everything another
  /// tool needs to enforce it. Ranks that issue the same share an entry. A loop
  /// is written once, with its trip count.
  void sequences(const Plan &p) {
    struct Ranks {
      std::vector<uint32_t> programs; ///< that they run
      std::vector<const Round *> rounds;
      std::vector<int32_t> ranks;
    };
    std::vector<Ranks> all;
    for (uint32_t rank = 0; rank < p.world; ++rank) {
      Ranks mine;
      auto in = [&](const std::vector<int32_t> &list) {
        return std::find(list.begin(), list.end(), int32_t(rank)) != list.end();
      };
      for (uint32_t i = 0; i < p.programs.size(); ++i)
        if (p.programs[i].ranks.empty() || in(p.programs[i].ranks))
          mine.programs.push_back(i);
      for (const Round &round : p.rounds)
        if (in(round.ranks))
          mine.rounds.push_back(&round);
      auto same = std::find_if(all.begin(), all.end(), [&](const Ranks &other) {
        return other.programs == mine.programs && other.rounds == mine.rounds;
      });
      if (same == all.end())
        same = all.insert(all.end(), std::move(mine));
      same->ranks.push_back(int32_t(rank));
    }
    list(all, [&](const Ranks &each) {
      out += "\n  {";
      numbers("ranks", each.ranks);
      // Programs follow each other where no round says otherwise.
      std::vector<Turn> turns;
      std::vector<uint32_t> next(p.programs.size(), 0);
      auto upTo = [&](uint32_t program, uint32_t unit) {
        while (next[program] < unit)
          turns.push_back({program, next[program]++});
      };
      for (const Round *round : each.rounds)
        for (const Turn &turn : round->turns)
          upTo(turn.program, turn.unit + 1);
      for (uint32_t program : each.programs)
        upTo(program, uint32_t(p.programs[program].body.children.size()));
      key("issues");
      position = 0;
      first = true;
      out += '[';
      std::vector<std::map<uint32_t, uint32_t>> recorded(p.programs.size());
      for (const Turn &turn : turns)
        step(p, turn, p.programs[turn.program].body.children[turn.unit], 1,
             false, recorded[turn.program]);
      out += "]}";
    });
  }

private:
  uint32_t position = 0;
  bool first = true;

  void step(const Plan &p, const Turn &turn, const Node &n, uint64_t times,
            bool conditional, std::map<uint32_t, uint32_t> &recorded) {
    if (n.type == Node::Type::Issue) {
      const Program &program = p.programs[turn.program];
      const Issue &x = program.issues[n.site];
      out += first ? "\n    {" : ",\n    {";
      first = false;
      number("position", position);
      text("program", program.name);
      text("issuer", program.issuer);
      number("unit", turn.unit);
      number("site", n.site);
      text("domain", p.domains[x.domain].name);
      text("kind", kKinds[size_t(x.kind)]);
      number("count", x.count);
      text("dtype", x.dtype == DType::Invalid
                        ? std::string()
                        : std::string(dtypeName(x.dtype)));
      number("stream", x.lane);
      key("waits");
      std::vector<uint32_t> waits;
      for (uint32_t event : x.waits)
        if (auto it = recorded.find(event); it != recorded.end())
          waits.push_back(it->second);
      list(waits, [&](uint32_t value) { out += std::to_string(value); });
      text("slot", x.optional ? "optional" : conditional ? "branch" : "always");
      number("bit", x.optional ? int(x.slot) : -1);
      number("times", times);
      out += '}';
      for (uint32_t event : x.records)
        recorded[event] = position;
      ++position;
      return;
    }
    uint64_t inside = n.type == Node::Type::Loop ? n.tripCount * times : times;
    for (const Node &child : n.children)
      step(p, turn, child, inside, conditional || n.type == Node::Type::Branch,
           recorded);
  }
};

} // namespace

std::string concord::plan::toJson(const Plan &plan) {
  JsonWriter writer;
  writer.plan(plan);
  return std::move(writer.out);
}
