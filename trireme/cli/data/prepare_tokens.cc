#include <chrono>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/seconds.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/data/data_commands.h"
#include "trireme/cli/printable.h"
#include "trireme/cli/progress_bar.h"

namespace trireme::cli::inline internal {

int run_prepare_tokens(const dataset::PrepareOptions& options, bool json) {
  const auto start = std::chrono::steady_clock::now();
  dataset::PrepareReport report;
  {
    ProgressBar bar("encode");
    if (!json) std::printf("read    %s\n", printable(options.inputs.front()).c_str());
    std::fflush(stdout);
    report =
        dataset::prepare(options, [&bar](int64_t done, int64_t total) { bar.update(done, total); });
  }
  const double seconds = seconds_since(start);
  if (json) {
    const nlohmann::json object = {
        {"output", options.output},
        {"tokenizer", name_of(dataset::kTokenizerKinds, report.tokenizer)},
        {"vocab_size", report.vocab_size},
        {"tokens", report.tokens},
        {"documents", report.documents},
        {"validation_tokens", report.validation_tokens},
        {"validation_documents", report.validation_documents},
        {"bytes_read", report.bytes},
        {"seconds", seconds}};
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  std::printf("tokens  %s for training in %lld documents, %s for validation in %lld\n",
              human_count(static_cast<double>(report.tokens)).c_str(),
              static_cast<long long>(report.documents),
              human_count(static_cast<double>(report.validation_tokens)).c_str(),
              static_cast<long long>(report.validation_documents));
  std::printf(
      "wrote   %s.bin, .idx and .tokenizer.json: %s, vocabulary %lld, %.2f bytes per token, %s in "
      "%s\n",
      printable(options.output).c_str(),
      name_of(dataset::kTokenizerKinds, report.tokenizer).c_str(),
      static_cast<long long>(report.vocab_size), report.bytes_per_token,
      human_bytes(static_cast<double>(report.bytes)).c_str(), human_duration(seconds).c_str());
  return kDone;
}

}  // namespace trireme::cli::inline internal
