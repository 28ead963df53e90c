#include "trireme/comm/hierarchical/hierarchical_collectives.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/sized_message.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm {

// Every rank is deputy for some ranks of other hosts, so that all ranks of a host share the
// network's work. Sums are in rank order: a block's partial sum travels from host to host, and each
// adds its own ranks to what came. Sums per host that are added afterwards would be another order.
// Partial sums travel in the accumulator's dtype, or each host would round once more. They go in
// chunks, so that a host adds one while the next is on its way. Before any data agree() compares
// the calls of all ranks, because a mismatch would otherwise be data in the wrong place or a wait
// without end.

namespace {

// More than the text of any call. Two of them per host make the message that compares calls.
constexpr int64_t kCallBytes = 256;
// Long enough that a message costs little compared with its bytes, short enough that hosts overlap.
constexpr int64_t kChunkBytes = 1 << 20;
// Messages in flight at once on a stream.
constexpr size_t kWindow = 4;

at::ScalarType accumulator_of(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

// Elements of a message.
int64_t chunk_of(at::ScalarType wide) {
  return kChunkBytes / static_cast<int64_t>(c10::elementSize(wide));
}

// Reduces `inputs` in their order, in the accumulator's dtype.
at::Tensor fold(const std::vector<at::Tensor>& inputs, ReduceOp operation) {
  const at::ScalarType dtype = accumulator_of(inputs.back().scalar_type());
  std::vector<at::Tensor> wide;
  std::vector<const void*> data;
  for (const at::Tensor& input : inputs) {
    wide.push_back(input.to(dtype));
    data.push_back(wide.back().const_data_ptr());
  }
  const at::Tensor out = at::empty({inputs.back().numel()}, dtype);
  void* const outs[] = {out.data_ptr()};
  // For an average, sum first and divide at the end.
  const ReduceOp step = operation == ReduceOp::kAverage ? ReduceOp::kSum : operation;
  reduce_in_rank_order(outs, data, out.numel(), dtype, step);
  return out;
}

void wait_all(std::vector<WorkPtr>& works) {
  for (const WorkPtr& work : works) work->wait();
  works.clear();
}

std::string text_of(const at::Tensor& bytes) {
  const auto* text = static_cast<const char*>(bytes.const_data_ptr());
  return {text, strnlen(text, kCallBytes)};
}

}  // namespace

std::vector<at::Tensor> HierarchicalCollectives::agree(const std::string& call,
                                                       std::chrono::milliseconds timeout,
                                                       const at::Tensor& mine) {
  timeout_ = timeout;
  const Options here{.timeout = timeout};
  at::Tensor my_call = at::zeros({kCallBytes}, at::kByte);
  std::memcpy(my_call.data_ptr(), call.data(),
              std::min(call.size(), static_cast<size_t>(kCallBytes) - 1));
  std::vector<at::Tensor> local;
  for (int i = 0; i < inner_.size(); ++i) local.push_back(at::empty_like(my_call));
  inner_.all_gather(local, my_call, here)->wait();
  const bool is_one_call = std::all_of(local.begin(), local.end(), [&](const at::Tensor& other) {
    return at::equal(other, my_call);
  });
  // The calls of each host: its first rank's, and one that differs from it. Then what is told,
  // whose size is known only where the calls are the same.
  const int num_hosts = hosts_.num_hosts();
  const int64_t call_bytes = 2 * kCallBytes * num_hosts;
  const int64_t length = mine.defined() && is_one_call ? mine.numel() : 0;
  const at::Tensor all = at::zeros({call_bytes + outer_.size() * length}, at::kByte);
  at::Tensor calls = all.narrow(0, 0, call_bytes).view({num_hosts, 2, kCallBytes});
  const at::Tensor told = all.narrow(0, call_bytes, outer_.size() * length);
  const std::vector<int> order = by_host();
  std::vector<at::Tensor> told_by(outer_.size());
  for (size_t place = 0; place < order.size(); ++place) {
    told_by[order[place]] = told.narrow(0, static_cast<int64_t>(place) * length, length);
  }
  if (length > 0) {
    std::vector<at::Tensor> here_told;
    for (const int other : hosts_.ranks_of(host())) here_told.push_back(told_by[other]);
    inner_.all_gather(here_told, mine, here)->wait();
  }
  // One rank of each host crosses, so that one message goes between two hosts.
  if (inner_.rank() == 0) {
    for (const at::Tensor& other : local) {
      if (!at::equal(other, my_call)) calls[host()][1].copy_(other);
    }
    calls[host()][0].copy_(my_call);
    exchange_with_leaders(calls, told);
  }
  inner_.broadcast(all, 0, here)->wait();
  for (int other = 0; other < num_hosts; ++other) {
    for (const int which : {0, 1}) {
      const std::string theirs = text_of(calls[other][which]);
      if (theirs.empty() || theirs == text_of(my_call)) continue;
      await_readers();
      throw CommError(concat("the ranks call different operations: rank ", rank(), " ", call,
                             ", a rank on the host of rank ", hosts_.ranks_of(other)[0], " ",
                             theirs));
    }
  }
  return mine.defined() ? told_by : std::vector<at::Tensor>{};
}

std::vector<int> HierarchicalCollectives::by_host() const {
  std::vector<int> order;
  for (int i = 0; i < hosts_.num_hosts(); ++i) {
    order.insert(order.end(), hosts_.ranks_of(i).begin(), hosts_.ranks_of(i).end());
  }
  return order;
}

void HierarchicalCollectives::reduce_told(const at::Tensor& out,
                                          const std::vector<at::Tensor>& told,
                                          ReduceOp operation) const {
  std::vector<at::Tensor> terms;
  for (const int other : by_host()) terms.push_back(told[other].view(out.scalar_type()));
  const at::Tensor sum = fold(terms, operation);
  if (operation == ReduceOp::kAverage) {
    divide_elements(sum.mutable_data_ptr(), sum.numel(), sum.scalar_type(), outer_.size());
  }
  out.copy_(sum);
}

// Exchanges rows[h], and what the ranks of h tell, between the first ranks of all hosts h.
void HierarchicalCollectives::exchange_with_leaders(const at::Tensor& rows,
                                                    const at::Tensor& told) {
  const int64_t length = told.defined() ? told.numel() / outer_.size() : 0;
  // Messages of different sizes do not meet: whose calls differ learn it from the rows.
  const Options told_wire = wire(static_cast<int>(4 * length) + kDataTag);
  std::vector<at::Tensor> told_on;
  int64_t begin = 0;
  for (int i = 0; i < hosts_.num_hosts() && length > 0; ++i) {
    told_on.push_back(told.narrow(0, begin, local_size(i) * length));
    begin += local_size(i) * length;
  }
  std::vector<WorkPtr> works, told_works;
  for (int other = 0; other < hosts_.num_hosts(); ++other) {
    if (other == host()) continue;
    const int leader = hosts_.ranks_of(other)[0];
    works.push_back(recv_sized(outer_, rows[other], leader, wire(kCallTag)));
    works.push_back(send_sized(outer_, rows[host()], leader, wire(kCallTag)));
    if (length == 0) continue;
    told_works.push_back(recv_sized(outer_, told_on[other], leader, told_wire));
    told_works.push_back(send_sized(outer_, told_on[host()], leader, told_wire));
  }
  wait_all(works);
  for (int other = 0; other < hosts_.num_hosts(); ++other) {
    if (!at::equal(rows[other], rows[host()])) return;  // to say so
  }
  wait_all(told_works);
}

// Every rank sees the same mismatch. The first to throw kills the groups, so all others must have
// read the calls by then.
void HierarchicalCollectives::await_readers() {
  try {
    inner_.barrier({.timeout = timeout_})->wait();
    if (inner_.rank() == 0) exchange_with_leaders(at::zeros({hosts_.num_hosts(), 1}));
    inner_.barrier({.timeout = timeout_})->wait();
  } catch (const CommError&) {  // some rank threw, so all have read
  }
}

std::vector<int> HierarchicalCollectives::ranks_in_my_care() const {
  std::vector<int> ranks;
  for (int other = 0; other < outer_.size(); ++other) {
    if (deputy(host(), other) == rank()) ranks.push_back(other);
  }
  return ranks;
}

// The contributions of this host's ranks to the blocks in this rank's care, one tensor per rank.
std::vector<at::Tensor> HierarchicalCollectives::gather_contributions(
    const std::vector<at::Tensor>& blocks) {
  std::vector<at::Tensor> to, from;
  for (const int local : hosts_.ranks_of(host())) {
    std::vector<at::Tensor> in_its_care;
    for (int other = 0; other < outer_.size(); ++other) {
      if (deputy(host(), other) == local) in_its_care.push_back(blocks[other]);
    }
    to.push_back(at::cat(in_its_care));
  }
  for (int i = 0; i < inner_.size(); ++i) from.push_back(at::empty_like(to[inner_.rank()]));
  inner_.all_to_all(from, to, {.timeout = timeout_})->wait();
  return from;
}

void HierarchicalCollectives::reduce_blocks(const at::Tensor& out,
                                            const std::vector<at::Tensor>& blocks,
                                            ReduceOp operation) {
  const int last = hosts_.num_hosts() - 1;
  const auto contributions = gather_contributions(blocks);
  // Posted first: the result may come while this rank still sums.
  std::vector<WorkPtr> arriving;
  if (host() != last && out.numel() > 0) {
    arriving.push_back(recv_sized(outer_, out, deputy(last, rank()), wire()));
  }
  const at::ScalarType wide = accumulator_of(contributions[0].scalar_type());
  std::vector<std::pair<int, int64_t>> chunks;  // of partial sums: the block's rank, elements
  for (const int target : ranks_in_my_care()) {
    for (int64_t left = blocks[target].numel(); left > 0; left -= chunk_of(wide)) {
      chunks.emplace_back(target, std::min(left, chunk_of(wide)));
    }
  }
  std::deque<Outgoing> partials;  // on their way here
  size_t requested = 0;
  // Some chunks ahead, so the network is never idle, and of the next block too: a request that is
  // made while this block's sum leaves waits behind it, and the line stands still meanwhile.
  const auto next_partial = [&] {
    for (; requested < chunks.size() && partials.size() < kWindow; ++requested) {
      const auto [target, count] = chunks[requested];
      const at::Tensor room = at::empty({count}, wide);
      partials.push_back({room, recv_sized(outer_, room, deputy(host() - 1, target), wire())});
    }
    partials.front().work->wait();
    const at::Tensor data = partials.front().data;
    partials.pop_front();
    return data;
  };
  std::vector<Outgoing> outgoing;
  int64_t begin = 0;
  for (const int target : ranks_in_my_care()) {
    const int64_t length = blocks[target].numel();
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& each : contributions) inputs.push_back(each.narrow(0, begin, length));
    begin += length;
    if (length > 0) reduce_block(out, target, inputs, operation, next_partial, outgoing);
  }
  for (const Outgoing& each : outgoing) each.work->wait();
  wait_all(arriving);
}

// Processes one block at this host: adds this host's ranks to the partial sum of the hosts before.
// Sends the result to the next host or, from the last host, to the rank that owns the block.
void HierarchicalCollectives::reduce_block(const at::Tensor& out, int target,
                                           const std::vector<at::Tensor>& inputs,
                                           ReduceOp operation,
                                           const std::function<at::Tensor()>& next_partial,
                                           std::vector<Outgoing>& outgoing) {
  const at::ScalarType dtype = inputs[0].scalar_type();
  const at::ScalarType wide = accumulator_of(dtype);
  const bool is_last = host() == hosts_.num_hosts() - 1;
  const int64_t length = inputs[0].numel();
  const int64_t chunk = chunk_of(wide);
  // Only the last host has the whole sum, so only it rounds.
  const at::Tensor result = is_last ? at::empty({length}, dtype) : at::Tensor();
  for (int64_t begin = 0; begin < length; begin += chunk) {
    const int64_t count = std::min(chunk, length - begin);
    std::vector<at::Tensor> terms;
    if (host() > 0) terms.push_back(next_partial());
    for (const at::Tensor& input : inputs) terms.push_back(input.narrow(0, begin, count));
    const at::Tensor sum = fold(terms, operation);
    if (is_last) {
      // Only at the end, as on one host.
      if (operation == ReduceOp::kAverage)
        divide_elements(sum.mutable_data_ptr(), sum.numel(), sum.scalar_type(), outer_.size());
      result.narrow(0, begin, count).copy_(sum);
    } else {
      // Bounds the memory for partial sums on their way.
      if (outgoing.size() >= kWindow) {
        outgoing.front().work->wait();
        outgoing.erase(outgoing.begin());
      }
      outgoing.push_back({sum, send_sized(outer_, sum, deputy(host() + 1, target), wire())});
    }
  }
  if (is_last && target == rank()) {
    out.copy_(result);
  } else if (is_last) {
    outgoing.push_back({result, send_sized(outer_, result, target, wire())});
  }
}

void HierarchicalCollectives::all_gather_blocks(const std::vector<at::Tensor>& blocks) {
  // A copy, because the gather within the host writes this block while it is still being sent.
  const at::Tensor mine = blocks[rank()].clone();
  std::vector<WorkPtr> works;
  for (const int from : ranks_in_my_care()) {
    if (hosts_.host_of(from) == host() || blocks[from].numel() == 0) continue;
    works.push_back(recv_sized(outer_, blocks[from], from, wire()));
  }
  for (int other = 0; other < hosts_.num_hosts(); ++other) {
    if (other == host() || blocks[rank()].numel() == 0) continue;
    works.push_back(send_sized(outer_, mine, deputy(other, rank()), wire()));
  }
  std::vector<at::Tensor> local;
  for (const int other : hosts_.ranks_of(host())) local.push_back(blocks[other]);
  inner_.all_gather(local, mine, {.timeout = timeout_})->wait();
  wait_all(works);
  if (inner_.size() == 1) return;
  // Passes what each rank received from other hosts to all ranks of this one.
  std::vector<std::vector<int>> in_care(inner_.size());
  std::vector<at::Tensor> packs;
  for (int other = 0; other < outer_.size(); ++other) {
    if (hosts_.host_of(other) == host()) continue;
    in_care[hosts_.local_rank_of(deputy(host(), other))].push_back(other);
  }
  for (const auto& ranks : in_care) {
    int64_t length = 0;
    for (const int other : ranks) length += blocks[other].numel();
    packs.push_back(at::empty({length}, blocks[0].options()));
  }
  const auto copy = [&](int local_rank, bool into_pack) {
    int64_t begin = 0;
    for (const int other : in_care[local_rank]) {
      const at::Tensor part = packs[local_rank].narrow(0, begin, blocks[other].numel());
      (into_pack ? part : blocks[other]).copy_(into_pack ? blocks[other] : part);
      begin += part.numel();
    }
  };
  copy(inner_.rank(), true);
  // A copy, because the gather writes the pack as well.
  inner_.all_gather(packs, packs[inner_.rank()].clone(), {.timeout = timeout_})->wait();
  for (int i = 0; i < inner_.size(); ++i) {
    if (i != inner_.rank()) copy(i, false);
  }
}

void HierarchicalCollectives::broadcast(const at::Tensor& data, int root) {
  const int num_hosts = hosts_.num_hosts();
  const int place = (host() - hosts_.host_of(root) + num_hosts) % num_hosts;  // in the chain
  const auto neighbour = [&](int step) {
    return deputy((host() + step + num_hosts) % num_hosts, root);
  };
  const int mine = deputy(host(), root);
  if (rank() == mine) {
    const int64_t chunk = kChunkBytes / static_cast<int64_t>(data.element_size());
    std::deque<WorkPtr> leaving;
    for (int64_t begin = 0; begin < data.numel(); begin += chunk) {
      const at::Tensor part = data.narrow(0, begin, std::min(chunk, data.numel() - begin));
      // Meanwhile the chunks before are on their way to the next host.
      if (place > 0) recv_sized(outer_, part, neighbour(-1), wire())->wait();
      if (place + 1 == num_hosts) continue;
      if (leaving.size() >= kWindow) {
        leaving.front()->wait();
        leaving.pop_front();
      }
      leaving.push_back(send_sized(outer_, part, neighbour(1), wire()));
    }
    for (const WorkPtr& work : leaving) work->wait();
  }
  inner_.broadcast(data, hosts_.local_rank_of(mine), {.timeout = timeout_})->wait();
}

void HierarchicalCollectives::exchange(const std::vector<at::Tensor>& to,
                                       const std::vector<at::Tensor>& from, c10::ScalarType dtype) {
  std::vector<WorkPtr> works;
  for (int peer = 0; peer < outer_.size(); ++peer) {
    if (hosts_.host_of(peer) == host()) continue;
    // Empty ones too: the other side may expect more, and must be told.
    if (from[peer].defined()) works.push_back(outer_.recv(from[peer], peer, wire()));
    if (to[peer].defined()) works.push_back(outer_.send(to[peer], peer, wire()));
  }
  const at::Tensor nothing = at::empty({0}, dtype);
  std::vector<at::Tensor> local_to, local_from;
  for (const int peer : hosts_.ranks_of(host())) {
    local_to.push_back(to[peer].defined() ? to[peer] : nothing);
    local_from.push_back(from[peer].defined() ? from[peer] : nothing);
  }
  inner_.all_to_all(local_from, local_to, {.timeout = timeout_})->wait();
  wait_all(works);
}

}  // namespace trireme::comm
