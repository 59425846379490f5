//===- Builder.h - From wire messages to a Graph ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One walk over a model's nodes in topological order: names are resolved,
// shapes inferred, and constants folded as they appear, because later shapes
// depend on them. Functions and decided `If`s are walked in place.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_FRONTENDS_ONNX_BUILDER_H
#define CONCORD_FRONTENDS_ONNX_BUILDER_H

#include "Wire.h"
#include "concord/onnx/OpRegistry.h"
#include "concord/onnx/Reader.h"
#include "concord_onnx.pb.h"

#include <deque>
#include <unordered_set>

namespace concord::onnx::detail {

class Builder {
public:
  Builder(Source &source, const ReadOptions &options)
      : source(source), options(options) {}

  Model build(const wire::Model &proto);

private:
  using Opsets = std::map<std::string, int64_t>;
  using Attributes = std::map<std::string, Attribute>;

  /// The names that a piece of model text can see. Scopes of an inlined branch
  /// share the graph of their parent; a kept branch has a graph of its own and
  /// reaches its parent's values by capture. Function bodies have no parent.
  struct Scope {
    Graph *graph;
    Scope *parent = nullptr;
    const Opsets *opsets;
    const Attributes *arguments = nullptr; ///< of the function being inlined
    std::string prefix;                    ///< of names made here
    std::unordered_map<std::string, ValueId> names;
    /// Values of the parent's graph that this graph captures, in order.
    std::vector<std::pair<ValueId, ValueId>> captures;
    int depth = 0;
  };

  // Builder.cpp
  void readHeader(const wire::Model &proto);
  void readInputs(const wire::Graph &proto, Scope &scope);
  TensorType inputType(const wire::ValueInfo &info);
  int64_t extent(const wire::Extents::Extent &dim, size_t axis,
                 const std::string &input);
  void finishOutputs(const wire::Graph &proto, Scope &scope);
  void checkOutputType(const wire::ValueInfo &info, const TensorType &type);
  void collectDimNames(const wire::Graph &proto);
  std::vector<std::string> inputDims; ///< names and expressions of the inputs
  std::optional<int64_t> dimValue(const std::string &expression) const;
  void readInitializers(const wire::Graph &proto, Scope &scope);

  // BuildNodes.cpp
  template <typename Nodes> void buildNodes(const Nodes &nodes, Scope &scope);
  template <typename Nodes>
  std::vector<int> sortNodes(const Nodes &nodes, const Scope &scope);
  void dropComputed(Graph &graph);
  void noteFold(const std::string &name, const std::vector<Tensor> &results);
  void countNode();
  void buildNode(const wire::Node &proto, int index, Scope &scope);
  void inlineFunction(const wire::Function &function, Node &node, Scope &scope);
  void buildIf(const wire::Node &proto, Node &node, Scope &scope);
  void inlineBranch(const wire::Graph &branch, Node &node, Scope &scope);
  ValueId capture(Scope &scope, ValueId outer);

  // BuildLoops.cpp
  bool isSequence(ValueId id) const;
  ValueId addSequence(std::vector<ValueId> elements);
  Scope innerScope(Scope &scope, std::string prefix);
  std::vector<ValueId> makeNode(const Node &origin, Scope &scope,
                                const std::string &type,
                                const std::vector<ValueId> &operands,
                                size_t results,
                                std::optional<int64_t> axis = {});
  ValueId makeInts(const Node &origin, Scope &scope,
                   const std::vector<int64_t> &values);
  ValueId joined(const Node &origin, Scope &scope, std::vector<ValueId> values,
                 int64_t axis, bool isNew);
  std::vector<ValueId> pieces(const Node &origin, Scope &scope, ValueId value,
                              int64_t axis, const std::vector<int64_t> &extents,
                              bool keepAxis);
  int64_t knownInt(const Node &node, const Scope &scope, ValueId id,
                   const std::string &why) const;
  bool buildSequence(const wire::Node &proto, Node &node, Scope &scope);
  std::vector<ValueId> iterate(const Node &node, const wire::Graph &body,
                               Scope &outer, int64_t round,
                               const std::vector<ValueId> &operands);
  void buildLoop(const wire::Node &proto, Node &node, Scope &scope);
  void buildScan(const wire::Node &proto, Node &node, Scope &scope);
  void finishLoop(const wire::Node &proto, Node &node, Scope &scope,
                  std::vector<ValueId> state,
                  const std::vector<std::vector<ValueId>> &stacks,
                  const std::vector<int64_t> &axes);

  Attribute readAttribute(const wire::Attribute &proto);
  void readAttributes(const wire::Node &proto, Node &node, const Scope &scope);
  void readAnnotations(const wire::Node &proto, Node &node);
  std::optional<ValueId> lookup(Scope &scope, const std::string &name);
  ValueId addValue(Graph &graph, std::string name, TensorType type);
  ValueId addConstant(Graph &graph, std::string name, Tensor tensor);
  void define(Scope &scope, const std::string &name, ValueId id,
              const std::string &by);
  NodeView view(const Node &node, const Graph &graph) const;
  std::string nodePrefix(const Node &node) const;
  [[noreturn]] void needConstant(const Node &node, const Graph &graph,
                                 ValueId id, const std::string &why) const;
  std::string uniqueNodeName(const wire::Node &proto, int index,
                             const Scope &scope);
  [[noreturn]] void fail(const std::string &message) const;

  Source &source;
  const ReadOptions &options;
  Model model;
  std::map<std::string, int64_t> dimNames; ///< bound value or -1
  std::unordered_map<std::string, const wire::Function *> functions;
  std::vector<const wire::Function *> inlining; ///< functions being inlined
  std::map<const wire::Function *, Opsets> functionOpsets;
  std::deque<wire::Function> fused; ///< meanings of fused operators, by use
  /// Sequences of values of one graph; their ids are those of no value.
  static constexpr ValueId kFirstSequence = 1 << 30;
  std::vector<std::vector<ValueId>> sequences;
  size_t sequenceElements = 0; ///< of all of them
  std::unordered_set<std::string> nodeNames;
  /// Nested functions can double at every level, and loops run for ever; this
  /// many nodes is far above any real model and soon reached by a hostile one.
  static constexpr int64_t kMaxNodes = 1 << 18;
  int64_t nodesBuilt = 0;
  /// Values that a node computes at run time although they are known here, for
  /// this size of the dimensions (ReadOptions::keptNodes); later shapes are
  /// inferred from their data.
  std::set<std::pair<const Graph *, ValueId>> computed;
};

// Fold.cpp

/// The result of a node that needs no kernel: Constant, Shape, Size, and
/// ConstantOfShape up to `limit` bytes.
std::optional<Tensor> foldTrivial(const NodeView &view, uint64_t limit);

/// Run the node's kernel on its constant operands. False when there is no
/// kernel for it or it fails; the node then stays.
bool runNode(const NodeView &view, std::vector<Tensor> &results);

/// Fold data movement of weights that nothing else uses (a transposed weight).
void foldWeights(Graph &graph);
/// Remove nodes and values that no output needs, and renumber values. Inputs
/// stay.
void removeDead(Graph &graph);

} // namespace concord::onnx::detail

#endif // CONCORD_FRONTENDS_ONNX_BUILDER_H
