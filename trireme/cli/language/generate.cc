// trireme generate: text from a checkpoint.
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/language/asked_model.h"
#include "trireme/cli/language/continued_texts.h"
#include "trireme/model/generate.h"

namespace trireme::cli {
namespace {

struct GenerateArguments {
  AskedModelOptions asked;
  std::string prompt;
  std::string prompts;  // a file
  std::vector<std::string> stops;
  bool reads_again = false;
  model::GenerateOptions options;
};

int generate(const GenerateArguments& arguments) {
  std::vector<std::string> prompts;
  const auto check = [&](const tasks::TrainedModel& /*trained*/) {
    for (const std::string& stop : arguments.stops)
      TRIREME_CHECK(!stop.empty(), "--stop is empty; expected a text that ends what is generated");
    if (!arguments.prompts.empty()) prompts = read_prompts(arguments.prompts);
  };
  return ask_model(arguments.asked, check, [&](const AskedModel& asked) {
    ContinuedTexts texts{.model = asked.model,
                         .tokenizer = *asked.trained.tokenizer,
                         .options = options_for(asked.trained, arguments.options),
                         .stops = arguments.stops,
                         .prints = asked.prints,
                         .gather = asked.gather};
    texts.options.keeps_keys = !arguments.reads_again;
    const tasks::LanguageConfig& own = tasks::language_of(asked.trained.config);
    if (own.model.has_decoder()) {
      texts.end_of_prompt =
          own.data.end_token >= 0 ? own.data.end_token : asked.trained.tokenizer->end_of_document();
      texts.first_sentinel = own.data.sentinel_token;
    }
    if (arguments.prompts.empty()) {
      show_text(texts, arguments.prompt);
    } else {
      write_texts(texts, prompts);
    }
  });
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<GenerateArguments>();
  auto& options = arguments->options;
  arguments->asked.may_decode = true;
  CLI::App* command = app.add_subcommand(
      "generate",
      "Continue a prompt with a trained model, or many, several at a time.\n"
      "  trireme generate --checkpoint runs/demo --prompt 'def ' --temperature 0.7\n"
      "  trireme generate --checkpoint runs/demo --prompts prompts.jsonl --stop '\\n\\n' > "
      "texts.jsonl\n"
      "  trireme generate --checkpoint runs/big --prompts prompts.jsonl --ranks 4 \\\n"
      "      --parallel.tensor=2 --parallel.pipeline=2\n"
      "A line of prompts.jsonl is {\"prompt\": \"def \"}; a line of texts.jsonl has the prompt, "
      "the text, its tokens, and its end: \"stop\" or \"length\".\n");
  CLI::Option* const prompt =
      command->add_option("--prompt", arguments->prompt, "text to continue")->capture_default_str();
  command
      ->add_option(
          "--prompts", arguments->prompts,
          "file with a line of JSON for each text to continue; may be compressed with gzip or zstd")
      ->excludes(prompt);
  command->add_option("--batch", options.texts_at_once, "texts of --prompts that grow at one time")
      ->check(within({1, 1e6}))
      ->capture_default_str();
  command
      ->add_option("--stop", arguments->stops,
                   "text that ends what is generated, and is not printed; may be repeated")
      ->allow_extra_args(false);
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
  command
      ->add_option("--repetition-penalty", options.repetition_penalty,
                   "divides the positive logits of tokens that the text has, and multiplies the "
                   "negative ones; 1 = none")
      ->check(within({.minimum = 0, .maximum = 1e6, .above_minimum = true}))
      ->capture_default_str();
  command->add_flag("--no-cache", arguments->reads_again,
                    "read the whole text again for each token, instead of keeping keys and values");
  command->add_option("--seed", options.seed, "random seed for sampling")
      ->check(within({0, std::numeric_limits<uint64_t>::max()}))
      ->capture_default_str();
  add_asked_model(*command, "--checkpoint", arguments->asked, exit_code,
                  [arguments] { return generate(*arguments); });
}

}  // namespace trireme::cli
