#include "trireme/model/gpu/gpu_kernels.h"

#include <string>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

#ifdef TRIREME_HAVE_CUDA
#include <ATen/cuda/jiterator.h>
#endif

namespace trireme::model {
namespace {

// T is the type that the kernel computes in: fp32 for fp16 and bf16.
const std::string kSwiglu = R"(
template <typename T> T trireme_swiglu(T gate, T up) { return gate / (T(1) + exp(-gate)) * up; })";

const std::string kSwigluBackward = R"(
template <typename T>
void trireme_swiglu_backward(T grad, T gate, T up, T& grad_gate, T& grad_up) {
  const T s = T(1) / (T(1) + exp(-gate));
  grad_gate = grad * up * (s * (T(1) + gate * (T(1) - s)));
  grad_up = grad * (gate * s);
})";

const std::string kTurn = R"(
template <typename T> void trireme_turn(T a, T b, T cos, T sin, T& turned_a, T& turned_b) {
  turned_a = a * cos - b * sin;
  turned_b = b * cos + a * sin;
})";

// Inputs of a kernel have one type, and are read one by one where they are not contiguous. So four
// numbers of bf16, or two of fp32 from the table, come as the bits of an fp64.
const std::string kTurnBf16 = R"(
unsigned long long trireme_round(float x) {
  const unsigned bits = __float_as_uint(x);
  return x != x ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
template <typename T>
void trireme_turn_bf16(T a, T b, T cos_01, T cos_23, T sin_01, T sin_23, T& turned_a, T& turned_b) {
  const unsigned long long from_a = __double_as_longlong(a), from_b = __double_as_longlong(b);
  const unsigned long long cosines[2] = {(unsigned long long)__double_as_longlong(cos_01),
                                         (unsigned long long)__double_as_longlong(cos_23)};
  const unsigned long long sines[2] = {(unsigned long long)__double_as_longlong(sin_01),
                                       (unsigned long long)__double_as_longlong(sin_23)};
  unsigned long long to_a = 0, to_b = 0;
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float x = __uint_as_float((unsigned)(from_a >> (16 * i)) << 16);
    const float y = __uint_as_float((unsigned)(from_b >> (16 * i)) << 16);
    const float c = __uint_as_float((unsigned)(cosines[i / 2] >> (32 * (i % 2))));
    const float s = __uint_as_float((unsigned)(sines[i / 2] >> (32 * (i % 2))));
    to_a |= trireme_round(x * c - y * s) << (16 * i);
    to_b |= trireme_round(y * c + x * s) << (16 * i);
  }
  turned_a = __longlong_as_double(to_a);
  turned_b = __longlong_as_double(to_b);
})";
constexpr int64_t kBf16PerDouble = 4;

#ifdef TRIREME_HAVE_CUDA

constexpr bool kHasCuda = true;

std::pair<at::Tensor, at::Tensor> run_for_two(const std::string& code, const std::string& name,
                                              const c10::SmallVector<at::Tensor>& inputs) {
  const auto out = at::cuda::CompileAndLaunchKernel(code, name, 2, inputs, {}, true);
  return {out[0], out[1]};
}

at::Tensor run_for_one(const std::string& code, const std::string& name,
                       const c10::SmallVector<at::Tensor>& inputs) {
  return at::cuda::CompileAndLaunchKernel(code, name, 1, inputs, {}, false)[0];
}

#else

constexpr bool kHasCuda = false;

[[noreturn]] void refuse(const std::string& name) {
  throw InternalError(concat(name, ": this build's libtorch has no CUDA"));
}

std::pair<at::Tensor, at::Tensor> run_for_two(const std::string&, const std::string& name,
                                              const c10::SmallVector<at::Tensor>&) {
  refuse(name);
}

at::Tensor run_for_one(const std::string&, const std::string& name,
                       const c10::SmallVector<at::Tensor>&) {
  refuse(name);
}

#endif

}  // namespace

bool has_gpu_kernels(const at::Tensor& tensor) { return kHasCuda && tensor.is_cuda(); }

at::Tensor gpu_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return run_for_one(kSwiglu, "trireme_swiglu", {gate, up});
}

std::pair<at::Tensor, at::Tensor> gpu_swiglu_backward(const at::Tensor& grad,
                                                      const at::Tensor& gate,
                                                      const at::Tensor& up) {
  return run_for_two(kSwigluBackward, "trireme_swiglu_backward", {grad, gate, up});
}

bool turns_on_gpu(const at::Tensor& x, const at::Tensor& table) {
  if (!has_gpu_kernels(x)) return false;
  if (x.scalar_type() == table.scalar_type()) return true;
  return x.scalar_type() == at::kBFloat16 && table.scalar_type() == at::kFloat &&
         table.size(1) % kBf16PerDouble == 0 && x.storage_offset() % kBf16PerDouble == 0 &&
         table.storage_offset() % 2 == 0;
}

at::Tensor gpu_turn(const at::Tensor& x_BTD, const at::Tensor& cos_TH, const at::Tensor& sin_TH,
                    bool back) {
  const int64_t length = x_BTD.size(1), half = cos_TH.size(1);
  const at::ScalarType dtype = x_BTD.scalar_type();
  const bool packs = dtype != cos_TH.scalar_type();
  at::Tensor pairs = x_BTD.view({x_BTD.size(0), length, x_BTD.size(2) / (2 * half), 2, half});
  if (packs) pairs = pairs.view(at::kDouble);
  // Rotating back is rotating the pair (b, a).
  c10::SmallVector<at::Tensor> inputs = {pairs.select(3, back ? 1 : 0),
                                         pairs.select(3, back ? 0 : 1)};
  for (const at::Tensor& table_TH : {cos_TH, sin_TH}) {
    const at::Tensor rows = table_TH.narrow(0, 0, length).unsqueeze(1);  // [T, 1, H/2]
    if (!packs) {
      inputs.push_back(rows);
      continue;
    }
    const at::Tensor twos = rows.view(at::kDouble).unflatten(2, {half / kBf16PerDouble, 2});
    inputs.push_back(twos.select(3, 0));
    inputs.push_back(twos.select(3, 1));
  }
  const auto [first, second] = packs ? run_for_two(kTurnBf16, "trireme_turn_bf16", inputs)
                                     : run_for_two(kTurn, "trireme_turn", inputs);
  const at::Tensor turned = at::stack({back ? second : first, back ? first : second}, 3);
  return (packs ? turned.view(dtype) : turned).view(x_BTD.sizes());
}

}  // namespace trireme::model
