#include "trireme/dataset/recommend/criteo_arrays.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/stored_zip.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/file/npy.h"
#include "trireme/dataset/recommend/criteo.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxCategory = std::numeric_limits<uint32_t>::max();

enum class Form { kOneHot, kMultiHot };

struct Day {
  NpyArray dense, labels;
  std::vector<NpyArray> categories{};  // one of all tables, or one for each
};

NpyForm form_of(std::vector<NpyType> types, int64_t columns) {
  return {.types = std::move(types), .min_columns = columns, .max_columns = columns};
}

std::vector<NpyArray> open_multi_hot(const std::string& path) {
  const auto zip = as_config_error([&] {
    auto file = std::make_shared<const InputFile>(path);
    const uint64_t size = file->num_bytes();
    return StoredZip(std::move(file), 0, size, "numpy.savez");
  });
  TRIREME_CHECK(zip.entries().size() == kCriteoTables, path, " has ", zip.entries().size(),
                " arrays; expected ", kCriteoTables, ", named 0 to ", kCriteoTables - 1);
  std::vector<NpyArray> arrays;
  for (int t = 0; t < kCriteoTables; ++t) {
    const std::string entry_name = concat(t, ".npy");
    TRIREME_CHECK(zip.entries().contains(entry_name), path, " has no array ", t, " but \"",
                  shown(zip.entries().begin()->first), "\"; expected ", kCriteoTables,
                  ", named 0 to ", kCriteoTables - 1);
    const StoredZip::Entry& entry = zip.at(entry_name);
    arrays.emplace_back(zip.file(), entry.offset, entry.size, concat(path, ", array ", t),
                        NpyForm{.types = {NpyType::kInt32, NpyType::kInt64},
                                .min_columns = 1,
                                .max_columns = kMaxIdsPerTable});
  }
  return arrays;
}

Day open_day(const std::string& name, Form form) {
  check_day_name(name);
  for (const char* part :
       {kDenseArray, kLabelArray, form == Form::kMultiHot ? kMultiHotArchive : kCategoryArray}) {
    TRIREME_CHECK(is_file(name + part), name, part,
                  " is not a file; a day has three: ", kDenseArray, ", ", kLabelArray, " and ",
                  kCategoryArray, " or ", kMultiHotArchive);
  }
  Day day{.dense = {name + kDenseArray, form_of({NpyType::kFloat32}, kCriteoDense)},
          .labels = {name + kLabelArray, form_of({NpyType::kInt32}, 1)}};
  if (form == Form::kMultiHot) {
    day.categories = open_multi_hot(name + kMultiHotArchive);
  } else {
    day.categories.emplace_back(name + kCategoryArray,
                                form_of({NpyType::kInt32, NpyType::kInt64}, kCriteoTables));
  }
  const auto check_rows = [&](const NpyArray& array) {
    TRIREME_CHECK(array.num_rows() == day.dense.num_rows(), array.name(), " has ", array.num_rows(),
                  " rows and ", day.dense.name(), " ", day.dense.num_rows(),
                  "; expected one for each sample: prepare that day again");
  };
  check_rows(day.labels);
  for (const NpyArray& array : day.categories) check_rows(array);
  return day;
}

template <typename Value>
Value value_at(std::span<const std::byte> row, size_t column) {
  Value value;
  std::memcpy(&value, row.data() + column * sizeof(Value), sizeof(Value));
  return value;
}

class CriteoArrays : public RawData {
 public:
  CriteoArrays(const std::vector<std::string>& days, Form form)
      : form_(form), schema_(criteo_schema()) {
    for (const std::string& day : days) days_.push_back(open_day(day, form));
    if (form == Form::kMultiHot) set_numbers_of_ids();
    for (const Day& day : days_) num_bytes_ += day.dense.num_rows() * sample_bytes(day);
  }

  const FeatureSchema& schema() const override { return schema_; }
  int64_t num_bytes() const override { return num_bytes_; }

  void read(RawVisitor& visitor) const override {
    RawSample sample{.dense = std::vector<float>(kCriteoDense)};
    std::vector<std::array<char, 8>> texts(static_cast<size_t>(schema_.num_ids()));
    for (const FeatureTable& table : schema_.tables) {
      sample.categories.emplace_back(static_cast<size_t>(table.max_ids));
    }
    for (const Day& day : days_) {
      NpyRows dense(day.dense), labels(day.labels);
      std::vector<NpyRows> categories(day.categories.begin(), day.categories.end());
      for (int64_t row = 0; row < day.dense.num_rows(); ++row, ++sample.group) {
        fill_dense(day.dense, row, dense.next(), sample);
        fill_label(day.labels, row, labels.next(), sample);
        for (size_t i = 0, used = 0; i < categories.size(); ++i) {
          fill_categories(day, i, row, categories[i].next(), std::span(texts).subspan(used),
                          sample);
          used += static_cast<size_t>(day.categories[i].num_columns());
        }
        visitor.on_sample(sample);
        visitor.on_bytes(sample_bytes(day));
      }
    }
  }

 private:
  // All samples have as many ids of a table.
  void set_numbers_of_ids() {
    for (const Day& day : days_) {
      for (size_t t = 0; t < kCriteoTables; ++t) {
        const NpyArray& array = day.categories[t];
        const NpyArray& first = days_.front().categories[t];
        TRIREME_CHECK(array.num_columns() == first.num_columns(), array.name(), " has ",
                      array.num_columns(), " columns and ", first.name(), " ", first.num_columns(),
                      "; expected as many on each day: prepare the days alike");
        schema_.tables[t].min_ids = schema_.tables[t].max_ids = array.num_columns();
      }
    }
    TRIREME_CHECK(schema_.num_ids() <= kMaxIdsPerSample, "the arrays of categories have ",
                  schema_.num_ids(), " columns; expected at most ", kMaxIdsPerSample);
  }

  static int64_t sample_bytes(const Day& day) {
    size_t sum = day.dense.row_bytes() + day.labels.row_bytes();
    for (const NpyArray& array : day.categories) sum += array.row_bytes();
    return static_cast<int64_t>(sum);
  }

  static std::string place(const NpyArray& array, int64_t row, size_t column,
                           const std::string& name) {
    return concat(array.name(), ": row ", row, ", column ", column, " (", name, ")");
  }

  void fill_dense(const NpyArray& array, int64_t row, std::span<const std::byte> bytes,
                  RawSample& sample) const {
    std::memcpy(sample.dense.data(), bytes.data(), bytes.size());
    for (size_t d = 0; d < kCriteoDense; ++d) {
      TRIREME_CHECK(std::isfinite(sample.dense[d]), place(array, row, d, schema_.dense[d]), " is ",
                    sample.dense[d],
                    "; expected a finite number: replace it, or prepare the array again");
    }
  }

  static void fill_label(const NpyArray& array, int64_t row, std::span<const std::byte> bytes,
                         RawSample& sample) {
    const auto label = value_at<int32_t>(bytes, 0);
    TRIREME_CHECK(label == 0 || label == 1, place(array, row, 0, "label"), " is ", label,
                  "; expected 0 or 1: leave out days without labels, such as Kaggle's test set");
    sample.label = label;
  }

  // The array `i` of the day: of all tables, or of table i.
  void fill_categories(const Day& day, size_t i, int64_t row, std::span<const std::byte> bytes,
                       std::span<std::array<char, 8>> texts, RawSample& sample) const {
    const NpyArray& array = day.categories[i];
    const bool is_narrow = array.type() == NpyType::kInt32;
    for (size_t c = 0; c < static_cast<size_t>(array.num_columns()); ++c) {
      const size_t t = form_ == Form::kMultiHot ? i : c;
      int64_t id = is_narrow ? value_at<int32_t>(bytes, c) : value_at<int64_t>(bytes, c);
      if (is_narrow && form_ == Form::kOneHot) id = static_cast<uint32_t>(id);
      TRIREME_CHECK(id >= 0 && id <= kMaxCategory, place(array, row, c, schema_.tables[t].name),
                    " is ", id, "; expected a category from 0 to ", kMaxCategory,
                    ": replace it, or prepare the array again");
      write_criteo_category(static_cast<uint32_t>(id), texts[c]);
      sample.categories[t][form_ == Form::kMultiHot ? c : 0] =
          std::string_view(texts[c].data(), id == 0 ? 0 : texts[c].size());
    }
  }

  Form form_;
  FeatureSchema schema_;
  std::vector<Day> days_{};
  int64_t num_bytes_ = 0;
};

}  // namespace

void check_day_name(const std::string& day) {
  std::error_code ignored;  // opening the arrays says more
  const bool is_folder = day.ends_with('/') || fs::is_directory(day, ignored);
  TRIREME_CHECK(!is_folder && !day.ends_with(".npy") && !day.ends_with(".npz"), day,
                is_folder ? " is a folder" : " is one array",
                "; expected what the names of a day's arrays begin with, such as numpy/day_0 for "
                "numpy/day_0",
                kDenseArray);
}

std::unique_ptr<RawData> open_criteo_arrays(const std::vector<std::string>& days) {
  return std::make_unique<CriteoArrays>(days, Form::kOneHot);
}

std::unique_ptr<RawData> open_criteo_multi_hot(const std::vector<std::string>& days) {
  return std::make_unique<CriteoArrays>(days, Form::kMultiHot);
}

}  // namespace trireme::dataset
