//===- mpi.cpp - Open MPI or MPICH as a peer of comm-bench ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same operations through an MPI library; compiled once per library, as a
// program that comm-bench starts by mpirun, or, with CONCORD_BENCH_MODULE, as a
// module that it loads where mpirun has started comm-bench itself.
//
//===----------------------------------------------------------------------===//

#include "Station.h"

#include <mpi.h>

using namespace concord::bench;

namespace {

MPI_Datatype typeOf(int32_t type) {
  switch (type) {
  case kF32:
    return MPI_FLOAT;
  case kF64:
    return MPI_DOUBLE;
  case kI8:
    return MPI_INT8_T;
  case kI16:
    return MPI_INT16_T;
  case kI32:
    return MPI_INT32_T;
  case kI64:
    return MPI_INT64_T;
  case kU8:
    return MPI_UINT8_T;
  case kU16:
    return MPI_UINT16_T;
  case kU32:
    return MPI_UINT32_T;
  case kU64:
    return MPI_UINT64_T;
  default:
    return MPI_DATATYPE_NULL;
  }
}

MPI_Op opOf(int32_t reduction) {
  switch (reduction) {
  case kSum:
    return MPI_SUM;
  case kProd:
    return MPI_PROD;
  case kMin:
    return MPI_MIN;
  case kMax:
    return MPI_MAX;
  case kAnd:
    return MPI_BAND;
  case kOr:
    return MPI_BOR;
  default:
    return MPI_OP_NULL;
  }
}

class Mpi final : public Backend {
public:
  explicit Mpi(const std::string &split) {
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &worldRanks);
    int color = 0;
    if (!split.empty() && splitColor(split, world, color))
      MPI_Comm_split(MPI_COMM_WORLD, color, world, &group);
    MPI_Comm_rank(group, &me);
    MPI_Comm_size(group, &ranks);
  }
  int rank() const override { return me; }
  int size() const override { return ranks; }
  int worldRank() const override { return world; }
  int worldSize() const override { return worldRanks; }
  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string first(text, size_t(length));
    for (char &c : first)
      if (c == '\t')
        c = ' ';
    return first.substr(0, first.find_first_of(",\n"));
  }
  char *allocate(uint64_t bytes) override {
    void *memory = nullptr;
    if (::posix_memalign(&memory, 4096, bytes) != 0)
      MPI_Abort(MPI_COMM_WORLD, 1);
    return static_cast<char *>(memory);
  }
  bool supports(const Call &call) const override {
    if (call.kind == kBarrier)
      return true;
    if (call.count > INT32_MAX)
      return false;
    bool reduces = call.kind == kAllReduce || call.kind == kReduceScatter ||
                   call.kind == kReduce;
    // Narrow floats have no MPI type, but can be moved as 16-bit integers.
    if (reduces)
      return typeOf(call.type) != MPI_DATATYPE_NULL &&
             opOf(call.reduction) != MPI_OP_NULL;
    return typeSize(call.type) != 0;
  }
  void run(const Call &call, const char *in, char *out) override {
    MPI_Datatype type = typeOf(call.type);
    if (type == MPI_DATATYPE_NULL && call.type)
      type = MPI_UINT16_T;
    int n = int(call.count), root = call.root;
    switch (call.kind) {
    case kAllReduce:
      MPI_Allreduce(in, out, n, type, opOf(call.reduction), group);
      return;
    case kReduceScatter:
      MPI_Reduce_scatter_block(in, out, n, type, opOf(call.reduction), group);
      return;
    case kReduce:
      MPI_Reduce(in, out, n, type, opOf(call.reduction), root, group);
      return;
    case kAllGather:
      MPI_Allgather(in, n, type, out, n, type, group);
      return;
    case kAllToAll:
      MPI_Alltoall(in, n, type, out, n, type, group);
      return;
    case kBroadcast:
      // MPI broadcasts in place: the root's copy belongs to the operation.
      if (me == root)
        std::memcpy(out, in, call.count * typeSize(call.type));
      MPI_Bcast(out, n, type, root, group);
      return;
    case kGather:
      MPI_Gather(in, n, type, out, n, type, root, group);
      return;
    case kScatter:
      MPI_Scatter(in, n, type, out, n, type, root, group);
      return;
    case kPermute:
    case kSendRecv:
      MPI_Sendrecv(in, n, type, (me + 1) % ranks, 0, out, n, type,
                   (me + ranks - 1) % ranks, 0, group, MPI_STATUS_IGNORE);
      return;
    default:
      MPI_Barrier(group);
    }
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  std::vector<double> pair(int a, int b, uint64_t bytes,
                           uint64_t iterations) override {
    barrier();
    if (world != a && world != b)
      return {};
    std::vector<char> data(bytes);
    int peer = world == a ? b : a, n = int(bytes);
    double began = 0;
    for (uint64_t i = 0; i <= iterations; ++i) {
      if (i == 1)
        began = microseconds();
      if (world == a)
        MPI_Send(data.data(), n, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
      MPI_Recv(data.data(), n, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
      if (world == b)
        MPI_Send(data.data(), n, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    }
    return {(microseconds() - began) / double(2 * iterations)};
  }

private:
  MPI_Comm group = MPI_COMM_WORLD;
  int me = 0, ranks = 1, world = 0, worldRanks = 1;
};

} // namespace

#ifdef CONCORD_BENCH_MODULE

/// MPI is Concord's where its ranks are on several hosts, else nobody's yet.
extern "C" __attribute__((visibility("default"))) Backend *
concord_bench_backend(const char *split) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (!initialized) {
    MPI_Init(nullptr, nullptr);
    std::atexit([] { MPI_Finalize(); });
  }
  return new Mpi(split);
}

#else

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int code = 1;
  if (argc == 1 + Address::kArguments) {
    Address address;
    address.parse(argv + 1);
    Mpi mpi(address.split);
    code = Station(mpi, address).serve();
  }
  MPI_Finalize();
  return code;
}

#endif
