// Update rules for the rows that a batch has used. No rule makes a gradient of the whole table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/choice.h"

namespace trireme::parallel {

// With g the summed gradient of a row w, and lr the learning rate:
//   kSgd             w -= lr g
//   kAdaGrad         a += g^2; w -= lr g / (sqrt(a) + epsilon)
//   kRowWiseAdaGrad  a += mean(g^2) over the row, one number per row, summed in the order of
//                    sums/square_tree.h; then as kAdaGrad
//   kLazyAdam        m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
//                    w -= lr m / (1 - beta1^k) / (sqrt(v / (1 - beta2^k)) + epsilon), for the rows
//                    that step k uses; the others keep m and v
//   kAdam            the same for every row, with g = 0 where a step does not use it
// kAdam has the bits of an update of the whole table in every step. A row makes up for the steps
// that it missed when it is next read, and pays nothing before it is used for the first time.
// Sources: Duchi et al. 2011, "Adaptive subgradient methods"; row-wise: Mudigere et al. 2022,
//          arXiv:2104.05158, section 4.1.1; Kingma & Ba 2015, arXiv:1412.6980, algorithm 1
enum class RowRule { kSgd, kAdaGrad, kRowWiseAdaGrad, kLazyAdam, kAdam };
inline constexpr Choice<RowRule> kRowRules[] = {{"sgd", RowRule::kSgd},
                                                {"adagrad", RowRule::kAdaGrad},
                                                {"rowwise-adagrad", RowRule::kRowWiseAdaGrad},
                                                {"lazy-adam", RowRule::kLazyAdam},
                                                {"adam", RowRule::kAdam}};

struct RowOptimizerConfig {
  RowRule rule = RowRule::kRowWiseAdaGrad;
  double learning_rate = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double initial_accumulator = 0;  // a of the AdaGrads before the first step
};

// Throws: ConfigError when a number is outside its range
void check_optimizer(const RowOptimizerConfig& config);

// How many numbers a rule keeps for a row of that width.
int64_t numbers_of_states(RowRule rule, int64_t width);

// A tensor that a rule keeps: like the rows, or one number per row.
struct RowState {
  std::string name;   // "exp_avg", "exp_avg_sq", "sum"
  at::Tensor values;  // [rows, width], or [rows]
};

// The optimizer of one table's rows on this rank.
// Thread safety: within a step, catch_up() and update() of different rows may run at once.
class RowOptimizer {
 public:
  // weights: [rows, width] contiguous fp32 or fp64; updated in place
  RowOptimizer(const RowOptimizerConfig& config, at::Tensor weights);

  // Begins the next step. Rows keep their old values until they are updated or caught up. With
  // kAdam the optimizer remembers 24 bytes for each step since the last catch_up_all().
  void begin_step(double learning_rate);
  // Updates `rows`, distinct, in the step that began last.
  // gradients: [rows.size(), width] of the weights' dtype
  // mean_squares: [rows.size()] of that dtype, which kRowWiseAdaGrad adds if these rows are parts
  //               of wider ones; null: they are whole
  void update(std::span<const int64_t> rows, const void* gradients,
              const void* mean_squares = nullptr);
  // Whether rows lag behind until they are caught up: with kAdam.
  bool catches_up() const { return config_.rule == RowRule::kAdam; }
  // Brings `rows` up to the last step. Must come before their weights are read.
  void catch_up(std::span<const int64_t> rows);
  // The same for every row. Must come before states or weights are saved.
  void catch_up_all();
  // After catch_up() of every row.
  void forget_steps();

  // A row and all that is kept for it, as bytes: weights, states, the step that it is up to.
  int64_t image_bytes() const;
  void save_row(int64_t row, std::byte* image) const;
  void load_row(int64_t row, const std::byte* image);
  // Fills in what follows the weights in the image of a row that no step has used.
  void begin_image(std::byte* image) const;
  // Marks the image's row as up to date at the step of the last set_num_steps().
  void mark_loaded(std::byte* image) const;
  // Offset and bytes of states()[i] in an image.
  std::pair<int64_t, int64_t> place_in_image(size_t state) const;

  // Makes room for more rows, in weights and states alike, whose memory then moves. What they hold
  // is not set; load_row() does it.
  void resize(int64_t num_rows);

  const std::vector<RowState>& states() const { return states_; }
  int64_t num_steps() const { return first_step_ + std::ssize(factors_); }
  // After states were loaded. Every row is taken to be up to that step.
  void set_num_steps(int64_t num_steps);

 private:
  struct Factors {  // of one step
    double learning_rate;
    double step_size;  // lr / (1 - beta1^k)
    double root;       // sqrt(1 - beta2^k)
  };
  template <typename scalar>
  void update_rows(std::span<const int64_t> rows, const scalar* gradients,
                   const scalar* mean_squares);
  template <typename scalar>
  void catch_up_row(int64_t row, int64_t step);
  RowOptimizerConfig config_;
  at::Tensor weights_;
  at::Tensor zeros_;  // [width]
  std::vector<RowState> states_;
  int64_t first_step_ = 0;           // the step before factors_[0]
  std::vector<Factors> factors_;     // of each step since; kAdam needs those that rows have missed
  std::vector<int32_t> last_steps_;  // kAdam: the step that each row is up to; kUnused, kLoaded
  int64_t loaded_step_ = 0;          // of the last set_num_steps()
};

}  // namespace trireme::parallel
