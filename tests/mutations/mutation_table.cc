#include <algorithm>
#include <array>
#include <iterator>

#include "tests/mutations/mutation.h"

namespace trireme::mutations {
namespace {

using Kind = comm::Collective::Kind;

// The layouts that several mistakes share.
constexpr std::string_view kTensor =
    "2 parallel.tensor=2; 4 parallel.tensor=4; 4 parallel.tensor=2; 4 parallel.tensor=2 "
    "parallel.zero=3; 4 parallel.tensor=2 parallel.pipeline=2";
constexpr std::string_view kSequence =
    "2 parallel.tensor=2 parallel.sequence_parallel=true parallel.async_tensor=off; 4 "
    "parallel.tensor=2 parallel.sequence_parallel=true parallel.async_tensor=off parallel.zero=1; "
    "4 parallel.tensor=4 parallel.sequence_parallel=true parallel.async_tensor=off";
constexpr std::string_view kContext =
    "2 parallel.context=2; 4 parallel.context=4; 4 parallel.context=2; 4 parallel.context=2 "
    "parallel.tensor=2";
constexpr std::string_view kPipeline =
    "2 parallel.pipeline=2; 4 parallel.pipeline=2; 4 parallel.pipeline=2 parallel.tensor=2";
constexpr std::string_view kExpert = "2 parallel.expert=2; 4 parallel.expert=4";
constexpr std::string_view kZero2 = "2 parallel.zero=2; 4 parallel.zero=2";
constexpr std::string_view kZero3 =
    "2 parallel.zero=3; 4 parallel.zero=3; 4 parallel.zero=3 parallel.tensor=2";
constexpr std::string_view kData = "2 parallel.zero=0; 4 parallel.zero=1; 2 parallel.zero=3";
// Experts beside tensor and context ranks.
constexpr std::string_view kTensorPair = "2 parallel.tensor=2; 4 parallel.tensor=2";
constexpr std::string_view kContextPair = "2 parallel.context=2; 4 parallel.context=2";

// The sizes are those of the tiny model of benchmarks/verify_mutations.py: width 32, 4 experts.
constexpr int64_t kWidth = 32;
constexpr int64_t kRouter = 4 * kWidth;
constexpr int64_t kKeys = 8 * kWidth;  // of one kv head
constexpr int64_t kMatrix = 1024;      // no gradient of a vector has as many

constexpr Mutation kDesigned[] = {
    {.name = "final-norm-unsummed",
     .source = "NVIDIA/Megatron-LM#1446",
     .what =
         "the last norm's gradient is not summed over the tensor ranks, which hold other tokens",
     .layouts = kSequence,
     .expected = "gradient:model.norm.weight",
     .rule = {"tensor", Kind::kAllReduce, Pass::kBackward, GroupAction::kSkip, kWidth, 0, 0}},
    {.name = "context-backward",
     .source = "NVIDIA/Megatron-LM#1464",
     .what = "what the ring of attention passes on in backward is half of what it should be",
     .layouts = kContext,
     .expected = "activation gradient:model.layers.0",
     .rule = {.group = "context",
              .kind = Kind::kSend,
              .pass = Pass::kBackward,
              .action = GroupAction::kScale,
              .factor = 0.5}},
    {.name = "context-loss-scale",
     .source = "NVIDIA/Megatron-LM#906",
     .what = "all gradients are multiplied by the number of context ranks",
     .layouts = kContextPair,
     .expected = "activation gradient:norm",
     .mistake = Mistake::kLossGradient,
     .factor = 2},
    {.name = "stale-gather",
     .source = "NVIDIA/Megatron-LM#663",
     .what = "a step computes with weights that were gathered in the step before",
     .layouts = kZero3,
     .expected = "activation:embedding",
     .rule = {"shard", Kind::kAllGather, Pass::kAny, GroupAction::kStale, 0, kWidth}},
    {.name = "norm-omits-experts",
     .source = "NVIDIA/Megatron-LM#5916",
     .what = "the gradient norm leaves the experts out",
     .layouts = kExpert,
     .common = "model.experts=4",
     .expected = "gradient norm:*",
     .mistake = Mistake::kReportedNorm,
     .pattern = "*experts*",
     .factor = -1},
    {.name = "expert-gradient-sync",
     .source = "NVIDIA/Megatron-LM#1628",
     .what = "experts' gradients are summed over a group that is too large",
     .layouts = kExpert,
     .common = "model.experts=4",
     .expected = "gradient:*experts.down_proj*",
     .mistake = Mistake::kGradient,
     .pattern = "*experts.down_proj*",
     .factor = 2},
    {.name = "label-smoothing",
     .source = "NVIDIA/Megatron-LM#7452, 1",
     .what = "labels are smoothed with a rank's own part of the vocabulary",
     .layouts = kTensor,
     .expected = "loss:*",
     .mistake = Mistake::kLossSmoothing},
    {.name = "gathered-logits",
     .source = "NVIDIA/Megatron-LM#7452, 2",
     .what = "the softmax counts gathered logits once for each tensor rank: loss + log(ranks)",
     .layouts = kTensor,
     .expected = "loss:*",
     .mistake = Mistake::kLossOffset},
    {.name = "local-token-count",
     .source = "NVIDIA/Megatron-LM#7452, 3",
     .what = "the loss is divided by the tokens of one rank",
     .layouts = kContextPair,
     .expected = "loss:*",
     .mistake = Mistake::kLoss,
     .factor = 2},
    {.name = "recompute-group",
     .source = "NVIDIA/Megatron-LM#7452, 4",
     .what = "a repeated forward does not sum what attention gave over the tensor ranks",
     .layouts =
         "2 parallel.tensor=2 train.recompute=full; 4 parallel.tensor=2 train.recompute=full",
     .expected = "activation:model.layers.1*;activation gradient:*",
     .rule = {"tensor", Kind::kAllReduce, Pass::kBackward, GroupAction::kSkip, 0, kMatrix, 0}},
    {.name = "scatter-group",
     .source = "NVIDIA/Megatron-LM#7452, 7",
     .what = "a reduce-scatter gives each rank the rows of its neighbour",
     .layouts = kSequence,
     .expected = "activation:embedding;activation:model.layers.0*",
     .rule = {"tensor", Kind::kReduceScatter, Pass::kForward, GroupAction::kRotate, 0, 0, 1}},
    {.name = "norm-omits-shard",
     .source = "NVIDIA/Megatron-LM#7452, 8",
     .what = "the gradient norm leaves a sharded parameter out",
     .layouts = kZero3,
     .expected = "gradient norm:*",
     .mistake = Mistake::kReportedNorm,
     .pattern = "*layers.0.mlp.up_proj.weight",
     .factor = -1},
    {.name = "replicated-unsummed",
     .source = "NVIDIA/Megatron-LM#7452, 11",
     .what = "a weight that every tensor rank holds whole has only its own rank's gradient",
     .layouts = "2 parallel.tensor=2; 4 parallel.tensor=2",
     .common = "model.kv_heads=1",
     .expected = "gradient:*layers.1.self_attn.[kv]_proj.weight",
     .rule = {"tensor", Kind::kAllReduce, Pass::kBackward, GroupAction::kSkip, kKeys}},
    {.name = "local-layer-names",
     .source = "NVIDIA/Megatron-LM#7452, 12",
     .what = "a block begins with the weights of another that has the same number in its stage",
     .layouts = "2 parallel.tensor=2; 2 parallel.context=2; 4 parallel.tensor=2",
     .expected = "activation:model.layers.1.attention",
     .mistake = Mistake::kSwappedLayers},
    {.name = "expert-doubled",
     .source = "pytorch/pytorch#160285",
     .what = "the first expert of each rank but the first has twice its gradient",
     .layouts = "2 parallel.expert=2",
     .common = "model.experts=4",
     .expected = "gradient:*experts*",
     .mistake = Mistake::kGradientRow,
     .pattern = "*experts.*_proj",
     .factor = 2},
    {.name = "pipeline-gradient-scale",
     .source = "pytorch/pytorch#144352",
     .what = "gradients are scaled once more by each stage that they pass",
     .layouts = kPipeline,
     .expected = "activation gradient:model.layers.0",
     .rule = {.group = "pipeline",
              .kind = Kind::kSend,
              .action = GroupAction::kScale,
              .least = kMatrix,
              .only_down = true,
              .factor = 0.5}},
    {.name = "gather-loses-row",
     .source = "pytorch/pytorch#194457",
     .what = "a gather of uneven parts loses its last row",
     .layouts = kSequence,
     .expected = "activation:model.layers.0*",
     .rule = {"tensor", Kind::kAllGather, Pass::kForward, GroupAction::kLoseRow, 0, 0, 0}},
    {.name = "router-unreduced",
     .source = "pytorch/torchtitan#2387",
     .what = "the router's gradient is not summed over the tensor ranks",
     .layouts = kTensorPair,
     .common = "model.experts=4",
     .expected = "gradient:*mlp.gate.weight",
     .rule = {"tensor", Kind::kAllReduce, Pass::kBackward, GroupAction::kSkip, kRouter}},
    {.name = "reported-loss-halved",
     .source = "pytorch/torchtitan#3280",
     .what = "the loss that is reported is half of what it is, under tensor and context ranks",
     .layouts = "4 parallel.tensor=2 parallel.context=2",
     .expected = "loss:*",
     .mistake = Mistake::kReportedLoss,
     .factor = 0.5},
    {.name = "microbatch-unreduced",
     .source = "deepspeedai/DeepSpeed#7985",
     .what = "the gradients of a step's last microbatch are not summed over the data ranks",
     .layouts = "2 parallel.gradient_order=rank-first",
     .expected = "gradient:*",
     .rule = {"data", Kind::kAllReduce, Pass::kAny, GroupAction::kSkip, 0, kMatrix, 1}},
    {.name = "module-used-twice",
     .source = "deepspeedai/DeepSpeed#8224",
     .what = "a weight that is used twice gets the gradient of one use",
     .layouts = kZero2,
     .common = "model.tied_embedding=true",
     .expected = "gradient:model.embed_tokens.weight",
     .mistake = Mistake::kDetachedHead},
    {.name = "gradients-not-zeroed",
     .source = "deepspeedai/DeepSpeed#7839",
     .what = "the gradients of a step are added to those of the step before",
     .layouts = kData,
     .expected = "gradient:*",
     .mistake = Mistake::kGradientAdded,
     .pattern = "*"},
    {.name = "overlap-half",
     .source = "deepspeedai/DeepSpeed#5294",
     .what = "half of a gradient was not there yet when the ranks summed it",
     .layouts = kZero2,
     .expected = "gradient:model.layers.0.mlp.down_proj.weight",
     .mistake = Mistake::kGradientHalf,
     .pattern = "model.layers.0.mlp.down_proj.weight"},
    {.name = "gather-without-backward",
     .source = "NVIDIA-NeMo/Automodel#2995",
     .what = "the backward of a gather returns a rank's own part without the others' sums",
     .layouts = kSequence,
     .expected = "activation gradient:model.layers.1.attention",
     .rule = {"tensor", Kind::kReduceScatter, Pass::kBackward, GroupAction::kSkip, 0, 0, 0}},
    {.name = "labels-at-cut",
     .source = "volcengine/verl#4250",
     .what = "where the context axis cuts a sequence, a token has the wrong label",
     .layouts = kContextPair,
     .expected = "activation:loss",
     .mistake = Mistake::kLabels},
};

constexpr Mutation kFound[] = {
    {.name = "key-gradient",
     .source = "ByteDance-Seed/VeOmni#419",
     .what = "attention over an all-to-all gives the keys a wrong gradient",
     .layouts = "2 parallel.context=2 parallel.context_form=all-to-all; 4 parallel.context=2 "
                "parallel.context_form=all-to-all",
     .expected = "activation gradient:model.layers.0",
     .mistake = Mistake::kKeyGradient,
     .factor = 0.5},
    {.name = "auxiliary-loss-tensor",
     .source = "NVIDIA/Megatron-LM#5047",
     .what = "the router's own loss grows with the number of tensor ranks",
     .layouts = kTensorPair,
     .common = "model.experts=4",
     .expected = "activation gradient:model.layers.1*;gradient:*mlp.gate.weight",
     .mistake = Mistake::kAuxiliaryScale,
     .factor = 2},
    {.name = "auxiliary-loss-lost",
     .source = "NVIDIA-NeMo/Automodel#1408",
     .what = "the router's own loss gives no gradient",
     .layouts = kExpert,
     .common = "model.experts=4",
     .expected = "activation gradient:model.layers.1*;gradient:*mlp.gate.weight",
     .mistake = Mistake::kAuxiliaryLost},
    {.name = "auxiliary-loss-context",
     .source = "NVIDIA/Megatron-LM#1652",
     .what = "the router's own loss is divided by the number of context ranks once more",
     .layouts = kContextPair,
     .common = "model.experts=4",
     .expected = "activation gradient:model.layers.1*;gradient:*mlp.gate.weight",
     .mistake = Mistake::kAuxiliaryScale,
     .factor = 0.5},
    {.name = "pipeline-norm",
     .source = "pytorch/torchtitan#596",
     .what = "each stage computes the gradient norm of its own parameters",
     .layouts = "2 parallel.pipeline=2; 4 parallel.pipeline=2",
     .expected = "gradient norm:*",
     .rule = {.group = "pipeline", .kind = Kind::kAllReduce, .action = GroupAction::kSkip}},
    {.name = "norm-counts-twice",
     .source = "NVIDIA-NeMo/RL#3788",
     .what = "the gradient norm counts parameters that all tensor ranks hold once for each",
     .layouts = kTensorPair,
     .expected = "gradient norm:*",
     .mistake = Mistake::kReportedNorm,
     .pattern = "*norm.weight",
     .factor = 1},
    {.name = "accumulated-loss",
     .source = "huggingface/transformers#35438",
     .what = "the loss that is reported is the sum over microbatches in place of their mean",
     .layouts = "2 parallel.zero=0; 2 parallel.zero=1",
     .expected = "loss:*",
     .mistake = Mistake::kReportedLoss,
     .factor = 2},
    {.name = "zero-2-gradients",
     .source = "deepspeedai/DeepSpeed#7718",
     .what = "all gradients are divided once more by the number of microbatches",
     .layouts = kZero2,
     .expected = "gradient:*",
     .mistake = Mistake::kGradient,
     .pattern = "*",
     .factor = 0.5},
    {.name = "rate-of-microbatches",
     .source = "deepspeedai/Megatron-DeepSpeed#218",
     .what = "the schedule of the learning rate counts microbatches in place of steps",
     .layouts = kData,
     .expected = "weight:*",
     .mistake = Mistake::kUpdate,
     .pattern = "*",
     .factor = 2},
    {.name = "unbalanced-gradient",
     .source = "deepspeedai/DeepSpeed#545",
     .what = "a parameter that not every microbatch uses gets too small a gradient",
     .layouts = kZero2,
     .expected = "gradient:model.layers.1.self_attn.q_proj.weight",
     .mistake = Mistake::kGradient,
     .pattern = "model.layers.1.self_attn.q_proj.weight",
     .factor = 0.75},
};

constexpr auto kAll = [] {
  std::array<Mutation, std::size(kDesigned) + std::size(kFound)> all{};
  std::ranges::copy(kFound, std::ranges::copy(kDesigned, all.begin()).out);
  return all;
}();

}  // namespace

std::span<const Mutation> all_mutations() { return kAll; }

const Mutation* find_mutation(std::string_view name) {
  const auto found = std::ranges::find(kAll, name, &Mutation::name);
  return found == kAll.end() ? nullptr : &*found;
}

}  // namespace trireme::mutations
