#include "trireme/verify/reference.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/train/callbacks/activation_record.h"
#include "trireme/train/callbacks/gradient_record.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/verify/recorded_run.h"

namespace trireme::verify {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorSource;
using nlohmann::json;

constexpr uint64_t kMostMapBytes = uint64_t{1} << 20;
constexpr uint64_t kMostStepBytes = uint64_t{1} << 16;
// Of checkpoints that no comparison looks at: a recorded run has one.
constexpr const char* kUnseen = "callback.reference";

int64_t num_stars(const std::string& name) { return std::ranges::count(name, '*'); }

// What "*" stands for; nothing when the name does not fit.
std::optional<std::string> star_of(const std::string& pattern, const std::string& name) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name ? std::optional(std::string()) : std::nullopt;
  const std::string_view head = std::string_view(pattern).substr(0, star);
  const std::string_view tail = std::string_view(pattern).substr(star + 1);
  const bool fits =
      name.size() >= head.size() + tail.size() && name.starts_with(head) && name.ends_with(tail);
  if (!fits) return std::nullopt;
  return name.substr(head.size(), name.size() - head.size() - tail.size());
}

// "layers.0@gradient" is mapped as "layers.0" is.
std::string mapped_probe(const NameMap& names, const std::string& name) {
  const size_t end = std::min(name.find('@'), name.size());
  return mapped(names, name.substr(0, end)) + name.substr(end);
}

struct Pair {
  std::string run;        // the tensor's name there
  std::string reference;  // and in the reference
};

std::vector<Pair> common_names(const TensorSource& run, const TensorSource& reference,
                               const NameMap& names, const fs::path& where) {
  std::map<std::string, std::string> by_run_name;
  for (const auto& [name, tensor] : reference.tensors()) {
    by_run_name.emplace(mapped_probe(names, name), name);
  }
  std::vector<Pair> pairs;
  for (const auto& [name, tensor] : run.tensors()) {
    const auto found = by_run_name.find(name);
    if (found == by_run_name.end()) continue;
    const checkpoint::SourceTensor& other = reference.tensors().at(found->second);
    TRIREME_CHECK(c10::multiply_integers(tensor.shape) == c10::multiply_integers(other.shape),
                  where.string(), ": \"", shown(found->second), "\" has the shape ",
                  at::IntArrayRef(other.shape), ", and the run's ", shown(name), " has ",
                  at::IntArrayRef(tensor.shape),
                  "; expected the same batch and the same model: see trireme verify --batch");
    TRIREME_CHECK(at::isFloatingType(other.dtype), where.string(), ": \"", shown(found->second),
                  "\" has the dtype ", c10::toString(other.dtype), "; expected floating point");
    pairs.push_back({name, found->second});
  }
  return pairs;
}

// A tensor that is read when it is saved, so that one at a time is in memory.
checkpoint::Entry entry_of(const std::string& name, const checkpoint::SourceTensor& form,
                           const std::function<at::Tensor()>& read) {
  return checkpoint::lazy_entry(
      name, form.dtype, mesh::Layout(form.shape, {}), 0,
      [read](const mesh::Box& /*whole*/) { return read(); }, checkpoint::LazyParts::kWhole);
}

void save_entries(const fs::path& root, std::span<const checkpoint::Entry> entries,
                  const std::string& state) {
  const auto world = std::move(comm::make_thread_group(1).front());
  checkpoint::save(root, 1, entries, state, *world, {.keep = 0, .fsync = false});
}

// The pairs' tensors as records of a and b.
void save_pairs(const std::vector<Pair>& pairs, const checkpoint::SavedTensors& run,
                const TensorSource& reference, const fs::path& a, const fs::path& b) {
  std::vector<checkpoint::Entry> ours, theirs;
  for (const Pair& pair : pairs) {
    const checkpoint::SourceTensor& form = run.tensors().at(pair.run);
    ours.push_back(entry_of(pair.run, form, [&] { return run.read(pair.run); }));
    theirs.push_back(entry_of(pair.run, form, [&] {
      return reference.read(pair.reference).to(form.dtype).reshape(form.shape);
    }));
  }
  save_entries(a, ours, run.state());
  save_entries(b, theirs, run.state());
}

std::vector<std::string> names_without(const TensorSource& source, const std::vector<Pair>& pairs,
                                       std::string Pair::*side) {
  std::vector<std::string> rest;
  for (const auto& [name, tensor] : source.tensors()) {
    if (std::ranges::find(pairs, name, side) == pairs.end()) rest.push_back(name);
  }
  return rest;
}

void write_numbers(const fs::path& folder, double loss, double norm) {
  fs::create_directories(folder);
  const json line = {{"step", 1}, {"loss", loss}, {"grad_norm", norm}};
  write_file_atomically(folder / train::kMetricsName, line.dump() + "\n");
}

json read_json(const fs::path& path, uint64_t most_bytes) {
  TRIREME_CHECK(fs::is_regular_file(path), path.string(),
                " is missing; expected a folder that trireme_torch.record() has written");
  return parse_json(read_file(path, most_bytes), path.string());
}

}  // namespace

NameMap read_name_map(const fs::path& file) {
  const json object = read_json(file, kMostMapBytes);
  TRIREME_CHECK(object.is_object(), file.string(), " is no JSON object of names");
  NameMap names;
  for (const auto& [from, to] : object.items()) {
    TRIREME_CHECK(to.is_string(), file.string(), ": \"", shown(from),
                  "\" has no name; expected a text");
    names.emplace_back(from, to.get<std::string>());
    const int64_t before = num_stars(from), after = num_stars(names.back().second);
    TRIREME_CHECK(before == after && before <= 1, file.string(), ": \"", shown(from), "\" and \"",
                  shown(names.back().second), "\" have ", before, " and ", after,
                  " stars; expected one in both, or none");
  }
  return names;
}

// A block's probe "attention" is the residual stream behind it, and BERT's and ViT's modules of
// that name give something else. Granite scales what "model.embed_tokens" gives, so that it is not
// "embedding".
NameMap transformers_names() {
  return {{"*.attention", "*.attention, a module"},
          {"model.norm", "norm"},
          {"transformer.ln_f", "norm"},
          {"vit.layernorm", "norm"},
          {"transformer.drop", "embedding"},
          {"vit.embeddings", "embedding"},
          {"vit.layers.*", "vit.encoder.layer.*"},
          {"classifier", "logits"}};
}

std::string mapped(const NameMap& names, const std::string& name) {
  for (const auto& [from, to] : names) {
    const std::optional<std::string> star = star_of(from, name);
    if (!star) continue;
    const size_t place = to.find('*');
    return place == to.npos ? to : to.substr(0, place) + *star + to.substr(place + 1);
  }
  return name;
}

CommonTensors write_common(const ReferenceStep& reference, const fs::path& run, const fs::path& a,
                           const fs::path& b) {
  const fs::path activations_file = reference.folder / "activations.safetensors";
  const json step = read_json(reference.folder / "step.json", kMostStepBytes);
  const std::string where = (reference.folder / "step.json").string();
  TRIREME_CHECK(step.contains("loss") && step.at("loss").is_number() &&
                    step.contains("grad_norm") && step.at("grad_norm").is_number(),
                where, " lacks loss or grad_norm, or they are not finite; expected two numbers");

  const std::string first = checkpoint::folder_name(1);
  const auto their_activations = checkpoint::open_tensors(activations_file);
  std::optional<checkpoint::SavedTensors> own_activations;  // the run may have kept none
  std::vector<Pair> activations;
  if (fs::exists(run / train::kActivationFolder / first)) {
    own_activations.emplace(run / train::kActivationFolder / first);
    activations =
        common_names(*own_activations, *their_activations, reference.names, activations_file);
  }
  const fs::path gradients_folder = reference.folder / train::kGradientFolder;
  const checkpoint::SavedTensors own_gradients(run / train::kGradientFolder / first);
  const auto their_gradients = reference.open_gradients(gradients_folder);
  const std::vector<Pair> gradients =
      common_names(own_gradients, *their_gradients, reference.names, gradients_folder);
  TRIREME_CHECK(!activations.empty() || !gradients.empty(), reference.folder.string(), " and ",
                run.string(), " have no tensor of the same name; expected module paths such as \"",
                own_gradients.tensors().empty() ? "" : own_gradients.tensors().begin()->first,
                "\": give --map FILE");

  if (!activations.empty()) {
    save_pairs(activations, *own_activations, *their_activations, a / train::kActivationFolder,
               b / train::kActivationFolder);
  }
  save_pairs(gradients, own_gradients, *their_gradients, a / train::kGradientFolder,
             b / train::kGradientFolder);
  const StepNumbers own = read_step_numbers(run);
  TRIREME_CHECK(own.contains(1) && own.at(1).contains("loss") && own.at(1).contains("grad_norm"),
                run.string(), " has no finite loss and norm in step 1");
  write_numbers(a, own.at(1).at("loss"), own.at(1).at("grad_norm"));
  write_numbers(b, step.at("loss").get<double>(), step.at("grad_norm").get<double>());
  for (const fs::path& folder : {a, b}) {
    const checkpoint::Entry unseen{kUnseen, at::zeros({1}), mesh::Layout({1}, {})};
    save_entries(folder / "checkpoints", {&unseen, 1}, "{}");
  }
  return {.num_activations = static_cast<int64_t>(activations.size()),
          .num_gradients = static_cast<int64_t>(gradients.size()),
          .only_run = names_without(own_gradients, gradients, &Pair::run),
          .only_reference = names_without(*their_gradients, gradients, &Pair::reference)};
}

}  // namespace trireme::verify
