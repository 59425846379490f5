//===- Rounds.cpp - Who sends what to whom, round by round ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The schedules, and what they cost.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Rounds.h"
#include "diagnosis/Error.h"
#include "engine/Op.h"

#include <cstdlib>
#include <iterator>

using namespace concord;
using namespace concord::rt;

namespace {

/// The largest power of two that is not more.
int powerBelow(int size) {
  int power = 1;
  while (power * 2 <= size)
    power *= 2;
  return power;
}

class Schedule {
public:
  Schedule(int size, int me, std::vector<Transfer> &list)
      : size(size), me(me), list(list), power(powerBelow(size)),
        extra(size - power) {
    list.clear();
  }

  //===--- pairwise -------------------------------------------------------===//

  void scatterPairwise() {
    for (int peer = 0; peer < size; ++peer)
      if (peer != me) {
        send(peer, peer, peer + 1);
        receive(peer, me, me + 1, true);
      }
    ++round;
  }
  void gatherPairwise() {
    for (int peer = 0; peer < size; ++peer)
      if (peer != me) {
        send(peer, me, me + 1);
        receive(peer, peer, peer + 1, false);
      }
    ++round;
  }
  /// Everybody's own block to the root.
  void collect(int root) {
    for (int peer = 0; me == root && peer < size; ++peer)
      if (peer != me)
        receive(peer, peer, peer + 1, false);
    if (me != root)
      send(root, me, me + 1);
    ++round;
  }
  /// The root's blocks: each to its owner, or all to all.
  void distribute(int root, bool whole) {
    for (int peer = 0; me == root && peer < size; ++peer)
      if (peer != me)
        send(peer, whole ? 0 : peer, whole ? size : peer + 1);
    if (me != root)
      receive(root, whole ? 0 : me, whole ? size : me + 1, false);
    ++round;
  }

  //===--- ring -----------------------------------------------------------===//

  void scatterRing() {
    for (int t = 0; t + 1 < size; ++t, ++round) {
      int out = modulo(me - t - 1), in = modulo(me - t - 2);
      send(modulo(me + 1), out, out + 1);
      receive(modulo(me - 1), in, in + 1, true);
    }
  }
  /// `full`: a participant that has everything already, and hears nothing.
  void gatherRing(int full = -1) {
    for (int t = 0; t + 1 < size; ++t, ++round) {
      int out = modulo(me - t), in = modulo(me - t - 1);
      if (modulo(me + 1) != full)
        send(modulo(me + 1), out, out + 1);
      if (me != full)
        receive(modulo(me - 1), in, in + 1, false);
    }
  }

  //===--- recursive doubling and halving ---------------------------------===//
  //
  // Where the number is no power of two, the first participants stand in pairs
  // for one: the odd one gives all to the even one and waits for the result.

  /// True when this participant takes part between fold and unfold.
  bool stands() const { return me >= 2 * extra || me % 2 == 0; }
  int standing() const { return me < 2 * extra ? me / 2 : me - extra; }
  int participant(int standing) const {
    return standing < extra ? 2 * standing : standing + extra;
  }
  /// First block of those that stand behind.
  int blocksOf(int standing) const {
    return standing < extra ? 2 * standing : standing + extra;
  }
  /// The odd one's message; of a gather only its own block.
  void fold(bool reduces) {
    if (!extra)
      return;
    if (me < 2 * extra) {
      int odd = me | 1;
      int first = reduces ? 0 : odd, last = reduces ? size : odd + 1;
      if (me == odd)
        send(odd - 1, first, last);
      else
        receive(odd, first, last, reduces);
    }
    ++round;
  }
  void unfold(bool whole) {
    if (!extra)
      return;
    if (me < 2 * extra) {
      int odd = me | 1;
      int first = whole ? 0 : odd, last = whole ? size : odd + 1;
      if (me == odd)
        receive(odd - 1, first, last, false);
      else
        send(odd, first, last);
    }
    ++round;
  }
  void doubleSums() {
    for (int bit = 1; bit < power; bit *= 2, ++round)
      if (stands()) {
        int peer = participant(standing() ^ bit);
        send(peer, 0, size);
        receive(peer, 0, size, true);
      }
  }
  void halve() {
    int begin = 0, end = power;
    for (int bit = power / 2; bit; bit /= 2, ++round)
      if (stands()) {
        int middle = begin + bit, peer = participant(standing() ^ bit);
        bool low = standing() < middle;
        int a = blocksOf(begin), b = blocksOf(middle), c = blocksOf(end);
        send(peer, low ? b : a, low ? c : b);
        receive(peer, low ? a : b, low ? b : c, true);
        (low ? end : begin) = middle;
      }
  }
  void doubleBlocks() {
    for (int bit = 1; bit < power; bit *= 2, ++round)
      if (stands()) {
        int own = standing() & ~(bit - 1), theirs = own ^ bit;
        int peer = participant(standing() ^ bit);
        send(peer, blocksOf(own), blocksOf(own + bit));
        receive(peer, blocksOf(theirs), blocksOf(theirs + bit), false);
      }
  }

  //===--- binomial tree --------------------------------------------------===//

  void broadcastTree(int root) {
    int place = modulo(me - root);
    for (int bit = 1; bit < size; bit *= 2, ++round)
      if (place < bit) {
        if (place + bit < size)
          send(modulo(me + bit), 0, size);
      } else if (place < 2 * bit) {
        receive(modulo(me - bit), 0, size, false);
      }
  }
  void reduceTree(int root) {
    int place = modulo(me - root);
    for (int bit = 1; bit < size; bit *= 2, ++round)
      if (place % (2 * bit) == bit)
        send(modulo(me - bit), 0, size);
      else if (place % (2 * bit) == 0 && place + bit < size)
        receive(modulo(me + bit), 0, size, true);
  }

private:
  int modulo(int n) const { return (n + 2 * size) % size; }
  void add(int peer, bool sends, bool reduces, int first, int last) {
    list.push_back({uint8_t(round), uint8_t(peer), sends, reduces,
                    uint8_t(first), uint8_t(last)});
  }
  void send(int peer, int first, int last) {
    add(peer, true, false, first, last);
  }
  void receive(int peer, int first, int last, bool reduces) {
    add(peer, false, reduces, first, last);
  }

  int size, me;
  std::vector<Transfer> &list;
  int power; ///< how many stand
  int extra; ///< pairs of which one stands
  int round = 0;
};

} // namespace

bool concord::rt::makeRounds(Kind kind, Form form, int size, int me, int root,
                             std::vector<Transfer> &rounds) {
  Schedule s(size, me, rounds);
  if (!formExists(form, kind))
    return false;
  switch (kind) {
  case Kind::AllReduce:
    switch (form) {
    case Form::Pairwise:
      s.scatterPairwise();
      s.gatherPairwise();
      return true;
    case Form::Ring:
      s.scatterRing();
      s.gatherRing();
      return true;
    case Form::Recursive:
      s.fold(true);
      s.doubleSums();
      s.unfold(true);
      return true;
    case Form::Halving:
      s.fold(true);
      s.halve();
      s.doubleBlocks();
      s.unfold(true);
      return true;
    default:
      return false;
    }
  case Kind::ReduceScatter:
    switch (form) {
    case Form::Pairwise:
      s.scatterPairwise();
      return true;
    case Form::Ring:
      s.scatterRing();
      return true;
    case Form::Halving:
      s.fold(true);
      s.halve();
      s.unfold(false);
      return true;
    default:
      return false;
    }
  case Kind::AllGather:
    switch (form) {
    case Form::Pairwise:
      s.gatherPairwise();
      return true;
    case Form::Ring:
      s.gatherRing();
      return true;
    case Form::Recursive:
      s.fold(false);
      s.doubleBlocks();
      s.unfold(true);
      return true;
    default:
      return false;
    }
  case Kind::Broadcast:
    switch (form) {
    case Form::Pairwise:
      s.distribute(root, true);
      return true;
    case Form::Tree:
      s.broadcastTree(root);
      return true;
    case Form::Ring:
      s.distribute(root, false);
      s.gatherRing(root);
      return true;
    default:
      return false;
    }
  case Kind::Reduce:
    switch (form) {
    case Form::Pairwise:
      s.scatterPairwise();
      s.collect(root);
      return true;
    case Form::Tree:
      s.reduceTree(root);
      return true;
    case Form::Ring:
      s.scatterRing();
      s.collect(root);
      return true;
    default:
      return false;
    }
  default:
    return false;
  }
}

//===----------------------------------------------------------------------===//
// What they cost
//===----------------------------------------------------------------------===//

double concord::rt::secondsOfRounds(Kind kind, Form form, int size,
                                    uint64_t bytes, const Link &link) {
  if (!formExists(form, kind) || size < 2)
    return -1;
  double n = size, s = double(bytes) * link.byte;
  double part = (n - 1) / n; // of the array
  int power = powerBelow(size), log = gatherRounds(power);
  double fold = power < size ? 1 : 0;
  // Rounds, messages beyond one in a round, and arrays that a host sends or
  // receives on the longest path.
  auto cost = [&](double rounds, double more, double arrays) {
    return rounds * link.latency + more * link.message + arrays * s;
  };
  switch (kind) {
  case Kind::AllReduce:
    switch (form) {
    case Form::Pairwise:
      return cost(2, 2 * (n - 2), 2 * part);
    case Form::Ring:
      return cost(2 * (n - 1), 0, 2 * part);
    case Form::Recursive:
      return cost(log + 2 * fold, 0, log + 2 * fold);
    default:
      return cost(2 * log + 2 * fold, 0, 2 * (power - 1.0) / power + 2 * fold);
    }
  case Kind::ReduceScatter:
    switch (form) {
    case Form::Pairwise:
      return cost(1, n - 2, part);
    case Form::Ring:
      return cost(n - 1, 0, part);
    default:
      return cost(log + 2 * fold, 0,
                  (power - 1.0) / power + fold * (1 + 1 / n));
    }
  case Kind::AllGather:
    switch (form) {
    case Form::Pairwise:
      return cost(1, n - 2, part);
    case Form::Ring:
      return cost(n - 1, 0, part);
    default:
      return cost(log + 2 * fold, 0,
                  (power - 1.0) / power + fold * (1 + 1 / n));
    }
  case Kind::Broadcast:
    switch (form) {
    case Form::Pairwise:
      return cost(1, n - 2, n - 1);
    case Form::Tree:
      return cost(gatherRounds(size), 0, gatherRounds(size));
    default:
      return cost(n, n - 2, 2 * part);
    }
  default: // reduce
    switch (form) {
    case Form::Pairwise:
      return cost(2, 2 * (n - 2), 2 * part);
    case Form::Tree:
      return cost(gatherRounds(size), 0, gatherRounds(size));
    default:
      return cost(n, n - 2, 2 * part);
    }
  }
}

Form concord::rt::cheapestRounds(Kind kind, int size, uint64_t bytes,
                                 const Link &link) {
  Form best = Form::Pairwise;
  double least = -1;
  for (Form form : {Form::Pairwise, Form::Recursive, Form::Halving, Form::Tree,
                    Form::Ring}) {
    double seconds = secondsOfRounds(kind, form, size, bytes, link);
    if (seconds >= 0 && (least < 0 || seconds < least)) {
      least = seconds;
      best = form;
    }
  }
  return best;
}

Link concord::rt::parseLink(const std::string &text) {
  struct Unit {
    const char *name;
    double factor;
  };
  static constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}};
  static constexpr Unit kRates[] = {
      {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
  auto number = [&](const std::string &field, const Unit *begin,
                    const Unit *end) {
    char *rest = nullptr;
    double value = std::strtod(field.c_str(), &rest);
    for (const Unit *unit = begin; unit != end; ++unit)
      if (rest != field.c_str() && std::string(rest) == unit->name &&
          value > 0 && value < 1e6)
        return value * unit->factor;
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "CONCORD_LINK: '%s' is no %s; it is LATENCY,RATE or "
          "LATENCY,MESSAGE,RATE, as 30us,10gbit or 30us,4us,10gbit",
          field.c_str(), begin == kTimes ? "time" : "rate");
  };
  std::vector<std::string> fields(1);
  for (char c : text)
    if (c == ',')
      fields.emplace_back();
    else
      fields.back() += c;
  if (fields.size() < 2 || fields.size() > 3)
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "CONCORD_LINK: '%s' is not LATENCY,RATE or LATENCY,MESSAGE,RATE, as "
          "30us,10gbit or 30us,4us,10gbit",
          text.c_str());
  Link link;
  link.latency = number(fields.front(), std::begin(kTimes), std::end(kTimes));
  link.message = fields.size() == 3
                     ? number(fields[1], std::begin(kTimes), std::end(kTimes))
                     : link.latency / 8;
  link.byte = 8 / number(fields.back(), std::begin(kRates), std::end(kRates));
  return link;
}
