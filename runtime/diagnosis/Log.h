//===- Log.h - What a rank says of itself -----------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One line per event, written at once and whole, so that the lines of ranks
// that share a file or a terminal do not mix. Nothing on the path of an
// operation logs.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_DIAGNOSIS_LOG_H
#define CONCORD_RUNTIME_DIAGNOSIS_LOG_H

namespace concord::rt {

/// Numbers as the words of CONCORD_LOG.
enum class LogLevel : int { Off = 0, Error, Warn, Info, Debug };

class Log {
public:
  Log() = default;
  ~Log();
  Log(const Log &) = delete;
  Log &operator=(const Log &) = delete;

  /// Read CONCORD_LOG and CONCORD_LOG_FILE. Throws when they are not usable.
  void open(int rank);
  bool on(LogLevel level) const { return int(level) <= threshold; }
  void write(LogLevel level, const char *format, ...) const
      __attribute__((format(printf, 3, 4)));

private:
  int threshold = int(LogLevel::Warn);
  int rank = 0;
  int file = 2;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_DIAGNOSIS_LOG_H
