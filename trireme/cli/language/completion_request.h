// Requests in the form of OpenAI's completions (POST /v1/completions) and chat completions (POST
// /v1/chat/completions), as far as a language model here can answer them: prompts as text or tokens
// and conversations, continued, and log probabilities of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/conversation/chat_prompts.h"
#include "trireme/model/generate.h"
#include "trireme/tasks/language/trained_model.h"

namespace trireme::cli {

struct CompletionRequest {
  std::vector<std::vector<int64_t>> prompts{};  // a text begins behind the end of a document
  model::GenerateOptions options{};
  std::vector<std::string> stops{};
  bool echoes = false;          // the answer begins with the prompt
  bool has_scores = false;      // "logprobs"
  bool streams = false;         // the answer comes as it grows
  bool includes_usage = false;  // at the end of a stream
  bool is_chat = false;         // the answer is that of a conversation
  // What read_completion_request() reads as the same prompts, options, stops and scores.
  std::string body{};
};

// Reads a request's body. trained: the model that is asked
// Throws: ConfigError, one line, with the member that is wrong: what is not known here, or would be
//         answered in another way than it asks, is refused
CompletionRequest read_completion_request(std::string_view body,
                                          const tasks::TrainedModel& trained);

// The same of a conversation, which becomes one prompt of tokens.
CompletionRequest read_chat_request(std::string_view body, const tasks::TrainedModel& trained,
                                    const dataset::ChatPrompts& prompts);

}  // namespace trireme::cli
