#include "trireme/spmd/annotate.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/random/random.h"
#include "trireme/base/words.h"
#include "trireme/spmd/delayed_tensors.h"
#include "trireme/spmd/dispatch.h"
#include "trireme/spmd/place_as.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

// Torch's default generator, as it was once this ends. Ranks that are threads share it.
class SeededGenerator {
 public:
  SeededGenerator() : lock_(mutex()), before_(generator().get_state()) {}
  ~SeededGenerator() { generator().set_state(before_); }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;
  static void seed(uint64_t seed) { at::manual_seed(seed); }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }

  std::lock_guard<std::mutex> lock_;
  at::Tensor before_;
};

std::string quoted(const std::string& text) { return concat('"', text, '"'); }

// The annotation of each tensor; -1: none.
std::vector<int> annotations_of(const std::vector<Annotation>& notes,
                                const std::vector<std::string>& names) {
  std::vector<int> found(names.size(), -1);
  for (size_t note = 0; note < notes.size(); ++note) {
    bool is_used = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!matches(notes[note].name, names[i])) continue;
      is_used = true;
      TRIREME_CHECK(found[i] < 0, "two patterns match the parameter ", names[i], ": ",
                    quoted(notes[found[i]].name), " and ", quoted(notes[note].name),
                    "; change one of them");
      found[i] = static_cast<int>(note);
    }
    TRIREME_CHECK(is_used, "the pattern ", quoted(notes[note].name), " matches no parameter",
                  names.empty() ? "; the module has none"
                                : concat("; the nearest name is ",
                                         quoted(nearest_name(names, notes[note].name))));
  }
  return found;
}

// Before finish() of DelayedTensors, tensors know their sizes only.
template <typename Make>
bool make_delayed(DelayedTensors& delayed, uint64_t seed, const Make& make) {
  try {
    SeededGenerator::seed(seed);
    delayed.record(make);
    return true;
  } catch (const std::exception&) {
    // It reads what is not there yet, or it fails in any case.
    SeededGenerator::seed(seed);
    make();
    return false;
  }
}

std::string title_of(const char* what, const std::vector<Annotation>& notes, size_t index) {
  return concat(what, " ", quoted(notes[index].name));
}

void check_count(const char* what, const std::vector<Annotation>& notes, size_t count) {
  TRIREME_CHECK(notes.size() <= count, "annotations have ", notes.size(), " ", what, ", the last ",
                quoted(notes.back().name), "; forward() has ", count, " tensors there");
}

// Before it is accumulated, a gradient comes in the places of its parameter.
void reduce_gradient(const at::Tensor& parameter, const GridPtr& grid, const Places& places) {
  if (!parameter.requires_grad()) return;
  const std::string cause = "gradient of " + *placed(parameter)->parameter;
  parameter.register_hook([grid, places, cause](const at::Tensor& gradient) {
    return gradient.defined() ? place_as(grid, gradient, places, cause) : gradient;
  });
}

std::vector<std::string> names_of(const std::vector<NamedSizes>& tensors) {
  std::vector<std::string> names;
  for (const NamedSizes& each : tensors) names.push_back(each.name);
  return names;
}

}  // namespace

std::vector<NamedSizes> named_sizes(const torch::nn::Module& module) {
  std::vector<NamedSizes> tensors;
  std::map<const c10::TensorImpl*, std::string> first;
  for (const bool is_parameter : {true, false}) {
    for (const auto& item : is_parameter ? module.named_parameters() : module.named_buffers()) {
      const auto named = first.emplace(item.value().unsafeGetTensorImpl(), item.key()).first;
      tensors.push_back({item.key(), item.value().sizes().vec(), is_parameter,
                         item.value().requires_grad(), named->second});
    }
  }
  return tensors;
}

std::vector<NamedSizes> named_sizes(const std::function<torch::nn::Module*()>& make) {
  const SeededGenerator generator;
  DelayedTensors delayed(nullptr);
  const torch::nn::Module* module = nullptr;
  make_delayed(delayed, 0, [&] { module = make(); });
  return named_sizes(*module);
}

std::vector<mesh::Layout> layouts_of(const Annotations& notes,
                                     const std::vector<NamedSizes>& tensors,
                                     const std::vector<mesh::Axis>& axes) {
  const std::vector<int> found = annotations_of(notes.parameters, names_of(tensors));
  std::vector<mesh::Layout> layouts;
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const NamedSizes& each = tensors[i];
    const std::string what = concat("parameter ", quoted(each.name));
    const Splits splits = found[i] >= 0 ? notes.parameters[found[i]].splits : replicated();
    layouts.push_back(splits.layout(each.sizes, axes, what));
    const bool is_sum = std::ranges::any_of(layouts.back().placements(), [](const auto& one) {
      return one.kind == mesh::Placement::Kind::kPartial;
    });
    TRIREME_CHECK(!is_sum, what, " is to be a partial sum; expected a split or nothing");
    first.emplace(each.name, i);
    const auto same = first.find(each.first_name);
    TRIREME_CHECK(same == first.end() || layouts[same->second] == layouts[i], "the parameter ",
                  each.first_name, " is also ", each.name,
                  ", which is placed otherwise; annotate both alike");
  }
  return layouts;
}

AnnotatedTensors::AnnotatedTensors(const mesh::DeviceMesh& mesh, Annotations notes)
    : log_(std::make_shared<MoveLog>()), notes_(std::move(notes)) {
  auto grid = std::make_shared<Grid>(mesh);
  grid->set_log(log_);
  grid->random().seed = notes_.seed;
  if (!notes_.step.empty() && grid->num_axes() > 0)
    grid->set_follower(std::make_shared<StepFollower>(notes_.step));
  grid_ = std::move(grid);
}

void AnnotatedTensors::make(const std::function<torch::nn::Module*()>& make) {
  torch::nn::Module* module = nullptr;
  {
    const SeededGenerator generator;
    DelayedTensors delayed(grid_);
    was_whole_ = !make_delayed(delayed, notes_.seed, [&] { module = make(); });
    place_parameters(*module, delayed);
  }
  check_agreement(*module);
  log_->clear();
}

void AnnotatedTensors::begin_forward(bool trains) const {
  StepFollower* const follower = grid_->follower();
  if (follower) follower->begin(trains && at::GradMode::is_enabled());
}

std::vector<AnnotatedTensors::Placed> AnnotatedTensors::placed_tensors(
    torch::nn::Module& module) const {
  const std::vector<NamedSizes> named = named_sizes(module);
  const std::vector<int> found = annotations_of(notes_.parameters, names_of(named));
  const std::vector<mesh::Layout> layouts = layouts_of(notes_, named, grid_->axes());
  const auto parameters = module.named_parameters(), buffers = module.named_buffers();
  std::vector<Placed> tensors;
  for (size_t i = 0; i < named.size(); ++i) {
    const std::string& name = named[i].name;
    const bool is_parameter = named[i].is_parameter;
    tensors.push_back({name, is_parameter ? parameters[name] : buffers[name], is_parameter,
                       found[i] >= 0, places_of(*grid_, layouts[i])});
  }
  return tensors;
}

void AnnotatedTensors::place_parameters(torch::nn::Module& module, DelayedTensors& delayed) {
  std::vector<Placed> tensors = placed_tensors(module);
  std::map<const PlacedMeta*, Places> wanted;
  for (Placed& each : tensors) {
    PlacedMeta* meta = placed(each.tensor);
    if (!meta) continue;
    if (!meta->parameter) meta->parameter = log_->keep_name(each.name);
    wanted.emplace(meta, each.places);
  }
  delayed.finish([&](const PlacedMeta& meta) {
    const auto found = wanted.find(&meta);
    return found == wanted.end() ? std::nullopt : std::optional(found->second);
  });
  std::set<const c10::TensorImpl*> done;
  for (Placed& each : tensors) {
    if (!done.insert(each.tensor.unsafeGetTensorImpl()).second) continue;
    PlacedMeta* meta = placed(each.tensor);
    if (!each.is_parameter && !each.is_annotated) {
      if (meta) each.tensor.set_data(meta->local);
      continue;
    }
    if (!meta) {
      each.tensor.set_data(place_whole(grid_, each.tensor.detach(), each.places));
      meta = placed(each.tensor);
    }
    if (!meta->parameter) meta->parameter = log_->keep_name(each.name);
    reduce_gradient(each.tensor, grid_, each.places);
  }
}

void AnnotatedTensors::check_agreement(const torch::nn::Module& module) const {
  std::string text;
  for (const auto& item : module.named_parameters()) {
    const PlacedMeta& meta = *placed(item.value());
    text += concat(item.key(), " ", item.value().sizes(), " ", item.value().dtype().name(), " ",
                   to_string(*grid_, meta.places), "\n");
  }
  comm::Communicator& world = grid_->mesh().world();
  const auto mark = static_cast<int64_t>(random_key(notes_.seed, text).value);
  at::Tensor all = at::empty({world.size(), 1}, at::kLong);
  world.all_gather(all.unbind(0), at::full({1}, mark, at::kLong))->wait();
  for (int rank = 0; rank < world.size(); ++rank) {
    TRIREME_CHECK(all[rank][0].item<int64_t>() == all[0][0].item<int64_t>(), "rank ", rank,
                  " has made other parameters than rank 0, or annotates them otherwise; make() and "
                  "the annotations must be the same on every rank");
  }
}

at::Tensor AnnotatedTensors::input(size_t index, const at::Tensor& tensor) const {
  if (index >= notes_.inputs.size() || !tensor.defined()) return tensor;
  const std::string what = title_of("input", notes_.inputs, index);
  return place_as(grid_, tensor, notes_.inputs[index].splits.on(*grid_, tensor.sizes(), what),
                  what);
}

at::Tensor AnnotatedTensors::output(size_t index, const at::Tensor& tensor) const {
  if (index >= notes_.outputs.size() || !tensor.defined()) return tensor;
  const std::string what = title_of("output", notes_.outputs, index);
  return place_as(grid_, tensor, notes_.outputs[index].splits.on(*grid_, tensor.sizes(), what),
                  what);
}

at::Tensor AnnotatedTensors::local_input(const std::string& name, const at::Tensor& local) const {
  std::vector<std::string> names;
  for (const Annotation& note : notes_.inputs) names.push_back(note.name);
  const auto found = std::ranges::find(names, name);
  TRIREME_CHECK(found != names.end(), quoted(name), " is no annotated input",
                did_you_mean(names, name));
  const Splits& splits = notes_.inputs[found - names.begin()].splits;
  const std::string what = concat("input ", quoted(name));
  const TiledTensor whole = tile(*grid_, local, splits, what).front();
  return place_block(grid_, local, whole.places, whole.sizes);
}

void AnnotatedTensors::check_inputs(size_t count) const {
  check_count("inputs", notes_.inputs, count);
}
void AnnotatedTensors::check_outputs(size_t count) const {
  check_count("outputs", notes_.outputs, count);
}

}  // namespace trireme::spmd
