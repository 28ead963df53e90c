// trireme data prepare: text to token files, or tables of features to records.
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/data/data_commands.h"
#include "trireme/cli/number_range.h"

namespace trireme::cli::inline internal {
namespace {

constexpr const char* kTokens = "tokens";

struct Arguments {
  std::string format = kTokens;
  std::string tokenizer{};
  dataset::PrepareOptions tokens{};
  dataset::PrepareFeaturesOptions features{};
  std::string ids = name_of(dataset::kCategoryIds, dataset::CategoryIds::kRows);
  bool json = false;
  std::vector<CLI::Option*> only_tokens{};
  std::vector<CLI::Option*> only_features{};
};

std::vector<std::string> format_names() {
  std::vector<std::string> names = names_of(dataset::kRawFormats);
  names.insert(names.begin(), kTokens);
  return names;
}

void add_token_options(CLI::App& command, Arguments& arguments) {
  dataset::PrepareOptions& options = arguments.tokens;
  const auto add = [&](CLI::Option* option) {
    arguments.only_tokens.push_back(option->group("Options of --format tokens"));
    return option;
  };
  add(command.add_option("--glob", options.globs,
                         "files to take from a folder, such as '*.py'; default: all"));
  add(command.add_option("--exclude", options.excludes, "names of files and folders to leave out"));
  const auto kinds = names_of(dataset::kTokenizerKinds);
  arguments.tokenizer = kinds.front();
  add(command.add_option("--tokenizer", arguments.tokenizer, in_words(kinds)))
      ->check(CLI::IsMember(kinds))
      ->capture_default_str();
  add(command.add_option("--tokenizer-model", options.tokenizer_model,
                         "json: a tokenizer.json of Hugging Face; bpe: a SentencePiece model to "
                         "use instead of\ntraining one"));
  add(command.add_option("--end-of-document", options.end_of_document,
                         "json: the added token that ends a document; default: <|endoftext|>,\n"
                         "<|end_of_text|> or </s>"));
  add(command.add_option("--vocab-size", options.vocab_size,
                         "size of a trained bpe vocabulary; 0 = 8192"))
      ->check(within({0, 1 << 26}));
}

void add_feature_options(CLI::App& command, Arguments& arguments) {
  dataset::PrepareFeaturesOptions& options = arguments.features;
  const auto add = [&](CLI::Option* option) {
    arguments.only_features.push_back(option->group("Options of the other formats"));
    return option;
  };
  add(command.add_option("--min-count", options.min_count,
                         "categories that occur more rarely in the training samples share one row"))
      ->check(within({1, std::numeric_limits<int64_t>::max()}))
      ->capture_default_str();
  add(command.add_option("--dictionary", options.dictionary,
                         "a prepared folder whose categories, classes and items to use"));
  const auto kinds = names_of(dataset::kCategoryIds);
  add(command.add_option("--ids", arguments.ids,
                         "what categories become: numbers of rows, or hashes for tables with open "
                         "vocabularies\n(tables.open), which need no dictionary"))
      ->check(CLI::IsMember(kinds))
      ->capture_default_str();
}

int run_prepare(Arguments& arguments) {
  const bool is_tokens = arguments.format == kTokens;
  for (const CLI::Option* option : is_tokens ? arguments.only_features : arguments.only_tokens) {
    TRIREME_CHECK(option->count() == 0, option->get_name(), " is not an option of --format ",
                  arguments.format, "; leave it out");
  }
  if (is_tokens) {
    arguments.tokens.tokenizer =
        choose(dataset::kTokenizerKinds, "--tokenizer", arguments.tokenizer);
    return run_prepare_tokens(arguments.tokens, arguments.json);
  }
  dataset::PrepareFeaturesOptions& options = arguments.features;
  options.format = choose(dataset::kRawFormats, "--format", arguments.format);
  options.inputs = arguments.tokens.inputs;
  options.output = arguments.tokens.output;
  options.validation_fraction = arguments.tokens.validation_fraction;
  options.seed = arguments.tokens.seed;
  options.ids = choose(dataset::kCategoryIds, "--ids", arguments.ids);
  for (const CLI::Option* option : arguments.only_features) {
    const std::string name = option->get_name();
    TRIREME_CHECK(options.dictionary.empty() || name == "--dictionary" || option->count() == 0,
                  name, " is that of --dictionary; leave it out");
  }
  return run_prepare_features(options, arguments.json);
}

}  // namespace

void add_data_prepare(CLI::App& data, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  dataset::PrepareOptions& options = arguments->tokens;
  options.validation_fraction = 0.01;
  CLI::App* command = data.add_subcommand(
      "prepare",
      "Turn text files into token files (Megatron's .bin/.idx) and a tokenizer, or tables of\n"
      "features into records for recommendation models (docs/recommend-data.md).\n"
      "  trireme data prepare --input src docs --glob '*.py' --glob '*.md' --tokenizer bpe \\\n"
      "      --vocab-size 8192 --output data/mine\n"
      "  trireme data prepare --format criteo --input day_0.tsv --min-count 10 \\\n"
      "      --output data/criteo\n");
  const auto formats = format_names();
  command->add_option("--format", arguments->format, in_words(formats))
      ->check(CLI::IsMember(formats))
      ->capture_default_str();
  command
      ->add_option(
          "--input", options.inputs,
          "files; tokens: also folders, and each file is a document; criteo-numpy and\n"
          "criteo-multi-hot: what the names of a day's arrays begin with, such as numpy/day_0")
      ->required();
  command
      ->add_option("--validation-fraction,--validation", options.validation_fraction,
                   "share of the documents or samples to keep for validation")
      ->check(within({.minimum = 0, .maximum = 1, .below_maximum = true}))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "chooses what is kept for validation")
      ->check(within({0, std::numeric_limits<uint64_t>::max()}))
      ->capture_default_str();
  command
      ->add_option("--output", options.output,
                   "tokens: prefix of the files to write; other formats: a new folder")
      ->required();
  add_json(*command, arguments->json);
  add_token_options(*command, *arguments);
  add_feature_options(*command, *arguments);
  command->callback([arguments, &exit_code] { exit_code = run_prepare(*arguments); });
}

}  // namespace trireme::cli::inline internal
