//===- Math.cpp - The `unary` and `binary` kernels ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// f32, f16 and bf16 run vectorised (hot/Math.cpp); f64 goes to libm, element by
// element.
//
//===----------------------------------------------------------------------===//

#include "MathHot.h"
#include "Select.h"

#include <cmath>

namespace concord::kernels {
namespace {

using Scalar = double (*)(double);

Scalar scalarOf(UnaryOp op) {
  switch (op) {
  case UnaryOp::Acos:
    return [](double x) { return std::acos(x); };
  case UnaryOp::Acosh:
    return [](double x) { return std::acosh(x); };
  case UnaryOp::Asin:
    return [](double x) { return std::asin(x); };
  case UnaryOp::Asinh:
    return [](double x) { return std::asinh(x); };
  case UnaryOp::Atan:
    return [](double x) { return std::atan(x); };
  case UnaryOp::Atanh:
    return [](double x) { return std::atanh(x); };
  case UnaryOp::Cos:
    return [](double x) { return std::cos(x); };
  case UnaryOp::Cosh:
    return [](double x) { return std::cosh(x); };
  case UnaryOp::Erf:
    return [](double x) { return std::erf(x); };
  case UnaryOp::Exp:
    return [](double x) { return std::exp(x); };
  case UnaryOp::Exp2:
    return [](double x) { return std::exp2(x); };
  case UnaryOp::Expm1:
    return [](double x) { return std::expm1(x); };
  case UnaryOp::GeluErf:
    return [](double x) {
      return 0.5 * x * (1 + std::erf(x * 0.70710678118654752));
    };
  case UnaryOp::GeluTanh:
    return [](double x) {
      return 0.5 * x *
             (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    };
  case UnaryOp::Log:
    return [](double x) { return std::log(x); };
  case UnaryOp::Log10:
    return [](double x) { return std::log10(x); };
  case UnaryOp::Log1p:
    return [](double x) { return std::log1p(x); };
  case UnaryOp::Log2:
    return [](double x) { return std::log2(x); };
  case UnaryOp::Relu:
    return [](double x) { return x < 0 ? 0 : x; };
  case UnaryOp::Rsqrt:
    return [](double x) { return 1 / std::sqrt(x); };
  case UnaryOp::Sigmoid:
    return [](double x) { return 1 / (1 + std::exp(-x)); };
  case UnaryOp::Silu:
    return [](double x) { return x / (1 + std::exp(-x)); };
  case UnaryOp::Sin:
    return [](double x) { return std::sin(x); };
  case UnaryOp::Sinh:
    return [](double x) { return std::sinh(x); };
  case UnaryOp::Softplus:
    return [](double x) {
      return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x)));
    };
  case UnaryOp::Sqrt:
    return [](double x) { return std::sqrt(x); };
  case UnaryOp::Tan:
    return [](double x) { return std::tan(x); };
  case UnaryOp::Tanh:
    return [](double x) { return std::tanh(x); };
  }
  return nullptr;
}

class Unary final : public Kernel {
public:
  explicit Unary(const Description &d)
      : type(floatType(d)), table(CONCORD_SELECT(mathTable)) {
    numInputs = 1;
    n = d.size("n");
    op = UnaryOp(d.choice("op", {
#define X(name, word) word,
                                    CONCORD_UNARY_OPS(X)
#undef X
                                }));
  }
  int32_t run(void *const *pointers, void *) const override {
    Poller poller;
    if (type != GemmType::F64) {
      table.unary(type, op, n, pointers[0], pointers[1], poller);
      return kOk;
    }
    Scalar f = scalarOf(op);
    const double *x = static_cast<const double *>(pointers[0]);
    double *y = static_cast<double *>(pointers[1]);
    for (int64_t i = 0; i < n; ++i) {
      y[i] = f(x[i]);
      poller.work(20);
    }
    return kOk;
  }

private:
  GemmType type;
  const MathTable &table;
  int64_t n;
  UnaryOp op;
};

class Binary final : public Kernel {
public:
  explicit Binary(const Description &d)
      : type(floatType(d)), table(CONCORD_SELECT(mathTable)) {
    numInputs = 2;
    n = d.size("n");
    d.choice("op", {"pow"});
    step = d.flag("yscalar", false) ? 0 : 1;
  }
  int32_t run(void *const *pointers, void *) const override {
    Poller poller;
    if (type != GemmType::F64) {
      table.pow(type, n, pointers[0], pointers[1], step, pointers[2], poller);
      return kOk;
    }
    const double *x = static_cast<const double *>(pointers[0]);
    const double *y = static_cast<const double *>(pointers[1]);
    double *z = static_cast<double *>(pointers[2]);
    for (int64_t i = 0; i < n; ++i) {
      z[i] = std::pow(x[i], y[i * step]);
      poller.work(40);
    }
    return kOk;
  }

private:
  GemmType type;
  const MathTable &table;
  int64_t n, step;
};

} // namespace

void registerMath(Registry &registry) {
  registry.add("unary", make<Unary>);
  registry.add("binary", make<Binary>);
}

} // namespace concord::kernels
