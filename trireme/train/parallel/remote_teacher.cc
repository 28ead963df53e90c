#include "trireme/train/parallel/remote_teacher.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <thread>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/memory_ledger.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;

// Tags of the messages between two ranks.
constexpr int kHeaderTag = 1;  // of a request
constexpr int kTensorTag = 2;  // of a request or the head
constexpr int kAnswerTag = 3;
constexpr int kHeadTag = 4;  // the header of the head

enum class MessageKind : int64_t { kRead, kNothing, kLeave };

// Those that wait for a request see a peer's death, and peers that train watch each other.
constexpr std::chrono::milliseconds kUnlimited = std::chrono::hours(24 * 14);
// Between two looks at what has come.
constexpr std::chrono::microseconds kShortestPause{50}, kLongestPause{1000};

// A header has, as int64: the kind, the data rank, the number of tensors, and of each tensor its
// dtype (-1: undefined), its dimensions and their sizes.
constexpr int64_t kMostTensors = 6, kMostDimensions = 6;
constexpr int64_t kTensorNumbers = 2 + kMostDimensions;
constexpr int64_t kHeaderNumbers = 3 + kMostTensors * kTensorNumbers;
constexpr int64_t kMostBytes = int64_t{1} << 36;

at::Tensor empty_header() { return at::full({kHeaderNumbers}, -1, at::kLong); }

at::Tensor header_of(MessageKind kind, int64_t data_rank, std::span<const at::Tensor> tensors) {
  TRIREME_ASSERT(std::ssize(tensors) <= kMostTensors, tensors.size(), " tensors in a message");
  at::Tensor header = empty_header();
  int64_t* at = header.mutable_data_ptr<int64_t>();
  *at++ = static_cast<int64_t>(kind);
  *at++ = data_rank;
  *at++ = std::ssize(tensors);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) {
      TRIREME_ASSERT(tensor.dim() <= kMostDimensions, "a tensor of shape ", tensor.sizes());
      at[0] = static_cast<int64_t>(tensor.scalar_type());
      at[1] = tensor.dim();
      std::ranges::copy(tensor.sizes(), at + 2);
    }
    at += kTensorNumbers;
  }
  return header;
}

[[noreturn]] void refuse(int source, const std::string& what) {
  throw CommError(concat("rank ", source, " sent a message about a teacher that has ", what));
}

// A tensor of the dtype and shape that a peer has written.
at::Tensor tensor_of(const int64_t* at, int source) {
  if (at[0] == -1) return {};
  constexpr std::array kDtypes = {at::kLong, at::kInt,   at::kBool,   at::kByte,
                                  at::kHalf, at::kFloat, at::kDouble, at::kBFloat16};
  const auto* const dtype = std::ranges::find(
      kDtypes, at[0], [](at::ScalarType each) { return static_cast<int64_t>(each); });
  if (dtype == kDtypes.end()) refuse(source, concat("a tensor of dtype ", at[0]));
  if (at[1] < 0 || at[1] > kMostDimensions) refuse(source, concat(at[1], " dimensions"));
  std::vector<int64_t> sizes(at + 2, at + 2 + at[1]);
  int64_t room = kMostBytes / static_cast<int64_t>(c10::elementSize(*dtype));
  for (const int64_t size : sizes) {
    if (size < 0 || size > room) refuse(source, concat("a dimension of ", size));
    if (size > 0) room /= size;
  }
  return at::empty(sizes, *dtype);
}

std::vector<at::Tensor> tensors_of(const at::Tensor& header, int source) {
  const auto* const at = header.const_data_ptr<int64_t>();
  if (at[2] < 0 || at[2] > kMostTensors) refuse(source, concat(at[2], " tensors"));
  std::vector<at::Tensor> tensors;
  for (int64_t i = 0; i < at[2]; ++i) {
    tensors.push_back(tensor_of(at + 3 + i * kTensorNumbers, source));
  }
  return tensors;
}

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(at::kCPU).contiguous() : tensor;
}

}  // namespace

RemoteTeacher::RemoteTeacher(TeacherEdges edges, c10::ScalarType dtype,
                             std::chrono::milliseconds timeout)
    : edges_(std::move(edges)), dtype_(dtype), timeout_(timeout) {}

void RemoteTeacher::abandon() {
  if (ranks_ != nullptr && !has_left_)
    ranks_->abort(concat("rank ", ranks_->rank(), " stopped before the run's end"));
  ranks_ = nullptr;
  asked_.clear();
  sending_.clear();
}

void RemoteTeacher::connect(comm::Communicator& ranks, TeacherRoutes routes) {
  const MemoryScope scope(MemoryKind::kWeights);
  ranks_ = &ranks;
  routes_ = std::move(routes);
  data_rank_ = routes_.data_ranks.at(static_cast<size_t>(ranks.rank()));
  if (!reads()) return;
  asks_ = routes_.readers_of(data_rank_).front() == ranks.rank();
  const int teacher = routes_.teacher_of(data_rank_, 0);
  const at::Tensor header = empty_header();
  ranks.recv(header, teacher, {.tag = kHeadTag})->wait();
  head_ = tensors_of(header, teacher);
  if (head_.empty() || !head_[0].defined() || head_[0].dim() != 2) refuse(teacher, "no head");
  for (const at::Tensor& tensor : head_) ranks.recv(tensor, teacher, {.tag = kTensorTag})->wait();
}

void RemoteTeacher::ask(const std::vector<dataset::Batch>& batches) {
  if (!reads()) return;
  const MemoryScope scope(MemoryKind::kActivations);
  std::erase_if(sending_, [](const comm::WorkPtr& work) {
    if (!work->poll()) return false;
    work->wait();  // throws what became of it
    return true;
  });
  for (const dataset::Batch& batch : batches) {
    const at::Tensor& key = batch.tensors.front().second;
    const bool is_asked =
        std::ranges::any_of(asked_, [&](const Asked& each) { return each.key.is_same(key); });
    if (!is_asked) request(batch);
  }
}

void RemoteTeacher::request(const dataset::Batch& batch) {
  std::vector<at::Tensor> tensors;
  for (const std::string& name : edges_.inputs) tensors.push_back(on_host(batch[name]));
  std::vector<int64_t> sizes = tensors.front().sizes().vec();
  sizes.push_back(head_.front().size(1));
  Asked asked{.key = batch.tensors.front().second,
              .answer = at::empty(sizes, dtype_),
              .teacher = routes_.teacher_of(data_rank_, num_asked_++)};
  const bool is_empty = asked.answer.numel() == 0;
  if (!is_empty) {
    asked.work = ranks_->recv(asked.answer, asked.teacher,
                              {.timeout = kUnlimited, .tag = kAnswerTag, .background = true});
  }
  if (asks_) {
    const auto send = [&](const at::Tensor& tensor, int tag) {
      sending_.push_back(ranks_->send(tensor, asked.teacher,
                                      {.timeout = kUnlimited, .tag = tag, .background = true}));
    };
    send(header_of(is_empty ? MessageKind::kNothing : MessageKind::kRead, data_rank_, tensors),
         kHeaderTag);
    for (const at::Tensor& tensor : tensors) {
      if (!is_empty && tensor.defined()) send(tensor, kTensorTag);
    }
  }
  asked_.push_back(std::move(asked));
}

at::Tensor RemoteTeacher::take(Asked& asked) {
  if (!asked.work) return asked.answer;
  if (!asked.work->wait_for(timeout_)) {
    const std::string reason =
        concat("rank ", asked.teacher, ", a teacher, has not answered for ",
               std::chrono::duration_cast<std::chrono::seconds>(timeout_).count(),
               " s (parallel.timeout_seconds)");
    ranks_->abort(reason);
    throw CommError(reason);
  }
  asked.work->wait();
  return asked.answer;
}

std::vector<at::Tensor> RemoteTeacher::outputs(const std::vector<dataset::Batch>& batches) {
  ask(batches);
  std::vector<at::Tensor> found;
  if (!reads()) return found;
  const auto begin = Clock::now();
  for (const dataset::Batch& batch : batches) {
    const auto asked = std::ranges::find_if(
        asked_, [&](const Asked& each) { return each.key.is_same(batch.tensors.front().second); });
    TRIREME_ASSERT(asked != asked_.end(), "two batches with one tensor");
    found.push_back(take(*asked));
    asked_.erase(asked);
  }
  waited_ += Clock::now() - begin;
  return found;
}

void RemoteTeacher::leave() {
  for (Asked& asked : asked_) take(asked);
  asked_.clear();
  if (asks_) {
    for (const int teacher : routes_.teachers_of(data_rank_)) {
      sending_.push_back(
          ranks_->send(header_of(MessageKind::kLeave, data_rank_, {}), teacher,
                       {.timeout = kUnlimited, .tag = kHeaderTag, .background = true}));
    }
  }
  for (const comm::WorkPtr& work : sending_) work->wait();
  sending_.clear();
  has_left_ = true;
}

struct TeacherServer::Request {
  at::Tensor header;
  std::vector<at::Tensor> tensors{};

  MessageKind kind() const { return static_cast<MessageKind>(header[0].item<int64_t>()); }
  int64_t data_rank() const { return header[1].item<int64_t>(); }
};

TeacherServer::TeacherServer(comm::Communicator& ranks, TeacherRoutes routes,
                             comm::Communicator& copy, TeacherEdges edges)
    : ranks_(ranks), routes_(std::move(routes)), copy_(copy), edges_(std::move(edges)) {
  const int first = ranks.rank() - copy.rank();
  for (int64_t data_rank = 0; data_rank < routes_.num_data(); ++data_rank) {
    if (std::ranges::count(routes_.teachers_of(data_rank), first) > 0) {
      asking_.emplace(data_rank, Asking());
    }
  }
}

void TeacherServer::send_head(const std::vector<at::Tensor>& head) {
  if (!is_first()) return;
  const at::Tensor header = header_of(MessageKind::kRead, -1, head);
  for (int64_t data_rank = 0; data_rank < routes_.num_data(); ++data_rank) {
    if (routes_.teacher_of(data_rank, 0) != ranks_.rank()) continue;
    for (const int reader : routes_.readers_of(data_rank)) {
      ranks_.send(header, reader, {.tag = kHeadTag})->wait();
      for (const at::Tensor& tensor : head) {
        ranks_.send(on_host(tensor), reader, {.tag = kTensorTag})->wait();
      }
    }
  }
}

// Waits for a header from each that may ask, as a message from any rank would not end when one of
// them is lost. Returns the data rank of the first that has come, after the last one that was.
int64_t TeacherServer::await_header() {
  for (auto& [data_rank, asking] : asking_) {
    if (asking.arrival) continue;
    asking.header = empty_header();
    asking.arrival = ranks_.recv(asking.header, routes_.readers_of(data_rank).front(),
                                 {.timeout = kUnlimited, .tag = kHeaderTag, .background = true});
  }
  std::chrono::microseconds pause = kShortestPause;
  while (true) {
    auto next = asking_.upper_bound(last_asking_);
    for (size_t i = 0; i < asking_.size(); ++i, ++next) {
      if (next == asking_.end()) next = asking_.begin();
      if (!next->second.arrival->poll()) continue;
      std::exchange(next->second.arrival, nullptr)->wait();
      return last_asking_ = next->first;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, kLongestPause);
  }
}

// On the first rank of the copy.
TeacherServer::Request TeacherServer::receive() {
  const int64_t asking = await_header();
  const int source = routes_.readers_of(asking).front();
  Request request{.header = asking_.at(asking).header};
  const int64_t kind = request.header[0].item<int64_t>(), data_rank = request.data_rank();
  if (kind < 0 || kind > static_cast<int64_t>(MessageKind::kLeave))
    refuse(source, concat("the kind ", kind));
  if (data_rank != asking) refuse(source, concat("the samples of data rank ", data_rank));
  if (request.kind() != MessageKind::kRead) return request;
  request.tensors = tensors_of(request.header, source);
  if (request.tensors.size() != edges_.inputs.size())
    refuse(source, concat(request.tensors.size(), " tensors"));
  for (const at::Tensor& tensor : request.tensors) {
    if (tensor.defined())
      ranks_.recv(tensor, source, {.timeout = kUnlimited, .tag = kTensorTag})->wait();
  }
  return request;
}

// Gives the request of the copy's first rank to all of it.
void TeacherServer::share(Request& request) {
  const comm::Options options{.timeout = kUnlimited};
  copy_.broadcast(request.header, 0, options)->wait();
  if (!is_first() && request.kind() == MessageKind::kRead)
    request.tensors = tensors_of(request.header, /*source=*/ranks_.rank() - copy_.rank());
  for (const at::Tensor& tensor : request.tensors) {
    if (tensor.defined()) copy_.broadcast(tensor, 0, options)->wait();
  }
}

void TeacherServer::answer(int64_t data_rank, const at::Tensor& output) {
  if (!is_first()) return;
  const at::Tensor sent = on_host(output);
  for (const int reader : routes_.readers_of(data_rank)) {
    ranks_.send(sent, reader, {.timeout = kUnlimited, .tag = kAnswerTag})->wait();
  }
}

void TeacherServer::serve(const std::function<at::Tensor(const dataset::Batch& batch)>& read) {
  while (!asking_.empty()) {
    Request request = is_first() ? receive() : Request{.header = empty_header()};
    if (copy_.size() > 1) share(request);
    if (request.kind() == MessageKind::kLeave) asking_.erase(request.data_rank());
    if (request.kind() != MessageKind::kRead) continue;
    dataset::Batch batch;
    for (size_t i = 0; i < edges_.inputs.size(); ++i) {
      if (request.tensors[i].defined())
        batch.tensors.emplace_back(edges_.inputs[i], request.tensors[i]);
    }
    answer(request.data_rank(), read(batch));
  }
}

}  // namespace trireme::train
