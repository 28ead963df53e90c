// A Communicator as a c10d::Backend, for torch.distributed's collectives, DDP, FSDP2 and DTensor.
// It only translates. Every byte goes through the communicator, so reductions are in rank order.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "trireme/comm/c10d/c10d_work.h"
#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Behaves as torch/csrc/distributed/c10d/Backend.hpp specifies, for CPU tensors. Calls that torch
// marks synchronous run in the calling thread. Sends and recvs, which have no mark, never do.
// Thread safety: calls may come from several threads; the group's order is that of their arrival. A
// collective waits for another thread's synchronous one. Messages never wait.
// Throws: ConfigError for arguments that cannot work, before anything is sent;
//         c10::DistBackendError when a peer died, is late or called something else; the group is
//         dead afterwards
class C10dBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using Result = c10::intrusive_ptr<c10d::Work>;

  static constexpr const char* kName = "trireme";

  // timeout: for calls that set none.
  C10dBackend(std::unique_ptr<Communicator> group, std::chrono::milliseconds timeout);
  ~C10dBackend() override;

  const std::string getBackendName() const override { return kName; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}  // counts from 0 on every rank
  uint64_t getSequenceNumberForGroup() override;
  c10d::ErrorType getError() override;

  Result allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  // Sums or averages sparse tensors. allreduce takes them too.
  Result allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  Result allreduce_coalesced(Tensors& tensors,
                             const c10d::AllreduceCoalescedOptions& opts) override;
  Result reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  Result broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  Result allgather(TensorLists& outputs, Tensors& inputs,
                   const c10d::AllgatherOptions& opts) override;
  Result _allgather_base(at::Tensor& output, at::Tensor& input,
                         const c10d::AllgatherOptions& opts) override;
  // outputs[r][i]: rank r's inputs[i].
  Result allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                             const c10d::AllgatherOptions& opts) override;
  Result allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& opts) override;
  Result reduce_scatter(Tensors& outputs, TensorLists& inputs,
                        const c10d::ReduceScatterOptions& opts) override;
  Result _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                              const c10d::ReduceScatterOptions& opts) override;
  Result reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::ReduceScatterOptions& opts) override;
  Result alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  Result alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                       std::vector<int64_t>& input_sizes,
                       const c10d::AllToAllOptions& opts) override;
  Result gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  Result scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  Result send(Tensors& tensors, int peer, int tag) override;
  Result recv(Tensors& tensors, int peer, int tag) override;
  Result recvAnysource(Tensors& tensors, int tag) override;
  Result barrier(const c10d::BarrierOptions& opts) override;
  // See gloo_behaviour.h.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // Allocates symmetric memory, on which collectives are fastest; ordinary memory once that is
  // full.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool supportsTensorAlloc(c10::DeviceIndex index) override;

  // Fails all pending calls, here and on the peers. Later calls throw.
  void abort() override;
  // Leaves the group after its pending collectives. Later calls throw.
  void shutdown() override;

 private:
  // How an operation appears to torch.
  struct Call {
    c10d::OpType type;
    const char* title;  // name of the profiler's event
    Tensors inputs;
    Tensors outputs;
    std::function<void()> epilogue = {};
    bool is_async = true;
    bool is_collective = true;
  };
  Result issue(const Call& call, const std::function<WorkPtr(Communicator&)>& operation);
  // Admits a call and returns its number.
  // Throws: ConfigError after shutdown(); the error that killed the group
  uint64_t admit(const char* title, bool is_collective);
  std::shared_ptr<Communicator> current_group() const;  // null after shutdown()
  // Keeps an exception of `operation` as the error that killed the group.
  void run_and_keep_error(const std::function<void()>& operation);
  comm::Options options_of(std::chrono::milliseconds timeout, bool is_async) const;
  Result receive(c10d::OpType type, const Tensors& tensors, int peer, int tag);

  std::mutex collectives_;                // issues them; held while a synchronous one runs
  std::mutex messages_;                   // issues sends and recvs; never held for long
  std::shared_ptr<Communicator> group_;   // changed under both, and state_
  std::shared_ptr<C10dWatcher> watcher_;  // changed under both
  std::vector<WorkPtr> pending_;          // background collectives, even if others dropped them;
                                          // guarded by collectives_

  mutable std::mutex state_;  // guards the next three; never held for long
  std::chrono::milliseconds timeout_;
  uint64_t sequence_ = 0;
  std::exception_ptr error_;  // the first error that killed the group

  const std::string group_name_;
};

}  // namespace trireme::comm
