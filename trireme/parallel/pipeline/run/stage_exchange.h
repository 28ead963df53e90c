// Moves lists of tensors between stages, by edge and microbatch. Between stages of one rank they
// are kept here; otherwise a TensorChannel sends them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/parallel/pipeline/run/stage_graph.h"
#include "trireme/parallel/pipeline/run/tensor_channel.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel::inline internal {

// Activations go from edge.from to edge.to, gradients back.
struct Parcel {
  StageEdge edge;
  int microbatch = 0;
  bool is_gradient = false;
  auto operator<=>(const Parcel&) const = default;

  int source() const { return is_gradient ? edge.to : edge.from; }
  int target() const { return is_gradient ? edge.from : edge.to; }
};
// The parcel that a send or recv of a schedule moves.
Parcel parcel_of(const Action& transfer);

class StageExchange {
 public:
  // All arguments must outlive it.
  // Throws: ConfigError when there are more transfers than tags
  StageExchange(comm::Communicator& group, const StageGraph& graph, const Schedule& schedule,
                std::chrono::milliseconds timeout, at::Device device);

  // `tensors`: one for each of graph.inputs_between(parcel.edge).
  void put(const Parcel& parcel, std::vector<EdgeTensor> tensors);
  // Sends what was put.
  void send(const Parcel& parcel);
  void start_recv(const Parcel& parcel);
  // Returns the tensors that were put on this rank, or waits for those that start_recv() announced.
  std::vector<EdgeTensor> take(const Parcel& parcel);

  TensorChannel& channel() { return channel_; }
  void clear() { kept_.clear(); }

 private:
  int rank_of(int stage) const { return schedule_.rank_of_stage[stage]; }
  int tag_of(const Parcel& parcel) const;

  const StageGraph& graph_;
  const Schedule& schedule_;
  int rank_;
  int tags_per_list_ = 1;
  TensorChannel channel_;
  std::map<Parcel, std::vector<EdgeTensor>> kept_;
};

}  // namespace trireme::parallel::inline internal
