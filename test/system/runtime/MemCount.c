/*===- MemCount.c - Counts calls of the memory functions ----------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* LD_PRELOAD=libconcord_memcount.so: between concord_memcount_begin and _end
|* every call of the functions below is counted, and _end prints one line to the
|* file CONCORD_MEMCOUNT_FILE.RANK, or to standard error:
|*
|*   malloc N calloc N realloc N free N memalign N mmap N munmap N brk N
|*   madvise N minor_faults N
|*
\*===----------------------------------------------------------------------===*/

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* The C library's own names, for use below the public ones. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

enum { MALLOC, CALLOC, REALLOC, FREE, MEMALIGN, MMAP, MUNMAP, BRK, MADVISE, N };
static const char *const kNames[N] = {"malloc", "calloc",   "realloc",
                                      "free",   "memalign", "mmap",
                                      "munmap", "brk",      "madvise"};

static atomic_int enabled;
static atomic_ulong counts[N];
static long faultsBefore, faultsPaused;

static void count(int what) {
  if (atomic_load_explicit(&enabled, memory_order_relaxed))
    atomic_fetch_add_explicit(&counts[what], 1, memory_order_relaxed);
}

void *malloc(size_t bytes) {
  count(MALLOC);
  return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes) {
  count(CALLOC);
  return __libc_calloc(n, bytes);
}
void *realloc(void *pointer, size_t bytes) {
  count(REALLOC);
  return __libc_realloc(pointer, bytes);
}
void free(void *pointer) {
  if (pointer)
    count(FREE);
  __libc_free(pointer);
}
void *memalign(size_t align, size_t bytes) {
  count(MEMALIGN);
  return __libc_memalign(align, bytes);
}
void *aligned_alloc(size_t align, size_t bytes) {
  count(MEMALIGN);
  return __libc_memalign(align, bytes);
}
int posix_memalign(void **out, size_t align, size_t bytes) {
  count(MEMALIGN);
  *out = __libc_memalign(align, bytes);
  return *out || !bytes ? 0 : ENOMEM;
}

#define NEXT(type, name)                                                       \
  static type next;                                                            \
  if (!next)                                                                   \
  next = (type)dlsym(RTLD_NEXT, name)

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
  typedef void *(*function)(void *, size_t, int, int, int, off_t);
  NEXT(function, "mmap");
  count(MMAP);
  return next(at, bytes, prot, flags, fd, offset);
}
int munmap(void *at, size_t bytes) {
  typedef int (*function)(void *, size_t);
  NEXT(function, "munmap");
  count(MUNMAP);
  return next(at, bytes);
}
int madvise(void *at, size_t bytes, int advice) {
  typedef int (*function)(void *, size_t, int);
  NEXT(function, "madvise");
  count(MADVISE);
  return next(at, bytes, advice);
}
int brk(void *end) {
  typedef int (*function)(void *);
  NEXT(function, "brk");
  count(BRK);
  return next(end);
}
void *sbrk(intptr_t bytes) {
  typedef void *(*function)(intptr_t);
  NEXT(function, "sbrk");
  count(BRK);
  return next(bytes);
}

static long minorFaults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void concord_memcount_begin(void) {
  for (int i = 0; i < N; ++i)
    atomic_store(&counts[i], 0);
  faultsBefore = minorFaults();
  atomic_store(&enabled, 1);
}

/* Work between steps, which may allocate. */
void concord_memcount_pause(void) {
  atomic_store(&enabled, 0);
  faultsPaused = minorFaults();
}

void concord_memcount_resume(void) {
  faultsBefore += minorFaults() - faultsPaused;
  atomic_store(&enabled, 1);
}

/* Calls of all functions since begin. */
unsigned long concord_memcount_total(void) {
  unsigned long total = 0;
  for (int i = 0; i < N; ++i)
    total += atomic_load(&counts[i]);
  return total;
}

void concord_memcount_end(void) {
  atomic_store(&enabled, 0);
  long faults = minorFaults() - faultsBefore;
  char line[512];
  size_t used = 0;
  for (int i = 0; i < N; ++i)
    used += (size_t)snprintf(line + used, sizeof line - used, "%s %lu ",
                             kNames[i], atomic_load(&counts[i]));
  used += (size_t)snprintf(line + used, sizeof line - used,
                           "minor_faults %ld\n", faults);
  const char *file = getenv("CONCORD_MEMCOUNT_FILE");
  const char *rank = getenv("CONCORD_RANK");
  int fd = 2;
  char path[512];
  if (file) {
    snprintf(path, sizeof path, "%s.%s", file, rank ? rank : "0");
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  }
  if (fd >= 0 && write(fd, line, used) < 0)
    _exit(99);
  if (file && fd >= 0)
    close(fd);
}
