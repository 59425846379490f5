//===- Completion.cpp - What has completed when an item starts ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Vector clocks over streams (Fidge 1988, Mattern 1989), built in issue order.
// Sources of order: the FIFO of a stream, wait lists, the host (it has waited
// before it issues), and the domain, whose operations a library runs one after
// another (`samecomm=serial`, printed as an assumption).
//
//===----------------------------------------------------------------------===//

#include "Verifier.h"

#include <algorithm>

namespace concord::order {

Completion::Completion(const ProgramForm &p, std::vector<bool> t)
    : program(p), transient(std::move(t)) {
  std::unordered_map<uint32_t, uint32_t> ids;
  streamOf.assign(p.items.size(), 0);
  for (size_t i = 0; i < p.items.size(); ++i) {
    const Item &item = p.items[i];
    if (item.kind == Item::Kind::Collective ||
        item.kind == Item::Kind::Transfer ||
        (item.kind == Item::Kind::Sync && item.stream != Item::kAllStreams))
      streamOf[i] =
          ids.try_emplace(item.stream, uint32_t(ids.size())).first->second;
  }
  streams = std::max<uint32_t>(1, uint32_t(ids.size()));
  position.assign(p.items.size(), 0);
  clock.assign(p.items.size() * streams, 0);
  streamClock.assign(size_t(streams) * streams, 0);
  streamLength.assign(streams, 0);
  hostClock.assign(streams, 0);
  directWaits.resize(p.items.size());
}

void Completion::join(uint32_t *into, const uint32_t *from) const {
  for (uint32_t s = 0; s < streams; ++s)
    into[s] = std::max(into[s], from[s]);
}

/// What has completed when `item` has.
void Completion::joinItem(uint32_t *into, uint32_t item) const {
  join(into, clock.data() + size_t(item) * streams);
  uint32_t &own = into[streamOf[item]];
  own = std::max(own, position[item]);
}

void Completion::waitOn(uint32_t i, uint32_t w) {
  const Item &waited = program.items[w];
  if (w >= i || (waited.kind != Item::Kind::Collective &&
                 waited.kind != Item::Kind::Transfer))
    return;
  if (transient[w])
    directWaits[i].push_back(w);
  else
    joinItem(clock.data() + size_t(i) * streams, w);
}

/// Let what comes later know what has completed when item i starts.
void Completion::publish(uint32_t i) {
  const Item &item = program.items[i];
  if (transient[i]) {
    if (item.synchronous)
      hostDirect.try_emplace(i, i);
    return;
  }
  join(streamClock.data() + size_t(streamOf[i]) * streams,
       clock.data() + size_t(i) * streams);
  joinItem(domainClock[domainRow.at(item.domain)].data(), i);
  if (item.synchronous)
    joinItem(hostClock.data(), i);
}

void Completion::addWaits(uint32_t i, const std::vector<uint32_t> &waits) {
  for (uint32_t w : waits)
    waitOn(i, w);
  publish(i); // everything only grows, so publishing again is enough
}

void Completion::append(uint32_t i) {
  const Item &item = program.items[i];
  auto eachWait = [&](auto f) {
    for (uint32_t k = 0; k < item.waitCount; ++k) {
      uint32_t w = program.waits[item.waitBegin + k];
      if (w < i)
        f(w);
    }
  };
  if (item.kind == Item::Kind::Sync) {
    if (item.optional)
      return; // may be absent
    if (item.stream == Item::kAllStreams) {
      for (uint32_t s = 0; s < streams; ++s) {
        hostClock[s] = streamLength[s];
        join(hostClock.data(), streamClock.data() + size_t(s) * streams);
      }
    } else {
      uint32_t s = streamOf[i];
      hostClock[s] = std::max(hostClock[s], streamLength[s]);
      join(hostClock.data(), streamClock.data() + size_t(s) * streams);
    }
    return;
  }
  if (item.kind == Item::Kind::WaitFor) {
    if (item.optional)
      return;
    eachWait([&](uint32_t w) {
      if (transient[w])
        hostDirect.try_emplace(w, i);
      else
        joinItem(hostClock.data(), w);
    });
    return;
  }
  if (item.kind == Item::Kind::HostCollective ||
      item.kind == Item::Kind::Hazard) {
    std::copy(hostClock.begin(), hostClock.end(),
              clock.begin() + long(size_t(i) * streams));
    return;
  }
  uint32_t s = streamOf[i];
  uint32_t *row = clock.data() + size_t(i) * streams;
  std::copy(hostClock.begin(), hostClock.end(), row);
  row[s] = std::max(row[s], streamLength[s]);
  join(row, streamClock.data() + size_t(s) * streams);
  auto [it, fresh] =
      domainRow.try_emplace(item.domain, uint32_t(domainClock.size()));
  if (fresh)
    domainClock.emplace_back(streams, 0);
  join(row, domainClock[it->second].data());
  for (uint32_t k = 0; k < item.waitCount; ++k)
    waitOn(i, program.waits[item.waitBegin + k]);
  position[i] = ++streamLength[s];
  publish(i);
}

bool Completion::forced(uint32_t before, uint32_t after) const {
  const Item &a = program.items[before], &b = program.items[after];
  if (a.kind == Item::Kind::HostCollective)
    return before < after; // the thread has passed it before it issues
  if (clock[size_t(after) * streams + streamOf[before]] >= position[before])
    return true;
  if (a.domain == b.domain && b.kind != Item::Kind::HostCollective)
    return true; // samecomm=serial
  if (std::find(directWaits[after].begin(), directWaits[after].end(), before) !=
      directWaits[after].end())
    return true;
  auto waited = hostDirect.find(before);
  return waited != hostDirect.end() && waited->second < after;
}

} // namespace concord::order
