// trireme data prepare --format criteo and its neighbours: tables of features to records.
#include "trireme/cli/data/feature_options.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"

namespace trireme::cli {
namespace {

std::string samples_of(int64_t count) { return human_count(static_cast<double>(count)); }

// "numbers log 3, standard 1; missing: zero".
void print_columns(const dataset::CsvForm& form) {
  std::string text;
  for (const auto& [name, transform] : dataset::kNumberTransforms) {
    const auto count = std::ranges::count(form.numbers, transform, &dataset::CsvNumber::transform);
    if (count > 0) text += concat(text.empty() ? "" : ", ", name, " ", count);
  }
  std::printf("columns numbers by transform: %s; missing: %s; %zu dropped\n",
              text.empty() ? "none" : text.c_str(),
              name_of(dataset::kMissingNumbers, form.missing).c_str(), form.dropped.size());
}

void print_report(const dataset::PrepareFeaturesReport& report) {
  const dataset::FeatureSchema& schema = report.schema;
  std::printf("samples %s for training, %s for validation", samples_of(schema.num_training).c_str(),
              samples_of(schema.num_validation).c_str());
  if (schema.num_items > 0) std::printf(", %s items", samples_of(schema.num_items).c_str());
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
              static_cast<long long>(schema.num_tables()), samples_of(rows).c_str(),
              static_cast<long long>(schema.num_dense()));
  if (schema.num_tables() > 0) {
    const auto largest = std::ranges::max_element(schema.tables, {}, &dataset::FeatureTable::rows);
    std::printf("largest %s: %s rows\n", printable(largest->name).c_str(),
                samples_of(largest->rows).c_str());
  }
  const double share = report.num_ids == 0 ? 0.0
                                           : 100.0 * static_cast<double>(report.num_rare_ids) /
                                                 static_cast<double>(report.num_ids);
  std::printf("rare    %.2f %% of the ids are row 0: categories that occur fewer than %lld times\n",
              share, static_cast<long long>(schema.min_count));
}

nlohmann::json report_object(const dataset::PrepareFeaturesReport& report) {
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
          {"bytes_read", report.num_bytes},
          {"resumed", report.is_resumed},
          {"resumed_samples", report.num_resumed}};
}

}  // namespace

namespace {

std::vector<std::string> parts_of(const std::vector<std::string>& lists) {
  std::vector<std::string> parts;
  for (const std::string& list : lists) {
    for (std::string& part : split_list(list, ',')) parts.push_back(std::move(part));
  }
  return parts;
}

void add_csv_options(CLI::App& command, FeatureArguments& arguments) {
  const auto add = [&](const char* name, auto& value, const std::string& text) {
    CLI::Option* const option = command.add_option(name, value, text);
    arguments.all.push_back(option->group("Options of --format csv"));
    arguments.only_csv.push_back(option);
    return option;
  };
  const auto add_choice = [&](const char* name, std::string& value, const std::string& text,
                              const std::vector<std::string>& names) {
    add(name, value, text)->check(CLI::IsMember(names))->capture_default_str();
  };
  add("--numeric", arguments.numeric,
      "columns of numbers: names or patterns, separated by commas, such as age,price_*; with "
      "another transform than --transform as age:standard");
  add("--category", arguments.category, "columns of categories, in the same form");
  add("--drop", arguments.drop, "columns that are not used, in the same form");
  add("--label", arguments.options.columns.label, "name of the column with the label");
  add_choice("--label-kind", arguments.label_kind, "binary: labels are 0 and 1; class: any names",
             {name_of(dataset::kLabelKinds, dataset::LabelKind::kBinary),
              name_of(dataset::kLabelKinds, dataset::LabelKind::kClass)});
  add_choice("--transform", arguments.transform,
             "what is done with numbers; log: log(1 + max(x, 0)), as with Criteo's; standard: "
             "(x - mean) / deviation of the training samples; none",
             names_of(dataset::kNumberTransforms));
  add_choice("--missing", arguments.missing,
             "what stands for a missing number, before its transform: zero, or the mean of the "
             "training samples; refuse: a row without a number or a category is an error",
             names_of(dataset::kMissingNumbers));
  add("--missing-text", arguments.missing_texts,
      "texts of a cell that is missing, separated by commas, such as NA,null; an empty cell is "
      "missing always");
  add_choice("--separator", arguments.separator, "between cells", names_of(dataset::kSeparators));
}

}  // namespace

void add_feature_options(CLI::App& command, FeatureArguments& arguments) {
  dataset::PrepareFeaturesOptions& options = arguments.options;
  const auto add = [&](CLI::Option* option) {
    arguments.all.push_back(option->group("Options of the other formats"));
    return option;
  };
  add(command.add_option("--min-count", options.min_count,
                         "categories with fewer occurrences in the training samples share one row"))
      ->check(within({1, std::numeric_limits<int64_t>::max()}))
      ->capture_default_str();
  add(command.add_option("--dictionary", options.dictionary,
                         "prepared folder whose categories, classes and items to reuse"));
  const auto kinds = names_of(dataset::kCategoryIds);
  add(command.add_option("--ids", arguments.ids,
                         "ids of categories: row numbers, or hashes for tables with open "
                         "vocabularies (tables.open), which need no dictionary"))
      ->check(CLI::IsMember(kinds))
      ->capture_default_str();
  add_csv_options(command, arguments);
}

void take_feature_options(FeatureArguments& arguments) {
  dataset::PrepareFeaturesOptions& options = arguments.options;
  for (const CLI::Option* option : arguments.all) {
    const std::string name = option->get_name();
    TRIREME_CHECK(options.dictionary.empty() || name == "--dictionary" || option->count() == 0,
                  name, " is that of --dictionary; leave it out");
  }
  options.ids = choose(dataset::kCategoryIds, "--ids", arguments.ids);
  dataset::CsvColumns& columns = options.columns;
  columns.numeric = parts_of(arguments.numeric);
  columns.category = parts_of(arguments.category);
  columns.drop = parts_of(arguments.drop);
  columns.missing_texts = parts_of(arguments.missing_texts);
  columns.label_kind = choose(dataset::kLabelKinds, "--label-kind", arguments.label_kind);
  columns.transform = choose(dataset::kNumberTransforms, "--transform", arguments.transform);
  columns.missing = choose(dataset::kMissingNumbers, "--missing", arguments.missing);
  columns.separator = choose(dataset::kSeparators, "--separator", arguments.separator);
}

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
    nlohmann::json object = report_object(report);
    object["output"] = options.output;
    object["seconds"] = seconds_since(start);
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  print_report(report);
  if (report.schema.csv) print_columns(*report.schema.csv);
  std::printf("wrote   %s from %s in %s\n", printable(options.output).c_str(),
              human_bytes(static_cast<double>(report.num_bytes)).c_str(),
              human_duration(seconds_since(start)).c_str());
  if (report.is_resumed) {
    std::printf(
        "note    categories had been counted, and %s samples written, before this command "
        "was interrupted\n",
        samples_of(report.num_resumed).c_str());
  }
  return kDone;
}

}  // namespace trireme::cli
