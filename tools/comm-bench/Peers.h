//===- Peers.h - Other libraries to compare with ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Their programs (bench/peers/) are compiled when first asked for, so that
// neither the build nor comm-bench needs the libraries.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_PEERS_H
#define CONCORD_TOOLS_COMM_BENCH_PEERS_H

#include <string>
#include <vector>

namespace concord::bench {

bool knownPeer(const std::string &name);
/// "openmpi, mpich, gloo"
std::string peerNames();

/// The peer's program, compiled into the cache if it is not there. Throws
/// Failure that says what to install.
std::string peerProgram(const std::string &name);
/// The same as a module for a comm-bench that mpirun has started.
std::string peerModule(const std::string &name);

/// The command lines that start `ranks` ranks of it; `address` is what each has
/// to get.
std::vector<std::vector<std::string>>
peerCommands(const std::string &name, const std::string &program,
             const std::vector<std::string> &address, int ranks,
             const std::string &folder);

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_PEERS_H
