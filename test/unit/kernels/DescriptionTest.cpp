//===- DescriptionTest.cpp - Kernel description parser --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Good descriptions, and hostile ones: all of the latter must end in an error.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace concord;
using namespace concord::kernels;

TEST(Description, TypedGetters) {
  Description d = Description::parse(
      "thing a=3 b=-2.5e-3 c=word d=\"ij,jk->ik\" e=[1,2,-3] f=[] "
      "g=[[1,2],[],[3]] h=bf16 i=[f32,i8] j=1 k=inf l=[1.5,2]");
  EXPECT_EQ(d.name(), "thing");
  EXPECT_EQ(d.i64("a"), 3);
  EXPECT_EQ(d.f64("b"), -2.5e-3);
  EXPECT_EQ(d.f64("a"), 3.0);
  EXPECT_EQ(d.word("c"), "word");
  EXPECT_EQ(d.string("d"), "ij,jk->ik");
  EXPECT_EQ(d.list("e"), (std::vector<int64_t>{1, 2, -3}));
  EXPECT_TRUE(d.list("f").empty());
  EXPECT_EQ(d.lists("g"), (std::vector<std::vector<int64_t>>{{1, 2}, {}, {3}}));
  EXPECT_EQ(d.dtype("h"), DType::BF16);
  EXPECT_EQ(d.dtypes("i"), (std::vector<DType>{DType::F32, DType::I8}));
  EXPECT_TRUE(d.flag("j", false));
  EXPECT_TRUE(std::isinf(d.f64("k")));
  EXPECT_EQ(d.floats("l"), (std::vector<double>{1.5, 2}));
  EXPECT_EQ(d.i64("zz", 7), 7);
  d.requireAllRead();
}

TEST(Description, ErrorsNameTheKey) {
  Description d = Description::parse("thing alpha=x beta=2");
  try {
    d.i64("alpha");
    FAIL();
  } catch (const KernelError &error) {
    EXPECT_NE(std::string(error.what()).find("'alpha'"), std::string::npos);
  }
  try {
    d.requireAllRead();
    FAIL();
  } catch (const KernelError &error) {
    EXPECT_NE(std::string(error.what()).find("'beta'"), std::string::npos);
  }
  EXPECT_THROW(d.i64("gamma"), KernelError);
  EXPECT_THROW(d.choice("alpha", {"y", "z"}), KernelError);
}

TEST(Description, Malformed) {
  for (const char *text :
       {"", " a=1", "n a", "n a=", "n =1", "n a=1  b=2", "n a=1 ", "n b=1 a=2",
        "n a=1 a=2", "n a=[1,2", "n a=[1,,2]", "n a=[[[1]]]", "n a=\"x",
        "n a=\"x\\", "n a=[1 ,2]", "n\na=1", "n a=1\tb=2"})
    EXPECT_THROW(Description::parse(text), KernelError) << text;
  EXPECT_THROW(Description::parse("n a=" + std::string(70000, '1')),
               KernelError);
}

TEST(Description, NoiseNeverCrashes) {
  std::mt19937 rng(1);
  const std::string seed = "gemm a=[1,2,[3]] b=\"q\" dtype=f32 k=4 m=2.5 n=3";
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (int k = 0; k < 3; ++k)
      text[rng() % text.size()] =
          char(rng() % 2 ? rng() % 256 : "[],=\" "[rng() % 6]);
    concord_kernel *kernel = nullptr;
    concord_kernel_info info = {};
    info.struct_size = sizeof info;
    if (concord_kernel_create(text.c_str(), &kernel, &info) == 0)
      concord_kernel_destroy(kernel);
    else
      EXPECT_NE(std::string(concord_kernel_last_error()), "");
  }
}

TEST(Description, UnknownKernelAndShapeLimits) {
  concord_kernel *kernel = nullptr;
  EXPECT_NE(concord_kernel_create("no_such_kernel a=1", &kernel, nullptr), 0);
  EXPECT_EQ(kernel, nullptr);
  EXPECT_NE(std::string(concord_kernel_last_error()).find("no_such_kernel"),
            std::string::npos);
  EXPECT_THROW(elementCount({int64_t(1) << 40, int64_t(1) << 40}), KernelError);
  EXPECT_THROW(elementCount({-1}), KernelError);
  EXPECT_EQ(elementCount({int64_t(1) << 60, 0}), 0);
}
