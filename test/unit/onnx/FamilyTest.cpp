//===- FamilyTest.cpp - Sizes as polynomials ------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/onnx/Family.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace concord;
using namespace concord::onnx;

namespace {

using Points = std::vector<std::vector<int64_t>>;

const Points kOne = {{509}, {503}, {499}, {491}, {487}, {479}};
const Points kTwo = {{13, 509}, {11, 491}, {29, 479}, {17, 503},
                     {31, 487}, {23, 463}, {19, 499}, {37, 467}};

template <typename Function>
std::optional<Extent> fit(const Points &points, Function function) {
  std::vector<int64_t> values;
  for (const auto &point : points)
    values.push_back(function(point));
  return fitExtent(points, values);
}

TEST(Extent, ReadsWhatItWrites) {
  for (const char *text :
       {"0", "7", "d0", "-3", "1536*d0+4", "d0*d1/2", "12*d0*d0*d1-d1+1"}) {
    auto extent = Extent::parse(text, 2);
    ASSERT_TRUE(extent) << text;
    EXPECT_EQ(Extent::parse(extent->text(), 2)->text(), extent->text());
  }
  EXPECT_EQ(Extent::parse("1536*d0+4", 1)->at(std::vector<int64_t>{2}), 3076);
  EXPECT_EQ(Extent::parse("d0*d1/2", 2)->at(std::vector<int64_t>{3, 4}), 6);
}

TEST(Extent, RefusesForeignText) {
  for (const char *text : {"", "d2", "d", "1+", "*d0", "1/0", "1/", "d0 ", "x",
                           "99999999999999999999", "d0**d1", "+"})
    EXPECT_FALSE(Extent::parse(text, 2)) << text;
}

TEST(Extent, HasNoValueWhereItIsNoInteger) {
  EXPECT_FALSE(Extent::parse("d0/2", 1)->at(std::vector<int64_t>{3}));
  EXPECT_FALSE(
      Extent::parse("9223372036854775807*d0", 1)->at(std::vector<int64_t>{2}));
}

TEST(Extent, FillsBraces) {
  std::vector<int64_t> dims = {3};
  EXPECT_EQ(instantiate("gemm m={8*d0} n=64", dims), "gemm m=24 n=64");
  EXPECT_FALSE(instantiate("gemm m={8*d1}", dims));
  EXPECT_FALSE(instantiate("gemm m={8*d0", dims));
}

TEST(Fit, FindsPolynomials) {
  EXPECT_EQ(fit(kOne, [](auto &) { return 42; })->text(), "42");
  EXPECT_EQ(fit(kOne, [](auto &p) { return p[0]; })->text(), "d0");
  EXPECT_EQ(fit(kOne, [](auto &p) { return 48 * p[0] * p[0]; })->text(),
            "48*d0*d0");
  EXPECT_EQ(fit(kOne, [](auto &p) { return 8 * p[0] + 32; })->text(),
            "8*d0+32");
  EXPECT_EQ(fit(kTwo, [](auto &p) { return p[0] * p[1] * p[1] * 12; })->text(),
            "12*d0*d1*d1");
  EXPECT_EQ(fit(kTwo, [](auto &p) { return p[0] * (p[1] + 1); })->text(),
            "d0+d0*d1");
}

TEST(Fit, RefusesWhatIsNone) {
  EXPECT_FALSE(fit(kOne, [](auto &p) { return (p[0] + 3) / 4; }));
  EXPECT_FALSE(fit(kOne, [](auto &p) { return p[0] % 7; }));
  EXPECT_FALSE(fit(kOne, [](auto &p) { return std::min<int64_t>(p[0], 500); }));
  EXPECT_FALSE(fit(kTwo, [](auto &p) { return p[1] / 3; }));
}

TEST(Bounds, AreExactForSizes) {
  std::vector<BoundedDim> dims = {{"batch", 1, 8}, {"seq", 0, 512}};
  EXPECT_EQ(boundsOf(*Extent::parse("4*d0*d1+2", 2), dims),
            std::pair(int64_t(2), int64_t(4 * 8 * 512 + 2)));
  EXPECT_EQ(boundsOf(*Extent::parse("d1-d0", 2), dims),
            std::pair(int64_t(-8), int64_t(511)));
}

TEST(Trials, AreAllOrTheCornersAndLines) {
  std::vector<BoundedDim> small = {{"a", 1, 3}, {"b", 0, 4}};
  EXPECT_EQ(trialPoints(small, 64).size(), 15u);
  std::vector<BoundedDim> large = {{"a", 1, 1000}, {"b", 0, 1000}};
  auto points = trialPoints(large, 64);
  EXPECT_LE(points.size(), 80u);
  for (std::vector<int64_t> corner :
       {std::vector<int64_t>{1, 0}, {1, 1000}, {1000, 0}, {1000, 1000}})
    EXPECT_NE(std::find(points.begin(), points.end(), corner), points.end());
  for (const auto &point : points) {
    EXPECT_TRUE(point[0] >= 1 && point[0] <= 1000);
    EXPECT_TRUE(point[1] >= 0 && point[1] <= 1000);
  }
}

} // namespace
