// How the columns of a CSV table become the features of a sample. A prepared folder keeps it in
// features.json, for new data and for rows to predict. Reads no rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/choice.h"

namespace trireme::dataset {

enum class NumberTransform { kNone, kLog, kStandard };
inline constexpr Choice<NumberTransform> kNumberTransforms[] = {
    {"none", NumberTransform::kNone},
    {"log", NumberTransform::kLog},
    {"standard", NumberTransform::kStandard}};

// What stands for a number that a row lacks, before its transform.
enum class MissingNumbers {
  kZero,
  kMean,    // of the training samples that have the number
  kRefuse,  // a row without it is an error; so is one without a category
};
inline constexpr Choice<MissingNumbers> kMissingNumbers[] = {{"zero", MissingNumbers::kZero},
                                                             {"mean", MissingNumbers::kMean},
                                                             {"refuse", MissingNumbers::kRefuse}};

inline constexpr Choice<char> kSeparators[] = {
    {"comma", ','}, {"tab", '\t'}, {"semicolon", ';'}, {"bar", '|'}};

// mean and deviation are of the training samples that have the number.
struct CsvNumber {
  NumberTransform transform = NumberTransform::kLog;
  double mean = 0;
  double deviation = 1;  // above 0
  bool operator==(const CsvNumber&) const = default;

  // none: x. log: log(1 + max(x, 0)), as of Criteo's numbers. standard: (x - mean) / deviation.
  float dense(double x) const;
};

struct CsvForm {
  char separator = ',';
  std::string label{};                 // a column; new rows may lack it
  std::vector<std::string> dropped{};  // columns that are not read; new rows may lack them
  std::vector<CsvNumber> numbers{};    // of each dense feature
  MissingNumbers missing = MissingNumbers::kZero;
  std::vector<std::string> missing_texts{};  // such as NA; an empty cell is always missing
  bool operator==(const CsvForm&) const = default;
};

// The count, the mean and the deviation of numbers that come one after the other.
// Source: Welford 1962, Technometrics 4(3)
class NumberMoments {
 public:
  void add(double x);
  double mean() const { return mean_; }  // 0 without numbers
  double deviation() const;              // 1 when all are equal

 private:
  int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // sum of the squared distances from the mean
};

}  // namespace trireme::dataset
