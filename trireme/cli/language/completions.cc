#include "trireme/cli/language/completions.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/cli/language/continued_texts.h"
#include "trireme/cli/language/stop_text.h"

namespace trireme::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostPrompts = 4096;
constexpr size_t kMostStops = 16;
constexpr JsonLimits kBodyLimits{.max_bytes = size_t{16} << 20};

// A member that is there and not null.
std::optional<JsonView> member(const JsonView& body, std::string_view key) {
  const auto found = body.find(key);
  return found && !found->value().is_null() ? found : std::nullopt;
}

class RequestReader {
 public:
  RequestReader(const JsonView& body, const tasks::TrainedModel& trained)
      : body_(body), trained_(trained), config_(tasks::language_of(trained.config).model) {}

  CompletionRequest run() {
    check_names();
    read_prompts();
    model::GenerateOptions options;
    options.temperature = 1;
    options.max_tokens = integer("max_tokens", 16, 0, 1'000'000);
    options.temperature = number("temperature", 1, 0, 1e6);
    options.top_p = number("top_p", 1, 0, 1);
    if (options.top_p == 0) body_.at("top_p").fail("a number above 0 and at most 1");
    options.top_k = integer("top_k", 0, 0, 1'000'000'000);
    options.repetition_penalty = number("repetition_penalty", 1, 1e-6, 1e6);
    options.seed = static_cast<uint64_t>(integer("seed", 0, 0, INT64_MAX));
    request_.options = options_for(trained_, options);
    request_.echoes = flag("echo");
    request_.has_scores = member(body_, "logprobs").has_value();
    integer("logprobs", 0, 0, 1);
    read_stops();
    return std::move(request_);
  }

 private:
  // What is answered in one way only may be said, and nothing else.
  void check_names() const {
    constexpr std::array kKnown = {"model",
                                   "prompt",
                                   "max_tokens",
                                   "temperature",
                                   "top_p",
                                   "top_k",
                                   "seed",
                                   "stop",
                                   "echo",
                                   "logprobs",
                                   "user",
                                   "repetition_penalty",
                                   "suffix",
                                   "n",
                                   "best_of",
                                   "stream",
                                   "frequency_penalty",
                                   "presence_penalty",
                                   "logit_bias"};
    for (const auto& [name, value] : body_.members()) {
      TRIREME_CHECK(std::ranges::find(kKnown, name) != kKnown.end(), "the request has ",
                    in_quotes(name, 60), ", which is not known here; leave it out");
    }
    integer("n", 1, 1, 1);
    integer("best_of", 1, 1, 1);
    number("frequency_penalty", 0, 0, 0);
    number("presence_penalty", 0, 0, 0);
    if (flag("stream")) body_.at("stream").fail("false: answers come whole");
    if (const auto bias = member(body_, "logit_bias"); bias && !bias->members().empty())
      bias->fail("no bias of tokens");
    if (const auto suffix = member(body_, "suffix"); suffix && !suffix->text().empty())
      suffix->fail("no suffix: the model reads what stands before");
  }

  int64_t integer(std::string_view key, int64_t otherwise, int64_t least, int64_t most) const {
    const auto found = member(body_, key);
    return found ? found->integer(least, most) : otherwise;
  }
  double number(std::string_view key, double otherwise, double least, double most) const {
    const auto found = member(body_, key);
    return found ? found->number(least, most) : otherwise;
  }
  bool flag(std::string_view key) const {
    const auto found = member(body_, key);
    return found && found->boolean();
  }

  void read_prompts() {
    const JsonView prompt = body_.at("prompt");
    if (!prompt.value().is_array()) {
      add_prompt(prompt);
      return;
    }
    const std::vector<JsonView> items = prompt.elements();
    if (items.empty() || items.size() > kMostPrompts)
      prompt.fail(concat("a text, tokens, or 1 to ", kMostPrompts, " of them"));
    if (items.front().value().is_number()) {
      add_prompt(prompt);
      return;
    }
    for (const JsonView& item : items) add_prompt(item);
  }

  void add_prompt(const JsonView& prompt) {
    std::vector<int64_t> tokens;
    if (prompt.value().is_string()) {
      tokens = tasks::text_tokens(*trained_.tokenizer, prompt.text());
    } else {
      tokens = prompt.integers(0, config_.vocab_size - 1);
      if (tokens.empty()) prompt.fail("at least one token");
    }
    TRIREME_CHECK(std::ssize(tokens) <= config_.sequence_length, "a prompt has ", tokens.size(),
                  " tokens and the model reads at most ", config_.sequence_length,
                  "; shorten it from its beginning");
    const model::VisionConfig& vision = config_.vision;
    TRIREME_CHECK(!vision.is_on() || std::ranges::find(tokens, vision.image_token) == tokens.end(),
                  "a prompt has the image token ", vision.image_token,
                  "; the server reads text only");
    request_.prompts.push_back(std::move(tokens));
  }

  void read_stops() {
    const auto stop = member(body_, "stop");
    if (!stop) return;
    std::vector<JsonView> texts = {*stop};
    if (stop->value().is_array()) texts = stop->elements();
    if (texts.size() > kMostStops) stop->fail(concat("at most ", kMostStops, " texts"));
    for (const JsonView& text : texts) {
      if (text.text().empty()) text.fail("a text that is not empty");
      request_.stops.push_back(text.text());
    }
  }

  const JsonView& body_;
  const tasks::TrainedModel& trained_;
  const model::ModelConfig& config_;
  CompletionRequest request_;
};

std::string line_of(size_t number, const Completion& completion) {
  ordered_json scores = ordered_json::array();
  for (const model::TokenScore& score : completion.scores) {
    scores.push_back({score.log_probability, score.likeliest, score.likeliest_log_probability});
  }
  const ordered_json line = {{"number", number},
                             {"tokens", completion.tokens},
                             {"text", completion.text},
                             {"cut", completion.is_cut},
                             {"scores", scores}};
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

std::vector<Completion> read_lines(const std::vector<std::string>& lines, size_t count) {
  std::vector<Completion> completions(count);
  for (const std::string& text : lines) {
    const auto line = nlohmann::json::parse(text);
    Completion& completion = completions.at(line.at("number").get<size_t>());
    line.at("tokens").get_to(completion.tokens);
    line.at("text").get_to(completion.text);
    completion.is_cut = line.at("cut");
    for (const auto& score : line.at("scores"))
      completion.scores.push_back({score[0], score[1], score[2]});
  }
  return completions;
}

}  // namespace

CompletionRequest read_completion_request(std::string_view body,
                                          const tasks::TrainedModel& trained) {
  const std::string source = "the request";
  const nlohmann::json value = parse_json(body, source, kBodyLimits);
  const JsonView view(value, source);
  return RequestReader(view, trained).run();
}

std::vector<Completion> complete(const AskedModel& asked, const CompletionRequest& request) {
  const dataset::Tokenizer& tokenizer = *asked.trained.tokenizer;
  const size_t count = request.prompts.size();
  std::vector<Completion> own(count);
  std::vector<StopText> stops(count, StopText(request.stops));
  std::vector<model::AskedText> texts(count);
  const auto on_token = [&](size_t number, int64_t token) {
    const auto id = static_cast<int32_t>(token);
    own[number].text += stops[number].add(tokenizer.decode({&id, 1}));
    return !stops[number].has_ended();
  };
  const auto on_text = [&](size_t number, std::span<const int64_t> drawn) {
    Completion& completion = own[number];
    completion.tokens.assign(drawn.begin(), drawn.end());
    completion.is_cut =
        !stops[number].has_ended() && std::ssize(drawn) == request.options.max_tokens;
    completion.text += stops[number].finish();
    texts[number].tokens = request.prompts[number];
    texts[number].tokens.insert(texts[number].tokens.end(), drawn.begin(), drawn.end());
    texts[number].first = request.echoes ? 1 : request.prompts[number].size();
  };
  model::generate_texts(asked.model, request.prompts, request.options, on_token, on_text);
  if (request.has_scores) {
    model::score_texts(asked.model, texts, [&](size_t number, auto scores) {
      own[number].scores.assign(scores.begin(), scores.end());
    });
  }
  std::string mine;
  for (size_t i = asked.model.copy(); i < count; i += asked.model.num_copies())
    mine += line_of(i, own[i]);
  const std::vector<std::string> lines = asked.gather(mine);
  return asked.prints ? read_lines(lines, count) : std::vector<Completion>();
}

std::string completion_response(const CompletionRequest& request,
                                const std::vector<Completion>& completions,
                                const dataset::Tokenizer& tokenizer, const std::string& model) {
  ordered_json choices = ordered_json::array();
  size_t prompt_tokens = 0, new_tokens = 0;
  const auto spelled = [&](int64_t token) {
    const auto id = static_cast<int32_t>(token);
    return token < tokenizer.vocab_size() ? tokenizer.decode({&id, 1}) : "";
  };
  for (size_t i = 0; i < completions.size(); ++i) {
    const Completion& completion = completions[i];
    const std::vector<int64_t>& prompt = request.prompts[i];
    prompt_tokens += prompt.size();
    new_tokens += completion.tokens.size();
    std::vector<int64_t> shown = completion.tokens;
    std::string text = completion.text;
    if (request.echoes) {
      shown.insert(shown.begin(), prompt.begin(), prompt.end());
      std::string before;
      for (const int64_t token : prompt) before += spelled(token);
      text = before + text;
    }
    ordered_json logprobs;
    if (request.has_scores) {
      ordered_json tokens = ordered_json::array(), values = tokens, tops = tokens, offsets = tokens;
      size_t offset = 0;
      for (size_t at = 0; at < shown.size(); ++at) {
        const std::string spelling = spelled(shown[at]);
        tokens.push_back(spelling);
        offsets.push_back(offset);
        offset += spelling.size();
        // Nothing stands before the first token of a prompt.
        const size_t unknown = request.echoes ? 1 : 0;
        if (at < unknown) {
          values.push_back(nullptr);
          tops.push_back(nullptr);
          continue;
        }
        const model::TokenScore& score = completion.scores.at(at - unknown);
        values.push_back(score.log_probability);
        ordered_json top;
        top[spelled(score.likeliest)] = score.likeliest_log_probability;
        tops.push_back(top);
      }
      logprobs = {{"tokens", tokens},
                  {"token_logprobs", values},
                  {"top_logprobs", tops},
                  {"text_offset", offsets}};
    }
    choices.push_back({{"index", i},
                       {"text", text},
                       {"logprobs", logprobs},
                       {"finish_reason", completion.is_cut ? "length" : "stop"}});
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const ordered_json response = {
      {"id", "cmpl"},
      {"object", "text_completion"},
      {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
      {"model", model},
      {"choices", choices},
      {"usage",
       {{"prompt_tokens", prompt_tokens},
        {"completion_tokens", new_tokens},
        {"total_tokens", prompt_tokens + new_tokens}}}};
  return response.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace trireme::cli
