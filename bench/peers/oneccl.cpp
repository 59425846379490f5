//===- oneccl.cpp - oneCCL as a peer of comm-bench ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same operations through oneCCL on host memory, over the Intel MPI that it
// comes with (its default transport). Arguments: those of Station.h, then the
// number of ranks, and a folder in which rank 0 leaves the address of its
// store; the rank is the launcher's.
//
//===----------------------------------------------------------------------===//

#include "Station.h"

#include <fstream>
#include <numeric>
#include <oneapi/ccl.hpp>

using namespace concord::bench;

namespace {

bool typeOf(int32_t type, ccl::datatype &out) {
  switch (type) {
  case kF32:
    out = ccl::datatype::float32;
    return true;
  case kF64:
    out = ccl::datatype::float64;
    return true;
  case kF16:
    out = ccl::datatype::float16;
    return true;
  case kBF16:
    out = ccl::datatype::bfloat16;
    return true;
  case kI8:
    out = ccl::datatype::int8;
    return true;
  case kI16:
    out = ccl::datatype::int16;
    return true;
  case kI32:
    out = ccl::datatype::int32;
    return true;
  case kI64:
    out = ccl::datatype::int64;
    return true;
  case kU8:
    out = ccl::datatype::uint8;
    return true;
  case kU16:
    out = ccl::datatype::uint16;
    return true;
  case kU32:
    out = ccl::datatype::uint32;
    return true;
  case kU64:
    out = ccl::datatype::uint64;
    return true;
  default:
    return false;
  }
}

bool reductionOf(int32_t reduction, ccl::reduction &out) {
  switch (reduction) {
  case kSum:
    out = ccl::reduction::sum;
    return true;
  case kProd:
    out = ccl::reduction::prod;
    return true;
  case kMin:
    out = ccl::reduction::min;
    return true;
  case kMax:
    out = ccl::reduction::max;
    return true;
  default:
    return false;
  }
}

ccl::shared_ptr_class<ccl::kvs> meet(int rank, const std::string &folder) {
  std::string path = folder + "/oneccl";
  if (rank == 0) {
    auto store = ccl::create_main_kvs();
    auto address = store->get_address();
    std::ofstream(path + ".part", std::ios::binary)
        .write(reinterpret_cast<const char *>(address.data()),
               std::streamsize(address.size()));
    if (::rename((path + ".part").c_str(), path.c_str()) != 0)
      throw std::runtime_error(path + ": " + std::strerror(errno));
    return store;
  }
  // The driver ends a peer that does not come up in time.
  while (::access(path.c_str(), R_OK) != 0)
    ::usleep(1000);
  ccl::kvs::address_type address;
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char *>(address.data()),
            std::streamsize(address.size()));
  return ccl::create_kvs(address);
}

class OneCcl final : public Backend {
public:
  OneCcl(int rank, int ranks, const std::string &folder)
      : comm(ccl::create_communicator(ranks, rank, meet(rank, folder))) {}
  int rank() const override { return comm.rank(); }
  int size() const override { return comm.size(); }
  std::string version() const override {
    auto v = ccl::get_library_version();
    return "oneCCL " + std::to_string(v.major) + "." + std::to_string(v.minor) +
           "." + std::to_string(v.update);
  }
  char *allocate(uint64_t bytes) override {
    void *memory = nullptr;
    if (::posix_memalign(&memory, 4096, bytes) != 0)
      std::abort();
    return static_cast<char *>(memory);
  }
  bool supports(const Call &call) const override {
    ccl::datatype type;
    ccl::reduction reduction;
    switch (call.kind) {
    case kAllReduce:
    case kReduceScatter:
    case kReduce:
      return typeOf(call.type, type) && reductionOf(call.reduction, reduction);
    case kAllGather:
    case kAllToAll:
    case kBroadcast:
      return typeOf(call.type, type);
    case kBarrier:
      return true;
    default:
      return false;
    }
  }
  void run(const Call &call, const char *in, char *out) override {
    ccl::datatype type = ccl::datatype::int8;
    ccl::reduction reduction = ccl::reduction::sum;
    typeOf(call.type, type);
    reductionOf(call.reduction, reduction);
    switch (call.kind) {
    case kAllReduce:
      ccl::allreduce(in, out, call.count, type, reduction, comm).wait();
      return;
    case kReduceScatter:
      ccl::reduce_scatter(in, out, call.count, type, reduction, comm).wait();
      return;
    case kReduce:
      ccl::reduce(in, out, call.count, type, reduction, call.root, comm).wait();
      return;
    case kAllGather:
      ccl::allgather(in, out, call.count, type, comm).wait();
      return;
    case kAllToAll:
      ccl::alltoall(in, out, call.count, type, comm).wait();
      return;
    case kBroadcast:
      // In place on every rank.
      if (comm.rank() == call.root)
        std::memcpy(out, in, call.count * typeSize(call.type));
      ccl::broadcast(out, call.count, type, call.root, comm).wait();
      return;
    default:
      barrier();
    }
  }
  void barrier() override { ccl::barrier(comm); }

private:
  ccl::communicator comm;
};

} // namespace

int main(int argc, char **argv) {
  if (argc != 3 + Address::kArguments)
    return 1;
  Address address;
  address.parse(argv + 1);
  char **more = argv + 1 + Address::kArguments;
  const char *rank = std::getenv("PMI_RANK");
  try {
    if (!rank)
      throw std::runtime_error("not started by mpiexec.hydra");
    ccl::init();
    OneCcl backend(std::atoi(rank), std::atoi(more[0]), more[1]);
    return Station(backend, address).serve();
  } catch (const std::exception &error) {
    std::fprintf(stderr, "oneccl: %s\n", error.what());
    return 1;
  }
}
