// trireme checkpoint export.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/tasks/export_run.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {
namespace {

struct ExportArguments {
  std::string path;
  std::string output;
  std::string form;   // empty: Hugging Face's, where it has the model
  std::string dtype;  // empty: the run's
  std::string license;
  uint64_t max_shard_bytes = tasks::ExportOptions{}.max_shard_bytes;
  bool average = false;
  bool json = false;
};

std::string tokenizer_text(std::optional<dataset::TokenizerKind> kind) {
  if (!kind) return "the run's was not found: none exported";
  switch (*kind) {
    case dataset::TokenizerKind::kBytes:
      return "none to export: token = byte, 256 = end of document";
    case dataset::TokenizerKind::kBpe: return "tokenizer.model and tokenizer_config.json";
    case dataset::TokenizerKind::kJson: return "tokenizer.json and tokenizer_config.json";
  }
  TRIREME_ASSERT(false, "a tokenizer of no kind");
}

int export_checkpoint(const ExportArguments& arguments) {
  set_freed_memory(FreedMemory::kReturned);  // parts of tensors, one after the other
  tasks::ExportOptions options{.max_shard_bytes = static_cast<int64_t>(arguments.max_shard_bytes),
                               .license = arguments.license};
  std::optional<tasks::ExportForm> form;
  if (!arguments.form.empty()) form = choose(tasks::kExportForms, "--format", arguments.form);
  if (arguments.average) options.weights = train::Weights::kAverage;
  if (!arguments.dtype.empty())
    options.dtype = choose(train::kPrecisions, "--dtype", arguments.dtype);
  const tasks::ExportReport done =
      tasks::export_run(arguments.path, arguments.output, options, form);
  const std::string precision = name_of(train::kPrecisions, done.dtype);
  if (arguments.json) {
    const nlohmann::json object = {
        {"path", arguments.output},
        {"checkpoint", done.checkpoint.string()},
        {"step", done.step},
        {"architecture", done.architecture},
        {"dtype", precision},
        {"from_master_weights", done.from_masters},
        {"tensors", done.num_tensors},
        {"parameters", done.num_parameters},
        {"bytes", done.num_bytes},
        {"files", done.files},
        {"format", name_of(tasks::kExportForms, *form)},
        {"tokenizer", done.tokenizer ? name_of(dataset::kTokenizerKinds, *done.tokenizer) : ""},
        {"imported_files", done.imported_files},
        {"note", done.note}};
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  std::printf("read       %s: step %lld\n", printable(done.checkpoint.string()).c_str(),
              static_cast<long long>(done.step));
  std::printf("wrote      %s: %s, %s parameters in %s%s, %s in %zu file%s\n",
              printable(arguments.output).c_str(), printable(done.architecture).c_str(),
              human_count(static_cast<double>(done.num_parameters)).c_str(), precision.c_str(),
              done.from_masters ? " (from the master weights)" : "",
              human_bytes(static_cast<double>(done.num_bytes)).c_str(), done.files.size(),
              done.files.size() == 1 ? "" : "s");
  if (form != tasks::ExportForm::kHuggingFace || done.is_image_model) return kDone;
  std::printf("tokenizer  %s\n", tokenizer_text(done.tokenizer).c_str());
  if (!done.imported_files.empty())
    std::printf("imported   %s, as they came\n", joined(done.imported_files).c_str());
  if (!done.note.empty()) std::printf("note       %s\n", done.note.c_str());
  return kDone;
}

}  // namespace

void add_export(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command =
      app.get_subcommand("checkpoint")
          ->add_subcommand(
              "export",
              "Export a checkpoint of any layout to a folder that Hugging Face transformers\n"
              "loads, with model.safetensors, config.json, a card (README.md), a bpe or json\n"
              "tokenizer, and files of an imported model, such as its chat template. Image\n"
              "classifiers have preprocessor_config.json instead.\n"
              "  trireme checkpoint export runs/demo --output demo-hf\n"
              "  python3 -c \"import transformers as t; "
              "t.AutoModelForCausalLM.from_pretrained('demo-hf')\"\n"
              "--format timm exports an image classifier for timm; a diffusion transformer goes\n"
              "to diffusers. --format safetensors and\n"
              "--format dcp export only the weights, as safetensors files or as a folder for\n"
              "torch.distributed.checkpoint; models that are not language models have a config\n"
              "and a card beside safetensors. Adapters ([lora]) are\n"
              "merged into the weights, unless --format peft exports them alone, for the\n"
              "package peft.\n"
              "Optimizer states are left out. The checkpoint is not changed. See\n"
              "docs/guide/export.md.\n");
  add_checkpoint_path(*command, arguments->path);
  command->add_option("--output", arguments->output, "folder to write; must be new or empty")
      ->required();
  command
      ->add_option(
          "--format", arguments->form,
          "hf = folder for transformers, timm = folder for timm, diffusers = folder for diffusers, "
          "safetensors = weights only, "
          "dcp = weights only, for torch.distributed.checkpoint, peft = adapters only. Default: "
          "hf, diffusers for diffusion transformers, or safetensors for models that neither has")
      ->check(CLI::IsMember(names_of(tasks::kExportForms)));
  command
      ->add_option("--dtype", arguments->dtype,
                   "dtype of the weights: fp64, fp32, bf16 or fp16; another dtype than the run's "
                   "is converted from its fp32 master weights, if it has them. Default: the run's")
      ->check(CLI::IsMember(names_of(train::kPrecisions)));
  command
      ->add_option("--max-shard-size", arguments->max_shard_bytes,
                   "maximum file size, such as 500MB; larger models are split into several files "
                   "with an index")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->default_str("5GB");
  command->add_flag("--average", arguments->average,
                    "export the moving average of the weights (average.decay)");
  command->add_option("--license", arguments->license,
                      "license of the weights, for the card, such as apache-2.0");
  add_json(*command, arguments->json);
  command->callback([arguments, &exit_code] { exit_code = export_checkpoint(*arguments); });
}

}  // namespace trireme::cli
