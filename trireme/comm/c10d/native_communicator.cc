#include "trireme/comm/c10d/native_communicator.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/background_work.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm {

// NCCL's sums and NCCL's kernels are used as they are; here they only get our interface. Three
// things do not fit. Its lists must have blocks of one size: uneven gathers and reductions become
// one call per rank, and moves of blocks are packed for alltoall_base, which takes counts. It may
// write into inputs, so those that the caller keeps are copied. And on a GPU wait() does not block
// the thread but orders the stream, so it does not tell when a call is done; a watch polls for
// that, and only when calls are recorded.

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using C10dWorks = std::vector<c10::intrusive_ptr<c10d::Work>>;
using Finish = std::function<void()>;
using Kind = Collective::Kind;
using Tensors = std::vector<at::Tensor>;

c10d::ReduceOp c10d_operation(ReduceOp operation) {
  // In the order of our ReduceOp.
  static constexpr c10d::ReduceOp::RedOpType kOperations[] = {
      c10d::ReduceOp::SUM, c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN, c10d::ReduceOp::MAX,
      c10d::ReduceOp::AVG, c10d::ReduceOp::BAND,    c10d::ReduceOp::BOR, c10d::ReduceOp::BXOR};
  return kOperations[static_cast<int>(operation)];
}

bool is_even(const Tensors& tensors) {
  return std::ranges::all_of(tensors,
                             [&](const auto& each) { return each.numel() == tensors[0].numel(); });
}

// Ends a recorded call once, from its waiter or from the watch, whichever comes first.
class RecordedEnd {
 public:
  // recorder: kept alive while the entry may be written.
  RecordedEnd(GroupRecorder recorder, Recorder::Entry entry)
      : recorder_(std::move(recorder)), entry_(entry) {}
  void finish(bool succeeded) {
    if (!is_finished_.exchange(true)) entry_.finish(succeeded);
  }

 private:
  const GroupRecorder recorder_;
  const Recorder::Entry entry_;
  std::atomic<bool> is_finished_ = false;
};

// The backend's calls for one operation, and what remains to do when they are done.
class NativeWork : public Work {
 public:
  // end: null when the call is not recorded. waits: whether the backend's wait() blocks until its
  // work is done.
  NativeWork(std::string where, BackendPtr backend, C10dWorks works, std::function<void()> finish,
             std::chrono::milliseconds timeout, std::shared_ptr<RecordedEnd> end, bool waits)
      : where_(std::move(where)),
        backend_(std::move(backend)),
        works_(std::move(works)),
        finish_(std::move(finish)),
        timeout_(timeout),
        end_(std::move(end)),
        waits_(waits) {}
  void wait() override {
    RECORD_USER_SCOPE(kWaitEvent);
    const c10::NoGradGuard no_grad;
    for (const auto& work : works_) {
      try {
        if (!work->wait(timeout_)) throw std::runtime_error("the wait was aborted");
      } catch (const std::exception& error) {
        if (end_) end_->finish(false);
        backend_->abort();
        throw CommError(where_ + words_of(error));
      }
    }
    // Where wait() does not block, the watch records the end.
    if (end_ && waits_) end_->finish(true);
    if (!works_.empty() && works_[0]->retrieveOpType() == c10d::OpType::RECVANYSOURCE) {
      source_ = works_[0]->sourceRank();
    }
    works_.clear();
    if (finish_) std::exchange(finish_, nullptr)();
  }
  bool wait_for(std::chrono::milliseconds limit) override {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!poll()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    wait();
    return true;
  }
  bool poll() override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
  }
  void abort() override { backend_->abort(); }
  int source() const override { return source_; }

 private:
  std::string where_;
  BackendPtr backend_;
  C10dWorks works_;
  std::function<void()> finish_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<RecordedEnd> end_;
  bool waits_;
  int source_ = -1;
};

class NativeCommunicator : public RecordedCommunicator {
 public:
  NativeCommunicator(C10dBackendMaker make_backend, StorePtr store, int rank, int size,
                     NativeOptions options)
      : RecordedCommunicator(options.device),
        make_backend_(std::move(make_backend)),
        store_(std::move(store)),
        options_(std::move(options)),
        backend_(options_.recorder.join([&] {
          return make_backend_(c10::make_intrusive<c10d::PrefixStore>("backend", store_), rank,
                               size, options_.timeout);
        })) {
    record_in(options_.recorder);
    if (options_.watch == nullptr && recorder_.recorder() != nullptr) {
      options_.watch = std::make_shared<CompletionWatch>(options_.device);
    }
  }

  ~NativeCommunicator() override {
    options_.watch.reset();  // before the backend is destroyed
    try {
      backend_->abort();  // as NCCL's destructor does, which would warn of it on stderr
    } catch (const std::exception&) {  // of a device that has failed
    }
  }

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }
  const std::string& name() const override { return options_.name; }
  bool reduces_in_rank_order() const override { return false; }

  void abort(const std::string&) override { backend_->abort(); }  // gives its own reason
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override {
    return at::empty(sizes, at::TensorOptions().dtype(dtype).device(options_.device));
  }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    const std::vector<int> members = members_of_split(*this, color, key, options_.device);
    const int number = num_splits_++;
    if (color < 0) return nullptr;
    const auto self = std::ranges::find(members, rank());
    NativeOptions options = options_;
    options.name = name;
    options.recorder = recorder_.split(name, members);
    return make_native_group(
        make_backend_, c10::make_intrusive<c10d::PrefixStore>(concat(number, ".", color), store_),
        static_cast<int>(self - members.begin()), static_cast<int>(members.size()), options);
  }

 private:
  void check_reduction(const Call& call) const override {
    RecordedCommunicator::check_reduction(call);
    const auto dtype = static_cast<c10::ScalarType>(call.dtype);
    const auto reduce_op = static_cast<ReduceOp>(call.reduce_op);
    TRIREME_CHECK(options_.reduces(dtype, reduce_op), call.operation, ": ",
                  comm::name_of(reduce_op), " of ", c10::toString(dtype),
                  " tensors is not defined on transport ", options_.transport,
                  "; convert the tensor or choose another operation");
  }

  c10::intrusive_ptr<c10d::Work> start_broadcast(const at::Tensor& flat, int root) {
    c10d::BroadcastOptions native;
    native.rootRank = root;
    Tensors tensors = {flat};
    return backend_->broadcast(tensors, native);
  }
  c10::intrusive_ptr<c10d::Work> start_reduce(const at::Tensor& flat, int root,
                                              const Options& options) {
    c10d::ReduceOptions native;
    native.rootRank = root;
    native.reduceOp = c10d_operation(options.operation);
    Tensors tensors = {flat};
    return backend_->reduce(tensors, native);
  }

  C10dWorks all_gather(Tensors outputs, const at::Tensor& input) {
    if (is_even(outputs)) {
      std::vector<Tensors> lists = {std::move(outputs)};
      Tensors inputs = {input};
      return {backend_->allgather(lists, inputs)};
    }
    outputs[rank()].copy_(input);
    C10dWorks works;
    for (int peer = 0; peer < size(); ++peer) {
      if (outputs[peer].numel() > 0) works.push_back(start_broadcast(outputs[peer], peer));
    }
    return works;
  }

  // The backend may use the inputs as scratch memory.
  C10dWorks reduce_scatter(const at::Tensor& output, Tensors inputs, const Options& options,
                           Finish& finish) {
    if (is_even(inputs)) {
      c10d::ReduceScatterOptions native;
      native.reduceOp = c10d_operation(options.operation);
      Tensors outputs = {output};
      std::vector<Tensors> lists = {std::move(inputs)};
      return {backend_->reduce_scatter(outputs, lists, native)};
    }
    C10dWorks works;
    for (int peer = 0; peer < size(); ++peer) {
      if (inputs[peer].numel() > 0) works.push_back(start_reduce(inputs[peer], peer, options));
    }
    finish = [output, mine = inputs[rank()]] { output.copy_(mine); };
    return works;
  }

  C10dWorks move_blocks(const Moves& moves, const at::Tensor& like, Finish& finish) {
    // Packed, because backends only take lists of one size.
    at::Tensor nothing = at::empty({0}, like.options().requires_grad(false));
    const auto filled = [&](Tensors tensors) {
      for (at::Tensor& each : tensors) each = each.defined() ? each : nothing;
      return tensors;
    };
    const auto counts = [](const Tensors& tensors) {
      std::vector<int64_t> found;
      for (const at::Tensor& each : tensors) found.push_back(each.numel());
      return found;
    };
    const Tensors outputs = filled(moves.from), inputs = filled(moves.to);
    auto to_counts = counts(inputs), from_counts = counts(outputs);
    at::Tensor to = at::cat(inputs);
    at::Tensor from = at::empty({total_elements(outputs)}, to.options());
    finish = [outputs, from, from_counts] {
      const Tensors parts = from.split_with_sizes(from_counts);
      for (size_t i = 0; i < parts.size(); ++i) outputs[i].copy_(parts[i]);
    };
    return {backend_->alltoall_base(from, to, from_counts, to_counts)};
  }

  // finish: what remains when the works are done, beyond writing operands back.
  C10dWorks begin(const Collective& call, const FlatCollective& operands, Finish& finish) {
    const at::Tensor flat = operands.data.flat();
    Tensors tensors = {flat};
    const Options& options = call.options;
    const int peer = call.peer;
    switch (call.kind) {
      case Kind::kAllReduce: {
        c10d::AllreduceOptions native;
        native.reduceOp = c10d_operation(options.operation);
        return {backend_->allreduce(tensors, native)};
      }
      case Kind::kReduce: {
        // The backend may use the other ranks' tensors as scratch memory.
        const at::Tensor copy = flat.clone();
        if (rank() == peer) finish = [flat, copy] { flat.copy_(copy); };
        return {start_reduce(copy, peer, options)};
      }
      case Kind::kBroadcast: return {start_broadcast(flat, peer)};
      case Kind::kAllGather: return all_gather(operands.outputs.flat(), flat);
      case Kind::kReduceScatter: {
        Tensors copies = operands.inputs.flat();
        for (at::Tensor& copy : copies) copy = copy.clone();
        return reduce_scatter(flat, std::move(copies), options, finish);
      }
      case Kind::kAllToAll:
      case Kind::kGather:
      case Kind::kScatter:
        return move_blocks(moves_of(call, operands), call.first_tensor(), finish);
      case Kind::kSend: return {backend_->send(tensors, peer, options.tag)};
      case Kind::kRecv:
        return {peer == kAnySource ? backend_->recvAnysource(tensors, options.tag)
                                   : backend_->recv(tensors, peer, options.tag)};
      case Kind::kBarrier: return {backend_->barrier()};
    }
    return {};
  }

  // Starts the backend's calls. In the foreground also waits for them.
  WorkPtr start(Collective&& call, const Recorder::Entry& entry) override {
    const c10::NoGradGuard no_grad;
    const std::string where =
        concat(call.compared.operation, " #", ++sequence_, " of group ", name(), " (rank ", rank(),
               " of ", size(), ", ", options_.transport, "): ");
    const Options options = call.options;
    if (options.background) entry.start();
    const FlatCollective operands(call);
    Finish finish;
    C10dWorks works = run_or_fail(entry, [&] {
      try {
        return begin(call, operands, finish);
      } catch (const c10::OutOfMemoryError&) {
        throw;
      } catch (const std::exception& error) {
        throw CommError(where + words_of(error));
      }
    });
    std::shared_ptr<RecordedEnd> end;
    if (options_.watch != nullptr) {
      end = std::make_shared<RecordedEnd>(recorder_, entry);
      options_.watch->add(works, [end](bool succeeded) { end->finish(succeeded); });
    }
    const auto work = std::make_shared<NativeWork>(
        where, backend_, std::move(works),
        [call = std::move(call), operands, rank = rank(), finish = std::move(finish)] {
          if (finish) finish();
          operands.commit(call, rank);
        },
        options.timeout.count() > 0 ? options.timeout : options_.timeout, std::move(end),
        /*waits=*/options_.device == c10::DeviceType::CPU);
    if (!options.background) work->wait();
    return work;
  }

  C10dBackendMaker make_backend_;
  StorePtr store_;
  NativeOptions options_;
  BackendPtr backend_;
  uint64_t sequence_ = 0;
  int num_splits_ = 0;
  // Last: aborts backend_.
  const Cancellation::Watch watch_ =
      watch(options_.cancellation, [this](const std::string& reason) { abort(reason); });
};

}  // namespace

std::unique_ptr<Communicator> make_native_group(const C10dBackendMaker& make_backend,
                                                const StorePtr& store, int rank, int size,
                                                const NativeOptions& options) {
  TRIREME_CHECK(size >= 1 && rank >= 0 && rank < size, "rank ", rank, " of ", size,
                " ranks; expected 0 <= rank < size");
  try {
    return std::make_unique<NativeCommunicator>(make_backend, store, rank, size, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(concat("joining group ", options.name, " as rank ", rank, " of ", size, ": ",
                           words_of(error)));
  }
}

}  // namespace trireme::comm
