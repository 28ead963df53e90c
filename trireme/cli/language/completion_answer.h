// Answers to requests for completions in OpenAI's form: whole, or as server-sent events.
// Source: WHATWG HTML, section 9.2, for events
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "trireme/cli/language/completion_run.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::cli {

class CompletionAnswer {
 public:
  // model: its name. tokenizer: outlives this
  CompletionAnswer(const dataset::Tokenizer& tokenizer, std::string model, std::string id);

  // The body of an answer.
  std::string whole(const CompletionRun& run) const;

  // The events of a stream: those before the first piece, of some pieces, and those that end it.
  std::string begin(const CompletionRun& run) const;
  std::string events(const CompletionRun& run, std::span<const CompletionPiece> pieces) const;
  std::string end(const CompletionRun& run) const;

 private:
  std::string spelled(int64_t token) const;
  std::string prompt_text(const CompletionRun& run, size_t number) const;
  nlohmann::ordered_json scores_of(const CompletionRun& run, size_t number) const;
  nlohmann::ordered_json choice_of(const CompletionRun& run, size_t number) const;
  std::string event(const CompletionRun& run, const nlohmann::ordered_json& choices,
                    const nlohmann::ordered_json& usage) const;

  const dataset::Tokenizer& tokenizer_;
  std::string model_;
  std::string id_;
  int64_t created_;  // in seconds of Unix time
};

}  // namespace trireme::cli
