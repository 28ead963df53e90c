// trireme checkpoint reshard | pack | unpack.
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/offline/rewrite.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/train/state/derived_run.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct RewriteArguments {
  std::string path;
  std::string output;
  int ranks = checkpoint::kAsSaved;
  std::string compression = name_of(train::kCompressions, checkpoint::Compression::kNone);
  bool replaces = false;
  bool json = false;
};

// The checkpoint that is written again, and its run's config for the new folder.
struct Source {
  Source(const RewriteArguments& arguments, const train::Offer& offer)
      : folder(train::find_checkpoint(arguments.path)),
        tensors(folder),
        toml(train::parse_state(tensors.state(), folder.string(), tensors.step()).config),
        config(train::derived_config(toml, folder.string(), offer, arguments.output)) {}

  fs::path folder;
  checkpoint::SavedTensors tensors;
  std::string toml;  // as its run has saved it
  train::RunConfig config;
};

checkpoint::Rewritten rewrite(const Source& source, const fs::path& root, const char* title,
                              checkpoint::RewriteOptions options,
                              const RewriteArguments& arguments) {
  ProgressBar bar(title);
  if (!arguments.json)
    options.on_progress = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
  return checkpoint::rewrite(source.tensors, root, options);
}

checkpoint::Rewritten write_new_run(const Source& source, const char* title,
                                    const checkpoint::RewriteOptions& options,
                                    const RewriteArguments& arguments) {
  train::DerivedRun run(source.folder, arguments.output);
  const auto done = rewrite(source, run.checkpoints(), title, options, arguments);
  run.commit(train::to_toml(source.config), source.config.task->traits().file_names);
  return done;
}

// details: the end of the line that says what was written.
void report(const Source& source, const checkpoint::Rewritten& done, const std::string& details,
            const RewriteArguments& arguments) {
  const checkpoint::SavedTensors& tensors = source.tensors;
  if (arguments.json) {
    const nlohmann::json object = {
        {"path", arguments.output},         {"checkpoint", source.folder.string()},
        {"step", tensors.step()},           {"ranks_before", tensors.num_ranks()},
        {"ranks", done.num_ranks},          {"tensors", tensors.tensors().size()},
        {"bytes", done.num_bytes},          {"bytes_written", done.written_bytes},
        {"bytes_shared", done.shared_bytes}};
    std::printf("%s\n", json_text(object).c_str());
    return;
  }
  std::printf("read   %s: step %lld, saved by %d ranks\n",
              printable(source.folder.string()).c_str(), static_cast<long long>(tensors.step()),
              tensors.num_ranks());
  std::printf("wrote  %s: %zu tensors, %s, %s\n", printable(arguments.output).c_str(),
              tensors.tensors().size(), human_bytes(static_cast<double>(done.num_bytes)).c_str(),
              details.c_str());
}

std::string written_text(const checkpoint::Rewritten& done) {
  return human_bytes(static_cast<double>(done.written_bytes));
}

int reshard(const RewriteArguments& arguments, const train::Offer& offer) {
  const Source source(arguments, offer);
  const auto done = write_new_run(source, "reshard", {.num_ranks = arguments.ranks}, arguments);
  report(source, done, concat("as of ", done.num_ranks, " ranks"), arguments);
  return kDone;
}

int pack(const RewriteArguments& arguments, const train::Offer& offer) {
  const Source source(arguments, offer);
  const auto compression = choose(train::kCompressions, "--compression", arguments.compression);
  const auto done = write_new_run(source, "pack", {.compression = compression}, arguments);
  report(source, done, concat("in files of ", written_text(done)), arguments);
  return kDone;
}

int unpack(const RewriteArguments& arguments, const train::Offer& offer) {
  const Source source(arguments, offer);
  checkpoint::RewriteOptions options{.incremental = true,
                                     .compression = source.config.checkpoint.compression};
  const fs::path output = arguments.output;
  checkpoint::Rewritten done;
  std::error_code unreadable;  // the lock says why
  if (!fs::is_directory(output) || fs::is_empty(output, unreadable)) {
    done = write_new_run(source, "unpack", options, arguments);
  } else {
    const FolderLock lock = train::lock_run(output, source.toml, source.folder.string(), offer);
    const fs::path root = output / "checkpoints";
    // Use the run's newest epoch; otherwise a start would prefer that epoch's checkpoints.
    if (const auto newest = checkpoint::latest(root)) {
      options.epoch = checkpoint::epoch_of(newest->filename().string());
    }
    const fs::path folder = root / checkpoint::folder_name(source.tensors.step(), options.epoch);
    TRIREME_CHECK(arguments.replaces || !fs::exists(fs::symlink_status(folder)), folder.string(),
                  " is there already; expected a run without this step: choose another --output, "
                  "or put the unpacked one into its place with --replace");
    done = rewrite(source, root, "unpack", options, arguments);
  }
  report(
      source, done,
      concat(written_text(done), " written, ", human_bytes(static_cast<double>(done.shared_bytes)),
             " shared with its newest checkpoint"),
      arguments);
  return kDone;
}

using Run = int (*)(const RewriteArguments& arguments, const train::Offer& offer);

// A subcommand with the arguments that all three have.
CLI::App* add(CLI::App& group, int& exit_code, const train::Offer& offer, const char* name,
              const char* description, const std::shared_ptr<RewriteArguments>& arguments,
              Run run) {
  CLI::App* command = group.add_subcommand(name, description);
  add_checkpoint_path(*command, arguments->path);
  add_json(*command, arguments->json);
  command->callback([arguments, offer, run, &exit_code] { exit_code = run(*arguments, offer); });
  return command;
}

}  // namespace

void add_checkpoint_reshard(CLI::App& group, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<RewriteArguments>();
  CLI::App* command =
      add(group, exit_code, offer, "reshard",
          "Rewrite a checkpoint into a new run, with its files as another number of ranks would\n"
          "save them.\n"
          "  trireme checkpoint reshard runs/demo --output runs/demo-8 --ranks 8\n"
          "  trireme train runs/demo-8/config.toml --ranks 8\n"
          "This is optional: a checkpoint loads at any layout. Resharding makes the start faster\n"
          "when each of many ranks then reads its own file, or when one file replaces many.\n"
          "Checksums are verified, and no bit changes. See docs/guide/checkpoints.md.\n",
          arguments, reshard);
  add_new_run(*command, arguments->output);
  command->add_option("--ranks", arguments->ranks, "number of ranks, each of which gets one file")
      ->required()
      ->check(within({.minimum = 1, .maximum = checkpoint::kMaxRewriteRanks}));
}

void add_checkpoint_pack(CLI::App& group, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<RewriteArguments>();
  CLI::App* command =
      add(group, exit_code, offer, "pack",
          "Copy one checkpoint, its config and its tokenizer into a self-contained run, which\n"
          "shares no files with others and can be moved to another machine.\n"
          "  trireme checkpoint pack runs/demo --output demo-packed --compression zstd\n"
          "  tar c demo-packed | ssh other tar x\n"
          "Checksums are verified, and no bit changes. `unpack` adds the checkpoint to a run. See\n"
          "docs/guide/checkpoints.md.\n",
          arguments, pack);
  add_new_run(*command, arguments->output);
  command
      ->add_option("--compression", arguments->compression,
                   "compression of stored tensors: none or zstd")
      ->check(CLI::IsMember(names_of(train::kCompressions)))
      ->capture_default_str();
}

void add_checkpoint_unpack(CLI::App& group, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<RewriteArguments>();
  CLI::App* command = add(
      group, exit_code, offer, "unpack",
      "Add a packed checkpoint to a new or existing run. Data that the run's newest checkpoint\n"
      "already has is hard-linked, not written again.\n"
      "  trireme checkpoint unpack demo-packed --output runs/demo\n"
      "  trireme train runs/demo/config.toml --ranks 2\n"
      "Checksums are verified, and no bit changes. See docs/guide/checkpoints.md.\n",
      arguments, unpack);
  command
      ->add_option("--output", arguments->output,
                   "folder of the run; new, empty, or of a run with the same model")
      ->required();
  command->add_flag("--replace", arguments->replaces,
                    "replace the run's checkpoint of the same step");
}

}  // namespace trireme::cli
