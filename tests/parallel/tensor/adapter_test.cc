// Low-rank adapters of layers that the tensor axis splits, against their formula on whole tensors.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/parallel/tensor/whole_and_part.h"
#include "trireme/parallel/tensor/split_layers.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// fp64: sums of at most 40 products, each rounded to 2^-53, in another order than the oracle's.
constexpr double kAdapterFp64 = 1e-13;
constexpr double kScale = 1.5;

at::Tensor with_adapter(const at::Tensor& x, const at::Tensor& w, const at::Tensor& a,
                        const at::Tensor& b) {
  return at::linear(x, w) + kScale * at::linear(at::linear(x, a), b);
}

// A function of x that draws nothing: what a mask does to it.
at::Tensor halved(const at::Tensor& x) { return x * 0.5; }

Tensors leaves_of(Tensors tensors) {
  for (at::Tensor& leaf : tensors) leaf.requires_grad_();
  return tensors;
}

TEST(Adapter, OfColumnsIsItsFormulaWithEveryGradient) {
  for (const bool drops : {false, true}) {
    for (const int64_t tokens : {1, 7}) {
      const at::Tensor x = values({1, tokens, 6}, 0.37), w0 = values({11, 6}, 0.3);
      const at::Tensor w1 = values({5, 6}, 0.5), a = values({2, 6}, 0.71), b = values({11, 2}, 0.9);
      for_each_axis({1, 2, 3, 4}, [&](const TensorAxis& axis) {
        Tensors own = leaves_of({held_rows(x, axis), part_of(w0, 0, axis), part_of(w1, 0, axis),
                                 a.clone(), part_of(b, 0, axis)});
        const Adapter adapter{own[3], own[4], kScale,
                              drops ? halved : std::function<at::Tensor(const at::Tensor&)>()};
        const auto y = column_linear(own[0], {{own[1], {}, adapter}, {own[2]}}, {1, tokens}, axis);
        ASSERT_EQ(y.size(), 2u);
        const auto part = [&](int64_t rows, double f) {
          return part_of(values({1, tokens, rows}, f), 2, axis);
        };
        const auto grads = torch::autograd::grad(
            {(y[0] * part(11, 0.7)).sum() + (y[1] * part(5, 0.2)).sum()}, own);

        const Tensors whole = leaves_of({x.clone(), w0.clone(), w1.clone(), a.clone(), b.clone()});
        const at::Tensor e0 =
            at::linear(whole[0], whole[1]) +
            kScale *
                at::linear(at::linear(drops ? halved(whole[0]) : whole[0], whole[3]), whole[4]);
        const at::Tensor e1 = at::linear(whole[0], whole[2]);
        const auto expected = torch::autograd::grad(
            {(e0 * values({1, tokens, 11}, 0.7)).sum() + (e1 * values({1, tokens, 5}, 0.2)).sum()},
            whole);
        const auto close = [](const at::Tensor& actual, const at::Tensor& wanted,
                              const char* name) {
          assert_close(actual, wanted, kAdapterFp64, 10 * kAdapterFp64, name);
        };
        close(y[0].detach(), part_of(e0.detach(), 2, axis), "y0");
        close(y[1].detach(), part_of(e1.detach(), 2, axis), "y1");
        close(grads[0], held_rows(expected[0], axis), "grad x");
        close(grads[1], part_of(expected[1], 0, axis), "grad w0");
        close(grads[2], part_of(expected[2], 0, axis), "grad w1");
        close(grads[3], expected[3], "grad a");
        close(grads[4], part_of(expected[4], 0, axis), "grad b");
      });
    }
  }
}

TEST(Adapter, OfRowsIsItsFormulaWithEveryGradient) {
  for (const bool with_residual : {false, true}) {
    for (const int64_t tokens : {1, 7}) {
      const at::Tensor x = values({2, tokens, 9}, 0.37), w = values({6, 9}, 0.3);
      const at::Tensor a = values({2, 9}, 0.71), b = values({6, 2}, 0.9);
      const at::Tensor residual = values({2, tokens, 6}, 0.61),
                       weight = values({2, tokens, 6}, 0.7);
      for_each_axis({1, 2, 3, 4}, [&](const TensorAxis& axis) {
        const Tensors own = leaves_of({part_of(x, 2, axis), part_of(w, 1, axis),
                                       part_of(a, 1, axis), b.clone(), held_rows(residual, axis)});
        const at::Tensor y = row_linear(own[0], {own[1], {}, {own[2], own[3], kScale}},
                                        with_residual ? own[4] : at::Tensor(), axis);
        const Tensors whole =
            leaves_of({x.clone(), w.clone(), a.clone(), b.clone(), residual.clone()});
        at::Tensor e = with_adapter(whole[0], whole[1], whole[2], whole[3]);
        if (with_residual) e = e + whole[4];
        const auto grad = [](const at::Tensor& loss, const Tensors& of) {
          return torch::autograd::grad({loss}, of, {}, std::nullopt, false, /*allow_unused=*/true);
        };
        const auto grads = grad((y * held_rows(weight, axis)).sum(), own);
        const auto expected = grad((e * weight).sum(), whole);
        const auto close = [](const at::Tensor& actual, const at::Tensor& wanted,
                              const char* name) {
          assert_close(actual, wanted, kAdapterFp64, 10 * kAdapterFp64, name);
        };
        close(y.detach().view({-1, 6}), held_rows(e.detach(), axis).view({-1, 6}), "y");
        close(grads[0], part_of(expected[0], 2, axis), "grad x");
        close(grads[1], part_of(expected[1], 1, axis), "grad w");
        close(grads[2], part_of(expected[2], 1, axis), "grad a");
        close(grads[3], expected[3], "grad b");
        if (with_residual) close(grads[4], held_rows(expected[4], axis), "grad residual");
      });
    }
  }
}

TEST(Adapter, OfOwnRowsIsItsFormulaWithEveryGradient) {
  const at::Tensor x = values({2, 3, 6}, 0.37), w = values({11, 6}, 0.3);
  const at::Tensor a = values({2, 6}, 0.71), b = values({11, 2}, 0.9);
  const at::Tensor weight = values({2, 3, 11}, 0.7);
  for (const int world : {1, 2, 3, 4}) {
    run_ranks(world, [&](comm::Communicator& group) {
      const TensorAxis axis{.group = &group};
      const Tensors own =
          leaves_of({x.clone(), part_of(w, 0, axis), a.clone(), part_of(b, 0, axis)});
      const at::Tensor y = own_linear(own[0], {own[1], {}, {own[2], own[3], kScale}}, axis);
      const auto grads =
          torch::autograd::grad({(y * part_of(weight, 2, axis)).sum()}, {own[1], own[2], own[3]});
      const Tensors whole = leaves_of({x.clone(), w.clone(), a.clone(), b.clone()});
      const at::Tensor e = with_adapter(whole[0], whole[1], whole[2], whole[3]);
      const auto expected =
          torch::autograd::grad({(e * weight).sum()}, {whole[1], whole[2], whole[3]});
      assert_close(y.detach(), part_of(e.detach(), 2, axis), kAdapterFp64, kAdapterFp64, "y");
      assert_close(grads[0], part_of(expected[0], 0, axis), kAdapterFp64, kAdapterFp64, "grad w");
      assert_close(grads[1], expected[1], kAdapterFp64, 1e-12, "grad a");
      assert_close(grads[2], part_of(expected[2], 0, axis), kAdapterFp64, 1e-12, "grad b");
    });
  }
}

// The layer with magnitudes, whose rows' lengths are constants.
at::Tensor with_magnitudes(const at::Tensor& x, const Tensors& of) {
  const at::Tensor &w = of[0], &bias = of[1], &a = of[2], &b = of[3], &magnitude = of[4];
  const auto lengths = [](const at::Tensor& rows) { return rows.detach().square().sum(1).sqrt(); };
  const at::Tensor gain = (magnitude + lengths(w)) / lengths(w + kScale * b.mm(a));
  return gain * with_adapter(x, w, a, b) + bias;
}

LinearWeight layer_of(const Tensors& of) {
  return {of[0], of[1], {of[2], of[3], kScale, {}, of[4]}};
}

TEST(Adapter, WithMagnitudesIsItsFormulaWithEveryGradient) {
  enum class Form { kColumns, kRows, kOwn };
  const at::Tensor x = values({2, 7, 9}, 0.37), residual = values({2, 7, 11}, 0.61);
  const at::Tensor weight = values({2, 7, 11}, 0.7);
  const Tensors all{values({11, 9}, 0.3), values({11}, 0.23), values({2, 9}, 0.71),
                    values({11, 2}, 0.9), values({11}, 0.43)};
  for (const Form form : {Form::kColumns, Form::kRows, Form::kOwn}) {
    for_each_axis({1, 2, 3, 4}, [&](const TensorAxis& axis) {
      if (form == Form::kOwn && axis.sequence) return;
      const bool by_rows = form == Form::kRows;
      // Of weight, bias, A, B and magnitudes: the dimension that is split, or none.
      const int dims[] = {by_rows ? 1 : 0, by_rows ? -1 : 0, by_rows ? 1 : -1, by_rows ? -1 : 0,
                          by_rows ? -1 : 0};
      Tensors own;
      for (size_t i = 0; i < all.size(); ++i)
        own.push_back(dims[i] < 0 ? all[i].clone() : part_of(all[i], dims[i], axis));
      own.push_back(by_rows                  ? part_of(x, 2, axis)
                    : form == Form::kColumns ? held_rows(x, axis)
                                             : x.clone());
      own = leaves_of(own);
      const at::Tensor& own_x = own.back();
      const at::Tensor y =
          by_rows ? row_linear(own_x, layer_of(own), held_rows(residual, axis), axis)
          : form == Form::kColumns ? column_linear(own_x, {layer_of(own)}, {2, 7}, axis)[0]
                                   : own_linear(own_x, layer_of(own), axis);
      const auto own_part = [&](const at::Tensor& of) {
        return by_rows ? held_rows(of, axis) : part_of(of, 2, axis);
      };
      const auto grads = torch::autograd::grad({(y * own_part(weight)).sum()}, own);

      Tensors whole;
      for (const at::Tensor& tensor : all) whole.push_back(tensor.clone());
      whole.push_back(x.clone());
      whole = leaves_of(whole);
      at::Tensor e = with_magnitudes(whole.back(), whole);
      if (by_rows) e = e + residual;
      const auto expected = torch::autograd::grad({(e * weight).sum()}, whole);
      const auto close = [&](const at::Tensor& actual, const at::Tensor& wanted,
                             const std::string& name) {
        assert_close(actual, wanted, 1e-12, 1e-12, name);
      };
      close(y.detach(), own_part(e.detach()).view(y.sizes()), "y");
      for (size_t i = 0; i < all.size(); ++i) {
        close(grads[i], dims[i] < 0 ? expected[i] : part_of(expected[i], dims[i], axis),
              "grad " + std::to_string(i));
      }
      if (form == Form::kOwn) return;  // another layer sums it
      close(grads[5], by_rows ? part_of(expected[5], 2, axis) : held_rows(expected[5], axis),
            "grad x");
    });
  }
}

// A row of zeros has no direction; its output is zero and not undefined.
TEST(Adapter, OfAZeroRowIsZero) {
  const Tensors of{at::zeros({2, 3}, at::kDouble),
                   {},
                   values({2, 3}, 0.71),
                   at::zeros({2, 2}, at::kDouble),
                   at::zeros({2}, at::kDouble)};
  EXPECT_TRUE(own_linear(values({4, 3}, 0.3), layer_of(of), {}).eq(0).all().item<bool>());
}

// A frozen layer has no gradient of its weight, whichever of the others has one.
TEST(Adapter, OfAFrozenLayerIsAllThatIsTrained) {
  const at::Tensor x = values({3, 6}, 0.37), w = values({5, 6}, 0.3);
  const Tensors own = leaves_of({values({2, 6}, 0.71), values({5, 2}, 0.9)});
  const at::Tensor columns = column_linear(x, {{w, {}, {own[0], own[1], kScale}}}, {3}, {})[0];
  columns.sum().backward();
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(own[0].grad().defined());
  EXPECT_TRUE(own[1].grad().defined());
}

TEST(Adapter, SendsTheBytesItStates) {
  for (const bool sequence : {false, true}) {
    run_ranks(4, [&](comm::Communicator& group) {
      CountingCommunicator counting(group);
      const TensorAxis axis{.group = &counting, .sequence = sequence};
      const auto bytes = [&] {
        const int64_t sum = counting.ledger().of(group.name()).bytes;
        counting.ledger().clear();
        return sum;
      };
      const int64_t S = 8, D = 12, f = 4, r = 2, item = 8, n = S * D * item;
      const Tensors own = leaves_of({held_rows(values({S, D}, 0.3), axis), values({f, D}, 0.5),
                                     values({r, D}, 0.7), values({f, r}, 0.2)});
      const at::Tensor y =
          column_linear(own[0], {{own[1], {}, {own[2], own[3], kScale}}}, {S}, axis)[0];
      EXPECT_EQ(bytes(), sequence ? 3 * n / 4 : 0);
      torch::autograd::grad({y.sum()}, own);
      EXPECT_EQ(bytes(), 2 * 3 * n / 4 + 2 * 3 * r * D * item / 4);

      const Tensors rows = leaves_of(
          {values({S, f}, 0.3), values({D, f}, 0.5), values({r, f}, 0.7), values({D, r}, 0.2)});
      const at::Tensor z = row_linear(rows[0], {rows[1], {}, {rows[2], rows[3], kScale}}, {}, axis);
      const int64_t both = n + S * r * item;
      EXPECT_EQ(bytes(), (sequence ? 3 : 6) * both / 4);
      torch::autograd::grad({z.sum()}, rows);
      EXPECT_EQ(bytes(), sequence ? 3 * both / 4 + 2 * 3 * D * r * item / 4 : 0);

      const Tensors scaled = leaves_of({values({D, f}, 0.5), values({D}, 0.1), values({r, f}, 0.7),
                                        values({D, r}, 0.2), values({D}, 0.4)});
      const at::Tensor m = row_linear(values({S, f}, 0.3), layer_of(scaled), {}, axis);
      EXPECT_EQ(bytes(), (sequence ? 3 : 6) * both / 4 + 2 * 3 * 2 * D * item / 4);
    });
  }
}

}  // namespace
}  // namespace trireme::parallel
