#include "trireme/comm/net/paced_link.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 2;

// The later time; kNever where the sum would be later still.
int64_t after(int64_t start_ns, double nanoseconds) {
  const double end = static_cast<double>(start_ns) + nanoseconds;
  if (end >= static_cast<double>(kNever)) return kNever;
  return start_ns + std::llround(nanoseconds);
}

}  // namespace

PacedLink::PacedLink(const LinkShape& shape, RandomKey key)
    : shape_(shape),
      loss_key_(random_key(key.value, "loss")),
      jitter_key_(random_key(key.value, "jitter")),
      free_ns_(std::numeric_limits<int64_t>::min()),
      last_arrival_ns_(std::numeric_limits<int64_t>::min()) {
  TRIREME_ASSERT(shape.rate > 0 && shape.loss >= 0 && shape.loss <= kMostLoss &&
                     shape.delay.count() >= 0 && shape.jitter.count() >= 0,
                 "a line of ", shape.rate, " bits/s, loss ", shape.loss, ", delay ",
                 shape.delay.count(), " ns, jitter ", shape.jitter.count(), " ns");
}

void PacedLink::worsen(std::chrono::nanoseconds delay, double loss) {
  TRIREME_ASSERT(delay.count() >= 0 && loss >= 0 && loss <= 1, "a further delay of ", delay.count(),
                 " ns, loss ", loss);
  further_delay_ns_ = static_cast<double>(delay.count());
  further_loss_ = loss;
}

PacedLink::Passage PacedLink::send(int64_t now_ns, size_t num_bytes) {
  // Counts packets that are dropped too: the fate of a later one does not depend on them.
  const uint64_t number = num_offered_++;
  const int64_t start_ns = std::max(now_ns, free_ns_);
  const double waiting_seconds = static_cast<double>(start_ns - now_ns) / 1e9;
  if (waiting_seconds * shape_.rate / 8 > shape_.queue_bytes) {
    ++counts_.dropped;
    return {Fate::kDropped, start_ns};
  }
  free_ns_ = after(start_ns, 8e9 * static_cast<double>(num_bytes) / shape_.rate);
  ++counts_.packets;
  counts_.bytes += num_bytes;
  const double jitter_ns =
      static_cast<double>(shape_.jitter.count()) * random_uniform(jitter_key_, number);
  const double delay_ns = static_cast<double>(shape_.delay.count()) + further_delay_ns_;
  const int64_t arrival_ns = std::max(last_arrival_ns_, after(free_ns_, delay_ns + jitter_ns));
  last_arrival_ns_ = arrival_ns;
  const double loss = 1 - (1 - shape_.loss) * (1 - further_loss_);
  if (random_uniform(loss_key_, number) >= loss) return {Fate::kArrives, arrival_ns};
  ++counts_.lost;
  return {Fate::kLost, arrival_ns};
}

}  // namespace trireme::comm
