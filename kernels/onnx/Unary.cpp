//===- Unary.cpp - Unary elementwise operators
//------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Activations and mathematical functions. Parameters are the node's attributes
// with the defaults of the operator's definition.
//
//===----------------------------------------------------------------------===//

#include "Elementwise.h"

#include <cmath>
#include <limits>
#include <numbers>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

using P = const double *;

/// exp(x)/(1+exp(x)) without overflow on either side.
template <class T> T sigmoid(T x) {
  if (x >= 0)
    return 1 / (1 + std::exp(-x));
  T e = std::exp(x);
  return e / (1 + e);
}
template <class T> T softplus(T x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

constexpr auto absFn = [](auto x, P) {
  using T = decltype(x);
  if constexpr (std::is_floating_point_v<T>)
    return std::fabs(x);
  else if constexpr (std::is_signed_v<T>)
    return x < 0 ? static_cast<T>(0 - static_cast<uint64_t>(x)) : x;
  else
    return x;
};
constexpr auto negFn = [](auto x, P) {
  using T = decltype(x);
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(0 - static_cast<uint64_t>(x));
  else
    return -x;
};
constexpr auto signFn = [](auto x, P) {
  using T = decltype(x);
  if (x != x)
    return x;
  return static_cast<T>((x > T(0)) - (x < T(0)));
};
constexpr auto reluFn = [](auto x, P) {
  using T = decltype(x);
  return x < T(0) ? T(0) : x;
};
constexpr auto bitNotFn = [](auto x, P) { return ~x; };

constexpr auto acosFn = [](auto x, P) { return std::acos(x); };
constexpr auto acoshFn = [](auto x, P) { return std::acosh(x); };
constexpr auto asinFn = [](auto x, P) { return std::asin(x); };
constexpr auto asinhFn = [](auto x, P) { return std::asinh(x); };
constexpr auto atanFn = [](auto x, P) { return std::atan(x); };
constexpr auto atanhFn = [](auto x, P) { return std::atanh(x); };
constexpr auto cosFn = [](auto x, P) { return std::cos(x); };
constexpr auto coshFn = [](auto x, P) { return std::cosh(x); };
constexpr auto sinFn = [](auto x, P) { return std::sin(x); };
constexpr auto sinhFn = [](auto x, P) { return std::sinh(x); };
constexpr auto tanFn = [](auto x, P) { return std::tan(x); };
constexpr auto tanhFn = [](auto x, P) { return std::tanh(x); };
constexpr auto expFn = [](auto x, P) { return std::exp(x); };
constexpr auto logFn = [](auto x, P) { return std::log(x); };
constexpr auto sqrtFn = [](auto x, P) { return std::sqrt(x); };
constexpr auto erfFn = [](auto x, P) { return std::erf(x); };
constexpr auto ceilFn = [](auto x, P) { return std::ceil(x); };
constexpr auto floorFn = [](auto x, P) { return std::floor(x); };
constexpr auto roundFn = [](auto x, P) { return std::nearbyint(x); };
constexpr auto reciprocalFn = [](auto x, P) { return 1 / x; };
constexpr auto sigmoidFn = [](auto x, P) { return sigmoid(x); };
constexpr auto softplusFn = [](auto x, P) { return softplus(x); };
constexpr auto softsignFn = [](auto x, P) { return x / (1 + std::fabs(x)); };
constexpr auto mishFn = [](auto x, P) { return x * std::tanh(softplus(x)); };
constexpr auto hardSwishFn = [](auto x, P) {
  using T = decltype(x);
  T gate = x / T(6) + T(0.5);
  return x * (gate < 0 ? T(0) : gate > 1 ? T(1) : gate);
};
constexpr auto isNanFn = [](auto x, P) { return x != x; };

constexpr auto eluFn = [](auto x, P p) {
  using T = decltype(x);
  return x > 0 ? x : T(p[0]) * std::expm1(x);
};
constexpr auto celuFn = [](auto x, P p) {
  using T = decltype(x);
  T alpha = T(p[0]);
  return x > 0 ? x : alpha * std::expm1(x / alpha);
};
constexpr auto seluFn = [](auto x, P p) {
  using T = decltype(x);
  return T(p[1]) * (x > 0 ? x : T(p[0]) * std::expm1(x));
};
constexpr auto leakyReluFn = [](auto x, P p) {
  using T = decltype(x);
  return x < 0 ? T(p[0]) * x : x;
};
constexpr auto thresholdedReluFn = [](auto x, P p) {
  using T = decltype(x);
  return x > T(p[0]) ? x : T(0);
};
constexpr auto hardSigmoidFn = [](auto x, P p) {
  using T = decltype(x);
  T y = T(p[0]) * x + T(p[1]);
  return y < 0 ? T(0) : y > 1 ? T(1) : y;
};
constexpr auto swishFn = [](auto x, P p) {
  using T = decltype(x);
  return x * sigmoid(T(p[0]) * x);
};
/// params: lambd, bias.
constexpr auto shrinkFn = [](auto x, P p) {
  using T = decltype(x);
  double value = static_cast<double>(x);
  if (value < -p[0])
    return saturateTo<T>(value + p[1]);
  if (value > p[0])
    return saturateTo<T>(value - p[1]);
  return T(0);
};
constexpr auto geluErfFn = [](auto x, P) {
  using T = decltype(x);
  return T(0.5) * x * (1 + std::erf(x * T(std::numbers::sqrt2 / 2)));
};
constexpr auto geluTanhFn = [](auto x, P) {
  using T = decltype(x);
  T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (1 + std::tanh(inner));
};
/// params: detect_negative, detect_positive.
constexpr auto isInfFn = [](auto x, P p) {
  return std::isinf(x) && (x > 0 ? p[1] != 0 : p[0] != 0);
};

template <const auto &functor> Body buildFloat(Plan &plan) {
  return elementwiseBody(plan, unaryFloat(functor), 1);
}
template <const auto &functor> Body buildNumeric(Plan &plan) {
  return elementwiseBody(plan, unaryNumeric(functor), 1);
}

Body buildNot(Plan &plan) {
  auto fn = [](auto x, P) { return x == 0; };
  using F = decltype(fn);
  return elementwiseBody(
      plan, {.b8 = unaryChunk<F, uint8_t, uint8_t>, .boolResult = true}, 1);
}
Body buildBitNot(Plan &plan) {
  using F = std::remove_const_t<decltype(bitNotFn)>;
  return elementwiseBody(plan,
                         {.i64 = unaryChunk<F, int64_t, int64_t>,
                          .u64 = unaryChunk<F, uint64_t, uint64_t>},
                         1);
}
Body buildIsNan(Plan &plan) {
  return elementwiseBody(plan, unaryFloatToBool(isNanFn), 1);
}
Body buildIsInf(Plan &plan) {
  const NodeInfo &node = plan.node;
  return elementwiseBody(plan, unaryFloatToBool(isInfFn), 1,
                         {double(node.intAttr("detect_negative", 1)),
                          double(node.intAttr("detect_positive", 1))});
}
Body buildGelu(Plan &plan) {
  std::string kind = plan.node.strAttr("approximate", "none");
  require(kind == "none" || kind == "tanh", "approximate: none or tanh");
  return elementwiseBody(
      plan, kind == "tanh" ? unaryFloat(geluTanhFn) : unaryFloat(geluErfFn), 1);
}

/// The operators with up to two float attributes.
struct Parametric {
  const char *name;
  ChunkFns (*fns)();
  const char *keys[2];
  double defaults[2];
};
const Parametric kParametric[] = {
    {"elu", [] { return unaryFloat(eluFn); }, {"alpha", ""}, {1, 0}},
    {"celu", [] { return unaryFloat(celuFn); }, {"alpha", ""}, {1, 0}},
    {"selu",
     [] { return unaryFloat(seluFn); },
     {"alpha", "gamma"},
     {1.67326319217681884765625, 1.05070102214813232421875}},
    {"leakyrelu",
     [] { return unaryFloat(leakyReluFn); },
     {"alpha", ""},
     {0.01, 0}},
    {"thresholdedrelu",
     [] { return unaryFloat(thresholdedReluFn); },
     {"alpha", ""},
     {1, 0}},
    {"hardsigmoid",
     [] { return unaryFloat(hardSigmoidFn); },
     {"alpha", "beta"},
     {0.2, 0.5}},
    {"swish", [] { return unaryFloat(swishFn); }, {"alpha", ""}, {1, 0}},
    {"shrink",
     [] { return unaryNumeric(shrinkFn); },
     {"lambd", "bias"},
     {0.5, 0}},
};
Body buildParametric(Plan &plan) {
  for (const Parametric &op : kParametric)
    if (plan.node.name == op.name) {
      Params params{};
      for (int k = 0; k < 2; ++k)
        if (*op.keys[k])
          params[k] = plan.node.floatAttr(op.keys[k], op.defaults[k]);
      return elementwiseBody(plan, op.fns(), 1, params);
    }
  throw InvalidError("unknown activation");
}

} // namespace

void onnx::addUnary(OpTable &ops) {
  ops["abs"] = buildNumeric<absFn>;
  ops["neg"] = buildNumeric<negFn>;
  ops["sign"] = buildNumeric<signFn>;
  ops["relu"] = buildNumeric<reluFn>;
  ops["acos"] = buildFloat<acosFn>;
  ops["acosh"] = buildFloat<acoshFn>;
  ops["asin"] = buildFloat<asinFn>;
  ops["asinh"] = buildFloat<asinhFn>;
  ops["atan"] = buildFloat<atanFn>;
  ops["atanh"] = buildFloat<atanhFn>;
  ops["cos"] = buildFloat<cosFn>;
  ops["cosh"] = buildFloat<coshFn>;
  ops["sin"] = buildFloat<sinFn>;
  ops["sinh"] = buildFloat<sinhFn>;
  ops["tan"] = buildFloat<tanFn>;
  ops["tanh"] = buildFloat<tanhFn>;
  ops["exp"] = buildFloat<expFn>;
  ops["log"] = buildFloat<logFn>;
  ops["sqrt"] = buildFloat<sqrtFn>;
  ops["erf"] = buildFloat<erfFn>;
  ops["ceil"] = buildFloat<ceilFn>;
  ops["floor"] = buildFloat<floorFn>;
  ops["round"] = buildFloat<roundFn>;
  ops["reciprocal"] = buildFloat<reciprocalFn>;
  ops["sigmoid"] = buildFloat<sigmoidFn>;
  ops["softplus"] = buildFloat<softplusFn>;
  ops["softsign"] = buildFloat<softsignFn>;
  ops["mish"] = buildFloat<mishFn>;
  ops["hardswish"] = buildFloat<hardSwishFn>;
  ops["not"] = buildNot;
  ops["bitwisenot"] = buildBitNot;
  ops["isnan"] = buildIsNan;
  ops["isinf"] = buildIsInf;
  ops["gelu"] = buildGelu;
  for (const Parametric &op : kParametric)
    ops[op.name] = buildParametric;
}
