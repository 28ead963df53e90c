// Texts that grow a token of each at a time, when the caller asks: for callers that do something
// else between two tokens, or stop before the texts have ended. generate_texts() asks until they
// have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/model/generate.h"
#include "trireme/model/text_model.h"

namespace trireme::model {

// Several may grow in turn on one model, each with keys and values of its own. Those of a text are
// given back when it ends, and all by the destructor, which may come at any time.
class TextGeneration {
 public:
  // The texts of generate_texts(), which says when `on_token` and `on_text` are called and what
  // they answer. model: outlives this
  // Throws: ConfigError when a prompt is empty or an option is out of range
  TextGeneration(TextModel& model, std::span<const std::vector<int64_t>> prompts,
                 GenerateOptions options, OnToken on_token, OnText on_text);
  ~TextGeneration();
  TextGeneration(const TextGeneration&) = delete;
  TextGeneration& operator=(const TextGeneration&) = delete;

  // Draws the next token of the texts that grow; as one ends, the next begins. False: this copy of
  // the model has no text left, and, where copies compute together, no other has.
  // Comm:       next_tokens() and num_groups()
  // Collective: every rank of the copy; where copies compute together, every rank
  bool step();

 private:
  class Texts;
  std::unique_ptr<Texts> texts_;
};

}  // namespace trireme::model
