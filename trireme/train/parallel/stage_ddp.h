// The data parallelism of one pipeline stage. With expert parallelism, an expert's gradients are
// summed over fewer ranks than the other gradients, because fewer ranks hold that expert. So there
// are two instances of DistributedDataParallel: one for the experts, one for all other parameters.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/parallel/data/ddp.h"

namespace trireme::train {

// Each function is that of DistributedDataParallel with its name.
class StageDdp {
 public:
  using Selects = std::function<bool(const std::string& name)>;

  // experts: the ranks that hold the same experts; null: no axis splits experts. is_expert: the
  // parameters that the expert axis splits.
  StageDdp(torch::nn::Module& module, parallel::DataGroups groups, comm::Communicator* experts,
           const Selects& is_expert, parallel::DdpOptions options);

  // In the module's order.
  const std::vector<parallel::Shard>& shards() const { return shards_; }
  int64_t begin_step(int64_t local_count, int64_t num_microbatches);
  void begin_forward(int64_t microbatch);
  at::Tensor run(size_t unit, const at::Tensor& x, const parallel::UnitForward& forward);
  void run_backward(const std::function<void()>& autograd, int64_t microbatch);
  void run_input_backward(int64_t microbatch, const std::function<void()>& autograd);
  void run_weight_backward(int64_t microbatch, const std::function<void()>& weights);
  void end_step();
  void spread_weights();

  std::chrono::nanoseconds communication_time() const;
  int64_t gradient_bytes() const;
  double microbatch_squares() const;
  parallel::DataParallelMemory memory(int64_t num_microbatches) const;

 private:
  std::unique_ptr<parallel::DistributedDataParallel> others_;
  std::unique_ptr<parallel::DistributedDataParallel> experts_;  // null: others_ has all
  std::vector<parallel::Shard> shards_;
  std::vector<std::string> unit_names_;
};

}  // namespace trireme::train
