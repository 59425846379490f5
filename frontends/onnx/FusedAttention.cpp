//===- FusedAttention.cpp - onnxruntime's fused attention -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention in the forms of onnxruntime's optimiser and of its model builder:
// projections, biases, masks, caches and rotations around the standard
// operator. Sizes that a mask depends on are taken from shapes, as an exporter
// would, so that they may be bounded.
//
//===----------------------------------------------------------------------===//

#include "FunctionBuilder.h"

#include <limits>

namespace concord::onnx::detail {

namespace {

/// One dimension of `x`, as a list of one number or as the number.
std::string extent(FunctionBuilder &b, const std::string &x, int64_t dim) {
  auto shape = b.op("Shape", {x});
  b.set(shape, "start", dim);
  b.set(shape, "end", dim + 1);
  return shape.result;
}
std::string number(FunctionBuilder &b, const std::string &list) {
  return b.op("Squeeze", {list}).result;
}

/// 0, 1, ... up to a dimension of `x`.
std::string counted(FunctionBuilder &b, const std::string &x, int64_t dim) {
  std::string zero = number(b, b.ints({0})), one = number(b, b.ints({1}));
  return b.op("Range", {zero, number(b, extent(b, x, dim)), one}).result;
}

std::string unsqueeze(FunctionBuilder &b, const std::string &x,
                      const std::vector<int64_t> &axes) {
  return b.op("Unsqueeze", {x, b.ints(axes)}).result;
}

std::string transpose(FunctionBuilder &b, const std::string &x) {
  auto made = b.op("Transpose", {x});
  b.set(made, "perm", std::vector<int64_t>{0, 2, 1, 3});
  return made.result;
}

/// [batch, sequence, heads * size] as [batch, heads, sequence, size].
std::string byHeads(FunctionBuilder &b, const std::string &x, int64_t heads) {
  return transpose(b, b.op("Reshape", {x, b.ints({0, 0, heads, -1})}).result);
}

std::string joined(FunctionBuilder &b, const std::string &x,
                   const std::string &y, int64_t axis) {
  auto made = b.op("Concat", {x, y});
  b.set(made, "axis", axis);
  return made.result;
}

/// Parts of `x` along its last dimension.
std::vector<std::string> parts(FunctionBuilder &b, const std::string &x,
                               const std::vector<int64_t> &sizes,
                               int64_t axis = -1) {
  auto made = b.op("Split", {x, b.ints(sizes)});
  b.set(made, "axis", axis);
  std::vector<std::string> names = {made.result};
  while (names.size() < sizes.size()) {
    names.push_back(made.result + "_" + std::to_string(names.size()));
    made.node->add_output(names.back());
  }
  return names;
}

/// What is added to the products before softmax.
class Mask {
public:
  explicit Mask(FunctionBuilder &b) : b(b) {}

  /// Adds a tensor that broadcasts to [batch, heads, queries, keys].
  void add(const std::string &bias) {
    sum = sum.empty() ? bias : b.add(sum, bias);
  }
  /// `filter` where `keep` is false.
  void addWhere(const std::string &keep, double filter) {
    add(b.op("Where", {keep, b.scalar(0), b.scalar(filter)}).result);
  }
  /// No query sees a key behind its own place, `before` keys being older.
  void addCausal(const std::string &q, const std::string &k,
                 const std::string &v) {
    std::string rows = counted(b, q, 2);
    std::string older = b.op("Sub", {extent(b, k, 2), extent(b, q, 2)}).result;
    rows = unsqueeze(b, b.add(rows, older), {1});
    addWhere(b.op("LessOrEqual", {counted(b, v, 2), rows}).result, lowest());
  }
  /// Of the type that is computed with.
  double lowest() const {
    return b.view.inputs[0].dtype == DType::F16
               ? -65504.0
               : static_cast<double>(std::numeric_limits<float>::lowest());
  }

  std::string sum;

private:
  FunctionBuilder &b;
};

/// softmax(scale q k^T + mask) v as [batch, sequence, heads * size].
std::string attend(FunctionBuilder &b, const std::string &q,
                   const std::string &k, const std::string &v,
                   const std::string &mask) {
  std::vector<std::string> operands = {q, k, v};
  if (!mask.empty())
    operands.push_back(mask);
  auto made = b.op("Attention", operands);
  if (const double scale = b.view.node->floatAttr("scale", 0); scale != 0)
    b.set(made, "scale", scale);
  return b.op("Reshape", {transpose(b, made.result), b.ints({0, 0, -1})})
      .result;
}

/// A dimension of an operand, which may be missing or have another rank.
int64_t dimension(const FunctionBuilder &b, size_t operand, size_t dim) {
  if (!b.has(operand) || b.view.inputs[operand].shape.size() <= dim)
    throw Error("operand " + std::to_string(operand) +
                " is missing or has too few dimensions");
  return b.view.inputs[operand].shape[dim];
}

int64_t positive(const FunctionBuilder &b, const char *name) {
  const int64_t value = b.view.node->intAttr(name, 0);
  if (value < 1)
    throw Error(std::string("attribute '") + name + "' is missing");
  return value;
}

void refuse(bool is, const std::string &what) {
  if (is)
    throw Error(what + " is not supported; export without this fusion");
}

/// The mask of keys that Attention and MultiHeadAttention take, int32.
void addKeyMask(FunctionBuilder &b, Mask &mask, size_t operand,
                const std::string &k, double filter) {
  const Shape &shape = b.view.inputs[operand].shape;
  const int64_t batch = b.view.inputs[0].shape[0];
  const std::string x = b.cast(b.in(operand), DType::I64);
  if (shape.size() == 1 && shape[0] == batch) {
    // So many keys are there.
    std::string keep =
        b.op("Less", {counted(b, k, 2), unsqueeze(b, x, {1})}).result;
    mask.addWhere(unsqueeze(b, keep, {1, 2}), filter);
    return;
  }
  refuse(shape.size() != 2 && shape.size() != 3,
         "a mask of " + text(b.view.inputs[operand]));
  std::string keep = b.cast(x, DType::BOOL);
  mask.addWhere(unsqueeze(b, keep,
                          shape.size() == 2 ? std::vector<int64_t>{1, 2}
                                            : std::vector<int64_t>{1}),
                filter);
}

/// The mask of keys at operand `keys`, the bias at operand 5, and the order.
Mask maskOf(FunctionBuilder &b, size_t keys, const std::string &q,
            const std::string &k, const std::string &v) {
  const Node &node = *b.view.node;
  Mask mask(b);
  if (b.has(keys))
    addKeyMask(b, mask, keys, k, node.floatAttr("mask_filter_value", -10000.0));
  if (b.has(5))
    mask.add(b.in(5));
  if (node.intAttr("unidirectional", 0) != 0)
    mask.addCausal(q, k, v);
  return mask;
}

} // namespace

std::optional<wire::Function> attention(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  const int64_t heads = positive(b, "num_heads");
  refuse(node.intAttr("do_rotary", 0) != 0, "do_rotary");
  refuse(b.has(6), "past_sequence_length");
  const Shape &weight = b.view.inputs[1].shape;
  if (b.view.inputs[0].shape.size() != 3 || weight.size() != 2)
    throw Error("takes [batch, sequence, hidden] and a matrix");
  std::vector<int64_t> sizes(3, weight[1] / 3);
  if (node.attribute("qkv_hidden_sizes"))
    sizes = node.intsAttr("qkv_hidden_sizes");
  if (sizes.size() != 3)
    throw Error("attribute 'qkv_hidden_sizes' has not three numbers");
  std::string x = b.op("MatMul", {b.in(0), b.in(1)}).result;
  if (b.has(2))
    x = b.add(x, b.in(2));
  std::vector<std::string> qkv = parts(b, x, sizes);
  for (std::string &part : qkv)
    part = byHeads(b, part, heads);
  std::string q = qkv[0], k = qkv[1], v = qkv[2];
  if (b.has(4)) {
    const std::vector<std::string> past = parts(b, b.in(4), {1, 1}, 0);
    k = joined(b, b.op("Squeeze", {past[0], b.ints({0})}).result, k, 2);
    v = joined(b, b.op("Squeeze", {past[1], b.ints({0})}).result, v, 2);
  }
  const Mask mask = maskOf(b, 3, q, k, v);
  std::string present;
  if (node.outputs.size() > 1 && node.outputs[1] != kNoValue)
    present = joined(b, unsqueeze(b, k, {0}), unsqueeze(b, v, {0}), 0);
  return b.results({attend(b, q, k, v, mask.sum), present});
}

std::optional<wire::Function> multiHeadAttention(FunctionBuilder &b) {
  const int64_t heads = positive(b, "num_heads");
  refuse(!b.has(1) || !b.has(2) || b.view.inputs[0].shape.size() != 3,
         "a packed query, key and value");
  refuse(b.has(8) || b.has(9), "a shared cache");
  std::string qkv[3];
  int64_t from = 0;
  for (size_t i = 0; i < 3; ++i) {
    qkv[i] = b.in(i);
    const Shape &shape = b.view.inputs[i].shape;
    const bool split = shape.size() == 4; // by heads already: of an encoder
    refuse(!split && shape.size() != 3, text(b.view.inputs[i]));
    if (b.has(3) && !split) {
      auto bias = b.op("Slice", {b.in(3), b.ints({from}),
                                 b.ints({from + shape[2]}), b.ints({0})});
      qkv[i] = b.add(qkv[i], bias.result);
    }
    from += split ? shape[1] * shape[3] : shape[2];
    if (!split)
      qkv[i] = byHeads(b, qkv[i], heads);
  }
  auto &[q, k, v] = qkv;
  if (b.has(6) && b.has(7)) {
    k = joined(b, b.in(6), k, 2);
    v = joined(b, b.in(7), v, 2);
  }
  const Mask mask = maskOf(b, 4, q, k, v);
  return b.results({attend(b, q, k, v, mask.sum), k, v});
}

std::optional<wire::Function> groupQueryAttention(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  const int64_t heads = positive(b, "num_heads"),
                kvHeads = positive(b, "kv_num_heads");
  refuse(node.floatAttr("softcap", 0) != 0, "softcap");
  refuse(node.intAttr("smooth_softmax", 0) != 0 || b.has(11), "a sink");
  refuse(b.view.inputs[0].shape.size() != 3, text(b.view.inputs[0]));
  if (!b.has(5) || !b.has(6))
    throw Error("operands 5 and 6, the lengths, are missing");
  std::string q = b.in(0), k = b.in(1), v = b.in(2);
  if (!b.has(1)) {
    const int64_t size = b.view.inputs[0].shape[2] / (heads + 2 * kvHeads);
    const std::vector<std::string> qkv =
        parts(b, q, {heads * size, kvHeads * size, kvHeads * size});
    q = qkv[0], k = qkv[1], v = qkv[2];
  }
  q = byHeads(b, q, heads);
  k = byHeads(b, k, kvHeads);
  v = byHeads(b, v, kvHeads);
  const int64_t sequence = b.view.inputs[0].shape[1],
                past = b.has(3) ? dimension(b, 3, 2) : 0;
  // `seqlens_k` has the place of each sequence's last key. The first tokens of
  // a sequence start at 0, whatever the shorter ones of the batch are padded
  // to.
  const Tensor *total = b.view.constants[6];
  refuse(!total || total->type.numElements() != 1 ||
             total->intAt(0) != past + sequence,
         "a cache that is longer than what it holds (total_sequence_length is "
         "not that of past and new tokens)");
  std::string begin; // of the new tokens, [batch]
  if (past > 0) {
    std::string last =
        b.op("Reshape", {b.cast(b.in(5), DType::I64), b.ints({-1})}).result;
    begin = b.op("Sub", {b.add(last, b.ints({1})), extent(b, q, 2)}).result;
  } else {
    begin = b.op("Mul", {extent(b, q, 2), b.ints({0})}).result;
  }
  std::string places =
      b.add(unsqueeze(b, begin, {1}), unsqueeze(b, counted(b, q, 2), {0}));
  if (node.intAttr("do_rotary", 0) != 0) {
    std::string ids = b.has(9) ? b.cast(b.in(9), DType::I64) : places;
    ids = b.op("Expand", {ids, joined(b, extent(b, q, 0), extent(b, q, 2), 0)})
              .result;
    for (std::string *x : {&q, &k}) {
      auto made = b.op("RotaryEmbedding", {*x, b.in(7), b.in(8), ids});
      b.set(made, "interleaved", node.intAttr("rotary_interleaved", 0));
      b.set(made, "rotary_embedding_dim", 2 * dimension(b, 7, 1));
      *x = made.result;
    }
  }
  if (past > 0)
    for (auto [x, cache] : {std::pair(&k, 3), std::pair(&v, 4)}) {
      std::string room = joined(b, b.in(cache), *x, 2);
      auto made = b.op("TensorScatter", {room, *x, begin});
      b.set(made, "axis", int64_t{2});
      *x = made.result;
    }
  // [batch, 1, queries, keys]
  std::string keys = counted(b, k, 2);
  places = unsqueeze(b, places, {1, 3});
  std::string keep = b.op("LessOrEqual", {keys, places}).result;
  if (const int64_t window = node.intAttr("local_window_size", -1);
      window >= 0) {
    std::string near =
        b.op("Greater", {b.add(keys, b.ints({window})), places}).result;
    keep = b.op("And", {keep, near}).result;
  }
  Mask mask(b);
  mask.addWhere(keep, mask.lowest());
  if (b.has(10))
    mask.add(b.in(10));
  return b.results({attend(b, q, k, v, mask.sum), k, v});
}

std::optional<wire::Function> rotaryEmbedding(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  const Shape &shape = b.view.inputs[0].shape;
  refuse(node.intAttr("is_packed_batching", 0) != 0, "is_packed_batching");
  refuse(node.floatAttr("scale", 1.0) != 1, "a scale");
  if (shape.size() != 3 && shape.size() != 4)
    throw Error("takes three or four dimensions and gets " +
                text(b.view.inputs[0]));
  const int64_t sequence = shape.size() == 3 ? 1 : 2;
  std::string ids = b.cast(b.in(1), DType::I64);
  if (b.view.inputs[1].shape.size() < 2) // where the first one is
    ids = b.add(ids, unsqueeze(b, counted(b, b.in(0), sequence), {0}));
  ids = b.op("Expand", {ids, joined(b, extent(b, b.in(0), 0),
                                    extent(b, b.in(0), sequence), 0)})
            .result;
  auto made = b.op("RotaryEmbedding", {b.in(0), b.in(2), b.in(3), ids});
  b.set(made, "interleaved", node.intAttr("interleaved", 0));
  const int64_t rotated = node.intAttr("rotary_embedding_dim", 0);
  b.set(made, "rotary_embedding_dim", rotated);
  if (shape.size() == 3) {
    int64_t heads = node.intAttr("num_heads", 0);
    if (heads < 1 && rotated == 0)
      heads = shape[2] / (2 * dimension(b, 2, 1));
    if (heads < 1)
      throw Error("attribute 'num_heads' is missing");
    b.set(made, "num_heads", heads);
  }
  return b.results({made.result});
}

std::optional<wire::Function> embedLayerNorm(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  std::string sum = b.op("Gather", {b.in(2), b.in(0)}).result;
  if (b.has(8)) {
    sum = b.add(sum, b.op("Gather", {b.in(3), b.in(8)}).result);
  } else {
    sum = b.add(sum, b.op("Gather", {b.in(3), counted(b, b.in(0), 1)}).result);
  }
  if (b.has(1) && b.has(4))
    sum = b.add(sum, b.op("Gather", {b.in(4), b.in(1)}).result);
  auto made = b.op("LayerNormalization", {sum, b.in(5), b.in(6)});
  b.set(made, "axis", int64_t{-1});
  b.set(made, "epsilon", node.floatAttr("epsilon", 1e-12));
  // How many tokens each sequence has.
  std::string length;
  if (node.outputs.size() > 1 && node.outputs[1] != kNoValue) {
    std::string mask =
        b.has(7) ? b.in(7) : b.op("Sub", {b.in(0), b.in(0)}).result;
    auto made = b.op("ReduceSum", {mask, b.ints({1})});
    b.set(made, "keepdims", int64_t{0});
    length = b.cast(made.result, DType::I32);
  }
  return b.results({made.result, length, sum});
}

} // namespace concord::onnx::detail
