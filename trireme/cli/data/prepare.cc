// trireme data prepare: text, conversations, pairs of answers or labelled texts to token files, or
// tables of features to records.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/data/feature_options.h"
#include "trireme/remote/store_files.h"

namespace trireme::cli {
namespace {

constexpr const char* kTokens = "tokens";
constexpr Choice<dataset::DocumentForm> kRowForms[] = {
    {"json-lines", dataset::DocumentForm::kJsonLines},
    {"parquet", dataset::DocumentForm::kParquet},
    {"arrow", dataset::DocumentForm::kArrow}};
constexpr const char* kChat = "chat";
constexpr const char* kPreference = "preference";
constexpr const char* kLabelled = "labelled";

constexpr Choice<dataset::SplitBy> kSplits[] = {{"name", dataset::SplitBy::kName},
                                                {"text", dataset::SplitBy::kText}};

struct Arguments {
  std::string format = kTokens;
  std::string tokenizer{};
  std::string split = name_of(kSplits, dataset::SplitBy::kName);
  dataset::PrepareOptions tokens{};
  FeatureArguments features{};
  bool json = false;
  std::string chat_template{};
  int64_t image_size = 0;
  int64_t patch_size = 14;
  std::string image_folder{};
  std::vector<CLI::Option*> only_tokens{};
  std::vector<CLI::Option*> only_rows{};       // json-lines, parquet and arrow
  std::vector<CLI::Option*> only_documents{};  // tokens and these
  std::vector<CLI::Option*> only_chat{};
  std::vector<CLI::Option*> only_text{};  // these, chat, preference and labelled
};

std::vector<std::string> format_names() {
  std::vector<std::string> names = names_of(dataset::kRawFormats);
  names.insert(names.begin(), {kChat, kPreference, kLabelled});
  const std::vector<std::string> rows = names_of(kRowForms);
  names.insert(names.begin(), rows.begin(), rows.end());
  names.insert(names.begin(), kTokens);
  return names;
}

void add_token_options(CLI::App& command, Arguments& arguments) {
  dataset::PrepareOptions& options = arguments.tokens;
  const auto add = [&](CLI::Option* option) {
    arguments.only_documents.push_back(
        option->group("Options of --format tokens, json-lines, parquet and arrow"));
    return option;
  };
  add(command.add_option("--glob", options.globs,
                         "patterns of the files to read from a folder, such as '*.py'. Default: "
                         "all; json-lines: *.jsonl, *.ndjson, these with .gz or .zst behind them, "
                         "*.json.gz and *.json.zst; parquet: *.parquet; arrow: *.arrow, *.arrows "
                         "and *.feather"));
  add(command.add_option("--exclude", options.excludes, "names of files and folders to skip"));
  arguments.only_tokens.push_back(
      command
          .add_flag("--as-text", options.as_text,
                    "read files as text even if they look like JSON lines, tables or compressed "
                    "data")
          ->group("Options of --format tokens"));
  const auto splits = names_of(kSplits);
  const auto split = command.add_option(
      "--split", arguments.split,
      "what the choice of a validation file depends on, beside --seed: name, its name below the "
      "input, or text, so that files with one text are on one side");
  split->group("Options of --format tokens")->check(CLI::IsMember(splits))->capture_default_str();
  arguments.only_tokens.push_back(split);
  add(command.add_flag("--dedupe", options.dedupe,
                       "leave out documents whose text an earlier one has, and print how many. "
                       "Takes up to 64 bytes of memory per document"));
  const auto kinds = names_of(dataset::kTokenizerKinds);
  arguments.tokenizer = kinds.front();
  add(command.add_option("--tokenizer", arguments.tokenizer, in_words(kinds)))
      ->check(CLI::IsMember(kinds))
      ->capture_default_str();
  add(command.add_option("--vocab-size", options.vocab_size,
                         "bpe: vocabulary size to train; 0 = 8192"))
      ->check(within({0, 1 << 26}));
  add(command.add_option("--threads", options.num_threads,
                         "threads that encode; the output is the same with any number. Default: "
                         "one for each core"))
      ->check(within({1, 1024}));
  const auto add_of_rows = [&](CLI::Option* option) {
    arguments.only_rows.push_back(
        option->group("Options of --format json-lines, parquet and arrow"));
    return option;
  };
  add_of_rows(command.add_option("--text-key", options.text_key,
                                 "member or column of a row that has the text; data.text is the "
                                 "member text of the member data"))
      ->capture_default_str();
  add_of_rows(command.add_flag(
      "--skip-bad-rows", options.skip_bad_rows,
      "leave out rows that are not JSON or UTF-8, or have no text or a null under the key, and "
      "print how many. Without it, the first such row is an error"));
}

void add_chat_options(CLI::App& command, Arguments& arguments) {
  dataset::PrepareOptions& options = arguments.tokens;
  const auto add = [&](CLI::Option* option) {
    arguments.only_text.push_back(option->group("Options of text"));
  };
  add(command.add_option("--tokenizer-model", options.tokenizer_model,
                         "json: Hugging Face tokenizer.json to use; bpe: SentencePiece model to "
                         "use instead of training one; chat, preference, labelled: folder of a "
                         "Hugging Face model, or its tokenizer.json"));
  add(command.add_option(
      "--end-of-document", options.end_of_document,
      "json: added token that ends a document. Default: <|endoftext|>, <|end_of_text|>, </s> or "
      "[SEP], "
      "which input text cannot produce; input text can produce any other token. chat, preference: "
      "added token that ends a text. Default: the model's eos_token, or one of these. labelled: "
      "the "
      "same. Default: the model's sep_token, or [SEP] or </s>"));
  arguments.only_chat.push_back(
      command
          .add_option("--chat-template", arguments.chat_template,
                      "file with the chat template to use instead of the model's")
          ->group("Options of --format chat and preference"));
  const auto add_image = [&](CLI::Option* option) {
    arguments.only_chat.push_back(option->group("Options of --format chat and preference"));
    return option;
  };
  add_image(command.add_option("--image-size", arguments.image_size,
                               "chat: conversations have images, which become so many pixels high "
                               "and wide, as vision.image_size of the model. Default: they have "
                               "none"))
      ->check(within({1, kMaxImageSize}));
  add_image(command.add_option("--patch-size", arguments.patch_size,
                               "chat: vision.patch_size of the model; an image takes "
                               "(image-size / patch-size)^2 tokens"))
      ->check(within({1, kMaxImageSize}))
      ->capture_default_str();
  add_image(command.add_option("--images", arguments.image_folder,
                               "chat: folder of the images' paths. Default: that of the file that "
                               "names them"));
}

int run_prepare(Arguments& arguments) {
  const auto* const rows = find_choice(kRowForms, arguments.format);
  const bool are_rows = rows != nullptr, is_tokens = arguments.format == kTokens || are_rows,
             are_pairs = arguments.format == kPreference,
             is_chat = arguments.format == kChat || are_pairs,
             is_labelled = arguments.format == kLabelled;
  const auto refuse = [&](const std::vector<CLI::Option*>& others) {
    for (const CLI::Option* option : others) {
      TRIREME_CHECK(option->count() == 0, option->get_name(), " is not an option of --format ",
                    arguments.format, "; leave it out");
    }
  };
  if (!is_tokens || are_rows) refuse(arguments.only_tokens);
  if (!are_rows) refuse(arguments.only_rows);
  if (!is_tokens) refuse(arguments.only_documents);
  if (!is_chat) refuse(arguments.only_chat);
  const bool is_text = is_tokens || is_chat || is_labelled;
  refuse(is_text ? arguments.features.all : arguments.only_text);
  if (!is_text && arguments.format != kCsvFormat) refuse(arguments.features.only_csv);
  arguments.tokens.stores = remote::open_stores(arguments.tokens.inputs);
  const dataset::PrepareOptions& tokens = arguments.tokens;
  if (is_labelled) {
    return run_prepare_labelled({.inputs = tokens.inputs,
                                 .stores = tokens.stores,
                                 .tokenizer_model = tokens.tokenizer_model,
                                 .end_of_document = tokens.end_of_document,
                                 .output = tokens.output,
                                 .validation_fraction = tokens.validation_fraction,
                                 .seed = tokens.seed},
                                arguments.json);
  }
  if (is_chat) {
    return run_prepare_chat(
        {.lines = are_pairs ? dataset::ChatLines::kPreferences : dataset::ChatLines::kConversations,
         .inputs = tokens.inputs,
         .stores = tokens.stores,
         .tokenizer_model = tokens.tokenizer_model,
         .chat_template = arguments.chat_template,
         .end_of_document = tokens.end_of_document,
         .output = tokens.output,
         .validation_fraction = tokens.validation_fraction,
         .image_size = arguments.image_size,
         .patch_size = arguments.patch_size,
         .image_folder = arguments.image_folder,
         .seed = tokens.seed},
        arguments.json);
  }
  if (is_tokens) {
    arguments.tokens.split = choose(kSplits, "--split", arguments.split);
    if (are_rows) arguments.tokens.form = rows->value;
    arguments.tokens.tokenizer =
        choose(dataset::kTokenizerKinds, "--tokenizer", arguments.tokenizer);
    return run_prepare_tokens(tokens, arguments.json);
  }
  TRIREME_CHECK(!tokens.stores, "--format ", arguments.format,
                " reads files of this machine, and an --input is a URL; copy it to a disk");
  dataset::PrepareFeaturesOptions& options = arguments.features.options;
  options.format = choose(dataset::kRawFormats, "--format", arguments.format);
  options.inputs = tokens.inputs;
  options.output = tokens.output;
  options.validation_fraction = tokens.validation_fraction;
  options.seed = tokens.seed;
  take_feature_options(arguments.features);
  return run_prepare_features(options, arguments.json);
}

}  // namespace

void add_data_prepare(CLI::App& data, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  dataset::PrepareOptions& options = arguments->tokens;
  options.validation_fraction = 0.01;
  options.num_threads = num_cores();
  CLI::App* command = data.add_subcommand(
      "prepare",
      "Turn text files, rows of JSON or Parquet, conversations, pairs of answers or labelled texts "
      "into "
      "token\n"
      "files (Megatron's .bin/.idx) and a tokenizer, or tables of features into records for "
      "recommendation models\n"
      "(docs/guide/recommend-data.md).\n"
      "  trireme data prepare --input src docs --glob '*.py' --glob '*.md' --tokenizer bpe \\\n"
      "      --vocab-size 8192 --output data/mine\n"
      "  trireme data prepare --format json-lines --input c4/ --text-key text --tokenizer json \\\n"
      "      --tokenizer-model Qwen3-0.6B/tokenizer.json --output data/c4\n"
      "  trireme data prepare --format parquet --input fineweb/ --tokenizer bpe --output data/web\n"
      "  trireme data prepare --format json-lines --input s3://bucket/c4/ --output data/c4\n"
      "  trireme data prepare --format chat --input chat.jsonl --tokenizer-model SmolLM2-Instruct "
      "\\\n"
      "      --output data/chat\n"
      "  trireme data prepare --format preference --input pairs.jsonl \\\n"
      "      --tokenizer-model SmolLM2-Instruct --output data/pairs\n"
      "  trireme data prepare --format labelled --input reviews.jsonl --tokenizer-model bert \\\n"
      "      --output data/reviews\n"
      "  trireme data prepare --format criteo --input day_0.tsv --min-count 10 \\\n"
      "      --output data/criteo\n"
      "  trireme data prepare --format csv --input ads.csv.gz --numeric 'age:standard,price_*' \\\n"
      "      --category city --label clicked --drop id --output data/ads\n");
  const auto formats = format_names();
  command->add_option("--format", arguments->format, in_words(formats))
      ->check(CLI::IsMember(formats))
      ->capture_default_str();
  command
      ->add_option(
          "--input", options.inputs,
          "input files; tokens: files or folders, one document per file; json-lines: files or "
          "folders of JSON lines, one document per line; parquet, arrow: the same of such files, "
          "one document per row; chat: files of JSON "
          "lines or Parquet, one conversation per line or row; preference: the same, one prompt "
          "with two answers per line; labelled: the same, one {\"text\", \"label\"} per line; all "
          "these also as URLs of object stores (docs/guide/stores.md); criteo-numpy and "
          "criteo-multi-hot: prefix of a day's arrays, such as numpy/day_0")
      ->required();
  command
      ->add_option("--validation-fraction,--validation", options.validation_fraction,
                   "fraction of the documents, conversations, pairs, rows or samples held out for "
                   "validation")
      ->check(within({.minimum = 0, .maximum = 1, .below_maximum = true}))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "random seed for the choice of validation data")
      ->check(within({0, std::numeric_limits<uint64_t>::max()}))
      ->capture_default_str();
  command
      ->add_option("--output", options.output,
                   "tokens, json-lines, parquet, arrow, chat, preference and labelled: prefix of "
                   "the files to "
                   "write; other formats: a new folder")
      ->required();
  add_json(*command, arguments->json);
  add_token_options(*command, *arguments);
  add_chat_options(*command, *arguments);
  add_feature_options(*command, arguments->features);
  command->callback([arguments, &exit_code] { exit_code = run_prepare(*arguments); });
}

}  // namespace trireme::cli
