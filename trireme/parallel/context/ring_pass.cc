#include "trireme/parallel/context/ring_pass.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ATen.h>

namespace trireme::parallel {

RingPass::RingPass(comm::Communicator* group, std::vector<int64_t> sizes, at::TensorOptions dtype,
                   int tag, RingOptions options)
    : group_(group), sizes_(std::move(sizes)), dtype_(dtype), tag_(tag), options_(options) {}

RingPass::~RingPass() {
  piece_.reset();
  std::vector<comm::WorkPtr> works = std::move(sends_);
  if (next_ != nullptr) works.push_back(std::move(next_));
  for (const comm::WorkPtr& work : works) {
    if (work->poll()) continue;
    work->abort();
    try {
      work->wait();  // its memory is freed next
    } catch (const std::exception&) {
      // The exception being unwound already reports an error.
    }
  }
}

at::Tensor RingPass::room() {
  Room& room = rooms_[num_rooms_++ % 2];
  if (room.sent != nullptr) wait(*room.sent);
  room.sent = nullptr;
  if (!room.buffer.defined()) {
    const int64_t largest = *std::ranges::max_element(sizes_);
    room.buffer =
        options_.symmetric && dtype_.device().is_cpu()
            ? group_->symmetric_empty({largest}, c10::typeMetaToScalarType(dtype_.dtype()))
            : at::empty({largest}, dtype_);
  }
  has_room_ = true;
  return piece_ = room.buffer.narrow(0, 0, sizes_[owner()]);
}

void RingPass::start() {
  const int p = size();
  const comm::Options options{.tag = tag_, .background = true};
  if (piece_.numel() > 0) {
    sends_.push_back(group_->send(piece_, (rank() + 1) % p, options));
    if (has_room_) rooms_[(num_rooms_ + 1) % 2].sent = sends_.back();
  }
  const int64_t size = sizes_[owner(num_hops_ + 1)];
  if (size > 0) next_ = group_->borrow({size}, dtype_, (rank() + p - 1) % p, options);
  if (!options_.overlap && next_ != nullptr) next_->wait();
}

void RingPass::finish() {
  ++num_hops_;
  has_room_ = false;
  piece_.reset();
  if (next_ == nullptr) {
    piece_ = at::empty({0}, dtype_);
    return;
  }
  wait(*next_);
  piece_ = next_->data();
  next_ = nullptr;
}

void RingPass::end() {
  piece_.reset();
  for (const comm::WorkPtr& work : sends_) wait(*work);
  sends_.clear();
}

void RingPass::wait(comm::Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work.wait();
  if (options_.waiting) *options_.waiting += std::chrono::steady_clock::now() - start;
}

}  // namespace trireme::parallel
