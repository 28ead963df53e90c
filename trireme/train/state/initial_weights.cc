#include "trireme/train/state/initial_weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include <ATen/core/grad_mode.h>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/parallel/gradient_compression.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/state/saved_form.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Tensors = std::map<std::string, checkpoint::SourceTensor>;

// Whether a tensor of a checkpoint is what a run computes with, not what it keeps beside.
bool is_weight(const std::string& name) {
  return !name.starts_with(kOptimizerPrefix) && !name.starts_with(kCompressionPrefix) &&
         !name.starts_with(kCallbackPrefix) && !name.starts_with(kLearnerPrefix);
}

// This rank's result of the search for its tensors.
struct Findings {
  std::set<std::string> wanted;
  std::set<std::string> missing;  // those of them that the checkpoint should have
  std::set<std::string> kept;     // and those that it may lack, and lacks
};

// Leaves out what the checkpoint lacks and may lack, and tells what it must not.
Findings look_up(const Tensors& tensors, const InitConfig& init, InitialWeights& entries) {
  Findings found;
  const auto has = [&](const std::string& name) {
    return tensors.contains(name) && matches_any(init.names, name);
  };
  for (const checkpoint::Entry& entry : entries.weights) {
    found.wanted.insert(entry.name);
    if (has(entry.name)) continue;
    (matches_any(init.missing, entry.name) ? found.kept : found.missing).insert(entry.name);
  }
  const auto lacks = [&](const checkpoint::Entry& entry) { return !has(entry.name); };
  std::erase_if(entries.weights, lacks);
  std::erase_if(entries.masters, lacks);
  return found;
}

// Decides the same on every rank, because all are given the same reports. Returns what all ranks
// keep.
std::set<std::string> require_all(const fs::path& folder, const Tensors& tensors,
                                  const InitConfig& init, const InitialWeights& of,
                                  const std::vector<std::string>& reports) {
  std::set<std::string> wanted, missing, kept, unexpected;
  for (const std::string& text : reports) {
    const json report = json::parse(text);
    wanted.merge(report.at("wanted").get<std::set<std::string>>());
    missing.merge(report.at("missing").get<std::set<std::string>>());
    kept.merge(report.at("kept").get<std::set<std::string>>());
  }
  for (const auto& [name, tensor] : tensors) {
    const bool is_taken = is_weight(name) && matches_any(init.names, name);
    if (is_taken && !wanted.contains(name) && !matches_any(of.unread, name))
      unexpected.insert(name);
  }
  if (missing.empty() && unexpected.empty()) return kept;
  const std::string difference =
      concat(of.key, " ", folder.string(), " does not fit the model", listed("missing", missing),
             listed("unexpected", unexpected));
  if (of.key != "init.folder") throw CheckpointError(difference);
  throw CheckpointError(concat(
      difference, missing.empty() ? "" : "; list those to initialise at random in init.missing",
      unexpected.empty() ? "" : "; list those to take in init.names"));
}

// Reads a tensor of another dtype from the master, which no rounding has touched.
void choose_stored(const Tensors& tensors, std::vector<checkpoint::Entry>& entries) {
  for (checkpoint::Entry& entry : entries) {
    const std::string master = concat(kOptimizerPrefix, kMasterState, ".", entry.name);
    const bool is_same = tensors.at(entry.name).dtype == entry.local.scalar_type();
    if (!is_same && tensors.contains(master)) entry.name = master;
  }
}

// This rank's part of each tensor.
void read_foreign(const checkpoint::TensorSource& source,
                  const std::vector<checkpoint::Entry>& entries, comm::Communicator& world,
                  const checkpoint::Peers& peers) {
  const at::NoGradGuard no_grad;
  for (const checkpoint::Entry& entry : entries) {
    peers.check();
    const mesh::Box box = entry.box(world.rank(), world.size());
    at::Tensor values = checkpoint::view_box(source.read(entry.name), box);
    values = in_dtype(values, entry.local.scalar_type(), entry.name).contiguous();
    if (entry.offloaded) {
      entry.offloaded->write(values);
    } else {
      at::Tensor(entry.local).copy_(values);
    }
  }
}

// Refuses shapes before anything is changed.
void require_shapes(const fs::path& folder, const Tensors& tensors, const InitialWeights& wanted) {
  std::set<std::string> different;
  for (const checkpoint::Entry& entry : wanted.weights) {
    const auto& found = tensors.at(entry.name).shape;
    if (found != entry.layout.whole_shape()) different.insert(entry.name);
  }
  if (different.empty()) return;
  throw CheckpointError(concat(wanted.key, " ", folder.string(), " does not fit the model",
                               listed("with a different shape", different)));
}

}  // namespace

fs::path find_initial_weights(const InitConfig& init) {
  const fs::path folder = init.folder;
  try {
    return find_checkpoint(folder);
  } catch (const CheckpointError& error) {
    throw CheckpointError(concat("init.folder: ", error.what()));
  }
}

std::set<std::string> load_initial_weights(const fs::path& folder, const InitConfig& init,
                                           InitialWeights wanted, comm::Communicator& world,
                                           const checkpoint::OnWait& on_wait,
                                           const OpenWeights& open) {
  std::unique_ptr<checkpoint::TensorSource> foreign;
  Tensors tensors;
  const auto look = [&](const checkpoint::Peers&) {
    if (open) foreign = open();
    tensors = foreign ? foreign->tensors() : checkpoint::SavedTensors(folder).tensors();
    const Findings mine = look_up(tensors, init, wanted);
    if (foreign) require_shapes(folder, tensors, wanted);
    return json({{"wanted", mine.wanted}, {"missing", mine.missing}, {"kept", mine.kept}}).dump();
  };
  std::set<std::string> kept =
      require_all(folder, tensors, init, wanted, checkpoint::gather_or_throw(world, look, on_wait));
  // One after the other, because both may read the same tensor.
  for (std::vector<checkpoint::Entry>* entries : {&wanted.weights, &wanted.masters}) {
    choose_stored(tensors, *entries);
    if (foreign) {
      const auto read = [&, entries = entries](const checkpoint::Peers& peers) {
        read_foreign(*foreign, *entries, world, peers);
      };
      checkpoint::run_or_throw(world, read, on_wait);
      continue;
    }
    checkpoint::load(folder, *entries, world,
                     {.strict = false, .converts = true, .on_wait = on_wait});
  }
  return kept;
}

}  // namespace trireme::train
