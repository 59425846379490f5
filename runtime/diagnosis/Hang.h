//===- Hang.h - Explaining a job in which nothing moves ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The issue logs of all ranks lie in the job's memory. They are handed to the
// same code that comm-doctor runs on files (analysis/order), so that watchdog
// and doctor cannot come to different conclusions.
//
// Nothing here takes a lock or changes the context: the rank hangs.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_DIAGNOSIS_HANG_H
#define CONCORD_RUNTIME_DIAGNOSIS_HANG_H

#include "context/Context.h"

namespace concord::rt {

/// Write a block to a file, under a temporary name first. "" or why not.
/// `stoodStill`: seconds for which nothing had moved, if that is known.
std::string writeLog(const issuelog::Block &block, const std::string &path,
                     double stoodStill = 0);

/// What this rank does: what it has issued that is not complete, what its host
/// threads wait in, where its gate stands.
std::string rankText(const Context &context);

/// The doctor's findings on all ranks' logs as they are now; empty if nothing
/// is wrong.
std::string explainJob(const Context &context);

/// If CONCORD_ISSUE_LOG names a folder: write the logs of all ranks there.
void writeLogs(const Context &context, double stoodStill = 0);

/// Explain the hang on standard error, once per job; the first rank that asks
/// does it.
void reportHang(const Context &context, double seconds);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_DIAGNOSIS_HANG_H
