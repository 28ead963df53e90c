// Data in Criteo's format whose best possible model is known. Columns have the numbers of
// categories of Criteo's Kaggle data, scaled, with frequencies that fall like those of words.
// Labels are drawn from a logistic model of all columns.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/choice.h"

namespace trireme::dataset {

// Numbers of categories of C1 to C26 in the data of Kaggle's Display Advertising Challenge.
// Source: Naumov et al. 2019, arXiv:1906.00091, and its code, facebookresearch/dlrm
inline constexpr std::array<int64_t, 26> kCriteoKaggleRows = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};

// As `data prepare --format` reads it.
enum class CriteoForm { kText, kNumpy };
inline constexpr Choice<CriteoForm> kCriteoForms[] = {{"criteo", CriteoForm::kText},
                                                      {"criteo-numpy", CriteoForm::kNumpy}};

struct GenerateCriteoOptions {
  CriteoForm form = CriteoForm::kText;
  int64_t num_samples = 0;
  uint64_t seed = 1;
  double scale = 1;  // of the numbers of categories; none falls below 3
  // The category of rank k, from 1, has a probability of about k^-skew: the integral of x^-skew
  // from k to k + 1, divided by that over all categories. At least 0, and not 1.
  double skew = 1.1;
  // A file; of arrays what the names of the three files begin with, such as day_0.
  std::string output = {};
};

// The quality of the probabilities from which the labels were drawn. No model that sees only the
// columns is better, in expectation.
struct GenerateCriteoReport {
  int64_t num_samples = 0;
  int64_t num_positives = 0;
  double best_auc = 0;                 // on the labels that were drawn, exactly; NaN: one class
  double expected_auc = 0;             // (expected right pairs) / (expected pairs), ties at half
  double best_normalised_entropy = 0;  // on the labels that were drawn
  int64_t num_bytes = 0;
};

// Sample i depends only on (seed, scale, skew, i), in either form. A file appears when it is
// complete.
// Memory: 16 MiB
// progress: called with (bytes done, about all bytes)
// Throws: ConfigError for options out of range and a file that cannot be written
GenerateCriteoReport generate_criteo(const GenerateCriteoOptions& options,
                                     const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace trireme::dataset
