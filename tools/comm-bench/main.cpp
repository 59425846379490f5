//===- main.cpp - Speed of collectives ----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `comm-bench OP [options]`: starts Concord's ranks and those of the peers,
// gives them turns, and prints the table of nccl-tests, with percentiles, the
// efficiency against the memory's bandwidth, and the peers' ratios. Exit code
// 0; 1 when an element was wrong, a rank failed or a figure is beyond what the
// memory can do; 2 for bad usage or a peer that is not installed.
//
//===----------------------------------------------------------------------===//

#include "Calibrate.h"
#include "Member.h"
#include "Peers.h"
#include "Report.h"

#include "bootstrap/Launcher.h"
#include "diagnosis/Error.h"

#include <csignal>

using namespace concord::bench;

static uint64_t nextSize(const Options &options, uint64_t bytes) {
  // A factor near 1 must get further, too.
  return options.step
             ? bytes + options.step
             : std::max(bytes + 1, uint64_t(double(bytes) * options.factor));
}

static void runFlood(const Options &options, Meter &meter) {
  FloodResult r = meter.flood();
  double limit = r.idle99 + 1.5 * r.chunk;
  bool good = r.flooded99 <= limit;
  std::printf(
      "# comm-bench %s --flood: %d ranks; %llu B at high priority, 64 MiB at "
      "low, one thread issues both\n"
      "# %24s %10s %10s\n"
      "  %24s %10.2f %10.2f\n  %24s %10.2f %10.2f\n"
      "# 64 MiB alone: %.0f us; a chunk of 32 KiB: %.2f us\n"
      "# p99 under load <= idle p99 + 1.5 chunks = %.2f us: %s\n",
      kindText(options.kind), options.ranks, (unsigned long long)options.from,
      "latency (us)", "p50", "p99", "alone", r.idle50, r.idle99,
      "under low priority", r.flooded50, r.flooded99, r.lowTime, r.chunk, limit,
      good ? "yes" : "no");
  if (!options.jsonFile.empty()) {
    char text[512];
    std::snprintf(
        text, sizeof text,
        "{\"rows\":[{\"op\":\"%s\",\"bytes\":%llu,\"ranks\":%d,\"time_us\":"
        "%.4f,\"p99_us\":%.4f,\"idle_p50_us\":%.4f,\"idle_p99_us\":%.4f,"
        "\"low_us\":%.4f,\"chunk_us\":%.4f,\"limit_us\":%.4f,\"ok\":%s,"
        "\"peers\":{}}]}\n",
        kindText(options.kind), (unsigned long long)options.from, options.ranks,
        r.flooded50, r.flooded99, r.idle50, r.idle99, r.lowTime, r.chunk, limit,
        good ? "true" : "false");
    writeFile(options.jsonFile, text);
  }
}

static void runPairs(const Options &options, Meter &meter) {
  std::vector<std::vector<double>> latency, time;
  meter.pairs(options.to, latency, time);
  size_t n = latency.size();
  std::printf("# comm-bench --pairs: %zu ranks; upper right: latency of 8 B in "
              "us; lower left: GB/s of %llu B\n#%7s",
              n, (unsigned long long)options.to, "");
  for (size_t j = 0; j < n; ++j)
    std::printf(" %8zu", j);
  std::printf("\n");
  std::string rows;
  for (size_t i = 0; i < n; ++i) {
    std::printf("%8zu", i);
    for (size_t j = 0; j < n; ++j) {
      if (i == j)
        std::printf(" %8s", "-");
      else if (i < j)
        std::printf(" %8.3f", latency[i][j]);
      else
        std::printf(" %8.2f", double(options.to) / time[i][j] * 1e-3);
      if (i < j) {
        char text[256];
        std::snprintf(text, sizeof text,
                      "%s{\"op\":\"pair\",\"ranks\":[%zu,%zu],\"bytes\":%llu,"
                      "\"latency_us\":%.4f,\"time_us\":%.4f,\"peers\":{}}",
                      rows.empty() ? "" : ",\n", i, j,
                      (unsigned long long)options.to, latency[i][j],
                      time[i][j]);
        rows += text;
      }
    }
    std::printf("\n");
  }
  if (!options.jsonFile.empty())
    writeFile(options.jsonFile, "{\"rows\":[\n" + rows + "\n]}\n");
}

static int runIssuePath(const Options &options, Driver &driver) {
  std::printf("# comm-bench %s --issue-path: %d ranks; calls in all of them, "
              "but for those that sleep\n# %10s %12s %14s %14s\n",
              kindText(options.kind), options.ranks, "size (B)", "operations",
              "system calls", "allocations");
  std::string text;
  bool clean = true;
  for (uint64_t bytes = options.from; bytes <= options.to;) {
    constexpr uint64_t kOperations = 2000;
    bool divided = wideInput(options.kind) || wideOutput(options.kind);
    Call call;
    call.kind = options.kind;
    call.type = options.kind == kBarrier ? 0 : options.dtypes[0];
    call.reduction = options.reductions[0];
    call.root = options.roots[0];
    call.count = elementsOf(bytes, std::max<uint64_t>(typeSize(call.type), 1),
                            divided ? uint64_t(options.ranks) : 1);
    double calls = 0, last = -1, memory = 0;
    for (const auto &numbers :
         driver.special(kIssuePath, call, {kOperations}).numbers) {
      calls += numbers.at(0);
      last = std::max(last, numbers[1]);
      memory = memory < 0 || numbers[2] < 0 ? -1 : memory + numbers[2];
    }
    std::string allocations =
        memory < 0 ? "-" : std::to_string(int64_t(memory));
    std::printf("  %10llu %12llu %14.0f %14s\n", (unsigned long long)bytes,
                (unsigned long long)kOperations, calls, allocations.c_str());
    if (last >= 0)
      std::printf("#   the last system call had number %.0f\n", last);
    std::fflush(stdout);
    clean &= calls == 0 && memory <= 0;
    char line[256];
    std::snprintf(line, sizeof line,
                  "%s{\"op\":\"%s\",\"bytes\":%llu,\"ranks\":%d,"
                  "\"operations\":%llu,\"system_calls\":%.0f,"
                  "\"allocations\":%s,\"peers\":{}}",
                  text.empty() ? "" : ",\n", kindText(options.kind),
                  (unsigned long long)bytes, options.ranks,
                  (unsigned long long)kOperations, calls,
                  memory < 0 ? "null" : allocations.c_str());
    text += line;
    uint64_t next = nextSize(options, bytes);
    if (next <= bytes)
      break;
    bytes = next;
  }
  if (!options.jsonFile.empty())
    writeFile(options.jsonFile, "{\"rows\":[\n" + text + "\n]}\n");
  return clean ? 0 : 1;
}

static void runLimits(const Options &options, Meter &meter) {
  std::printf(
      "# comm-bench --limits: %d ranks, buffers %s. Bare loops of the loads, "
      "stores and\n# flags that an operation cannot do without; us, the "
      "fastest of the ways, and GB/s\n# loaded and stored per working rank\n"
      "# %14s %10s %13s %10s %8s  %s\n",
      options.ranks, options.rotate ? "rotating" : "reused", "operation",
      "size (B)", "loads:stores", "us", "GB/s", "way");
  std::string text;
  int workers =
      std::min(options.ranks, int(std::thread::hardware_concurrency()));
  double flag = 0;
  for (int32_t kind = kAllReduce; kind <= kBroadcast; ++kind)
    for (uint64_t bytes = options.from; bytes <= options.to;) {
      Row row = meter.measureLimit(kind, bytes);
      int loads, stores;
      bareMixture(kind, options.ranks, loads, stores);
      flag = row.flag;
      if (row.limit > 0) {
        double p = options.ranks;
        // Of the whole array, what each working rank takes through the loop.
        double pass = double(row.bytes) / workers * (kind == kAllToAll ? p : 1);
        double rate = pass * (loads + stores) / row.limit * 1e-3;
        std::string mixture =
            std::to_string(loads) + ":" + std::to_string(stores);
        std::printf("  %14s %10llu %13s %10.3f %8.2f  %s\n", kindText(kind),
                    (unsigned long long)row.bytes, mixture.c_str(), row.limit,
                    rate, kBareWayNames[row.limitWay]);
        std::fflush(stdout);
        char line[320];
        std::snprintf(line, sizeof line,
                      "%s{\"op\":\"%s\",\"bytes\":%llu,\"ranks\":%d,"
                      "\"loads\":%d,\"stores\":%d,\"limit_us\":%.4f,"
                      "\"limit_by\":\"%s\",\"gbs\":%.3f,\"flag_us\":%.4f}",
                      text.empty() ? "" : ",\n", kindText(kind),
                      (unsigned long long)row.bytes, options.ranks, loads,
                      stores, row.limit, kBareWayNames[row.limitWay], rate,
                      row.flag);
        text += line;
      }
      uint64_t next = nextSize(options, bytes);
      if (next <= bytes)
        break;
      bytes = next;
    }
  std::printf("# a flag from one rank to another: %.3f us\n", flag);
  if (!options.jsonFile.empty())
    writeFile(options.jsonFile, "{\"rows\":[\n" + text + "\n]}\n");
}

static int runTable(const Options &options, Teams &teams, Meter &meter) {
  printHead(options, teams);
  std::vector<Row> rows;
  std::vector<std::pair<int32_t, int>> kinds;
  for (int32_t reduction : options.reductions)
    for (int root : options.roots)
      kinds.emplace_back(reduction, root);
  int code = 0;
  for (int cycle = 0; options.cycles == 0 || cycle < options.cycles; ++cycle)
    for (int32_t dtype : options.dtypes)
      for (auto [reduction, root] : kinds)
        for (uint64_t bytes = options.from; bytes <= options.to;) {
          Row row = meter.measure(bytes, dtype, reduction, root);
          printRow(options, row);
          if (options.cycles)
            rows.push_back(row);
          bool wrong = row.outOfPlace.wrong > 0 || row.inPlace.wrong > 0;
          for (const PeerTiming &peer : row.peers)
            if (peer.wrong > 0) {
              std::fprintf(stderr,
                           "comm-bench: %llu B: %lld elements of peer %s are "
                           "wrong\n",
                           (unsigned long long)row.bytes, (long long)peer.wrong,
                           peer.name.c_str());
              wrong = true;
            }
          if (row.efficiency > 1.05) {
            std::fprintf(stderr,
                         "comm-bench: %llu B: measurement error: efficiency "
                         "%.2f, the time is below what the %s can do\n",
                         (unsigned long long)row.bytes, row.efficiency,
                         row.link > 0 ? "link" : "memory");
            wrong = true;
          }
          if (wrong)
            code = 1;
          uint64_t next = nextSize(options, bytes);
          if (next <= bytes)
            break;
          bytes = next;
        }
  printFoot(options, rows);
  if (!options.jsonFile.empty())
    writeFile(options.jsonFile, jsonRows(options, rows));
  if (!options.plotFile.empty())
    writeFile(options.plotFile, drawSvg(options, teams, rows));
  if (!options.baselineFile.empty())
    printBaseline(options, rows);
  return code;
}

/// mpirun has started this once per rank.
static int runMember(int argc, char **argv,
                     const concord::rt::LaunchedRank &launched) {
  Options options;
  options.launched = launched.world;
  options.quiet = launched.rank != 0;
  options.launcher = launched.launcher;
  if (const char *library = std::getenv("CONCORD_MPI");
      library && *library && std::strcmp(library, "auto") != 0)
    options.launcher = library;
  int code = 0;
  if (!parseOptions(argc, argv, options, code))
    return code;
  concord_context *context = nullptr;
  code = 2; // until the peers are there
  try {
    Members members(options);
    context = members.context();
    if (members.rank() == 0)
      checkFiles(options);
    code = 1;
    if (members.rank() != 0) {
      members.serve();
      return 0;
    }
    Meter meter(options, members);
    if (options.linkRate > 0 && members.hosts().empty())
      std::fprintf(stderr,
                   "comm-bench: all ranks are on one host, so --link is "
                   "not used\n");
    int wrong = 0;
    if (options.pairs)
      runPairs(options, meter);
    else
      wrong = runTable(options, members, meter);
    members.finish();
    return wrong;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "comm-bench: %s\n", error.what());
    if (context)
      concord_context_abort(context, error.what());
    std::_Exit(code);
  }
}

int main(int argc, char **argv) {
  try {
    if (auto launched = concord::rt::launchedHere();
        launched && launched->world > 1)
      return runMember(argc, argv, *launched);
  } catch (const concord::rt::Error &error) {
    std::fprintf(stderr, "comm-bench: %s\n", error.what());
    return 2;
  }
  if (argc >= 2 && std::strcmp(argv[1], "--rank") == 0)
    return argc == 2 + Address::kArguments + 2 ? runConcordRank(argv + 2) : 2;
  Options options;
  int code = 0;
  if (!parseOptions(argc, argv, options, code))
    return code;
  code = 0;
  // The launcher's thread listens for them.
  sigset_t stops;
  sigemptyset(&stops);
  for (int number : {SIGINT, SIGTERM, SIGHUP})
    sigaddset(&stops, number);
  ::sigprocmask(SIG_BLOCK, &stops, nullptr);
  try {
    checkFiles(options);
    for (const std::string &peer : options.peers)
      peerProgram(peer);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "comm-bench: %s\n", error.what());
    return 2;
  }
  try {
    Driver driver(options);
    driver.start();
    Meter meter(options, driver);
    if (!options.calibrateFile.empty())
      calibrate(options, driver);
    else if (options.flood)
      runFlood(options, meter);
    else if (options.pairs)
      runPairs(options, meter);
    else if (options.issuePath)
      code = runIssuePath(options, driver);
    else if (options.limitsAlone)
      runLimits(options, meter);
    else
      code = runTable(options, driver, meter);
    driver.finish();
    return code;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "comm-bench: %s\n", error.what());
    return 1;
  }
}
