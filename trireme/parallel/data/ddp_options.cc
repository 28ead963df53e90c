#include "trireme/parallel/data/ddp_options.h"

#include "trireme/base/error.h"

namespace trireme::parallel {

void check_options(const DdpOptions& options, bool has_replicas) {
  TRIREME_CHECK(options.zero >= 0 && options.zero <= 3, "zero is ", options.zero,
                "; expected 0 (DDP), 1, 2 or 3");
  TRIREME_CHECK(options.max_gathered_units >= 1, "max_gathered_units is ",
                options.max_gathered_units, "; expected at least 1");
  TRIREME_CHECK(
      // The tree's order is the promise of `reproducible`.
      !options.hook || !options.reproducible,
      "a gradient hook sums in an order of its own, which `reproducible` forbids; leave one "
      "of them out");
  TRIREME_CHECK(
      !options.add_in_fp32 || (options.rank_first && !options.reproducible),
      "add_in_fp32 is for rank_first without `reproducible`, whose tree has one dtype; use "
      "reduce_in_fp32");
  TRIREME_CHECK(!options.weights_home || options.zero == 3, "weights_home needs zero = 3, not ",
                options.zero, ": other stages use whole parameters all the time");
  TRIREME_CHECK(!options.gradients_home || options.zero >= 2,
                "gradients_home needs zero = 2 or 3, not ", options.zero,
                ": other stages keep whole gradients");
  TRIREME_CHECK(!options.hook || options.zero == 0 || !has_replicas,
                "a gradient hook sums over one group, but the shard group has replicas; shard over "
                "all ranks, or leave the hook out");
}

}  // namespace trireme::parallel
