//===- Mpi.cpp - Bytes between hosts over an MPI library ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A transport module (transport/Transport.h), compiled once against Open MPI
// and once against MPICH. Only nonblocking calls after bring-up, on a
// duplicate of MPI_COMM_WORLD, with errors returned.
//
//===----------------------------------------------------------------------===//

#include "transport/Transport.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mpi.h>
#include <poll.h>
#include <unistd.h>

static_assert(sizeof(MPI_Request) <= sizeof(concord_transport_request));

namespace {

MPI_Comm world = MPI_COMM_NULL;
bool finalizes = false; ///< MPI was initialised here
bool orderly = true;
uint32_t highestTag = 32767;
char words[MPI_MAX_ERROR_STRING + 64] = "no error";

int32_t failed(int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::snprintf(words, sizeof words, "%s: %s", what, text);
  return -1;
}

/// MPI_Request is a number in one library and a pointer in the other; 0 must
/// mean none in both.
concord_transport_request pack(MPI_Request request) {
  concord_transport_request packed = 0;
  if (request == MPI_REQUEST_NULL)
    return 0;
  std::memcpy(&packed, &request, sizeof request);
  return packed;
}
MPI_Request unpack(concord_transport_request packed) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (packed)
    std::memcpy(&request, &packed, sizeof request);
  return request;
}

#ifdef MPICH_VERSION
/// MPICH 4.0 over UCX and TCP does not always come back from MPI_Finalize:
/// ranks that are through no longer answer those that still disconnect (a
/// program of MPI_Init, MPI_Barrier and MPI_Finalize shows it). Under its own
/// mpirun a rank lets out what it has sent and takes its leave of the process
/// manager itself, by the two lines of PMI's wire protocol that MPI_Finalize
/// would exchange; without them mpirun would take its end for a death.
void leave() {
  const char *descriptor = std::getenv("PMI_FD");
  if (!descriptor || std::getenv("SLURM_STEP_ID")) {
    MPI_Finalize();
    return;
  }
  MPI_Request all = MPI_REQUEST_NULL;
  int done = 0;
  if (MPI_Ibarrier(world, &all) != MPI_SUCCESS)
    return;
  for (int i = 0; i < 2000 && !done; ++i) {
    if (MPI_Test(&all, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return;
    ::usleep(done ? 0 : 1000);
  }
  for (int i = 0; i < 20; ++i) {
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, int(highestTag), world, &flag,
               MPI_STATUS_IGNORE);
    ::usleep(1000);
  }
  int fd = std::atoi(descriptor);
  static constexpr char kFinalize[] = "cmd=finalize\n";
  char answer[256];
  pollfd wait{fd, POLLIN, 0};
  if (::write(fd, kFinalize, sizeof kFinalize - 1) > 0 &&
      ::poll(&wait, 1, 2000) == 1) [[maybe_unused]]
    ssize_t n = ::read(fd, answer, sizeof answer);
}
#else
void leave() { MPI_Finalize(); }
#endif

/// A process that ends without MPI_Finalize is a failure to Open MPI's mpirun;
/// one that calls it while a peer is gone may wait for ever.
void finalizeAtExit() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (orderly && finalizes && initialized && !finalized)
    leave();
}

int32_t open(int32_t *rank, int32_t *size, char *text, uint64_t bytes) {
  int initialized = 0, finalized = 0, provided = 0, flag = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized) {
    std::snprintf(text, bytes, "MPI_Finalize has been called in this process");
    return -1;
  }
  if (!initialized) {
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) !=
        MPI_SUCCESS) {
      std::snprintf(text, bytes, "MPI_Init_thread failed");
      return -1;
    }
    finalizes = true;
    std::atexit(finalizeAtExit);
  }
  if (world == MPI_COMM_NULL) {
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (code != MPI_SUCCESS) {
      failed(code, "MPI_Comm_dup");
      std::snprintf(text, bytes, "%s", words);
      return -1;
    }
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    int *bound = nullptr;
    if (MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag) ==
            MPI_SUCCESS &&
        flag)
      highestTag = uint32_t(*bound);
  }
  MPI_Comm_rank(world, rank);
  MPI_Comm_size(world, size);
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  version[std::strcspn(version, "\n,")] = 0;
  for (char &c : version)
    if (c == '\t')
      c = ' ';
  std::snprintf(text, bytes, "%s", version);
  return 0;
}

int32_t exchange(const void *mine, void *all, uint64_t bytes,
                 concord_transport_request *request) {
  MPI_Request made = MPI_REQUEST_NULL;
  int code = MPI_Iallgather(mine, int(bytes), MPI_BYTE, all, int(bytes),
                            MPI_BYTE, world, &made);
  if (code != MPI_SUCCESS)
    return failed(code, "MPI_Iallgather");
  *request = pack(made);
  return 0;
}

int32_t send(int32_t rank, uint32_t tag, const void *data, uint64_t bytes,
             int32_t synchronous, concord_transport_request *request) {
  MPI_Request made = MPI_REQUEST_NULL;
  int code =
      synchronous
          ? MPI_Issend(data, int(bytes), MPI_BYTE, rank, int(tag), world, &made)
          : MPI_Isend(data, int(bytes), MPI_BYTE, rank, int(tag), world, &made);
  if (code != MPI_SUCCESS)
    return failed(code, "MPI_Isend");
  *request = pack(made);
  return 0;
}

int32_t receive(int32_t rank, uint32_t tag, void *data, uint64_t bytes,
                concord_transport_request *request) {
  MPI_Request made = MPI_REQUEST_NULL;
  int code =
      MPI_Irecv(data, int(bytes), MPI_BYTE, rank, int(tag), world, &made);
  if (code != MPI_SUCCESS)
    return failed(code, "MPI_Irecv");
  *request = pack(made);
  return 0;
}

int32_t test(concord_transport_request *request, uint64_t *bytes) {
  MPI_Request own = unpack(*request);
  MPI_Status status;
  int done = 0;
  int code = MPI_Test(&own, &done, &status);
  if (code != MPI_SUCCESS) {
    // The library has freed it, or keeps it; it is not looked at again.
    *request = 0;
    failed(code, "MPI_Test");
    return CONCORD_TRANSPORT_FAILED;
  }
  *request = pack(own);
  if (!done)
    return CONCORD_TRANSPORT_PENDING;
  *request = 0;
  if (bytes) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    *bytes = count == MPI_UNDEFINED ? 0 : uint64_t(count);
  }
  return CONCORD_TRANSPORT_DONE;
}

void abandon(concord_transport_request *request, int32_t receiving) {
  MPI_Request own = unpack(*request);
  *request = 0;
  if (own == MPI_REQUEST_NULL)
    return;
  // Sends cannot be cancelled in all libraries; freed, they end by themselves.
  int done = 0;
  if (receiving && orderly && MPI_Cancel(&own) == MPI_SUCCESS &&
      MPI_Test(&own, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done)
    return;
  if (own != MPI_REQUEST_NULL)
    MPI_Request_free(&own);
}

const char *error() { return words; }
uint32_t maxTag() { return highestTag; }

void close(int32_t good) {
  if (!good)
    orderly = false;
}

constexpr concord_transport kModule = {CONCORD_TRANSPORT_ABI,
                                       sizeof(concord_transport),
                                       open,
                                       exchange,
                                       send,
                                       receive,
                                       test,
                                       abandon,
                                       error,
                                       maxTag,
                                       close};

} // namespace

extern "C" __attribute__((visibility("default"))) const concord_transport *
concord_transport_module() {
  return &kModule;
}
