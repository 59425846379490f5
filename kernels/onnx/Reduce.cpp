//===- Reduce.cpp - Reductions, arg-extrema, scans along an axis
//------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reductions read the input once, in memory order, and add into one accumulator
// per result: double for every float dtype, so that f32 sums are as good as the
// rounding of the result, and 64-bit integers otherwise.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"
#include "Strided.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

enum class Op {
  Sum,
  Mean,
  Prod,
  Max,
  Min,
  L1,
  L2,
  SumSquare,
  LogSum,
  LogSumExp
};

template <class T> T initial(Op op) {
  constexpr bool isFloat = std::is_floating_point_v<T>;
  switch (op) {
  case Op::Prod:
    return T(1);
  case Op::Max:
    return isFloat ? -std::numeric_limits<T>::infinity()
                   : std::numeric_limits<T>::lowest();
  case Op::Min:
    return isFloat ? std::numeric_limits<T>::infinity()
                   : std::numeric_limits<T>::max();
  default:
    return T(0);
  }
}

template <class T> struct Step {
  static T add(T acc, T x) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(uint64_t(acc) + uint64_t(x));
    else
      return acc + x;
  }
  static T mul(T acc, T x) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(uint64_t(acc) * uint64_t(x));
    else
      return acc * x;
  }
  static T abs(T x) {
    if constexpr (std::is_floating_point_v<T>)
      return std::fabs(x);
    else if constexpr (std::is_signed_v<T>)
      return x < 0 ? static_cast<T>(0 - uint64_t(x)) : x;
    else
      return x;
  }
};

/// acc[i * accStep] op= x[i] for a run of n elements.
template <class T>
void accumulate(Op op, const T *x, int64_t n, T *acc, int64_t accStep) {
  auto loop = [&](auto f) {
    if (accStep == 0) {
      T value = *acc;
      for (int64_t i = 0; i < n; ++i)
        value = f(value, x[i]);
      *acc = value;
    } else {
      for (int64_t i = 0; i < n; ++i)
        acc[i] = f(acc[i], x[i]);
    }
  };
  using S = Step<T>;
  switch (op) {
  case Op::Prod:
    return loop([](T a, T v) { return S::mul(a, v); });
  case Op::Max:
    return loop([](T a, T v) { return a != a || a > v ? a : v; });
  case Op::Min:
    return loop([](T a, T v) { return a != a || a < v ? a : v; });
  case Op::L1:
    return loop([](T a, T v) { return S::add(a, S::abs(v)); });
  case Op::L2:
  case Op::SumSquare:
    return loop([](T a, T v) { return S::add(a, S::mul(v, v)); });
  default:
    return loop([](T a, T v) { return S::add(a, v); });
  }
}

/// Which axes are reduced: from the attribute, or the values of the input.
/// Fills `reduced`; throws when an axis is out of range.
void markAxes(const int64_t *axes, int64_t count, int rank, bool *reduced) {
  for (int64_t i = 0; i < count; ++i)
    reduced[normalizeAxis(axes[i], rank)] = true;
}

Body buildReduceAs(Plan &plan, Op op) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  const TensorInfo &y = node.output(0);
  std::vector<int64_t> axesAttr = node.intsAttr("axes");
  bool axesGiven = node.has("axes");
  In<int64_t> axesIn = plan.readIf<int64_t>(1);
  int64_t numAxes = axesIn ? node.in[1].count : 0;
  bool noop = node.intAttr("noop_with_empty_axes", 0) != 0;
  int rank = x.rank();
  std::vector<int64_t> dims = x.dims;
  DType xType = x.dtype, yType = y.dtype;
  int64_t outCount = y.count, inCount = x.count;

  auto make = [&]<class T>() -> Body {
    Scratch<T> accumulators = plan.scratch<T>(outCount);
    Scratch<T> maxima = plan.scratch<T>(op == Op::LogSumExp ? outCount : 0);
    return [=](const Run &r) {
      bool reduced[kMaxTensorRank] = {};
      if (axesGiven)
        markAxes(axesAttr.data(), int64_t(axesAttr.size()), rank, reduced);
      else if (axesIn)
        markAxes(r(axesIn), numAxes, rank, reduced);
      int64_t numGiven = axesGiven ? int64_t(axesAttr.size()) : numAxes;
      if (numGiven == 0 && !noop)
        std::fill_n(reduced, rank, true);

      // The accumulator of an element: strides over the result, 0 when reduced.
      int64_t accStrides[kMaxTensorRank], kept = 1, perResult = 1;
      for (int d = rank - 1; d >= 0; --d) {
        accStrides[d] = reduced[d] ? 0 : kept;
        (reduced[d] ? perResult : kept) *= dims[d];
      }
      require(kept == outCount, "the result has another size");
      // Merge dimensions so that the innermost run is long.
      int64_t runDims[kMaxTensorRank], runAcc[kMaxTensorRank];
      int runRank = 0;
      for (int d = 0; d < rank; ++d) {
        if (dims[d] == 1)
          continue;
        if (runRank && runAcc[runRank - 1] == accStrides[d] * dims[d]) {
          runDims[runRank - 1] *= dims[d];
          runAcc[runRank - 1] = accStrides[d];
        } else {
          runDims[runRank] = dims[d];
          runAcc[runRank++] = accStrides[d];
        }
      }
      int64_t inner = runRank ? runDims[runRank - 1] : 1;
      int64_t step = runRank ? runAcc[runRank - 1] : 0;
      int outerRank = std::max(runRank - 1, 0);

      constexpr int64_t kChunk = 512;
      T buffer[kChunk];
      auto pass = [&](auto f) {
        if (inCount == 0)
          return;
        Odometer odometer(outerRank, runDims, runAcc);
        const char *src = r.in(0);
        do {
          for (int64_t at = 0; at < inner; at += kChunk) {
            int64_t n = std::min(kChunk, inner - at);
            loadAs(xType, src, n, buffer);
            src += n * int64_t(dtypeSize(xType));
            f(buffer, n, odometer.a + at * step);
          }
        } while (odometer.next());
      };

      T *acc = r(accumulators);
      std::fill_n(acc, outCount, initial<T>(op));
      if (op == Op::LogSumExp) {
        T *max = r(maxima);
        std::fill_n(max, outCount, initial<T>(Op::Max));
        pass([&](T *v, int64_t n, int64_t at) {
          accumulate(Op::Max, v, n, max + at, step);
        });
        if constexpr (std::is_floating_point_v<T>)
          pass([&](T *v, int64_t n, int64_t at) {
            for (int64_t i = 0; i < n; ++i) {
              T m = max[at + i * step];
              v[i] = std::isinf(m) ? (v[i] == m ? T(1) : T(0))
                                   : std::exp(v[i] - m);
            }
            accumulate(Op::Sum, v, n, acc + at, step);
          });
        else
          pass([&](T *v, int64_t n, int64_t at) {
            for (int64_t i = 0; i < n; ++i)
              acc[at + i * step] += saturateTo<T>(
                  std::exp(double(v[i]) - double(max[at + i * step])));
          });
        for (int64_t i = 0; i < outCount; ++i)
          acc[i] = saturateTo<T>(double(max[i]) + std::log(double(acc[i])));
      } else {
        pass([&](T *v, int64_t n, int64_t at) {
          accumulate(op, v, n, acc + at, step);
        });
      }
      for (int64_t i = 0; i < outCount; ++i) {
        if (op == Op::Mean) {
          if constexpr (std::is_integral_v<T>)
            acc[i] = perResult ? acc[i] / T(perResult) : T(0);
          else
            acc[i] /= T(perResult);
        } else if (op == Op::L2) {
          acc[i] = saturateTo<T>(std::sqrt(double(acc[i])));
        } else if (op == Op::LogSum) {
          acc[i] = saturateTo<T>(std::log(double(acc[i])));
        }
      }
      // An empty integer maximum is the lowest value of the dtype itself.
      if (inCount == 0 && std::is_integral_v<T> &&
          (op == Op::Max || op == Op::Min)) {
        int bits = int(dtypeSize(yType)) * 8;
        bool isSigned = std::is_signed_v<T>;
        uint64_t most = (~uint64_t(0) >> (64 - bits)) >> (isSigned ? 1 : 0);
        T value = op == Op::Min ? T(most) : isSigned ? T(~most) : T(0);
        std::fill_n(acc, outCount, value);
      }
      storeAs(acc, outCount, yType, r.out(0));
    };
  };
  switch (computeOf(xType)) {
  case Compute::F32:
  case Compute::F64:
    return make.operator()<double>();
  case Compute::Int:
    return make.operator()<int64_t>();
  default:
    return make.operator()<uint64_t>();
  }
}

template <Op op> Body buildReduce(Plan &plan) {
  return buildReduceAs(plan, op);
}

/// ArgMax and ArgMin; NaN counts as the extremum, as in NumPy.
Body buildArg(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  int axis = node.axisAttr("axis", 0, x.rank());
  bool max = node.name == "argmax";
  bool last = node.intAttr("select_last_index", 0) != 0;
  int64_t outer = product(x.dims, 0, axis), n = x.dims[axis],
          inner = product(x.dims, axis + 1, x.rank());
  require(n > 0, "the reduced axis is empty");
  require(node.output(0).count == outer * inner, "the result has another size");
  return forNumbers(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<int64_t> out = plan.write<int64_t>(0);
    return [=](const Run &r) {
      const T *src = r(in);
      int64_t *dst = r(out);
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          const T *v = src + o * n * inner + i;
          int64_t best = 0;
          for (int64_t k = 1; k < n; ++k) {
            T a = v[best * inner], b = v[k * inner];
            bool better = (max ? b > a : b < a) || (b != b && a == a);
            if (better || (last && a == b))
              best = k;
          }
          dst[o * inner + i] = best;
        }
    };
  });
}

/// CumSum and CumProd. The running value is kept in double for floats.
Body buildScan(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  require(node.input(1).count == 1, "axis must have one element");
  requireSameDims(x, node.output(0), "the result has another shape");
  In<int64_t> axisIn = plan.read<int64_t>(1);
  bool exclusive = node.intAttr("exclusive", 0) != 0;
  bool reverse = node.intAttr("reverse", 0) != 0;
  bool prod = node.name == "cumprod";
  std::vector<int64_t> dims = x.dims;
  return forNumbers(x.dtype, [&]<class T>() -> Body {
    using Acc =
        std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      int rank = int(dims.size());
      int axis = normalizeAxis(*r(axisIn), rank);
      int64_t outer = product(dims, 0, axis), n = dims[axis],
              inner = product(dims, axis + 1, rank);
      const T *src = r(in);
      T *dst = r(out);
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          Acc acc = prod ? 1 : 0;
          for (int64_t k = 0; k < n; ++k) {
            int64_t at = (o * n + (reverse ? n - 1 - k : k)) * inner + i;
            Acc value = static_cast<Acc>(src[at]);
            Acc next = prod ? acc * value : acc + value;
            dst[at] = static_cast<T>(exclusive ? acc : next);
            acc = next;
          }
        }
    };
  });
}

/// Softmax, LogSoftmax, Hardmax. Before opset 13 the input is a matrix, split
/// at `axis` (default 1); since then only `axis` (default -1) counts.
Body buildSoftmax(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  requireSameDims(x, node.output(0), "the result has another shape");
  bool flat = node.opset > 0 && node.opset < 13;
  int64_t outer, n, inner;
  if (flat) {
    int64_t axis = node.intAttr("axis", 1);
    if (axis < 0)
      axis += x.rank();
    require(axis >= 0 && axis <= x.rank(), "axis is out of range");
    outer = product(x.dims, 0, int(axis));
    n = product(x.dims, int(axis), x.rank());
    inner = 1;
  } else {
    int axis = node.axisAttr("axis", -1, x.rank());
    outer = product(x.dims, 0, axis);
    n = x.dims[axis];
    inner = product(x.dims, axis + 1, x.rank());
  }
  enum {
    Soft,
    LogSoft,
    Hard
  } kind = node.name == "softmax"      ? Soft
           : node.name == "logsoftmax" ? LogSoft
                                       : Hard;
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      if (n == 0)
        return;
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          const T *v = r(in) + o * n * inner + i;
          T *y = r(out) + o * n * inner + i;
          int64_t best = 0;
          for (int64_t k = 1; k < n; ++k)
            if (v[k * inner] > v[best * inner])
              best = k;
          T max = v[best * inner];
          if (kind == Hard) {
            for (int64_t k = 0; k < n; ++k)
              y[k * inner] = T(k == best);
            continue;
          }
          double sum = 0;
          for (int64_t k = 0; k < n; ++k) {
            T e = std::exp(v[k * inner] - max);
            sum += e;
            if (kind == Soft)
              y[k * inner] = e;
          }
          if (kind == Soft) {
            for (int64_t k = 0; k < n; ++k)
              y[k * inner] = static_cast<T>(y[k * inner] / sum);
          } else {
            T log = static_cast<T>(std::log(sum));
            for (int64_t k = 0; k < n; ++k)
              y[k * inner] = v[k * inner] - max - log;
          }
        }
    };
  });
}

} // namespace

void onnx::addReduce(OpTable &ops) {
  ops["reducesum"] = buildReduce<Op::Sum>;
  ops["reducemean"] = buildReduce<Op::Mean>;
  ops["reduceprod"] = buildReduce<Op::Prod>;
  ops["reducemax"] = buildReduce<Op::Max>;
  ops["reducemin"] = buildReduce<Op::Min>;
  ops["reducel1"] = buildReduce<Op::L1>;
  ops["reducel2"] = buildReduce<Op::L2>;
  ops["reducesumsquare"] = buildReduce<Op::SumSquare>;
  ops["reducelogsum"] = buildReduce<Op::LogSum>;
  ops["reducelogsumexp"] = buildReduce<Op::LogSumExp>;
  ops["argmax"] = buildArg;
  ops["argmin"] = buildArg;
  ops["cumsum"] = buildScan;
  ops["cumprod"] = buildScan;
  ops["softmax"] = buildSoftmax;
  ops["logsoftmax"] = buildSoftmax;
  ops["hardmax"] = buildSoftmax;
}
