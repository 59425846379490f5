//===- Builders.h - Problems as the frontend would pose them ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A small graph builder for the sharding tests: shapes, sharding rules and
// costs of the ONNX operators that transformers use, and the transformers
// themselves.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_SHARDING_BUILDERS_H
#define CONCORD_TEST_SHARDING_BUILDERS_H

#include "concord/sharding/Solver.h"

#include <string>
#include <vector>

namespace concord::sharding::test {

using Shape = std::vector<int64_t>;
using Id = int32_t;

/// What an op computes, for the numeric interpreter of SemanticsTest.
enum class Op {
  MatMul,
  Add,
  Mul,
  Unary,
  LayerNorm,
  Softmax,
  Reshape,
  Transpose,
  Gather,
  Split,
  Gemm,
  ReduceMean,
  Pick,
  Expand,
  Concat,
};

struct OpMeta {
  Op op = Op::Unary;
  std::vector<int64_t> ints; ///< permutation, axis
};

class Net {
public:
  explicit Net(int64_t ranks) { problem.ranks = ranks; }

  Problem problem;
  std::vector<OpMeta> meta; ///< one per op

  Id input(Shape shape);
  Id weight(Shape shape);
  Id constant(Shape shape);
  void output(Id tensor, bool whole = false);
  void fix(Id tensor, Layout layout);

  Id matmul(Id a, Id b, std::string name = "MatMul"); ///< batched, broadcasting
  Id add(Id a, Id b);                                 ///< broadcasting
  Id mul(Id a, Id b);                                 ///< broadcasting
  Id unary(Id a);                                     ///< gelu, tanh, ...
  Id layerNorm(Id x, Id gamma, Id beta);              ///< over the last dim
  Id rmsNorm(Id x, Id gamma); ///< decomposed: pow, mean, add, sqrt, div, mul
  Id softmax(Id x);           ///< over the last dim
  Id reshape(Id x, Shape shape, std::string name = "Reshape");
  Id transpose(Id x, std::vector<int64_t> permutation);
  Id expand(Id x, Shape shape);
  Id gather(Id table, Id ids); ///< axis 0
  Id pick(Id x, int32_t axis); ///< scalar index: the axis disappears
  std::vector<Id> split(Id x, int32_t axis, int64_t parts);
  Id gemm(Id a, Id b, Id bias); ///< [m,k] x [k,n] + [n]; bias may be -1
  Id reduceMean(Id x);          ///< last dim, kept
  Id concat(Id a, Id b, int32_t axis);

  const Shape &shape(Id t) const { return problem.tensors[t].shape; }
  std::vector<Id> op(OpMeta meta, std::string name, std::vector<Id> operands,
                     std::vector<Shape> results, Rule rule, double flops);
};

struct Transformer {
  int64_t layers = 1, batch = 1, tokens = 128, hidden = 64, heads = 4,
          kvHeads = 4, inner = 256, vocab = 1000, experts = 4;
};

Net bert(int64_t ranks, const Transformer &t);
Net gpt2(int64_t ranks, const Transformer &t); ///< fused QKV, Gemm, tied logits
Net llama(int64_t ranks, const Transformer &t, bool tied = false);
Net mixtral(int64_t ranks, const Transformer &t); ///< all experts computed

/// A small random graph of the ops above on shapes of up to three dimensions,
/// with random costs. The same seed gives the same graph everywhere.
Net randomNet(uint32_t seed, int64_t ranks, int ops);

/// What moves in a solution, by kind; sizes in elements of the whole tensor.
struct Traffic {
  int allReduce = 0, allGather = 0, reduceScatter = 0, allToAll = 0, slice = 0;
  int collectives() const {
    return allReduce + allGather + reduceScatter + allToAll;
  }
  /// All-reduces, counting a reduce-scatter and a gather as one.
  double allReduces() const {
    return allReduce + 0.5 * (allGather + reduceScatter) + allToAll;
  }
  double bytes = 0; ///< per rank on the link
  std::vector<Shape> shapes;
};
Traffic traffic(const Problem &problem, const Solution &solution);

/// One line per op: choice, layouts, reshards. For failure messages.
std::string dump(const Problem &problem, const Solution &solution);

} // namespace concord::sharding::test

#endif // CONCORD_TEST_SHARDING_BUILDERS_H
