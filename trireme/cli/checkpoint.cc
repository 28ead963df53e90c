// checkpoint inspect | verify, and the group for the others.
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::cli {
namespace {

struct CheckpointArguments {
  std::string path;
  bool json = false;
};

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
                                   {"patches", tensor.num_patches},
                                   {"patched_bytes", tensor.patched_bytes},
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
    std::string layout = printable(tensor.layout);
    if (tensor.num_patches > 0) {
      layout += concat(", rows patched ", tensor.num_patches, "x, ",
                       human_bytes(static_cast<double>(tensor.patched_bytes)));
    }
    std::printf("  %-64s %-5s %-16s %10s  %s\n", printable(tensor.name).c_str(),
                printable(tensor.dtype).c_str(), shape_text(tensor.shape).c_str(),
                human_bytes(static_cast<double>(tensor.num_bytes)).c_str(), layout.c_str());
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

}  // namespace

void add_checkpoint(CLI::App& app, int& exit_code, const train::Offer& offer) {
  CLI::App* group =
      app.add_subcommand("checkpoint", "Inspect, verify, compare and rewrite checkpoints");
  group->require_subcommand(1);
  auto arguments = std::make_shared<CheckpointArguments>();
  const auto add = [&](const char* name, const char* description,
                       int (*run)(const CheckpointArguments&)) {
    CLI::App* command = group->add_subcommand(name, description);
    add_checkpoint_path(*command, arguments->path);
    add_json(*command, arguments->json);
    command->callback([arguments, run, &exit_code] { exit_code = run(*arguments); });
  };
  add("inspect", "List a checkpoint's tensors, with shapes and layouts", inspect);
  add("verify", "Read a whole checkpoint and verify every checksum", verify);
  add_checkpoint_diff(*group, exit_code, offer);
  add_checkpoint_average(*group, exit_code, offer);
  add_checkpoint_reshard(*group, exit_code, offer);
  add_checkpoint_pack(*group, exit_code, offer);
  add_checkpoint_unpack(*group, exit_code, offer);
}

void add_checkpoint_path(CLI::App& command, std::string& path) {
  command.add_option("path", path, "folder of a run, or one of its checkpoints")->required();
}

void add_new_run(CLI::App& command, std::string& output) {
  command.add_option("--output", output, "folder of the new run; must be new or empty")->required();
}

void add_json(CLI::App& command, bool& json) { command.add_flag("--json", json, "print JSON"); }

}  // namespace trireme::cli
