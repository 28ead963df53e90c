#include "trireme/comm/numbers/adasum.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"

namespace trireme::comm {
namespace {

using Terms = std::vector<at::Tensor>;

at::Tensor pair_by_formula(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor ab = a.dot(b);
  return a * (1 - ab / (2 * a.dot(a))) + b * (1 - ab / (2 * b.dot(b)));
}

at::Tensor term(int i, int64_t count = 1000) { return harness::values({count}, 0.3 + i, 1 + i); }

TEST(Adasum, OfTwoIsTheFormula) {
  for (const int64_t count : {3, 1000, 1024, 2000001}) {
    const Terms terms{term(0, count), term(1, count)};
    harness::assert_close(adasum(terms), pair_by_formula(terms[0], terms[1]), 1e-13, 0, "pair");
  }
}

TEST(Adasum, OfMoreIsATreeInOrder) {
  const Terms t{term(0), term(1), term(2), term(3), term(4)};
  const auto pair = pair_by_formula;
  harness::assert_same_bits(adasum(Terms{t[0]}), t[0], "one");
  harness::assert_close(adasum(Terms{t[0], t[1], t[2]}), pair(pair(t[0], t[1]), t[2]), 1e-13, 0,
                        "three");
  harness::assert_close(adasum(t), pair(pair(pair(t[0], t[1]), pair(t[2], t[3])), t[4]), 1e-13, 0,
                        "five");
}

TEST(Adasum, ProductsOfPartsAddUpToThoseOfTheWhole) {
  const at::Tensor a = term(0, 3000), b = term(1, 3000);
  PairProducts sum;
  for (const int64_t first : {0, 1000, 2000}) {
    const PairProducts part = products_of(a.narrow(0, first, 1000), b.narrow(0, first, 1000));
    sum = {.ab = sum.ab + part.ab, .aa = sum.aa + part.aa, .bb = sum.bb + part.bb};
  }
  harness::assert_close(add_pair(a, b, sum), adasum(Terms{a, b}), 1e-13, 0, "by parts");
}

TEST(Adasum, AveragesEqualAndSumsOrthogonalTerms) {
  const at::Tensor x = term(0).to(at::kFloat);
  for (size_t n = 1; n <= 8; ++n) harness::assert_same_bits(adasum(Terms(n, x)), x, "equal");
  const Terms apart{at::tensor({1.f, 0.f, 0.f}), at::tensor({0.f, 2.f, 0.f}),
                    at::tensor({0.f, 0.f, 3.f})};
  EXPECT_TRUE(adasum(apart).equal(at::tensor({1.f, 2.f, 3.f})));
}

TEST(Adasum, TakesZerosAndNothing) {
  const at::Tensor zero = at::zeros({1000}, at::kDouble);
  harness::assert_same_bits(adasum(Terms{zero, term(1)}), term(1), "zero first");
  harness::assert_same_bits(adasum(Terms{term(1), zero}), term(1), "zero last");
  EXPECT_TRUE(adasum(Terms{zero, zero, zero}).equal(zero));
  EXPECT_EQ(adasum(Terms{at::empty({0}), at::empty({0})}).numel(), 0);
}

TEST(Adasum, LeavesItsTermsAndDoesNotDependOnThreads) {
  const Terms terms{term(0, 3000001).to(at::kFloat), term(1, 3000001).to(at::kFloat)};
  const at::Tensor first = terms[0].clone();
  const at::Tensor sum = adasum(terms);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  harness::assert_same_bits(adasum(terms), sum, "one thread");
  at::set_num_threads(before);
  harness::assert_same_bits(terms[0], first, "term");
  adasum(Terms{terms[0]}).zero_();
  harness::assert_same_bits(terms[0], first, "only term");
}

}  // namespace
}  // namespace trireme::comm
