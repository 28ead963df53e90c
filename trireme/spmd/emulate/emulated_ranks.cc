#include "trireme/spmd/emulate/emulated_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/comm/background_work.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::spmd {
namespace {

using comm::Collective;
using comm::Communicator;
using Kind = Collective::Kind;

// Whose turn it is. A rank's thread runs only in its turn.
class Turns {
 public:
  explicit Turns(int size) : states_(size), waits_(size) {}

  void begin(int rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == rank; });
  }
  // Gives the turn to another and returns when `rank` has it again, after wake().
  // Throws: CommError when nobody can run, or a rank has failed
  void wait(int rank, const std::string& what) {
    std::unique_lock lock(mutex_);
    states_[rank] = State::kWaits;
    waits_[rank] = what;
    pass_on();
    changed_.wait(lock, [&] { return turn_ == rank; });
    if (!failure_.empty()) throw CommError(failure_);
  }
  void wake(int rank) {
    const std::lock_guard lock(mutex_);
    states_[rank] = State::kReady;
  }
  void end(int rank, const std::string& failure) {
    const std::lock_guard lock(mutex_);
    states_[rank] = State::kEnded;
    if (!failure.empty()) fail(concat("rank ", rank, " has failed: ", failure));
    pass_on();
  }

 private:
  enum class State { kReady, kWaits, kEnded };

  void fail(const std::string& failure) {
    if (failure_.empty()) failure_ = failure;
    for (State& state : states_) {
      if (state == State::kWaits) state = State::kReady;
    }
  }
  // To the first rank that can run.
  void pass_on() {
    auto next = std::ranges::find(states_, State::kReady);
    if (next == states_.end() && std::ranges::find(states_, State::kWaits) != states_.end()) {
      fail(described());
      next = std::ranges::find(states_, State::kReady);
    }
    turn_ = next == states_.end() ? -1 : static_cast<int>(next - states_.begin());
    changed_.notify_all();
  }
  std::string described() const {
    std::string text = "no rank can go on:";
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      const bool waits = states_[rank] == State::kWaits;
      text += concat(rank == 0 ? " rank " : ", rank ", rank,
                     waits ? " waits in " + waits_[rank] : " has ended");
    }
    return text;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
  std::vector<State> states_;
  std::vector<std::string> waits_;
  std::string failure_;
};

at::Tensor sum_of(const std::vector<at::Tensor>& terms, comm::ReduceOp operation) {
  std::vector<at::Tensor> whole;
  std::vector<const void*> inputs;
  for (const at::Tensor& term : terms)
    inputs.push_back(whole.emplace_back(term.contiguous()).const_data_ptr());
  at::Tensor total = at::empty(terms[0].sizes(), terms[0].options());
  void* out = total.mutable_data_ptr();
  comm::reduce_in_rank_order({&out, 1}, inputs, total.numel(), total.scalar_type(), operation);
  return total;
}

// Carries out a collective on the calls of all its ranks.
void carry_out(std::vector<Collective>& calls) {
  const c10::NoGradGuard no_gradient;
  const size_t size = calls.size();
  const Kind kind = calls[0].kind;
  const auto root = static_cast<size_t>(std::max(calls[0].peer, 0));
  const comm::ReduceOp operation = calls[0].options.operation;
  const auto data = [&] {
    std::vector<at::Tensor> all;
    for (const Collective& call : calls) all.push_back(call.data);
    return all;
  };
  if (kind == Kind::kAllReduce || kind == Kind::kReduce) {
    const at::Tensor total = sum_of(data(), operation);
    for (size_t r = 0; r < size; ++r) {
      if (kind == Kind::kAllReduce || r == root) calls[r].data.copy_(total);
    }
  }
  for (size_t r = 0; r < size; ++r) {
    if (kind == Kind::kBroadcast && r != root) calls[r].data.copy_(calls[root].data);
    if (kind == Kind::kScatter) calls[r].data.copy_(calls[root].inputs[r]);
    if (kind == Kind::kReduceScatter) {
      std::vector<at::Tensor> terms;
      for (const Collective& call : calls) terms.push_back(call.inputs[r]);
      calls[r].data.copy_(sum_of(terms, operation));
    }
    const bool gathers = kind == Kind::kAllGather || (kind == Kind::kGather && r == root);
    for (size_t from = 0; from < size; ++from) {
      if (gathers) calls[r].outputs[from].copy_(calls[from].data);
      if (kind == Kind::kAllToAll) calls[r].outputs[from].copy_(calls[from].inputs[r]);
    }
  }
}

// What the ranks of a group share.
struct Group {
  Group(std::string called, std::vector<int> in_world, std::shared_ptr<Turns> whose)
      : name(std::move(called)), world_ranks(std::move(in_world)), turns(std::move(whose)) {}

  std::string name;
  std::vector<int> world_ranks;
  std::shared_ptr<Turns> turns;
  // Of the call that the ranks are in.
  std::map<int, Collective> calls{};
  std::map<int, std::pair<int, int>> asked{};                   // color and key, by rank
  std::vector<std::pair<std::shared_ptr<Group>, int>> parts{};  // what split() gives each rank
  std::string failure{};
};

class EmulatedCommunicator final : public Communicator {
 public:
  EmulatedCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->world_ranks.size()); }
  const std::string& name() const override { return group_->name; }
  bool reduces_in_rank_order() const override { return true; }

  comm::WorkPtr run(Collective call) override {
    check(call, c10::DeviceType::CPU);
    TRIREME_CHECK(!call.is_message(), comm::name_of(call.kind), " in group ", name(),
                  ": messages between two ranks are not emulated; expected collectives");
    const std::string what = to_string(call.compared);
    group_->calls[rank_] = std::move(call);
    meet(what, std::ssize(group_->calls) == size(), [&] {
      std::vector<Collective> calls;
      for (auto& [rank, each] : group_->calls) calls.push_back(std::move(each));
      group_->calls.clear();
      for (size_t rank = 1; rank < calls.size(); ++rank) {
        const auto& first = calls[0].compared;
        const bool is_same = to_string(calls[rank].compared) == to_string(first) &&
                             calls[rank].compared.root == first.root &&
                             calls[rank].compared.block_sizes == first.block_sizes;
        if (is_same) continue;
        throw CommError(concat("the ranks of group ", name(), " call different operations: rank 0 ",
                               to_string(first), ", rank ", rank, " ",
                               to_string(calls[rank].compared)));
      }
      carry_out(calls);
    });
    const auto work =
        std::make_shared<comm::PendingWork>(std::make_shared<comm::AbortSwitch>([] {}));
    work->finish(nullptr);
    return work;
  }

  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override {
    return at::empty(sizes, dtype);
  }
  void abort(const std::string& reason) override { group_->failure = reason; }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    group_->asked[rank_] = {color, key};
    meet(concat("split(", name, ")"), std::ssize(group_->asked) == size(), [&] {
      group_->parts.assign(size(), {});
      for (const auto& [rank, asked] : group_->asked) {
        if (asked.first < 0 || group_->parts[rank].first) continue;
        make_part(name, members_of(asked.first));
      }
      group_->asked.clear();  // a rank may ask again before others have their part
    });
    const auto [part, own] = std::move(group_->parts[rank_]);
    return part ? std::make_unique<EmulatedCommunicator>(part, own) : nullptr;
  }

 private:
  // Waits for the others; the last one does `act` and wakes them.
  template <typename Act>
  void meet(const std::string& what, bool is_last, const Act& act) {
    if (!group_->failure.empty()) throw CommError(group_->failure);
    const int own = group_->world_ranks[rank_];
    if (!is_last) {
      group_->turns->wait(own, concat(what, " of group ", name()));
      return;
    }
    act();
    for (const int other : group_->world_ranks) {
      if (other != own) group_->turns->wake(other);
    }
  }
  // Ranks of this group, in the order of their keys.
  std::vector<int> members_of(int color) const {
    std::vector<std::pair<int, int>> order;  // key, rank
    for (const auto& [rank, asked] : group_->asked) {
      if (asked.first == color) order.emplace_back(asked.second, rank);
    }
    std::ranges::sort(order);
    std::vector<int> members;
    for (const auto& [key, rank] : order) members.push_back(rank);
    return members;
  }
  void make_part(const std::string& name, const std::vector<int>& members) {
    std::vector<int> in_world;
    for (const int member : members) in_world.push_back(group_->world_ranks[member]);
    const auto part = std::make_shared<Group>(name, in_world, group_->turns);
    for (size_t i = 0; i < members.size(); ++i)
      group_->parts[members[i]] = {part, static_cast<int>(i)};
  }

  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

void emulate_ranks(int size, const std::function<void(Communicator& world)>& function) {
  TRIREME_CHECK(size >= 1, "a world needs at least one rank, got ", size);
  const auto turns = std::make_shared<Turns>(size);
  std::vector<int> all(size);
  for (int rank = 0; rank < size; ++rank) all[rank] = rank;
  const auto group = std::make_shared<Group>("world", all, turns);
  std::exception_ptr first;
  const auto run = [&](int rank) {
    turns->begin(rank);
    std::string failure;
    try {
      EmulatedCommunicator world(group, rank);
      function(world);
    } catch (const std::exception& error) {
      if (!first) first = std::current_exception();
      failure = error.what();
    } catch (...) {
      if (!first) first = std::current_exception();
      failure = "an unknown exception";
    }
    turns->end(rank, failure);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace trireme::spmd
