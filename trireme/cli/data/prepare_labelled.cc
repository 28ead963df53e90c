// trireme data prepare --format labelled: texts with labels to token files.
#include <chrono>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"

namespace trireme::cli {

int run_prepare_labelled(const dataset::PrepareLabelledOptions& options, bool json) {
  const auto start = std::chrono::steady_clock::now();
  dataset::PrepareLabelledReport report;
  {
    ProgressBar bar("encode");
    if (!json) std::printf("read    %s\n", printable(options.inputs.front()).c_str());
    std::fflush(stdout);
    report = dataset::prepare_labelled(
        options, [&bar](int64_t done, int64_t total) { bar.update(done, total); });
  }
  const double seconds = seconds_since(start);
  if (json) {
    const nlohmann::json object = {{"output", options.output},
                                   {"vocab_size", report.vocab_size},
                                   {"classes", report.classes},
                                   {"texts", report.texts},
                                   {"tokens", report.tokens},
                                   {"validation_texts", report.validation_texts},
                                   {"validation_tokens", report.validation_tokens},
                                   {"longest_tokens", report.longest_tokens},
                                   {"bytes_read", report.num_bytes},
                                   {"seconds", seconds}};
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  const auto count = [](int64_t number) { return human_count(static_cast<double>(number)); };
  std::printf(
      "texts   %s for training with %s tokens, %s for validation with %s; the longest has %s\n",
      count(report.texts).c_str(), count(report.tokens).c_str(),
      count(report.validation_texts).c_str(), count(report.validation_tokens).c_str(),
      count(report.longest_tokens).c_str());
  std::printf("classes %zu, from %s to %s\n", report.classes.size(),
              printable(report.classes.front()).c_str(), printable(report.classes.back()).c_str());
  std::printf(
      "wrote   %s.bin, .idx, .label.bin, .label.idx, .classes.json and .tokenizer.json: vocabulary "
      "%lld, %s in %s\n",
      printable(options.output).c_str(), static_cast<long long>(report.vocab_size),
      human_bytes(static_cast<double>(report.num_bytes)).c_str(), human_duration(seconds).c_str());
  return kDone;
}

}  // namespace trireme::cli
