// trireme data generate: data whose best model is known.
#include <chrono>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/seconds.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/data/data_commands.h"
#include "trireme/cli/number_range.h"
#include "trireme/cli/printable.h"
#include "trireme/cli/progress_bar.h"
#include "trireme/dataset/recommend/criteo_generator.h"

namespace trireme::cli::inline internal {
namespace {

int generate(const dataset::GenerateCriteoOptions& options, bool json) {
  const auto start = std::chrono::steady_clock::now();
  dataset::GenerateCriteoReport report;
  {
    ProgressBar bar("write");
    report = dataset::generate_criteo(
        options, [&bar](int64_t done, int64_t total) { bar.update(done, total); });
  }
  if (json) {
    const nlohmann::json object = {{"output", options.output},
                                   {"samples", report.num_samples},
                                   {"positives", report.num_positives},
                                   {"best_auc", report.best_auc},
                                   {"expected_auc", report.expected_auc},
                                   {"best_normalised_entropy", report.best_normalised_entropy},
                                   {"bytes_written", report.num_bytes},
                                   {"seconds", seconds_since(start)}};
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  std::printf(
      "samples %s, %.2f %% positive\n",
      human_count(static_cast<double>(report.num_samples)).c_str(),
      100.0 * static_cast<double>(report.num_positives) / static_cast<double>(report.num_samples));
  std::printf(
      "best    AUC %.6f on these labels (%.6f expected), normalised entropy %.6f: those of the\n"
      "        probabilities from which the labels were drawn\n",
      report.best_auc, report.expected_auc, report.best_normalised_entropy);
  std::printf("wrote   %s%s: %s in %s\n", printable(options.output).c_str(),
              options.form == dataset::CriteoForm::kNumpy ? "_*.npy" : "",
              human_bytes(static_cast<double>(report.num_bytes)).c_str(),
              human_duration(seconds_since(start)).c_str());
  return kDone;
}

}  // namespace

void add_data_generate(CLI::App& data, int& exit_code) {
  auto options = std::make_shared<dataset::GenerateCriteoOptions>();
  options->scale = 0.01;
  CLI::App* command = data.add_subcommand(
      "generate",
      "Write data in Criteo's format with a known best AUC. Columns have as many categories as\n"
      "Criteo's Kaggle data, scaled.\n"
      "  trireme data generate --format criteo --samples 1000000 --output day_0.tsv\n");
  const auto forms = names_of(dataset::kCriteoForms);
  auto format = std::make_shared<std::string>(forms.front());
  auto json = std::make_shared<bool>(false);
  command->add_option("--format", *format, in_words(forms))
      ->check(CLI::IsMember(forms))
      ->capture_default_str();
  command->add_option("--samples", options->num_samples, "how many")
      ->required()
      ->check(within({1, int64_t{1} << 40}));
  command->add_option("--seed", options->seed, "of all draws")
      ->check(within({0, std::numeric_limits<uint64_t>::max()}))
      ->capture_default_str();
  command->add_option("--scale", options->scale, "multiplies the numbers of categories")
      ->check(within({.minimum = 0, .maximum = 100, .above_minimum = true}))
      ->capture_default_str();
  command
      ->add_option("--skew", options->skew,
                   "the category of rank k has a probability of about k^-skew; not 1")
      ->check(within({0, 4}))
      ->capture_default_str();
  command
      ->add_option("--output", options->output,
                   "the file to write; criteo-numpy: what the names of the three files begin with")
      ->required();
  add_json(*command, *json);
  command->callback([options, format, json, &exit_code] {
    options->form = choose(dataset::kCriteoForms, "--format", *format);
    exit_code = generate(*options, *json);
  });
}

}  // namespace trireme::cli::inline internal
