//===- Machine.cpp - Built-in machines ------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/cost/Machine.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace concord::cost {

int64_t Level::blockOf(int64_t rank) const {
  if (!starts.empty())
    return std::upper_bound(starts.begin(), starts.end(), rank) -
           starts.begin() - 1;
  return span ? rank / span : 0;
}

std::optional<Machine> builtinMachine(std::string_view name) {
  Machine machine;
  machine.name = name;
  machine.source = "built-in";
  machine.validated =
      "nowhere: nominal figures, good for comparing schedules, not for times";
  Level host;
  host.name = "host";
  if (name == "cpu") {
    // A server core of 2024, and the shared-memory runtime of this project.
    machine.flops = {{DType::F32, 1e11}, {DType::F64, 5e10}};
    machine.cache = {1.1e11, 1e12};
    machine.contended = 9e9;
    machine.dram = {4e10, 9e10};
    machine.cacheBytes = 32 << 20;
    machine.opSeconds = 0.5e-6;
    machine.issueSeconds = 0.3e-6;
    machine.messageSeconds = 0.2e-6;
    machine.flagSeconds = 0.25e-6;
    machine.updateSeconds = 0.09e-9;
    host.memory = true;
    host.coreShare = 1;
    host.latency = machine.flagSeconds;
    host.bandwidth = machine.cache.core;
    machine.levels = {host};
    return machine;
  }
  if (name == "accelerator") {
    // 100 TFLOP/s, 1 TB/s of memory, 100 GB/s of link, 10 us a launch.
    machine.flops = {{DType::F32, 1e14}, {DType::F64, 5e13}};
    machine.cache = machine.dram = {1e12, 1e12};
    machine.opSeconds = 0;
    machine.issueSeconds = 0;
    machine.messageSeconds = 0;
    machine.flagSeconds = 2e-6;
    machine.updateSeconds = 1e-13;
    host.name = "fabric";
    host.latency = 5e-6;
    host.bandwidth = 1e11;
    machine.levels = {host};
    return machine;
  }
  return std::nullopt;
}

/// The processor as a part of a file's name: home directories are shared by
/// hosts of different ones.
static std::string processorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string name;
  for (std::string line; name.empty() && std::getline(file, line);)
    // x86 has a name; Arm has numbers.
    if (line.starts_with("model name") || line.starts_with("CPU part"))
      name = line.substr(std::min(line.find(':') + 1, line.size()));
  std::string safe;
  for (char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      safe += c;
    else if (!safe.empty() && safe.back() != '-')
      safe += '-';
  while (!safe.empty() && safe.back() == '-')
    safe.pop_back();
  return safe.empty() ? "cpu" : safe;
}

std::string defaultCalibrationPath() {
  std::string base;
  if (const char *cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    base = cache;
  else if (const char *home = std::getenv("HOME"); home && *home)
    base = std::string(home) + "/.cache";
  return base.empty()
             ? base
             : base + "/concord/calibration-" + processorName() + ".json";
}

bool loadMachine(const std::string &what, std::string_view fallback,
                 Machine &machine, std::string &error) {
  if (auto builtin = builtinMachine(what)) {
    machine = std::move(*builtin);
    return true;
  }
  if (!what.empty()) {
    std::string calibrationError;
    // The first key tells the two formats apart; each reader says what it
    // misses, and the topology's message is the one for a file that is neither.
    if (readCalibration(what, machine, calibrationError))
      return true;
    if (calibrationError.find("\"concord_calibration\"") == std::string::npos) {
      error = calibrationError;
      return false;
    }
    return readTopology(what, machine, error);
  }
  std::string path = defaultCalibrationPath();
  std::error_code ignored;
  if (!path.empty() && std::filesystem::exists(path, ignored))
    return readCalibration(path, machine, error);
  auto builtin = builtinMachine(fallback);
  if (!builtin) {
    error = "no built-in machine is called '" + std::string(fallback) + "'";
    return false;
  }
  machine = std::move(*builtin);
  return true;
}

std::string describe(const Machine &machine) {
  return "machine " + machine.name + " (" + machine.source + "), validated " +
         (machine.validated.empty() ? "nowhere" : machine.validated);
}

} // namespace concord::cost
