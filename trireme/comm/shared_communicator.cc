#include "trireme/comm/shared_communicator.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/staged.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMailboxBytes = 16 << 10;

ExchangeOptions exchange_options(const GroupOptions& options) {
  return {options.name, options.slot_bytes, kMailboxBytes, options.timeout};
}

staged::Bytes bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

staged::ConstBytes const_bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Tensors that an operation writes, as contiguous memory: the tensor itself, or a copy that goes
// back at the end.
class Destination {
 public:
  explicit Destination(at::Tensor tensor)
      : tensor_(std::move(tensor)), flat_(tensor_.contiguous()) {}
  staged::Bytes bytes() const { return bytes_of(flat_); }
  void commit() const {
    if (!flat_.is_same(tensor_)) tensor_.copy_(flat_);
  }

 private:
  at::Tensor tensor_;
  at::Tensor flat_;
};

class Destinations {
 public:
  explicit Destinations(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) items_.emplace_back(tensor);
  }
  std::vector<staged::Bytes> bytes() const {
    std::vector<staged::Bytes> spans;
    for (const Destination& item : items_) spans.push_back(item.bytes());
    return spans;
  }
  void commit() const {
    for (const Destination& item : items_) item.commit();
  }

 private:
  std::vector<Destination> items_;
};

// Contiguous versions of tensors that an operation reads.
struct Sources {
  explicit Sources(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      flat.push_back(tensor.contiguous());
      bytes.push_back(const_bytes_of(flat.back()));
    }
  }
  std::vector<at::Tensor> flat;
  std::vector<staged::ConstBytes> bytes;
};

// Throws ConfigError unless shared memory can hold it.
void check_tensor(const char* operation, const at::Tensor& tensor) {
  TRIREME_CHECK(tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided, operation,
                ": got ",
                tensor.defined() ? concat("a tensor on ", tensor.device()) : "an undefined tensor",
                "; expected a dense CPU tensor");
}

Call call_of(const char* operation, const at::Tensor& tensor, int64_t elements, int root = -1) {
  check_tensor(operation, tensor);
  return {operation, static_cast<int>(tensor.scalar_type()), -1, root, elements};
}

Call reduce_call(const char* operation, const at::Tensor& tensor, int64_t elements,
                 ReduceOp reduce_op, int root = -1) {
  Call call = call_of(operation, tensor, elements, root);
  check_reducible(tensor.scalar_type(), reduce_op);
  call.reduce_op = static_cast<int>(reduce_op);
  return call;
}

// For calls whose ranks must agree on each block's size, not only on the sum.
uint64_t hash_sizes(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const at::Tensor& tensor : tensors) {
    hash = (hash ^ static_cast<uint64_t>(tensor.nbytes())) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash | 1;
}

int64_t total_elements(const std::vector<at::Tensor>& tensors) {
  int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.numel();
  return total;
}

// What the recorder keeps of a call on `tensor`.
RecordedCall recorded(const char* operation, const at::Tensor& tensor, int64_t elements,
                      int peer = -1, int reduce_op = -1) {
  if (!tensor.defined()) return {.operation = operation};  // refused later, with a reason
  return {.operation = operation,
          .shape = {tensor.sizes().data(), tensor.sizes().size()},
          .elements = elements,
          .dtype = static_cast<int>(tensor.scalar_type()),
          .reduce_op = reduce_op,
          .peer = peer};
}

RecordedCall recorded(const Call& call, const at::Tensor& tensor) {
  return recorded(call.operation, tensor, call.elements, call.root, call.reduce_op);
}

RecordedCall recorded_message(const char* operation, const at::Tensor& tensor, int peer) {
  RecordedCall call = recorded(operation, tensor, tensor.numel(), peer);
  call.is_point_to_point = true;
  return call;
}

Recorder::Entry record(const GroupOptions& options, int group, const RecordedCall& call) {
  return options.recorder ? options.recorder->issue(group, call) : Recorder::Entry();
}

// Runs `function`, and says in `entry` how it ended.
template <typename Function>
void run_recorded(const Recorder::Entry& entry, const Function& function) {
  try {
    function();
  } catch (...) {
    entry.finish(false);
    throw;
  }
  entry.finish(true);
}

std::vector<int> world_ranks_of(const GroupOptions& options, int size) {
  std::vector<int> ranks = options.world_ranks;
  for (int rank = static_cast<int>(ranks.size()); rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace

SharedCommunicator::SharedCommunicator(std::shared_ptr<SegmentFactory> segments,
                                       std::shared_ptr<Segment> segment, std::string uid, int rank,
                                       int size, const GroupOptions& options)
    : segments_(std::move(segments)),
      uid_(std::move(uid)),
      options_(options),
      exchange_(std::move(segment), rank, size, exchange_options(options)),
      progress_([this] { exchange_.abort("group " + options_.name + " was aborted"); }) {}

std::unique_ptr<SharedCommunicator> SharedCommunicator::join(
    std::shared_ptr<SegmentFactory> segments, const std::string& uid, int rank, int size,
    const GroupOptions& options, const Exchange::LossOf& loss_of) {
  TRIREME_CHECK(size >= 1 && rank >= 0 && rank < size, "rank ", rank, " of ", size,
                " ranks; expected 0 <= rank < size");
  TRIREME_CHECK(
      options.slot_bytes % 64 == 0 && options.slot_bytes >= 64 * static_cast<size_t>(size),
      "slot_bytes is ", options.slot_bytes, "; expected a multiple of 64, at least 64 a rank");
  const int recorded_group =
      options.recorder ? options.recorder->add_group(options.name, world_ranks_of(options, size))
                       : -1;
  const Recorder::Entry entry = record(options, recorded_group, {.operation = "join"});
  std::unique_ptr<SharedCommunicator> group;
  run_recorded(entry, [&] { group = meet_first(segments, uid, rank, size, options, loss_of); });
  group->recorded_group_ = recorded_group;
  return group;
}

std::unique_ptr<SharedCommunicator> SharedCommunicator::meet_first(
    const std::shared_ptr<SegmentFactory>& segments, const std::string& uid, int rank, int size,
    const GroupOptions& options, const Exchange::LossOf& loss_of) {
  const size_t num_bytes = Exchange::segment_bytes(size, exchange_options(options));
  std::shared_ptr<Segment> segment;
  const auto deadline = Clock::now() + options.timeout;
  if (rank == 0) segment = segments->create(uid, rank, num_bytes);
  while (segment == nullptr && (segment = segments->open(uid, rank, num_bytes)) == nullptr) {
    if (Clock::now() > deadline) {
      throw CommError(concat("joining group ", options.name, ": rank 0 of ", size,
                             " never came within ",
                             static_cast<double>(options.timeout.count()) / 1000, " s"));
    }
    if (const std::string loss = loss_of ? loss_of(0) : ""; !loss.empty()) {
      throw CommError(concat("joining group ", options.name, ": ", loss));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::unique_ptr<SharedCommunicator> group(
      new SharedCommunicator(segments, segment, uid, rank, size, options));
  group->exchange_.begin({"join"}, options.timeout);
  group->exchange_.meet(loss_of);
  if (rank == 0) segment->seal();
  return group;
}

template <typename Operation>
WorkPtr SharedCommunicator::issue(RecordedCall call, const Options& options, Operation operation) {
  call.tag = options.tag;
  call.is_background = options.background;
  const Recorder::Entry entry = record(options_, recorded_group_, call);
  // Autograd has no say in what is communicated, on whichever thread it runs.
  auto without_grad = [operation = std::move(operation), entry,
                       is_background = options.background] {
    const c10::NoGradGuard no_grad;
    if (is_background) entry.start();
    run_recorded(entry, operation);
  };
  if (options.background) return progress_.run_in_background(std::move(without_grad));
  return progress_.run(without_grad);
}

void SharedCommunicator::check_root(const char* operation, int root) const {
  TRIREME_CHECK(root >= 0 && root < size(), operation, ": rank ", root, " is not in group ", name(),
                " of ", size(), " ranks");
}

void SharedCommunicator::check_count(const char* operation, size_t found) const {
  TRIREME_CHECK(found == static_cast<size_t>(size()), operation, ": got ", found,
                " tensors, expected one for each of the ", size(), " ranks of group ", name());
}

WorkPtr SharedCommunicator::all_reduce(at::Tensor data, Options options) {
  const Call call = reduce_call("all_reduce", data, data.numel(), options.operation);
  return issue(recorded(call, data), options, [this, data, options, call] {
    const Destination destination(data);
    exchange_.begin(call, options.timeout);
    staged::all_reduce(exchange_, destination.bytes(), {data.scalar_type(), options.operation});
    destination.commit();
  });
}

WorkPtr SharedCommunicator::reduce(at::Tensor data, int root, Options options) {
  check_root("reduce", root);
  const Call call = reduce_call("reduce", data, data.numel(), options.operation, root);
  return issue(recorded(call, data), options, [this, data, root, options, call] {
    const Destination destination(data);
    exchange_.begin(call, options.timeout);
    staged::reduce(exchange_, destination.bytes(), root, {data.scalar_type(), options.operation});
    if (rank() == root) destination.commit();
  });
}

WorkPtr SharedCommunicator::broadcast(at::Tensor data, int root, Options options) {
  check_root("broadcast", root);
  return issue(recorded("broadcast", data, data.numel(), root), options,
               [this, data, root, options] {
                 const Destination destination(data);
                 exchange_.begin(call_of("broadcast", data, data.numel(), root), options.timeout);
                 staged::broadcast(exchange_, destination.bytes(), root);
                 if (rank() != root) destination.commit();
               });
}

WorkPtr SharedCommunicator::all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                                       Options options) {
  check_count("all_gather", outputs.size());
  TRIREME_CHECK(outputs[rank()].nbytes() == input.nbytes(), "all_gather: this rank's input has ",
                input.nbytes(), " bytes and its place in the outputs ", outputs[rank()].nbytes());
  return issue(recorded("all_gather", input, total_elements(outputs)), options,
               [this, outputs, input, options] {
                 const Destinations destinations(outputs);
                 const at::Tensor source = input.contiguous();
                 Call call = call_of("all_gather", input, total_elements(outputs));
                 call.block_sizes = hash_sizes(outputs);
                 exchange_.begin(call, options.timeout);
                 staged::all_gather(exchange_, destinations.bytes(), const_bytes_of(source));
                 destinations.commit();
               });
}

WorkPtr SharedCommunicator::reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                                           Options options) {
  check_count("reduce_scatter", inputs.size());
  TRIREME_CHECK(inputs[rank()].nbytes() == output.nbytes(),
                "reduce_scatter: this rank's output has ", output.nbytes(),
                " bytes and its place in the inputs ", inputs[rank()].nbytes());
  Call call = reduce_call("reduce_scatter", output, total_elements(inputs), options.operation);
  call.block_sizes = hash_sizes(inputs);
  return issue(recorded(call, output), options, [this, output, inputs, options, call] {
    const Destination destination(output);
    const Sources sources(inputs);
    exchange_.begin(call, options.timeout);
    staged::reduce_scatter(exchange_, destination.bytes(), sources.bytes,
                           {output.scalar_type(), options.operation});
    destination.commit();
  });
}

WorkPtr SharedCommunicator::all_to_all(std::vector<at::Tensor> outputs,
                                       std::vector<at::Tensor> inputs, Options options) {
  check_count("all_to_all", outputs.size());
  check_count("all_to_all", inputs.size());
  return issue(recorded("all_to_all", inputs[0], -1), options, [this, outputs, inputs, options] {
    const Destinations destinations(outputs);
    const Sources sources(inputs);
    exchange_.begin(call_of("all_to_all", inputs[0], -1), options.timeout);
    staged::all_to_all(exchange_, destinations.bytes(), sources.bytes);
    destinations.commit();
  });
}

WorkPtr SharedCommunicator::gather(std::vector<at::Tensor> outputs, at::Tensor input, int root,
                                   Options options) {
  check_root("gather", root);
  if (rank() == root) check_count("gather", outputs.size());
  return issue(recorded("gather", input, -1, root), options, [this, outputs, input, root, options] {
    const Destinations destinations(outputs);
    const at::Tensor source = input.contiguous();
    exchange_.begin(call_of("gather", input, -1, root), options.timeout);
    std::vector<staged::Bytes> to = destinations.bytes();
    to.resize(size());
    std::vector<staged::ConstBytes> from(size());
    from[root] = const_bytes_of(source);
    staged::all_to_all(exchange_, to, from);
    if (rank() == root) destinations.commit();
  });
}

WorkPtr SharedCommunicator::scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root,
                                    Options options) {
  check_root("scatter", root);
  if (rank() == root) check_count("scatter", inputs.size());
  return issue(recorded("scatter", output, -1, root), options,
               [this, output, inputs, root, options] {
                 const Destination destination(output);
                 const Sources sources(inputs);
                 exchange_.begin(call_of("scatter", output, -1, root), options.timeout);
                 std::vector<staged::Bytes> to(size());
                 to[root] = destination.bytes();
                 std::vector<staged::ConstBytes> from = sources.bytes;
                 from.resize(size());
                 staged::all_to_all(exchange_, to, from);
                 destination.commit();
               });
}

WorkPtr SharedCommunicator::send(at::Tensor data, int peer, Options options) {
  check_root("send", peer);
  TRIREME_CHECK(peer != rank(), "send: rank ", peer, " is this rank; expected another");
  return issue(recorded_message("send", data, peer), options, [this, data, peer, options] {
    const at::Tensor source = data.contiguous();
    exchange_.begin(call_of("send", data, data.numel(), peer), options.timeout);
    exchange_.send(const_bytes_of(source).data(), source.nbytes(), peer, options.tag);
  });
}

WorkPtr SharedCommunicator::recv(at::Tensor data, int peer, Options options) {
  check_root("recv", peer);
  TRIREME_CHECK(peer != rank(), "recv: rank ", peer, " is this rank; expected another");
  return issue(recorded_message("recv", data, peer), options, [this, data, peer, options] {
    const Destination destination(data);
    exchange_.begin(call_of("recv", data, data.numel(), peer), options.timeout);
    exchange_.recv(destination.bytes().data(), destination.bytes().size(), peer, options.tag);
    destination.commit();
  });
}

WorkPtr SharedCommunicator::barrier(Options options) {
  return issue({.operation = "barrier"}, options, [this, options] {
    exchange_.begin({"barrier"}, options.timeout);
    exchange_.meet();
  });
}

at::Tensor SharedCommunicator::symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::empty(sizes, dtype);
}

std::unique_ptr<Communicator> SharedCommunicator::split(int color, int key,
                                                        const std::string& name) {
  // Every rank's (color, key), so that each finds its group's members without a leader.
  at::Tensor mine = at::tensor(std::vector<int64_t>{color, key});
  std::vector<at::Tensor> all(size());
  for (at::Tensor& other : all) other = at::empty_like(mine);
  all_gather(all, mine, {})->wait();
  const std::string uid = concat(uid_, ".", num_splits_++, ".", color);
  if (color < 0) return nullptr;
  std::vector<std::pair<int64_t, int>> members;  // (key, rank)
  for (int other = 0; other < size(); ++other) {
    const auto* values = all[other].const_data_ptr<int64_t>();
    if (values[0] == color) members.emplace_back(values[1], other);
  }
  std::ranges::sort(members);
  const auto self = std::ranges::find(members, rank(), &std::pair<int64_t, int>::second);
  GroupOptions options = options_;
  options.name = name;
  const std::vector<int> world_ranks = world_ranks_of(options_, size());
  options.world_ranks.clear();
  for (const auto& [member_key, member] : members) {
    options.world_ranks.push_back(world_ranks[member]);
  }
  // A group of one exchanges nothing: small chunks cost it nothing either, and save shared memory.
  if (members.size() == 1) options.slot_bytes = std::min<size_t>(options.slot_bytes, 64 << 10);
  try {
    return join(segments_, uid, static_cast<int>(self - members.begin()),
                static_cast<int>(members.size()), options,
                [&](int member) { return exchange_.loss_of(members[member].second); });
  } catch (const Error& error) {
    exchange_.abort(concat("splitting ", name, " off group ", options_.name, ": ", error.what()));
    throw;
  }
}

}  // namespace trireme::comm
