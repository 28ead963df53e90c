#include "trireme/dataset/recommend/criteo_generator.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/file/new_file.h"
#include "trireme/dataset/file/npy.h"
#include "trireme/dataset/recommend/criteo.h"
#include "trireme/dataset/recommend/criteo_arrays.h"

namespace trireme::dataset {

// Labels are drawn from a known model, so that the best area under the curve that any model can
// have is known too. Probabilities lie on a grid of 2^20 levels: the counts of samples on each
// level then give the area exactly, in 16 MiB and without sorting. Pairs of samples are counted in
// 128 bits, as they are the square of the samples' number. Each column draws by the sample's number
// from keys of its own, so a sample is the same in both forms and needs no other one.

namespace {

constexpr double kMissing = 0.04;         // share of missing values in every column
constexpr double kBias = -1.75;           // a quarter of the labels is 1
constexpr double kCategoryWeight = 0.25;  // standard deviations of the model's weights
constexpr double kDenseWeight = 0.1;
// Probabilities are multiples of 1 / kLevels, so that their counts say everything about them.
constexpr int64_t kLevels = int64_t{1} << 20;
constexpr size_t kBytesAtOnce = size_t{1} << 20;
constexpr int64_t kSamplesBetweenReports = 4096;

// Missing values are empty.
struct GeneratedSample {
  bool is_positive = false;
  std::array<std::optional<int64_t>, kCriteoDense> dense{};
  std::array<std::optional<uint32_t>, kCriteoTables> categories{};
};

// Two numbers in [0, 1) from one index.
std::array<double, 2> two_uniforms(RandomKey key, uint64_t index) {
  const std::array<uint32_t, 4> bits = random_bits(key, index);
  const auto uniform = [](uint64_t high, uint64_t low) {
    return static_cast<double>((high << 32 | low) >> 11) * 0x1p-53;
  };
  return {uniform(bits[0], bits[1]), uniform(bits[2], bits[3])};
}

class CategoryColumn {
 public:
  CategoryColumn(uint64_t seed, size_t column, int64_t rows, double skew)
      : draws_(random_key(seed, concat("criteo/C", column + 1))),
        texts_(random_key(seed, concat("criteo/C", column + 1, "/texts"))),
        weights_(random_key(seed, concat("criteo/C", column + 1, "/weights"))),
        rows_(rows),
        power_(1 - skew),
        range_(std::pow(static_cast<double>(rows + 1), power_) - 1) {}

  // Draws the category of a sample and returns its weight.
  double draw(uint64_t sample, std::optional<uint32_t>& category) const {
    category.reset();
    const auto [place, missing] = two_uniforms(draws_, sample);
    if (missing < kMissing) return kCategoryWeight * random_normal(weights_, 0);
    const double x = std::pow(1 + place * range_, 1 / power_);  // the inverse of the integral
    const auto rank = std::clamp<int64_t>(static_cast<int64_t>(x), 1, rows_);
    const auto number = static_cast<uint64_t>(rank);
    category = text_of(number);
    if (*category == 0) category = text_of(0);  // no rank is 0, and in arrays 0 is a missing one
    return kCategoryWeight * random_normal(weights_, number);
  }

 private:
  uint32_t text_of(uint64_t number) const {
    return static_cast<uint32_t>(random_permutation(texts_, number, uint64_t{1} << 32));
  }

  RandomKey draws_, texts_, weights_;
  int64_t rows_;
  double power_;
  double range_;
};

class DenseColumn {
 public:
  DenseColumn(uint64_t seed, size_t column)
      : draws_(random_key(seed, concat("criteo/I", column + 1))),
        missing_(random_key(seed, concat("criteo/I", column + 1, "/missing"))),
        scale_(0.5 + 0.25 * static_cast<double>(column % 5)),
        weight_(kDenseWeight *
                random_normal(random_key(seed, concat("criteo/I", column + 1, "/weights")), 0)) {}

  // Draws a whole number, log-normal, and returns its part of the logit.
  double draw(uint64_t sample, std::optional<int64_t>& number) const {
    number.reset();
    if (random_uniform(missing_, sample) < kMissing) return 0;
    const double value = std::floor(std::exp(1 + scale_ * random_normal(draws_, sample))) - 1;
    number = static_cast<int64_t>(value);
    return weight_ * (static_cast<double>(criteo_dense(value)) - 1);
  }

 private:
  RandomKey draws_, missing_;
  double scale_, weight_;
};

// How many samples of either class have each probability.
class Levels {
 public:
  Levels() : negatives_(kLevels + 1), positives_(kLevels + 1) {}

  void add(int64_t level, bool is_positive) {
    ++(is_positive ? positives_ : negatives_)[static_cast<size_t>(level)];
  }

  void report(GenerateCriteoReport& report) const {
    __extension__ using Pairs = unsigned __int128;
    Pairs twice_wins = 0;
    uint64_t negatives = 0;
    double wins = 0, below = 0, own_pairs = 0, expected_positives = 0, loss = 0;
    for (size_t level = 0; level <= kLevels; ++level) {
      const uint64_t p = positives_[level], n = negatives_[level];
      if (p + n == 0) continue;
      twice_wins += Pairs{p} * (2 * negatives + n);
      negatives += n;
      const double probability = static_cast<double>(level) / kLevels;
      const auto count = static_cast<double>(p + n);
      const double plus = count * probability, minus = count * (1 - probability);
      wins += plus * (below + minus / 2);
      below += minus;
      expected_positives += plus;
      own_pairs += plus * (1 - probability);  // a sample does not pair with itself
      loss -= static_cast<double>(p) * std::log(probability) +
              static_cast<double>(n) * std::log1p(-probability);
    }
    const uint64_t all = static_cast<uint64_t>(report.num_samples);
    const uint64_t positives = all - negatives;
    report.num_positives = static_cast<int64_t>(positives);
    report.expected_auc = (wins - own_pairs / 2) / (expected_positives * below - own_pairs);
    report.best_auc =
        static_cast<double>(twice_wins) / static_cast<double>(Pairs{2} * positives * negatives);
    const double share = static_cast<double>(positives) / static_cast<double>(all);
    const double entropy = -(share * std::log(share) + (1 - share) * std::log1p(-share));
    report.best_normalised_entropy = loss / static_cast<double>(all) / entropy;
    if (positives == 0 || negatives == 0) {
      report.best_auc = std::numeric_limits<double>::quiet_NaN();
      report.best_normalised_entropy = report.best_auc;
    }
  }

 private:
  std::vector<uint64_t> negatives_, positives_;
};

void check_options(const GenerateCriteoOptions& options) {
  TRIREME_CHECK(options.num_samples >= 1, "num_samples is ", options.num_samples,
                "; expected at least 1");
  TRIREME_CHECK(options.scale > 0 && options.scale <= 100, "scale is ", options.scale,
                "; expected above 0 and at most 100");
  TRIREME_CHECK(options.skew >= 0 && options.skew <= 4 && options.skew != 1, "skew is ",
                options.skew, "; expected 0 to 4, and not 1");
  TRIREME_CHECK(!options.output.empty(), "output is empty; expected a file such as day_0.tsv");
  if (options.form == CriteoForm::kNumpy) check_day_name(options.output);
}

class SampleFile {
 public:
  virtual ~SampleFile() = default;
  virtual void add(const GeneratedSample& sample) = 0;
  virtual int64_t num_bytes() const = 0;  // until now
  virtual void finish() = 0;
};

class TextFile : public SampleFile {
 public:
  explicit TextFile(const std::string& path) : file_(path) {}

  void add(const GeneratedSample& sample) override {
    lines_ += sample.is_positive ? '1' : '0';
    for (const auto& number : sample.dense) {
      lines_ += '\t';
      if (!number) continue;
      char text[24];
      lines_.append(text, std::to_chars(text, text + sizeof(text), *number).ptr);
    }
    for (const auto& category : sample.categories) {
      lines_ += '\t';
      if (!category) continue;
      char text[8];
      write_criteo_category(*category, text);
      lines_.append(text, sizeof(text));
    }
    lines_ += '\n';
    if (lines_.size() >= kBytesAtOnce) flush();
  }
  int64_t num_bytes() const override { return written_ + std::ssize(lines_); }
  void finish() override {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.write(lines_);
    written_ += std::ssize(lines_);
    lines_.clear();
  }

  NewFile file_;
  std::string lines_{};
  int64_t written_ = 0;
};

// `data prepare` turns the text and these arrays into the same bits.
class ArrayFiles : public SampleFile {
 public:
  ArrayFiles(const std::string& day, int64_t num_samples)
      : lock_(day),
        dense_(day + kDenseArray, NpyType::kFloat32, num_samples, kCriteoDense),
        labels_(day + kLabelArray, NpyType::kInt32, num_samples, 1),
        categories_(day + kCategoryArray, NpyType::kInt32, num_samples, kCriteoTables) {}

  void add(const GeneratedSample& sample) override {
    std::array<float, kCriteoDense> dense{};
    for (size_t d = 0; d < dense.size(); ++d) {
      dense[d] = criteo_dense(static_cast<double>(sample.dense[d].value_or(0)));
    }
    std::array<uint32_t, kCriteoTables> categories{};
    for (size_t t = 0; t < categories.size(); ++t) categories[t] = sample.categories[t].value_or(0);
    const int32_t label = sample.is_positive ? 1 : 0;
    dense_.add(std::as_bytes(std::span(dense)));
    labels_.add(std::as_bytes(std::span(&label, 1)));
    categories_.add(std::as_bytes(std::span(categories)));
    num_bytes_ += static_cast<int64_t>(sizeof(dense) + sizeof(label) + sizeof(categories));
  }
  int64_t num_bytes() const override { return num_bytes_; }
  void finish() override { num_bytes_ = dense_.finish() + labels_.finish() + categories_.finish(); }

 private:
  WorkFolder lock_;  // no reader finds arrays of two generators together
  NpyWriter dense_, labels_, categories_;
  int64_t num_bytes_ = 0;
};

std::unique_ptr<SampleFile> open_samples(const GenerateCriteoOptions& options) {
  if (options.form == CriteoForm::kText) return std::make_unique<TextFile>(options.output);
  return std::make_unique<ArrayFiles>(options.output, options.num_samples);
}

}  // namespace

GenerateCriteoReport generate_criteo(const GenerateCriteoOptions& options,
                                     const std::function<void(int64_t, int64_t)>& progress) {
  check_options(options);
  std::vector<DenseColumn> dense;
  for (size_t d = 0; d < kCriteoDense; ++d) dense.emplace_back(options.seed, d);
  std::vector<CategoryColumn> categories;
  for (size_t t = 0; t < kCriteoTables; ++t) {
    const double rows = std::round(static_cast<double>(kCriteoKaggleRows[t]) * options.scale);
    categories.emplace_back(options.seed, t, std::max<int64_t>(3, static_cast<int64_t>(rows)),
                            options.skew);
  }
  const RandomKey labels = random_key(options.seed, "criteo/label");

  const std::unique_ptr<SampleFile> file = open_samples(options);
  GenerateCriteoReport report{.num_samples = options.num_samples};
  Levels levels;
  GeneratedSample sample;
  for (int64_t i = 0; i < options.num_samples; ++i) {
    const auto number = static_cast<uint64_t>(i);
    double logit = kBias;
    for (size_t d = 0; d < dense.size(); ++d) logit += dense[d].draw(number, sample.dense[d]);
    for (size_t t = 0; t < categories.size(); ++t) {
      logit += categories[t].draw(number, sample.categories[t]);
    }
    const double probability = 1 / (1 + std::exp(-logit));
    const auto level = std::clamp<int64_t>(static_cast<int64_t>(std::round(probability * kLevels)),
                                           1, kLevels - 1);
    sample.is_positive = random_uniform(labels, number) < static_cast<double>(level) / kLevels;
    levels.add(level, sample.is_positive);
    file->add(sample);
    if (progress && (i + 1) % kSamplesBetweenReports == 0) {
      const int64_t done = file->num_bytes();
      progress(done, std::max(done, done / (i + 1) * options.num_samples));
    }
  }
  file->finish();
  report.num_bytes = file->num_bytes();
  if (progress) progress(report.num_bytes, report.num_bytes);
  levels.report(report);
  return report;
}

}  // namespace trireme::dataset
