/* mailbox.pml - Point-to-point messages in parts
 *
 * Part of the Concord project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * runtime/engine/P2p.cpp: the sender fills the mailbox when the last part was
 * taken and stores `posted`; the receiver reads it and stores `taken`. Each part
 * arrives once, whole, in order; with both directions at once nobody hangs.
 *
 * check: N=2
 * mutant: N=2 NO_TAKEN       (fills the mailbox without looking at `taken`)
 * mutant: N=2 TAKEN_EARLY    (stores `taken` before it has read)
 */
#define PARTS 4

typedef Box {
  byte posted, taken, payload;
};
Box box[2]; /* box[i]: from member i to the other */

proctype sender(byte me) {
  byte part;
  for (part : 1 .. PARTS) {
#ifndef NO_TAKEN
    (box[me].taken >= part - 1);
#endif
    box[me].payload = part;
    box[me].posted = part
  }
}

proctype receiver(byte from) {
  byte part;
  for (part : 1 .. PARTS) {
    (box[from].posted >= part);
#ifdef TAKEN_EARLY
    box[from].taken = part;
#endif
    assert(box[from].payload == part);
    assert(box[from].payload == part); /* copying takes a while */
    box[from].taken = part
  }
}

init {
  byte i;
  atomic {
    for (i : 0 .. 1) {
      run sender(i);
      run receiver(i)
    }
  }
}
