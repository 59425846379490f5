//===- DoctorBench.cpp - Speed of reading and explaining evidence ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// 512 Flight Recorder dumps of 2,000 entries with one inverted rank, then 2 GB
// of HCCL text, written to a temporary folder (about 0.9 GB and 2 GB, one after
// the other) and removed again. Prints rows in the format of `./run bench`.
//
//===----------------------------------------------------------------------===//

#include "BenchRows.h"
#include "concord/order/Evidence.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>

using namespace concord::order;
using namespace concord::order::evidence;
namespace fs = std::filesystem;

namespace {

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string members(uint32_t begin, uint32_t end, uint32_t step) {
  std::string out = "[";
  for (uint32_t r = begin; r < end; r += step)
    out += (r > begin ? ", " : "") + std::to_string(r);
  return out + "]";
}

void writeDump(const fs::path &folder, uint32_t rank) {
  uint32_t group = rank / 8, column = rank % 8;
  std::string names[] = {std::to_string(group), std::to_string(100 + column),
                         "200"};
  const char *descriptions[] = {"tp", "dp", "ep"};
  std::string ranks[] = {members(group * 8, group * 8 + 8, 1),
                         members(column, 512, 8), members(0, 512, 1)};
  std::string out = "{\"version\": \"2.10\", \"pg_config\": {";
  for (int k = 0; k < 3; ++k)
    out += std::string(k ? ", " : "") + "\"" + names[k] + "\": {\"name\": \"" +
           names[k] + "\", \"desc\": \"" + descriptions[k] +
           "\", \"ranks\": \"" + ranks[k] + "\"}";
  out += "}, \"pg_status\": {}, \"entries\": [";
  int seen[3] = {0, 0, 0};
  for (uint32_t i = 0; i < 2000; ++i) {
    int k = i % 4 < 2 ? 0 : i % 4 == 2 ? 1 : 2;
    if (rank == 77 && i >= 1990 && k > 0)
      k = 3 - k;
    ++seen[k];
    bool done = i < 1990;
    out += std::string(i ? ", " : "") + "{\"frames\": [";
    for (int f = 0; f < 3; ++f)
      out += std::string(f ? ", " : "") +
             "{\"name\": \"all_reduce\", \"filename\": "
             "\"/opt/lib/python3.11/site-packages/torch/distributed/"
             "distributed_c10d.py\", \"line\": 2801}";
    out += "], \"record_id\": " + std::to_string(i) +
           ", \"pg_id\": " + names[k] + ", \"process_group\": [\"" + names[k] +
           "\", \"" + descriptions[k] +
           "\"], \"collective_seq_id\": " + std::to_string(seen[k]) +
           ", \"p2p_seq_id\": 0, \"op_id\": " + std::to_string(i) +
           ", \"profiling_name\": \"nccl:all_reduce\", \"time_created_ns\": "
           "1769152667000000000, \"input_sizes\": [[4096, 1024]], "
           "\"output_sizes\": [[4096, 1024]], \"input_dtypes\": "
           "[\"BFloat16\"], \"output_dtypes\": [\"BFloat16\"], \"state\": \"" +
           (done ? "completed" : "scheduled") +
           "\", \"duration_ms\": null, \"retired\": " +
           (done || i == 1992 ? "true" : "false") +
           ", \"timeout_ms\": 600000, \"is_p2p\": false, \"thread_id\": \"1\"}";
  }
  std::ofstream(folder / ("trace_rank_" + std::to_string(rank) + ".json"))
      << out << "]}";
}

} // namespace

int main(int argc, char **argv) {
  BenchRows rows(argc, argv);
  char name[] = "/tmp/concord-bench-XXXXXX";
  fs::path folder = mkdtemp(name);
  for (uint32_t r = 0; r < 512; ++r)
    writeDump(folder, r);
  std::vector<ReadError> errors;
  double begin = now();
  {
    Job job = readEvidence({folder.string()}, {}, errors);
    Diagnosis d = diagnose(job);
    double seconds = now() - begin;
    bool named = !d.findings.empty() && d.findings[0].culprits[0] == 77;
    rows.add("512 ranks x 2000 entries", seconds, "s", 10,
             named && errors.empty() && seconds < 10);
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    double gib = double(usage.ru_maxrss) / (1 << 20);
    rows.add("peak memory", gib, "GiB", 2, gib < 2);
  }
  fs::remove_all(folder);
  fs::create_directory(folder);
  std::string block;
  for (uint32_t i = 0; i < 4000; ++i)
    block += "[INFO] HCCL(7,python):2026-01-23-15:17:47." +
             std::to_string(100 + i % 900) + ".000 [op_base.cc:321][7]" +
             (i % 4 ? "hcom: algorithm selection fullmesh ring, more of the "
                      "library's own chatter that is read over\n"
                    : "Entry-HcclAllReduce: tag[AllReduce_group_name_3], "
                      "sendBuf[0x12c041200000], recvBuf[0x12c041300000], "
                      "count[7168], dataType[bfp16], op[sum], localRank[0], "
                      "streamId[2],comm[0xaaaaaaaa], deviceLogicId[0]\n");
  uint64_t bytes = 0;
  {
    std::ofstream log(folder / "plog-7_1.log");
    for (; bytes < 2000000000; bytes += block.size())
      log << block;
  }
  begin = now();
  Job job = readEvidence({folder.string()}, {}, errors);
  double rate = double(bytes) / 1e6 / (now() - begin);
  rows.add("text logs", rate, "MB/s", 150, rate >= 150);
  fs::remove_all(folder);
  return rows.finish();
}
