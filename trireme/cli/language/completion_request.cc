#include "trireme/cli/language/completion_request.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/cli/language/continued_texts.h"

namespace trireme::cli {
namespace {

constexpr const char* kSource = "the request";
constexpr size_t kMostPrompts = 4096;
constexpr size_t kMostStops = 16;
constexpr size_t kMostStopBytes = 1024;  // each prompt has a copy
constexpr JsonLimits kBodyLimits{.max_bytes = size_t{16} << 20};

// A member that is there and not null.
std::optional<JsonView> member(const JsonView& body, std::string_view key) {
  const auto found = body.find(key);
  return found && !found->value().is_null() ? found : std::nullopt;
}

// What is not known could ask for another answer.
void require_known(const JsonView& object, std::span<const char* const> known) {
  for (const auto& [name, value] : object.members()) {
    TRIREME_CHECK(std::ranges::find(known, name) != known.end(), "the request has ",
                  in_quotes(name, 60), ", which is not known here; leave it out");
  }
}

class RequestReader {
 public:
  RequestReader(const JsonView& body, const tasks::TrainedModel& trained)
      : body_(body), trained_(trained), config_(tasks::language_of(trained.config).model) {}

  CompletionRequest run() {
    check_names();
    read_prompts();
    read_stream();
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
    TRIREME_CHECK(!request_.streams || !request_.has_scores,
                  "the request has stream and logprobs, which are known when a text has ended; "
                  "leave one of them out");
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
                                   "stream_options",
                                   "frequency_penalty",
                                   "presence_penalty",
                                   "logit_bias"};
    require_known(body_, kKnown);
    integer("n", 1, 1, 1);
    integer("best_of", 1, 1, 1);
    number("frequency_penalty", 0, 0, 0);
    number("presence_penalty", 0, 0, 0);
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

  void read_stream() {
    request_.streams = flag("stream");
    const auto options = member(body_, "stream_options");
    if (!options) return;
    TRIREME_CHECK(request_.streams,
                  "the request has stream_options and no \"stream\": true; leave them out");
    require_known(*options, std::array{"include_usage"});
    const auto usage = member(*options, "include_usage");
    request_.includes_usage = usage && usage->boolean();
  }

  void read_stops() {
    const auto stop = member(body_, "stop");
    if (!stop) return;
    std::vector<JsonView> texts = {*stop};
    if (stop->value().is_array()) texts = stop->elements();
    if (texts.size() > kMostStops) stop->fail(concat("at most ", kMostStops, " texts"));
    for (const JsonView& text : texts) {
      if (text.text().empty()) text.fail("a text that is not empty");
      if (text.text().size() > kMostStopBytes)
        text.fail(concat("a text of at most ", kMostStopBytes, " bytes"));
      request_.stops.push_back(text.text());
    }
  }

  const JsonView& body_;
  const tasks::TrainedModel& trained_;
  const model::ModelConfig& config_;
  CompletionRequest request_;
};

// The members of a conversation's request that completions have too.
constexpr std::array kSharedMembers = {"model",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "seed",
                                       "stop",
                                       "user",
                                       "repetition_penalty",
                                       "n",
                                       "stream",
                                       "stream_options",
                                       "frequency_penalty",
                                       "presence_penalty",
                                       "logit_bias"};
constexpr std::array kChatMembers = {
    "messages", "tools", "chat_template_kwargs", "max_tokens", "max_completion_tokens", "logprobs"};

}  // namespace

CompletionRequest read_completion_request(std::string_view body,
                                          const tasks::TrainedModel& trained) {
  const std::string source = kSource;
  const nlohmann::json value = parse_json(body, source, kBodyLimits);
  const JsonView view(value, source);
  CompletionRequest request = RequestReader(view, trained).run();
  request.body = body;
  return request;
}

CompletionRequest read_chat_request(std::string_view body, const tasks::TrainedModel& trained,
                                    const dataset::ChatPrompts& prompts) {
  const std::string source = kSource;
  const nlohmann::json value = parse_json(body, source, kBodyLimits);
  const JsonView view(value, source);
  std::vector<const char*> known(kSharedMembers.begin(), kSharedMembers.end());
  known.insert(known.end(), kChatMembers.begin(), kChatMembers.end());
  require_known(view, known);
  if (const auto scores = member(view, "logprobs"); scores && scores->boolean())
    scores->fail("false: answers to conversations come without");
  const std::vector<int32_t> tokens = prompts.encode(body, source);
  nlohmann::json completion = {{"prompt", tokens}};
  for (const char* name : kSharedMembers) {
    if (value.contains(name)) completion[name] = value[name];
  }
  // As long as the model reads, unless the request says otherwise.
  const int64_t room = tasks::language_of(trained.config).model.sequence_length -
                       static_cast<int64_t>(tokens.size());
  completion["max_tokens"] = std::max<int64_t>(room, 1);
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (member(view, name)) completion["max_tokens"] = value[name];
  }
  CompletionRequest request = read_completion_request(completion.dump(), trained);
  request.is_chat = true;
  return request;
}

}  // namespace trireme::cli
