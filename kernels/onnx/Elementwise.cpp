//===- Elementwise.cpp - Frame and binary elementwise operators
//-------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The chunked walk, arithmetic, comparison, logic and variadic operators. The
// unary ones are in Unary.cpp.
//
//===----------------------------------------------------------------------===//

#include "Elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

constexpr int64_t kChunk = 512;

DType nativeOf(Compute compute) {
  switch (compute) {
  case Compute::F32:
    return DType::F32;
  case Compute::F64:
    return DType::F64;
  case Compute::Int:
    return DType::I64;
  case Compute::Uint:
    return DType::U64;
  case Compute::Bool:
    return DType::BOOL;
  }
  return DType::Invalid;
}

void load(DType from, Compute compute, const char *src, int64_t n, void *dst) {
  switch (compute) {
  case Compute::F32:
    return loadAs(from, src, n, static_cast<float *>(dst));
  case Compute::F64:
    return loadAs(from, src, n, static_cast<double *>(dst));
  case Compute::Int:
    return loadAs(from, src, n, static_cast<int64_t *>(dst));
  case Compute::Uint:
    return loadAs(from, src, n, static_cast<uint64_t *>(dst));
  case Compute::Bool:
    return loadAs(from, src, n, static_cast<uint8_t *>(dst));
  }
}

void store(DType to, Compute compute, const void *src, int64_t n, char *dst) {
  switch (compute) {
  case Compute::F32:
    return storeAs(static_cast<const float *>(src), n, to, dst);
  case Compute::F64:
    return storeAs(static_cast<const double *>(src), n, to, dst);
  case Compute::Int:
    return storeAs(static_cast<const int64_t *>(src), n, to, dst);
  case Compute::Uint:
    return storeAs(static_cast<const uint64_t *>(src), n, to, dst);
  case Compute::Bool:
    return storeAs(static_cast<const uint8_t *>(src), n, to, dst);
  }
}

ChunkFn pick(const ChunkFns &fns, Compute compute) {
  ChunkFn fn = nullptr;
  switch (compute) {
  case Compute::F32:
    fn = fns.f32;
    break;
  case Compute::F64:
    fn = fns.f64;
    break;
  case Compute::Int:
    fn = fns.i64;
    break;
  case Compute::Uint:
    fn = fns.u64;
    break;
  case Compute::Bool:
    fn = fns.b8;
    break;
  }
  if (!fn)
    throw UnsupportedError("not defined for this dtype");
  return fn;
}

} // namespace

Body onnx::elementwiseBody(Plan &plan, const ChunkFns &fns, Compute compute,
                           const std::vector<int> &operands,
                           const Params &params,
                           std::vector<std::vector<int64_t>> shapes) {
  const NodeInfo &node = plan.node;
  const TensorInfo &result = node.output(0);
  ChunkFn fn = pick(fns, compute);
  Compute resultCompute = fns.boolResult ? Compute::Bool : compute;
  std::vector<DType> dtypes;
  bool ownShapes = shapes.empty();
  for (int k : operands) {
    if (ownShapes)
      shapes.push_back(node.input(k).dims);
    dtypes.push_back(node.input(k).dtype);
  }
  Broadcast nest(result.dims, shapes);
  DType native = nativeOf(compute);
  bool direct = result.dtype == nativeOf(resultCompute);
  DType outDType = result.dtype;

  return [=](const Run &r) {
    alignas(64) char buffers[Broadcast::kMaxOperands + 1][kChunk * 8];
    size_t count = operands.size();
    int64_t inner = nest.innerSize();
    size_t outSize = dtypeSize(outDType);
    char *out = r.out(0);
    nest.forEach([&](const int64_t *offsets, int64_t outOffset) {
      const void *args[Broadcast::kMaxOperands];
      int64_t steps[Broadcast::kMaxOperands];
      for (size_t k = 0; k < count; ++k) {
        const char *base =
            r.in(operands[k]) + offsets[k] * int64_t(dtypeSize(dtypes[k]));
        steps[k] = 0;
        if (nest.innerStride(k) == 0 && inner > 1) {
          // Broadcast along the run: spread one element over a chunk.
          load(dtypes[k], compute, base, 1, buffers[k]);
          fillElements(dtypeSize(native), buffers[k], std::min(inner, kChunk),
                       buffers[k]);
          args[k] = buffers[k];
        } else {
          args[k] = base;
          steps[k] = 1;
        }
      }
      for (int64_t at = 0; at < inner; at += kChunk) {
        int64_t n = std::min(kChunk, inner - at);
        const void *now[Broadcast::kMaxOperands];
        for (size_t k = 0; k < count; ++k) {
          now[k] = args[k];
          if (!steps[k])
            continue;
          const char *src = static_cast<const char *>(args[k]) +
                            at * int64_t(dtypeSize(dtypes[k]));
          now[k] = src;
          if (dtypes[k] != native) {
            load(dtypes[k], compute, src, n, buffers[k]);
            now[k] = buffers[k];
          }
        }
        char *dst = out + (outOffset + at) * int64_t(outSize);
        if (direct) {
          fn(now, dst, n, params.data());
        } else {
          fn(now, buffers[count], n, params.data());
          store(outDType, resultCompute, buffers[count], n, dst);
        }
      }
    });
  };
}

Body onnx::elementwiseBody(Plan &plan, const ChunkFns &fns, size_t numOperands,
                           const Params &params) {
  std::vector<int> operands;
  for (size_t k = 0; k < numOperands; ++k)
    operands.push_back(static_cast<int>(k));
  return elementwiseBody(plan, fns, computeOf(plan.node.input(0).dtype),
                         operands, params);
}

//===----------------------------------------------------------------------===//
// Functors
//===----------------------------------------------------------------------===//

namespace {

template <class T> bool isNan(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return x != x;
  return false;
}

/// Unsigned arithmetic, so that signed overflow wraps instead of being
/// undefined.
template <class T, class F> T wrapping(T x, T y, F f) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(
        f(static_cast<uint64_t>(x), static_cast<uint64_t>(y)));
  else
    return f(x, y);
}

constexpr auto addFn = [](auto x, auto y, const double *) {
  return wrapping(x, y, [](auto a, auto b) { return a + b; });
};
constexpr auto subFn = [](auto x, auto y, const double *) {
  return wrapping(x, y, [](auto a, auto b) { return a - b; });
};
constexpr auto mulFn = [](auto x, auto y, const double *) {
  return wrapping(x, y, [](auto a, auto b) { return a * b; });
};

template <class T> T divide(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if (y == 0)
      return 0;
    if constexpr (std::is_signed_v<T>)
      if (y == -1)
        return static_cast<T>(0 - static_cast<uint64_t>(x));
    return x / y;
  } else {
    return x / y;
  }
}
constexpr auto divFn = [](auto x, auto y, const double *) {
  return divide(x, y);
};

/// params[0]: fmod. Integers and floats alike; the result has the sign of the
/// divisor when fmod is 0, of the dividend when it is 1.
constexpr auto modFn = [](auto x, auto y, const double *p) {
  using T = decltype(x);
  if constexpr (std::is_floating_point_v<T>) {
    T rest = std::fmod(x, y);
    if (p[0] == 0 && rest != 0 && (rest < 0) != (y < 0))
      rest += y;
    return rest;
  } else {
    if (y == 0)
      return T(0);
    if constexpr (std::is_signed_v<T>) {
      if (y == -1)
        return T(0);
      T rest = x % y;
      if (p[0] == 0 && rest != 0 && (rest < 0) != (y < 0))
        rest += y;
      return rest;
    } else {
      return static_cast<T>(x % y);
    }
  }
};

constexpr auto maxFn = [](auto x, auto y, const double *) {
  return isNan(x) || x > y ? x : y;
};
constexpr auto minFn = [](auto x, auto y, const double *) {
  return isNan(x) || x < y ? x : y;
};
constexpr auto preluFn = [](auto x, auto slope, const double *) {
  using T = decltype(x);
  return x < T(0) ? mulFn(x, slope, nullptr) : x;
};

template <class T> T integerPower(T base, int64_t exponent) {
  if (exponent < 0) {
    if (base == T(1))
      return 1;
    if constexpr (std::is_signed_v<T>)
      if (base == T(-1))
        return exponent % 2 ? -1 : 1;
    return 0;
  }
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (uint64_t e = static_cast<uint64_t>(exponent); e; e >>= 1) {
    if (e & 1)
      result *= factor;
    factor *= factor;
  }
  return static_cast<T>(result);
}
constexpr auto powFn = [](auto x, auto y, const double *) {
  using T = decltype(x);
  if constexpr (std::is_floating_point_v<T>) {
    if (y == T(2))
      return x * x;
    return static_cast<T>(std::pow(x, y));
  } else {
    return integerPower(x, static_cast<int64_t>(y));
  }
};

/// params[0]: 1 for a right shift.
constexpr auto shiftFn = [](auto x, auto y, const double *p) {
  using T = decltype(x);
  uint64_t count = static_cast<uint64_t>(y), value = static_cast<uint64_t>(x);
  if (count >= 64)
    return T(0);
  return static_cast<T>(p[0] != 0 ? value >> count : value << count);
};

constexpr auto bitAndFn = [](auto x, auto y, const double *) { return x & y; };
constexpr auto bitOrFn = [](auto x, auto y, const double *) { return x | y; };
constexpr auto bitXorFn = [](auto x, auto y, const double *) { return x ^ y; };

constexpr auto equalFn = [](auto x, auto y, const double *) { return x == y; };
constexpr auto lessFn = [](auto x, auto y, const double *) { return x < y; };
constexpr auto lessEqualFn = [](auto x, auto y, const double *) {
  return x <= y;
};
constexpr auto greaterFn = [](auto x, auto y, const double *) { return x > y; };
constexpr auto greaterEqualFn = [](auto x, auto y, const double *) {
  return x >= y;
};

template <class F> ChunkFns logic(F) {
  return {.b8 = binaryChunk<F, uint8_t, uint8_t>, .boolResult = true};
}

template <const auto &functor, bool Compare> Body buildBinary(Plan &plan) {
  require(plan.node.in.size() == 2, "two inputs are needed");
  if constexpr (Compare)
    return elementwiseBody(plan, compareNumeric(functor), 2);
  else
    return elementwiseBody(plan, binaryNumeric(functor), 2);
}
template <const auto &functor> Body buildBits(Plan &plan) {
  return elementwiseBody(plan, binaryInt(functor), 2);
}
template <const auto &functor> Body buildLogic(Plan &plan) {
  return elementwiseBody(plan, logic(functor), 2);
}

/// PRelu; before opset 7 a slope of rank 1 was one value per channel.
Body buildPRelu(Plan &plan) {
  const TensorInfo &x = plan.node.input(0), &slope = plan.node.input(1);
  std::vector<int64_t> slopeDims = slope.dims;
  if (plan.node.opset < 7 && slope.rank() == 1 && x.rank() > 2)
    slopeDims.resize(size_t(x.rank()) - 1, 1);
  return elementwiseBody(plan, binaryNumeric(preluFn), computeOf(x.dtype),
                         {0, 1}, {}, {x.dims, slopeDims});
}

Body buildMod(Plan &plan) {
  return elementwiseBody(plan, binaryNumeric(modFn), 2,
                         {double(plan.node.intAttr("fmod", 0))});
}

Body buildShift(Plan &plan) {
  std::string direction = plan.node.strAttr("direction", "");
  require(direction == "LEFT" || direction == "RIGHT",
          "direction must be LEFT or RIGHT");
  return elementwiseBody(plan, binaryInt(shiftFn), 2,
                         {direction == "RIGHT" ? 1.0 : 0.0});
}

Body buildPow(Plan &plan) {
  // The exponent may have another dtype; the result has the base's. An integer
  // base with a float exponent goes through double, as in NumPy.
  Compute base = computeOf(plan.node.input(0).dtype);
  Compute compute = base;
  bool integerBase = base == Compute::Int || base == Compute::Uint;
  if (integerBase && isFloat(plan.node.input(1).dtype))
    compute = Compute::F64;
  return elementwiseBody(plan, binaryNumeric(powFn), compute, {0, 1}, {});
}

//===----------------------------------------------------------------------===//
// Variadic: folded two at a time, in the output
//===----------------------------------------------------------------------===//

Body buildVariadic(Plan &plan) {
  const NodeInfo &node = plan.node;
  require(!node.in.empty(), "an input is needed");
  const TensorInfo &result = node.output(0);
  int op = node.name == "max" ? 0 : node.name == "min" ? 1 : 2;
  bool mean = node.name == "mean";
  std::vector<Broadcast> nests;
  for (size_t k = 0; k < node.in.size(); ++k)
    nests.emplace_back(result.dims,
                       std::vector<std::vector<int64_t>>{node.input(k).dims});
  return forNumbers(result.dtype, [&]<class T>() -> Body {
    std::vector<In<T>> inputs;
    for (size_t k = 0; k < node.in.size(); ++k)
      inputs.push_back(plan.read<T>(k));
    Out<T> out = plan.write<T>(0);
    int64_t count = result.count;
    return [=](const Run &r) {
      T *y = r(out);
      for (size_t k = 0; k < inputs.size(); ++k) {
        const T *x = r(inputs[k]);
        int64_t n = nests[k].innerSize(), step = nests[k].innerStride(0);
        nests[k].forEach([&](const int64_t *offsets, int64_t at) {
          const T *row = x + offsets[0];
          T *dst = y + at;
          if (k == 0)
            for (int64_t i = 0; i < n; ++i)
              dst[i] = row[i * step];
          else if (op == 0)
            for (int64_t i = 0; i < n; ++i)
              dst[i] = maxFn(dst[i], row[i * step], nullptr);
          else if (op == 1)
            for (int64_t i = 0; i < n; ++i)
              dst[i] = minFn(dst[i], row[i * step], nullptr);
          else
            for (int64_t i = 0; i < n; ++i)
              dst[i] = addFn(dst[i], row[i * step], nullptr);
        });
      }
      if (mean)
        for (int64_t i = 0; i < count; ++i)
          y[i] = divide(y[i], static_cast<T>(inputs.size()));
    };
  });
}

/// Clip: limits are attributes before opset 11, scalar inputs since.
Body buildClip(Plan &plan) {
  const NodeInfo &node = plan.node;
  int64_t count = node.output(0).count;
  bool hasMinAttr = node.has("min"), hasMaxAttr = node.has("max");
  double minAttr = node.floatAttr("min", 0), maxAttr = node.floatAttr("max", 0);
  return forNumbers(node.input(0).dtype, [&]<class T>() -> Body {
    In<T> x = plan.read<T>(0);
    In<T> low = plan.readIf<T>(1), high = plan.readIf<T>(2);
    if (low)
      require(node.in[1].count == 1, "min must have one element");
    if (high)
      require(node.in[2].count == 1, "max must have one element");
    require(node.input(0).count == count, "the result has another size");
    Out<T> y = plan.write<T>(0);
    return [=](const Run &r) {
      const T *src = r(x);
      T *dst = r(y);
      bool hasLow = bool(low) || hasMinAttr, hasHigh = bool(high) || hasMaxAttr;
      T least = low ? *r(low) : saturateTo<T>(minAttr);
      T most = high ? *r(high) : saturateTo<T>(maxAttr);
      for (int64_t i = 0; i < count; ++i) {
        T value = src[i];
        if (hasLow && value < least)
          value = least;
        if (hasHigh && value > most)
          value = most;
        dst[i] = value;
      }
    };
  });
}

/// Where: moves bytes, so one instance per element size.
Body buildWhere(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &result = node.output(0);
  require(node.input(0).dtype == DType::BOOL, "the condition must be bool");
  require(node.input(1).dtype == result.dtype &&
              node.input(2).dtype == result.dtype,
          "operands and result must have one dtype");
  Broadcast nest(result.dims,
                 {node.input(0).dims, node.input(1).dims, node.input(2).dims});
  size_t size = result.elementSize();
  return [=](const Run &r) {
    forSize(size, [&]<class U>() {
      const uint8_t *c = reinterpret_cast<const uint8_t *>(r.in(0));
      const U *x = reinterpret_cast<const U *>(r.in(1));
      const U *y = reinterpret_cast<const U *>(r.in(2));
      U *out = reinterpret_cast<U *>(r.out(0));
      int64_t n = nest.innerSize(), sc = nest.innerStride(0),
              sx = nest.innerStride(1), sy = nest.innerStride(2);
      nest.forEach([&](const int64_t *offsets, int64_t at) {
        for (int64_t i = 0; i < n; ++i)
          out[at + i] = c[offsets[0] + i * sc] ? x[offsets[1] + i * sx]
                                               : y[offsets[2] + i * sy];
      });
    });
  };
}

} // namespace

void onnx::addElementwise(OpTable &ops) {
  ops["add"] = buildBinary<addFn, false>;
  ops["sub"] = buildBinary<subFn, false>;
  ops["mul"] = buildBinary<mulFn, false>;
  ops["div"] = buildBinary<divFn, false>;
  ops["prelu"] = buildPRelu;
  ops["equal"] = buildBinary<equalFn, true>;
  ops["less"] = buildBinary<lessFn, true>;
  ops["lessorequal"] = buildBinary<lessEqualFn, true>;
  ops["greater"] = buildBinary<greaterFn, true>;
  ops["greaterorequal"] = buildBinary<greaterEqualFn, true>;
  ops["and"] = buildLogic<bitAndFn>;
  ops["or"] = buildLogic<bitOrFn>;
  ops["xor"] = buildLogic<bitXorFn>;
  ops["bitwiseand"] = buildBits<bitAndFn>;
  ops["bitwiseor"] = buildBits<bitOrFn>;
  ops["bitwisexor"] = buildBits<bitXorFn>;
  ops["bitshift"] = buildShift;
  ops["mod"] = buildMod;
  ops["pow"] = buildPow;
  ops["max"] = buildVariadic;
  ops["min"] = buildVariadic;
  ops["sum"] = buildVariadic;
  ops["mean"] = buildVariadic;
  ops["clip"] = buildClip;
  ops["where"] = buildWhere;
  addUnary(ops);
}
