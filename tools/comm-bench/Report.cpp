//===- Report.cpp - Table, JSON, drawing ----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The columns of nccl-tests, and what they lack: percentiles, efficiency,
// peers.
//
//===----------------------------------------------------------------------===//

#include "Report.h"
#include "concord/cost/Machine.h"

#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace concord;
using namespace concord::bench;
using Json = nlohmann::json;

[[gnu::format(printf, 1, 2)]] static std::string format(const char *how, ...) {
  char text[512];
  va_list list;
  va_start(list, how);
  std::vsnprintf(text, sizeof text, how, list);
  va_end(list);
  return text;
}

/// Three significant digits where there is room for them.
static std::string number(double value) {
  if (value != value || std::isinf(value))
    return "-";
  return format(value < 10 ? "%.3f" : value < 1000 ? "%.2f" : "%.0f", value);
}

void concord::bench::printHead(const Options &options, const Teams &teams) {
  static const char *const kMemory[] = {"of malloc", "of malloc, registered",
                                        "in the symmetric heap"};
  std::printf("# comm-bench %s: %d ranks%s%s, buffers %s, %s\n",
              kindText(options.kind), options.ranks,
              options.split.empty() ? "" : ", split ", options.split.c_str(),
              kMemory[options.memory], options.rotate ? "rotating" : "reused");
  if (!teams.hosts().empty()) {
    std::string text;
    for (size_t h = 0; h < teams.hosts().size(); ++h) {
      int count = 0;
      for (int r = 0; r < options.ranks; ++r)
        count += teams.hostOf(r) == int(h);
      text += (h ? ", " : "") + teams.hosts()[h] + " " + std::to_string(count);
    }
    std::printf("# %zu hosts: %s\n", teams.hosts().size(), text.c_str());
  }
  for (const Team &team : teams.all())
    if (team.name != "concord")
      std::printf("# peer %s: %s, in turns\n", team.name.c_str(),
                  team.version.c_str());
  std::printf("#\n# %47s %36s %36s", "", "out-of-place", "in-place");
  std::string first = format("# %10s %12s %8s %6s %6s", "size", "count", "type",
                             "redop", "root");
  std::string second =
      format("# %10s %12s %8s %6s %6s", "(B)", "(elements)", "", "", "");
  for (int i = 0; i < 2; ++i) {
    first += format("  %8s %8s %8s %6s", "time", "algbw", "busbw", "#wrong");
    second += format("  %8s %8s %8s %6s", "(us)", "(GB/s)", "(GB/s)", "");
  }
  first += format("  %8s %8s %5s", "p50", "p99", "eff");
  second += format("  %8s %8s %5s", "(us)", "(us)", "");
  if (options.limits) {
    first += format("  %8s", "limit");
    second += format("  %8s", "(us)");
  }
  for (const std::string &peer : options.peers) {
    first += format("  %9s %7s", peer.c_str(), "ratio");
    second += format("  %9s %7s", "(us)", "");
  }
  std::printf("\n%s\n%s\n", first.c_str(), second.c_str());
  std::fflush(stdout);
}

/// What the forms cost by the calibration that ranks choose by, if any.
static std::string candidateCosts(const Options &options, const Row &row) {
  const char *asked = std::getenv("CONCORD_CALIBRATION");
  const std::string path =
      asked && *asked ? asked : cost::defaultCalibrationPath();
  const char *given = std::getenv("CONCORD_OBJECTIVE");
  std::string objective = given && *given ? given : "throughput", text, error;
  cost::Machine machine;
  if (path.empty() || !cost::readCalibration(path, machine, error))
    return "";
  for (const cost::FormCurve &form : machine.forms)
    if (form.curve.kind == plan::Kind(options.kind) &&
        form.curve.ranks == options.groupSize && form.objective == objective)
      text += (text.empty() ? "; by its figures for " + objective + ": "
                            : std::string(", ")) +
              form.form +
              format(" %.2f us", cost::secondsOf(form.curve, row.bytes) * 1e6);
  return text;
}

void concord::bench::printRow(const Options &options, const Row &row) {
  std::string line = format(
      "  %10llu %12llu %8s %6s %6d", (unsigned long long)row.bytes,
      (unsigned long long)row.count, dtypeText(row.dtype).c_str(),
      reductionText(row.reduction), isRooted(options.kind) ? row.root : -1);
  for (const Timing *timing : {&row.outOfPlace, &row.inPlace})
    line += timing->time == timing->time
                ? format("  %8s %8.3f %8.3f %6s", number(timing->time).c_str(),
                         timing->algorithmBandwidth, timing->busBandwidth,
                         options.check ? std::to_string(timing->wrong).c_str()
                                       : "N/A")
                : format("  %8s %8s %8s %6s", "-", "-", "-", "-");
  line += format("  %8s %8s %5.2f", number(row.outOfPlace.p50).c_str(),
                 number(row.outOfPlace.p99).c_str(), row.efficiency);
  if (options.limits)
    line += format("  %8s", row.limit > 0 ? number(row.limit).c_str() : "-");
  for (const PeerTiming &peer : row.peers)
    line += peer.supported ? format("  %9s %7s", number(peer.time).c_str(),
                                    number(peer.ratio).c_str())
                           : format("  %9s %7s", "n/a", "n/a");
  std::printf("%s\n", line.c_str());
  if (options.explain)
    std::printf("#   %s%s\n", row.form.c_str(),
                candidateCosts(options, row).c_str());
  if (options.skew) {
    std::string skew = "#   arrival after the first rank, p50/p99 us:";
    for (size_t r = 0; r < row.outOfPlace.skewMedian.size(); ++r)
      skew += format("  rank %zu %s/%s", r,
                     number(row.outOfPlace.skewMedian[r]).c_str(),
                     number(row.outOfPlace.skewP99[r]).c_str());
    std::printf("%s\n", skew.c_str());
  }
  std::fflush(stdout);
}

void concord::bench::printFoot(const Options &options,
                               const std::vector<Row> &rows) {
  double sum = 0;
  for (const Row &row : rows)
    sum += row.outOfPlace.busBandwidth;
  bool spread = !rows.empty() && rows[0].link > 0;
  if (spread) {
    std::printf("#\n# link between hosts, GB/s of one direction%s, and a "
                "message of 8 B:\n# %10s %8s %10s\n",
                options.linkRate ? " (--link)" : "", "size", "GB/s", "us");
    for (const Row &row : rows)
      std::printf("# %10llu %8.3f %10.2f\n", (unsigned long long)row.bytes,
                  row.link, row.latency);
    // By which ranks choose forms (docs/algorithms.md).
    double latency = rows[0].latency, rate = 0;
    for (const Row &row : rows) {
      latency = std::min(latency, row.latency);
      rate = std::max(rate, row.link);
    }
    std::printf("# as a setting: CONCORD_LINK=%.3gus,%.3ggbit\n", latency,
                8 * rate);
  } else if (options.kind != kBarrier) {
    std::printf("#\n# memory, GB/s loaded and stored per rank, all ranks at "
                "once, same footprint:\n# %10s",
                "size");
    for (const char *name : kMethodNames)
      std::printf("  %s", name);
    std::printf("  flag (us)\n");
    for (const Row &row : rows) {
      std::printf("# %10llu", (unsigned long long)row.bytes);
      for (int method = 0; method < kNumMethods; ++method)
        std::printf("  %*.2f", int(std::strlen(kMethodNames[method])),
                    row.bandwidth[method]);
      std::printf("  %9.3f\n", row.flag);
    }
  }
  std::printf("# Avg bus bandwidth    : %.3f\n",
              rows.empty() ? 0 : sum / double(rows.size()));
  std::fflush(stdout);
}

std::string concord::bench::jsonRows(const Options &options,
                                     const std::vector<Row> &rows) {
  auto round = [](double value) {
    return std::isfinite(value) ? std::round(value * 1e4) / 1e4 : 0;
  };
  Json all = Json::array();
  for (const Row &row : rows) {
    const Timing &timing = row.outOfPlace;
    Json peers = Json::object();
    for (const PeerTiming &peer : row.peers)
      if (peer.supported)
        peers[peer.name] = {{"time_us", round(peer.time)},
                            {"p50_us", round(peer.p50)},
                            {"p99_us", round(peer.p99)},
                            {"wrong", peer.wrong},
                            {"ratio", round(peer.ratio)}};
    Json bandwidth = Json::object();
    for (int method = 0; method < kNumMethods; ++method)
      bandwidth[kMethodNames[method]] = round(row.bandwidth[method]);
    Json entry = {
        {"op", kindText(options.kind)},
        {"bytes", row.bytes},
        {"ranks", options.ranks},
        {"dtype", dtypeText(row.dtype)},
        {"redop", reductionText(row.reduction)},
        {"time_us", round(timing.time)},
        {"p50_us", round(timing.p50)},
        {"p99_us", round(timing.p99)},
        {"algbw", round(timing.algorithmBandwidth)},
        {"busbw", round(timing.busBandwidth)},
        {"eff", round(row.efficiency)},
        {"wrong", timing.wrong},
        {"in_place",
         {{"time_us", round(row.inPlace.time)}, {"wrong", row.inPlace.wrong}}},
        {"bound_us", round(row.bound)},
        {"memory_gbs", bandwidth},
        {"flag_us", round(row.flag)},
        {"peers", peers}};
    if (isRooted(options.kind))
      entry["root"] = row.root;
    if (!options.split.empty())
      entry["split"] = options.split;
    if (row.link > 0) {
      entry.erase("memory_gbs");
      entry.erase("flag_us");
      entry["link_gbs"] = round(row.link);
      entry["latency_us"] = round(row.latency);
    }
    if (row.limit > 0) {
      entry["limit_us"] = round(row.limit);
      entry["limit_by"] = kBareWayNames[row.limitWay];
      for (int way = 0; way < int(kNumBareWays); ++way)
        if (row.bare[way] > 0)
          entry["bare_us"][kBareWayNames[way]] = round(row.bare[way]);
    }
    if (options.skew)
      entry["skew_us"] = {{"p50", timing.skewMedian}, {"p99", timing.skewP99}};
    all.push_back(entry);
  }
  std::string text = "{\"rows\":[";
  for (size_t i = 0; i < all.size(); ++i)
    text += (i ? ",\n" : "\n") + all[i].dump();
  return text + "\n]}\n";
}

static Json readBaseline(const std::string &path) {
  std::ifstream stream(path);
  if (!stream)
    throw Failure(path + ": " + std::strerror(errno));
  try {
    Json former = Json::parse(stream);
    if (!former.at("rows").is_array())
      throw Failure(path + ": \"rows\" is no array");
    return former;
  } catch (const Json::exception &error) {
    throw Failure(path + ": " + error.what());
  }
}

void concord::bench::checkFiles(const Options &options) {
  if (!options.baselineFile.empty())
    readBaseline(options.baselineFile);
  for (const std::string *path : {&options.jsonFile, &options.plotFile}) {
    if (path->empty())
      continue;
    std::FILE *file = std::fopen(path->c_str(), "a");
    if (!file)
      throw Failure(*path + ": " + std::strerror(errno));
    std::fclose(file);
  }
}

void concord::bench::printBaseline(const Options &options,
                                   const std::vector<Row> &rows) {
  Json former = readBaseline(options.baselineFile);
  try {
    std::printf("#\n# compared with %s:\n# %10s %8s %6s %10s %10s %8s\n",
                options.baselineFile.c_str(), "size", "type", "redop",
                "then (us)", "now (us)", "now/then");
    size_t found = 0;
    for (const Row &row : rows)
      for (const Json &other : former["rows"])
        if (other.at("op") == kindText(options.kind) &&
            other.at("bytes") == row.bytes &&
            other.at("ranks") == options.ranks &&
            other.value("dtype", "float") == dtypeText(row.dtype) &&
            other.value("root", row.root) == row.root &&
            other.value("redop", "") == reductionText(row.reduction)) {
          double then = other.at("time_us");
          std::printf(
              "# %10llu %8s %6s %10s %10s %8.2f\n",
              (unsigned long long)row.bytes, dtypeText(row.dtype).c_str(),
              reductionText(row.reduction), number(then).c_str(),
              number(row.outOfPlace.time).c_str(), row.outOfPlace.time / then);
          ++found;
        }
    if (!found)
      throw Failure(options.baselineFile +
                    ": no row of this operation, size and number of ranks");
  } catch (const Json::exception &error) {
    throw Failure(options.baselineFile + ": " + error.what());
  }
}

std::string concord::bench::drawSvg(const Options &options, const Teams &teams,
                                    const std::vector<Row> &rows) {
  // Logarithmic axes: bytes to the right, microseconds upwards.
  constexpr double kWidth = 760, kHeight = 460, kLeft = 70, kRight = 150,
                   kTop = 40, kBottom = 50;
  double x0 = INFINITY, x1 = 0, y0 = INFINITY, y1 = 0;
  auto series = [&](size_t team, const Row &row) {
    if (team == 0)
      return row.outOfPlace.time;
    const PeerTiming &peer = row.peers[team - 1];
    return peer.supported ? peer.time : 0.0;
  };
  size_t numTeams = teams.all().size();
  for (const Row &row : rows) {
    x0 = std::min(x0, double(std::max<uint64_t>(row.bytes, 1)));
    x1 = std::max(x1, double(std::max<uint64_t>(row.bytes, 1)));
    for (size_t team = 0; team < numTeams; ++team)
      if (double value = series(team, row); value > 0) {
        y0 = std::min(y0, value);
        y1 = std::max(y1, value);
      }
    if (row.bound > 0)
      y0 = std::min(y0, row.bound);
  }
  if (!(y1 > 0))
    return "";
  y0 = std::pow(10, std::floor(std::log10(y0)));
  y1 = std::pow(10, std::ceil(std::log10(y1 * 1.0001)));
  if (x1 <= x0)
    x1 = x0 * 2;
  auto x = [&](double value) {
    return kLeft +
           (kWidth - kLeft - kRight) * std::log(value / x0) / std::log(x1 / x0);
  };
  auto y = [&](double value) {
    return kHeight - kBottom -
           (kHeight - kTop - kBottom) * std::log(value / y0) /
               std::log(y1 / y0);
  };
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<text x=\"%g\" y=\"22\" font-size=\"15\">%s, %d ranks: time per "
      "operation</text>\n",
      kWidth, kHeight, kLeft, kindText(options.kind), options.ranks);
  for (double tick = y0; tick <= y1 * 1.001; tick *= 10)
    svg +=
        format("<path d=\"M%g %.1fH%g\" stroke=\"#ddd\"/><text x=\"%g\" "
               "y=\"%.1f\" text-anchor=\"end\">%g us</text>\n",
               kLeft, y(tick), kWidth - kRight, kLeft - 6, y(tick) + 4, tick);
  for (double tick = 1; tick <= x1; tick *= 32) {
    if (tick < x0)
      continue;
    static const char *const kUnits[] = {"B", "KiB", "MiB", "GiB"};
    int unit = 0;
    double shown = tick;
    for (; shown >= 1024 && unit < 3; shown /= 1024)
      ++unit;
    svg += format("<path d=\"M%.1f %gV%g\" stroke=\"#ddd\"/><text x=\"%.1f\" "
                  "y=\"%g\" text-anchor=\"middle\">%g %s</text>\n",
                  x(tick), kTop, kHeight - kBottom, x(tick),
                  kHeight - kBottom + 18, shown, kUnits[unit]);
  }
  static const char *const kColors[] = {"#c0392b", "#2471a3", "#1e8449",
                                        "#b7950b", "#6c3483"};
  auto line = [&](auto value, const char *color, const char *dash,
                  const std::string &name, size_t index) {
    std::string points;
    for (const Row &row : rows)
      if (double v = value(row); v > 0)
        points += format("%.1f,%.1f ",
                         x(double(std::max<uint64_t>(row.bytes, 1))), y(v));
    svg += "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" +
           std::string(color) + "\" stroke-dasharray=\"" + dash +
           "\" points=\"" + points + "\"/>\n" +
           format("<path d=\"M%g %gh20\" stroke-width=\"2\" stroke=\"%s\" "
                  "stroke-dasharray=\"%s\"/><text x=\"%g\" y=\"%g\">",
                  kWidth - kRight + 12, kTop + 10 + 20 * double(index), color,
                  dash, kWidth - kRight + 38, kTop + 14 + 20 * double(index)) +
           name + "</text>\n";
  };
  for (size_t team = 0; team < numTeams; ++team)
    line([&](const Row &row) { return series(team, row); }, kColors[team % 5],
         "none", teams.all()[team].name, team);
  line([](const Row &row) { return row.bound; }, "#777", "4 3", "bound",
       numTeams);
  return svg + "</svg>\n";
}

void concord::bench::writeFile(const std::string &path,
                               const std::string &text) {
  FILE *file = std::fopen(path.c_str(), "w");
  bool good =
      file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file)
    good &= std::fclose(file) == 0;
  if (!good)
    throw Failure(path + ": " + std::strerror(errno));
}
