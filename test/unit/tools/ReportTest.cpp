//===- ReportTest.cpp - Tests of comm-run's numbers -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Percentiles, and what is said of an output.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include <gtest/gtest.h>
#include <limits>

using namespace concord;
using namespace concord::tools;

namespace {

TEST(Report, Latency) {
  std::vector<double> seconds;
  for (int i = 200; i >= 1; --i)
    seconds.push_back(i);
  Latency latency = latencyOf(seconds);
  EXPECT_EQ(latency.least, 1);
  EXPECT_EQ(latency.median, 100);
  EXPECT_EQ(latency.p99, 198);
  EXPECT_EQ(latency.seconds.front(), 200) << "the order of steps stays";
  EXPECT_EQ(latencyOf({3}).p99, 3);
  EXPECT_EQ(latencyOf({}).median, 0);
}

TEST(Report, DescribesAnOutput) {
  HostTensor tensor{DType::F32, {4}, std::vector<std::byte>(16)};
  double values[4] = {2, -3, std::numeric_limits<double>::infinity(),
                      std::numeric_limits<double>::quiet_NaN()};
  for (uint64_t i = 0; i < 4; ++i)
    setElement(tensor.dtype, tensor.bytes, i, values[i]);
  OutputReport report = describeOutput("y", tensor);
  EXPECT_EQ(report.least, -3);
  EXPECT_EQ(report.greatest, 2);
  EXPECT_EQ(report.notFinite, 2u);
  EXPECT_EQ(report.digest.size(), 64u);
  std::string digest = report.digest;
  tensor.bytes[0] = std::byte(1);
  EXPECT_NE(describeOutput("y", tensor).digest, digest);
}

} // namespace
