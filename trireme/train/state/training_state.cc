#include "trireme/train/state/training_state.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/machine/memory_ledger.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/transfer/site_checkpoints.h"
#include "trireme/train/offload/activation_store.h"
#include "trireme/train/optimizer/sign_schedule.h"
#include "trireme/train/parallel/gradient_compression.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/memory_check.h"
#include "trireme/train/run/memory_snapshot.h"
#include "trireme/train/state/initial_weights.h"
#include "trireme/train/state/resume.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

OffloadOptions offload_options(const RunConfig& config) {
  const OffloadConfig& offload = config.offload;
  return {.place = offload.optimizer,
          .folder = config.offload_folder(),
          .buffer_bytes = offload.buffer_bytes};
}

LossScale make_loss_scale(const TrainConfig& train) {
  if (train.precision != c10::kHalf) return {};
  return LossScale({.initial = train.loss_scale, .growth_interval = train.loss_scale_interval});
}

// The contents of a checkpoint, from its manifest.
struct Saved {
  checkpoint::Summary summary;
  std::map<std::string, std::string> callbacks;
};

Saved inspect(const fs::path& path, comm::Communicator& world) {
  Saved saved;
  checkpoint::run_or_throw(world, [&](const checkpoint::Peers&) {
    saved.summary = checkpoint::inspect(path);
    saved.callbacks = parse_state(saved.summary.state, path.string()).callbacks;
  });
  return saved;
}

}  // namespace

TrainingState::TrainingState(const RunConfig& config, const mesh::DeviceMesh& mesh,
                             comm::Communicator& world, Callbacks& callbacks,
                             std::shared_ptr<const bool> overlap, checkpoint::OnWait on_wait)
    : config_(config),
      mesh_(mesh),
      world_(world),
      callbacks_(callbacks),
      overlap_(std::move(overlap)),
      on_wait_(std::move(on_wait)),
      loss_scale_(make_loss_scale(config.train)),
      bad_steps_(
          {.max_skipped = config.train.skip_bad_steps, .spike_factor = config.train.spike_factor}),
      bad_samples_(config.data.skip_bad_samples) {}

void TrainingState::build() {
  parts_.clear();
  tables_.reset();
  dense_.reset();
  optimizer_.reset();
  model_.reset();
  if (auto teacher = teacher_ ? std::nullopt : teacher_config(config_)) {
    const std::string key = teacher->task->traits().teacher_key;
    teacher_ = std::make_shared<FrozenModel>(*std::move(teacher), mesh_, overlap_);
    teacher_->load(key, Weights::kLast, on_wait_);
  }
  // A new one: parameters may have moved to other ranks.
  hook_ = make_gradient_hook(config_,
                             {.num_updates = [this] { return optimizer_->num_steps(); },
                              .find_momentum =
                                  [this](const std::string& parameter, const at::Tensor& momentum) {
                                    return copy_momentum(*optimizer_, parameter, momentum);
                                  }});
  model_.emplace(config_, mesh_, hook_, overlap_);
  if (teacher_) model_->use_teacher({teacher_, &teacher_->model()});
  if (config_.remote_teacher) model_->use_teacher(config_.remote_teacher);
  // The optimizer's states may be a file that takes long to make.
  const auto make_optimizer = [this](const checkpoint::Peers&) {
    try {
      model_->set_input_store(make_activation_store(config_.offload.activations,
                                                    config_.offload_folder(), config_.device));
      optimizer_.emplace(model_->shards(), config_.optimizer,
                         WeightOptions{.master_weights = config_.train.master_weights,
                                       .stochastic_rounding = config_.train.stochastic_rounding,
                                       .seed = config_.train.seed,
                                       .parameters = model_->parameter_names()},
                         offload_options(config_));
    } catch (...) {
      rethrow_with_memory_advice([this] {
        const MemoryOwner owner = memory_owner();
        return (owner.ledger ? largest_words(*owner.ledger) : "") +
               memory_advice(config_, world_.size());
      });
    }
  };
  checkpoint::run_or_throw(world_, make_optimizer, on_wait_);
  dense_.emplace(config_, *model_, *optimizer_);
  tables_.emplace(config_, model_->tables(), world_, on_wait_);
  parts_ = {&*dense_, &*tables_};
  callbacks_.build(model_->shards());
  form_ = make_form_ ? make_form_() : nullptr;
}

RunState TrainingState::load(const fs::path& path, const FastPlace* place) {
  const Saved saved = inspect(path, world_);
  std::vector<PartLoad> loads;
  for (StepPart* const part : parts_) loads.push_back(part->to_load({path, saved.summary, place}));
  std::vector<checkpoint::Entry> entries;
  for (PartLoad& load : loads) std::ranges::move(load.entries, std::back_inserter(entries));
  CompressionLoad residuals = load_compression(hook_.get(), places(), saved.summary, world_);
  compression_restarted_ = residuals.restarted;
  std::ranges::move(residuals.entries, std::back_inserter(entries));
  Callbacks::Wanted wanted = callbacks_.wanted(saved.callbacks);
  std::ranges::move(wanted.entries, std::back_inserter(entries));
  for (PartLoad& load : loads) std::ranges::move(load.ignored, std::back_inserter(wanted.ignored));
  wanted.ignored.emplace_back(kCompressionPrefix);
  PartLoad in_form;
  if (form_ != nullptr) {
    in_form = form_->to_load(std::move(entries), saved.summary);
    entries = in_form.entries;
    std::ranges::move(in_form.ignored, std::back_inserter(wanted.ignored));
  } else {
    wanted.ignored.emplace_back(kLearnerPrefix);
  }
  if (place != nullptr) checkpoint::bring(path, entries, place->sites, world_, on_wait_);
  RunState state;
  try {
    state = parse_state(
        checkpoint::load(path, entries, world_, {.ignored = wanted.ignored, .on_wait = on_wait_}),
        path.string());
  } catch (const CheckpointError& error) {
    throw CheckpointError(error.what() + describe_changes(path, config_));
  }
  residuals.finish();
  if (compression_restarted_) restart_compression(hook_.get(), config_.train, state.step);
  in_form.finish();
  for (const PartLoad& load : loads) load.finish();
  for (StepPart* const part : parts_) part->set_num_steps(state.optimizer_steps);
  if (state.loss_scale > 0) loss_scale_.restore(state.loss_scale, state.loss_scale_steps);
  bad_steps_.restore(state.bad_steps);
  noise_.restore(state.noise);
  bad_samples_.restore(state.bad_samples);
  callbacks_.restore(state.callbacks);
  return state;
}

RunState TrainingState::begin() {
  if (!config_.init.folder.empty()) load_initial();
  if (form_ != nullptr) form_->begin();
  return {};
}

void TrainingState::load_initial() {
  const fs::path folder = config_.init.folder;
  // "" when another program has written it.
  const auto find = [&](const checkpoint::Peers&) {
    return config_.task->open_weights(folder) ? std::string()
                                              : find_initial_weights(config_.init).string();
  };
  const std::string found = checkpoint::from_root(world_, find, on_wait_);
  initial_weights_ = found.empty() ? folder : fs::path(found);
  const TaskTraits traits = config_.task->traits();
  InitialWeights wanted{.unread = traits.unread_parameters};
  std::vector<PartLoad> loads;
  for (StepPart* const part : parts_) {
    PartLoad& load = loads.emplace_back(part->to_begin(initial_weights_));
    std::ranges::move(load.entries, std::back_inserter(wanted.weights));
    std::ranges::move(load.masters, std::back_inserter(wanted.masters));
  }
  InitConfig init = config_.init;
  init.missing = concat(init.missing, ",", traits.new_parameters, ",", traits.new_head);
  new_parameters_ =
      load_initial_weights(initial_weights_, init, std::move(wanted), world_, on_wait_,
                           [this] { return config_.task->open_weights(initial_weights_); });
  std::erase_if(new_parameters_,
                [&](const std::string& name) { return !matches_any(traits.new_head, name); });
  for (const PartLoad& load : loads) load.finish();
}

std::vector<std::string> TrainingState::initial_notes() const {
  std::vector<std::string> notes;
  if (teacher_) notes = teacher_->notes();
  if (const auto remote = remote_teacher_config(config_)) notes = notes_of_teacher(*remote);
  if (initial_weights_.empty()) return notes;
  std::ranges::move(config_.task->notes_on_weights(initial_weights_, config_.dtype()),
                    std::back_inserter(notes));
  if (!new_parameters_.empty())
    notes.push_back(concat("new, with the values of a new run, because these weights lack them",
                           listed("parameters", new_parameters_)));
  const std::string changed = describe_other_model(initial_weights_, config_);
  if (!changed.empty()) notes.push_back("another model than these weights': " + changed);
  return notes;
}

void TrainingState::write_files(const fs::path& folder) const {
  config_.task->write_files(folder);
  if (!initial_weights_.empty()) config_.task->take_files(initial_weights_, folder);
}

void TrainingState::fill_in(RunState& position) const {
  position.optimizer_steps = optimizer_->num_steps();
  position.config = to_toml(config_);
  position.loss_scale = loss_scale_.scale();
  position.loss_scale_steps = loss_scale_.good_steps();
  position.bad_steps = bad_steps_.state();
  position.noise = noise_.state();
  position.bad_samples = bad_samples_.saved_count();
  position.callbacks = callbacks_.states();
}

std::vector<checkpoint::Entry> TrainingState::entries() const {
  std::vector<checkpoint::Entry> entries;
  for (StepPart* const part : parts_) {
    std::ranges::move(part->to_save(), std::back_inserter(entries));
  }
  std::ranges::move(compression_entries(hook_.get(), places()), std::back_inserter(entries));
  std::ranges::move(callbacks_.entries(), std::back_inserter(entries));
  if (form_ != nullptr) return form_->to_save(std::move(entries));
  return entries;
}

checkpoint::SaveOptions TrainingState::save_options() const {
  const CheckpointConfig& config = config_.checkpoint;
  std::vector<fs::path> shared_roots;
  for (const std::string& run : split_list(config.share, ',')) {
    shared_roots.push_back(fs::path(run) / "checkpoints");
  }
  return {.keep = static_cast<int>(config.keep),
          .incremental = config.incremental,
          .shared_roots = std::move(shared_roots),
          .compression = config.compression,
          .compare_replicas = config.compare_replicas,
          .allow_nonfinite = config.allow_nonfinite,
          .epoch = config_.run_epoch,
          .on_wait = on_wait_};
}

void TrainingState::save(const fs::path& root, RunState position) {
  fill_in(position);
  checkpoint::save(root, position.step, entries(), to_json(position), world_, save_options());
}

void TrainingState::start_save(checkpoint::Saver& saver, const Places& places, RunState position,
                               bool only_memory) {
  fill_in(position);
  saver.start(places.targets(save_options(), only_memory), position.step, entries(),
              to_json(position));
}

int64_t TrainingState::compression_bytes() const { return train::compression_bytes(hook_.get()); }

PlaceOf TrainingState::places() const {
  return [this](const std::string& parameter) { return model_->place_of(parameter); };
}

bool TrainingState::gets_gradients() const {
  return !gets_momentum(config_.optimizer, optimizer_->num_steps() + 1);
}

}  // namespace trireme::train
