//===- Loss.cpp - Classification losses
//-------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: the second is the
// first on log-softmax.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"

#include <cmath>
#include <limits>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

Body buildLoss(Plan &plan) {
  const NodeInfo &node = plan.node;
  bool softmax = node.name == "softmaxcrossentropyloss";
  const TensorInfo &x = node.input(0), &target = node.input(1);
  require(x.rank() >= 2, "scores must be [N, C, ...]");
  int64_t batch = x.dims[0], classes = x.dims[1],
          inner = product(x.dims, 2, x.rank());
  require(target.count == batch * inner, "labels have another size");
  require(!node.hasIn(2) || node.in[2].count == classes,
          "weights must have one entry per class");
  std::string reduction = node.strAttr("reduction", "mean");
  bool none = reduction == "none", mean = reduction == "mean";
  require(none || mean || reduction == "sum", "unknown reduction");
  require(node.output(0).count == (none ? batch * inner : 1),
          "the result has another size");
  require(!node.hasOut(1) || node.out[1].count == x.count,
          "log_prob has another size");
  bool hasIgnore = node.has("ignore_index");
  int64_t ignore = node.intAttr("ignore_index", 0);
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0), weightIn = plan.readIf<T>(2);
    In<int64_t> labels = plan.read<int64_t>(1);
    Out<T> out = plan.write<T>(0);
    Out<T> logProb = softmax ? plan.writeIf<T>(1) : Out<T>{};
    return [=](const Run &r) {
      double total = 0, weights = 0;
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t i = 0; i < inner; ++i) {
          const T *scores = r(in) + b * classes * inner + i;
          double shift = 0;
          if (softmax && classes > 0) {
            double max = scores[0], sum = 0;
            for (int64_t c = 1; c < classes; ++c)
              max = std::max(max, double(scores[c * inner]));
            for (int64_t c = 0; c < classes; ++c)
              sum += std::exp(scores[c * inner] - max);
            shift = max + std::log(sum);
          }
          if (logProb)
            for (int64_t c = 0; c < classes; ++c)
              r(logProb)[(b * classes + c) * inner + i] =
                  static_cast<T>(scores[c * inner] - shift);
          int64_t label = r(labels)[b * inner + i];
          double loss = 0;
          if (!hasIgnore || label != ignore) {
            require(label >= 0 && label < classes, "a label is out of range");
            double weight = weightIn ? double(r(weightIn)[label]) : 1.0;
            loss = -(scores[label * inner] - shift) * weight;
            weights += weight;
          }
          total += loss;
          if (none)
            r(out)[b * inner + i] = static_cast<T>(loss);
        }
      if (!none)
        r(out)[0] = static_cast<T>(mean ? total / weights : total);
    };
  });
}

/// ai.onnx.ml Binarizer.
Body buildBinarizer(Plan &plan) {
  const NodeInfo &node = plan.node;
  int64_t count = node.input(0).count;
  require(node.output(0).count == count, "the result has another size");
  double threshold = node.floatAttr("threshold", 0);
  return forNumbers(node.input(0).dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      for (int64_t i = 0; i < count; ++i)
        r(out)[i] = T(double(r(in)[i]) > threshold);
    };
  });
}

} // namespace

void onnx::addLoss(OpTable &ops) {
  ops["negativeloglikelihoodloss"] = buildLoss;
  ops["softmaxcrossentropyloss"] = buildLoss;
  ops["ai.onnx.ml.binarizer"] = buildBinarizer;
}
