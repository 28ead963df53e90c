#include "trireme/train/server/served_tables.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// Updates the rows of one piece by the rule of its table.
class TablePiece final : public parallel::PieceUpdate {
 public:
  // weights: the piece's, updated in place
  TablePiece(const parallel::RowOptimizerConfig& config, const at::Tensor& weights,
             int64_t num_steps)
      : optimizer_(config, weights), num_steps_(num_steps) {}

  void apply(at::Tensor& /*weights*/, const parallel::PieceGradient& gradient, double learning_rate,
             int64_t step) override {
    optimizer_.set_num_steps(num_steps_ + step - 1);
    optimizer_.begin_step(learning_rate);
    optimizer_.update(gradient.rows, gradient.values.const_data_ptr());
  }
  std::vector<parallel::PieceState> states() override {
    std::vector<parallel::PieceState> named;
    for (const parallel::RowState& state : optimizer_.states()) {
      named.push_back({state.name, state.values});
    }
    return named;
  }

 private:
  parallel::RowOptimizer optimizer_;
  int64_t num_steps_;
};

[[noreturn]] void refuse(const char* what) {
  throw InternalError(concat("rows of parameter servers: ", what));
}

}  // namespace

std::vector<parallel::ServedParameter> served_tables(const parallel::EmbeddingTables& tables) {
  std::vector<parallel::ServedParameter> parameters;
  for (const parallel::TableConfig& table : tables.configs()) {
    parameters.push_back({.name = table.name + ".weight",
                          .rows = table.rows,
                          .width = table.width,
                          .dtype = tables.options().dtype,
                          .is_sparse = true});
  }
  return parameters;
}

void PulledRows::use(parallel::ServerClient& client, std::vector<parallel::ServedParameter> tables,
                     int64_t first_parameter) {
  client_ = &client;
  tables_ = std::move(tables);
  first_parameter_ = first_parameter;
}

void PulledRows::pull(size_t table, std::span<const int64_t> rows, const at::Tensor& out) {
  const auto early = early_.find(table);
  if (early != early_.end() && std::ranges::equal(early->second.rows, rows)) {
    copies_.emplace_back(out, early->second.values);
    early_.erase(early);
    return;
  }
  rows_pulled_ += std::ssize(rows);
  client_->pull_rows(next_step(), parameter_of(table), rows, out);
}

void PulledRows::wait_pulled() {
  client_->wait_all_pulled();
  for (const auto& [to, from] : std::exchange(copies_, {})) to.copy_(from);
}

// Requests the rows for this step, because a request for the next one would wait for this step's
// push.
void PulledRows::prefetch(size_t table, std::span<const int64_t> rows) {
  if (!reads_ahead_) return;
  const parallel::ServedParameter& parameter = tables_.at(table);
  Early& early = early_[table];
  early.rows.assign(rows.begin(), rows.end());
  early.values = at::empty({std::ssize(rows), parameter.width}, parameter.dtype);
  rows_pulled_ += std::ssize(rows);
  client_->pull_rows(next_step(), parameter_of(table), rows, early.values);
}

void PulledRows::push(std::span<const parallel::RowGradients> gradients, double learning_rate) {
  for (size_t table = 0; table < gradients.size(); ++table) {
    const at::Tensor& rows = gradients[table].rows;
    rows_pushed_ += rows.numel();
    client_->push_rows(next_step(), parameter_of(table),
                       {rows.const_data_ptr<int64_t>(), static_cast<size_t>(rows.numel())},
                       gradients[table].sums.contiguous(), learning_rate);
  }
  ++num_pushed_;
}

void PulledRows::settle() {
  client_->wait_pushed();
  workers_.barrier()->wait();
}

at::Tensor PulledRows::read(size_t table, size_t tensor, int64_t begin, int64_t end) {
  const parallel::ClientCounts before = client_->counts();
  const int64_t parameter = parameter_of(table);
  at::Tensor values;
  if (tensor > 0) {
    values = client_->pull_state(parameter, static_cast<int64_t>(tensor) - 1, begin, end);
  } else {
    std::vector<int64_t> rows(static_cast<size_t>(end - begin));
    std::iota(rows.begin(), rows.end(), begin);
    const parallel::ServedParameter& served = tables_.at(table);
    values = at::empty({end - begin, served.width}, served.dtype);
    client_->pull_rows(/*step=*/0, parameter, rows, values);
    client_->wait_pulled(parameter);
  }
  const parallel::ClientCounts after = client_->counts();
  of_checkpoints_.sent_bytes += after.sent_bytes - before.sent_bytes;
  of_checkpoints_.received_bytes += after.received_bytes - before.received_bytes;
  return values;
}

PulledCounts PulledRows::counts() const {
  const parallel::ClientCounts all = client_->counts();
  return {.num_steps = num_pushed_,
          .rows_pulled = rows_pulled_,
          .rows_pushed = rows_pushed_,
          .sent_bytes = all.sent_bytes - of_checkpoints_.sent_bytes,
          .received_bytes = all.received_bytes - of_checkpoints_.received_bytes};
}

std::string describe(const PulledCounts& counts, int64_t num_servers) {
  if (counts.num_steps == 0) return "";
  const auto mean = [&](int64_t sum) { return sum / counts.num_steps; };
  return concat("tables  on ", num_servers, num_servers == 1 ? " server" : " servers",
                "; mean per step of worker 0: ", mean(counts.rows_pulled), " rows pulled, ",
                mean(counts.rows_pushed), " pushed, ", mean(counts.sent_bytes) / 1000, " kB sent, ",
                mean(counts.received_bytes) / 1000, " kB received");
}

void PulledRows::write(size_t, size_t, int64_t, const at::Tensor&) {
  refuse("a worker got some from a checkpoint");
}

void OwnedRows::own(std::span<const parallel::Piece> pieces, int64_t first_parameter) {
  first_parameter_ = first_parameter;
  for (const parallel::Piece& piece : pieces) {
    if (piece.parameter < first_parameter) continue;
    owned_.emplace(std::pair(piece.parameter, piece.first_row), Owned{.piece = piece});
  }
}

std::optional<at::Tensor> OwnedRows::take(const parallel::Piece& piece, size_t tensor) {
  const auto owned = owned_.find({piece.parameter, piece.first_row});
  if (owned == owned_.end()) return std::nullopt;
  const auto found = owned->second.tensors.find(tensor);
  if (found == owned->second.tensors.end()) return std::nullopt;
  if (!found->second.defined()) refuse("a piece was made twice");
  return std::exchange(found->second, at::Tensor());
}

std::vector<mesh::Range> OwnedRows::wanted_rows(size_t table) const {
  std::vector<mesh::Range> wanted;
  for (const auto& [key, owned] : owned_) {
    if (key.first != first_parameter_ + static_cast<int64_t>(table)) continue;
    wanted.push_back({owned.piece.first_row, owned.piece.rows});
  }
  return wanted;
}

void OwnedRows::write(size_t table, size_t tensor, int64_t begin, const at::Tensor& values) {
  for (auto& [key, owned] : owned_) {
    const parallel::Piece& piece = owned.piece;
    const int64_t first = std::max(begin, piece.first_row);
    const int64_t last = std::min(begin + values.size(0), piece.first_row + piece.rows);
    if (key.first != first_parameter_ + static_cast<int64_t>(table) || first >= last) continue;
    at::Tensor& whole = owned.tensors[tensor];
    if (!whole.defined()) {
      std::vector<int64_t> shape = values.sizes().vec();
      shape[0] = piece.rows;
      whole = at::empty(shape, values.options());
    }
    whole.narrow(0, first - piece.first_row, last - first)
        .copy_(values.narrow(0, first - begin, last - first));
  }
}

void OwnedRows::pull(size_t, std::span<const int64_t>, const at::Tensor&) {
  refuse("a server pulled some");
}
void OwnedRows::push(std::span<const parallel::RowGradients>, double) {
  refuse("a server pushed some");
}
at::Tensor OwnedRows::read(size_t, size_t, int64_t, int64_t) { refuse("a server saved some"); }

parallel::MakePiece make_table_pieces(const parallel::EmbeddingTables& tables,
                                      std::shared_ptr<OwnedRows> rows, int64_t first_parameter,
                                      int64_t num_steps) {
  return [configs = tables.configs(), options = tables.options(), rows = std::move(rows),
          first_parameter, num_steps](const parallel::Piece& piece, int64_t) {
    const auto& config = configs.at(static_cast<size_t>(piece.parameter - first_parameter));
    const auto loaded = rows->take(piece, 0);
    const at::Tensor weights =
        loaded ? *loaded
               : parallel::initial_rows(config, options.dtype, options.seed, piece.first_row,
                                        piece.first_row + piece.rows);
    auto update = std::make_unique<TablePiece>(options.optimizer, weights, num_steps);
    size_t tensor = 1;
    for (parallel::PieceState& state : update->states()) {
      if (const auto saved = rows->take(piece, tensor++)) state.values.copy_(*saved);
    }
    return parallel::ServedPiece{weights, std::move(update)};
  };
}

}  // namespace trireme::train
