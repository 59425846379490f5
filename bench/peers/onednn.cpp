//===- onednn.cpp - oneDNN and Open MPI as a peer of bench_fuse -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pairs that comm-fuse makes one of, as one writes them without it: a
// matrix product by oneDNN, its weights packed as it likes best, then or before
// a collective by MPI. bench_fuse is the driver: each of its ranks has the rank
// of this team beside it measure a turn while it sleeps (Station.h).
//
// Inputs are functions of their place, so that every rank can compute what the
// result must be; a sample of it is compared before the first turn.
//
//===----------------------------------------------------------------------===//

#include "Station.h"

#include <cmath>
#include <dnnl.hpp>
#include <memory>
#include <mpi.h>
#include <unordered_map>

using namespace concord::bench;

namespace {

float fromBfloat(uint16_t half) {
  uint32_t bits = uint32_t(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
uint16_t toBfloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// MPI has no bf16: sums in f32, rounded.
void sumBfloats(void *in, void *inout, int *count, MPI_Datatype *) {
  const auto *a = static_cast<const uint16_t *>(in);
  auto *b = static_cast<uint16_t *>(inout);
  for (int i = 0, n = *count; i < n; ++i)
    b[i] = toBfloat(fromBfloat(a[i]) + fromBfloat(b[i]));
}

/// A multiple of 1/8 in [-1, 1], which bf16 has, too.
float valueOf(int operand, int rank, uint64_t i) {
  uint64_t hash = (uint64_t(operand) * 1000003 + uint64_t(rank) * 7919 + i) *
                  0x9e3779b97f4a7c15;
  return float(int(hash >> 40) % 9) / 8;
}

class Pair {
public:
  /// A product of [m, k] and [k, n], of `groups` matrices, with the collective
  /// of `call`: before it, or where its root is 1 after it.
  Pair(const Call &call, const std::vector<uint64_t> &a, int me, int ranks)
      : kind(call.kind), combines(call.root == 1), narrow(call.type == kBF16),
        me(me), ranks(ranks), m(int64_t(a[0])), n(int64_t(a[1])),
        k(int64_t(a[2])), groups(int64_t(a[3])),
        engine(dnnl::engine::kind::cpu, 0), stream(engine) {
    using Memory = dnnl::memory;
    using Tag = Memory::format_tag;
    auto type = narrow ? Memory::data_type::bf16 : Memory::data_type::f32;
    size = narrow ? 2 : 4;
    mpiType = narrow ? MPI_UINT16_T : MPI_FLOAT;
    sum = MPI_SUM;
    if (narrow)
      MPI_Op_create(sumBfloats, 1, &sum);
    bool batched = groups > 1;
    // What an all_to_all brings is the A of all groups.
    int64_t matrices = batched && combines ? groups : 1;
    auto dims = [&](int64_t g, int64_t r, int64_t c) {
      return batched ? Memory::dims{g, r, c} : Memory::dims{r, c};
    };
    Tag tag = batched ? Tag::abc : Tag::ab;
    Memory::desc aDesc(dims(matrices, m, k), type, tag);
    Memory::desc bDesc(dims(groups, k, n), type, tag);
    Memory::desc cDesc(dims(groups, m, n), type, tag);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
    dnnl::matmul::primitive_desc primitive(
        engine, aDesc, Memory::desc(dims(groups, k, n), type, Tag::any), cDesc,
        attributes);
#else
    dnnl::matmul::primitive_desc primitive(
        dnnl::matmul::desc(
            aDesc, Memory::desc(dims(groups, k, n), type, Tag::any), cDesc),
        attributes, engine);
#endif
    matmul = dnnl::matmul(primitive);
    input = fill(inputElements(), 0, me);
    rows = kind == kAllGather || (kind == kAllToAll && !combines)
               ? make(matrices * m * k)
               : input.get();
    product = make(groups * m * n);
    // Of the pair: the product, or what the collective makes of it.
    result = gathers() ? product : make(outputElements());
    factors = fill(groups * m, 2, me);
    mixed = groups > 1 && combines ? make(m * n) : product;
    std::unique_ptr<char[]> plain = fill(groups * k * n, 1, me);
    dnnl::memory given(bDesc, engine, plain.get());
    dnnl::memory packed(primitive.weights_desc(), engine);
    dnnl::reorder(given, packed).execute(stream, given, packed);
    stream.wait();
    operands = {
        {DNNL_ARG_SRC, dnnl::memory(aDesc, engine, rows)},
        {DNNL_ARG_WEIGHTS, packed},
        {DNNL_ARG_DST, dnnl::memory(cDesc, engine, product)},
        {DNNL_ARG_SCRATCHPAD,
         dnnl::memory(primitive.scratchpad_desc(), engine)},
    };
  }
  ~Pair() {
    if (narrow)
      MPI_Op_free(&sum);
  }
  Pair(const Pair &) = delete;

  void step() {
    int64_t all = m * k;
    if (kind == kAllGather)
      MPI_Allgather(input.get(), int(all / ranks), mpiType, rows,
                    int(all / ranks), mpiType, MPI_COMM_WORLD);
    else if (kind == kAllToAll && !combines)
      MPI_Alltoall(input.get(), int(all / ranks), mpiType, rows,
                   int(all / ranks), mpiType, MPI_COMM_WORLD);
    matmul.execute(stream, operands);
    stream.wait();
    if (kind == kAllReduce)
      MPI_Allreduce(product, result, int(m * n), mpiType, sum, MPI_COMM_WORLD);
    else if (kind == kReduceScatter)
      MPI_Reduce_scatter_block(product, result, int(m * n / ranks), mpiType,
                               sum, MPI_COMM_WORLD);
    else if (kind == kAllToAll && combines) {
      if (mixed != product)
        mix();
      MPI_Alltoall(mixed, int(m * n / ranks), mpiType, result,
                   int(m * n / ranks), mpiType, MPI_COMM_WORLD);
    }
  }

  /// Largest relative error of a sample of the result.
  double check() {
    std::memset(result, 0xff, size_t(outputElements() * size));
    step();
    double worst = 0;
    for (int64_t i = 0; i < 64; ++i) {
      int64_t at = i * 7919 % outputElements();
      double want = expected(at / n, at % n);
      double got = load(result, at);
      double error = std::fabs(got - want) / (1 + std::fabs(want));
      worst = error >= worst ? error : std::isnan(error) ? 1e30 : worst;
    }
    return worst;
  }

private:
  bool gathers() const {
    return kind == kAllGather || (kind == kAllToAll && !combines);
  }
  int64_t inputElements() const {
    if (kind == kAllGather)
      return m / ranks * k;
    return (groups > 1 && combines ? groups : 1) * m * k;
  }
  int64_t outputElements() const {
    if (kind == kReduceScatter)
      return m * n / ranks;
    return (gathers() ? groups : 1) * m * n;
  }

  char *make(int64_t elements) {
    void *at = nullptr;
    if (::posix_memalign(&at, 4096, size_t(elements * size)) != 0)
      MPI_Abort(MPI_COMM_WORLD, 1);
    std::memset(at, 0, size_t(elements * size));
    made.emplace_back(static_cast<char *>(at), &std::free);
    return made.back().get();
  }
  std::unique_ptr<char[]> fill(int64_t elements, int operand, int rank) {
    auto values = std::make_unique<char[]>(size_t(elements * size));
    for (int64_t i = 0; i < elements; ++i)
      store(values.get(), i, valueOf(operand, rank, uint64_t(i)));
    return values;
  }
  void store(char *at, int64_t i, float value) const {
    uint16_t half = toBfloat(value);
    std::memcpy(at + i * size, narrow ? static_cast<void *>(&half) : &value,
                size_t(size));
  }
  float load(const char *at, int64_t i) const {
    float value;
    uint16_t half;
    std::memcpy(narrow ? static_cast<void *>(&half) : &value, at + i * size,
                size_t(size));
    return narrow ? fromBfloat(half) : value;
  }

  /// Rows of the groups, each times its factor, added up.
  template <typename Load, typename Store>
  void mixRows(Load get, Store put) const {
    for (int64_t r = 0; r < m; ++r)
      for (int64_t j = 0; j < n; ++j) {
        float total = 0;
        for (int64_t g = 0; g < groups; ++g)
          total +=
              get(product, (g * m + r) * n + j) * get(factors.get(), g * m + r);
        put(mixed, r * n + j, total);
      }
  }
  void mix() const {
    if (narrow)
      mixRows(
          [](const char *at, int64_t i) {
            return fromBfloat(reinterpret_cast<const uint16_t *>(at)[i]);
          },
          [](char *at, int64_t i, float value) {
            reinterpret_cast<uint16_t *>(at)[i] = toBfloat(value);
          });
    else
      mixRows([](const char *at,
                 int64_t i) { return reinterpret_cast<const float *>(at)[i]; },
              [](char *at, int64_t i, float value) {
                reinterpret_cast<float *>(at)[i] = value;
              });
  }

  /// Row and column of the product of group g at rank r; `from` has the rows of
  /// A, beginning with its row `first`.
  double dot(int r, int64_t g, int from, int64_t first, int64_t j) const {
    double value = 0;
    for (int64_t p = 0; p < k; ++p)
      value += double(valueOf(0, from, uint64_t(first * k + p))) *
               double(valueOf(1, r, uint64_t((g * k + p) * n + j)));
    return value;
  }
  /// Of this rank's result; rows count through all groups.
  double expected(int64_t row, int64_t j) const {
    int64_t share = m / ranks, g = row / m, r = row % m;
    int owner = int(r / share);
    switch (kind) {
    case kAllGather:
      return dot(me, 0, owner, r % share, j);
    case kAllToAll: {
      if (!combines)
        return dot(me, g, owner, me * share + r % share, j);
      int64_t at = me * share + r % share;
      double value = 0;
      for (int64_t i = 0; i < groups; ++i) {
        double one = dot(owner, i, owner, i * m + at, j);
        value += groups > 1
                     ? one * double(valueOf(2, owner, uint64_t(i * m + at)))
                     : one;
      }
      return value;
    }
    default:
      break;
    }
    if (kind == kReduceScatter)
      row += me * share;
    double value = 0;
    for (int member = 0; member < ranks; ++member)
      value += dot(member, 0, member, row, j);
    return value;
  }

  int32_t kind;
  bool combines, narrow;
  int me, ranks;
  int64_t m, n, k, groups, size = 4;
  MPI_Datatype mpiType;
  MPI_Op sum;
  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::matmul matmul;
  std::unordered_map<int, dnnl::memory> operands;
  std::vector<std::unique_ptr<char, decltype(&std::free)>> made;
  std::unique_ptr<char[]> input, factors;
  char *rows = nullptr, *product = nullptr, *result = nullptr, *mixed = nullptr;
};

class OneDnn final : public Backend {
public:
  OneDnn() {
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  }
  int rank() const override { return me; }
  int size() const override { return ranks; }
  std::string version() const override {
    const dnnl_version_t *v = dnnl_version();
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string mpi(text, size_t(length));
    return "oneDNN " + std::to_string(v->major) + "." +
           std::to_string(v->minor) + " + " + mpi.substr(0, mpi.find(','));
  }
  char *allocate(uint64_t) override { return none; } // of no bytes
  bool supports(const Call &) const override { return false; }
  void run(const Call &, const char *, char *) override {}
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  /// kPairMake makes one and gives its error, or nothing where oneDNN has no
  /// such product for this processor; kPairTurn takes steps and gives the time
  /// of each, us.
  std::vector<double> special(uint32_t what, const Call &call,
                              const std::vector<uint64_t> &a) override {
    if (what == kPairMake) {
      try {
        pair = std::make_unique<Pair>(call, a, me, ranks);
      } catch (const dnnl::error &error) {
        if (error.status != dnnl_unimplemented)
          throw;
        return {};
      }
      return {pair->check()};
    }
    std::vector<double> times(a[0]);
    for (double &time : times) {
      barrier();
      double began = microseconds();
      pair->step();
      time = microseconds() - began;
    }
    return times;
  }

private:
  std::unique_ptr<Pair> pair;
  char none[1] = {};
  int me = 0, ranks = 1;
};

} // namespace

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int code = 1;
  if (argc == 1 + Address::kArguments) {
    try {
      OneDnn backend;
      Address address;
      address.parse(argv + 1);
      // Each rank has a driver of its own.
      address.name += "-" + std::to_string(backend.rank());
      code = Station(backend, address).serve();
    } catch (const dnnl::error &error) {
      std::fprintf(stderr, "bench peer: oneDNN: %s\n", error.what());
    }
  }
  MPI_Finalize();
  return code;
}
