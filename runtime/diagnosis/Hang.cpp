//===- Hang.cpp - Explaining a job in which nothing moves -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Copies the blocks, reads the copies as evidence, prints what the doctor says.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Hang.h"
#include "concord/order/Evidence.h"
#include "engine/Engine.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

using namespace concord;
using namespace concord::rt;
namespace evidence = concord::order::evidence;

std::string concord::rt::writeLog(const issuelog::Block &block,
                                  const std::string &path, double seconds) {
  auto copy = std::make_unique<issuelog::Block>();
  copyBlock(block, *copy);
  copy->stoodStill = uint64_t(seconds * 1e9);
  std::string temporary = path + ".tmp";
  int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return std::strerror(errno);
  bool written = ::write(fd, copy.get(), sizeof *copy) == ssize_t(sizeof *copy);
  std::string why = written ? "" : std::strerror(errno);
  ::close(fd);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0)
    why = std::strerror(errno);
  if (!why.empty())
    ::unlink(temporary.c_str());
  return why;
}

/// The logs of all ranks that keep one, as evidence.
static void readJob(const Context &context, evidence::Job &job) {
  auto copy = std::make_unique<issuelog::Block>();
  for (int r = 0; r < context.world; ++r) {
    copyBlock(context.segment->log(r), *copy);
    std::string_view bytes(reinterpret_cast<const char *>(copy.get()),
                           sizeof *copy);
    std::string error;
    evidence::readIssueLog(bytes, "rank_" + std::to_string(r) + ".issues", job,
                           error);
  }
}

std::string concord::rt::explainJob(const Context &context) {
  evidence::Job job;
  readJob(context, job);
  job.nothingMoves = true;
  evidence::Diagnosis diagnosis = evidence::diagnose(job);
  std::string text;
  for (const order::Finding &finding : diagnosis.findings)
    text += order::findingText(finding, "  ");
  return text;
}

std::string concord::rt::rankText(const Context &context) {
  auto copy = std::make_unique<issuelog::Block>();
  copyBlock(context.segment->log(context.rank), *copy);
  return evidence::issueLogText(*copy);
}

void concord::rt::writeLogs(const Context &context, double seconds) {
  const std::string &folder = context.issueFolder;
  if (folder.empty())
    return;
  std::error_code ignored; // writing the logs says it
  std::filesystem::create_directories(folder, ignored);
  for (int r = 0; r < context.world; ++r) {
    const issuelog::Block &block = context.segment->log(r);
    if (std::atomic_ref(const_cast<uint64_t &>(block.magic))
            .load(std::memory_order_acquire) != issuelog::kMagic)
      continue;
    std::string path = folder + "/rank_" + std::to_string(r) + ".issues";
    std::string why = writeLog(block, path, seconds);
    if (!why.empty()) {
      std::fprintf(stderr, "concord: cannot write the issue log %s: %s\n",
                   path.c_str(), why.c_str());
      return;
    }
  }
}

void concord::rt::reportHang(const Context &context, double seconds) {
  uint64_t nobody = 0;
  if (!context.segment->header().explaining.compare_exchange_strong(
          nobody, uint64_t(context.rank) + 1))
    return;
  std::string text;
  try {
    text = explainJob(context);
  } catch (const std::exception &failure) {
    text = std::string("  the analysis failed: ") + failure.what() + "\n";
  }
  char head[160];
  std::snprintf(head, sizeof head,
                "concord: watchdog of rank %d: nothing has moved for %.1f s; "
                "who waits for whom:\n",
                context.rank, seconds);
  if (text.empty())
    text = "  every operation that was issued is held up by nothing that the "
           "issue logs show\n";
  // One write, so that the ranks' outputs do not mix.
  text = head + text;
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
  writeLogs(context, seconds);
}
