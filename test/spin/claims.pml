/* claims.pml - Whoever runs takes the next piece
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/transport/shm/CommBlock.h, "Claims": all members publish, then the
 * pieces of the operation are taken one by one by compare-and-swap on `next`, and
 * counted on `finished`. A member may be late and find everything done: it takes
 * nothing and goes on. Both counters run on over all operations. Work takes two
 * steps, so that a member which leaves under it is seen.
 *
 * check: N=2
 * check: N=3
 * mutant: N=2 BLIND          (adds without a look at the end: takes of the next)
 * mutant: N=2 LEAVE_EARLY    (goes when none is left, not when all are finished)
 * mutant: N=2 COUNT_FIRST    (counts a piece before it is done)
 * mutant: N=2 NO_GATHER      (begins before all have published)
 */
#define PIECES 2
#if N == 2
#define OPS 3
#else
#define OPS 2
#endif

byte published[N], left[N];
byte next, finished;
byte doneCount[OPS * PIECES];

inline work(piece, op) {
  byte w;
  /* Nobody may use its buffers already, and all must have offered them. */
  for (w : 0 .. N - 1) {
    assert(published[w] >= op && left[w] < op)
  }
  doneCount[piece]++;
  for (w : 0 .. N - 1) {
    assert(left[w] < op)
  }
}

proctype member(byte me) {
  byte s, i, end, mine;
  bit got;
  for (s : 1 .. OPS) {
    published[me] = s;
    end = s * PIECES;
#ifndef NO_GATHER
    i = 0;
    do
    :: i < N -> (published[i] >= s); i++
    :: else -> break
    od;
#endif
    do
    :: true ->
#ifdef BLIND
       atomic { mine = next; next++ };
       if
       :: mine >= end -> break
       :: else
       fi;
       got = 1;
#else
       mine = next;
       if
       :: mine >= end -> break
       :: else
       fi;
       atomic {
         got = (next == mine);
         next = next + got
       };
#endif
       if
       :: got ->
#ifdef COUNT_FIRST
          finished++;
          work(mine, s)
#else
          work(mine, s);
          finished++
#endif
       :: else
       fi
    od;
#ifndef LEAVE_EARLY
    (finished >= end);
#endif
    atomic {
      for (i : (s - 1) * PIECES .. end - 1) {
        assert(doneCount[i] == 1)
      }
      left[me] = s
    }
  }
}

init {
  byte s;
  atomic {
    for (s : 0 .. N - 1) {
      run member(s)
    }
  }
}
