//===- Machine.h - What a machine computes and moves ------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The figures that the cost model rests on. They come from one of three places:
// a built-in description whose figures docs/cost-model.md lists, a calibration
// that `comm-bench --calibrate` measured, or a topology file that describes a
// cluster. A file that cannot be understood is an error, never a reason to fall
// back. Seconds, bytes and ranks everywhere; files have units in their keys.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_COST_MACHINE_H
#define CONCORD_COST_MACHINE_H

#include "concord/plan.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace concord::cost {

/// One level of the hierarchy: what joins the blocks of the level below. The
/// blocks below level 0 are single ranks; level 0 joins the ranks of a host,
/// level 1 the hosts of a switch, and so on.
struct Level {
  std::string name;
  double latency = 0;   ///< of one message between two blocks below
  double bandwidth = 0; ///< of one port, bytes/s in each direction
  int64_t ports = 1;    ///< of each block below
  /// Ranks in a block of this level, blocks being consecutive ranks; 0: all
  /// ranks are in one block.
  int64_t span = 0;
  /// First rank of each block where blocks differ in size; `span` is then 0.
  std::vector<int64_t> starts;
  /// The ranks move the bytes themselves, through memory that they share.
  bool memory = false;
  /// The part of a transfer's time for which it keeps a core busy.
  double coreShare = 0;

  int64_t blockOf(int64_t rank) const;
};

/// Time of a collective by payload, measured: alpha + bytes * beta up to
/// `upTo` bytes of the whole array.
struct Segment {
  uint64_t upTo = 0; ///< the last one's is UINT64_MAX
  double alpha = 0;  ///< seconds
  double beta = 0;   ///< seconds per byte
};
struct Curve {
  plan::Kind kind = plan::Kind::AllReduce;
  int64_t ranks = 2;
  std::string level = "host"; ///< the level that the group reached over
  std::vector<Segment> segments;
};

/// The same of one form of a collective, by which the runtime chooses
/// (docs/algorithms.md). "latency": one operation from the last rank's begin to
/// the last rank's end; "throughput": of many, one after the other.
struct FormCurve {
  Curve curve;
  std::string form, objective;
};
/// Seconds for `bytes` of the whole array.
double secondsOf(const Curve &curve, uint64_t bytes);

/// Bytes/s when everything fits the cache, and when nothing does.
struct Bandwidth {
  double core = 0; ///< of one core alone
  double node = 0; ///< of all cores of a host together
};

struct Machine {
  std::string name;   ///< "cpu", "accelerator", or what the file says
  std::string source; ///< "built-in", or the path of the file
  bool calibrated = false;
  /// Peak of one rank, by type. A type that is not listed computes like f32.
  std::map<DType, double> flops;
  Bandwidth cache, dram;
  uint64_t cacheBytes = 0; ///< where `cache` ends
  /// Bytes/s at which a core stores lines that another core has read since;
  /// 0: as fast as any. On AMD's Zen a tenth of `cache`, and most of what a
  /// collective between caches costs.
  double contended = 0;
  double opSeconds = 0;      ///< fixed cost of any operation
  double issueSeconds = 0;   ///< fixed cost of issuing a collective
  double messageSeconds = 0; ///< fixed cost of one message to one peer
  double flagSeconds = 0;    ///< a flag seen by another core
  /// One instruction of a sharded update (`fused_update`) on one element, strip
  /// by strip in a core's own cache.
  double updateSeconds = 0;
  uint64_t inlineBytes = 512;   ///< payload that travels beside its flag
  int64_t ranks = 0;            ///< that the description has; 0: any number
  int64_t coresPerHost = 0;     ///< 0: as many as ranks
  int64_t ranksPerHost = 0;     ///< of the fullest host; 0: not stated
  std::vector<Level> levels;    ///< at least one
  std::vector<Curve> curves;    ///< of a calibration
  std::vector<FormCurve> forms; ///< likewise
  /// Where predictions were compared with measurements: printed with each.
  std::string validated;
};

/// "cpu": a core of a server, ranks that share memory. "accelerator": a nominal
/// device on a nominal fabric, for graphs that are scheduled and never compiled
/// here. std::nullopt for any other name.
std::optional<Machine> builtinMachine(std::string_view name);

/// Where `comm-bench --calibrate` writes when no file is named, and what passes
/// and ranks read then: $XDG_CACHE_HOME/concord/calibration-CPU.json, else
/// ~/.cache/concord/...; empty when neither variable is set. CPU is the
/// processor's name.
std::string defaultCalibrationPath();

/// A calibration over the built-in "cpu"; what the file does not have keeps its
/// built-in value. On failure returns false and says what is wrong, where.
bool readCalibration(const std::string &path, Machine &machine,
                     std::string &error);
bool parseCalibration(std::string_view text, const std::string &path,
                      Machine &machine, std::string &error);

/// The text of a calibration file; reading it back gives the same figures.
std::string writeCalibration(const Machine &machine);

/// A cluster: hosts, NICs, links (docs/cost-model.md has the format).
bool readTopology(const std::string &path, Machine &machine,
                  std::string &error);
bool parseTopology(std::string_view text, const std::string &path,
                   Machine &machine, std::string &error);

/// What a pass was asked for: a built-in name, a file (calibration or topology,
/// told apart by content), or "": the calibration at the default path if there
/// is one, else the built-in `fallback`.
bool loadMachine(const std::string &what, std::string_view fallback,
                 Machine &machine, std::string &error);

/// One line for outputs: which figures, and where they were validated.
std::string describe(const Machine &machine);

} // namespace concord::cost

#endif // CONCORD_COST_MACHINE_H
