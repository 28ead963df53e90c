#include "trireme/watch/run/run_config.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <toml++/toml.h>

#include "trireme/base/bounded_toml.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"

namespace trireme::watch {
namespace {

constexpr int64_t kMostShownRanks = 1 << 16;

std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return concat(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  TextWriter out;
  node.visit([&](const auto& each) { out << each; });
  return out.str();
}

void add_keys(const toml::table& table, const std::string& prefix,
              std::map<std::string, std::string>& keys) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const auto* inner = node.as_table()) {
      add_keys(*inner, key + ".", keys);
    } else {
      keys[key] = text_of(node);
    }
  }
}

// That are ranks of this run. Those that meet at a service are runs of their own.
int64_t num_learners(const RunConfig& config) {
  const auto meeting = config.keys.find("outer.meeting");
  if (meeting != config.keys.end() && !meeting->second.empty()) return 1;
  const int64_t learners = config.whole("parallel.learners").value_or(1);
  return learners < 1 || learners > kMostShownRanks ? 1 : learners;
}

}  // namespace

std::optional<int64_t> RunConfig::whole(const std::string& key) const {
  const auto found = keys.find(key);
  if (found == keys.end()) return std::nullopt;
  const std::string& value = found->second;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 0) return std::nullopt;
  return number;
}

RunConfig parse_run_config(std::string text, const std::string& source) {
  RunConfig config{.text = std::move(text)};
  try {
    check_toml(config.text, source);
    const ClassicThread classic;
    add_keys(toml::parse(config.text, source), "", config.keys);
  } catch (const toml::parse_error& error) {
    config.problem = concat(source, ": ", error.description());
  } catch (const Error& error) {
    config.problem = error.what();
  }
  if (!config.problem.empty()) config.keys.clear();
  return config;
}

RunConfig read_run_config(const std::filesystem::path& path) {
  try {
    return parse_run_config(read_file(path, kMaxTomlBytes), path.filename().string());
  } catch (const Error& error) {
    return {.problem = error.what()};
  }
}

std::vector<AxisSize> mesh_axes_of(const RunConfig& config, int64_t num_ranks) {
  // As mesh/axis_kinds.h orders them. `expert` lies within the axes with other samples and adds no
  // ranks.
  constexpr const char* kAxes[] = {"pipeline", "data", "shard", "context", "tensor"};
  std::vector<AxisSize> axes;
  int64_t others = num_learners(config);
  for (const char* name : kAxes) {
    int64_t size = config.whole(concat("parallel.", name)).value_or(0);
    if (size < 1 || size > kMostShownRanks) size = 1;
    if (std::string_view(name) != "data") others *= size;
    axes.push_back({name, size});
    if (others > kMostShownRanks) return {{"data", std::max<int64_t>(1, num_ranks)}};
  }
  // parallel.data counts the ranks of both axes, data and shard. The ranks decide when the config
  // leaves it open, or when they are a multiple of all other axes.
  const int64_t total = std::max<int64_t>(1, num_ranks);
  const int64_t written = axes[1].size / axes[2].size;
  const bool fits = written >= 1 && written * others <= total;
  axes[1].size = fits && config.whole("parallel.data").value_or(0) > 0 ? written : total / others;
  if (axes[1].size < 1) return {{"data", total}};
  axes.insert(axes.begin(), {"learner", num_learners(config)});
  std::erase_if(axes, [](const AxisSize& axis) { return axis.size == 1; });
  if (axes.empty()) axes.push_back({"data", 1});
  return axes;
}

std::vector<std::vector<int64_t>> coordinates_of(const std::vector<AxisSize>& axes,
                                                 int64_t num_ranks) {
  int64_t on_mesh = 1;
  for (const AxisSize& axis : axes) on_mesh *= axis.size;
  std::vector<std::vector<int64_t>> coordinates;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    std::vector<int64_t> place;
    int64_t inner = on_mesh;
    for (const AxisSize& axis : axes) {
      if (rank >= on_mesh) break;
      inner /= axis.size;
      place.push_back(rank / inner % axis.size);
    }
    coordinates.push_back(std::move(place));
  }
  return coordinates;
}

std::vector<RankRole> roles_of(const RunConfig& config, const std::vector<AxisSize>& axes) {
  std::vector<RankRole> roles;
  int64_t first = 1;
  for (const AxisSize& axis : axes) first *= axis.size;
  for (const char* name : {"servers", "teachers"}) {
    const int64_t count = config.whole(concat("parallel.", name)).value_or(0);
    if (count < 1 || count > kMostShownRanks) continue;
    roles.push_back({name, first, count});
    first += count;
  }
  return roles;
}

std::vector<int64_t> stages_of(const std::vector<AxisSize>& axes, int64_t num_ranks) {
  std::vector<int64_t> stages(static_cast<size_t>(num_ranks), 0);
  const auto coordinates = coordinates_of(axes, num_ranks);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis].name != "pipeline") continue;
    for (size_t rank = 0; rank < stages.size(); ++rank) {
      if (!coordinates[rank].empty()) stages[rank] = coordinates[rank][axis];
    }
  }
  return stages;
}

std::vector<ConfigDifference> differences_of(const std::vector<const RunConfig*>& configs) {
  std::set<std::string> names;
  for (const RunConfig* config : configs) {
    for (const auto& [key, value] : config->keys) names.insert(key);
  }
  std::vector<ConfigDifference> differences;
  for (const std::string& key : names) {
    ConfigDifference difference{.key = key};
    std::set<std::string> distinct;
    for (const RunConfig* config : configs) {
      const auto found = config->keys.find(key);
      // A key that is missing differs from one that is empty.
      distinct.insert(found == config->keys.end() ? "" : "=" + found->second);
      difference.values.push_back(found == config->keys.end() ? "" : found->second);
    }
    if (distinct.size() > 1) differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace trireme::watch
