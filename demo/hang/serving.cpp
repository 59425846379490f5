//===- serving.cpp - A serving loop that issues from C++ ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One half of ./run demo hang: what the field report calls the framework. Every
// step is a task that goes through a queue of two stages, each with a thread of
// its own. The second stage launches it: it takes workspace from a pool, and a
// pool that is short synchronises the device before it hands memory out again,
// as caching allocators do. Then it issues a reduce-scatter of domain 1.
//
// The communicators, and the device, are shared with a placement module in
// Python, which knows nothing of this file.
//
//===----------------------------------------------------------------------===//

#include "concord/concord.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr uint64_t kPart = 256; ///< elements of the result, per rank

/// Memory for launches in flight. It holds one launch, so that every other one
/// finds it short.
class Workspace {
public:
  explicit Workspace(concord_context *context) : context(context) {}
  int32_t take();

private:
  concord_context *context;
  int handedOut = 0;
};

struct Task {
  int step = 0;
};

class Serving {
public:
  Serving(concord_context *context, concord_comm *control, concord_comm *domain,
          int steps, bool rounds, int slowFrom, int pace)
      : context(context), control(control), domain(domain), steps(steps),
        rounds(rounds), slowFrom(slowFrom), pace(pace), workspace(context) {}

  bool prepare();
  void start() {
    first = std::thread([this] { prepareTasks(); });
    second = std::thread([this] { launchTasks(); });
  }
  int32_t finish() {
    first.join();
    second.join();
    return status;
  }
  int step() const { return begun.load(); }
  bool failed() {
    std::lock_guard lock(mutex);
    return status != CONCORD_OK;
  }
  const char *words() const { return text.c_str(); }

private:
  void prepareTasks();
  void launchTasks();
  int32_t launch(const Task &task);
  bool check(int32_t result, const char *what);

  concord_context *context;
  concord_comm *control, *domain;
  int steps;
  bool rounds;  ///< a decision of the round comes first
  int slowFrom; ///< the launching thread is behind from this step on; -1: never
  int pace;     ///< microseconds that a step takes at least
  Workspace workspace;
  concord_stream *stream = nullptr;
  float *in = nullptr, *out = nullptr;
  int32_t rank = 0, world = 1;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> queue;
  bool ended = false;
  std::atomic<int> begun{-1};
  std::thread first, second;
  int32_t status = 0;
  std::string text;
};

bool Serving::check(int32_t result, const char *what) {
  if (result == CONCORD_OK)
    return true;
  std::lock_guard lock(mutex);
  if (status == 0) {
    status = result;
    text = std::string(what) + ": " + concord_status_name(result) + ": " +
           concord_last_error();
  }
  ended = true;
  changed.notify_all();
  return false;
}

bool Serving::prepare() {
  concord_context_rank(context, &rank, &world);
  void *memory[2] = {};
  if (!check(concord_stream_create(context, 0, &stream), "stream") ||
      !check(concord_heap_alloc(context, kPart * uint64_t(world) * 4, 0,
                                &memory[0]),
             "memory") ||
      !check(concord_heap_alloc(context, kPart * 4, 0, &memory[1]), "memory"))
    return false;
  in = static_cast<float *>(memory[0]);
  out = static_cast<float *>(memory[1]);
  return true;
}

/// The first stage: one task per step, not more than two ahead.
void Serving::prepareTasks() {
  for (int step = 0; step < steps; ++step) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended || queue.size() < 2; });
    if (ended)
      return;
    queue.push_back({step});
    changed.notify_all();
  }
}

/// The second stage.
void Serving::launchTasks() {
  for (int step = 0; step < steps; ++step) {
    Task task;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return ended || !queue.empty(); });
      if (ended)
        return;
      task = queue.front();
      queue.pop_front();
      changed.notify_all();
    }
    if (launch(task) != CONCORD_OK)
      return;
  }
}

int32_t Serving::launch(const Task &task) {
  begun.store(task.step);
  // On some ranks the queue is longer than on others.
  if (pace > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(pace));
  if (slowFrom >= 0 && task.step >= slowFrom)
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
  if (rounds) {
    uint64_t bits = 0;
    if (!check(concord_round_decision(control, 0, &bits), "round decision"))
      return status;
  }
  if (!check(workspace.take(), "workspace"))
    return status;
  for (uint64_t i = 0; i < kPart * uint64_t(world); ++i)
    in[i] = float(task.step);
  if (!check(concord_reduce_scatter(domain, in, out, kPart, CONCORD_DTYPE_F32,
                                    CONCORD_REDUCTION_SUM, stream),
             "reduce-scatter") ||
      !check(concord_stream_synchronize(stream), "reduce-scatter"))
    return status;
  if (out[0] != float(task.step) * float(world)) {
    check(CONCORD_ERROR_INTERNAL, "the reduce-scatter's result is wrong");
    return status;
  }
  return CONCORD_OK;
}

} // namespace

// Exported, so that stacks show its name.
extern "C" __attribute__((visibility("default"), noinline)) int32_t
serving_allocate_workspace(concord_context *context) {
  int32_t status = concord_device_synchronize(context);
  asm volatile("" ::: "memory"); // no tail call: it would leave the stack
  return status;
}

namespace {
int32_t Workspace::take() {
  if (++handedOut == 1)
    return CONCORD_OK;
  return serving_allocate_workspace(context);
}
} // namespace

extern "C" {

__attribute__((visibility("default"))) void *
serving_start(concord_context *context, concord_comm *control,
              concord_comm *domain, int32_t steps, int32_t rounds,
              int32_t slowFrom, int32_t pace) {
  auto *serving =
      new Serving(context, control, domain, steps, rounds != 0, slowFrom, pace);
  if (serving->prepare())
    serving->start();
  return serving;
}

__attribute__((visibility("default"))) int32_t serving_step(void *handle) {
  return static_cast<Serving *>(handle)->step();
}

/// It has given up; no step comes any more.
__attribute__((visibility("default"))) int32_t serving_failed(void *handle) {
  return static_cast<Serving *>(handle)->failed();
}

__attribute__((visibility("default"))) int32_t serving_finish(void *handle) {
  return static_cast<Serving *>(handle)->finish();
}

__attribute__((visibility("default"))) const char *serving_words(void *handle) {
  return static_cast<Serving *>(handle)->words();
}
}
