/* fused_chunks.pml - A collective that computes: chunks with ready flags
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/engine/Fused.cpp. Every member publishes s (its slot), produces the
 * parts of the others' shares into its own partial sums, one tick after each, and
 * combines the parts of its own share from all partial sums, writing the result of
 * every member. One more tick, and it waits for all ticks. Which of producing and
 * combining it does when it could do both is left open here.
 *
 * Between two operations a member reads its results and scribbles over its partial
 * sums, as the computation around would. A read and a write take two steps, so that
 * one that is disturbed is seen.
 *
 * EXCHANGE: the result goes into the members' partial sums instead, which nobody
 * needs any more, and each member takes a share from its own as soon as the share's
 * owner has finished.
 * PLAIN: no product; the partial sums are complete when a member publishes.
 * GATHER: what a member has published is used by the others where it lies.
 * SCATTER: every member stores what it makes for another one in that one's result,
 * once it has published.
 *
 * check: N=2 PARTS=1 OPS=2
 * check: N=2 PARTS=2 OPS=2
 * check: N=3 PARTS=1 OPS=1
 * check: N=2 PARTS=2 OPS=2 EXCHANGE
 * check: N=2 PARTS=1 OPS=3 EXCHANGE
 * check: N=3 PARTS=1 OPS=1 EXCHANGE
 * check: N=2 PARTS=1 OPS=3 PLAIN
 * check: N=3 PARTS=1 OPS=1 PLAIN
 * check: N=2 PARTS=1 OPS=3 GATHER
 * check: N=2 PARTS=2 OPS=2 SCATTER
 * check: N=3 PARTS=1 OPS=1 SCATTER
 * mutant: N=2 PARTS=2 OPS=2 NO_TICK       (combines without looking at ticks)
 * mutant: N=2 PARTS=1 OPS=2 TICK_FIRST    (the tick comes before the part)
 * mutant: N=2 PARTS=2 OPS=2 NO_SETTLE     (returns without waiting for all)
 * mutant: N=2 PARTS=2 OPS=2 EXCHANGE NO_SETTLE (collects at once)
 * mutant: N=2 PARTS=2 OPS=2 EXCHANGE NO_TICK
 * mutant: N=2 PARTS=1 OPS=3 PLAIN NO_ENTER  (combines before all have published)
 * mutant: N=2 PARTS=1 OPS=3 GATHER NO_SETTLE
 * mutant: N=2 PARTS=1 OPS=3 SCATTER NO_SETTLE (returns before all have stored)
 * mutant: N=2 PARTS=1 OPS=3 SCATTER NO_ENTER (stores before the owner has published)
 * mutant: N=3 PARTS=1 OPS=1 OWN_ORDER     (counts parts in another order)
 */
#define ALL (N * PARTS)
#define RESULT 100 /* partial[] holds the result of operation s + RESULT */

typedef Member {
  byte sequence;     /* published */
  byte tick;
  byte partial[ALL]; /* operation that the part is of; 0: scribbled over */
  byte result[ALL];
};
Member m[N];

/* Number of parts that member q has produced when it has produced `part` for
 * `owner`: part by part, the owners after q in turn. */
#ifdef OWN_ORDER
#define UNTIL(q, owner, part) (part + 1)
#else
#define UNTIL(q, owner, part) ((part) * (N - 1) + ((owner) + N - (q)) % N)
#endif

proctype member(byte me) {
  byte s, i, p, base, produced, finished, owner, at;
  bool ready;
  for (s : 1 .. OPS) {
    /* computation around: results are read, partial sums are scratch */
    for (i : 0 .. ALL - 1) {
      assert(m[me].result[i] == s - 1 || s == 1);
#if defined(PLAIN) || defined(GATHER)
      m[me].partial[i] = s;
#else
      m[me].partial[i] = 0;
#endif
    }
    for (i : 0 .. ALL - 1) {
      assert(m[me].result[i] == s - 1 || s == 1);
    }
    /* the slot: all have published the operation before */
    for (i : 0 .. N - 1) {
      (m[i].sequence >= s - 1);
    }
    base = m[me].tick;
    m[me].sequence = s;
    produced = 0;
    finished = 0;
#ifdef GATHER
    for (i : 0 .. N - 1) {
      owner = (me + i) % N;
      (m[owner].sequence >= s);
      for (p : 0 .. PARTS - 1) {
        at = owner * PARTS + p;
        assert(m[owner].partial[at] == s);
        m[me].result[at] = 0;
        assert(m[owner].partial[at] == s);
        m[me].result[at] = s;
      }
    }
#elif defined(SCATTER)
    for (i : 0 .. N - 1) {
      owner = (me + i) % N;
#ifndef NO_ENTER
      (m[owner].sequence >= s);
#endif
      for (p : 0 .. PARTS - 1) {
        at = me * PARTS + p;
        m[owner].result[at] = 0;
        m[owner].result[at] = s;
      }
    }
#else
#ifdef PLAIN
    produced = PARTS * (N - 1);
#endif
    do
    :: finished == PARTS && produced == PARTS * (N - 1) -> break
    :: produced < PARTS * (N - 1) ->
       owner = (me + 1 + produced % (N - 1)) % N;
       at = owner * PARTS + produced / (N - 1);
       produced++;
#ifdef TICK_FIRST
       m[me].tick = base + produced;
       m[me].partial[at] = s;
#else
       m[me].partial[at] = s;
       m[me].tick = base + produced;
#endif
    :: finished < PARTS ->
       /* look once; nothing is waited for here */
       ready = true;
       for (i : 0 .. N - 1) {
         skip;
#ifndef NO_ENTER
         ready = ready && m[i].sequence >= s;
#endif
#if !defined(PLAIN) && !defined(NO_TICK)
         ready = ready &&
                 (i == me || m[i].tick >= base + UNTIL(i, me, finished));
#endif
       }
       if
       :: ready ->
          at = me * PARTS + finished;
          m[me].partial[at] = s;
          for (i : 0 .. N - 1) {
            assert(m[i].partial[at] == s);
          }
#ifdef EXCHANGE
          m[me].result[at] = s;
          for (i : 0 .. N - 1) {
            if
            :: i != me ->
               assert(m[i].partial[at] == s);
               m[i].partial[at] = s + RESULT
            :: else
            fi
          }
#else
          for (i : 0 .. N - 1) {
            m[i].result[at] = 0;
            m[i].result[at] = s;
          }
          for (i : 0 .. N - 1) {
            assert(m[i].partial[at] == s);
          }
#endif
          finished++
       :: else ->
          /* waits: some flag has to change before it looks again */
          i = 0;
          do
          :: i < N && (m[i].sequence >= s
#if !defined(PLAIN) && !defined(NO_TICK)
                       && (i == me || m[i].tick >= base + UNTIL(i, me, finished))
#endif
                      ) -> i++
          :: i < N && produced < PARTS * (N - 1) -> break
          :: i == N -> break
          od
       fi
    od;
#endif
#if defined(PLAIN) || defined(GATHER) || defined(SCATTER)
    m[me].tick = base + 1;
#else
    m[me].tick = base + PARTS * (N - 1) + 1;
#endif
#ifndef NO_SETTLE
    base = m[me].tick;
#endif
    for (i : 0 .. N - 1) {
      skip;
#ifndef NO_SETTLE
      (m[i].tick >= base);
#endif
#ifdef EXCHANGE
      if
      :: i != me ->
         for (p : 0 .. PARTS - 1) {
           at = i * PARTS + p;
           assert(m[me].partial[at] == s + RESULT);
           m[me].result[at] = 0;
           assert(m[me].partial[at] == s + RESULT);
           m[me].result[at] = s
         }
      :: else
      fi
#endif
    }
    for (i : 0 .. ALL - 1) {
      assert(m[me].result[i] == s);
    }
  }
}

init {
  byte r;
  atomic {
    for (r : 0 .. N - 1) {
      run member(r)
    }
  }
}
