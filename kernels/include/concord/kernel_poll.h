/*===- kernel_poll.h - The hook that long kernels call ------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* Communication makes progress while a kernel computes because kernels call a
|* per-thread hook at tile boundaries, at most about 50 microseconds apart. The
|* runtime sets it once per thread, before the first step; none by default.
|*
\*===----------------------------------------------------------------------===*/

#ifndef CONCORD_KERNEL_POLL_H
#define CONCORD_KERNEL_POLL_H

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*concord_kernel_poll_hook)(void *context);

/* Set this thread's hook; null turns polling off. The hook must not run kernels
 * of its own that use the interrupted kernel's workspace. */
void concord_kernel_set_poll_hook(concord_kernel_poll_hook hook, void *context);

#ifdef __cplusplus
}
#endif
#endif /* CONCORD_KERNEL_POLL_H */
