//===- DoctorTest.cpp - comm-doctor from the command line -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the tool on the fixtures beside this file and checks exit status and
// text. The fixtures are made from the formats' documentation, not recorded.
//
//===----------------------------------------------------------------------===//

#include "concord/plan.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Output {
  int status = -1;
  std::string text;
};

Output doctor(const std::string &arguments) {
  Output out;
  std::string command = std::string(COMM_DOCTOR) + " " + arguments + " 2>&1";
  FILE *pipe = popen(command.c_str(), "r");
  if (!pipe)
    return out;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    out.text.append(buffer, n);
  int status = pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

const std::string kHere = "test/system/doctor/";

struct TempDir {
  std::filesystem::path path;
  TempDir() {
    char name[] = "/tmp/concord-doctor-XXXXXX";
    path = mkdtemp(name);
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string write(const std::string &name, std::string_view bytes) {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return (path / name).string();
  }
};

void expectInOrder(const std::string &text,
                   const std::vector<std::string> &parts) {
  size_t at = 0;
  for (const std::string &p : parts) {
    size_t found = text.find(p, at);
    EXPECT_NE(found, std::string::npos)
        << "'" << p << "' is not there (in order):\n"
        << text;
    if (found != std::string::npos)
      at = found;
  }
}

TEST(Doctor, ExitStatusOfCases) {
  EXPECT_EQ(doctor("test/cases/both-send-first.case").status, 0);
  EXPECT_EQ(doctor("test/cases/*.case").status, 0);
  TempDir dir;
  std::string wrong = dir.write(
      "w.case", "comm A = 0 1\nrank 0: [s] AR(A)\nrank 1: nop\nexpect clean\n");
  Output o = doctor(wrong);
  EXPECT_EQ(o.status, 1);
  EXPECT_NE(o.text.find("but the file expects clean"), std::string::npos);
  std::string plain =
      dir.write("p.case", "comm A = 0 1\nrank 0: [s] AR(A)\nrank 1: nop\n");
  EXPECT_EQ(doctor(plain).status, 1);
  std::string fine = dir.write(
      "f.case", "comm A = 0 1\nrank 0: [s] AR(A)\nrank 1: [s] AR(A)\n");
  EXPECT_EQ(doctor(fine).status, 0);
  o = doctor(dir.write("b.case", "rank 0: [s] AR(A)\n"));
  EXPECT_EQ(o.status, 2);
  EXPECT_NE(o.text.find("line 1"), std::string::npos);
  EXPECT_EQ(doctor("/nowhere/x.case").status, 2);
  EXPECT_EQ(doctor("").status, 2);
  EXPECT_EQ(doctor("--no-such-option").status, 2);
}

TEST(Doctor, FlightRecorderCycleInJsonAndPickle) {
  for (const char *folder : {"flight_recorder", "flight_recorder_pickle"}) {
    Output o = doctor(kHere + folder);
    EXPECT_EQ(o.status, 1) << o.text;
    expectInOrder(o.text, {"cross-domain-cycle", "all_to_all 3(ep)#3@r3",
                           "all_reduce 2(tp)#3@r3", "all_reduce 2(tp)#3@r2",
                           "all_to_all 3(ep)#3@r2", "look first at: r2"});
  }
}

TEST(Doctor, FieldReportOneFromLogsAndAStack) {
  Output o = doctor(kHere + "hccl_log");
  EXPECT_EQ(o.status, 1) << o.text;
  // The four edges of the report: 14 has not issued domain 1's reduce-scatter,
  // it waits for domain 2's transfer, whose partner on 11 is behind domain 1's
  // reduce-scatter, which needs 14.
  expectInOrder(o.text,
                {"group_name_3#5@r14 is not issued", "device synchronisation",
                 "workspaceAllocate", "send 192.168.0.17", "@r14 needs recv",
                 "@r11", "was issued after reduce_scatter group_name_3#5@r11",
                 "reduce_scatter group_name_3#5@r11 needs group_name_3#5@r14",
                 "look first at: r14"});
  EXPECT_NE(o.text.find("EI0002"), std::string::npos);
  EXPECT_NE(o.text.find("remote rank unknown"), std::string::npos);
  EXPECT_NE(o.text.find("E39999"), std::string::npos);
}

TEST(Doctor, RankTables) {
  for (const char *name : {"v1_0", "v1_2", "v2_0"})
    EXPECT_EQ(doctor(kHere + "tables/" + name + ".json").status, 0) << name;
  Output o = doctor(kHere + "tables/bad.json");
  EXPECT_EQ(o.status, 1);
  for (const char *id :
       {"count-mismatch", "table-not-complete", "address-invalid",
        "device-twice", "rank-id-twice", "rank-ids-not-dense"})
    EXPECT_NE(o.text.find(id), std::string::npos) << id;
}

TEST(Doctor, JsonAndDot) {
  TempDir dir;
  std::string dot = (dir.path / "w.dot").string();
  Output o = doctor("--json --dot " + dot + " test/cases/both-send-first.case");
  EXPECT_EQ(o.status, 0);
  auto j = nlohmann::json::parse(o.text);
  EXPECT_EQ(j["version"], 1);
  EXPECT_EQ(j["files"][0]["variants"][0]["verdict"], "deadlock(always)");
  auto chain = j["files"][0]["variants"][0]["findings"][0]["chain"];
  ASSERT_EQ(chain.size(), 4u);
  for (const auto &e : chain)
    for (const char *key : {"rank", "stream", "domain", "instance", "location"})
      EXPECT_TRUE(e["from"].contains(key)) << key;
  std::ifstream in(dot);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(text.rfind("digraph", 0), 0u);
  EXPECT_EQ(
      doctor("--dot /nowhere/x.dot test/cases/both-send-first.case").status, 2);
  j = nlohmann::json::parse(doctor("--json " + kHere + "hccl_log").text);
  EXPECT_TRUE(j["files"][0]["fault"]);
}

TEST(Doctor, HelpVersionScript) {
  EXPECT_EQ(doctor("--help").status, 0);
  EXPECT_NE(doctor("--version").text.find("comm-doctor"), std::string::npos);
  Output o = doctor("--collect-script");
  EXPECT_EQ(o.status, 0);
  TempDir dir;
  std::string script = dir.write("collect.sh", o.text);
  EXPECT_EQ(system(("sh -n " + script).c_str()), 0);
}

TEST(Doctor, ALoweredProgramByItsPlan) {
  using namespace concord;
  plan::Plan p;
  p.world = 2;
  p.domains = {{"a", 0, {{0, 1}}}, {"b", 0, {{0, 1}}}};
  plan::Issue i{};
  i.kind = plan::Kind::AllReduce;
  i.dtype = DType::F32;
  i.synchronous = false;
  plan::Issue k = i;
  k.domain = 1;
  k.lane = 1;
  plan::Program program{"main", "", {0, 1}, {i, k}, {plan::Node::Type::Seq}};
  for (uint32_t site : {0u, 1u}) {
    plan::Node n{plan::Node::Type::Issue};
    n.site = site;
    program.body.children.push_back(n);
  }
  p.programs = {program};
  auto shared = [](const plan::Plan &q) {
    std::vector<std::byte> table = plan::serialize(q);
    std::string names("\0.concord.plan\0", 15);
    Elf64_Ehdr h{};
    std::memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_shentsize = sizeof(Elf64_Shdr);
    h.e_shnum = 3;
    h.e_shstrndx = 1;
    h.e_shoff = sizeof h;
    Elf64_Shdr s[3]{};
    s[1].sh_offset = sizeof h + sizeof s;
    s[1].sh_size = names.size();
    s[2].sh_name = 1;
    s[2].sh_type = SHT_PROGBITS;
    s[2].sh_offset = s[1].sh_offset + names.size();
    s[2].sh_size = table.size();
    std::string out(reinterpret_cast<char *>(&h), sizeof h);
    out.append(reinterpret_cast<char *>(s), sizeof s);
    out += names;
    out.append(reinterpret_cast<char *>(table.data()), table.size());
    return out;
  };
  TempDir dir;
  Output o = doctor(dir.write("bad.so", shared(p)));
  EXPECT_EQ(o.status, 1) << o.text;
  EXPECT_NE(o.text.find("closed-walk"), std::string::npos) << o.text;
  p.programs[0].issues[1].lane = 0;
  std::string good = shared(p);
  o = doctor(dir.write("good.so", good));
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_NE(o.text.find("by=order"), std::string::npos) << o.text;
  for (size_t cut : {size_t(10), size_t(70), size_t(200), good.size() - 3})
    EXPECT_EQ(doctor(dir.write("cut.so", good.substr(0, cut))).status, 2);
}

// A job's whole output in one file: colours, the watchdog's lines and a
// traceback of several ranks, mixed.
TEST(Doctor, TheOutputOfAJob) {
  TempDir dir;
  std::string text;
  for (int r : {0, 1, 3})
    text += "\x1b[31m[rank" + std::to_string(r) +
            "]:[E1130 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID "
            "0(default_pg) Rank " +
            std::to_string(r) +
            "] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
            "Timeout(ms)=1000) ran for 1001 milliseconds before timing "
            "out.\x1b[0m\n" +
            (r == 0   ? "[rank2]: Traceback (most recent call last):\n"
             : r == 1 ? "[rank2]:   File \"/app/train.py\", line 9, in step\n"
                      : "[rank2]: ValueError: bad batch\n");
  Output o = doctor(dir.write("job.log", text));
  EXPECT_EQ(o.status, 1) << o.text;
  expectInOrder(o.text,
                {"3 ranks with issue records", "0(default_pg)#7 waits for r2",
                 "ValueError: bad batch", "look first at: r2"});
  // The same from a tool that writes UTF-16.
  std::string wide = "\xff\xfe";
  for (char c : text)
    wide += {c, '\0'};
  EXPECT_EQ(doctor(dir.write("wide.log", wide)).status, 1);
}

TEST(Doctor, ForeignAndHostileFiles) {
  TempDir dir;
  EXPECT_EQ(doctor(dir.write("empty.json", "")).status, 2);
  EXPECT_EQ(doctor(dir.write("x.txt", "hello\n")).status, 2);
  EXPECT_EQ(doctor(dir.write("t.json", "{\"entries\": [")).status, 2);
  // A pickle that wants to run something is refused and runs nothing.
  std::string marker = (dir.path / "ran").string();
  Output o = doctor(dir.write(
      "trace_0", "\x80\x02"
                 "cposix\nsystem\nX" +
                     std::string("\x20\x00\x00\x00", 4) +
                     ("touch " + marker + std::string(32, ' ')).substr(0, 32) +
                     "\x85R."));
  EXPECT_EQ(o.status, 2);
  EXPECT_NE(o.text.find("refused"), std::string::npos) << o.text;
  EXPECT_FALSE(std::filesystem::exists(marker));
  // Control characters of a log do not reach the terminal.
  o = doctor(dir.write("e.case", "comm A = 0\nrank 0: [s] AR(\x1b[2J)\n"));
  EXPECT_EQ(o.text.find('\x1b'), std::string::npos);
}

} // namespace
