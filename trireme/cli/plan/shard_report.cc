#include "trireme/cli/plan/shard_report.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/cli/console.h"

namespace trireme::cli {
namespace {

// Equal lines, counted.
struct Shown {
  int count = 0;
  double bytes = 0;
  double seconds = 0;
};

std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (size_t dim = 0; dim < sizes.size(); ++dim) text += concat(dim > 0 ? ", " : "", sizes[dim]);
  return text + "]";
}

std::string step_time(double seconds) {
  return seconds >= 0.1 ? format("%.3f s", seconds) : format("%.3f ms", 1e3 * seconds);
}

std::string operator_of(const spmd::Graph& graph, const plan::ShardMove& move) {
  if (move.node < 0) return "gradient";
  const spmd::GraphNode& node = graph.nodes[move.node];
  return concat(node.name, node.is_backward ? " (backward)" : "");
}

std::string module_of(const spmd::Graph& graph, const plan::ShardMove& move) {
  if (move.node < 0) return graph.values[move.parameter].name;
  const std::string& module = graph.nodes[move.node].module;
  return module.empty() ? "the root module" : module;
}

// "tensor: partial -> sharded(1)", of the axes that change.
std::string change_of(const plan::ShardMove& move, const plan::ShardAxes& axes) {
  std::string text;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (move.from[axis] == move.to[axis]) continue;
    const plan::ShardAxes one = {axes[axis]};
    const auto word = [&](plan::AxisSplit split) {
      const std::string whole = to_string(one, {split, plan::kReplicated});
      const size_t start = whole.find(": ") + 2;
      return whole.substr(start, whole.size() - start - 1);
    };
    text += concat(text.empty() ? "" : ", ", axes[axis].name, ": ", word(move.from[axis]), " -> ",
                   word(move.to[axis]));
  }
  return text;
}

void show_parameters(const spmd::Graph& graph, const plan::ShardPlan& plan,
                     const plan::ShardAxes& axes, TextWriter& out) {
  std::map<std::tuple<std::string, std::string, std::string>, Shown> lines;
  std::vector<std::tuple<std::string, std::string, std::string>> order;
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const spmd::GraphValue& value = graph.values[plan.parameters[i]];
    const auto key = std::make_tuple(general_path(value.name), sizes_text(value.sizes),
                                     to_string(axes, plan.splits[i]));
    Shown& line = lines[key];
    if (line.count++ == 0) order.push_back(key);
    line.seconds += plan.gains[i];
  }
  out << "parameters\n";
  for (const auto& key : order) {
    const Shown& line = lines[key];
    out << "  " << std::get<0>(key) << " " << std::get<1>(key);
    if (line.count > 1) out << " x " << line.count;
    out << "\n    " << std::get<2>(key);
    if (line.seconds > 0) out << "; whole on every rank: " << step_time(line.seconds) << " slower";
    if (line.seconds < 0)
      out << "; for memory: whole on every rank, " << step_time(-line.seconds) << " faster";
    out << "\n";
  }
}

void show_moves(const spmd::Graph& graph, const plan::ShardPlan& plan, const plan::ShardAxes& axes,
                TextWriter& out) {
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Key, Shown> lines;
  for (const plan::ShardMove& move : plan.moves) {
    Shown& line = lines[{operator_of(graph, move), general_path(module_of(graph, move)),
                         change_of(move, axes), general_path(move.why)}];
    ++line.count;
    line.bytes += move.bytes;
    line.seconds += move.seconds;
  }
  std::vector<std::pair<Key, Shown>> order(lines.begin(), lines.end());
  std::ranges::stable_sort(
      order, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  out << "redistributions" << (order.empty() ? ": none\n" : ", the longest first\n");
  for (const auto& [key, line] : order) {
    out << "  " << std::get<0>(key) << " in " << std::get<1>(key) << " x " << line.count << ": "
        << std::get<2>(key) << ", " << human_bytes(line.bytes) << ", " << step_time(line.seconds)
        << "\n    " << std::get<3>(key) << "\n";
  }
}

}  // namespace

std::string general_path(std::string_view path) {
  std::string general;
  for (size_t i = 0; i < path.size();) {
    const bool begins = i == 0 || path[i - 1] == '.';
    size_t end = i;
    while (begins && end < path.size() && path[end] >= '0' && path[end] <= '9') ++end;
    const bool is_number = end > i && (end == path.size() || path[end] == '.' || path[end] == ',');
    if (is_number) {
      general += '*';
      i = end;
    } else {
      general += path[i++];
    }
  }
  return general;
}

plan::ShardAxes parse_shard_axes(std::string_view text, const plan::Cluster& cluster) {
  std::vector<std::pair<std::string, int64_t>> sizes;
  if (text.empty()) {
    if (cluster.nodes > 1) sizes.emplace_back("data", cluster.nodes);
    if (cluster.devices_per_node > 1) sizes.emplace_back("tensor", cluster.devices_per_node);
  }
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const size_t equals = word.find('=');
    int64_t size = 0;
    const bool is_number =
        equals != word.npos &&
        std::from_chars(word.data() + equals + 1, word.data() + word.size(), size) ==
            std::from_chars_result{word.data() + word.size(), std::errc()};
    TRIREME_CHECK(is_number && equals > 0 && size >= 2, "--axes has \"", shown(std::string(word)),
                  "\"; expected a name and a size of at least 2, such as tensor=8");
    sizes.emplace_back(word.substr(0, equals), size);
  }
  TRIREME_CHECK(!sizes.empty() && std::ssize(sizes) <= plan::kMostShardAxes, "there are ",
                sizes.size(), " axes of more than one rank; expected 1 or 2: set --axes, such as ",
                "data=8,tensor=8, or a cluster of several devices");
  plan::ShardAxes axes(sizes.size());
  int64_t stride = 1;
  for (size_t axis = axes.size(); axis-- > 0;) {
    axes[axis] = {sizes[axis].first, {.ranks = sizes[axis].second, .stride = stride}};
    TRIREME_CHECK(sizes[axis].second <= cluster.num_devices() / stride, "--axes has more ranks ",
                  "than the cluster's ", cluster.num_devices(), " devices; make them fewer");
    stride *= sizes[axis].second;
  }
  return axes;
}

std::string show(const spmd::Graph& graph, const plan::ShardPlan& plan,
                 const plan::ShardAxes& axes) {
  TextWriter out;
  out << "step     " << step_time(plan.seconds) << ", of it " << step_time(plan.move_seconds)
      << " of redistributions; " << step_time(plan.whole_seconds)
      << " if every rank did everything\n"
      << "proof    no plan takes less than " << step_time(plan.bound_seconds) << ": gap "
      << format("%.3f", 100 * std::max(0.0, plan.gap())) << " %\n"
      << "memory   " << human_bytes(plan.kept_bytes)
      << " a rank for parameters, gradients, optimizer states and kept activations\n";
  show_parameters(graph, plan, axes, out);
  show_moves(graph, plan, axes, out);
  return out.str();
}

nlohmann::json to_json(const spmd::Graph& graph, const plan::ShardPlan& plan,
                       const plan::ShardAxes& axes) {
  nlohmann::json all{{"step_seconds", plan.seconds},
                     {"redistribution_seconds", plan.move_seconds},
                     {"bound_seconds", plan.bound_seconds},
                     {"whole_seconds", plan.whole_seconds},
                     {"gap", plan.gap()},
                     {"memory_bytes", plan.kept_bytes},
                     {"operators", graph.nodes.size()},
                     {"kinds", plan.num_kinds},
                     {"parameters", nlohmann::json::array()},
                     {"redistributions", nlohmann::json::array()}};
  for (const plan::ShardAxis& axis : axes)
    all["axes"].push_back({{"name", axis.name}, {"size", axis.group.ranks}});
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const spmd::GraphValue& value = graph.values[plan.parameters[i]];
    all["parameters"].push_back({{"name", value.name},
                                 {"sizes", value.sizes},
                                 {"placement", to_string(axes, plan.splits[i])},
                                 {"whole_seconds_more", plan.gains[i]}});
  }
  for (const plan::ShardMove& move : plan.moves) {
    all["redistributions"].push_back({{"operator", operator_of(graph, move)},
                                      {"module", module_of(graph, move)},
                                      {"from", to_string(axes, move.from)},
                                      {"to", to_string(axes, move.to)},
                                      {"bytes", move.bytes},
                                      {"seconds", move.seconds},
                                      {"why", move.why}});
  }
  all["without_rule"] = spmd::without_rule(graph);
  return all;
}

}  // namespace trireme::cli
