//===- main.cpp - Speed of collectives ----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `comm-bench OP [options]`: starts itself once per rank and prints the table
// of nccl-tests, with percentiles and the efficiency against memory's
// bandwidth. Exit code 0, 1 when an element was wrong or a rank failed, 2 for
// bad usage.
//
//===----------------------------------------------------------------------===//

#include "Measure.h"
#include "concord/launch.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

using namespace concord::bench;

static std::string jsonRow(const Options &options, const Row &row) {
  char text[512];
  std::snprintf(text, sizeof text,
                "{\"op\":\"%s\",\"bytes\":%llu,\"ranks\":%d,\"dtype\":\"%s\","
                "\"redop\":\"%s\",\"time_us\":%.4f,\"time_in_place_us\":%.4f,"
                "\"p50_us\":%.4f,\"p99_us\":%.4f,\"algbw\":%.4f,\"busbw\":%.4f,"
                "\"eff\":%.4f,\"wrong\":%lld,\"peers\":{}}",
                kindText(options.kind), (unsigned long long)row.bytes,
                options.ranks, dtypeText(row.dtype).c_str(),
                reductionText(row.reduction), row.outOfPlace.micros,
                row.inPlace.micros, row.outOfPlace.p50, row.outOfPlace.p99,
                row.algorithmBandwidth, row.busBandwidth, row.efficiency,
                (long long)row.outOfPlace.wrong);
  return text;
}

static int runRank(const Options &options) {
  Bench bench(options);
  bool print = bench.rank() == 0;
  if (print) {
    std::printf("# comm-bench %s: %d ranks, buffers %s, %s\n#\n",
                kindText(options.kind), options.ranks,
                options.foreign ? "of malloc" : "in the symmetric heap",
                options.rotate ? "rotating" : "reused");
    std::printf("# %38s %35s %35s %8s\n", "", "out-of-place", "in-place", "");
    std::printf("# %10s %10s %8s %6s %8s %8s %8s %8s %8s %8s %8s %8s %6s\n",
                "size", "count", "type", "redop", "time", "algbw", "busbw",
                "#wrong", "p50", "p99", "time", "#wrong", "eff");
    std::printf("# %10s %10s %8s %6s %8s %8s %8s %8s %8s %8s %8s %8s\n", "(B)",
                "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                "(us)", "(us)", "");
  }
  double sum = 0;
  int rows = 0;
  bool wrong = false;
  std::string json;
  for (int32_t dtype : options.dtypes)
    for (int32_t reduction : options.reductions)
      for (uint64_t bytes = options.from; bytes <= options.to;) {
        Row row = bench.measure(bytes, dtype, reduction);
        wrong |= row.outOfPlace.wrong > 0 || row.inPlace.wrong > 0;
        sum += row.busBandwidth;
        ++rows;
        if (print) {
          std::printf("  %10llu %10llu %8s %6s %8.2f %8.2f %8.2f %8lld %8.2f "
                      "%8.2f %8.2f %8lld %6.2f\n",
                      (unsigned long long)row.bytes,
                      (unsigned long long)row.count, dtypeText(dtype).c_str(),
                      reductionText(reduction), row.outOfPlace.micros,
                      row.algorithmBandwidth, row.busBandwidth,
                      (long long)row.outOfPlace.wrong, row.outOfPlace.p50,
                      row.outOfPlace.p99, row.inPlace.micros,
                      (long long)row.inPlace.wrong, row.efficiency);
          std::fflush(stdout);
          json += (json.empty() ? "" : ",\n") + jsonRow(options, row);
        }
        uint64_t next = options.step ? bytes + options.step
                                     : uint64_t(double(bytes) * options.factor);
        if (next <= bytes)
          break;
        bytes = next;
      }
  if (print) {
    std::printf("# Avg bus bandwidth    : %.3f\n", rows ? sum / rows : 0);
    if (!options.jsonFile.empty()) {
      FILE *file = std::fopen(options.jsonFile.c_str(), "w");
      bool good =
          file && std::fprintf(file, "{\"rows\":[%s]}\n", json.c_str()) > 0;
      if (file)
        good &= std::fclose(file) == 0;
      if (!good) {
        std::fprintf(stderr, "comm-bench: %s: %s\n", options.jsonFile.c_str(),
                     std::strerror(errno));
        return 1;
      }
    }
  }
  return wrong ? 1 : 0;
}

int main(int argc, char **argv) {
  Options options;
  int code = 0;
  // getopt may reorder the arguments, which is harmless for the ranks.
  if (!parseOptions(argc, argv, options, code))
    return code;
  if (std::getenv("CONCORD_JOB_FD"))
    return runRank(options);
  char self[4096];
  ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) {
    std::fprintf(stderr, "comm-bench: cannot find itself\n");
    return 1;
  }
  self[n] = 0;
  std::vector<const char *> arguments(argv, argv + argc);
  arguments[0] = self;
  arguments.push_back(nullptr);
  concord_launch_config config{};
  config.struct_size = sizeof config;
  config.world = options.ranks;
  config.argv_all = arguments.data();
  config.bind_cores = 1;
  concord_launch_result result{};
  result.struct_size = sizeof result;
  int32_t status = concord_launch_job(&config, &result);
  if (status != CONCORD_OK)
    std::fprintf(stderr, "comm-bench: %s\n", result.message);
  return status == CONCORD_OK ? 0 : 1;
}
