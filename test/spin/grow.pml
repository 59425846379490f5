/* grow.pml - A communicator grows, or does not, for all of its members
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/context/Grow.cpp: N members compare over the parent, come into the
 * new job with one that joins (the last number), and take a verdict over the
 * parent. One of them may die at any point. The survivors among the members
 * agree; where they have not grown, who joined is told; and nobody waits for a
 * deadline but for one who was not there at all.
 *
 * check: N=2
 * check: N=3
 * mutant: N=2 NO_VERDICT     (each goes by what it has seen itself)
 * mutant: N=2 NO_ABORT       (who came in leaves without a word)
 * mutant: N=2 NO_LOOKOUT     (nobody looks at the parent while it waits)
 */
#define ALL (N + 1)

bool dead[ALL], joined[ALL], aborted;
byte word[2 * N];   /* of both exchanges: 0 none, 1 good, 2 bad */
byte result[ALL];   /* 0 none yet, 1 grown, 2 not */
bool oneDied;
byte done;

#if N == 2
#define joinedAll() (joined[0] && joined[1] && joined[2])
#define deadThere()                                                            \
  (joined[0] && dead[0] || joined[1] && dead[1] || joined[2] && dead[2])
#define deadMember() (dead[0] || dead[1])
#else
#define joinedAll() (joined[0] && joined[1] && joined[2] && joined[3])
#define deadThere()                                                            \
  (joined[0] && dead[0] || joined[1] && dead[1] || joined[2] && dead[2] ||     \
   joined[3] && dead[3])
#define deadMember() (dead[0] || dead[1] || dead[2])
#endif

#ifdef NO_LOOKOUT
#define LOOKOUT false
#else
#define LOOKOUT true
#endif

/* Processes are numbered as they are declared, so members come first. */
inline mayDie() {
  if
  :: atomic { !oneDied -> oneDied = true; dead[me] = true }; goto end
  :: skip
  fi
}

/* One word from each over the parent; who dies has said it, or breaks it. */
inline exchange(round, mine) {
  word[round * N + me] = mine;
  i = 0;
  do
  :: i == N -> break
  :: i < N && word[round * N + i] != 0 ->
     if
     :: word[round * N + i] == 2 -> good = false
     :: else
     fi;
     i++
  :: i < N && word[round * N + i] == 0 && dead[i] -> good = false; break
  od
}

/* Wait in the new job. The dead are seen there once they have joined, and in
 * the parent before; a deadline is for a joiner that never came. */
inline await(lookout, late) {
  if
  :: aborted -> good = false
  :: joinedAll() -> skip
  :: (deadThere() || (lookout && deadMember())) -> good = false; aborted = true
  :: timeout && (late) -> good = false
  fi
}

active [N] proctype member() {
  byte me = _pid;
  byte i;
  bool good = true, came = false;
  mayDie();
  exchange(0, 1);
  if
  :: good ->
     mayDie();
     joined[me] = true;
     mayDie();
     await(LOOKOUT, !joined[N]);
     mayDie();
     came = good;
#ifndef NO_VERDICT
     exchange(1, (good -> 1 : 2));
#ifndef NO_ABORT
     if
     :: came && !good -> aborted = true
     :: else
     fi;
#endif
#endif
  :: else
  fi;
  result[me] = (good -> 1 : 2);
end:
  atomic { done++ }
}

/* It knows of no parent: a new job is all that it sees. */
active proctype joiner() {
  byte me = N;
  bool good = true;
  mayDie();
  joined[me] = true;
  mayDie();
  await(false, true);
  result[me] = (good -> 1 : 2);
end:
  atomic { done++ }
}

active proctype judge() {
  byte i, grown, failed;
  done == ALL;
  for (i : 0 .. N - 1) {
    if
    :: !dead[i] && result[i] == 1 -> grown++
    :: !dead[i] && result[i] == 2 -> failed++
    :: else
    fi
  }
  assert(grown == 0 || failed == 0);
  /* Its next call says so, if the first did not. */
  assert(failed == 0 || dead[N] || result[N] == 2 || aborted);
}
