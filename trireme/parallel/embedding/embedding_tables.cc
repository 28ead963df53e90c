// Length: look-ups, steps and checkpoints of the same tables, with their reasons.
#include "trireme/parallel/embedding/embedding_tables.h"

#include <algorithm>
#include <functional>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/embedding/gradient_sinks.h"
#include "trireme/parallel/embedding/open/open_rows.h"
#include "trireme/parallel/embedding/open/saved_ids.h"
#include "trireme/parallel/embedding/table_look_up.h"

namespace trireme::parallel {

// A look-up is two calls: start() sends ids, finish() brings rows and pools them. Between the two a
// model can compute, and rows of a later look-up can be read ahead from a disk. Autograd sees one
// function per look-up, with an anchor as its input: rows are no tensors of the graph, since a
// dense gradient of a table would be as large as the table. Its backward sums gradients by row.
// Then rows are updated at once, or kept until step() when clipping or accumulation need them.
// State is shared with the functions in autograd's graph, which may live longer than this object's
// moves.

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct EmbeddingTables::State {
  std::shared_ptr<TableGroup> group = std::make_shared<TableGroup>();
  EmbeddingOptions options;
  double learning_rate = 0;
  std::vector<RowGradients> gradients{};
  TableCounts counts{};
  // Makes backward run: the rows themselves are in no graph.
  at::Tensor anchor{};
  bool reads_ahead = false;                         // any table
  std::vector<std::weak_ptr<TableLookUp>> begun{};  // whose rows may be read ahead

  void begin_step() {
    for (EmbeddingTable& table : group->tables) table.optimizer().begin_step(learning_rate);
  }
  // Drops rows of open vocabularies.
  void end_step();
  void backward(TableLookUp& look_up, std::span<const at::Tensor> gradients_of_outputs);
  void push(double factor);  // to the owner of remote rows
  // Once for each look-up that has begun and is not finished.
  void prefetch(const TableLookUp* finished = nullptr) {
    // Weak: a look-up that was dropped must not be read for.
    for (const std::weak_ptr<TableLookUp>& each : std::exchange(begun, {})) {
      const std::shared_ptr<TableLookUp> look_up = each.lock();
      if (look_up != nullptr && look_up.get() != finished) look_up->prefetch();
    }
  }
};

namespace {

struct LookUpHolder : torch::CustomClassHolder {
  std::shared_ptr<TableLookUp> look_up;
  std::function<void(std::span<const at::Tensor>)> backward;
};

class LookUpFunction : public torch::autograd::Function<LookUpFunction> {
 public:
  // weights: those of the ids, if they get a gradient; otherwise the anchor again
  static variable_list forward(AutogradContext* ctx, const at::Tensor& /*anchor*/,
                               const at::Tensor& /*weights*/,
                               const c10::intrusive_ptr<LookUpHolder>& holder) {
    ctx->saved_data["look_up"] = c10::IValue::make_capsule(holder);
    return holder->look_up->finish();
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto holder =
        c10::static_intrusive_pointer_cast<LookUpHolder>(ctx->saved_data["look_up"].toCapsule());
    at::Tensor of_weights;
    // Before the rows' gradients: backward() may update the rows that these need.
    if (holder->look_up->has_weight_gradient()) {
      of_weights = holder->look_up->weight_gradient(grads);
    }
    holder->backward(grads);
    return {at::Tensor(), of_weights, at::Tensor()};
  }
};

std::shared_ptr<TableGroup> make_group(const std::vector<TableConfig>& tables,
                                       comm::Communicator* group, const EmbeddingOptions& options) {
  check_tables(tables);
  check_optimizer(options.optimizer);
  // A server takes what is pushed to it, once per step.
  TRIREME_CHECK(!options.remote || (group == nullptr && options.update == UpdateTime::kOnStep),
                "embedding tables over remote rows with a group of ranks or with updates in "
                "backward; pass no group, and UpdateTime::kOnStep");
  TRIREME_CHECK(!options.remote || std::ranges::none_of(tables, &TableConfig::is_open),
                "embedding tables over remote rows with an open vocabulary; give each a number of "
                "rows");
  auto result = std::make_shared<TableGroup>();
  result->configs = tables;
  result->group = group;
  result->dtype = options.dtype;
  result->symmetric = options.symmetric;
  result->remote = options.remote;
  const mesh::Axis axis{options.axis, group == nullptr ? 1 : group->size()};
  size_t num_apart = 0;
  for (const TableConfig& table : tables) {
    if (options.remote) {
      result->tables.emplace_back(table, options.dtype, options.optimizer, options.remote,
                                  result->tables.size());
    } else {
      result->tables.emplace_back(table, axis, group == nullptr ? 0 : group->rank(), options.dtype,
                                  options.seed, options.optimizer);
    }
    // Every column-split table would add its own exchange; they share one.
    result->parts.emplace_back(result->tables.back().layout(), table.is_open);
    result->parts.back().has_row_states = result->tables.back().needs_mean_squares();
    const bool is_apart = table.pooling == Pooling::kNone;
    result->outputs.push_back(is_apart ? ++num_apart : 0);
    result->columns.push_back(is_apart ? 0 : result->num_columns);
    if (!is_apart) result->num_columns += table.width;
  }
  return result;
}

}  // namespace

void EmbeddingTables::State::end_step() {
  std::vector<LimitedRows> limited;
  for (size_t t = 0; t < group->tables.size(); ++t) {
    const TableConfig& config = group->configs[t];
    if (!config.is_open) continue;
    group->tables[t].expire_rows();
    if (config.open_max_rows == 0) continue;
    limited.push_back({.rows = *group->tables[t].open_rows(),
                       .table = config.name,
                       .max_rows = config.open_max_rows,
                       .evicts = config.open_when_full != FullTable::kRefuse,
                       .is_replicated = group->parts[t].is_replicated,
                       .counts_uses = config.open_when_full == FullTable::kEvictRarest});
  }
  keep_limits(limited, group->group);
}

void EmbeddingTables::State::backward(TableLookUp& look_up,
                                      std::span<const at::Tensor> gradients_of_outputs) {
  prefetch();
  if (options.update == UpdateTime::kInBackward) {
    begin_step();
    UpdateRows sink(*group);
    look_up.backward(gradients_of_outputs, sink);
    look_up.count(counts);
    sink.finish(counts);
    end_step();
    return;
  }
  StoreSums sink(*group);
  look_up.backward(gradients_of_outputs, sink);
  look_up.count(counts);
  std::vector<RowGradients> stored = sink.stored();
  for (size_t t = 0; t < gradients.size(); ++t) {
    // Each id once: a later sum over steps adds rows of both.
    stored[t] = sum_of(gradients[t], stored[t], group->configs[t].is_open);
  }
  gradients = std::move(stored);
}

EmbeddingTables::EmbeddingTables(const std::vector<TableConfig>& tables, comm::Communicator* group,
                                 const EmbeddingOptions& options)
    : state_(std::make_shared<State>(
          State{.group = make_group(tables, group, options),
                .options = options,
                .learning_rate = options.optimizer.learning_rate,
                .anchor = at::zeros({0}, options.dtype).requires_grad_()})) {
  for (const EmbeddingTable& table : state_->group->tables) {
    state_->reads_ahead |= table.reads_ahead();
  }
}
EmbeddingTables::~EmbeddingTables() = default;
EmbeddingTables::EmbeddingTables(EmbeddingTables&&) noexcept = default;
EmbeddingTables& EmbeddingTables::operator=(EmbeddingTables&&) noexcept = default;

StartedLookUp EmbeddingTables::start(JaggedIds ids) {
  const TableGroup& group = *state_->group;
  check_ids(ids, group.configs);
  auto look_up =
      std::make_shared<TableLookUp>(state_->group, std::move(ids), at::GradMode::is_enabled());
  if (state_->reads_ahead) state_->begun.push_back(look_up);
  return StartedLookUp(std::move(look_up));
}

Embeddings EmbeddingTables::finish(const StartedLookUp& started) {
  auto holder = c10::make_intrusive<LookUpHolder>();
  holder->look_up = started.look_up_;
  holder->backward = [state = state_,
                      look_up = started.look_up_.get()](std::span<const at::Tensor> gradients) {
    state->backward(*look_up, gradients);
  };
  const TableLookUp& look_up = *started.look_up_;
  const at::Tensor& weights = look_up.has_weight_gradient() ? look_up.weights() : state_->anchor;
  variable_list outputs = LookUpFunction::apply(state_->anchor, weights, holder);
  // After the graph is made: finish() has used the slots.
  state_->prefetch(started.look_up_.get());
  return {outputs[0], {outputs.begin() + 1, outputs.end()}};
}

Embeddings EmbeddingTables::look_up(JaggedIds ids) { return finish(start(std::move(ids))); }

const std::vector<TableConfig>& EmbeddingTables::configs() const { return state_->group->configs; }

const EmbeddingOptions& EmbeddingTables::options() const { return state_->options; }

const TableCounts& EmbeddingTables::counts() const { return state_->counts; }

OpenRowCounts EmbeddingTables::open_counts() const {
  OpenRowCounts sum;
  const TableGroup& group = *state_->group;
  for (size_t t = 0; t < group.tables.size(); ++t) {
    // Replicas have the same rows, which count once.
    if (!group.configs[t].is_open || (group.parts[t].is_replicated && group.rank() != 0)) continue;
    const OpenCounts& own = state_->group->tables[t].open_rows()->counts();
    sum.rows += own.rows;
    sum.begun += own.begun;
    sum.expired += own.expired;
    sum.evicted += own.evicted;
  }
  return sum;
}

void EmbeddingTables::set_learning_rate(double learning_rate) {
  RowOptimizerConfig config = state_->options.optimizer;
  // Checked by the same rules as at the start.
  config.learning_rate = learning_rate;
  check_optimizer(config);
  state_->learning_rate = learning_rate;
}

const std::vector<RowGradients>& EmbeddingTables::gradients() const { return state_->gradients; }

std::vector<at::Tensor> EmbeddingTables::gradient_squares() const {
  return row_squares(*state_->group, state_->gradients);
}

void EmbeddingTables::step(double factor) {
  TRIREME_ASSERT(state_->options.update == UpdateTime::kOnStep, "rows were updated in backward");
  if (state_->group->remote) return state_->push(factor);
  state_->begin_step();
  update_rows(*state_->group, state_->gradients, factor, state_->counts);
  state_->gradients.clear();
  state_->end_step();
}

void EmbeddingTables::State::push(double factor) {
  std::vector<RowGradients> scaled;
  for (size_t t = 0; t < group->tables.size(); ++t) {
    if (t < gradients.size()) {
      const RowGradients& own = gradients[t];
      scaled.push_back({own.rows, factor == 1 ? own.sums : own.sums * factor});
    } else {  // without a look-up
      // All tables push in each step, or the servers would wait for one.
      scaled.push_back({at::empty({0}, at::kLong),
                        at::empty({0, group->configs[t].width}, at::TensorOptions(group->dtype))});
    }
  }
  gradients.clear();
  group->remote->push(scaled, learning_rate);
}

void EmbeddingTables::discard_gradients() { state_->gradients.clear(); }

void EmbeddingTables::settle() {
  if (state_->group->remote) state_->group->remote->settle();
}

std::vector<TableTensor> EmbeddingTables::state() {
  std::vector<TableTensor> tensors;
  for (EmbeddingTable& table : state_->group->tables) {
    for (TableTensor& tensor : table.state()) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

namespace {

// Number of rows of this rank between the cuts.
int64_t own_rows(const TableGroup& group, size_t table, const std::vector<int64_t>& cuts) {
  const size_t rank = group.rank();
  return group.parts[table].is_replicated ? cuts.back() : cuts[rank + 1] - cuts[rank];
}

TableTensor saved_tensor(const TableGroup& group, size_t table, const OpenTensor& tensor,
                         const std::vector<int64_t>& cuts) {
  const mesh::Axis& axis = group.tables[table].layout().axes()[0];
  return {
      .name = tensor.name,
      .local = tensor.values,
      .layout = layout_of_saved(tensor.values.sizes(), axis, group.configs[table].placement, cuts),
      .rank = static_cast<int>(group.rank()),
      .stored = tensor.stored};
}

// The saved tensor for `wanted`, of a table with that name; undefined if it begins anew.
at::Tensor find_saved(const std::vector<TableTensor>& tensors, const std::string& table,
                      const OpenTensor& wanted, int64_t& count) {
  const auto found = std::ranges::find(tensors, wanted.name, &TableTensor::name);
  if (found == tensors.end()) {
    throw CheckpointError(concat("embedding table \"", shown(table),
                                 "\": there is no saved tensor \"", shown(wanted.name), "\""));
  }
  if (!found->local.defined()) return {};
  std::vector<int64_t> expected = wanted.values.sizes().vec();
  // The first one-dimensional tensor, the ids, says how many rows there are.
  if (count < 0 && found->local.dim() == 1) count = found->local.size(0);
  expected[0] = count;
  if (found->local.sizes() != expected ||
      found->local.scalar_type() != wanted.values.scalar_type()) {
    throw CheckpointError(concat("the saved tensor \"", shown(wanted.name), "\" has shape ",
                                 found->local.sizes(), " and dtype ", found->local.scalar_type(),
                                 "; expected ", at::IntArrayRef(expected), " and ",
                                 wanted.values.scalar_type()));
  }
  return found->local.contiguous();
}

}  // namespace

std::vector<TableTensor> EmbeddingTables::open_state() {
  TableGroup& group = *state_->group;
  std::vector<TableTensor> result;
  for (size_t t = 0; t < group.tables.size(); ++t) {
    if (!group.configs[t].is_open) continue;
    const OpenTensors own = group.tables[t].open_tensors();
    const mesh::Axis& axis = group.tables[t].layout().axes()[0];
    const at::Tensor counts =
        at::tensor({own.rows[0].values.size(0), own.waiting[0].values.size(0)}, at::kLong);
    at::Tensor all = counts.unsqueeze(0);
    if (group.group != nullptr) {
      all = at::empty({axis.size, 2}, at::kLong);
      group.group->all_gather(all.unbind(0), counts)->wait();
    }
    for (const auto& [tensors, column] : {std::pair{&own.rows, 0}, {&own.waiting, 1}}) {
      std::vector<int64_t> cuts{0};
      for (int64_t r = 0; r < all.size(0); ++r) {
        const int64_t count = all[r][column].item<int64_t>();
        // Replicas have the same rows.
        cuts.push_back(group.parts[t].is_replicated ? count : cuts.back() + count);
      }
      for (const OpenTensor& tensor : *tensors)
        result.push_back(saved_tensor(group, t, tensor, cuts));
    }
  }
  return result;
}

std::vector<TableTensor> EmbeddingTables::open_state_to_load(
    const std::function<at::Tensor(const std::string& name)>& read) {
  TableGroup& group = *state_->group;
  std::vector<TableTensor> result;
  for (size_t t = 0; t < group.tables.size(); ++t) {
    const TableConfig& config = group.configs[t];
    if (!config.is_open) continue;
    const OpenTensors kinds = group.tables[t].open_tensor_kinds();
    const auto cuts_of = [&](const std::vector<OpenTensor>& tensors) {
      return cuts_of_saved(read(tensors[0].name), config.name, group.parts[t].rows);
    };
    const std::vector<int64_t> rows = cuts_of(kinds.rows), waiting = cuts_of(kinds.waiting);
    if (config.open_when_full == FullTable::kRefuse) {
      check_saved_rows(config.name, rows.back(), config.open_max_rows);
    }
    const OpenTensors own =
        group.tables[t].open_tensors_to_load(own_rows(group, t, rows), own_rows(group, t, waiting));
    for (const OpenTensor& tensor : own.rows)
      result.push_back(saved_tensor(group, t, tensor, rows));
    for (const OpenTensor& tensor : own.waiting)
      result.push_back(saved_tensor(group, t, tensor, waiting));
  }
  return result;
}

void EmbeddingTables::load_open_state(const std::vector<TableTensor>& tensors) {
  TableGroup& group = *state_->group;
  for (size_t t = 0; t < group.tables.size(); ++t) {
    const std::string& table = group.configs[t].name;
    if (!group.configs[t].is_open) continue;
    OpenTensors own = group.tables[t].open_tensor_kinds();
    for (auto* const wanted : {&own.rows, &own.waiting}) {
      int64_t count = -1;
      for (OpenTensor& tensor : *wanted) tensor.values = find_saved(tensors, table, tensor, count);
      const at::Tensor& ids = wanted->at(0).values;
      // Rows are placed by their ids, and a checkpoint of another layout cuts elsewhere.
      if (own_rows(group, t, cuts_of_saved(ids, table, group.parts[t].rows)) == count) continue;
      throw CheckpointError(concat("embedding table \"", shown(table),
                                   "\": the saved ids are not all of rank ", group.rank(),
                                   "'s part; load those that open_state_to_load() asks for"));
    }
    group.tables[t].load_open_tensors(own);
  }
}

int64_t EmbeddingTables::memory_bytes() const {
  int64_t bytes = 0;
  for (const EmbeddingTable& table : state_->group->tables) bytes += table.memory_bytes();
  return bytes;
}

double EmbeddingTables::hit_rate(size_t table) const {
  return state_->group->tables.at(table).hit_rate();
}

int64_t EmbeddingTables::num_steps() const {
  return state_->group->tables.front().optimizer().num_steps();
}

void EmbeddingTables::set_num_steps(int64_t num_steps) {
  for (EmbeddingTable& table : state_->group->tables) table.set_num_steps(num_steps);
}

}  // namespace trireme::parallel
