//===- Family.h - One model at all sizes of its dimensions ------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For `--dim seq=1..512` the model is read at several sizes ("members") that
// have nothing in common with its other sizes, and every number in which the
// members differ becomes a polynomial of the dimensions. What constant folding
// would make of a size stays a computation, unless it is a short list of sizes
// itself. Then the model is read at the sizes within the bounds and compared
// with what the polynomials say: where a model behaves in another way (a
// dimension that vanishes at size 1, a clamp), reading fails with the node's
// name instead of running wrong.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ONNX_FAMILY_H
#define CONCORD_ONNX_FAMILY_H

#include "concord/extent.h"
#include "concord/onnx/Reader.h"

namespace concord::onnx {

/// A symbolic dimension that is not fixed.
struct BoundedDim {
  std::string name;
  int64_t min = 1, max = 1;
};

/// Finds the polynomial (up to degree 3, few terms) that has `values[i]` at
/// `points[i]`. None when there is none that more points than it has terms
/// agree with.
std::optional<Extent> fitExtent(const std::vector<std::vector<int64_t>> &points,
                                std::span<const int64_t> values);

/// Bounds of an extent within the dimensions' bounds; exact where every
/// coefficient has the same sign, else not too tight. None on overflow.
std::optional<std::pair<int64_t, int64_t>>
boundsOf(const Extent &extent, const std::vector<BoundedDim> &dims);

/// Sizes at which what must hold everywhere is tried: all of them when they are
/// at most `most`; else the corners, and lines along every dimension.
std::vector<std::vector<int64_t>>
trialPoints(const std::vector<BoundedDim> &dims, size_t most);

/// `seq=37, batch=2`.
std::string describePoint(const std::vector<BoundedDim> &dims,
                          std::span<const int64_t> point);

class Family {
public:
  /// Reads and checks. `multiples`: a dimension's sizes have to be a multiple
  /// of this (data parallelism splits them). Throws Error.
  Family(const std::string &path, ReadOptions options,
         std::vector<BoundedDim> dims, int64_t world, int64_t batchMultiple);

  const std::vector<BoundedDim> &dims() const { return bounded; }
  /// The members' sizes, all different.
  const std::vector<std::vector<int64_t>> &points() const { return members; }
  /// The model at the sizes of member `i`, with parameters rearranged.
  Model member(size_t i) const;

private:
  struct Flat;
  ReadOptions at(std::span<const int64_t> point) const;
  /// Which sizes the members have.
  enum class Sizes {
    Large, ///< primes from 11 on, those within the bounds first
    Small, ///< all primes within the bounds before those above
    All    ///< whatever is within the bounds before primes above
  };
  void choosePoints(Sizes sizes);
  std::string beyondBounds() const;
  void findKept();
  void generalise();
  void check(size_t most);
  Flat flatten(std::span<const int64_t> point) const;

  ModelFile file;
  std::string path;
  ReadOptions options;
  std::vector<BoundedDim> bounded;
  int64_t world, batchMultiple;
  std::vector<std::vector<int64_t>> members;
  std::set<std::string> kept;
  std::shared_ptr<Flat> pattern; ///< of member 0
  std::vector<Extent> extents;   ///< of the pattern's numbers
};

} // namespace concord::onnx

#endif // CONCORD_ONNX_FAMILY_H
