//===- bench_fuse.cpp - Programs against each other, step by step ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `bench_fuse RANKS ROUNDS SECONDS COPY_BYTES PROGRAM.so...`: loads the
// programs into one job of pinned ranks, gives them the same inputs, and runs
// them in turns, ROUNDS times for about SECONDS each; every second round goes
// through them from the last to the first, so that none always follows the same
// one. A path that is given again is the same program, with the same buffers:
// how much it differs from itself. Prints one line of JSON: per program and
// round the median step in microseconds (that of the slowest rank), the largest
// difference of outputs between the first program and each other with outputs
// of the same sizes, and the bytes that a core copies per second while all do,
// at COPY_BYTES. bench_fuse.py makes the programs. Started by mpirun it is one
// rank of the job, whose hosts may be namespaces of one machine: then
// BENCH_CORES names the core of each rank, "0,1".
//
// BENCH_PEER="NAME KIND TYPE ROOT M N K GROUPS" lets a team of another library
// (bench/peers/onednn.cpp) take the last turn of each round: every rank waits
// for its counterpart at the abstract socket NAME-RANK, once rank 0 has printed
// "listening", and sleeps while that one measures.
//
//===----------------------------------------------------------------------===//

#include "concord/concord.h"
#include "concord/dtype.h"
#include "concord/launch.h"
#include "peers/Station.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <sstream>
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
  bool again = false; ///< the handle is that of a program before
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

namespace {

using concord::bench::Command;

/// This rank's counterpart in a team of another library.
class Peer {
public:
  bool exists() const { return !name.empty(); }

  void listen(int32_t rank) {
    const char *text = std::getenv("BENCH_PEER");
    if (!text)
      return;
    std::istringstream words(text);
    auto &[m, n, k, groups] = pair.arguments;
    words >> name >> pair.call.kind >> pair.call.type >> pair.call.root >> m >>
        n >> k >> groups;
    require(bool(words), "BENCH_PEER cannot be read");
    name += "-" + std::to_string(rank);
    listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    require(listener >= 0 && name.size() + 1 < sizeof at.sun_path,
            "no socket for the peer");
    std::memcpy(at.sun_path + 1, name.data(), name.size());
    auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    require(::bind(listener, reinterpret_cast<sockaddr *>(&at), length) == 0 &&
                ::listen(listener, 1) == 0,
            "the peer's socket cannot be made");
  }

  /// The relative error of what the peer computes; NaN where it can't.
  double meet() {
    pollfd wait{listener, POLLIN, 0};
    require(::poll(&wait, 1, 60000) == 1, "the peer did not come in 60 s");
    socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    concord::bench::Hello hello;
    read(&hello, sizeof hello);
    require(hello.magic == concord::bench::kMagic, "not the peer");
    hello.version[sizeof hello.version - 1] = 0;
    version = hello.version;
    pair.verb = concord::bench::kSpecial;
    pair.inPlace = concord::bench::kPairMake;
    std::vector<double> error = ask(pair);
    return error.empty() ? NAN : error[0];
  }
  std::vector<double> turn(size_t steps) {
    Command command = pair;
    command.inPlace = concord::bench::kPairTurn;
    command.arguments[0] = steps;
    return ask(command);
  }
  void leave() {
    Command command;
    command.verb = concord::bench::kQuit;
    write(&command, sizeof command);
  }

  std::string version;

private:
  static void require(bool good, const char *what) {
    if (good)
      return;
    std::fprintf(stderr, "bench_fuse: %s\n", what);
    std::_Exit(1);
  }
  std::vector<double> ask(const Command &command) {
    write(&command, sizeof command);
    concord::bench::Reply reply;
    read(&reply, sizeof reply);
    require(reply.status == 0, "the peer failed");
    std::vector<double> numbers(reply.numbers);
    read(numbers.data(), numbers.size() * sizeof(double));
    return numbers;
  }
  void read(void *to, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
      ssize_t n = ::read(socket, static_cast<char *>(to) + at, bytes - at);
      require(n > 0, "the peer is gone");
      at += size_t(n);
    }
  }
  void write(const void *from, size_t bytes) {
    require(::write(socket, from, bytes) == ssize_t(bytes), "the peer is gone");
  }

  std::string name;
  Command pair;
  int listener = -1, socket = -1;
};

} // namespace

static double median(std::vector<double> values) {
  auto middle = values.begin() + long(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
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
  std::vector<double> peerRounds;
  size_t peerSteps = 0;
  double peerError = 0;
  bool peerHas = false; // the same product
  Peer peer;
  peer.listen(rank);
  for (size_t i = 0; i < programs.size(); ++i) {
    size_t former = 0;
    while (std::strcmp(argv[5 + former], argv[5 + i]) != 0)
      ++former;
    if (former < i) {
      programs[i].handle = programs[former].handle;
      programs[i].outputs = programs[former].outputs;
      programs[i].again = true;
      programs[i].difference = former ? programs[former].difference : 0;
      steps.push_back(steps[former]);
      continue;
    }
    load(context, argv[5 + i], programs[i], rank);
    check(concord_program_step(programs[i].handle), argv[5 + i]);
    double begin = now();
    for (int j = 0; j < 3; ++j)
      check(concord_program_step(programs[i].handle), argv[5 + i]);
    double each = std::max(1.0, greatest((now() - begin) / 3));
    steps.push_back(size_t(std::clamp(budget / each, 1.0, 20000.0)));
    if (i)
      programs[i].difference = greatest(compare(programs[0], programs[i]));
  }
  if (peer.exists()) {
    if (rank == 0) {
      std::printf("listening\n");
      std::fflush(stdout);
    }
    double error = peer.meet();
    peerHas = !std::isnan(error);
    peerError = greatest(peerHas ? error : 0);
  }
  if (peerHas) {
    double each = std::max(1.0, greatest(median(peer.turn(5))));
    peerSteps = size_t(std::clamp(budget / each, 1.0, 20000.0));
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t j = 0; j < programs.size(); ++j) {
      size_t i = round % 2 ? programs.size() - 1 - j : j;
      std::vector<double> times;
      // The first step finds the caches full of the program before.
      for (size_t step = 0; step <= steps[i]; ++step) {
        check(concord_barrier(world, nullptr), "barrier");
        double begin = now();
        check(concord_program_step(programs[i].handle), argv[5 + i]);
        if (step)
          times.push_back(now() - begin);
      }
      programs[i].rounds.push_back(greatest(median(times)));
    }
    if (peerHas) {
      std::vector<double> times = peer.turn(peerSteps + 1);
      times.erase(times.begin());
      peerRounds.push_back(greatest(median(times)));
    }
  }
  if (peer.exists())
    peer.leave();
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
  // A barrier is a flag of each rank, seen by all others.
  double flag = INFINITY;
  for (int i = 0; i < 20; ++i) {
    constexpr int kBarriers = 100;
    double begin = now();
    for (int j = 0; j < kBarriers; ++j)
      check(concord_barrier(world, nullptr), "barrier");
    flag = std::min(flag, (now() - begin) / kBarriers);
  }
  flag = greatest(flag);
  if (rank == 0) {
    auto list = [](const std::vector<double> &values) {
      for (size_t j = 0; j < values.size(); ++j)
        std::printf("%s%.4f", j ? "," : "", values[j]);
    };
    std::printf("{\"copy\":%.6g,\"flag\":%.6g,", rate, flag);
    if (peer.exists()) {
      std::printf("\"peer\":{\"version\":\"%s\",\"error\":%.6g,\"rounds\":[",
                  peer.version.c_str(), peerError);
      list(peerRounds);
      std::printf("]},");
    }
    std::printf("\"programs\":[");
    for (size_t i = 0; i < programs.size(); ++i) {
      std::printf("%s{\"difference\":%.6g,\"rounds\":[", i ? "," : "",
                  std::isfinite(programs[i].difference) ? programs[i].difference
                                                        : 1e30);
      list(programs[i].rounds);
      std::printf("]}");
    }
    std::printf("]}\n");
  }
  for (Program &program : programs)
    if (!program.again)
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
