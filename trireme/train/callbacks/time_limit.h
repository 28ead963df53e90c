// Ends a run with a checkpoint before its time is over, such as a job's in a queue.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"
#include "trireme/train/callbacks/callback.h"

namespace trireme::train {

struct TimeLimitConfig {
  TRIREME_KEYS_BEGIN(TimeLimitConfig)
  TRIREME_KEY(int64_t, time_limit_seconds, 0, kMayChange,
              "time limit of this start, in seconds; the run saves and stops in time, and the next "
              "start continues; 0 = no limit",
              Range{0, kMaxSeconds})
  TRIREME_KEYS_END()
};

// The time counts from the first step of this start. Another step, with its evaluation, and another
// checkpoint must fit, judged by the longest so far.
class TimeLimit final : public Callback {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = Clock::time_point (*)();

  explicit TimeLimit(Now now = Clock::now) : now_(now) {}
  std::unique_ptr<Callback> clone() const override { return std::make_unique<TimeLimit>(*this); }
  void add_keys(Keys& keys) override { keys.add("train", config_); }
  bool is_on() const override { return config_.time_limit_seconds > 0; }
  void on_start(RunView& run) override;
  void on_step(RunView& run) override;
  void on_checkpoint(RunView& run, const std::filesystem::path& checkpoint) override;

 private:
  Now now_;
  TimeLimitConfig config_;
  Clock::time_point start_{};
  Clock::time_point last_{};  // the end of the last step or checkpoint
  Clock::duration longest_step_{};
  Clock::duration longest_checkpoint_{};
};

}  // namespace trireme::train
