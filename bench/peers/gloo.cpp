//===- gloo.cpp - Gloo as a peer of comm-bench ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same operations through Gloo over TCP on the loopback device, the
// transport that it has within a host. Arguments: those of Station.h, then
// rank, number of ranks, and a folder in which the ranks find each other.
//
//===----------------------------------------------------------------------===//

#include "Station.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

using namespace concord::bench;

namespace {

using Function = void (*)(void *, const void *, const void *, size_t);

template <typename T> Function functionOf(int32_t reduction) {
  switch (reduction) {
  case kSum:
    return &gloo::sum<T>;
  case kProd:
    return &gloo::product<T>;
  case kMin:
    return &gloo::min<T>;
  case kMax:
    return &gloo::max<T>;
  default:
    return nullptr;
  }
}

class Gloo final : public Backend {
public:
  Gloo(int rank, int ranks, const std::string &folder) {
    gloo::transport::tcp::attr attribute("localhost");
    auto device = gloo::transport::tcp::CreateDevice(attribute);
    auto made = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    gloo::rendezvous::FileStore store(folder);
    made->connectFullMesh(store, device);
    context = made;
  }
  int rank() const override { return context->rank; }
  int size() const override { return context->size; }
  std::string version() const override { return "Gloo (Debian), TCP"; }
  char *allocate(uint64_t bytes) override {
    void *memory = nullptr;
    if (::posix_memalign(&memory, 4096, bytes) != 0)
      std::abort();
    return static_cast<char *>(memory);
  }
  bool supports(const Call &call) const override {
    switch (call.kind) {
    case kAllReduce:
    case kReduce: {
      bool wide = false;
      withType(call.type, [&](auto zero) {
        wide = functionOf<decltype(zero)>(call.reduction) != nullptr;
      });
      return wide;
    }
    case kAllGather:
    case kAllToAll:
    case kBroadcast:
    case kGather:
      return typeSize(call.type) != 0;
    case kBarrier:
      return true;
    default: // no reduce_scatter with an output of its own, no permutation
      return false;
    }
  }
  void run(const Call &call, const char *in, char *out) override {
    uint64_t bytes = call.count * typeSize(call.type);
    uint64_t all = bytes * uint64_t(context->size);
    auto *from = const_cast<char *>(in);
    switch (call.kind) {
    case kAllReduce:
      withType(call.type, [&](auto zero) {
        using T = decltype(zero);
        gloo::AllreduceOptions options(context);
        options.setInput(reinterpret_cast<T *>(from), call.count);
        options.setOutput(reinterpret_cast<T *>(out), call.count);
        options.setReduceFunction(functionOf<T>(call.reduction));
        gloo::allreduce(options);
      });
      return;
    case kReduce:
      withType(call.type, [&](auto zero) {
        using T = decltype(zero);
        gloo::ReduceOptions options(context);
        options.setInput(reinterpret_cast<T *>(from), call.count);
        options.setOutput(reinterpret_cast<T *>(out), call.count);
        options.setReduceFunction(functionOf<T>(call.reduction));
        options.setRoot(call.root);
        gloo::reduce(options);
      });
      return;
    case kAllGather: {
      gloo::AllgatherOptions options(context);
      options.setInput(from, bytes);
      options.setOutput(out, all);
      gloo::allgather(options);
      return;
    }
    case kAllToAll: {
      gloo::AlltoallOptions options(context);
      options.setInput(from, all);
      options.setOutput(out, all);
      gloo::alltoall(options);
      return;
    }
    case kBroadcast: {
      gloo::BroadcastOptions options(context);
      if (context->rank == call.root)
        options.setInput(from, bytes);
      options.setOutput(out, bytes);
      options.setRoot(call.root);
      gloo::broadcast(options);
      return;
    }
    case kGather: {
      gloo::GatherOptions options(context);
      options.setInput(from, bytes);
      if (context->rank == call.root)
        options.setOutput(out, all);
      options.setRoot(call.root);
      gloo::gather(options);
      return;
    }
    default:
      barrier();
    }
  }
  void barrier() override {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  }

private:
  std::shared_ptr<gloo::Context> context;
};

} // namespace

int main(int argc, char **argv) {
  if (argc != 4 + Address::kArguments)
    return 1;
  Address address;
  address.parse(argv + 1);
  char **more = argv + 1 + Address::kArguments;
  try {
    Gloo gloo(std::atoi(more[0]), std::atoi(more[1]), more[2]);
    return Station(gloo, address).serve();
  } catch (const std::exception &error) {
    std::fprintf(stderr, "gloo: %s\n", error.what());
    return 1;
  }
}
