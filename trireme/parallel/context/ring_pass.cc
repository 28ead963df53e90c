#include "trireme/parallel/context/ring_pass.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ATen.h>

namespace trireme::parallel {

RingPass::RingPass(comm::Communicator* group, std::vector<int64_t> sizes, at::TensorOptions dtype,
                   int tag, RingOptions options)
    : group_(group), sizes_(std::move(sizes)), tag_(tag), options_(options) {
  if (size() == 1) return;
  const int64_t largest = *std::ranges::max_element(sizes_);
  for (at::Tensor& buffer : buffers_) {
    buffer = options_.symmetric && dtype.device().is_cpu()
                 ? group_->symmetric_empty({largest}, c10::typeMetaToScalarType(dtype.dtype()))
                 : at::empty({largest}, dtype);
  }
}

RingPass::~RingPass() {
  for (const comm::WorkPtr& work : hop_) {
    work->abort();
    try {
      work->wait();  // its memory goes with this
    } catch (const std::exception&) {
      // Whoever unwinds has an error of its own.
    }
  }
}

at::Tensor RingPass::view(int buffer, int step) const {
  return buffers_[buffer].narrow(0, 0, sizes_[owner(step)]);
}

at::Tensor RingPass::piece() const { return view(num_hops_ % 2, num_hops_); }

void RingPass::start() {
  const int p = size();
  const at::Tensor out = piece();
  const at::Tensor in = view((num_hops_ + 1) % 2, num_hops_ + 1);
  const comm::Options options{.tag = tag_, .background = true};
  if (out.numel() > 0) hop_.push_back(group_->send(out, (rank() + 1) % p, options));
  if (in.numel() > 0) hop_.push_back(group_->recv(in, (rank() + p - 1) % p, options));
  if (!options_.overlap) {
    for (const comm::WorkPtr& work : hop_) work->wait();
  }
}

void RingPass::finish() {
  const auto start = std::chrono::steady_clock::now();
  for (const comm::WorkPtr& work : hop_) work->wait();
  if (options_.waiting) *options_.waiting += std::chrono::steady_clock::now() - start;
  hop_.clear();
  ++num_hops_;
}

}  // namespace trireme::parallel
