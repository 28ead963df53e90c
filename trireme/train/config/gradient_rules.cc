// What a config whose ranks do not plainly add their gradients must be.
#include <string>

#include "trireme/base/error.h"
#include "trireme/train/config/config.h"
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
  const auto refuse = [&](bool is_set, const std::string& what, const char* why,
                          const char* remedy) {
    TRIREME_CHECK(!is_set, feature, " with ", what, ": ", why, "; ", remedy);
  };
  const char* const choose_one = "set one of them to its default";
  refuse(signs != SignsOf::kNothing && !is_sum,
         "optimizer.name = \"" + config.optimizer.name + "\"",
         "that optimizer has an exchange of its own", choose_one);
  refuse(train.compression != parallel::Compression::kNone,
         "train.compression = \"" + name_of(parallel::kCompressions, train.compression) + "\"",
         "each sums gradients in its own way", choose_one);
  refuse(train.reproducible, "train.reproducible", "it sums in another order", choose_one);
  refuse(train.measure_noise, "train.measure_noise", "it compares gradients with their sum",
         choose_one);
  refuse(parallel.zero > 0 && parallel.shard != sample_ranks(parallel),
         concat("parallel.shard = ", parallel.shard, " of ", sample_ranks(parallel), " data ranks"),
         "it is over all of them at once", "set parallel.shard = 0");
  refuse(parallel.servers > 0 && parallel.served == Served::kAll,
         concat("parallel.servers = ", parallel.servers), "servers add up what workers push",
         "set it to 0");
  if (signs == SignsOf::kNothing) return;
  refuse(train.precision == c10::kHalf, "train.precision = \"fp16\"",
         "its loss scale changes what a residual means", "use bf16");
  refuse(train.skip_bad_steps > 0, concat("train.skip_bad_steps = ", train.skip_bad_steps),
         "a residual takes up the gradient of a step that is skipped", choose_one);
  refuse(config.optimizer.state_dtype != StateDtype::kFp32,
         "optimizer.state_dtype = \"" + name_of(kStateDtypes, config.optimizer.state_dtype) + "\"",
         "ranks exchange the momentum that the states hold", "set it to fp32");
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
