#include "trireme/cli/language/completion_answer.h"

#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

namespace trireme::cli {
namespace {

using nlohmann::ordered_json;

std::string json_line(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

const char* end_of(bool is_cut) { return is_cut ? "length" : "stop"; }

ordered_json usage_of(const CompletionRun& run) {
  size_t prompt_tokens = 0;
  for (const std::vector<int64_t>& prompt : run.request().prompts) prompt_tokens += prompt.size();
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", run.num_tokens()},
          {"total_tokens", prompt_tokens + run.num_tokens()}};
}

// An item of "choices" in an event. what: of the text, or the delta
ordered_json new_choice(size_t number, const char* key, ordered_json what, ordered_json end) {
  return {{"index", number},
          {key, std::move(what)},
          {"logprobs", nullptr},
          {"finish_reason", std::move(end)}};
}

}  // namespace

CompletionAnswer::CompletionAnswer(const dataset::Tokenizer& tokenizer, std::string model,
                                   std::string id)
    : tokenizer_(tokenizer),
      model_(std::move(model)),
      id_(std::move(id)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

std::string CompletionAnswer::spelled(int64_t token) const {
  const auto id = static_cast<int32_t>(token);
  return token < tokenizer_.vocab_size() ? tokenizer_.decode({&id, 1}) : "";
}

std::string CompletionAnswer::prompt_text(const CompletionRun& run, size_t number) const {
  std::string text;
  for (const int64_t token : run.request().prompts[number]) text += spelled(token);
  return text;
}

ordered_json CompletionAnswer::scores_of(const CompletionRun& run, size_t number) const {
  const CompletionRequest& request = run.request();
  const Completion& completion = run.completions()[number];
  std::vector<int64_t> shown = completion.tokens;
  const std::vector<int64_t>& prompt = request.prompts[number];
  if (request.echoes) shown.insert(shown.begin(), prompt.begin(), prompt.end());
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
  return {{"tokens", tokens},
          {"token_logprobs", values},
          {"top_logprobs", tops},
          {"text_offset", offsets}};
}

ordered_json CompletionAnswer::choice_of(const CompletionRun& run, size_t number) const {
  const Completion& completion = run.completions()[number];
  const char* const end = end_of(completion.is_cut);
  if (run.request().is_chat) {
    const ordered_json message = {{"role", "assistant"}, {"content", completion.text}};
    return new_choice(number, "message", message, end);
  }
  const std::string before = run.request().echoes ? prompt_text(run, number) : "";
  ordered_json choice = new_choice(number, "text", before + completion.text, end);
  if (run.request().has_scores) choice["logprobs"] = scores_of(run, number);
  return choice;
}

std::string CompletionAnswer::whole(const CompletionRun& run) const {
  ordered_json choices = ordered_json::array();
  for (size_t i = 0; i < run.completions().size(); ++i) choices.push_back(choice_of(run, i));
  return json_line({{"id", id_},
                    {"object", run.request().is_chat ? "chat.completion" : "text_completion"},
                    {"created", created_},
                    {"model", model_},
                    {"choices", choices},
                    {"usage", usage_of(run)}}) +
         '\n';
}

std::string CompletionAnswer::event(const CompletionRun& run, const ordered_json& choices,
                                    const ordered_json& usage) const {
  const CompletionRequest& request = run.request();
  ordered_json value = {{"id", id_},
                        {"object", request.is_chat ? "chat.completion.chunk" : "text_completion"},
                        {"created", created_},
                        {"model", model_},
                        {"choices", choices}};
  if (request.includes_usage) value["usage"] = usage;
  return "data: " + json_line(value) + "\n\n";
}

std::string CompletionAnswer::begin(const CompletionRun& run) const {
  std::string events;
  const CompletionRequest& request = run.request();
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    if (request.is_chat) {
      const ordered_json delta = {{"role", "assistant"}, {"content", ""}};
      events += event(run, ordered_json::array({new_choice(i, "delta", delta, nullptr)}), nullptr);
    } else if (request.echoes) {
      const ordered_json choice = new_choice(i, "text", prompt_text(run, i), nullptr);
      events += event(run, ordered_json::array({choice}), nullptr);
    }
  }
  return events;
}

std::string CompletionAnswer::events(const CompletionRun& run,
                                     std::span<const CompletionPiece> pieces) const {
  std::string events;
  const auto add = [&](ordered_json choice) {
    events += event(run, ordered_json::array({std::move(choice)}), nullptr);
  };
  for (const CompletionPiece& piece : pieces) {
    const ordered_json end = piece.has_ended ? ordered_json(end_of(piece.is_cut)) : nullptr;
    if (!run.request().is_chat) {
      if (!piece.text.empty() || piece.has_ended)
        add(new_choice(piece.number, "text", piece.text, end));
      continue;
    }
    if (!piece.text.empty())
      add(new_choice(piece.number, "delta", {{"content", piece.text}}, nullptr));
    if (piece.has_ended) add(new_choice(piece.number, "delta", ordered_json::object(), end));
  }
  return events;
}

std::string CompletionAnswer::end(const CompletionRun& run) const {
  const std::string usage =
      run.request().includes_usage ? event(run, ordered_json::array(), usage_of(run)) : "";
  return usage + "data: [DONE]\n\n";
}

}  // namespace trireme::cli
