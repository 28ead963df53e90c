#include "trireme/plan/tables/zipf.h"

#include <algorithm>
#include <cmath>

namespace trireme::plan {
namespace {

constexpr double kGrowth = 1.01;  // of the blocks of rare rows
constexpr double kMaxExponent = 4;

// The sum over i = 1 to rows of value(i).
template <typename Value>
double sum_by_blocks(int64_t rows, const Value& value) {
  double sum = 0;
  const auto end = static_cast<double>(rows) + 1;
  for (double begin = 1; begin < end;) {
    const double next = std::min(std::max(begin + 1, std::floor(begin * kGrowth)), end);
    sum += (next - begin) * value((begin + next - 1) / 2);
    begin = next;
  }
  return sum;
}

}  // namespace

double expected_distinct(int64_t rows, double exponent, double draws) {
  if (rows < 1 || draws <= 0) return 0;
  const double all = sum_by_blocks(rows, [&](double i) { return std::pow(i, -exponent); });
  return sum_by_blocks(rows, [&](double i) {
    const double p = std::pow(i, -exponent) / all;
    return p >= 1 ? 1 : -std::expm1(draws * std::log1p(-p));
  });
}

double zipf_share(int64_t rows, double exponent, double part) {
  const auto power = [&](double i) { return std::pow(i, -exponent); };
  const int64_t hot = std::min(rows, static_cast<int64_t>(static_cast<double>(rows) * part) + 1);
  return sum_by_blocks(hot, power) / sum_by_blocks(rows, power);
}

double fit_zipf(int64_t rows, double draws, double distinct) {
  double low = 0, high = kMaxExponent;
  if (distinct >= expected_distinct(rows, low, draws)) return low;
  if (distinct <= expected_distinct(rows, high, draws)) return high;
  constexpr int kHalvings = 30;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (expected_distinct(rows, middle, draws) > distinct ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace trireme::plan
