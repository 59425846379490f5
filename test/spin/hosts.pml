/* hosts.pml - A collective between hosts, by rounds
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/engine/Span.cpp: headers and segments of an all_reduce on two hosts with
 * two members each. LANES 2: each is the agent of a lane; 1: only the first of each
 * host is, the other one ticks for both phases at once. The first of each host is its
 * leader: it hears its host, exchanges headers with the other leader, and ticks; the
 * other one reads the headers in its memory, one of two by the parity of the
 * operation. An agent reads both inputs of its host, exchanges its lane with the far
 * agent, and both read both lanes. Memory is written again only when nobody reads it:
 * not the other member, and not the transport, which may read what is sent until it
 * has been received.
 *
 * check: OPS=2 SEGMENTS=2 LANES=2
 * check: OPS=2 SEGMENTS=2 LANES=1
 * check: OPS=4 SEGMENTS=0 LANES=1  (all of it travels with the headers)
 * mutant: OPS=1 SEGMENTS=2 LANES=2 EARLY      (ticks before its lane is complete)
 * mutant: OPS=1 SEGMENTS=2 LANES=2 UNSHARED   (does not wait for the other lane)
 * mutant: OPS=1 SEGMENTS=2 LANES=2 UNSENT     (does not wait for what it sends)
 * mutant: OPS=1 SEGMENTS=1 LANES=2 NOCOLLECT  (reduces before the other input is there)
 * mutant: OPS=2 SEGMENTS=0 LANES=1 UNTOLD     (reads the headers before the leader's tick)
 * mutant: OPS=4 SEGMENTS=0 LANES=1 UNHEARD    (the leader does not wait for its host)
 */
#define MEMBERS 4

byte slot[MEMBERS];    /* operation that is published */
byte head[4];          /* by host and parity: operation whose headers it has */
byte headSent[2];      /* by host */
byte input[MEMBERS];   /* segment, over all operations, that the area holds */
byte lane[MEMBERS];    /* likewise: 2 v its host's part, 2 v + 1 the whole */
byte tick[MEMBERS];
byte sent[MEMBERS];    /* by agents */
byte taken[MEMBERS];   /* by the receiver */

active [MEMBERS] proctype member() {
  byte other = (_pid % 2 == 0 -> _pid + 1 : _pid - 1);
  byte far = (_pid < 2 -> _pid + 2 : _pid - 2);
  byte host = _pid / 2;
  byte s, g, v = 0, t = 0;
  for (s : 1 .. OPS) {
    slot[_pid] = s;
    /* The leader needs all of its host before it speaks for it. */
    if
    :: _pid % 2 == 0 ->
#ifndef UNHEARD
       (slot[other] >= s);
#endif
       headSent[host] = s;
       (headSent[1 - host] >= s);
       head[2 * host + s % 2] = s;
       t++;
       tick[_pid] = t
    :: else ->
       (slot[other] >= s);
       t++;
       tick[_pid] = t;
#ifndef UNTOLD
       (tick[other] >= t);
#endif
       assert(head[2 * host + s % 2] == s)
    fi;
    t++;
    tick[_pid] = t;
    g = 0;
    do
    :: g == SEGMENTS -> break
    :: else ->
        g++;
        v++;
        input[_pid] = v;
        t++;
        tick[_pid] = t;
        if
        :: _pid % 2 < LANES ->
#ifndef NOCOLLECT
           (tick[other] >= t);
#endif
           assert(input[other] == v);
           lane[_pid] = 2 * v;
#ifdef EARLY
           t++;
           tick[_pid] = t;
#endif
           sent[_pid] = v;
           /* The transport reads what is sent only now. */
           (sent[far] >= v);
           atomic {
             assert(lane[far] == 2 * v);
             taken[far] = v
           }
#ifndef UNSENT
           (taken[_pid] >= v);
#endif
           lane[_pid] = 2 * v + 1;
#ifndef EARLY
           t++;
           tick[_pid] = t
#endif
        :: else ->
           t++;
           tick[_pid] = t
        fi;
#ifndef UNSHARED
        (tick[other] >= t);
#endif
        assert(_pid % 2 >= LANES || lane[_pid] == 2 * v + 1);
        assert(other % 2 >= LANES || lane[other] == 2 * v + 1);
        /* Nobody waits for this one: who writes a lane again has first seen the
         * next segment's input, or the next operation's slot, of its readers. */
        t++;
        tick[_pid] = t
    od
  }
}
