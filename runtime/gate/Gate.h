//===- Gate.h - The order that a plan gives a rank's issuers ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Follows a loaded plan. An issue is the next step of its issuer (the program
// whose domain it is on); in mode check it is compared with that step, in mode
// hold it also waits until all turns before its own have been taken. A turn is
// taken when the issue has been handed to the engine, while the context is
// still held, so that no other issuer can come in between.
//
// Everything here runs with the context entered. What each side does when an
// issue never comes is in docs/gate.md.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_GATE_GATE_H
#define CONCORD_RUNTIME_GATE_GATE_H

#include "context/Context.h"

#include <deque>
#include <map>

namespace concord::rt {

class Gate {
public:
  /// For this rank. Throws Error where the plan cannot be followed here.
  Gate(Context &context, plan::Plan plan);

  /// The plan has an order of several issuers of a rank: certified under hold
  /// only.
  static bool needsHold(const plan::Plan &plan);

  /// A direct call that is about to be issued: `launch` operations on one
  /// communicator that start together. Returns when it may be issued; the
  /// caller issues without leaving the context.
  int32_t enter(Comm &comm, const Op *const *launch, uint32_t count);
  /// The same for a site of a loaded program, by their numbers in the plan,
  /// which are what is compared. `skip`: an optional slot that the round does
  /// not use; the site is passed over. `comm` is broken where the issue cannot
  /// be made.
  int32_t enterSite(uint32_t program, uint32_t site, Comm *comm, bool &skip);
  /// Value that the leader gives to the next decision: `bits` and what issuers
  /// have asked for, where all their members are there.
  uint64_t propose(uint64_t bits);
  /// The decision of the next round has completed.
  void decided(uint64_t bits);
  /// This rank leads the round decision.
  bool leads() const { return leader == context.rank; }

  int32_t request(const char *issuer, uint64_t bits);
  int32_t wait(const char *issuer, double seconds, uint64_t *round,
               uint64_t *bits);
  int32_t attach(const char *issuer);
  int32_t leave(const char *issuer);

  /// After the first failure every issue fails with its words.
  void fail(int32_t status, const std::string &words);
  int32_t status() const { return failed; }
  /// Some thread waits in here, with the context open.
  bool busy() const { return waiters != 0; }

  /// The communicator is one of the plan's; else -1, or -2 if it has the name
  /// of a domain but other members.
  int32_t domainOf(const Comm &comm) const;
  /// Index of a program among this rank's issuers, or -1.
  int32_t issuerOf(uint32_t program) const;
  const plan::Plan &planned() const { return plan; }
  const plan::Digest &digest() const { return sum; }
  /// "round 12, turn 3: site 4 of 'serving', all_reduce on 'tp'"
  std::string position() const;

private:
  static constexpr uint32_t kFree = ~0u;
  struct Step {
    uint32_t site = 0, unit = 0;
    int32_t slot = -1;     ///< bit of an optional one
    uint32_t turn = kFree; ///< index into turns
    bool decision = false;
  };
  struct Issuer {
    uint32_t program = 0;
    const plan::Program *planned = nullptr;
    std::vector<Step> steps;
    uint64_t slots = 0;        ///< bits of its optional steps
    uint64_t offered = 0;      ///< bits of all ranks' optional steps
    bool optionalOnly = false; ///< comes in the rounds that use a slot of it
    bool fixed = true;         ///< steps are all that a round can hold
    size_t next = 0;
    uint64_t round = 0;
    uint32_t thread = 0; ///< 0: has not come
    bool left = false;
    /// Of one with optional steps only: rounds that use some, not yet begun.
    std::deque<std::pair<uint64_t, uint64_t>> used;
    uint64_t told = 0; ///< rounds up to this one were returned by wait()
    std::vector<bool> takesPart; ///< by site: this rank has a step there
  };
  struct Turn {
    uint32_t issuer = 0;
    uint32_t first = 0, last = 0; ///< steps
  };

  Context &context;
  plan::Plan plan;
  plan::Digest sum;
  std::vector<Issuer> issuers;
  std::vector<Turn> turns;
  int32_t leader = -1; ///< world rank, -1: no decisions
  uint32_t decider = 0;
  uint64_t asked = 0;
  std::map<uint64_t, uint64_t> bitsOf; ///< of rounds that may still be needed
  uint64_t decisions = 0;
  uint64_t round = 0; ///< whose turns are being taken
  size_t at = 0;      ///< turn
  uint32_t taken = 0; ///< steps of it
  unsigned waiters = 0;
  int32_t failed = 0;
  std::string words;
  /// Per domain: the issuer, or -1 none, -2 several.
  std::vector<int32_t> owner;

  void prepareIssuer(Issuer &issuer);
  Issuer *find(const char *name);
  bool knows(uint64_t r, uint64_t &bits) const;
  uint32_t needed(const Turn &turn) const;
  void settle();
  bool holds() const { return context.gateMode == CONCORD_GATE_HOLD; }
  void note(Issuer &issuer);
  /// A call in words, made only where something has to be said.
  class What {
  public:
    virtual std::string text() const = 0;

  protected:
    ~What() = default;
  };
  /// For the other ranks: which thread issues this program's operations.
  void showThread(uint32_t program, uint32_t thread);
  /// Go to the issuer's next step that its round uses; waits for decisions.
  /// With `skip`, one step only: set when the round does not use it.
  int32_t advance(uint32_t index, const What &what, bool *skip);
  int32_t await(uint32_t index, const Step &step, const What &what);
  int32_t aborted(const What &what);
  void take(uint32_t index);
  int32_t late(uint32_t waiting, const std::string &what, double seconds);
  int32_t broken() const;
  bool alive(const Issuer &issuer) const;
  bool attachedEverywhere(uint64_t slots) const;
  std::string stepText(const Issuer &issuer, const Step &step) const;
  int32_t match(Comm &comm, const Issuer &issuer, const Step &step,
                const Op *const *launch, uint32_t count);
  void prune();
};

/// What one rank says of the plan that it has, at load.
struct PlanReport {
  int32_t status;
  uint32_t issues;
  int32_t gateMode;
  uint32_t pad;
  plan::Digest digest;
  char text[504];
};

/// Exchange the reports of all ranks; throws, at every rank alike, if one has
/// failed, modes differ, or the plans differ: then the first site that does is
/// found by bisection, in at most 32 messages of one digest each, under
/// CONCORD_CONNECT_TIMEOUT.
void agreeOnPlan(Context &context, const PlanReport &mine,
                 const std::string &words, const plan::Plan &plan,
                 const std::string &what);

/// Load a plan for direct calls: collective over all ranks. Throws Error.
void loadPlan(Context &context, const void *bytes, uint64_t size,
              const std::string &what);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_GATE_GATE_H
