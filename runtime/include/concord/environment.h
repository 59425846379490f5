/*===- environment.h - The environment variables of Concord -------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* The only place where a CONCORD_* variable is written down. From this list
|* come the checks when a value is read, `comm-run --env`, the values logged at
|* bring-up, the warning about names that nobody reads, the comparison between
|* the ranks, and docs/generated/Environment.md. Reading one that is not here
|* is an internal error.
|*
\*===----------------------------------------------------------------------===*/

#ifndef CONCORD_ENVIRONMENT_H
#define CONCORD_ENVIRONMENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum concord_variable_type {
  CONCORD_VARIABLE_INTEGER = 0,
  CONCORD_VARIABLE_BYTES = 1,   /* with K, M, G or T behind it */
  CONCORD_VARIABLE_SECONDS = 2, /* may have a fraction */
  CONCORD_VARIABLE_WORD = 3,    /* one of `words`, which are split by '|' */
  CONCORD_VARIABLE_FILE = 4,
  CONCORD_VARIABLE_FOLDER = 5,
  CONCORD_VARIABLE_TEXT = 6
} concord_variable_type;

/* Who reads a variable. Those of tests are listed so that nobody is warned. */
typedef enum concord_variable_reader {
  CONCORD_READER_RUNTIME = 0, /* every rank, at bring-up or later */
  CONCORD_READER_KERNELS = 1,
  CONCORD_READER_TOOLS = 2, /* comm-run, comm-bench, comm-doctor */
  CONCORD_READER_PYTHON = 3,
  CONCORD_READER_TESTS = 4
} concord_variable_reader;

/* X(NAME, READER, TYPE, LOW, HIGH, WORDS, DEFAULT, SINCE, AGREE, NCCL, HCCL,
 *   TEXT)
 *
 * LOW and HIGH bound numbers, inclusively. WORDS: the choices of a WORD, else
 * "". DEFAULT is read like a value, unless it begins with '(': then it is words
 * for people. AGREE 1: all ranks must have the same value, compared at
 * bring-up. NCCL, HCCL: the variable there that comes nearest, or "". */
#define CONCORD_VARIABLES(X)                                                   \
  X("CONCORD_ALGORITHM", RUNTIME, TEXT, 0, 0, "", "(chosen by size)", "0.1",   \
    1, "NCCL_ALGO", "HCCL_ALGO",                                               \
    "Forms of collectives by kind and bytes of a rank's input, as "            \
    "all_reduce:0-4k:flat;4k-inf:direct. See docs/algorithms.md.")             \
  X("CONCORD_CACHE_BYTES", RUNTIME, BYTES, 0, 1099511627776.0, "",             \
    "(of this processor)", "0.1", 0, "", "",                                   \
    "Size of the last-level cache: what exceeds it is stored past the "        \
    "caches.")                                                                 \
  X("CONCORD_CACHE_DIR", TOOLS, FOLDER, 0, 0, "", "(~/.cache/concord)", "0.1", \
    0, "", "", "Where comm-run keeps compiled programs.")                      \
  X("CONCORD_CACHE_LIMIT", TOOLS, INTEGER, 0, 9e18, "", "17179869184", "0.1",  \
    0, "", "", "Bytes from which the least recently used of them go.")         \
  X("CONCORD_CALIBRATION", RUNTIME, FILE, 0, 0, "",                            \
    "(~/.cache/concord/calibration-CPU.json, if all ranks have the same)",     \
    "0.1", 1, "NCCL_TUNER_CONFIG_FILE", "",                                    \
    "What comm-bench --calibrate wrote: of flat and direct the form that "     \
    "costs less is taken, where CONCORD_ALGORITHM asks for none. The word "    \
    "none: no file is read.")                                                  \
  X("CONCORD_CONNECT_TIMEOUT", RUNTIME, SECONDS, 0.001, 86400, "", "120",      \
    "0.1", 0, "NCCL_SOCKET_RETRY_CNT", "HCCL_CONNECT_TIMEOUT",                 \
    "How long a rank waits for all ranks to join. Keep it shorter than "       \
    "CONCORD_TIMEOUT, so that the first error names the true side.")           \
  X("CONCORD_DEVICE_FILE", RUNTIME, FILE, 0, 0, "", "(none)", "0.1", 0, "",    \
    "",                                                                        \
    "JSON that describes the devices of this host: kind, plane, "              \
    "bandwidth, alignment, physical id.")                                      \
  X("CONCORD_DEVICE_SLOTS", RUNTIME, INTEGER, 0, 1024, "", "0", "0.1", 1, "",  \
    "",                                                                        \
    "Communication slots of the device: a launch holds one from its start "    \
    "to its end, as on devices that cannot pre-empt it. 0: no limit.")         \
  X("CONCORD_GATE", RUNTIME, WORD, 0, 0, "default|off|record|check|hold",      \
    "default", "0.1", 1, "", "",                                               \
    "Gate mode; default is check, and hold with several issuers on a rank.")   \
  X("CONCORD_GATE_TIMEOUT", RUNTIME, SECONDS, -1e9, 1e9, "",                   \
    "(CONCORD_TIMEOUT)", "0.1", 0, "", "",                                     \
    "How long an issue waits for its turn before the late issuer is an "       \
    "error; negative: for ever.")                                              \
  X("CONCORD_HANG_REPORT", RUNTIME, SECONDS, 0, 1e9, "", "60", "0.1", 0, "",   \
    "",                                                                        \
    "Seconds in which nothing moves in the job until the watchdog prints "     \
    "who waits for whom; 0: never.")                                           \
  X("CONCORD_HEAP_BYTES", RUNTIME, BYTES, 0, 1099511627776.0, "", "16G",       \
    "0.1", 0, "", "HCCL_BUFFSIZE",                                             \
    "Address space of the symmetric heap, per rank; only what is touched "     \
    "costs memory.")                                                           \
  X("CONCORD_HOST_ID", RUNTIME, TEXT, 0, 0, "",                                \
    "(host name, boot and namespaces)", "0.1", 0, "NCCL_HOSTID", "",           \
    "What this host is called: ranks with one name share memory, ranks with "  \
    "different ones talk over MPI. Set by hand it makes several \"hosts\" of " \
    "one machine.")                                                            \
  X("CONCORD_HOST_TIMEOUT", RUNTIME, SECONDS, 1, 3600, "", "10", "0.1", 0, "", \
    "",                                                                        \
    "How long another host may answer nothing at all, not even to the "        \
    "system's keep-alive, until its ranks are dead.")                          \
  X("CONCORD_IFNAME", RUNTIME, TEXT, 0, 0, "", "(all)", "0.1", 0,              \
    "NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME",                                \
    "Network interfaces by which ranks of different hosts watch each other, "  \
    "as eth,ib0: names that begin like this. MPI chooses its own.")            \
  X("CONCORD_HUGE_PAGES", RUNTIME, INTEGER, 0, 1, "", "1", "0.1", 0, "", "",   \
    "1: blocks of the heap of 2 MiB and more, and registered memory, are "     \
    "made present at once, in huge pages where the system has them; 0: page "  \
    "by page, when touched.")                                                  \
  X("CONCORD_ISSUE_LOG", RUNTIME, FOLDER, 0, 0, "", "", "0.1", 0,              \
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "ASCEND_PROCESS_LOG_PATH",              \
    "Folder in which every rank leaves its issue log for comm-doctor, when "   \
    "it "                                                                      \
    "finalizes and when a hang is explained.")                                 \
  X("CONCORD_JOB_FD", RUNTIME, INTEGER, 0, 1048576, "",                        \
    "(set by the launcher)", "0.1", 0, "", "",                                 \
    "Descriptor of the job's memory file, inherited.")                         \
  X("CONCORD_KERNEL_TARGET", KERNELS, WORD, 0, 0,                              \
    "x86-64-v2|x86-64-v3|x86-64-v4|x86-64-v4-bf16", "(best of this CPU)",      \
    "0.1", 0, "", "",                                                          \
    "CPU class that the kernels use, if the CPU is of that class.")            \
  X("CONCORD_LAUNCHER", RUNTIME, WORD, 0, 0,                                   \
    "auto|concord|torchrun|openmpi|slurm|mpich", "auto", "0.1", 0, "", "",     \
    "Whose environment says which rank this is; concord: only CONCORD_RANK "   \
    "and CONCORD_WORLD.")                                                      \
  X("CONCORD_LIBRARY", PYTHON, FILE, 0, 0, "", "(build/lib/libconcord.so)",    \
    "0.1", 0, "", "", "The library that the Python package loads.")            \
  X("CONCORD_LINK", RUNTIME, TEXT, 0, 0, "", "30us,10gbit", "0.1", 1,          \
    "NCCL_TOPO_FILE", "",                                                      \
    "What a link between hosts costs, by which the form of a collective that " \
    "spans hosts is chosen: LATENCY,RATE or LATENCY,MESSAGE,RATE, as "         \
    "30us,4us,10gbit. comm-bench between hosts prints what it has measured.")  \
  X("CONCORD_LOG", RUNTIME, WORD, 0, 0, "off|error|warn|info|debug", "warn",   \
    "0.1", 0, "NCCL_DEBUG", "HCCL_ENTRY_LOG_ENABLE",                           \
    "How much each rank says. info has every setting with its source and "     \
    "the map of ranks at bring-up.")                                           \
  X("CONCORD_LOG_FILE", RUNTIME, FILE, 0, 0, "", "(standard error)", "0.1", 0, \
    "NCCL_DEBUG_FILE", "ASCEND_PROCESS_LOG_PATH",                              \
    "File to append the log to; %r becomes the rank.")                         \
  X("CONCORD_MPI", RUNTIME, WORD, 0, 0, "auto|openmpi|mpich", "auto", "0.1",   \
    0, "", "",                                                                 \
    "The MPI between hosts; auto: the one that has started the ranks.")        \
  X("CONCORD_OBJECTIVE", RUNTIME, WORD, 0, 0, "latency|throughput",            \
    "throughput", "0.1", 1, "", "",                                            \
    "What CONCORD_CALIBRATION chooses by: one operation alone, or many one "   \
    "after the other.")                                                        \
  X("CONCORD_RANK", RUNTIME, INTEGER, 0, 63, "", "(set by the launcher)",      \
    "0.1", 0, "", "RANK_ID", "This process's rank.")                           \
  X("CONCORD_RANK_TABLE", RUNTIME, FILE, 0, 0, "", "(none)", "0.1", 0, "",     \
    "RANK_TABLE_FILE", "Rank table (1.0, 1.2 or 2.0) to bring the job up by.") \
  X("CONCORD_SINGLE_COPY", RUNTIME, BYTES, 0, 1099511627776.0, "", "1T",       \
    "0.1", 1, "", "",                                                          \
    "all_to_all: bytes per peer from which operands outside the heap are "     \
    "copied straight from process to process; below, they go through "         \
    "staging memory, which comm-bench -R 0 found faster at every size; 1T: "   \
    "never.")                                                                  \
  X("CONCORD_TIMEOUT", RUNTIME, SECONDS, -1e9, 1e9, "", "300", "0.1", 0, "",   \
    "HCCL_EXEC_TIMEOUT",                                                       \
    "How long an operation waits for its peers before it is an error; "        \
    "negative: for ever.")                                                     \
  X("CONCORD_VERIFY_WEIGHTS", RUNTIME, INTEGER, 0, 1, "", "0", "0.1", 0, "",   \
    "", "1: compare the SHA-256 of every section of the weights at load.")     \
  X("CONCORD_VISIBLE_DEVICES", RUNTIME, TEXT, 0, 0, "", "(all)", "0.1", 0,     \
    "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES",                       \
    "Physical devices that this process may use, like 0,1,4-7; its local "     \
    "rank counts in this list.")                                               \
  X("CONCORD_WORLD", RUNTIME, INTEGER, 1, 64, "", "(set by the launcher)",     \
    "0.1", 0, "", "RANK_SIZE", "Number of ranks.")                             \
  X("TMPDIR", TOOLS, FOLDER, 0, 0, "", "(/dev/shm, else /tmp)", "0.1", 0, "",  \
    "", "Where a job's inputs and outputs lie while it runs.")                 \
  X("XDG_CACHE_HOME", TOOLS, FOLDER, 0, 0, "", "(~/.cache)", "0.1", 0, "", "", \
    "Parent of the cache when CONCORD_CACHE_DIR is not set, and of the "       \
    "calibration of this host.")                                               \
  CONCORD_TEST_VARIABLES(X)

#define CONCORD_TEST_VARIABLE(X, name, text)                                   \
  X(name, TESTS, TEXT, 0, 0, "", "", "0.1", 0, "", "", text)
#define CONCORD_TEST_VARIABLES(X)                                              \
  CONCORD_TEST_VARIABLE(X, "CONCORD_BIN", "Folder of the tools to test.")      \
  CONCORD_TEST_VARIABLE(X, "CONCORD_BUILD", "Build folder that lit uses.")     \
  CONCORD_TEST_VARIABLE(X, "CONCORD_CHECK_ROUNDTRIP",                          \
                        "lit: print and parse every module.")                  \
  CONCORD_TEST_VARIABLE(X, "CONCORD_GATE_STEPS",                               \
                        "Steps of the test of two issuers.")                   \
  CONCORD_TEST_VARIABLE(X, "CONCORD_LLVM", "Where LLVM lies, for the docs.")   \
  CONCORD_TEST_VARIABLE(X, "CONCORD_MATH_POINTS",                              \
                        "Points per function in the tests of math kernels.")   \
  CONCORD_TEST_VARIABLE(X, "CONCORD_MEMCOUNT_FILE",                            \
                        "Where the counter of allocations writes.")            \
  CONCORD_TEST_VARIABLE(X, "CONCORD_MUTATIONS",                                \
                        "Mutations per model in the kernels' tests.")          \
  CONCORD_TEST_VARIABLE(X, "CONCORD_ONNX_NODE_DATA",                           \
                        "Folder of the ONNX node tests.")                      \
  CONCORD_TEST_VARIABLE(X, "CONCORD_ONNX_NODE_FILTER",                         \
                        "Only node tests whose name has this in it.")          \
  CONCORD_TEST_VARIABLE(X, "CONCORD_ONNX_NODE_VERBOSE",                        \
                        "Name each node test.")                                \
  CONCORD_TEST_VARIABLE(X, "CONCORD_ORDER_TRIALS",                             \
                        "Random programs in the tests of the order model.")    \
  CONCORD_TEST_VARIABLE(X, "CONCORD_ORDER_VERBOSE",                            \
                        "Print what those tests compare.")                     \
  CONCORD_TEST_VARIABLE(X, "CONCORD_TEST_TIME_SCALE",                          \
                        "How many times longer deadlines of tests are: where " \
                        "the machine is slow.")

typedef struct concord_variable {
  const char *name;
  int32_t reader; /* concord_variable_reader */
  int32_t type;   /* concord_variable_type */
  double low, high;
  const char *words;
  const char *standard; /* the default */
  const char *since;
  int32_t agree;
  const char *nccl, *hccl;
  const char *text;
} concord_variable;

/* A row of CONCORD_VARIABLES as an element of an array of them. */
#define CONCORD_VARIABLE_ROW(name, reader, type, low, high, words, standard,   \
                             since, agree, nccl, hccl, text)                   \
  {name,                                                                       \
   CONCORD_READER_##reader,                                                    \
   CONCORD_VARIABLE_##type,                                                    \
   low,                                                                        \
   high,                                                                       \
   words,                                                                      \
   standard,                                                                   \
   since,                                                                      \
   agree,                                                                      \
   nccl,                                                                       \
   hccl,                                                                       \
   text},

/* The list as an array, and its length. In libconcord.so and in the static
 * library concord_launch. */
__attribute__((visibility("default"))) const concord_variable *
concord_variables(size_t *count);

#ifdef __cplusplus
}
#endif
#endif /* CONCORD_ENVIRONMENT_H */
