// A run's config.toml as the page shows it: keys with their values as text, and the places of the
// ranks on its mesh. Anyone may have written the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::watch {

struct AxisSize {
  std::string name{};
  int64_t size = 1;
};

struct RunConfig {
  std::string text{};                         // of the file
  std::map<std::string, std::string> keys{};  // "optimizer.learning_rate" -> "0.001"
  std::string problem{};                      // why there are no keys; "": there are

  // Nothing when there is no such key, or it is no whole number of at least 0.
  std::optional<int64_t> whole(const std::string& key) const;
};

// Never throws: what cannot be read leaves the config without keys.
RunConfig read_run_config(const std::filesystem::path& path);
RunConfig parse_run_config(std::string text, const std::string& source);

// The axes with more than one rank, outermost first; learners before all. One axis "data" for a run
// of one rank. A config without sizes puts all ranks on the axis "data".
std::vector<AxisSize> mesh_axes_of(const RunConfig& config, int64_t num_ranks);
// Of each rank the index on each axis, the last axis fastest. Ranks beyond the mesh, such as
// servers of parameters, have none.
std::vector<std::vector<int64_t>> coordinates_of(const std::vector<AxisSize>& axes,
                                                 int64_t num_ranks);
// Ranks beyond the mesh, which train nothing.
struct RankRole {
  std::string name{};  // "servers", "teachers"
  int64_t first = 0;
  int64_t count = 0;
};
std::vector<RankRole> roles_of(const RunConfig& config, const std::vector<AxisSize>& axes);
// Of each rank its pipeline stage, 0 without such an axis.
std::vector<int64_t> stages_of(const std::vector<AxisSize>& axes, int64_t num_ranks);

struct ConfigDifference {
  std::string key{};
  std::vector<std::string> values{};  // of each run; "": it has no such key
};
// The keys whose values differ, in the order of names.
std::vector<ConfigDifference> differences_of(const std::vector<const RunConfig*>& configs);

}  // namespace trireme::watch
