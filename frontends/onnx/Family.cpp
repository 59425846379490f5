//===- Family.cpp - One model at all sizes of its dimensions --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Choosing members, fitting polynomials, and the check over the bounds.
//
//===----------------------------------------------------------------------===//

#include "concord/onnx/Family.h"

#include "Builder.h"
#include "Infer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace concord::onnx {

//===----------------------------------------------------------------------===//
// Polynomials
//===----------------------------------------------------------------------===//

namespace {

using Int = __int128;

/// An exact fraction; `bad` once anything overflowed.
struct Fraction {
  Int number = 0, divisor = 1;
  bool bad = false;

  static Fraction make(Int number, Int divisor) {
    Fraction f{number, divisor, divisor == 0};
    if (f.bad)
      return f;
    Int a = number < 0 ? -number : number, b = divisor < 0 ? -divisor : divisor;
    while (b != 0)
      std::swap(a %= b, b);
    if (divisor < 0)
      a = -a;
    if (a != 0) {
      f.number /= a;
      f.divisor /= a;
    }
    return f;
  }
  bool zero() const { return number == 0; }
};

Fraction times(const Fraction &a, const Fraction &b) {
  Int n = 0, d = 0;
  bool bad = a.bad || b.bad || __builtin_mul_overflow(a.number, b.number, &n) ||
             __builtin_mul_overflow(a.divisor, b.divisor, &d);
  Fraction f = Fraction::make(n, bad ? 1 : d);
  f.bad |= bad;
  return f;
}

Fraction minus(const Fraction &a, const Fraction &b) {
  Int x = 0, y = 0, n = 0, d = 0;
  bool bad = a.bad || b.bad ||
             __builtin_mul_overflow(a.number, b.divisor, &x) ||
             __builtin_mul_overflow(b.number, a.divisor, &y) ||
             __builtin_sub_overflow(x, y, &n) ||
             __builtin_mul_overflow(a.divisor, b.divisor, &d);
  Fraction f = Fraction::make(n, bad ? 1 : d);
  f.bad |= bad;
  return f;
}

Fraction over(const Fraction &a, const Fraction &b) {
  return times(a, {b.divisor, b.number, b.bad || b.zero()});
}

/// Monomials in the order of rising degree, without the constant.
std::vector<std::vector<uint32_t>> monomials(size_t dims) {
  std::vector<std::vector<uint32_t>> list;
  auto n = static_cast<uint32_t>(dims);
  for (uint32_t a = 0; a < n; ++a)
    list.push_back({a});
  for (uint32_t a = 0; a < n; ++a)
    for (uint32_t b = a; b < n; ++b)
      list.push_back({a, b});
  for (uint32_t a = 0; a < n; ++a)
    for (uint32_t b = a; b < n; ++b)
      for (uint32_t c = b; c < n; ++c)
        list.push_back({a, b, c});
  return list;
}

/// The coefficients with which the monomials give the values, if all points
/// agree on one solution.
std::optional<Extent> solve(const std::vector<std::vector<int64_t>> &points,
                            std::span<const int64_t> values,
                            const std::vector<std::vector<uint32_t>> &support) {
  const size_t columns = support.size();
  if (points.size() < columns + 2 && points.size() < columns * 2)
    return std::nullopt;
  std::vector<std::vector<Fraction>> rows;
  for (size_t i = 0; i < points.size(); ++i) {
    std::vector<Fraction> row;
    for (const auto &monomial : support) {
      Int value = 1;
      for (uint32_t dim : monomial)
        value *= points[i][dim];
      row.push_back({value, 1});
    }
    row.push_back({values[i], 1});
    rows.push_back(std::move(row));
  }
  for (size_t c = 0; c < columns; ++c) {
    size_t pivot = c;
    while (pivot < rows.size() && rows[pivot][c].zero())
      ++pivot;
    if (pivot == rows.size())
      return std::nullopt;
    std::swap(rows[c], rows[pivot]);
    for (size_t r = 0; r < rows.size(); ++r) {
      if (r == c || rows[r][c].zero())
        continue;
      const Fraction factor = over(rows[r][c], rows[c][c]);
      for (size_t k = c; k <= columns; ++k) {
        rows[r][k] = minus(rows[r][k], times(factor, rows[c][k]));
        if (rows[r][k].bad)
          return std::nullopt;
      }
    }
  }
  for (size_t r = columns; r < rows.size(); ++r)
    if (!rows[r][columns].zero())
      return std::nullopt;
  Extent extent;
  for (size_t c = 0; c < columns; ++c) {
    const Fraction f = over(rows[c][columns], rows[c][c]);
    // Sizes of things have small divisors; a large one is a coincidence.
    if (f.bad || f.zero() || f.divisor > 4096 || f.number > INT64_MAX ||
        f.number < INT64_MIN)
      return std::nullopt;
    extent.terms.push_back({static_cast<int64_t>(f.number),
                            static_cast<int64_t>(f.divisor), support[c]});
  }
  return extent;
}

} // namespace

std::optional<Extent> fitExtent(const std::vector<std::vector<int64_t>> &points,
                                std::span<const int64_t> values) {
  if (std::all_of(values.begin(), values.end(),
                  [&](int64_t value) { return value == values[0]; }))
    return Extent::constant(values[0]);
  const auto list = monomials(points.front().size());
  const size_t n = list.size();
  auto attempt =
      [&](std::vector<std::vector<uint32_t>> support) -> std::optional<Extent> {
    if (auto extent = solve(points, values, support))
      return extent;
    support.push_back({}); // and a constant
    return solve(points, values, support);
  };
  for (size_t a = 0; a < n; ++a)
    if (auto extent = attempt({list[a]}))
      return extent;
  for (size_t a = 0; a < n; ++a)
    for (size_t b = a + 1; b < n; ++b)
      if (auto extent = attempt({list[a], list[b]}))
        return extent;
  for (size_t a = 0; a < n; ++a)
    for (size_t b = a + 1; b < n; ++b)
      for (size_t c = b + 1; c < n; ++c)
        if (auto extent = attempt({list[a], list[b], list[c]}))
          return extent;
  return std::nullopt;
}

std::optional<std::pair<int64_t, int64_t>>
boundsOf(const Extent &extent, const std::vector<BoundedDim> &dims) {
  std::vector<int64_t> low, high;
  for (const BoundedDim &dim : dims) {
    low.push_back(dim.min);
    high.push_back(dim.max);
  }
  Int least = 0, most = 0;
  for (const Extent::Term &term : extent.terms) {
    Int small = term.number, large = term.number;
    for (uint32_t dim : term.dims)
      if (__builtin_mul_overflow(small, Int(low[dim]), &small) ||
          __builtin_mul_overflow(large, Int(high[dim]), &large))
        return std::nullopt;
    if (term.number < 0)
      std::swap(small, large);
    // Outwards where it does not divide.
    Int d = term.divisor;
    small = small >= 0 ? small / d : -((-small + d - 1) / d);
    large = large >= 0 ? (large + d - 1) / d : -(-large / d);
    if (__builtin_add_overflow(least, small, &least) ||
        __builtin_add_overflow(most, large, &most))
      return std::nullopt;
  }
  if (most > INT64_MAX || least < INT64_MIN)
    return std::nullopt;
  // Exact, where the value at a corner is whole.
  if (std::all_of(extent.terms.begin(), extent.terms.end(),
                  [](const auto &term) { return term.number > 0; })) {
    if (auto exact = extent.at(low))
      least = *exact;
    if (auto exact = extent.at(high))
      most = *exact;
  }
  return std::pair(static_cast<int64_t>(least), static_cast<int64_t>(most));
}

std::vector<std::vector<int64_t>>
trialPoints(const std::vector<BoundedDim> &dims, size_t most) {
  std::set<std::vector<int64_t>> points;
  size_t count = 1;
  for (const BoundedDim &dim : dims) {
    const auto width = static_cast<uint64_t>(dim.max - dim.min) + 1;
    count = width > most || count > most ? most + 1 : count * width;
  }
  if (count <= most) {
    std::vector<int64_t> point;
    for (const BoundedDim &dim : dims)
      point.push_back(dim.min);
    for (size_t i = 0; i < count; ++i) {
      points.insert(point);
      for (size_t d = 0; d < dims.size(); ++d) {
        if (++point[d] <= dims[d].max)
          break;
        point[d] = dims[d].min;
      }
    }
    return {points.begin(), points.end()};
  }
  // Corners: what is decided by comparing sums of sizes is decided the same way
  // in between when it is at all corners.
  const size_t corners = size_t(1) << std::min<size_t>(dims.size(), 8);
  std::vector<std::vector<int64_t>> bases;
  for (size_t mask = 0; mask < corners; ++mask) {
    std::vector<int64_t> point;
    for (size_t d = 0; d < dims.size(); ++d)
      point.push_back(mask >> std::min<size_t>(d, 8) & 1 ? dims[d].max
                                                         : dims[d].min);
    points.insert(point);
    bases.push_back(std::move(point));
  }
  // Lines along every dimension, from the lowest and the highest corner, dense
  // at both ends.
  const size_t steps = std::max<size_t>(
      4, (most > points.size() ? most - points.size() : 0) / (2 * dims.size()));
  for (const auto &base : {bases.front(), bases.back()})
    for (size_t d = 0; d < dims.size(); ++d) {
      const int64_t width = dims[d].max - dims[d].min;
      for (size_t i = 0; i < steps; ++i) {
        std::vector<int64_t> point = base;
        const auto k = static_cast<int64_t>(i);
        const auto n = static_cast<int64_t>(steps);
        point[d] = k < n / 4 ? dims[d].min + std::min(k, width)
                   : k < n / 2
                       ? dims[d].max - std::min(k - n / 4, width)
                       : dims[d].min + static_cast<int64_t>(
                                           Int(width) * (k - n / 2) /
                                           std::max<int64_t>(1, n - n / 2));
        points.insert(std::move(point));
      }
    }
  return {points.begin(), points.end()};
}

std::string describePoint(const std::vector<BoundedDim> &dims,
                          std::span<const int64_t> point) {
  std::string result;
  for (size_t d = 0; d < dims.size(); ++d)
    result += (d ? ", " : "") + dims[d].name + "=" + std::to_string(point[d]);
  return result;
}

//===----------------------------------------------------------------------===//
// A model as text and numbers
//===----------------------------------------------------------------------===//

/// Whether a folded result may stay data: a short list of sizes, which the
/// program looks up instead of computing it.
static bool isSizes(const TensorType &type) {
  return type.dtype == DType::I64 && type.numElements() <= 64;
}

struct Family::Flat {
  static constexpr const char *kGraph = "the graph", *kValue = "value";
  struct Part {
    std::string text; ///< what has to be the same at all sizes
    std::string node; ///< which it belongs to, for messages
    std::string operation;
    size_t numbers; ///< how many of the numbers come before
  };
  std::vector<Part> parts;
  std::vector<int64_t> numbers;

  void add(std::string text, const std::string &node,
           const std::string &operation) {
    parts.push_back({std::move(text), node, operation, numbers.size()});
  }
  void type(const TensorType &type, std::string &text) {
    text += std::string(dtypeName(type.dtype)) + "/" +
            std::to_string(type.shape.size());
    numbers.insert(numbers.end(), type.shape.begin(), type.shape.end());
  }
  void data(const Tensor &tensor, std::string &text) {
    type(tensor.type, text);
    if (isSizes(tensor.type)) {
      const std::vector<int64_t> values = tensor.ints();
      text += "=" + std::to_string(values.size());
      numbers.insert(numbers.end(), values.begin(), values.end());
    } else if (tensor.bytes.size() <= 4096) {
      text += "#" + std::to_string(detail::hashOf(tensor));
    } else {
      // Large data lie in the file, or are folded from what does.
      text += "@" + std::to_string(tensor.bytes.size());
      Tensor head;
      head.bytes = tensor.bytes.first(4096);
      text += "#" + std::to_string(detail::hashOf(head));
    }
  }
  void graph(const Graph &graph) {
    std::string ends;
    for (ValueId id : graph.inputs)
      ends += std::to_string(id) + ",";
    ends += ">";
    for (ValueId id : graph.outputs)
      ends += std::to_string(id) + ",";
    add(std::move(ends), graph.name, kGraph);
    std::vector<const Node *> producer(graph.values.size(), nullptr);
    for (const Node &node : graph.nodes)
      for (ValueId id : node.outputs)
        if (id != kNoValue)
          producer[static_cast<size_t>(id)] = &node;
    for (size_t i = 0; i < graph.values.size(); ++i) {
      const Value &value = graph.values[i];
      const Node *node = producer[i];
      add("", node ? node->name : value.name, node ? node->opType : kValue);
      std::string text = value.name + ":";
      if (value.constant)
        data(*value.constant, text);
      else
        type(value.type, text);
      parts.back().text = std::move(text);
    }
    for (const Node &node : graph.nodes) {
      add("", node.name, node.opType);
      std::string text = node.name + " " + node.domain + "." + node.opType;
      for (ValueId id : node.inputs)
        text += "," + std::to_string(id);
      text += ">";
      for (ValueId id : node.outputs)
        text += "," + std::to_string(id);
      const size_t part = parts.size() - 1;
      for (const auto &[name, attribute] : node.attributes) {
        text += " " + name + "=";
        if (const auto *i = std::get_if<int64_t>(&attribute)) {
          numbers.push_back(*i);
        } else if (const auto *d = std::get_if<double>(&attribute)) {
          text += std::to_string(*d);
        } else if (const auto *s = std::get_if<std::string>(&attribute)) {
          text += *s;
        } else if (const auto *is =
                       std::get_if<std::vector<int64_t>>(&attribute)) {
          text += std::to_string(is->size());
          numbers.insert(numbers.end(), is->begin(), is->end());
        } else if (const auto *ds =
                       std::get_if<std::vector<double>>(&attribute)) {
          for (double value : *ds)
            text += std::to_string(value) + ",";
        } else if (const auto *t = std::get_if<Tensor>(&attribute)) {
          data(*t, text);
        } else if (const auto *g =
                       std::get_if<std::shared_ptr<Graph>>(&attribute)) {
          this->graph(**g);
        }
      }
      parts[part].text = std::move(text);
    }
  }
  /// The first node of this that `other` is without; null when it has all.
  const Part *missingIn(const Flat &other) const {
    std::set<std::string> names;
    for (const Part &part : other.parts)
      names.insert(part.node);
    for (const Part &part : parts)
      if (part.operation != kGraph && part.operation != kValue &&
          !names.count(part.node))
        return &part;
    return nullptr;
  }
  /// What to name where this and `other` differ, from part `i` on: a node that
  /// only one of them has changes the numbers of all values behind it.
  const Part &differing(const Flat &other, size_t i) const {
    const Part *part = missingIn(other);
    if (!part)
      part = other.missingIn(*this);
    return part ? *part : parts[i];
  }
  /// The part that number `i` belongs to.
  const Part &owner(size_t i) const {
    auto it = std::upper_bound(
        parts.begin(), parts.end(), i,
        [](size_t i, const Part &part) { return i < part.numbers; });
    return *(it - 1);
  }
};

//===----------------------------------------------------------------------===//
// Members
//===----------------------------------------------------------------------===//

static bool isPrime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0)
      return false;
  return n > 1;
}

/// Sizes that are equal to nothing else in the model and divide nothing. Primes
/// are what no product of other sizes gives by chance; what numbers that are
/// none are taken for is found out when the bounds are gone through.
void Family::choosePoints(Sizes sizes) {
  static constexpr size_t kMembers[] = {0, 6, 8, 9, 10};
  const size_t count =
      kMembers[std::min<size_t>(bounded.size(), std::size(kMembers) - 1)];
  const std::set<int64_t> extents = file.initializerExtents();
  const std::set<std::string> leading = file.leadingDims();
  std::set<int64_t> used;
  std::vector<std::vector<int64_t>> choices(bounded.size());
  auto usable = [&](int64_t n) {
    return n > 1 && world % n != 0 && !used.count(n) &&
           std::none_of(extents.begin(), extents.end(), [&](int64_t extent) {
             return extent > 0 && extent % n == 0;
           });
  };
  auto multipleOf = [&](size_t d) {
    return leading.count(bounded[d].name) ? batchMultiple : 1;
  };
  auto take = [&](size_t d, int64_t n) {
    const int64_t size = n * multipleOf(d);
    if (choices[d].size() >= count || !usable(n) || used.count(size))
      return;
    choices[d].push_back(size);
    used.insert({n, size});
  };
  auto within = [&](size_t d) {
    const int64_t top = bounded[d].max / multipleOf(d);
    const int64_t least = bounded[d].min / multipleOf(d);
    for (int64_t n = top; n >= std::max<int64_t>({11, least, top - (1 << 14)});
         --n)
      if (isPrime(n))
        take(d, n);
    if (sizes == Sizes::Large)
      return;
    for (int64_t n = std::min<int64_t>(top, 10);
         n >= std::max<int64_t>(2, least); --n)
      if (isPrime(n))
        take(d, n);
    // Those that a mesh axis does not cut come first, as with primes.
    if (sizes == Sizes::All)
      for (bool apart : {true, false})
        for (int64_t n = top; n >= std::max<int64_t>({3, least, top - 64}); --n)
          if (!apart || std::gcd(n, world) == 1)
            take(d, n);
  };
  auto above = [&](size_t d) {
    const int64_t top = bounded[d].max / multipleOf(d);
    for (int64_t n = std::max<int64_t>(11, top + 1); choices[d].size() < count;
         ++n)
      if (isPrime(n))
        take(d, n);
  };
  std::vector<size_t> order(bounded.size());
  std::iota(order.begin(), order.end(), size_t(0));
  if (sizes == Sizes::Large) {
    for (size_t d : order) {
      within(d);
      above(d);
    }
  } else {
    // Where the bounds hold some, a table of the model may end soon above. The
    // narrowest has the least to choose from.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return bounded[a].max < bounded[b].max;
    });
    for (size_t d : order)
      within(d);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return choices[a].size() > choices[b].size();
    });
    for (size_t d : order)
      above(d);
  }
  members.clear();
  for (size_t i = 0; i < count; ++i) {
    std::vector<int64_t> point;
    // Each dimension in an order of its own, so that none follows another.
    for (size_t d = 0; d < bounded.size(); ++d) {
      const size_t step = d == 0 ? 1 : d * 2 + 1;
      size_t index = i;
      if (std::gcd(step, count) == 1)
        index = i * step % count;
      else
        index = (i * i + d * i) % count;
      point.push_back(choices[d][index]);
    }
    members.push_back(std::move(point));
  }
  // What is decided for one member is decided for the one nearest to the
  // maximum.
  auto distance = [&](const std::vector<int64_t> &point) {
    double sum = 0;
    for (size_t d = 0; d < point.size(); ++d)
      sum += std::log(static_cast<double>(point[d]) /
                      static_cast<double>(bounded[d].max));
    return std::abs(sum);
  };
  std::iter_swap(members.begin(),
                 std::min_element(members.begin(), members.end(),
                                  [&](const auto &a, const auto &b) {
                                    return distance(a) < distance(b);
                                  }));
}

ReadOptions Family::at(std::span<const int64_t> point) const {
  ReadOptions result = options;
  for (size_t d = 0; d < bounded.size(); ++d)
    result.dims[bounded[d].name] = point[d];
  result.keptNodes = &kept;
  return result;
}

Family::Flat Family::flatten(std::span<const int64_t> point) const {
  ReadOptions read = at(point);
  read.rearrangeWeights = false;
  Flat flat;
  flat.graph(file.read(read).graph);
  return flat;
}

/// Which nodes' results change with the sizes and are not short lists of sizes:
/// they stay computations.
void Family::findKept() {
  kept.clear();
  std::vector<FoldTrace> traces(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    ReadOptions read = at(members[i]);
    read.rearrangeWeights = false;
    read.folds = &traces[i];
    (void)file.read(read);
  }
  for (const FoldTrace &trace : traces)
    for (const auto &[name, results] : trace) {
      bool same = true, sizes = true;
      for (const FoldTrace &other : traces) {
        auto it = other.find(name);
        if (it == other.end() || it->second.size() != results.size()) {
          same = sizes = false;
          continue;
        }
        for (size_t r = 0; r < results.size(); ++r) {
          same &= it->second[r] == results[r];
          sizes &= it->second[r].first == results[r].first &&
                   isSizes(results[r].first);
        }
      }
      if (!same && !sizes)
        kept.insert(name);
    }
}

void Family::generalise() {
  std::vector<Flat> flats;
  for (const auto &point : members)
    flats.push_back(flatten(point));
  pattern = std::make_shared<Flat>(std::move(flats.front()));
  extents.clear();
  auto refuse = [&](const Flat::Part &part, const std::string &why) {
    throw Error(path + ": node '" + part.node + "' (" + part.operation +
                "): " + why + "; fix the dimension with --dim NAME=N");
  };
  for (size_t k = 1; k < members.size(); ++k) {
    const size_t common =
        std::min(pattern->parts.size(), flats[k].parts.size());
    for (size_t i = 0; i < common; ++i)
      if (pattern->parts[i].text != flats[k].parts[i].text)
        refuse(pattern->differing(flats[k], i),
               "differs between " + describePoint(bounded, members[0]) +
                   " and " + describePoint(bounded, members[k]) +
                   " in more than its sizes");
    if (pattern->parts.size() != flats[k].parts.size() ||
        pattern->numbers.size() != flats[k].numbers.size())
      refuse(pattern->differing(flats[k], common - 1),
             "the graph changes with the sizes");
  }
  std::map<std::vector<int64_t>, Extent> known;
  std::vector<int64_t> values(members.size());
  for (size_t i = 0; i < pattern->numbers.size(); ++i) {
    values[0] = pattern->numbers[i];
    for (size_t k = 1; k < members.size(); ++k)
      values[k] = flats[k].numbers[i];
    auto it = known.find(values);
    if (it == known.end()) {
      std::optional<Extent> extent = fitExtent(members, values);
      if (!extent)
        refuse(pattern->owner(i),
               "a size is " + std::to_string(values[0]) + " at " +
                   describePoint(bounded, members[0]) + " and " +
                   std::to_string(values[1]) + " at " +
                   describePoint(bounded, members[1]) +
                   ", which is no polynomial of the bounded dimensions");
      it = known.emplace(values, std::move(*extent)).first;
    }
    extents.push_back(it->second);
  }
}

void Family::check(size_t most) {
  for (std::vector<int64_t> &point : trialPoints(bounded, most)) {
    // Sizes that a mesh does not divide are refused when they are bound.
    const std::set<std::string> leading = file.leadingDims();
    bool divides = true;
    for (size_t d = 0; d < bounded.size(); ++d)
      divides &=
          !leading.count(bounded[d].name) || point[d] % batchMultiple == 0;
    if (!divides)
      continue;
    const std::string where = describePoint(bounded, point);
    Flat flat;
    try {
      flat = flatten(point);
    } catch (const Error &error) {
      throw Error(std::string(error.what()) + " (at " + where +
                  ", within the bounds of --dim)");
    }
    const std::string cure = " than at the sizes in the middle of the bounds; "
                             "give bounds without it, or fix the dimension "
                             "with --dim NAME=N";
    auto refuse = [&](const Flat::Part &part) {
      throw Error(path + ": node '" + part.node + "' (" + part.operation +
                  "): behaves in another way at " + where + cure);
    };
    const size_t common = std::min(pattern->parts.size(), flat.parts.size());
    for (size_t i = 0; i < common; ++i)
      if (pattern->parts[i].text != flat.parts[i].text)
        refuse(pattern->differing(flat, i));
    if (pattern->parts.size() != flat.parts.size() ||
        pattern->numbers.size() != flat.numbers.size())
      refuse(pattern->differing(flat, common - 1));
    for (size_t i = 0; i < flat.numbers.size(); ++i)
      if (extents[i].at(point) != flat.numbers[i])
        refuse(pattern->owner(i));
  }
}

Family::Family(const std::string &path, ReadOptions options,
               std::vector<BoundedDim> dims, int64_t world,
               int64_t batchMultiple)
    : file(path), path(path), options(std::move(options)),
      bounded(std::move(dims)), world(world), batchMultiple(batchMultiple) {
  // Only sizes that data parallelism splits into equal parts.
  const std::set<std::string> leading = file.leadingDims();
  for (BoundedDim &dim : bounded) {
    if (!leading.count(dim.name) || batchMultiple <= 1)
      continue;
    dim.max -= dim.max % batchMultiple;
    dim.min += (batchMultiple - dim.min % batchMultiple) % batchMultiple;
    if (dim.min > dim.max)
      throw Error(path + ": --dim " + dim.name +
                  ": no size within the bounds " + "is a multiple of " +
                  std::to_string(batchMultiple) + ", as the mesh needs");
  }
  // Sizes above the bounds may be more than a table of the model holds. Where
  // that is no error (the look-up is then left to the program) the sizes within
  // the bounds behave in another way.
  std::optional<Error> within;
  for (Sizes sizes : {Sizes::Large, Sizes::Small, Sizes::All}) {
    choosePoints(sizes);
    bool general = false;
    try {
      findKept();
      generalise();
      general = true;
      // Reading costs by the node.
      const size_t nodes = std::max<size_t>(1, pattern->parts.size());
      check(std::clamp<size_t>(400'000 / nodes, 64, 4096));
      return;
    } catch (const Error &error) {
      if (general && !within)
        within = error;
      if (sizes != Sizes::All)
        continue;
      if (within)
        throw *within;
      // What is wrong at a size that was asked for says more.
      std::vector<int64_t> most;
      for (const BoundedDim &dim : bounded)
        most.push_back(dim.max);
      (void)flatten(most);
      throw Error(error.what() + beyondBounds());
    }
  }
}

/// What to say of an error at sizes that nobody asked for.
std::string Family::beyondBounds() const {
  std::string sizes, cures;
  for (size_t d = 0; d < bounded.size(); ++d) {
    int64_t most = 0;
    for (const auto &point : members)
      most = std::max(most, point[d]);
    if (most <= bounded[d].max)
      continue;
    sizes += (sizes.empty() ? "" : ", ") + bounded[d].name + "=" +
             std::to_string(most);
    cures += " --dim " + bounded[d].name + "=N";
  }
  return sizes.empty()
             ? ""
             : "; the model was tried at " + sizes +
                   ", above its bounds, which hold too few sizes to tell apart "
                   "from others: give wider bounds or one size:" +
                   cures;
}

Model Family::member(size_t i) const { return file.read(at(members[i])); }

} // namespace concord::onnx
