// The completions of a request as they grow, on all ranks that share the model. Runs of several
// requests may take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/cli/language/asked_model.h"
#include "trireme/cli/language/completion_request.h"
#include "trireme/cli/language/stop_text.h"
#include "trireme/cli/language/whole_characters.h"
#include "trireme/model/likelihood.h"
#include "trireme/model/text_generation.h"

namespace trireme::cli {

struct Completion {
  std::vector<int64_t> tokens{};  // new ones
  std::string text{};             // of them, up to a stop string
  bool has_ended = false;
  bool is_cut = false;  // at the limit of tokens
  // Of the new tokens, or with `echoes` of all but the prompt's first; none without has_scores.
  std::vector<model::TokenScore> scores{};
};

// What is new of a completion.
struct CompletionPiece {
  size_t number = 0;  // of its prompt
  std::vector<int64_t> tokens{};
  // Whole characters, and nothing that a stop string may begin with.
  std::string text{};
  bool has_ended = false;
  bool is_cut = false;
};

class CompletionRun {
 public:
  // asked: outlives this
  CompletionRun(const AskedModel& asked, CompletionRequest request);

  const CompletionRequest& request() const { return request_; }
  // On the rank that prints, in the order of the prompts. Elsewhere only those of its copy.
  const std::vector<Completion>& completions() const { return completions_; }
  bool has_ended() const { return num_ended_ == completions_.size(); }
  size_t num_tokens() const;

  // Draws a token of each text that grows, and returns what is new, in the order of the prompts, on
  // the rank that prints.
  // Collective: every rank
  std::vector<CompletionPiece> step();
  // The scores of texts that have ended.
  // Collective: every rank
  void score();

 private:
  struct Growing {
    StopText stop;
    WholeCharacters whole{};
  };

  bool add_token(size_t number, int64_t token);
  void end_text(size_t number, size_t num_tokens);
  void note(const CompletionPiece& piece);

  const AskedModel& asked_;
  const CompletionRequest request_;
  std::vector<Completion> completions_;
  size_t num_ended_ = 0;
  std::vector<Growing> growing_;
  std::map<size_t, CompletionPiece> new_;  // of this step and copy, by prompt
  std::unique_ptr<model::TextGeneration> generation_;
};

}  // namespace trireme::cli
