#include "trireme/comm/reduce_kernel.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

template <typename T>
constexpr bool kIsSmallFloat = std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;
template <typename T>
using Accumulator = std::conditional_t<kIsSmallFloat<T>, float, T>;

// Unsigned, so that integers wrap around instead of overflowing.
template <typename T>
constexpr auto wide(T value) {
  return static_cast<std::common_type_t<unsigned, std::make_unsigned_t<T>>>(value);
}

// One functor an operation; NaN wins minimum and maximum.
struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(wide(a) + wide(b));
    return a + b;
  }
  bool operator()(bool a, bool b) const { return a || b; }
};
struct Product {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(wide(a) * wide(b));
    return a * b;
  }
  bool operator()(bool a, bool b) const { return a && b; }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};
struct BitAnd {
  template <typename T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct BitOr {
  template <typename T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct BitXor {
  template <typename T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};

template <typename T, typename Operation>
void reduce_block(T* out, std::span<const void* const> inputs, int64_t offset, int64_t count,
                  Operation operation, int divisor) {
  constexpr int64_t kBlock = 512;  // stays in the first-level cache
  using A = Accumulator<T>;
  A sums[kBlock];
  const auto input = [&](size_t r) { return static_cast<const T*>(inputs[r]) + offset; };
  for (int64_t i = 0; i < count; ++i) sums[i] = static_cast<A>(input(0)[i]);
  for (size_t r = 1; r < inputs.size(); ++r) {
    const T* values = input(r);
    for (int64_t i = 0; i < count; ++i) sums[i] = operation(sums[i], static_cast<A>(values[i]));
  }
  if constexpr (!std::is_integral_v<T>) {
    if (divisor > 1) {
      for (int64_t i = 0; i < count; ++i) sums[i] = sums[i] / static_cast<A>(divisor);
    }
  }
  for (int64_t i = 0; i < count; ++i) out[offset + i] = static_cast<T>(sums[i]);
}

template <typename T, typename Operation>
void reduce(void* out, std::span<const void* const> inputs, int64_t count, Operation operation,
            int divisor = 1) {
  constexpr int64_t kBlock = 512;
  for (int64_t offset = 0; offset < count; offset += kBlock) {
    reduce_block(static_cast<T*>(out), inputs, offset, std::min(kBlock, count - offset), operation,
                 divisor);
  }
}

template <typename T>
void reduce_as(void* out, std::span<const void* const> inputs, int64_t count, ReduceOp operation) {
  constexpr bool kIsComplex = c10::is_complex<T>::value;
  switch (operation) {
    case ReduceOp::kSum: return reduce<T>(out, inputs, count, Sum());
    case ReduceOp::kProduct: return reduce<T>(out, inputs, count, Product());
    case ReduceOp::kAverage:
      return reduce<T>(out, inputs, count, Sum(), static_cast<int>(inputs.size()));
    default: break;
  }
  if constexpr (!kIsComplex) {
    if (operation == ReduceOp::kMin) return reduce<T>(out, inputs, count, Min());
    if (operation == ReduceOp::kMax) return reduce<T>(out, inputs, count, Max());
  }
  if constexpr (std::is_integral_v<T>) {
    if (operation == ReduceOp::kBitAnd) return reduce<T>(out, inputs, count, BitAnd());
    if (operation == ReduceOp::kBitOr) return reduce<T>(out, inputs, count, BitOr());
    if (operation == ReduceOp::kBitXor) return reduce<T>(out, inputs, count, BitXor());
  }
  throw InternalError("operation was not checked");
}

}  // namespace

const char* name_of(ReduceOp operation) {
  static constexpr const char* kNames[] = {"sum",     "product",     "min",        "max",
                                           "average", "bitwise and", "bitwise or", "bitwise xor"};
  return kNames[static_cast<int>(operation)];
}

void check_reducible(c10::ScalarType dtype, ReduceOp operation) {
  using c10::ScalarType;
  static constexpr ScalarType kKnown[] = {
      ScalarType::Bool,  ScalarType::Byte,   ScalarType::Char,         ScalarType::Short,
      ScalarType::Int,   ScalarType::Long,   ScalarType::Half,         ScalarType::BFloat16,
      ScalarType::Float, ScalarType::Double, ScalarType::ComplexFloat, ScalarType::ComplexDouble};
  bool supported = std::ranges::find(kKnown, dtype) != std::end(kKnown);
  const bool is_integral = c10::isIntegralType(dtype, /*includeBool=*/true);
  switch (operation) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct: break;
    case ReduceOp::kMin:
    case ReduceOp::kMax: supported &= !c10::isComplexType(dtype); break;
    case ReduceOp::kAverage: supported &= !is_integral; break;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor: supported &= is_integral; break;
  }
  TRIREME_CHECK(supported, name_of(operation), " is not defined on ", c10::toString(dtype),
                " tensors");
}

void reduce_in_rank_order(void* out, std::span<const void* const> inputs, int64_t count,
                          c10::ScalarType dtype, ReduceOp operation) {
  using c10::ScalarType;
  switch (dtype) {
    case ScalarType::Bool: return reduce_as<bool>(out, inputs, count, operation);
    case ScalarType::Byte: return reduce_as<uint8_t>(out, inputs, count, operation);
    case ScalarType::Char: return reduce_as<int8_t>(out, inputs, count, operation);
    case ScalarType::Short: return reduce_as<int16_t>(out, inputs, count, operation);
    case ScalarType::Int: return reduce_as<int32_t>(out, inputs, count, operation);
    case ScalarType::Long: return reduce_as<int64_t>(out, inputs, count, operation);
    case ScalarType::Half: return reduce_as<c10::Half>(out, inputs, count, operation);
    case ScalarType::BFloat16: return reduce_as<c10::BFloat16>(out, inputs, count, operation);
    case ScalarType::Float: return reduce_as<float>(out, inputs, count, operation);
    case ScalarType::Double: return reduce_as<double>(out, inputs, count, operation);
    case ScalarType::ComplexFloat:
      return reduce_as<c10::complex<float>>(out, inputs, count, operation);
    case ScalarType::ComplexDouble:
      return reduce_as<c10::complex<double>>(out, inputs, count, operation);
    default: throw InternalError("dtype was not checked");
  }
}

}  // namespace trireme::comm
