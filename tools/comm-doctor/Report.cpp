//===- Report.cpp - Findings for people, programs, and Graphviz -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Formatting only; nothing here decides anything.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include <map>

namespace concord::doctor {

using nlohmann::json;
using order::ChainEdge;
using order::Finding;

static json endJson(const ChainEdge::End &e) {
  json j = {{"text", printable(e.text)}};
  if (e.rank >= 0)
    j["rank"] = e.rank;
  if (!e.stream.empty())
    j["stream"] = printable(e.stream);
  if (!e.domain.empty())
    j["domain"] = printable(e.domain);
  if (e.instance >= 0)
    j["instance"] = e.instance;
  if (e.loc.line || !e.loc.file.empty())
    j["location"] = {{"file", printable(e.loc.file)},
                     {"line", e.loc.line},
                     {"column", e.loc.column}};
  return j;
}

json toJson(const Finding &f) {
  json chain = json::array();
  for (const ChainEdge &e : f.chain)
    chain.push_back({{"from", endJson(e.from)},
                     {"to", endJson(e.to)},
                     {"reason", order::toString(e.reason)},
                     {"why", printable(e.why)}});
  json details = json::array();
  for (const std::string &d : f.details)
    details.push_back(printable(d));
  return {{"kind", kindName(f.kind)},    {"id", f.id},
          {"title", printable(f.title)}, {"chain", chain},
          {"details", details},          {"culprits", f.culprits},
          {"cause", printable(f.cause)}, {"cure", printable(f.cure)}};
}

json toJson(const order::Judgement &j) {
  json findings = json::array(), warnings = json::array();
  for (const Finding &f : j.findings)
    findings.push_back(toJson(f));
  for (const std::string &w : j.warnings)
    warnings.push_back(printable(w));
  return {{"verdict", order::toString(j.verdict)},
          {"assumed", j.assumed.str()},
          {"states", j.stats.states},
          {"transitions", j.stats.transitions},
          {"complete", j.stats.complete},
          {"bound", j.stats.bound},
          {"findings", findings},
          {"warnings", warnings}};
}

static std::string dotText(std::string_view text) {
  std::string out = "\"";
  for (char c : printable(text)) {
    if (c == '"' || c == '\\')
      out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string toDot(const std::vector<Finding> &findings) {
  std::string out = "digraph waits {\n  rankdir=LR;\n  node [shape=box, "
                    "fontname=\"sans\"];\n";
  for (size_t f = 0; f < findings.size(); ++f) {
    if (findings[f].chain.empty())
      continue;
    out += "  subgraph cluster_" + std::to_string(f) +
           " {\n    label=" + dotText(findings[f].title) + ";\n";
    std::map<std::string, size_t> ids;
    auto node = [&](const ChainEdge::End &e) {
      auto [it, fresh] = ids.try_emplace(e.text, ids.size());
      std::string id =
          "n" + std::to_string(f) + "_" + std::to_string(it->second);
      if (fresh)
        out += "    " + id + " [label=" + dotText(e.text) + "];\n";
      return id;
    };
    for (const ChainEdge &e : findings[f].chain) {
      std::string a = node(e.from), b = node(e.to);
      out += "    " + a + " -> " + b +
             " [label=" + dotText(order::toString(e.reason)) + "];\n";
    }
    out += "  }\n";
  }
  return out + "}\n";
}

} // namespace concord::doctor
