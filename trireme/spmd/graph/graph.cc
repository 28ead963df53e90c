#include "trireme/spmd/graph/graph.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::spmd {
namespace {

std::string shown_value(const GraphValue& value) {
  std::string text = value.name.empty() ? "[" : concat(value.name, " [");
  for (size_t dim = 0; dim < value.sizes.size(); ++dim)
    text += concat(dim > 0 ? ", " : "", value.sizes[dim]);
  return text + "]";
}

std::string shown_node(const Graph& graph, size_t n) {
  if (n >= graph.nodes.size()) return "the end";
  const GraphNode& node = graph.nodes[n];
  std::string text = node.name + "(";
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0) text += ", ";
    text += node.inputs[i] < 0 ? "none" : shown_value(graph.values[node.inputs[i]]);
  }
  return text + ")";
}

}  // namespace

double GraphValue::numel() const {
  double count = 1;
  for (const int64_t length : sizes) count *= static_cast<double>(length);
  return count;
}

std::string first_difference(const Graph& a, const Graph& b) {
  if (a == b) return "";
  for (size_t n = 0; n < std::max(a.nodes.size(), b.nodes.size()); ++n) {
    const std::string in_a = shown_node(a, n), in_b = shown_node(b, n);
    if (in_a != in_b) return concat("operator ", n, ": ", in_a, " against ", in_b);
    if (a.nodes[n] != b.nodes[n]) return concat("operator ", n, ": ", in_a, " of other values");
  }
  for (size_t v = 0; v < std::min(a.values.size(), b.values.size()); ++v) {
    if (a.values[v] == b.values[v]) continue;
    return concat("value ", v, ": ", shown_value(a.values[v]), " against ",
                  shown_value(b.values[v]));
  }
  return concat("values or gradients: ", a.values.size(), " and ", a.gradients.size(), " against ",
                b.values.size(), " and ", b.gradients.size());
}

std::vector<std::string> without_rule(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphNode& node : graph.nodes) {
    if (!node.has_rule) names.push_back(node.name);
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace trireme::spmd
