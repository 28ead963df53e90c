// Length: one class, with one short method per collective of the interface.
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
#include "trireme/comm/call.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/pending_work.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm::inline internal {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using C10dWorks = std::vector<c10::intrusive_ptr<c10d::Work>>;
using Tensors = std::vector<at::Tensor>;

c10d::ReduceOp c10d_operation(ReduceOp operation) {
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
      : make_backend_(std::move(make_backend)),
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

  ~NativeCommunicator() override { options_.watch.reset(); }  // before the backend is destroyed

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }
  const std::string& name() const override { return options_.name; }
  bool reduces_in_rank_order() const override { return false; }

  WorkPtr all_reduce(at::Tensor data, Options options) override {
    check_reduces("all_reduce", data, options.operation);
    const FlatTensor target(data);
    c10d::AllreduceOptions native;
    native.reduceOp = c10d_operation(options.operation);
    Tensors tensors = {target.flat()};
    return issue(
        reducing("all_reduce", data, data.numel(), options), data, options,
        [&] { return C10dWorks{backend_->allreduce(tensors, native)}; },
        [target] { target.commit(); });
  }
  WorkPtr reduce(at::Tensor data, int root, Options options) override {
    check_rank("reduce", *this, root);
    check_reduces("reduce", data, options.operation);
    // The backend may use the other ranks' tensors as scratch memory.
    const at::Tensor copy = flat_of(data).clone();
    const bool is_root = rank() == root;
    return issue(
        reducing("reduce", data, data.numel(), options, root), data, options,
        [&] { return C10dWorks{start_reduce(copy, root, options)}; },
        [data, copy, is_root] {
          if (is_root) data.detach().copy_(copy.view(data.sizes()));
        });
  }
  WorkPtr broadcast(at::Tensor data, int root, Options options) override {
    check_rank("broadcast", *this, root);
    check("broadcast", data);
    const FlatTensor target(data);
    return issue(
        moving("broadcast", data, data.numel(), root), data, options,
        [&] { return C10dWorks{start_broadcast(target.flat(), root)}; },
        [target] { target.commit(); });
  }
  WorkPtr all_gather(Tensors outputs, at::Tensor input, Options options) override {
    check_list("all_gather", outputs);
    check("all_gather", input);
    check_own_block("all_gather", *this, outputs, input);
    const FlatTensors targets(outputs);
    return issue(
        moving("all_gather", input, total_elements(outputs)), input, options,
        [&] {
          if (is_even(targets.flat())) {
            std::vector<Tensors> lists = {targets.flat()};
            Tensors inputs = {flat_of(input)};
            return C10dWorks{backend_->allgather(lists, inputs)};
          }
          targets.flat(rank()).copy_(flat_of(input));
          C10dWorks works;
          for (int peer = 0; peer < size(); ++peer) {
            if (targets.flat(peer).numel() == 0) continue;
            works.push_back(start_broadcast(targets.flat(peer), peer));
          }
          return works;
        },
        [targets] { targets.commit(); });
  }
  WorkPtr reduce_scatter(at::Tensor output, Tensors inputs, Options options) override {
    check_list("reduce_scatter", inputs);
    check_reduces("reduce_scatter", output, options.operation);
    check_own_block("reduce_scatter", *this, inputs, output);
    const FlatTensor target(output);
    Tensors copies;
    for (const at::Tensor& input : inputs) copies.push_back(flat_of(input).clone());
    return issue(
        reducing("reduce_scatter", output, total_elements(inputs), options), output, options,
        [&] {
          C10dWorks works;
          if (is_even(copies)) {
            c10d::ReduceScatterOptions native;
            native.reduceOp = c10d_operation(options.operation);
            Tensors outputs = {target.flat()};
            std::vector<Tensors> lists = {copies};
            works.push_back(backend_->reduce_scatter(outputs, lists, native));
            return works;
          }
          for (int peer = 0; peer < size(); ++peer) {
            if (copies[peer].numel() > 0)
              works.push_back(start_reduce(copies[peer], peer, options));
          }
          return works;
        },
        [target, mine = copies[rank()], is_copied = !is_even(copies)] {
          if (is_copied) target.flat().copy_(mine);
          target.commit();
        });
  }
  WorkPtr all_to_all(Tensors outputs, Tensors inputs, Options options) override {
    check_list("all_to_all", outputs);
    check_list("all_to_all", inputs);
    check_dtypes("all_to_all", outputs, inputs[0]);
    check_dtypes("all_to_all", inputs, inputs[0]);
    return exchange(moving("all_to_all", inputs[0]), inputs[0], outputs, inputs, options);
  }
  WorkPtr gather(Tensors outputs, at::Tensor input, int root, Options options) override {
    check_rank("gather", *this, root);
    check("gather", input);
    if (rank() == root) {
      check_list("gather", outputs);
      check_dtypes("gather", outputs, input);
    }
    Tensors to = empty_list(input);
    to[root] = input;
    const Tensors from = rank() == root ? std::move(outputs) : empty_list(input);
    return exchange(moving("gather", input, -1, root), input, from, to, options);
  }
  WorkPtr scatter(at::Tensor output, Tensors inputs, int root, Options options) override {
    check_rank("scatter", *this, root);
    check("scatter", output);
    if (rank() == root) {
      check_list("scatter", inputs);
      check_dtypes("scatter", inputs, output);
    }
    Tensors from = empty_list(output);
    from[root] = output;
    const Tensors to = rank() == root ? std::move(inputs) : empty_list(output);
    return exchange(moving("scatter", output, -1, root), output, from, to, options);
  }
  WorkPtr send(at::Tensor data, int peer, Options options) override {
    check_peer("send", *this, peer);
    check("send", data);
    Tensors tensors = {flat_of(data)};
    return run(
        "send", record_message("send", data, peer, options), options,
        [&] { return C10dWorks{backend_->send(tensors, peer, options.tag)}; }, [tensors] {});
  }
  WorkPtr recv(at::Tensor data, int peer, Options options) override {
    check_source("recv", *this, peer);
    check("recv", data);
    const FlatTensor target(data);
    Tensors tensors = {target.flat()};
    return run(
        "recv", record_message("recv", data, peer, options), options,
        [&] {
          return C10dWorks{peer == kAnySource ? backend_->recvAnysource(tensors, options.tag)
                                              : backend_->recv(tensors, peer, options.tag)};
        },
        [target] { target.commit(); });
  }
  WorkPtr barrier(Options options) override {
    return issue(
        {"barrier"}, {}, options, [&] { return C10dWorks{backend_->barrier()}; }, nullptr);
  }
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
  void check(const char* operation, const at::Tensor& tensor) const {
    TRIREME_CHECK(
        tensor.defined() && tensor.device().type() == options_.device &&
            tensor.layout() == at::kStrided,
        operation, ": got ",
        tensor.defined() ? concat("a tensor on ", tensor.device()) : "an undefined tensor",
        "; expected a dense tensor on ", c10::DeviceTypeName(options_.device, true));
  }
  void check_list(const char* operation, const Tensors& tensors) const {
    TRIREME_CHECK(tensors.size() == static_cast<size_t>(size()), operation, ": got ",
                  tensors.size(), " tensors, expected one for each of the ", size(),
                  " ranks of group ", name());
    for (const at::Tensor& tensor : tensors) check(operation, tensor);
  }
  void check_reduces(const char* operation, const at::Tensor& tensor, ReduceOp reduce_op) const {
    check(operation, tensor);
    check_reducible(tensor.scalar_type(), reduce_op);
    TRIREME_CHECK(options_.reduces(tensor.scalar_type(), reduce_op), operation, ": ",
                  comm::name_of(reduce_op), " of ", c10::toString(tensor.scalar_type()),
                  " tensors is not defined on transport ", options_.transport,
                  "; convert the tensor or choose another operation");
  }
  Tensors empty_list(const at::Tensor& like) const {
    return Tensors(size(), at::empty({0}, like.options().requires_grad(false)));
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

  // inputs[r] goes to rank r, outputs[r] comes from rank r; recorded as `call` on `tensor`.
  WorkPtr exchange(const Call& call, const at::Tensor& tensor, const Tensors& outputs,
                   const Tensors& inputs, const Options& options) {
    // Packed, because backends only take lists of one size.
    const FlatTensors targets(outputs);
    at::Tensor to = at::cat(flat_of(inputs));
    at::Tensor from = at::empty({total_elements(outputs)}, to.options());
    std::vector<int64_t> to_counts, from_counts;
    for (const at::Tensor& input : inputs) to_counts.push_back(input.numel());
    for (const at::Tensor& output : outputs) from_counts.push_back(output.numel());
    return issue(
        call, tensor, options,
        [&] { return C10dWorks{backend_->alltoall_base(from, to, from_counts, to_counts)}; },
        [targets, from, from_counts] {
          const Tensors parts = from.split_with_sizes(from_counts);
          for (size_t i = 0; i < parts.size(); ++i) targets.flat(i).copy_(parts[i]);
          targets.commit();
        });
  }

  // The call to record. Unlike call_of() it does not require a CPU tensor.
  static Call moving(const char* operation, const at::Tensor& tensor, int64_t elements = -1,
                     int root = -1) {
    return {operation, static_cast<int>(tensor.scalar_type()), -1, root, elements};
  }
  static Call reducing(const char* operation, const at::Tensor& tensor, int64_t elements,
                       const Options& options, int root = -1) {
    return {operation, static_cast<int>(tensor.scalar_type()), static_cast<int>(options.operation),
            root, elements};
  }

  Recorder::Entry record_message(const char* operation, const at::Tensor& data, int peer,
                                 const Options& options) const {
    return recorder_.issue_message(moving(operation, data, data.numel()), peer, data.sizes(),
                                   options);
  }
  WorkPtr issue(const Call& call, const at::Tensor& tensor, const Options& options,
                const std::function<C10dWorks()>& start, std::function<void()> finish) {
    return run(call.operation, recorder_.issue(call, tensor, options), options, start,
               std::move(finish));
  }
  // Starts the backend's calls. In the foreground also waits for them.
  WorkPtr run(const char* operation, const Recorder::Entry& entry, const Options& options,
              const std::function<C10dWorks()>& start, std::function<void()> finish) {
    const c10::NoGradGuard no_grad;
    const std::string where = concat(operation, " #", ++sequence_, " of group ", name(), " (rank ",
                                     rank(), " of ", size(), ", ", options_.transport, "): ");
    C10dWorks works;
    if (options.background) entry.start();
    try {
      works = start();
    } catch (const std::exception& error) {
      entry.finish(false);
      throw CommError(where + words_of(error));
    }
    std::shared_ptr<RecordedEnd> end;
    if (options_.watch != nullptr) {
      end = std::make_shared<RecordedEnd>(recorder_, entry);
      options_.watch->add(works, [end](bool succeeded) { end->finish(succeeded); });
    }
    const auto timeout = options.timeout.count() > 0 ? options.timeout : options_.timeout;
    const auto work = std::make_shared<NativeWork>(
        where, backend_, std::move(works), std::move(finish), timeout, std::move(end),
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

}  // namespace trireme::comm::inline internal
