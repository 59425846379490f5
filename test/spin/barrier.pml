/* barrier.pml - The ticks of a communicator
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/transport/shm/CommBlock.h, "Ticks": a member that has finished phase n
 * stores n to its tick and goes on when all ticks have reached n. No member may
 * be in phase n + 1 before all have finished n, and none may wait for ever.
 *
 * check: N=2
 * check: N=3
 * mutant: N=2 SKIP_LAST      (does not look at the last member)
 * mutant: N=3 STORE_LATE     (stores its tick after it has waited)
 */
#define PHASES 3

byte tick[N];
byte finished[N]; /* ghost: phases whose work is done */

active [N] proctype member() {
  byte me = _pid;
  byte n, i;
  for (n : 1 .. PHASES) {
    finished[me] = n; /* the work of the phase */
#ifndef STORE_LATE
    tick[me] = n;
#endif
    i = 0;
    do
#ifdef SKIP_LAST
    :: i < N - 1 -> (tick[i] >= n); i++
#else
    :: i < N -> (tick[i] >= n); i++
#endif
    :: else -> break
    od;
#ifdef STORE_LATE
    tick[me] = n;
#endif
    for (i : 0 .. N - 1) {
      assert(finished[i] >= n)
    }
  }
}
