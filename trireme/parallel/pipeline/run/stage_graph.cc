#include "trireme/parallel/pipeline/run/stage_graph.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr int kOutside = -1;

std::string label(const PipelineStage& stage, size_t index) {
  return concat("stage ", index, " (", stage.name, ")");
}

}  // namespace

StageGraph::StageGraph(std::vector<PipelineStage> stages, std::vector<std::string> fed)
    : stages_(std::move(stages)) {
  std::map<std::string, StagePort> written;
  for (const std::string& edge : fed) {
    TRIREME_CHECK(written.emplace(edge, StagePort{kOutside}).second, "edge \"", edge,
                  "\" is fed twice");
  }
  for (size_t s = 0; s < stages_.size(); ++s) {
    const PipelineStage& stage = stages_[s];
    sources_.emplace_back();
    readers_.emplace_back(stage.outputs.size());
    std::set<std::string> read;
    for (const std::string& edge : stage.inputs) {
      // Stages only look back, so a pipeline has no circle by construction.
      const auto found = written.find(edge);
      TRIREME_CHECK(found != written.end(), label(stage, s), " reads edge \"", edge,
                    "\", which no earlier stage writes and nobody feeds");
      TRIREME_CHECK(read.insert(edge).second, label(stage, s), " reads edge \"", edge,
                    "\" twice; name it once");
      const StagePort source = found->second;
      sources_.back().push_back(source);
      if (source.stage == kOutside) continue;
      readers_[source.stage][source.index].push_back(
          {static_cast<int>(s), sources_.back().size() - 1});
      edges_.push_back({source.stage, static_cast<int>(s)});
    }
    for (size_t i = 0; i < stage.outputs.size(); ++i) {
      TRIREME_CHECK(written.emplace(stage.outputs[i], StagePort{static_cast<int>(s), i}).second,
                    label(stage, s), " writes edge \"", stage.outputs[i],
                    "\", which comes from elsewhere already");
    }
  }
  // Several tensors between two stages are one edge: they travel as one list.
  std::ranges::sort(edges_);
  edges_.erase(std::ranges::unique(edges_).begin(), edges_.end());
}

std::vector<StagePort> StageGraph::inputs_between(const StageEdge& edge) const {
  std::vector<StagePort> inputs;
  for (size_t i = 0; i < sources_[edge.to].size(); ++i) {
    if (sources_[edge.to][i].stage == edge.from) inputs.push_back({edge.to, i});
  }
  return inputs;
}

void StageGraph::check_loss(const std::string& loss) const {
  for (size_t s = 0; s < stages_.size(); ++s) {
    const auto found = std::ranges::find(stages_[s].outputs, loss);
    if (found == stages_[s].outputs.end()) continue;
    // Its gradient is the seed, and another reader would add to it.
    TRIREME_CHECK(readers_[s][found - stages_[s].outputs.begin()].empty(), "the loss, edge \"",
                  loss, "\", is read by a stage; backward starts from one that none reads");
    return;
  }
  throw ConfigError(concat("no stage writes the loss, edge \"", loss, "\""));
}

std::string StageGraph::describe() const {
  std::string text;
  for (const PipelineStage& stage : stages_) {
    text += stage.name + "(";
    for (const std::string& edge : stage.inputs) text += edge + " ";
    text += "->";
    for (const std::string& edge : stage.outputs) text += " " + edge;
    text += ") ";
  }
  return text;
}

}  // namespace trireme::parallel
