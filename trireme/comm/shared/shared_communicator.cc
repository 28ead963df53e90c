#include "trireme/comm/shared/shared_communicator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>
#include <c10/util/accumulate.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/cores.h"
#include "trireme/base/round_up.h"
#include "trireme/comm/loan.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

ExchangeOptions exchange_options(const GroupOptions& options) {
  return {options.name, options.slot_bytes, options.timeout, options.world_ranks};
}

// A group's first meeting. Each rank posts the cores that it may run on.
std::vector<CoreSet> meet_at_first(Exchange& exchange, std::chrono::milliseconds timeout,
                                   const Exchange::LossOf& loss_of) {
  exchange.begin({"join"}, timeout);
  new (exchange.mine()) CoreSet(allowed_cores());
  exchange.meet(loss_of);
  std::vector<CoreSet> sets(exchange.size());
  for (int rank = 0; rank < exchange.size(); ++rank) {
    std::memcpy(&sets[rank], exchange.posted(rank), sizeof(CoreSet));
  }
  return sets;
}

std::vector<int> world_ranks_of(const GroupOptions& options, int size) {
  std::vector<int> ranks = options.world_ranks;
  for (int rank = static_cast<int>(ranks.size()); rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace

// Layout of a group's segment: the exchange and the messages' envelopes; then, reserved, the
// messages' pieces and the host's heap.
struct SharedCommunicator::Memory {
  SegmentSize size;
  size_t envelopes;
  size_t pieces;
  size_t heap;
  size_t arena_bytes;

  static Memory of(int num_ranks, const GroupOptions& options, bool has_heap) {
    const SegmentSize messages = MessageRings::segment_size(num_ranks);
    Memory memory{};
    memory.envelopes = Exchange::segment_bytes(num_ranks, exchange_options(options));
    memory.pieces = round_up(memory.envelopes + messages.committed, kPage);
    memory.heap = round_up(memory.pieces + messages.reserved, kHugePage);
    if (has_heap) memory.arena_bytes = round_up(heap_bytes(num_ranks, options), kHugePage);
    memory.size.committed = memory.pieces;
    memory.size.reserved = memory.heap + num_ranks * memory.arena_bytes - memory.pieces;
    return memory;
  }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kHugePage = 2 << 20;
  static constexpr size_t kMostHeap = size_t{1}
                                      << 46;  // of all ranks: half of a process's address space

  // Limit on each rank's allocations.
  static size_t heap_bytes(int num_ranks, const GroupOptions& options) {
    if (options.heap_bytes == 0) {
      return std::min(shared_memory_bytes(), reservable_bytes() / num_ranks);
    }
    TRIREME_CHECK(options.heap_bytes <= kMostHeap / num_ranks, "parallel.heap_bytes is ",
                  options.heap_bytes, "; expected at most ", kMostHeap / num_ranks, " for ",
                  num_ranks, " ranks, or 0 for what the host has");
    return options.heap_bytes;
  }
};

SharedCommunicator::SharedCommunicator(Host host, std::shared_ptr<Segment> segment, int rank,
                                       int size, const GroupOptions& options)
    : host_(std::move(host)),
      options_(options),
      exchange_(segment, rank, size, exchange_options(options)),
      abort_{std::make_shared<AbortSwitch>(
          [this] { exchange_.abort("group " + options_.name + " was aborted"); })},
      point_to_point_(segment, Memory::of(size, options, false).envelopes,
                      Memory::of(size, options, false).pieces, exchange_, *host_.heap,
                      options.zero_copy, abort_.abort),
      progress_(abort_.abort) {
  exchange_.on_abort([this] { point_to_point_.wake_all(); });
}

void SharedCommunicator::watch_cancellation() {
  watch_ = watch(options_.cancellation, [this](const std::string& reason) { abort(reason); });
}

std::unique_ptr<SharedCommunicator> SharedCommunicator::join(Host host, const std::string& uid,
                                                             int rank, int size,
                                                             const GroupOptions& options,
                                                             const Exchange::LossOf& loss_of) {
  TRIREME_CHECK(size >= 1 && rank >= 0 && rank < size, "rank ", rank, " of ", size,
                " ranks; expected 0 <= rank < size");
  TRIREME_CHECK(
      options.slot_bytes % 64 == 0 && options.slot_bytes >= collectives::least_slot_bytes(size),
      "slot_bytes is ", options.slot_bytes, "; expected a multiple of 64, at least ",
      collectives::least_slot_bytes(size));
  const GroupRecorder recorder(options.recorder, options.name, size, world_ranks_of(options, size));
  auto group =
      recorder.join([&] { return meet_first(std::move(host), uid, rank, size, options, loss_of); });
  group->record_in(recorder);
  return group;
}

std::unique_ptr<SharedCommunicator> SharedCommunicator::meet_first(
    Host host, const std::string& uid, int rank, int size, const GroupOptions& options,
    const Exchange::LossOf& loss_of) {
  const Memory memory = Memory::of(size, options, host.heap == nullptr);
  std::shared_ptr<Segment> segment;
  const auto deadline = Clock::now() + options.timeout;
  if (rank == 0) segment = host.segments->create(uid, rank, memory.size);
  while (segment == nullptr && (segment = host.segments->open(uid, rank, memory.size)) == nullptr) {
    if (Clock::now() > deadline) {
      throw CommError(concat("joining group ", options.name, ": rank 0 of ", size,
                             " never came within ",
                             static_cast<double>(options.timeout.count()) / 1000, " s"));
    }
    std::string loss = reason_of(options.cancellation);
    if (loss.empty() && loss_of) loss = loss_of(0);
    if (!loss.empty()) throw CommError(concat("joining group ", options.name, ": ", loss));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (host.heap == nullptr)
    host.heap = Heap::in(segment, memory.heap, memory.arena_bytes, rank, size);
  std::unique_ptr<SharedCommunicator> group(
      new SharedCommunicator(std::move(host), segment, rank, size, options));
  group->watch_cancellation();
  const std::vector<CoreSet> cores = meet_at_first(group->exchange_, options.timeout, loss_of);
  std::optional<bool>& has_core_each = group->host_.has_core_each;
  if (!has_core_each) has_core_each = have_core_each(cores);
  group->exchange_.set_has_core_each(*has_core_each);
  if (rank == 0) segment->seal();
  return group;
}

template <typename Operation>
WorkPtr SharedCommunicator::issue(const Call& call, const at::Tensor& tensor,
                                  const Options& options, Operation operation) {
  auto run = recorder_.issue(
      call, tensor, options,
      [this, call, timeout = options.timeout, operation = std::move(operation)] {
        const c10::NoGradGuard no_grad;  // communication is never recorded by autograd
        exchange_.begin(call, timeout);
        operation();
      });
  if (options.background) return progress_.run_in_background(std::move(run));
  return progress_.run(run);
}

WorkPtr SharedCommunicator::all_reduce(at::Tensor data, Options options) {
  const Call call = reduce_call("all_reduce", data, data.numel(), options.operation);
  return issue(call, data, options, [this, data, operation = options.operation] {
    const FlatTensor destination(data);
    collectives::all_reduce(shared(), destination.bytes(), {data.scalar_type(), operation});
    destination.commit();
  });
}

WorkPtr SharedCommunicator::reduce(at::Tensor data, int root, Options options) {
  check_rank("reduce", *this, root);
  const Call call = reduce_call("reduce", data, data.numel(), options.operation, root);
  return issue(call, data, options, [this, data, root, operation = options.operation] {
    const FlatTensor destination(data);
    collectives::all_reduce(shared(), destination.bytes(), {data.scalar_type(), operation}, root);
    if (rank() == root) destination.commit();
  });
}

WorkPtr SharedCommunicator::broadcast(at::Tensor data, int root, Options options) {
  check_rank("broadcast", *this, root);
  const Call call = call_of("broadcast", data, data.numel(), root);
  return issue(call, data, options, [this, data, root] {
    const FlatTensor destination(data);
    const bool is_root = rank() == root;
    Few<collectives::Bytes> outputs(is_root ? 0 : size());
    if (!is_root) outputs[root] = destination.bytes();
    collectives::share(shared(), outputs,
                       is_root ? destination.bytes() : collectives::ConstBytes());
    if (!is_root) destination.commit();
  });
}

WorkPtr SharedCommunicator::all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                                       Options options) {
  check_one_a_rank("all_gather", *this, outputs);
  check_own_block("all_gather", *this, outputs, input);
  const Call call = in_blocks(call_of("all_gather", input, total_elements(outputs)), outputs);
  return issue(call, input, options, [this, outputs = std::move(outputs), input] {
    const FlatTensors destinations(outputs);
    const FlatTensor source(input);
    collectives::share(shared(), destinations.bytes(), source.const_bytes());
    destinations.commit();
  });
}

WorkPtr SharedCommunicator::reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                                           Options options) {
  check_one_a_rank("reduce_scatter", *this, inputs);
  check_own_block("reduce_scatter", *this, inputs, output);
  const Call call = in_blocks(
      reduce_call("reduce_scatter", output, total_elements(inputs), options.operation), inputs);
  return issue(call, output, options,
               [this, output, inputs = std::move(inputs), operation = options.operation] {
                 const FlatTensor destination(output);
                 const FlatTensors sources(inputs);
                 collectives::reduce_scatter(shared(), destination.bytes(), sources.const_bytes(),
                                             {output.scalar_type(), operation});
                 destination.commit();
               });
}

WorkPtr SharedCommunicator::all_to_all(std::vector<at::Tensor> outputs,
                                       std::vector<at::Tensor> inputs, Options options) {
  check_one_a_rank("all_to_all", *this, outputs);
  check_one_a_rank("all_to_all", *this, inputs);
  const at::Tensor first = inputs[0];
  check_dtypes("all_to_all", outputs, first);
  check_dtypes("all_to_all", inputs, first);
  return issue(call_of("all_to_all", first), first, options,
               [this, outputs = std::move(outputs), inputs = std::move(inputs)] {
                 const FlatTensors destinations(outputs);
                 const FlatTensors sources(inputs);
                 collectives::all_to_all(shared(), destinations.bytes(), sources.const_bytes());
                 destinations.commit();
               });
}

WorkPtr SharedCommunicator::gather(std::vector<at::Tensor> outputs, at::Tensor input, int root,
                                   Options options) {
  check_rank("gather", *this, root);
  if (rank() == root) check_one_a_rank("gather", *this, outputs);
  if (rank() != root) outputs.clear();
  check_dtypes("gather", outputs, input);
  return issue(call_of("gather", input, -1, root), input, options,
               [this, outputs = std::move(outputs), input] {
                 const FlatTensors destinations(outputs);
                 const FlatTensor source(input);
                 collectives::share(shared(), destinations.bytes(), source.const_bytes(),
                                    /*confirm=*/true);
                 destinations.commit();
               });
}

WorkPtr SharedCommunicator::scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root,
                                    Options options) {
  check_rank("scatter", *this, root);
  if (rank() == root) check_one_a_rank("scatter", *this, inputs);
  if (rank() != root) inputs.clear();
  check_dtypes("scatter", inputs, output);
  return issue(call_of("scatter", output, -1, root), output, options,
               [this, output, inputs = std::move(inputs), root] {
                 const FlatTensor destination(output);
                 const FlatTensors sources(inputs);
                 Few<collectives::Bytes> to(size());
                 to[root] = destination.bytes();
                 Few<collectives::ConstBytes> from = sources.const_bytes();
                 from.resize(size());
                 collectives::all_to_all(shared(), to, from);
                 destination.commit();
               });
}

WorkPtr SharedCommunicator::send(at::Tensor data, int peer, Options options) {
  check_peer("send", *this, peer);
  return transfer("send", data, peer, options);
}

WorkPtr SharedCommunicator::recv(at::Tensor data, int peer, Options options) {
  check_source("recv", *this, peer);
  return transfer("recv", data, peer, options);
}

LoanPtr SharedCommunicator::borrow(at::IntArrayRef sizes, at::TensorOptions dtype, int peer,
                                   Options options) {
  check_source("borrow", *this, peer);
  TRIREME_CHECK(dtype.device().is_cpu(), "borrow: the device is ", dtype.device(),
                "; expected the CPU");
  const auto borrowed = std::make_shared<Borrowed>(Borrowed{sizes.vec(), dtype});
  const int64_t elements = c10::multiply_integers(sizes);
  const int type = static_cast<int>(c10::typeMetaToScalarType(dtype.dtype()));
  // In the records it is a recv.
  const auto entry =
      recorder_.issue_message({"recv", type, -1, -1, elements}, peer, sizes, options);
  const size_t num_bytes = static_cast<size_t>(elements) * dtype.dtype().itemsize();
  Message message{.data = {static_cast<std::byte*>(nullptr), num_bytes},
                  .peer = peer,
                  .dtype = type,
                  .on_end = [entry](bool succeeded) { entry.finish(succeeded); },
                  .borrowed = borrowed};
  WorkPtr work = start(std::move(message), options);
  return std::make_shared<ReceivedLoan>(
      std::move(work), std::shared_ptr<const at::Tensor>(borrowed, &borrowed->data));
}

WorkPtr SharedCommunicator::transfer(const char* operation, const at::Tensor& data, int peer,
                                     const Options& options) {
  const Call call = call_of(operation, data, data.numel());
  const auto entry = recorder_.issue_message(call, peer, data.sizes(), options);
  const c10::NoGradGuard no_grad;
  const FlatTensor tensor(data.detach());
  Message message{.is_send = std::string_view(operation) == "send",
                  .data = tensor.bytes(),
                  .peer = peer,
                  .dtype = call.dtype};
  if (message.is_send) message.memory = tensor.contiguous();
  // Keeps the tensor until the message ends. A recv's data is then copied back to it.
  message.on_end = [tensor, is_send = message.is_send, entry](bool succeeded) {
    if (!succeeded) return entry.finish(false);
    run_recorded(entry, [&] {
      if (!is_send) tensor.commit();
    });
  };
  return start(std::move(message), options);
}

WorkPtr SharedCommunicator::start(Message message, const Options& options) {
  message.tag = options.tag;
  message.timeout = options.timeout.count() > 0 ? options.timeout : options_.timeout;
  return point_to_point_.start(std::move(message), options.background);
}

WorkPtr SharedCommunicator::barrier(Options options) {
  return issue({"barrier"}, {}, options, [this] { exchange_.meet(); });
}

at::Tensor SharedCommunicator::symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return host_.heap->empty(sizes, dtype);
}

std::unique_ptr<Communicator> SharedCommunicator::split(int color, int key,
                                                        const std::string& name) {
  const std::vector<int> members = members_of_split(*this, color, key);
  const std::string uid =
      concat(host_.job, ".", std::hex, exchange_.nonce(), ".", num_splits_++, ".", color);
  if (color < 0) return nullptr;
  const auto self = std::ranges::find(members, rank());
  GroupOptions options = options_;
  options.name = name;
  options.recorder = recorder_.recorder();
  const std::vector<int> world_ranks = world_ranks_of(options_, size());
  options.world_ranks.clear();
  for (const int member : members) {
    options.world_ranks.push_back(world_ranks[member]);
  }
  // A group of one exchanges nothing, so small slots cost no time and save shared memory.
  if (members.size() == 1) options.slot_bytes = std::min<size_t>(options.slot_bytes, 64 << 10);
  try {
    return join(host_, uid, static_cast<int>(self - members.begin()),
                static_cast<int>(members.size()), options,
                [&](int member) { return exchange_.loss_of(members[member]); });
  } catch (const Error& error) {
    exchange_.abort(concat("splitting ", name, " off group ", options_.name, ": ", error.what()));
    throw;
  }
}

}  // namespace trireme::comm::inline internal
