#include "trireme/comm/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm {
namespace {

// Tags on both groups: of the user's announcements, of message data, and of the collectives.
constexpr int kMostTag = (1 << 26) - 1;
constexpr int announcement_tag(int tag) { return 4 * tag; }
constexpr int data_tag(uint64_t sequence) {
  return static_cast<int>(4 * (sequence & kMostTag) + 1);
}

// A message's announcement: number, dtype and bytes.
constexpr int kAnnouncementLength = 3;

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

template <typename Operation>
WorkPtr HierarchicalCommunicator::issue(const Call& call, const at::Tensor& tensor,
                                        const Options& options, Operation operation) {
  auto run = recorder_.issue(
      call, tensor, options,
      [this, what = to_string(call), timeout = options.timeout, operation = std::move(operation)] {
        guarded(concat(what, " #", ++sequence_), [&] {
          collectives_.agree(what, timeout);
          operation();
        });
      });
  return queue_.run_in_order(std::move(run), options.background);
}

WorkPtr HierarchicalCommunicator::all_reduce(at::Tensor data, Options options) {
  const auto call = reduce_call("all_reduce", data, data.numel(), options.operation);
  return issue(call, data, options, [this, data, options] {
    const FlatTensor target(data);
    const auto blocks = view_even_blocks(target.flat(), size());
    const at::Tensor mine = at::empty_like(blocks[rank()]);
    collectives_.reduce_blocks(mine, blocks, options.operation);
    blocks[rank()].copy_(mine);
    collectives_.all_gather_blocks(blocks);
    target.commit();
  });
}

WorkPtr HierarchicalCommunicator::reduce(at::Tensor data, int root, Options options) {
  check_rank("reduce", *this, root);
  const auto call = reduce_call("reduce", data, data.numel(), options.operation, root);
  return issue(call, data, options, [this, data, root, options] {
    const FlatTensor target(data);
    const auto blocks = view_even_blocks(target.flat(), size());
    const at::Tensor mine = at::empty_like(blocks[rank()]);
    collectives_.reduce_blocks(mine, blocks, options.operation);
    std::vector<at::Tensor> to(size());
    to[root] = mine;
    collectives_.exchange(to, rank() == root ? blocks : std::vector<at::Tensor>(size()),
                          data.scalar_type());
    if (rank() == root) target.commit();
  });
}

WorkPtr HierarchicalCommunicator::broadcast(at::Tensor data, int root, Options options) {
  check_rank("broadcast", *this, root);
  const auto call = call_of("broadcast", data, data.numel(), root);
  return issue(call, data, options, [this, data, root] {
    const FlatTensor target(data);
    collectives_.broadcast(target.flat(), root);
    if (rank() != root) target.commit();
  });
}

WorkPtr HierarchicalCommunicator::all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                                             Options options) {
  check_one_a_rank("all_gather", *this, outputs);
  check_cpu_tensor("all_gather", input);
  check_own_block("all_gather", *this, outputs, input);
  const auto call = in_blocks(call_of("all_gather", input, total_elements(outputs)), outputs);
  return issue(call, input, options, [this, outputs, input] {
    const FlatTensors targets(outputs);
    targets.flat(rank()).copy_(flat_of(input));
    collectives_.all_gather_blocks(targets.flat());
    targets.commit();
  });
}

WorkPtr HierarchicalCommunicator::reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                                                 Options options) {
  check_one_a_rank("reduce_scatter", *this, inputs);
  auto call = reduce_call("reduce_scatter", output, total_elements(inputs), options.operation);
  check_own_block("reduce_scatter", *this, inputs, output);
  return issue(in_blocks(call, inputs), output, options, [this, output, inputs, options] {
    const at::Tensor mine = at::empty({output.numel()}, output.options().requires_grad(false));
    collectives_.reduce_blocks(mine, flat_of(inputs), options.operation);
    output.detach().copy_(mine.view(output.sizes()));
  });
}

WorkPtr HierarchicalCommunicator::all_to_all(std::vector<at::Tensor> outputs,
                                             std::vector<at::Tensor> inputs, Options options) {
  check_one_a_rank("all_to_all", *this, outputs);
  check_one_a_rank("all_to_all", *this, inputs);
  check_dtypes("all_to_all", outputs, inputs[0]);
  check_dtypes("all_to_all", inputs, inputs[0]);
  return issue(call_of("all_to_all", inputs[0]), inputs[0], options, [this, outputs, inputs] {
    const FlatTensors targets(outputs);
    collectives_.exchange(flat_of(inputs), targets.flat(), inputs[0].scalar_type());
    targets.commit();
  });
}

WorkPtr HierarchicalCommunicator::gather(std::vector<at::Tensor> outputs, at::Tensor input,
                                         int root, Options options) {
  check_rank("gather", *this, root);
  check_cpu_tensor("gather", input);
  if (rank() == root) {
    check_one_a_rank("gather", *this, outputs);
    check_dtypes("gather", outputs, input);
  }
  return issue(call_of("gather", input, -1, root), input, options, [this, outputs, input, root] {
    const FlatTensors targets(rank() == root ? outputs : std::vector<at::Tensor>{});
    std::vector<at::Tensor> to(size());
    to[root] = flat_of(input);
    auto from = targets.flat();
    from.resize(size());
    collectives_.exchange(to, from, input.scalar_type());
    targets.commit();
  });
}

WorkPtr HierarchicalCommunicator::scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                                          int root, Options options) {
  check_rank("scatter", *this, root);
  check_cpu_tensor("scatter", output);
  if (rank() == root) {
    check_one_a_rank("scatter", *this, inputs);
    check_dtypes("scatter", inputs, output);
  }
  return issue(call_of("scatter", output, -1, root), output, options, [this, output, inputs, root] {
    const FlatTensor target(output);
    auto to = flat_of(rank() == root ? inputs : std::vector<at::Tensor>{});
    to.resize(size());
    std::vector<at::Tensor> from(size());
    from[root] = target.flat();
    collectives_.exchange(to, from, output.scalar_type());
    target.commit();
  });
}

WorkPtr HierarchicalCommunicator::send(at::Tensor data, int peer, Options options) {
  check_peer("send", *this, peer);
  const Call call = call_of("send", data, data.numel());
  TRIREME_CHECK(options.tag >= 0 && options.tag <= kMostTag, "send: tag ", options.tag,
                "; expected 0 to ", kMostTag);
  uint64_t sequence;
  {
    const std::lock_guard lock(mutex_);
    sequence = ++sent_[peer];
  }
  const std::string what = to_string(call);
  const auto entry = recorder_.issue_message(call, peer, data.sizes(), options);
  const at::Tensor announcement =
      at::tensor({static_cast<int64_t>(sequence), static_cast<int64_t>(data.scalar_type()),
                  static_cast<int64_t>(data.nbytes())},
                 at::kLong);
  Options part{.timeout = options.timeout, .background = true};
  // Both start here, so that messages are sent in the order of the calls.
  auto works = run_or_fail(entry, [&] {
    return guarded(what, [&] {
      std::vector<WorkPtr> begun;
      part.tag = announcement_tag(options.tag);
      begun.push_back(outer_->send(announcement, peer, part));
      part.tag = data_tag(sequence);
      if (data.numel() > 0) begun.push_back(path_to(peer).send(data, rank_on_path(peer), part));
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
      options.background);
}

WorkPtr HierarchicalCommunicator::recv(at::Tensor data, int peer, Options options) {
  check_source("recv", *this, peer);
  TRIREME_CHECK(options.tag >= 0 && options.tag <= kMostTag, "recv: tag ", options.tag,
                "; expected 0 to ", kMostTag);
  const at::Tensor announcement = at::empty({kAnnouncementLength}, at::kLong);
  Options part{
      .timeout = options.timeout, .tag = announcement_tag(options.tag), .background = true};
  const Call call = call_of("recv", data, data.numel());
  const std::string what = to_string(call);
  const auto entry = recorder_.issue_message(call, peer, data.sizes(), options);
  // Posted here, so that messages are taken in the order of the calls.
  const WorkPtr announced = run_or_fail(
      entry, [&] { return guarded(what, [&] { return outer_->recv(announcement, peer, part); }); });
  return queue_.run_beside(
      [this, data, peer, part, what, entry, announcement, announced]() mutable {
        return run_recorded(entry, [&] {
          return guarded(what, [&] {
            announced->wait();
            const int source = peer == kAnySource ? announced->source() : peer;
            const auto* sent = announcement.const_data_ptr<int64_t>();
            const auto num_bytes = static_cast<int64_t>(data.nbytes());
            if (sent[1] != static_cast<int64_t>(data.scalar_type()) || sent[2] != num_bytes) {
              throw CommError(concat("rank ", source, " sends ", sent[2], " bytes of ",
                                     c10::toString(static_cast<c10::ScalarType>(sent[1])),
                                     ", rank ", rank(), " expects ", num_bytes, " of ",
                                     c10::toString(data.scalar_type())));
            }
            part.tag = data_tag(static_cast<uint64_t>(sent[0]));
            if (num_bytes > 0) path_to(source).recv(data, rank_on_path(source), part)->wait();
            return source;
          });
        });
      },
      options.background);
}

WorkPtr HierarchicalCommunicator::barrier(Options options) {
  return issue({"barrier"}, {}, options, [] {});
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
