//===- SemanticsTest.cpp - Solutions executed on T imagined ranks ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Executes a solution the way the partitioning pass emits it: every rank runs
// every op on its local parts, reshards move data between ranks, and the
// outputs must equal those of the whole graph. This is what catches a bias that
// is summed T times, or two views of a dimension that do not line up.
//
//===----------------------------------------------------------------------===//

#include "Builders.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace concord::sharding::test {
namespace {

struct Array {
  Shape shape;
  std::vector<double> data;
  explicit Array(Shape s = {}) : shape(std::move(s)) { data.resize(size()); }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape)
      n *= d;
    return n;
  }
};

/// Visits all index tuples of a shape in row-major order.
template <typename Fn> void forEach(const Shape &shape, Fn fn) {
  Shape index(shape.size(), 0);
  Array counter(shape);
  for (int64_t i = 0, n = counter.size(); i < n; ++i) {
    fn(index, i);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d])
        break;
      index[d] = 0;
    }
  }
}

/// Flat offset of `index` in an array that broadcasts to the index's rank.
int64_t offset(const Shape &shape, const Shape &index) {
  int64_t at = 0;
  size_t skip = index.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d)
    at = at * shape[d] + (shape[d] == 1 ? 0 : index[skip + d]);
  return at;
}

Array binary(const Array &a, const Array &b, bool product) {
  Shape out(std::max(a.shape.size(), b.shape.size()), 1);
  for (const Array *x : {&a, &b})
    for (size_t i = 0; i < x->shape.size(); ++i) {
      int64_t &size = out[out.size() - x->shape.size() + i];
      size = std::max(size, x->shape[i]);
    }
  Array result(out);
  forEach(out, [&](const Shape &index, int64_t i) {
    double x = a.data[offset(a.shape, index)];
    double y = b.data[offset(b.shape, index)];
    result.data[i] = product ? x * y : x + y;
  });
  return result;
}

Array matmul(const Array &a, const Array &b) {
  int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(),
          n = b.shape.back();
  EXPECT_EQ(k, b.shape[b.shape.size() - 2]);
  Shape pa(a.shape.begin(), a.shape.end() - 2);
  Shape pb(b.shape.begin(), b.shape.end() - 2);
  Shape batch = binary(Array(pa), Array(pb), false).shape;
  Shape out = batch;
  out.push_back(m);
  out.push_back(n);
  Array result(out);
  forEach(batch, [&](const Shape &index, int64_t i) {
    const double *x = a.data.data() + offset(pa, index) * m * k;
    const double *y = b.data.data() + offset(pb, index) * k * n;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < n; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum += x[r * k + j] * y[j * n + c];
        result.data[(i * m + r) * n + c] = sum;
      }
  });
  return result;
}

/// Applies `fn` to each row along the last dimension.
template <typename Fn> Array rows(Array x, Fn fn) {
  int64_t n = x.shape.back();
  for (int64_t i = 0; i < x.size(); i += n)
    fn(x.data.data() + i, n);
  return x;
}

/// The part of a whole array that a rank holds under a split.
Array cut(const Array &whole, DimRef ref, int64_t ranks, int64_t rank) {
  Shape local = whole.shape;
  local[ref.dim] /= ranks;
  int64_t inner = local[ref.dim] / ref.outer;
  Array part(local);
  forEach(local, [&](const Shape &index, int64_t i) {
    Shape from = index;
    int64_t block = index[ref.dim] / inner;
    from[ref.dim] = (block * ranks + rank) * inner + index[ref.dim] % inner;
    part.data[i] = whole.data[offset(whole.shape, from)];
  });
  return part;
}

Array join(const std::vector<Array> &parts, DimRef ref) {
  int64_t ranks = static_cast<int64_t>(parts.size());
  Shape shape = parts[0].shape;
  shape[ref.dim] *= ranks;
  int64_t inner = parts[0].shape[ref.dim] / ref.outer;
  Array whole(shape);
  forEach(shape, [&](const Shape &index, int64_t i) {
    int64_t at = index[ref.dim];
    Shape from = index;
    int64_t rank = at / inner % ranks;
    from[ref.dim] = at / (inner * ranks) * inner + at % inner;
    whole.data[i] = parts[rank].data[offset(parts[rank].shape, from)];
  });
  return whole;
}

/// One op on the arrays of one rank. `results` are the local result shapes.
std::vector<Array> execute(const OpMeta &meta, const std::vector<Array> &in,
                           const std::vector<Shape> &results,
                           int64_t lookupOffset) {
  switch (meta.op) {
  case Op::MatMul:
    return {matmul(in[0], in[1])};
  case Op::Gemm: {
    Array out = matmul(in[0], in[1]);
    return {in.size() > 2 ? binary(out, in[2], false) : out};
  }
  case Op::Add:
  case Op::Mul:
    return {binary(in[0], in[1], meta.op == Op::Mul)};
  case Op::Unary: {
    Array out = in[0];
    for (double &x : out.data)
      x = std::tanh(x) + 0.1 * x * x;
    return {out};
  }
  case Op::LayerNorm: {
    Array out = rows(in[0], [](double *x, int64_t n) {
      double mean = 0, var = 0;
      for (int64_t i = 0; i < n; ++i)
        mean += x[i] / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i)
        var += (x[i] - mean) * (x[i] - mean) / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i)
        x[i] = (x[i] - mean) / std::sqrt(var + 1e-5);
    });
    return {binary(binary(out, in[1], true), in[2], false)};
  }
  case Op::Softmax:
    return {rows(in[0], [](double *x, int64_t n) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i)
        sum += x[i] = std::exp(std::tanh(x[i]));
      for (int64_t i = 0; i < n; ++i)
        x[i] /= sum;
    })};
  case Op::ReduceMean: {
    Array out(results[0]);
    int64_t n = in[0].shape.back();
    for (int64_t i = 0; i < in[0].size(); ++i)
      out.data[i / n] += in[0].data[i] / static_cast<double>(n);
    return {out};
  }
  case Op::Reshape: {
    Array out = in[0];
    out.shape = results[0];
    EXPECT_EQ(out.size(), in[0].size());
    return {out};
  }
  case Op::Transpose: {
    Array out(results[0]);
    forEach(out.shape, [&](const Shape &index, int64_t i) {
      Shape from(index.size());
      for (size_t d = 0; d < index.size(); ++d)
        from[meta.ints[d]] = index[d];
      out.data[i] = in[0].data[offset(in[0].shape, from)];
    });
    return {out};
  }
  case Op::Expand:
    return {binary(in[0], Array(results[0]), false)};
  case Op::Gather: {
    Array out(results[0]);
    int64_t width = in[0].size() / in[0].shape[0];
    for (int64_t i = 0; i < in[1].size(); ++i) {
      int64_t row = std::llround(in[1].data[i]) - lookupOffset;
      for (int64_t c = 0; c < width; ++c)
        if (row >= 0 && row < in[0].shape[0])
          out.data[i * width + c] = in[0].data[row * width + c];
    }
    return {out};
  }
  case Op::Pick:
  case Op::Split: {
    std::vector<Array> outs;
    int64_t axis = meta.ints[0];
    for (size_t part = 0; part < results.size(); ++part) {
      Array out(results[part]);
      forEach(out.shape, [&](const Shape &index, int64_t i) {
        Shape from = index;
        if (meta.op == Op::Pick)
          from.insert(from.begin() + axis, 1);
        else
          from[axis] += static_cast<int64_t>(part) * out.shape[axis];
        out.data[i] = in[0].data[offset(in[0].shape, from)];
      });
      outs.push_back(out);
    }
    return outs;
  }
  case Op::Concat: {
    Array out(results[0]);
    int64_t axis = meta.ints[0], first = in[0].shape[axis];
    forEach(out.shape, [&](const Shape &index, int64_t i) {
      Shape from = index;
      bool second = index[axis] >= first;
      if (second)
        from[axis] -= first;
      const Array &x = in[second ? 1 : 0];
      out.data[i] = x.data[offset(x.shape, from)];
    });
    return {out};
  }
  }
  return {};
}

/// Values of all sources, the same for any number of ranks. Integers up to 5
/// where something is looked up.
std::vector<Array> sourceData(const Net &net) {
  std::vector<Array> data;
  uint64_t state = 1;
  for (const TensorInfo &info : net.problem.tensors) {
    Array a(info.shape);
    if (info.kind != TensorKind::Value)
      for (double &x : a.data) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x = static_cast<double>(state >> 40) / static_cast<double>(1 << 24) -
            0.5;
      }
    data.push_back(std::move(a));
  }
  for (size_t i = 0; i < net.meta.size(); ++i)
    if (net.meta[i].op == Op::Gather)
      for (double &x : data[net.problem.ops[i].operands[1]].data)
        x = std::round(std::abs(x) * 10);
  return data;
}

using Results = std::map<Id, Array>;

Results runWhole(const Net &net) {
  std::vector<Array> values = sourceData(net);
  Results outputs;
  for (size_t i = 0; i < net.problem.ops.size(); ++i) {
    const OpInfo &op = net.problem.ops[i];
    std::vector<Array> in;
    for (Id t : op.operands)
      if (t >= 0)
        in.push_back(values[t]);
    std::vector<Shape> shapes;
    for (Id t : op.results)
      shapes.push_back(net.shape(t));
    std::vector<Array> out = execute(net.meta[i], in, shapes, 0);
    for (size_t k = 0; k < out.size(); ++k)
      values[op.results[k]] = out[k];
  }
  for (size_t t = 0; t < values.size(); ++t)
    if (net.problem.tensors[t].isOutput)
      outputs[static_cast<Id>(t)] = values[t];
  return outputs;
}

/// All ranks of a solution, in lock step.
class Ranks {
public:
  Ranks(const Net &net, const Solution &solution)
      : net(net), solution(solution), t(net.problem.ranks),
        held(net.problem.tensors.size()) {}

  Results run() {
    std::vector<Array> data = sourceData(net);
    for (size_t i = 0; i < data.size(); ++i)
      for (const Layout &layout : solution.sources[i]) {
        std::vector<Array> parts = spread(data[i], layout);
        if (layout.kind == Layout::Partial)
          for (int64_t r = 1; r < t; ++r)
            parts[r] = Array(data[i].shape);
        held[i].emplace_back(layout, parts);
      }
    for (size_t i = 0; i < net.problem.ops.size(); ++i) {
      move(solution.ops[i].before);
      step(i);
      move(solution.ops[i].after);
    }
    move(solution.finish);
    Results outputs;
    for (size_t i = 0; i < held.size(); ++i)
      if (net.problem.tensors[i].isOutput) {
        const Layout &layout = solution.outputs[i];
        const std::vector<Array> &parts = get(static_cast<Id>(i), layout);
        outputs[static_cast<Id>(i)] =
            layout.kind == Layout::Split ? join(parts, layout.dim) : parts[0];
      }
    return outputs;
  }

private:
  std::vector<Array> spread(const Array &whole, const Layout &layout) const {
    std::vector<Array> parts(t, whole);
    for (int64_t r = 0; r < t && layout.kind == Layout::Split; ++r)
      parts[r] = cut(whole, layout.dim, t, r);
    return parts;
  }

  const std::vector<Array> &get(Id tensor, const Layout &layout) const {
    for (const auto &[have, parts] : held[tensor])
      if (have == layout)
        return parts;
    ADD_FAILURE() << "tensor " << tensor << " is not there as "
                  << toString(layout);
    return held[tensor].front().second;
  }

  void move(const std::vector<Reshard> &steps) {
    for (const auto &[tensor, step] : steps) {
      const std::vector<Array> &parts = get(tensor, step.from);
      Array whole = parts[0];
      if (step.from.kind == Layout::Split) {
        whole = join(parts, step.from.dim);
      } else if (step.from.kind == Layout::Partial) {
        ASSERT_EQ(step.from.reduction, Reduction::Sum);
        for (int64_t r = 1; r < t; ++r)
          whole = binary(whole, parts[r], false);
      }
      held[tensor].emplace_back(step.to, spread(whole, step.to));
    }
  }

  void step(size_t i) {
    const OpInfo &op = net.problem.ops[i];
    const OpChoice &choice = solution.ops[i];
    std::vector<Shape> shapes;
    for (size_t k = 0; k < op.results.size(); ++k)
      shapes.push_back(
          localShape(net.shape(op.results[k]), choice.results[k], t));
    bool lookup = choice.factor >= 0 && op.rule.factors[choice.factor].lookup;
    std::vector<std::vector<Array>> made(op.results.size());
    for (int64_t r = 0; r < t; ++r) {
      std::vector<Array> in;
      for (size_t k = 0; k < op.operands.size(); ++k)
        if (op.operands[k] >= 0)
          in.push_back(get(op.operands[k], choice.operands[k])[r]);
      std::vector<Array> out =
          execute(net.meta[i], in, shapes, lookup ? r * in[0].shape[0] : 0);
      for (size_t k = 0; k < out.size(); ++k) {
        ASSERT_EQ(out[k].shape, shapes[k]) << op.name;
        made[k].push_back(out[k]);
      }
    }
    for (size_t k = 0; k < made.size(); ++k)
      held[op.results[k]].emplace_back(choice.results[k], made[k]);
  }

  const Net &net;
  const Solution &solution;
  int64_t t;
  std::vector<std::vector<std::pair<Layout, std::vector<Array>>>> held;
};

void expectSame(const Net &net) {
  Solution solution = solve(net.problem);
  ASSERT_EQ(verify(net.problem, solution), std::nullopt)
      << dump(net.problem, solution);
  Results want = runWhole(net);
  Results got = Ranks(net, solution).run();
  for (const auto &[tensor, array] : want) {
    ASSERT_EQ(array.shape, got[tensor].shape);
    for (int64_t i = 0; i < array.size(); ++i)
      ASSERT_NEAR(array.data[i], got[tensor].data[i],
                  1e-9 * (1 + std::abs(array.data[i])))
          << "tensor " << tensor << " element " << i << "\n"
          << dump(net.problem, solution);
  }
}

TEST(Semantics, RandomGraphs) {
  for (uint32_t seed = 1000; seed < 1300; ++seed) {
    SCOPED_TRACE(seed);
    Net net = randomNet(seed, seed % 2 ? 2 : 4, 3 + static_cast<int>(seed % 9));
    net.problem.allToAll = seed % 3 == 0;
    for (size_t t = 0; t < net.problem.tensors.size(); ++t)
      net.problem.tensors[t].allToAll = (seed + t) % 3 == 1;
    expectSame(net);
    if (HasFatalFailure())
      return;
  }
}

class Models : public testing::TestWithParam<std::pair<int64_t, double>> {
protected:
  Transformer small() const {
    Transformer t;
    t.layers = 2;
    t.batch = 2;
    t.tokens = 8;
    t.hidden = 32;
    t.heads = 8;
    t.kvHeads = 4;
    t.inner = 64;
    t.vocab = 24;
    t.experts = 4;
    return t;
  }
  void check(Net net) const {
    net.problem.cost.latencySeconds = GetParam().second;
    expectSame(net);
  }
};

TEST_P(Models, Bert) { check(bert(GetParam().first, small())); }
TEST_P(Models, Gpt2) { check(gpt2(GetParam().first, small())); }
TEST_P(Models, Llama) { check(llama(GetParam().first, small())); }
TEST_P(Models, LlamaTied) { check(llama(GetParam().first, small(), true)); }
TEST_P(Models, Mixtral) { check(mixtral(GetParam().first, small())); }

// With no latency everything that can be is split; with a high one all-reduces
// win over reduce-scatter and all-gather.
INSTANTIATE_TEST_SUITE_P(Semantics, Models,
                         testing::Values(std::pair{2, 0.0}, std::pair{2, 1e-4},
                                         std::pair{4, 0.0}, std::pair{4, 1e-4},
                                         std::pair{8, 1e-6}));

} // namespace
} // namespace concord::sharding::test
