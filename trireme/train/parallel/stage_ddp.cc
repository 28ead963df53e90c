#include "trireme/train/parallel/stage_ddp.h"

#include <map>

#include <torch/nn/module.h>

#include "trireme/base/machine/memory_blocks.h"

namespace trireme::train {

namespace {

const std::string kNoName;

}  // namespace

using parallel::DistributedDataParallel;

StageDdp::StageDdp(torch::nn::Module& module, parallel::DataGroups groups,
                   comm::Communicator* experts, const Selects& is_expert,
                   parallel::DdpOptions options) {
  for (const parallel::Unit& unit : options.units) unit_names_.push_back(unit.name);
  if (experts == nullptr) {
    others_ = std::make_unique<DistributedDataParallel>(module, groups, std::move(options));
    shards_ = others_->shards();
    return;
  }
  parallel::DdpOptions of_others = options;
  of_others.selects = [is_expert](const std::string& name) { return !is_expert(name); };
  others_ = std::make_unique<DistributedDataParallel>(module, groups, std::move(of_others));
  options.selects = is_expert;
  // Nothing travels, so nothing is compressed.
  if (experts->size() == 1 && options.hook && !options.hook->changes_own()) options.hook = nullptr;
  experts_ = std::make_unique<DistributedDataParallel>(module, *experts, std::move(options));

  std::map<std::string, const parallel::Shard*> by_name;
  for (const DistributedDataParallel* each : {others_.get(), experts_.get()}) {
    for (const parallel::Shard& shard : each->shards()) by_name.emplace(shard.name, &shard);
  }
  for (const auto& item : module.named_parameters()) {
    const auto found = by_name.find(item.key());
    if (found != by_name.end()) shards_.push_back(*found->second);  // one of two names of a tensor
  }
}

int64_t StageDdp::begin_step(int64_t local_count, int64_t num_microbatches) {
  const int64_t count = others_->begin_step(local_count, num_microbatches);
  if (experts_) experts_->begin_step(count, num_microbatches);
  return count;
}

void StageDdp::begin_forward(int64_t microbatch) {
  others_->begin_forward(microbatch);
  if (experts_) experts_->begin_forward(microbatch);
}

at::Tensor StageDdp::run(size_t unit, const at::Tensor& x, const parallel::UnitForward& forward) {
  const MemoryUnit scope(unit < unit_names_.size() ? unit_names_[unit] : kNoName);
  if (!experts_) return others_->run(unit, x, forward);
  return others_->run(unit, x,
                      [&](const at::Tensor& in) { return experts_->run(unit, in, forward); });
}

void StageDdp::run_backward(const std::function<void()>& autograd, int64_t microbatch) {
  if (!experts_) return others_->run_backward(autograd, microbatch);
  others_->run_backward([&] { experts_->run_backward(autograd, microbatch); }, microbatch);
}

void StageDdp::run_input_backward(int64_t microbatch, const std::function<void()>& autograd) {
  if (!experts_) return others_->run_input_backward(microbatch, autograd);
  others_->run_input_backward(microbatch,
                              [&] { experts_->run_input_backward(microbatch, autograd); });
}

void StageDdp::run_weight_backward(int64_t microbatch, const std::function<void()>& weights) {
  if (!experts_) return others_->run_weight_backward(microbatch, weights);
  others_->run_weight_backward(microbatch,
                               [&] { experts_->run_weight_backward(microbatch, weights); });
}

void StageDdp::spread_weights() {
  others_->spread_weights();
  if (experts_) experts_->spread_weights();
}

void StageDdp::end_step() {
  others_->end_step();
  if (experts_) experts_->end_step();
}

std::chrono::nanoseconds StageDdp::communication_time() const {
  return others_->communication_time() +
         (experts_ ? experts_->communication_time() : std::chrono::nanoseconds(0));
}

int64_t StageDdp::gradient_bytes() const {
  return others_->gradient_bytes() + (experts_ ? experts_->gradient_bytes() : 0);
}

double StageDdp::microbatch_squares() const {
  return others_->microbatch_squares() + (experts_ ? experts_->microbatch_squares() : 0);
}

parallel::DataParallelMemory StageDdp::memory(int64_t num_microbatches) const {
  parallel::DataParallelMemory sum = others_->memory(num_microbatches);
  if (experts_) sum += experts_->memory(num_microbatches);
  return sum;
}

}  // namespace trireme::train
