//===- GrowRank.cpp - A rank of jobs that grow --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `grow-rank STEP...` does one step after the other on a stack of
// communicators, whose top each step uses; test_grow.py writes the steps.
//
//   launched         come into the job of the environment
//   join:R:N:ID      come into a job of N ranks by a unique id (hex)
//   grow:N:ID        concord_comm_grow; ID may be "-"
//   shrink, group:A,B,...  communicators of those alive, of these world ranks
//   digest           all collectives; prints "digest RANK SIZE HEX"
//   reduce           one all_reduce
//   receive, cancel  a receive that stays in flight; its communicator's end
//   destroy, base, leave   the top; all but the first; everything, and the job
//   open             prints "open DESCRIPTORS THREADS MAPPINGS" of the process
//   line             waits for a line on standard input
//   kill, stop       SIGKILL or SIGSTOP to itself
//   kill-after:US    and later, from another thread
//   until-error      reduces until one fails
//
// A step that fails prints "ERROR: its words". The program then ends with 40 +
// the error's number, unless the step has a '?' before it.
//
//===----------------------------------------------------------------------===//

#include "concord/concord.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

struct Digest {
  uint64_t value = 0xcbf29ce484222325;
  void add(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      value = (value ^ static_cast<const uint8_t *>(data)[i]) * 0x100000001b3;
  }
};

/// Every collective, in the heap and outside it, of a few and of many bytes.
int32_t digestOf(concord_comm *comm) {
  int32_t rank, size, status = CONCORD_OK;
  concord_context *context;
  concord_comm_rank(comm, &rank, &size);
  concord_comm_context(comm, &context);
  Digest digest;
  const int type = CONCORD_DTYPE_F32, sum = CONCORD_REDUCTION_SUM;
  concord_stream *stream;
  if ((status = concord_stream_create(context, 0, &stream)))
    return status;
  for (uint64_t count : {5u, 3000u, 120'000u})
    for (bool heap : {false, true}) {
      const uint64_t all = count * uint64_t(size);
      std::vector<float> foreign(heap ? 0 : 2 * all);
      void *memory = foreign.data();
      if (heap && (status = concord_heap_alloc(context, 8 * all, 0, &memory)))
        return status;
      float *in = static_cast<float *>(memory), *out = in + all;
      std::vector<int32_t> ring;
      for (int32_t i = 0; i < size; ++i)
        ring.insert(ring.end(), {i, (i + 1) % size});
      for (int kind = 0; kind < 11 && status == CONCORD_OK; ++kind) {
        for (uint64_t i = 0; i < all; ++i) {
          in[i] = float(uint64_t(rank + 1) * 2654435761u % (i + 97)) / 7;
          out[i] = 0;
        }
        const int32_t root = kind % size;
        concord_p2p messages[2] = {
            {1, (rank + 1) % size, in, count, type},
            {0, (rank + size - 1) % size, out, count, type}};
        switch (kind) {
        case 0:
          status = concord_all_reduce(comm, in, out, count, type, sum, nullptr);
          break;
        case 1:
          status = concord_all_gather(comm, in, out, count, type, stream);
          break;
        case 2:
          status =
              concord_reduce_scatter(comm, in, out, count, type, sum, nullptr);
          break;
        case 3:
          status = concord_all_to_all(comm, in, out, count, type, stream);
          break;
        case 4:
          status = concord_broadcast(comm, in, out, count, type, root, nullptr);
          break;
        case 5:
          status =
              concord_reduce(comm, in, out, count, type, sum, root, nullptr);
          break;
        case 6:
          status = concord_gather(comm, in, out, count, type, root, stream);
          break;
        case 7:
          status = concord_scatter(comm, in, out, count, type, root, nullptr);
          break;
        case 8:
          status = concord_permute(comm, in, out, count, type, ring.data(),
                                   uint32_t(size), nullptr);
          break;
        case 9:
          status = concord_batch_p2p(comm, messages, 2, nullptr);
          break;
        default:
          status = concord_barrier(comm, nullptr);
        }
        if (status == CONCORD_OK)
          status = concord_stream_synchronize(stream);
        digest.add(out, 4 * all);
      }
      if (heap)
        concord_heap_free(context, memory);
      if (status)
        return status;
    }
  concord_stream_destroy(stream);
  std::printf("digest %d %d %016llx\n", rank, size,
              static_cast<unsigned long long>(digest.value));
  return CONCORD_OK;
}

int entriesOf(const char *folder) {
  int count = 0;
  DIR *list = ::opendir(folder);
  while (list && ::readdir(list))
    ++count;
  if (list)
    ::closedir(list);
  return count;
}

int mappings() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  int count = 0;
  while (std::getline(maps, line))
    count += line.find("concord-job") != std::string::npos;
  return count;
}

concord_unique_id idOf(const std::string &hex) {
  concord_unique_id id{};
  for (size_t i = 0; i + 1 < hex.size() && i / 2 < sizeof id.bytes; i += 2)
    id.bytes[i / 2] =
        uint8_t(std::strtoul(hex.substr(i, 2).c_str(), nullptr, 16));
  return id;
}

class Rank {
public:
  int32_t run(const std::vector<std::string> &step) {
    const std::string &what = step[0];
    concord_comm *top = comms.empty() ? nullptr : comms.back();
    concord_comm *made = nullptr;
    int32_t status = CONCORD_OK;
    if (what == "launched" || what == "join") {
      concord_context_config config{};
      config.struct_size = sizeof config;
      concord_unique_id id;
      if (what == "join") {
        config.rank = std::atoi(step[1].c_str());
        config.world = std::atoi(step[2].c_str());
        id = idOf(step[3]);
        config.unique_id = &id;
      }
      if ((status = concord_context_create(&config, &context)))
        return status;
      concord_comm_world(context, &made);
    } else if (what == "grow") {
      concord_unique_id id = idOf(step[2]);
      status = concord_comm_grow(top, std::atoi(step[1].c_str()),
                                 step[2] == "-" ? nullptr : &id, &made);
    } else if (what == "shrink") {
      status = concord_comm_shrink(top, nullptr, &made);
    } else if (what == "group") {
      std::vector<int32_t> ranks;
      std::istringstream list(step[1]);
      for (std::string each; std::getline(list, each, ',');)
        ranks.push_back(std::atoi(each.c_str()));
      concord_context *of;
      concord_comm_context(top, &of);
      status = concord_comm_create_group(
          of, ranks.data(), uint32_t(ranks.size()), nullptr, &made);
    } else if (what == "digest") {
      status = digestOf(top);
    } else if (what == "reduce" || what == "until-error") {
      int32_t one = 1, sum = 0;
      do {
        status = concord_all_reduce(top, &one, &sum, 1, CONCORD_DTYPE_I32,
                                    CONCORD_REDUCTION_SUM, nullptr);
      } while (what == "until-error" && status == CONCORD_OK);
    } else if (what == "receive") {
      concord_context *of;
      concord_comm_context(top, &of);
      int32_t rank, size;
      concord_comm_rank(top, &rank, &size);
      if ((status = concord_stream_create(of, 0, &stream)) == CONCORD_OK)
        status = concord_recv(top, &received, 1, CONCORD_DTYPE_I32,
                              (rank + 1) % size, stream);
    } else if (what == "cancel") {
      comms.pop_back();
      status = concord_comm_abort(top);
      concord_stream_destroy(stream);
    } else if (what == "destroy") {
      comms.pop_back();
      status = concord_comm_destroy(top);
    } else if (what == "base" || what == "leave") {
      while (comms.size() > 1 && status == CONCORD_OK) {
        status = concord_comm_destroy(comms.back());
        comms.pop_back();
      }
      if (status == CONCORD_OK && what == "leave")
        status = concord_context_finalize(context);
    } else if (what == "open") {
      std::printf("open %d %d %d\n", entriesOf("/proc/self/fd"),
                  entriesOf("/proc/self/task"), mappings());
    } else if (what == "line") {
      char text[16];
      if (!std::fgets(text, sizeof text, stdin))
        std::exit(3);
    } else if (what == "kill" || what == "stop") {
      ::raise(what == "kill" ? SIGKILL : SIGSTOP);
    } else if (what == "kill-after") {
      std::thread([after = std::atoi(step[1].c_str())] {
        ::usleep(useconds_t(after));
        ::kill(::getpid(), SIGKILL);
      }).detach();
    } else {
      std::fprintf(stderr, "no step '%s'\n", what.c_str());
      std::exit(2);
    }
    if (made)
      comms.push_back(made);
    return status;
  }

private:
  concord_context *context = nullptr;
  concord_stream *stream = nullptr;
  int32_t received = 0;
  std::vector<concord_comm *> comms;
};

} // namespace

int main(int argc, char **argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Rank rank;
  for (int i = 1; i < argc; ++i) {
    std::string text = argv[i];
    bool mayFail = text[0] == '?';
    std::vector<std::string> step;
    std::istringstream words(text.substr(mayFail));
    for (std::string word; std::getline(words, word, ':');)
      step.push_back(word);
    std::printf("step %s\n", step[0].c_str());
    int32_t status = rank.run(step);
    if (status == CONCORD_OK)
      continue;
    std::printf("%s: %s\n", concord_status_name(status), concord_last_error());
    if (!mayFail)
      return 40 + status;
  }
  return 0;
}
