#include "trireme/parallel/embedding/row_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/multiversion.h"
#include "trireme/parallel/embedding/rows/row_memory.h"
#include "trireme/parallel/embedding/sums/square_tree.h"

namespace trireme::parallel {

// Five rules share one loop over rows, since what differs is a line of arithmetic. Rows of a batch
// lie anywhere in the table, so their memory is fetched some rows ahead; without that a row costs a
// cache miss per tensor. adam changes every row in every step, also those without a gradient. It is
// made up for when a row is used next: the factors of all steps since then are kept, and the row
// repeats each step with a zero gradient, which gives the bits of the dense rule. catch_up_all()
// does that for all rows, and only then factors may be forgotten. The image of a row has all of its
// tensors and the step up to which it is brought, so that a row on a disk can be left behind as
// well.

namespace {

// A row that no step has used: its moments are zero, so a step without a gradient changes nothing.
constexpr int32_t kUnused = -1;
// A row that was loaded since: it is up to loaded_step_.
constexpr int32_t kLoaded = -2;
constexpr int64_t kRowsPerTask = 256;

template <typename scalar>
TRIREME_INLINE void sgd_body(scalar* w, const scalar* g, int64_t n, scalar rate) {
#pragma GCC ivdep
  for (int64_t d = 0; d < n; ++d) w[d] -= rate * g[d];
}

template <typename scalar>
TRIREME_INLINE void adagrad_body(scalar* w, scalar* a, const scalar* g, int64_t n, scalar rate,
                                 scalar epsilon) {
#pragma GCC ivdep
  for (int64_t d = 0; d < n; ++d) {
    a[d] += g[d] * g[d];
    w[d] -= rate * g[d] / (std::sqrt(a[d]) + epsilon);
  }
}

// mean_square: null: that of g
template <typename scalar>
TRIREME_INLINE void row_wise_body(scalar* w, scalar* a, const scalar* g, int64_t n, scalar rate,
                                  scalar epsilon, const scalar* mean_square) {
  *a += mean_square == nullptr ? sum_squares<scalar>(g, n) / static_cast<scalar>(n) : *mean_square;
  const scalar row_rate = rate / (std::sqrt(*a) + epsilon);
#pragma GCC ivdep
  for (int64_t d = 0; d < n; ++d) w[d] -= row_rate * g[d];
}

template <typename scalar>
struct AdamNumbers {
  scalar beta1, rest1, beta2, rest2, step_size, root, epsilon;
};

template <typename scalar>
TRIREME_INLINE void adam_body(scalar* w, scalar* m, scalar* v, const scalar* g, int64_t n,
                              const AdamNumbers<scalar>& a) {
#pragma GCC ivdep
  for (int64_t d = 0; d < n; ++d) {
    m[d] = a.beta1 * m[d] + a.rest1 * g[d];
    v[d] = a.beta2 * v[d] + a.rest2 * (g[d] * g[d]);
    w[d] -= a.step_size * m[d] / (std::sqrt(v[d]) / a.root + a.epsilon);
  }
}

#define TRIREME_ROW_RULES(scalar)                                                                  \
  TRIREME_MULTIVERSION void sgd_row(scalar* w, const scalar* g, int64_t n, scalar rate) {          \
    sgd_body(w, g, n, rate);                                                                       \
  }                                                                                                \
  TRIREME_MULTIVERSION void adagrad_row(scalar* w, scalar* a, const scalar* g, int64_t n,          \
                                        scalar rate, scalar epsilon) {                             \
    adagrad_body(w, a, g, n, rate, epsilon);                                                       \
  }                                                                                                \
  TRIREME_MULTIVERSION void row_wise_row(scalar* w, scalar* a, const scalar* g, int64_t n,         \
                                         scalar rate, scalar epsilon, const scalar* mean_square) { \
    row_wise_body(w, a, g, n, rate, epsilon, mean_square);                                         \
  }                                                                                                \
  TRIREME_MULTIVERSION void adam_row(scalar* w, scalar* m, scalar* v, const scalar* g, int64_t n,  \
                                     const AdamNumbers<scalar>& numbers) {                         \
    adam_body(w, m, v, g, n, numbers);                                                             \
  }
TRIREME_ROW_RULES(float)
TRIREME_ROW_RULES(double)
#undef TRIREME_ROW_RULES

template <typename scalar>
AdamNumbers<scalar> adam_numbers(const RowOptimizerConfig& config, double step_size, double root) {
  return {static_cast<scalar>(config.beta1),  static_cast<scalar>(1 - config.beta1),
          static_cast<scalar>(config.beta2),  static_cast<scalar>(1 - config.beta2),
          static_cast<scalar>(step_size),     static_cast<scalar>(root),
          static_cast<scalar>(config.epsilon)};
}

}  // namespace

void check_optimizer(const RowOptimizerConfig& config) {
  const auto is_decay = [](double beta) { return beta >= 0 && beta < 1; };
  TRIREME_CHECK(std::isfinite(config.learning_rate) && config.learning_rate >= 0,
                "embedding optimizer: learning rate ", config.learning_rate,
                "; expected 0 or more");
  TRIREME_CHECK(is_decay(config.beta1) && is_decay(config.beta2), "embedding optimizer: beta1 ",
                config.beta1, " and beta2 ", config.beta2, "; expected 0 to below 1");
  TRIREME_CHECK(std::isfinite(config.epsilon) && config.epsilon > 0,
                "embedding optimizer: epsilon ", config.epsilon, "; expected above 0");
  TRIREME_CHECK(std::isfinite(config.initial_accumulator) && config.initial_accumulator >= 0,
                "embedding optimizer: initial accumulator ", config.initial_accumulator,
                "; expected 0 or more");
}

int64_t numbers_of_states(RowRule rule, int64_t width) {
  switch (rule) {
    case RowRule::kSgd: return 0;
    case RowRule::kAdaGrad: return width;
    case RowRule::kRowWiseAdaGrad: return 1;
    case RowRule::kLazyAdam:
    case RowRule::kAdam: return 2 * width;
  }
  throw InternalError("a row rule without a name");
}

RowOptimizer::RowOptimizer(const RowOptimizerConfig& config, at::Tensor weights)
    : config_(config), weights_(std::move(weights)) {
  check_optimizer(config_);
  TRIREME_ASSERT(weights_.dim() == 2 && weights_.is_contiguous() && weights_.is_cpu(),
                 "rows of shape ", weights_.sizes());
  const auto rows_of = [&](double value) {
    // States in large pages as well: they are read at random like the weights.
    return empty_rows(weights_.sizes(), weights_.scalar_type()).fill_(value);
  };
  switch (config_.rule) {
    case RowRule::kSgd: break;
    case RowRule::kAdaGrad: states_.push_back({"sum", rows_of(config_.initial_accumulator)}); break;
    case RowRule::kRowWiseAdaGrad:
      states_.push_back(
          {"sum", at::full({weights_.size(0)}, config_.initial_accumulator, weights_.options())});
      break;
    case RowRule::kLazyAdam:
    case RowRule::kAdam:
      states_.push_back({"exp_avg", rows_of(0)});
      states_.push_back({"exp_avg_sq", rows_of(0)});
  }
  if (!catches_up()) return;
  zeros_ = at::zeros({weights_.size(1)}, weights_.options());
  last_steps_.assign(static_cast<size_t>(weights_.size(0)), kUnused);
}

// Rows that appear have kUnused: they begin with zero moments.
void RowOptimizer::resize(int64_t num_rows) {
  const auto resize_rows = [&](const at::Tensor& values) {
    std::vector<int64_t> sizes = values.sizes().vec();
    sizes[0] = num_rows;
    values.resize_(sizes);
    use_large_pages(values);
  };
  resize_rows(weights_);
  for (const RowState& state : states_) resize_rows(state.values);
  if (catches_up()) last_steps_.resize(static_cast<size_t>(num_rows), kUnused);
}

void RowOptimizer::begin_step(double learning_rate) {
  // Only kAdam looks further back than one step.
  if (!catches_up() && !factors_.empty()) {
    first_step_ += std::ssize(factors_);
    factors_.clear();
  }
  const auto step = static_cast<double>(num_steps() + 1);
  // last_steps_ has 32 bits per row.
  TRIREME_ASSERT(num_steps() < std::numeric_limits<int32_t>::max(), "too many steps");
  factors_.push_back({learning_rate, learning_rate / (1 - std::pow(config_.beta1, step)),
                      std::sqrt(1 - std::pow(config_.beta2, step))});
}

void RowOptimizer::set_num_steps(int64_t num_steps) {
  factors_.clear();
  first_step_ = loaded_step_ = num_steps;
  if (catches_up()) std::ranges::fill(last_steps_, static_cast<int32_t>(num_steps));
}

template <typename scalar>
void RowOptimizer::catch_up_row(int64_t row, int64_t step) {
  int32_t& last = last_steps_[static_cast<size_t>(row)];
  // A load brings all rows to one step, and marking each would be a pass over the table.
  if (last == kLoaded) last = static_cast<int32_t>(loaded_step_);
  if (last == kUnused || last >= step) return;
  const int64_t n = weights_.size(1);
  auto* const w = weights_.mutable_data_ptr<scalar>() + row * n;
  auto* const m = states_[0].values.mutable_data_ptr<scalar>() + row * n;
  auto* const v = states_[1].values.mutable_data_ptr<scalar>() + row * n;
  const auto* const zeros = zeros_.const_data_ptr<scalar>();
  for (int64_t k = last + 1; k <= step; ++k) {
    const Factors& factors = factors_[static_cast<size_t>(k - first_step_ - 1)];
    adam_row(w, m, v, zeros, n, adam_numbers<scalar>(config_, factors.step_size, factors.root));
  }
  last = static_cast<int32_t>(step);
}

template <typename scalar>
void RowOptimizer::update_rows(std::span<const int64_t> rows, const scalar* gradients,
                               const scalar* mean_squares) {
  const int64_t n = weights_.size(1), step = num_steps();
  const Factors& now = factors_.back();
  auto* const weights = weights_.mutable_data_ptr<scalar>();
  const auto state = [&](size_t i) {
    return i < states_.size() ? states_[i].values.mutable_data_ptr<scalar>() : nullptr;
  };
  scalar* const first = state(0);
  scalar* const second = state(1);
  const auto rate = static_cast<scalar>(now.learning_rate);
  const auto epsilon = static_cast<scalar>(config_.epsilon);
  const auto adam = adam_numbers<scalar>(config_, now.step_size, now.root);
  const auto number_bytes = static_cast<int64_t>(sizeof(scalar)), row_bytes = n * number_bytes;
  const int64_t state_bytes = config_.rule == RowRule::kRowWiseAdaGrad ? number_bytes : row_bytes;
  for (size_t i = 0; i < rows.size(); ++i) {
    // The last rows have none after them.
    if (i + kRowsAhead < rows.size()) {
      const int64_t ahead = rows[i + kRowsAhead];
      fetch_row(weights, ahead, row_bytes);
      if (first != nullptr) fetch_row(first, ahead, state_bytes);
      if (second != nullptr) fetch_row(second, ahead, state_bytes);
    }
    const int64_t row = rows[i];
    scalar* const w = weights + row * n;
    switch (config_.rule) {
      case RowRule::kSgd: sgd_row(w, gradients, n, rate); break;
      case RowRule::kAdaGrad: adagrad_row(w, first + row * n, gradients, n, rate, epsilon); break;
      case RowRule::kRowWiseAdaGrad:
        row_wise_row(w, first + row, gradients, n, rate, epsilon,
                     mean_squares == nullptr ? nullptr : mean_squares + i);
        break;
      case RowRule::kAdam:
        // The rows before this step, and not with it: this step has a gradient.
        catch_up_row<scalar>(row, step - 1);
        last_steps_[static_cast<size_t>(row)] = static_cast<int32_t>(step);
        [[fallthrough]];
      case RowRule::kLazyAdam: adam_row(w, first + row * n, second + row * n, gradients, n, adam);
    }
    gradients += n;
  }
}

void RowOptimizer::update(std::span<const int64_t> rows, const void* gradients,
                          const void* mean_squares) {
  TRIREME_ASSERT(!factors_.empty(), "an update before begin_step()");
  AT_DISPATCH_FLOATING_TYPES(weights_.scalar_type(), "RowOptimizer::update", [&] {
    update_rows<scalar_t>(rows, static_cast<const scalar_t*>(gradients),
                          static_cast<const scalar_t*>(mean_squares));
  });
}

void RowOptimizer::catch_up(std::span<const int64_t> rows) {
  if (!catches_up()) return;
  const int64_t step = num_steps();
  AT_DISPATCH_FLOATING_TYPES(weights_.scalar_type(), "RowOptimizer::catch_up", [&] {
    // Rows are independent, so threads need no order.
    at::parallel_for(0, std::ssize(rows), kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        catch_up_row<scalar_t>(rows[static_cast<size_t>(i)], step);
      }
    });
  });
}

std::pair<int64_t, int64_t> RowOptimizer::place_in_image(size_t state) const {
  const auto bytes_of = [](const at::Tensor& values) {  // of a row, also where there is none
    return static_cast<int64_t>(values.element_size()) *
           c10::multiply_integers(values.sizes().slice(1));
  };
  int64_t begin = bytes_of(weights_);
  for (size_t i = 0; i < state; ++i) begin += bytes_of(states_[i].values);
  return {begin, state < states_.size() ? bytes_of(states_[state].values) : 0};
}

int64_t RowOptimizer::image_bytes() const {
  const int64_t steps = catches_up() ? int64_t{sizeof(int32_t)} : 0;
  return place_in_image(states_.size()).first + steps;
}

void RowOptimizer::save_row(int64_t row, std::byte* image) const {
  const auto put = [&](const at::Tensor& values) {
    const auto bytes = values.nbytes() / static_cast<size_t>(values.size(0));
    const auto* const from = static_cast<const std::byte*>(values.const_data_ptr());
    image = std::copy_n(from + static_cast<size_t>(row) * bytes, bytes, image);
  };
  put(weights_);
  for (const RowState& state : states_) put(state.values);
  if (catches_up()) std::memcpy(image, &last_steps_[static_cast<size_t>(row)], sizeof(int32_t));
}

void RowOptimizer::load_row(int64_t row, const std::byte* image) {
  const auto take = [&](const at::Tensor& values) {
    const auto bytes = values.nbytes() / static_cast<size_t>(values.size(0));
    auto* const to = static_cast<std::byte*>(values.mutable_data_ptr());
    std::copy_n(image, bytes, to + static_cast<size_t>(row) * bytes);
    image += bytes;
  };
  take(weights_);
  for (const RowState& state : states_) take(state.values);
  if (catches_up()) std::memcpy(&last_steps_[static_cast<size_t>(row)], image, sizeof(int32_t));
}

void RowOptimizer::begin_image(std::byte* image) const {
  const bool sums_squares =
      // AdaGrad's sum begins with a value, moments with zero.
      config_.rule == RowRule::kAdaGrad || config_.rule == RowRule::kRowWiseAdaGrad;
  const double value = sums_squares ? config_.initial_accumulator : 0;
  AT_DISPATCH_FLOATING_TYPES(weights_.scalar_type(), "RowOptimizer::begin_image", [&] {
    const auto first = static_cast<scalar_t>(value);
    const int64_t end = place_in_image(states_.size()).first;
    for (int64_t at = place_in_image(0).first; at < end; at += int64_t{sizeof(scalar_t)}) {
      std::memcpy(image + at, &first, sizeof(scalar_t));
    }
  });
  if (catches_up()) std::memcpy(image + image_bytes() - sizeof(int32_t), &kUnused, sizeof(int32_t));
}

void RowOptimizer::mark_loaded(std::byte* image) const {
  if (catches_up()) std::memcpy(image + image_bytes() - sizeof(int32_t), &kLoaded, sizeof(int32_t));
}

void RowOptimizer::catch_up_all() {
  if (!catches_up()) return;
  std::vector<int64_t> rows(last_steps_.size());
  std::iota(rows.begin(), rows.end(), int64_t{0});
  catch_up(rows);
  forget_steps();
}

void RowOptimizer::forget_steps() {
  first_step_ = num_steps();
  factors_.clear();
}

}  // namespace trireme::parallel
