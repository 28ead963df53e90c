// trireme checkpoint import.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/tasks/language/hugging_face_import.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {
namespace {

struct ImportArguments {
  std::string source;
  std::string output;
  std::string config;
  std::string dtype;  // empty: the source's
  bool json = false;
  std::vector<std::string> overrides;  // as typed
};

std::string tokenizer_text(const tasks::HuggingFaceImport& done) {
  if (done.tokenizer) return name_of(dataset::kTokenizerKinds, *done.tokenizer);
  if (done.tokenizer_problem.empty()) return "none found: that of data.path is used";
  return "none: " + done.tokenizer_problem;
}

int import_weights(const ImportArguments& arguments) {
  const std::vector<train::Override> overrides = parse_overrides(arguments.overrides);
  tasks::HuggingFaceImportOptions options{.config = arguments.config, .overrides = overrides};
  if (!arguments.dtype.empty())
    options.dtype = choose(train::kPrecisions, "--dtype", arguments.dtype);
  const tasks::HuggingFaceImport done =
      tasks::import_from_hugging_face(arguments.source, arguments.output, options);
  const std::string precision = name_of(train::kPrecisions, done.dtype);
  if (arguments.json) {
    const nlohmann::json object = {
        {"path", arguments.output},
        {"source", done.source},
        {"architecture", done.architecture},
        {"dtype", precision},
        {"tensors", done.num_tensors},
        {"parameters", done.num_parameters},
        {"bytes", done.num_bytes},
        {"tokenizer", done.tokenizer ? name_of(dataset::kTokenizerKinds, *done.tokenizer) : ""},
        {"tokenizer_problem", done.tokenizer_problem},
        {"notes", done.notes}};
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  std::printf("read       %s: %s, %s, %lld tensors\n", printable(arguments.source).c_str(),
              done.source.c_str(),
              done.architecture.empty() ? "with names of Trireme" : done.architecture.c_str(),
              static_cast<long long>(done.num_tensors));
  const std::string output = printable(arguments.output);
  std::printf("wrote      %s: %s parameters in %s, %s\n", output.c_str(),
              human_count(static_cast<double>(done.num_parameters)).c_str(), precision.c_str(),
              human_bytes(static_cast<double>(done.num_bytes)).c_str());
  std::printf("tokenizer  %s\n", printable(tokenizer_text(done)).c_str());
  for (const std::string& note : done.notes)
    std::printf("note       %s\n", printable(note).c_str());
  std::printf(
      "go on      trireme train %s/config.toml --init %s --output.folder=RUN --data.path=PREFIX\n",
      output.c_str(), output.c_str());
  return kDone;
}

}  // namespace

void add_import(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App* command =
      app.get_subcommand("checkpoint")
          ->add_subcommand(
              "import",
              "Import weights into a new run: from a Hugging Face transformers folder, or\n"
              "from tensors with its names or ours.\n"
              "  trireme checkpoint import llama-hf --output runs/llama\n"
              "  trireme generate --checkpoint runs/llama --prompt \"Once upon\"\n"
              "  trireme train runs/llama/config.toml --init runs/llama "
              "--output.folder=runs/tuned\n"
              "Keys of the run, such as --model.sequence_length=4096, are given as for\n"
              "`trireme train`. See docs/guide/import.md.\n");
  command->add_option("source", arguments->source, "folder or file with the weights")->required();
  command->add_option("--output", arguments->output, "folder of the run; must be new or empty")
      ->required();
  command->add_option("--config", arguments->config,
                      "config.json of the weights. Default: the one in the source folder, "
                      "otherwise the keys of [model]");
  command
      ->add_option("--dtype", arguments->dtype,
                   "dtype of the weights and of the run: fp64, fp32, bf16 or fp16. Default: that "
                   "of config.json")
      ->check(CLI::IsMember(names_of(train::kPrecisions)));
  add_json(*command, arguments->json);
  command->allow_extras();
  command->callback([arguments, command, &exit_code] {
    arguments->overrides = command->remaining();
    exit_code = import_weights(*arguments);
  });
}

}  // namespace trireme::cli
