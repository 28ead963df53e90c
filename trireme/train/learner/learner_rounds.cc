#include "trireme/train/learner/learner_rounds.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/objects.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::train {
namespace {

using comm::RoundOutcome;
using comm::wire::Bytes;
using comm::wire::RoundBytes;

// How long a run that has ended waits for the service.
constexpr std::chrono::seconds kLastWait{5};

// What all learners must have in common, a line for each thing.
std::string describe_run(const RunConfig& config) {
  std::string text = common_settings(config);
  for (const auto& [name, value] : identify_samples(config.task->training()).checksums) {
    text += concat("the data's ", name, " = ", value, '\n');
  }
  return text;
}

std::span<const uint8_t> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const uint8_t*>(tensor.const_data_ptr()),
          static_cast<size_t>(tensor.nbytes())};
}

// For the service; 0: rounds wait for all.
int quorum_of(const RunConfig& config) {
  if (!config.outer.is_decoupled()) return 0;
  return static_cast<int>(config.outer.quorum > 0 ? config.outer.quorum : config.parallel.learners);
}

Bytes joined(const std::vector<at::Tensor>& parts) {
  Bytes all;
  for (const at::Tensor& part : parts) {
    const auto bytes = bytes_of(part);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

}  // namespace

LearnerRounds::LearnerRounds(const RunConfig& config, comm::Communicator& ranks)
    : config_(config), ranks_(ranks) {}

bool LearnerRounds::do_all(bool is_true) {
  return std::ranges::min(gather(ranks_, {is_true ? 1.0 : 0.0})) > 0;
}

void LearnerRounds::enroll(const LearnerState& state, int64_t step, int64_t last_step,
                           std::chrono::milliseconds timeout) {
  last_step_ = last_step;
  const std::vector<std::string> names = comm::all_gather_strings(ranks_, unique_name());
  client_ = std::make_unique<comm::RoundClient>(
      comm::RoundClientOptions{.address = config_.outer.meeting,
                               .timeout = timeout,
                               .is_stopped = [this] { return is_stopped(); }},
      comm::RoundMember{.place = static_cast<int>(config_.outer.place),
                        .num_places = static_cast<int>(config_.parallel.learners),
                        .rank = ranks_.rank(),
                        .num_ranks = ranks_.size(),
                        .process = names.front(),
                        .run = describe_run(config_),
                        .step = step,
                        .hash = state.common_hash(),
                        .last_step = last_step,
                        .quorum = quorum_of(config_),
                        .grace_ms = std::llround(config_.outer.grace_seconds * 1000)});
}

// False: it was stopped.
bool LearnerRounds::waits(const std::function<void()>& wait) const {
  try {
    wait();
    return true;
  } catch (const CommError&) {
    if (!is_stopped()) throw;
    return false;
  }
}

std::optional<int64_t> LearnerRounds::join(LearnerState& state, int64_t step, int64_t last_step,
                                           const std::function<bool()>& is_stopped) {
  is_stopped_ = is_stopped;
  const bool is_here = waits([&] {
    enroll(state, step, last_step, std::chrono::seconds(config_.parallel.timeout_seconds));
  });
  const std::optional<int64_t> taken =
      do_all(is_here) ? settle(state, /*keeps_message=*/false) : std::nullopt;
  is_stopped_ = nullptr;
  return taken;
}

void LearnerRounds::come_back(const LearnerState& state, int64_t last_step) {
  try {
    enroll(state, last_step, last_step, kLastWait);
    client_->await_welcome();
    client_->hand_down(last_step, bytes_of(state.common()));
  } catch (const CommError&) {
    // Without a service nobody needs it now.
  }
}

// Until this learner has the weights of the head. Rank 0 asks for all of them.
std::optional<int64_t> LearnerRounds::settle(LearnerState& state, bool keeps_message) {
  std::optional<int64_t> taken;
  while (true) {
    comm::wire::RoundWelcome welcome;
    const bool is_welcome =
        ranks_.rank() != 0 || waits([&] { welcome = client_->await_welcome(); });
    if (!do_all(is_welcome)) return taken;
    const std::vector<double> all =
        gather(ranks_, {static_cast<double>(welcome.standing), static_cast<double>(welcome.state)});
    if (static_cast<comm::RoundStanding>(static_cast<int>(all[0])) == comm::RoundStanding::kIn) {
      return taken;
    }
    const auto step = static_cast<int64_t>(all[1]);
    const at::Tensor common = state.common();
    std::optional<Bytes> bytes;
    const bool is_answered = waits([&] {
      bytes = client_->fetch(RoundBytes::kState, step, /*place=*/0,
                             static_cast<int64_t>(common.nbytes()));
    });
    if (!do_all(is_answered)) return taken;
    if (!do_all(bytes.has_value())) continue;  // a newer round has been decided
    if (!bytes->empty()) std::memcpy(common.mutable_data_ptr(), bytes->data(), bytes->size());
    state.take_common(common, std::exchange(keeps_message, false));
    parts_.clear();
    taken = step;
    if (!do_all(waits([&] { client_->enroll(step, state.common_hash()); }))) return taken;
  }
}

std::optional<int64_t> LearnerRounds::exchange(LearnerState& state, int64_t step) {
  while (!do_all(bring(step))) {
    has_counted_ = !do_all(!has_counted_);  // as all its ranks together know
    const bool keeps_message = config_.outer.is_decoupled() && !has_counted_;
    if (const auto taken = settle(state, keeps_message)) return taken;
    // The round was undone before anyone had come to its end: once more, with what was kept.
  }
  return std::nullopt;
}

// Whether all messages of the round are here, this rank's among them.
bool LearnerRounds::bring(int64_t step) {
  const Bytes mine = joined(parts_);
  // The service also refuses it once the round is decided, perhaps with a message whose answer was
  // lost. So its outcome alone counts.
  static_cast<void>(client_->send(RoundBytes::kMessage, step, mine));
  const RoundOutcome outcome = client_->await_outcome(step, mine);
  has_counted_ = outcome.kind == RoundOutcome::Kind::kDecided || outcome.has_counted;
  if (outcome.kind != RoundOutcome::Kind::kDecided) return false;
  messages_.clear();
  for (const int place : outcome.places) {
    if (place == config_.outer.place) {
      messages_.push_back(mine);
      continue;
    }
    auto theirs = client_->fetch(RoundBytes::kMessage, step, place, std::ssize(mine));
    if (!theirs) return false;
    messages_.push_back(std::move(*theirs));
  }
  places_ = outcome.places;
  donor_ = outcome.donor;
  return true;
}

void LearnerRounds::commit(const LearnerState& state, int64_t step) {
  parts_.clear();
  messages_.clear();
  client_->enroll(step, state.common_hash());
  do_all(true);  // the service takes the state of a learner whose ranks have all said that
  if (step == last_step_) return client_->hand_down(step, bytes_of(state.common()));
  if (donor_ != config_.outer.place) return;
  // Those behind ask again after the next round if this does not come through.
  static_cast<void>(client_->send(RoundBytes::kState, step, bytes_of(state.common())));
}

void LearnerRounds::leave() {
  if (client_) client_->leave();
}

size_t LearnerRounds::add(const at::Tensor& mine) {
  parts_.push_back(mine);
  return parts_.size() - 1;
}

std::vector<at::Tensor> LearnerRounds::take(size_t part) const {
  size_t begin = 0;
  for (size_t i = 0; i < part; ++i) begin += parts_[i].nbytes();
  std::vector<at::Tensor> all;
  for (const Bytes& message : messages_) {
    at::Tensor& tensor = all.emplace_back(at::empty_like(parts_[part]));
    TRIREME_ASSERT(begin + tensor.nbytes() <= message.size(), "a short message");
    if (tensor.numel() > 0) {
      std::memcpy(tensor.mutable_data_ptr(), message.data() + begin, tensor.nbytes());
    }
  }
  return all;
}

}  // namespace trireme::train
