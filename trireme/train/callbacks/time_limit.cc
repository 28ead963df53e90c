#include "trireme/train/callbacks/time_limit.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::train {

void TimeLimit::on_start(RunView& /*run*/) { start_ = last_ = now_(); }

void TimeLimit::on_step(RunView& run) {
  const Clock::time_point now = now_();
  longest_step_ = std::max(longest_step_, now - last_);
  last_ = now;
  const auto limit = std::chrono::seconds(config_.time_limit_seconds);
  if (now - start_ + longest_step_ + longest_checkpoint_ < limit) return;
  run.stop(concat("train.time_limit_seconds (", config_.time_limit_seconds,
                  ") leaves no time for another step"),
           /*for_good=*/false);
}

void TimeLimit::on_checkpoint(RunView& run, const std::filesystem::path& /*checkpoint*/) {
  const Clock::time_point now = now_();
  // A checkpoint written during training took longer than the time that training waited for it.
  const std::chrono::duration<double> written(run.longest_save_seconds());
  longest_checkpoint_ = std::max(
      {longest_checkpoint_, now - last_, std::chrono::duration_cast<Clock::duration>(written)});
  last_ = now;
}

}  // namespace trireme::train
