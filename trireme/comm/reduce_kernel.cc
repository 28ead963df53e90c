#include "trireme/comm/reduce_kernel.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/multiversion.h"

namespace trireme::comm {

// A block is summed rank by rank into accumulators that stay in the first-level cache, and is
// rounded once, when it is written. The compiler vectorises over elements and never over ranks, so
// the order of an element's terms is the same for every size and instruction set. Two ranks without
// a division need no accumulators; one pass over both is faster than blocks. The operations are
// functors and not function pointers, so that each is compiled into its loop.

namespace {

template <typename T>
constexpr bool kIsSmallFloat = std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;
// bf16 keeps 8 bits. Rounded after each term, a sum over many ranks would lose some of them.
template <typename T>
using Accumulator = std::conditional_t<kIsSmallFloat<T>, float, T>;

// The type of a sum's divisor. For complex numbers it is real, so both parts are divided exactly.
template <typename T>
struct RealOf {
  using Type = T;
};
template <typename T>
struct RealOf<c10::complex<T>> {
  using Type = T;
};
template <typename T>
using Real = typename RealOf<T>::Type;

// A sum's share. An integer's divisor may be beyond its own type, so it is divided in a wider one.
template <typename A>
TRIREME_INLINE A quotient(A sum, int divisor) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(sum / static_cast<std::common_type_t<A, int>>(divisor));
  } else {
    return sum / static_cast<Real<A>>(divisor);
  }
}

// Unsigned, so that integers wrap around instead of overflowing.
template <typename T>
constexpr auto wide(T value) {
  return static_cast<std::common_type_t<unsigned, std::make_unsigned_t<T>>>(value);
}

// One functor per operation. Minimum and maximum return NaN if any term is NaN.
struct Sum {
  template <typename T>
  TRIREME_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(wide(a) + wide(b));
    return a + b;
  }
  TRIREME_INLINE bool operator()(bool a, bool b) const { return a || b; }
};
struct Product {
  template <typename T>
  TRIREME_INLINE T operator()(T a, T b) const {
    // Two unsigned shorts would be multiplied as int, whose overflow is undefined.
    if constexpr (std::is_integral_v<T>) return static_cast<T>(wide(a) * wide(b));
    return a * b;
  }
  TRIREME_INLINE bool operator()(bool a, bool b) const { return a && b; }
};
struct Min {
  template <typename T>
  TRIREME_INLINE T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};
struct Max {
  template <typename T>
  TRIREME_INLINE T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};
struct BitAnd {
  template <typename T>
  TRIREME_INLINE T operator()(T a, T b) const {
    return a & b;
  }
};
struct BitOr {
  template <typename T>
  TRIREME_INLINE T operator()(T a, T b) const {
    return a | b;
  }
};
struct BitXor {
  template <typename T>
  TRIREME_INLINE T operator()(T a, T b) const {
    return a ^ b;
  }
};

// The operands of a reduction. All values of an element are read before it is written, so outs may
// be inputs.
struct Operands {
  std::span<void* const> outs;
  std::span<const void* const> inputs;
  int64_t count;
};

// Two ranks, no division: a single pass, up to a third faster than blocks.
template <typename T, typename Operation>
TRIREME_INLINE void reduce_two(const Operands& operands, Operation operation) {
  using A = Accumulator<T>;
  const T* first = static_cast<const T*>(operands.inputs[0]);
  const T* second = static_cast<const T*>(operands.inputs[1]);
  T* out = static_cast<T*>(operands.outs[0]);
  T* copy = static_cast<T*>(operands.outs.back());
  // An out is an input as a whole or not at all, so elements are independent.
#pragma GCC ivdep
  for (int64_t i = 0; i < operands.count; ++i) {
    const T value = static_cast<T>(operation(static_cast<A>(first[i]), static_cast<A>(second[i])));
    out[i] = value;
    copy[i] = value;
  }
}

template <typename T, typename Operation>
TRIREME_INLINE void reduce(const Operands& operands, Operation operation, int divisor = 1) {
  if (operands.inputs.size() == 2 && divisor == 1 && operands.outs.size() <= 2)
    return reduce_two<T>(operands, operation);
  constexpr int64_t kBlock = 512;  // stays in the first-level cache
  using A = Accumulator<T>;
  A sums[kBlock];
  const auto ranks = operands.inputs.size();
  for (int64_t offset = 0; offset < operands.count; offset += kBlock) {
    const int64_t n = std::min(kBlock, operands.count - offset);
    const T* first = static_cast<const T*>(operands.inputs[0]) + offset;
    const T* second = static_cast<const T*>(operands.inputs[ranks > 1 ? 1 : 0]) + offset;
    if (ranks == 1) {
      for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<A>(first[i]);
    } else {
      for (int64_t i = 0; i < n; ++i)
        sums[i] = operation(static_cast<A>(first[i]), static_cast<A>(second[i]));
    }
    for (size_t r = 2; r < ranks; ++r) {
      const T* values = static_cast<const T*>(operands.inputs[r]) + offset;
      for (int64_t i = 0; i < n; ++i) sums[i] = operation(sums[i], static_cast<A>(values[i]));
    }
    if (divisor > 1) {
      for (int64_t i = 0; i < n; ++i) sums[i] = quotient(sums[i], divisor);
    }
    // While the sums are in the cache, instead of a copy by each further reader.
    for (void* out : operands.outs) {
      T* values = static_cast<T*>(out) + offset;
      for (int64_t i = 0; i < n; ++i) values[i] = static_cast<T>(sums[i]);
    }
  }
}

template <typename T>
TRIREME_INLINE void reduce_as(const Operands& operands, ReduceOp operation) {
  constexpr bool kIsComplex = c10::is_complex<T>::value;
  switch (operation) {
    case ReduceOp::kSum: return reduce<T>(operands, Sum());
    case ReduceOp::kProduct: return reduce<T>(operands, Product());
    case ReduceOp::kAverage:
      return reduce<T>(operands, Sum(), static_cast<int>(operands.inputs.size()));
    default: break;
  }
  if constexpr (!kIsComplex) {
    if (operation == ReduceOp::kMin) return reduce<T>(operands, Min());
    if (operation == ReduceOp::kMax) return reduce<T>(operands, Max());
  }
  if constexpr (std::is_integral_v<T>) {
    if (operation == ReduceOp::kBitAnd) return reduce<T>(operands, BitAnd());
    if (operation == ReduceOp::kBitOr) return reduce<T>(operands, BitOr());
    if (operation == ReduceOp::kBitXor) return reduce<T>(operands, BitXor());
  }
  throw InternalError("operation was not checked");
}

// The types that training reduces most are compiled for each instruction set.
TRIREME_MULTIVERSION void reduce_float(const Operands& operands, ReduceOp operation) {
  reduce_as<float>(operands, operation);
}
TRIREME_MULTIVERSION void reduce_bfloat16(const Operands& operands, ReduceOp operation) {
  reduce_as<c10::BFloat16>(operands, operation);
}
TRIREME_MULTIVERSION void reduce_half(const Operands& operands, ReduceOp operation) {
  reduce_as<c10::Half>(operands, operation);
}
TRIREME_MULTIVERSION void reduce_double(const Operands& operands, ReduceOp operation) {
  reduce_as<double>(operands, operation);
}

// A sum that is passed from host to host is divided once, by the last host.
template <typename T>
void divide_as(void* data, int64_t count, int divisor) {
  T* values = static_cast<T*>(data);
  for (int64_t i = 0; i < count; ++i) values[i] = quotient(values[i], divisor);
}

}  // namespace

void divide_elements(void* data, int64_t count, c10::ScalarType dtype, int divisor) {
  using c10::ScalarType;
  switch (dtype) {
    case ScalarType::Byte: return divide_as<uint8_t>(data, count, divisor);
    case ScalarType::Char: return divide_as<int8_t>(data, count, divisor);
    case ScalarType::Short: return divide_as<int16_t>(data, count, divisor);
    case ScalarType::Int: return divide_as<int32_t>(data, count, divisor);
    case ScalarType::Long: return divide_as<int64_t>(data, count, divisor);
    case ScalarType::UInt16: return divide_as<uint16_t>(data, count, divisor);
    case ScalarType::UInt32: return divide_as<uint32_t>(data, count, divisor);
    case ScalarType::UInt64: return divide_as<uint64_t>(data, count, divisor);
    case ScalarType::Float: return divide_as<float>(data, count, divisor);
    case ScalarType::Double: return divide_as<double>(data, count, divisor);
    case ScalarType::ComplexFloat: return divide_as<c10::complex<float>>(data, count, divisor);
    case ScalarType::ComplexDouble: return divide_as<c10::complex<double>>(data, count, divisor);
    default: throw InternalError("dtype has no division");
  }
}

const char* name_of(ReduceOp operation) {
  static constexpr const char* kNames[] = {"sum",     "product",     "min",        "max",
                                           "average", "bitwise and", "bitwise or", "bitwise xor"};
  // The value may come from another process.
  const auto index = static_cast<size_t>(operation);
  return index < std::size(kNames) ? kNames[index] : "unknown operation";
}

void check_reducible(c10::ScalarType dtype, ReduceOp operation) {
  using c10::ScalarType;
  // A bit per dtype, because every reduction asks.
  static constexpr uint64_t kKnown = [] {
    uint64_t bits = 0;
    for (const ScalarType known :
         {ScalarType::Bool, ScalarType::Byte, ScalarType::Char, ScalarType::Short, ScalarType::Int,
          ScalarType::Long, ScalarType::UInt16, ScalarType::UInt32, ScalarType::UInt64,
          ScalarType::Half, ScalarType::BFloat16, ScalarType::Float, ScalarType::Double,
          ScalarType::ComplexFloat, ScalarType::ComplexDouble}) {
      bits |= uint64_t{1} << static_cast<int>(known);
    }
    return bits;
  }();
  bool supported = ((kKnown >> static_cast<int>(dtype)) & 1) != 0;
  const bool is_integral = c10::isIntegralType(dtype, /*includeBool=*/true);
  switch (operation) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct: break;
    case ReduceOp::kMin:
    case ReduceOp::kMax: supported &= !c10::isComplexType(dtype); break;
    case ReduceOp::kAverage: supported &= dtype != ScalarType::Bool; break;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor: supported &= is_integral; break;
  }
  TRIREME_CHECK(supported, name_of(operation), " is not defined on ", c10::toString(dtype),
                " tensors");
}

void reduce_in_rank_order(std::span<void* const> outs, std::span<const void* const> inputs,
                          int64_t count, c10::ScalarType dtype, ReduceOp operation) {
  using c10::ScalarType;
  const Operands operands{outs, inputs, count};
  switch (dtype) {
    case ScalarType::Bool: return reduce_as<bool>(operands, operation);
    case ScalarType::Byte: return reduce_as<uint8_t>(operands, operation);
    case ScalarType::Char: return reduce_as<int8_t>(operands, operation);
    case ScalarType::Short: return reduce_as<int16_t>(operands, operation);
    case ScalarType::Int: return reduce_as<int32_t>(operands, operation);
    case ScalarType::Long: return reduce_as<int64_t>(operands, operation);
    case ScalarType::UInt16: return reduce_as<uint16_t>(operands, operation);
    case ScalarType::UInt32: return reduce_as<uint32_t>(operands, operation);
    case ScalarType::UInt64: return reduce_as<uint64_t>(operands, operation);
    case ScalarType::Half: return reduce_half(operands, operation);
    case ScalarType::BFloat16: return reduce_bfloat16(operands, operation);
    case ScalarType::Float: return reduce_float(operands, operation);
    case ScalarType::Double: return reduce_double(operands, operation);
    case ScalarType::ComplexFloat: return reduce_as<c10::complex<float>>(operands, operation);
    case ScalarType::ComplexDouble: return reduce_as<c10::complex<double>>(operands, operation);
    default: throw InternalError("dtype was not checked");
  }
}

}  // namespace trireme::comm
