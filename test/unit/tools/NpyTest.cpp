//===- NpyTest.cpp - Tests of common/Npy.h -------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The byte strings below are what NumPy writes; headers are built by hand where
// the interesting thing is the header.
//
//===----------------------------------------------------------------------===//

#include "common/Npy.h"

#include "common/Files.h"

#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

using namespace concord;
using namespace concord::tools;
using ::testing::HasSubstr;

namespace {

std::vector<std::byte> bytesOf(std::string_view text) {
  auto view = std::as_bytes(std::span(text.data(), text.size()));
  return {view.begin(), view.end()};
}

std::vector<std::byte> npy(int version, std::string dict,
                           std::string_view data) {
  std::string file("\x93NUMPY", 6);
  file += static_cast<char>(version);
  file += '\0';
  dict += '\n';
  for (int shift = 0; shift < (version == 1 ? 16 : 32); shift += 8)
    file += static_cast<char>((dict.size() >> shift) & 0xff);
  return bytesOf(file + dict + std::string(data));
}

std::string errorOf(const std::vector<std::byte> &file) {
  try {
    parseNpy(file, "x.npy");
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

TEST(Npy, RoundTripsEveryDtype) {
  std::filesystem::path dir =
      makePrivateDir(std::filesystem::temp_directory_path(), "npy-");
  for (int number = 1; number <= 15; ++number) {
    DType dtype = static_cast<DType>(number);
    HostTensor tensor = drawTensor(dtype, {3, 1, 5}, 7);
    writeNpy(dir / "t.npy", tensor);
    HostTensor back = readNpy(dir / "t.npy");
    EXPECT_EQ(back.shape, tensor.shape);
    EXPECT_EQ(back.bytes, tensor.bytes) << dtypeName(dtype);
    if (dtype == DType::BF16)
      EXPECT_EQ(back.dtype, DType::U16);
    else if (dtype == DType::F8E4M3 || dtype == DType::F8E5M2)
      EXPECT_EQ(back.dtype, DType::U8);
    else
      EXPECT_EQ(back.dtype, dtype);
  }
  std::filesystem::remove_all(dir);
}

TEST(Npy, HeaderIsWhatNumpyWrites) {
  // From numpy.save of zeros((3, 4), float32), zeros(5), zeros(()).
  std::string header = npyHeader(DType::F32, Shape{3, 4});
  EXPECT_EQ(header.size() % 64, 0u);
  EXPECT_EQ(header.substr(10, 58),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), ");
  EXPECT_THAT(npyHeader(DType::F64, Shape{5}), HasSubstr("'shape': (5,), }"));
  EXPECT_THAT(npyHeader(DType::BOOL, Shape{}), HasSubstr("'shape': (), }"));
}

TEST(Npy, LongHeaderIsVersionTwo) {
  Shape shape(64, 1);
  for (int64_t &dim : shape)
    dim = 1;
  std::string header = npyHeader(DType::I8, shape);
  EXPECT_EQ(header[6], 1);
  std::vector<std::byte> file = bytesOf(header + "\x05");
  EXPECT_EQ(parseNpy(file, "x").shape, shape);
}

TEST(Npy, VersionsOneToThree) {
  for (int version : {1, 2, 3}) {
    HostTensor tensor = parseNpy(
        npy(version,
            "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", "abc"),
        "x");
    EXPECT_EQ(tensor.dtype, DType::U8);
    EXPECT_EQ(tensor.shape, Shape{3});
    EXPECT_EQ(tensor.bytes, bytesOf("abc"));
  }
  EXPECT_THAT(errorOf(npy(4, "{}", "")), HasSubstr("format version 4"));
}

TEST(Npy, FortranOrderBecomesC) {
  // Columns of [[a c e], [b d f]].
  HostTensor tensor = parseNpy(
      npy(1, "{'descr': '|i1', 'fortran_order': True, 'shape': (2, 3), }",
          "abcdef"),
      "x");
  EXPECT_EQ(tensor.bytes, bytesOf("acebdf"));
  // Three dimensions: element (i, j, k) lies at i + 2j + 4k.
  HostTensor cube = parseNpy(
      npy(1, "{'descr': '|i1', 'fortran_order': True, 'shape': (2, 2, 2)}",
          "01234567"),
      "x");
  EXPECT_EQ(cube.bytes, bytesOf("04261537"));
}

TEST(Npy, BigEndianIsSwapped) {
  HostTensor tensor =
      parseNpy(npy(1, "{'descr': '>i2', 'fortran_order': False, 'shape': (2,)}",
                   std::string_view("\0\1\1\0", 4)),
               "x");
  EXPECT_EQ(tensor.dtype, DType::I16);
  EXPECT_EQ(elementAt(tensor.dtype, tensor.bytes, 0), 1);
  EXPECT_EQ(elementAt(tensor.dtype, tensor.bytes, 1), 256);
}

TEST(Npy, BoolIsZeroOrOne) {
  HostTensor tensor =
      parseNpy(npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}",
                   std::string_view("\0\2\1", 3)),
               "x");
  EXPECT_EQ(tensor.bytes, bytesOf(std::string_view("\0\1\1", 3)));
}

TEST(Npy, EmptyAndScalar) {
  EXPECT_EQ(parseNpy(npy(1,
                         "{'descr': '<f4', 'fortran_order': True, "
                         "'shape': (0, 9)}",
                         ""),
                     "x")
                .numElements(),
            0u);
  EXPECT_EQ(parseNpy(npy(1,
                         "{'descr': '<f4', 'fortran_order': False, "
                         "'shape': ()}",
                         "abcd"),
                     "x")
                .numElements(),
            1u);
}

TEST(Npy, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(errorOf(bytesOf("text")), HasSubstr("magic"));
  EXPECT_THAT(errorOf(npy(1,
                          "{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (2,)}",
                          "abcd")),
              HasSubstr("needs 8 bytes of data, there are 4"));
  EXPECT_THAT(errorOf(npy(1,
                          "{'descr': '<c8', 'fortran_order': False, "
                          "'shape': ()}",
                          "")),
              HasSubstr("'<c8' is not supported"));
  EXPECT_THAT(errorOf(npy(1,
                          "{'descr': [('a', '<f4')], 'fortran_order': "
                          "False, 'shape': ()}",
                          "")),
              HasSubstr("structured"));
  EXPECT_THAT(errorOf(npy(1,
                          "{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (99999999999999999999,)}",
                          "")),
              HasSubstr("too large"));
  EXPECT_THAT(errorOf(npy(1,
                          "{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (4294967296, 4294967296)}",
                          "")),
              HasSubstr("too large"));
  EXPECT_THAT(errorOf(npy(1, "{'descr': '<f4'}", "")), HasSubstr("lacks"));
}

TEST(Files, WriteLeavesTheOldFileOnFailure) {
  std::filesystem::path dir =
      makePrivateDir(std::filesystem::temp_directory_path(), "files-");
  EXPECT_THROW(writeFile(dir / "none" / "x", "text"), Error);
  // A folder in the way of the rename.
  std::filesystem::create_directory(dir / "taken");
  std::filesystem::create_directory(dir / "taken" / "inner");
  EXPECT_THROW(writeFile(dir / "taken", "text"), Error);
  size_t entries = 0;
  for ([[maybe_unused]] auto &entry : std::filesystem::directory_iterator(dir))
    ++entries;
  EXPECT_EQ(entries, 1u) << "a temporary file was left behind";
  std::filesystem::remove_all(dir);
}

TEST(Files, SafeNames) {
  EXPECT_EQ(fileSafe("/model/layer.0/out:0"), "_model_layer.0_out_0");
  EXPECT_EQ(fileSafe("../x"), "_._x");
  EXPECT_EQ(fileSafe(""), "_");
  EXPECT_EQ(fileSafe(std::string_view("a\0b", 3)), "a_b");
  EXPECT_EQ(fileSafe(std::string(1000, 'x')).size(), 200u);
}

TEST(Convert, HalfIsExactBothWays) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = halfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(halfToFloat(floatToHalf(value))));
    else
      ASSERT_EQ(floatToHalf(value), bits);
  }
  EXPECT_EQ(floatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(floatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(floatToHalf(1.0f + 0x1p-11f), 0x3c00); // a tie goes to even
  EXPECT_EQ(floatToHalf(1.0f + 3 * 0x1p-11f), 0x3c02);
  // 1023.5 units of 2^-24: the tie carries into the smallest normal number.
  EXPECT_EQ(floatToHalf(0x1.ffcp-15f), 0x0400);
}

TEST(Convert, BfloatRoundsToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = bfloatToFloat(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(floatToBfloat(value), bits);
    }
  }
  EXPECT_EQ(floatToBfloat(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(floatToBfloat(1.0f + 3 * 0x1p-8f), 0x3f82);
}

TEST(Convert, Float8) {
  EXPECT_EQ(f8e4m3ToFloat(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(f8e4m3ToFloat(0x7f)));
  EXPECT_EQ(f8e4m3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(f8e4m3ToFloat(0xb8), -1.0f);
  EXPECT_EQ(f8e5m2ToFloat(0x3c), 1.0f);
  EXPECT_TRUE(std::isinf(f8e5m2ToFloat(0x7c)));
}

TEST(Draw, IsStableAndOfTheRightKind) {
  HostTensor a = drawTensor(DType::F32, {1000}, 3),
             b = drawTensor(DType::F32, {1000}, 3);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_NE(a.bytes, drawTensor(DType::F32, {1000}, 4).bytes);
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    double value = static_cast<double>(elementAt(a.dtype, a.bytes, i));
    sum += value;
    squares += value * value;
  }
  EXPECT_LT(std::fabs(sum / 1000), 0.15);
  EXPECT_NEAR(squares / 1000, 1, 0.2);
  HostTensor ints = drawTensor(DType::I64, {1000}, 3, 5, 9);
  bool seen[4] = {};
  for (uint64_t i = 0; i < 1000; ++i) {
    long double value = elementAt(ints.dtype, ints.bytes, i);
    ASSERT_GE(value, 5);
    ASSERT_LT(value, 9);
    seen[static_cast<int>(value) - 5] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1] && seen[2] && seen[3]);
}

} // namespace
