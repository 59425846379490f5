//===- Files.cpp - Calibrations and topologies as JSON --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Strict readers: a key that is not known is an error, because a figure under a
// misspelt name would be ignored without anyone noticing. Every message names
// the file and the place inside it.
//
//===----------------------------------------------------------------------===//

#include "concord/cost/Machine.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

using nlohmann::json;

namespace concord::cost {
namespace {

constexpr const char *kKinds[] = {
    "",          "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
    "broadcast", "reduce",     "gather",     "scatter",        "permute",
    "send",      "recv",       "barrier"};

constexpr int64_t kMostRanks = 65536;

/// A JSON object of which every key must be asked for.
class Object {
public:
  Object(const json &value, std::string where)
      : value(value), where(std::move(where)) {
    if (!value.is_object())
      fail("is not an object");
  }

  [[noreturn]] void fail(const std::string &what) const {
    throw std::runtime_error((where.empty() ? "the file" : where) + " " + what);
  }
  std::string path(const std::string &key) const {
    return where.empty() ? key : where + "." + key;
  }
  bool has(const char *key) {
    used.push_back(key);
    return value.contains(key);
  }
  const json &get(const char *key) {
    if (!has(key))
      fail(std::string("lacks \"") + key + "\"");
    return value[key];
  }
  double number(const char *key, double least, double fallback) {
    return has(key) ? number(key, least) : fallback;
  }
  double number(const char *key, double least) {
    const json &entry = get(key);
    if (!entry.is_number())
      throw std::runtime_error(path(key) + " is not a number");
    auto result = entry.get<double>();
    if (!std::isfinite(result) || result < least)
      throw std::runtime_error(path(key) + " is " + entry.dump() +
                               ", less than the least allowed value, " +
                               json(least).dump());
    return result;
  }
  int64_t integer(const char *key, int64_t least, int64_t most,
                  int64_t fallback) {
    return has(key) ? integer(key, least, most) : fallback;
  }
  int64_t integer(const char *key, int64_t least, int64_t most) {
    const json &entry = get(key);
    if (!entry.is_number_integer() || entry.get<double>() < least ||
        entry.get<double>() > static_cast<double>(most))
      throw std::runtime_error(
          path(key) + " is " + entry.dump() + ", not a whole number from " +
          std::to_string(least) + " to " + std::to_string(most));
    return entry.get<int64_t>();
  }
  std::string text(const char *key, const std::string &fallback) {
    if (!has(key))
      return fallback;
    if (!value[key].is_string())
      throw std::runtime_error(path(key) + " is not a text");
    return value[key];
  }
  const json &list(const char *key) {
    const json &entry = get(key);
    if (!entry.is_array() || entry.empty())
      throw std::runtime_error(path(key) + " is not a list with entries");
    return entry;
  }
  /// All keys were asked for; `comment` is free.
  void finish() const {
    for (auto &[key, entry] : value.items())
      if (key != "comment" &&
          std::find(used.begin(), used.end(), key) == used.end())
        fail("has the unknown key \"" + key + "\"");
  }

private:
  const json &value;
  std::string where;
  std::vector<std::string> used;
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char &c : result)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

DType typeNamed(const std::string &name, const std::string &where) {
#define X(enumerator, number, bytes, text)                                     \
  if (name == lower(text))                                                     \
    return DType::enumerator;
  CONCORD_DTYPES(X)
#undef X
  throw std::runtime_error(where + " names the unknown type \"" + name + "\"");
}

plan::Kind kindNamed(const std::string &name, const std::string &where) {
  for (size_t i = 1; i < std::size(kKinds); ++i)
    if (name == kKinds[i])
      return static_cast<plan::Kind>(i);
  throw std::runtime_error(where + " names the unknown collective \"" + name +
                           "\"");
}

void readFlops(Object &parent, Machine &machine) {
  if (!parent.has("flops_per_second"))
    return;
  std::string where = parent.path("flops_per_second");
  const json &table = parent.get("flops_per_second");
  Object object(table, where);
  for (auto &[name, entry] : table.items()) {
    DType type = typeNamed(name, where);
    machine.flops[type] = object.number(name.c_str(), 1);
  }
}

void readMemory(Object &parent, Machine &machine) {
  if (!parent.has("memory"))
    return;
  Object object(parent.get("memory"), parent.path("memory"));
  // A machine with a cache of its own does not share the built-in one's
  // trouble.
  bool given = object.has("cache_core_bytes_per_second");
  auto pair = [&](const char *core, const char *node, Bandwidth &bandwidth) {
    bool given = object.has(core);
    bandwidth.core = object.number(core, 1, bandwidth.core);
    // A core's figure alone says nothing about the node's built-in one.
    bandwidth.node =
        object.number(node, 1, given ? bandwidth.core : bandwidth.node);
    if (bandwidth.node < bandwidth.core)
      throw std::runtime_error(object.path(node) +
                               " is less than what one core reaches alone");
  };
  pair("cache_core_bytes_per_second", "cache_node_bytes_per_second",
       machine.cache);
  pair("dram_core_bytes_per_second", "dram_node_bytes_per_second",
       machine.dram);
  machine.cacheBytes = static_cast<uint64_t>(
      object.number("cache_bytes", 0, static_cast<double>(machine.cacheBytes)));
  machine.contended = object.number("contended_bytes_per_second", 0,
                                    given ? 0 : machine.contended);
  object.finish();
}

void readFixedCosts(Object &object, Machine &machine) {
  machine.opSeconds = object.number("op_us", 0, machine.opSeconds * 1e6) / 1e6;
  machine.issueSeconds =
      object.number("issue_us", 0, machine.issueSeconds * 1e6) / 1e6;
  machine.messageSeconds =
      object.number("message_us", 0, machine.messageSeconds * 1e6) / 1e6;
  machine.flagSeconds =
      object.number("flag_round_us", 0, machine.flagSeconds * 1e6) / 1e6;
  machine.updateSeconds =
      object.number("update_instruction_ns", 0, machine.updateSeconds * 1e9) /
      1e9;
}

Curve readCurve(Object &object) {
  Curve curve;
  curve.kind = kindNamed(object.text("kind", ""), object.path("kind"));
  curve.ranks = object.integer("ranks", 2, kMostRanks);
  curve.level = object.text("level", "host");
  uint64_t previous = 0;
  size_t count = object.list("segments").size();
  for (size_t i = 0; i < count; ++i) {
    Object part(object.get("segments")[i],
                object.path("segments") + "[" + std::to_string(i) + "]");
    Segment segment;
    // The last segment has no end.
    bool last = i + 1 == count;
    segment.upTo = UINT64_MAX;
    if (part.has("up_to_bytes")) {
      segment.upTo = static_cast<uint64_t>(
          part.integer("up_to_bytes", 1, int64_t(1) << 60));
      if (segment.upTo <= previous)
        part.fail("ends before it begins");
    } else if (!last) {
      part.fail("lacks \"up_to_bytes\" and is not the last one");
    }
    if (last)
      segment.upTo = UINT64_MAX;
    previous = segment.upTo;
    segment.alpha = part.number("alpha_us", 0) / 1e6;
    segment.beta = part.number("beta_ns_per_byte", 0) / 1e9;
    part.finish();
    curve.segments.push_back(segment);
  }
  object.finish();
  return curve;
}

FormCurve readForm(Object &object) {
  FormCurve result;
  result.form = object.text("form", "");
  if (result.form.empty())
    object.fail("lacks \"form\"");
  result.objective = object.text("objective", "");
  if (result.objective != "latency" && result.objective != "throughput")
    throw std::runtime_error(object.path("objective") + " is \"" +
                             result.objective +
                             "\"; there are latency and throughput");
  result.curve = readCurve(object);
  return result;
}

void parseCalibration(const json &root, Machine &machine) {
  Object object(root, "");
  object.integer("concord_calibration", 1, 1);
  machine.name = object.text("name", "this machine");
  machine.validated = object.text("validated", "");
  machine.coresPerHost =
      object.integer("cores", 1, kMostRanks, machine.coresPerHost);
  readFlops(object, machine);
  readMemory(object, machine);
  readFixedCosts(object, machine);
  machine.levels[0].latency = machine.flagSeconds;
  machine.levels[0].bandwidth = machine.cache.core;
  machine.inlineBytes = static_cast<uint64_t>(object.integer(
      "inline_bytes", 0, 1 << 30, static_cast<int64_t>(machine.inlineBytes)));
  if (object.has("collectives")) {
    const json &list = object.list("collectives");
    for (size_t i = 0; i < list.size(); ++i) {
      Object entry(list[i], "collectives[" + std::to_string(i) + "]");
      Curve curve = readCurve(entry);
      for (const Curve &other : machine.curves)
        if (other.kind == curve.kind && other.ranks == curve.ranks &&
            other.level == curve.level)
          throw std::runtime_error("collectives[" + std::to_string(i) +
                                   "] repeats an earlier entry");
      machine.curves.push_back(std::move(curve));
    }
  }
  if (object.has("forms")) {
    const json &list = object.list("forms");
    for (size_t i = 0; i < list.size(); ++i) {
      Object entry(list[i], "forms[" + std::to_string(i) + "]");
      machine.forms.push_back(readForm(entry));
    }
  }
  object.finish();
  machine.calibrated = true;
}

/// One group of equal hosts.
struct Hosts {
  int64_t count, ranks, cores, nics;
};

void parseTopology(const json &root, const std::string &path,
                   Machine &machine) {
  Object object(root, "");
  object.integer("concord_topology", 1, 1);
  Machine base = *builtinMachine("cpu");
  if (object.has("device")) {
    Object device(object.get("device"), "device");
    std::string name = device.text("machine", "cpu");
    auto builtin = builtinMachine(name);
    if (!builtin)
      throw std::runtime_error("device.machine is \"" + name +
                               "\"; there are \"cpu\" and \"accelerator\"");
    base = *builtin;
    // What was measured here, beside this file.
    if (std::string file = device.text("calibration", ""); !file.empty()) {
      std::string error;
      auto folder = std::filesystem::path(path).parent_path();
      if (!readCalibration((folder / file).string(), base, error))
        throw std::runtime_error("device.calibration: " + error);
    }
    readFlops(device, base);
    readMemory(device, base);
    readFixedCosts(device, base);
    device.finish();
  }
  Level inside = base.levels[0];
  machine = std::move(base);
  machine.levels.clear();
  machine.name = object.text("name", "cluster");
  machine.validated = object.text("validated", "");

  std::vector<Hosts> hosts;
  const json &list = object.list("hosts");
  for (size_t i = 0; i < list.size(); ++i) {
    Object host(list[i], "hosts[" + std::to_string(i) + "]");
    Hosts group;
    (void)host.text("name", "");
    group.count = host.integer("count", 1, kMostRanks, 1);
    group.ranks = host.integer("ranks", 1, kMostRanks);
    group.cores = host.integer("cores", 1, kMostRanks, group.ranks);
    group.nics = host.integer("nics", 1, 1024, 1);
    host.finish();
    hosts.push_back(group);
  }
  int64_t totalRanks = 0, nics = INT64_MAX;
  machine.coresPerHost = INT64_MAX;
  std::vector<int64_t> hostStarts;
  for (const Hosts &group : hosts) {
    if (totalRanks + group.count * group.ranks > kMostRanks)
      throw std::runtime_error("hosts have more than " +
                               std::to_string(kMostRanks) + " ranks");
    for (int64_t i = 0; i < group.count; ++i, totalRanks += group.ranks)
      hostStarts.push_back(totalRanks);
    machine.ranksPerHost = std::max(machine.ranksPerHost, group.ranks);
    // What is unlike between hosts is taken from the weakest: all wait for it.
    machine.coresPerHost = std::min(machine.coresPerHost, group.cores);
    nics = std::min(nics, group.nics);
  }
  machine.ranks = totalRanks;

  if (object.has("inside")) {
    Object entry(object.get("inside"), "inside");
    inside.name = entry.text("name", inside.name);
    std::string kind = entry.text("kind", inside.memory ? "memory" : "link");
    if (kind != "memory" && kind != "link")
      throw std::runtime_error("inside.kind is \"" + kind +
                               "\"; it is \"memory\" or \"link\"");
    inside.memory = kind == "memory";
    inside.latency = entry.number("latency_us", 0, inside.latency * 1e6) / 1e6;
    if (!inside.memory)
      inside.bandwidth = entry.number("bytes_per_second", 1, inside.bandwidth);
    inside.coreShare = entry.number("core_share", 0, inside.memory ? 1.0 : 0.0);
    if (inside.coreShare > 1)
      throw std::runtime_error("inside.core_share is above 1");
    entry.finish();
  }
  auto setBlocks = [&](Level &level, std::vector<int64_t> starts) {
    bool uniform = true;
    int64_t span = starts.size() > 1 ? starts[1] : totalRanks;
    for (size_t i = 0; i < starts.size(); ++i)
      uniform &= starts[i] == static_cast<int64_t>(i) * span;
    uniform &= static_cast<int64_t>(starts.size()) * span >= totalRanks;
    if (starts.size() == 1)
      level.span = 0;
    else if (uniform)
      level.span = span;
    else
      level.starts = std::move(starts);
  };
  setBlocks(inside, hostStarts);
  machine.levels.push_back(inside);

  std::vector<int64_t> starts = hostStarts;
  if (object.has("network")) {
    const json &network = object.list("network");
    for (size_t i = 0; i < network.size(); ++i) {
      std::string where = "network[" + std::to_string(i) + "]";
      Object entry(network[i], where);
      Level level;
      level.name = entry.text("name", "network" + std::to_string(i));
      level.latency = entry.number("latency_us", 0) / 1e6;
      level.bandwidth = entry.number("bytes_per_second", 1);
      level.ports = entry.integer("ports", 1, 65536, i == 0 ? nics : 1);
      level.coreShare = entry.number("core_share", 0, 0);
      if (level.coreShare > 1)
        throw std::runtime_error(where + ".core_share is above 1");
      int64_t joins = entry.integer("joins", 2, kMostRanks,
                                    static_cast<int64_t>(starts.size()));
      entry.finish();
      std::vector<int64_t> next;
      for (size_t block = 0; block < starts.size(); ++block)
        if (block % static_cast<size_t>(joins) == 0)
          next.push_back(starts[block]);
      starts = next;
      setBlocks(level, starts);
      machine.levels.push_back(std::move(level));
    }
  }
  if (starts.size() > 1)
    throw std::runtime_error("nothing joins " + std::to_string(starts.size()) +
                             (machine.levels.size() > 1
                                  ? " blocks of " + machine.levels.back().name
                                  : std::string(" hosts")) +
                             "; add a level to \"network\" without \"joins\"");
  object.finish();
}

template <typename Parse>
bool parseText(std::string_view text, const std::string &path,
               const char *format, Machine &machine, std::string &error,
               Parse parse) {
  try {
    json root = json::parse(text);
    if (!root.is_object() || !root.contains(format)) {
      error = path + ": has no key \"" + format + "\"";
      return false;
    }
    Machine result = *builtinMachine("cpu");
    parse(root, result);
    result.source = path;
    machine = std::move(result);
    return true;
  } catch (const std::exception &failure) {
    // Without the library's name and number of the error.
    std::string_view words = failure.what();
    if (words.substr(0, 1) == "[")
      words.remove_prefix(std::min(words.size(), words.find("] ") + 2));
    error = path + ": " + std::string(words);
    return false;
  }
}

bool readText(const std::string &path, std::string &text, std::string &error) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream buffer;
  if (file)
    buffer << file.rdbuf();
  if (!file) {
    error = "cannot read '" + path + "': " + std::strerror(errno);
    return false;
  }
  text = buffer.str();
  return true;
}

} // namespace

bool parseCalibration(std::string_view text, const std::string &path,
                      Machine &machine, std::string &error) {
  return parseText(text, path, "concord_calibration", machine, error,
                   [](const json &root, Machine &result) {
                     parseCalibration(root, result);
                   });
}

bool readCalibration(const std::string &path, Machine &machine,
                     std::string &error) {
  std::string text;
  return readText(path, text, error) &&
         parseCalibration(text, path, machine, error);
}

bool parseTopology(std::string_view text, const std::string &path,
                   Machine &machine, std::string &error) {
  return parseText(text, path, "concord_topology", machine, error,
                   [&](const json &root, Machine &result) {
                     parseTopology(root, path, result);
                   });
}

bool readTopology(const std::string &path, Machine &machine,
                  std::string &error) {
  std::string text;
  return readText(path, text, error) &&
         parseTopology(text, path, machine, error);
}

std::string writeCalibration(const Machine &machine) {
  using Ordered = nlohmann::ordered_json;
  Ordered root;
  root["concord_calibration"] = 1;
  root["name"] = machine.name;
  if (!machine.validated.empty())
    root["validated"] = machine.validated;
  if (machine.coresPerHost)
    root["cores"] = machine.coresPerHost;
  Ordered flops;
  for (auto [type, value] : machine.flops)
    flops[lower(dtypeName(type))] = value;
  if (!flops.empty())
    root["flops_per_second"] = flops;
  root["memory"] = {{"cache_bytes", machine.cacheBytes},
                    {"cache_core_bytes_per_second", machine.cache.core},
                    {"cache_node_bytes_per_second", machine.cache.node},
                    {"dram_core_bytes_per_second", machine.dram.core},
                    {"dram_node_bytes_per_second", machine.dram.node},
                    {"contended_bytes_per_second", machine.contended}};
  root["op_us"] = machine.opSeconds * 1e6;
  root["issue_us"] = machine.issueSeconds * 1e6;
  root["message_us"] = machine.messageSeconds * 1e6;
  root["flag_round_us"] = machine.flagSeconds * 1e6;
  root["update_instruction_ns"] = machine.updateSeconds * 1e9;
  root["inline_bytes"] = machine.inlineBytes;
  auto write = [](const Curve &curve) {
    Ordered segments = Ordered::array();
    for (const Segment &segment : curve.segments) {
      Ordered part;
      if (segment.upTo != UINT64_MAX)
        part["up_to_bytes"] = segment.upTo;
      part["alpha_us"] = segment.alpha * 1e6;
      part["beta_ns_per_byte"] = segment.beta * 1e9;
      segments.push_back(part);
    }
    return Ordered{{"kind", kKinds[static_cast<size_t>(curve.kind)]},
                   {"ranks", curve.ranks},
                   {"level", curve.level},
                   {"segments", segments}};
  };
  Ordered curves = Ordered::array(), forms = Ordered::array();
  for (const Curve &curve : machine.curves)
    curves.push_back(write(curve));
  for (const FormCurve &form : machine.forms) {
    forms.push_back(write(form.curve));
    forms.back()["form"] = form.form;
    forms.back()["objective"] = form.objective;
  }
  if (!curves.empty())
    root["collectives"] = curves;
  if (!forms.empty())
    root["forms"] = forms;
  return root.dump(1) + "\n";
}

} // namespace concord::cost
