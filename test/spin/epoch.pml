/* epoch.pml - A block of flags changes hands
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/context/Comm.cpp: members find their block by key; a block goes back,
 * zeroed, when every member has released it, and the next communicator may get
 * it then. Nobody may see a flag of the former epoch in the new one, and nobody
 * may write to a block that is no longer its own.
 *
 * check: N=2
 * check: N=3
 * mutant: N=2 ZERO_EARLY     (the first to release gives the block back)
 * mutant: N=2 NOT_ZEROED     (given back as it is)
 */
#define EPOCHS 2

byte key;          /* 0: free, else the epoch that owns it */
byte released;
byte flag[N];      /* 16 * epoch once published */
bool lock;

inline take() { atomic { !lock -> lock = true } }
inline give() { lock = false }

active [N] proctype member() {
  byte me = _pid;
  byte epoch, i;
  for (epoch : 1 .. EPOCHS) {
    /* makeComm: the block of this key, or a free one. */
    do
    :: take();
       if
       :: key == epoch -> give(); break
       :: key == 0 -> key = epoch; released = 0; give(); break
       :: else -> give(); (key == 0 || key == epoch)
       fi
    od;
    /* One operation: publish, wait for all. */
    assert(key == epoch);
    assert(flag[me] == 0);
    flag[me] = 16 + epoch;
    i = 0;
    do
    :: i < N ->
       (flag[i] != 0);
       assert(flag[i] == 16 + epoch);
       i++
    :: else -> break
    od;
    /* dropComm */
    take();
    released++;
#ifdef ZERO_EARLY
    if
    :: released >= 1 ->
#else
    if
    :: released == N ->
#endif
#ifndef NOT_ZEROED
       for (i : 0 .. N - 1) {
         flag[i] = 0
       }
#endif
       key = 0
    :: else
    fi;
    give()
  }
}
