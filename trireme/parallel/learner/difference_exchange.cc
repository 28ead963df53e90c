#include "trireme/parallel/learner/difference_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/sized_message.h"
#include "trireme/comm/tensor_blocks.h"
#include "trireme/parallel/learner/flat_share.h"
#include "trireme/parallel/learner/residual.h"

namespace trireme::parallel {
namespace {

std::vector<at::Tensor> room_for(const comm::Communicator& group, const at::Tensor& mine) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank) all.push_back(at::empty_like(mine));
  return all;
}

// The other ranks, nearest first, so that not all begin with the same one.
std::vector<int> others_of(const comm::Communicator& group) {
  std::vector<int> others;
  for (int step = 1; step < group.size(); ++step) {
    others.push_back((group.rank() + step) % group.size());
  }
  return others;
}

at::Tensor sum_in_order(const std::vector<at::Tensor>& terms) {
  at::Tensor sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) sum = sum + terms[i];
  return sum;
}

void wait_all(const std::vector<comm::WorkPtr>& works) {
  for (const comm::WorkPtr& work : works) work->wait();
}

}  // namespace

void SumsGroup::make() {
  const std::lock_guard lock(mutex_);
  if (!group_) group_ = learners_.split(0, learners_.rank(), learners_.name() + "' sums");
}

comm::WorkPtr SumsGroup::send(const at::Tensor& data, int peer, const comm::Options& options) {
  const std::lock_guard lock(mutex_);
  return comm::send_sized(*group_, data, peer, options);
}

comm::WorkPtr SumsGroup::recv(const at::Tensor& data, int peer, const comm::Options& options) {
  const std::lock_guard lock(mutex_);
  return comm::recv_sized(*group_, data, peer, options);
}

void SumsGroup::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (group_) group_->abort(reason);
}

DifferenceExchange::DifferenceExchange(comm::Communicator& learners, comm::Communicator& replicas,
                                       int tag, const WireForm& form, ShareCarrier* carrier,
                                       std::shared_ptr<SumsGroup> sums)
    : learners_(learners),
      replicas_(replicas),
      tag_(tag),
      form_(form),
      carrier_(carrier),
      sums_(sums ? std::move(sums) : std::make_shared<SumsGroup>(learners)),
      queue_([this] {
        constexpr const char* kReason = "an exchange of learners was left";
        sums_->abort(kReason);
        learners_.abort(kReason);
      }) {
  check_wire_form(form);
}

// Begins to bring every rank's tensor to all. Neither a message that is announced nor a collective:
// learners know what comes, and each further round trip is one in which the line stands still.
std::vector<at::Tensor> DifferenceExchange::swap(const at::Tensor& mine, int tag) {
  std::vector<at::Tensor> all = room_for(learners_, mine);
  all[static_cast<size_t>(learners_.rank())] = mine;
  if (mine.numel() == 0) return all;
  for (const int peer : others_of(learners_)) {
    arriving_.emplace_back(
        peer, comm::recv_sized(learners_, all[static_cast<size_t>(peer)], peer, {.tag = tag}));
  }
  for (const int peer : others_of(learners_)) {
    works_.push_back(comm::send_sized(learners_, mine, peer, {.tag = tag}));
  }
  return all;
}

// Whole numbers of two learners are not more bytes when each sends all it has.
void DifferenceExchange::start_whole() {
  if (share_.numel() == 0) return;
  if (!share_.is_cpu()) {
    works_.push_back(learners_.all_reduce(share_, {.background = true}));
  } else if (learners_.size() > 2) {
    start_sum_of_parts();
  } else {
    shares_ = swap(share_, tag_ + 1);
  }
}

// What an all-reduce does, without its comparison of calls.
void DifferenceExchange::start_sum_of_parts() {
  const auto rank = static_cast<size_t>(learners_.rank());
  const std::vector<at::Tensor> parts = comm::view_even_blocks(share_, learners_.size());
  std::vector<at::Tensor> terms = room_for(learners_, parts[rank]);
  terms[rank] = parts[rank];
  std::vector<comm::WorkPtr> arriving;
  const std::vector<int> others = others_of(learners_);
  const comm::Options options{.tag = tag_ + 1};
  for (const int peer : others) {
    arriving.push_back(
        comm::recv_sized(learners_, terms[static_cast<size_t>(peer)], peer, options));
  }
  for (const int peer : others) {
    works_.push_back(comm::send_sized(learners_, parts[static_cast<size_t>(peer)], peer, options));
  }
  sums_->make();
  // The sums go on while the caller trains. They get memory of their own: the terms may still leave
  // theirs.
  for (const at::Tensor& part : parts) summed_.push_back(at::empty_like(part));
  const auto take_round = [this, rank, options, others, sums = summed_, terms, arriving] {
    std::vector<comm::WorkPtr> works;
    for (const int peer : others) {
      works.push_back(sums_->recv(sums[static_cast<size_t>(peer)], peer, options));
    }
    wait_all(arriving);
    sums[rank].copy_(sum_in_order(terms));
    for (const int peer : others) works.push_back(sums_->send(sums[rank], peer, options));
    wait_all(works);
    return -1;
  };
  works_.push_back(queue_.run_beside(take_round, /*background=*/true));
}

void DifferenceExchange::start(at::Tensor difference, std::vector<double> notes,
                               at::Tensor residual) {
  TRIREME_ASSERT(!is_under_way(), "a second exchange of differences");
  const int size = learners_.size();
  difference_ = std::move(difference);
  residual_ = std::move(residual);
  share_ = view_share(difference_, replicas_);
  shares_.clear();
  notes_ = swap(at::tensor(notes, at::kDouble), tag_);
  sent_bytes_ = 2 * (size - 1) * share_.numel() * share_.element_size() / size;
  if (is_coded()) {
    const at::Tensor values = share_.to(at::kFloat);
    const at::Tensor bytes =
        residual_.defined() ? encode_with_residual(form_, values, view_share(residual_, replicas_))
                            : encode(form_, values.cpu());
    if (carrier_ != nullptr) return hand_over(bytes, at::tensor(notes, at::kDouble));
    shares_ = swap(bytes, tag_ + 1);
    sent_bytes_ = (size - 1) * bytes.numel();
  } else if (carrier_ != nullptr) {
    return hand_over(share_.cpu().contiguous(), at::tensor(notes, at::kDouble));
  } else {
    start_whole();
  }
  sent_bytes_ += (size - 1) * std::ssize(notes) * static_cast<int64_t>(sizeof(double));
}

void DifferenceExchange::hand_over(const at::Tensor& share, const at::Tensor& notes) {
  part_ = carrier_->add(share);
  carrier_->add(notes);
  sent_bytes_ = share.numel() * static_cast<int64_t>(share.element_size()) +
                notes.numel() * static_cast<int64_t>(notes.element_size());
}

void DifferenceExchange::abandon() {
  TRIREME_ASSERT(carrier_ != nullptr, "messages under way between ranks");
  difference_.reset();
  residual_.reset();
  share_.reset();
}

// Brings the sum of the learners' shares into this rank's.
void DifferenceExchange::add_shares() {
  if (const std::vector<at::Tensor> sums = std::exchange(summed_, {}); !sums.empty()) {
    const std::vector<at::Tensor> parts = comm::view_even_blocks(share_, learners_.size());
    for (size_t i = 0; i < parts.size(); ++i) parts[i].copy_(sums[i]);
  }
  if (shares_.empty()) return;
  share_.copy_(is_coded() ? sum_encoded(form_, shares_, share_.numel()) : sum_in_order(shares_));
  shares_.clear();
}

DifferenceExchange::Result DifferenceExchange::finish() {
  TRIREME_ASSERT(is_under_way(), "the end of no exchange of differences");
  // The notes came first: a learner is waited for when it begins late.
  for (const auto& [peer, work] : std::exchange(arriving_, {})) {
    comm::await_sized(learners_, peer, *work);
  }
  wait_all(std::exchange(works_, {}));
  if (carrier_ != nullptr) {
    shares_ = carrier_->take(part_);
    notes_ = carrier_->take(part_ + 1);
  }
  add_shares();
  Result result{.sum = std::exchange(difference_, {}), .residual = std::exchange(residual_, {})};
  for (const at::Tensor& notes : notes_) {
    const double* const first = notes.const_data_ptr<double>();
    result.notes.emplace_back(first, first + notes.numel());
  }
  gather_shares(result.sum, replicas_);
  if (result.residual.defined()) gather_shares(result.residual, replicas_);
  share_.reset();
  return result;
}

}  // namespace trireme::parallel
