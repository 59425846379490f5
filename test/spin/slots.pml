/* slots.pml - Chunk ready, chunk consumed: K slots per member
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/transport/shm/CommBlock.h, "Slots": operation s uses slot s mod K of
 * every member (K is 2 here where it is not given; the runtime has 8). A member fills it, then stores s; peers read it once they see s.
 * There is no closing barrier: before it fills a slot a member makes sure that
 * all have published s - K + 1, so that they are done with s - K. Where it does
 * not know that yet it waits for s - K/2 and knows it for some operations. Who
 * has read all members' slots knows it, too. Operations are
 * all-to-all (every member reads every other) or rooted (they read member 0
 * only), chosen freely; reading takes two steps, so that a slot that is written
 * under a reader is seen.
 *
 * check: N=2
 * check: N=3
 * check: N=2 K=4
 * check: N=2 K=8
 * check: N=3 K=3
 * mutant: N=2 NO_KNOWN       (does not make sure that all have published s - K + 1)
 * mutant: N=2 K=3 LATE=1     (is content with s - K)
 * mutant: N=3 K=3 TRUST      (takes one member's slot for all)
 * mutant: N=2 ONE_SLOT       (one slot instead of K)
 * mutant: N=2 STORE_FIRST    (stores s before the payload)
 */
#ifndef K
#define K 2
#endif
#ifndef LATE
#define LATE 0
#endif
#if N == 2
#define OPS (K + 2)
#else
#define OPS (K + 1)
#endif
/* What all must have published before slot s is filled, and what is waited for
 * where that is not known. */
#define LEAST(s) (s - K + 1 - LATE)
#if LATE
#define AWAITED(s) LEAST(s)
#else
#define AWAITED(s) (s - K / 2)
#endif

#ifdef ONE_SLOT
#define SLOT(s) 0
#else
#define SLOT(s) ((s) % K)
#endif

typedef Member {
  byte sequence[K];
  byte payload[K];
};
Member m[N];
bit rooted[OPS + 1];

proctype member(byte me) {
  byte s, i, first, known;
  for (s : 1 .. OPS) {
#ifndef NO_KNOWN
    if
    :: s >= K + LATE && known < LEAST(s) ->
       i = 0;
       do
       :: i < N -> (m[i].sequence[SLOT(AWAITED(s))] >= AWAITED(s)); i++
       :: else -> break
       od;
       known = AWAITED(s)
    :: else
    fi;
#endif
#ifdef STORE_FIRST
    m[me].sequence[SLOT(s)] = s;
    m[me].payload[SLOT(s)] = s;
#else
    m[me].payload[SLOT(s)] = s;
    m[me].sequence[SLOT(s)] = s;
#endif
    i = 0;
    do
    :: i < N && (!rooted[s] || i == 0) && i != me ->
       (m[i].sequence[SLOT(s)] >= s);
       first = m[i].payload[SLOT(s)];
       assert(first == s);
       assert(m[i].payload[SLOT(s)] == s); /* the second half of the read */
       i++
    :: i < N && ((rooted[s] && i != 0) || i == me) -> i++
    :: i >= N -> break
    od;
    if
#ifdef TRUST
    :: known = s
#else
    :: !rooted[s] || (N == 2 && me != 0) -> known = s
    :: else
#endif
    fi
  }
}

init {
  byte s;
  atomic {
    for (s : 1 .. OPS) {
      if
      :: rooted[s] = 0
      :: rooted[s] = 1
      fi
    }
    for (s : 0 .. N - 1) {
      run member(s)
    }
  }
}
