//===- JobFile.cpp - What comm-run asks of one rank -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading the job file and moving raw tensors between files and memory.
//
//===----------------------------------------------------------------------===//

#include "JobFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>

using namespace concord::tools;
using nlohmann::json;

static std::vector<TensorFile> tensorFiles(const json &root, const char *key) {
  std::vector<TensorFile> files;
  for (const json &entry : root.value(key, json::array()))
    files.push_back({entry.at("name"), entry.at("file"),
                     entry.value("shape", std::vector<int64_t>())});
  return files;
}

JobFile concord::tools::readJobFile(const std::string &path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    throw std::runtime_error(path + ": " + std::strerror(errno));
  std::stringstream text;
  text << stream.rdbuf();
  JobFile job;
  try {
    json root = json::parse(text.str());
    job.program = root.at("program");
    job.inputs = tensorFiles(root, "inputs");
    job.outputs = tensorFiles(root, "outputs");
    for (const json &entry : root.value("state", json::array()))
      job.state.emplace_back(entry.at("input"), entry.at("output"));
    job.repeat = root.value("repeat", uint64_t(1));
    job.warmup = root.value("warmup", uint64_t(0));
    job.traceSteps = root.value("trace_steps", uint64_t(0));
    job.severalIssuers = root.contains("slots");
    job.slots = root.value("slots", 1.0);
    job.health = root.value("health", false);
    job.statsFile = root.value("json", std::string());
    job.traceFile = root.value("trace", std::string());
    if (auto gather = root.find("gather"); gather != root.end()) {
      job.gathers = true;
      for (const json &rank : gather->value("ranks", json::array()))
        job.ranks.push_back({tensorFiles(rank, "outputs"),
                             rank.value("json", std::string()),
                             rank.value("trace", std::string())});
    }
  } catch (const json::exception &error) {
    throw std::runtime_error(path + ": not a job file: " + error.what());
  }
  if (job.repeat == 0 || job.repeat > 100'000'000 || job.warmup > 100'000'000)
    throw std::runtime_error(path + ": impossible number of steps");
  return job;
}

void concord::tools::readTensor(const std::string &path, void *target,
                                uint64_t bytes, bool orLess) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw std::runtime_error(path + ": " + std::strerror(errno));
  struct stat info;
  std::string problem;
  if (::fstat(fd, &info) != 0)
    problem = std::strerror(errno);
  else if (orLess && uint64_t(info.st_size) < bytes)
    bytes = uint64_t(info.st_size);
  else if (uint64_t(info.st_size) != bytes)
    problem = std::to_string(info.st_size) + " bytes, but the input needs " +
              std::to_string(bytes);
  auto *at = static_cast<char *>(target);
  while (problem.empty() && bytes) {
    ssize_t n = ::read(fd, at, bytes);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      problem = n < 0 ? std::strerror(errno) : "the file ended too soon";
      break;
    }
    at += n;
    bytes -= uint64_t(n);
  }
  ::close(fd);
  if (!problem.empty())
    throw std::runtime_error(path + ": " + problem);
}

void concord::tools::writeWhole(const std::string &path, const void *data,
                                uint64_t bytes) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    throw std::runtime_error(path + ": " + std::strerror(errno));
  const auto *at = static_cast<const char *>(data);
  struct stat info;
  bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  std::string problem;
  while (bytes) {
    ssize_t n = ::write(fd, at, bytes);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      problem = std::strerror(errno);
      break;
    }
    at += n;
    bytes -= uint64_t(n);
  }
  if (::close(fd) != 0 && problem.empty())
    problem = std::strerror(errno);
  if (!problem.empty()) {
    if (regular)
      ::unlink(path.c_str()); // half a tensor is worse than none
    throw std::runtime_error(path + ": " + problem);
  }
}
