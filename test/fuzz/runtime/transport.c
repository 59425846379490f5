/*===- transport.c - A transport module that fuzz_hosts fills in ----------===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
\*===----------------------------------------------------------------------===*/

#include "transport/Transport.h"

const concord_transport *fuzz_transport;

const concord_transport *concord_transport_module(void);
const concord_transport *concord_transport_module(void) {
  return fuzz_transport;
}
