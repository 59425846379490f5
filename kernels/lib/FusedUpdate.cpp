//===- FusedUpdate.cpp - An update between two collectives ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `fused_update`: the step of an optimiser over parameters whose states are
// divided among the members (as in ZeRO): each reduces its share of the
// gradient, updates its share of parameters and states, and stores the new
// parameters at all members. docs/kernels.md lists the keys.
//
//===----------------------------------------------------------------------===//

#include "FusedKernel.h"
#include "UpdateHot.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace concord::kernels {
namespace {

// Numbers of concord.h, which this room does not include.
constexpr uint32_t kAllReduce = 1, kSum = 1;

/// Bytes of gradient in a part: between two looks at other operations.
constexpr int64_t kPartBytes = 128 << 10;
constexpr size_t kMostInstructions = 512;
static_assert(kUpdateOperands == CONCORD_FUSED_MAX_OPERANDS);

struct Instruction {
  UpdateCode code;
  UpdateFirst first = UpdateFirst::Add; ///< of Chain
  UpdateThen then = UpdateThen::Nothing;
  GemmType type = GemmType::F32; ///< of Round
  size_t operands = 0;
  size_t values[3] = {}; ///< a, b, c
  float value = 0;
  bool inlined = false; ///< done by its only user
};

struct Name {
  std::string_view text;
  size_t operands;
  UpdateCode code;
  UpdateFirst first = UpdateFirst::Add;
};
constexpr Name kNames[] = {
    {"add", 2, UpdateCode::Chain, UpdateFirst::Add},
    {"sub", 2, UpdateCode::Chain, UpdateFirst::Sub},
    {"mul", 2, UpdateCode::Chain, UpdateFirst::Mul},
    {"div", 2, UpdateCode::Chain, UpdateFirst::Div},
    {"sqrt", 1, UpdateCode::Chain, UpdateFirst::Sqrt},
    {"neg", 1, UpdateCode::Neg},
    {"abs", 1, UpdateCode::Abs},
    {"max", 2, UpdateCode::Max},
    {"min", 2, UpdateCode::Min},
};

/// What an operation is whose left, or right, operand is at hand already.
UpdateThen thenOf(UpdateFirst first, bool right) {
  switch (first) {
  case UpdateFirst::Add:
    return UpdateThen::Add;
  case UpdateFirst::Sub:
    return right ? UpdateThen::SubFrom : UpdateThen::Sub;
  case UpdateFirst::Mul:
    return UpdateThen::Mul;
  case UpdateFirst::Div:
    return right ? UpdateThen::DivInto : UpdateThen::Div;
  case UpdateFirst::Sqrt:
    break;
  }
  return UpdateThen::Nothing;
}

/// f32, f16 or bf16, with the key named otherwise.
GemmType narrowType(const Description &d, const char *key, DType type) {
  switch (type) {
  case DType::F32:
    return GemmType::F32;
  case DType::F16:
    return GemmType::F16;
  case DType::BF16:
    return GemmType::BF16;
  default:
    d.unsupported(key, "must be f32, f16 or bf16");
  }
}

class Update final : public FusedKernel {
public:
  explicit Update(const Description &d) : table(CONCORD_SELECT(updateTable)) {
    common(d);
    share = d.size("count", 1);
    elementCount({share, members}, 8);
    type = narrowType(d, "dtype", DType(info.dtype));
    info.kind = kAllReduce;
    info.reduction = kSum;
    info.count = uint64_t(share) * info.members;
    const uint64_t es = uint64_t(sizeOf(type));

    std::vector<GemmType> inputs, outputs;
    for (DType t : d.dtypes("inputs"))
      inputs.push_back(narrowType(d, "inputs", t));
    for (DType t : d.dtypes("outputs"))
      outputs.push_back(narrowType(d, "outputs", t));
    std::vector<bool> single(inputs.size());
    for (int64_t i : d.list("single", {})) {
      if (i < 0 || size_t(i) >= inputs.size())
        d.fail("single", "names no input");
      single[size_t(i)] = true;
    }
    if (inputs.size() + outputs.size() + 2 > CONCORD_FUSED_MAX_OPERANDS)
      d.unsupported("inputs", "and outputs are too many");

    info.shared = operand(info.count * es);
    for (size_t i = 0; i < inputs.size(); ++i)
      operand(uint64_t(single[i] ? 1 : share) * uint64_t(sizeOf(inputs[i])));
    numInputs = info.num_operands;
    info.written = 1u << operand(info.count * es);
    for (GemmType t : outputs)
      operand(uint64_t(share) * uint64_t(sizeOf(t)));
    numOutputs = info.num_operands - numInputs;
    for (uint32_t i = 0; i < info.num_operands; ++i)
      elementBytes[i] =
          uint64_t(i == 0 || i == numInputs ? sizeOf(type)
                   : i < numInputs ? (single[i - 1] ? 0 : sizeOf(inputs[i - 1]))
                                   : sizeOf(outputs[i - numInputs - 1]));

    std::vector<Instruction> program = read(d, 1 + inputs.size());
    std::vector<int64_t> results = d.list("results");
    if (results.size() != 1 + outputs.size())
      d.fail("results", "are the gathered value, then one for each output");
    for (int64_t r : results)
      if (r < 0 || size_t(r) >= 1 + inputs.size() + program.size())
        d.fail("results", "names no value");
    chain(program, 1 + inputs.size(), results);
    schedule(program, inputs, single, outputs, results);
    if (strips > kMostStrips)
      d.unsupported("program", "has too many values");

    int64_t each = std::max<int64_t>(
        kUpdateStrip, kPartBytes / int64_t(es) / kUpdateStrip * kUpdateStrip);
    partElements = each;
    info.parts = uint32_t((share + each - 1) / each);
    workspaceBytes = info.workspace_bytes =
        uint64_t(strips + 1) * kUpdateStrip * sizeof(float);
  }

  int32_t step(const concord_fused_step &s) const override {
    const int64_t first = int64_t(s.part) * partElements;
    UpdateShape shape;
    shape.count = std::min(share - first, partElements);
    shape.steps = steps.data();
    shape.numSteps = int(steps.size());
    shape.once = once;
    shape.members = shape.targets = members;
    shape.me = int(s.me);
    shape.stream = s.stream != 0;
    shape.take = !shape.stream;
    const int64_t es = sizeOf(type);
    const int64_t at = (int64_t(s.me) * share + first) * es;
    UpdateOperands o;
    for (int m = 0; m < members; ++m) {
      o.parts[m] = static_cast<char *>(s.peers[info.shared][m]) + at;
      // Begin with different targets at different members.
      o.targets[m] =
          static_cast<char *>(s.peers[numInputs][(int(s.me) + m) % members]) +
          at;
    }
    for (uint32_t i = 0; i < info.num_operands; ++i)
      o.operands[i] =
          static_cast<char *>(s.pointers[i]) + first * int64_t(elementBytes[i]);
    for (uint32_t i = 1; i < numInputs; ++i)
      for (uint32_t out = numInputs; out < info.num_operands; ++out) {
        const char *a = static_cast<const char *>(s.pointers[i]);
        const char *b = static_cast<const char *>(s.pointers[out]);
        shape.inPlace |=
            a < b + info.operand_bytes[out] && b < a + info.operand_bytes[i];
      }
    Poller poller;
    table.run(shape, o, s.workspace, poller);
    return kOk;
  }

private:
  /// `add 0 1;const 3f800000;round bf16 3`: instructions number on from the
  /// gradient (0) and the inputs.
  std::vector<Instruction> read(const Description &d, size_t values) const {
    std::vector<Instruction> program;
    std::string text = d.string("program");
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min(text.find(';', at), text.size());
      std::string_view line(text.data() + at, end - at);
      at = end + 1;
      auto word = [&] {
        size_t cut = std::min(line.find(' '), line.size());
        std::string_view first = line.substr(0, cut);
        line.remove_prefix(std::min(cut + 1, line.size()));
        return first;
      };
      auto number = [&](int base, auto &to) {
        std::string_view digits = word();
        auto [stop, error] = std::from_chars(
            digits.data(), digits.data() + digits.size(), to, base);
        if (error != std::errc() || stop != digits.data() + digits.size())
          d.fail("program", "'" + std::string(digits) + "' is no number");
      };
      auto value = [&](size_t &to) {
        number(10, to);
        if (to >= values)
          d.fail("program", "uses a value that does not exist yet");
      };
      std::string_view name = word();
      Instruction instruction{};
      if (name == "const") {
        uint32_t bits = 0;
        number(16, bits);
        instruction.code = UpdateCode::Constant;
        std::memcpy(&instruction.value, &bits, sizeof bits);
      } else if (name == "round") {
        instruction.code = UpdateCode::Round;
        std::string_view to = word();
        if (to != "bf16" && to != "f16")
          d.fail("program", "rounds to bf16 or f16");
        instruction.type = to == "f16" ? GemmType::F16 : GemmType::BF16;
        instruction.operands = 1;
        value(instruction.values[0]);
      } else {
        const Name *known = nullptr;
        for (const Name &n : kNames)
          if (n.text == name)
            known = &n;
        if (!known)
          d.fail("program", "'" + std::string(name) + "' is no operation");
        instruction.code = known->code;
        instruction.first = known->first;
        instruction.operands = known->operands;
        for (size_t i = 0; i < known->operands; ++i)
          value(instruction.values[i]);
      }
      if (!line.empty())
        d.fail("program", "'" + std::string(line) + "' is too much");
      if (program.size() == kMostInstructions)
        d.unsupported("program", "has too many instructions");
      program.push_back(instruction);
      ++values;
    }
    return program;
  }

  /// Lets the only user of an operation do it, too: its result never lies in
  /// memory.
  static void chain(std::vector<Instruction> &program, size_t firstOwn,
                    const std::vector<int64_t> &results) {
    std::vector<int> uses(firstOwn + program.size(), 0);
    for (const Instruction &i : program)
      for (size_t k = 0; k < i.operands; ++k)
        ++uses[i.values[k]];
    for (int64_t r : results)
      uses[size_t(r)] += 2;
    for (Instruction &user : program) {
      if (user.code != UpdateCode::Chain || user.first == UpdateFirst::Sqrt)
        continue;
      for (size_t k = 0; k < 2; ++k) {
        size_t value = user.values[k];
        if (value < firstOwn || uses[value] != 1)
          continue;
        Instruction &source = program[value - firstOwn];
        if (source.code != UpdateCode::Chain ||
            source.then != UpdateThen::Nothing)
          continue;
        source.inlined = true;
        user.then = thenOf(user.first, k == 1);
        user.first = source.first;
        user.values[2] = user.values[1 - k];
        user.values[0] = source.values[0];
        user.values[1] = source.values[source.operands - 1];
        user.operands = 3;
        break;
      }
    }
  }

  /// What is done with a strip, in order, and in which strip each value lies:
  /// inputs are loaded when first used, results stored when they are there.
  /// What does not change from strip to strip comes first, and keeps its strip.
  void schedule(const std::vector<Instruction> &program,
                const std::vector<GemmType> &inputs,
                const std::vector<bool> &single,
                const std::vector<GemmType> &outputs,
                const std::vector<int64_t> &results) {
    const size_t firstOwn = 1 + inputs.size();
    std::vector<size_t> lastUse(firstOwn + program.size(), 0);
    auto uses = [&](const Instruction &i, auto f) {
      for (size_t k = 0; k < i.operands; ++k)
        if (std::find(i.values, i.values + k, i.values[k]) == i.values + k)
          f(i.values[k]);
    };
    for (size_t n = 0; n < program.size(); ++n)
      if (!program[n].inlined)
        uses(program[n], [&](size_t v) { lastUse[v] = n + 1; });
    std::vector<int> place(lastUse.size(), -1);
    std::vector<int> free;
    auto take = [&](size_t value) {
      if (free.empty())
        free.push_back(strips++);
      place[value] = free.back();
      free.pop_back();
      return uint16_t(place[value]);
    };
    auto isFixed = [&](size_t value) {
      return value >= firstOwn
                 ? program[value - firstOwn].code == UpdateCode::Constant
                 : value > 0 && single[value - 1];
    };
    auto store = [&](size_t value) {
      for (size_t r = 0; r < results.size(); ++r) {
        if (size_t(results[r]) != value)
          continue;
        UpdateStep step;
        step.code = r ? UpdateCode::Store : UpdateCode::Spread;
        step.type = r ? outputs[r - 1] : type;
        step.operand = uint16_t(numInputs + r);
        step.a = uint16_t(place[value]);
        steps.push_back(step);
      }
    };
    auto load = [&](size_t value) {
      if (place[value] >= 0 || value >= firstOwn)
        return;
      UpdateStep step;
      step.code = value == 0          ? UpdateCode::Sum
                  : single[value - 1] ? UpdateCode::Single
                                      : UpdateCode::Load;
      step.type = value ? inputs[value - 1] : type;
      step.operand = uint16_t(value);
      step.to = take(value);
      steps.push_back(step);
      if (value == 0 && type != GemmType::F32) {
        // As the collective's result would have been.
        step.code = UpdateCode::Round;
        step.a = step.to;
        steps.push_back(step);
      }
    };
    for (size_t v = 1; v < firstOwn; ++v)
      if (single[v - 1])
        load(v);
    for (size_t n = 0; n < program.size(); ++n)
      if (isFixed(firstOwn + n)) {
        UpdateStep step;
        step.value = program[n].value;
        step.to = take(firstOwn + n);
        steps.push_back(step);
      }
    once = int(steps.size());
    for (size_t v = 0; v < lastUse.size(); ++v)
      if (isFixed(v))
        store(v);
    // The members' parts are read whether their sum is used or not.
    load(0);
    store(0);
    for (size_t n = 0; n < program.size(); ++n) {
      const Instruction &instruction = program[n];
      const size_t own = firstOwn + n;
      if (instruction.inlined || isFixed(own))
        continue;
      uses(instruction, [&](size_t v) {
        bool fresh = place[v] < 0;
        load(v);
        if (fresh)
          store(v);
      });
      UpdateStep step;
      step.code = instruction.code;
      step.first = instruction.first;
      step.then = instruction.then;
      step.type = instruction.type;
      // Where there is no operand, any one that exists is read and not used.
      auto at = [&](size_t k) {
        return uint16_t(
            place[instruction.values[k < instruction.operands ? k : 0]]);
      };
      step.a = at(0);
      step.b = at(1);
      step.c = at(2);
      for (size_t r = 1; r < results.size(); ++r)
        if (size_t(results[r]) == own && outputs[r - 1] == GemmType::F32)
          step.direct = uint16_t(numInputs + r);
      // Operations go element by element: a result may lie over an operand.
      uses(instruction, [&](size_t v) {
        if (lastUse[v] == n + 1 && !isFixed(v))
          free.push_back(place[v]);
      });
      step.to = take(own);
      steps.push_back(step);
      store(own);
      if (lastUse[own] == 0)
        free.push_back(place[own]);
    }
    for (int64_t r : results)
      if (place[size_t(r)] < 0) { // an input that is handed on
        load(size_t(r));
        store(size_t(r));
      }
  }

  const UpdateTable &table;
  int64_t share = 0, partElements = 0;
  uint64_t elementBytes[CONCORD_FUSED_MAX_OPERANDS] = {};
  std::vector<UpdateStep> steps;
  int strips = 0, once = 0;
};

} // namespace

void registerUpdate(Registry &registry) {
  registry.add("fused_update", make<Update>);
}

} // namespace concord::kernels
