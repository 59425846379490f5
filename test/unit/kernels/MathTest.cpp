//===- MathTest.cpp - Elementwise functions over the full range -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every f32 function on bit patterns spread evenly over all floats (denormals,
// infinities and NaN included) and on its interesting range, against float64:
// at most 5 ulp, or 2^-24 where a function crosses zero by cancellation.
// CONCORD_MATH_POINTS sets the number of points; the unit test takes 200,000,
// `./run bench` 10^7.
//
//===----------------------------------------------------------------------===//

#include "KernelTestUtil.h"

#include <functional>

using namespace concord;
using namespace concord::test;

namespace {

struct Function {
  const char *name;
  std::function<double(double)> exact;
  double low, high; ///< where it is neither saturated nor undefined
  double ulps;
  double absolute = 0;
};

const Function kFunctions[] = {
    {"acos", [](double x) { return std::acos(x); }, -1, 1, 1},
    {"acosh", [](double x) { return std::acosh(x); }, 1, 100, 1},
    {"asin", [](double x) { return std::asin(x); }, -1, 1, 1},
    {"asinh", [](double x) { return std::asinh(x); }, -20, 20, 1},
    {"atan", [](double x) { return std::atan(x); }, -20, 20, 1},
    {"atanh", [](double x) { return std::atanh(x); }, -1, 1, 1},
    {"cos", [](double x) { return std::cos(x); }, -100, 100, 1},
    {"cosh", [](double x) { return std::cosh(x); }, -90, 90, 1},
    {"erf", [](double x) { return std::erf(x); }, -4, 4, 3},
    {"exp", [](double x) { return std::exp(x); }, -104, 89, 3},
    {"exp2", [](double x) { return std::exp2(x); }, -150, 128, 1},
    {"expm1", [](double x) { return std::expm1(x); }, -20, 89, 1},
    {"gelu_erf",
     [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }, -6, 6,
     5, 0x1p-22},
    {"gelu_tanh",
     [](double x) {
       double u = 0.79788456080286536 * (x + 0.044715 * x * x * x);
       return x / (1 + std::exp(-2 * u));
     },
     -6, 6, 5, 0x1p-22},
    {"log", [](double x) { return std::log(x); }, 0.1, 10, 3},
    {"log10", [](double x) { return std::log10(x); }, 0.1, 10, 1},
    {"log1p", [](double x) { return std::log1p(x); }, -1, 10, 1},
    {"log2", [](double x) { return std::log2(x); }, 0.1, 10, 1},
    {"relu", [](double x) { return x < 0 ? 0 : x; }, -4, 4, 0.5},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0, 10, 1},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -104, 30, 5},
    // The sigmoid below e^-87 is denormal.
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }, -104, 30, 5,
     0x1p-118},
    {"sin", [](double x) { return std::sin(x); }, -100, 100, 1},
    {"sinh", [](double x) { return std::sinh(x); }, -90, 90, 1},
    {"softplus",
     [](double x) {
       return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x)));
     },
     -104, 30, 1},
    {"sqrt", [](double x) { return std::sqrt(x); }, 0, 10, 0.5001},
    {"tan", [](double x) { return std::tan(x); }, -100, 100, 1},
    {"tanh", [](double x) { return std::tanh(x); }, -10, 10, 4},
};

size_t points() {
  const char *wanted = getenv("CONCORD_MATH_POINTS");
  return wanted ? size_t(atol(wanted)) : 200000;
}

/// Distance from `want` in units of the last place of a float of its size.
double ulpsFrom(float got, double want) {
  float rounded = float(want);
  if (got == rounded)
    return 0.5; // correctly rounded
  if (std::isinf(rounded) || std::isinf(got))
    return double(std::llabs(ordered(got) - ordered(rounded)));
  int exponent;
  std::frexp(std::max(std::fabs(want), 0x1p-126), &exponent);
  return std::fabs(double(got) - want) / std::ldexp(1.0, exponent - 24);
}

void verify(const Function &f, const std::vector<float> &x,
            const std::vector<float> &y, double &worst) {
  for (size_t i = 0; i < x.size(); ++i) {
    double want = f.exact(double(x[i]));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(y[i])) << f.name << "(" << x[i] << ") = " << y[i];
      continue;
    }
    ASSERT_FALSE(std::isnan(y[i]))
        << f.name << "(" << x[i] << "), want " << want;
    double error = ulpsFrom(y[i], want);
    if (std::fabs(double(y[i]) - want) <= f.absolute)
      continue;
    worst = std::max(worst, error);
    ASSERT_LE(error, f.ulps) << f.name << "(" << std::hexfloat << x[i]
                             << ") = " << y[i] << ", want " << want;
  }
}

TEST(Math, EveryFunctionOverTheFullRange) {
  size_t n = points();
  for (const Function &f : kFunctions) {
    Handle kernel(std::string("unary dtype=f32 n=") + std::to_string(n) +
                  " op=" + f.name);
    std::vector<float> x(n), y(n);
    double worst = 0;
    for (size_t i = 0; i < n; ++i) {
      uint32_t bits = uint32_t((uint64_t(i) << 32) / n + 1);
      memcpy(&x[i], &bits, 4);
    }
    const float special[] = {0.0f,     -0.0f, INFINITY, -INFINITY, NAN,
                             1.0f,     -1.0f, 1e-45f,   -1e-45f,   3.4e38f,
                             -3.4e38f, 88.8f, -88.8f};
    memcpy(x.data(), special, sizeof special);
    kernel.run({x.data(), y.data()});
    verify(f, x, y, worst);
    if (HasFatalFailure())
      return;
    for (size_t i = 0; i < n; ++i)
      x[i] = float(f.low + (f.high - f.low) * double(i) / double(n));
    kernel.run({x.data(), y.data()});
    verify(f, x, y, worst);
    if (HasFatalFailure())
      return;
    RecordProperty(f.name, std::to_string(worst));
    if (getenv("CONCORD_MATH_POINTS"))
      printf("%-10s %.2f ulp\n", f.name, worst);
  }
}

TEST(Math, SignsOfZero) {
  for (const char *name : {"asin", "asinh", "atan", "atanh", "erf", "expm1",
                           "log1p", "sin", "sinh", "sqrt", "tan", "tanh"}) {
    Handle kernel(std::string("unary dtype=f32 n=2 op=") + name);
    float x[] = {0.0f, -0.0f}, y[2];
    kernel.run({x, y});
    EXPECT_FALSE(std::signbit(y[0])) << name;
    EXPECT_TRUE(std::signbit(y[1])) << name;
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[1], 0);
  }
}

TEST(Math, PowOverTheFullRange) {
  size_t n = points();
  std::mt19937 rng(1);
  std::vector<float> x(n), y(n), z(n);
  for (size_t i = 0; i < n; ++i) {
    uint32_t a = uint32_t(rng()), b = uint32_t(rng());
    memcpy(&x[i], &a, 4);
    memcpy(&y[i], &b, 4);
    switch (i % 4) {
    case 0: // all bits
      break;
    case 1:
      x[i] = float(a % 100000) / 1000;
      y[i] = float(int(b % 40000) - 20000) / 1000;
      break;
    case 2: // negative bases, whole exponents
      x[i] = -float(a % 1000) / 100;
      y[i] = float(int(b % 40) - 20);
      break;
    default: // near one, large exponents
      x[i] = 1 + float(int(a % 2000) - 1000) * 1e-6f;
      y[i] = float(int(b % 200000) - 100000);
    }
  }
  const float edges[] = {0,        -0.0f,     1,   -1, 2,  -2,    0.5f,  -0.5f,
                         INFINITY, -INFINITY, NAN, 3,  -3, 1e30f, 1e-30f};
  size_t at = 0;
  for (float a : edges)
    for (float b : edges) {
      x[at] = a;
      y[at++] = b;
    }
  Handle kernel("binary dtype=f32 n=" + std::to_string(n) + " op=pow");
  kernel.run({x.data(), y.data(), z.data()});
  for (size_t i = 0; i < n; ++i) {
    double want = std::pow(double(x[i]), double(y[i]));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(z[i])) << x[i] << "^" << y[i] << " = " << z[i];
      continue;
    }
    ASSERT_LE(ulpsFrom(z[i], want), 1) << std::hexfloat << x[i] << "^" << y[i]
                                       << " = " << z[i] << ", want " << want;
    ASSERT_EQ(std::signbit(z[i]), std::signbit(want)) << x[i] << "^" << y[i];
  }
}

TEST(Math, OtherTypes) {
  std::mt19937 rng(2);
  for (DType type : {DType::F64, DType::F16, DType::BF16})
    for (const Function &f : kFunctions) {
      const size_t n = 77;
      Data x(type, n), y(type, n);
      x.random(rng, std::max(f.low, -5.0), std::min(f.high, 5.0));
      Handle kernel("unary dtype=" + lower(type) + " n=77 op=" + f.name);
      kernel.run({x.bytes, y.bytes});
      for (size_t i = 0; i < n; ++i) {
        double want = f.exact(x.get(i));
        ASSERT_NEAR(y.get(i), want,
                    epsilonOf(type) * std::max(std::fabs(want), 0x1p-14) +
                        (type == DType::F64 ? 1e-15 : 1e-6))
            << f.name << " " << lower(type) << " " << x.get(i);
      }
    }
  Data x(DType::BF16, 5), y(DType::BF16, 1), z(DType::BF16, 5);
  x.random(rng, 1, 2);
  y.set(0, 2);
  Handle square("binary dtype=bf16 n=5 op=pow yscalar=1");
  square.run({x.bytes, y.bytes, z.bytes});
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(z.get(i), x.get(i) * x.get(i), 0x1p-7 * z.get(i));
}

} // namespace
