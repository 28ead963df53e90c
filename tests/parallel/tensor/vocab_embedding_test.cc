#include "trireme/parallel/tensor/split_layers.h"

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/parallel/tensor/whole_and_part.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// Each row comes from one rank and its gradient goes to one: nothing is rounded.
TEST(VocabEmbedding, HasTheBitsOfAWholeTable) {
  for (const int64_t length : {0, 1, 7}) {
    const at::Tensor tokens =
        at::arange(2 * length, at::kLong).mul(5).remainder(13).view({2, length});
    const at::Tensor w = values({13, 4}, 0.3, 1, at::kFloat);
    const at::Tensor weight = values({2, length, 4}, 0.7, 1, at::kFloat);
    const at::Tensor whole = w.clone().requires_grad_();
    const at::Tensor e = at::embedding(whole, tokens);
    const at::Tensor expected = torch::autograd::grad({(e * weight).sum()}, {whole})[0];
    for_each_axis({1, 2, 3, 4, 5}, [&](const TensorAxis& axis) {
      const at::Tensor own = part_of(w, 0, axis).requires_grad_();
      const int64_t first = mesh::split_range(13, axis.size(), axis.rank()).offset;
      const at::Tensor y = vocab_embedding(tokens, own, first, axis);
      assert_same_bits(y.detach(), held_rows(e.detach(), axis), "rows");
      const auto grad = torch::autograd::grad({(y * held_rows(weight, axis)).sum()}, {own})[0];
      assert_same_bits(grad, part_of(expected, 0, axis), "gradient");
    });
  }
}

// Five hundred small terms of one token: rounded one by one, its sum would stop to grow.
TEST(VocabEmbedding, SumsOfManyTokensAreRoundedOnce) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor tokens = at::arange(1000, at::kLong).remainder(2).mul(7).view({4, 250});
    const at::Tensor w = values({13, 4}, 0.3, 1, dtype);
    const at::Tensor weight = values({4, 250, 4}, 0.7, 1, dtype).abs();
    const at::Tensor expected = at::embedding_dense_backward(weight.to(at::kFloat).view({1000, 4}),
                                                             tokens.view(-1), 13, -1, false)
                                    .to(dtype);
    for_each_axis({1, 2, 3}, [&](const TensorAxis& axis) {
      const at::Tensor own = part_of(w, 0, axis).requires_grad_();
      const int64_t first = mesh::split_range(13, axis.size(), axis.rank()).offset;
      const at::Tensor y = vocab_embedding(tokens, own, first, axis);
      assert_same_bits(y.detach(), held_rows(at::embedding(w, tokens), axis), "rows");
      const at::Tensor grad = held_rows(weight, axis);
      assert_same_bits(torch::autograd::grad({y}, {own}, {grad.view(y.sizes())})[0],
                       part_of(expected, 0, axis), "gradient");
    });
  }
}

TEST(VocabEmbedding, SendsTheBytesItStates) {
  for (const bool sequence : {false, true}) {
    run_ranks(4, [&](comm::Communicator& group) {
      CountingCommunicator counting(group);
      const TensorAxis axis{.group = &counting, .sequence = sequence};
      const int64_t S = 8, D = 6, n = S * D * 8;
      const at::Tensor w = values({3, D}, 0.5).requires_grad_();
      const at::Tensor y = vocab_embedding(at::arange(S, at::kLong), w, 3 * group.rank(), axis);
      EXPECT_EQ(counting.ledger().of(group.name()).bytes, (sequence ? 1 : 2) * 3 * n / 4);
      counting.ledger().clear();
      torch::autograd::grad({y.sum()}, {w});
      EXPECT_EQ(counting.ledger().of(group.name()).bytes, sequence ? 3 * n / 4 : 0);
    });
  }
}

}  // namespace
}  // namespace trireme::parallel
