#include "trireme/cli/verify/verify_page.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/file/file.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/verify/comparison_json.h"
#include "trireme/cli/verify/page_files.h"
#include "trireme/watch/serve/html_file.h"

namespace trireme::cli {
namespace {

using nlohmann::json;

constexpr size_t kMostProbes = 12'000;  // below 5 MB

// Leaves out probes without a finding, the last first.
void cut(json& list, size_t most, json& page) {
  if (list.size() <= most) return;
  page["left_out_of_page"] = page["left_out_of_page"].get<size_t>() + list.size() - most;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(most), list.end());
}

}  // namespace

std::string verify_page(const verify::Comparison& comparison, const ComparedSides& sides) {
  verify::Comparison shown = comparison;
  // A bug in a late step is shown before rounding in the first ones.
  if (shown.probes.size() > kMostProbes) {
    std::ranges::stable_sort(shown.probes, std::greater<>(), &verify::Probe::finding);
  }
  json page = to_json(shown);
  page["a"] = sides.a;
  page["b"] = sides.b;
  page["left_out_of_page"] = 0;
  cut(page["probes"], kMostProbes, page);
  cut(page["same"], kMostProbes - page["probes"].size(), page);
  const std::vector<std::pair<std::string, std::string>> answers = {
      {"\"comparison\"", watch::without_tags(json_text(page))}};
  return watch::html_of(verify_files::assets(), answers);
}

void write_verify_page(const verify::Comparison& comparison, const ComparedSides& sides,
                       const std::filesystem::path& path) {
  write_file_atomically(path, verify_page(comparison, sides));
}

}  // namespace trireme::cli
