//===- Across.cpp - Single copies between processes -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operands outside the symmetric heap that peers read and write through the
// kernel (process_vm_readv, process_vm_writev): one copy instead of two through
// staging memory, for a fixed cost per call. What a reduction reads is fetched
// piece by piece into a part of the staging memory that stays in the L2 cache.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Direct.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/uio.h>

using namespace concord;
using namespace concord::rt;

namespace {

/// Bytes fetched at a time.
constexpr uint64_t kPiece = 64 * 1024;

/// Copy between this process and another; false with errno.
bool copyAcross(const View &view, uint64_t offset, char *here, uint64_t bytes,
                bool write) {
  while (bytes) {
    iovec near{here, bytes};
    iovec far{view.base + offset, bytes};
    ssize_t n = write ? ::process_vm_writev(view.process, &near, 1, &far, 1, 0)
                      : ::process_vm_readv(view.process, &near, 1, &far, 1, 0);
    if (n <= 0) {
      if (n == 0)
        errno = EFAULT;
      return false;
    }
    here += n;
    offset += uint64_t(n);
    bytes -= uint64_t(n);
  }
  return true;
}

} // namespace

int concord::rt::moveAcross(Op &op, uint64_t quantum, int &failed) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  const Arithmetic &arithmetic = *comm.context->arithmetic;
  int me = comm.me, size = comm.size;
  // From a member's operand into this process's memory, or the reverse.
  auto get = [&](int member, uint64_t offset, char *to, uint64_t bytes) {
    const View &view = comm.in[member];
    if (view.process) {
      failed = member;
      return copyAcross(view, offset, to, bytes, false);
    }
    void *target = to;
    if (view.base + offset != to)
      (op.cold ? arithmetic.streamSpread
               : arithmetic.spread)(view.base + offset, &target, 1, bytes);
    return true;
  };
  auto put = [&](int member, uint64_t offset, char *from, uint64_t bytes) {
    const View &view = comm.out[member];
    if (view.process) {
      failed = member;
      return copyAcross(view, offset, from, bytes, true);
    }
    void *target = view.base + offset;
    if (target != from)
      arithmetic.spread(from, &target, 1, bytes);
    return true;
  };
  // Take the next piece of `length` bytes. 1 at its end.
  auto advance = [&](uint64_t length, uint64_t most, auto step) {
    uint64_t end = std::min(length, op.position + quantum);
    do {
      uint64_t n = std::min(most, end - op.position);
      if (n && !step(op.position, n))
        return -1;
      op.position += n;
    } while (op.position < end);
    return op.position >= length ? 1 : 0;
  };
  switch (r.kind) {
  case Kind::AllReduce:
  case Kind::ReduceScatter: {
    bool scatter = r.kind == Kind::ReduceScatter;
    uint64_t begin =
        scatter ? uint64_t(me) * r.chunk : shareBegin(r.chunk, me, size);
    uint64_t end =
        scatter ? begin + r.chunk : shareBegin(r.chunk, me + 1, size);
    if (end <= begin)
      return 1;
    uint64_t piece =
        std::min(kPiece, comm.stagingBytes / uint64_t(size) / 64 * 64);
    size_t element = dtypeSize(r.dtype);
    return advance(end - begin, piece, [&](uint64_t at, uint64_t n) {
      const void *sources[kMaxRanks];
      uint64_t offset = begin + at;
      for (int member = 0; member < size; ++member) {
        sources[member] = comm.in[member].base + offset;
        if (!comm.in[member].process)
          continue;
        char *fetched = comm.staging + uint64_t(member) * piece;
        if (!get(member, offset, fetched, n))
          return false;
        sources[member] = fetched;
      }
      char *result = comm.out[me].base + (scatter ? at : offset);
      op.reduce(sources, size, result, n / element);
      for (int member = 0; !scatter && member < size; ++member)
        if (member != me && !put(member, offset, result, n))
          return false;
      return true;
    });
  }
  case Kind::AllGather:
    return advance(r.chunk, quantum, [&](uint64_t at, uint64_t n) {
      for (int i = 0; i < size; ++i)
        if (!put((me + i) % size, uint64_t(me) * r.chunk + at,
                 comm.in[me].base + at, n))
          return false;
      return true;
    });
  case Kind::AllToAll:
    while (op.peerIndex < size) {
      int from = (me + op.peerIndex) % size;
      int done = advance(r.chunk, quantum, [&](uint64_t at, uint64_t n) {
        return get(from, uint64_t(me) * r.chunk + at,
                   comm.out[me].base + uint64_t(from) * r.chunk + at, n);
      });
      if (done != 1)
        return done;
      op.position = 0;
      if (++op.peerIndex < size)
        return 0;
    }
    return 1;
  default: // broadcast
    return advance(r.chunk, quantum, [&](uint64_t at, uint64_t n) {
      return get(r.root, at, comm.out[me].base + at, n);
    });
  }
}
