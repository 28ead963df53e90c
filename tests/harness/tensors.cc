#include "tests/harness/tensors.h"

#include <cstring>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::harness {

void assert_same_bits(const at::Tensor& actual, const at::Tensor& expected,
                      const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  ASSERT_EQ(actual.scalar_type(), expected.scalar_type()) << what;
  const at::Tensor a = actual.detach().cpu().contiguous();
  const at::Tensor b = expected.detach().cpu().contiguous();
  if (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0)
    return;
  const auto* a_bytes = static_cast<const char*>(a.const_data_ptr());
  const auto* b_bytes = static_cast<const char*>(b.const_data_ptr());
  for (int64_t i = 0; i < a.numel(); ++i) {
    const int64_t at_byte = i * static_cast<int64_t>(a.element_size());
    if (std::memcmp(a_bytes + at_byte, b_bytes + at_byte, a.element_size()) == 0) continue;
    const at::Tensor difference = (a.to(at::kDouble) - b.to(at::kDouble)).abs().max();
    FAIL() << what << ": bits differ first at flat index " << i << ": "
           << a.flatten()[i].item().toDouble() << " vs " << b.flatten()[i].item().toDouble()
           << "; largest difference " << difference.item<double>();
  }
}

void assert_same_bits(const std::map<std::string, at::Tensor>& actual,
                      const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    assert_same_bits(actual.at(name), tensor, name);
  }
}

void assert_close(const at::Tensor& actual, const at::Tensor& expected, double relative,
                  double absolute, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (actual.numel() == 0) return;
  const at::Tensor a = actual.detach().to(at::kDouble);
  const at::Tensor b = expected.detach().to(at::kDouble);
  const double bound = relative * b.abs().max().item<double>() + absolute;
  const double difference = (a - b).abs().max().item<double>();
  // Written so that a NaN fails.
  ASSERT_TRUE(difference <= bound)
      << what << ": largest difference " << difference << " above " << bound;
}

}  // namespace trireme::harness
