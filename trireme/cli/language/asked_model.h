// The trained language model that a command asks, on one rank or on many, and the options that say
// which and where.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/cli/train/asked_ranks.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/text_model.h"
#include "trireme/tasks/language/trained_model.h"

namespace CLI {
class App;
}

namespace trireme::cli {

struct AskedModelOptions {
  std::string checkpoint;
  bool average = false;
  bool may_decode = false;  // whether the command has answers of a model with an encoder
  AskedRanks ranks{};
  std::vector<std::string> layout{};  // as typed
};

// Adds them, --checkpoint with the name or position `checkpoint`. `ask` is called when the command
// is chosen, after its words are known, and returns the exit code.
void add_asked_model(CLI::App& command, const std::string& checkpoint, AskedModelOptions& options,
                     int& exit_code, const std::function<int()>& ask);

struct AskedModel {
  model::TextModel& model;
  const tasks::TrainedModel& trained;  // without its model
  bool prints = true;                  // this rank
  // The lines of the texts of all copies of the model, on the rank that prints.
  // Collective: every rank
  std::function<std::vector<std::string>(const std::string& mine)> gather;
  // The text of the rank that prints.
  // Collective: every rank
  std::function<std::string(const std::string& mine)> share;
};

// Calls `work` with the model on each rank. check: refuses what is wrong of the trained model and
// the command's files, in one line, before ranks start.
// Returns the exit code.
int ask_model(const AskedModelOptions& options,
              const std::function<void(const tasks::TrainedModel& trained)>& check,
              const std::function<void(const AskedModel& asked)>& work);

}  // namespace trireme::cli
