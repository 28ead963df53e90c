#include "trireme/parallel/pipeline/run/stage_exchange.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {

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
    tags_per_list_ = std::max(tags_per_list_, 1 + num_tensors);
  }
  constexpr int64_t kMostTags = int64_t{1} << 26;  // supported by every transport
  const int64_t lists = 2 * std::ssize(schedule.edges) * schedule.num_microbatches;
  TRIREME_CHECK(lists * tags_per_list_ <= kMostTags, "a pipeline of ", schedule.edges.size(),
                " edges and ", schedule.num_microbatches,
                " microbatches has more transfers than tags; use fewer microbatches");
}

int StageExchange::tag_of(const Parcel& parcel) const {
  const auto found = std::ranges::lower_bound(schedule_.edges, parcel.edge);
  const auto edge = static_cast<int>(found - schedule_.edges.begin());
  const int list = (edge * schedule_.num_microbatches + parcel.microbatch) * 2 + parcel.is_gradient;
  return list * tags_per_list_;
}

void StageExchange::put(const Parcel& parcel, std::vector<EdgeTensor> tensors) {
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

}  // namespace trireme::parallel::inline internal
