#include "trireme/plan/step/stage_seconds.h"

#include <algorithm>

#include "trireme/plan/cost/device_seconds.h"
#include "trireme/plan/cost/layer_costs.h"

namespace trireme::plan {

// Blocks of one kind take the same time, so one of each kind is computed and multiplied. Backward
// is made from forward's parts and from what is computed again, by one rule for seconds and for
// operations (repeated()), as two rules had differed. Each axis adds what does not hide behind
// computation (exposed()); what hides still slows it by a share. ZeRO's gathers and reductions come
// last, because they may hide behind the other axes' communication too.

namespace {

// Seconds or operations of the parts of a block.
struct Parts {
  double attention = 0;  // projections
  double core = 0;
  double feed_forward = 0;
  double elementwise = 0;

  double sum() const { return attention + core + feed_forward + elementwise; }
};

// The part of a forward pass that the backward pass recomputes. of_lone_core: weight of an
// attention core when nothing around it is recomputed.
double repeated(const model::RecomputePlan& again, const Parts& forward, double of_lone_core = 1) {
  if (again.block) return forward.sum();
  const double core = again.attention ? 1 : again.attention_core ? of_lone_core : 0;
  return (again.attention ? forward.attention : 0) + core * forward.core +
         (again.feed_forward ? forward.feed_forward : 0);
}

class StageModel {
 public:
  StageModel(const Workload& work, const Cluster& cluster)
      : work_(work),
        cluster_(cluster),
        device_(cluster.device),
        item_(work.sizes.weight),
        sizes_(work.sizes.of_trained()),
        // No kernel caps scores. What is composed for that keeps none.
        is_fused_(has_fused_attention(work, cluster) &&
                  work.model.attention.attention_softcap == 0) {}

  void add_block(StageSeconds& stage, bool sparse) const {
    const BlockWork block = block_work(work_, sparse, cluster_.expert_skew);
    const PartTraining& training = work_.block;
    const StageSeconds::Parameters own =
        parameters_of(block.parameters, training.trained, training.kept);
    const StageSeconds::Parameters of_experts =
        parameters_of(block.expert_parameters, training.trained_experts, training.kept_experts);
    stage.parameters += own;
    stage.expert_parameters += of_experts;
    const Parts forward = forward_of(block), backward = backward_of(block, forward);
    const double launches = block.num_kernels * device_.launch_seconds;
    const double again = repeated(work_.recompute, forward);
    const double again_launches = launches * again / std::max(forward.sum(), 1e-30);
    PhaseSeconds ahead{.compute = with_launches(forward.sum(), launches)};
    PhaseSeconds back{.compute =
                          with_launches(backward.sum() + again, 2 * launches + again_launches)};
    add_tensor(ahead, back);
    add_context(ahead, back, block);
    if (work_.input_offload_rate > 0) {
      // Behind the computation of other blocks.
      const double transfer = stored_input_bytes(work_).sum / work_.input_offload_rate;
      ahead.compute = std::max(ahead.compute, transfer);
      back.compute = std::max(back.compute, transfer);
    }
    if (sparse) add_expert(ahead, back, block);
    back.compute += bucket_seconds(own.trained + of_experts.trained);
    add_data(ahead, back, own, of_experts);
    stage.forward += ahead;
    if (!training.has_backward) return;
    stage.backward += back;
    stage.repeated_flops += repeated_flops(block_work(work_, sparse));
  }

  // Of a block's operations in products, the share with weights that are trained.
  double trained_share(bool sparse) const {
    if (work_.block == PartTraining{}) return 1;
    const BlockWork block = block_work(work_, sparse);
    double trained = 0;
    for (const Product& product : block.attention) trained += product.trained * product.flops();
    for (const Product& product : block.feed_forward) trained += product.trained * product.flops();
    return work_.block.has_backward ? trained / block.product_flops() : 0;
  }

  void add_embedding(StageSeconds& stage) const {
    const double elements = tokens_of(work_) * number(work_.model.width);
    stage.forward.compute += elementwise_seconds(device_, 2 * elements, item_);
    const PartTraining& training = work_.embedding;
    const StageSeconds::Parameters own =
        parameters_of(work_.counts().embedding_parameters / number(work_.axes.tensor),
                      training.trained, training.kept);
    stage.parameters += own;
    if (!training.has_backward) return;
    stage.backward.compute += elementwise_seconds(device_, 3 * elements, item_);
    stage.backward.compute += bucket_seconds(own.trained);
  }

  void add_head(StageSeconds& stage) const {
    const HeadWork head = head_work(work_);
    const double product =
        seconds_of_logits(head.logits) + product_seconds(device_, head.dense, item_);
    const double loss = head.loss_elements * work_.sizes.wide / device_.loss_rate();
    stage.forward.compute += product + 0.5 * loss;
    const PartTraining& training = work_.head;
    const double gradients = (training.has_input_gradient ? 1 : 0) + training.products;
    stage.backward.compute += gradients * product + (training.has_backward ? 0.5 * loss : 0);
    if (work_.axes.tensor > 1 && training.has_input_gradient) {
      const double rows = tokens_of(work_) * number(work_.model.width) * item_;
      stage.backward.tensor += all_reduce_seconds(cluster_, tensor_group(work_), rows);
    }
    const StageSeconds::Parameters own =
        parameters_of(work_.counts().head_parameters / number(work_.axes.tensor), training.trained,
                      training.kept);
    stage.backward.compute += bucket_seconds(own.trained);
    stage.parameters += own;
  }

 private:
  static StageSeconds::Parameters parameters_of(double all, double trained, double kept) {
    return {.all = all, .trained = trained * all, .kept = kept * all};
  }

  double seconds_of_logits(const Product& logits) const {
    const double rate = device_.head_rate(item_);
    return rate > 0 ? logits.flops() / rate : product_seconds(device_, logits, item_);
  }

  // A host copies each gradient into its bucket, or adds it there to those of earlier microbatches.
  // A device does so in the shadow of its products.
  double bucket_seconds(double parameters) const {
    if (device_.is_asynchronous) return 0;
    const double passes = work_.num_microbatches() > 1 ? 3 : 2;
    return elementwise_seconds(device_, passes * parameters, sizes_.gradient);
  }

  // The host starts kernels ahead of a device that is asynchronous, and in turn with one that is
  // not.
  double with_launches(double seconds, double launches) const {
    return device_.is_asynchronous ? std::max(seconds, launches) : seconds + launches;
  }

  double all(const std::vector<Product>& products) const {
    double seconds = 0;
    for (const Product& one : products) seconds += product_seconds(device_, one, item_);
    return seconds;
  }

  // The gradients of both factors, the weights' as far as they are trained. Their products have the
  // same dimensions as the output's.
  double all_backward(const std::vector<Product>& products) const {
    double seconds = 0;
    for (const Product& one : products) {
      seconds += (1 + one.trained) * product_seconds(device_, one, item_);
    }
    return seconds;
  }

  Parts forward_of(const BlockWork& block) const {
    return {.attention = all(block.attention),
            .core = attention_seconds(device_, block.core, item_, is_fused_),
            .feed_forward = all(block.feed_forward),
            .elementwise =
                elementwise_seconds(device_, block.wide_elements + block.hidden_elements, item_)};
  }

  Parts backward_of(const BlockWork& block, const Parts& forward) const {
    return {.attention = all_backward(block.attention),
            .core = attention_backward_factor(is_fused_) * forward.core,
            .feed_forward = all_backward(block.feed_forward),
            .elementwise = 2 * forward.elementwise};
  }

  // The two sums of a block forward and the two backward, or gathers and reductions of the same
  // bytes. Recomputation of a block repeats the forward's.
  void add_tensor(PhaseSeconds& ahead, PhaseSeconds& back) const {
    if (work_.axes.tensor == 1) return;
    const double bytes = tokens_of(work_) * number(work_.model.width) * item_;
    const double one = all_reduce_seconds(cluster_, tensor_group(work_), bytes);
    const int repeated = work_.recompute.block ? 2 : 0;
    ahead.tensor = exposed(2 * one, ahead.compute, work_.hides_tensor);
    back.tensor = exposed((2 + repeated) * one, back.compute, work_.hides_tensor);
    add_sums_of_norms(ahead, back);
  }

  // A norm of all heads waits for its sums, of queries and of keys. Ranks that share kv heads have
  // all keys.
  void add_sums_of_norms(PhaseSeconds& ahead, PhaseSeconds& back) const {
    if (!work_.model.attention.norms_all_heads()) return;
    const double norms = work_.axes.tensor > work_.model.kv_heads ? 1 : 2;
    const double sums = all_reduce_seconds(cluster_, tensor_group(work_),
                                           tokens_of(work_) * norms * work_.sizes.wide);
    const bool is_repeated = work_.recompute.block || work_.recompute.attention;
    ahead.tensor += sums;
    back.tensor += is_repeated ? 2 * sums : sums;
  }

  // Keys and values go round the ring forward; with their gradients backward.
  void add_context(PhaseSeconds& ahead, PhaseSeconds& back, const BlockWork& block) const {
    const auto cp = number(work_.axes.context);
    if (cp == 1) return;
    const double kv = 2 * tokens_of(work_) * number(work_.model.kv_heads) *
                      number(work_.model.core_width()) / number(work_.axes.tensor) * item_;
    const double round = (cp - 1) * send_seconds(cluster_, context_group(work_), kv);
    const double core = attention_seconds(device_, block.core, item_, is_fused_);
    ahead.context = exposed(round, core, work_.overlap);
    back.context = exposed((work_.recompute.block ? 3 : 2) * round,
                           attention_backward_factor(is_fused_) * core, work_.overlap);
  }

  // Tokens go to their experts and back, forward and backward.
  void add_expert(PhaseSeconds& ahead, PhaseSeconds& back, const BlockWork& block) const {
    if (work_.axes.expert == 1) return;
    const double bytes = block.dispatched_rows * number(work_.model.width) * item_;
    const double one = all_to_all_seconds(cluster_, expert_group(work_), bytes);
    ahead.expert = 2 * one;
    back.expert = (work_.recompute.block || work_.recompute.feed_forward ? 4 : 2) * one;
  }

  // ZeRO-3 gathers a unit's weights before its forward and again before its backward. Where ranks
  // come first, its gradients are reduced after each microbatch, which DDP does for all ranks.
  void add_data(PhaseSeconds& ahead, PhaseSeconds& back, const StageSeconds::Parameters& own,
                const StageSeconds::Parameters& of_experts) const {
    using Count = double StageSeconds::Parameters::*;
    const auto both = [&](const Group& group, Count count, double itemsize) {
      return all_gather_seconds(cluster_, group, own.*count * itemsize) +
             all_gather_seconds(cluster_, expert_shard_group(work_), of_experts.*count * itemsize);
    };
    const Count kept = &StageSeconds::Parameters::kept,
                trained = &StageSeconds::Parameters::trained;
    double gather = work_.zero == 3 ? both(shard_group(work_), kept, item_) : 0;
    double reduction = 0;
    if (sizes_.rank_first) {
      reduction = work_.zero == 0 ? 2 * both(data_group(work_), trained, sizes_.gradient)
                                  : both(shard_group(work_), trained, sizes_.gradient);
      const double replicated = own.trained + (work_.axes.expert == 1 ? of_experts.trained : 0);
      reduction += replica_seconds(work_, cluster_, replicated * sizes_.gradient);
    }
    // A rank's own part comes from where it is kept before a gather. Its gradients go there after
    // a sum, and come back to be added to.
    const auto part = [&](Count count) {
      return own.*count / number(work_.axes.sharing()) +
             of_experts.*count / number(work_.axes.sharing_experts());
    };
    if (sizes_.weight_offload_rate > 0) gather += part(kept) * item_ / sizes_.weight_offload_rate;
    if (sizes_.gradient_offload_rate > 0) {
      const double m = number(work_.num_microbatches());
      // What is written over is read before.
      const double times = sizes_.rank_first ? 2 : 2 / m;
      reduction += times * part(trained) * sizes_.kept_gradient() / sizes_.gradient_offload_rate;
    }
    ahead.data = exposed(gather, ahead.total(), work_.overlap);
    back.data = exposed(gather + reduction, back.total(), work_.overlap);
  }

  // Time that communication adds to computation that may hide it.
  double exposed(double communication, double computation, bool overlaps) const {
    if (!overlaps) return communication;
    const double hidden = std::min(communication, computation);
    return communication - hidden + device_.overlap_cost * hidden;
  }

  double repeated_flops(const BlockWork& block) const {
    Parts forward{.core = block.core.flops()};
    for (const Product& product : block.attention) forward.attention += product.flops();
    for (const Product& product : block.feed_forward) forward.feed_forward += product.flops();
    // When only the attention core is recomputed, the literature counts its whole backward pass
    // too: Korthikanti et al. 2022, arXiv:2205.05198, equation 8.
    return repeated(work_.recompute, forward, /*of_lone_core=*/3);
  }

  const Workload& work_;
  const Cluster& cluster_;
  const Device& device_;
  double item_;
  NumberSizes sizes_;  // of what is trained
  bool is_fused_;
};

}  // namespace

PhaseSeconds& PhaseSeconds::operator+=(const PhaseSeconds& other) {
  compute += other.compute;
  tensor += other.tensor;
  context += other.context;
  expert += other.expert;
  data += other.data;
  return *this;
}

PhaseSeconds PhaseSeconds::operator*(double factor) const {
  return {compute * factor, tensor * factor, context * factor, expert * factor, data * factor};
}

StageSeconds::Parameters& StageSeconds::Parameters::operator+=(const Parameters& other) {
  all += other.all;
  trained += other.trained;
  kept += other.kept;
  return *this;
}

StageSeconds::Parameters StageSeconds::Parameters::operator*(double factor) const {
  return {all * factor, trained * factor, kept * factor};
}

bool has_fused_attention(const Workload& work, const Cluster& cluster) {
  if (cluster.attention != AttentionKernel::kAuto) {
    return cluster.attention == AttentionKernel::kFused;
  }
  return work.model.family != "gpt2" || work.zero == 3 || !cluster.device.is_asynchronous;
}

Group tensor_group(const Workload& work) { return {work.axes.tensor, 1}; }
Group context_group(const Workload& work) { return {work.axes.context, work.axes.tensor}; }
Group expert_shard_group(const Workload& work) {
  return work.axes.expert == 1 && work.zero > 0 ? shard_group(work) : expert_data_group(work);
}

double replica_seconds(const Workload& work, const Cluster& cluster, double bytes) {
  const int64_t shards = work.axes.sharing(), replicas = work.axes.token_ranks() / shards;
  if (work.zero == 0 || replicas == 1) return 0;
  return all_reduce_seconds(cluster, {replicas, work.axes.tensor * shards}, bytes / number(shards));
}

Group shard_group(const Workload& work) { return {work.axes.sharing(), work.axes.tensor}; }
Group data_group(const Workload& work) { return {work.axes.token_ranks(), work.axes.tensor}; }
Group expert_group(const Workload& work) { return {work.axes.expert, work.axes.tensor}; }
Group expert_data_group(const Workload& work) {
  return {work.axes.token_ranks() / work.axes.expert, work.axes.tensor * work.axes.expert};
}
Group pipeline_group(const Workload& work) {
  return {work.axes.pipeline, work.axes.num_ranks() / work.axes.pipeline};
}

StageSeconds stage_seconds(const Workload& work, const Cluster& cluster,
                           const model::ModelPart& part) {
  StageSeconds stage;
  double trained_products = 0;  // seconds of forward, of products with trained weights
  const auto add_blocks = [&](const StageModel& model, bool is_sparse, int64_t count) {
    if (count == 0) return;
    StageSeconds one;
    model.add_block(one, is_sparse);
    const auto times = static_cast<double>(count);
    trained_products += model.trained_share(is_sparse) * one.forward.compute * times;
    stage.forward += one.forward * times;
    stage.backward += one.backward * times;
    stage.parameters += one.parameters * times;
    stage.expert_parameters += one.expert_parameters * times;
    stage.repeated_flops += one.repeated_flops * times;
  };
  visit_runs(work, part, [&](const Workload& of_run, const model::ModelPart& blocks) {
    const StageModel model(of_run, cluster);
    const int64_t sparse = num_sparse(work.model, blocks);
    add_blocks(model, false, blocks.num_layers - sparse);
    add_blocks(model, true, sparse);
  });
  const StageModel model(work, cluster);
  const double of_blocks = stage.forward.compute;
  if (part.embeds) model.add_embedding(stage);
  const double with_embedding = stage.forward.compute;
  if (part.has_head) model.add_head(stage);
  // The gradient of weights is one of the three products, whatever else backward does.
  trained_products += (work.embedding.has_backward ? with_embedding - of_blocks : 0) +
                      work.head.products * (stage.forward.compute - with_embedding);
  stage.weight_share =
      std::clamp(trained_products / std::max(stage.backward.total(), 1e-30), 0.05, 0.6);
  return stage;
}

double stage_transfer_seconds(const Workload& work, const Cluster& cluster) {
  if (work.axes.pipeline == 1) return 0;
  const double bytes = rows_of(work) * static_cast<double>(work.model.width) * work.sizes.weight;
  return send_seconds(cluster, pipeline_group(work), bytes);
}

}  // namespace trireme::plan
