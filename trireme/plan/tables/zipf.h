// Zipf's law: the i-th most frequent of N rows is used with probability proportional to i^-s. Ids
// of users, words and items follow it closely enough to say how many different ones a batch has.
// Source: Breslau et al. 1999, "Web caching and Zipf-like distributions: evidence and implications"
#pragma once

#include <cstdint>

namespace trireme::plan {

// The expected number of different rows among `draws` independent draws, the sum over rows of
// 1 - (1 - p)^draws. Exact for the most frequent rows; the others are taken in blocks, which
// changes less than 0.1 %.
double expected_distinct(int64_t rows, double exponent, double draws);

// The share of all draws that the most frequent rows get, `part` of all rows and at least one.
double zipf_share(int64_t rows, double exponent, double part);

// The exponent for which `distinct` different rows are expected among `draws`; within [0, 4].
double fit_zipf(int64_t rows, double draws, double distinct);

}  // namespace trireme::plan
