//===- Blocks.cpp - The rank-group graph and its blocks -------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Biconnected components by Hopcroft and Tarjan (CACM 16(6), 1973), iterative.
// The graph is bipartite: ranks on one side, nodes (sequences of instances) on
// the other. Blocks partition the edges; a block of one edge is a bridge and
// needs no order.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Certificate.h"

#include <algorithm>
#include <unordered_map>

namespace concord::order {

bool RankGroupGraph::forest() const {
  return std::all_of(blockEdges.begin(), blockEdges.end(),
                     [](uint32_t n) { return n <= 1; });
}

std::string RankGroupGraph::describe(const std::vector<OrderDomain> &domains,
                                     uint32_t node) const {
  const GraphNode &n = nodes[node];
  std::string out = domains[n.domain].name;
  if (domains[n.domain].groups.size() > 1)
    out += "[" + std::to_string(n.group) + "]";
  if (n.kind == GraphNode::Kind::Host)
    return "host:" + out;
  if (n.kind == GraphNode::Kind::Transfer)
    return out + ":" + std::to_string(n.source) + "->" +
           std::to_string(n.destination);
  if (n.kind == GraphNode::Kind::Process)
    return "process";
  return out;
}

void computeBlocks(RankGroupGraph &g) {
  uint32_t nNodes = uint32_t(g.nodes.size());
  std::unordered_map<Rank, uint32_t> rankVertex;
  struct Half {
    uint32_t to, edge;
  };
  std::vector<std::vector<Half>> adjacent(nNodes);
  std::vector<std::pair<uint32_t, uint32_t>> where; // edge -> (node, member)
  for (uint32_t n = 0; n < nNodes; ++n)
    for (uint32_t k = 0; k < g.nodes[n].members.size(); ++k) {
      auto [it, fresh] = rankVertex.try_emplace(g.nodes[n].members[k],
                                                uint32_t(adjacent.size()));
      if (fresh)
        adjacent.emplace_back();
      uint32_t edge = uint32_t(where.size());
      where.emplace_back(n, k);
      adjacent[n].push_back({it->second, edge});
      adjacent[it->second].push_back({n, edge});
    }
  uint32_t total = uint32_t(adjacent.size());
  g.edgeBlock.assign(nNodes, {});
  for (uint32_t n = 0; n < nNodes; ++n)
    g.edgeBlock[n].assign(g.nodes[n].members.size(), kNone);
  g.blocks = 0;
  g.blockEdges.clear();

  std::vector<uint32_t> depth(total, kNone), low(total, 0), next(total, 0);
  std::vector<uint32_t> edgeStack;
  struct Frame {
    uint32_t vertex, viaEdge;
  };
  std::vector<Frame> stack;
  for (uint32_t root = 0; root < total; ++root) {
    if (depth[root] != kNone)
      continue;
    depth[root] = low[root] = 0;
    stack.push_back({root, kNone});
    while (!stack.empty()) {
      auto [v, via] = stack.back();
      if (next[v] < adjacent[v].size()) {
        Half h = adjacent[v][next[v]++];
        if (h.edge == via)
          continue;
        if (depth[h.to] == kNone) {
          edgeStack.push_back(h.edge);
          depth[h.to] = low[h.to] = depth[v] + 1;
          stack.push_back({h.to, h.edge});
        } else if (depth[h.to] < depth[v]) {
          edgeStack.push_back(h.edge);
          low[v] = std::min(low[v], depth[h.to]);
        }
        continue;
      }
      stack.pop_back();
      if (stack.empty())
        break;
      uint32_t parent = stack.back().vertex;
      low[parent] = std::min(low[parent], low[v]);
      if (low[v] < depth[parent])
        continue;
      // `parent` cuts off the edges above and including the tree edge to v.
      uint32_t block = g.blocks++, count = 0;
      for (;;) {
        uint32_t e = edgeStack.back();
        edgeStack.pop_back();
        g.edgeBlock[where[e].first][where[e].second] = block;
        ++count;
        if (e == via)
          break;
      }
      g.blockEdges.push_back(count);
    }
  }
}

} // namespace concord::order
