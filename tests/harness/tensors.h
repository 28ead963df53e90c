// Comparisons of tensors. Failures say where, or by how much, they differ.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme::harness {

// Fails the test unless shape, dtype and every bit are equal (NaNs of equal bits are equal).
void assert_same_bits(const at::Tensor& actual, const at::Tensor& expected,
                      const std::string& what);
// The same of tensors by name; both have the same names.
void assert_same_bits(const std::map<std::string, at::Tensor>& actual,
                      const std::map<std::string, at::Tensor>& expected);

// Fails the test unless |actual - expected| <= relative * max|expected| + absolute everywhere.
// The caller derives the tolerance. There is no default.
void assert_close(const at::Tensor& actual, const at::Tensor& expected, double relative,
                  double absolute, const std::string& what);

}  // namespace trireme::harness
