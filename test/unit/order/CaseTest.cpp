//===- CaseTest.cpp - The case notation, verdicts, and explanations -------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs every file of test/cases: each `expect` must hold, and where the file
// has a `# chain: a | b | c` line, the explanation of its first fault must name
// those things in that order. Then the reader's errors, and hostile input.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Case.h"
#include "concord/order/Judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace concord::order;

namespace {

std::string slurp(const std::filesystem::path &path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string explanation(const Judgement &j) {
  std::string out;
  for (const Finding &f : j.findings) {
    if (!f.chain.empty())
      for (const ChainEdge &e : f.chain)
        out += e.why + "\n";
    else
      out += f.title + "\n";
    for (const std::string &d : f.details)
      out += d + "\n";
  }
  return out;
}

TEST(Cases, EveryExpectationHoldsAndIsExplained) {
  size_t files = 0, judged = 0, chains = 0;
  std::vector<std::filesystem::path> paths;
  for (const auto &entry : std::filesystem::directory_iterator("test/cases"))
    if (entry.path().extension() == ".case")
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const auto &path : paths) {
    std::string text = slurp(path);
    CaseFile file;
    CaseError error;
    ASSERT_TRUE(parseCase(text, path.filename().string(), file, error))
        << path << ":" << error.line << ": " << error.message;
    ++files;
    std::string explained;
    for (const Variant &v : file.variants) {
      Judgement j = judgeWithWarnings(v.program);
      if (explained.empty())
        explained = explanation(j);
      bool fault = j.verdict != Verdict::Clean;
      EXPECT_EQ(fault, !j.findings.empty() &&
                           j.findings[0].kind != Finding::Kind::Divergence)
          << path << " " << v.label
          << ": a fault comes with a finding, a clean program without";
      for (const Finding &f : j.findings) {
        EXPECT_FALSE(f.cause.empty()) << path << " " << f.id;
        EXPECT_FALSE(f.cure.empty()) << path << " " << f.id;
        EXPECT_FALSE(f.culprits.empty()) << path << " " << f.id;
        for (const ChainEdge &e : f.chain)
          EXPECT_TRUE(e.from.loc.line > 0)
              << path << ": an edge without a place: " << e.why;
      }
      if (!v.expect)
        continue;
      ++judged;
      EXPECT_EQ(toString(*v.expect), toString(j.verdict))
          << path << " variant " << v.label;
      EXPECT_TRUE(j.stats.complete);
    }
    size_t at = text.find("# chain: ");
    if (at == std::string::npos)
      continue;
    ++chains;
    std::string line = text.substr(at + 9, text.find('\n', at) - at - 9);
    size_t from = 0;
    for (size_t begin = 0; begin <= line.size();) {
      size_t end = std::min(line.find(" | ", begin), line.size());
      std::string want = line.substr(begin, end - begin);
      size_t found = explained.find(want, from);
      EXPECT_NE(found, std::string::npos)
          << path << ": '" << want << "' is not named (in order) in\n"
          << explained;
      if (found != std::string::npos)
        from = found;
      begin = end + 3;
    }
  }
  EXPECT_GE(files, 51u);
  EXPECT_GE(judged, 120u);
  EXPECT_GE(chains, 40u);
}

Judgement judgeText(const std::string &text) {
  CaseFile file;
  CaseError error;
  EXPECT_TRUE(parseCase(text, "t.case", file, error))
      << error.line << ": " << error.message;
  return judgeWithWarnings(file.variants.at(0).program);
}

TEST(Judge, NamesTheAssumptionThatHidesAFault) {
  Judgement j = judgeText(
      "comm A = 0 1\ncomm B = 0 1\ncfg K=2\n"
      "rank 0: [a] AR(A) ; [b] AR(B)\nrank 1: [b] AR(B) ; [a] AR(A)\n");
  EXPECT_EQ(j.verdict, Verdict::Clean);
  ASSERT_EQ(j.warnings.size(), 1u);
  EXPECT_NE(j.warnings[0].find("hidden by K=2"), std::string::npos);
  EXPECT_NE(j.warnings[0].find("order-divergent"), std::string::npos);
  ASSERT_EQ(j.findings.size(), 1u);
  EXPECT_EQ(j.findings[0].kind, Finding::Kind::Divergence);
}

TEST(Judge, SaysNotProvenBeyondTheBound) {
  std::string text = "comm A = 0 1\ncomm B = 0 1\ncomm C = 0 1\n";
  for (int r = 0; r < 2; ++r) {
    text += "rank " + std::to_string(r) + ":";
    for (int i = 0; i < 6; ++i)
      text += " [a] AR(A) ; [b] AR(B) ; [c] AR(C) ; sync ;";
    text += "\n";
  }
  CaseFile file;
  CaseError error;
  ASSERT_TRUE(parseCase(text, "t.case", file, error));
  file.variants[0].program.config.slots = 2;
  ExploreOptions options;
  options.bounds.states = 3;
  Judgement j = judge(file.variants[0].program, options);
  EXPECT_FALSE(j.stats.complete);
  EXPECT_EQ(j.stats.bound, "states");
  EXPECT_TRUE(j.verdict == Verdict::NotProven ||
              j.verdict == Verdict::DeadlockUnknown);
}

TEST(Judge, MajorityNamesTheOddRank) {
  Judgement j = judgeText(
      "comm W = 0 1 2 3\nrank 0: [s] AR(W,n=4)\nrank 1: [s] AR(W,n=4)\n"
      "rank 2: [s] AR(W,n=5)\nrank 3: [s] AR(W,n=4)\n");
  ASSERT_EQ(j.verdict, Verdict::Mismatch);
  ASSERT_FALSE(j.findings[0].culprits.empty());
  EXPECT_EQ(j.findings[0].culprits[0], 2);
}

TEST(Judge, RaceNeedsAnUnorderedPair) {
  EXPECT_EQ(
      judgeText("rank 0: [m] K(a,w=x) ; sync[m] ; [c] K(b,r=x)\n").verdict,
      Verdict::Clean);
  EXPECT_EQ(
      judgeText("rank 0: [m] K(a,w=x) ; sync[c] ; [c] K(b,r=x)\n").verdict,
      Verdict::Race);
  EXPECT_EQ(judgeText("rank 0: [m] K(a,r=x) ; [c] K(b,r=x)\n").verdict,
            Verdict::Clean);
  EXPECT_EQ(
      judgeText("rank 0: [m] K(a,r=x) ; [m] K(a2,free=x) ; [c] K(b,w=x)\n")
          .verdict,
      Verdict::Race);
}

struct Bad {
  const char *text;
  uint32_t line;
  const char *message;
};

TEST(Parser, ErrorsNameTheLine) {
  const Bad bad[] = {
      {"", 1, "no program"},
      {"comm A 0 1\n", 1, "'='"},
      {"comm A = 0 0\n", 1, "twice"},
      {"comm A =\nrank 0: nop\n", 1, "no members"},
      {"comm A = 0 99999999999\n", 1, "number"},
      {"cfg K=0\nrank 0: nop\n", 1, "K is at least 1"},
      {"cfg colour=blue\n", 1, "unknown setting"},
      {"\n\nrank 0: [s] AR(B)\n", 3, "unknown domain 'B'"},
      {"comm A = 0\nrank 0: [s] XX(A)\n", 2, "unknown operation"},
      {"comm A = 0\nrank 0: AR(A)\n", 2, "unknown host statement"},
      {"comm A = 0\nrank 0: [s] AR(A) [s] AR(A)\n", 2, "';'"},
      {"comm A = 0\nrank 0: [s] AR(A\n", 3, "','"},
      {"comm A = 0\nrank 0: [s] AR(A,n=x)\n", 2, "number"},
      {"comm A = 0\nrank 0: [s] AR(A,need=0)\n", 2, "need is at least 1"},
      {"comm A = 0\nrank 0: [s] AR(A,t=1,t=2)\n", 2, "given twice"},
      {"comm A = 0\nrank 0: [s] GRP{AR(A)}\n", 2, "transfers"},
      {"comm A = 0\nrank 0: [s] GRP{}\n", 2, "empty group"},
      {"comm A = 0\nrank 0: [s] GRP{SND(A,1)\n", 3, "';' or '}'"},
      {"rank 0: nop\nrank 0: nop\n", 2, "already given in line 1"},
      {"rank 0: @1 nop\n", 1, "cannot drive device"},
      {"proc A: @0 nop ; @1 nop ; mm!\n", 1, "which device"},
      {"proc A: @0 nop\nproc B: @0 nop\n", 2, "two processes"},
      {"rank 0: nop\nexpect maybe\n", 2, "expected clean"},
      {"expect clean\n", 1, "without a program"},
      {"hello\n", 1, "expected comm"},
  };
  for (const Bad &b : bad) {
    CaseFile file;
    CaseError error;
    EXPECT_FALSE(parseCase(b.text, "b.case", file, error)) << b.text;
    EXPECT_NE(error.message.find(b.message), std::string::npos)
        << b.text << " -> " << error.message;
    EXPECT_EQ(error.line, b.line) << b.text;
  }
  CaseFile file;
  CaseError error;
  EXPECT_FALSE(
      parseCase(std::string_view("rank 0: nop\0", 12), "b.case", file, error));
}

} // namespace
