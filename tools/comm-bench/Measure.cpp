//===- Measure.cpp - Rows of the table ------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Concord, the memory and every peer take turns; a figure is the median over
// turns, so that what else the machine does hits all alike.
//
//===----------------------------------------------------------------------===//

#include "Measure.h"

#include <algorithm>
#include <cmath>
#include <thread>

using namespace concord::bench;

/// Time of one turn of one team, us.
static constexpr double kTurn = 2500;
/// Where ranks outnumber cores: long against the scheduler's slices, in which a
/// rank that is ready may have to wait for another.
static constexpr double kCrowdedTurn = 20'000;
static constexpr double kBandwidthTurn = 400;
static constexpr double kBareTurn = 800;
/// Between hosts: a shaped link lets a burst through at any speed, so a turn
/// must be long against it.
static constexpr double kFarTurn = 40'000;
static constexpr uint64_t kLinkBytes = uint64_t(8) << 20;

double concord::bench::percentile(std::vector<double> values, double part) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  return values[size_t(double(values.size() - 1) * part)];
}

double concord::bench::median(std::vector<double> values) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// -a: one figure of those of the ranks.
static double combine(const Answer &answer, int how) {
  double sum = 0, least = INFINITY, greatest = 0;
  for (const auto &numbers : answer.numbers) {
    sum += numbers.at(0);
    least = std::min(least, numbers[0]);
    greatest = std::max(greatest, numbers[0]);
  }
  switch (how) {
  case 0:
    return answer.numbers[0][0];
  case 1:
    return sum / double(answer.numbers.size());
  case 2:
    return least;
  default:
    return greatest;
  }
}

double Meter::turn(size_t team, Command command) {
  command.verb = kBatch;
  return combine(teams.command(team, command), options.aggregate);
}

/// Bytes that each rank has to load and store at least (docs/comm-bench.md).
double Meter::leastBytes(const Row &row) const {
  double s = double(row.bytes), p = options.groupSize;
  switch (options.kind) {
  case kAllReduce:
  case kAllToAll:
    return 2 * s;
  case kReduceScatter:
  case kAllGather:
  case kBroadcast:
    // Read once and stored p times, or the reverse, shared by p ranks.
    return s * (1 + 1 / p);
  case kReduce:
    return s * (1 + 1 / p);
  case kGather:
  case kScatter:
    return 2 * s / p;
  case kPermute:
    return 2 * s;
  default:
    return 0;
  }
}

/// Flags that have to pass one after the other.
double Meter::leastFlags(const Row &row) const {
  if (options.groupSize < 2)
    return 0;
  switch (options.kind) {
  case kAllReduce:
  case kReduceScatter:
  case kAllGather:
  case kAllToAll:
  case kBarrier:
    // Nobody can end before all have begun.
    return 1;
  default:
    // One way only: successive operations overlap.
    return 0;
  }
}

double Meter::leastLinkBytes(const Row &row) const {
  double s = double(row.bytes), p = options.groupSize, hosts = 0;
  size_t numHosts = teams.hosts().size();
  std::vector<double> in(numHosts, 0), out(numHosts, 0);
  std::map<int, std::vector<int>> groups; // members' hosts
  for (int r = 0; r < options.ranks; ++r) {
    int color = 0;
    splitColor(options.split, r, color);
    groups[color].push_back(teams.hostOf(r));
  }
  for (const auto &[color, members] : groups) {
    std::vector<double> here(numHosts, 0);
    for (int host : members)
      ++here[size_t(host)];
    hosts = double(numHosts) - double(std::count(here.begin(), here.end(), 0));
    if (hosts < 2)
      continue;
    size_t root = size_t(members[size_t(row.root)]);
    for (size_t h = 0; h < numHosts; ++h) {
      if (here[h] == 0)
        continue;
      double own = s * here[h] / p, others = s - own;
      switch (options.kind) {
      case kAllReduce:
        in[h] += 2 * s * (hosts - 1) / hosts;
        break;
      case kReduceScatter: // the partial sums of others' chunks
        out[h] += others;
        in[h] += own;
        break;
      case kAllGather:
        in[h] += others;
        out[h] += own;
        break;
      case kAllToAll:
        in[h] += here[h] * others;
        break;
      case kBroadcast:
        (h == root ? out : in)[h] += s;
        break;
      case kReduce:
        (h == root ? in : out)[h] += s;
        break;
      case kGather:
        (h == root ? in : out)[h] += h == root ? others : own;
        break;
      case kScatter:
        (h == root ? out : in)[h] += h == root ? others : own;
        break;
      default:
        break;
      }
    }
    if (options.kind == kPermute || options.kind == kSendRecv)
      for (size_t m = 0; m < members.size(); ++m)
        if (members[m] != members[(m + 1) % members.size()])
          out[size_t(members[m])] += s;
  }
  return std::max(*std::max_element(in.begin(), in.end()),
                  *std::max_element(out.begin(), out.end()));
}

/// Messages of every team between the first ranks of the first two hosts; the
/// link can do what the best of them has done.
void Meter::lookAtLink(Row &row) {
  uint64_t first = 0, second = 0;
  while (teams.hostOf(int(second)) == teams.hostOf(int(first)))
    ++second;
  for (size_t team = 0; team < teams.all().size(); ++team) {
    auto time = [&](uint64_t bytes, uint64_t iterations) {
      Command command;
      command.verb = kMessages;
      uint64_t arguments[] = {first, second, bytes, iterations};
      std::copy(arguments, arguments + 4, command.arguments);
      return teams.command(team, command).numbers[first].at(0);
    };
    double latency = time(8, 20);
    leastLatency = leastLatency ? std::min(leastLatency, latency) : latency;
    if (!options.linkRate)
      bestLink =
          std::max(bestLink, double(kLinkBytes) / time(kLinkBytes, 2) * 1e-3);
  }
  row.link = options.linkRate ? options.linkRate * 1e-9 : bestLink;
  row.latency = leastLatency;
}

uint64_t concord::bench::elementsOf(uint64_t bytes, uint64_t size,
                                    uint64_t parts) {
  return bytes ? std::max<uint64_t>(bytes / size / parts, 1) : 0;
}

void Meter::beginBare(const Call &call, Bare &bare) {
  for (uint64_t way = 0; way < kNumBareWays; ++way) {
    double took = 0;
    for (uint64_t iterations : {1, 3, 10}) {
      took = 0;
      for (auto &numbers :
           teams.special(kBare, call, {way, iterations}).numbers)
        took = std::max(took, numbers.at(0));
      if (took == 0 || took * double(iterations) > kBareTurn)
        break;
    }
    if (took > 0)
      bare.iterations[way] =
          uint64_t(std::clamp(kBareTurn / took, 2.0, 20000.0));
  }
}

void Meter::turnBare(const Call &call, Bare &bare) {
  for (uint64_t way = 0; way < kNumBareWays; ++way) {
    if (!bare.iterations[way])
      continue;
    double sum = 0, working = 0;
    for (auto &numbers :
         teams.special(kBare, call, {way, bare.iterations[way]}).numbers) {
      sum += numbers.at(0);
      working += numbers[0] > 0;
    }
    bare.times[way].push_back(sum / working);
  }
}

void Meter::finishBare(const Bare &bare, Row &row) const {
  for (int way = 0; way < int(kNumBareWays); ++way)
    if (double time = row.bare[way] = median(bare.times[way]);
        time > 0 && (row.limit == 0 || time < row.limit)) {
      row.limit = time;
      row.limitWay = BareWay(way);
    }
}

Row Meter::measureLimit(int32_t kind, uint64_t bytes) {
  Row row;
  row.dtype = kF32;
  uint64_t p =
      wideInput(kind) || wideOutput(kind) ? uint64_t(options.ranks) : 1;
  Call call;
  call.kind = kind;
  call.type = row.dtype;
  row.reduction = call.reduction = kSum;
  row.count = call.count = elementsOf(bytes, sizeof(float), p);
  row.bytes = row.count * sizeof(float) * p;
  Bare bare;
  beginBare(call, bare);
  for (int round = 0; round < options.rounds; ++round) {
    turnBare(call, bare);
    if (options.ranks > 1)
      if (double flag = teams.special(kFlag, call, {}).numbers[0].at(0);
          flag < 20)
        leastFlag = leastFlag ? std::min(leastFlag, flag) : flag;
  }
  row.flag = leastFlag;
  finishBare(bare, row);
  return row;
}

Row Meter::once(uint64_t bytes, int32_t dtype, int32_t reduction, int root) {
  Row row;
  uint64_t size = std::max<uint64_t>(typeSize(dtype), 1);
  uint64_t p = uint64_t(options.groupSize);
  row.dtype = dtype;
  row.reduction = reduction;
  int kind = options.kind;
  bool spread = !teams.hosts().empty();
  const bool crowded = options.ranks > int(std::thread::hardware_concurrency());
  const double turnTime = spread ? kFarTurn : crowded ? kCrowdedTurn : kTurn;
  bool divided = wideInput(kind) || wideOutput(kind);
  row.count = elementsOf(bytes, size, divided ? p : 1);
  row.bytes = row.count * size * (divided ? p : 1);
  uint64_t chunk = row.count * size;

  Command command;
  command.call.kind = kind;
  command.call.type = kind == kBarrier ? 0 : dtype;
  command.call.reduction = reduction;
  command.call.root = row.root = root;
  command.call.count = row.count;
  command.inBytes = wideInput(kind) ? chunk * p : chunk;
  command.outBytes = wideOutput(kind) ? chunk * p : chunk;
  command.warmup = uint64_t(options.warmup);
  Command inPlace = command;
  inPlace.inPlace = 1;

  // First right, then fast. And how long it takes, for the length of a turn.
  size_t numTeams = teams.all().size();
  std::vector<uint64_t> iterations(numTeams, 0);
  std::vector<int64_t> wrong(numTeams, 0);
  for (size_t team = 0; team < numTeams; ++team) {
    Command probe = command;
    probe.verb = options.check ? kCheck : kBatch;
    probe.iterations = 1;
    Answer answer = teams.command(team, probe);
    if (!answer.supported)
      continue;
    wrong[team] = answer.wrong;
    if (team == 0 && options.check && kind != kSendRecv) {
      probe.inPlace = 1;
      row.inPlace.wrong = teams.command(team, probe).wrong;
      probe.inPlace = 0;
    }
    if (options.iterations) {
      iterations[team] = uint64_t(options.iterations);
      continue;
    }
    double took = turn(team, probe);
    for (int i = 0; i < 2; ++i) {
      probe.iterations = uint64_t(
          std::clamp(turnTime / 4 / std::max(took, 0.01), 1.0, 5000.0));
      took = turn(team, probe);
    }
    iterations[team] =
        uint64_t(std::clamp(turnTime / std::max(took, 0.01), 2.0, 20000.0));
  }

  std::vector<std::vector<double>> times(numTeams), singles(numTeams);
  std::vector<double> inPlaceTimes, flags;
  std::vector<double> bandwidths[kNumMethods];
  double bestBandwidth = 0;
  Bare bare;
  if (options.limits)
    beginBare(command.call, bare);
  std::vector<std::vector<double>> skews(size_t(options.ranks));
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t team = 0; team < numTeams; ++team) {
      if (!iterations[team])
        continue;
      Command batch = command;
      batch.verb = kBatch;
      batch.iterations = iterations[team];
      batch.arguments[0] =
          options.check && (round == 0 || round + 1 == options.rounds);
      Answer answer = teams.command(team, batch);
      wrong[team] += answer.wrong;
      times[team].push_back(combine(answer, options.aggregate));
      if (team == 0) {
        // Of the last round, when it is known what is in the caches.
        row.form.clear();
        Answer words = teams.special(kExplain, command.call, {});
        for (double c : words.numbers[0])
          row.form += char(c);
      }
      // Single operations, for the percentiles: the clock costs time, too.
      batch.verb = kSingles;
      batch.iterations = std::min<uint64_t>(iterations[team], 400);
      answer = teams.command(team, batch);
      for (uint64_t i = 0; i < batch.iterations; ++i) {
        double longest = 0, first = INFINITY;
        for (auto &numbers : answer.numbers) {
          longest = std::max(longest, numbers.at(2 * i + 1));
          first = std::min(first, numbers[2 * i]);
        }
        singles[team].push_back(longest);
        if (team == 0)
          for (size_t r = 0; r < skews.size(); ++r)
            skews[r].push_back(answer.numbers[r][2 * i] - first);
      }
      if (team != 0)
        continue;
      inPlace.iterations = iterations[team];
      // A message cannot be received into the memory that it is sent from.
      if (kind != kSendRecv)
        inPlaceTimes.push_back(turn(team, inPlace));
      if (spread) {
        if (round % 4 == 0)
          lookAtLink(row);
        continue;
      }
      uint64_t half = uint64_t(leastBytes(row) / 2);
      answer = teams.special(
          kBandwidth, command.call,
          {std::max<uint64_t>(half, 64), uint64_t(kBandwidthTurn)});
      for (int method = 0; method < kNumMethods; ++method) {
        double usual = 0, least = 0, moved = 0;
        for (auto &numbers : answer.numbers) {
          usual = std::max(usual, numbers.at(size_t(3 * method)));
          least = std::max(least, numbers[size_t(3 * method + 1)]);
          moved += numbers[size_t(3 * method + 2)];
        }
        // Of the host, in equal parts.
        moved /= double(options.ranks);
        bandwidths[method].push_back(moved / usual * 1e-3);
        bestBandwidth = std::max(bestBandwidth, moved / least * 1e-3);
      }
      turnBare(command.call, bare);
      if (options.ranks > 1)
        flags.push_back(
            teams.special(kFlag, command.call, {}).numbers[0].at(0));
    }
  }

  finishBare(bare, row);
  auto finish = [&](Timing &timing, std::vector<double> &all) {
    timing.time = all.empty() ? NAN : median(all);
    double s = double(row.bytes), n = double(p);
    timing.algorithmBandwidth = s / timing.time * 1e-3;
    double factor = 1;
    if (kind == kAllReduce)
      factor = 2 * (n - 1) / n;
    else if (divided)
      factor = (n - 1) / n;
    timing.busBandwidth = timing.algorithmBandwidth * factor;
  };
  finish(row.outOfPlace, times[0]);
  finish(row.inPlace, inPlaceTimes);
  row.outOfPlace.wrong = wrong[0];
  row.outOfPlace.p50 = percentile(singles[0], 0.5);
  row.outOfPlace.p99 = percentile(singles[0], 0.99);
  for (auto &skew : skews) {
    row.outOfPlace.skewMedian.push_back(percentile(skew, 0.5));
    row.outOfPlace.skewP99.push_back(percentile(skew, 0.99));
  }
  double best = 0;
  for (int method = 0; method < kNumMethods; ++method) {
    row.bandwidth[method] = median(bandwidths[method]);
    best = std::max(best, row.bandwidth[method]);
  }
  // A property of the host: the least that the run has seen.
  for (double flag : flags)
    if (flag < 20) // else the two ranks never ran at the same time
      leastFlag = leastFlag ? std::min(leastFlag, flag) : flag;
  row.flag = leastFlag;
  if (spread) {
    row.bound =
        row.latency * leastFlags(row) + leastLinkBytes(row) / row.link * 1e-3;
    row.efficiency = row.bound / row.outOfPlace.time;
  }
  auto bound = [&](double bandwidth) {
    return leastFlags(row) * row.flag +
           (kind == kBarrier ? 0 : leastBytes(row) / bandwidth * 1e-3);
  };
  if (!spread) {
    row.bound = bound(best);
    // Where noise has hit the memory's turns alone, the best that was seen of
    // it decides.
    if (row.bound > row.outOfPlace.time)
      row.bound = std::min(row.bound, bound(bestBandwidth));
    row.efficiency = row.bound / row.outOfPlace.time;
  }
  for (size_t team = 1; team < numTeams; ++team) {
    PeerTiming peer;
    peer.name = teams.all()[team].name;
    peer.supported = iterations[team] != 0;
    if (peer.supported) {
      finish(peer, times[team]);
      peer.wrong = wrong[team];
      peer.p50 = percentile(singles[team], 0.5);
      peer.p99 = percentile(singles[team], 0.99);
      peer.ratio = peer.time / row.outOfPlace.time;
    }
    row.peers.push_back(peer);
  }
  return row;
}

Row Meter::measure(uint64_t bytes, int32_t dtype, int32_t reduction, int root) {
  Row row = once(bytes, dtype, reduction, root);
  // Noise may have hit the memory's turns alone; a real error comes again.
  for (int i = 0; i < 2 && row.efficiency > 1.05; ++i)
    row = once(bytes, dtype, reduction, root);
  return row;
}

FloodResult Meter::flood() {
  Call call;
  call.kind = options.kind;
  call.type = options.dtypes[0];
  call.reduction = options.reductions[0];
  call.root = options.roots[0];
  bool divided = wideInput(call.kind) || wideOutput(call.kind);
  call.count = elementsOf(options.from, typeSize(call.type),
                          divided ? uint64_t(options.ranks) : 1);
  uint64_t low = uint64_t(64) << 20;
  auto slowest = [&](bool flooded, uint64_t samples) {
    Answer answer = teams.special(kFlood, call, {low, samples, flooded});
    std::vector<double> result;
    // From the last rank's begin to the last rank's end, on the host's clock:
    // that a rank is still busy elsewhere is not the operation's time.
    for (uint64_t i = 0; i < samples; ++i) {
      double began = 0, ended = 0;
      for (auto &numbers : answer.numbers) {
        began = std::max(began, numbers.at(2 * i));
        ended = std::max(ended, numbers[2 * i] + numbers.at(2 * i + 1));
      }
      result.push_back(ended - began);
    }
    return result;
  };
  std::vector<double> idle, flooded;
  slowest(true, 16); // makes communicators, touches memory
  for (int round = 0; round < options.rounds; ++round) {
    for (double value : slowest(false, 400))
      idle.push_back(value);
    for (double value : slowest(true, 400))
      flooded.push_back(value);
  }
  // One low-priority chunk: 32 KiB of each member's share.
  Command big;
  big.verb = kBatch;
  big.call = call;
  big.call.count =
      low / typeSize(call.type) / (divided ? uint64_t(options.ranks) : 1);
  big.inBytes = big.outBytes = low;
  big.warmup = 1;
  big.iterations = 2;
  std::vector<double> times;
  for (int round = 0; round < options.rounds; ++round)
    times.push_back(turn(0, big));
  FloodResult result;
  result.idle50 = percentile(idle, 0.5);
  result.idle99 = percentile(idle, 0.99);
  result.flooded50 = percentile(flooded, 0.5);
  result.flooded99 = percentile(flooded, 0.99);
  result.lowTime = median(times);
  double share = double(low) / double(options.ranks);
  result.chunk = result.lowTime * double(32 << 10) / share;
  return result;
}

void Meter::pairs(uint64_t bytes, std::vector<std::vector<double>> &latency,
                  std::vector<std::vector<double>> &time) {
  size_t n = size_t(options.ranks);
  latency.assign(n, std::vector<double>(n, 0));
  time = latency;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j < n; ++j) {
      std::vector<double> latencies, times;
      for (int round = 0; round < options.rounds; ++round) {
        Command command;
        command.verb = kMessages;
        auto half = [&](uint64_t length, uint64_t iterations) {
          uint64_t arguments[] = {i, j, length, iterations};
          std::copy(arguments, arguments + 4, command.arguments);
          return teams.command(0, command).numbers[i].at(0);
        };
        latencies.push_back(half(8, 1000));
        times.push_back(half(bytes, 20));
      }
      latency[i][j] = latency[j][i] = median(latencies);
      time[i][j] = time[j][i] = median(times);
    }
}
