#include "trireme/comm/message/message_communicator.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm::inline internal {
namespace {

constexpr int kMostTag = (1 << 29) - 1;
constexpr int64_t kMostScratchBytes = 64 << 20;

Block block_of(const at::Tensor& flat) { return {flat.data_ptr(), flat.nbytes()}; }
ConstBlock const_block_of(const at::Tensor& flat) { return {flat.const_data_ptr(), flat.nbytes()}; }
std::vector<Block> blocks_of(const std::vector<at::Tensor>& flat) {
  std::vector<Block> blocks;
  for (const at::Tensor& tensor : flat) blocks.push_back(block_of(tensor));
  return blocks;
}
std::vector<ConstBlock> const_blocks_of(const std::vector<at::Tensor>& flat) {
  std::vector<ConstBlock> blocks;
  for (const at::Tensor& tensor : flat) blocks.push_back(const_block_of(tensor));
  return blocks;
}

// out = the reduction of `inputs`, one flat tensor per rank. out may be one of them.
void reduce_into(const at::Tensor& out, const std::vector<at::Tensor>& inputs, ReduceOp operation) {
  std::vector<const void*> data;
  for (const at::Tensor& input : inputs) data.push_back(input.const_data_ptr());
  void* const outs[] = {out.data_ptr()};
  reduce_in_rank_order(outs, data, out.numel(), out.scalar_type(), operation);
}

}  // namespace

MessageCommunicator::MessageCommunicator(std::unique_ptr<MessageChannel> channel,
                                         const std::string& name, std::chrono::milliseconds timeout,
                                         GroupRecorder recorder,
                                         std::shared_ptr<Cancellation> cancellation)
    : exchange_(std::move(channel), name, timeout),
      queue_([this] { exchange_.abort("group " + exchange_.name() + " was aborted"); }),
      cancellation_(std::move(cancellation)),
      watch_(watch(cancellation_, [this](const std::string& reason) {
        // Every rank of the job is told to leave.
        exchange_.abort(reason, /*leaves_word=*/false);
      })) {
  record_in(std::move(recorder));
}

template <typename Operation>
WorkPtr MessageCommunicator::issue(const Call& call, const at::Tensor& tensor,
                                   const Options& options, Operation operation) {
  return queue_.run_in_order(recorder_.issue(call, tensor, options, std::move(operation)),
                             options.background);
}

std::vector<at::Tensor> MessageCommunicator::view_blocks(const at::Tensor& flat) const {
  return view_even_blocks(flat, size());
}

std::vector<at::Tensor> MessageCommunicator::with_room(const at::Tensor& mine) {
  const auto block_bytes = static_cast<int64_t>(mine.nbytes());
  const int64_t num_bytes = block_bytes * size();
  at::Tensor room = scratch_;
  if (!room.defined() || room.numel() < num_bytes) {
    room = at::empty({num_bytes}, at::kByte);
    // Kept, because fresh memory costs more than the sum over it.
    if (num_bytes <= kMostScratchBytes) scratch_ = room;
  }
  std::vector<at::Tensor> blocks(size());
  for (int peer = 0; peer < size(); ++peer) {
    blocks[peer] = peer == rank()
                       ? mine
                       : room.narrow(0, peer * block_bytes, block_bytes).view(mine.scalar_type());
  }
  return blocks;
}

void MessageCommunicator::reduce_blocks(const Scope& scope, const at::Tensor& out,
                                        const std::vector<at::Tensor>& blocks, ReduceOp operation) {
  const auto arrived = with_room(blocks[rank()]);
  const auto from = blocks_of(arrived);
  exchange_.exchange(scope, const_blocks_of(blocks), from);
  reduce_into(out, arrived, operation);
}

void MessageCommunicator::gather_blocks(const Scope& scope, const std::vector<at::Tensor>& blocks) {
  const std::vector<ConstBlock> to(size(), const_block_of(blocks[rank()]));
  exchange_.exchange(scope, to, blocks_of(blocks));
}

// Every rank gets everything: more bytes, but one round less.
void MessageCommunicator::reduce_small(const Scope& scope, const at::Tensor& data,
                                       ReduceOp operation) {
  const auto all = with_room(data);
  gather_blocks(scope, all);
  reduce_into(data, all, operation);
}

WorkPtr MessageCommunicator::all_reduce(at::Tensor data, Options options) {
  const auto call = reduce_call("all_reduce", data, data.numel(), options.operation);
  return issue(call, data, options, [this, data, options, call] {
    const FlatTensor target(data);
    const Scope scope = exchange_.meet(call, options.timeout);
    if (static_cast<int64_t>(data.nbytes()) <= kSmallBytes) {
      reduce_small(scope, target.flat(), options.operation);
    } else {
      const auto blocks = view_blocks(target.flat());
      reduce_blocks(scope, blocks[rank()], blocks, options.operation);
      gather_blocks(scope, blocks);
    }
    target.commit();
  });
}

WorkPtr MessageCommunicator::reduce(at::Tensor data, int root, Options options) {
  check_rank("reduce", *this, root);
  const auto call = reduce_call("reduce", data, data.numel(), options.operation, root);
  return issue(call, data, options, [this, data, root, options, call] {
    const FlatTensor target(data);
    const Scope scope = exchange_.meet(call, options.timeout);
    const auto blocks = view_blocks(target.flat());
    // Only the root's data may be overwritten with the result.
    const at::Tensor mine = rank() == root ? blocks[rank()] : at::empty_like(blocks[rank()]);
    reduce_blocks(scope, mine, blocks, options.operation);
    std::vector<ConstBlock> to(size());
    to[root] = const_block_of(mine);
    exchange_.exchange(scope, to, rank() == root ? blocks_of(blocks) : std::vector<Block>{});
    if (rank() == root) target.commit();
  });
}

WorkPtr MessageCommunicator::broadcast(at::Tensor data, int root, Options options) {
  check_rank("broadcast", *this, root);
  const Call call = call_of("broadcast", data, data.numel(), root);
  return issue(call, data, options, [this, data, root, options, call] {
    const FlatTensor target(data);
    const Scope scope = exchange_.meet(call, options.timeout);
    const bool is_root = rank() == root;
    std::vector<ConstBlock> to(is_root ? size() : 0, const_block_of(target.flat()));
    std::vector<Block> from(is_root ? 0 : size());
    if (size() == 2 || static_cast<int64_t>(data.nbytes()) <= kSmallBytes) {
      if (!is_root) from[root] = block_of(target.flat());
      exchange_.exchange(scope, to, from);
    } else {  // a block to each rank, which sends it on to all
      const auto blocks = view_blocks(target.flat());
      if (is_root) to = const_blocks_of(blocks);
      if (!is_root) from[root] = block_of(blocks[rank()]);
      exchange_.exchange(scope, to, from);
      gather_blocks(scope, blocks);
    }
    if (!is_root) target.commit();
  });
}

WorkPtr MessageCommunicator::all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                                        Options options) {
  check_one_a_rank("all_gather", *this, outputs);
  check_cpu_tensor("all_gather", input);
  check_own_block("all_gather", *this, outputs, input);
  const Call call = in_blocks(call_of("all_gather", input, total_elements(outputs)), outputs);
  return issue(call, input, options, [this, outputs, input, options, call] {
    const FlatTensors targets(outputs);
    const at::Tensor source = flat_of(input);
    const Scope scope = exchange_.meet(call, options.timeout);
    const std::vector<ConstBlock> to(size(), const_block_of(source));
    exchange_.exchange(scope, to, blocks_of(targets.flat()));
    targets.flat(rank()).copy_(source);
    targets.commit();
  });
}

WorkPtr MessageCommunicator::reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                                            Options options) {
  check_one_a_rank("reduce_scatter", *this, inputs);
  const Call call = in_blocks(
      reduce_call("reduce_scatter", output, total_elements(inputs), options.operation), inputs);
  check_own_block("reduce_scatter", *this, inputs, output);
  return issue(call, output, options, [this, output, inputs, options, call] {
    const FlatTensor target(output);
    const Scope scope = exchange_.meet(call, options.timeout);
    reduce_blocks(scope, target.flat(), flat_of(inputs), options.operation);
    target.commit();
  });
}

WorkPtr MessageCommunicator::all_to_all(std::vector<at::Tensor> outputs,
                                        std::vector<at::Tensor> inputs, Options options) {
  check_one_a_rank("all_to_all", *this, outputs);
  check_one_a_rank("all_to_all", *this, inputs);
  check_dtypes("all_to_all", outputs, inputs[0]);
  check_dtypes("all_to_all", inputs, inputs[0]);
  TRIREME_CHECK(outputs[rank()].nbytes() == inputs[rank()].nbytes(), "all_to_all: this rank keeps ",
                inputs[rank()].nbytes(), " bytes for itself and their place has ",
                outputs[rank()].nbytes());
  const Call call = call_of("all_to_all", inputs[0]);
  return issue(call, inputs[0], options, [this, outputs, inputs, options, call] {
    const FlatTensors targets(outputs);
    const auto sources = flat_of(inputs);
    const auto to = const_blocks_of(sources);
    const auto from = blocks_of(targets.flat());
    const Scope scope = exchange_.meet(call, options.timeout, to, from);
    exchange_.exchange(scope, to, from);
    targets.flat(rank()).copy_(sources[rank()]);
    targets.commit();
  });
}

WorkPtr MessageCommunicator::gather(std::vector<at::Tensor> outputs, at::Tensor input, int root,
                                    Options options) {
  check_rank("gather", *this, root);
  check_cpu_tensor("gather", input);
  if (rank() == root) {
    check_one_a_rank("gather", *this, outputs);
    check_own_block("gather", *this, outputs, input);
  }
  const Call call = call_of("gather", input, -1, root);
  return issue(call, input, options, [this, outputs, input, root, options, call] {
    const FlatTensors targets(rank() == root ? outputs : std::vector<at::Tensor>{});
    const at::Tensor source = flat_of(input);
    std::vector<ConstBlock> to(size());
    to[root] = const_block_of(source);
    auto from = blocks_of(targets.flat());
    from.resize(size());
    const Scope scope = exchange_.meet(call, options.timeout, to, from);
    exchange_.exchange(scope, to, from);
    if (rank() == root) targets.flat(root).copy_(source);
    targets.commit();
  });
}

WorkPtr MessageCommunicator::scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root,
                                     Options options) {
  check_rank("scatter", *this, root);
  check_cpu_tensor("scatter", output);
  if (rank() == root) {
    check_one_a_rank("scatter", *this, inputs);
    check_own_block("scatter", *this, inputs, output);
  }
  const Call call = call_of("scatter", output, -1, root);
  return issue(call, output, options, [this, output, inputs, root, options, call] {
    const FlatTensor target(output);
    const auto sources = flat_of(rank() == root ? inputs : std::vector<at::Tensor>{});
    auto to = const_blocks_of(sources);
    to.resize(size());
    std::vector<Block> from(size());
    if (rank() != root) from[root] = block_of(target.flat());
    const Scope scope = exchange_.meet(call, options.timeout, to, from);
    exchange_.exchange(scope, to, from);
    if (rank() == root) target.flat().copy_(sources[root]);
    target.commit();
  });
}

WorkPtr MessageCommunicator::send(at::Tensor data, int peer, Options options) {
  check_peer("send", *this, peer);
  check_cpu_tensor("send", data);
  TRIREME_CHECK(options.tag >= 0 && options.tag <= kMostTag, "send: tag ", options.tag,
                "; expected 0 to ", kMostTag);
  const Call call = call_of("send", data, data.numel());
  const auto entry = recorder_.issue_message(call, peer, data.sizes(), options);
  const at::Tensor source = flat_of(data);
  const auto pending = run_or_fail(entry, [&] {
    return exchange_.begin_send(call, const_block_of(source), peer, options.tag, options.timeout);
  });
  return queue_.run_beside(
      [this, source, pending, entry] {
        run_recorded(entry, [&] { exchange_.finish_send(*pending); });
        return -1;
      },
      options.background);
}

WorkPtr MessageCommunicator::recv(at::Tensor data, int peer, Options options) {
  check_source("recv", *this, peer);
  check_cpu_tensor("recv", data);
  TRIREME_CHECK(options.tag >= 0 && options.tag <= kMostTag, "recv: tag ", options.tag,
                "; expected 0 to ", kMostTag);
  const Call call = call_of("recv", data, data.numel());
  const auto entry = recorder_.issue_message(call, peer, data.sizes(), options);
  const auto pending = run_or_fail(
      entry, [&] { return exchange_.begin_recv(call, peer, options.tag, options.timeout); });
  return queue_.run_beside(
      [this, data, call, pending, entry] {
        return run_recorded(entry, [&] {
          const FlatTensor target(data);
          const int source = exchange_.finish_recv(*pending, call, block_of(target.flat()));
          target.commit();
          return source;
        });
      },
      options.background);
}

WorkPtr MessageCommunicator::barrier(Options options) {
  return issue({"barrier"}, {}, options,
               [this, options] { exchange_.meet({"barrier"}, options.timeout); });
}

at::Tensor MessageCommunicator::symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::empty(sizes, dtype);
}

std::unique_ptr<Communicator> MessageCommunicator::split(int color, int key,
                                                         const std::string& name) {
  const std::vector<int> members = members_of_split(*this, color, key);
  const std::string uid = concat(num_splits_++, ".", color);
  if (color < 0) return nullptr;
  const GroupRecorder recorder = recorder_.split(name, members);
  try {
    auto channel =
        recorder.join([&] { return exchange_.channel().split(uid, members, exchange_.timeout()); });
    return std::make_unique<MessageCommunicator>(std::move(channel), name, exchange_.timeout(),
                                                 recorder, cancellation_);
  } catch (const std::exception& error) {
    const std::string reason =
        concat("splitting ", name, " off group ", exchange_.name(), ": ", words_of(error));
    exchange_.abort(reason);
    throw CommError(reason);
  }
}

}  // namespace trireme::comm::inline internal
