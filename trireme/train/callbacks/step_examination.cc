#include "trireme/train/callbacks/step_examination.h"

#include <chrono>
#include <cmath>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

using nlohmann::json;

json to_json(const std::vector<TensorFacts>& tensors) {
  json list = json::array();
  for (const TensorFacts& facts : tensors) {
    list.push_back({{"name", facts.name},
                    {"dtype", facts.dtype},
                    {"shape", facts.shape},
                    {"nan", facts.num_nan},
                    {"infinite", facts.num_infinite},
                    {"minimum", facts.minimum},
                    {"maximum", facts.maximum},
                    {"mean_magnitude", facts.mean_magnitude}});
  }
  return list;
}

json to_json(const OperatorFinding& finding) {
  return {{"what", name_of(kBadValues, finding.what)},
          {"operator", finding.name},
          {"within", finding.within},
          {"backward", finding.is_backward},
          {"unit", finding.unit},
          {"reads_unit", finding.reads_unit},
          {"number", finding.number},
          {"ratio", finding.ratio},
          {"inputs", to_json(finding.inputs)},
          {"outputs", to_json(finding.outputs)},
          {"numbers", finding.numbers}};
}

}  // namespace

std::filesystem::path examined_file(const std::filesystem::path& run, int rank) {
  return run / kExaminedFolder / concat("rank-", rank, ".json");
}

std::filesystem::path examined_inputs(const std::filesystem::path& run, int rank) {
  return run / kExaminedFolder / concat("rank-", rank, ".safetensors");
}

std::unique_ptr<Callback> StepExamination::clone() const {
  auto copy = std::make_unique<StepExamination>();
  copy->config_ = config_;
  return copy;
}

void StepExamination::check(const RunConfig& /*config*/,
                            std::span<const std::string> /*metrics*/) const {
  TRIREME_CHECK(config_.step > 0, "examine.spike is ", config_.spike,
                ", but examine.step is 0; expected the step to examine");
}

void StepExamination::prepare(RunView& run) {
  const bool needs_baseline = config_.spike > 0;
  const int64_t next = run.step() + 1;
  if (next != config_.step && !(needs_baseline && next == config_.step - 1)) return;
  if (!watch_) watch_ = std::make_unique<OperatorWatch>(run.parameters(), config_.spike);
  if (next == config_.step) {
    watch_->begin_step();
  } else {
    watch_->begin_baseline();
  }
}

void StepExamination::on_start(RunView& run) {
  TRIREME_CHECK(run.step() < config_.step, "examine.step is ", config_.step,
                ", and the run goes on after step ", run.step(), "; expected a later step");
  TRIREME_CHECK(config_.spike == 0 || run.step() + 1 < config_.step, "examine.spike compares step ",
                config_.step, " with the one before it, and the run goes on after step ",
                run.step(), "; expected examine.spike = 0, or an earlier checkpoint");
  std::filesystem::create_directories(run.folder() / kExaminedFolder);
  prepare(run);
}

void StepExamination::on_step(RunView& run) {
  if (run.step() == config_.step) {
    write(run);
    watch_.reset();
    run.stop(concat("examine.step: step ", config_.step, " is examined"), /*for_good=*/false);
    return;
  }
  prepare(run);
}

void StepExamination::write(RunView& run) const {
  if (!watch_) return;
  const int rank = run.world().rank();
  const std::optional<OperatorFinding>& finding = watch_->finding();
  json report = {{"step", config_.step}, {"operators", watch_->num_operators()}};
  if (finding) {
    checkpoint::write_safetensors(examined_inputs(run.folder(), rank), finding->tensors,
                                  {{"operator", finding->name}, {"unit", finding->unit}});
    report["finding"] = to_json(*finding);
  }
  write_file_atomically(examined_file(run.folder(), rank), report.dump(1));
}

}  // namespace trireme::train
