// trireme data prepare --format tokens, json-lines, parquet and arrow: documents to token files.
#include <chrono>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/clock.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"

namespace trireme::cli {

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
    nlohmann::json object = {{"output", options.output},
                             {"tokenizer", name_of(dataset::kTokenizerKinds, report.tokenizer)},
                             {"vocab_size", report.vocab_size},
                             {"tokens", report.tokens},
                             {"documents", report.documents},
                             {"validation_tokens", report.validation_tokens},
                             {"validation_documents", report.validation_documents},
                             {"bytes_read", report.bytes_read},
                             {"text_bytes", report.bytes},
                             {"resumed_bytes", report.bytes_resumed},
                             {"unknown_tokens", report.unknown_tokens},
                             {"duplicates", report.duplicates},
                             {"seconds", seconds}};
    if (options.form != dataset::DocumentForm::kFiles) {
      object["bad_rows"] = report.bad_rows;
      object["empty_rows"] = report.empty_rows;
    }
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
  if (report.bytes_resumed > 0) {
    std::printf("note    %s of them had been encoded before this command was interrupted\n",
                human_bytes(static_cast<double>(report.bytes_resumed)).c_str());
  }
  if (report.unknown_tokens > 0) {
    std::printf("note    %s of the tokens stand for text that the tokenizer's vocabulary lacks\n",
                human_count(static_cast<double>(report.unknown_tokens)).c_str());
  }
  if (report.duplicates > 0) {
    std::printf("note    %lld documents have a text that came before and were left out\n",
                static_cast<long long>(report.duplicates));
  }
  if (report.empty_rows > 0) {
    std::printf("note    %lld rows have an empty text and were left out\n",
                static_cast<long long>(report.empty_rows));
  }
  if (report.bad_rows > 0) {
    std::printf("note    %lld rows cannot be used and were left out; the first: %s\n",
                static_cast<long long>(report.bad_rows), printable(report.first_bad_row).c_str());
  }
  return kDone;
}

}  // namespace trireme::cli
