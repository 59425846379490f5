//===- main.cpp - comm-doctor ---------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Command line: comm-doctor PATH... [--json] [--dot FILE]. Exit status: 0
// nothing wrong (of `.case` files: every `expect` holds), 1 a fault found and
// explained (an `expect` does not hold), 2 something could not be read.
//
//===----------------------------------------------------------------------===//

#include "Report.h"
#include "concord/order/Case.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace concord;
using namespace concord::doctor;
using nlohmann::json;

namespace {

constexpr const char *kVersion =
    "comm-doctor 0.1.0 (Concord; JSON output version 1)";

struct Session {
  bool wantJson = false;
  std::string dotPath;
  order::ExploreOptions options;
  int exitCode = 0;
  json files = json::array();
  std::vector<order::Finding> forDot;

  void raise(int code) { exitCode = std::max(exitCode, code); }
  void say(const std::string &text) {
    if (!wantJson)
      std::cout << text;
  }
  void unreadable(const std::string &path, const std::string &why) {
    raise(2);
    std::cerr << "comm-doctor: " << printable(path) << ": " << printable(why)
              << "\n";
    files.push_back({{"path", printable(path)}, {"error", printable(why)}});
  }
};

bool readFile(const std::string &path, std::string &text, std::string &why) {
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) {
    why = "no such file";
    return false;
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    why = "cannot be opened";
    return false;
  }
  std::ostringstream all;
  all << in.rdbuf();
  if (in.bad()) {
    why = "reading failed";
    return false;
  }
  text = std::move(all).str();
  return true;
}

void doCase(Session &session, const std::string &path,
            const std::string &text) {
  order::CaseFile file;
  order::CaseError error;
  if (!order::parseCase(text, path, file, error)) {
    session.unreadable(path, "line " + std::to_string(error.line) +
                                 ", column " + std::to_string(error.column) +
                                 ": " + error.message);
    return;
  }
  json variants = json::array();
  size_t held = 0, judged = 0, unchecked = 0;
  for (size_t i = 0; i < file.variants.size(); ++i) {
    const order::Variant &v = file.variants[i];
    order::Judgement j = order::judgeWithWarnings(v.program, session.options);
    std::string name = path + ":" + std::to_string(v.line) + ": variant " +
                       std::to_string(i + 1) +
                       (v.label.empty() ? "" : " (" + v.label + ")");
    std::string outcome;
    bool ok = true;
    if (v.noCheck) {
      ++unchecked;
      outcome = "not judged (nocheck); the issue order alone is " +
                std::string(order::toString(j.verdict));
    } else if (v.expect) {
      ++judged;
      ok = *v.expect == j.verdict;
      held += ok;
      outcome = std::string(order::toString(j.verdict)) +
                (ok ? ", as expected"
                    : ", but the file expects " +
                          std::string(order::toString(*v.expect)));
      if (!ok)
        session.raise(1);
    } else {
      outcome = std::string(order::toString(j.verdict));
      if (j.verdict != order::Verdict::Clean)
        session.raise(1);
    }
    std::ostringstream line;
    line << printable(name) << ": " << outcome << "  [" << j.stats.states
         << " states, "
         << (j.stats.complete ? "complete" : "bound reached: " + j.stats.bound)
         << "; assumes " << j.assumed.str() << "]\n";
    session.say(line.str());
    if (j.verdict == order::Verdict::NotProven) {
      std::ostringstream bound;
      bound << "  not proven: " << session.options.bounds.states
            << " states or " << session.options.bounds.seconds
            << " s were not enough; no fault was met before\n";
      session.say(bound.str());
    }
    if (j.verdict == order::Verdict::Clean && !v.noCheck && j.findings.empty())
      session.say("  no ordering fault found in the program\n");
    if (v.noCheck)
      session.say("  nocheck: " + printable(v.noCheckText) + "\n");
    for (const order::Finding &f : j.findings) {
      session.say(findingText(f, "  "));
      session.forDot.push_back(f);
    }
    for (const std::string &w : j.warnings)
      session.say("  warning: " + printable(w) + "\n");
    json entry = toJson(j);
    entry["label"] = printable(v.label);
    entry["line"] = v.line;
    entry["ok"] = ok;
    entry["expect"] = v.noCheck  ? json("nocheck")
                      : v.expect ? json(order::toString(*v.expect))
                                 : json(nullptr);
    variants.push_back(std::move(entry));
  }
  if (judged + unchecked > 0)
    session.say(
        printable(path) + ": " + std::to_string(held) + " of " +
        std::to_string(judged) + " expectations hold" +
        (unchecked ? ", " + std::to_string(unchecked) + " not judged (nocheck)"
                   : "") +
        "\n");
  session.files.push_back({{"path", printable(path)},
                           {"kind", "case"},
                           {"title", printable(file.title)},
                           {"variants", std::move(variants)}});
}

} // namespace

int main(int argc, char **argv) try {
  CLI::App app{"comm-doctor: judge multi-rank programs and explain hung jobs.\n"
               "Exit status: 0 nothing wrong (.case: every expect holds), 1 a "
               "fault found and\n"
               "explained (.case: an expect does not hold), 2 something could "
               "not be read."};
  Session session;
  std::vector<std::string> paths;
  bool version = false;
  app.add_option(
      "PATH", paths,
      "programs (.case), or the evidence of a hung job: files or a directory");
  app.add_flag("--json", session.wantJson,
               "print one JSON document instead of text");
  app.add_option("--dot", session.dotPath,
                 "write the wait chains as a Graphviz digraph")
      ->type_name("FILE");
  app.add_option(
         "--max-states", session.options.bounds.states,
         "bound of the exploration; beyond it the answer is 'not proven'")
      ->capture_default_str();
  app.add_option("--max-seconds", session.options.bounds.seconds,
                 "the same, in seconds")
      ->capture_default_str();
  app.add_flag("--version", version, "print the version");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    int code = app.exit(e);
    return code == 0 ? 0 : 2;
  }
  if (version) {
    std::cout << kVersion << "\n";
    return 0;
  }
  if (paths.empty()) {
    std::cerr << "comm-doctor: no input; see --help\n";
    return 2;
  }
  for (const std::string &path : paths) {
    std::string text, why;
    if (!readFile(path, text, why)) {
      session.unreadable(path, why);
      continue;
    }
    doCase(session, path, text);
  }
  if (session.wantJson)
    std::cout << json{{"version", 1},
                      {"tool", kVersion},
                      {"exit", session.exitCode},
                      {"files", session.files}}
                     .dump(2)
              << "\n";
  if (!session.dotPath.empty()) {
    std::ofstream out(session.dotPath, std::ios::binary);
    out << toDot(session.forDot);
    out.close();
    if (!out) {
      std::cerr << "comm-doctor: cannot write " << session.dotPath << "\n";
      return 2;
    }
  }
  return session.exitCode;
} catch (const std::exception &e) {
  std::cerr << "comm-doctor: " << e.what() << "\n";
  return 2;
}
