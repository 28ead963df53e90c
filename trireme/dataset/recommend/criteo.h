// Criteo's data of clicks on advertisements, as text and in the binary form of benchmarks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/dataset/recommend/raw_data.h"

namespace trireme::dataset {

inline constexpr int kCriteoDense = 13;
inline constexpr int kCriteoTables = 26;

// I1 to I13 and C1 to C26, one id each, and a binary label.
FeatureSchema criteo_schema();

// log(1 + max(x, 0)).
// Source: Naumov et al. 2019, arXiv:1906.00091, and its code, facebookresearch/dlrm
float criteo_dense(double x);

// A category as a text of 8 hexadecimal digits.
void write_criteo_category(uint32_t number, std::span<char, 8> text);

// Lines of 40 columns separated by tabs: the label, 0 or 1; 13 numbers; 26 categories of up to 16
// hexadecimal digits. A missing number is 0; a missing category is a category of its own. With
// kOptional, lines may have 39 columns, without the label.
std::unique_ptr<RawData> open_criteo_text(const std::vector<std::string>& paths,
                                          Labels labels = Labels::kRequired);

// Records of 160 bytes: int32 for the label, 13 numbers and 26 categories, as DLRM and its MLPerf
// benchmark write them (before the logarithm of the numbers). A category is taken for a text of 8
// hexadecimal digits.
// With kOptional, the label may be any number.
std::unique_ptr<RawData> open_criteo_binary(const std::vector<std::string>& paths,
                                            Labels labels = Labels::kRequired);

}  // namespace trireme::dataset
