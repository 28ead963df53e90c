#include "trireme/tasks/language/hugging_face_import.h"

#include <memory>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/model/family/family.h"
#include "trireme/tasks/language/foreign/foreign_model.h"
#include "trireme/tasks/language/foreign/foreign_weights.h"
#include "trireme/tasks/language/foreign/imported_files.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/state/run_state.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using model::ModelConfig;

train::RunConfig run_config(const ForeignModel& foreign, c10::ScalarType dtype,
                            const fs::path& output, const HuggingFaceImportOptions& options) {
  const train::TaskTable tasks(&kLanguage, 1);
  train::RunConfig config = train::default_config(tasks);
  language_of(config).take_model(foreign.model.config);
  config.train.precision = dtype;
  config.output.folder = output.string();
  config = train::parse_config(train::to_toml(config), foreign.source, tasks, options.overrides);
  const ModelConfig& model = language_of(config).model;
  TRIREME_CHECK(model.vocab_size > 0,
                "model.vocab_size is 0; expected the number of rows of the embedding: set it, or "
                "name the weights' config.json with --config");
  TRIREME_CHECK(!model.lora.is_on(), "lora.rank is ", model.lora.rank,
                "; an imported run has the weights of its source and no adapters: give it to "
                "`trireme train --init` instead");
  model::validate(model);
  return config;
}

}  // namespace

HuggingFaceImport import_from_hugging_face(const fs::path& source, const fs::path& output,
                                           const HuggingFaceImportOptions& options) {
  ForeignModel foreign = open_foreign_model(source, options.config);
  const auto dtype = options.dtype         ? *options.dtype
                     : foreign.model.dtype ? *foreign.model.dtype
                                           : stored_dtype(source, *foreign.tensors);
  const train::RunConfig config = run_config(foreign, dtype, output, options);
  const ModelConfig& model = language_of(config).model;
  std::vector<std::string> notes = notes_on(foreign, config.dtype(), "--dtype");
  const ForeignWeights weights(source, std::move(foreign.tensors), model,
                               foreign.model.has_adjacent_pairs, config.dtype());
  if (!weights.left_out().empty()) notes.push_back(concat(weights.left_out(), " are left out"));

  HuggingFaceImport report{.source = weights.kind(),
                           .architecture = weights.architecture(),
                           .dtype = config.dtype(),
                           .num_tensors = weights.num_source_tensors(),
                           .num_parameters = model::num_parameters(model),
                           .notes = std::move(notes)};
  report.num_bytes = report.num_parameters * static_cast<int64_t>(c10::elementSize(config.dtype()));
  const auto tokenizer = read_foreign_tokenizer(source, model.vocab_size, report.tokenizer_problem);
  if (tokenizer) report.tokenizer = tokenizer->kind();

  const train::RunState state{.config = train::to_toml(config)};
  NewFolder target(output);
  const auto world = comm::make_thread_group(1);
  checkpoint::save(target.path() / "checkpoints", state.step, weights.entries(),
                   train::to_json(state), *world.front());
  write_file_atomically(target.path() / train::kConfigName, state.config);
  if (tokenizer) dataset::save_tokenizer(*tokenizer, (target.path() / "tokenizer").string());
  const fs::path keys = foreign.model.kind == nullptr ? fs::path() : fs::path(foreign.source);
  keep_imported_files(keys.empty() ? source : keys.parent_path(), keys, target.path());
  target.commit();
  return report;
}

}  // namespace trireme::tasks
