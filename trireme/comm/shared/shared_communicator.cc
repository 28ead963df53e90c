#include "trireme/comm/shared/shared_communicator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/numbers.h"
#include "trireme/comm/loan.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm {

// Ranks as threads and ranks as processes are one class: what differs, where the memory comes from
// and how a death shows, is in Segment. A group has one segment, which rank 0 makes and the others
// find by name. Its first meeting tells all of them whether each has a core of its own, which
// decides how they wait, and is also the proof that everyone has come, so that rank 0 may take the
// name away. The heap for symmetric tensors is the host's and not the group's: sub-groups share the
// first group's, or a tensor could be read in place only by the group that it was made in. Messages
// have their own room beside the exchange, because a pair of ranks must not wait for a collective
// of the group.

namespace {

using Clock = std::chrono::steady_clock;
using Kind = Collective::Kind;

ExchangeOptions exchange_options(const GroupOptions& options) {
  return {.name = options.name,
          .slot_bytes = options.slot_bytes,
          .timeout = options.timeout,
          .world_ranks = options.world_ranks,
          .waits = options.recorder ? options.recorder->waits() : nullptr};
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
    // Committed are the parts that every group uses at once. Pieces and heap are only address space
    // until somebody sends a message or allocates: a run has many groups, and /dev/shm is often
    // small.
    memory.envelopes = Exchange::segment_bytes(num_ranks, exchange_options(options));
    memory.pieces = round_up(memory.envelopes + messages.committed, kPage);
    // Aligned for the huge pages that Segment asks for.
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
  // Their threads sleep on bells of their own, which the exchange does not ring.
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
    // Rank 0 may be dead or the job cancelled, and there is no segment yet that would show it.
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
  // Only now has everyone opened the file.
  if (rank == 0) segment->seal();
  return group;
}

WorkPtr SharedCommunicator::start(Collective&& call, const Recorder::Entry& entry) {
  if (call.is_message()) return start_message(call, entry);
  return run_in_order(progress_, std::move(call), entry,
                      [this](const Collective& call) { carry_out(call); });
}

void SharedCommunicator::carry_out(const Collective& call) {
  exchange_.begin(call.compared, call.options.timeout);
  // Lists are made where they are used: a small all_reduce has no time for them.
  const FlatTensor data(call.data);
  const int root = call.peer;
  const collectives::Reduction reduction{static_cast<c10::ScalarType>(call.compared.dtype),
                                         call.options.operation};
  switch (call.kind) {
    case Kind::kAllReduce: collectives::all_reduce(shared(), data.bytes(), reduction); break;
    case Kind::kReduce: collectives::all_reduce(shared(), data.bytes(), reduction, root); break;
    case Kind::kBroadcast: {
      const bool is_root = rank() == root;
      Few<collectives::Bytes> outputs(is_root ? 0 : size());
      if (!is_root) outputs[root] = data.bytes();
      collectives::share(shared(), outputs, is_root ? data.bytes() : collectives::ConstBytes());
      break;
    }
    case Kind::kAllGather:
    case Kind::kGather: {
      const FlatTensors outputs(call.outputs);
      collectives::share(shared(), outputs.bytes(), data.const_bytes(),
                         /*confirm=*/call.kind == Kind::kGather);
      outputs.commit();
      break;
    }
    case Kind::kReduceScatter:
      collectives::reduce_scatter(shared(), data.bytes(), FlatTensors(call.inputs).const_bytes(),
                                  reduction);
      break;
    case Kind::kAllToAll: {
      const FlatTensors outputs(call.outputs), inputs(call.inputs);
      collectives::all_to_all(shared(), outputs.bytes(), inputs.const_bytes());
      outputs.commit();
      break;
    }
    // A scatter is an all_to_all in which only the root has something to give, and needs no code of
    // its own below.
    case Kind::kScatter: {
      const FlatTensors inputs(call.inputs);
      Few<collectives::Bytes> to(size());
      to[root] = data.bytes();
      Few<collectives::ConstBytes> from = inputs.const_bytes();
      from.resize(size());
      collectives::all_to_all(shared(), to, from);
      break;
    }
    case Kind::kBarrier: exchange_.meet(); break;
    case Kind::kSend:
    case Kind::kRecv: break;  // start_message()
  }
  if (data.is_copy() && call.writes_data(rank())) data.commit();
}

WorkPtr SharedCommunicator::start_message(const Collective& call, const Recorder::Entry& entry) {
  const Options& options = call.options;
  Message message{.is_send = call.kind == Kind::kSend,
                  .data = {},
                  .peer = call.peer,
                  .tag = options.tag,
                  .dtype = call.compared.dtype,
                  .timeout = options.timeout.count() > 0 ? options.timeout : options_.timeout,
                  .borrowed = call.borrowed};
  if (call.borrowed) {
    message.data = {static_cast<std::byte*>(nullptr),
                    static_cast<size_t>(call.borrowed->num_bytes())};
    message.on_end = [entry](bool succeeded) { entry.finish(succeeded); };
    return point_to_point_.start(std::move(message), options.background);
  }
  const c10::NoGradGuard no_grad;
  const FlatTensor tensor(call.data.detach());
  message.data = tensor.bytes();
  if (message.is_send) message.memory = tensor.contiguous();
  // Keeps the tensor until the message ends. A recv's data is then copied back to it.
  message.on_end = [tensor, is_send = message.is_send, entry](bool succeeded) {
    if (!succeeded) return entry.finish(false);
    run_recorded(entry, [&] {
      if (!is_send) tensor.commit();
    });
  };
  return point_to_point_.start(std::move(message), options.background);
}

std::string SharedCommunicator::known_loss() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const std::string loss = exchange_.loss_of(peer);
    if (!loss.empty()) return loss;
  }
  return "";
}

at::Tensor SharedCommunicator::symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return host_.heap->empty(sizes, dtype);
}

std::unique_ptr<Communicator> SharedCommunicator::split(int color, int key,
                                                        const std::string& name) {
  const std::vector<int> members = members_of_split(*this, color, key);
  const std::string uid =
      // The nonce tells groups of one name apart, and the counter the splits of one group: an old
      // segment is never joined by mistake.
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
    // The members that did join would otherwise wait for this rank until their timeout.
    exchange_.abort(concat("splitting ", name, " off group ", options_.name, ": ", error.what()));
    throw;
  }
}

}  // namespace trireme::comm
