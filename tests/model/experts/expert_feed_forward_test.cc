#include "trireme/model/experts/expert_feed_forward.h"

#include <atomic>

#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/harness/live_bytes.h"
#include "tests/harness/ranks.h"
#include "tests/parallel/tensor/whole_and_part.h"
#include "trireme/model/layers/recompute.h"

namespace trireme::model {
namespace {

using namespace harness;
using parallel::TensorAxis;

constexpr int64_t kD = 6, kSequences = 2, kLength = 5;

ModelConfig some_config(int64_t shared_experts = 0) {
  return {.width = kD,
          .ffn_width = 9,
          .sparse = {.experts = 5,
                     .experts_per_token = 2,
                     .expert_width = 7,
                     .shared_experts = shared_experts,
                     .balance_loss = 0.1,
                     .router_z_loss = 0.05}};
}

const std::optional<TrainingPlace> kTraining =
    TrainingPlace{.step = 3, .num_samples = 4, .gradient_scale = 0.5};

// Whole values of every parameter.
std::map<std::string, at::Tensor> some_weights(const ModelConfig& config) {
  const int64_t E = config.sparse.experts, F = config.expert_width(), S = config.shared_width();
  return {{"gate.weight", values({E, kD}, 0.9)},
          {"experts.gate_proj", values({E, F, kD}, 0.3)},
          {"experts.up_proj", values({E, F, kD}, 0.5)},
          {"experts.down_proj", values({E, kD, F}, 0.7)},
          {"shared_experts.gate_proj.weight", values({S, kD}, 0.35)},
          {"shared_experts.up_proj.weight", values({S, kD}, 0.55)},
          {"shared_experts.down_proj.weight", values({kD, S}, 0.75)}};
}

// The dimension that the tensor axis splits; -1: none.
int64_t split_dim(const std::string& name) {
  if (name == "gate.weight") return -1;
  const bool is_down = name.find("down_proj") != name.npos;
  return (name.starts_with("shared") ? 0 : 1) + (is_down ? 1 : 0);
}

at::Tensor part_on(const TensorAxis& axis, const std::string& name, const at::Tensor& whole) {
  return split_dim(name) < 0 ? whole.clone() : part_of(whole, split_dim(name), axis);
}

at::Tensor swiglu_of(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& up,
                     const at::Tensor& down) {
  return at::linear(at::silu(at::linear(x, gate)) * at::linear(x, up), down);
}

// Every expert on every token, masked; the auxiliary losses are part of the scalar.
struct Oracle {
  at::Tensor y;
  at::Tensor auxiliary;
};
Oracle every_expert_on_every_token(const ModelConfig& config, at::Tensor x,
                                   const std::map<std::string, at::Tensor>& w) {
  const int64_t E = config.sparse.experts, k = config.sparse.experts_per_token;
  const at::Tensor logits = at::linear(x, w.at("gate.weight"));  // [B, T, E]
  const at::Tensor scores = logits.softmax(-1);
  const at::Tensor chosen =
      std::get<1>(at::sort(scores, /*stable=*/true, -1, true)).narrow(-1, 0, k);
  const at::Tensor mask = at::zeros_like(scores).scatter_(-1, chosen, 1);
  const at::Tensor weights = scores * mask / (scores * mask).sum(-1, true);
  at::Tensor y = at::zeros_like(x);
  for (int64_t e = 0; e < E; ++e) {
    y = y + weights.narrow(-1, e, 1) * swiglu_of(x, w.at("experts.gate_proj")[e],
                                                 w.at("experts.up_proj")[e],
                                                 w.at("experts.down_proj")[e]);
  }
  if (config.sparse.shared_experts > 0) {
    y = y + swiglu_of(x, w.at("shared_experts.gate_proj.weight"),
                      w.at("shared_experts.up_proj.weight"),
                      w.at("shared_experts.down_proj.weight"));
  }
  const double sequences = 4, scale = 0.5;
  const double T = static_cast<double>(x.size(1));
  const at::Tensor balance = (mask.sum(1) * scores.sum(1)).sum() *
                             (static_cast<double>(E) / (static_cast<double>(k) * T * T));
  const at::Tensor z = logits.logsumexp(-1).square().sum() / T;
  return {y, (balance * config.sparse.balance_loss + z * config.sparse.router_z_loss) *
                 (scale / sequences)};
}

void load(ExpertFeedForward& module, const std::map<std::string, at::Tensor>& weights,
          const TensorAxis& axis) {
  const at::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    item.value().copy_(part_on(axis, item.key(), weights.at(item.key())));
  }
}

// fp64: sums of at most a hundred products in another order.
constexpr double kFp64 = 1e-13;

void compare_with_oracle(const ModelConfig& config, const TensorAxis& axis, bool repeats) {
  std::map<std::string, at::Tensor> weights = some_weights(config);
  const at::Tensor x = values({kSequences, kLength, kD}, 0.37), factor = values(x.sizes(), 0.7);

  ExpertFeedForward module(config, {.tensor = axis}, at::kDouble, 0);
  load(module, weights, axis);
  const at::Tensor own = held_rows(x, axis).requires_grad_();
  const TokenBatch batch{.B = kSequences, .T = kLength, .training = kTraining};
  const at::Tensor y = recompute_if(
      repeats,
      [&](const std::vector<at::Tensor>& in) { return module.forward(in[0], in[1], batch); },
      {own, at::zeros_like(own)});
  (y * held_rows(factor, axis)).sum().backward();

  const at::Tensor leaf = x.clone().requires_grad_();
  for (auto& [name, weight] : weights) weight.requires_grad_();
  const Oracle oracle = every_expert_on_every_token(config, leaf, weights);
  ((oracle.y * factor).sum() + oracle.auxiliary).backward();
  assert_close(y.detach(), held_rows(oracle.y.detach(), axis), kFp64, kFp64, "y");
  assert_close(own.grad(), held_rows(leaf.grad(), axis), kFp64, kFp64, "gradient of x");
  for (const auto& item : module.named_parameters()) {
    assert_close(item.value().grad(), part_on(axis, item.key(), weights.at(item.key()).grad()),
                 kFp64, kFp64, "gradient of " + item.key());
  }
}

TEST(ExpertFeedForward, EqualsEveryExpertOnEveryTokenOnAnyTensorAxis) {
  for (const int64_t shared : {0, 2}) {
    for (const bool repeats : {false, true}) {
      SCOPED_TRACE(std::to_string(shared) + " shared, recomputed " + std::to_string(repeats));
      parallel::for_each_axis({1, 2, 3, 4}, [&](const TensorAxis& axis) {
        compare_with_oracle(some_config(shared), axis, repeats);
      });
    }
  }
}

TEST(ExpertFeedForward, EvaluationHasNoAuxiliaryLoss) {
  const ModelConfig config = some_config();
  ExpertFeedForward module(config, {}, at::kDouble, 0);
  load(module, some_weights(config), {});
  const at::Tensor x = values({kSequences, kLength, kD}, 0.37);
  const auto gradient_of = [&](double balance_loss) {
    ModelConfig other = config;
    other.sparse.balance_loss = balance_loss;
    other.sparse.router_z_loss = 0;
    ExpertFeedForward own(other, {}, at::kDouble, 0);
    load(own, some_weights(config), {});
    own.forward(x, x, {.B = kSequences, .T = kLength}).sum().backward();
    return own.gate->weight.grad();
  };
  assert_same_bits(gradient_of(0.5), gradient_of(0), "gradient of the router");
}

// The parts of sequences on the ranks of a context axis have the balance of whole sequences.
TEST(ExpertFeedForward, AContextAxisChangesNoGradient) {
  const ModelConfig config = some_config();
  const std::map<std::string, at::Tensor> weights = some_weights(config);
  const at::Tensor x = values({kSequences, kLength, kD}, 0.37), factor = values(x.sizes(), 0.7);
  const auto gradient_on = [&](comm::Communicator* group) {
    ExpertFeedForward module(config, {.context = group}, at::kDouble, 0);
    load(module, weights, {});
    TokenBatch batch{.B = kSequences, .T = kLength, .training = kTraining};
    at::Tensor own = x, own_factor = factor;
    if (group != nullptr) {
      batch.context = std::make_shared<const parallel::ContextParallel>(parallel::ContextParallel{
          .group = *group, .split = parallel::SequenceSplit(kLength, group->size())});
      batch.T = batch.context->num_tokens();
      own = batch.context->local(x, 1);
      own_factor = batch.context->local(factor, 1);
    }
    (module.forward(own, own, batch) * own_factor).sum().backward();
    at::Tensor grad = module.gate->weight.grad();
    if (group != nullptr) group->all_reduce(grad)->wait();
    return grad;
  };
  const at::Tensor expected = gradient_on(nullptr);
  for (const int world : {1, 2, 3, 4}) {
    run_ranks(world, [&](comm::Communicator& group) {
      assert_close(gradient_on(&group), expected, kFp64, kFp64, "gradient of the router");
    });
  }
}

// However many tokens a forward has, each gets the bits that it gets alone.
TEST(ExpertFeedForward, ATokensBitsDoNotDependOnTheOthers) {
  const ModelConfig config = some_config(1);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    ExpertFeedForward module(config, {}, dtype, 0);
    load(module, some_weights(config), {});
    module.shared_experts = nullptr;  // a plain product of few rows may round differently
    const at::NoGradGuard no_grad;
    const at::Tensor x = values({1, 40, kD}, 0.37, 1, dtype);
    const at::Tensor all = module.forward(x, x, {.B = 1, .T = 40});
    for (const int64_t tokens : {1, 3, 17}) {
      const at::Tensor some = x.narrow(1, 40 - tokens, tokens);
      assert_same_bits(module.forward(some, some, {.B = 1, .T = tokens}),
                       all.narrow(1, 40 - tokens, tokens).contiguous(), "tokens");
    }
  }
}

// In chunks of any size, over ranks with different numbers of tokens, as all at once.
TEST(ExpertFeedForward, ChunksChangeNoResultAndNoGradient) {
  const ModelConfig config = some_config();
  const std::map<std::string, at::Tensor> weights = some_weights(config);
  for (const int world : {1, 2, 3}) {
    for (const int64_t chunk : {1, 3, 4, 100}) {
      SCOPED_TRACE(std::to_string(world) + " ranks, chunks of " + std::to_string(chunk));
      run_ranks(world, [&](comm::Communicator& group) {
        const parallel::ExpertAxis axis{.group = &group};
        const int64_t B = group.rank();  // rank 0 has no token
        const at::Tensor x = values({B, kLength, kD}, 0.37, group.rank() + 1);
        const auto gradients = [&](int64_t chunk_tokens) {
          parallel::ExpertAxis own = axis;
          own.chunk_tokens = chunk_tokens;
          ExpertFeedForward module(config, {.expert = own}, at::kDouble, 0);
          const at::NoGradGuard no_grad;
          for (auto& item : module.named_parameters()) {
            const mesh::Range part = axis.experts_of(5, axis.rank());
            const at::Tensor& whole = weights.at(item.key());
            item.value().copy_(
                item.key() == "gate.weight" ? whole : whole.narrow(0, part.offset, part.size));
          }
          const at::AutoGradMode records(true);
          const at::Tensor leaf = x.clone().requires_grad_();
          const TokenBatch batch{.B = B, .T = kLength, .training = kTraining};
          const at::Tensor y = module.forward(leaf, at::zeros_like(leaf), batch);
          (y * values(y.sizes(), 0.7)).sum().backward();
          std::vector<at::Tensor> results{y.detach(), leaf.grad()};
          for (const auto& item : module.named_parameters()) {
            results.push_back(item.value().grad());
          }
          return results;
        };
        const auto expected = gradients(0), actual = gradients(chunk);
        for (size_t i = 0; i < expected.size(); ++i) {
          assert_close(actual[i], expected[i], kFp64, kFp64, "result " + std::to_string(i));
        }
      });
    }
  }
}

// All tokens go to two experts of one rank (megablocks#154). What grows with the tokens is what
// every rank has of its own, a few copies of x and of its results, and not the experts' rows.
TEST(ExpertFeedForward, ChunksBoundTheMemoryUnderAnySkew) {
  constexpr int64_t kHidden = 300, kFew = 64, kMany = 512;
  const ModelConfig config{.width = kD,
                           .sequence_length = kMany,
                           .sparse = {.experts = 4, .expert_width = kHidden, .balance_loss = 0}};
  const auto peak_of = [&](int64_t tokens, int64_t chunk) {
    std::atomic<int64_t> peak = 0;
    run_ranks(2, [&](comm::Communicator& group) {
      ExpertFeedForward module(config, {.expert = {.group = &group, .chunk_tokens = chunk}},
                               at::kFloat, 0);  // the router's zeros: ties go to experts 0 and 1
      const at::Tensor x = values({1, tokens, kD}, 0.37, 1, at::kFloat).requires_grad_();
      const auto live = std::make_shared<LiveBytes>();
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
      const TokenBatch batch{.B = 1, .T = tokens, .training = kTraining};
      module.forward(x, x.detach(), batch).sum().backward();
      if (group.rank() == 0) peak = live->peak();
    });
    return peak.load();
  };
  constexpr int64_t kMore = kMany - kFew, kRows = 2 * 2 * kMore, kItem = 4;
  EXPECT_GT(peak_of(kMany, 0) - peak_of(kFew, 0), kRows * 3 * kHidden * kItem);
  EXPECT_LT(peak_of(kMany, 32) - peak_of(kFew, 32), 40 * kMore * kD * kItem + 60 * kMore * 8);
}

TEST(ExpertFeedForward, NoTokens) {
  const ModelConfig config = some_config(1);
  ExpertFeedForward module(config, {}, at::kFloat, 0);
  load(module, some_weights(config), {});
  const at::Tensor x = at::empty({0, kLength, kD}, at::kFloat).requires_grad_();
  const TokenBatch batch{.B = 0, .T = kLength, .training = kTraining};
  module.forward(x, x, batch).sum().backward();
  for (const auto& item : module.named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    ASSERT_TRUE(item.value().grad().eq(0).all().item<bool>()) << item.key();
  }
}

}  // namespace
}  // namespace trireme::model
