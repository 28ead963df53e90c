#include "trireme/comm/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/sized_message.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm {

// This class decides which way each call takes; how the bytes move is in
// hierarchical_collectives.cc. Two groups carry the calls, and neither sees the whole: each
// compares only the calls that are made on it. So every collective begins with agree(), in which
// all ranks compare this group's call. What is small enough travels with that and is then done.
//
// A message between two ranks goes in two parts. The announcement always takes the outer group, so
// that a recv from any source finds senders on this host and on others in one queue, in the order
// in which they were sent. The data then takes the shorter path, under a tag of its own that the
// announcement names. An empty message is an announcement alone. A sized message needs none and
// goes on the shorter path with a sized tag.

namespace {

using Kind = Collective::Kind;

// Tags on both groups: of the user's announcements, of message data, and of the collectives.
// Remainders by 4 keep them apart. The user's largest tag times 4 still fits what a group under
// another may use.
constexpr int announcement_tag(int tag) { return 4 * tag; }
constexpr int data_tag(uint64_t sequence) {
  return static_cast<int>(4 * (sequence & kMostTag) + 1);
}

constexpr int sized_tag(int tag) { return announcement_tag(tag & ~kSizedTag) | kSizedTag; }

// A message's announcement: number, dtype and bytes.
constexpr int kAnnouncementLength = 3;

// Whether so many bytes of a rank travel while the calls are compared.
bool is_told(size_t num_bytes) {
  return num_bytes > 0 && num_bytes <= size_t{HierarchicalCollectives::kMostTold};
}

// What this rank tells all others while the calls are compared: [n] bytes, or undefined.
at::Tensor told_by(const Collective& call, const at::Tensor& flat) {
  if (call.kind == Kind::kAllReduce || call.kind == Kind::kBroadcast) {
    return is_told(flat.nbytes()) ? flat.view(at::kByte) : at::Tensor();
  }
  if (call.kind != Kind::kAllGather) return {};
  size_t most = 0;
  for (const at::Tensor& output : call.outputs) most = std::max(most, output.nbytes());
  if (!is_told(most)) return {};
  // Blocks may differ by rank, and rows of one length need no table of places.
  const at::Tensor mine = at::zeros({static_cast<int64_t>(most)}, at::kByte);
  mine.narrow(0, 0, static_cast<int64_t>(flat.nbytes())).copy_(flat.view(at::kByte));
  return mine;
}

Collective message(Kind kind, const at::Tensor& data, int peer, int tag,
                   std::chrono::milliseconds timeout) {
  return {.kind = kind,
          .data = data,
          .peer = peer,
          .options = {.timeout = timeout, .tag = tag, .background = true}};
}

// On one host the group within it is the whole group.
std::unique_ptr<Communicator> recorded(std::unique_ptr<Communicator> inner,
                                       GroupRecorder recorder) {
  if (auto* group = dynamic_cast<RecordedCommunicator*>(inner.get())) {
    group->record_in(std::move(recorder));
  }
  return inner;
}

}  // namespace

std::unique_ptr<Communicator> make_hierarchical_group(std::unique_ptr<Communicator> inner,
                                                      std::unique_ptr<Communicator> outer,
                                                      const HostMap& hosts, const std::string& name,
                                                      GroupRecorder recorder) {
  const auto local = static_cast<int>(hosts.ranks_of(hosts.host_of(outer->rank())).size());
  TRIREME_CHECK(inner->size() == local && inner->rank() == hosts.local_rank_of(outer->rank()),
                "the group within the host of rank ", outer->rank(), " has rank ", inner->rank(),
                " of ", inner->size(), "; expected rank ", hosts.local_rank_of(outer->rank()),
                " of ", local);
  if (hosts.num_hosts() == 1) return recorded(std::move(inner), std::move(recorder));
  return std::make_unique<HierarchicalCommunicator>(std::move(inner), std::move(outer), hosts, name,
                                                    std::move(recorder));
}

HierarchicalCommunicator::HierarchicalCommunicator(std::unique_ptr<Communicator> inner,
                                                   std::unique_ptr<Communicator> outer,
                                                   const HostMap& hosts, std::string name,
                                                   GroupRecorder recorder)
    : inner_(std::move(inner)),
      outer_(std::move(outer)),
      hosts_(hosts),
      name_(std::move(name)),
      collectives_(*inner_, *outer_, hosts_),
      sent_(outer_->size()),
      queue_([this] { abort("group " + name_ + " was aborted"); }) {
  record_in(std::move(recorder));
}

HierarchicalCommunicator::~HierarchicalCommunicator() = default;

void HierarchicalCommunicator::abort(const std::string& reason) {
  outer_->abort(reason);
  inner_->abort(reason);
}

std::string HierarchicalCommunicator::known_loss() const {
  const auto* const inner = dynamic_cast<const KnowsLosses*>(inner_.get());
  return inner == nullptr ? "" : inner->known_loss();
}

Communicator& HierarchicalCommunicator::path_to(int peer) const {
  return hosts_.host_of(peer) == hosts_.host_of(rank()) ? *inner_ : *outer_;
}

int HierarchicalCommunicator::rank_on_path(int peer) const {
  return &path_to(peer) == inner_.get() ? hosts_.local_rank_of(peer) : peer;
}

// A failure on one of the two groups must also fail the other, or its ranks would wait.
template <typename Operation>
auto HierarchicalCommunicator::guarded(const std::string& what, Operation&& operation) {
  try {
    return operation();
  } catch (const CommError& error) {
    const std::string reason = concat(what, " of group ", name_, " (rank ", rank(), " of ", size(),
                                      ", hierarchical): ", error.what());
    abort(reason);
    throw CommError(reason);
  }
}

void HierarchicalCommunicator::carry_out(const Collective& call) {
  const FlatCollective operands(call);
  const at::Tensor flat = operands.data.flat();
  const std::string what = to_string(call.compared);
  guarded(concat(what, " #", ++sequence_), [&] {
    const auto told = collectives_.agree(what, call.options.timeout, told_by(call, flat));
    if (!told.empty()) {
      carry_out_told(call, operands, told);
    } else {
      carry_out_agreed(call, operands);
    }
  });
  operands.commit(call, rank());
}

void HierarchicalCommunicator::carry_out_told(const Collective& call,
                                              const FlatCollective& operands,
                                              const std::vector<at::Tensor>& told) {
  const at::Tensor flat = operands.data.flat();
  switch (call.kind) {
    case Kind::kAllReduce: collectives_.reduce_told(flat, told, call.options.operation); break;
    case Kind::kBroadcast:
      if (rank() != call.peer) flat.copy_(told[call.peer].view(flat.scalar_type()));
      break;
    default:  // all_gather
      for (int i = 0; i < size(); ++i) {
        const at::Tensor target = operands.outputs.flat(i);
        target.copy_(told[i].view(target.scalar_type()).narrow(0, 0, target.numel()));
      }
  }
}

void HierarchicalCommunicator::carry_out_agreed(const Collective& call,
                                                const FlatCollective& operands) {
  const at::Tensor flat = operands.data.flat();
  // This rank's part of a reduction.
  const auto reduced = [&](const std::vector<at::Tensor>& blocks) {
    const at::Tensor mine = at::empty_like(blocks[rank()]);
    collectives_.reduce_blocks(mine, blocks, call.options.operation);
    return mine;
  };
  switch (call.kind) {
    case Kind::kAllReduce: {
      const auto blocks = view_even_blocks(flat, size());
      blocks[rank()].copy_(reduced(blocks));
      collectives_.all_gather_blocks(blocks);
      break;
    }
    case Kind::kReduce: {
      const auto blocks = view_even_blocks(flat, size());
      std::vector<at::Tensor> to(size());
      to[call.peer] = reduced(blocks);
      collectives_.exchange(to, rank() == call.peer ? blocks : std::vector<at::Tensor>(size()),
                            flat.scalar_type());
      break;
    }
    case Kind::kBroadcast: collectives_.broadcast(flat, call.peer); break;
    case Kind::kAllGather: {
      const auto blocks = operands.outputs.flat();
      blocks[rank()].copy_(flat);
      collectives_.all_gather_blocks(blocks);
      break;
    }
    case Kind::kReduceScatter: flat.copy_(reduced(operands.inputs.flat())); break;
    case Kind::kAllToAll:
    case Kind::kGather:
    case Kind::kScatter: {
      const Moves moves = moves_of(call, operands);
      collectives_.exchange(moves.to, moves.from,
                            static_cast<c10::ScalarType>(call.compared.dtype));
      break;
    }
    case Kind::kBarrier: break;  // all have come
    case Kind::kSend:
    case Kind::kRecv: break;  // start()
  }
}

WorkPtr HierarchicalCommunicator::start(Collective&& call, const Recorder::Entry& entry) {
  if (call.kind == Kind::kSend) return start_send(call, entry);
  if (call.kind == Kind::kRecv) return start_recv(call, entry);
  return run_in_order(queue_.collectives(), std::move(call), entry,
                      [this](const Collective& call) { carry_out(call); });
}

WorkPtr HierarchicalCommunicator::start_sized(const Collective& call,
                                              const Recorder::Entry& entry) {
  const std::string what = to_string(call.compared);
  WorkPtr begun = run_or_fail(entry, [&] {
    return guarded(what, [&] {
      return path_to(call.peer).run(message(call.kind, call.data, rank_on_path(call.peer),
                                            sized_tag(call.options.tag), call.options.timeout));
    });
  });
  return queue_.run_beside(
      [this, what, entry, peer = call.peer, begun = std::move(begun)] {
        return run_recorded(entry, [&] {
          return guarded(what, [&] {
            begun->wait();
            return peer;
          });
        });
      },
      call.options.background);
}

WorkPtr HierarchicalCommunicator::start_send(const Collective& call, const Recorder::Entry& entry) {
  if (is_sized(call.options.tag)) return start_sized(call, entry);
  const at::Tensor& data = call.data;
  const int peer = call.peer;
  uint64_t sequence;
  {
    const std::lock_guard lock(mutex_);
    sequence = ++sent_[peer];
  }
  const std::string what = to_string(call.compared);
  const at::Tensor announcement =
      at::tensor({static_cast<int64_t>(sequence), static_cast<int64_t>(data.scalar_type()),
                  static_cast<int64_t>(data.nbytes())},
                 at::kLong);
  // Both start here, so that messages are sent in the order of the calls.
  auto works = run_or_fail(entry, [&] {
    return guarded(what, [&] {
      const auto timeout = call.options.timeout;
      std::vector<WorkPtr> begun;
      begun.push_back(outer_->run(
          message(Kind::kSend, announcement, peer, announcement_tag(call.options.tag), timeout)));
      if (data.numel() > 0) {
        begun.push_back(path_to(peer).run(
            message(Kind::kSend, data, rank_on_path(peer), data_tag(sequence), timeout)));
      }
      return begun;
    });
  });
  return queue_.run_beside(
      [this, what, entry, announcement, works = std::move(works)] {
        run_recorded(entry, [&] {
          guarded(what, [&] {
            for (const WorkPtr& work : works) work->wait();
          });
        });
        return -1;
      },
      call.options.background);
}

WorkPtr HierarchicalCommunicator::start_recv(const Collective& call, const Recorder::Entry& entry) {
  if (is_sized(call.options.tag)) return start_sized(call, entry);
  const int peer = call.peer;
  const auto timeout = call.options.timeout;
  const at::Tensor announcement = at::empty({kAnnouncementLength}, at::kLong);
  const std::string what = to_string(call.compared);
  // Posted here, so that messages are taken in the order of the calls.
  const WorkPtr announced = run_or_fail(entry, [&] {
    return guarded(what, [&] {
      return outer_->run(
          message(Kind::kRecv, announcement, peer, announcement_tag(call.options.tag), timeout));
    });
  });
  return queue_.run_beside(
      [this, data = call.data, peer, timeout, what, entry, announcement, announced] {
        return run_recorded(entry, [&] {
          return guarded(what, [&] {
            announced->wait();
            const int source = peer == kAnySource ? announced->source() : peer;
            const auto* sent = announcement.const_data_ptr<int64_t>();
            const auto num_bytes = static_cast<int64_t>(data.nbytes());
            // Before the data is asked for: a recv of another length would fail in the transport,
            // without both sides' names.
            if (sent[1] != static_cast<int64_t>(data.scalar_type()) || sent[2] != num_bytes) {
              throw CommError(concat("rank ", source, " sends ", sent[2], " bytes of ",
                                     c10::toString(static_cast<c10::ScalarType>(sent[1])),
                                     ", rank ", rank(), " expects ", num_bytes, " of ",
                                     c10::toString(data.scalar_type())));
            }
            const int tag = data_tag(static_cast<uint64_t>(sent[0]));
            if (num_bytes > 0) {
              path_to(source)
                  .run(message(Kind::kRecv, data, rank_on_path(source), tag, timeout))
                  ->wait();
            }
            return source;
          });
        });
      },
      call.options.background);
}

at::Tensor HierarchicalCommunicator::symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return inner_->symmetric_empty(sizes, dtype);
}

std::unique_ptr<Communicator> HierarchicalCommunicator::split(int color, int key,
                                                              const std::string& name) {
  const std::vector<int> members = members_of_split(*this, color, key);
  std::vector<std::string> places;
  for (const int member : members) places.push_back(concat(hosts_.host_of(member)));
  const HostMap hosts(places);
  const GroupRecorder recorder = color < 0 ? GroupRecorder() : recorder_.split(name, members);
  const auto make = [&]() -> std::unique_ptr<Communicator> {
    auto inner = inner_->split(color, key, name);
    // A group within one host needs no connections to other hosts.
    const bool is_across = color >= 0 && hosts.num_hosts() > 1;
    auto outer = outer_->split(is_across ? color : -1, key, name);
    if (!is_across) return recorded(std::move(inner), recorder);
    return make_hierarchical_group(std::move(inner), std::move(outer), hosts, name, recorder);
  };
  return guarded("splitting " + name, [&] { return recorder.join(make); });
}

}  // namespace trireme::comm
