#include "trireme/comm/message/message_communicator.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm {
namespace {

using Kind = Collective::Kind;

// One huge call must not hold its memory for the rest of the run.
constexpr int64_t kMostScratchBytes = 64 << 20;

// Of an undefined tensor: nothing.
Block block_of(const at::Tensor& flat) {
  return flat.defined() ? Block{flat.data_ptr(), flat.nbytes()} : Block{};
}
ConstBlock const_block_of(const at::Tensor& flat) {
  return flat.defined() ? ConstBlock{flat.const_data_ptr(), flat.nbytes()} : ConstBlock{};
}
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
  if (recorder.recorder()) {
    exchange_.count_waits(recorder.recorder()->waits(), recorder.world_ranks());
  }
  record_in(std::move(recorder));
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
  // Everyone's part of this rank's block at once and not round a ring: that takes one hop, and the
  // terms can be added in rank order, whoever answers first.
  const auto arrived = with_room(blocks[rank()]);
  const auto from = blocks_of(arrived);
  exchange_.exchange(scope, const_blocks_of(blocks), from);
  reduce_into(out, arrived, operation);
}

void MessageCommunicator::gather_blocks(const Scope& scope, const std::vector<at::Tensor>& blocks) {
  const std::vector<ConstBlock> to(size(), const_block_of(blocks[rank()]));
  exchange_.exchange(scope, to, blocks_of(blocks));
}

void MessageCommunicator::all_reduce_flat(const Scope& scope, const at::Tensor& flat,
                                          ReduceOp operation) {
  if (static_cast<int64_t>(flat.nbytes()) <= kSmallBytes) {
    // Every rank gets everything: more bytes, but one round less.
    const auto all = with_room(flat);
    gather_blocks(scope, all);
    reduce_into(flat, all, operation);
    return;
  }
  const auto blocks = view_blocks(flat);
  reduce_blocks(scope, blocks[rank()], blocks, operation);
  gather_blocks(scope, blocks);
}

void MessageCommunicator::reduce_flat(const Scope& scope, const at::Tensor& flat, int root,
                                      ReduceOp operation) {
  const auto blocks = view_blocks(flat);
  // Only the root's data may be overwritten with the result.
  const at::Tensor mine = rank() == root ? blocks[rank()] : at::empty_like(blocks[rank()]);
  reduce_blocks(scope, mine, blocks, operation);
  std::vector<ConstBlock> to(size());
  to[root] = const_block_of(mine);
  // A reduce-scatter first: the root alone would receive p - 1 times the data, and the others would
  // idle while it adds.
  exchange_.exchange(scope, to, rank() == root ? blocks_of(blocks) : std::vector<Block>{});
}

void MessageCommunicator::broadcast_flat(const Scope& scope, const at::Tensor& flat, int root) {
  const bool is_root = rank() == root;
  std::vector<ConstBlock> to(is_root ? size() : 0, const_block_of(flat));
  std::vector<Block> from(is_root ? 0 : size());
  if (size() == 2 || static_cast<int64_t>(flat.nbytes()) <= kSmallBytes) {
    if (!is_root) from[root] = block_of(flat);
    exchange_.exchange(scope, to, from);
  } else {  // a block to each rank, which sends it on to all
    const auto blocks = view_blocks(flat);
    if (is_root) to = const_blocks_of(blocks);
    if (!is_root) from[root] = block_of(blocks[rank()]);
    exchange_.exchange(scope, to, from);
    gather_blocks(scope, blocks);
  }
}

void MessageCommunicator::move_blocks(const Collective& call, const FlatCollective& operands) {
  const Moves moves = moves_of(call, operands);
  const auto to = const_blocks_of(moves.to);
  const auto from = blocks_of(moves.from);
  // The ranks tell each other the sizes that do not follow from the call.
  const Scope scope = call.compared.block_sizes != 0
                          ? exchange_.meet(call.compared, call.options.timeout)
                          : exchange_.meet(call.compared, call.options.timeout, to, from);
  exchange_.exchange(scope, to, from);
  const at::Tensor& own = moves.from[rank()];
  if (own.defined()) own.copy_(moves.to[rank()]);
}

void MessageCommunicator::carry_out(const Collective& call) {
  const FlatCollective operands(call);
  const at::Tensor flat = operands.data.flat();
  const ReduceOp operation = call.options.operation;
  const auto meet = [&] { return exchange_.meet(call.compared, call.options.timeout); };
  switch (call.kind) {
    case Kind::kAllReduce: all_reduce_flat(meet(), flat, operation); break;
    case Kind::kReduce: reduce_flat(meet(), flat, call.peer, operation); break;
    case Kind::kBroadcast: broadcast_flat(meet(), flat, call.peer); break;
    // The ranks' agreement comes with the call; block sizes are part of what they compare.
    case Kind::kReduceScatter:
      reduce_blocks(meet(), flat, operands.inputs.flat(), operation);
      break;
    case Kind::kAllGather:
    case Kind::kAllToAll:
    case Kind::kGather:
    case Kind::kScatter: move_blocks(call, operands); break;
    case Kind::kBarrier: meet(); break;
    case Kind::kSend:
    case Kind::kRecv: break;  // start()
  }
  operands.commit(call, rank());
}

WorkPtr MessageCommunicator::start(Collective&& call, const Recorder::Entry& entry) {
  if (call.kind == Kind::kSend) return start_send(call, entry);
  if (call.kind == Kind::kRecv) return start_recv(call, entry);
  return run_in_order(queue_.collectives(), std::move(call), entry,
                      [this](const Collective& call) { carry_out(call); });
}

WorkPtr MessageCommunicator::start_send(const Collective& call, const Recorder::Entry& entry) {
  const at::Tensor source = flat_of(call.data);
  const auto pending = run_or_fail(entry, [&] {
    return exchange_.begin_send(call.compared, const_block_of(source), call.peer, call.options.tag,
                                call.options.timeout);
  });
  return queue_.run_beside(
      [this, source, pending, entry] {
        run_recorded(entry, [&] { exchange_.finish_send(*pending); });
        return -1;
      },
      call.options.background);
}

WorkPtr MessageCommunicator::start_recv(const Collective& call, const Recorder::Entry& entry) {
  const auto target = std::make_shared<const FlatTensor>(at::Tensor(call.data));
  const Block block = block_of(target->flat());
  const auto pending = run_or_fail(entry, [&] {
    return exchange_.begin_recv(call.compared, block, call.peer, call.options.tag,
                                call.options.timeout);
  });
  return queue_.run_beside(
      [this, call = call.compared, target, block, pending, entry] {
        return run_recorded(entry, [&] {
          const int source = exchange_.finish_recv(*pending, call, block);
          target->commit();
          return source;
        });
      },
      call.options.background);
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
    // Members for which the split succeeded would go on; the death of the parent tells them.
    exchange_.abort(reason);
    throw CommError(reason);
  }
}

}  // namespace trireme::comm
