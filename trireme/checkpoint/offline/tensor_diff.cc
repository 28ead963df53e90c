#include "trireme/checkpoint/offline/tensor_diff.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <ATen/Dispatch.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::checkpoint {

// Two checkpoints may each be larger than memory, so tensors are compared in parts on both
// sides, and nothing is kept of a part but sums. Equal bits are asked for first, with memcmp,
// because most tensors are equal and a comparison of values costs many times more. A tolerance is
// relative to the largest value of both whole tensors, which is known only after a first pass; so a
// tensor that differs is read twice. Whether two elements differ is a matter of bits and not of ==:
// -0 differs from 0, and a NaN equals itself, which is what a resumed run must reproduce.

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
  // The sign's bit is not part of the magnitude: negative floats count downwards from -0.
  return -static_cast<int64_t>(bits & std::numeric_limits<decltype(bits)>::max());
}

uint64_t distance(int64_t a, int64_t b) {
  // Unsigned, because the distance of two int64 may need 64 bits.
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
    // Via integers: large int64 are not exact as doubles.
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
    // The shortest text that reads back as the same value. For halves a float's is long enough.
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

// Cosine of the angle between two tensors that arrive in parts.
class Cosine {
 public:
  // Elements that are not finite on both sides count as 0.
  template <typename scalar>
  void add(const scalar* a, const scalar* b, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      // A NaN would make the whole cosine one.
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      product_ += x * y;
      a_squares_ += x * x;
      b_squares_ += y * y;
    }
  }
  std::optional<double> value() const {
    // Two roots, since the product of the squares overflows sooner.
    const double cosine = product_ / (std::sqrt(a_squares_) * std::sqrt(b_squares_));
    if (!std::isfinite(cosine)) return std::nullopt;
    return std::clamp(cosine, -1.0, 1.0);
  }

 private:
  double product_ = 0, a_squares_ = 0, b_squares_ = 0;
};

// The same elements of two tensors.
struct PartPair {
  at::Tensor a{};
  at::Tensor b{};
};

bool has_same_bits(const PartPair& part) {
  const size_t num_bytes = part.a.nbytes();
  // memcmp may not be given the null pointers of empty tensors.
  return num_bytes == 0 ||
         std::memcmp(part.a.const_data_ptr(), part.b.const_data_ptr(), num_bytes) == 0;
}

double largest_magnitude(const PartPair& part) {
  double largest = 0;
  AT_DISPATCH_ALL_TYPES_AND3(
      at::kHalf, at::kBFloat16, at::kBool, part.a.scalar_type(), "largest_magnitude", [&] {
        largest = std::max(largest_magnitude(part.a.const_data_ptr<scalar_t>(), part.a.numel()),
                           largest_magnitude(part.b.const_data_ptr<scalar_t>(), part.b.numel()));
      });
  return largest;
}

// Compares two tensors part after part.
class Comparison {
 public:
  // scale: the largest magnitude of both tensors; needed only with a tolerance
  Comparison(at::IntArrayRef shape, double tolerance, double scale)
      : shape_(shape), tolerance_(tolerance), scale_(scale) {}

  void add(const PartPair& part) {
    // Without a tolerance no pass has measured it before.
    scale_ = std::max(scale_, largest_magnitude(part));
    AT_DISPATCH_ALL_TYPES_AND3(
        at::kHalf, at::kBFloat16, at::kBool, part.a.scalar_type(), "compare_values", [&] {
          add(part.a.const_data_ptr<scalar_t>(), part.b.const_data_ptr<scalar_t>(), part.a.numel());
        });
  }

  ValueDiff finish() && {
    if (scale_ > 0) result_.max_relative = result_.max_absolute / scale_;
    result_.cosine = cosine_.value();
    return std::move(result_);
  }

 private:
  template <typename scalar>
  void add(const scalar* a, const scalar* b, int64_t n) {
    const double allowed = tolerance_ * scale_;
    uint64_t max_ulp = result_.max_ulp.value_or(0);
    for (int64_t i = 0; i < n; ++i) {
      if (bits_of(a[i]) == bits_of(b[i])) continue;
      ++result_.num_different;
      bool is_beyond = true;
      if (!is_finite(a[i]) || !is_finite(b[i])) {
        ++result_.num_not_finite;
      } else {
        const double difference = absolute_difference(a[i], b[i]);
        // With no tolerance every difference counts, also one of bits alone, such as of two zeros.
        is_beyond = tolerance_ == 0 || difference > allowed;
        result_.max_absolute = std::max(result_.max_absolute, difference);
        if constexpr (kIsFloat<scalar>)
          max_ulp = std::max(max_ulp, distance(number_of(a[i]), number_of(b[i])));
      }
      if (is_beyond && ++result_.num_beyond == 1)
        result_.first = {index_of(result_.num_elements + i, shape_), text_of(a[i]), text_of(b[i])};
    }
    result_.num_elements += n;
    if constexpr (kIsFloat<scalar>) {
      result_.max_ulp = max_ulp;
      cosine_.add(a, b, n);
    }
  }

  at::IntArrayRef shape_;
  double tolerance_;
  double scale_;
  Cosine cosine_;
  ValueDiff result_;
};

using ReadPart = std::function<PartPair(int64_t part)>;

// Reads the parts once if none differs, and those up to the first that does once more otherwise;
// with a tolerance all of them, as it is relative to the largest value. A tensor of one part is
// read once.
ValueDiff compare_parts(at::IntArrayRef shape, int64_t num_parts, const ReadPart& read,
                        double tolerance) {
  PartPair held;
  const auto part = [&](int64_t i) {
    if (num_parts > 1 || !held.a.defined()) {
      // Frees the part before the next one is read.
      held = {};  // the next one takes its memory
      held = read(i);
    }
    return held;
  };
  // Most tensors are the same.
  int64_t num_same = 0;
  while (num_same < num_parts && has_same_bits(part(num_same))) ++num_same;
  if (num_same == num_parts) return {.num_elements = c10::multiply_integers(shape)};
  double scale = 0;
  for (int64_t i = 0; tolerance > 0 && i < num_parts; ++i)
    scale = std::max(scale, largest_magnitude(part(i)));
  Comparison comparison(shape, tolerance, scale);
  for (int64_t i = 0; i < num_parts; ++i) comparison.add(part(i));
  return std::move(comparison).finish();
}

std::string form_of(const at::Tensor& tensor) {
  return concat(dtype_name(tensor.scalar_type()), " ", shown_shape(tensor.sizes()));
}

// Compares a tensor of both sources, whose dtypes and shapes are the same.
// on_read: called once for each part, with its bytes
ValueDiff compare_values(const TensorDiff& pair, const TensorSource& a, const TensorSource& b,
                         const DiffOptions& options,
                         const std::function<void(size_t bytes)>& on_read) {
  // Before any byte is read.
  static_cast<void>(dtype_name(pair.a.dtype));  // throws for a dtype that cannot be compared
  const TensorParts parts(pair.a.shape, c10::elementSize(pair.a.dtype), options.part_bytes);
  int64_t num_read = 0;
  const auto read = [&](int64_t i) -> PartPair {
    const mesh::Box box = parts.at(i);
    PartPair part{a.read_box(pair.name, box).contiguous(), b.read_box(pair.name, box).contiguous()};
    // A part may be read twice, and its progress counts once.
    if (i == num_read) {
      ++num_read;
      on_read(part.a.nbytes());
    }
    return part;
  };
  return compare_parts(pair.a.shape, parts.size(), read, options.tolerance);
}

}  // namespace

std::string ValueDiff::First::text() const {
  std::string place;
  for (const int64_t at : index) place += concat(place.empty() ? "" : ", ", at);
  return concat("first at [", place, "]: ", a, " in A, ", b, " in B");
}

ValueDiff compare_values(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  TRIREME_CHECK(a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes(), "cannot compare ",
                form_of(a), " with ", form_of(b), "; expected the same dtype and shape");
  static_cast<void>(dtype_name(a.scalar_type()));  // throws for a dtype that cannot be compared
  const auto read = [&](int64_t) -> PartPair { return {a.contiguous(), b.contiguous()}; };
  return compare_parts(a.sizes(), 1, read, tolerance);
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
  // A filter that takes nothing is a typing mistake; "no difference" would hide it.
  TRIREME_CHECK(!pairs.empty() || !result.only_in_a.empty() || !result.only_in_b.empty() ||
                    (a.tensors().empty() && b.tensors().empty()),
                "no tensor is left to compare: none of the ",
                std::max(a.tensors().size(), b.tensors().size()), " names matches");
  int64_t done = 0;
  for (TensorDiff& pair : pairs) {
    ++result.num_compared;
    if (pair.same_form()) {
      pair.values = compare_values(pair, a, b, options, [&](size_t bytes) {
        done += static_cast<int64_t>(bytes);
        if (options.on_progress) options.on_progress(done, result.num_bytes);
      });
    }
    if (!pair.same_form() || pair.values.num_different > 0)
      result.tensors.push_back(std::move(pair));
  }
  return result;
}

}  // namespace trireme::checkpoint
