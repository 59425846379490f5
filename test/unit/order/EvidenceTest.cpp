//===- EvidenceTest.cpp - Readers of evidence, and planted faults ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Hand-made files per format (made from the formats' documentation, not real
// dumps), hostile ones, and a generator of hung and healthy jobs at 64 to 512
// ranks. CONCORD_ORDER_TRIALS multiplies the number of jobs.
//
//===----------------------------------------------------------------------===//

#include "Jobs.h"

#include <gtest/gtest.h>

#include <cstdlib>

using namespace concord::order;
using namespace concord::order::evidence;

namespace {

uint32_t trials(uint32_t base) {
  const char *text = std::getenv("CONCORD_ORDER_TRIALS");
  double factor = text ? std::atof(text) : 1;
  return uint32_t(base * (factor > 0 ? factor : 1));
}

std::string describe(const Diagnosis &d) {
  std::string out;
  for (const Finding &f : d.findings) {
    out += f.id + ": " + f.title + "\n";
    for (const ChainEdge &e : f.chain)
      out += "   " + e.why + "\n";
    for (const std::string &s : f.details)
      out += "   " + s + "\n";
  }
  return out;
}

Job readJob(const jobs::MadeJob &made, std::mt19937 &rng,
            bool watchdog = true) {
  Job job;
  bool hung = watchdog && made.fault != jobs::Fault::None;
  for (uint32_t r = 0; r < made.ranks.size(); ++r) {
    if (!made.withoutEvidence[r]) {
      std::string error;
      EXPECT_TRUE(readFlightRecorder(jobs::flightRecorder(made, r, rng, hung),
                                     "dump_" + std::to_string(r), Rank(r), job,
                                     error))
          << error;
    }
    if (!made.ranks[r].stack.empty())
      readStack(made.ranks[r].stack, "stack_" + std::to_string(r) + ".txt",
                Rank(r), job);
  }
  return job;
}

TEST(Planted, TheCulpritIsNamedFirst) {
  const jobs::Fault faults[] = {jobs::Fault::Inversion, jobs::Fault::Missing,
                                jobs::Fault::Mismatch, jobs::Fault::HostBlock,
                                jobs::Fault::TransferCycle};
  std::mt19937 rng(99);
  uint32_t total = trials(300), named = 0, made = 0;
  std::map<int, std::pair<uint32_t, uint32_t>> perKind;
  for (uint32_t i = 0; i < total; ++i) {
    jobs::Fault fault = faults[i % 5];
    // Mostly small, up to 512: generating the text is what takes the time.
    uint32_t size = i % 50 == 0 ? 512 : i % 10 == 0 ? 256 : 64 << (i % 2);
    jobs::Maker maker(1000 + i, fault, size);
    ASSERT_TRUE(maker.made) << i;
    ++made;
    Job job = readJob(maker.job, rng);
    Diagnosis d = diagnose(job);
    bool ok = !d.findings.empty() && !d.findings[0].culprits.empty() &&
              d.findings[0].culprits[0] == maker.job.culprit && d.fault();
    named += ok;
    auto &[n, good] = perKind[int(fault)];
    ++n;
    good += ok;
    if (!ok && std::getenv("CONCORD_ORDER_VERBOSE"))
      std::printf("job %u fault %d culprit r%d: %s\n", i, int(fault),
                  maker.job.culprit, describe(d).c_str());
  }
  std::printf("planted: %u of %u named first (inversion %u/%u, missing %u/%u, "
              "mismatch %u/%u, host "
              "block %u/%u, transfer cycle %u/%u)\n",
              named, made, perKind[1].second, perKind[1].first,
              perKind[2].second, perKind[2].first, perKind[3].second,
              perKind[3].first, perKind[4].second, perKind[4].first,
              perKind[5].second, perKind[5].first);
  EXPECT_GE(named * 100, made * 99);
}

// A dump taken by hand marks nothing as timed out.
TEST(Planted, AMissingRankIsAFaultWithoutATimeout) {
  std::mt19937 rng(5);
  uint32_t total = trials(60), named = 0;
  for (uint32_t i = 0; i < total; ++i) {
    jobs::Maker maker(9000 + i, jobs::Fault::Missing, 64 << (i % 2));
    ASSERT_TRUE(maker.made) << i;
    Job job = readJob(maker.job, rng, /*watchdog=*/false);
    Diagnosis d = diagnose(job);
    bool ok = d.fault() && !d.findings[0].culprits.empty() &&
              d.findings[0].culprits[0] == maker.job.culprit;
    named += ok;
    if (!ok && std::getenv("CONCORD_ORDER_VERBOSE"))
      std::printf("job %u culprit r%d: %s\n", i, maker.job.culprit,
                  describe(d).c_str());
    EXPECT_FALSE(
        std::any_of(d.findings.begin(), d.findings.end(), [](const Finding &f) {
          return f.id == "unexplained-timeout";
        }));
  }
  std::printf("without timeouts: %u of %u named first\n", named, total);
  EXPECT_GE(named * 100, total * 95);
}

TEST(Planted, HealthyJobsHaveNoCycle) {
  std::mt19937 rng(7);
  uint32_t total = trials(100);
  for (uint32_t i = 0; i < total; ++i) {
    jobs::Maker maker(5000 + i, jobs::Fault::None,
                      i % 20 == 0 ? 512 : 64 << (i % 2));
    Job job = readJob(maker.job, rng);
    // Stopped at a random moment: some rank is behind then.
    Diagnosis d = diagnose(job, /*moving=*/true);
    EXPECT_FALSE(d.fault()) << i << "\n" << describe(d);
    for (const Finding &f : d.findings)
      EXPECT_NE(f.kind, Finding::Kind::Cycle) << i << "\n" << describe(d);
  }
}

// Nothing hung: the device had room for both. The next one may not.
TEST(Order, DivergenceWithoutAHang) {
  auto dump = [](bool swapped, int steps) {
    std::string text =
        R"({"version":"2.10","pg_config":{"1":{"name":"1","desc":"tp","ranks":"[0, 1]"},)"
        R"("2":{"name":"2","desc":"dp","ranks":"[0, 1]"}},"entries":[)";
    int record = 0;
    for (int step = 0; step < steps; ++step)
      for (int k = 0; k < 2; ++k) {
        bool dp = (k == 1) != (swapped && step == 2);
        text += std::string(record ? "," : "") +
                "{\"record_id\":" + std::to_string(record) +
                ",\"process_group\":[\"" + (dp ? "2\",\"dp" : "1\",\"tp") +
                "\"],\"collective_seq_id\":" + std::to_string(step + 1) +
                ",\"profiling_name\":\"nccl:all_reduce\",\"input_sizes\":[[4]]"
                ",\"state\":\"completed\"}";
        ++record;
      }
    return text + "]}";
  };
  for (bool swapped : {false, true}) {
    Job job;
    std::string error;
    ASSERT_TRUE(readFlightRecorder(dump(false, 5), "d0.json", 0, job, error));
    ASSERT_TRUE(readFlightRecorder(dump(swapped, 5), "d1.json", 1, job, error));
    Diagnosis d = diagnose(job);
    EXPECT_TRUE(d.findings.empty()) << describe(d);
    bool said = std::any_of(
        d.warnings.begin(), d.warnings.end(), [](const std::string &text) {
          return text.find("order-divergent") != std::string::npos &&
                 text.find("1(tp)#3 before 2(dp)#3, r1") != std::string::npos;
        });
    EXPECT_EQ(said, swapped);
  }
}

// --- formats -----------------------------------------------------------------

TEST(FlightRecorder, TransfersAndGroupRanks) {
  std::string text =
      R"({"version":"2.10","pg_config":{"5":{"name":"5","desc":"pp","ranks":"[4, 9]"}},"entries":[)"
      R"({"record_id":0,"process_group":["5","pp"],"collective_seq_id":0,"p2p_seq_id":1,"is_p2p":true,)"
      R"("profiling_name":"nccl:send 0->1","input_sizes":[[8]],"state":"completed","frames":[{"name":"a\"]"}]},)"
      R"({"record_id":1,"process_group":["5","pp"],"collective_seq_id":0,"p2p_seq_id":2,"is_p2p":true,)"
      R"("profiling_name":"nccl:recv 0<-1","output_sizes":[[8]],"state":"scheduled"}]})";
  Job job;
  std::string error;
  ASSERT_TRUE(readFlightRecorder(text, "d4.json", 4, job, error)) << error;
  const RankEvidence &r = job.ranks.at(4);
  ASSERT_EQ(r.issues.size(), 2u);
  const Sequence &a = job.sequences[r.issues[0].sequence],
                 &b = job.sequences[r.issues[1].sequence];
  EXPECT_EQ(a.source, 4);
  EXPECT_EQ(a.destination, 9);
  EXPECT_EQ(b.source, 9);
  EXPECT_EQ(b.destination, 4);
  EXPECT_FALSE(r.truncatedStart);
}

TEST(FlightRecorder, AGroupNameThatComesAgainWithOtherMembers) {
  Job job;
  std::string error;
  auto dump = [](const std::string &ranks) {
    return R"({"pg_config":{"1":{"name":"1","desc":"tp","ranks":")" + ranks +
           R"("}},"entries":[{"record_id":0,"process_group":["1","tp"],"collective_seq_id":1,)"
           R"("profiling_name":"gloo:all_reduce","input_sizes":[[4]],"state":"started"}]})";
  };
  ASSERT_TRUE(readFlightRecorder(dump("[0, 1]"), "d0", 0, job, error));
  ASSERT_TRUE(readFlightRecorder(dump("[2, 3]"), "d2", 2, job, error));
  EXPECT_EQ(job.domains.size(), 2u);
}

TEST(FlightRecorder, HostilePickles) {
  Job job;
  std::string error;
  using namespace std::string_literals;
  for (const std::string &bytes :
       {"\x80\x02cos\nsystem\nU\x02ls\x85R."s, "\x80\x02\x93."s,
        "\x80\x04\x8c\x05posix\x8c\x06system\x93."s,
        "\x80\x02X\xff\xff\xff\x7f"s, "\x80\x02h\x07."s, "\x80\x02e."s,
        "\x80\x09."s, "\x80\x02."s, "\x80\x02}q\x00h\x00s"s,
        "\x80\x02" + std::string(100000, '(') + "."}) {
    EXPECT_FALSE(readFlightRecorder(bytes, "p0", 0, job, error));
    EXPECT_FALSE(error.empty());
  }
  // Values that contain themselves, doubled many times: bounded, not
  // exponential.
  std::string bomb = "\x80\x02]q\x00";
  for (int i = 0; i < 40; ++i)
    bomb += "]q\x01(h\x00h\x00e"
            "q\x00"s;
  bomb += ".";
  EXPECT_FALSE(readFlightRecorder(bomb, "p0", 0, job, error));
}

/// Four ranks on rows 1, 2 and columns 3, 4 of a grid; each group has done #1.
std::string gridDump(Rank rank, bool rowFirst) {
  auto entry = [&](int record, int group, int seq, const char *state) {
    return R"({"record_id":)" + std::to_string(record) +
           R"(,"process_group":[")" + std::to_string(group) +
           R"(","g"],"collective_seq_id":)" + std::to_string(seq) +
           R"(,"profiling_name":"nccl:all_reduce","input_sizes":[[4]],)"
           R"("input_dtypes":["Float"],"state":")" +
           state + "\"}";
  };
  int row = 1 + rank / 2, column = 3 + rank % 2;
  // As nlohmann's JSON writes it: keys in order, so groups come last.
  return "{\"entries\":[" + entry(0, row, 1, "completed") + "," +
         entry(1, column, 1, "completed") + "," +
         entry(2, rowFirst ? row : column, 2, "started") + "," +
         entry(3, rowFirst ? column : row, 2, "scheduled") +
         R"(],"pg_config":{"1":{"name":"1","ranks":"[0, 1]"},)"
         R"("2":{"name":"2","ranks":"[2, 3]"},)"
         R"("3":{"name":"3","ranks":"[0, 2]"},)"
         R"("4":{"name":"4","ranks":"[1, 3]"}},"version":"2.10"})";
}

Diagnosis gridWithout(const std::function<std::string(std::string)> &ofOne) {
  Job job;
  std::string error;
  for (Rank r = 0; r < 4; ++r) {
    std::string text = gridDump(r, r == 0 || r == 3);
    if (r == 1)
      text = ofOne(text);
    if (!text.empty())
      EXPECT_TRUE(
          readFlightRecorder(text, "d" + std::to_string(r), r, job, error))
          << error;
  }
  return diagnose(job);
}

// Nothing has timed out yet; all waits lead to the rank that left nothing.
TEST(FlightRecorder, ARankWithoutADumpIsTheSuspect) {
  Diagnosis all = gridWithout([](std::string text) { return text; });
  ASSERT_FALSE(all.findings.empty());
  EXPECT_EQ(all.findings[0].id, "cross-domain-cycle");
  Diagnosis d = gridWithout([](std::string) { return std::string(); });
  ASSERT_TRUE(d.fault()) << describe(d);
  EXPECT_EQ(d.findings[0].id, "suspect-without-evidence");
  EXPECT_EQ(d.findings[0].culprits, std::vector<Rank>{1});
}

// What stands before the cut counts; what may stand behind it accuses nobody.
TEST(FlightRecorder, ADumpThatWasCutOff) {
  Diagnosis d = gridWithout([](std::string text) {
    return text.substr(0, text.find("\"record_id\":2") + 40);
  });
  ASSERT_TRUE(d.fault()) << describe(d);
  EXPECT_EQ(d.findings[0].id, "suspect-without-evidence");
  EXPECT_NE(d.findings[0].title.find("cut off"), std::string::npos);
  // Groups that the file had no room for are those of the other dumps.
  std::string error, whole = gridDump(0, true);
  size_t entries = 0;
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    Job job;
    if (readFlightRecorder(whole.substr(0, cut), "d0", 0, job, error)) {
      EXPECT_GE(job.ranks.at(0).issues.size(), entries) << cut;
      entries = job.ranks.at(0).issues.size();
      EXPECT_TRUE(job.ranks.at(0).truncatedEnd) << cut;
    }
  }
  EXPECT_EQ(entries, 4u);
  // Damage in the middle is no early end.
  Job job;
  whole[whole.find("\"record_id\":1") + 3] = '"';
  EXPECT_FALSE(readFlightRecorder(whole, "d0", 0, job, error));
}

TEST(Nccl, OperationsByCommunicator) {
  auto line = [](int rank, const std::string &text) {
    return "node7:4" + std::to_string(rank) + ":5" + std::to_string(rank) +
           " [" + std::to_string(rank) + "] NCCL INFO " + text + "\n";
  };
  auto init = [&](int rank, const char *pointer, const char *id) {
    return line(rank, std::string("ncclCommInitRankConfig comm ") + pointer +
                          " rank " + std::to_string(rank) +
                          " nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId " +
                          id + " - Init COMPLETE");
  };
  auto op = [&](int rank, const char *what, const char *pointer, int root,
                const char *launches = "0") {
    return line(rank, std::string(what) + ": opCount " + launches +
                          " sendbuff 0x1 recvbuff 0x2 count 64 datatype 7 op "
                          "0 root " +
                          std::to_string(root) + " comm " + pointer +
                          " [nranks=2] stream 0x9");
  };
  std::string text =
      init(0, "0xa0", "0x11") + init(1, "0xa1", "0x11") +
      init(1, "0xb1", "0x22") + init(0, "0xb0", "0x22") +
      "[rank0]: " + op(0, "AllReduce", "0xa0", 0) +
      op(1, "Broadcast", "0xb1", 1) + op(0, "Broadcast", "0xb0", 0) +
      op(0, "Send", "0xa0", 1, "5") + op(0, "Recv", "0xa0", 1, "5") +
      op(0, "AllReduce", "0xc0", 0) + line(0, "Channel 00/02 : 0 1") +
      line(0, "AllSqueeze: opCount 1 comm 0xa0");
  EXPECT_TRUE(looksLikeNcclLog(text));
  Job job;
  readNcclLogs({{"out.log", text}}, job);
  const RankEvidence &zero = job.ranks.at(0);
  ASSERT_EQ(zero.issues.size(), 4u);
  EXPECT_EQ(job.strings[zero.issues[0].signature],
            "all_reduce(n=64,float,sum)");
  EXPECT_EQ(job.sequenceName(zero.issues[2].sequence), "comm 0x11:0->1");
  EXPECT_EQ(job.sequenceName(zero.issues[3].sequence), "comm 0x11:1->0");
  EXPECT_EQ(zero.issues[2].order, zero.issues[3].order); // one launch
  EXPECT_EQ(job.linesNotUnderstood, 1u);
  ASSERT_EQ(job.notes.size(), 1u); // of 0xc0
  // Roots differ, and one rank has not issued the all-reduce.
  Diagnosis d = diagnose(job);
  ASSERT_GE(d.findings.size(), 2u) << describe(d);
  EXPECT_NE(d.findings[0].title.find("broadcast(n=64,float,root=1) on r1"),
            std::string::npos)
      << describe(d);
}

std::string watchdog(int rank, const std::string &group, int seq,
                     const std::string &op) {
  return "[rank" + std::to_string(rank) +
         "]:[E1130 12:00:00.1 ProcessGroupNCCL.cpp:632] [PG ID 1 PG GUID " +
         group + " Rank " + std::to_string(rank) +
         "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" +
         std::to_string(seq) + ", OpType=" + op +
         ", NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 "
         "milliseconds before timing out.\n";
}

TEST(Nccl, TheWatchdogOfPyTorch) {
  // The members of "tp" are not told; somebody between them left nothing.
  std::string three = watchdog(0, "2(tp)", 7, "ALLREDUCE") +
                      watchdog(1, "2(tp)", 7, "ALLREDUCE") +
                      watchdog(3, "2(tp)", 7, "ALLREDUCE");
  {
    Job job;
    readNcclLogs({{"out.log", three}}, job);
    Diagnosis d = diagnose(job);
    ASSERT_EQ(d.findings.size(), 1u) << describe(d);
    EXPECT_EQ(d.findings[0].id, "suspect-without-evidence");
    EXPECT_EQ(d.findings[0].culprits, std::vector<Rank>{2});
  }
  {
    // It is known why.
    Job job;
    readStack("[rank2]: Traceback (most recent call last):\n"
              "[rank2]:   File \"a.py\", line 3, in f\n"
              "[rank2]: ValueError: no\n",
              "out.log", -1, job);
    readNcclLogs({{"out.log", three}}, job);
    Diagnosis d = diagnose(job);
    ASSERT_FALSE(d.findings.empty());
    EXPECT_NE(d.findings[0].title.find("r2, which has thrown ValueError: no"),
              std::string::npos)
        << describe(d);
  }
  {
    Job job;
    readNcclLogs(
        {{"out.log", watchdog(0, "0(default_pg)", 9, "ALLREDUCE") +
                         watchdog(1, "0(default_pg)", 9, "_ALLGATHER_BASE")}},
        job);
    Diagnosis d = diagnose(job);
    ASSERT_FALSE(d.findings.empty());
    EXPECT_EQ(d.findings[0].id, "mismatch") << describe(d);
  }
  {
    // How far each has come, from the other line.
    auto status = [](int rank, int enqueued, int completed) {
      return "[PG ID 0 PG GUID 0(default_pg) Rank " + std::to_string(rank) +
             "]  failure detected by watchdog at work sequence id: 4 PG "
             "status: last enqueued work: " +
             std::to_string(enqueued) +
             ", last completed work: " + std::to_string(completed) + "\n";
    };
    Job job;
    readNcclLogs({{"out.log", status(0, 5, 4) + status(1, 4, 4)}}, job);
    Diagnosis d = diagnose(job);
    ASSERT_FALSE(d.findings.empty());
    EXPECT_EQ(d.findings[0].culprits, std::vector<Rank>{1}) << describe(d);
  }
}

TEST(Launchers, WhoEndedAndHow) {
  std::string text =
      "mpirun noticed that process rank 3 with PID 4711 on node n7 exited on "
      "signal 11 (Segmentation fault).\n"
      "srun: error: n7: task 4: Exited with exit code 1\n"
      "srun: error: n7: tasks 5-6,8: Killed\n"
      "srun: error: n7: task 9: Terminated\n"
      "  rank      : 10 (local_rank: 2)\n  exitcode  : -9 (pid: 7)\n"
      "  exitcode  : 1 (pid: 7)\n"
      "srun: error: n7: task x\nsrun: error: : task 7-\n";
  EXPECT_TRUE(looksLikeLauncherOutput(text));
  EXPECT_FALSE(looksLikeLauncherOutput("rank 3 is here\n"));
  Job job;
  readLauncherOutput(text, "out.log", job);
  std::map<Rank, std::string> ends;
  for (const auto &[rank, evidence] : job.ranks)
    for (const HostWait &w : evidence.waits)
      ends[rank] = w.function;
  EXPECT_EQ(ends,
            (std::map<Rank, std::string>{{3, "signal 11 (Segmentation fault)"},
                                         {4, "exit code 1"},
                                         {5, "Killed"},
                                         {6, "Killed"},
                                         {8, "Killed"},
                                         {10, "signal 9"}}));
  // A signal says more than an exit code; it is what others wait for.
  Job killed;
  std::string output = watchdog(0, "0(default_pg)", 7, "ALLREDUCE") +
                       watchdog(1, "0(default_pg)", 7, "ALLREDUCE") +
                       "mpirun noticed that process rank 2 with PID 1 on node "
                       "n exited on signal 9 (Killed).\n";
  readLauncherOutput(output, "out.log", killed);
  readNcclLogs({{"out.log", output}}, killed);
  Diagnosis d = diagnose(killed);
  ASSERT_FALSE(d.findings.empty());
  EXPECT_NE(d.findings[0].title.find("r2, which has died of signal 9 (Killed)"),
            std::string::npos)
      << describe(d);
  Job plain;
  readLauncherOutput("srun: error: n: task 0: Exited with exit code 1\n"
                     "srun: error: n: task 1: Segmentation fault\n",
                     "out.log", plain);
  d = diagnose(plain);
  ASSERT_EQ(d.findings.size(), 1u);
  EXPECT_EQ(d.findings[0].culprits, (std::vector<Rank>{1, 0})) << describe(d);
}

TEST(Text, AsTerminalsAndOtherSystemsLeaveIt) {
  EXPECT_FALSE(plainText("plain\n"));
  EXPECT_FALSE(plainText(""));
  EXPECT_FALSE(plainText("\x80\x02\x1b[1m")); // a pickle
  EXPECT_EQ(plainText("\xef\xbb\xbf{}"), "{}");
  EXPECT_EQ(plainText("\x1b[1;31mred\x1b[0m \x1b]0;title\atext\x1b(B"),
            "red textB");
  using namespace std::string_literals;
  EXPECT_EQ(plainText("\xff\xfeh\0\xe9\0\x3d\xd8\x00\xde"s),
            "h\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(plainText("\xfe\xff\0h\xd8\x3d"s), "h\xef\xbf\xbd");
}

TEST(Hccl, ErrorLinesAndSpacing) {
  std::string text =
      "[INFO] HCCL(77,py):2026-01-01-00:00:01.000.001 "
      "[a.cc:1][5]Entry-HcclCommInitRootInfo:ranks[2], rank [1], "
      "identifier [g_1_2]\n"
      "[INFO] HCCL(77,py):2026-01-01-00:00:01.000.003 "
      "[a.cc:1][5]Entry-HcclBroadcastInner: tag [Broadcast_g_1_2], "
      "buf[0x1], count [4], dataType [int32], root [1], streamId [3], capture "
      "status[0], model id[0].\n"
      "[INFO] HCCL(77,py):2026-01-01-00:00:01.000.002 "
      "[a.cc:1][5]Entry-HcclAllReduce:tag[AllReduce_g_1_2],count[4],"
      "dataType[float32],op[sum],streamId[3]\n"
      "[INFO] HCCL(77,py):2026-01-01-00:00:02.000.000 "
      "[a.cc:1][5]Entry-HcclNewThing: foo[1]\n"
      "[ERROR] EI0002: x remote rank:[7] tag[AllReduce_g_1_2] group:[g_1_2], "
      "rankSize[2], rankId[1]\n"
      "unrelated line\n";
  Job job;
  readHcclLogs({{"log/plog-77_1.log", text}}, job);
  const RankEvidence &r = job.ranks.at(1);
  ASSERT_EQ(r.issues.size(), 2u);
  EXPECT_EQ(job.strings[r.issues[0].kind],
            "all_reduce"); // in the order of the time stamps
  EXPECT_EQ(job.strings[r.issues[1].signature], "broadcast(n=4,int32,root=1)");
  EXPECT_EQ(job.domains.at(0).name, "g_1_2");
  EXPECT_EQ(job.linesNotUnderstood, 1u);
  EXPECT_EQ(job.linesOther, 1u);
  bool found = false;
  for (const auto &[rank, e] : job.ranks)
    for (const ErrorLine &l : e.errors)
      found = found || (l.code == "EI0002" && l.remote == 7 && l.rank == 1 &&
                        l.tag == "AllReduce_g_1_2");
  EXPECT_TRUE(found);
}

/// The one wait that a rank's stack tells, by its most telling thread.
const HostWait &waitOf(const Job &job, Rank rank) {
  static const HostWait none;
  auto it = job.ranks.find(rank);
  EXPECT_TRUE(it != job.ranks.end() && !it->second.waits.empty()) << rank;
  if (it == job.ranks.end() || it->second.waits.empty())
    return none;
  return *std::min_element(
      it->second.waits.begin(), it->second.waits.end(),
      [](const HostWait &a, const HostWait &b) { return a.kind < b.kind; });
}

TEST(Stacks, TheDecisiveFrame) {
  Job job;
  readStack("Thread 2 (LWP 5):\n#0  0x1 in futex_wait () from libc\n"
            "#1  0x2 in cudaDeviceSynchronize () from libcudart\n#2  0x3 in "
            "cudaMalloc () from libcudart\n"
            "#3  0x4 in my::pool::grow (n=3) at pool.cpp:9\n",
            "s3.txt", 3, job);
  readStack("Process 7: python train.py\nThread 7 (idle): \"MainThread\"\n    "
            "synchronize (torch/cuda/streams.py:1)\n"
            "    cudaStreamSynchronize (libcudart.so)\n    step (train.py:4)\n",
            "s4.txt", 4, job);
  ASSERT_EQ(job.ranks.at(3).waits.size(), 1u);
  EXPECT_EQ(job.ranks.at(3).waits[0].kind,
            HostWait::Kind::Allocation); // it synchronises inside
  EXPECT_EQ(job.ranks.at(3).waits[0].via, "my::pool::grow at pool.cpp:9");
  ASSERT_EQ(job.ranks.at(4).waits.size(), 1u);
  EXPECT_EQ(job.ranks.at(4).waits[0].via, "step at train.py:4");
}

struct StackCase {
  const char *what, *text;
  HostWait::Kind kind;
  const char *function, *via;
};

TEST(Stacks, FormsOfTools) {
  using K = HostWait::Kind;
  const StackCase cases[] = {
      {"faulthandler",
       "Fatal Python error: Aborted\n\n"
       "Thread 0x00007f8b2d7fa700 (most recent call first):\n"
       "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
       "  File \"/usr/lib/python3.11/threading.py\", line 622 in wait\n\n"
       "Current thread 0x00007f8b40000740 (most recent call first):\n"
       "  File \"/opt/venv/lib/python3.11/site-packages/torch/cuda/"
       "__init__.py\", line 954 in synchronize\n"
       "  File \"/srv/job/place.py\", line 41 in rebalance\n"
       "  File \"/srv/job/main.py\", line 7 in <module>\n",
       K::DeviceSync,
       "synchronize at /opt/venv/lib/python3.11/site-packages/torch/cuda/"
       "__init__.py:954",
       "rebalance at /srv/job/place.py:41"},
      {"faulthandler of a collective",
       "Thread 0x00007f0000000000 [MainThread] (most recent call first):\n"
       "  File \"/x/site-packages/torch/distributed/distributed_c10d.py\", "
       "line 2810 in all_reduce\n"
       "  File \"/x/site-packages/torch/distributed/c10d_logger.py\", line 83 "
       "in wrapper\n"
       "  File \"train.py\", line 12 in step\n",
       K::HostCollective,
       "all_reduce at /x/site-packages/torch/distributed/distributed_c10d.py:"
       "2810",
       "step at train.py:12"},
      {"faulthandler, waiting for data",
       "Thread 0x00007f0000000000 (most recent call first):\n"
       "  File \"/usr/lib/python3.11/queue.py\", line 171 in get\n"
       "  File \"loader.py\", line 5 in next_batch\n",
       K::Waiting, "get at /usr/lib/python3.11/queue.py:171",
       "next_batch at loader.py:5"},
      {"py-spy with arguments",
       "Process 123: python train.py --rank 6\n"
       "Python v3.11.7 (/usr/bin/python3.11)\n\n"
       "Thread 123 (idle): \"MainThread\"\n"
       "    barrier (torch/distributed/distributed_c10d.py:4100)\n"
       "        Arguments:\n"
       "            group: <ProcessGroup (gloo)>\n"
       "    <lambda> (train.py:9)\n"
       "Thread 130 (idle): \"pool\"\n"
       "    wait (threading.py:324)\n",
       K::HostCollective,
       "barrier at torch/distributed/distributed_c10d.py:4100",
       "<lambda> at train.py:9"},
      {"py-spy, qualified names",
       "Process 3: python a.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
       "Thread 3 (idle): \"MainThread\"\n    Condition.wait "
       "(threading.py:327)\n"
       "    Queue.get (queue.py:171)\n    Loader.next (loader.py:50)\n"
       "Thread 4 (idle): \"Thread-1 (beat)\"\n    beat (beat.py:3)\n",
       K::Waiting, "Condition.wait at threading.py:327",
       "Loader.next at loader.py:50"},
      {"py-spy --native",
       "Process 9: python a.py\nThread 9 (active): \"MainThread\"\n"
       "    0x7f3a1 (libcuda.so.1)\n    cuStreamSynchronize (libcuda.so.1)\n"
       "    at::native::_local_scalar_dense_cuda (libtorch_cuda.so)\n"
       "    item (torch/_tensor.py:1)\n    loss (a.py:3)\n",
       K::StreamSync, "cuStreamSynchronize", "loss at a.py:3"},
      {"py-spy --json",
       R"([{"pid":9,"thread_id":1,"thread_name":"MainThread","os_thread_id":9,)"
       R"("active":false,"owns_gil":false,"frames":[{"name":"synchronize",)"
       R"("filename":"/x/site-packages/torch_npu/npu/utils.py","module":null,)"
       R"("short_filename":"torch_npu/npu/utils.py","line":58,"locals":[{"a":)"
       R"(1}]},{"name":"move","filename":"/srv/place.py","module":null,)"
       R"("short_filename":"place.py","line":3,"locals":null}],)"
       R"("process_info":null}])",
       K::DeviceSync,
       "synchronize at /x/site-packages/torch_npu/npu/utils.py:58",
       "move at /srv/place.py:3"},
      {"gdb",
       "Thread 2 (Thread 0x7f5d9 (LWP 70) \"pt_autograd\"):\n"
       "#0  __futex_abstimed_wait_common64 (private=0) at ./nptl/futex.c:57\n"
       "#1  0x00007f in std::function<void (int)>::operator() (this=0x1)\n\n"
       "Thread 1 (Thread 0x7f5da (LWP 69) \"python\"):\n"
       "#0  0x00007f12 in poll () from /lib/libc.so.6\n"
       "#1  0x00007f13 in aclrtSynchronizeDeviceWithTimeout (t=-1) from x.so\n"
       "#2  <signal handler called>\n"
       "#3  customQueue::drain<int, std::pair<int, int> > (q=...) at q.cpp:8\n"
       "#4  0x00007f14 in main (argc=1, argv=0x7ff) at main.cpp:2\n",
       K::DeviceSync, "aclrtSynchronizeDeviceWithTimeout",
       "customQueue::drain<int, std::pair<int, int> > at q.cpp:8"},
      {"eu-stack",
       "PID 44 - process\nTID 44:\n#0  0x00007f6b poll\n"
       "#1  0x00007f6c hipMalloc\n#2  0x00007f6d cutlass_step\n",
       K::Allocation, "hipMalloc", "cutlass_step"},
      {"lldb",
       "* thread #1, name = 'x', stop reason = signal SIGSTOP\n"
       "  * frame #0: 0x00007fff libc.so.6`__poll at poll.c:29:10\n"
       "    frame #1: 0x00007fff libmpi.so.40`PMPI_Bcast(buf=0x1) + 52\n"
       "    frame #2: 0x00005555 a.out`solve(n=3) at solve.cpp:77:5\n",
       K::HostCollective, "PMPI_Bcast", "solve at solve.cpp:77"},
      {"Open MPI's own",
       "[node7:4711] [ 0] /lib/libc.so.6(+0x3c050)[0x7f12]\n"
       "[node7:4711] [ 1] /lib/libmpi.so.40(PMPI_Barrier+0x9b)[0x7f13]\n"
       "[node7:4711] [ 2] ./app(exchange+0x20)[0x5512]\n",
       K::HostCollective, "PMPI_Barrier", "exchange"},
      {"a traceback",
       "step 12\nTraceback (most recent call last):\n"
       "  File \"/srv/main.py\", line 9, in <module>\n    main ()\n"
       "  File \"/srv/data.py\", line 31, in load\n"
       "    return table[key]\n"
       "KeyError: 'shard-7'\nsome more text\n",
       K::Exception, "KeyError: 'shard-7'", "load at /srv/data.py:31"},
  };
  for (const StackCase &c : cases) {
    SCOPED_TRACE(c.what);
    EXPECT_EQ(detect(c.text, "x_1.txt"), Format::Stack);
    Job job;
    readStack(c.text, "x_1.txt", 1, job);
    const HostWait &wait = waitOf(job, 1);
    EXPECT_EQ(int(wait.kind), int(c.kind));
    EXPECT_EQ(wait.function, c.function);
    EXPECT_EQ(wait.via, c.via);
    EXPECT_TRUE(job.notes.empty());
  }
  for (const char *text :
       {"Thread pools are nice\nProcess what you like (fast)\n", "a (b:3)\n",
        "[INFO] started\n", "[1, 2]\n"})
    EXPECT_EQ(detect(text, "x.txt"), Format::Unknown) << text;
}

TEST(Stacks, OneFileOfAllRanks) {
  // As torchrun writes it: the ranks' lines are mixed.
  Job job;
  readStack("[rank2]: Traceback (most recent call last):\n"
            "[rank0]:Thread 0x1 (most recent call first):\n"
            "[rank2]:   File \"a.py\", line 3, in f\n"
            "[rank0]:  File \"/x/site-packages/torch/distributed/"
            "distributed_c10d.py\", line 1 in all_gather_into_tensor\n"
            "[rank2]: ValueError: no\n[rank0]:  File \"a.py\", line 4 in g\n",
            "out.log", -1, job);
  EXPECT_EQ(int(waitOf(job, 0).kind), int(HostWait::Kind::HostCollective));
  EXPECT_EQ(waitOf(job, 0).via, "g at a.py:4");
  EXPECT_EQ(int(waitOf(job, 2).kind), int(HostWait::Kind::Exception));
  EXPECT_EQ(job.ranks.size(), 2u);
  // Without any rank there is nothing to tell it of.
  Job none;
  readStack("#0  0x1 in cudaFree ()\n", "out.log", -1, none);
  EXPECT_TRUE(none.ranks.empty());
  ASSERT_EQ(none.notes.size(), 1u);
  EXPECT_NE(none.notes[0].find("tells no rank"), std::string::npos);
}

TEST(Stacks, AloneTheyNameTheOddOneOut) {
  Job job;
  for (int r = 0; r < 6; ++r)
    readStack(r == 4
                  ? "Thread 0x1 (most recent call first):\n"
                    "  File \"/usr/lib/python3.11/queue.py\", line 1 in get\n"
                    "  File \"data.py\", line 5 in next_batch\n"
                  : "Thread 0x1 (most recent call first):\n"
                    "  File \"torch/distributed/distributed_c10d.py\", line 9 "
                    "in all_reduce\n"
                    "  File \"train.py\", line 6 in step\n",
              "s_" + std::to_string(r), r, job);
  Diagnosis d = diagnose(job);
  ASSERT_EQ(d.findings.size(), 1u) << describe(d);
  EXPECT_EQ(d.findings[0].id, "stands-elsewhere");
  EXPECT_EQ(d.findings[0].culprits, std::vector<Rank>{4});
  EXPECT_NE(describe(d).find("next_batch at data.py:5"), std::string::npos);
  EXPECT_TRUE(d.fault());
}

TEST(RankTables, OneTablePerGroup) {
  auto group = [](const char *id, const char *ranks) {
    return std::string(R"({"group_id":")") + id +
           R"(","server_count":"1","server_list":[{"server_id":"s)" + id +
           R"(","device":[)" + ranks + "]}]}";
  };
  auto device = [](const char *rank, const char *ip) {
    return std::string(R"({"device_id":")") + rank + R"(","device_ip":")" + ip +
           R"(","rank_id":")" + rank + R"("})";
  };
  auto table = [&](const std::string &second) {
    return R"({"version":"1.0","status":"completed","server_group_list":[)" +
           group("0", device("0", "10.0.0.1").c_str()) + "," +
           group("1", second.c_str()) + "," + group("2", "") + "]}";
  };
  // Each group counts from 0; an address may come again in another group.
  std::string error, good = table(device("0", "10.0.0.1"));
  EXPECT_EQ(detect(good, "t.json"), Format::RankTable);
  Job job;
  ASSERT_TRUE(readRankTable(good, "t.json", job, error)) << error;
  EXPECT_TRUE(job.tableFindings.empty());
  Job bad;
  ASSERT_TRUE(
      readRankTable(table(device("1", "10.0.0.1")), "t.json", bad, error));
  ASSERT_EQ(bad.tableFindings.size(), 1u);
  EXPECT_EQ(bad.tableFindings[0].id, "rank-ids-not-dense");
  EXPECT_NE(bad.tableFindings[0].title.find("group 1"), std::string::npos);
}

/// The ids of what is wrong in a table, in order.
std::vector<std::string> faultsOf(const std::string &table) {
  Job job;
  std::string error;
  EXPECT_TRUE(readRankTable(table, "t.json", job, error)) << error;
  std::vector<std::string> ids;
  for (const Finding &f : job.tableFindings)
    ids.push_back(f.id);
  return ids;
}

TEST(RankTables, SuperPods) {
  auto device = [](int rank, const std::string &superDevice) {
    return R"({"device_id":")" + std::to_string(rank % 2) +
           R"(","device_ip":"10.0.0.)" + std::to_string(rank + 1) +
           R"(","super_device_id":")" + superDevice + R"(","rank_id":")" +
           std::to_string(rank) + R"("})";
  };
  auto server = [](const std::string &id, const std::string &devices) {
    return R"({"server_id":")" + id + R"(","device":[)" + devices + "]}";
  };
  auto pod = [](const std::string &id, const std::string &of) {
    return R"({"super_pod_id":")" + id + R"(","server_list":[{"server_id":")" +
           of + R"("}]})";
  };
  auto table = [](const std::string &servers, const std::string &pods) {
    return R"({"version":"1.2","status":"completed","server_count":"2",)"
           R"("server_list":[)" +
           servers + R"(],"super_pod_list":[)" + pods + "]}";
  };
  std::string a = server("a", device(0, "7") + "," + device(1, "8"));
  std::string b = server("b", device(2, "7") + "," + device(3, "8"));
  // Numbered within each pod.
  EXPECT_EQ(faultsOf(table(a + "," + b, pod("0", "a") + "," + pod("1", "b"))),
            std::vector<std::string>{});
  EXPECT_EQ(faultsOf(table(
                a + "," + server("b", device(2, "7") + "," + device(3, "7")),
                pod("0", "a") + "," + pod("1", "b"))),
            std::vector<std::string>{"super-device-twice"});
  EXPECT_EQ(faultsOf(table(a + "," + b, pod("0", "a"))),
            std::vector<std::string>{"pod-server-missing"});
  EXPECT_EQ(faultsOf(table(a + "," + server("b", ""),
                           pod("0", "a") + "," + pod("1", "b"))),
            std::vector<std::string>{"server-without-devices"});
}

TEST(RankTables, EveryRankHasAnAddress) {
  auto rank = [](int n, const std::string &levels) {
    std::string number = std::to_string(n);
    return R"({"rank_id":)" + number + R"(,"device_id":)" + number +
           R"(,"local_id":)" + number + R"(,"level_list":[)" + levels + "]}";
  };
  auto level = [](const std::string &type, const std::string &address) {
    return R"({"net_layer":0,"net_instance_id":"s","rank_addr_list":[)"
           R"({"addr_type":")" +
           type + R"(","addr":")" + address + R"(","ports":["0/0"]}]})";
  };
  auto table = [&](const std::string &second) {
    return R"({"version":"2.0","rank_count":2,"rank_list":[)" +
           rank(0, level("EID", "000000000000002000100000dfdf0001")) + "," +
           rank(1, second) + "]}";
  };
  EXPECT_EQ(faultsOf(table(level("EID", "000000000000002000100000dfdf0002"))),
            std::vector<std::string>{});
  EXPECT_EQ(faultsOf(table(level("IPV4", "10.0.0.1"))),
            std::vector<std::string>{});
  EXPECT_EQ(faultsOf(table("")), std::vector<std::string>{"address-missing"});
  EXPECT_EQ(faultsOf(table(level("EID", "none"))),
            std::vector<std::string>{"address-invalid"});
  EXPECT_EQ(faultsOf(table(level("EID", "000000000000002000100000dfdf0001"))),
            std::vector<std::string>{"address-twice"});
}

TEST(Names, RankOfPath) {
  EXPECT_EQ(rankOfPath("a/nccl_trace_rank_12"), 12);
  EXPECT_EQ(rankOfPath("x/dump_3.json"), 3);
  EXPECT_EQ(rankOfPath("x/rank_7/log.txt"), 7);
  EXPECT_EQ(rankOfPath("x/log.txt"), -1);
  EXPECT_EQ(rankOfPath("x/99999999999999"), -1);
}

} // namespace
