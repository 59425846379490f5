//===- InferSignal.cpp - Shapes of transforms and windows
//-------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fourier transforms, windows, and the linear attention of opset 27.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Registry.h"
#include "Wire.h"

#include <algorithm>

namespace concord::onnx::detail {

namespace {

void window(NodeView &v) {
  const int64_t size = constantInt(v, 0, "size");
  out(v, 0, dtypeAttr(v, "output_datatype", DType::F32), {size});
}

void dft(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  if (x.shape.size() < 2 || (x.shape.back() != 1 && x.shape.back() != 2))
    fail("takes real or complex numbers in the last dimension and gets " +
         text(x));
  int64_t axis = -2;
  if (opset(v) < 20)
    axis = v.node->intAttr("axis", 1);
  else if (v.hasInput(2))
    axis = constantInt(v, 2, "axis");
  axis = axisOf(axis, x.shape.size());
  if (axis + 1 == static_cast<int64_t>(x.shape.size()))
    fail("the axis is the one of real and imaginary parts");
  const bool oneSided = v.node->intAttr("onesided", 0) != 0;
  const bool inverse = v.node->intAttr("inverse", 0) != 0;
  Shape shape = x.shape;
  shape.back() = 2;
  int64_t length = x.shape[axis];
  if (inverse && oneSided)
    length = 2 * (length - 1);
  if (v.hasInput(1))
    length = constantInt(v, 1, "dft_length");
  if (length < 1)
    fail("the length of the transform is " + std::to_string(length));
  shape[axis] = oneSided && !inverse ? length / 2 + 1 : length;
  if (oneSided && inverse)
    shape.back() = 1;
  out(v, 0, x.dtype, std::move(shape));
}

void stft(NodeView &v) {
  const TensorType &x = in(v, 0, "signal");
  const int64_t step = constantInt(v, 1, "frame_step");
  int64_t length = 0;
  if (v.hasInput(3))
    length = constantInt(v, 3, "frame_length");
  else if (v.hasInput(2) && v.inputs[2].shape.size() == 1)
    length = v.inputs[2].shape[0];
  if ((x.shape.size() != 3 && x.shape.size() != 2) || step < 1 || length < 1 ||
      length > x.shape[1])
    fail("frames of " + std::to_string(length) + " every " +
         std::to_string(step) + " do not fit " + text(x));
  const bool oneSided = v.node->intAttr("onesided", 1) != 0;
  out(v, 0, x.dtype,
      {x.shape[0], (x.shape[1] - length) / step + 1,
       oneSided ? length / 2 + 1 : length, 2});
}

void melWeights(NodeView &v) {
  const int64_t bins = constantInt(v, 0, "num_mel_bins");
  const int64_t length = constantInt(v, 1, "dft_length");
  if (bins < 0 || length < 0)
    fail("num_mel_bins and dft_length should not be negative");
  out(v, 0, dtypeAttr(v, "output_datatype", DType::F32),
      {length / 2 + 1, bins});
}

void linearAttention(NodeView &v) {
  const TensorType &q = in(v, 0, "query"), &k = in(v, 1, "key"),
                   &w = in(v, 2, "value");
  const int64_t qHeads = v.node->intAttr("q_num_heads", 0);
  const int64_t kvHeads = v.node->intAttr("kv_num_heads", 0);
  if (q.shape.size() != 3 || k.shape.size() != 3 || w.shape.size() != 3 ||
      qHeads < 1 || kvHeads < 1 || k.shape[2] % kvHeads ||
      w.shape[2] % kvHeads || q.shape[2] % qHeads || qHeads > (1 << 30))
    fail("query " + text(q) + ", key " + text(k) + " and value " + text(w) +
         " do not divide into " + std::to_string(qHeads) + " and " +
         std::to_string(kvHeads) + " heads");
  const int64_t vSize = w.shape[2] / kvHeads;
  out(v, 0, q.dtype, {q.shape[0], q.shape[1], times(qHeads, vSize)});
  out(v, 1, v.hasInput(3) ? v.inputs[3].dtype : q.dtype,
      {q.shape[0], kvHeads, k.shape[2] / kvHeads, vSize});
}

void tfIdf(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  if (!isInteger(x.dtype) || x.shape.empty() || x.shape.size() > 2)
    fail("takes one or two dimensions of integers and gets " + text(x));
  int64_t columns = 0;
  for (int64_t index : v.node->intsAttr("ngram_indexes")) {
    if (index < 0 || index > INT32_MAX)
      fail("ngram_indexes holds " + std::to_string(index));
    columns = std::max(columns, index + 1);
  }
  Shape shape = {columns};
  if (x.shape.size() == 2)
    shape.insert(shape.begin(), x.shape[0]);
  out(v, 0, DType::F32, std::move(shape));
}

// --- the few that classical models need, and a preview -----------------------

void arrayFeatureExtractor(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  const TensorType &y = in(v, 1, "Y");
  if (x.shape.empty() || !isInteger(y.dtype))
    fail("X " + text(x) + " and Y " + text(y) + " do not fit");
  Shape shape = x.shape;
  if (shape.size() == 1)
    shape.insert(shape.begin(), 1);
  shape.back() = y.numElements();
  out(v, 0, x.dtype, std::move(shape));
}

void binarizer(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  out(v, 0, x.dtype, x.shape);
}

void flexAttention(NodeView &v) {
  const TensorType &q = in(v, 0, "Q"), &k = in(v, 1, "K"), &w = in(v, 2, "V");
  if (q.shape.size() != 4 || k.shape.size() != 4 || w.shape.size() != 4 ||
      k.shape[1] == 0 || q.shape[1] % k.shape[1] != 0 ||
      q.shape[0] != k.shape[0] || q.shape[3] != k.shape[3] ||
      w.shape[1] != k.shape[1] || w.shape[2] != k.shape[2])
    fail("Q " + text(q) + ", K " + text(k) + " and V " + text(w) +
         " do not fit each other");
  out(v, 0, q.dtype, {q.shape[0], q.shape[1], q.shape[2], w.shape[3]});
}

constexpr InferEntry kTable[] = {
    {"ArrayFeatureExtractor", 1, arrayFeatureExtractor, "ai.onnx.ml"},
    {"Binarizer", 1, binarizer, "ai.onnx.ml"},
    {"FlexAttention", 1, flexAttention, "ai.onnx.preview"},
    {"BlackmanWindow", 17, window},
    {"DFT", 17, dft},
    {"HammingWindow", 17, window},
    {"HannWindow", 17, window},
    {"LinearAttention", 27, linearAttention},
    {"MelWeightMatrix", 17, melWeights},
    {"STFT", 17, stft},
    {"TfIdfVectorizer", 9, tfIdf},
};

} // namespace

std::span<const InferEntry> signalOps() { return kTable; }

} // namespace concord::onnx::detail
