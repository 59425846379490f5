/*===- concord.h - The C ABI of the runtime -----------------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* Contract (a) of the design, plain C11. Three lists are the only place where
|* an error, an enumerator or an entry point is written down: CONCORD_ERRORS,
|* CONCORD_KINDS / CONCORD_REDUCTIONS and CONCORD_ENTRIES; declarations, the
|* documentation page and lookup tables are made from them.
|*
|* Conventions. Functions return 0 (CONCORD_OK) or an error number;
|* concord_last_error() then has the words. No function throws. All state hangs
|* off a context; there are no process globals (the text of the last error is
|* per thread). One context is one rank. Structs that cross the ABI begin with
|* `struct_size`, set by the caller to sizeof its own version; a smaller struct
|* than the library's is accepted and the fields it lacks take their default,
|* which is what all-zero bytes mean; one of size 0 was forgotten, an error.
Strings are UTF-8, NUL-terminated, and are
|* copied unless it is said otherwise. Counts are in elements unless the name
|* says bytes. Thread-safety: a context, and all that is made from it, may be
|* used by one thread at a time at CONCORD_THREAD_SINGLE and _SERIALIZED, and by
|* any number at _MULTIPLE; different contexts are independent.
|*
|* What is declared but not built returns CONCORD_ERROR_NOT_SUPPORTED.
|*
\*===----------------------------------------------------------------------===*/

#ifndef CONCORD_CONCORD_H
#define CONCORD_CONCORD_H

#include "concord/artefact.h"
#include "concord/dtype.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONCORD_VERSION_MAJOR 0
#define CONCORD_VERSION_MINOR 1
#define CONCORD_VERSION_PATCH 0
/* Version of this ABI, compared between the ranks of a job at bring-up. */
#define CONCORD_ABI_VERSION 1

/*===-- Errors ------------------------------------------------------------===*/

/* X(NAME, number, message, cause, cure). Numbers never change. */
#define CONCORD_ERRORS(X)                                                      \
  X(INVALID_ARGUMENT, 1, "invalid argument",                                   \
    "A pointer, count, rank, dtype or size given to the call is not usable.",  \
    "Correct the argument that the message names; nothing was changed.")       \
  X(NOT_SUPPORTED, 2, "not supported",                                         \
    "The function, or this combination of arguments, is not built.",           \
    "Use what the message suggests, or a later version.")                      \
  X(OUT_OF_MEMORY, 3, "out of memory",                                         \
    "The symmetric heap, or the system, has no room for the request.",         \
    "Raise CONCORD_HEAP_BYTES, or free buffers.")                              \
  X(SYSTEM, 4, "system error",                                                 \
    "A system call failed; the message has its name and errno.",               \
    "Look at limits (descriptors, memory, permissions) on this host.")         \
  X(TIMEOUT, 5, "timed out",                                                   \
    "A peer did not arrive, or did not finish, within CONCORD_TIMEOUT.",       \
    "The message names the rank: is it stopped, stuck in compute, or on "      \
    "another operation? Raise CONCORD_TIMEOUT if it is only slow.")            \
  X(PEER_DIED, 6, "a peer died",                                               \
    "The process of the named rank ended while others still needed it.",       \
    "Look at that rank's own output and exit status; restart the job.")        \
  X(PEER_LEFT, 7, "a peer has left",                                           \
    "The named rank finalized its context while others wait for it.",          \
    "Ranks disagree about how many operations there are; compare programs.")   \
  X(MISMATCH, 8, "members disagree about an operation",                        \
    "Kind, count, dtype, root or reduction differ between two members.",       \
    "The message has both sides; make the members issue the same operation.")  \
  X(BROKEN, 9, "communicator is broken",                                       \
    "An earlier operation on it failed; the first error says how.",            \
    "Abort it and make a new one from the members that are left.")             \
  X(REVOKED, 10, "communicator was revoked",                                   \
    "A member called concord_comm_revoke.",                                    \
    "Shrink or split to a new communicator.")                                  \
  X(ABORTED, 11, "job was aborted", "A rank called concord_context_abort.",    \
    "Look for the first error in that rank's output.")                         \
  X(VERSION_MISMATCH, 12, "versions differ",                                   \
    "A file or a peer was made for another ABI version.",                      \
    "Use one version of Concord; compile the program again.")                  \
  X(NOT_FOUND, 13, "not found", "A file or a named thing does not exist.",     \
    "Check the name.")                                                         \
  X(CORRUPT, 14, "malformed data",                                             \
    "A file is truncated or inconsistent; the message says where.",            \
    "Make the file again.")                                                    \
  X(WRONG_WORLD, 15, "wrong number of ranks",                                  \
    "The program was compiled for another number of ranks.",                   \
    "Start as many ranks as it was compiled for, or compile it again.")        \
  X(WRONG_CPU, 16, "wrong processor",                                          \
    "The program was compiled for another processor class.",                   \
    "Compile it on, or for, this class of machine.")                           \
  X(PLAN_DIFFERS, 17, "ranks loaded different programs",                       \
    "The digests of the plans differ; the message names the first site.",      \
    "Start all ranks with the same artefact.")                                 \
  X(THREAD, 18, "used by two threads at once",                                 \
    "Two threads are inside one context under a thread level that forbids "    \
    "it.",                                                                     \
    "Create the context with CONCORD_THREAD_MULTIPLE, or add a lock.")         \
  X(RANK_TAKEN, 19, "rank is already taken",                                   \
    "Another process has joined the job under the same rank.",                 \
    "Give every process its own CONCORD_RANK.")                                \
  X(BUSY, 20, "operations are in flight",                                      \
    "The object still has unfinished operations.", "Drain it first.")          \
  X(NOT_READY, 21, "not finished yet",                                         \
    "The operation or event that was asked about has not completed.",          \
    "Ask again, or wait.")                                                     \
  X(KERNEL, 22, "a kernel failed",                                             \
    "A compute kernel returned an error, or differs from its description.",    \
    "The message has the kernel's own words.")                                 \
  X(PLAN, 24, "not what the plan says",                                        \
    "An issue differs from the next one of its issuer in the loaded plan, or " \
    "is not in it.",                                                           \
    "The message has both; make the call as planned, or compile the plan "     \
    "again.")                                                                  \
  X(LATE_ISSUER, 25, "an issuer did not take its turn",                        \
    "Another issuer of this rank did not issue what the plan has next within " \
    "CONCORD_GATE_TIMEOUT, or its thread has ended.",                          \
    "The message names issuer and site: look at that thread. Raise "           \
    "CONCORD_GATE_TIMEOUT if it is only slow.")                                \
  X(INTERNAL, 23, "internal error", "A check inside Concord failed.",          \
    "Please report the message.")                                              \
  X(DEVICE_MAPPING, 26, "rank and device do not agree",                        \
    "Rank table, visible devices and physical device contradict each other, "  \
    "or two ranks use one device.",                                            \
    "The message names rank and device; compare CONCORD_VISIBLE_DEVICES, the " \
    "local rank and the rank table.")

typedef enum concord_status {
  CONCORD_OK = 0,
#define X(name, number, message, cause, cure) CONCORD_ERROR_##name = number,
  CONCORD_ERRORS(X)
#undef X
} concord_status;

/*===-- Enumerations (numbers as in concord/plan.h) -----------------------===*/

#define CONCORD_KINDS(X)                                                       \
  X(ALL_REDUCE, 1, "all_reduce")                                               \
  X(ALL_GATHER, 2, "all_gather")                                               \
  X(REDUCE_SCATTER, 3, "reduce_scatter")                                       \
  X(ALL_TO_ALL, 4, "all_to_all")                                               \
  X(BROADCAST, 5, "broadcast")                                                 \
  X(REDUCE, 6, "reduce")                                                       \
  X(GATHER, 7, "gather")                                                       \
  X(SCATTER, 8, "scatter")                                                     \
  X(PERMUTE, 9, "permute")                                                     \
  X(SEND, 10, "send")                                                          \
  X(RECV, 11, "recv")                                                          \
  X(BARRIER, 12, "barrier")                                                    \
  X(GROUP, 13, "group")                                                        \
  X(ROUND_DECISION, 14, "round_decision")

typedef enum concord_kind {
#define X(name, number, text) CONCORD_KIND_##name = number,
  CONCORD_KINDS(X)
#undef X
} concord_kind;

/* Floats: f16 and bf16 are accumulated in f32 and rounded once. Integers wrap;
 * avg of integers truncates toward zero. and / or are bitwise on integers,
 * logical on bool; on bool, sum and max mean or, prod and min mean and. min and
 * max hand a NaN on. fp8 is data only: it cannot be reduced. */
#define CONCORD_REDUCTIONS(X)                                                  \
  X(NONE, 0, "none")                                                           \
  X(SUM, 1, "sum")                                                             \
  X(PROD, 2, "prod")                                                           \
  X(MIN, 3, "min")                                                             \
  X(MAX, 4, "max")                                                             \
  X(AVG, 5, "avg")                                                             \
  X(AND, 6, "and")                                                             \
  X(OR, 7, "or")

typedef enum concord_reduction {
#define X(name, number, text) CONCORD_REDUCTION_##name = number,
  CONCORD_REDUCTIONS(X)
#undef X
} concord_reduction;

typedef enum concord_thread_level {
  CONCORD_THREAD_SINGLE = 0,     /* one thread ever */
  CONCORD_THREAD_SERIALIZED = 1, /* one at a time; two at once are detected */
  CONCORD_THREAD_MULTIPLE = 2    /* any */
} concord_thread_level;

typedef enum concord_gate_mode {
  CONCORD_GATE_DEFAULT = 0, /* what the program asks for */
  CONCORD_GATE_OFF = 1,     /* no comparison between members */
  CONCORD_GATE_RECORD = 2,  /* remember the order of issues */
  CONCORD_GATE_CHECK = 3,   /* compare every issue with plan and peers */
  CONCORD_GATE_HOLD = 4     /* and hold an issue until its turn */
} concord_gate_mode;

typedef enum concord_rank_state {
  CONCORD_RANK_MISSING = 0, /* has not joined */
  CONCORD_RANK_RUNNING = 1,
  CONCORD_RANK_WAITING = 2, /* inside an operation, for a while */
  CONCORD_RANK_FINALIZED = 3,
  CONCORD_RANK_ABORTED = 4,
  CONCORD_RANK_DEAD = 5
} concord_rank_state;

/*===-- Objects and structs -----------------------------------------------===*/

typedef struct concord_context concord_context; /* one rank of one job */
typedef struct concord_job concord_job;         /* a job within one process */
typedef struct concord_comm concord_comm;       /* one group of ranks */
typedef struct concord_stream concord_stream;   /* an ordered queue */
typedef struct concord_event concord_event;     /* a point of a stream */
typedef struct concord_program concord_program; /* a loaded artefact */
typedef struct concord_pool concord_pool; /* communicators kept for reuse */

/* Names a job for processes without a common launcher. Made by one process and
 * carried to the others by the application; holds no address. */
typedef struct concord_unique_id {
  uint8_t bytes[128];
} concord_unique_id;

typedef struct concord_device_desc {
  uint32_t struct_size;
  const char *kind;   /* "cpu" */
  uint32_t plane;     /* devices of one plane reach each other */
  uint32_t alignment; /* bytes that buffers should be aligned to */
  double bandwidth;   /* bytes per second, of one device */
  int32_t visible_id; /* number under which the device is visible */
  int32_t physical_id;
} concord_device_desc;

typedef struct concord_rank_entry {
  uint32_t struct_size;
  int32_t rank;
  int64_t pid;   /* 0 when not known */
  int32_t core;  /* first core of its affinity mask, or -1 */
  int32_t state; /* concord_rank_state */
  char host[64];
} concord_rank_entry;

/* All zero: everything from the environment (CONCORD_RANK, CONCORD_WORLD,
 * CONCORD_JOB_FD, ...), as a launcher sets it; without any, a job of one rank.
 */
typedef struct concord_context_config {
  uint32_t struct_size;
  uint32_t abi_version; /* CONCORD_ABI_VERSION, or 0 for it */
  int32_t thread_level; /* concord_thread_level */
  int32_t rank;         /* with job or unique_id */
  int32_t world;        /* with unique_id */
  concord_job *job;     /* ranks as threads of this process */
  const concord_unique_id *unique_id;
  uint64_t heap_bytes;    /* address space per rank; 0: CONCORD_HEAP_BYTES */
  double timeout_seconds; /* 0: CONCORD_TIMEOUT, default 300; < 0: for ever */
  double connect_timeout_seconds; /* 0: CONCORD_CONNECT_TIMEOUT, default 120 */
  const concord_device_desc *device; /* NULL: the CPU */
  int32_t gate_mode;                 /* concord_gate_mode */
  int32_t stage_always; /* tests: treat heap buffers as foreign ones */
  /* How long an issue waits for its turn. 0: CONCORD_GATE_TIMEOUT, default the
   * timeout; < 0: for ever. */
  double gate_timeout_seconds;
  /* Communication slots of the device, which a launch holds until it is done.
   * 0: CONCORD_DEVICE_SLOTS, default no limit. */
  uint32_t device_slots;
  const char *rank_table;  /* file; NULL: CONCORD_RANK_TABLE */
  const char *device_file; /* device descriptions; NULL: CONCORD_DEVICE_FILE */
} concord_context_config;

typedef struct concord_comm_config {
  uint32_t struct_size;
  const char *name; /* for messages; "" is made up */
  int32_t priority; /* higher goes first */
} concord_comm_config;

/* Budgets of a pool; 0: none. All members of its parent give the same. */
typedef struct concord_pool_config {
  uint32_t struct_size;
  uint32_t max_comms;       /* kept at a time, in use or idle */
  uint64_t max_bytes;       /* of flags and staging that they may take */
  uint64_t max_connections; /* pairs of members, summed over communicators */
} concord_pool_config;

typedef struct concord_pool_stats {
  uint32_t struct_size;
  uint32_t in_use, idle;       /* communicators now */
  uint64_t bytes, connections; /* what they count against the budgets */
  uint64_t hits, misses, evictions;
} concord_pool_stats;

/* One message of concord_batch_p2p. */
typedef struct concord_p2p {
  int32_t send; /* 1 send, 0 receive */
  int32_t peer; /* group rank */
  void *buffer;
  uint64_t count;
  int32_t dtype;
} concord_p2p;

/* State of one rank as its peers can see it. */
typedef struct concord_live_status {
  uint32_t struct_size;
  int32_t state;     /* concord_rank_state */
  uint32_t site;     /* site it waits at, or ~0u */
  int32_t kind;      /* concord_kind it waits in, or 0 */
  uint64_t sequence; /* of that operation on its communicator */
  char domain[32];
} concord_live_status;

typedef struct concord_program_options {
  uint32_t struct_size;
  int32_t verify_weights; /* 1: compare SHA-256 of every section at load */
  int32_t gate_mode;      /* concord_gate_mode */
  /* Called for every issue of a step, of all issuers, in ns. `phase`: 0 begins,
   * 1 returns, 3 the host begins to wait (if not at once), 2 completed. */
  void (*trace)(void *user, uint32_t site, int32_t phase, int64_t nanoseconds);
  void *trace_user;
} concord_program_options;

/* An input or output of a program. Strings and arrays belong to the program. */
typedef struct concord_entry {
  uint32_t struct_size;
  const char *name;
  int32_t dtype;
  uint32_t rank; /* number of dimensions */
  const int64_t *global_shape;
  const int64_t *local_shape; /* what this rank reads or writes, dense */
  uint64_t local_bytes;
  int64_t arena_offset;      /* or -1 */
  const char *sharding_json; /* the artefact's own text */
} concord_entry;

/* A bounded dimension of a program (comm-opt --dim seq=1..512). */
typedef struct concord_dim {
  uint32_t struct_size;
  const char *name;
  int64_t min, max;
  int64_t size; /* of the shapes in use; the maximum after load */
} concord_dim;

typedef struct concord_program_info {
  uint32_t struct_size;
  const char *name;
  int32_t world;
  uint64_t arena_bytes;
  uint64_t weight_bytes; /* mapped for this rank */
  uint32_t num_sites;
  uint32_t num_kernels;
  const char *digest; /* 64 hex digits */
  const char *meta_json;
} concord_program_info;

/*===-- Entry points ------------------------------------------------------===*/

/* X(chapter, return type, name, (parameters), what it does) */
#define CONCORD_ENTRIES(X)                                                     \
  CONCORD_ENTRIES_CONTEXT(X)                                                   \
  CONCORD_ENTRIES_COMM(X)                                                      \
  CONCORD_ENTRIES_POOL(X)                                                      \
  CONCORD_ENTRIES_COLLECTIVES(X)                                               \
  CONCORD_ENTRIES_PROGRAM(X)

#define CONCORD_ENTRIES_CONTEXT(X)                                             \
  X("library", uint32_t, concord_version, (void),                              \
    "major * 10000 + minor * 100 + patch of the library.")                     \
  X("library", uint32_t, concord_abi_version, (void),                          \
    "CONCORD_ABI_VERSION of the library.")                                     \
  X("library", const char *, concord_last_error, (void),                       \
    "Words of the last failure in this thread; never NULL; valid until the "   \
    "next failure in the thread.")                                             \
  X("library", const char *, concord_status_name, (int32_t status),            \
    "`CONCORD_OK`, `CONCORD_ERROR_TIMEOUT`, ...; never NULL.")                 \
  X("library", const char *, concord_status_text,                              \
    (int32_t status, int32_t what),                                            \
    "Documented message (what = 0), cause (1) or cure (2) of a status.")       \
  X("job", int32_t, concord_job_create,                                        \
    (int32_t world, uint64_t heap_bytes, concord_job **out),                   \
    "A job whose ranks are threads of this process. heap_bytes per rank, 0 "   \
    "for the default. Each thread then creates its context with config.job.")  \
  X("job", int32_t, concord_job_destroy, (concord_job * job),                  \
    "Release it, after all its contexts were finalized; else BUSY.")           \
  X("job", int32_t, concord_unique_id_create, (concord_unique_id * out),       \
    "A fresh name for a job of processes without a common launcher.")          \
  X("context", int32_t, concord_context_create,                                \
    (const concord_context_config *config, concord_context **out),             \
    "Join a job. Collective: returns when all ranks have joined, or fails "    \
    "naming those that are missing. config may be NULL.")                      \
  X("context", int32_t, concord_context_finalize, (concord_context * context), \
    "Leave in good order: waits for what is in flight, then releases the "     \
    "context and all that was made from it. Does not wait for peers.")         \
  X("context", int32_t, concord_context_abort,                                 \
    (concord_context * context, const char *reason),                           \
    "Make every call of every rank of the job return ABORTED. May be called "  \
    "from any thread.")                                                        \
  X("context", int32_t, concord_context_rank,                                  \
    (const concord_context *context, int32_t *rank, int32_t *world),           \
    "World rank and number of ranks.")                                         \
  X("context", int32_t, concord_context_rank_table,                            \
    (concord_context * context, concord_rank_entry * entries, uint32_t count), \
    "Fill count entries (struct_size set in each), world rank i in entry i.")  \
  X("context", int32_t, concord_context_device,                                \
    (const concord_context *context, int32_t rank, concord_device_desc *out),  \
    "Device description of a rank.")                                           \
  X("context", int32_t, concord_context_async_error,                           \
    (concord_context * context, int32_t *status),                              \
    "First error seen by the watchdog or by an operation in flight; OK if "    \
    "none. Never blocks; may be called from any thread.")                      \
  X("context", int32_t, concord_live_status_query,                             \
    (concord_context * context, int32_t rank, concord_live_status *out),       \
    "What a rank is doing, as its peers can see it. Never blocks.")            \
  X("heap", int32_t, concord_heap_alloc,                                       \
    (concord_context * context, uint64_t bytes, uint64_t align, void **out),   \
    "Memory of the symmetric heap, zero-filled when first used, that peers "   \
    "read in place. align: a power of two, 0 for 64. Local.")                  \
  X("heap", int32_t, concord_heap_free,                                        \
    (concord_context * context, void *pointer),                                \
    "Give heap memory back; NULL does nothing.")                               \
  X("heap", int32_t, concord_buffer_register,                                  \
    (concord_context * context, void *pointer, uint64_t bytes),                \
    "Announce a foreign buffer, so that its pages are ready for staging.")     \
  X("heap", int32_t, concord_buffer_deregister,                                \
    (concord_context * context, void *pointer), "Undo the former.")

#define CONCORD_ENTRIES_COMM(X)                                                \
  X("communicator", int32_t, concord_comm_world,                               \
    (concord_context * context, concord_comm * *out),                          \
    "The communicator of all ranks; belongs to the context.")                  \
  X("communicator", int32_t, concord_comm_split,                               \
    (concord_comm * parent, int32_t color, int32_t key,                        \
     const concord_comm_config *config, concord_comm **out),                   \
    "Collective over parent: members of one color form a group, in order of "  \
    "key, then parent rank. A negative color gets *out = NULL.")               \
  X("communicator", int32_t, concord_comm_create_group,                        \
    (concord_context * context, const int32_t *world_ranks, uint32_t count,    \
     const concord_comm_config *config, concord_comm **out),                   \
    "Collective over the listed ranks only, which give the same list and "     \
    "name; the list's order is the group order.")                              \
  X("communicator", int32_t, concord_comm_shrink,                              \
    (concord_comm * parent, const concord_comm_config *config,                 \
     concord_comm **out),                                                      \
    "A communicator of the members of parent that are alive. Collective over " \
    "those; parent may be broken or revoked.")                                 \
  X("communicator", int32_t, concord_comm_grow,                                \
    (concord_comm * parent, int32_t new_world, const concord_unique_id *id,    \
     concord_comm **out),                                                      \
    "A communicator of new_world ranks: the members of parent, which keep "    \
    "their group ranks, and the processes that call concord_context_create "   \
    "with the same unique id, new_world and one of the other ranks each. "     \
    "Collective over parent, on which nothing may be in flight and which "     \
    "stays as it is. id is good once and may be NULL but at group rank 0. "    \
    "All members succeed or all get the same error, within five times the "    \
    "connect timeout at most. *out has a context of its own "                  \
    "(concord_comm_context), which goes when *out is destroyed. One host.")    \
  X("communicator", int32_t, concord_comm_context,                             \
    (concord_comm * comm, concord_context * *out),                             \
    "The context that it belongs to: for heap memory, streams and programs.")  \
  X("communicator", int32_t, concord_comm_rank,                                \
    (const concord_comm *comm, int32_t *rank, int32_t *size),                  \
    "Group rank and size.")                                                    \
  X("communicator", int32_t, concord_comm_drain, (concord_comm * comm),        \
    "Wait for every operation of this rank that is in flight on it.")          \
  X("communicator", int32_t, concord_comm_revoke, (concord_comm * comm),       \
    "Make operations on it fail with REVOKED at every member.")                \
  X("communicator", int32_t, concord_comm_abort, (concord_comm * comm),        \
    "Drop what is in flight, tell the peers, and destroy.")                    \
  X("communicator", int32_t, concord_comm_destroy, (concord_comm * comm),      \
    "Release; BUSY while operations are in flight. NULL does nothing.")        \
  X("communicator", int32_t, concord_comm_last_form,                           \
    (const concord_comm *comm, char *text, uint64_t bytes),                    \
    "How this rank's last collective on it was done, and why: up to bytes, "   \
    "ending with 0.")                                                          \
  X("communicator", int32_t, concord_comm_async_error,                         \
    (concord_comm * comm, int32_t *status),                                    \
    "First error of this communicator; OK if none.")                           \
  X("stream", int32_t, concord_stream_create,                                  \
    (concord_context * context, int32_t priority, concord_stream **out),       \
    "An ordered queue of operations. Operations on stream NULL have "          \
    "completed when the call returns.")                                        \
  X("stream", int32_t, concord_stream_destroy, (concord_stream * stream),      \
    "Release; BUSY while operations are in flight.")                           \
  X("stream", int32_t, concord_stream_synchronize, (concord_stream * stream),  \
    "Wait until the stream is empty; returns its first error.")                \
  X("stream", int32_t, concord_stream_query, (concord_stream * stream),        \
    "OK when empty, NOT_READY when not.")                                      \
  X("stream", int32_t, concord_stream_wait_event,                              \
    (concord_stream * stream, concord_event * event),                          \
    "Later operations of the stream start after the event.")                   \
  X("event", int32_t, concord_event_create,                                    \
    (concord_context * context, concord_event * *out),                         \
    "An event, not recorded.")                                                 \
  X("event", int32_t, concord_event_destroy, (concord_event * event),          \
    "Release it.")                                                             \
  X("event", int32_t, concord_event_record,                                    \
    (concord_event * event, concord_stream * stream),                          \
    "It happens when what the stream holds now has completed.")                \
  X("event", int32_t, concord_event_query, (concord_event * event),            \
    "OK when it has happened or was never recorded, else NOT_READY.")          \
  X("event", int32_t, concord_event_synchronize, (concord_event * event),      \
    "Wait for it.")                                                            \
  X("group", int32_t, concord_group_start, (concord_context * context),        \
    "Calls until the matching group end, of the same thread at "               \
    "CONCORD_THREAD_MULTIPLE, are started together. Nests.")                   \
  X("group", int32_t, concord_group_end, (concord_context * context),          \
    "Start what was collected; wait for those that are on stream NULL.")       \
  X("stream", int32_t, concord_device_synchronize,                             \
    (concord_context * context),                                               \
    "Wait until all that this rank has issued, on every stream and from "      \
    "every thread, has completed; returns the first error of a stream.")       \
  X("engine", void, concord_poll, (struct concord_context * context),          \
    "Let the engine make progress; called at tile boundaries. Never blocks.")

#define CONCORD_ENTRIES_POOL(X)                                                \
  X("pool", int32_t, concord_pool_create,                                      \
    (concord_comm * parent, const concord_pool_config *config,                 \
     concord_pool **out),                                                      \
    "A pool of communicators over members of parent. This and the following "  \
    "are called by every member of parent, in the same order with the same "   \
    "arguments, so that all decide alike what is reused and what goes.")       \
  X("pool", int32_t, concord_pool_acquire,                                     \
    (concord_pool * pool, const int32_t *members, uint32_t count,              \
     const concord_comm_config *config, int32_t resident, uint32_t *ticket,    \
     concord_comm **out),                                                      \
    "A communicator of these group ranks of parent: an idle one of the same "  \
    "members and priority, at no cost, else a new one. Over a budget, idle "   \
    "temporary ones go, the least recently used first; resident ones stay. "   \
    "*out is NULL where this rank is not listed; ticket gives it back.")       \
  X("pool", int32_t, concord_pool_release,                                     \
    (concord_pool * pool, uint32_t ticket, int32_t discard),                   \
    "Give it back after it was drained; discard 1 destroys it (needed when "   \
    "it is broken). BUSY while operations are in flight.")                     \
  X("pool", int32_t, concord_pool_stats_query,                                 \
    (const concord_pool *pool, concord_pool_stats *out),                       \
    "What it holds and how often it could reuse.")                             \
  X("pool", int32_t, concord_pool_destroy, (concord_pool * pool),              \
    "Destroy it and its idle communicators; BUSY while one is in use. NULL "   \
    "does nothing.")

#define CONCORD_ENTRIES_COLLECTIVES(X)                                         \
  X("collective", int32_t, concord_all_reduce,                                 \
    (concord_comm * comm, const void *in, void *out, uint64_t count,           \
     int32_t dtype, int32_t reduction, concord_stream *stream),                \
    "out = reduction of all members' in, in group-rank order, the same bits "  \
    "at every member. In place: in == out.")                                   \
  X("collective", int32_t, concord_all_gather,                                 \
    (concord_comm * comm, const void *in, void *out, uint64_t count,           \
     int32_t dtype, concord_stream *stream),                                   \
    "out = the members' in, count elements each, in group-rank order. In "     \
    "place: in == out + rank * count.")                                        \
  X("collective", int32_t, concord_all_gather_v,                               \
    (concord_comm * comm, const void *in, void *out, const uint64_t *counts,   \
     int32_t dtype, concord_stream *stream),                                   \
    "The same with counts[r] elements from member r, packed.")                 \
  X("collective", int32_t, concord_reduce_scatter,                             \
    (concord_comm * comm, const void *in, void *out, uint64_t count,           \
     int32_t dtype, int32_t reduction, concord_stream *stream),                \
    "in has size * count elements; out = this member's count of the "          \
    "reduction. In place: out == in + rank * count.")                          \
  X("collective", int32_t, concord_reduce_scatter_v,                           \
    (concord_comm * comm, const void *in, void *out, const uint64_t *counts,   \
     int32_t dtype, int32_t reduction, concord_stream *stream),                \
    "The same with counts[r] elements for member r, packed.")                  \
  X("collective", int32_t, concord_all_to_all,                                 \
    (concord_comm * comm, const void *in, void *out, uint64_t count,           \
     int32_t dtype, concord_stream *stream),                                   \
    "Chunk r of in goes to chunk rank of member r's out; count elements a "    \
    "chunk. In place: in == out.")                                             \
  X("collective", int32_t, concord_all_to_all_v,                               \
    (concord_comm * comm, const void *in, void *out,                           \
     const uint64_t *send_counts, const uint64_t *recv_counts, int32_t dtype,  \
     concord_stream *stream),                                                  \
    "The same with a count per member each way, packed. Not in place.")        \
  X("collective", int32_t, concord_broadcast,                                  \
    (concord_comm * comm, const void *in, void *out, uint64_t count,           \
     int32_t dtype, int32_t root, concord_stream *stream),                     \
    "out = root's in. in is looked at only at root.")                          \
  X("collective", int32_t, concord_reduce,                                     \
    (concord_comm * comm, const void *in, void *out, uint64_t count,           \
     int32_t dtype, int32_t reduction, int32_t root, concord_stream *stream),  \
    "As all_reduce, to root only; out is looked at only at root.")             \
  X("collective", int32_t, concord_gather,                                     \
    (concord_comm * comm, const void *in, void *out, uint64_t count,           \
     int32_t dtype, int32_t root, concord_stream *stream),                     \
    "As all_gather, to root only.")                                            \
  X("collective", int32_t, concord_scatter,                                    \
    (concord_comm * comm, const void *in, void *out, uint64_t count,           \
     int32_t dtype, int32_t root, concord_stream *stream),                     \
    "out = chunk rank of root's in.")                                          \
  X("collective", int32_t, concord_permute,                                    \
    (concord_comm * comm, const void *in, void *out, uint64_t count,           \
     int32_t dtype, const int32_t *pairs, uint32_t num_pairs,                  \
     concord_stream *stream),                                                  \
    "pairs holds (source, target) group ranks, the same list at every "        \
    "member, "                                                                 \
    "each target at most once; out = source's in; zeros where no pair has "    \
    "this rank as target.")                                                    \
  X("collective", int32_t, concord_send,                                       \
    (concord_comm * comm, const void *buffer, uint64_t count, int32_t dtype,   \
     int32_t peer, concord_stream *stream),                                    \
    "To one member; completed when buffer may be written again.")              \
  X("collective", int32_t, concord_recv,                                       \
    (concord_comm * comm, void *buffer, uint64_t count, int32_t dtype,         \
     int32_t peer, concord_stream *stream),                                    \
    "From one member; messages between two members keep their order.")         \
  X("collective", int32_t, concord_batch_p2p,                                  \
    (concord_comm * comm, const concord_p2p *messages, uint32_t count,         \
     concord_stream *stream),                                                  \
    "Sends and receives started together, so that an exchange cannot hang.")   \
  X("collective", int32_t, concord_barrier,                                    \
    (concord_comm * comm, concord_stream * stream),                            \
    "Completed when every member has issued it.")                              \
  X("collective", int32_t, concord_fused,                                      \
    (concord_comm * comm, const struct concord_kernel *kernel,                 \
     const concord_buffer *buffers, uint32_t num_buffers),                     \
    "The collective that a fused kernel (kernel.h) is one with. Buffers are "  \
    "its inputs, outputs, and workspace if it needs one. Returns when done.")  \
  X("collective", int32_t, concord_round_decision,                             \
    (concord_comm * comm, int32_t root, uint64_t *bits),                       \
    "Root's *bits, the optional slots used in this round, at every member.")

#define CONCORD_ENTRIES_PROGRAM(X)                                             \
  X("generated code", int32_t, concord_issue,                                  \
    (struct concord_context * context, uint32_t site,                          \
     const concord_buffer *buffers, uint32_t num_buffers),                     \
    "Issue the operation at a site of the running program; see artefact.h.")   \
  X("generated code", int32_t, concord_site_wait,                              \
    (struct concord_context * context, uint32_t site),                         \
    "Wait for the operation last issued at the site.")                         \
  X("program", int32_t, concord_program_load,                                  \
    (concord_context * context, const char *path,                              \
     const concord_program_options *options, concord_program **out),           \
    "Load NAME.so and NAME.weights. Collective over all ranks of the job: if " \
    "one rank fails, or the plans differ, all fail and name it.")              \
  X("program", int32_t, concord_program_issuer,                                \
    (concord_program * program, const char *issuer, concord_program **out),    \
    "Of a rank with several issuers: the program of one of them, by its name " \
    "or its issuer's, loaded with `program` and released with it. Each is "    \
    "stepped by a thread of its own, once a round; the gate holds their "      \
    "issues to the agreed order, and passes over optional slots that the "     \
    "round does not use: what they would have written stays as it was.")       \
  X("program", int32_t, concord_program_unload, (concord_program * program),   \
    "Release it. NULL does nothing.")                                          \
  X("program", int32_t, concord_program_info_query,                            \
    (const concord_program *program, concord_program_info *out),               \
    "Facts about a program; strings belong to it.")                            \
  X("program", int32_t, concord_program_num_inputs,                            \
    (const concord_program *program, uint32_t *out), "Number of inputs.")      \
  X("program", int32_t, concord_program_num_outputs,                           \
    (const concord_program *program, uint32_t *out), "Number of outputs.")     \
  X("program", int32_t, concord_program_input,                                 \
    (const concord_program *program, uint32_t index, concord_entry *out),      \
    "Describe an input.")                                                      \
  X("program", int32_t, concord_program_output,                                \
    (const concord_program *program, uint32_t index, concord_entry *out),      \
    "Describe an output.")                                                     \
  X("program", int32_t, concord_program_bind_input,                            \
    (concord_program * program, uint32_t index, const void *data),             \
    "The steps to come read this buffer (dense, local shape, 64-byte "         \
    "aligned for speed). NULL: the program's own buffer in the heap.")         \
  X("program", int32_t, concord_program_bind_output,                           \
    (concord_program * program, uint32_t index, void *data),                   \
    "The steps to come write this buffer. NULL: the program's own.")           \
  X("program", int32_t, concord_program_bind_state,                            \
    (concord_program * program, uint32_t input, uint32_t output),              \
    "After every step the buffer of output becomes that of input and the "     \
    "other way round; no copy. Both must have the same size, or bounded "      \
    "dimensions: then the input takes the output's shape, and buffers of the " \
    "caller's must hold the larger maximum of the two.")                       \
  X("program", int32_t, concord_program_num_dims,                              \
    (const concord_program *program, uint32_t *out),                           \
    "Number of bounded dimensions.")                                           \
  X("program", int32_t, concord_program_dim,                                   \
    (const concord_program *program, uint32_t index, concord_dim *out),        \
    "Describe a bounded dimension.")                                           \
  X("program", int32_t, concord_program_bind_shape,                            \
    (concord_program * program, uint32_t index, const int64_t *shape,          \
     uint32_t rank),                                                           \
    "The global shape of an input for the steps to come, where a dimension "   \
    "is "                                                                      \
    "bounded; the same on all ranks. Inputs that are not given follow.")       \
  X("program", int32_t, concord_program_prepare, (concord_program * program),  \
    "Make what follows from the shapes that were bound: kernels, and the "     \
    "shapes that concord_program_input and _output then tell. May allocate; "  \
    "a step after other shapes does it itself if this was not called.")        \
  X("program", int32_t, concord_program_input_data,                            \
    (concord_program * program, uint32_t index, void **out),                   \
    "The buffer now bound to an input.")                                       \
  X("program", int32_t, concord_program_output_data,                           \
    (concord_program * program, uint32_t index, void **out),                   \
    "The buffer that the last step wrote (before the first: will write).")     \
  X("program", int32_t, concord_program_step, (concord_program * program),     \
    "Run once with what is bound. All ranks of the program call it. From the " \
    "second step on it neither allocates nor makes memory system calls.")      \
  X("program", int32_t, concord_program_plan_json,                             \
    (const concord_program *program, const char **out),                        \
    "The plan table as JSON; belongs to the program.")                         \
  X("gate", int32_t, concord_gate_mode_set,                                    \
    (concord_context * context, int32_t mode),                                 \
    "Mode for what is loaded or created later.")                               \
  X("gate", int32_t, concord_gate_mode_get,                                    \
    (const concord_context *context, int32_t *mode), "Mode in use.")           \
  X("gate", int32_t, concord_plan_load,                                        \
    (concord_context * context, const void *plan, uint64_t bytes),             \
    "Direct calls on communicators that are named after domains of the plan "  \
    "follow it from now on. Takes a plan table, an artefact or JSON. "         \
    "Collective over all ranks; replaces the plan loaded before.")             \
  X("gate", int32_t, concord_plan_load_file,                                   \
    (concord_context * context, const char *path),                             \
    "The same from a file (NAME.so, or what comm-opt --emit=plan wrote).")     \
  X("gate", int32_t, concord_slot_request,                                     \
    (concord_context * context, const char *issuer, uint64_t bits),            \
    "Ask for optional slots (0: all of the issuer) in a coming round; at the " \
    "rank that decides. Granted once the issuer is there on all its ranks.")   \
  X("gate", int32_t, concord_slot_wait,                                        \
    (concord_context * context, const char *issuer, double seconds,            \
     uint64_t *round, uint64_t *bits),                                         \
    "Wait until a round uses a slot of an issuer with optional slots only. "   \
    "NOT_READY after seconds; negative: for ever.")                            \
  X("gate", int32_t, concord_issuer_attach,                                    \
    (concord_context * context, const char *issuer),                           \
    "The calling thread is this issuer's; done by the first issue, too.")      \
  X("gate", int32_t, concord_issuer_leave,                                     \
    (concord_context * context, const char *issuer),                           \
    "It will issue nothing more: who waits for it fails at once, and its "     \
    "optional slots are granted no more.")                                     \
  X("diagnosis", int32_t, concord_issue_log_write,                             \
    (concord_context * context, const char *path),                             \
    "Write this rank's issue log for comm-doctor.")                            \
  X("diagnosis", int32_t, concord_state_print,                                 \
    (concord_context * context, int32_t fd),                                   \
    "What this rank is doing, in words; SIGUSR1 prints it to standard error.")

#ifdef __GNUC__
#define CONCORD_API __attribute__((visibility("default")))
#else
#define CONCORD_API
#endif

#define X(chapter, type, name, parameters, text)                               \
  CONCORD_API type name parameters;
CONCORD_ENTRIES(X)
#undef X

#ifdef __cplusplus
}
#endif
#endif /* CONCORD_CONCORD_H */
