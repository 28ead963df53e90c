#include "trireme/cli/verify/reference_runs.h"

#include <map>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/cli/command_options.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/inputs.h"
#include "trireme/verify/reference.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

verify::OpenGradients opener_of(const train::RunConfig& config) {
  return [&config](const fs::path& folder) {
    std::unique_ptr<checkpoint::TensorSource> in_own_form = config.task->open_weights(folder);
    return in_own_form ? std::move(in_own_form) : checkpoint::open_tensors(folder);
  };
}

std::string note_of(const verify::CommonTensors& common) {
  std::string note = concat(common.num_activations, " activations and ", common.num_gradients,
                            " gradients are in both");
  if (!common.only_run.empty())
    note += concat("; ", common.only_run.size(), " gradients are only in A, the first is ",
                   shown(common.only_run.front()));
  if (!common.only_reference.empty())
    note += concat("; ", common.only_reference.size(), " are only in the reference, the first is ",
                   shown(common.only_reference.front()));
  return note;
}

}  // namespace

void add_reference_options(CLI::App& command, ReferenceArguments& arguments) {
  CLI::Option* reference = command.add_option(
      "--reference", arguments.folder,
      "compare A with the step of another framework instead of B: a folder with fp32 and fp64, "
      "each written by trireme_torch.record()");
  command
      .add_option("--map", arguments.names,
                  "JSON file of the reference's names and A's, such as "
                  "{\"decoder.layers.*\": \"model.layers.*\"}; by default those of transformers")
      ->needs(reference);
  command
      .add_option("--batch", arguments.batch,
                  "write A's first batch to this safetensors file, for the other framework, and "
                  "end")
      ->excludes(reference);
}

int64_t write_first_batch(const TwinOptions& options, const fs::path& file) {
  TRIREME_CHECK(!fs::exists(file), file.string(), " exists; remove it, or name another --batch");
  std::vector<std::string> overrides = options.a.overrides;
  for (const std::string& key : plain_layout_keys()) overrides.push_back(key);
  overrides.emplace_back(
      "--train.micro_batch=1");  // the samples do not depend on it; 0 is chosen later
  train::RunConfig config =
      train::load_config(options.a.config, options.offer, parse_overrides(overrides));
  train::resolve(config, 1);
  config.task->open(/*evaluates=*/false);
  const auto world = std::move(comm::make_thread_group(1).front());
  const mesh::DeviceMesh mesh(*world, train::mesh_axes(config.parallel));
  const dataset::BatchLoader loader(config.task->training(),
                                    train::training_batches(config, mesh, {}));
  std::map<std::string, std::vector<at::Tensor>> parts;
  for (int64_t index = 0; index < loader.num_microbatches(0); ++index) {
    for (const auto& [name, tensor] : loader.microbatch(0, index).tensors) {
      parts[std::string(name)].push_back(tensor);
    }
  }
  std::map<std::string, at::Tensor> whole;
  for (const auto& [name, tensors] : parts) whole[name] = at::cat(tensors);
  checkpoint::write_safetensors(file, whole);
  return loader.step_size(0);
}

void prepare_for_reference(TwinOptions& options) {
  TRIREME_CHECK(options.tier == Tier::kFp64,
                "--reference is compared in fp32 and fp64; expected --tier 1");
  TRIREME_CHECK(!options.start, "--reference is compared with a config's first step, and ",
                options.a.config, " is of a run; expected the TOML file of A");
  options.steps = 1;
  options.only_a = true;
  options.b = options.a;
}

std::vector<TwinRun> train_beside_reference(
    const TwinOptions& options, const ReferenceArguments& arguments,
    const std::function<void(const TwinRun& run, double seconds)>& on_run,
    const std::function<void(const std::string& note)>& on_note) {
  for (const char* precision : {"fp32", "fp64"}) {
    TRIREME_CHECK(fs::is_directory(fs::path(arguments.folder) / precision), arguments.folder,
                  " has no folder ", precision,
                  "; expected the same step in fp32 and in fp64, each by trireme_torch.record()");
  }
  const train::RunConfig config =
      train::load_config(options.a.config, options.offer, parse_overrides(options.a.overrides));
  const verify::NameMap names = arguments.names.empty() ? verify::transformers_names()
                                                        : verify::read_name_map(arguments.names);
  std::vector<TwinRun> all;
  for (const TwinRun& run : train_twins(options, on_run)) {
    const verify::ReferenceStep reference{.folder = fs::path(arguments.folder) / run.precision,
                                          .names = names,
                                          .open_gradients = opener_of(config)};
    const fs::path a = options.folder / concat("a-", run.precision, "-common");
    const fs::path b = options.folder / concat("reference-", run.precision);
    on_note(note_of(verify::write_common(reference, run.folder, a, b)));
    all.push_back({"A", run.precision, a});
    all.push_back({"reference", run.precision, b});
  }
  return all;
}

}  // namespace trireme::cli
