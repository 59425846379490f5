//===- Member.h - comm-bench started once per rank --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mpirun has started comm-bench on every rank, on one host or several: each
// process is a rank of Concord and, where a peer is wanted, of plain MPI, on
// the same library and in turns. Rank 0 measures and prints; the others do what
// it says, which they are told by a broadcast of Concord's between the turns.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_MEMBER_H
#define CONCORD_TOOLS_COMM_BENCH_MEMBER_H

#include "Concord.h"
#include "Driver.h"

namespace concord::bench {

class Members final : public Teams {
public:
  /// On every rank. Throws Failure, after all have been told where one could
  /// not compile a peer.
  explicit Members(const Options &options);
  ~Members() override;

  int rank() const { return me; }
  concord_context *context() const { return concord->context; }
  /// Of the others: until rank 0 says that it is over.
  void serve();

  void finish() override;
  Answer command(size_t team, const Command &command) override;

private:
  /// Do a command and give rank 0 the reply.
  Answer obey(size_t team, const Command &command);
  void findHosts();
  void addPeer(const std::string &name);

  struct Place;
  const Options &options;
  std::vector<std::unique_ptr<Place>> places; ///< by team
  ConcordRank *concord = nullptr;
  concord_comm *control = nullptr;
  int me = 0, ranks = 1;
};

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_MEMBER_H
