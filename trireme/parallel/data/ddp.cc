#include "trireme/parallel/data/ddp.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/comm/objects.h"
#include "trireme/parallel/data/bucket.h"

namespace trireme::parallel {

using Clock = std::chrono::steady_clock;

class DistributedDataParallel::Reducer {
 public:
  Reducer(torch::nn::Module& module, comm::Communicator& group, DdpOptions options);
  ~Reducer();

  int64_t begin_step(int64_t local_count, int64_t num_microbatches);
  void backward(const at::Tensor& loss_sum);
  std::chrono::nanoseconds communication_time() const { return communication_time_; }

 private:
  // Where a parameter's gradient lives.
  struct Slot {
    size_t bucket = 0;
    at::Tensor gradient;     // view of the bucket
    bool in_bucket = false;  // the view holds this step's gradient
  };
  struct Hook;

  void check_same_module(const torch::nn::Module& module) const;
  void broadcast_module(torch::nn::Module& module);
  void on_gradient(size_t index);
  void move_into_bucket(size_t index);
  void launch_complete_buckets(bool all);
  void finish();
  template <typename Function>
  void timed(Function&& communicate);

  comm::Communicator& group_;
  DdpOptions options_;
  std::vector<at::Tensor> parameters_;  // in backward order
  std::vector<Bucket> buckets_;
  std::vector<Slot> slots_;      // one a parameter
  std::vector<size_t> missing_;  // per bucket: gradients still to come in the last microbatch
  std::vector<comm::WorkPtr> works_;
  size_t next_bucket_ = 0;  // buckets start in order on every rank
  int64_t microbatches_left_ = 0;
  int64_t global_count_ = 0;
  std::chrono::nanoseconds communication_time_{0};
};

// Called by autograd after a parameter's gradient has been accumulated.
struct DistributedDataParallel::Reducer::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(Reducer& reducer, size_t index) : reducer(reducer), index(index) {}
  void operator()(const torch::autograd::Variable&) override { reducer.on_gradient(index); }
  Reducer& reducer;
  size_t index;
};

DistributedDataParallel::Reducer::Reducer(torch::nn::Module& module, comm::Communicator& group,
                                          DdpOptions options)
    : group_(group), options_(options) {
  for (const at::Tensor& parameter : module.parameters()) {
    // A parameter that two modules share is listed twice.
    const auto same = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (parameter.requires_grad() && std::ranges::none_of(parameters_, same)) {
      parameters_.push_back(parameter);
    }
  }
  // Backward meets the last layer first.
  std::ranges::reverse(parameters_);
  check_same_module(module);
  broadcast_module(module);
  buckets_ = make_buckets(parameters_, options_.bucket_bytes,
                          [&](int64_t elements, const at::Tensor& like) {
                            return options_.symmetric && like.is_cpu()
                                       ? group_.symmetric_empty({elements}, like.scalar_type())
                                       : at::empty({elements}, like.options().requires_grad(false));
                          });
  slots_.resize(parameters_.size());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (size_t i = 0; i < buckets_[b].parameters.size(); ++i) {
      slots_[buckets_[b].parameters[i]] = {b, buckets_[b].gradients[i], false};
    }
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i],
                                                   std::make_unique<Hook>(*this, i));
  }
}

DistributedDataParallel::Reducer::~Reducer() {
  for (const at::Tensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

void DistributedDataParallel::Reducer::check_same_module(const torch::nn::Module& module) const {
  std::string description;
  for (const auto& item : module.named_parameters()) {
    description += concat(item.key(), " ", item.value().sizes(), " ", item.value().scalar_type(),
                          item.value().requires_grad() ? " trained; " : " frozen; ");
  }
  for (const auto& item : module.named_buffers()) {
    description +=
        concat(item.key(), " ", item.value().sizes(), " ", item.value().scalar_type(), "; ");
  }
  // Every rank sees all digests, so that all throw together.
  const std::vector<std::string> digests =
      comm::all_gather_strings(group_, checksum(std::as_bytes(std::span(description))));
  for (int rank = 1; rank < group_.size(); ++rank) {
    TRIREME_CHECK(
        digests[rank] == digests[0], "rank ", rank, " of group ", group_.name(),
        " has another module than rank 0; expected the same names, shapes, dtypes and trained "
        "parameters on every rank");
  }
}

void DistributedDataParallel::Reducer::broadcast_module(torch::nn::Module& module) {
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& parameter : module.parameters())
    group_.broadcast(parameter.detach(), 0)->wait();
  for (const at::Tensor& buffer : module.buffers()) group_.broadcast(buffer, 0)->wait();
}

int64_t DistributedDataParallel::Reducer::begin_step(int64_t local_count,
                                                     int64_t num_microbatches) {
  TRIREME_CHECK(num_microbatches > 0, "a step needs at least one microbatch, got ",
                num_microbatches);
  TRIREME_CHECK(microbatches_left_ == 0, "begin_step() called with ", microbatches_left_,
                " microbatches of the last step still to come; call backward() for each");
  communication_time_ = {};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad().reset();
    slots_[i].in_bucket = false;
  }
  missing_.clear();
  for (const Bucket& bucket : buckets_) missing_.push_back(bucket.parameters.size());
  works_.clear();
  next_bucket_ = 0;

  at::Tensor count = at::tensor(std::vector<int64_t>{local_count});
  timed([&] { group_.all_reduce(count)->wait(); });
  global_count_ = count.item<int64_t>();
  TRIREME_CHECK(global_count_ > 0, "the step's losses sum over 0 terms on all ranks of group ",
                group_.name(), "; expected at least one target that is not ignored");
  microbatches_left_ = num_microbatches;
  return global_count_;
}

void DistributedDataParallel::Reducer::backward(const at::Tensor& loss_sum) {
  TRIREME_CHECK(microbatches_left_ > 0,
                "backward() called without begin_step(), or more often than its "
                "num_microbatches");
  // The division rides on the first factor of the chain rule: no pass over the gradients.
  const at::Tensor seed = at::full_like(loss_sum, 1.0 / static_cast<double>(global_count_));
  if (loss_sum.requires_grad()) loss_sum.backward(seed);
  if (--microbatches_left_ == 0) finish();
}

void DistributedDataParallel::Reducer::on_gradient(size_t index) {
  move_into_bucket(index);
  if (microbatches_left_ != 1) return;
  --missing_[slots_[index].bucket];
  launch_complete_buckets(false);
}

// Autograd leaves the step's first gradient of a parameter in a tensor of its own (one copy is
// cheaper than zeroing the bucket and adding to it); later ones it adds to the view in place.
void DistributedDataParallel::Reducer::move_into_bucket(size_t index) {
  Slot& slot = slots_[index];
  if (slot.in_bucket) return;
  const c10::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[index].mutable_grad();
  slot.gradient.copy_(gradient);
  gradient = slot.gradient;
  slot.in_bucket = true;
}

void DistributedDataParallel::Reducer::launch_complete_buckets(bool all) {
  for (; next_bucket_ < buckets_.size() && (all || missing_[next_bucket_] == 0); ++next_bucket_) {
    timed([&] {
      works_.push_back(
          group_.all_reduce(buckets_[next_bucket_].flat, {.background = options_.overlap}));
    });
  }
}

void DistributedDataParallel::Reducer::finish() {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (slots_[i].in_bucket) continue;
    slots_[i].gradient.zero_();
    parameters_[i].mutable_grad() = slots_[i].gradient;
    slots_[i].in_bucket = true;
  }
  launch_complete_buckets(true);
  timed([&] {
    for (const comm::WorkPtr& work : works_) work->wait();
  });
}

template <typename Function>
void DistributedDataParallel::Reducer::timed(Function&& communicate) {
  const auto start = Clock::now();
  communicate();
  communication_time_ += Clock::now() - start;
}

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module,
                                                 comm::Communicator& group, DdpOptions options)
    : reducer_(std::make_unique<Reducer>(module, group, options)) {}

DistributedDataParallel::~DistributedDataParallel() = default;

int64_t DistributedDataParallel::begin_step(int64_t local_count, int64_t num_microbatches) {
  return reducer_->begin_step(local_count, num_microbatches);
}

void DistributedDataParallel::backward(const at::Tensor& loss_sum) { reducer_->backward(loss_sum); }

std::chrono::nanoseconds DistributedDataParallel::communication_time() const {
  return reducer_->communication_time();
}

}  // namespace trireme::parallel
