#include "trireme/train/callbacks/activation_record.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/comm/objects.h"
#include "trireme/train/callbacks/gradient_record.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Not ".step-", which a save takes for its own leftovers.
constexpr std::string_view kFilePrefix = ".probes-";

std::string file_end(size_t rank) { return concat(".rank-", rank); }

fs::path file_of(const fs::path& folder, int64_t step, size_t rank) {
  return folder / concat(kFilePrefix, step, file_end(rank));
}

// Those of a start that was killed.
void remove_files(const fs::path& folder, size_t rank) {
  for (const auto& item : fs::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    std::error_code ignored;
    if (name.starts_with(kFilePrefix) && name.ends_with(file_end(rank)))
      fs::remove(item.path(), ignored);
  }
}

bool is_activation(std::string_view name) {
  return !name.ends_with(verify::kGradientEnd) && !name.ends_with(verify::kChoicesEnd);
}

// The probes of all ranks, with the first rank's form of each.
std::map<std::string, const StoredProbe*> forms_of(std::span<const StoredProbes> ranks) {
  std::map<std::string, const StoredProbe*> forms;
  for (const StoredProbes& probes : ranks) {
    for (const auto& [name, probe] : probes) {
      const StoredProbe& first = *forms.try_emplace(name, &probe).first->second;
      TRIREME_CHECK(first.whole == probe.whole && first.dtype == probe.dtype, "probe \"", name,
                    "\" has shape ", at::IntArrayRef(probe.whole), " on one rank and ",
                    at::IntArrayRef(first.whole), " on another; expected that of the whole tensor");
    }
  }
  return forms;
}

// Names of activations as forward makes them.
std::vector<std::string> in_order(std::span<const StoredProbes> ranks) {
  std::map<std::string, std::pair<int, int64_t>> places;  // lowest of a stage and order there
  for (const StoredProbes& probes : ranks) {
    for (const auto& [name, probe] : probes) {
      const std::pair place(probe.stage, probe.order);
      if (!is_activation(name)) continue;
      const auto found = places.try_emplace(name, place).first;
      found->second = std::min(found->second, place);
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, place] : places) names.push_back(name);
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return places.at(name); });
  return names;
}

// JSON has no infinity: null.
void add_difference(const ProbeReplicas& replicas, const std::string& name, nlohmann::json& to) {
  if (replicas.ranks.empty()) return;
  to[name] = {
      {"ranks", replicas.ranks}, {"absolute", replicas.absolute}, {"relative", replicas.relative}};
}

// The probes of which ranks hold different bits, as JSON. Rank 0 reads them, however long that
// takes, and all ranks fail if it cannot.
std::string differing_replicas(comm::Communicator& world, std::span<const fs::path> files,
                               std::span<const StoredProbes> ranks,
                               std::span<const std::string> names) {
  return checkpoint::from_root(world, [&](const checkpoint::Peers& peers) {
    nlohmann::json differing = nlohmann::json::object();
    for (const std::string& name : names) {
      peers.check();
      add_difference(compare_replicas(files, ranks, name), name, differing);
    }
    return differing.dump();
  });
}

}  // namespace

std::unique_ptr<Callback> ActivationRecord::clone() const {
  auto copy = std::make_unique<ActivationRecord>();
  copy->config_ = config_;
  return copy;
}

void ActivationRecord::check(const RunConfig& /*config*/,
                             std::span<const std::string> /*metrics*/) const {
  TRIREME_CHECK(config_.activations > 0, "record.", config_.perturb != 0 ? "perturb" : "choices",
                " is set, but record.activations is 0; expected the number of steps to record");
}

void ActivationRecord::on_start(RunView& run) {
  folder_ = record_folder(run.folder(), run.learner()) / kActivationFolder;
  chosen_folder_ = record_folder(config_.choices, run.learner()) / kActivationFolder;
  rank_ = run.world().rank();
  file_copies_ = static_cast<uint64_t>(run.activation_copies());
  if (run.step() >= config_.activations) return;
  fs::create_directories(folder_);
  remove_files(folder_, static_cast<size_t>(rank_));
}

verify::ProbeSink* ActivationRecord::probes(int64_t step) {
  file_.reset();
  chosen_.reset();
  if (step > config_.activations) return nullptr;
  step_ = step;
  const auto left = static_cast<uint64_t>(config_.activations - step + 1);
  file_ = std::make_unique<ProbeFile>(
      file_of(folder_, step, static_cast<size_t>(rank_)),
      ProbeRoom{.free = fs::space(folder_).available, .copies = left + file_copies_});
  return this;
}

at::Tensor ActivationRecord::replayed(const verify::ProbedBlock& block) {
  if (config_.choices.empty()) return {};
  if (chosen_ == nullptr) {
    chosen_ =
        std::make_unique<checkpoint::SavedTensors>(chosen_folder_ / checkpoint::folder_name(step_));
  }
  const auto found = chosen_->tensors().find(block.name);
  TRIREME_CHECK(found != chosen_->tensors().end() && found->second.shape == block.whole &&
                    found->second.dtype == at::kLong,
                "record.choices: ", config_.choices, " has no ", block.name, " of shape ",
                at::IntArrayRef(block.whole),
                "; expected a run of the same model and batch with "
                "record.activations");
  std::vector<at::Tensor> parts;
  for (const mesh::Box& box : block.boxes) parts.push_back(chosen_->read_box(block.name, box));
  return at::cat(parts);
}

std::optional<uint64_t> ActivationRecord::perturbation() const {
  if (config_.perturb == 0) return std::nullopt;
  return static_cast<uint64_t>(config_.perturb);
}

void ActivationRecord::on_gradients(RunView& run) {
  comm::Communicator& world = run.world();
  std::vector<StoredProbes> ranks;
  std::vector<fs::path> files;
  for (const std::string& text : comm::all_gather_strings(world, to_text(file_->probes()))) {
    files.push_back(file_of(folder_, step_, ranks.size()));
    ranks.push_back(parse_probes(text));
  }
  const std::map<std::string, const StoredProbe*> forms = forms_of(ranks);
  uint64_t num_bytes = 0;
  for (const auto& [name, form] : forms) {
    num_bytes +=
        c10::elementSize(form->dtype) * static_cast<uint64_t>(c10::multiply_integers(form->whole));
  }
  // All ranks decide alike.
  const std::vector<int64_t> free =
      comm::all_gather_numbers(world, static_cast<int64_t>(fs::space(folder_).available));
  check_room(folder_,
             {.free = static_cast<uint64_t>(std::ranges::min(free)),
              .copies = static_cast<uint64_t>(config_.activations - step_ + 1)},
             num_bytes);
  std::vector<std::string> whole, partial;
  std::vector<checkpoint::Entry> entries;
  for (const auto& [name, form] : forms) {
    if (num_covered(ranks, name) != c10::multiply_integers(form->whole)) {
      partial.push_back(name);
      continue;
    }
    whole.push_back(name);
    const mesh::Layout rows(form->whole, {{"data", world.size()}}, {mesh::Placement::sharded(0)});
    entries.push_back(checkpoint::lazy_entry(
        name, form->dtype, rows, world.rank(),
        [&, name](const mesh::Box& part) { return read_blocks(files, ranks, name, part); },
        checkpoint::LazyParts::kRows));
  }
  const nlohmann::json state = {
      {kRecordedProbes, in_order(ranks)},
      {kDifferingProbes, nlohmann::json::parse(differing_replicas(world, files, ranks, whole))},
      {kPartialProbes, partial}};
  // Not synced, as GradientRecord's.
  checkpoint::save(folder_, step_, entries, state.dump(), world,
                   {.keep = 0, .fsync = false, .incremental = false, .compare_replicas = false});
  file_.reset();
}

}  // namespace trireme::train
