//===- Builders.cpp - Problems as the frontend would pose them ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See Builders.h.
//
//===----------------------------------------------------------------------===//

#include "Builders.h"

#include <algorithm>

namespace concord::sharding::test {

namespace {

int64_t product(const Shape &shape) {
  int64_t n = 1;
  for (int64_t size : shape)
    n *= size;
  return n;
}

/// A factor over `operands` and `results` places, all unsplit so far.
Factor blank(int64_t size, size_t operands, size_t results = 1) {
  Factor factor;
  factor.size = size;
  factor.operands.resize(operands);
  factor.results.resize(results);
  return factor;
}

/// Factors of the broadcast dimensions of `out` (leading `count` ones).
void broadcastFactors(Rule &rule, const std::vector<Shape> &in,
                      const Shape &out, size_t count) {
  for (size_t d = 0; d < count; ++d) {
    if (out[d] < 2)
      continue;
    Factor factor = blank(out[d], in.size());
    factor.results[0].dim = static_cast<int32_t>(d);
    for (size_t k = 0; k < in.size(); ++k) {
      int64_t at = static_cast<int64_t>(d + in[k].size()) -
                   static_cast<int64_t>(out.size());
      if (at >= 0 && in[k][at] == out[d])
        factor.operands[k].dim = static_cast<int32_t>(at);
    }
    rule.factors.push_back(factor);
  }
}

Shape broadcast(const Shape &a, const Shape &b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (const Shape *s : {&a, &b})
    for (size_t i = 0; i < s->size(); ++i) {
      int64_t &size = out[out.size() - s->size() + i];
      size = std::max(size, (*s)[i]);
    }
  return out;
}

/// Factors of a reshape: the pieces between the boundaries of both shapes.
Rule reshapeRule(const Shape &in, const Shape &out) {
  Rule rule;
  rule.linear = {{0}};
  size_t i = 0, j = 0;
  while (i < in.size() || j < out.size()) {
    // One segment: the fewest dimensions of both with equal products.
    size_t i0 = i, j0 = j;
    int64_t p = i < in.size() ? in[i++] : 1;
    int64_t q = j < out.size() ? out[j++] : 1;
    while (p != q) {
      if (p < q)
        p *= in[i++];
      else
        q *= out[j++];
    }
    // Pieces are visited from outside; `a` and `b` count the elements left
    // inside the current dimension of each side.
    size_t x = i0, y = j0;
    int64_t ax = 1, by = 1; // blocks outside within the current dimensions
    int64_t a = x < i ? in[x] : 1, b = y < j ? out[y] : 1;
    while (x < i && y < j) {
      int64_t piece = std::min(a, b);
      if (a % piece != 0 || b % piece != 0)
        break;
      if (piece > 1) {
        Factor factor = blank(piece, 1);
        factor.operands[0] = {static_cast<int32_t>(x), ax};
        factor.results[0] = {static_cast<int32_t>(y), by};
        rule.factors.push_back(factor);
      }
      a /= piece;
      b /= piece;
      ax *= piece;
      by *= piece;
      if (a == 1) {
        ++x;
        ax = 1;
        a = x < i ? in[x] : 1;
      }
      if (b == 1) {
        ++y;
        by = 1;
        b = y < j ? out[y] : 1;
      }
    }
  }
  return rule;
}

} // namespace

Id Net::input(Shape shape) {
  TensorInfo info;
  info.kind = TensorKind::Input;
  info.shape = std::move(shape);
  problem.tensors.push_back(info);
  return static_cast<Id>(problem.tensors.size()) - 1;
}

Id Net::weight(Shape shape) {
  Id id = input(std::move(shape));
  problem.tensors[id].kind = TensorKind::Weight;
  return id;
}

Id Net::constant(Shape shape) {
  Id id = input(std::move(shape));
  problem.tensors[id].kind = TensorKind::Constant;
  return id;
}

void Net::output(Id tensor, bool whole) {
  problem.tensors[tensor].isOutput = true;
  problem.tensors[tensor].mustReplicate = whole;
}

void Net::fix(Id tensor, Layout layout) {
  problem.tensors[tensor].fixed = true;
  problem.tensors[tensor].fixedLayout = layout;
}

std::vector<Id> Net::op(OpMeta what, std::string name, std::vector<Id> operands,
                        std::vector<Shape> results, Rule rule, double flops) {
  OpInfo info;
  info.name = std::move(name) + "_" + std::to_string(problem.ops.size());
  info.rule = std::move(rule);
  info.flops = flops;
  for (Id t : operands)
    if (t >= 0)
      info.bytes += 4.0 * static_cast<double>(product(shape(t)));
  std::vector<Id> ids;
  for (Shape &s : results) {
    info.bytes += 4.0 * static_cast<double>(product(s));
    Id id = input(std::move(s));
    problem.tensors[id].kind = TensorKind::Value;
    ids.push_back(id);
  }
  if (what.op == Op::Reshape)
    info.bytes = 0;
  info.operands = std::move(operands);
  info.results = ids;
  problem.ops.push_back(std::move(info));
  meta.push_back(std::move(what));
  return ids;
}

Id Net::matmul(Id a, Id b, std::string name) {
  Shape sa = shape(a), sb = shape(b);
  int64_t m = sa[sa.size() - 2], k = sa.back(), n = sb.back();
  Shape out = broadcast(Shape(sa.begin(), sa.end() - 2),
                        Shape(sb.begin(), sb.end() - 2));
  Rule rule;
  size_t batch = out.size();
  out.push_back(m);
  out.push_back(n);
  broadcastFactors(rule, {sa, sb}, out, batch);
  int32_t ra = static_cast<int32_t>(sa.size()),
          rb = static_cast<int32_t>(sb.size()),
          ro = static_cast<int32_t>(out.size());
  Factor fm = blank(m, 2), fn = blank(n, 2), fk = blank(k, 2);
  fm.operands[0].dim = ra - 2;
  fm.results[0].dim = ro - 2;
  fn.operands[1].dim = rb - 1;
  fn.results[0].dim = ro - 1;
  fk.operands[0].dim = ra - 1;
  fk.operands[1].dim = rb - 2;
  fk.reduction = Reduction::Sum;
  for (const Factor &f : {fm, fn, fk})
    rule.factors.push_back(f);
  rule.linear = {{0}, {1}};
  double flops = 2.0 * static_cast<double>(product(out) * k);
  return op({Op::MatMul, {}}, name, {a, b}, {out}, rule, flops)[0];
}

Id Net::add(Id a, Id b) {
  Shape out = broadcast(shape(a), shape(b));
  Rule rule;
  broadcastFactors(rule, {shape(a), shape(b)}, out, out.size());
  rule.linear = {{0, 1}};
  return op({Op::Add, {}}, "Add", {a, b}, {out}, rule, 0)[0];
}

Id Net::mul(Id a, Id b) {
  Shape out = broadcast(shape(a), shape(b));
  Rule rule;
  broadcastFactors(rule, {shape(a), shape(b)}, out, out.size());
  rule.linear = {{0}, {1}};
  return op({Op::Mul, {}}, "Mul", {a, b}, {out}, rule, 0)[0];
}

Id Net::unary(Id a) {
  Rule rule;
  broadcastFactors(rule, {shape(a)}, shape(a), shape(a).size());
  return op({Op::Unary, {}}, "Gelu", {a}, {shape(a)}, rule, 0)[0];
}

Id Net::layerNorm(Id x, Id gamma, Id beta) {
  Rule rule;
  broadcastFactors(rule, {shape(x), shape(gamma), shape(beta)}, shape(x),
                   shape(x).size() - 1);
  return op({Op::LayerNorm, {}}, "LayerNormalization", {x, gamma, beta},
            {shape(x)}, rule, 0)[0];
}

Id Net::reduceMean(Id x) {
  Shape out = shape(x);
  out.back() = 1;
  Rule rule;
  broadcastFactors(rule, {shape(x)}, out, out.size() - 1);
  rule.linear = {{0}};
  return op({Op::ReduceMean, {}}, "ReduceMean", {x}, {out}, rule, 0)[0];
}

Id Net::rmsNorm(Id x, Id gamma) {
  Id mean = reduceMean(unary(x));
  Id scale = unary(add(mean, constant({1})));
  return mul(mul(x, scale), gamma);
}

Id Net::softmax(Id x) {
  Rule rule;
  broadcastFactors(rule, {shape(x)}, shape(x), shape(x).size() - 1);
  return op({Op::Softmax, {}}, "Softmax", {x}, {shape(x)}, rule, 0)[0];
}

Id Net::reshape(Id x, Shape out, std::string name) {
  Rule rule = reshapeRule(shape(x), out);
  return op({Op::Reshape, {}}, name, {x}, {out}, rule, 0)[0];
}

Id Net::transpose(Id x, std::vector<int64_t> permutation) {
  Shape out;
  Rule rule;
  rule.linear = {{0}};
  for (size_t d = 0; d < permutation.size(); ++d) {
    int64_t from = permutation[d];
    out.push_back(shape(x)[from]);
    if (out.back() < 2)
      continue;
    Factor factor = blank(out.back(), 1);
    factor.operands[0].dim = static_cast<int32_t>(from);
    factor.results[0].dim = static_cast<int32_t>(d);
    rule.factors.push_back(factor);
  }
  return op({Op::Transpose, permutation}, "Transpose", {x}, {out}, rule, 0)[0];
}

Id Net::expand(Id x, Shape out) {
  Rule rule;
  rule.linear = {{0}};
  broadcastFactors(rule, {shape(x)}, out, out.size());
  return op({Op::Expand, {}}, "Expand", {x}, {out}, rule, 0)[0];
}

Id Net::gather(Id table, Id ids) {
  Shape out = shape(ids);
  size_t n = out.size();
  out.insert(out.end(), shape(table).begin() + 1, shape(table).end());
  Rule rule;
  rule.linear = {{0}};
  Factor lookup = blank(shape(table)[0], 2);
  lookup.operands[0].dim = 0;
  lookup.reduction = Reduction::Sum;
  lookup.lookup = true;
  rule.factors.push_back(lookup);
  for (size_t d = 0; d < out.size(); ++d) {
    if (out[d] < 2)
      continue;
    Factor factor = blank(out[d], 2);
    factor.results[0].dim = static_cast<int32_t>(d);
    if (d < n)
      factor.operands[1].dim = static_cast<int32_t>(d);
    else
      factor.operands[0].dim = static_cast<int32_t>(d - n + 1);
    rule.factors.push_back(factor);
  }
  return op({Op::Gather, {}}, "Gather", {table, ids}, {out}, rule, 0)[0];
}

Id Net::pick(Id x, int32_t axis) {
  Shape out;
  Rule rule;
  rule.linear = {{0}};
  for (size_t d = 0; d < shape(x).size(); ++d) {
    if (static_cast<int32_t>(d) == axis)
      continue;
    out.push_back(shape(x)[d]);
    if (out.back() < 2)
      continue;
    Factor factor = blank(out.back(), 1);
    factor.operands[0].dim = static_cast<int32_t>(d);
    factor.results[0].dim = static_cast<int32_t>(out.size()) - 1;
    rule.factors.push_back(factor);
  }
  return op({Op::Pick, {axis}}, "Gather", {x}, {out}, rule, 0)[0];
}

std::vector<Id> Net::split(Id x, int32_t axis, int64_t parts) {
  Shape out = shape(x);
  out[axis] /= parts;
  Rule rule;
  rule.linear = {{0}};
  for (size_t d = 0; d < out.size(); ++d) {
    if (out[d] < 2)
      continue;
    Factor factor = blank(out[d], 1, parts);
    factor.operands[0] = {static_cast<int32_t>(d),
                          static_cast<int32_t>(d) == axis ? parts : 1};
    for (DimRef &ref : factor.results)
      ref.dim = static_cast<int32_t>(d);
    rule.factors.push_back(factor);
  }
  return op({Op::Split, {axis}}, "Split", {x}, std::vector<Shape>(parts, out),
            rule, 0);
}

Id Net::concat(Id a, Id b, int32_t axis) {
  Shape out = shape(a);
  out[axis] += shape(b)[axis];
  Rule rule;
  rule.linear = {{0, 1}};
  for (size_t d = 0; d < out.size(); ++d) {
    if (static_cast<int32_t>(d) == axis || out[d] < 2)
      continue;
    Factor factor = blank(out[d], 2);
    factor.operands[0].dim = factor.operands[1].dim = factor.results[0].dim =
        static_cast<int32_t>(d);
    rule.factors.push_back(factor);
  }
  return op({Op::Concat, {axis}}, "Concat", {a, b}, {out}, rule, 0)[0];
}

Id Net::gemm(Id a, Id b, Id bias) {
  int64_t m = shape(a)[0], k = shape(a)[1], n = shape(b)[1];
  Rule rule;
  Factor fm = blank(m, 3), fn = blank(n, 3), fk = blank(k, 3);
  fm.operands[0].dim = 0;
  fm.results[0].dim = 0;
  fn.operands[1].dim = 1;
  fn.operands[2].dim = bias < 0 ? -1 : 0;
  fn.results[0].dim = 1;
  fk.operands[0].dim = 1;
  fk.operands[1].dim = 0;
  fk.reduction = Reduction::Sum;
  if (bias >= 0)
    fk.addends = {2};
  rule.factors = {fm, fn, fk};
  if (bias < 0)
    rule.linear = {{0}, {1}};
  return op({Op::Gemm, {}}, "Gemm", {a, b, bias}, {{m, n}}, rule,
            2.0 * static_cast<double>(m * n * k))[0];
}

namespace {

/// [b, s, h] -> [b, heads, s, h / heads]
Id toHeads(Net &net, Id x, int64_t heads) {
  Shape s = net.shape(x);
  return net.transpose(net.reshape(x, {s[0], s[1], heads, s[2] / heads}),
                       {0, 2, 1, 3});
}

Id attend(Net &net, Id q, Id k, Id v, Id mask) {
  Id scores = net.matmul(q, net.transpose(k, {0, 1, 3, 2}), "Scores");
  scores = net.mul(scores, net.constant({1}));
  if (mask >= 0)
    scores = net.add(scores, mask);
  Id mixed = net.matmul(net.softmax(scores), v, "Mix");
  Shape s = net.shape(mixed);
  return net.reshape(net.transpose(mixed, {0, 2, 1, 3}),
                     {s[0], s[2], s[1] * s[3]});
}

Id linear(Net &net, Id x, int64_t to, bool bias = true) {
  Id y = net.matmul(x, net.weight({net.shape(x).back(), to}));
  return bias ? net.add(y, net.weight({to})) : y;
}

Id norm(Net &net, Id x) {
  int64_t h = net.shape(x).back();
  return net.layerNorm(x, net.weight({h}), net.weight({h}));
}

} // namespace

Net bert(int64_t ranks, const Transformer &t) {
  Net net(ranks);
  Id ids = net.input({t.batch, t.tokens});
  Id types = net.input({t.batch, t.tokens});
  Id mask = net.input({t.batch, 1, 1, t.tokens});
  Id bias = net.mul(net.add(mask, net.constant({1})), net.constant({1}));
  Id x = net.add(net.gather(net.weight({t.vocab, t.hidden}), ids),
                 net.gather(net.weight({2, t.hidden}), types));
  x = net.add(
      x, net.gather(net.weight({512, t.hidden}), net.constant({1, t.tokens})));
  x = norm(net, x);
  for (int64_t i = 0; i < t.layers; ++i) {
    Id q = toHeads(net, linear(net, x, t.hidden), t.heads);
    Id k = toHeads(net, linear(net, x, t.hidden), t.heads);
    Id v = toHeads(net, linear(net, x, t.hidden), t.heads);
    Id a = linear(net, attend(net, q, k, v, bias), t.hidden);
    x = norm(net, net.add(a, x));
    Id m = linear(net, net.unary(linear(net, x, t.inner)), t.hidden);
    x = norm(net, net.add(m, x));
  }
  net.output(x);
  net.output(net.unary(linear(net, net.pick(x, 1), t.hidden)));
  return net;
}

Net gpt2(int64_t ranks, const Transformer &t) {
  Net net(ranks);
  net.problem.partialWeights = true;
  Id ids = net.input({t.batch, t.tokens});
  Id table = net.weight({t.vocab, t.hidden});
  Id x =
      net.add(net.gather(table, ids), net.gather(net.weight({1024, t.hidden}),
                                                 net.constant({1, t.tokens})));
  auto conv1d = [&](Id in, int64_t to) {
    Shape s = net.shape(in);
    Id flat = net.reshape(in, {s[0] * s[1], s[2]});
    Id y = net.gemm(flat, net.weight({s[2], to}), net.weight({to}));
    return net.reshape(y, {s[0], s[1], to});
  };
  Id mask = net.constant({1, 1, t.tokens, t.tokens});
  for (int64_t i = 0; i < t.layers; ++i) {
    std::vector<Id> qkv = net.split(conv1d(norm(net, x), 3 * t.hidden), 2, 3);
    Id k = toHeads(net, qkv[1], t.heads), v = toHeads(net, qkv[2], t.heads);
    net.output(k);
    net.output(v);
    Id a = attend(net, toHeads(net, qkv[0], t.heads), k, v, mask);
    x = net.add(x, conv1d(a, t.hidden));
    x = net.add(x, conv1d(net.unary(conv1d(norm(net, x), t.inner)), t.hidden));
  }
  Id logits = net.matmul(norm(net, x), net.transpose(table, {1, 0}), "Logits");
  net.output(logits);
  return net;
}

namespace {

/// Rotary embedding: x * cos + rotate(x) * sin, rotate by split and concat.
Id rotary(Net &net, Id x, Id cos, Id sin) {
  std::vector<Id> halves = net.split(x, 3, 2);
  Id turned = net.concat(net.mul(halves[1], net.constant({1})), halves[0], 3);
  return net.add(net.mul(x, cos), net.mul(turned, sin));
}

Id repeatHeads(Net &net, Id x, int64_t times) {
  Shape s = net.shape(x);
  Id wide = net.reshape(x, {s[0], s[1], 1, s[2], s[3]});
  wide = net.expand(wide, {s[0], s[1], times, s[2], s[3]});
  return net.reshape(wide, {s[0], s[1] * times, s[2], s[3]});
}

/// Everything of a Llama layer up to and with the attention's residual.
Id llamaAttention(Net &net, Id x, const Transformer &t, Id cos, Id sin,
                  Id mask) {
  int64_t head = t.hidden / t.heads;
  Id n = net.rmsNorm(x, net.weight({t.hidden}));
  Id q = rotary(net, toHeads(net, linear(net, n, t.hidden, false), t.heads),
                cos, sin);
  Id k = rotary(
      net, toHeads(net, linear(net, n, t.kvHeads * head, false), t.kvHeads),
      cos, sin);
  Id v = toHeads(net, linear(net, n, t.kvHeads * head, false), t.kvHeads);
  net.output(k);
  net.output(v);
  if (t.kvHeads != t.heads) {
    k = repeatHeads(net, k, t.heads / t.kvHeads);
    v = repeatHeads(net, v, t.heads / t.kvHeads);
  }
  return net.add(x, linear(net, attend(net, q, k, v, mask), t.hidden, false));
}

Id swiglu(Net &net, Id x, const Transformer &t) {
  Id gate = linear(net, x, t.inner, false);
  Id up = linear(net, x, t.inner, false);
  return linear(net, net.mul(net.mul(gate, net.unary(gate)), up), t.hidden,
                false);
}

struct LlamaFrame {
  Id table, x, cos, sin, mask;
};

LlamaFrame llamaFrame(Net &net, const Transformer &t) {
  LlamaFrame f;
  int64_t head = t.hidden / t.heads;
  Id ids = net.input({t.batch, t.tokens});
  f.table = net.weight({t.vocab, t.hidden});
  f.x = net.gather(f.table, ids);
  f.cos = net.constant({1, 1, t.tokens, head});
  f.sin = net.constant({1, 1, t.tokens, head});
  f.mask = net.constant({1, 1, t.tokens, t.tokens});
  return f;
}

void llamaLogits(Net &net, Id x, const Transformer &t, Id tied) {
  Id n = net.rmsNorm(x, net.weight({t.hidden}));
  net.output(tied < 0 ? net.matmul(n, net.weight({t.hidden, t.vocab}), "Logits")
                      : net.matmul(n, net.transpose(tied, {1, 0}), "Logits"));
}

} // namespace

Net llama(int64_t ranks, const Transformer &t, bool tied) {
  Net net(ranks);
  LlamaFrame f = llamaFrame(net, t);
  Id x = f.x;
  for (int64_t i = 0; i < t.layers; ++i) {
    x = llamaAttention(net, x, t, f.cos, f.sin, f.mask);
    x = net.add(x, swiglu(net, net.rmsNorm(x, net.weight({t.hidden})), t));
  }
  llamaLogits(net, x, t, tied ? f.table : -1);
  return net;
}

Net mixtral(int64_t ranks, const Transformer &t) {
  Net net(ranks);
  LlamaFrame f = llamaFrame(net, t);
  Id x = f.x;
  for (int64_t i = 0; i < t.layers; ++i) {
    x = llamaAttention(net, x, t, f.cos, f.sin, f.mask);
    Id n = net.rmsNorm(x, net.weight({t.hidden}));
    Id weights = net.softmax(linear(net, n, t.experts, false));
    Id sum = -1;
    for (int64_t e = 0; e < t.experts; ++e) {
      Id share = net.reshape(net.pick(weights, 2), {t.batch, t.tokens, 1});
      Id part = net.mul(swiglu(net, n, t), share);
      sum = sum < 0 ? part : net.add(sum, part);
    }
    x = net.add(x, sum);
  }
  llamaLogits(net, x, t, -1);
  return net;
}

Traffic traffic(const Problem &problem, const Solution &solution) {
  Traffic total;
  auto count = [&](const std::vector<Reshard> &steps) {
    for (const auto &[tensor, step] : steps) {
      const TensorInfo &info = problem.tensors[tensor];
      switch (step.kind) {
      case StepKind::Slice:
        ++total.slice;
        continue;
      case StepKind::AllReduce:
        ++total.allReduce;
        break;
      case StepKind::AllGather:
        ++total.allGather;
        break;
      case StepKind::ReduceScatter:
        ++total.reduceScatter;
        break;
      case StepKind::AllToAll:
        ++total.allToAll;
        break;
      }
      total.shapes.push_back(info.shape);
      total.bytes += linkBytes(
          step.kind,
          static_cast<double>(product(info.shape) * info.elementBytes),
          problem.ranks);
    }
  };
  for (const OpChoice &choice : solution.ops) {
    count(choice.before);
    count(choice.after);
  }
  count(solution.finish);
  return total;
}

std::string dump(const Problem &problem, const Solution &solution) {
  std::string text;
  auto steps = [&](const std::vector<Reshard> &list, const char *when) {
    for (const auto &[tensor, step] : list)
      text += std::string("    ") + when + " t" + std::to_string(tensor) + " " +
              toString(step.kind) + " " + toString(step.from) + " -> " +
              toString(step.to) + "\n";
  };
  for (size_t i = 0; i < solution.ops.size(); ++i) {
    const OpChoice &choice = solution.ops[i];
    steps(choice.before, "before");
    text += problem.ops[i].name + ":";
    for (size_t k = 0; k < choice.operands.size(); ++k)
      text += " t" + std::to_string(problem.ops[i].operands[k]) + ":" +
              toString(choice.operands[k]);
    text += " ->";
    for (size_t k = 0; k < choice.results.size(); ++k)
      text += " t" + std::to_string(problem.ops[i].results[k]) + ":" +
              toString(choice.results[k]);
    text += "\n";
    steps(choice.after, "after");
  }
  steps(solution.finish, "finish");
  return text;
}

} // namespace concord::sharding::test
