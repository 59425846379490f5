//===- FaultTest.cpp - Processes that die, stop or never come -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Starts real processes through concord_launch_job and looks at what the
// survivors say, and that they say it in time: ten times the promise of a
// second for deaths, the set timeout and as much again for stopped ranks.
//
//===----------------------------------------------------------------------===//

#include "../../unit/TimeScale.h"
#include "concord/concord.h"
#include "concord/launch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using concord::test::scaled;

namespace {

struct Outcome {
  int32_t status;
  concord_launch_result result;
  std::string output; ///< standard error of all ranks
  double seconds;
};

std::vector<int64_t> startedPids;

Outcome launch(int world, const std::string &mode, int victim,
               double timeout = 20) {
  std::string victimText = std::to_string(victim);
  const char *argv[] = {FAULT_RANK, mode.c_str(), victimText.c_str(), nullptr};
  std::string timeoutText =
      "CONCORD_TIMEOUT=" + std::to_string(scaled(timeout));
  std::string connectText =
      "CONCORD_CONNECT_TIMEOUT=" + std::to_string(scaled(20));
  const char *env[] = {timeoutText.c_str(), connectText.c_str(), nullptr};
  char name[] = "/tmp/concord-fault-XXXXXX";
  int file = ::mkostemp(name, O_CLOEXEC);
  ::unlink(name);
  std::vector<int32_t> files(size_t(world), file);
  concord_launch_config config{};
  config.struct_size = sizeof config;
  config.world = world;
  config.argv_all = argv;
  config.env = env;
  config.heap_bytes = 64 << 20;
  config.grace_seconds = scaled(3);
  config.stderr_fds = files.data();
  config.started = [](void *, const int64_t *pids, int32_t n) {
    startedPids.assign(pids, pids + n);
  };
  Outcome outcome{};
  outcome.result.struct_size = sizeof outcome.result;
  auto began = std::chrono::steady_clock::now();
  outcome.status = concord_launch_job(&config, &outcome.result);
  outcome.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
          .count();
  off_t size = ::lseek(file, 0, SEEK_END);
  outcome.output.resize(size_t(size));
  EXPECT_EQ(::pread(file, outcome.output.data(), size_t(size), 0), size);
  ::close(file);
  // Nothing is left running.
  for (int64_t pid : startedPids)
    EXPECT_NE(::kill(pid_t(pid), 0), 0) << pid;
  return outcome;
}

size_t occurrences(const std::string &text, const std::string &word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1))
    ++n;
  return n;
}

} // namespace

TEST(Faults, AGoodJobEndsWell) {
  Outcome outcome = launch(4, "none", 0);
  EXPECT_EQ(outcome.status, CONCORD_OK) << outcome.output;
  EXPECT_EQ(outcome.result.failed_rank, -1);
  EXPECT_EQ(outcome.output, "");
}

TEST(Faults, KilledRankIsNamedByEverySurvivor) {
  for (const char *mode : {"kill", "kill-large"})
    for (int world : {2, 4}) {
      Outcome outcome = launch(world, mode, 1);
      EXPECT_EQ(outcome.status, CONCORD_ERROR_PEER_DIED);
      EXPECT_EQ(outcome.result.failed_rank, 1) << outcome.result.message;
      EXPECT_EQ(outcome.result.exit_status, 128 + SIGKILL);
      EXPECT_EQ(occurrences(outcome.output, "CONCORD_ERROR_PEER_DIED"),
                size_t(world - 1))
          << outcome.output;
      EXPECT_GE(occurrences(outcome.output, "rank 1 "), size_t(world - 1))
          << outcome.output;
      EXPECT_LT(outcome.seconds, scaled(10));
    }
}

TEST(Faults, RankThatExitsWithoutAWordIsADeath) {
  Outcome outcome = launch(3, "exit", 2);
  EXPECT_EQ(outcome.status, CONCORD_ERROR_PEER_DIED);
  EXPECT_EQ(occurrences(outcome.output, "CONCORD_ERROR_PEER_DIED"), 2u)
      << outcome.output;
  EXPECT_LT(outcome.seconds, scaled(10));
}

TEST(Faults, RankThatFinalizesEarlyHasLeft) {
  Outcome outcome = launch(2, "leave", 0);
  EXPECT_EQ(outcome.status, CONCORD_ERROR_PEER_DIED);
  EXPECT_EQ(outcome.result.exit_status, 40 + CONCORD_ERROR_PEER_LEFT);
  EXPECT_NE(outcome.output.find("rank 0 has finalized"), std::string::npos)
      << outcome.output;
}

TEST(Faults, StoppedRankIsReportedAfterTheTimeout) {
  Outcome outcome = launch(2, "stop", 1, 0.5);
  EXPECT_EQ(outcome.status, CONCORD_ERROR_PEER_DIED);
  EXPECT_NE(outcome.output.find("CONCORD_ERROR_TIMEOUT"), std::string::npos);
  EXPECT_NE(outcome.output.find("rank 1 is stopped"), std::string::npos)
      << outcome.output;
  EXPECT_LT(outcome.seconds, scaled(20));
}

TEST(Faults, RankThatNeverComesIsNamed) {
  for (const char *mode : {"absent", "segv-early"}) {
    Outcome outcome = launch(3, mode, 1);
    EXPECT_EQ(outcome.status, CONCORD_ERROR_PEER_DIED);
    EXPECT_EQ(outcome.result.failed_rank, 1) << outcome.result.message;
    EXPECT_EQ(occurrences(outcome.output, "rank 1 died before"), 2u)
        << outcome.output;
    EXPECT_LT(outcome.seconds, scaled(10));
  }
}

TEST(Faults, TwoProcessesCannotBeOneRank) {
  Outcome outcome = launch(2, "duplicate", 1);
  EXPECT_NE(outcome.status, CONCORD_OK);
  EXPECT_NE(outcome.output.find("CONCORD_ERROR_RANK_TAKEN"), std::string::npos)
      << outcome.output;
}

TEST(Faults, WorldsMustAgree) {
  Outcome outcome = launch(2, "world", 0);
  EXPECT_NE(outcome.output.find("CONCORD_ERROR_WRONG_WORLD"), std::string::npos)
      << outcome.output;
}

TEST(Faults, WrongDescriptorsAreRefused) {
  // What a stale or hostile environment may hand over.
  char name[] = "/tmp/concord-fault-XXXXXX";
  int file = ::mkostemp(name, 0);
  ::unlink(name);
  std::string open = std::to_string(file);
  for (bool sized : {false, true}) {
    if (sized)
      ASSERT_EQ(::ftruncate(file, off_t(3) << 30), 0);
    ::setenv("CONCORD_JOB_FD", open.c_str(), 1);
    concord_context *context;
    EXPECT_EQ(concord_context_create(nullptr, &context), CONCORD_ERROR_CORRUPT)
        << concord_last_error();
  }
  concord_context *context;
  ::setenv("CONCORD_JOB_FD", "931", 1);
  EXPECT_EQ(concord_context_create(nullptr, &context), CONCORD_ERROR_SYSTEM);
  ::setenv("CONCORD_JOB_FD", "seven", 1);
  EXPECT_EQ(concord_context_create(nullptr, &context),
            CONCORD_ERROR_INVALID_ARGUMENT);
  ::unsetenv("CONCORD_JOB_FD");
  ::setenv("CONCORD_HEAP_BYTES", "12Q", 1);
  EXPECT_EQ(concord_context_create(nullptr, &context),
            CONCORD_ERROR_INVALID_ARGUMENT);
  ::unsetenv("CONCORD_HEAP_BYTES");
  ::close(file);
}

TEST(Launch, TellsWhatCannotBeStarted) {
  const char *argv[] = {"/nonexistent/program", nullptr};
  concord_launch_config config{};
  config.struct_size = sizeof config;
  config.world = 2;
  config.argv_all = argv;
  concord_launch_result result{};
  result.struct_size = sizeof result;
  EXPECT_EQ(concord_launch_job(&config, &result), CONCORD_ERROR_NOT_FOUND);
  EXPECT_NE(std::string(result.message).find("/nonexistent/program"),
            std::string::npos);
}

// The end of a rank is heard by its own launcher, also where another one, which
// waits meanwhile, gets the signals of the process.
TEST(Launch, JobsOfSeveralThreadsEndEachByItself) {
  auto job = [](std::vector<const char *> argv, int world) {
    argv.push_back(nullptr);
    concord_launch_config config{};
    config.struct_size = sizeof config;
    config.world = world;
    config.argv_all = argv.data();
    config.timeout_seconds = scaled(30);
    concord_launch_result result{};
    result.struct_size = sizeof result;
    EXPECT_EQ(concord_launch_job(&config, &result), CONCORD_OK)
        << result.message;
  };
  sigset_t child, before;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &child, &before);
  std::vector<std::thread> idle;
  for (int i = 0; i < 3; ++i)
    idle.emplace_back(job, std::vector<const char *>{"sleep", "2"}, 1);
  for (int i = 0; i < 40 && !::testing::Test::HasFailure(); ++i)
    job({"sleep", "0.01"}, 16);
  for (std::thread &launcher : idle)
    launcher.join();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Launch, StopsAJobThatRunsTooLong) {
  const char *argv[] = {"sleep", "100", nullptr};
  concord_launch_config config{};
  config.struct_size = sizeof config;
  config.world = 2;
  config.argv_all = argv;
  config.timeout_seconds = 0.2;
  concord_launch_result result{};
  result.struct_size = sizeof result;
  EXPECT_EQ(concord_launch_job(&config, &result), CONCORD_ERROR_TIMEOUT);
  EXPECT_EQ(result.timed_out, 1);
}
