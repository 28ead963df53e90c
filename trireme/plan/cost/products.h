// The matrix products of a language model's forward on one rank, by shape, and what surrounds them.
#pragma once

#include <vector>

#include "trireme/plan/cost/workload.h"

namespace trireme::plan {

// [rows, inner] times the weights [inner, columns], `count` times.
struct Product {
  double rows = 0;
  double columns = 0;
  double inner = 0;
  double count = 1;
  // The columns are those of so many weights. This program multiplies by one after the other, and
  // others by all at once.
  double num_weights = 1;
  double trained = 1;  // the share of the weights that is trained

  double flops() const { return 2 * rows * columns * inner * count; }
};

// softmax(q k^T) v of all heads of this rank.
struct AttentionCore {
  double queries = 0;  // of all sequences of the microbatch
  double keys = 0;     // of one sequence
  double heads = 0;
  double width = 0;  // of a head
  bool is_causal = true;

  // Forward, of the whole square of scores.
  double flops() const { return 4 * queries * keys * heads * width; }
  double scores() const { return queries * keys * heads; }
};

// A block's forward of one microbatch on one rank. Adapters are among the products, and not among
// the parameters.
struct BlockWork {
  std::vector<Product> attention{};  // its projections
  std::vector<Product> feed_forward{};
  AttentionCore core{};
  double wide_elements = 0;    // of the residual stream, read or written by elementwise work
  double hidden_elements = 0;  // of feed-forward and heads
  double num_kernels = 0;      // launches
  // Parameters of this rank: those of every token, and those of its experts.
  double parameters = 0;
  double expert_parameters = 0;
  // Rows of width D that go to the experts' ranks and come back.
  double dispatched_rows = 0;

  double product_flops() const;
};

struct HeadWork {
  Product logits{};
  Product dense{};           // before them
  double loss_elements = 0;  // logits read or written by the loss
};

// Tokens of a microbatch on a rank, and rows between the layers.
double tokens_of(const Workload& work);
double rows_of(const Workload& work);

// The work of a block that is trained as work.block says. With expert ranks, that of the rank that
// gets expert_skew times the mean number of tokens.
BlockWork block_work(const Workload& work, bool sparse, double expert_skew = 1);
HeadWork head_work(const Workload& work);

}  // namespace trireme::plan
