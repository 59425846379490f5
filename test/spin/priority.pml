/* priority.pml - The switch to an operation of higher priority
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/engine/Engine.cpp, progress(): operations are advanced chunk by chunk,
 * by priority, and one that is blocked does not hold up another. Even when the
 * ranks issue a high and a low operation in different orders, both complete; and
 * no chunk of the low one is moved while a chunk of the high one could be.
 *
 * check: N=2
 * check: N=3
 * mutant: N=2 BLOCKING       (runs what was issued first to its end)
 * mutant: N=2 LOW_FIRST      (polls in the wrong order)
 */
#define CHUNKS 2
#define HIGH 0
#define LOW 1

byte chunk[2 * N];      /* chunks finished: [op * N + rank] */
bool issued[2 * N];

#define AT(op, rank) ((op) * N + (rank))

/* A rank may move chunk c + 1 when every rank has finished c. */
inline ready(op, yes) {
  yes = issued[AT(op, me)] && chunk[AT(op, me)] < CHUNKS;
  i = 0;
  do
  :: i < N ->
     yes = yes && issued[AT(op, i)] && chunk[AT(op, i)] >= chunk[AT(op, me)];
     i++
  :: else -> break
  od
}

inline issue(op) {
  issued[AT(op, me)] = true
}

proctype rank(byte me) {
  byte i, next = 0, op;
  bool high, low;
  do
  :: chunk[AT(HIGH, me)] == CHUNKS && chunk[AT(LOW, me)] == CHUNKS -> break
  :: else ->
     if
     :: next < 2 ->
        /* Odd ranks issue the low one first. */
        op = ((me & 1) + next) & 1;
        issue(op);
        next++;
#ifdef BLOCKING
        do
        :: chunk[AT(op, me)] == CHUNKS -> break
        :: else ->
           d_step { ready(op, high); }
           if
           :: high -> chunk[AT(op, me)]++
           :: else -> /* wait until some rank moves */
              (issued[AT(op, (me + 1) % N)] &&
               chunk[AT(op, (me + 1) % N)] >= chunk[AT(op, me)])
           fi
        od
#endif
     :: true
     fi;
     atomic {
       d_step { ready(HIGH, high); ready(LOW, low); }
       if
#ifdef LOW_FIRST
       :: low -> assert(!high); chunk[AT(LOW, me)]++
       :: !low && high -> chunk[AT(HIGH, me)]++
#else
       :: high -> chunk[AT(HIGH, me)]++
       :: !high && low -> assert(!high); chunk[AT(LOW, me)]++
#endif
       :: else
       fi
     }
  od
}

init {
  byte r;
  atomic {
    for (r : 0 .. N - 1) {
      run rank(r)
    }
  }
}
