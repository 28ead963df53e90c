// trireme data prepare --format chat and preference: conversations, or pairs of answers, to token
// files with a loss mask.
#include <cstdio>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/dataset/conversation/chat_prompts.h"

namespace trireme::cli {
namespace {

double percent_of(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string tokens_of(const dataset::ChatCounts& counts, const char* lines) {
  return format("%s in %lld %s", human_count(static_cast<double>(counts.tokens)).c_str(),
                static_cast<long long>(counts.lines), lines);
}

const char* what_is_trained(const dataset::PrepareChatReport& report, bool are_pairs) {
  if (are_pairs) return "the answers";
  return report.is_marked ? "what the assistant says, as the template marks it"
                          : "what the assistant says, as its messages add to the rendered text";
}

}  // namespace

int run_prepare_chat(dataset::PrepareChatOptions options, bool json) {
  const auto start = std::chrono::steady_clock::now();
  options.now = dataset::local_time();
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
  const bool are_pairs = options.lines == dataset::ChatLines::kPreferences;
  const char* const lines = are_pairs ? "pairs" : "conversations";
  if (json) {
    nlohmann::json object = {{"output", options.output},
                             {"vocab_size", report.vocab_size},
                             {lines, training.lines},
                             {"tokens", training.tokens},
                             {"trained_tokens", training.trained_tokens},
                             {concat("validation_", lines), validation.lines},
                             {"validation_tokens", validation.tokens},
                             {"validation_trained_tokens", validation.trained_tokens},
                             {"bytes_read", report.num_bytes},
                             {"seconds", seconds}};
    if (options.image_size > 0) {
      object["images"] = training.images;
      object["validation_images"] = validation.images;
    }
    if (are_pairs) {
      object["longest_tokens"] = report.longest_tokens;
    } else {
      object["marked_by_template"] = report.is_marked;
      object["longest_conversation_tokens"] = report.longest_tokens;
      object["untrained_conversations"] = report.untrained;
    }
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  std::printf("tokens  %s for training, %s for validation; the longest has %s\n",
              tokens_of(training, lines).c_str(), tokens_of(validation, lines).c_str(),
              human_count(static_cast<double>(report.longest_tokens)).c_str());
  std::printf("trained %.1f %% of them: %s\n",
              percent_of(training.trained_tokens + validation.trained_tokens,
                         training.tokens + validation.tokens),
              what_is_trained(report, are_pairs));
  if (options.image_size > 0) {
    std::printf("images  %lld for training, %lld for validation, of %lld x %lld pixels\n",
                static_cast<long long>(training.images), static_cast<long long>(validation.images),
                static_cast<long long>(options.image_size),
                static_cast<long long>(options.image_size));
  }
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
