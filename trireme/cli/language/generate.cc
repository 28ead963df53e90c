// trireme generate: text from a checkpoint.
#include <cstdio>
#include <memory>
#include <string>

#include <unistd.h>
#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/generate.h"
#include "trireme/tasks/language/trained_model.h"

namespace trireme::cli {
namespace {

struct GenerateArguments {
  std::string checkpoint;
  std::string prompt;
  bool average = false;
  model::GenerateOptions options;
};

int generate(const GenerateArguments& arguments) {
  const tasks::TrainedModel trained = tasks::load_trained_model(
      arguments.checkpoint, arguments.average ? train::Weights::kAverage : train::Weights::kLast);
  const model::ModelConfig& config = trained.model->config();
  TRIREME_CHECK(config.is_causal(), arguments.checkpoint, " has a model of the family ",
                config.family,
                ", which restores hidden tokens and continues no text; expected a causal one, such "
                "as llama: export it with `trireme checkpoint export`, and fill masks with "
                "transformers");
  const dataset::Tokenizer& tokenizer = *trained.tokenizer;
  std::vector<int64_t> prompt = {tokenizer.end_of_document()};
  for (const int32_t token : tokenizer.encode(arguments.prompt)) prompt.push_back(token);

  model::GenerateOptions options = arguments.options;
  options.stop_tokens = trained.end_tokens;
  options.vocab_limit = tokenizer.vocab_size();
  // Terminals obey control characters, and a model may produce any. Files and pipes get every byte.
  const bool is_terminal = isatty(STDOUT_FILENO);
  TerminalText terminal;
  const auto print = [&](const std::string& text) {
    const std::string shown = is_terminal ? terminal.add(text) : text;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  };
  print(arguments.prompt);
  model::generate(*trained.model, prompt, options, [&](int64_t token) {
    const auto id = static_cast<int32_t>(token);
    print(tokenizer.decode({&id, 1}));
  });
  std::printf("%s\n", terminal.finish().c_str());
  return kDone;
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<GenerateArguments>();
  auto& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "generate",
      "Continue a prompt with a trained model.\n"
      "  trireme generate --checkpoint runs/demo --prompt 'def ' --temperature 0.7\n");
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "folder of a run, or one of its checkpoints")
      ->required();
  command->add_option("--prompt", arguments->prompt, "text to continue")->capture_default_str();
  command->add_flag("--average", arguments->average,
                    "use the moving average of the weights (average.decay)");
  command->add_option("--tokens", options.max_tokens, "maximum number of tokens to generate")
      ->check(within({0, 1e9}))
      ->capture_default_str();
  command
      ->add_option("--temperature", options.temperature,
                   "sampling temperature; 0 = always take the most likely token")
      ->check(within({0, 1e6}))
      ->capture_default_str();
  command->add_option("--top-k", options.top_k, "sample from the k most likely tokens; 0 = all")
      ->check(within({0, 1e9}))
      ->capture_default_str();
  command
      ->add_option("--top-p", options.top_p,
                   "sample from the smallest set of most likely tokens whose probabilities add up "
                   "to at least p")
      ->check(within({.minimum = 0, .maximum = 1, .above_minimum = true}))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "random seed for sampling")
      ->check(within({0, std::numeric_limits<uint64_t>::max()}))
      ->capture_default_str();
  command->callback([arguments, &exit_code] { exit_code = generate(*arguments); });
}

}  // namespace trireme::cli
