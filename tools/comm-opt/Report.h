//===- Report.h - --report ------------------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_OPT_REPORT_H
#define CONCORD_TOOLS_COMM_OPT_REPORT_H

#include "Simulate.h"

namespace concord {

/// One decision, as --explain prints it.
struct Explanation {
  std::string pass, action, location, reason, keys;
};
/// Takes a line `explain: PASS ACTION LOCATION reason=ID KEYS` apart.
Explanation parseExplanation(llvm::StringRef line);

/// The page. `trace` is the text of a file of `comm-run --trace`, or empty. ""
/// and `error` set on failure.
std::string makeReport(mlir::ModuleOp module, const Prediction &prediction,
                       llvm::ArrayRef<Explanation> explanations,
                       llvm::StringRef trace, std::string &error);

} // namespace concord

#endif // CONCORD_TOOLS_COMM_OPT_REPORT_H
