//===- fuzz_evidence.cpp - Fuzz target of the doctor's readers ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first byte chooses the reader: Flight Recorder dumps (JSON or pickle),
// a rank table, stacks, HCCL logs, or issue logs. A line "@@@" divides the
// files of several ranks. What has been read is diagnosed.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "concord/issuelog.h"
#include "concord/order/Evidence.h"

#include <algorithm>
#include <cstring>
#include <memory>

using namespace concord;
using namespace concord::order::evidence;

static constexpr std::string_view kDivider = "\n@@@\n";
static constexpr size_t kHeadWords = 16, kDomains = 2, kThreads = 2;

/// A whole block of what matters in it: its head, two domains, two threads, and
/// records.
static std::string issueLog(std::string_view bytes) {
  auto block = std::make_unique<issuelog::Block>();
  std::memset(static_cast<void *>(block.get()), 0, sizeof *block);
  auto take = [&](void *to, size_t most) {
    size_t n = std::min(most, bytes.size());
    std::memcpy(to, bytes.data(), n);
    bytes.remove_prefix(n);
  };
  take(block.get(), kHeadWords * 8);
  take(block->domains, kDomains * sizeof(issuelog::Domain));
  take(block->threads, kThreads * sizeof(issuelog::Thread));
  take(block->records, sizeof block->records);
  return std::string(reinterpret_cast<char *>(block.get()), sizeof *block);
}

/// Two ranks that wait in two collectives for each other.
static std::string opposedLogs() {
  std::string text;
  for (uint64_t rank : {0, 1}) {
    uint64_t head[kHeadWords] = {
        issuelog::kMagic, issuelog::kVersion, rank, 2, 100 + rank, 2, 0, 2};
    issuelog::Domain domains[kDomains] = {};
    issuelog::Record records[2] = {};
    for (uint64_t i : {0, 1}) {
      domains[i].size = 2;
      domains[i].name[0] = 'a' + i;
      domains[i].members[0] = 0x0100;
      records[i] = {i + 1,        0,
                    64,           i + 1,
                    ~uint64_t(0), 1 | 11 << 16 | 1ll << 32,
                    rank ^ i,     i ? 0u : 1u};
    }
    issuelog::Thread threads[kThreads] = {};
    threads[0].state = uint64_t(issuelog::HostState::Gate);
    threads[0].note[0] = 'n';
    text += rank ? kDivider : "4";
    text.append(reinterpret_cast<const char *>(head), sizeof head);
    text.append(reinterpret_cast<const char *>(domains), sizeof domains);
    text.append(reinterpret_cast<const char *>(threads), sizeof threads);
    text.append(reinterpret_cast<const char *>(records), sizeof records);
  }
  return text;
}

/// The files of a job as one input.
static std::string together(char reader, const std::string &folder,
                            std::string_view suffix) {
  std::string all;
  for (const std::string &file : fuzz::filesUnder(folder, suffix, 6000))
    all +=
        (all.empty() ? std::string(1, reader) : std::string(kDivider)) + file;
  return all;
}

std::vector<std::string> fuzz::seeds() {
  const std::string folder = "test/system/doctor/";
  std::vector<std::string> all = {
      together('0', folder + "flight_recorder", ".json"),
      together('0', folder + "flight_recorder_pickle", ""),
      together('3', folder + "hccl_log/host0", ".log"), opposedLogs()};
  all.push_back(R"(1{"version":"1.0","server_count":"1","status":"completed",)"
                R"("server_list":[{"server_id":"a","device":[)"
                R"({"device_id":"0","device_ip":"1.2.3.4","rank_id":"0"}]}]})");
  for (const char *stack :
       {"2[rank1]: Traceback (most recent call last):\n[rank1]:   File "
        "\"a.py\", line 3, in f\n[rank1]: ValueError: x\n",
        "2Process 3: python a.py --rank 2\nThread 3 (idle): \"MainThread\"\n  "
        "  Queue.get (queue.py:171)\n        Locals:\n",
        "2Current thread 0x1 (most recent call first):\n  File \"a.py\", line "
        "9 in f\nCurrent thread's C stack trace (most recent call first):\n  "
        "Binary file \"x.so\", at f+0x1 [0x2]\n",
        "2* thread #1, name = 'x'\n  * frame #0: 0x1 a`std::f<int (*)()>(x) + "
        "4 at b.c:1:2\n#1 0x2 in operator< (a=1) from x.so\n[n:1] [ 0] "
        "l(f+0x1)[0x2]\n",
        R"(2[{"thread_id":1,"thread_name":"MainThread","frames":[{"name":"f",)"
        R"("filename":"a.py","line":1}]}])"})
    all.push_back(stack);
  all.push_back(
      "5h:1:2 [0] NCCL INFO ncclCommInitRank comm 0xa rank 0 nranks 2 cudaDev "
      "0 busId 1 commId 0x1 - Init COMPLETE\nh:1:2 [0] NCCL INFO Send: opCount "
      "5 sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 1 comm 0xa "
      "[nranks=2] stream 0x9\n\x1b[31m[PG ID 1 PG GUID 2(tp) Rank 3] Watchdog "
      "caught collective operation timeout: WorkNCCL(SeqNum=7, "
      "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=1) ran\n[PG ID 1 "
      "PG GUID 2(tp) Rank 1]  PG status: last enqueued work: 7, last completed "
      "work: 6\nsrun: error: n: tasks 1-2,5: Killed\nmpirun noticed that "
      "process rank 3 with PID 1 on node n exited on signal 9 (Killed).\n  "
      "rank : 3 (local_rank: 1)\n  exitcode : -9 (pid: 1)\n");
  return all;
}

/// One file into the job. False when it is no such thing.
static bool read(char reader, std::string_view text, int rank, Job &job) {
  const std::string name = "rank_" + std::to_string(rank);
  std::string error;
  switch (reader) {
  case '0':
    return readFlightRecorder(text, name, rank, job, error);
  case '1':
    return readRankTable(text, name + ".json", job, error);
  case '2':
    readStack(text, name + ".stack", rank, job);
    return looksLikeStack(text);
  case '4': {
    std::string log = issueLog(text);
    auto block = std::make_unique<issuelog::Block>();
    std::memcpy(static_cast<void *>(block.get()), log.data(), log.size());
    issueLogText(*block);
    readIssueLog(text, name + ".issues", job, error); // not a whole one
    return readIssueLog(log, name + ".issues", job, error);
  }
  default:
    detect(text, "file");
    rankOfPath(std::string(text));
    return false;
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  std::string_view text(reinterpret_cast<const char *>(data + 1), size - 1);
  std::vector<std::string_view> files;
  for (bool more = true; more && files.size() < 8;) {
    size_t end = text.find(kDivider);
    more = end != text.npos;
    files.push_back(text.substr(0, end));
    text.remove_prefix(more ? end + kDivider.size() : text.size());
  }
  Job job;
  bool any = false;
  if (data[0] == '5') {
    std::vector<std::string> plain;
    std::vector<std::pair<std::string, std::string_view>> logs;
    for (std::string_view file : files)
      plain.push_back(plainText(file).value_or(std::string(file)));
    for (size_t i = 0; i < plain.size(); ++i)
      logs.emplace_back("rank_" + std::to_string(i) + ".log", plain[i]);
    for (const auto &[name, text] : logs)
      readLauncherOutput(text, name, job);
    readNcclLogs(logs, job);
    any = job.linesUnderstood != 0;
  } else if (data[0] == '3') {
    std::vector<std::pair<std::string, std::string_view>> logs;
    for (size_t i = 0; i < files.size(); ++i)
      logs.emplace_back("rank_" + std::to_string(i) + "/plog.log", files[i]);
    readHcclLogs(logs, job);
    any = job.linesUnderstood != 0;
  } else {
    for (size_t i = 0; i < files.size(); ++i)
      any |= read(char(data[0]), files[i], int(i), job);
  }
  if (any)
    fuzz::accept();
  diagnose(job);
  diagnose(job, true);
  return 0;
}
