#include "trireme/cli/plan/device_rates.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/io/async_io.h"
#include "trireme/base/io/scratch_file.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/numbers.h"
#include "trireme/cli/plan/layer_kernels.h"

namespace trireme::cli {

// All ranks measure at the same time, as they share the machine in training too. Each measurement
// has a limit of seconds, and those of the links one of bytes: over 10 Mbit/s they took 17 minutes
// before. A first call tells how many more are affordable. Ranks begin a measurement together only
// if a small call over their links is quick, since the barrier would otherwise take longer than the
// work. Whether a rank was told to stop is part of each exchange, so that all of them stop at the
// same place.

namespace {

constexpr int64_t kSizes[] = {32, 64, 128, 256, 512, 1024};
// Rows and width of a layer. Before it multiplies in bf16, libtorch packs the weight anew, which
// takes longer than the product of few rows.
struct LayerSize {
  int64_t rows;
  int64_t n;
};
constexpr LayerSize kHalfSizes[] = {{256, 512}, {2048, 256}, {2048, 512}, {2048, 1024}};
// Without bf16 instructions a large one takes seconds, and tells no more than a smaller one.
constexpr double kLongProduct = 0.1;

constexpr double kQuickLink = 0.005;  // seconds of a small call that may align every measurement
// Bytes of the all-reduces whose rate is that of the links. The next one only if it fits the limit.
constexpr int64_t kLinkSizes[] = {256 << 10, 2 << 20, 16 << 20};
constexpr int64_t kMostLarge = 20, kMostSmall = 1000;
constexpr double kLongEnough = 0.5;  // seconds, on a machine too busy for five calls
constexpr int kLeastCalls = 2;       // the first one allocates

// Times the work that a rank does without others.
class OwnWork {
 public:
  // aligns: every measurement begins on all ranks together.
  OwnWork(comm::Communicator& group, const MeasureOptions& options, bool aligns)
      : group_(group), options_(options), aligns_(aligns) {}

  // The median seconds of a call. 1 from when the rank was told to stop: work is left out.
  double time(const std::function<void()>& call) {
    if (aligns_) group_.barrier()->wait();
    if (options_.stop && options_.stop()) return 1;
    call();  // the first one allocates
    std::vector<double> times;
    const auto begin = std::chrono::steady_clock::now();
    do {
      const auto start = std::chrono::steady_clock::now();
      call();
      times.push_back(seconds_since(start));
    } while (seconds_since(begin) < options_.seconds ||
             (times.size() < 5 && seconds_since(begin) < kLongEnough));
    return median(std::move(times));
  }

 private:
  comm::Communicator& group_;
  const MeasureOptions& options_;
  bool aligns_;
};

// Times what all ranks do together, and agrees on it.
class JointWork {
 public:
  JointWork(comm::Communicator& group, const MeasureOptions& options)
      : group_(group), options_(options) {}

  // Whether a rank was told to stop, as of the last means(); the same on all ranks.
  bool is_stopped() const { return is_stopped_; }

  // Over the ranks.
  std::vector<double> means(std::vector<double> values) {
    values.push_back(options_.stop && options_.stop() ? 1 : 0);
    at::Tensor sums = at::tensor(values, at::kDouble);
    group_.all_reduce(sums)->wait();
    const double* const all = sums.const_data_ptr<double>();
    std::vector<double> result(all, all + values.size());
    for (double& value : result) value /= group_.size();
    is_stopped_ = is_stopped_ || result.back() > 0;
    result.pop_back();
    return result;
  }

  // The median seconds of an all-reduce, over as many as the limits allow: at least one, at most
  // `most`.
  double all_reduce(int64_t bytes, int64_t most) {
    at::Tensor values = at::ones({bytes / 4});
    const auto call = [&] {
      const auto start = std::chrono::steady_clock::now();
      group_.all_reduce(values)->wait();
      return seconds_since(start);
    };
    call();  // the first one allocates
    const double first = means({call()}).front();
    const double affordable =
        std::min(options_.link_seconds / first, options_.link_bytes / bytes_moved(bytes));
    const int64_t count = std::min(most, static_cast<int64_t>(affordable)) - 2;
    if (is_stopped_ || count < 1) return first;
    std::vector<double> times;
    for (int64_t i = 0; i < count; ++i) times.push_back(call());
    return means({median(std::move(times))}).front();
  }

  // Bytes sent by a rank in an all-reduce.
  double bytes_moved(int64_t bytes) const {
    const double p = group_.size();
    return 2 * (p - 1) / p * static_cast<double>(bytes);
  }

 private:
  comm::Communicator& group_;
  const MeasureOptions& options_;
  bool is_stopped_ = false;
};

// What a rank measures of itself, as means over the ranks.
class RankRates {
 public:
  RankRates(OwnWork work, JointWork& joint)
      : joint_(joint), time_([work](const auto& call) mutable { return work.time(call); }) {}

  void measure(DeviceRates& rates) {
    rates.half = fit_layers(half_products());
    time_all();
    const std::vector<double> all = joint_.means(std::move(own_));
    for (size_t i = 0; i < all.size(); ++i) *means_[i] = all[i];

    rates.launch_seconds = launch_;
    std::vector<ProductRate> singles;
    for (size_t i = 0; i < squares_.size(); ++i) {
      const Products product{.n = kSizes[i]};
      singles.push_back({static_cast<double>(product.n), product.flops() / squares_[i]});
    }
    rates.single = fit_products(singles);
    rates.attention = curve_of(0);
    rates.half_attention = curve_of(1);
    rates.head = rate_of_head(head_[0]);
    rates.half_head = rate_of_head(head_[1]);
    rates.loss_bytes = Head::bytes_of_loss() / loss_;
    rates.update_bytes = Update{kTypes[0]}.bytes_per_second(update_[0]);
    rates.half_update_bytes = Update{kTypes[1]}.bytes_per_second(update_[1]);
    rates.memory_bytes = Memory::bytes_per_second(memory_);
    rates.half_memory_bytes = Elementwise::bytes_per_second(half_memory_);
  }

 private:
  static constexpr c10::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};
  static constexpr int64_t kLengths[] = {256, 1024};
  // Nearly all of the narrow one's time is the loss's.
  static constexpr int64_t kHeadWidth = 512, kNarrowHead = 16;

  void time_all() {
    add(launch_, launch_seconds(time_));
    for (size_t i = 0; i < squares_.size(); ++i) {
      add(squares_[i], Products{.n = kSizes[i]}.seconds(time_));
    }
    for (const size_t type : {size_t{0}, size_t{1}}) {
      for (const size_t length : {size_t{0}, size_t{1}}) {
        add(attention_[type][length], Attention{kLengths[length], kTypes[type]}.seconds(time_));
      }
      add(head_[type], Head{kHeadWidth, kTypes[type]}.seconds(time_));
      add(update_[type], Update{kTypes[type]}.seconds(time_));
    }
    add(loss_, Head{kNarrowHead}.seconds(time_));
    add(memory_, Memory::seconds(time_));
    add(half_memory_, Elementwise::seconds(time_));
  }

  void add(double& mean, double seconds) {
    means_.push_back(&mean);
    own_.push_back(seconds);
  }

  AttentionCurve curve_of(size_t type) const {
    const auto rate = [&](size_t length) {
      const Attention attention{kLengths[length], kTypes[type]};
      return AttentionRate{static_cast<double>(attention.tokens),
                           attention.flops_per_second(attention_[type][length])};
    };
    return fit_attention(rate(0), rate(1));
  }

  double rate_of_head(double seconds) const {
    return Head{kHeadWidth}.flops() / std::max(seconds - loss_, seconds / 2);
  }

  // Those whose time the smaller ones foretell are left out if that is long.
  std::vector<ProductRate> half_products() {
    std::vector<ProductRate> rates;
    double rate = 0;
    for (const auto& [rows, n] : kHalfSizes) {
      const Products layer{.n = n, .rows = rows, .dtype = at::kBFloat16};
      const double expected = rate > 0 ? layer.flops() / rate : 0;
      const double own = expected > kLongProduct ? expected : layer.seconds(time_);
      // All ranks leave out the same sizes: they meet before each.
      rate = layer.flops() / joint_.means({own}).front();
      rates.push_back({static_cast<double>(n), rate, static_cast<double>(rows)});
    }
    return rates;
  }

  JointWork& joint_;
  TimeCall time_;
  std::vector<double*> means_;  // where they go, as own_ is ordered
  std::vector<double> own_;
  // Seconds, by type and length.
  double launch_ = 0, loss_ = 0, memory_ = 0, half_memory_ = 0;
  std::array<double, std::size(kSizes)> squares_{};
  std::array<std::array<double, 2>, 2> attention_{};
  std::array<double, 2> head_{}, update_{};
};

// of_small: seconds of a call that moves next to nothing.
double link_rate(JointWork& joint, double of_small, const MeasureOptions& options) {
  double rate = 0;
  for (const int64_t bytes : kLinkSizes) {
    const double expected = rate > 0 ? of_small + joint.bytes_moved(bytes) / rate : 0;
    if (joint.is_stopped() || kLeastCalls * expected > options.link_seconds) break;
    const double seconds = joint.all_reduce(bytes, kMostLarge);
    rate = joint.bytes_moved(bytes) / (seconds - std::min(of_small, seconds / 2));
  }
  return rate;
}

// The rate of large products for these half sizes, and the sum of its squared relative errors.
std::pair<double, double> fit_rate(std::span<const ProductRate> rates, double half_size,
                                   double half_rows) {
  // With x the curve over the measured rate, the sum of (rate x - 1)^2 is least at sum x / sum x^2.
  double sum = 0, squares = 0;
  for (const ProductRate& one : rates) {
    const double rows = one.rows > 0 ? one.rows : one.size;
    const double x =
        std::pow(one.size / (one.size + half_size), 2) * rows / (rows + half_rows) / one.flops;
    sum += x;
    squares += x * x;
  }
  const double rate = sum / squares;
  return {rate, static_cast<double>(rates.size()) - rate * sum};
}

constexpr int kHalfSizesToTry = 100;
double half_size_to_try(int i) { return 10 * (std::pow(1.04, i) - 1); }  // from 0 to 475

}  // namespace

ProductCurve fit_products(std::span<const ProductRate> rates) {
  TRIREME_ASSERT(!rates.empty(), "no rates to fit");
  ProductCurve best;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kHalfSizesToTry; ++i) {
    const double half = half_size_to_try(i);
    const auto [rate, error] = fit_rate(rates, half, half);
    if (error < least) {
      least = error;
      best = {rate, half, half};
    }
  }
  return best;
}

ProductCurve fit_layers(std::span<const ProductRate> rates) {
  TRIREME_ASSERT(!rates.empty(), "no rates to fit");
  ProductCurve best;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kHalfSizesToTry; ++i) {
    for (int k = 0; k < kHalfSizesToTry; ++k) {
      const double half = half_size_to_try(i), rows = half_size_to_try(k);
      const auto [rate, error] = fit_rate(rates, half, rows);
      if (error < least) {
        least = error;
        best = {rate, half, rows};
      }
    }
  }
  return best;
}

// 1 / flops = (1 + half / tokens) / most is linear in 1 / tokens.
AttentionCurve fit_attention(const AttentionRate& few, const AttentionRate& many) {
  const double slope = (1 / few.flops - 1 / many.flops) / (1 / few.tokens - 1 / many.tokens);
  // Neither faster with fewer tokens, nor without a limit.
  const double per_token = std::clamp(slope, 0.0, many.tokens / many.flops / 2);
  const double most = 1 / (1 / many.flops - per_token / many.tokens);
  return {most, per_token * most};
}

namespace {

// The numbers of a line, by name.
constexpr auto kNumbers = [](auto& rates, const auto& visit) {
  visit("single_flops", rates.single.flops);
  visit("half_size", rates.single.half_size);
  visit("half_flops", rates.half.flops);
  visit("bf16_half_size", rates.half.half_size);
  visit("bf16_half_rows", rates.half.half_rows);
  visit("attention_flops", rates.attention.flops);
  visit("attention_half_size", rates.attention.half_size);
  visit("bf16_attention_flops", rates.half_attention.flops);
  visit("bf16_attention_half_size", rates.half_attention.half_size);
  visit("head_flops", rates.head);
  visit("bf16_head_flops", rates.half_head);
  visit("loss_bytes", rates.loss_bytes);
  visit("update_bytes", rates.update_bytes);
  visit("bf16_update_bytes", rates.half_update_bytes);
  visit("memory_bytes", rates.memory_bytes);
  visit("bf16_memory_bytes", rates.half_memory_bytes);
  visit("launch_seconds", rates.launch_seconds);
  visit("link_bytes", rates.link_bytes);
  visit("link_seconds", rates.link_seconds);
  visit("disk_bytes", rates.disk_bytes);
  visit("resident_bytes", rates.resident_bytes);
};

}  // namespace

std::string line_of(const DeviceRates& rates) {
  nlohmann::json all;
  kNumbers(rates, [&](const char* name, double value) { all[name] = value; });
  return all.dump();
}

DeviceRates read_device_line(const std::string& line) {
  const nlohmann::json all = nlohmann::json::parse(line);
  DeviceRates rates;
  kNumbers(rates, [&](const char* name, double& value) { value = all.at(name).get<double>(); });
  return rates;
}

double resident_after_little() {
  const c10::AutoGradMode with_gradients(true);
  const at::Tensor a = at::ones({64, 64}).requires_grad_();
  at::mm(a, a).sum().backward();
  return static_cast<double>(peak_resident_bytes());
}

double measure_disk(comm::Communicator& group, const std::string& folder) {
  constexpr size_t kFile = 256 << 20, kPiece = 8 << 20, kPieces = kFile / kPiece;
  const ScratchFile file(folder, kFile);
  const std::unique_ptr<AsyncIo> io = make_async_io(file.io());
  const AlignedBytes memory = aligned_bytes(2 * kPiece);
  std::fill_n(memory.get(), 2 * kPiece, std::byte{1});
  group.barrier()->wait();
  const auto start = std::chrono::steady_clock::now();
  for (const IoKind kind : {IoKind::kWrite, IoKind::kRead}) {
    AsyncIo::Ticket last[2] = {};
    for (size_t i = 0; i < kPieces; ++i) {  // two at a time, as states are moved
      if (i >= 2) io->wait(last[i % 2]);
      last[i % 2] = io->start({.kind = kind,
                               .offset = i * kPiece,
                               .data = memory.get() + i % 2 * kPiece,
                               .num_bytes = kPiece});
    }
    for (const AsyncIo::Ticket ticket : last) io->wait(ticket);
  }
  const double rate = 2.0 * kFile / seconds_since(start);
  at::Tensor sum = at::full({1}, rate, at::kDouble);
  group.all_reduce(sum)->wait();
  return sum.item<double>() / group.size();
}

std::optional<DeviceRates> measure_device(comm::Communicator& group,
                                          const MeasureOptions& options) {
  DeviceRates rates;
  rates.resident_bytes = resident_after_little();
  JointWork joint(group, options);
  const bool has_links = group.size() > 1;
  const double of_small = has_links ? joint.all_reduce(/*bytes=*/4, kMostSmall) : 0;
  if (joint.is_stopped()) return std::nullopt;
  RankRates({group, options, /*aligns=*/of_small < kQuickLink}, joint).measure(rates);
  if (has_links) {
    rates.link_bytes = link_rate(joint, of_small, options);
    rates.link_seconds = of_small / (2.0 * (group.size() - 1));
  }
  return joint.is_stopped() ? std::nullopt : std::optional(rates);
}

}  // namespace trireme::cli
