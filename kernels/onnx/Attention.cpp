//===- Attention.cpp - Attention and what goes with it
//----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention row by row with the whole row of scores in scratch, because the
// operator can return it; RotaryEmbedding; the recurrent LinearAttention and
// its causal convolution.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"
#include "Strided.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

/// A [B, H, S, D] operand, or one packed as [B, S, H*D].
struct Heads {
  int64_t batch = 0, heads = 0, length = 0, size = 0;
  int64_t batchStride = 0, headStride = 0, lengthStride = 0;

  Heads(const TensorInfo &t, int64_t packedHeads) {
    if (t.rank() == 4) {
      batch = t.dims[0];
      heads = t.dims[1];
      length = t.dims[2];
      size = t.dims[3];
      lengthStride = size;
      headStride = length * size;
    } else {
      require(t.rank() == 3, "operands must have 3 or 4 dimensions");
      require(packedHeads > 0 && packedHeads < (1 << 20) &&
                  t.dims[2] % packedHeads == 0,
              "the number of heads does not divide the hidden size");
      batch = t.dims[0];
      heads = packedHeads;
      length = t.dims[1];
      size = t.dims[2] / packedHeads;
      lengthStride = t.dims[2];
      headStride = size;
    }
    batchStride = heads * length * size;
  }
  int64_t at(int64_t b, int64_t h, int64_t s) const {
    return b * batchStride + h * headStride + s * lengthStride;
  }
};

/// Attention (opset 23 and 24) and FlexAttention without modifiers.
Body buildAttention(Plan &plan) {
  const NodeInfo &node = plan.node;
  bool flex = node.name != "attention";
  int64_t qHeads = node.intAttr("q_num_heads", 0),
          kvHeads = node.intAttr("kv_num_heads", 0);
  Heads q(node.input(0), qHeads), k(node.input(1), kvHeads),
      v(node.input(2), kvHeads), y(node.output(0), q.heads);
  require(k.batch == q.batch && v.batch == q.batch && k.heads == v.heads &&
              k.length == v.length && k.size == q.size,
          "query, key and value do not fit");
  require(k.heads > 0 && q.heads % k.heads == 0,
          "query heads must be a multiple of key heads");
  require(y.batch == q.batch && y.heads == q.heads && y.length == q.length &&
              y.size == v.size,
          "the result has another shape");
  bool hasMask = !flex && node.hasIn(3), hasPast = !flex && node.hasIn(4);
  require(hasPast == (!flex && node.hasIn(5)),
          "past key and value come together");
  int64_t past = hasPast ? node.in[4].dim(-2) : 0, total = past + k.length;
  if (hasPast)
    require(node.in[4].dims ==
                    std::vector<int64_t>({k.batch, k.heads, past, k.size}) &&
                node.in[5].dims ==
                    std::vector<int64_t>({k.batch, k.heads, past, v.size}),
            "past key or value has another shape");
  bool hasPresentKey = !flex && node.hasOut(1),
       hasPresentValue = !flex && node.hasOut(2),
       hasScores = !flex && node.hasOut(3);
  require(!hasPresentKey ||
              node.out[1].count == k.batch * k.heads * total * k.size,
          "present key has another size");
  require(!hasPresentValue ||
              node.out[2].count == k.batch * k.heads * total * v.size,
          "present value has another size");
  require(!hasScores ||
              node.out[3].count == q.batch * q.heads * q.length * total,
          "the scores have another size");
  bool hasNonpad = !flex && node.hasIn(6);
  require(!hasNonpad || node.in[6].count == q.batch,
          "nonpad_kv_seqlen must have one entry per batch");
  bool causal = node.intAttr("is_causal", 0) != 0;
  double softcap = node.floatAttr("softcap", 0);
  double scale = node.floatAttr("scale", 1 / std::sqrt(double(q.size)));
  int64_t mode = node.intAttr("qk_matmul_output_mode", 0);

  // Strides of the mask over (b, h, i, j), 0 where broadcast.
  std::array<int64_t, 4> maskStrides{};
  int64_t maskLength = 0;
  bool boolMask = false;
  if (hasMask) {
    const TensorInfo &mask = node.in[3];
    require(mask.rank() >= 1 && mask.rank() <= 4, "the mask's rank is wrong");
    std::vector<int64_t> dense = denseStrides(mask.dims);
    std::array<int64_t, 4> full{q.batch, q.heads, q.length, total};
    for (int d = 0; d < mask.rank(); ++d) {
      int at = 4 - mask.rank() + d;
      require(mask.dims[d] == full[at] || mask.dims[d] == 1 ||
                  (at == 3 && mask.dims[d] < total),
              "the mask does not broadcast");
      // A mask of one column is a broadcast only if it is not a short one.
      maskStrides[at] = mask.dims[d] == 1 ? 0 : dense[d];
    }
    maskLength = mask.dims.back() == 1 ? total : mask.dims.back();
    boolMask = mask.dtype == DType::BOOL;
  }

  return forFloats(node.input(0).dtype, [&]<class T>() -> Body {
    In<T> qIn = plan.read<T>(0), kIn = plan.read<T>(1), vIn = plan.read<T>(2);
    In<uint8_t> boolIn =
        hasMask && boolMask ? plan.readIf<uint8_t>(3) : In<uint8_t>{};
    In<T> maskIn = hasMask && !boolMask ? plan.readIf<T>(3) : In<T>{};
    In<T> pastKey = hasPast ? plan.readIf<T>(4) : In<T>{},
          pastValue = hasPast ? plan.readIf<T>(5) : In<T>{};
    In<int64_t> nonpad = hasNonpad ? plan.readIf<int64_t>(6) : In<int64_t>{};
    Out<T> out = plan.write<T>(0);
    Out<T> presentKey = hasPresentKey ? plan.writeIf<T>(1) : Out<T>{},
           presentValue = hasPresentValue ? plan.writeIf<T>(2) : Out<T>{},
           scores = hasScores ? plan.writeIf<T>(3) : Out<T>{};
    Scratch<double> rowScratch = plan.scratch<double>(total),
                    sumScratch = plan.scratch<double>(v.size);
    return [=](const Run &r) {
      auto keyRow = [&](int64_t b, int64_t h, int64_t t) {
        return t < past ? r(pastKey) + ((b * k.heads + h) * past + t) * k.size
                        : r(kIn) + k.at(b, h, t - past);
      };
      auto valueRow = [&](int64_t b, int64_t h, int64_t t) {
        return t < past ? r(pastValue) + ((b * k.heads + h) * past + t) * v.size
                        : r(vIn) + v.at(b, h, t - past);
      };
      for (int64_t b = 0; b < k.batch; ++b)
        for (int64_t h = 0; h < k.heads; ++h)
          for (int64_t t = 0; t < total; ++t) {
            int64_t row = (b * k.heads + h) * total + t;
            if (presentKey)
              std::copy_n(keyRow(b, h, t), k.size,
                          r(presentKey) + row * k.size);
            if (presentValue)
              std::copy_n(valueRow(b, h, t), v.size,
                          r(presentValue) + row * v.size);
          }
      constexpr double kInf = std::numeric_limits<double>::infinity();
      double *row = r(rowScratch), *sum = r(sumScratch);
      for (int64_t b = 0; b < q.batch; ++b)
        for (int64_t h = 0; h < q.heads; ++h)
          for (int64_t i = 0; i < q.length; ++i) {
            int64_t kvHead = h / (q.heads / k.heads);
            const T *query = r(qIn) + q.at(b, h, i);
            T *save =
                scores ? r(scores) + ((b * q.heads + h) * q.length + i) * total
                       : nullptr;
            auto keep = [&](int64_t wanted) {
              if (save && mode == wanted)
                for (int64_t t = 0; t < total; ++t)
                  save[t] = static_cast<T>(row[t]);
            };
            for (int64_t t = 0; t < total; ++t) {
              const T *key = keyRow(b, kvHead, t);
              double dot = 0;
              for (int64_t d = 0; d < q.size; ++d)
                dot += double(query[d]) * key[d];
              row[t] = dot * scale;
            }
            keep(0);
            if (softcap > 0)
              for (int64_t t = 0; t < total; ++t)
                row[t] = softcap * std::tanh(row[t] / softcap);
            keep(1);
            for (int64_t t = 0; t < total; ++t) {
              if (causal && t > past + i)
                row[t] = -kInf;
              if (nonpad && t >= r(nonpad)[b])
                row[t] = -kInf;
              if (!hasMask)
                continue;
              int64_t at = b * maskStrides[0] + h * maskStrides[1] +
                           i * maskStrides[2] + t * maskStrides[3];
              if (t >= maskLength)
                row[t] = -kInf;
              else if (boolMask)
                row[t] = r(boolIn)[at] ? row[t] : -kInf;
              else
                row[t] += r(maskIn)[at];
            }
            keep(2);
            double max = -kInf, norm = 0;
            for (int64_t t = 0; t < total; ++t)
              max = std::max(max, row[t]);
            for (int64_t t = 0; t < total; ++t)
              norm += row[t] = std::exp(row[t] - max);
            for (int64_t t = 0; t < total; ++t)
              row[t] /= norm;
            keep(3);
            std::fill_n(sum, v.size, 0.0);
            for (int64_t t = 0; t < total; ++t) {
              const T *value = valueRow(b, kvHead, t);
              if (row[t] != 0)
                for (int64_t d = 0; d < v.size; ++d)
                  sum[d] += row[t] * value[d];
            }
            T *dst = r(out) + y.at(b, h, i);
            for (int64_t d = 0; d < v.size; ++d)
              dst[d] = static_cast<T>(sum[d]);
          }
    };
  });
}

Body buildFlexAttention(Plan &plan) {
  if (plan.node.has("score_mod") || plan.node.has("prob_mod"))
    throw UnsupportedError("modifier subgraphs");
  return buildAttention(plan);
}

Body buildRotaryEmbedding(Plan &plan) {
  const NodeInfo &node = plan.node;
  Heads x(node.input(0), node.intAttr("num_heads", 0));
  requireSameDims(node.input(0), node.output(0),
                  "the result has another shape");
  int64_t rotary = node.intAttr("rotary_embedding_dim", 0);
  if (rotary == 0)
    rotary = x.size;
  require(rotary > 0 && rotary <= x.size && rotary % 2 == 0,
          "rotary_embedding_dim must be even and at most the head size");
  bool interleaved = node.intAttr("interleaved", 0) != 0;
  int64_t half = rotary / 2;
  const TensorInfo &cosine = node.input(1);
  requireSameDims(cosine, node.input(2), "the caches differ in shape");
  bool hasIds = node.hasIn(3);
  require(cosine.rank() >= 2 && cosine.dims.back() == half,
          "the caches must have half the rotated size");
  int64_t cacheRows = product(cosine.dims, 0, cosine.rank() - 1);
  int64_t tokens = x.batch * x.length;
  require(hasIds ? node.in[3].count == tokens : cacheRows == tokens,
          "one position per token is needed");
  return forFloats(node.input(0).dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0), cosIn = plan.read<T>(1),
          sinIn = plan.read<T>(2);
    In<int64_t> ids = plan.readIf<int64_t>(3);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      for (int64_t b = 0; b < x.batch; ++b)
        for (int64_t s = 0; s < x.length; ++s) {
          int64_t token = b * x.length + s;
          int64_t row = ids ? r(ids)[token] : token;
          require(row >= 0 && row < cacheRows, "a position is out of range");
          const T *c = r(cosIn) + row * half, *sn = r(sinIn) + row * half;
          for (int64_t h = 0; h < x.heads; ++h) {
            const T *src = r(in) + x.at(b, h, s);
            T *dst = r(out) + x.at(b, h, s);
            for (int64_t j = 0; j < half; ++j) {
              int64_t p = interleaved ? 2 * j : j,
                      o = interleaved ? 2 * j + 1 : j + half;
              T real = src[p], imaginary = src[o];
              dst[p] = c[j] * real - sn[j] * imaginary;
              dst[o] = sn[j] * real + c[j] * imaginary;
            }
            for (int64_t j = rotary; j < x.size; ++j)
              dst[j] = src[j];
          }
        }
    };
  });
}

/// LinearAttention: the recurrence, token by token.
Body buildLinearAttention(Plan &plan) {
  const NodeInfo &node = plan.node;
  int64_t qHeads = node.intAttr("q_num_heads", 0),
          kvHeads = node.intAttr("kv_num_heads", 0);
  Heads q(node.input(0), qHeads), k(node.input(1), kvHeads),
      v(node.input(2), kvHeads), y(node.output(0), qHeads);
  require(k.batch == q.batch && v.batch == q.batch && k.length == q.length &&
              v.length == q.length && k.size == q.size && k.heads == v.heads &&
              k.heads > 0 && q.heads % k.heads == 0,
          "query, key and value do not fit");
  require(y.batch == q.batch && y.length == q.length && y.size == v.size,
          "the result has another shape");
  std::string rule = node.strAttr("update_rule", "gated_delta");
  bool gated = rule == "gated" || rule == "gated_delta",
       delta = rule == "delta" || rule == "gated_delta";
  require(gated || delta || rule == "linear", "unknown update_rule");
  double scale = node.floatAttr("scale", 0);
  if (scale == 0)
    scale = 1 / std::sqrt(double(q.size));
  int64_t stateCount = k.batch * k.heads * k.size * v.size;
  require(!node.hasIn(3) || node.in[3].count == stateCount,
          "past_state has another size");
  require(!node.hasOut(1) || node.out[1].count == stateCount,
          "present_state has another size");
  int64_t tokens = q.batch * q.length, decayWidth = 0, betaWidth = 0;
  if (gated) {
    decayWidth = node.input(4).dim(-1);
    require(node.in[4].count == tokens * decayWidth &&
                (decayWidth == k.heads || decayWidth == k.heads * k.size),
            "decay has another size");
  }
  if (delta) {
    betaWidth = node.input(5).dim(-1);
    require(node.in[5].count == tokens * betaWidth &&
                (betaWidth == k.heads || betaWidth == 1),
            "beta has another size");
  }
  return forFloats(node.input(0).dtype, [&]<class T>() -> Body {
    In<T> qIn = plan.read<T>(0), kIn = plan.read<T>(1), vIn = plan.read<T>(2),
          pastIn = plan.readIf<T>(3),
          decayIn = gated ? plan.readIf<T>(4) : In<T>{},
          betaIn = delta ? plan.readIf<T>(5) : In<T>{};
    Out<T> out = plan.write<T>(0), present = plan.writeIf<T>(1);
    Scratch<double> stateScratch = plan.scratch<double>(k.size * v.size),
                    rowScratch = plan.scratch<double>(v.size);
    return [=](const Run &r) {
      double *state = r(stateScratch), *row = r(rowScratch);
      int64_t perState = k.size * v.size, share = q.heads / k.heads;
      for (int64_t b = 0; b < k.batch; ++b)
        for (int64_t h = 0; h < k.heads; ++h) {
          int64_t base = (b * k.heads + h) * perState;
          for (int64_t i = 0; i < perState; ++i)
            state[i] = pastIn ? double(r(pastIn)[base + i]) : 0.0;
          for (int64_t t = 0; t < q.length; ++t) {
            int64_t token = b * q.length + t;
            const T *key = r(kIn) + k.at(b, h, t),
                    *value = r(vIn) + v.at(b, h, t);
            if (gated) {
              const T *decay = r(decayIn) + token * decayWidth;
              for (int64_t i = 0; i < k.size; ++i) {
                double factor = std::exp(double(
                    decayWidth == k.heads ? decay[h] : decay[h * k.size + i]));
                for (int64_t j = 0; j < v.size; ++j)
                  state[i * v.size + j] *= factor;
              }
            }
            double beta = 1;
            if (delta)
              beta = r(betaIn)[token * betaWidth + (betaWidth == 1 ? 0 : h)];
            for (int64_t j = 0; j < v.size; ++j)
              row[j] = value[j];
            if (delta)
              for (int64_t i = 0; i < k.size; ++i)
                for (int64_t j = 0; j < v.size; ++j)
                  row[j] -= state[i * v.size + j] * key[i];
            for (int64_t i = 0; i < k.size; ++i)
              for (int64_t j = 0; j < v.size; ++j)
                state[i * v.size + j] += beta * key[i] * row[j];
            for (int64_t g = 0; g < share; ++g) {
              const T *query = r(qIn) + q.at(b, h * share + g, t);
              T *dst = r(out) + y.at(b, h * share + g, t);
              std::fill_n(row, v.size, 0.0);
              for (int64_t i = 0; i < k.size; ++i)
                for (int64_t j = 0; j < v.size; ++j)
                  row[j] += query[i] * state[i * v.size + j];
              for (int64_t j = 0; j < v.size; ++j)
                dst[j] = static_cast<T>(scale * row[j]);
            }
          }
          if (present)
            for (int64_t i = 0; i < perState; ++i)
              r(present)[base + i] = static_cast<T>(state[i]);
        }
    };
  });
}

/// CausalConvWithState: depthwise, over past and present positions only.
Body buildCausalConv(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &w = node.input(1);
  requireSameDims(x, node.output(0), "the result has another shape");
  require(x.rank() == 3 && w.rank() == 3 && w.dims[0] == x.dims[1] &&
              w.dims[1] == 1 && w.dims[2] > 0,
          "operands must be [B,C,L] and [C,1,k]");
  int64_t batch = x.dims[0], channels = x.dims[1], length = x.dims[2],
          taps = w.dims[2], carry = taps - 1;
  require(!node.hasIn(2) || node.in[2].count == channels,
          "the bias has another size");
  require(!node.hasIn(3) || node.in[3].count == batch * channels * carry,
          "past_state has another size");
  require(!node.hasOut(1) || node.out[1].count == batch * channels * carry,
          "present_state has another size");
  std::string activation = node.strAttr("activation", "none");
  bool silu = activation == "silu" || activation == "swish";
  require(silu || activation == "none", "unknown activation");
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0), weights = plan.read<T>(1),
          bias = plan.readIf<T>(2), past = plan.readIf<T>(3);
    Out<T> out = plan.write<T>(0), present = plan.writeIf<T>(1);
    return [=](const Run &r) {
      for (int64_t row = 0; row < batch * channels; ++row) {
        int64_t c = row % channels;
        // Position p of the carried sequence followed by the input.
        auto at = [&](int64_t p) -> T {
          if (p < carry)
            return past ? r(past)[row * carry + p] : T(0);
          return r(in)[row * length + p - carry];
        };
        for (int64_t t = 0; t < length; ++t) {
          double sum = bias ? double(r(bias)[c]) : 0.0;
          for (int64_t i = 0; i < taps; ++i)
            sum += double(r(weights)[c * taps + i]) * at(t + i);
          if (silu)
            sum = sum / (1 + std::exp(-sum));
          r(out)[row * length + t] = static_cast<T>(sum);
        }
        if (present)
          for (int64_t i = 0; i < carry; ++i)
            r(present)[row * carry + i] = at(length + i);
      }
    };
  });
}

} // namespace

void onnx::addAttention(OpTable &ops) {
  ops["attention"] = buildAttention;
  ops["ai.onnx.preview.flexattention"] = buildFlexAttention;
  ops["rotaryembedding"] = buildRotaryEmbedding;
  ops["linearattention"] = buildLinearAttention;
  ops["causalconvwithstate"] = buildCausalConv;
}
