// Length: each measurement stands beside the rate it gives.
#include "trireme/cli/plan/device_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/io/async_io.h"
#include "trireme/base/io/scratch_file.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/machine/matrix_product.h"
#include "trireme/base/numbers.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/norm.h"
#include "trireme/plan/cost/device_seconds.h"

namespace trireme::cli {

// All ranks measure at the same time, as they share the machine in training too. Each measurement
// has a limit of seconds, and those of the links one of bytes: over 10 Mbit/s they took 17 minutes
// before. A first call tells how many more are affordable. Ranks begin a measurement together only
// if a small call over their links is quick, since the barrier would otherwise take longer than the
// work. Whether a rank was told to stop is part of each exchange, so that all of them stop at the
// same place.

namespace {

constexpr int64_t kSizes[] = {32, 64, 128, 256, 512, 1024};
// A bf16 product starts in 20 us, in which a small one in fp32 is done.
constexpr int64_t kHalfSizes[] = {256, 512, 1024};
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

// Products of square matrices. As in layers, each product reads other matrices than the one before,
// so that small ones do not stay in a cache.
struct Products {
  int64_t n = 0;
  c10::ScalarType dtype = at::kFloat;

  int64_t count() const {
    constexpr int64_t kBytes = 96 << 20;
    constexpr int64_t kMost = 512;
    const int64_t of_three = 3 * n * n * static_cast<int64_t>(c10::elementSize(dtype));
    return std::clamp<int64_t>(kBytes / of_three, 2, kMost);
  }
  double flops(double seconds) const { return 2 * std::pow(static_cast<double>(n), 3) / seconds; }
  // Seconds per product, timed over as many as needed: without bf16 instructions one takes long.
  double seconds(OwnWork& work) const {
    const auto options = at::device(at::kCPU).dtype(dtype);
    const at::Tensor a = at::full({count(), n, n}, 0.5, options),
                     b = at::full({count(), n, n}, 0.25, options);
    const std::vector<at::Tensor> left = a.unbind(), right = b.unbind();
    std::vector<at::Tensor> products = at::empty({count(), n, n}, options).unbind();
    const auto multiply = [&](size_t i) {
      if (dtype == at::kFloat) {
        at::mm_out(products[i], left[i], right[i]);
      } else {
        multiply_as_layer(products[i], left[i], right[i]);
      }
    };
    multiply(0);
    const auto start = std::chrono::steady_clock::now();
    multiply(1);
    const double affordable = std::max(1.0, kLongEnough / std::max(seconds_since(start), 1e-9));
    const auto num = static_cast<size_t>(std::min(affordable, static_cast<double>(count())));
    return work.time([&] {
      for (size_t i = 0; i < num; ++i) multiply(i);
    }) / static_cast<double>(num * (dtype == at::kFloat ? 1 : 3));
  }
  // In bf16 the three products of a layer take unequal times: its output, and both gradients.
  static void multiply_as_layer(at::Tensor& out, const at::Tensor& x, const at::Tensor& w) {
    at::mm_out(out, x, w.t());
    at::mm_out(out, x, w);
    weight_product_out(out, x, w);
  }
};

// Forward and backward of the attention that models call.
struct Attention {
  c10::ScalarType dtype = at::kFloat;

  static constexpr int64_t kHeads = 6, kTokens = 512, kWidth = 64;
  static double flops(double seconds) {
    return 0.5 * 4 * kHeads * kTokens * kTokens * kWidth / seconds;
  }
  // Of forward, as the cost model splits the time of both.
  double seconds(OwnWork& work) const {
    const c10::AutoGradMode with_gradients(true);
    const at::Tensor q = at::full({1, kTokens, kHeads * kWidth}, 0.1, dtype).requires_grad_();
    const at::Tensor ones = at::ones_like(q);
    const double both = work.time([&] {
      q.mutable_grad() = at::Tensor();
      model::attention_core(q, q, q, kHeads, kHeads, {}).backward(ones);
    });
    return both / (1 + plan::attention_backward_factor(/*is_fused=*/true));
  }
};

struct Memory {
  static constexpr int64_t kElements = 16 << 20;  // no cache holds them
  static double bytes(double seconds) { return 3 * 4.0 * kElements / seconds; }
  static double seconds(OwnWork& work) {
    at::Tensor a = at::ones({kElements});
    const at::Tensor b = at::ones({kElements});
    return work.time([&] { a.add_(b); });
  }
};

// Forward and backward of a norm, its residual sum and a SwiGLU in bf16.
struct Elementwise {
  static constexpr int64_t kRows = 2048, kWidth = 512, kHidden = 1280;
  // As the cost model counts them: backward is twice forward.
  static double bytes(double seconds) {
    return 3 * 2.0 * kRows * (5 * kWidth + 4 * kHidden) / seconds;
  }
  static double seconds(OwnWork& work) {
    const c10::AutoGradMode with_gradients(true);
    const auto filled = [](int64_t width) { return at::full({kRows, width}, 0.5, at::kBFloat16); };
    const at::Tensor x = filled(kWidth).requires_grad_(), of_sum = filled(kWidth);
    const at::Tensor weight = at::ones({kWidth}, at::kBFloat16).requires_grad_();
    const at::Tensor gate = filled(kHidden).requires_grad_(), of_hidden = filled(kHidden);
    const at::Tensor up = filled(kHidden).requires_grad_();
    // SwiGLU writes its gradients over its inputs.
    const auto fill = [&] {
      for (const at::Tensor& input : {gate, up}) input.detach().fill_(0.5);
    };
    const double filling = work.time(fill);
    const double all = work.time([&] {
      for (const at::Tensor& leaf : {x, weight, gate, up}) leaf.mutable_grad() = at::Tensor();
      fill();
      const auto [residual, y] = model::rms_norm_branch(x, weight, 1e-5);
      (residual + y).backward(of_sum);
      model::swiglu(gate.view_as(gate), up.view_as(up)).backward(of_hidden);
    });
    return std::max(all - filling, all / 2);
  }
};

double launch_seconds(OwnWork& work) {
  const c10::AutoGradMode with_gradients(true);
  constexpr int kOperations = 32;
  const at::Tensor a = at::ones({16}).requires_grad_();
  // Each has one operation forward and one backward.
  return work.time([&] {
    at::Tensor x = a;
    for (int i = 0; i < kOperations; ++i) x = x * 1.01;
    x.sum().backward();
  }) / (2 * kOperations);
}

void measure_ranks_alone(OwnWork work, JointWork& joint, DeviceRates& rates) {
  std::vector<double> seconds = {launch_seconds(work)};
  {
    const c10::NoGradGuard no_grad;
    for (const int64_t n : kSizes) seconds.push_back(Products{n}.seconds(work));
    double last = 0;
    for (const int64_t n : kHalfSizes) {
      // Each size is twice the one before.
      const double expected = 8 * last;
      const double own =
          expected > kLongProduct ? expected : Products{n, at::kBFloat16}.seconds(work);
      // All ranks leave out the same sizes: they meet before each.
      last = joint.means({own}).front();
      seconds.push_back(last);
    }
    for (const c10::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      seconds.push_back(Attention{dtype}.seconds(work));
    }
    seconds.push_back(Memory::seconds(work));
    seconds.push_back(Elementwise::seconds(work));
  }
  const std::vector<double> means = joint.means(std::move(seconds));
  auto mean = means.begin();
  rates.launch_seconds = *mean++;
  const auto next_curve = [&](std::span<const int64_t> sizes) {
    std::vector<ProductRate> products;
    for (const int64_t n : sizes) {
      products.push_back({static_cast<double>(n), Products{n}.flops(*mean++)});
    }
    return fit_products(products);
  };
  rates.single = next_curve(kSizes);
  rates.half = next_curve(kHalfSizes);
  rates.attention_flops = Attention::flops(*mean++);
  rates.half_attention_flops = Attention::flops(*mean++);
  rates.memory_bytes = Memory::bytes(*mean++);
  rates.half_memory_bytes = Elementwise::bytes(*mean++);
}

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

}  // namespace

ProductCurve fit_products(std::span<const ProductRate> rates) {
  TRIREME_ASSERT(!rates.empty(), "no rates to fit");
  ProductCurve best;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 100; ++i) {
    const double half = 10 * (std::pow(1.04, i) - 1);  // from 0 to 475
    // For this half size the best rate has a closed form: with x the curve over the measured rate,
    // the sum of (rate x - 1)^2 is least at sum x / sum x^2.
    double sum = 0, squares = 0;
    for (const ProductRate& one : rates) {
      const double x = std::pow(one.size / (one.size + half), 3) / one.flops;
      sum += x;
      squares += x * x;
    }
    const double rate = sum / squares;
    const double error = static_cast<double>(rates.size()) - rate * sum;
    if (error < least) {
      least = error;
      best = {rate, half};
    }
  }
  return best;
}

std::string line_of(const DeviceRates& rates) {
  return nlohmann::json{{"single_flops", rates.single.flops},
                        {"half_size", rates.single.half_size},
                        {"half_flops", rates.half.flops},
                        {"attention_flops", rates.attention_flops},
                        {"bf16_half_size", rates.half.half_size},
                        {"bf16_attention_flops", rates.half_attention_flops},
                        {"bf16_memory_bytes", rates.half_memory_bytes},
                        {"memory_bytes", rates.memory_bytes},
                        {"launch_seconds", rates.launch_seconds},
                        {"link_bytes", rates.link_bytes},
                        {"link_seconds", rates.link_seconds},
                        {"disk_bytes", rates.disk_bytes},
                        {"resident_bytes", rates.resident_bytes}}
      .dump();
}

DeviceRates read_device_line(const std::string& line) {
  const nlohmann::json all = nlohmann::json::parse(line);
  return {.single = {all.at("single_flops"), all.at("half_size")},
          .half = {all.at("half_flops"), all.at("bf16_half_size")},
          .attention_flops = all.at("attention_flops"),
          .half_attention_flops = all.at("bf16_attention_flops"),
          .memory_bytes = all.at("memory_bytes"),
          .half_memory_bytes = all.at("bf16_memory_bytes"),
          .launch_seconds = all.at("launch_seconds"),
          .link_bytes = all.at("link_bytes"),
          .link_seconds = all.at("link_seconds"),
          .disk_bytes = all.at("disk_bytes"),
          .resident_bytes = all.at("resident_bytes")};
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
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, 2 * kPiece)), &std::free);
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
  measure_ranks_alone({group, options, /*aligns=*/of_small < kQuickLink}, joint, rates);
  if (has_links) {
    rates.link_bytes = link_rate(joint, of_small, options);
    rates.link_seconds = of_small / (2.0 * (group.size() - 1));
  }
  return joint.is_stopped() ? std::nullopt : std::optional(rates);
}

}  // namespace trireme::cli
