// What a rank of a learner keeps beside its training state: the weights that all learners have in
// common, and what the outer optimizer keeps of them. Exchanges them, and puts them into
// checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/learner/difference_exchange.h"
#include "trireme/parallel/learner/learner_graph.h"
#include "trireme/parallel/learner/mixing_weights.h"
#include "trireme/parallel/learner/outer_optimizer.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_form.h"
#include "trireme/train/state/training_state.h"

namespace trireme::train {

// Not thread safe. Every function but the queries is collective: every rank of all learners calls
// it. All that it is made from must outlive it.
//
// Memory: 4 bytes per weight of this rank (fp64: 8), as many again with momentum or a correction
//         and for decoupled learners, and the differences of one fragment while they travel
class LearnerState final : public SavedForm {
 public:
  // state:    built
  // learners: the ranks of equal place, in the order of learners
  // graph:    of methods with neighbours
  // carrier:  brings differences between learners that are runs of their own; null: they are ranks
  LearnerState(const RunConfig& config, TrainingState& state, comm::Communicator& learners,
               std::optional<parallel::LearnerGraph> graph = std::nullopt,
               parallel::ShareCarrier* carrier = nullptr);

  // Until outer.begin: adds the other learners' gradients to this rank's, and averages buffers;
  // later lets the common weights follow.
  // Returns the notes of all learners.
  // Comm: as DifferenceExchange for the gradients
  std::vector<std::vector<double>> sum_gradients(std::vector<double> notes);
  void follow();

  // Begins to exchange a fragment.
  // notes:  numbers for all learners, the same on all ranks of a learner
  // weight: of this learner's difference in their mean, above 0; the same on all its ranks
  // Comm:   see DifferenceExchange; 8 bytes among the ranks of the learner
  void start(int fragment, std::vector<double> notes, double weight = 1);
  bool is_under_way() const { return fragment_.has_value(); }
  std::optional<int> fragment_under_way() const { return fragment_; }
  // How often each fragment has been mixed before, when a run goes on.
  void set_num_mixed(std::map<int, int64_t> num_mixed) { num_mixed_ = std::move(num_mixed); }

  struct Arrival {
    std::vector<std::vector<double>> notes{};  // of each learner
    double spread = 0;  // root of the mean over learners of |difference - mean difference|^2
    std::vector<int> excluded{};  // learners whose differences were not finite
    bool is_restored = false;     // from a checkpoint, which has the sum alone
  };
  // Waits for it, if it is under way and not here yet.
  void await();
  // The same; then changes the common weights and this learner's.
  // own_share: see parallel::mix_with_anchor()
  // is_mean:   the common weights become the mean of the learners', whatever outer.method
  Arrival finish(double own_share, bool is_mean = false);

  // Mixes a fragment with the graph's neighbours, in round `number` of this fragment.
  // Comm: see parallel::mix(), for this rank's share; 8 bytes per note to every other learner
  Arrival mix(int fragment, int64_t number, std::vector<double> notes);
  // Gives all learners the mean of their weights.
  // Comm: as DifferenceExchange for them
  Arrival agree(std::vector<double> notes);

  // What all learners have in common, of this rank: the weights, then the outer momentum.
  // Shapes: [n] fp32 or fp64, on the CPU
  at::Tensor common() const;
  // A hash of its bits.
  std::string common_hash() const;
  // Begins anew with those of another learner. An exchange that a carrier has not brought about is
  // forgotten, and so is what messages have lost.
  // keeps_message: decoupled learners: what it had to say comes with its next message, and so does
  //                what messages have lost
  void take_common(const at::Tensor& common, bool keeps_message = false);

  // Bytes that the ranks of this learner have sent in the last exchange, as far as finish() knows.
  int64_t sent_bytes() const { return sent_bytes_; }

  std::vector<checkpoint::Entry> to_save(std::vector<checkpoint::Entry> own) override;
  PartLoad to_load(std::vector<checkpoint::Entry> own, const checkpoint::Summary& saved) override;
  void begin() override { follow(); }

 private:
  // A weight that is trained.
  struct Weight {
    const parallel::Shard* shard = nullptr;
    at::Tensor live;        // in which training changes it: the shard's, or its master
    at::Tensor anchor;      // of all learners
    at::Tensor momentum;    // undefined without it
    at::Tensor residual;    // fp32, of this learner's messages; undefined without it
    at::Tensor correction;  // of what this learner mixes; undefined without it
    at::Tensor late;        // differences that no round has taken, weighted; undefined without them
    int fragment = 0;
    bool counts = false;  // this rank's part counts in sums over the learner
    bool has_master = false;
    std::vector<at::Tensor> states{};  // that are averaged
  };
  // Weights that the same ranks of the learner hold.
  struct Group {
    std::vector<size_t> weights{};
    comm::Communicator* replicas = nullptr;
    std::unique_ptr<parallel::DifferenceExchange> differences;
    std::unique_ptr<parallel::DifferenceExchange> exact;  // of states, and of gradients
    at::Tensor mean{};         // of differences that have arrived, before it is applied
    at::Tensor mean_states{};  // alike
  };
  // How far push-sum has come.
  struct Mixed {
    int64_t number = 0;  // rounds
    parallel::LearnerWeights weights;
  };
  struct Flat {
    at::Tensor values{};
    at::Tensor residual{};
    double squares = 0;  // of what this rank counts
    bool is_finite = true;
  };
  // In names of a checkpoint's tensors.
  static constexpr const char* kAnchor = "anchor";
  static constexpr const char* kMomentum = "momentum";
  static constexpr const char* kMean = "mean";
  static constexpr const char* kGraph = "graph";
  static constexpr const char* kResidual = "outer.residual";
  static constexpr const char* kBase =
      "outer.base";  // of methods with neighbours: the weights after the last exchange

  std::vector<size_t> of_fragment(const Group& group, int fragment) const;
  at::Tensor weighted_difference(const Weight& weight) const;
  Flat differences_of(const std::vector<size_t>& weights) const;
  void keep_message();
  void forget_late();
  at::TensorOptions wide_options() const;
  void apply(Group& group, const parallel::OuterOptimizerOptions& options, double own_share);
  void make_groups();
  at::Tensor mean_over_learners(parallel::DifferenceExchange& exchange,
                                const std::vector<at::Tensor>& tensors) const;
  void average_buffers();
  void reset_states(int fragment);
  void set(const Weight& weight, const at::Tensor& values);
  const parallel::LearnerWeights& push_sum_weights(int fragment, int64_t number);
  std::vector<at::Tensor> values_to_mix(const Weight& weight, double share_of_sum) const;
  void take_mixed(const Weight& weight, const std::vector<at::Tensor>& mixed);
  std::string correction_name() const;
  bool has_corrections(const std::set<std::string>& saved) const;
  std::vector<checkpoint::Entry> graph_entries(const at::Tensor& fingerprint) const;
  void expect_same_graph(const std::set<std::string>& saved, PartLoad& load,
                         std::vector<std::function<void()>>& later) const;
  std::vector<at::Tensor> find_common();
  void count_sent(double bytes);
  void write_back(const Weight& weight) const;
  std::vector<checkpoint::Entry> outer_entries() const;
  void restore_exchange(const std::set<std::string>& saved);
  std::string own_name(const std::string& name) const;
  std::map<std::string, const Weight*> by_name() const;
  std::set<std::string> frozen_names() const;
  static std::string weight_of(const std::string& entry);

  const RunConfig& config_;
  TrainingState& state_;
  comm::Communicator& learners_;
  comm::Communicator& ranks_;  // of this learner
  std::unique_ptr<comm::Communicator> alone_;
  std::vector<Weight> weights_;
  std::vector<Group> groups_;
  std::optional<parallel::LearnerGraph> graph_;
  parallel::ShareCarrier* carrier_;
  std::string fingerprint_;     // of a graph from a file
  std::map<int, Mixed> mixed_;  // by fragment
  std::map<int, int64_t> num_mixed_;
  std::optional<int> fragment_;  // under way
  bool is_lost_ = false;         // this learner's part of it is not finite
  double weight_ = 1;            // of its difference in the mean
  double late_weight_ = 0;       // of Weight::late
  std::optional<Arrival> arrival_;
  int64_t sent_bytes_ = 0;
};

}  // namespace trireme::train
