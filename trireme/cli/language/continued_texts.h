// Continues prompts with a trained model and prints the texts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/dataset/tokenizer.h"
#include "trireme/model/generate.h"
#include "trireme/model/text_model.h"
#include "trireme/tasks/language/trained_model.h"

namespace trireme::cli {

struct ContinuedTexts {
  model::TextModel& model;
  const dataset::Tokenizer& tokenizer;
  model::GenerateOptions options{};
  std::vector<std::string> stops{};
  bool prints = true;  // this rank
  // Of a model with an encoder: the token that ends what it reads, and the one that stands for the
  // first span that was taken out of a text; -1: there is none.
  int64_t end_of_prompt = -1;
  int64_t first_sentinel = -1;
  // As AskedModel::gather.
  std::function<std::vector<std::string>(const std::string& mine)> gather{};
};

// The options for a trained model, which says what ends a text.
model::GenerateOptions options_for(const tasks::TrainedModel& trained,
                                   model::GenerateOptions options);

// The prompts of a file with a line {"prompt": TEXT} each.
// Throws: ConfigError
std::vector<std::string> read_prompts(const std::string& path);

// Prints the text as it grows, behind its prompt if it continues that.
void show_text(const ContinuedTexts& texts, const std::string& prompt);

// Prints a line of JSON for each text, in the order of the prompts, as soon as it and all before it
// have ended; where there are several copies of the model, when all have ended.
void write_texts(const ContinuedTexts& texts, const std::vector<std::string>& prompts);

}  // namespace trireme::cli
