//===- RandomNet.cpp - Small random graphs --------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Random problems for the comparison with exhaustive search and for the numeric
// interpreter. Costs vary over orders of magnitude, so that every kind of
// layout is best in some of them.
//
//===----------------------------------------------------------------------===//

#include "Builders.h"

#include <cmath>
#include <random>

namespace concord::sharding::test {

namespace {

class Random {
public:
  explicit Random(uint32_t seed) : engine(seed) {}
  /// Not std::uniform_int_distribution: that differs between libraries.
  int64_t below(int64_t n) { return static_cast<int64_t>(engine() % n); }
  double scale(double low, int decades) {
    return low * std::pow(10.0, static_cast<double>(below(decades * 3)) / 3);
  }

private:
  std::mt19937 engine;
};

} // namespace

Net randomNet(uint32_t seed, int64_t ranks, int ops) {
  Random random(seed);
  Net net(ranks);
  net.problem.partialWeights = random.below(2) == 0;
  net.problem.cost.latencySeconds = random.scale(1e-9, 4);
  net.problem.cost.linkBytesPerSecond = random.scale(1e8, 3);
  net.problem.cost.bytesPerSecond = random.scale(1e8, 3);
  net.problem.cost.flopsPerSecond = random.scale(1e8, 3);
  net.problem.cost.collectiveWeight = random.below(2) ? 1 : 16;

  // All values are [4, 8, 8], [4, 8, 2, 4] or [32, 8], so that any two of a
  // shape can be combined.
  const Shape cube{4, 8, 8}, flat{32, 8}, four{4, 8, 2, 4};
  std::vector<Id> pool{net.input(cube)};
  if (random.below(3) == 0)
    net.problem.tensors[pool[0]].mustReplicate = true;
  auto draw = [&](const Shape &shape) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      // Recent values more often, so that chains grow.
      int64_t back = random.below(random.below(2) ? 2 : 5);
      size_t n = pool.size();
      Id id = pool[n - 1 - std::min<size_t>(back, n - 1)];
      if (net.shape(id) == shape)
        return id;
    }
    return net.input(shape);
  };
  Id shared = -1;
  auto matrix = [&] {
    // Now and then the same weight again.
    if (shared < 0 || random.below(3))
      shared = net.weight({8, 8});
    return shared;
  };
  auto finish = [&](Id id) { pool.push_back(id); };

  while (static_cast<int>(net.problem.ops.size()) < ops) {
    Id last = pool.back();
    const Shape shape = net.shape(last);
    switch (random.below(11)) {
    case 0:
    case 1:
      if (shape != four)
        finish(net.matmul(draw(shape), matrix()));
      break;
    case 2:
      finish(net.add(draw(shape), draw(shape)));
      break;
    case 3:
      finish(net.mul(draw(shape), draw(shape)));
      break;
    case 4:
      finish(net.add(draw(shape), net.weight({shape.back()})));
      break;
    case 5:
      finish(net.unary(draw(shape)));
      break;
    case 6:
      finish(net.softmax(draw(shape)));
      break;
    case 7:
      if (shape == cube)
        finish(net.reshape(last, random.below(2) ? flat : four));
      else
        finish(net.reshape(last, cube));
      break;
    case 8:
      if (shape == cube)
        finish(net.transpose(last, {0, 2, 1}));
      break;
    case 9:
      if (shape == flat)
        finish(net.gemm(draw(flat), matrix(), net.weight({8})));
      else if (shape == cube)
        finish(net.matmul(draw(cube), draw(cube)));
      break;
    case 10:
      if (shape == cube) {
        // A fused projection cut in two.
        Id wide = net.matmul(draw(cube), net.weight({8, 16}));
        if (static_cast<int>(net.problem.ops.size()) < ops)
          for (Id part : net.split(wide, 2, 2))
            finish(part);
        else
          net.output(wide);
      }
      break;
    }
  }
  net.output(pool.back(), random.below(2) == 0);
  if (pool.size() > 2 && random.below(3) == 0)
    net.output(pool[pool.size() - 2]);
  return net;
}

} // namespace concord::sharding::test
