// Length: one class for tables of four homes, whose differences are named beside each other.
#include "trireme/parallel/embedding/embedding_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/embedding/disk/disk_rows.h"
#include "trireme/parallel/embedding/open/open_slots.h"
#include "trireme/parallel/embedding/open/saved_ids.h"
#include "trireme/parallel/embedding/remote_table.h"
#include "trireme/parallel/embedding/rows/row_memory.h"
#include "trireme/parallel/embedding/rows/touched_rows.h"

namespace trireme::parallel {

// A table has one of four homes: all rows in memory, rows on a disk with some in memory, an open
// vocabulary with rows that come and go (on a disk or not), or parameter servers. All of them end
// in slots of weights_, which look-ups and the optimizer index, so the rest of the code knows no
// home. fetch() makes rows have slots, and release() ends what the slots mean. Between the two,
// pointers into weights_ are valid unless it grows: only an open table and a remote one grow, and
// both resize through the optimizer, so that states move along. A rule that looks back (adam) has
// to bring all rows up to date before a state is read, because unused rows change too; such a table
// cannot tell which rows a step has touched.

namespace {

// Grows as rows come.
constexpr int64_t kFirstSlots = 16;  // of open vocabularies and remote rows
constexpr double kOpenInitialScale = 0.01;

InitialRows initial_of(const TableConfig& config, uint64_t seed) {
  const double scale = config.initial_scale > 0 ? config.initial_scale
                                                : 1 / std::sqrt(static_cast<double>(config.rows));
  return {config.name, config.width, scale, seed};
}

// In OpenTensors::rows: the weights; the optimizer's states follow.
constexpr size_t kFirstValues = 2;

at::Tensor with_rows(const at::Tensor& kind, int64_t count, const at::TensorOptions& options = {}) {
  std::vector<int64_t> sizes = kind.sizes().vec();
  sizes[0] = count;
  return at::empty(sizes, kind.options().merge_in(options));
}
OpenTensor on_disk(OpenTensor tensor, int64_t count, std::shared_ptr<StoredRows> stored) {
  tensor.values = with_rows(tensor.values, count, at::TensorOptions(at::kMeta));
  tensor.stored = std::move(stored);
  return tensor;
}

bool is_by_columns(const TableConfig& config) {
  return config.placement.kind == mesh::Placement::Kind::kSharded && config.placement.dim == 1;
}

// Number of rows that fit into the table's memory.
int64_t slots_of(const TableConfig& config, const mesh::Box& box, at::ScalarType dtype,
                 const RowOptimizerConfig& optimizer) {
  TRIREME_CHECK(dtype == at::kFloat || dtype == at::kDouble,
                "embedding tables are fp32 or fp64; found ", dtype);
  // A part without elements has nothing to keep on a disk.
  if (config.memory_bytes == 0 || box.size[0] * box.size[1] == 0) return box.size[0];
  const RowOptimizer one(optimizer, at::empty({1, box.size[1]}, dtype));
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - 1;  // of RowCache
  return std::clamp<int64_t>(config.memory_bytes / one.image_bytes(), 1,
                             config.is_open ? kMost : box.size[0]);
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

// A row of an open table before begin_row(), or before a load.
std::function<void(int64_t row, std::byte* image)> without_weights(const RowOptimizer& optimizer) {
  return [&optimizer](int64_t /*row*/, std::byte* image) {
    std::fill_n(image, optimizer.image_bytes(), std::byte{0});
    optimizer.begin_image(image);
  };
}

// num_parts: of an open table's, that are on this rank
DiskRowsOptions open_disk(const TableConfig& config, int64_t num_parts, int64_t num_slots) {
  // The count of keys is exact over all parts and about even for each.
  // Keys are spread evenly over the parts.
  const double share = static_cast<double>(num_parts) / static_cast<double>(kOpenRows);
  const double num_rows = std::ceil(share * static_cast<double>(config.open_max_rows));
  return {.table = config.name,
          .num_rows = std::max<int64_t>(1, static_cast<int64_t>(num_rows)),
          .num_slots = num_slots,
          .folder = config.folder,
          .grows = config.open_max_rows == 0};
}

}  // namespace

at::Tensor initial_rows(const TableConfig& config, c10::ScalarType dtype, uint64_t seed,
                        int64_t begin, int64_t end) {
  return initial_of(config, seed).make({{begin, 0}, {end - begin, config.width}}, dtype);
}

struct EmbeddingTable::Open {
  Open(const TableConfig& config, uint64_t seed, at::Tensor slot_weights, RowOptimizer& of_slots,
       std::shared_ptr<DiskRows> disk)
      : weights(std::move(slot_weights)),
        optimizer(of_slots),
        values(seed, config.name,
               config.initial_scale > 0 ? config.initial_scale : kOpenInitialScale),
        image(static_cast<size_t>(of_slots.image_bytes())),
        slots({.rows = {.table = config.name,
                        .expire_steps = config.open_expire_steps,
                        .min_uses = config.open_min_uses,
                        .evicts = evicts_of(config),
                        .halve_steps = config.open_halve_steps},
               .begin_row = [this](int64_t key, int64_t slot) { begin_row(key, slot); },
               .disk = std::move(disk)}) {
    optimizer.begin_image(image.data());
  }

  static Evicts evicts_of(const TableConfig& config) {
    // The rarest needs counts of uses, the oldest only an order.
    if (config.open_max_rows == 0) return Evicts::kNone;
    return config.open_when_full == FullTable::kEvictRarest ? Evicts::kRarest : Evicts::kOldest;
  }
  void begin_row(int64_t key, int64_t slot) {
    // Twice as many: growing costs one copy per row in the sum.
    if (slot >= weights.size(0)) optimizer.resize(std::max(slot + 1, 2 * weights.size(0)));
    AT_DISPATCH_FLOATING_TYPES(weights.scalar_type(), "begin_row", [&] {
      values.write(key, std::span(reinterpret_cast<scalar_t*>(image.data()),
                                  static_cast<size_t>(weights.size(1))));
    });
    // The optimizer's row as well: its states begin anew.
    optimizer.load_row(slot, image.data());
  }

  at::Tensor weights;
  RowOptimizer& optimizer;
  OpenValues values;
  std::vector<std::byte> image;  // of a new row
  OpenSlots slots;
};

EmbeddingTable::EmbeddingTable(const TableConfig& config, const mesh::Axis& axis, int rank,
                               c10::ScalarType dtype, uint64_t seed,
                               const RowOptimizerConfig& optimizer)
    : config_(config), layout_(layout_of(config, axis)), rank_(rank) {
  // The rule divides by all columns' squares, which one rank does not have.
  needs_mean_squares_ = optimizer.rule == RowRule::kRowWiseAdaGrad && is_by_columns(config);
  const mesh::Box box = layout_.local_box(rank);
  const int64_t num_slots = slots_of(config, box, dtype, optimizer);
  const bool is_on_disk =
      config.is_open ? config.memory_bytes > 0 && box.size[0] > 0 : num_slots < box.size[0];
  const InitialRows initial = initial_of(config, seed);
  weights_ = is_on_disk       ? empty_rows({num_slots, box.size[1]}, dtype)
             : config.is_open ? empty_rows({kFirstSlots, config.width}, dtype)
                              : initial.make(box, dtype);
  optimizer_ = std::make_unique<RowOptimizer>(optimizer, weights_);
  // adam changes rows without touching them, so changes cannot be told.
  if (!config.is_open && !optimizer_->catches_up()) {
    touched_ = std::make_shared<TouchedRows>(box.size[0]);
  }
  if (is_on_disk) {
    RowImage image = image_of(*optimizer_, initial, box, dtype);
    if (config.is_open) image.initial = without_weights(*optimizer_);
    disk_ = std::make_shared<DiskRows>(config.is_open ? open_disk(config, box.size[0], num_slots)
                                                      : DiskRowsOptions{.table = config.name,
                                                                        .num_rows = box.size[0],
                                                                        .num_slots = num_slots,
                                                                        .folder = config.folder},
                                       std::move(image));
  }
  if (config.is_open) {
    open_ = std::make_unique<Open>(config, seed, weights_, *optimizer_, disk_);
  }
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
  // A server holds the row and not its history.
  TRIREME_CHECK(!optimizer_->catches_up(), "embedding table \"", shown(config.name),
                "\" is on parameter servers, which update only the rows that are pushed; the rule "
                "adam updates all: choose lazy-adam");
}

EmbeddingTable::~EmbeddingTable() = default;
EmbeddingTable::EmbeddingTable(EmbeddingTable&&) noexcept = default;
EmbeddingTable& EmbeddingTable::operator=(EmbeddingTable&&) noexcept = default;

std::span<const int64_t> EmbeddingTable::fetch(std::span<const int64_t> rows,
                                               std::vector<int64_t>& memory) {
  if (open_) {
    open_->slots.fetch(rows, optimizer_->num_steps(), memory);
    return memory;
  }
  if (remote_) {
    remote_->fetch(rows, weights_, *optimizer_, memory);
    return memory;
  }
  if (!disk_) return rows;
  memory.clear();
  disk_->fetch(rows, memory);
  return memory;
}

std::span<const int64_t> EmbeddingTable::fetch_used(std::span<const int64_t> rows,
                                                    std::vector<int64_t>& memory) {
  if (!open_) return fetch(rows, memory);
  open_->slots.fetch_used(rows, optimizer_->num_steps(), memory);
  return memory;
}

void EmbeddingTable::expire_rows() {
  if (open_) open_->slots.rows().expire(optimizer_->num_steps());
}

OpenRows* EmbeddingTable::open_rows() { return open_ ? &open_->slots.rows() : nullptr; }

void EmbeddingTable::release() {
  if (open_) return open_->slots.release();
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
  if (open_) return open_->slots.prefetch(rows, optimizer_->num_steps());
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
  std::vector<int64_t> numbers;  // of rows on the disk
  // All rows that exist, also those on the disk.
  if (open_) {
    numbers = open_->slots.rows().rows(optimizer_->num_steps()).numbers;
  } else {
    numbers.resize(static_cast<size_t>(layout_.local_box(rank_).size[0]));
    std::iota(numbers.begin(), numbers.end(), int64_t{0});
  }
  disk_->change_again(std::move(numbers),
                      [this](std::span<const int64_t> slots) { optimizer_->catch_up(slots); });
  optimizer_->forget_steps();
}

const at::Tensor& EmbeddingTable::values_of(size_t tensor) const {
  return tensor == 0 ? weights_ : optimizer_->states()[tensor - 1].values;
}

std::shared_ptr<StoredRows> EmbeddingTable::stored(
    size_t tensor, std::shared_ptr<const std::vector<int64_t>> numbers) {
  const int64_t begin = tensor == 0 ? 0 : optimizer_->place_in_image(tensor - 1).first;
  return std::make_shared<StoredImages>(disk_, begin, values_of(tensor)[0], std::move(numbers));
}

OpenTensors EmbeddingTable::open_tensor_kinds() const {
  const std::string& table = config_.name;
  const auto list = [&](const char* name, at::ScalarType dtype = at::kLong) {
    return OpenTensor{table + name, at::empty({0}, at::TensorOptions(dtype))};
  };
  OpenTensors kinds{
      .rows = {list(".ids"), list(".last_uses")},
      .waiting = {list(".waiting_ids"), list(".waiting_last_uses"), list(".waiting_uses")}};
  for (size_t i = 0; i <= optimizer_->states().size(); ++i) {
    const std::string state = i == 0 ? "" : optimizer_->states()[i - 1].name + ".";
    std::vector<int64_t> sizes = values_of(i).sizes().vec();
    sizes[0] = 0;
    kinds.rows.push_back({state + table + ".weight", at::empty(sizes, weights_.options())});
  }
  if (open_->slots.rows().counts_uses()) kinds.rows.push_back(list(".uses", at::kFloat));
  return kinds;
}

OpenTensors EmbeddingTable::open_tensors() {
  catch_up_all();
  const int64_t num_steps = optimizer_->num_steps();
  OpenKeys rows = open_->slots.rows().rows(num_steps);
  const OpenKeys waiting = open_->slots.rows().waiting(num_steps);
  OpenTensors tensors = open_tensor_kinds();
  tensors.rows[0].values = ids_to_save(rows.keys);
  tensors.rows[1].values = at::tensor(rows.last_uses, at::kLong);
  tensors.waiting[0].values = ids_to_save(waiting.keys);
  tensors.waiting[1].values = at::tensor(waiting.last_uses, at::kLong);
  tensors.waiting[2].values = at::tensor(waiting.numbers, at::kLong);
  if (open_->slots.rows().counts_uses()) tensors.rows.back().values = at::tensor(rows.uses);
  const auto numbers = std::make_shared<const std::vector<int64_t>>(std::move(rows.numbers));
  // In memory rows are gathered by slots; on a disk they are read by numbers when they are saved.
  const at::Tensor slots = disk_ ? at::Tensor() : at::tensor(*numbers, at::kLong);
  for (size_t i = 0; i <= optimizer_->states().size(); ++i) {
    OpenTensor& tensor = tensors.rows[kFirstValues + i];
    if (disk_) {
      tensor = on_disk(std::move(tensor), std::ssize(*numbers), stored(i, numbers));
    } else {
      tensor.values = values_of(i).index_select(0, slots);
    }
  }
  return tensors;
}

// Before the values are there: a load writes into these.
OpenTensors EmbeddingTable::open_tensors_to_load(int64_t num_rows, int64_t num_waiting) {
  OpenTensors tensors = open_tensor_kinds();
  for (auto& [list, count] :
       {std::pair{&tensors.rows, num_rows}, {&tensors.waiting, num_waiting}}) {
    for (OpenTensor& tensor : *list) tensor.values = with_rows(tensor.values, count);
  }
  if (!disk_) return tensors;
  disk_->clear(num_rows);
  for (size_t i = 0; i <= optimizer_->states().size(); ++i) {
    OpenTensor& tensor = tensors.rows[kFirstValues + i];
    tensor = on_disk(std::move(tensor), num_rows, stored(i));
  }
  return tensors;
}

void EmbeddingTable::load_open_tensors(const OpenTensors& tensors) {
  OpenKeys rows = keys_of_saved(tensors.rows.at(0).values, tensors.rows.at(1).values);
  if (open_->slots.rows().counts_uses()) {
    rows.uses = uses_of_saved(tensors.rows.back().values, config_.name);
  }
  const OpenKeys waiting = keys_of_saved(tensors.waiting.at(0).values, tensors.waiting.at(1).values,
                                         tensors.waiting.at(2).values);
  check_waiting(rows, waiting, config_.name);
  open_->slots.rows().load(rows, waiting);
  open_->slots.release();
  const auto count = std::ssize(rows.keys);
  const bool is_in_place = disk_ && tensors.rows.at(kFirstValues).values.is_meta();
  if (disk_ && !is_in_place) disk_->clear(count);
  if (!disk_) {
    if (count > weights_.size(0)) optimizer_->resize(count);
    // Values that a checkpoint lacks stay the initial ones.
    // For the states that the checkpoint does not have.
    for (int64_t slot = 0; slot < count; ++slot) optimizer_->load_row(slot, open_->image.data());
  }
  for (size_t i = 0; i <= optimizer_->states().size() && !is_in_place; ++i) {
    const at::Tensor& values = tensors.rows.at(kFirstValues + i).values;
    if (!values.defined()) continue;
    if (disk_) {
      stored(i)->write(0, values);
    } else {
      values_of(i).narrow(0, 0, count).copy_(values);
    }
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
        // One number per row is the same on all ranks that split columns.
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
    tensors[i].stored = stored(i);
    tensors[i].local = at::empty(tensors[i].layout.local_box(rank_).size,
                                 tensors[i].local.options().device(at::kMeta));
  }
  return tensors;
}

void EmbeddingTable::set_num_steps(int64_t num_steps) {
  optimizer_->set_num_steps(num_steps);
  // After a load nobody knows which rows have changed since an earlier mark.
  if (touched_) touched_->forget();
}

}  // namespace trireme::parallel
