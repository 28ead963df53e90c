#include "trireme/parallel/embedding/embedding_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/parallel/embedding/disk/disk_rows.h"
#include "trireme/parallel/embedding/open/open_key.h"
#include "trireme/parallel/embedding/open/open_rows.h"
#include "trireme/parallel/embedding/open/open_values.h"
#include "trireme/parallel/embedding/open/use_count.h"
#include "trireme/parallel/embedding/remote_table.h"
#include "trireme/parallel/embedding/rows/initial_rows.h"
#include "trireme/parallel/embedding/rows/row_memory.h"
#include "trireme/parallel/embedding/rows/touched_rows.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kFirstSlots = 16;  // of open vocabularies and remote rows
constexpr double kOpenInitialScale = 0.01;

InitialRows initial_of(const TableConfig& config, uint64_t seed) {
  const double scale = config.initial_scale > 0 ? config.initial_scale
                                                : 1 / std::sqrt(static_cast<double>(config.rows));
  return {config.name, config.width, scale, seed};
}

std::vector<int64_t> numbers_of(const at::Tensor& numbers) {
  const auto* const begin = numbers.const_data_ptr<int64_t>();
  return {begin, begin + numbers.numel()};
}
std::vector<int64_t> keys_of(const at::Tensor& ids) {
  std::vector<int64_t> keys = numbers_of(ids);
  std::ranges::transform(keys, keys.begin(), open_key);
  return keys;
}
// None if they are not defined.
std::vector<float> uses_of(const at::Tensor& saved, const std::string& table) {
  if (!saved.defined()) return {};
  const std::span uses(saved.const_data_ptr<float>(), static_cast<size_t>(saved.numel()));
  const auto bad =
      std::ranges::find_if_not(uses, [](float each) { return each >= 1 && each <= kMostUses; });
  if (bad != uses.end()) {
    throw CheckpointError(concat("embedding table \"", shown(table), "\": a saved row has ", *bad,
                                 " uses; expected 1 to ", kMostUses, "; load another checkpoint"));
  }
  return {uses.begin(), uses.end()};
}
at::Tensor ids_of(std::vector<int64_t> keys) {
  std::ranges::transform(keys, keys.begin(), id_of_open_key);
  return at::tensor(keys, at::kLong);
}

bool is_by_columns(const TableConfig& config) {
  return config.placement.kind == mesh::Placement::Kind::kSharded && config.placement.dim == 1;
}

// How many rows fit into the table's memory.
int64_t slots_of(const TableConfig& config, const mesh::Box& box, at::ScalarType dtype,
                 const RowOptimizerConfig& optimizer) {
  TRIREME_CHECK(dtype == at::kFloat || dtype == at::kDouble,
                "embedding tables are fp32 or fp64; found ", dtype);
  if (config.memory_bytes == 0 || box.size[0] * box.size[1] == 0) return box.size[0];
  const RowOptimizer one(optimizer, at::empty({1, box.size[1]}, dtype));
  return std::clamp<int64_t>(config.memory_bytes / one.image_bytes(), 1, box.size[0]);
}

RowImage image_of(RowOptimizer& optimizer, const InitialRows& initial, const mesh::Box& box,
                  at::ScalarType dtype) {
  return {.num_bytes = optimizer.image_bytes(),
          .save = [&optimizer](int64_t slot, std::byte* image) { optimizer.save_row(slot, image); },
          .load = [&optimizer](int64_t slot,
                               const std::byte* image) { optimizer.load_row(slot, image); },
          .initial =
              [&optimizer, initial, box, dtype](int64_t row, std::byte* image) {
                AT_DISPATCH_FLOATING_TYPES(dtype, "initial", [&] {
                  initial.write(box, row, row + 1, reinterpret_cast<scalar_t*>(image));
                });
                optimizer.begin_image(image);
              },
          .loaded = [&optimizer](std::byte* image) { optimizer.mark_loaded(image); }};
}

// One tensor of a table on a disk: some bytes of every row's image.
class ImagePart : public StoredRows {
 public:
  // row: of one row
  ImagePart(std::shared_ptr<DiskRows> rows, int64_t begin, at::Tensor row)
      : rows_(std::move(rows)),
        part_{begin, static_cast<int64_t>(row.nbytes())},
        row_(std::move(row)) {}

  at::Tensor read(int64_t begin, int64_t end) override {
    std::vector<int64_t> rows(static_cast<size_t>(end - begin));
    std::iota(rows.begin(), rows.end(), begin);
    return read(rows);
  }
  at::Tensor read(std::span<const int64_t> rows) override {
    std::vector<int64_t> sizes{std::ssize(rows)};
    sizes.insert(sizes.end(), row_.sizes().begin(), row_.sizes().end());
    const at::Tensor values = at::empty(sizes, row_.options());
    rows_->read(rows, part_, static_cast<std::byte*>(values.mutable_data_ptr()));
    return values;
  }
  void write(int64_t begin, const at::Tensor& values) override {
    rows_->write(begin, part_,
                 {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  }

 private:
  std::shared_ptr<DiskRows> rows_;
  DiskRows::Part part_;
  at::Tensor row_;
};

}  // namespace

at::Tensor initial_rows(const TableConfig& config, c10::ScalarType dtype, uint64_t seed,
                        int64_t begin, int64_t end) {
  return initial_of(config, seed).make({{begin, 0}, {end - begin, config.width}}, dtype);
}

struct EmbeddingTable::Open {
  static Evicts evicts_of(const TableConfig& config) {
    if (config.open_max_rows == 0) return Evicts::kNone;
    return config.open_when_full == FullTable::kEvictRarest ? Evicts::kRarest : Evicts::kOldest;
  }
  OpenRows rows;
  OpenValues values;
  std::vector<std::byte> image{};  // of a new row, but for its weights
  int64_t num_lent = 0;            // slots after the rows', until release()

  Open(const TableConfig& config, uint64_t seed)
      : rows({.table = config.name,
              .expire_steps = config.open_expire_steps,
              .min_uses = config.open_min_uses,
              .evicts = evicts_of(config),
              .halve_steps = config.open_halve_steps}),
        values(seed, config.name,
               config.initial_scale > 0 ? config.initial_scale : kOpenInitialScale) {}
};

EmbeddingTable::EmbeddingTable(const TableConfig& config, const mesh::Axis& axis, int rank,
                               c10::ScalarType dtype, uint64_t seed,
                               const RowOptimizerConfig& optimizer)
    : config_(config), layout_(layout_of(config, axis)), rank_(rank) {
  needs_mean_squares_ = optimizer.rule == RowRule::kRowWiseAdaGrad && is_by_columns(config);
  if (config.is_open) {
    open_ = std::make_unique<Open>(config, seed);
    weights_ = empty_rows({kFirstSlots, config.width}, dtype);
    optimizer_ = std::make_unique<RowOptimizer>(optimizer, weights_);
    open_->image.resize(static_cast<size_t>(optimizer_->image_bytes()));
    optimizer_->begin_image(open_->image.data());
    return;
  }
  const mesh::Box box = layout_.local_box(rank);
  const InitialRows initial = initial_of(config, seed);
  const int64_t num_slots = slots_of(config, box, dtype, optimizer);
  weights_ = num_slots == box.size[0] ? initial.make(box, dtype)
                                      : empty_rows({num_slots, box.size[1]}, dtype);
  optimizer_ = std::make_unique<RowOptimizer>(optimizer, weights_);
  if (!optimizer_->catches_up()) touched_ = std::make_shared<TouchedRows>(box.size[0]);
  if (num_slots == box.size[0]) return;
  disk_ = std::make_shared<DiskRows>(DiskRowsOptions{.table = config.name,
                                                     .num_rows = box.size[0],
                                                     .num_slots = num_slots,
                                                     .folder = config.folder},
                                     image_of(*optimizer_, initial, box, dtype));
}

EmbeddingTable::EmbeddingTable(const TableConfig& config, c10::ScalarType dtype,
                               const RowOptimizerConfig& optimizer,
                               std::shared_ptr<RemoteRows> rows, size_t number)
    : config_(config),
      layout_({config.rows, config.width}, {{"data", 1}}),
      rank_(0),
      weights_(empty_rows({kFirstSlots, config.width}, dtype)),
      optimizer_(std::make_unique<RowOptimizer>(optimizer, weights_)),
      remote_(std::make_unique<RemoteTable>(std::move(rows), number, config)) {
  TRIREME_CHECK(!optimizer_->catches_up(), "embedding table \"", shown(config.name),
                "\" is on parameter servers, which update only the rows that are pushed; the rule "
                "adam updates all: choose lazy-adam");
}

EmbeddingTable::~EmbeddingTable() = default;
EmbeddingTable::EmbeddingTable(EmbeddingTable&&) noexcept = default;
EmbeddingTable& EmbeddingTable::operator=(EmbeddingTable&&) noexcept = default;

std::span<const int64_t> EmbeddingTable::fetch(std::span<const int64_t> rows,
                                               std::vector<int64_t>& memory) {
  if (open_) return fetch_open(rows, memory);
  if (remote_) {
    remote_->fetch(rows, weights_, *optimizer_, memory);
    return memory;
  }
  if (!disk_) return rows;
  memory.clear();
  disk_->fetch(rows, memory);
  return memory;
}

void EmbeddingTable::begin_row(int64_t key, int64_t slot) {
  if (slot >= weights_.size(0)) optimizer_->resize(std::max(slot + 1, 2 * weights_.size(0)));
  AT_DISPATCH_FLOATING_TYPES(weights_.scalar_type(), "begin_row", [&] {
    auto* const row = reinterpret_cast<scalar_t*>(open_->image.data());
    open_->values.write(key, std::span(row, static_cast<size_t>(config_.width)));
  });
  optimizer_->load_row(slot, open_->image.data());
}

std::span<const int64_t> EmbeddingTable::fetch_open(std::span<const int64_t> keys,
                                                    std::vector<int64_t>& slots) {
  slots.clear();
  for (const int64_t key : keys) {
    int64_t slot = open_->rows.find(key, optimizer_->num_steps());
    if (slot == OpenRows::kNone) {
      slot = open_->rows.num_slots() + open_->num_lent++;
      begin_row(key, slot);
    }
    slots.push_back(slot);
  }
  return slots;
}

std::span<const int64_t> EmbeddingTable::fetch_used(std::span<const int64_t> rows,
                                                    std::vector<int64_t>& memory) {
  if (!open_) return fetch(rows, memory);
  memory.clear();
  for (const int64_t key : rows) {
    const auto [slot, is_new] = open_->rows.use(key, optimizer_->num_steps());
    if (is_new) begin_row(key, slot);
    memory.push_back(slot);
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    if (memory[i] != OpenRows::kNone) continue;
    memory[i] = open_->rows.num_slots() + open_->num_lent++;
    begin_row(rows[i], memory[i]);
  }
  return memory;
}

void EmbeddingTable::expire_rows() {
  if (open_) open_->rows.expire(optimizer_->num_steps());
}

OpenRows* EmbeddingTable::open_rows() { return open_ ? &open_->rows : nullptr; }

void EmbeddingTable::release() {
  if (open_) open_->num_lent = 0;
  if (disk_) disk_->release();
  if (remote_) remote_->release();
}

void EmbeddingTable::mark_changed(std::span<const int64_t> rows, std::span<const int64_t> slots) {
  if (touched_) touched_->touch(rows);
  mark_slots(slots);
}

void EmbeddingTable::mark_slots(std::span<const int64_t> slots) {
  if (!disk_) return;
  for (const int64_t slot : slots) disk_->mark_changed(slot);
}

void EmbeddingTable::prefetch(std::span<const int64_t> rows) {
  if (disk_) disk_->prefetch(rows);
  if (remote_) remote_->prefetch(rows);
}

double EmbeddingTable::hit_rate() const {
  if (!disk_ || disk_->num_found() + disk_->num_missed() == 0) return 1;
  const auto found = static_cast<double>(disk_->num_found());
  return found / (found + static_cast<double>(disk_->num_missed()));
}

void EmbeddingTable::catch_up_all() {
  if (!disk_) return optimizer_->catch_up_all();
  if (!optimizer_->catches_up()) return;
  std::vector<int64_t> rows, slots;
  const int64_t count = layout_.local_box(rank_).size[0];
  for (int64_t begin = 0; begin < count; begin += weights_.size(0)) {
    rows.clear();
    for (int64_t row = begin; row < std::min(begin + weights_.size(0), count); ++row) {
      if (disk_->was_changed(row)) rows.push_back(row);
    }
    release();
    const std::span<const int64_t> found = fetch(rows, slots);
    optimizer_->catch_up(found);
    mark_slots(found);
  }
  release();
  optimizer_->forget_steps();
}

OpenTensors EmbeddingTable::open_tensors() {
  catch_up_all();
  const OpenKeys rows = open_->rows.rows(optimizer_->num_steps());
  const OpenKeys waiting = open_->rows.waiting(optimizer_->num_steps());
  const std::string& table = config_.name;
  const at::Tensor slots = at::tensor(rows.numbers, at::kLong);
  OpenTensors tensors{
      .rows = {{table + ".ids", ids_of(rows.keys)},
               {table + ".last_uses", at::tensor(rows.last_uses, at::kLong)},
               {table + ".weight", weights_.index_select(0, slots)}},
      .waiting = {{table + ".waiting_ids", ids_of(waiting.keys)},
                  {table + ".waiting_last_uses", at::tensor(waiting.last_uses, at::kLong)},
                  {table + ".waiting_uses", at::tensor(waiting.numbers, at::kLong)}}};
  for (const RowState& state : optimizer_->states()) {
    tensors.rows.emplace_back(state.name + "." + table + ".weight",
                              state.values.index_select(0, slots));
  }
  if (open_->rows.counts_uses()) tensors.rows.emplace_back(table + ".uses", at::tensor(rows.uses));
  return tensors;
}

void EmbeddingTable::load_open_tensors(const OpenTensors& tensors) {
  OpenKeys rows{.keys = keys_of(tensors.rows.at(0).second),
                .last_uses = numbers_of(tensors.rows.at(1).second)};
  if (open_->rows.counts_uses()) rows.uses = uses_of(tensors.rows.back().second, config_.name);
  const OpenKeys waiting{.keys = keys_of(tensors.waiting.at(0).second),
                         .last_uses = numbers_of(tensors.waiting.at(1).second),
                         .numbers = numbers_of(tensors.waiting.at(2).second)};
  open_->rows.load(rows, waiting);
  open_->num_lent = 0;
  const auto count = std::ssize(rows.keys);
  if (count > weights_.size(0)) optimizer_->resize(count);
  // For the states that the checkpoint does not have.
  for (int64_t slot = 0; slot < count; ++slot) optimizer_->load_row(slot, open_->image.data());
  weights_.narrow(0, 0, count).copy_(tensors.rows.at(2).second);
  for (size_t i = 0; i < optimizer_->states().size(); ++i) {
    const at::Tensor& values = tensors.rows.at(3 + i).second;
    if (values.defined()) optimizer_->states()[i].values.narrow(0, 0, count).copy_(values);
  }
}

std::vector<TableTensor> EmbeddingTable::state() {
  if (open_) return {};
  if (remote_) return remote_->state(config_, weights_, *optimizer_);
  catch_up_all();
  const std::string name = config_.name + ".weight";
  std::vector<TableTensor> tensors{
      {.name = name, .local = weights_, .layout = layout_, .rank = rank_, .touched = touched_}};
  for (const RowState& state : optimizer_->states()) {
    const mesh::Placement per_row =
        is_by_columns(config_) ? mesh::Placement::replicated() : config_.placement;
    const mesh::Layout layout =
        state.values.dim() == 2 ? layout_ : mesh::Layout({config_.rows}, layout_.axes(), {per_row});
    tensors.push_back({.name = state.name + "." + name,
                       .local = state.values,
                       .layout = layout,
                       .rank = rank_,
                       .touched = touched_});
  }
  for (size_t i = 0; i < tensors.size() && disk_; ++i) {
    const at::Tensor slots = tensors[i].local;
    const int64_t begin = i == 0 ? 0 : optimizer_->place_in_image(i - 1).first;
    tensors[i].stored = std::make_shared<ImagePart>(disk_, begin, at::empty_like(slots[0]));
    tensors[i].local =
        at::empty(tensors[i].layout.local_box(rank_).size, slots.options().device(at::kMeta));
  }
  return tensors;
}

void EmbeddingTable::set_num_steps(int64_t num_steps) {
  optimizer_->set_num_steps(num_steps);
  if (touched_) touched_->forget();
}

}  // namespace trireme::parallel
