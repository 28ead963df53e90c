#include "trireme/parallel/pipeline/run/tensor_channel.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {

// A list of tensors is a header and then each tensor under a tag of its own. The receiver cannot
// post a tensor's recv before it knows the sizes, so progress() looks for headers that have arrived
// and posts what follows them, between two actions of the schedule. Sizes are sent with each list
// and not agreed on once, because microbatches may differ. Everything runs behind the computation;
// the only waits are finish_recv() and finish_sends(), whose time is counted.

namespace {

using Clock = std::chrono::steady_clock;

// [tensors, kHeaderWords] int64: present, requires a gradient, dtype, number of dimensions, sizes.
at::Tensor header_of(const std::vector<EdgeTensor>& tensors) {
  at::Tensor header = at::zeros({std::ssize(tensors), TensorChannel::kHeaderWords}, at::kLong);
  auto words = header.accessor<int64_t, 2>();
  for (int64_t i = 0; i < std::ssize(tensors); ++i) {
    const at::Tensor& value = tensors[static_cast<size_t>(i)].value;
    if (!value.defined()) continue;
    TRIREME_CHECK(value.dim() <= TensorChannel::kMaxDims, "a tensor of ", value.dim(),
                  " dimensions between pipeline stages; expected at most ",
                  TensorChannel::kMaxDims);
    words[i][0] = 1;
    words[i][1] = tensors[static_cast<size_t>(i)].requires_grad ? 1 : 0;
    words[i][2] = static_cast<int64_t>(value.scalar_type());
    words[i][3] = value.dim();
    for (int64_t dim = 0; dim < value.dim(); ++dim) words[i][4 + dim] = value.size(dim);
  }
  return header;
}

EdgeTensor from_header(const int64_t* words, at::Device device) {
  if (words[0] == 0) return {};
  const at::IntArrayRef sizes(words + 4, static_cast<size_t>(words[3]));
  const auto options = at::TensorOptions(device).dtype(static_cast<at::ScalarType>(words[2]));
  return {at::empty(sizes, options), words[1] != 0};
}

}  // namespace

TensorChannel::TensorChannel(comm::Communicator& group, std::chrono::milliseconds timeout,
                             at::Device device)
    : group_(group), options_{.timeout = timeout, .background = true}, device_(device) {}

void TensorChannel::issue(const at::Tensor& data, int peer, int tag) {
  comm::Options options = options_;
  options.tag = tag;
  outgoing_.push_back({data, group_.send(data, peer, options)});
  bytes_sent_ += static_cast<int64_t>(data.nbytes());
}

void TensorChannel::send(const std::vector<EdgeTensor>& tensors, int peer, int tag) {
  issue(header_of(tensors), peer, tag);
  for (const EdgeTensor& tensor : tensors) {
    ++tag;
    // The other side knows from the header that nothing comes.
    if (tensor.value.defined() && tensor.value.numel() > 0)
      issue(tensor.value.contiguous(), peer, tag);
  }
}

void TensorChannel::start_recv(size_t num_tensors, int peer, int tag) {
  Incoming incoming{
      .peer = peer, .tag = tag, .header = {}, .header_work = {}, .tensors = {}, .works = {}};
  incoming.header = at::empty({static_cast<int64_t>(num_tensors), kHeaderWords},
                              at::TensorOptions().dtype(at::kLong));
  comm::Options options = options_;
  options.tag = tag;
  incoming.header_work = group_.recv(incoming.header, peer, options);
  incoming_.push_back(std::move(incoming));
}

// The header has arrived: posts the tensors' recvs.
void TensorChannel::post(Incoming& incoming) {
  incoming.header_work->wait();
  const auto* words = incoming.header.const_data_ptr<int64_t>();
  comm::Options options = options_;
  options.tag = incoming.tag;
  for (int64_t i = 0; i < incoming.header.size(0); ++i) {
    ++options.tag;
    incoming.tensors.push_back(from_header(words + i * kHeaderWords, device_));
    const at::Tensor& value = incoming.tensors.back().value;
    if (value.defined() && value.numel() > 0)
      incoming.works.push_back(group_.recv(value, incoming.peer, options));
  }
  incoming.is_posted = true;
}

void TensorChannel::progress() {
  for (Incoming& incoming : incoming_) {
    if (!incoming.is_posted && incoming.header_work->poll()) post(incoming);
  }
  // In the order of sending: the first that is not over ends the look.
  while (!outgoing_.empty() && outgoing_.front().work->poll()) {
    outgoing_.front().work->wait();
    outgoing_.pop_front();
  }
}

std::chrono::nanoseconds TensorChannel::wait(comm::Work& work) {
  const auto start = Clock::now();
  work.wait();
  const std::chrono::nanoseconds waited = Clock::now() - start;
  waiting_ += waited;
  return waited;
}

std::vector<EdgeTensor> TensorChannel::finish_recv(int tag) {
  const auto found = std::ranges::find(incoming_, tag, &Incoming::tag);
  TRIREME_ASSERT(found != incoming_.end(), "no recv with tag ", tag);
  // A rank's messages arrive in order, so those before this one must be taken first.
  for (auto earlier = incoming_.begin(); earlier <= found; ++earlier) {
    if (earlier->peer != found->peer || earlier->is_posted) continue;
    wait_for(earlier->peer, *earlier->header_work);
    post(*earlier);
  }
  for (const comm::WorkPtr& work : found->works) wait_for(found->peer, *work);
  std::vector<EdgeTensor> tensors = std::move(found->tensors);
  incoming_.erase(found);
  return tensors;
}

void TensorChannel::finish_sends() {
  for (; !outgoing_.empty(); outgoing_.pop_front()) wait(*outgoing_.front().work);
}

void TensorChannel::abort(const std::string& reason) {
  // First: without it the waits below would not end.
  group_.abort(reason);
  // The tensors must live until their work is done.
  const auto let_end = [](const comm::WorkPtr& work) {
    try {
      work->wait();
    } catch (const std::exception&) {  // the reason is already known
    }
  };
  for (const Outgoing& outgoing : outgoing_) let_end(outgoing.work);
  for (const Incoming& incoming : incoming_) {
    let_end(incoming.header_work);
    for (const comm::WorkPtr& work : incoming.works) let_end(work);
  }
  outgoing_.clear();
  incoming_.clear();
}

void TensorChannel::reset_counts() {
  bytes_sent_ = 0;
  waiting_ = {};
}

Parcel parcel_of(const Action& transfer) {
  const StageEdge down{transfer.stage, transfer.peer_stage};
  const StageEdge up{transfer.peer_stage, transfer.stage};
  switch (transfer.kind) {
    case ActionKind::kSendActivation: return {down, transfer.microbatch, false};
    case ActionKind::kRecvActivation: return {up, transfer.microbatch, false};
    case ActionKind::kSendGradient: return {up, transfer.microbatch, true};
    case ActionKind::kRecvGradient: return {down, transfer.microbatch, true};
    default: throw InternalError(concat(to_string(transfer), " is no transfer"));
  }
}

StageExchange::StageExchange(comm::Communicator& group, const StageGraph& graph,
                             const Schedule& schedule, std::chrono::milliseconds timeout,
                             at::Device device)
    : graph_(graph), schedule_(schedule), rank_(group.rank()), channel_(group, timeout, device) {
  for (const StageEdge& edge : schedule.edges) {
    const auto num_tensors = static_cast<int>(graph.inputs_between(edge).size());
    // One tag for the header and one for each tensor.
    tags_per_list_ = std::max(tags_per_list_, 1 + num_tensors);
  }
  // Tags are numbered over the whole step, so that no two messages under way share one.
  const int64_t lists = 2 * std::ssize(schedule.edges) * schedule.num_microbatches;
  TRIREME_CHECK(lists * tags_per_list_ <= int64_t{comm::kMostTag} + 1, "a pipeline of ",
                schedule.edges.size(), " edges and ", schedule.num_microbatches,
                " microbatches has more transfers than tags; use fewer microbatches");
}

int StageExchange::tag_of(const Parcel& parcel) const {
  const auto found = std::ranges::lower_bound(schedule_.edges, parcel.edge);
  const auto edge = static_cast<int>(found - schedule_.edges.begin());
  const int list = (edge * schedule_.num_microbatches + parcel.microbatch) * 2 + parcel.is_gradient;
  return list * tags_per_list_;
}

void StageExchange::put(const Parcel& parcel, std::vector<EdgeTensor> tensors) {
  // put() without a send or a take would keep its memory for ever.
  const bool is_new = kept_.emplace(parcel, std::move(tensors)).second;
  TRIREME_ASSERT(is_new, "a second list from stage ", parcel.source(), " to ", parcel.target());
}

void StageExchange::send(const Parcel& parcel) {
  const auto list = kept_.extract(parcel);
  TRIREME_ASSERT(!list.empty(), "nothing from stage ", parcel.source(), " to ", parcel.target());
  channel_.send(list.mapped(), rank_of(parcel.target()), tag_of(parcel));
}

void StageExchange::start_recv(const Parcel& parcel) {
  channel_.start_recv(graph_.inputs_between(parcel.edge).size(), rank_of(parcel.source()),
                      tag_of(parcel));
}

std::vector<EdgeTensor> StageExchange::take(const Parcel& parcel) {
  if (rank_of(parcel.source()) != rank_) return channel_.finish_recv(tag_of(parcel));
  auto list = kept_.extract(parcel);
  TRIREME_ASSERT(!list.empty(), "nothing from stage ", parcel.source(), " to ", parcel.target());
  return std::move(list.mapped());
}

}  // namespace trireme::parallel
