#include "trireme/checkpoint/offline/tensor_diff.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <ATen/Dispatch.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/exact_cover.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

template <typename scalar>
constexpr bool kIsFloat = !std::is_integral_v<scalar>;

// The bits as an integer of the same size.
template <typename scalar>
auto bits_of(scalar value) {
  using Bits = std::conditional_t<
      sizeof(scalar) == 8, int64_t,
      std::conditional_t<sizeof(scalar) == 4, int32_t,
                         std::conditional_t<sizeof(scalar) == 2, int16_t, int8_t>>>;
  return std::bit_cast<Bits>(value);
}

// Neighbouring floats have neighbouring numbers, and both zeros have 0.
template <typename scalar>
int64_t number_of(scalar value) {
  const auto bits = bits_of(value);
  if (bits >= 0) return bits;
  return -static_cast<int64_t>(bits & std::numeric_limits<decltype(bits)>::max());
}

uint64_t distance(int64_t a, int64_t b) {
  const auto low = static_cast<uint64_t>(std::min(a, b));
  return static_cast<uint64_t>(std::max(a, b)) - low;
}

template <typename scalar>
bool is_finite(scalar value) {
  if constexpr (kIsFloat<scalar>) return std::isfinite(static_cast<double>(value));
  return true;
}

template <typename scalar>
double absolute_difference(scalar a, scalar b) {
  if constexpr (kIsFloat<scalar>) {
    return std::abs(static_cast<double>(a) - static_cast<double>(b));
  } else {
    return static_cast<double>(distance(static_cast<int64_t>(a), static_cast<int64_t>(b)));
  }
}

template <typename scalar>
std::string text_of(scalar value) {
  if constexpr (std::is_same_v<scalar, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<scalar>) {
    return std::to_string(value);
  } else {
    using Widest = std::conditional_t<std::is_same_v<scalar, double>, double, float>;
    char text[64];
    const auto end = std::to_chars(text, text + sizeof(text), static_cast<Widest>(value)).ptr;
    return {text, end};
  }
}

std::vector<int64_t> index_of(int64_t position, at::IntArrayRef shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0; position /= shape[d]) index[d] = position % shape[d];
  return index;
}

template <typename scalar>
double largest_magnitude(const scalar* values, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (is_finite(values[i])) largest = std::max(largest, std::abs(static_cast<double>(values[i])));
  }
  return largest;
}

// Elements that are not finite on both sides count as 0.
template <typename scalar>
std::optional<double> cosine_of(const scalar* a, const scalar* b, int64_t n) {
  double product = 0, a_squares = 0, b_squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    product += x * y;
    a_squares += x * x;
    b_squares += y * y;
  }
  const double cosine = product / (std::sqrt(a_squares) * std::sqrt(b_squares));
  if (!std::isfinite(cosine)) return std::nullopt;
  return std::clamp(cosine, -1.0, 1.0);
}

template <typename scalar>
void compare(const scalar* a, const scalar* b, at::IntArrayRef shape, double tolerance,
             ValueDiff& result) {
  const int64_t n = result.num_elements;
  const double scale = std::max(largest_magnitude(a, n), largest_magnitude(b, n));
  const double allowed = tolerance * scale;
  uint64_t max_ulp = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (bits_of(a[i]) == bits_of(b[i])) continue;
    ++result.num_different;
    bool is_beyond = true;
    if (!is_finite(a[i]) || !is_finite(b[i])) {
      ++result.num_not_finite;
    } else {
      const double difference = absolute_difference(a[i], b[i]);
      is_beyond = tolerance == 0 || difference > allowed;
      result.max_absolute = std::max(result.max_absolute, difference);
      if constexpr (kIsFloat<scalar>)
        max_ulp = std::max(max_ulp, distance(number_of(a[i]), number_of(b[i])));
    }
    if (is_beyond && ++result.num_beyond == 1)
      result.first = {index_of(i, shape), text_of(a[i]), text_of(b[i])};
  }
  if (scale > 0) result.max_relative = result.max_absolute / scale;
  if constexpr (kIsFloat<scalar>) {
    result.max_ulp = max_ulp;
    result.cosine = cosine_of(a, b, n);
  }
}

std::string form_of(const at::Tensor& tensor) {
  return concat(dtype_name(tensor.scalar_type()), " ", shown_shape(tensor.sizes()));
}

}  // namespace

ValueDiff compare_values(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  TRIREME_CHECK(a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes(), "cannot compare ",
                form_of(a), " with ", form_of(b), "; expected the same dtype and shape");
  static_cast<void>(dtype_name(a.scalar_type()));  // throws for a dtype that is not below
  ValueDiff result{.num_elements = a.numel()};
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  // Most tensors are the same. memcmp may not be given the null pointers of empty tensors.
  if (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0)
    return result;
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, x.scalar_type(), "compare_values",
                             [&] {
                               compare(x.const_data_ptr<scalar_t>(), y.const_data_ptr<scalar_t>(),
                                       x.sizes(), tolerance, result);
                             });
  return result;
}

int64_t Diff::num_beyond() const { return std::ranges::count_if(tensors, &TensorDiff::is_beyond); }

Diff diff(const TensorSource& a, const TensorSource& b, const DiffOptions& options) {
  const auto is_wanted = [&](const std::string& name) {
    return !options.wanted || options.wanted(name);
  };
  Diff result;
  std::vector<TensorDiff> pairs;
  for (const auto& [name, tensor] : a.tensors()) {
    if (!is_wanted(name)) continue;
    const auto found = b.tensors().find(name);
    if (found == b.tensors().end()) {
      result.only_in_a.push_back(name);
      continue;
    }
    pairs.push_back({.name = name, .a = tensor, .b = found->second});
    result.num_bytes += checkpoint::num_bytes(tensor);
  }
  for (const auto& [name, tensor] : b.tensors()) {
    if (is_wanted(name) && !a.tensors().contains(name)) result.only_in_b.push_back(name);
  }
  TRIREME_CHECK(!pairs.empty() || !result.only_in_a.empty() || !result.only_in_b.empty() ||
                    (a.tensors().empty() && b.tensors().empty()),
                "no tensor is left to compare: none of the ",
                std::max(a.tensors().size(), b.tensors().size()), " names matches");
  int64_t done = 0;
  for (TensorDiff& pair : pairs) {
    ++result.num_compared;
    if (pair.same_form()) {
      const at::Tensor values = a.read(pair.name);
      pair.values = compare_values(values, b.read(pair.name), options.tolerance);
      done += static_cast<int64_t>(values.nbytes());
      if (options.on_progress) options.on_progress(done, result.num_bytes);
    }
    if (!pair.same_form() || pair.values.num_different > 0)
      result.tensors.push_back(std::move(pair));
  }
  return result;
}

}  // namespace trireme::checkpoint
