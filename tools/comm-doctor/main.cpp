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

#include "Elf.h"
#include "Live.h"
#include "Report.h"
#include "concord/order/Case.h"
#include "concord/order/Certificate.h"
#include "concord/order/Evidence.h"
#include "concord/plan.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

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
  bool moving = false;
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

bool readHead(const std::string &path, std::string &head, std::string &why) {
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) {
    why = "no such file";
    return false;
  }
  std::ifstream in(path, std::ios::binary);
  head.resize(65536);
  in.read(head.data(), std::streamsize(head.size()));
  head.resize(size_t(in.gcount()));
  if (!in.is_open()) {
    why = "cannot be opened";
    return false;
  }
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

/// A lowered program: its plan table is judged, its code is not looked at.
void doPlan(Session &session, const std::string &path,
            std::span<const std::byte> bytes) {
  plan::Plan plan;
  std::string error;
  if (!plan::parse(bytes, plan, error)) {
    session.unreadable(path, "plan table: " + error);
    return;
  }
  order::Certificate c = order::verifyPlan(plan);
  session.say(printable(path) + ": plan of " + std::to_string(plan.world) +
              " ranks, " + std::to_string(plan.programs.size()) +
              " program(s): " + printable(c.str()) + "\n");
  json findings = json::array(), warnings = json::array();
  for (const order::Finding &f : c.faults) {
    session.say(findingText(f, "  "));
    session.forDot.push_back(f);
    findings.push_back(toJson(f));
  }
  for (const order::Finding &f : c.warnings) {
    session.say("  warning: " + printable(f.title) + "\n");
    warnings.push_back(toJson(f));
  }
  if (!c.valid)
    session.raise(1);
  session.files.push_back({{"path", printable(path)},
                           {"kind", "plan"},
                           {"certified", c.valid},
                           {"certificate", printable(c.str())},
                           {"digest", c.digest},
                           {"assumes", c.assumes},
                           {"findings", findings},
                           {"warnings", warnings}});
}

/// MLIR is comm-opt's business: run the one beside this tool and hand on what
/// it says. No shell is involved.
void doMlir(Session &session, const std::string &path) {
  std::error_code ec;
  std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", ec);
  std::string tool = (self.parent_path() / "comm-opt").string();
  if (ec || access(tool.c_str(), X_OK) != 0) {
    session.unreadable(
        path, "MLIR needs comm-opt beside comm-doctor, and there is none");
    return;
  }
  int ends[2];
  if (pipe(ends) != 0) {
    session.unreadable(path, "no pipe");
    return;
  }
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    const char *arguments[] = {tool.c_str(),          path.c_str(),
                               "--comm-verify-order", "-o",
                               "/dev/null",           nullptr};
    execv(tool.c_str(), const_cast<char *const *>(arguments));
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; child > 0 && (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    if (text.size() < (1u << 20))
      text.append(buffer, size_t(n));
  close(ends[0]);
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
      WEXITSTATUS(status) == 127) {
    session.unreadable(path, "comm-opt did not run to its end");
    return;
  }
  bool ok = WEXITSTATUS(status) == 0;
  if (!ok)
    session.raise(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    session.say("  " + printable(line) + "\n");
  session.say(printable(path) +
              (ok ? ": certified by comm-opt --comm-verify-order\n"
                  : ": refused by comm-opt --comm-verify-order\n"));
  session.files.push_back({{"path", printable(path)},
                           {"kind", "mlir"},
                           {"certified", ok},
                           {"output", printable(text)}});
}

void doEvidence(Session &session, const std::vector<std::string> &paths) {
  using namespace order::evidence;
  std::vector<ReadError> errors;
  Job job = readEvidence(paths, {}, errors);
  for (const ReadError &e : errors)
    session.unreadable(e.path, e.message);
  size_t present = 0, issues = 0;
  for (const auto &[_, r] : job.ranks) {
    present += r.present;
    issues += r.issues.size();
  }
  if (job.ranks.empty() && !job.haveRankTable) {
    if (errors.empty())
      session.unreadable(paths.front(), "no evidence found here");
    return;
  }
  Diagnosis d = diagnose(job, session.moving);
  std::ostringstream head;
  head << "evidence: " << job.filesRead << " files, " << (job.bytesRead >> 10)
       << " KiB; " << present << " ranks with issue records, " << issues
       << " issues in " << job.domains.size()
       << " domains, merged per rank over all domains\n";
  if (job.linesNotUnderstood) {
    head << "  " << job.linesNotUnderstood
         << " lines or entries were not understood, for example:\n";
    for (const std::string &e : job.examplesNotUnderstood)
      head << "    " << printable(e) << "\n";
  }
  session.say(head.str());
  json findings = json::array();
  for (const order::Finding &f : d.findings) {
    session.say(findingText(f, "  "));
    if (!f.culprits.empty()) {
      std::string list;
      for (size_t i = 0; i < f.culprits.size() && i < 8; ++i)
        list += (i ? ", " : "") + ("r" + std::to_string(f.culprits[i]));
      session.say("    look first at: " + list + "\n");
    }
    session.forDot.push_back(f);
    findings.push_back(toJson(f));
  }
  if (d.findings.empty())
    session.say("  no fault found in this evidence\n");
  for (const std::string &w : d.warnings)
    session.say("  note: " + printable(w) + "\n");
  for (const std::string &n : job.notes)
    session.say("  note: " + printable(n) + "\n");
  for (const std::string &m : d.missing)
    session.say("  missing evidence: " + printable(m) + "\n");
  if (d.fault())
    session.raise(1);
  json missing = json::array(), notes = json::array();
  for (const std::string &m : d.missing)
    missing.push_back(printable(m));
  for (const std::string &n : d.warnings)
    notes.push_back(printable(n));
  for (const std::string &n : job.notes)
    notes.push_back(printable(n));
  session.files.push_back({{"kind", "evidence"},
                           {"files", job.filesRead},
                           {"bytes", job.bytesRead},
                           {"ranks", present},
                           {"issues", issues},
                           {"domains", job.domains.size()},
                           {"lines",
                            {{"understood", job.linesUnderstood},
                             {"not_understood", job.linesNotUnderstood},
                             {"other", job.linesOther}}},
                           {"fault", d.fault()},
                           {"findings", findings},
                           {"missing", missing},
                           {"notes", notes}});
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
  bool version = false, script = false;
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
  app.add_flag("--moving", session.moving,
               "the job still ran when the evidence was recorded: a rank that "
               "is only behind is a straggler, not a fault");
  app.add_flag(
      "--collect-script", script,
      "print a shell script that gathers the evidence from hosts over ssh");
  std::string liveJob;
  app.add_option("--live", liveJob,
                 "look at a running job: per communicator and rank, sequence, "
                 "operation, state")
      ->type_name("PID");
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
  if (script) {
    std::cout << order::evidence::collectScript();
    return 0;
  }
  if (!liveJob.empty())
    return live(liveJob, session.wantJson);
  if (paths.empty()) {
    std::cerr << "comm-doctor: no input; see --help\n";
    return 2;
  }
  // Programs are judged one by one; everything else is evidence of one job.
  std::vector<std::string> evidence;
  for (const std::string &path : paths) {
    std::error_code ec;
    if (std::filesystem::is_directory(path, ec)) {
      evidence.push_back(path);
      continue;
    }
    std::string head, why;
    if (path.size() > 5 && path.substr(path.size() - 5) == ".mlir" &&
        std::filesystem::exists(path, ec)) {
      doMlir(session, path);
      continue;
    }
    if (!readHead(path, head, why)) {
      session.unreadable(path, why);
      continue;
    }
    switch (order::evidence::detect(head, path)) {
    case order::evidence::Format::Case: {
      std::string text;
      if (readFile(path, text, why))
        doCase(session, path, text);
      else
        session.unreadable(path, why);
      break;
    }
    case order::evidence::Format::Elf:
    case order::evidence::Format::Plan: {
      std::string text;
      std::span<const std::byte> section;
      if (!readFile(path, text, why)) {
        session.unreadable(path, why);
        break;
      }
      std::span<const std::byte> all(
          reinterpret_cast<const std::byte *>(text.data()), text.size());
      if (findSection(all, ".concord.plan", section, why))
        doPlan(session, path, section);
      else
        session.unreadable(path, why);
      break;
    }
    default:
      evidence.push_back(path);
    }
  }
  if (!evidence.empty())
    doEvidence(session, evidence);
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
