/* wake.pml - Deaths reach those that wait
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/engine/Wait.cpp and diagnosis/Watchdog.cpp: a rank that waits looks at
 * one counter and looks closer only when it has changed. The watchdog writes the
 * state first and counts then. A waiter may be asleep between two looks. Without
 * any clock, everybody whose peer died comes back.
 *
 * check: N=2
 * check: N=3
 * mutant: N=2 ANNOUNCE_FIRST (counts before it writes the state)
 * mutant: N=2 SEEN_LATE      (reads the counter after it has looked)
 */
byte events;
bool dead;      /* the state of the peer that is waited for */
bool arrived;   /* or it comes after all */

proctype waiter() {
  byte seen = 255, now;
  do
  :: arrived -> break
  :: else ->
     now = events;
     if
     :: now != seen ->
#ifndef SEEN_LATE
        seen = now;
#endif
        if
        :: dead -> break /* fails with PEER_DIED */
        :: else
        fi;
#ifdef SEEN_LATE
        seen = events;
#endif
     :: else ->
        /* Nothing new: sleep until something is. */
        (arrived || events != seen)
     fi
  od
}

proctype watchdog() {
#ifdef ANNOUNCE_FIRST
  events++;
  dead = true
#else
  dead = true;
  events++
#endif
}

proctype peer() {
  if
  :: arrived = true
  :: run watchdog() /* it died */
  fi
}

proctype bystander() { events++ } /* something else happened */

init {
  byte i;
  atomic {
    for (i : 1 .. N - 1) {
      run waiter()
    }
    run peer();
    run bystander()
  }
}
