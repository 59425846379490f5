//===- Options.cpp - The command line of comm-bench ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parsing and help.
//
//===----------------------------------------------------------------------===//

#include "Options.h"
#include "Peers.h"

#include "../../bench/peers/Station.h"
#include "concord/cost/Machine.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <getopt.h>
#include <map>
#include <numeric>

using namespace concord::bench;

static const char kHelp[] =
    "usage: comm-bench OPERATION [options]\n"
    "       comm-bench --calibrate[=FILE] [-n RANKS]\n"
    "       comm-bench --limits [-n RANKS]\n"
    "       mpirun -n RANKS --host A,B comm-bench OPERATION [options]\n\n"
    "Starts N ranks on this host, or is started once per rank by mpirun, and\n"
    "measures one collective operation, with the flags, columns and bandwidth\n"
    "formulas of nccl-tests. One deviation: -n is the number of ranks, "
    "--iters\n"
    "the iterations. The spellings of hccl_test are understood, too:\n"
    "all_reduce_test -p RANKS -n ITERATIONS, -d fp32|fp16|bfp16|...\n\n"
    "OPERATION is one of all_reduce, all_gather, reduce_scatter, all_to_all,\n"
    "broadcast, reduce, gather, scatter, permute (to the next rank), "
    "send_recv\n"
    "(the same by messages), barrier; allreduce, alltoall, ... and the ending\n"
    "_perf or _test are understood.\n\n"
    "  -n, --ranks N       number of ranks (2)\n"
    "  -p, --npus N        the same; -n is then the number of iterations\n"
    "  -g N, -t N          of nccl-tests: their product is the number of "
    "ranks\n"
    "  -b, --minbytes S    first size, suffix K, M or G (8)\n"
    "  -e, --maxbytes S    last size (64M)\n"
    "  -i, --stepbytes S   add S per row, instead of\n"
    "  -f, --stepfactor F  multiply by F per row (2)\n"
    "  -o, --op R          sum, prod, min, max, avg, and, or, all (sum)\n"
    "  -d, --datatype T    float, half, bfloat16, double, int8, uint8, int32,\n"
    "                      uint32, int64, uint64, all (float)\n"
    "  -r, --root R        root of rooted operations, or all (0)\n"
    "      --iters N       iterations per turn and row (default: by time)\n"
    "      --rounds N      turns of every team per row (9)\n"
    "  -w, --warmup_iters N  not timed, at the begin of every turn (2)\n"
    "  -N, --run_cycles N  go through the sizes N times, 0: without end (1)\n"
    "  -T, --timeout S     give up on an answer after S seconds (600)\n"
    "  -a, --average A     over ranks: 0 rank 0, 1 average, 2 least, 3 "
    "greatest\n"
    "                      (1)\n"
    "  -c, --check 0|1     check every element of the result (1)\n"
    "  -R, --local_register 0|1|2  Concord's buffers: 0 of malloc, 1 of "
    "malloc\n"
    "                      and registered, 2 in the symmetric heap (2)\n"
    "      --rotate 0|1    1: a different buffer every iteration, of all "
    "ranks\n"
    "                      together far larger than the last-level cache;\n"
    "                      0: always the same (1)\n"
    "      --peer LIST     measure other libraries in turns with Concord in "
    "the\n"
    "                      same run: openmpi, mpich, gloo; compiled when "
    "first\n"
    "                      asked for. Their columns: time and its ratio to\n"
    "                      Concord's (above 1: Concord is faster)\n"
    "      --split G       \"MOD 2\", \"DIV 2\", \"AND 1\", \"OR 1\": one "
    "communicator\n"
    "                      per value of rank G, all at once; sizes and busbw "
    "are\n"
    "                      of one group\n"
    "      --flood         latency of the operation at high priority, alone "
    "and\n"
    "                      while one of 64 MiB at low priority runs\n"
    "      --issue-path    system calls of the operation but for those that "
    "sleep,\n"
    "                      and, where libconcord_memcount.so is preloaded, "
    "calls of\n"
    "                      the memory functions; 1 when there are any\n"
    "      --pairs         latency and bandwidth of messages between all "
    "pairs\n"
    "      --skew          how much later than the first each rank arrives\n"
    "      --explain       how each row was done, and why\n"
    "      --limits        beside each row the limit of this host: the time of "
    "a\n"
    "                      bare loop of the loads, stores and flags that the\n"
    "                      operation cannot do without, in the same turns;\n"
    "                      without an operation, a table of these loops\n"
    "      --link RATE     the rate of the link between hosts, as in 1gbit; "
    "without\n"
    "                      it, the best that messages have reached in the run\n"
    "      --calibrate[=FILE]  measure what the cost model and the choice of "
    "forms\n"
    "                      need, and write it; without FILE where passes and "
    "ranks\n"
    "                      of this kind of processor look for it\n"
    "  -J, --json FILE     also write the rows as JSON\n"
    "      --baseline FILE compare with the rows of a former -J FILE\n"
    "      --plot FILE.svg also draw time over size\n\n"
    "A size is that of the whole array, as in nccl-tests. time is in us, the\n"
    "median over turns; algbw is size / time in GB/s; busbw is algbw times "
    "the\n"
    "bytes that each rank has to send by size; eff is the time that the least\n"
    "number of bytes loaded and stored, and of flags, takes at the bandwidth "
    "of\n"
    "memory and the latency of a flag, measured in the same turns on all ranks "
    "at\n"
    "once with the same footprint, divided by the time. Above 1.05 it is a\n"
    "measurement error and the run fails.\n\n"
    "Between hosts eff is against the least bytes that have to enter or leave "
    "a\n"
    "host at the bandwidth of the link, and one message's latency.\n\n"
    "Exit codes: 0, 1 wrong elements, a failed rank or a measurement error, 2\n"
    "bad usage or a peer that is not installed.\n";

const char *concord::bench::kindText(int32_t kind) {
  if (kind == kSendRecv)
    return "send_recv";
  switch (kind) {
#define X(name, number, text)                                                  \
  case number:                                                                 \
    return text;
    CONCORD_KINDS(X)
#undef X
  default:
    return "?";
  }
}

const char *concord::bench::reductionText(int32_t reduction) {
  switch (reduction) {
#define X(name, number, text)                                                  \
  case number:                                                                 \
    return text;
    CONCORD_REDUCTIONS(X)
#undef X
  default:
    return "?";
  }
}

static const struct {
  const char *name;
  int32_t dtype;
} kTypes[] = {{"float", CONCORD_DTYPE_F32},     {"half", CONCORD_DTYPE_F16},
              {"bfloat16", CONCORD_DTYPE_BF16}, {"double", CONCORD_DTYPE_F64},
              {"int8", CONCORD_DTYPE_I8},       {"uint8", CONCORD_DTYPE_U8},
              {"int32", CONCORD_DTYPE_I32},     {"uint32", CONCORD_DTYPE_U32},
              {"int64", CONCORD_DTYPE_I64},     {"uint64", CONCORD_DTYPE_U64}};

/// What hccl_test calls them.
static const struct {
  const char *name, *meaning;
} kOtherTypes[] = {{"fp32", "float"},     {"fp16", "half"},
                   {"bfp16", "bfloat16"}, {"fp64", "double"},
                   {"float32", "float"},  {"float16", "half"},
                   {"bf16", "bfloat16"},  {"float64", "double"}};

/// "alltoall_perf" -> "all_to_all"
static std::string operationName(std::string name) {
  for (const char *ending : {"_perf", "_test"})
    if (name.size() > 5 && name.compare(name.size() - 5, 5, ending) == 0)
      name.resize(name.size() - 5);
  static const char *const kSame[][2] = {{"allreduce", "all_reduce"},
                                         {"allgather", "all_gather"},
                                         {"reducescatter", "reduce_scatter"},
                                         {"alltoall", "all_to_all"},
                                         {"sendrecv", "send_recv"}};
  for (const auto &[other, own] : kSame)
    if (name == other)
      return own;
  return name;
}

std::string concord::bench::dtypeText(int32_t dtype) {
  for (const auto &type : kTypes)
    if (type.dtype == dtype)
      return type.name;
  return "?";
}

static bool parseSize(const char *text, uint64_t &value) {
  char *end;
  double number = std::strtod(text, &end);
  if (end == text || !(number >= 0 && number <= 0x1p60))
    return false;
  uint64_t unit = 1;
  switch (*end) {
  case 'k':
  case 'K':
    unit = 1 << 10;
    break;
  case 'm':
  case 'M':
    unit = 1 << 20;
    break;
  case 'g':
  case 'G':
    unit = 1 << 30;
    break;
  }
  end += unit != 1;
  value = uint64_t(number * double(unit));
  return *end == 0 && value <= uint64_t(16) << 30;
}

static bool parseFactor(const char *text, double &factor) {
  char *end;
  factor = std::strtod(text, &end);
  return end != text && *end == 0 && factor > 1 && std::isfinite(factor);
}

/// A whole number and nothing else, within bounds.
static bool parseWhole(const std::string &text, int least, int most,
                       int &value) {
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() &&
         value >= least && value <= most;
}

/// Bits per second, as tc writes them: 1gbit, 200mbit.
static bool parseRate(const char *text, double &bytes) {
  char *end;
  double number = std::strtod(text, &end);
  static const struct {
    const char *unit;
    double factor;
  } kUnits[] = {
      {"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"tbit", 1e12}};
  for (const auto &[unit, factor] : kUnits)
    if (end != text && number > 0 && std::string(end) == unit) {
      bytes = number * factor / 8;
      return true;
    }
  return false;
}

bool concord::bench::parseOptions(int argc, char **argv, Options &options,
                                  int &code) {
  static const option kLong[] = {{"ranks", 1, nullptr, 'n'},
                                 {"minbytes", 1, nullptr, 'b'},
                                 {"maxbytes", 1, nullptr, 'e'},
                                 {"stepbytes", 1, nullptr, 'i'},
                                 {"stepfactor", 1, nullptr, 'f'},
                                 {"op", 1, nullptr, 'o'},
                                 {"datatype", 1, nullptr, 'd'},
                                 {"root", 1, nullptr, 'r'},
                                 {"iters", 1, nullptr, 1},
                                 {"warmup_iters", 1, nullptr, 'w'},
                                 {"average", 1, nullptr, 'a'},
                                 {"check", 1, nullptr, 'c'},
                                 {"local_register", 1, nullptr, 'R'},
                                 {"rotate", 1, nullptr, 2},
                                 {"npus", 1, nullptr, 'p'},
                                 {"ngpus", 1, nullptr, 'g'},
                                 {"nthreads", 1, nullptr, 't'},
                                 {"blocking", 1, nullptr, 'z'},
                                 {"agg_iters", 1, nullptr, 'm'},
                                 {"cudagraph", 1, nullptr, 'G'},
                                 {"report_cputime", 1, nullptr, 'C'},
                                 {"report_timestamps", 1, nullptr, 'S'},
                                 {"stream_null", 1, nullptr, 'y'},
                                 {"cta_policy", 1, nullptr, 'x'},
                                 {"run_cycles", 1, nullptr, 'N'},
                                 {"timeout", 1, nullptr, 'T'},
                                 {"rounds", 1, nullptr, 3},
                                 {"peer", 1, nullptr, 4},
                                 {"split", 1, nullptr, 5},
                                 {"flood", 0, nullptr, 6},
                                 {"pairs", 0, nullptr, 7},
                                 {"skew", 0, nullptr, 8},
                                 {"baseline", 1, nullptr, 9},
                                 {"plot", 1, nullptr, 10},
                                 {"explain", 0, nullptr, 11},
                                 {"calibrate", 2, nullptr, 12},
                                 {"link", 1, nullptr, 13},
                                 {"limits", 0, nullptr, 14},
                                 {"issue-path", 0, nullptr, 15},
                                 {"json", 1, nullptr, 'J'},
                                 {"output_file", 1, nullptr, 'J'},
                                 {"version", 0, nullptr, 16},
                                 {"help", 0, nullptr, 'h'},
                                 {nullptr, 0, nullptr, 0}};
  int number = 0, npus = 0, perThread = 1, whole = 0;
  bool sized = false, ofNcclTests = false, allRoots = false;
  code = 2;
  auto bad = [&](const char *what, const char *value) {
    if (!options.quiet)
      std::fprintf(stderr, "comm-bench: %s '%s'; see --help\n", what, value);
    return false;
  };
  if (options.quiet)
    opterr = 0;
  for (int c; (c = getopt_long(argc, argv,
                               "n:p:g:t:b:e:i:f:o:d:r:w:a:c:R:J:z:m:G:C:S:y:"
                               "x:N:T:h",
                               kLong, nullptr)) != -1;) {
    std::string value = optarg ? optarg : "";
    bool good = true;
    sized |= c == 'b' || c == 'e' || c == 'i' || c == 'f';
    switch (c) {
    case 'g':
    case 't': // nccl-tests: devices per thread, and threads
      ofNcclTests = true;
      good = parseWhole(value, 1, 64, whole);
      perThread *= good ? whole : 1;
      break;
    case 'z':
      break; // every operation is waited for in any case
    case 'm':
      if (value != "1")
        return bad("operations are not aggregated here: -m", value.c_str());
      break;
    case 'G':
    case 'C':
    case 'S':
    case 'y':
    case 'x':
      if (value != "0")
        return bad(c == 'G'   ? "there are no graphs of a device here: -G"
                   : c == 'C' ? "times are those of the clock: -C"
                   : c == 'S' ? "rows have no time of day: -S"
                   : c == 'y' ? "there are no streams of a device here: -y"
                              : "there are no thread blocks here: -x",
                   value.c_str());
      break;
    case 'N':
      good = parseWhole(value, 0, INT_MAX, options.cycles);
      break;
    case 'T':
      good = parseWhole(value, 0, INT_MAX, options.timeout);
      break;
    case 'n':
      good = parseWhole(value, 1, INT_MAX, number);
      break;
    case 'p':
      good = parseWhole(value, 1, 64, npus);
      break;
    case 'b':
      good = parseSize(value.c_str(), options.from);
      break;
    case 'e':
      good = parseSize(value.c_str(), options.to);
      break;
    case 'i':
      good = parseSize(value.c_str(), options.step) && options.step > 0;
      break;
    case 'f':
      good = parseFactor(value.c_str(), options.factor);
      break;
    case 'o':
      options.reductions.clear();
      for (int r = CONCORD_REDUCTION_SUM; r <= CONCORD_REDUCTION_OR; ++r)
        if (value == reductionText(r) ||
            (value == "all" && r <= CONCORD_REDUCTION_AVG))
          options.reductions.push_back(r);
      good = !options.reductions.empty();
      break;
    case 'd':
      for (const auto &[other, meaning] : kOtherTypes)
        if (value == other)
          value = meaning;
      options.dtypes.clear();
      for (const auto &type : kTypes)
        if (value == type.name || value == "all")
          options.dtypes.push_back(type.dtype);
      good = !options.dtypes.empty();
      break;
    case 'r':
      allRoots = value == "all";
      good = allRoots || parseWhole(value, -1, INT_MAX, options.roots[0]);
      break;
    case 1:
      good = parseWhole(value, 1, INT_MAX, options.iterations);
      break;
    case 'w':
      good = parseWhole(value, 0, INT_MAX, options.warmup);
      break;
    case 'a':
      good = parseWhole(value, 0, 3, options.aggregate);
      break;
    case 'c':
      good = parseWhole(value, 0, INT_MAX, whole); // nccl-tests: how often
      options.check = whole != 0;
      break;
    case 'R':
      good = parseWhole(value, 0, 2, options.memory);
      break;
    case 3:
      good = parseWhole(value, 1, 1000, options.rounds);
      break;
    case 4:
      for (size_t at = 0; at <= value.size();) {
        size_t end = std::min(value.find(',', at), value.size());
        std::string name = value.substr(at, end - at);
        if (options.launched && name == "mpi")
          name = options.launcher;
        if (options.launched && name != options.launcher)
          return bad(("the ranks were started by the mpirun of " +
                      options.launcher +
                      ", so no other library can be the peer:")
                         .c_str(),
                     name.c_str());
        if (!knownPeer(name))
          return bad(("unknown peer (there are " + peerNames() + "):").c_str(),
                     name.c_str());
        if (std::find(options.peers.begin(), options.peers.end(), name) ==
            options.peers.end())
          options.peers.push_back(name);
        at = end + 1;
      }
      break;
    case 5: {
      int color;
      options.split = value;
      good = !value.empty() && splitColor(value, 0, color);
      break;
    }
    case 6:
      options.flood = true;
      break;
    case 7:
      options.pairs = true;
      break;
    case 8:
      options.skew = true;
      break;
    case 9:
      options.baselineFile = value;
      break;
    case 11:
      options.explain = true;
      break;
    case 12:
      // FILE may stand apart, too.
      if (value.empty() && optind < argc && argv[optind][0] != '-')
        value = argv[optind++];
      options.calibrateFile =
          value.empty() ? concord::cost::defaultCalibrationPath() : value;
      if (options.calibrateFile.empty())
        return bad("neither XDG_CACHE_HOME nor HOME is set; name a file after",
                   "--calibrate");
      break;
    case 14:
      options.limits = true;
      break;
    case 15:
      options.issuePath = true;
      break;
    case 13:
      good = parseRate(value.c_str(), options.linkRate);
      break;
    case 10:
      options.plotFile = value;
      break;
    case 2:
      good = parseWhole(value, 0, 1, whole);
      options.rotate = whole != 0;
      break;
    case 'J':
      options.jsonFile = value;
      break;
    case 'h':
      if (!options.quiet)
        std::printf("%s\nThe calibration of this host:\n  %s\n", kHelp,
                    concord::cost::defaultCalibrationPath().c_str());
      code = 0;
      return false;
    case 16:
      if (!options.quiet)
        std::printf("comm-bench, Concord %d.%d.%d, ABI %d\n",
                    CONCORD_VERSION_MAJOR, CONCORD_VERSION_MINOR,
                    CONCORD_VERSION_PATCH, CONCORD_ABI_VERSION);
      code = 0;
      return false;
    default:
      if (!options.quiet)
        std::fprintf(stderr, "comm-bench: see --help\n");
      return false;
    }
    if (!good) {
      std::string name = std::string("-") + char(c);
      for (const option &entry : kLong)
        if (c < ' ' && entry.name && entry.val == c)
          name = std::string("--") + entry.name;
      return bad(("not a usable value of " + name + ":").c_str(),
                 value.c_str());
    }
  }
  bool calibrating = !options.calibrateFile.empty();
  options.limitsAlone = options.limits && optind == argc && !calibrating;
  if (options.limitsAlone) {
    static char any[] = "all_reduce";
    static char *implied[] = {any, nullptr};
    argv = implied;
    argc = 1;
    optind = 0;
    if (!sized) {
      options.to = uint64_t(16) << 20;
      options.factor = 8;
    }
  }
  if (calibrating && optind == argc) {
    // All operations; enough sizes for a line or two each.
    static char all[] = "all_reduce";
    static char *implied[] = {all, nullptr};
    argv = implied;
    argc = 1;
    optind = 0;
    if (options.to > uint64_t(16) << 20)
      options.to = uint64_t(16) << 20;
  } else if (calibrating) {
    return bad("--calibrate measures all operations; none can be named:",
               argv[optind]);
  }
  if (optind + 1 != argc)
    return bad("one operation is needed, not",
               optind < argc ? argv[argc - 1] : "none");
  // With another tool's way of giving the ranks, -n is what it is there.
  if (npus || ofNcclTests) {
    options.ranks = npus ? npus : perThread;
    if (number)
      options.iterations = number;
  } else if (number) {
    options.ranks = number;
  }
  if (options.launched) {
    if ((npus || number || ofNcclTests) && options.ranks != options.launched)
      return bad(("the launcher has started " +
                  std::to_string(options.launched) + " ranks, not")
                     .c_str(),
                 std::to_string(options.ranks).c_str());
    options.ranks = options.launched;
    for (const auto &[name, given] : {std::pair("--flood", options.flood),
                                      {"--skew", options.skew},
                                      {"--limits", options.limits},
                                      {"--issue-path", options.issuePath},
                                      {"--calibrate", calibrating}})
      if (given)
        return bad("ranks that a launcher has started may have different "
                   "clocks; without it there is",
                   name);
  } else if (options.linkRate > 0) {
    return bad("there is no link between the ranks of one host:", "--link");
  }
  if (options.ranks > 64)
    return bad("a job has 1 to 64 ranks on one host, not",
               std::to_string(options.ranks).c_str());
  std::string operation = operationName(argv[optind]);
  for (int kind = CONCORD_KIND_ALL_REDUCE; kind <= CONCORD_KIND_BARRIER; ++kind)
    if (operation == kindText(kind) && kind != CONCORD_KIND_RECV)
      options.kind = kind;
  if (!options.kind)
    return bad("unknown operation", argv[optind]);
  if (!options.split.empty()) {
    // busbw has one formula per row, so groups are of one size.
    std::map<int, int> sizes;
    for (int r = 0; r < options.ranks; ++r) {
      int color = 0;
      splitColor(options.split, r, color);
      ++sizes[color];
    }
    for (auto [color, size] : sizes)
      if (size != sizes.begin()->second)
        return bad("the groups differ in size: --split", options.split.c_str());
    options.groupSize = sizes.begin()->second;
    for (const char *peer : {"gloo", "oneccl"})
      if (std::find(options.peers.begin(), options.peers.end(), peer) !=
          options.peers.end())
        return bad("--split is not possible with the peer", peer);
  } else {
    options.groupSize = options.ranks;
  }
  if (options.limits &&
      (!options.split.empty() || options.memory == 1 || options.ranks < 2))
    return bad("the limits are those of two ranks or more in one group, with "
               "buffers in the heap or of malloc; there is no",
               "--limits");
  if (options.roots[0] < 0 || options.roots[0] >= options.groupSize)
    return bad("the root is not a rank:",
               std::to_string(options.roots[0]).c_str());
  if (allRoots && isRooted(options.kind)) {
    options.roots.resize(size_t(options.groupSize));
    std::iota(options.roots.begin(), options.roots.end(), 0);
  }
  if (options.flood) {
    // Flood measures one size: that of -b, or 1 KiB.
    if (options.from == 8)
      options.from = 1024;
    options.to = options.from;
  }
  if (options.from > options.to)
    return bad("the first size is above the last in", argv[optind]);
  if (options.kind == CONCORD_KIND_BARRIER)
    options.from = options.to = 0;
  if (options.dtypes.empty())
    options.dtypes = {CONCORD_DTYPE_F32};
  if (options.reductions.empty())
    options.reductions = {CONCORD_REDUCTION_SUM};
  if (options.kind != CONCORD_KIND_ALL_REDUCE &&
      options.kind != CONCORD_KIND_REDUCE_SCATTER &&
      options.kind != CONCORD_KIND_REDUCE)
    options.reductions = {CONCORD_REDUCTION_NONE};
  return true;
}
