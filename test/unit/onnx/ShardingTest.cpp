//===- ShardingTest.cpp - Every factor, by running the operator on slices
//---===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rule claims that an operator may be computed in parts. The claim is tried:
// for random shapes and attributes, each factor's operands are cut, the
// operator's kernel runs on every part, and the parts are put together again
// (placed, summed, ...) and compared with the whole. Linear sets are tried by
// splitting the operands into random addends.
//
//===----------------------------------------------------------------------===//

#include "ShardingCase.h"
#include "concord/kernel.h"
#include "concord/onnx/Reader.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

using namespace concord;
using namespace concord::onnx;
using namespace concord::onnx::test;
using sharding::DimRef;
using sharding::Factor;
using sharding::Reduction;

namespace {

/// Runs a node; false when there is no kernel for it.
bool execute(const NodeView &v, const std::vector<Tensor> &inputs,
             std::vector<Tensor> &results) {
  const std::string text = describe(v);
  concord_kernel *kernel = nullptr;
  concord_kernel_info info = {};
  info.struct_size = sizeof info;
  if (concord_kernel_create(text.c_str(), &kernel, &info) != 0)
    return false;
  std::vector<void *> pointers;
  for (const Tensor &t : inputs)
    pointers.push_back(t.type.dtype == DType::Invalid
                           ? nullptr
                           : const_cast<std::byte *>(t.bytes.data()));
  results.clear();
  for (const TensorType &type : v.outputs) {
    results.push_back(Tensor::allocate(type));
    pointers.push_back(results.back().mutableBytes().data());
  }
  Tensor workspace = Tensor::allocate(
      {DType::U8, {static_cast<int64_t>(info.workspace_bytes)}});
  const int32_t code = concord_kernel_run(kernel, pointers.data(),
                                          workspace.mutableBytes().data());
  concord_kernel_destroy(kernel);
  EXPECT_EQ(code, 0) << text << ": " << concord_kernel_last_error();
  return true;
}

/// The type of part `1/parts` of a tensor along `at`.
TensorType partType(TensorType type, DimRef at, int64_t parts) {
  if (at.dim >= 0)
    type.shape[at.dim] /= parts;
  return type;
}

/// Copy between a tensor and its part `r` of `parts` along `at`: the dimension
/// is [outer, rest] and `rest` is cut.
void copyPart(const Tensor &whole, Tensor &part, DimRef at, int64_t r,
              int64_t parts, bool toPart) {
  const size_t size = dtypeSize(whole.type.dtype);
  if (at.dim < 0) {
    std::memcpy(toPart ? part.mutableBytes().data()
                       : const_cast<std::byte *>(whole.bytes.data()),
                toPart ? whole.bytes.data() : part.bytes.data(),
                whole.bytes.size());
    return;
  }
  int64_t before = at.outer, inner = 1;
  for (int32_t d = 0; d < at.dim; ++d)
    before *= whole.type.shape[d];
  for (size_t d = at.dim + 1; d < whole.type.shape.size(); ++d)
    inner *= whole.type.shape[d];
  const int64_t rest = whole.type.shape[at.dim] / at.outer;
  const int64_t mine = rest / parts;
  for (int64_t o = 0; o < before; ++o) {
    std::byte *w = const_cast<std::byte *>(whole.bytes.data()) +
                   (o * rest + r * mine) * inner * size;
    std::byte *p = part.mutableBytes().data() + o * mine * inner * size;
    std::memcpy(toPart ? p : w, toPart ? w : p, mine * inner * size);
  }
}

Tensor zerosLike(const Tensor &t) { return Tensor::allocate(t.type); }

double scaleOf(const Tensor &t) {
  double scale = 1;
  for (int64_t i = 0; i < t.type.numElements(); ++i)
    if (std::isfinite(t.floatAt(i)))
      scale = std::max(scale, std::fabs(t.floatAt(i)));
  return scale;
}

void expectClose(const Tensor &got, const Tensor &want,
                 const std::string &what) {
  ASSERT_EQ(got.type, want.type) << what;
  const double tolerance = 2e-5 * scaleOf(want);
  for (int64_t i = 0; i < want.type.numElements(); ++i) {
    const double a = got.floatAt(i), b = want.floatAt(i);
    if (std::isnan(a) && std::isnan(b))
      continue;
    ASSERT_TRUE(a == b || std::fabs(a - b) <= tolerance)
        << what << ": element " << i << " is " << a << " instead of " << b;
  }
}

void combine(Tensor &into, const Tensor &part, Reduction reduction) {
  ASSERT_EQ(into.type.dtype, DType::F32);
  auto *a = reinterpret_cast<float *>(into.mutableBytes().data());
  for (int64_t i = 0; i < into.type.numElements(); ++i) {
    const auto b = static_cast<float>(part.floatAt(i));
    switch (reduction) {
    case Reduction::Max:
      a[i] = std::max(a[i], b);
      break;
    case Reduction::Min:
      a[i] = std::min(a[i], b);
      break;
    case Reduction::Prod:
      a[i] *= b;
      break;
    default:
      a[i] += b;
    }
  }
}

/// Gather on a part of the vocabulary: foreign indices give zeros.
void maskedLookup(const Tensor &whole, int64_t rows, int64_t r, Tensor &index,
                  std::vector<char> &foreign) {
  auto *p = reinterpret_cast<int64_t *>(index.mutableBytes().data());
  foreign.assign(index.type.numElements(), 0);
  for (int64_t i = 0; i < index.type.numElements(); ++i) {
    const int64_t at = whole.intAt(i) - r * rows;
    foreign[i] = at < 0 || at >= rows;
    p[i] = foreign[i] ? 0 : at;
  }
}

void checkFactor(const Case &c, const NodeView &v,
                 const std::vector<Tensor> &whole, const Factor &f,
                 int64_t parts, const std::string &what) {
  std::vector<Tensor> together;
  for (size_t o = 0; o < whole.size(); ++o)
    together.push_back(zerosLike(whole[o]));
  for (int64_t r = 0; r < parts; ++r) {
    std::vector<Tensor> local;
    std::vector<TensorType> types;
    std::vector<char> foreign;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if (c.inputs[i].type.dtype == DType::Invalid) {
        local.emplace_back();
      } else {
        Tensor part =
            Tensor::allocate(partType(c.inputs[i].type, f.operands[i], parts));
        const bool elsewhere =
            r > 0 && std::find(f.addends.begin(), f.addends.end(),
                               static_cast<int32_t>(i)) != f.addends.end();
        if (!elsewhere)
          copyPart(c.inputs[i], part, f.operands[i], r, parts, true);
        local.push_back(part);
      }
      types.push_back(local.back().type);
    }
    if (f.lookup)
      maskedLookup(c.inputs[1], types[0].shape[0], r, local[1], foreign);
    Node node = c.node;
    node.attributes = localAttributes(v, types);
    NodeView localView;
    localView.node = &node;
    localView.inputs = types;
    localView.constants.resize(types.size(), nullptr);
    for (size_t o = 0; o < whole.size(); ++o)
      localView.outputs.push_back(partType(v.outputs[o], f.results[o], parts));
    std::vector<Tensor> results;
    ASSERT_TRUE(execute(localView, local, results)) << what;
    for (size_t o = 0; o < whole.size(); ++o) {
      if (f.lookup) {
        const size_t row =
            results[o].bytes.size() / std::max<size_t>(foreign.size(), 1);
        for (size_t i = 0; i < foreign.size(); ++i)
          if (foreign[i])
            std::memset(results[o].mutableBytes().data() + i * row, 0, row);
      }
      if (f.reduction != Reduction::None && r > 0)
        combine(together[o], results[o], f.reduction);
      else if (f.results[o].dim < 0 && r > 0)
        expectClose(results[o], together[o], what + " replicated");
      else
        copyPart(together[o], results[o],
                 f.reduction != Reduction::None ? DimRef{} : f.results[o], r,
                 parts, false);
    }
  }
  for (size_t o = 0; o < whole.size(); ++o)
    expectClose(together[o], whole[o], what + " result " + std::to_string(o));
}

void checkLinear(const Case &c, const NodeView &v,
                 const std::vector<Tensor> &whole,
                 const sharding::LinearSet &set, Rng &rng,
                 const std::string &what) {
  std::vector<Tensor> parts[2] = {c.inputs, c.inputs};
  for (int32_t i : set) {
    ASSERT_GE(i, 0);
    ASSERT_LT(i, static_cast<int32_t>(c.inputs.size()));
    if (c.inputs[i].type.dtype != DType::F32)
      return; // the same claim, but integers were drawn
    Tensor a = floats(rng, c.inputs[i].type.shape), b = zerosLike(a);
    auto *p = reinterpret_cast<float *>(b.mutableBytes().data());
    for (int64_t k = 0; k < a.type.numElements(); ++k)
      p[k] = static_cast<float>(c.inputs[i].floatAt(k) - a.floatAt(k));
    parts[0][i] = a;
    parts[1][i] = b;
  }
  std::vector<Tensor> sum;
  for (const auto &inputs : parts) {
    std::vector<Tensor> results;
    ASSERT_TRUE(execute(v, inputs, results)) << what;
    if (sum.empty()) {
      sum = results;
    } else {
      for (size_t o = 0; o < sum.size(); ++o)
        combine(sum[o], results[o], Reduction::Sum);
    }
  }
  for (size_t o = 0; o < whole.size(); ++o)
    expectClose(sum[o], whole[o], what);
}

using Generator = Case (*)(Rng &);

std::string showTypes(const std::vector<TensorType> &types) {
  std::string text;
  for (const TensorType &type : types) {
    text += " [";
    for (size_t i = 0; i < type.shape.size(); ++i)
      text += (i ? "," : "") + std::to_string(type.shape[i]);
    text += "]";
  }
  return text;
}

/// Returns how many factors were tried, or -1 when no kernel exists.
int checkRule(const Case &c, Rng &rng) {
  const OpDef *def = findOp(c.node.domain, c.node.opType);
  EXPECT_TRUE(def && def->shard) << c.node.opType;
  if (!def || !def->shard)
    return 0;
  NodeView v = c.view();
  def->infer(v);
  std::vector<Tensor> whole;
  if (!execute(v, c.inputs, whole))
    return -1;
  const sharding::Rule rule = def->shard(v);
  int tried = 0;
  for (const Factor &f : rule.factors) {
    EXPECT_EQ(f.operands.size(), v.inputs.size());
    EXPECT_EQ(f.results.size(), v.outputs.size());
    auto divides = [&](const DimRef &at, const TensorType &type) {
      return at.dim < 0 || (at.dim < static_cast<int32_t>(type.shape.size()) &&
                            type.shape[at.dim] % (at.outer * f.size) == 0);
    };
    for (size_t i = 0; i < f.operands.size(); ++i)
      EXPECT_TRUE(divides(f.operands[i], v.inputs[i])) << c.node.opType;
    for (size_t i = 0; i < f.results.size(); ++i) {
      EXPECT_TRUE(divides(f.results[i], v.outputs[i])) << c.node.opType;
      // Nothing says how a result that lacks the loop would come about.
      EXPECT_EQ(f.results[i].dim < 0, f.reduction != Reduction::None)
          << c.node.opType;
    }
    for (int64_t parts : {2, 3, 4}) {
      if (f.size % parts != 0)
        continue;
      std::string what = c.node.opType + showTypes(v.inputs) + " ->" +
                         showTypes(v.outputs) + " factor";
      for (const DimRef &at : f.operands)
        what += " " + std::to_string(at.dim) + "/" + std::to_string(at.outer);
      what += " by " + std::to_string(parts);
      checkFactor(c, v, whole, f, parts, what);
      ++tried;
    }
  }
  for (const auto &set : rule.linear) {
    checkLinear(c, v, whole, set, rng, c.node.opType + " linear");
    ++tried;
  }
  return tried;
}

// --- the cases --------------------------------------------------------------

Shape sometimesOne(Rng &rng, Shape shape) {
  for (int64_t &d : shape)
    if (rng() % 4 == 0)
      d = 1;
  while (!shape.empty() && rng() % 4 == 0)
    shape.erase(shape.begin());
  return shape;
}

template <typename... Ops> const char *anyOf(Rng &rng, Ops... ops) {
  const char *names[] = {ops...};
  return names[rng() % sizeof...(ops)];
}

const Tensor kAbsent;

const std::vector<std::pair<const char *, Generator>> kGenerators = {
    {"binary",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       const char *op = anyOf(r, "Add", "Sub", "Mul", "Div", "Max", "Min");
       return Case(op, 17,
                   {floats(r, sometimesOne(r, s), 0.5, 2),
                    floats(r, sometimesOne(r, s), 0.5, 2)});
     }},
    {"unary",
     [](Rng &r) {
       const char *op = anyOf(r, "Neg", "Identity", "Relu", "Tanh", "Erf",
                              "Sigmoid", "Exp", "Gelu", "Abs");
       return Case(op, 20, {floats(r, dims(r, 3))});
     }},
    {"variadic",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       return Case(anyOf(r, "Sum", "Mean"), 17,
                   {floats(r, sometimesOne(r, s)), floats(r, s),
                    floats(r, sometimesOne(r, s))});
     }},
    {"where",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       return Case("Where", 16,
                   {bools(r, sometimesOne(r, s)), floats(r, s),
                    floats(r, sometimesOne(r, s))});
     }},
    {"cast",
     [](Rng &r) {
       return Case("Cast", 13, {floats(r, dims(r, 3))}).attr("to", int64_t{1});
     }},
    {"clip",
     [](Rng &r) {
       return Case(
           "Clip", 13,
           {floats(r, dims(r, 3)), floats(r, {}, -1, 0), floats(r, {}, 0, 1)});
     }},
    {"matmul",
     [](Rng &r) {
       const int64_t m = dim(r), k = dim(r), n = dim(r), b = dim(r);
       switch (r() % 5) {
       case 0:
         return Case("MatMul", 13, {floats(r, {b, m, k}), floats(r, {k, n})});
       case 1:
         return Case("MatMul", 13,
                     {floats(r, {b, 2, m, k}), floats(r, {1, 2, k, n})});
       case 2:
         return Case("MatMul", 13, {floats(r, {k}), floats(r, {b, k, n})});
       case 3:
         return Case("MatMul", 13, {floats(r, {b, m, k}), floats(r, {k})});
       default:
         return Case("MatMul", 13, {floats(r, {k}), floats(r, {k})});
       }
     }},
    {"gemm",
     [](Rng &r) {
       const int64_t m = dim(r), k = dim(r), n = dim(r);
       const int64_t ta = r() % 2, tb = r() % 2;
       std::vector<Tensor> in = {floats(r, ta ? Shape{k, m} : Shape{m, k}),
                                 floats(r, tb ? Shape{n, k} : Shape{k, n})};
       if (r() % 3)
         in.push_back(floats(r, sometimesOne(r, {m, n})));
       return Case("Gemm", 13, in)
           .attr("transA", ta)
           .attr("transB", tb)
           .attr("alpha", 0.5)
           .attr("beta", 2.0);
     }},
    {"einsum",
     [](Rng &r) {
       const int64_t b = dim(r), m = dim(r), k = dim(r), n = dim(r);
       return Case("Einsum", 13, {floats(r, {b, m, k}), floats(r, {b, n, k})})
           .attr("equation", std::string("bmk,bnk->bmn"));
     }},
    {"softmax",
     [](Rng &r) {
       const int64_t opset = pick(r, {11, 13});
       return Case(anyOf(r, "Softmax", "LogSoftmax"), opset,
                   {floats(r, dims(r, 3))})
           .attr("axis", pick(r, {0, 1, 2, -1}));
     }},
    {"layernorm",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       return Case("LayerNormalization", 17,
                   {floats(r, s), floats(r, {s[2]}), floats(r, {s[2]})});
     }},
    {"rmsnorm",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       return Case("RMSNormalization", 23, {floats(r, s), floats(r, {s[2]})});
     }},
    {"reduce",
     [](Rng &r) {
       const char *op =
           anyOf(r, "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
                 "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare");
       return Case(op, 18,
                   {floats(r, dims(r, 3)), r() % 2 ? list({1}) : list({-1, 0})},
                   {1})
           .attr("keepdims", pick(r, {0, 1}));
     }},
    {"argmax",
     [](Rng &r) {
       return Case(anyOf(r, "ArgMax", "ArgMin"), 13, {floats(r, dims(r, 3))})
           .attr("axis", pick(r, {0, 1, -1}))
           .attr("keepdims", pick(r, {0, 1}));
     }},
    {"reshape",
     [](Rng &r) {
       // Cut one product of small primes in two ways.
       auto cut = [&](int64_t n) {
         Shape shape;
         while (n > 1 && shape.size() < 4) {
           std::vector<int64_t> divisors;
           for (int64_t d = 1; d <= n; ++d)
             if (n % d == 0)
               divisors.push_back(d);
           shape.push_back(pick(r, divisors));
           n /= shape.back();
         }
         shape.push_back(n);
         return shape;
       };
       const int64_t n = pick(r, {12, 24, 36, 48, 60});
       return Case("Reshape", 14, {floats(r, cut(n)), list(cut(n))}, {1});
     }},
    {"heads",
     [](Rng &r) {
       const int64_t b = dim(r), s = dim(r);
       return r() % 2 ? Case("Reshape", 14,
                             {floats(r, {b, s, 12}), list({b, s, 4, 3})}, {1})
                      : Case("Reshape", 14,
                             {floats(r, {b, s, 4, 3}), list({b, s, 12})}, {1});
     }},
    {"squeeze",
     [](Rng &r) {
       return r() % 2 ? Case("Squeeze", 13,
                             {floats(r, {dim(r), 1, dim(r)}), list({1})}, {1})
                      : Case("Unsqueeze", 13,
                             {floats(r, {dim(r), dim(r)}), list({0, 2})}, {1});
     }},
    {"flatten",
     [](Rng &r) {
       return Case("Flatten", 13, {floats(r, dims(r, 3))})
           .attr("axis", pick(r, {0, 1, 2, 3}));
     }},
    {"transpose",
     [](Rng &r) {
       std::vector<int64_t> perm = {0, 1, 2, 3};
       std::shuffle(perm.begin(), perm.end(), r);
       return Case("Transpose", 13, {floats(r, dims(r, 4))}).attr("perm", perm);
     }},
    {"split",
     [](Rng &r) {
       const int64_t part = dim(r);
       Case c("Split", 13,
              {floats(r, {dim(r), 3 * part, dim(r)}), list({part, part, part})},
              {1}, 3);
       return c.attr("axis", int64_t{1});
     }},
    {"concat",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       Shape t = s;
       if (r() % 2)
         t[1] = dim(r);
       return Case("Concat", 13, {floats(r, s), floats(r, t)})
           .attr("axis", int64_t{1});
     }},
    {"slice",
     [](Rng &r) {
       Shape s = dims(r, 3);
       s[1] = 6;
       return Case("Slice", 13,
                   {floats(r, s), list({1, 0}), list({4, 1000}), list({1, 2})},
                   {1, 2, 3});
     }},
    {"gather",
     [](Rng &r) {
       Shape s = dims(r, 3);
       const int64_t axis = pick(r, {0, 0, 1, 2});
       return Case("Gather", 13,
                   {floats(r, s), indices(r, {dim(r), dim(r)}, s[axis])})
           .attr("axis", axis);
     }},
    {"gatherelements",
     [](Rng &r) {
       Shape s = dims(r, 3), t = s;
       t[1] = dim(r);
       return Case("GatherElements", 13, {floats(r, s), indices(r, t, s[1])})
           .attr("axis", int64_t{1});
     }},
    {"gathernd",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       return Case("GatherND", 13,
                   {floats(r, s), indices(r, {s[0], dim(r), 1}, s[1])})
           .attr("batch_dims", int64_t{1});
     }},
    {"scatterelements",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       // Distinct targets along the axis: the order of writes is not defined.
       Tensor at = ints(
           s, std::vector<int64_t>(
                  static_cast<size_t>(TensorType{DType::I64, s}.numElements()),
                  0));
       auto *p = reinterpret_cast<int64_t *>(at.mutableBytes().data());
       for (int64_t i = 0; i < at.type.numElements(); ++i)
         p[i] = (i / s[2]) % s[1];
       return Case("ScatterElements", 18, {floats(r, s), at, floats(r, s)})
           .attr("axis", int64_t{1});
     }},
    {"scatternd",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       return Case("ScatterND", 18,
                   {floats(r, s), indices(r, {1, 1}, s[0]),
                    floats(r, {1, s[1], s[2]})});
     }},
    {"onehot",
     [](Rng &r) {
       return Case("OneHot", 11,
                   {indices(r, {dim(r), dim(r)}, 5), list({5}), floats(r, {2})},
                   {1})
           .attr("axis", pick(r, {-1, 0, 1}));
     }},
    {"topk",
     [](Rng &r) {
       Shape s = dims(r, 3);
       s[1] = 4;
       Case c("TopK", 11, {floats(r, s), list({2})}, {1}, 2);
       return c.attr("axis", int64_t{1});
     }},
    {"cumsum",
     [](Rng &r) {
       return Case("CumSum", 14, {floats(r, dims(r, 3)), ints({}, {1})}, {1});
     }},
    {"expand",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       return Case("Expand", 13, {floats(r, sometimesOne(r, s)), list(s)}, {1});
     }},
    {"tile",
     [](Rng &r) {
       return Case("Tile", 13, {floats(r, dims(r, 3)), list({1, dim(r), 2})},
                   {1});
     }},
    {"pad",
     [](Rng &r) {
       return Case("Pad", 13, {floats(r, dims(r, 3)), list({0, 1, 0, 0, 2, 0})},
                   {1});
     }},
    {"trilu",
     [](Rng &r) { return Case("Trilu", 14, {floats(r, dims(r, 3))}); }},
    {"conv",
     [](Rng &r) {
       const int64_t n = dim(r), in = dim(r), o = dim(r);
       std::vector<Tensor> x = {floats(r, {n, in, 5, 5}),
                                floats(r, {o, in, 3, 3})};
       if (r() % 2)
         x.push_back(floats(r, {o}));
       return Case("Conv", 11, x)
           .attr("pads", std::vector<int64_t>{1, 1, 1, 1});
     }},
    {"conv groups",
     [](Rng &r) {
       return Case("Conv", 11,
                   {floats(r, {dim(r), 8, 4, 4}), floats(r, {12, 2, 3, 3}),
                    floats(r, {12})})
           .attr("group", int64_t{4});
     }},
    {"convtranspose",
     [](Rng &r) {
       const int64_t in = dim(r), o = dim(r);
       return Case("ConvTranspose", 11,
                   {floats(r, {dim(r), in, 3, 3}), floats(r, {in, o, 3, 3}),
                    floats(r, {o})});
     }},
    {"pool",
     [](Rng &r) {
       return Case(anyOf(r, "MaxPool", "AveragePool"), 12,
                   {floats(r, {dim(r), dim(r), 6, 6})})
           .attr("kernel_shape", std::vector<int64_t>{2, 2});
     }},
    {"globalpool",
     [](Rng &r) {
       return Case(anyOf(r, "GlobalAveragePool", "GlobalMaxPool"), 12,
                   {floats(r, {dim(r), dim(r), 3, 3})});
     }},
    {"batchnorm",
     [](Rng &r) {
       const int64_t ch = dim(r);
       return Case("BatchNormalization", 15,
                   {floats(r, {dim(r), ch, 2, 2}), floats(r, {ch}),
                    floats(r, {ch}), floats(r, {ch}), floats(r, {ch}, 0.5, 1)});
     }},
    {"instancenorm",
     [](Rng &r) {
       const int64_t ch = dim(r);
       return Case(
           "InstanceNormalization", 6,
           {floats(r, {dim(r), ch, 3, 3}), floats(r, {ch}), floats(r, {ch})});
     }},
    {"groupnorm",
     [](Rng &r) {
       return Case("GroupNormalization", 21,
                   {floats(r, {dim(r), 8, 3}), floats(r, {8}), floats(r, {8})})
           .attr("num_groups", int64_t{4});
     }},
    {"attention",
     [](Rng &r) {
       const int64_t b = dim(r), h = pick(r, {1, 2, 4});
       const int64_t group = pick(r, {1, 2}), q = 3, k = 4, e = 2;
       std::vector<Tensor> in = {floats(r, {b, h * group, q, e}),
                                 floats(r, {b, h, k, e}),
                                 floats(r, {b, h, k, e})};
       if (r() % 2)
         in.push_back(
             floats(r, r() % 2 ? Shape{b, h * group, q, k} : Shape{q, k}));
       return Case("Attention", 23, in);
     }},
    {"attention packed",
     [](Rng &r) {
       const int64_t b = dim(r), h = pick(r, {1, 2, 4});
       const int64_t group = pick(r, {1, 2}), q = 3, k = 4, e = 2;
       return Case("Attention", 23,
                   {floats(r, {b, q, h * group * e}), floats(r, {b, k, h * e}),
                    floats(r, {b, k, h * e})})
           .attr("q_num_heads", h * group)
           .attr("kv_num_heads", h)
           .attr("is_causal", pick(r, {0, 1}));
     }},
    {"rotary",
     [](Rng &r) {
       const int64_t b = dim(r), h = dim(r), s = dim(r);
       return r() % 2 ? Case("RotaryEmbedding", 23,
                             {floats(r, {b, h, s, 4}), floats(r, {8, 2}),
                              floats(r, {8, 2}), indices(r, {b, s}, 8)})
                      : Case("RotaryEmbedding", 23,
                             {floats(r, {b, s, h * 4}), floats(r, {b, s, 2}),
                              floats(r, {b, s, 2})})
                            .attr("num_heads", h);
     }},
    {"quantize",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       const bool perAxis = r() % 2;
       Tensor zero =
           Tensor::allocate({DType::U8, perAxis ? Shape{s[1]} : Shape{}});
       return Case("QuantizeLinear", 13,
                   {floats(r, s),
                    floats(r, perAxis ? Shape{s[1]} : Shape{}, 0.1f, 1), zero})
           .attr("axis", int64_t{1});
     }},
    {"dft",
     [](Rng &r) {
       return Case("DFT", 17, {floats(r, {dim(r), 4, dim(r), 1})})
           .attr("axis", int64_t{1});
     }},
    {"causalconv",
     [](Rng &r) {
       const int64_t b = dim(r), c = dim(r);
       Case result("CausalConvWithState", 27,
                   {floats(r, {b, c, 5}), floats(r, {c, 1, 3}), floats(r, {c}),
                    floats(r, {b, c, 2})},
                   {}, 2);
       return result;
     }},
    {"gridsample",
     [](Rng &r) {
       const int64_t b = dim(r);
       return Case("GridSample", 20,
                   {floats(r, {b, dim(r), 4, 4}), floats(r, {b, 3, 3, 2})});
     }},
    {"tensorscatter",
     [](Rng &r) {
       const int64_t b = dim(r), h = dim(r);
       return Case("TensorScatter", 24,
                   {floats(r, {b, h, 6, 2}), floats(r, {b, h, 2, 2}),
                    indices(r, {b}, 4)});
     }},
    {"lpnorm",
     [](Rng &r) {
       return Case("LpNormalization", 22, {floats(r, dims(r, 3))})
           .attr("axis", pick(r, {0, 1, -1}));
     }},
    {"lrn",
     [](Rng &r) {
       return Case("LRN", 13, {floats(r, dims(r, 4))}).attr("size", int64_t{3});
     }},
    {"depthtospace",
     [](Rng &r) {
       return r() % 2 ? Case("DepthToSpace", 13, {floats(r, {dim(r), 8, 2, 3})})
                            .attr("blocksize", int64_t{2})
                      : Case("SpaceToDepth", 13, {floats(r, {dim(r), 2, 4, 6})})
                            .attr("blocksize", int64_t{2});
     }},
    {"attention with past",
     [](Rng &r) {
       const int64_t b = dim(r), h = pick(r, {1, 2, 4});
       Case c("Attention", 23,
              {floats(r, {b, h * 2, 3, 2}), floats(r, {b, h, 3, 2}),
               floats(r, {b, h, 3, 2}), kAbsent, floats(r, {b, h, 2, 2}),
               floats(r, {b, h, 2, 2})},
              {}, 3);
       return c.attr("is_causal", int64_t{1});
     }},
    {"batchnorm opset 7",
     [](Rng &r) {
       const int64_t ch = dim(r);
       return Case("BatchNormalization", 7,
                   {floats(r, {dim(r), ch, 4}), floats(r, {ch}),
                    floats(r, {ch}), floats(r, {ch}), floats(r, {ch}, 0.5, 1)});
     }},
    {"prelu and power",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       return Case(anyOf(r, "PRelu", "Pow"), 16,
                   {floats(r, s, 0.5, 2), floats(r, {s[1], 1}, 0.5, 2)});
     }},
    {"compare",
     [](Rng &r) {
       const Shape s = dims(r, 3);
       return Case(anyOf(r, "Less", "Greater", "LessOrEqual"), 16,
                   {floats(r, s), floats(r, sometimesOne(r, s))});
     }},
    {"resize",
     [](Rng &r) {
       const Shape s = {dim(r), dim(r), 4, 4};
       Tensor scales = Tensor::allocate({DType::F32, {4}});
       const float values[4] = {1, 1, 1.5f, 2};
       std::memcpy(scales.mutableBytes().data(), values, sizeof values);
       return r() % 2 ? Case("Resize", 13, {floats(r, s), kAbsent, scales}, {2})
                            .attr("mode", std::string("linear"))
                      : Case("Resize", 13,
                             {floats(r, s), kAbsent, kAbsent,
                              list({s[0], s[1], 6, 3})},
                             {3});
     }},
    {"reversesequence",
     [](Rng &r) {
       const Shape s = {4, dim(r), dim(r)};
       return Case("ReverseSequence", 10,
                   {floats(r, s), indices(r, {s[1]}, 4)});
     }},
    {"meanvariance",
     [](Rng &r) {
       return Case("MeanVarianceNormalization", 13,
                   {floats(r, {dim(r), dim(r), 3, 3})});
     }},
    {"roialign",
     [](Rng &r) {
       const int64_t n = dim(r), rois = dim(r);
       Tensor boxes = floats(r, {rois, 4}, 0, 2);
       auto *p = reinterpret_cast<float *>(boxes.mutableBytes().data());
       for (int64_t i = 0; i < rois; ++i)
         p[4 * i + 2] += p[4 * i] + 1, p[4 * i + 3] += p[4 * i + 1] + 1;
       return Case("RoiAlign", 16,
                   {floats(r, {n, dim(r), 5, 5}), boxes, indices(r, {rois}, n)})
           .attr("output_height", int64_t{2})
           .attr("output_width", int64_t{2});
     }},
    {"col2im",
     [](Rng &r) {
       return Case(
           "Col2Im", 18,
           {floats(r, {dim(r), 4 * dim(r), 9}), list({4, 4}), list({2, 2})},
           {1, 2});
     }},
    {"linear attention",
     [](Rng &r) {
       const int64_t b = dim(r), kv = pick(r, {2, 4}), q = kv * pick(r, {1, 2});
       std::vector<Tensor> in = {
           floats(r, {b, 3, q * 2}),
           floats(r, {b, 3, kv * 2}),
           floats(r, {b, 3, kv * 4}),
           floats(r, {b, kv, 2, 4}),
           floats(r, {b, 3, r() % 2 ? kv : kv * 2}, -1, 0),
           floats(r, {b, 3, r() % 2 ? kv : 1}, 0, 1)};
       Case c("LinearAttention", 27, in, {}, 2);
       return c.attr("q_num_heads", q).attr("kv_num_heads", kv);
     }},
};

class ShardingRules : public testing::TestWithParam<size_t> {};

TEST_P(ShardingRules, PartsMakeTheWhole) {
  const auto &[name, generator] = kGenerators[GetParam()];
  Rng rng(12345 + static_cast<unsigned>(GetParam()));
  int tried = 0;
  for (int round = 0; round < 40 && !HasFatalFailure(); ++round) {
    const int count = checkRule(generator(rng), rng);
    if (count < 0)
      GTEST_SKIP() << name << ": there is no kernel to try it with";
    tried += count;
  }
  EXPECT_GT(tried, 5) << name;
}

INSTANTIATE_TEST_SUITE_P(All, ShardingRules,
                         testing::Range<size_t>(0, kGenerators.size()),
                         [](const testing::TestParamInfo<size_t> &info) {
                           std::string name = kGenerators[info.param].first;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

} // namespace
