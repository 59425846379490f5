//===- RankTest.cpp - concord-rank as a process -------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Starts concord-rank on the test program through the launcher: outputs,
// statistics, trace, state, no allocation and no fault in steps 2 to 100, and
// plain errors.
//
//===----------------------------------------------------------------------===//

#include "concord/concord.h"
#include "concord/launch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string readFile(const fs::path &path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

void writeFile(const fs::path &path, const std::string &data) {
  std::ofstream(path, std::ios::binary) << data;
}

std::string bytesOf(const std::vector<float> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * 4};
}

std::vector<float> floatsOf(const std::string &bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return values;
}

class Rank : public ::testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/concord-rank-XXXXXX";
    folder = ::mkdtemp(name);
    std::string header =
        "{\"w#0\":{\"dtype\":\"F32\",\"shape\":[12],\"data_offsets\":[0,48]},"
        "\"w#1\":{\"dtype\":\"F32\",\"shape\":[12],\"data_offsets\":[4096,4144]"
        "}"
        ",\"shared#*\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8192,"
        "8196]}}";
    header.resize(4096 - 8, ' ');
    std::string data(8196, '\0');
    for (int r = 0; r < 2; ++r)
      data.replace(size_t(r) * 4096, 48,
                   bytesOf(std::vector<float>(12, float(r + 1))));
    uint64_t length = header.size();
    writeFile(folder / "test.weights",
              std::string(reinterpret_cast<char *>(&length), 8) + header +
                  data);
    fs::copy_file(TEST_PROGRAM, folder / "good.so");
    fs::copy_file(TEST_CONTROL, folder / "control.so");
    for (int r = 0; r < 2; ++r) {
      std::vector<float> x(12);
      for (int i = 0; i < 12; ++i)
        x[size_t(i)] = float(i + 10 * r);
      writeFile(file("x", r), bytesOf(x));
      writeFile(file("past", r), bytesOf(std::vector<float>(5, 1)));
    }
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string file(const std::string &name, int rank) const {
    return folder / (name + "." + std::to_string(rank));
  }

  json job(int rank, const char *program, uint64_t repeat) const {
    json job = {{"program", folder / program},
                {"repeat", repeat},
                {"warmup", 0},
                {"json", file("stats", rank)},
                {"trace", file("trace", rank)},
                {"trace_steps", 2},
                {"state", {{{"input", "past"}, {"output", "present"}}}}};
    for (const char *name : {"x", "past"})
      job["inputs"].push_back({{"name", name}, {"file", file(name, rank)}});
    for (const char *name : {"sum", "present"})
      job["outputs"].push_back({{"name", name}, {"file", file(name, rank)}});
    return job;
  }

  /// Run both ranks; returns the launcher's status, keeps their errors.
  int32_t run(const std::function<json(int)> &jobs, bool counting = false) {
    std::vector<std::string> paths;
    for (int r = 0; r < 2; ++r) {
      paths.push_back(file("job", r));
      writeFile(paths.back(), jobs(r).dump());
    }
    const char *argv0[] = {CONCORD_RANK_TOOL, paths[0].c_str(), nullptr};
    const char *argv1[] = {CONCORD_RANK_TOOL, paths[1].c_str(), nullptr};
    const char *const *argvs[] = {argv0, argv1};
    std::string countFile =
        "CONCORD_MEMCOUNT_FILE=" + (folder / "count").string();
    const char *env[] = {counting ? "LD_PRELOAD=" MEMCOUNT : "X=1",
                         countFile.c_str(), "CONCORD_HEAP_BYTES=64M", nullptr};
    int log = ::open((folder / "log").c_str(),
                     O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    int32_t logs[2] = {log, log};
    concord_launch_config config{};
    config.struct_size = sizeof config;
    config.world = 2;
    config.argv = argvs;
    config.env = env;
    config.grace_seconds = 3;
    config.stderr_fds = logs;
    concord_launch_result result{};
    result.struct_size = sizeof result;
    int32_t status = concord_launch_job(&config, &result);
    ::close(log);
    errors = readFile(folder / "log");
    return status;
  }

  std::map<std::string, long> counts(int rank) const {
    std::stringstream text(readFile(file("count", rank)));
    std::map<std::string, long> values;
    std::string name;
    for (long value; text >> name >> value;)
      values[name] = value;
    return values;
  }

  fs::path folder;
  std::string errors;
};

} // namespace

TEST_F(Rank, WritesOutputsStatisticsAndTrace) {
  ASSERT_EQ(run([&](int r) { return job(r, "good.so", 5); }), CONCORD_OK)
      << errors;
  for (int r = 0; r < 2; ++r) {
    auto sum = floatsOf(readFile(file("sum", r)));
    ASSERT_EQ(sum.size(), 12u);
    EXPECT_EQ(sum[3], 3 * 1 + 13 * 2);
    EXPECT_EQ(floatsOf(readFile(file("present", r)))[4], 6);
    json stats = json::parse(readFile(file("stats", r)));
    EXPECT_EQ(stats["step_ns"].size(), 5u);
    EXPECT_GT(stats["step_ns"][4], 0);
    EXPECT_EQ(stats["rank"], r);
    EXPECT_EQ(stats["weight_bytes"], 52);
    EXPECT_GT(stats["rss_bytes"], stats["heap_peers_rss_bytes"]);
    json trace = json::parse(readFile(file("trace", r)));
    ASSERT_EQ(trace["issuers"].size(), 1u);
    const json &issuer = trace["issuers"][0];
    EXPECT_EQ(issuer["steps"].size(), 5u);
    EXPECT_EQ(issuer["events"].size(), 2u * 4); // two steps of four issues
    int waited = 0;
    for (const json &event : issuer["events"]) {
      // Step, site, begin, return, where it is waited for or -1, end.
      EXPECT_LE(event[2], event[3]);
      EXPECT_LE(event[3], event[5]);
      EXPECT_GE(event[2], issuer["steps"][event[0].get<size_t>()][1]);
      EXPECT_LE(event[5], issuer["steps"][event[0].get<size_t>()][2]);
      waited += event[4] >= event[3];
    }
    EXPECT_EQ(waited, 2); // one is started
  }
}

TEST_F(Rank, StepsNeitherAllocateNorFault) {
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
  GTEST_SKIP()
      << "a sanitizer's shadow memory faults, and its allocator is not "
         "the one that is counted";
#endif
  // The kernel may take a page away and give it back on its own account
  // (reclaim, migration): a fault of ours shows in every run.
  long faults = -1;
  for (int attempt = 0; attempt < 5 && faults != 0; ++attempt) {
    ASSERT_EQ(run([&](int r) { return job(r, "good.so", 100); }, true),
              CONCORD_OK)
        << errors;
    faults = 0;
    for (int r = 0; r < 2; ++r) {
      auto values = counts(r);
      ASSERT_EQ(values.size(), 10u);
      for (const auto &[name, value] : values) {
        if (name == "minor_faults")
          faults += value;
        else
          EXPECT_EQ(value, 0) << name << " on rank " << r;
      }
    }
  }
  EXPECT_EQ(faults, 0) << "minor faults in each of five runs";
  // The counters count.
  ASSERT_EQ(run([&](int r) { return job(r, "control.so", 100); }, true),
            CONCORD_OK)
      << errors;
  auto values = counts(1);
  for (const char *name : {"malloc", "free", "mmap", "munmap"})
    EXPECT_EQ(values[name], 99) << name;
  EXPECT_GE(values["minor_faults"], 99);
}

TEST_F(Rank, SaysWhatIsWrong) {
  auto fails = [&](const std::function<void(json &)> &change,
                   const std::string &words) {
    EXPECT_NE(run([&](int r) {
                json root = job(r, "good.so", 3);
                if (r == 1)
                  change(root);
                return root;
              }),
              CONCORD_OK);
    EXPECT_NE(errors.find(words), std::string::npos) << errors;
  };
  fails([](json &j) { j["inputs"][0]["name"] = "y"; },
        "has no input 'y'; it has: x, past");
  fails([&](json &j) { j["inputs"][0]["file"] = file("past", 0); },
        "20 bytes, but the input needs 48");
  fails([](json &j) { j["inputs"][0]["file"] = "/nonexistent"; },
        "No such file");
  fails([](json &j) { j["outputs"][0]["file"] = "/dev/full"; },
        "No space left");
  fails([](json &j) { j["program"] = "/nonexistent.so"; },
        "rank 1 could not load its program");
  fails([](json &j) { j["repeat"] = 0; }, "impossible number of steps");
  fails([](json &j) { j.erase("program"); }, "not a job file");
}
