//===- ShardingNetwork.cpp - Rules of layers
//--------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Convolutions, pools, normalisation and attention. Some of their attributes
// count what a factor splits (heads, groups); `localAttributes` adapts those.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Sharding.h"

namespace concord::onnx::detail {

namespace {

Rule layerNorm(const NodeView &v) {
  RuleBuilder b(v);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  std::vector<int64_t> touched;
  for (int64_t d = axisIn(b, v.node->intAttr("axis", -1)); d < rank; ++d)
    touched.push_back(d);
  untouchedDims(b, touched);
  return b.take();
}

Rule batchNorm(const NodeView &v) {
  RuleBuilder b(v);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  if (rank < 2)
    return {};
  // In training the statistics are over all but the channels.
  const bool training =
      v.node->intAttr("training_mode", 0) != 0 || v.outputs.size() > 1;
  if (!training)
    untouchedDims(b, {1});
  std::vector<At> results = {{0, 1}};
  for (size_t r = 1; r < v.outputs.size(); ++r)
    results.push_back({r, 0});
  b.factor(b.in(0)[1], {{0, 1}, {1, 0}, {2, 0}, {3, 0}, {4, 0}}, results);
  return b.take();
}

Rule instanceNorm(const NodeView &v) {
  RuleBuilder b(v);
  b.factor(b.in(0)[0], {{0, 0}}, {{0, 0}});
  b.factor(b.in(0)[1], {{0, 1}, {1, 0}, {2, 0}}, {{0, 1}});
  return b.take();
}

Rule groupNorm(const NodeView &v) {
  RuleBuilder b(v);
  b.factor(b.in(0)[0], {{0, 0}}, {{0, 0}});
  b.factor(v.node->intAttr("num_groups", 1), {{0, 1}, {1, 0}, {2, 0}},
           {{0, 1}});
  return b.take();
}

Rule lrn(const NodeView &v) {
  RuleBuilder b(v);
  untouchedDims(b, {1}); // neighbouring channels
  return b.take();
}

Rule convolution(const NodeView &v, bool transposed) {
  RuleBuilder b(v);
  const int64_t group = v.node->intAttr("group", 1);
  b.factor(b.in(0)[0], {{0, 0}}, {{0, 0}});
  if (group > 1) {
    // The weight lists the groups in its outer dimension, transposed or not.
    b.factor(group, {{0, 1}, {1, 0}, {2, 0}}, {{0, 1}});
  } else {
    const int64_t outDim = transposed ? 1 : 0;
    b.factor(b.in(1)[outDim], {{1, outDim}, {2, 0}}, {{0, 1}});
    Factor &reduced = b.factor(b.in(0)[1], {{0, 1}, {1, 1 - outDim}}, {});
    reduced.reduction = Reduction::Sum;
    if (v.hasInput(2))
      reduced.addends = {2};
  }
  if (v.hasInput(2)) {
    b.linear({0, 2});
    b.linear({1, 2});
  } else {
    b.linear({0});
    b.linear({1});
  }
  return b.take();
}

Rule conv(const NodeView &v) { return convolution(v, false); }
Rule convTranspose(const NodeView &v) { return convolution(v, true); }

/// Batch and channels; a window looks at neither.
Rule pool(const NodeView &v) {
  RuleBuilder b(v);
  if (v.outputs.size() > 1 && b.hasOut(1))
    return {}; // MaxPool's indices count through the whole tensor
  b.factor(b.in(0)[0], {{0, 0}}, {{0, 0}});
  b.factor(b.in(0)[1], {{0, 1}}, {{0, 1}});
  if (v.node->opType == "AveragePool" || v.node->opType == "GlobalAveragePool")
    b.linear({0});
  return b.take();
}

Rule gridSample(const NodeView &v) {
  RuleBuilder b(v);
  b.factor(b.in(0)[0], {{0, 0}, {1, 0}}, {{0, 0}});
  b.factor(b.in(0)[1], {{0, 1}}, {{0, 1}});
  b.linear({0});
  return b.take();
}

Rule causalConv(const NodeView &v) {
  RuleBuilder b(v);
  b.factor(b.in(0)[0], {{0, 0}, {3, 0}}, {{0, 0}, {1, 0}});
  b.factor(b.in(0)[1], {{0, 1}, {1, 0}, {2, 0}, {3, 1}}, {{0, 1}, {1, 1}});
  return b.take();
}

// Operands: Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen.
// Results: Y, present_key, present_value, qk_matmul_output.
Rule attention(const NodeView &v) {
  RuleBuilder b(v);
  const bool packed = b.rankIn(0) == 3; // heads packed into the last dimension
  const int64_t heads = packed ? v.node->intAttr("q_num_heads", 1) : b.in(0)[1];
  const int64_t kvHeads =
      packed ? v.node->intAttr("kv_num_heads", 1) : b.in(1)[1];
  const int64_t headDim = packed ? 2 : 1;
  // The mask broadcasts to [batch, heads, queries, keys].
  std::vector<At> batchAt = {{0, 0}, {1, 0}, {2, 0}, {4, 0}, {5, 0}, {6, 0}};
  std::vector<At> headAt = {
      {0, headDim}, {1, headDim}, {2, headDim}, {4, 1}, {5, 1}};
  std::vector<At> queryHeadAt = {{0, headDim}};
  if (v.hasInput(3)) {
    const auto rank = static_cast<int64_t>(b.rankIn(3));
    if (rank == 4 && b.in(3)[0] != 1)
      batchAt.push_back({3, 0});
    if (rank >= 3 && b.in(3)[rank - 3] != 1) {
      headAt.push_back({3, rank - 3});
      queryHeadAt.push_back({3, rank - 3});
    }
  }
  b.factor(b.in(0)[0], batchAt, {{0, 0}, {1, 0}, {2, 0}, {3, 0}});
  // Grouped queries: a key head goes with all the query heads that read it.
  b.factor(kvHeads, headAt, {{0, headDim}, {1, 1}, {2, 1}, {3, 1}});
  // All query heads read the one key head; a present state would be whole,
  // which a factor of every result cannot say.
  if (kvHeads == 1 && !b.hasOut(1) && !b.hasOut(2))
    b.factor(heads, queryHeadAt, {{0, headDim}, {3, 1}});
  return b.take();
}

// Operands: X, cos_cache, sin_cache, position_ids. Without position_ids the
// caches are [batch, sequence, size].
Rule rotaryEmbedding(const NodeView &v) {
  RuleBuilder b(v);
  const bool packed = b.rankIn(0) == 3;
  const int64_t sequenceDim = packed ? 1 : 2;
  std::vector<At> batchAt = {{0, 0}}, sequenceAt = {{0, sequenceDim}};
  if (v.hasInput(3)) {
    if (b.rankIn(3) != 2)
      return {};
    batchAt.push_back({3, 0});
    sequenceAt.push_back({3, 1});
  } else {
    if (b.rankIn(1) != 3)
      return {};
    for (size_t i : {1, 2}) {
      batchAt.push_back({i, 0});
      sequenceAt.push_back({i, 1});
    }
  }
  b.factor(b.in(0)[0], batchAt, {{0, 0}});
  b.factor(b.in(0)[sequenceDim], sequenceAt, {{0, sequenceDim}});
  if (packed)
    b.factor(v.node->intAttr("num_heads", 1), {{0, 2}}, {{0, 2}});
  else
    b.factor(b.in(0)[1], {{0, 1}}, {{0, 1}});
  b.linear({0});
  return b.take();
}

/// Dimensions that keep their size are copied, whatever the interpolation.
Rule resize(const NodeView &v) {
  RuleBuilder b(v);
  if (v.node->stringAttr("coordinate_transformation_mode", "half_pixel") ==
          "tf_crop_and_resize" ||
      v.node->stringAttr("keep_aspect_ratio_policy", "stretch") != "stretch")
    return {};
  std::vector<int64_t> touched;
  for (size_t d = 0; d < b.rankIn(0); ++d)
    if (b.in(0)[d] != b.out(0)[d])
      touched.push_back(static_cast<int64_t>(d));
  // Sizes are those of the whole tensor, and the scale is taken from them.
  const bool bySizes = v.hasInput(3) && v.inputs[3].numElements() > 0;
  if (bySizes && opset(v) >= 11) {
    if (!v.node->attribute("axes"))
      return {};
    for (int64_t axis : v.node->intsAttr("axes"))
      touched.push_back(axisIn(b, axis));
  }
  // A scale near 1 may keep a size by rounding only.
  const size_t scales = opset(v) < 11 ? 1 : 2;
  if (v.hasInput(scales) && v.inputs[scales].numElements() > 0) {
    if (!v.constants[scales] || v.node->attribute("axes"))
      return {};
    for (size_t d = 0; d < b.rankIn(0); ++d)
      if (v.constants[scales]->floatAt(d) != 1)
        touched.push_back(static_cast<int64_t>(d));
  }
  untouchedDims(b, touched);
  return b.take();
}

Rule reverseSequence(const NodeView &v) {
  RuleBuilder b(v);
  const int64_t batch = axisIn(b, v.node->intAttr("batch_axis", 1));
  const int64_t time = axisIn(b, v.node->intAttr("time_axis", 0));
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  if (batch == rank || time == rank)
    return {};
  untouchedDims(b, {batch, time});
  b.factor(b.in(0)[batch], {{0, batch}, {1, 0}}, {{0, batch}});
  b.linear({0});
  return b.take();
}

Rule meanVariance(const NodeView &v) {
  RuleBuilder b(v);
  std::vector<int64_t> axes = v.node->intsAttr("axes", {0, 2, 3});
  for (int64_t &axis : axes)
    axis = axisIn(b, axis);
  untouchedDims(b, axes);
  return b.take();
}

Rule roiAlign(const NodeView &v) {
  RuleBuilder b(v);
  b.factor(b.in(1)[0], {{1, 0}, {2, 0}}, {{0, 0}});
  b.factor(b.in(0)[1], {{0, 1}}, {{0, 1}});
  return b.take();
}

// Operands: query, key, value, past_state, decay, beta, with heads packed into
// the last dimension. Results: output, present_state [batch, heads, ...].
Rule linearAttention(const NodeView &v) {
  RuleBuilder b(v);
  const int64_t heads = v.node->intAttr("q_num_heads", 1);
  const int64_t kvHeads = v.node->intAttr("kv_num_heads", 1);
  b.factor(b.in(0)[0], {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}},
           {{0, 0}, {1, 0}});
  if (heads % kvHeads != 0)
    return b.take();
  std::vector<At> at = {{0, 2}, {1, 2}, {2, 2}, {3, 1}, {4, 2}};
  if (v.hasInput(5) && b.in(5)[2] != 1)
    at.push_back({5, 2});
  b.factor(kvHeads, at, {{0, 2}, {1, 1}});
  return b.take();
}

struct Entry {
  std::string_view name;
  ShardFn rule;
};

constexpr Entry kRules[] = {
    {"Attention", attention},
    {"AveragePool", pool},
    {"BatchNormalization", batchNorm},
    {"CausalConvWithState", causalConv},
    {"Conv", conv},
    {"ConvTranspose", convTranspose},
    {"GlobalAveragePool", pool},
    {"GlobalLpPool", pool},
    {"GlobalMaxPool", pool},
    {"GridSample", gridSample},
    {"GroupNormalization", groupNorm},
    {"InstanceNormalization", instanceNorm},
    {"LRN", lrn},
    {"LayerNormalization", layerNorm},
    {"LpPool", pool},
    {"LinearAttention", linearAttention},
    {"MaxPool", pool},
    {"MeanVarianceNormalization", meanVariance},
    {"RMSNormalization", layerNorm},
    {"Resize", resize},
    {"ReverseSequence", reverseSequence},
    {"RoiAlign", roiAlign},
    {"RotaryEmbedding", rotaryEmbedding},
};

} // namespace

ShardFn networkSharding(std::string_view name) {
  for (const Entry &entry : kRules)
    if (entry.name == name)
      return entry.rule;
  return nullptr;
}

} // namespace concord::onnx::detail

namespace concord::onnx {

std::map<std::string, Attribute>
localAttributes(const NodeView &whole,
                const std::vector<TensorType> &localInputs) {
  std::map<std::string, Attribute> result = whole.node->attributes;
  const std::string &op = whole.node->opType;
  // An attribute that counts pieces of a dimension shrinks with the dimension.
  auto scale = [&](const char *name, size_t operand, size_t dim) {
    auto it = result.find(name);
    if (it == result.end() || operand >= localInputs.size() ||
        dim >= whole.inputs[operand].shape.size())
      return;
    const int64_t before = whole.inputs[operand].shape[dim];
    const int64_t after = localInputs[operand].shape[dim];
    if (before > 0)
      if (auto *count = std::get_if<int64_t>(&it->second))
        *count = *count * after / before;
  };
  if (!whole.node->domain.empty())
    return result;
  if ((op == "Attention" && whole.inputs[0].shape.size() == 3) ||
      op == "LinearAttention") {
    scale("q_num_heads", 0, 2);
    scale("kv_num_heads", 1, 2);
  } else if (op == "RotaryEmbedding" && whole.inputs[0].shape.size() == 3) {
    scale("num_heads", 0, 2);
  } else if ((op == "Conv" || op == "ConvTranspose") &&
             whole.node->intAttr("group", 1) > 1) {
    scale("group", 0, 1);
  } else if (op == "GroupNormalization") {
    scale("num_groups", 0, 1);
  }
  return result;
}

} // namespace concord::onnx
