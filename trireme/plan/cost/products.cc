#include "trireme/plan/cost/products.h"

#include <algorithm>

namespace trireme::plan {
namespace {

void add_feed_forward(BlockWork& block, double rows, double width, double matrices, double D,
                      double count) {
  block.feed_forward.push_back({rows, (matrices - 1) * width, D, count, matrices - 1});
  block.feed_forward.push_back({rows, D, width, count});
  block.hidden_elements += (matrices + 1) * rows * width * count;
}

// Sets what of the block's own weights is trained, and adds the products of its adapters, whose
// whole side is on every tensor rank.
// rows: those of one expert of this rank
void add_training(BlockWork& block, const Workload& work, double rows) {
  const PartTraining& training = work.block;
  for (Product& product : block.attention) product.trained = training.products;
  for (Product& product : block.feed_forward) product.trained = training.feed_forward_products;
  const double t = number(work.axes.tensor), r = number(training.rank);
  for (const AdaptedLayer& layer : training.adapted) {
    std::vector<Product>& products = layer.is_of_attention ? block.attention : block.feed_forward;
    const double n = layer.is_of_experts ? rows : tokens_of(work);
    const double count =
        layer.is_of_experts ? number(work.model.sparse.experts) / number(work.axes.expert) : 1;
    products.push_back({n, r, layer.splits_inputs ? layer.inputs / t : layer.inputs, count});
    products.push_back({n, layer.splits_inputs ? layer.outputs : layer.outputs / t, r, count});
    block.num_kernels += 3;  // two products, and the scale
  }
}

}  // namespace

double BlockWork::product_flops() const {
  double flops = 0;
  for (const Product& product : attention) flops += product.flops();
  for (const Product& product : feed_forward) flops += product.flops();
  return flops;
}

double tokens_of(const Workload& work) {
  return number(work.micro_batch * work.model.sequence_length) / number(work.axes.context);
}

double rows_of(const Workload& work) {
  return work.sequence_parallel ? tokens_of(work) / number(work.axes.tensor) : tokens_of(work);
}

BlockWork block_work(const Workload& work, bool sparse, double expert_skew) {
  const model::ModelConfig& config = work.model;
  const double t = number(work.axes.tensor), D = number(config.width), n = tokens_of(work);
  const ModelCounts& counts = work.counts();
  const double matrices = counts.feed_forward_matrices;
  const double out_width =
      number(config.heads *
             (config.attention.is_latent() ? config.attention.v_head_width : config.head_width()));
  BlockWork block;
  // Products with keys and values that ranks share are on each of them.
  const double copies = std::max(1.0, t / number(config.kv_heads));
  const double kv = 2 * number(config.kv_heads * config.head_width());
  const double in_width = counts.attention_matmul / D - out_width;
  const double in_columns =
      config.attention.is_latent() ? in_width / t : (in_width - kv) / t + kv * copies / t;
  const double num_in = config.attention.is_latent() ? 1 : 3;  // queries, keys and values
  block.attention = {{n, in_columns, D, 1, num_in}, {n, D, out_width / t}};
  block.core = {.queries = n,
                .keys = number(config.sequence_length),
                .heads = number(config.heads) / t,
                .width = number(config.core_width()),
                .is_causal = counts.is_causal};
  block.hidden_elements = 2 * n * (in_columns + out_width / t);
  double rows = 0;
  if (sparse) {
    const model::ExpertConfig& experts = config.sparse;
    const double E = number(experts.experts), ep = number(work.axes.expert),
                 k = number(experts.experts_per_token), skew = ep > 1 ? expert_skew : 1;
    block.feed_forward.push_back({n, E, D});
    rows = skew * n * k * ep / E;
    add_feed_forward(block, rows, number(config.expert_width()) / t, matrices, D, E / ep);
    if (experts.shared_experts > 0) {
      add_feed_forward(block, n, number(config.shared_width()) / t, matrices, D, 1);
    }
    block.expert_parameters = E / ep * counts.expert_parameters / t;
    block.parameters = (counts.sparse_parameters - E * counts.expert_parameters) / t;
    block.dispatched_rows = skew * n * k;
    block.wide_elements += 4 * n * k * D;
  } else {
    add_feed_forward(block, n, number(config.ffn_width) / t, matrices, D, 1);
    block.parameters = counts.dense_parameters / t;
  }
  // The norms, and two sums with the residual.
  block.wide_elements += (2 * work.kept_by_block.norms + 6) * rows_of(work) * D;
  block.num_kernels = (sparse ? 60 : 40) + (t > 1 ? 4 : 0);
  add_training(block, work, rows);
  return block;
}

HeadWork head_work(const Workload& work) {
  const double n = tokens_of(work);
  const double columns = number(work.model.logits_per_token()) / number(work.axes.tensor);
  const double D = number(work.model.width);
  const double trained = work.head.products;
  return {.logits = {.rows = n, .columns = columns, .inner = D, .trained = trained},
          .dense = {.rows = rows_of(work),
                    .columns = work.counts().head_dense / D,
                    .inner = D,
                    .trained = trained},
          .loss_elements = 4 * n * columns};
}

}  // namespace trireme::plan
