//===- Rounds.h - Who sends what to whom, round by round --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The forms of collectives between hosts, as schedules of messages: pairwise,
// ring, recursive doubling and halving, binomial tree. A schedule is for n
// participants that all hold, or want, an array of n blocks; block b belongs to
// participant b. It says nothing of bytes or memory, and is computed alike by
// all (engine/SpanForms.cpp carries it out).
//
// Order of a reduction: what arrives in a round and the own value are taken in
// the order of the participants they come from. Each block's value is computed
// once, or by operations that are the same at all who compute it, so all have
// the same bits.
//
// Sources: Thakur, Rabenseifner and Gropp, "Optimization of Collective
// Communication Operations in MPICH" (2005); Patarasu and Yuan, "Bandwidth
// optimal all-reduce algorithms" (2009), for the ring; van de Geijn's broadcast
// of scatter and ring; Bruck et al. (1997) for the gathering of headers
// (engine/SpanHeads.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ALGORITHMS_ROUNDS_H
#define CONCORD_RUNTIME_ALGORITHMS_ROUNDS_H

#include "algorithms/Score.h"

#include <cstdint>
#include <string>
#include <vector>

namespace concord::rt {

/// One message of one participant: the blocks [first, last), which are always
/// consecutive.
struct Transfer {
  uint8_t round;
  uint8_t peer;
  bool sends;
  bool reduces; ///< received: becomes part of the own value, else replaces it
  uint8_t first, last;
};

/// The messages of participant `me` of `size`, in the order of their rounds; at
/// most one in each direction with a peer in a round, and all reductions of a
/// round are of the same blocks. `rounds` is replaced; its memory is kept.
/// False when the kind has no such form. Root: of broadcast and reduce.
///
/// At the end of all_reduce, all_gather and broadcast everybody has all blocks,
/// of reduce_scatter its own, of reduce the root has all.
bool makeRounds(plan::Kind kind, Form form, int size, int me, int root,
                std::vector<Transfer> &rounds);

/// How many messages a schedule can have at most.
constexpr int mostTransfers(int size) { return 4 * size + 8; }

/// What a link between hosts costs.
struct Link {
  double latency = 0; ///< seconds from one host's send to the other's receive
  double message = 0; ///< seconds of a host's time for each further message
  double byte = 0;    ///< seconds per byte in one direction
};

/// "30us,10gbit", or with the cost of a message between, "30us,4us,10gbit".
/// Throws Error that says what is wrong.
Link parseLink(const std::string &text);

/// Seconds of a form by alpha and beta: `bytes` of the whole array on each
/// host. Negative when the kind has no such form.
double secondsOfRounds(plan::Kind kind, Form form, int size, uint64_t bytes,
                       const Link &link);

/// The form that costs least, the first of the list of several that cost the
/// same.
Form cheapestRounds(plan::Kind kind, int size, uint64_t bytes,
                    const Link &link);

/// The number of rounds in which everybody hears of everybody.
constexpr int gatherRounds(int size) {
  int rounds = 0;
  while ((1 << rounds) < size)
    ++rounds;
  return rounds;
}

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_ROUNDS_H
