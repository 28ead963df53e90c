// trireme checkpoint inspect | verify | export.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/choice.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/printable.h"
#include "trireme/train/config/config.h"
#include "trireme/train/export/hugging_face_export.h"
#include "trireme/train/export/trained_model.h"

namespace trireme::cli {
namespace {

struct CheckpointArguments {
  std::string path;
  bool json = false;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t length : shape) text += (text.empty() ? "" : " x ") + std::to_string(length);
  return text.empty() ? "scalar" : text;
}

int inspect(const CheckpointArguments& arguments) {
  const std::filesystem::path folder = train::find_checkpoint(arguments.path);
  const checkpoint::Summary summary = checkpoint::inspect(folder);
  if (arguments.json) {
    nlohmann::json object = {
        {"path", folder.string()},           {"step", summary.step},
        {"ranks", summary.world_size},       {"elements", summary.num_elements},
        {"bytes", summary.num_bytes},        {"state", parse_json(summary.state, folder.string())},
        {"tensors", nlohmann::json::array()}};
    for (const auto& tensor : summary.tensors) {
      object["tensors"].push_back({{"name", tensor.name},
                                   {"dtype", tensor.dtype},
                                   {"shape", tensor.shape},
                                   {"bytes", tensor.num_bytes},
                                   {"pieces", tensor.num_pieces},
                                   {"layout", tensor.layout}});
    }
    std::printf("%s\n", json_text(object).c_str());
    return kDone;
  }
  std::printf("%s: step %lld, saved by %d ranks, %zu tensors, %s\n",
              printable(folder.string()).c_str(), static_cast<long long>(summary.step),
              summary.world_size, summary.tensors.size(),
              human_bytes(static_cast<double>(summary.num_bytes)).c_str());
  for (const auto& tensor : summary.tensors) {
    std::printf("  %-64s %-5s %-16s %10s  %s\n", printable(tensor.name).c_str(),
                printable(tensor.dtype).c_str(), shape_text(tensor.shape).c_str(),
                human_bytes(static_cast<double>(tensor.num_bytes)).c_str(),
                printable(tensor.layout).c_str());
  }
  return kDone;
}

int verify(const CheckpointArguments& arguments) {
  const std::filesystem::path folder = train::find_checkpoint(arguments.path);
  const checkpoint::VerifyReport report = checkpoint::verify(folder);
  if (arguments.json) {
    const nlohmann::json object = {{"path", folder.string()},
                                   {"files", report.num_files},
                                   {"pieces", report.num_pieces},
                                   {"bytes", report.num_bytes},
                                   {"problems", report.problems}};
    std::printf("%s\n", json_text(object).c_str());
    return report.problems.empty() ? kDone : kBadCheckpoint;
  }
  for (const std::string& problem : report.problems)
    std::fprintf(stderr, "trireme: %s\n", printable(problem).c_str());
  if (!report.problems.empty()) return kBadCheckpoint;
  std::printf("%s: %lld files, %lld pieces, %s: every checksum is right\n",
              printable(folder.string()).c_str(), static_cast<long long>(report.num_files),
              static_cast<long long>(report.num_pieces),
              human_bytes(static_cast<double>(report.num_bytes)).c_str());
  return kDone;
}

struct ExportArguments {
  std::string path;
  std::string output;
  std::string dtype;  // empty: the run's
  uint64_t max_shard_bytes = train::HuggingFaceExportOptions{}.max_shard_bytes;
  bool json = false;
};

std::string tokenizer_text(std::optional<dataset::TokenizerKind> kind) {
  if (!kind) return "the run's was not found: none exported";
  return *kind == dataset::TokenizerKind::kBytes
             ? "none to export: token = byte, 256 = end of document"
             : "tokenizer.model and tokenizer_config.json";
}

int export_checkpoint(const ExportArguments& arguments) {
  train::HuggingFaceExportOptions options{.max_shard_bytes =
                                              static_cast<int64_t>(arguments.max_shard_bytes)};
  if (!arguments.dtype.empty())
    options.dtype = choose(train::kPrecisions, "--dtype", arguments.dtype);
  const train::HuggingFaceExport done =
      train::export_to_hugging_face(arguments.path, arguments.output, options);
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
        {"tokenizer", done.tokenizer ? name_of(dataset::kTokenizerKinds, *done.tokenizer) : ""}};
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
  std::printf("tokenizer  %s\n", tokenizer_text(done.tokenizer).c_str());
  return kDone;
}

void add_export(CLI::App& group, int& exit_code) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command = group.add_subcommand(
      "export",
      "Export a checkpoint of any layout to a folder that Hugging Face's transformers loads:\n"
      "model.safetensors, config.json and a bpe tokenizer.\n"
      "  trireme checkpoint export runs/demo --output demo-hf\n"
      "  python3 -c \"import transformers as t; "
      "t.AutoModelForCausalLM.from_pretrained('demo-hf')\"\n"
      "Optimizer states are left out. The checkpoint is not changed. See docs/export.md.\n");
  command->add_option("path", arguments->path, "a run's folder, or one checkpoint of it")
      ->required();
  command->add_option("--output", arguments->output, "folder to write; new or empty")->required();
  command
      ->add_option(
          "--dtype", arguments->dtype,
          "dtype of the weights: fp64, fp32, bf16 or fp16; default: the run's. Another one is\n"
          "converted from the fp32 master weights, if the run keeps them")
      ->check(CLI::IsMember(names_of(train::kPrecisions)));
  command
      ->add_option(
          "--max-shard-size", arguments->max_shard_bytes,
          "largest file, such as 500MB; larger models are split into several, with an index")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->default_str("5GB");
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments, &exit_code] { exit_code = export_checkpoint(*arguments); });
}

}  // namespace

void add_checkpoint(CLI::App& app, int& exit_code) {
  CLI::App* group = app.add_subcommand("checkpoint", "Inspect, verify and export checkpoints");
  group->require_subcommand(1);
  auto arguments = std::make_shared<CheckpointArguments>();
  const auto add = [&](const char* name, const char* description,
                       int (*run)(const CheckpointArguments&)) {
    CLI::App* command = group->add_subcommand(name, description);
    command->add_option("path", arguments->path, "a run's folder, or one checkpoint of it")
        ->required();
    command->add_flag("--json", arguments->json, "print JSON");
    command->callback([arguments, run, &exit_code] { exit_code = run(*arguments); });
  };
  add("inspect", "List the tensors of a checkpoint with their shapes and layouts", inspect);
  add("verify", "Read a checkpoint whole and compare every checksum", verify);
  add_export(*group, exit_code);
}

}  // namespace trireme::cli
