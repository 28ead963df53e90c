// trireme data prepare: text files to token files.
#include <chrono>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/seconds.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/language/language_commands.h"
#include "trireme/cli/number_range.h"
#include "trireme/cli/printable.h"
#include "trireme/cli/progress_bar.h"
#include "trireme/dataset/prepare.h"

namespace trireme::cli::inline internal {
namespace {

int prepare_data(const dataset::PrepareOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  dataset::PrepareReport report;
  {
    ProgressBar bar("encode");
    std::printf("read    %s\n", printable(options.inputs.front()).c_str());
    std::fflush(stdout);
    report =
        dataset::prepare(options, [&bar](int64_t done, int64_t total) { bar.update(done, total); });
  }
  const double seconds = seconds_since(start);
  std::printf("tokens  %s for training in %lld documents, %s for validation in %lld\n",
              human_count(static_cast<double>(report.tokens)).c_str(),
              static_cast<long long>(report.documents),
              human_count(static_cast<double>(report.validation_tokens)).c_str(),
              static_cast<long long>(report.validation_documents));
  std::printf(
      "wrote   %s.bin, .idx and .tokenizer.json: %s, vocabulary %lld, %.2f bytes per token, %s in "
      "%s\n",
      printable(options.output).c_str(),
      name_of(dataset::kTokenizerKinds, report.tokenizer).c_str(),
      static_cast<long long>(report.vocab_size), report.bytes_per_token,
      human_bytes(static_cast<double>(report.bytes)).c_str(), human_duration(seconds).c_str());
  return kDone;
}

}  // namespace

void add_data(CLI::App& app, int& exit_code) {
  CLI::App* data = app.add_subcommand("data", "Prepare training data");
  data->require_subcommand(1);
  auto options = std::make_shared<dataset::PrepareOptions>();
  options->validation_fraction = 0.01;
  CLI::App* command = data->add_subcommand(
      "prepare",
      "Turn text files into token files (Megatron's .bin/.idx) and a tokenizer.\n"
      "  trireme data prepare --input src docs --glob '*.py' --glob '*.md' --tokenizer bpe \\\n"
      "      --vocab-size 8192 --output data/mine\n");
  command->add_option("--input", options->inputs, "files and folders; each file is a document")
      ->required();
  command->add_option("--glob", options->globs,
                      "files to take from a folder, such as '*.py'; default: all");
  command->add_option("--exclude", options->excludes, "names of files and folders to leave out");
  const auto kinds = names_of(dataset::kTokenizerKinds);
  auto tokenizer = std::make_shared<std::string>(kinds.front());
  command->add_option("--tokenizer", *tokenizer, in_words(kinds))
      ->check(CLI::IsMember(kinds))
      ->capture_default_str();
  command->add_option("--tokenizer-model", options->tokenizer_model,
                      "json: a tokenizer.json of Hugging Face; bpe: a SentencePiece model to use "
                      "instead of\ntraining one");
  command->add_option("--end-of-document", options->end_of_document,
                      "json: the added token that ends a document; default: <|endoftext|>,\n"
                      "<|end_of_text|> or </s>");
  command
      ->add_option("--vocab-size", options->vocab_size,
                   "size of a trained bpe vocabulary; 0 = 8192")
      ->check(within({0, 1 << 26}));
  command
      ->add_option("--validation-fraction", options->validation_fraction,
                   "share of the documents to keep for validation")
      ->check(within({.minimum = 0, .maximum = 1, .below_maximum = true}))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "chooses the validation documents")
      ->check(within({0, std::numeric_limits<uint64_t>::max()}))
      ->capture_default_str();
  command->add_option("--output", options->output, "prefix of the files to write")->required();
  command->callback([options, tokenizer, &exit_code] {
    options->tokenizer = choose(dataset::kTokenizerKinds, "--tokenizer", *tokenizer);
    exit_code = prepare_data(*options);
  });
}

}  // namespace trireme::cli::inline internal
