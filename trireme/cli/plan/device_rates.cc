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

#include "trireme/base/error.h"
#include "trireme/base/io/async_io.h"
#include "trireme/base/io/scratch_file.h"
#include "trireme/base/machine/process_stat.h"
#include "trireme/base/median.h"
#include "trireme/base/seconds.h"

namespace trireme::cli::inline internal {
namespace {

constexpr int64_t kSizes[] = {32, 64, 128, 256, 512, 1024};

class Measurement {
 public:
  Measurement(comm::Communicator& group, double seconds) : group_(group), seconds_(seconds) {}

  // Seconds of one call: the median, and its mean over the ranks, which begin together.
  double time(const std::function<void()>& call) const {
    call();  // the first one allocates
    group_.barrier()->wait();
    std::vector<double> times;
    const auto begin = std::chrono::steady_clock::now();
    do {
      const auto start = std::chrono::steady_clock::now();
      call();
      times.push_back(seconds_since(start));
    } while (seconds_since(begin) < seconds_ || times.size() < 5);
    return mean(median(std::move(times)));
  }

  // A collective call, so often that no rank stops before the others.
  double time_together(const std::function<void()>& call, int count) const {
    for (int i = 0; i < 3; ++i) call();
    group_.barrier()->wait();
    std::vector<double> times;
    for (int i = 0; i < count; ++i) {
      const auto start = std::chrono::steady_clock::now();
      call();
      times.push_back(seconds_since(start));
    }
    return mean(median(std::move(times)));
  }

 private:
  double mean(double value) const {
    at::Tensor sum = at::full({1}, value, at::kDouble);
    group_.all_reduce(sum)->wait();
    return sum.item<double>() / group_.size();
  }

  comm::Communicator& group_;
  double seconds_;
};

// Each product reads other matrices than the one before, as layers do, so that small ones do not
// stay in a cache.
double product_flops(const Measurement& measurement, int64_t n, c10::ScalarType dtype) {
  constexpr int64_t kBytes = 96 << 20;
  constexpr int64_t kMost = 512;
  const auto options = at::device(at::kCPU).dtype(dtype);
  const int64_t of_three = 3 * n * n * static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t count = std::clamp<int64_t>(kBytes / of_three, 2, kMost);
  const at::Tensor a = at::full({count, n, n}, 0.5, options),
                   b = at::full({count, n, n}, 0.25, options);
  const std::vector<at::Tensor> left = a.unbind(), right = b.unbind();
  std::vector<at::Tensor> products = at::empty({count, n, n}, options).unbind();
  const double seconds = measurement.time([&] {
    for (size_t i = 0; i < products.size(); ++i) at::mm_out(products[i], left[i], right[i]);
  });
  return 2 * std::pow(static_cast<double>(n), 3) * static_cast<double>(count) / seconds;
}

double attention_flops(const Measurement& measurement) {
  constexpr int64_t kHeads = 6, kTokens = 512, kWidth = 64;
  const at::Tensor q = at::full({1, kHeads, kTokens, kWidth}, 0.1);
  const double seconds = measurement.time(
      [&] { at::scaled_dot_product_attention(q, q, q, {}, 0.0, /*is_causal=*/true); });
  return 0.5 * 4 * kHeads * kTokens * kTokens * kWidth / seconds;
}

double memory_rate(const Measurement& measurement) {
  constexpr int64_t kElements = 16 << 20;  // no cache holds them
  at::Tensor a = at::ones({kElements});
  const at::Tensor b = at::ones({kElements});
  return 3 * 4.0 * kElements / measurement.time([&] { a.add_(b); });
}

double launch_time(const Measurement& measurement) {
  const c10::AutoGradMode with_gradients(true);
  constexpr int kOperations = 32;
  const at::Tensor a = at::ones({16}).requires_grad_();
  // Each has one operation forward and one backward.
  return measurement.time([&] {
    at::Tensor x = a;
    for (int i = 0; i < kOperations; ++i) x = x * 1.01;
    x.sum().backward();
  }) / (2 * kOperations);
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
  return nlohmann::json{
      {"single_flops", rates.single.flops}, {"half_size", rates.single.half_size},
      {"half_flops", rates.half_flops},     {"attention_flops", rates.attention_flops},
      {"memory_bytes", rates.memory_bytes}, {"launch_seconds", rates.launch_seconds},
      {"link_bytes", rates.link_bytes},     {"link_seconds", rates.link_seconds},
      {"disk_bytes", rates.disk_bytes},     {"resident_bytes", rates.resident_bytes}}
      .dump();
}

DeviceRates read_device_line(const std::string& line) {
  const nlohmann::json all = nlohmann::json::parse(line);
  return {.single = {all.at("single_flops"), all.at("half_size")},
          .half_flops = all.at("half_flops"),
          .attention_flops = all.at("attention_flops"),
          .memory_bytes = all.at("memory_bytes"),
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

DeviceRates measure_device(comm::Communicator& group, double seconds) {
  const Measurement measurement(group, seconds);
  DeviceRates rates;
  rates.resident_bytes = resident_after_little();
  rates.launch_seconds = launch_time(measurement);
  {
    const c10::NoGradGuard no_grad;
    std::vector<ProductRate> products;
    for (const int64_t n : kSizes) {
      products.push_back({static_cast<double>(n), product_flops(measurement, n, at::kFloat)});
    }
    rates.single = fit_products(products);
    rates.half_flops = product_flops(measurement, 512, at::kBFloat16);
    rates.attention_flops = attention_flops(measurement);
    rates.memory_bytes = memory_rate(measurement);
  }
  if (group.size() == 1) return rates;
  const double p = group.size();
  at::Tensor large = at::ones({4 << 20}), small = at::ones({1});
  const double of_large = measurement.time_together([&] { group.all_reduce(large)->wait(); }, 20);
  rates.link_bytes = 2 * (p - 1) / p * static_cast<double>(large.nbytes()) / of_large;
  const double of_small = measurement.time_together([&] { group.all_reduce(small)->wait(); }, 1000);
  rates.link_seconds = of_small / (2 * (p - 1));
  return rates;
}

}  // namespace trireme::cli::inline internal
