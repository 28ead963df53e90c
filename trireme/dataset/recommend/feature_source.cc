#include "trireme/dataset/recommend/feature_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <ATen/EmptyTensor.h>

#include "trireme/base/error.h"
#include "trireme/dataset/recommend/record_file.h"
#include "trireme/dataset/recommend/record_layout.h"

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

struct FeatureSource::File {
  FeatureSchema schema;
  SampleLayout layout;
  RecordFile records;
  std::shared_ptr<const ItemCatalogue> items;

  std::string where(int64_t index) const { return concat(records.name(), ": record ", index); }
  at::Tensor dense(std::span<const std::byte> record, int64_t index) const;
  at::Tensor label(std::span<const std::byte> record, int64_t index) const;
  int64_t item(std::span<const std::byte> record, int64_t index) const;
};

at::Tensor FeatureSource::File::dense(std::span<const std::byte> record, int64_t index) const {
  const at::Tensor values = empty_values(schema.num_dense(), at::kFloat);
  float* const out = values.mutable_data_ptr<float>();
  std::memcpy(out, record.data() + layout.dense_at, schema.dense.size() * sizeof(float));
  for (size_t d = 0; d < schema.dense.size(); ++d) {
    TRIREME_CHECK(std::isfinite(out[d]), where(index), ": ", shown(schema.dense[d]), " is ", out[d],
                  "; expected a finite number");
  }
  return values;
}

at::Tensor FeatureSource::File::label(std::span<const std::byte> record, int64_t index) const {
  if (schema.label == LabelKind::kClass) {
    const int64_t value = load_number<int32_t>(record, layout.label_at);
    TRIREME_CHECK(value >= 0 && value < std::ssize(schema.classes), where(index), ": label is ",
                  value, "; expected 0 to ", std::ssize(schema.classes) - 1);
    const at::Tensor label = empty_values(1, at::kLong);
    *label.mutable_data_ptr<int64_t>() = value;
    return label;
  }
  const auto value = load_number<float>(record, layout.label_at);
  TRIREME_CHECK(value == 0 || value == 1, where(index), ": label is ", value, "; expected 0 or 1");
  const at::Tensor label = empty_values(1, at::kFloat);
  *label.mutable_data_ptr<float>() = value;
  return label;
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
  const FeatureSchema& schema = file_->schema;
  RecordBytes bytes(file_->layout.num_bytes());
  file_->records.read(index, bytes.bytes());
  const std::span<const std::byte> record = bytes.bytes();
  NamedTensors sample;
  sample.reserve(5);
  if (schema.num_dense() > 0) sample.emplace_back("dense", file_->dense(record, index));
  std::optional<int64_t> item;
  if (schema.num_items > 0) item = file_->item(record, index);
  if (schema.num_tables() > 0) {
    const at::Tensor ids = zeros(schema.num_ids());
    const at::Tensor lengths = empty_values(schema.num_tables(), at::kLong);
    const IdLayout& queries = file_->layout.ids;
    const int64_t count = queries.unpack(record, values_of(ids), values_of(lengths),
                                         [&] { return file_->where(index); });
    if (item) {
      file_->items->read(*item, values_of(ids).subspan(static_cast<size_t>(count)),
                         values_of(lengths).subspan(static_cast<size_t>(queries.num_tables())));
    }
    sample.emplace_back("ids", ids);
    sample.emplace_back("lengths", lengths);
  }
  if (schema.label != LabelKind::kNone) sample.emplace_back("label", file_->label(record, index));
  if (item) {
    const at::Tensor number = empty_values(1, at::kLong);
    *number.mutable_data_ptr<int64_t>() = *item;
    sample.emplace_back("item", number);
  }
  return sample;
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
