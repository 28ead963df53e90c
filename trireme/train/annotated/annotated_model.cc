#include "trireme/train/annotated/annotated_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <c10/util/accumulate.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/mesh/axis_kinds.h"
#include "trireme/model/layers/batch_norm.h"
#include "trireme/train/annotated/annotated_stage.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/stage_costs.h"
#include "trireme/train/task/running_statistics.h"

namespace trireme::train {
namespace {

constexpr std::string_view kSplitAxis = "tensor", kSampleAxis = "data";

// A name for people: "Net" of "(anonymous namespace)::NetImpl".
std::string short_name(std::string name) {
  if (const size_t colon = name.rfind("::"); colon != std::string::npos) name.erase(0, colon + 2);
  if (name.ends_with("Impl")) name.erase(name.size() - 4);
  return name;
}

void check_other_axes(const spmd::Annotation& note, const char* what) {
  for (const mesh::AxisKind& kind : mesh::kAxisKinds) {
    if (kind.name == kSplitAxis || kind.name == kSampleAxis) continue;
    TRIREME_CHECK(!note.splits.names(kind.name), "the annotation of ", what, " \"", note.name,
                  "\" is on the axis \"", kind.name, "\"; a task's annotations may split on \"",
                  kSplitAxis, "\", and samples on \"", kSampleAxis, "\"");
  }
}

// An input or output, whose samples the loop divides.
void check_samples(const spmd::Annotation& note, const char* what) {
  check_other_axes(note, what);
  TRIREME_CHECK(!note.splits.names(kSampleAxis) || note.splits.splits_evenly(0, kSampleAxis),
                "the annotation of ", what, " \"", note.name, "\" is not split(0, \"", kSampleAxis,
                "\"); in training that axis divides samples, so write that or leave it out");
}

void check_notes(const spmd::Annotations& notes) {
  for (const spmd::Annotation& note : notes.parameters) {
    check_other_axes(note, "parameter");
    TRIREME_CHECK(!note.splits.names(kSampleAxis), "the annotation of parameter \"", note.name,
                  "\" is on the axis \"", kSampleAxis,
                  "\", whose ranks have equal parameters in "
                  "training; leave it out, and set parallel.zero = 1 or 2 to shard their states");
  }
  for (const spmd::Annotation& note : notes.inputs) check_samples(note, "input");
  for (const spmd::Annotation& note : notes.outputs) check_samples(note, "output");
}

}  // namespace

// Facts about the model that need no weights.
struct AnnotatedModel::Outline {
  struct Link {
    std::string name;
    bool takes_inputs = false;  // those of annotations() if it is the first, or else one tensor
    double num_parameters = 0;
  };
  std::string name;
  std::vector<Link> links{};
  std::vector<spmd::NamedSizes> tensors{};
  std::optional<std::string> batch_norm{};  // whose statistics would be one rank's

  double num_parameters() const {
    double sum = 0;
    for (const Link& link : links) sum += link.num_parameters;
    return sum;
  }
  size_t link_of(const std::string& tensor) const {
    if (links.size() == 1) return 0;
    const auto found = std::ranges::find(links, tensor.substr(0, tensor.find('.')), &Link::name);
    TRIREME_ASSERT(found != links.end(), tensor, " is in no link");
    return static_cast<size_t>(found - links.begin());
  }
};

const AnnotatedModel::Outline& AnnotatedModel::outline() const {
  if (outline_) return *outline_;
  auto found = std::make_shared<Outline>();
  std::optional<AnnotatedNet> net;
  found->tensors = spmd::named_sizes([&] {
    net.emplace(problem_.make_net());
    TRIREME_CHECK(!net->links().empty(), "make_net() returns a chain without a link; add() one");
    return &net->module();
  });
  size_t count = problem_.annotations().inputs.size();
  for (const AnnotatedNet::Link& link : net->links()) {
    found->links.push_back({link.name, link.takes(std::exchange(count, 1))});
    found->name += concat(found->links.size() > 1 ? " -> " : "",
                          link.name.empty() ? short_name(link.module->name()) : link.name);
  }
  for (const spmd::NamedSizes& each : found->tensors) {
    if (each.is_parameter && each.name == each.first_name)
      found->links[found->link_of(each.name)].num_parameters +=
          static_cast<double>(c10::multiply_integers(each.sizes));
  }
  found->batch_norm = norm_with_own_statistics(net->module(), "");
  if (!found->batch_norm && !model::batch_norms_of(net->module()).empty())
    found->batch_norm = "BatchNorm";
  outline_ = std::move(found);
  return *outline_;
}

ModelTraits AnnotatedModel::traits() const {
  return {.name = concat("annotated ", outline().name),
          .axes = {std::string(kSplitAxis), "pipeline"},
          .num_parameters = static_cast<int64_t>(outline().num_parameters())};
}

void AnnotatedModel::check(const RunConfig& config) const {
  const std::string model = concat(", and the model of task ", config.task_choice.name,
                                   " is an annotated module, which ");
  TRIREME_CHECK(config.train.recompute != model::Recompute::kSelective,
                "train.recompute is \"selective\"", model,
                "has no parts to select from; set it to \"full\" or \"none\"");
  TRIREME_CHECK(config.offload.activations == OffloadPlace::kNone, "offload.activations is \"",
                name_of(kOffloadPlaces, config.offload.activations), "\"", model,
                "keeps the inputs of its links on the ranks' grid; set it to \"none\"");
  TRIREME_CHECK(!config.parallel.sequence_parallel, "parallel.sequence_parallel is true", model,
                "says itself how activations are split; set it to false");
}

void AnnotatedModel::check_links() const {
  const Outline& model = outline();
  const size_t num_inputs = problem_.annotations().inputs.size();
  TRIREME_CHECK(model.links.front().takes_inputs, "annotations() has ", num_inputs,
                " inputs, and forward() of ", model.name,
                " does not take so many tensors and return one; name each input, with replicated() "
                "where it is whole");
  for (const Outline::Link& link : model.links) {
    TRIREME_CHECK(
        link.takes_inputs, "forward() of the link \"", link.name,
        "\" does not take one tensor and return one, and a link takes what the one before "
        "returns");
  }
  for (const spmd::NamedSizes& each : model.tensors) {
    TRIREME_CHECK(!each.is_parameter || model.link_of(each.name) == model.link_of(each.first_name),
                  "the parameter \"", each.name, "\" is also ", each.first_name,
                  " of another link, and each could be on a rank of its own; put both into one "
                  "link");
  }
}

void AnnotatedModel::check_layout(const RunConfig& config) const {
  TRIREME_CHECK(config.device.is_cpu(),
                "an annotated module runs on CPUs, and the run's device is ", config.device.str(),
                "; set it to cpu");
  const spmd::Annotations notes = problem_.all_annotations();
  check_notes(notes);
  TRIREME_CHECK(
      notes.step.empty() || config.parallel.pipeline == 1,
      "parallel.notes says how the operators of a whole step run, and parallel.pipeline is ",
      config.parallel.pipeline, "; set it to 1, or parallel.notes to nothing");
  check_links();
  TRIREME_CHECK(notes.outputs.size() <= 1, "annotations() has ", notes.outputs.size(),
                " outputs; a task's module returns one tensor");
  TRIREME_CHECK(!outline().batch_norm, "the model's \"", *outline().batch_norm,
                "\" is a batch norm with running statistics, which would be those of one rank's "
                "samples; use another norm");
  const std::vector<mesh::Axis> axes = {{"tensor", static_cast<int>(config.parallel.tensor)}};
  const std::vector<mesh::Layout> layouts = layouts_of(notes, outline().tensors, axes);
  for (size_t i = 0; i < layouts.size(); ++i) {
    const spmd::NamedSizes& each = outline().tensors[i];
    TRIREME_CHECK(each.is_parameter || layouts[i].owner(1 % layouts[i].num_ranks()) == 0,
                  "the annotation of buffer \"", each.name,
                  "\" splits it; buffers of a task are whole on every rank");
  }
}

std::vector<model::ParameterPlan> AnnotatedModel::parameters(model::AxisSizes sizes) const {
  const std::vector<spmd::NamedSizes>& tensors = outline().tensors;
  const std::vector<mesh::Layout> layouts =
      layouts_of(problem_.all_annotations(), tensors, {{"tensor", sizes.tensor}});
  std::vector<model::ParameterPlan> plan;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is_parameter && tensors[i].name == tensors[i].first_name)
      plan.push_back({tensors[i].name, layouts[i], tensors[i].requires_grad});
  }
  return plan;
}

std::vector<parallel::LayerCost> AnnotatedModel::layer_costs(const RunConfig& config) const {
  constexpr int64_t kWidth = 256;  // of the matrix whose optimizer states are counted
  const double per_parameter = state_bytes_per_parameter(config, kWidth);
  std::vector<parallel::LayerCost> costs;
  for (const Outline::Link& link : outline().links) {
    costs.push_back({.time = std::max(link.num_parameters, 1.0),
                     .memory = link.num_parameters * per_parameter});
  }
  return costs;
}

std::vector<StageEdges> AnnotatedModel::edges(int num_stages) const {
  std::vector<StageEdges> result;
  for (int stage = 0; stage < num_stages; ++stage) {
    StageEdges edges{.inputs = {hidden_edge(stage)}, .outputs = {hidden_edge(stage + 1)}};
    if (stage == 0) {
      edges.inputs.clear();
      for (const spmd::Annotation& input : problem_.annotations().inputs)
        edges.inputs.push_back(input.name);
    }
    if (stage + 1 == num_stages) add_goal(edges);
    result.push_back(std::move(edges));
  }
  return result;
}

// Of the last stage.
void AnnotatedModel::add_goal(StageEdges& edges) const {
  if (problem_.goal() == NetGoal::kScores) {
    edges.outputs = {"scores"};
    return;
  }
  edges.outputs = {"loss"};
  if (problem_.has_metrics()) edges.outputs.emplace_back("metrics");
  for (const std::string& name : problem_.target_names()) {
    if (std::ranges::count(edges.inputs, name) == 0) edges.inputs.push_back(name);
  }
}

std::unique_ptr<StageModel> AnnotatedModel::make_stage(const StageRequest& request) const {
  return make_stage(request, problem_.goal());
}

std::unique_ptr<StageModel> AnnotatedModel::make_stage(const StageRequest& request,
                                                       NetGoal goal) const {
  const auto num_links = outline().links.size();
  const auto first = static_cast<size_t>(request.part.first_layer);
  const size_t count = request.part.num_layers < 0 ? num_links - first
                                                   : static_cast<size_t>(request.part.num_layers);
  spmd::Annotations notes = problem_.all_annotations();
  // A pattern may match parameters of other links only.
  std::erase_if(notes.parameters, [&](const spmd::Annotation& note) {
    return std::ranges::none_of(outline().tensors, [&](const spmd::NamedSizes& each) {
      const size_t link = outline().link_of(each.name);
      return link >= first && link < first + count && matches(note.name, each.name);
    });
  });
  return std::make_unique<AnnotatedStage>(
      problem_, request, StageLinks{.first = first, .count = count, .goal = goal, .notes = notes});
}

}  // namespace trireme::train
