// The form of OpenAI's completions (POST /v1/completions), as far as a language model here can
// answer it: prompts as text or tokens, continued, and log probabilities of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/cli/language/asked_model.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/generate.h"
#include "trireme/model/likelihood.h"

namespace trireme::cli {

struct CompletionRequest {
  std::vector<std::vector<int64_t>> prompts{};  // a text begins behind the end of a document
  model::GenerateOptions options{};
  std::vector<std::string> stops{};
  bool echoes = false;      // the answer begins with the prompt
  bool has_scores = false;  // "logprobs"
};

// Reads a request's body. trained: the model that is asked
// Throws: ConfigError, one line, with the member that is wrong: what is not known here, or would be
//         answered in another way than it asks, is refused
CompletionRequest read_completion_request(std::string_view body,
                                          const tasks::TrainedModel& trained);

struct Completion {
  std::vector<int64_t> tokens{};  // new ones
  std::string text{};             // of them, up to a stop string
  bool is_cut = false;            // at the limit of tokens
  // Of the new tokens, or with `echoes` of all but the prompt's first; none without has_scores.
  std::vector<model::TokenScore> scores{};
};

// The completion of each prompt, on the rank that prints; none elsewhere.
// Collective: every rank, with the same request
std::vector<Completion> complete(const AskedModel& asked, const CompletionRequest& request);

// The response's body. model: its name
std::string completion_response(const CompletionRequest& request,
                                const std::vector<Completion>& completions,
                                const dataset::Tokenizer& tokenizer, const std::string& model);

}  // namespace trireme::cli
