//===- Log.cpp - What a rank says of itself -------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lines look like `concord 12:34:56.789 rank 3 warn: words`.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Log.h"
#include "context/Env.h"
#include "diagnosis/Error.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <time.h>
#include <unistd.h>

using namespace concord::rt;

Log::~Log() {
  if (file > 2)
    ::close(file);
}

void Log::open(int ownRank) {
  rank = ownRank;
  threshold = envWord("CONCORD_LOG");
  std::string path = envText("CONCORD_LOG_FILE");
  if (path.empty())
    return;
  for (size_t at = 0; (at = path.find("%r", at)) != std::string::npos;)
    path.replace(at, 2, std::to_string(rank));
  int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0)
    raiseErrno("CONCORD_LOG_FILE=%s cannot be opened", path.c_str());
  if (file > 2)
    ::close(file);
  file = fd;
}

void Log::write(LogLevel level, const char *format, ...) const {
  if (!on(level))
    return;
  static constexpr const char *kWords[] = {"off", "error", "warn", "info",
                                           "debug"};
  timespec now;
  tm local;
  ::clock_gettime(CLOCK_REALTIME, &now);
  ::localtime_r(&now.tv_sec, &local);
  char line[1024];
  size_t used = size_t(std::snprintf(
      line, sizeof line,
      "concord %02d:%02d:%02d.%03ld rank %d %s: ", local.tm_hour, local.tm_min,
      local.tm_sec, now.tv_nsec / 1'000'000, rank, kWords[int(level)]));
  va_list arguments;
  va_start(arguments, format);
  int more = std::vsnprintf(line + used, sizeof line - used, format, arguments);
  va_end(arguments);
  used = std::min(used + size_t(std::max(more, 0)), sizeof line - 2);
  line[used++] = '\n';
  [[maybe_unused]] ssize_t n = ::write(file, line, used);
}
