// trireme data prepare --format chat: conversations to token files with a loss mask.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"

namespace trireme::cli {
namespace {

std::chrono::local_seconds local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return std::chrono::local_seconds(std::chrono::seconds(now + local.tm_gmtoff));
}

double percent_of(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string tokens_of(const dataset::ChatCounts& counts) {
  return format("%s in %lld conversations", human_count(static_cast<double>(counts.tokens)).c_str(),
                static_cast<long long>(counts.conversations));
}

}  // namespace

int run_prepare_chat(dataset::PrepareChatOptions options, bool json) {
  const auto start = std::chrono::steady_clock::now();
  options.now = local_time();
  dataset::PrepareChatReport report;
  {
    ProgressBar bar("encode");
    if (!json) std::printf("read    %s\n", printable(options.inputs.front()).c_str());
    std::fflush(stdout);
    report = dataset::prepare_chat(
        options, [&bar](int64_t done, int64_t total) { bar.update(done, total); });
  }
  const double seconds = seconds_since(start);
  const auto& [training, validation] = std::pair(report.training, report.validation);
  if (json) {
    const nlohmann::json object = {{"output", options.output},
                                   {"vocab_size", report.vocab_size},
                                   {"marked_by_template", report.is_marked},
                                   {"conversations", training.conversations},
                                   {"tokens", training.tokens},
                                   {"trained_tokens", training.trained_tokens},
                                   {"validation_conversations", validation.conversations},
                                   {"validation_tokens", validation.tokens},
                                   {"validation_trained_tokens", validation.trained_tokens},
                                   {"longest_conversation_tokens", report.longest_tokens},
                                   {"untrained_conversations", report.untrained},
                                   {"bytes_read", report.num_bytes},
                                   {"seconds", seconds}};
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  std::printf("tokens  %s for training, %s for validation; the longest has %s\n",
              tokens_of(training).c_str(), tokens_of(validation).c_str(),
              human_count(static_cast<double>(report.longest_tokens)).c_str());
  std::printf(
      "trained %.1f %% of them: what the assistant says, %s\n",
      percent_of(training.trained_tokens + validation.trained_tokens,
                 training.tokens + validation.tokens),
      report.is_marked ? "as the template marks it" : "as its messages add to the rendered text");
  if (report.untrained > 0) {
    std::printf("note    in %lld conversations the assistant says nothing\n",
                static_cast<long long>(report.untrained));
  }
  std::printf(
      "wrote   %s.bin, .idx, .loss.bin, .loss.idx and .tokenizer.json: vocabulary %lld, %s in %s\n",
      printable(options.output).c_str(), static_cast<long long>(report.vocab_size),
      human_bytes(static_cast<double>(report.num_bytes)).c_str(), human_duration(seconds).c_str());
  return kDone;
}

}  // namespace trireme::cli
