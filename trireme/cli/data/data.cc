// trireme data: makes training data; trireme data generate: data whose best model is known.
#include <chrono>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/clock.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/dataset/recommend/criteo_generator.h"

namespace trireme::cli {
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
      "Write synthetic data in Criteo's format, for which the best possible AUC is known. The\n"
      "numbers of categories per column are those of Criteo's Kaggle data, times --scale.\n"
      "  trireme data generate --format criteo --samples 1000000 --output day_0.tsv\n");
  const auto forms = names_of(dataset::kCriteoForms);
  auto format = std::make_shared<std::string>(forms.front());
  auto json = std::make_shared<bool>(false);
  command->add_option("--format", *format, in_words(forms))
      ->check(CLI::IsMember(forms))
      ->capture_default_str();
  command->add_option("--samples", options->num_samples, "number of samples to write")
      ->required()
      ->check(within({1, int64_t{1} << 40}));
  command->add_option("--seed", options->seed, "random seed")
      ->check(within({0, std::numeric_limits<uint64_t>::max()}))
      ->capture_default_str();
  command
      ->add_option("--scale", options->scale,
                   "factor applied to the number of categories per column")
      ->check(within({.minimum = 0, .maximum = 100, .above_minimum = true}))
      ->capture_default_str();
  command
      ->add_option("--skew", options->skew,
                   "exponent of the category distribution: the k-th most frequent has probability "
                   "of about k^-skew; any value but 1")
      ->check(within({0, 4}))
      ->capture_default_str();
  command
      ->add_option("--output", options->output,
                   "file to write; criteo-numpy: prefix of the three files")
      ->required();
  add_json(*command, *json);
  command->callback([options, format, json, &exit_code] {
    options->form = choose(dataset::kCriteoForms, "--format", *format);
    exit_code = generate(*options, *json);
  });
}

void add_data(CLI::App& app, int& exit_code) {
  CLI::App* data = app.add_subcommand("data", "Prepare training data");
  data->require_subcommand(1);
  add_data_prepare(*data, exit_code);
  add_data_generate(*data, exit_code);
  add_data_inspect(*data, exit_code);
  add_data_outputs(*data, exit_code);
}

}  // namespace trireme::cli
