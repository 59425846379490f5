//===- bench_fuse.cpp - Programs against each other, step by step ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `bench_fuse RANKS ROUNDS SECONDS COPY_BYTES PROGRAM.so...`: loads the
// programs into one job of pinned ranks, gives them the same inputs, and runs
// them in turns, ROUNDS times for about SECONDS each. Prints one line of JSON:
// per program and round the median step in microseconds (that of the slowest
// rank), the largest difference of outputs between the first program and each
// other with outputs of the same sizes, and the bytes that a core copies per
// second while all do, at COPY_BYTES. bench_fuse.py makes the programs. Started
// by mpirun it is one rank of the job, whose hosts may be namespaces of one
// machine: then BENCH_CORES names the core of each rank, "0,1".
//
//===----------------------------------------------------------------------===//

#include "concord/concord.h"
#include "concord/dtype.h"
#include "concord/launch.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <string>
#include <time.h>
#include <unistd.h>
#include <vector>

static double now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) * 1e6 + double(t.tv_nsec) * 1e-3;
}

static void check(int32_t status, const char *what) {
  if (status == CONCORD_OK)
    return;
  std::fprintf(stderr, "bench_fuse: %s: %s: %s\n", what,
               concord_status_name(status), concord_last_error());
  std::_Exit(1);
}

static float fromBits(int32_t dtype, const char *at) {
  float value = 0;
  if (dtype == CONCORD_DTYPE_F32) {
    std::memcpy(&value, at, 4);
  } else if (dtype == CONCORD_DTYPE_F16) {
    _Float16 half;
    std::memcpy(&half, at, 2);
    value = float(half);
  } else {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    uint32_t wide = uint32_t(bits) << 16;
    std::memcpy(&value, &wide, 4);
  }
  return value;
}

static void toBits(int32_t dtype, float value, char *at) {
  if (dtype == CONCORD_DTYPE_F32) {
    std::memcpy(at, &value, 4);
  } else if (dtype == CONCORD_DTYPE_F16) {
    _Float16 half = _Float16(value);
    std::memcpy(at, &half, 2);
  } else {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    uint16_t half = uint16_t((bits + 0x8000) >> 16);
    std::memcpy(at, &half, 2);
  }
}

namespace {

struct Program {
  concord_program *handle = nullptr;
  std::vector<concord_entry> outputs;
  std::vector<double> rounds;
  double difference = -1;
};

} // namespace

static void load(concord_context *context, const char *path, Program &program,
                 int32_t rank) {
  concord_program_options options{};
  options.struct_size = sizeof options;
  check(concord_program_load(context, path, &options, &program.handle), path);
  uint32_t count = 0;
  check(concord_program_num_inputs(program.handle, &count), path);
  for (uint32_t i = 0; i < count; ++i) {
    concord_entry entry{};
    entry.struct_size = sizeof entry;
    check(concord_program_input(program.handle, i, &entry), path);
    void *data = nullptr;
    check(concord_program_input_data(program.handle, i, &data), path);
    uint64_t element =
        concord::dtypeSize(static_cast<concord::DType>(entry.dtype));
    if (entry.dtype != CONCORD_DTYPE_F32 && entry.dtype != CONCORD_DTYPE_F16 &&
        entry.dtype != CONCORD_DTYPE_BF16) {
      // Masks, and indices into tables: one is good for both.
      std::memset(data, 0, entry.local_bytes);
      for (uint64_t j = 0; j < entry.local_bytes; j += element)
        static_cast<char *>(data)[j] = 1;
      continue;
    }
    for (uint64_t j = 0; j < entry.local_bytes / element; ++j) {
      // A replicated input is the same at all ranks.
      bool same = std::strstr(entry.sharding_json, "replicated");
      uint64_t hash = (j + i * 1000003 + uint64_t(same ? 0 : rank) * 7919) *
                      0x9e3779b97f4a7c15;
      toBits(entry.dtype, float(int(hash >> 40 & 0xffff) - 32768) / 65536,
             static_cast<char *>(data) + j * element);
    }
  }
  check(concord_program_num_outputs(program.handle, &count), path);
  for (uint32_t i = 0; i < count; ++i) {
    concord_entry entry{};
    entry.struct_size = sizeof entry;
    check(concord_program_output(program.handle, i, &entry), path);
    program.outputs.push_back(entry);
  }
}

static double compare(Program &a, Program &b) {
  if (a.outputs.size() != b.outputs.size())
    return -1;
  double worst = 0;
  for (uint32_t i = 0; i < a.outputs.size(); ++i) {
    if (a.outputs[i].local_bytes != b.outputs[i].local_bytes ||
        a.outputs[i].dtype != b.outputs[i].dtype)
      return -1;
    void *x = nullptr, *y = nullptr;
    check(concord_program_output_data(a.handle, i, &x), "output");
    check(concord_program_output_data(b.handle, i, &y), "output");
    uint64_t element = a.outputs[i].dtype == CONCORD_DTYPE_F32 ? 4 : 2;
    for (uint64_t j = 0; j < a.outputs[i].local_bytes; j += element) {
      double u = fromBits(a.outputs[i].dtype, static_cast<char *>(x) + j);
      double v = fromBits(a.outputs[i].dtype, static_cast<char *>(y) + j);
      worst = std::max(worst, std::abs(u - v) / (1 + std::abs(u)));
      if (!std::isfinite(u) || !std::isfinite(v))
        worst = INFINITY;
    }
  }
  return worst;
}

/// Binds this thread to the core that BENCH_CORES has for the rank.
static void bindTo(int32_t rank) {
  const char *list = std::getenv("BENCH_CORES");
  for (; list && rank > 0; --rank) {
    list = std::strchr(list, ',');
    list = list ? list + 1 : nullptr;
  }
  if (!list || *list < '0' || *list > '9')
    return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(std::atoi(list), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0)
    std::perror("bench_fuse: cannot bind to a core");
}

static int runRank(int argc, char **argv) {
  concord_context *context = nullptr;
  concord_comm *world = nullptr;
  int32_t rank = 0, ranks = 0;
  check(concord_context_create(nullptr, &context), "context");
  check(concord_context_rank(context, &rank, &ranks), "rank");
  // Not before: to the runtime ranks of one machine that are bound to fewer
  // cores than there are ranks have to share them.
  bindTo(rank);
  check(concord_comm_world(context, &world), "world");
  int rounds = std::atoi(argv[2]);
  double budget = std::atof(argv[3]) * 1e6;
  size_t copyBytes = size_t(std::atoll(argv[4]));
  auto greatest = [&](double value) {
    double result = value;
    check(concord_all_reduce(world, &value, &result, 1, CONCORD_DTYPE_F64,
                             CONCORD_REDUCTION_MAX, nullptr),
          "all_reduce");
    return result;
  };
  std::vector<Program> programs(size_t(argc - 5));
  std::vector<size_t> steps;
  for (size_t i = 0; i < programs.size(); ++i) {
    load(context, argv[5 + i], programs[i], rank);
    check(concord_program_step(programs[i].handle), argv[5 + i]);
    double begin = now();
    for (int j = 0; j < 3; ++j)
      check(concord_program_step(programs[i].handle), argv[5 + i]);
    double each = std::max(1.0, greatest((now() - begin) / 3));
    steps.push_back(size_t(std::clamp(budget / each, 5.0, 20000.0)));
    if (i)
      programs[i].difference = greatest(compare(programs[0], programs[i]));
  }
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < programs.size(); ++i) {
      std::vector<double> times;
      for (size_t step = 0; step < steps[i]; ++step) {
        check(concord_barrier(world, nullptr), "barrier");
        double begin = now();
        check(concord_program_step(programs[i].handle), argv[5 + i]);
        times.push_back(now() - begin);
      }
      std::nth_element(times.begin(), times.begin() + long(times.size() / 2),
                       times.end());
      programs[i].rounds.push_back(greatest(times[times.size() / 2]));
    }
  // Bytes that a copy reads and writes, all ranks at once.
  std::vector<char> from(copyBytes / 2 + 1, 1), to(copyBytes / 2 + 1, 2);
  double best = 0;
  for (int i = 0; i < 15; ++i) {
    check(concord_barrier(world, nullptr), "barrier");
    double begin = now();
    std::memcpy(to.data(), from.data(), copyBytes / 2);
    asm volatile("" : : "r"(to.data()) : "memory");
    best = std::max(best, double(copyBytes) / ((now() - begin) * 1e-6));
  }
  double rate = -greatest(-best);
  if (rank == 0) {
    std::printf("{\"copy\":%.6g,\"programs\":[", rate);
    for (size_t i = 0; i < programs.size(); ++i) {
      std::printf("%s{\"difference\":%.6g,\"rounds\":[", i ? "," : "",
                  std::isfinite(programs[i].difference) ? programs[i].difference
                                                        : 1e30);
      for (size_t j = 0; j < programs[i].rounds.size(); ++j)
        std::printf("%s%.4f", j ? "," : "", programs[i].rounds[j]);
      std::printf("]}");
    }
    std::printf("]}\n");
  }
  for (Program &program : programs)
    check(concord_program_unload(program.handle), "unload");
  check(concord_context_finalize(context), "finalize");
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: bench_fuse RANKS ROUNDS SECONDS COPY_BYTES "
                         "PROGRAM.so...\n");
    return 2;
  }
  for (const char *launched :
       {"CONCORD_JOB_FD", "OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (std::getenv(launched))
      return runRank(argc, argv);
  char self[4096];
  ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) {
    std::fprintf(stderr, "bench_fuse: cannot find itself\n");
    return 1;
  }
  self[n] = 0;
  std::vector<const char *> arguments(argv, argv + argc);
  arguments[0] = self;
  arguments.push_back(nullptr);
  concord_launch_config config{};
  config.struct_size = sizeof config;
  config.world = std::atoi(argv[1]);
  config.argv_all = arguments.data();
  config.bind_cores = 1;
  concord_launch_result result{};
  result.struct_size = sizeof result;
  int32_t status = concord_launch_job(&config, &result);
  if (status != CONCORD_OK)
    std::fprintf(stderr, "bench_fuse: %s\n", result.message);
  return status == CONCORD_OK ? 0 : 1;
}
