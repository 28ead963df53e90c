#include "trireme/cli/language/continued_texts.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/cli/console.h"
#include "trireme/cli/language/stop_text.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/dataset/file/text_lines.h"

namespace trireme::cli {
namespace {

using Tokens = std::vector<int64_t>;
using nlohmann::ordered_json;

std::string one_line(const ordered_json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
}

// Texts that end in any order, printed in that of their numbers.
class TextsInOrder {
 public:
  explicit TextsInOrder(size_t num_texts) : num_texts_(num_texts) {}

  void add(size_t number, std::string line, size_t num_tokens) {
    num_tokens_ += num_tokens;
    waiting_.emplace(number, std::move(line));
    while (!waiting_.empty() && waiting_.begin()->first == num_printed_) {
      std::printf("%s\n", waiting_.begin()->second.c_str());
      waiting_.erase(waiting_.begin());
      ++num_printed_;
    }
    std::fflush(stdout);
    // A terminal that shows the texts needs no bar.
    const size_t num_ended = num_printed_ + waiting_.size();
    if (!shows_texts_)
      bar_.update(static_cast<int64_t>(num_ended), static_cast<int64_t>(num_texts_));
  }
  size_t num_tokens() const { return num_tokens_; }

 private:
  size_t num_texts_;
  bool shows_texts_ = isatty(STDOUT_FILENO);
  ProgressBar bar_{"write", "texts", stderr};
  size_t num_printed_ = 0;
  size_t num_tokens_ = 0;
  std::map<size_t, std::string> waiting_;
};

Tokens prompt_tokens(const ContinuedTexts& texts, const std::string& prompt) {
  Tokens tokens = tasks::text_tokens(texts.tokenizer, prompt);
  if (texts.end_of_prompt < 0) return tokens;
  tokens.erase(tokens.begin());  // which begins a text that goes on
  tokens.push_back(texts.end_of_prompt);
  return tokens;
}

// Sentinels may be behind the tokenizer's tokens.
std::string text_of(const ContinuedTexts& texts, int64_t token) {
  if (token >= texts.tokenizer.vocab_size()) {
    const int64_t span = texts.first_sentinel - token;
    return span >= 0 ? concat("<extra_id_", span, ">") : "";
  }
  const auto id = static_cast<int32_t>(token);
  return texts.tokenizer.decode({&id, 1});
}

}  // namespace

model::GenerateOptions options_for(const tasks::TrainedModel& trained,
                                   model::GenerateOptions options) {
  const tasks::LanguageConfig& own = tasks::language_of(trained.config);
  options.stop_tokens = trained.end_tokens;
  if (own.model.has_decoder()) {
    options.decoder_start = own.data.start_token;
    if (own.data.end_token >= 0) options.stop_tokens.push_back(own.data.end_token);
  } else {
    options.vocab_limit = trained.tokenizer->vocab_size();
  }
  return options;
}

std::vector<std::string> read_prompts(const std::string& path) {
  dataset::TextLines lines(path);
  std::vector<std::string> prompts;
  for (std::string_view line; lines.next(line);) {
    if (dataset::is_blank_line(line)) continue;
    const std::string where = lines.where();
    const nlohmann::json value = parse_json(line, where);
    prompts.push_back(JsonView(value, where).at("prompt").text());
  }
  TRIREME_CHECK(!prompts.empty(), path, " has no line; expected one {\"prompt\": TEXT} each");
  return prompts;
}

void show_text(const ContinuedTexts& texts, const std::string& prompt) {
  // Terminals obey control characters, and a model may produce any. Files and pipes get every byte.
  const bool is_terminal = isatty(STDOUT_FILENO);
  TerminalText terminal;
  const auto print = [&](const std::string& text) {
    if (!texts.prints) return;
    const std::string shown = is_terminal ? terminal.add(text) : text;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  };
  if (texts.end_of_prompt < 0) print(prompt);
  StopText text(texts.stops);
  const Tokens tokens = prompt_tokens(texts, prompt);
  model::generate_texts(texts.model, std::span(&tokens, 1), texts.options,
                        [&](size_t /*number*/, int64_t token) {
                          print(text.add(text_of(texts, token)));
                          return !text.has_ended();
                        });
  print(text.finish());
  if (texts.prints) std::printf("%s\n", terminal.finish().c_str());
}

void write_texts(const ContinuedTexts& texts, const std::vector<std::string>& prompts) {
  std::vector<Tokens> tokens;
  std::vector<StopText> stops(prompts.size(), StopText(texts.stops));
  std::vector<std::string> found(prompts.size());
  for (const std::string& prompt : prompts) tokens.push_back(prompt_tokens(texts, prompt));
  const auto start = std::chrono::steady_clock::now();
  const bool is_shared = texts.model.num_copies() > 1;
  std::string mine;  // for the rank that prints, in a run with several copies
  TextsInOrder lines(prompts.size());
  const auto on_token = [&](size_t number, int64_t token) {
    found[number] += stops[number].add(text_of(texts, token));
    return !stops[number].has_ended();
  };
  const auto on_text = [&](size_t number, std::span<const int64_t> drawn) {
    const bool is_cut = !stops[number].has_ended() && std::ssize(drawn) == texts.options.max_tokens;
    found[number] += stops[number].finish();
    const std::string line = one_line({{"prompt", prompts[number]},
                                       {"text", found[number]},
                                       {"tokens", drawn.size()},
                                       {"end", is_cut ? "length" : "stop"}});
    if (is_shared) {
      mine += one_line({{"number", number}, {"line", line}, {"tokens", drawn.size()}}) + '\n';
    } else if (texts.prints) {
      lines.add(number, line, drawn.size());
    }
  };
  model::generate_texts(texts.model, tokens, texts.options, on_token, on_text);
  if (is_shared) {
    for (const std::string& line : texts.gather(mine)) {
      const auto text = nlohmann::json::parse(line);
      lines.add(text.at("number"), text.at("line"), text.at("tokens"));
    }
  }
  if (!texts.prints) return;
  const double seconds = seconds_since(start);
  std::fprintf(stderr, "%zu texts, %zu tokens in %.2f s, %.1f tokens/s\n", prompts.size(),
               lines.num_tokens(), seconds,
               static_cast<double>(lines.num_tokens()) / std::max(seconds, 1e-9));
}

}  // namespace trireme::cli
