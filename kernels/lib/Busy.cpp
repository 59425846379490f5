//===- Busy.cpp - The `busy` kernel ---------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Computation of a known time, for programs that measure what communication
// costs and what of it can be hidden: it keeps its core busy and polls as often
// as others do, and never sleeps. Where ranks outnumber cores it is a timed
// wait (`yield`): what passes while another rank has the core counts, too.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"
#include "Poll.h"

#include <cstring>
#include <sched.h>
#include <time.h>

namespace concord::kernels {
namespace {

class Busy final : public Kernel {
public:
  explicit Busy(const Description &d)
      : bytes(d.size("bytes", 0)), nanoseconds(d.size("ns", 0)),
        yields(d.flag("yield", false)) {
    int64_t inputs = d.i64("inputs", 1);
    if (inputs < 1 || inputs > kMaxInputs)
      invalidArgument("busy: inputs is " + std::to_string(inputs) +
                      "; it takes 1 to " + std::to_string(kMaxInputs));
    numInputs = uint32_t(inputs);
  }

  int32_t run(void *const *pointers, void *) const override {
    const int64_t until = now() + nanoseconds;
    std::memcpy(pointers[numInputs], pointers[0], size_t(bytes));
    Poller poller;
    for (int64_t last = now(); last < until;) {
      if (yields)
        ::sched_yield();
      int64_t time = now();
      poller.work(time - last);
      last = time;
    }
    return kOk;
  }

private:
  static constexpr int64_t kMaxInputs = 16;

  static int64_t now() {
    timespec t;
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
  }

  int64_t bytes, nanoseconds;
  bool yields;
};

} // namespace

void registerBusy(Registry &registry);
void registerBusy(Registry &registry) { registry.add("busy", make<Busy>); }

} // namespace concord::kernels
