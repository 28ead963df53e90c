#include "trireme/dataset/recommend/feature_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <ATen/EmptyTensor.h>

#include "trireme/base/error.h"
#include "trireme/dataset/recommend/record_file.h"

namespace trireme::dataset {
namespace {

// at::empty() without its dispatch. With it, reading a DLRM's samples takes 1.7 times as long.
at::Tensor empty_values(int64_t count, at::ScalarType dtype) {
  return at::Tensor(at::detail::empty_cpu({count}, dtype));
}

std::span<int64_t> values_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<int64_t>(), static_cast<size_t>(tensor.numel())};
}

at::Tensor zeros(int64_t count) {
  const at::Tensor values = empty_values(count, at::kLong);
  std::ranges::fill(values_of(values), 0);
  return values;
}

}  // namespace

struct ItemCatalogue::File {
  IdLayout layout;
  RecordFile records;
};

ItemCatalogue::ItemCatalogue(const std::filesystem::path& path, const FeatureSchema& schema) {
  TRIREME_CHECK(schema.num_items > 0, path.string(), ": ", kSchemaFile,
                " has no items; expected a data set of pairs");
  IdLayout layout = item_layout(schema);
  RecordFile records(path, layout.end());
  records.check_size(schema.num_items, "items");
  file_.reset(new File{std::move(layout), std::move(records)});
}

ItemCatalogue::~ItemCatalogue() = default;

int64_t ItemCatalogue::size() const { return file_->records.size(); }

int64_t ItemCatalogue::read(int64_t item, std::span<int64_t> ids,
                            std::span<int64_t> lengths) const {
  RecordBytes record(file_->records.record_bytes());
  file_->records.read(item, record.bytes());
  return file_->layout.unpack(record.bytes(), ids, lengths,
                              [&] { return concat(file_->records.name(), ": item ", item); });
}

NamedTensors ItemCatalogue::get(int64_t item, std::optional<RandomKey> /*augmentation*/) const {
  const at::Tensor ids = zeros(file_->layout.num_ids());
  const at::Tensor lengths = empty_values(file_->layout.num_tables(), at::kLong);
  read(item, values_of(ids), values_of(lengths));
  return {{"ids", ids}, {"lengths", lengths}};
}

// Where a sample's values go.
struct SampleValues {
  float* dense = nullptr;
  std::span<int64_t> ids{};
  std::span<int64_t> lengths{};
  void* label = nullptr;
  int64_t* item = nullptr;
};

struct FeatureSource::File {
  FeatureSchema schema;
  SampleLayout layout;
  RecordFile records;
  std::shared_ptr<const ItemCatalogue> items;

  std::string where(int64_t index) const { return concat(records.name(), ": record ", index); }
  NamedTensors make_sample() const;
  // Place `b` of a batch, or 0 of a sample.
  SampleValues values_at(const NamedTensors& tensors, int64_t b) const;
  void read(int64_t index, const SampleValues& values) const;
  void read_dense(std::span<const std::byte> record, int64_t index, float* out) const;
  void read_label(std::span<const std::byte> record, int64_t index, void* out) const;
  int64_t item(std::span<const std::byte> record, int64_t index) const;
};

NamedTensors FeatureSource::File::make_sample() const {
  NamedTensors sample;
  sample.reserve(5);
  const auto add = [&](const char* name, int64_t count, at::ScalarType dtype) {
    sample.emplace_back(name, empty_values(count, dtype));
  };
  if (schema.num_dense() > 0) add("dense", schema.num_dense(), at::kFloat);
  if (schema.num_tables() > 0) {
    add("ids", schema.num_ids(), at::kLong);
    add("lengths", schema.num_tables(), at::kLong);
  }
  const bool is_class = schema.label == LabelKind::kClass;
  if (schema.label != LabelKind::kNone) add("label", 1, is_class ? at::kLong : at::kFloat);
  if (schema.num_items > 0) add("item", 1, at::kLong);
  return sample;
}

SampleValues FeatureSource::File::values_at(const NamedTensors& tensors, int64_t b) const {
  auto next = tensors.begin();
  const auto take = [&](int64_t count) {
    TRIREME_ASSERT(next != tensors.end() && next->second.numel() >= (b + 1) * count,
                   "a batch of other samples");
    const at::Tensor& tensor = (next++)->second;
    return static_cast<std::byte*>(tensor.mutable_data_ptr()) +
           b * count * static_cast<int64_t>(tensor.element_size());
  };
  const auto take_integers = [&](int64_t count) {
    return std::span(reinterpret_cast<int64_t*>(take(count)), static_cast<size_t>(count));
  };
  SampleValues values;
  if (schema.num_dense() > 0) values.dense = reinterpret_cast<float*>(take(schema.num_dense()));
  if (schema.num_tables() > 0) {
    values.ids = take_integers(schema.num_ids());
    values.lengths = take_integers(schema.num_tables());
  }
  if (schema.label != LabelKind::kNone) values.label = take(1);
  if (schema.num_items > 0) values.item = take_integers(1).data();
  return values;
}

void FeatureSource::File::read(int64_t index, const SampleValues& values) const {
  RecordBytes bytes(layout.num_bytes());
  records.read(index, bytes.bytes());
  const std::span<const std::byte> record = bytes.bytes();
  if (values.dense != nullptr) read_dense(record, index, values.dense);
  if (values.item != nullptr) *values.item = item(record, index);
  if (!values.lengths.empty()) {
    std::ranges::fill(values.ids, 0);
    const int64_t count =
        layout.ids.unpack(record, values.ids, values.lengths, [&] { return where(index); });
    if (values.item != nullptr) {
      items->read(*values.item, values.ids.subspan(static_cast<size_t>(count)),
                  values.lengths.subspan(static_cast<size_t>(layout.ids.num_tables())));
    }
  }
  if (values.label != nullptr) read_label(record, index, values.label);
}

void FeatureSource::File::read_dense(std::span<const std::byte> record, int64_t index,
                                     float* out) const {
  std::memcpy(out, record.data() + layout.dense_at, schema.dense.size() * sizeof(float));
  for (size_t d = 0; d < schema.dense.size(); ++d) {
    TRIREME_CHECK(std::isfinite(out[d]), where(index), ": ", shown(schema.dense[d]), " is ", out[d],
                  "; expected a finite number");
  }
}

void FeatureSource::File::read_label(std::span<const std::byte> record, int64_t index,
                                     void* out) const {
  if (schema.label == LabelKind::kClass) {
    const int64_t value = load_number<int32_t>(record, layout.label_at);
    TRIREME_CHECK(value >= 0 && value < std::ssize(schema.classes), where(index), ": label is ",
                  value, "; expected 0 to ", std::ssize(schema.classes) - 1);
    std::memcpy(out, &value, sizeof(value));
    return;
  }
  const auto value = load_number<float>(record, layout.label_at);
  TRIREME_CHECK(value == 0 || value == 1, where(index), ": label is ", value, "; expected 0 or 1");
  std::memcpy(out, &value, sizeof(value));
}

int64_t FeatureSource::File::item(std::span<const std::byte> record, int64_t index) const {
  const int64_t item = load_number<uint32_t>(record, layout.item_at);
  TRIREME_CHECK(item < schema.num_items, where(index), ": item is ", item, "; expected 0 to ",
                schema.num_items - 1);
  return item;
}

FeatureSource::FeatureSource(const std::filesystem::path& path, const FeatureSchema& schema,
                             std::shared_ptr<const ItemCatalogue> items, int64_t num_samples) {
  TRIREME_ASSERT((items != nullptr) == (schema.num_items > 0), "a schema with ", schema.num_items,
                 " items, and another catalogue");
  SampleLayout layout(schema);
  RecordFile records(path, layout.num_bytes());
  if (num_samples > 0) records.check_size(num_samples, "samples");
  file_.reset(new File{schema, std::move(layout), std::move(records), std::move(items)});
}

FeatureSource::~FeatureSource() = default;

int64_t FeatureSource::size() const { return file_->records.size(); }

NamedTensors FeatureSource::get(int64_t index, std::optional<RandomKey> /*augmentation*/) const {
  NamedTensors sample = file_->make_sample();
  file_->read(index, file_->values_at(sample, 0));
  return sample;
}

void FeatureSource::get_into(int64_t index, std::optional<RandomKey> /*augmentation*/,
                             NamedTensors& batch, int64_t b) const {
  file_->read(index, file_->values_at(batch, b));
}

FeatureData open_features(const std::filesystem::path& folder) {
  FeatureData data{.schema = read_schema(folder)};
  const FeatureSchema& schema = data.schema;
  if (schema.num_items > 0) {
    data.items = std::make_shared<const ItemCatalogue>(folder / kItemsFile, schema);
  }
  data.training = std::make_shared<const FeatureSource>(folder / kTrainingFile, schema, data.items,
                                                        schema.num_training);
  if (schema.num_validation > 0) {
    data.validation = std::make_shared<const FeatureSource>(folder / kValidationFile, schema,
                                                            data.items, schema.num_validation);
  }
  return data;
}

}  // namespace trireme::dataset
