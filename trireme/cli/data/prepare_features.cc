#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/seconds.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/data/data_commands.h"
#include "trireme/cli/printable.h"
#include "trireme/cli/progress_bar.h"

namespace trireme::cli::inline internal {
namespace {

std::string count_of(int64_t count) { return human_count(static_cast<double>(count)); }

void print_report(const dataset::PrepareFeaturesReport& report) {
  const dataset::FeatureSchema& schema = report.schema;
  std::printf("samples %s for training, %s for validation", count_of(schema.num_training).c_str(),
              count_of(schema.num_validation).c_str());
  if (schema.num_items > 0) std::printf(", %s items", count_of(schema.num_items).c_str());
  if (!schema.classes.empty()) std::printf(", %zu classes", schema.classes.size());
  if (schema.has_hashes()) {
    std::printf("\ntables  %lld with hashed ids, %lld numbers per sample\n",
                static_cast<long long>(schema.num_tables()),
                static_cast<long long>(schema.num_dense()));
    return;
  }
  int64_t rows = 0;
  for (const dataset::FeatureTable& table : schema.tables) rows += table.rows;
  std::printf("\ntables  %lld with %s rows, %lld numbers per sample\n",
              static_cast<long long>(schema.num_tables()), count_of(rows).c_str(),
              static_cast<long long>(schema.num_dense()));
  if (schema.num_tables() > 0) {
    const auto largest = std::ranges::max_element(schema.tables, {}, &dataset::FeatureTable::rows);
    std::printf("largest %s: %s rows\n", printable(largest->name).c_str(),
                count_of(largest->rows).c_str());
  }
  const double share = report.num_ids == 0 ? 0.0
                                           : 100.0 * static_cast<double>(report.num_rare_ids) /
                                                 static_cast<double>(report.num_ids);
  std::printf("rare    %.2f %% of the ids are row 0: categories that occur fewer than %lld times\n",
              share, static_cast<long long>(schema.min_count));
}

nlohmann::json to_object(const dataset::PrepareFeaturesReport& report) {
  const dataset::FeatureSchema& schema = report.schema;
  nlohmann::json tables = nlohmann::json::array();
  for (const dataset::FeatureTable& table : schema.tables) {
    nlohmann::json object = {{"name", table.name}, {"rows", nullptr}};
    if (!table.is_hashed) object["rows"] = table.rows;
    tables.push_back(std::move(object));
  }
  return {{"training_samples", schema.num_training},
          {"validation_samples", schema.num_validation},
          {"items", schema.num_items},
          {"classes", schema.classes.size()},
          {"dense", schema.num_dense()},
          {"tables", std::move(tables)},
          {"ids", report.num_ids},
          {"rare_ids", report.num_rare_ids},
          {"min_count", schema.min_count},
          {"bytes_read", report.num_bytes}};
}

}  // namespace

int run_prepare_features(const dataset::PrepareFeaturesOptions& options, bool json) {
  const auto start = std::chrono::steady_clock::now();
  dataset::PrepareFeaturesReport report;
  {
    ProgressBar bar("prepare");
    if (!json) std::printf("read    %s\n", printable(options.inputs.front()).c_str());
    std::fflush(stdout);
    report = dataset::prepare_features(
        options, [&bar](int64_t done, int64_t total) { bar.update(done, total); });
  }
  if (json) {
    nlohmann::json object = to_object(report);
    object["output"] = options.output;
    object["seconds"] = seconds_since(start);
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  print_report(report);
  std::printf("wrote   %s from %s in %s\n", printable(options.output).c_str(),
              human_bytes(static_cast<double>(report.num_bytes)).c_str(),
              human_duration(seconds_since(start)).c_str());
  return kDone;
}

}  // namespace trireme::cli::inline internal
