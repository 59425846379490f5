//===- HostsMain.cpp - A rank that is a process ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostsRank.h"

int main(int argc, char **argv) {
  concord_context_config config{};
  config.struct_size = sizeof config;
  config.thread_level = CONCORD_THREAD_SINGLE;
  return concord::hosts::runRank(argc, argv, config);
}
