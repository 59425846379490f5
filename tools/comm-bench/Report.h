//===- Report.h - Table, JSON, drawing --------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What comm-bench says.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_REPORT_H
#define CONCORD_TOOLS_COMM_BENCH_REPORT_H

#include "Measure.h"

namespace concord::bench {

void printHead(const Options &options, const Teams &teams);
void printRow(const Options &options, const Row &row);
/// Bandwidths behind the efficiencies, closing line, what went wrong.
void printFoot(const Options &options, const std::vector<Row> &rows);

std::string jsonRows(const Options &options, const std::vector<Row> &rows);
/// That the files of the options can be read and written, before anything is
/// measured. Throws Failure.
void checkFiles(const Options &options);
/// Rows of a former run beside these. Throws Failure.
void printBaseline(const Options &options, const std::vector<Row> &rows);
std::string drawSvg(const Options &options, const Teams &teams,
                    const std::vector<Row> &rows);
/// Throws Failure.
void writeFile(const std::string &path, const std::string &text);

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_REPORT_H
