/* hosts.pml - A collective that goes by hosts
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/engine/Span.cpp: the segments of an all_reduce on two hosts with two
 * members each; SCATTER: of a reduce_scatter, which ends after the sums. A member reads the input, the result, and what has arrived, of
 * the other one on its host in place; ticks say when. The other host's member at
 * the same place is its delegate there. Memory is written again only when nobody
 * reads it: not by the other member, and not by the transport, which may read
 * what is sent until it has been received.
 *
 * check: SEGMENTS=2
 * check: SEGMENTS=2 SCATTER
 * mutant: SEGMENTS=2 EARLY              (ticks before the results have arrived)
 * mutant: SEGMENTS=2 SCATTER NORELEASE  (does not wait for the readers)
 * mutant: SEGMENTS=2 SCATTER UNSENT     (does not wait for what it sends)
 * mutant: SEGMENTS=2 NOPARTIAL          (sums before the other input is there)
 */
#define MEMBERS 4

byte input[MEMBERS];   /* segment that the area holds */
byte result[MEMBERS];
byte arrived[MEMBERS]; /* 2 s: the sum for its share, 2 s + 1: the result */
byte tick[MEMBERS];
byte sent[MEMBERS];    /* as arrived, of what is posted to the delegate */
byte taken[MEMBERS];   /* by the receiver */

/* The transport reads what is sent only now. */
#define RECEIVE(what, area) \
  (sent[far] >= what); \
  atomic { \
    assert(area[far] == s); \
    arrived[_pid] = what; \
    taken[far] = what \
  }

active [MEMBERS] proctype member() {
  byte other = (_pid % 2 == 0 -> _pid + 1 : _pid - 1);
  byte far = (_pid < 2 -> _pid + 2 : _pid - 2);
  byte s, t = 0;
  for (s : 1 .. SEGMENTS) {
    input[_pid] = s;
    t++;
    tick[_pid] = t;
#ifndef NOPARTIAL
    (tick[other] >= t);
#endif
    assert(input[other] == s); /* the sum for the far owner */
    sent[_pid] = 2 * s;
    RECEIVE((2 * s), input);
    assert(input[other] == s);
    result[_pid] = s;
#ifndef SCATTER
#ifdef EARLY
    t++;
    tick[_pid] = t;
#endif
    (taken[_pid] >= 2 * s); /* one message at a time in this model */
    sent[_pid] = 2 * s + 1;
    RECEIVE((2 * s + 1), result);
#ifndef EARLY
    t++;
    tick[_pid] = t;
#endif
    (tick[other] >= t);
    assert(result[other] == s && arrived[other] == 2 * s + 1);
#endif
    t++;
    tick[_pid] = t;
#ifndef UNSENT
#ifdef SCATTER
    (taken[_pid] >= 2 * s);
#else
    (taken[_pid] >= 2 * s + 1);
#endif
#endif
#ifndef NORELEASE
    (tick[other] >= t)
#endif
  }
}
