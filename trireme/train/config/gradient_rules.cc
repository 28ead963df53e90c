// What a config whose ranks do not plainly add their gradients must be.
#include <string>

#include "trireme/base/error.h"
#include "trireme/train/config/config.h"
#include "trireme/train/config/setting_rules.h"
#include "trireme/train/optimizer/sign_schedule.h"

namespace trireme::train {
namespace {

void check_compression(const TrainConfig& train, const ParallelConfig& parallel) {
  if (train.compression == parallel::Compression::kNone) return;
  const std::string compression = name_of(parallel::kCompressions, train.compression);
  TRIREME_CHECK(!train.reproducible, "train.compression is \"", compression,
                "\" with train.reproducible, which sums in another order; set one of them to its "
                "default");
  TRIREME_CHECK(parallel.zero == 0 || parallel.shard == sample_ranks(parallel),
                "train.compression is \"", compression, "\" with parallel.shard = ", parallel.shard,
                " of ", sample_ranks(parallel),
                " data ranks; it sums over all of them at once: set parallel.shard = 0");
  const bool has_residual = parallel::keeps_residual(train.compression);
  TRIREME_CHECK(!has_residual || train.precision != c10::kHalf, "train.compression is \"",
                compression,
                "\" with train.precision = \"fp16\", whose loss scale changes what a residual "
                "means; use bf16");
  TRIREME_CHECK(!has_residual || train.skip_bad_steps == 0, "train.compression is \"", compression,
                "\" with train.skip_bad_steps; a residual takes up the gradient of a step that is "
                "skipped: set one of them to its default");
  TRIREME_CHECK(!has_residual || !train.measure_noise, "train.compression is \"", compression,
                "\" with train.measure_noise, which compares gradients with their sum; measure "
                "without compression");
}

void check_gradient_sum(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const ParallelConfig& parallel = config.parallel;
  const SignsOf signs = signs_of(config.optimizer);
  const bool is_sum = train.gradient_sum == parallel::GradientSum::kSum;
  if (is_sum && signs == SignsOf::kNothing) return;
  const std::string feature = is_sum ? "optimizer.name = \"" + config.optimizer.name + "\""
                                     : std::string("train.gradient_sum = \"adasum\"");
  const std::string choose_one = "set one of them to its default";
  const bool has_signs = signs != SignsOf::kNothing;
  const SettingRule rules[] = {
      {"optimizer.name = \"" + config.optimizer.name + "\"", has_signs && !is_sum,
       "that optimizer has an exchange of its own", choose_one},
      {"train.compression = \"" + name_of(parallel::kCompressions, train.compression) + "\"",
       train.compression != parallel::Compression::kNone, "each sums gradients in its own way",
       choose_one},
      {"train.reproducible", train.reproducible, "it sums in another order", choose_one},
      {"train.measure_noise", train.measure_noise, "it compares gradients with their sum",
       choose_one},
      {concat("parallel.shard = ", parallel.shard, " of ", sample_ranks(parallel), " data ranks"),
       parallel.zero > 0 && parallel.shard != sample_ranks(parallel),
       "it is over all of them at once", "set parallel.shard = 0"},
      {concat("parallel.servers = ", parallel.servers),
       parallel.servers > 0 && parallel.served == Served::kAll, "servers add up what workers push",
       "set it to 0"},
      {"train.precision = \"fp16\"", has_signs && train.precision == c10::kHalf,
       "its loss scale changes what a residual means", "use bf16"},
      {concat("train.skip_bad_steps = ", train.skip_bad_steps),
       has_signs && train.skip_bad_steps > 0,
       "a residual takes up the gradient of a step that is skipped", choose_one},
      {"optimizer.state_dtype = \"" + name_of(kStateDtypes, config.optimizer.state_dtype) + "\"",
       has_signs && config.optimizer.state_dtype != StateDtype::kFp32,
       "ranks exchange the momentum that the states hold", "set it to fp32"}};
  refuse_settings(feature + " with", rules);
}

}  // namespace

void check_gradients(const RunConfig& config) {
  check_compression(config.train, config.parallel);
  check_gradient_sum(config);
}

void check_gradient_order(const RunConfig& config) {
  if (config.parallel.gradient_order != GradientOrder::kRankFirst) return;
  const std::string reason = config.reason_against_rank_first();
  TRIREME_CHECK(reason.empty(), "parallel.gradient_order is \"rank-first\", and ", reason,
                "; set it to microbatch-first, or leave it out");
}

}  // namespace trireme::train
