#include "trireme/parallel/learner/difference_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/flat_share.h"
#include "trireme/parallel/learner/residual.h"

namespace trireme::parallel {
namespace {

std::vector<at::Tensor> room_for(const comm::Communicator& group, const at::Tensor& mine) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank) all.push_back(at::empty_like(mine));
  return all;
}

// Begins to bring every rank's tensor to all. Not as messages: a rank learns of a message by its
// head, asks for the data only then, and where its own data is already on the way, the request
// waits behind it. Ranks that begin at different times would send one after the other.
std::vector<at::Tensor> gather(comm::Communicator& group, const at::Tensor& mine,
                               std::vector<comm::WorkPtr>& works) {
  std::vector<at::Tensor> all = room_for(group, mine);
  if (mine.numel() > 0) works.push_back(group.all_gather(all, mine, {.background = true}));
  return all;
}

// The same for a few numbers, as messages, which do not wait for collectives that are under way.
std::vector<at::Tensor> swap(comm::Communicator& group, const at::Tensor& mine, int tag,
                             std::vector<comm::WorkPtr>& works) {
  std::vector<at::Tensor> all = room_for(group, mine);
  all[static_cast<size_t>(group.rank())] = mine;
  for (int rank = 0; rank < group.size() && mine.numel() > 0; ++rank) {
    if (rank == group.rank()) continue;
    const comm::Options options{.tag = tag, .background = true};
    works.push_back(group.recv(all[static_cast<size_t>(rank)], rank, options));
    works.push_back(group.send(mine, rank, options));
  }
  return all;
}

}  // namespace

DifferenceExchange::DifferenceExchange(comm::Communicator& learners, comm::Communicator& replicas,
                                       int tag, const WireForm& form, ShareCarrier* carrier)
    : learners_(learners), replicas_(replicas), tag_(tag), form_(form), carrier_(carrier) {
  check_wire_form(form);
}

void DifferenceExchange::start(at::Tensor difference, std::vector<double> notes,
                               at::Tensor residual) {
  TRIREME_ASSERT(!is_under_way(), "a second exchange of differences");
  const int size = learners_.size();
  difference_ = std::move(difference);
  residual_ = std::move(residual);
  share_ = view_share(difference_, replicas_);
  shares_.clear();
  notes_ = swap(learners_, at::tensor(notes, at::kDouble), tag_, works_);
  sent_bytes_ = 2 * (size - 1) * share_.numel() * share_.element_size() / size;
  if (is_coded()) {
    const at::Tensor values = share_.to(at::kFloat);
    const at::Tensor bytes =
        residual_.defined() ? encode_with_residual(form_, values, view_share(residual_, replicas_))
                            : encode(form_, values.cpu());
    if (carrier_ != nullptr) return hand_over(bytes, at::tensor(notes, at::kDouble));
    shares_ = gather(learners_, bytes, works_);
    sent_bytes_ = (size - 1) * bytes.numel();
  } else if (carrier_ != nullptr) {
    return hand_over(share_.cpu().contiguous(), at::tensor(notes, at::kDouble));
  } else if (size == 2) {
    shares_ = gather(learners_, share_, works_);
  } else if (share_.numel() > 0) {
    works_.push_back(learners_.all_reduce(share_, {.background = true}));
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

// Sums the learners' shares into this rank's.
void DifferenceExchange::add_shares() {
  if (shares_.empty()) return;
  at::Tensor sum;
  if (is_coded()) {
    sum = sum_encoded(form_, shares_, share_.numel());
  } else {
    sum = shares_[0];
    for (size_t i = 1; i < shares_.size(); ++i) sum = sum + shares_[i];
  }
  share_.copy_(sum);
  shares_.clear();
}

DifferenceExchange::Result DifferenceExchange::finish() {
  TRIREME_ASSERT(is_under_way(), "the end of no exchange of differences");
  for (const comm::WorkPtr& work : std::exchange(works_, {})) work->wait();
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
