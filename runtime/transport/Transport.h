/*===- Transport.h - What carries bytes between hosts -------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* The interface of a transport module: a shared object beside libconcord.so
|* that moves bytes between ranks of different hosts, loaded when a job spans
|* hosts and not before, so that the library itself depends on no network
|* library. docs/transport.md has the whole picture.
|*
|* A module moves bytes from one rank to another and nothing else: collectives,
|* order, fingerprints, reduction and death of peers are the engine's
|* (engine/Span.cpp, transport/Mesh.cpp). That is little enough for MPI, for a
|* socket or for verbs: `send` is a write into memory that the peer has given
|* with `receive`, in the order in which both sides have asked for it.
|*
|* Memory given to `send` and `receive` always belongs to the runtime (it lies
|* in the rank's own heap), so that a module may register it once, and so that
|* an operation that is given up never leaves a late write in a user's buffer.
|*
|* Threads: all calls come from one thread at a time.
|*
\*===----------------------------------------------------------------------===*/

#ifndef CONCORD_RUNTIME_TRANSPORT_TRANSPORT_H
#define CONCORD_RUNTIME_TRANSPORT_TRANSPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with every change of the struct below. */
#define CONCORD_TRANSPORT_ABI 1
#define CONCORD_TRANSPORT_SYMBOL "concord_transport_module"

/* One send or receive in flight. The module's own; 0: none. */
typedef uint64_t concord_transport_request;

/* What `test` answers. */
enum {
  CONCORD_TRANSPORT_FAILED = -1,
  CONCORD_TRANSPORT_PENDING = 0,
  CONCORD_TRANSPORT_DONE = 1
};

typedef struct concord_transport {
  uint32_t abi; /* CONCORD_TRANSPORT_ABI */
  uint32_t struct_size;
  /* Join the ranks that the launcher has started; blocks until all have come,
   * as the launcher promises they do. Says who this one is and, in `words`, the
   * library and its version. 0, or -1 with the reason in `words`. */
  int32_t (*open)(int32_t *rank, int32_t *world, char *words, uint64_t bytes);
  /* Bring-up: give `bytes` bytes and get those of all ranks, by rank. Every
   * rank calls it, with the same size. 0 or -1; ends when `test` says so. */
  int32_t (*exchange)(const void *mine, void *all, uint64_t bytes,
                      concord_transport_request *request);
  /* Send to, or receive from, a world rank. Messages between two ranks with one
   * tag arrive in the order in which they were sent, and are matched with the
   * receives in the order of those. `tag` is the receiver's choice, 0 ..
   * max_tag. A receive may be longer than the message. `synchronous`: done only
   * when the peer has begun to receive. Never blocks, never allocates memory
   * that it does not keep for the next. 0 or -1. */
  int32_t (*send)(int32_t rank, uint32_t tag, const void *data, uint64_t bytes,
                  int32_t synchronous, concord_transport_request *request);
  int32_t (*receive)(int32_t rank, uint32_t tag, void *data, uint64_t bytes,
                     concord_transport_request *request);
  /* Progress everything, and look whether one is done: then the request is 0
   * and, for a receive, `bytes` the message's length. */
  int32_t (*test)(concord_transport_request *request, uint64_t *bytes);
  /* Give up one that is in flight. Its memory must stay where it is until the
   * process ends: the module may still read or write it. */
  void (*abandon)(concord_transport_request *request, int32_t receiving);
  /* Words of the last failure. */
  const char *(*error)(void);
  uint32_t (*max_tag)(void);
  /* The rank leaves the job. `orderly` 0: others have failed, so nothing that
   * waits for them may be called, at the end of the process either. */
  void (*close)(int32_t orderly);
} concord_transport;

/* What the module exports, under CONCORD_TRANSPORT_SYMBOL. */
typedef const concord_transport *(*concord_transport_entry)(void);

#ifdef __cplusplus
}
#endif
#endif /* CONCORD_RUNTIME_TRANSPORT_TRANSPORT_H */
