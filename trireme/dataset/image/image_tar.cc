#include "trireme/dataset/image/image_tar.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/read_ahead.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/image/decode.h"
#include "trireme/dataset/image/encoded_images.h"
#include "trireme/dataset/image/tar_entries.h"

namespace trireme::dataset {

// Opening reads the headers of all shards, several at a time because each waits for its disk, and
// keeps the place of every image, so that any sample can be read by itself. A sample ends where the
// next one begins; its files must be neighbours. Shards are opened when they are needed and a few
// stay open, as there may be more than a process may have files. The classes are numbers in the
// files, so one wrong number must not make a million of them (check_numbering()). The first image
// is read at once, for the shape of all. A shard in a store is read from front to back once, which
// takes less time than a request for each header, and stays the object that it was then.

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostTarClasses = 1 << 20;
constexpr uint64_t kMostJsonBytes = uint64_t{1} << 20;
// Part of a data set may lack many of its classes.
constexpr int64_t kFreeTarClasses = 1 << 10;
constexpr int64_t kMostNumbersPerClass = 16;

// An archive.
struct Shard {
  fs::path path{};                             // or the URL
  std::shared_ptr<const ByteSource> object{};  // of a store; null on this machine
};

// Where an image lies in its shard.
struct Place {
  uint64_t offset = 0;
  uint32_t size = 0;
  int32_t label = 0;
};

// Collects the samples of one shard.
class ShardIndex {
 public:
  explicit ShardIndex(const Shard& shard)
      : file_(shard.object ? read_ahead(shard.object, {.num_kept = 4})
                           : local_files().open(shard.path.string())) {}

  std::vector<Place> read() {
    read_tar(*file_, [this](const TarEntry& entry) { add(entry); });
    finish_sample();
    TRIREME_CHECK(!places_.empty(), file_->name(),
                  " has no samples; expected images (.png, .jpg, .jpeg) and classes (.cls or "
                  ".json)");
    return std::move(places_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fail(uint64_t at, const Parts&... parts) const {
    throw ConfigError(concat(file_->name(), " at byte ", at, ": ", parts...));
  }

  void add(const TarEntry& entry) {
    const size_t slash = entry.name.rfind('/');
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    const size_t dot = entry.name.find('.', begin);
    if (dot == begin) return;  // hidden
    const std::string key = entry.name.substr(0, dot);
    if (key != key_ || !begun_) {
      finish_sample();
      if (!keys_.insert(key).second) {
        fail(entry.header, "the sample \"", shown(key), "\" occurs a second time");
      }
      begun_ = entry.header;
      key_ = key;
    }
    const std::string ending = dot == std::string::npos ? "" : entry.name.substr(dot);
    if (ending == ".cls") {
      if (label_) fail(entry.header, "the sample \"", shown(key), "\" has a second class");
      label_ = read_label(entry);
    } else if (ending == ".json") {
      if (json_) fail(entry.header, "the sample \"", shown(key), "\" has a second .json");
      json_ = entry;
    } else if (is_image_name(ending) && ending.find('.', 1) == std::string::npos) {
      if (image_) fail(entry.header, "the sample \"", shown(key), "\" has a second image");
      if (entry.size > kMostEncodedBytes) {
        fail(entry.header, "an image of ", entry.size, " bytes; expected at most ",
             kMostEncodedBytes);
      }
      image_ = {entry.offset, static_cast<uint32_t>(entry.size), 0};
    }
  }

  int32_t read_label(const TarEntry& entry) const {
    std::array<char, 32> text{};
    int32_t label = -1;
    if (entry.size <= text.size()) {
      const std::span<char> content = std::span(text).first(entry.size);
      as_config_error([&] { file_->read(entry.offset, std::as_writable_bytes(content)); });
      std::string_view digits(content.data(), content.size());
      const size_t end = digits.find_last_not_of(" \r\n");
      digits = digits.substr(0, end == std::string_view::npos ? 0 : end + 1);
      const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), label);
      const bool is_number =
          parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
      if (!is_number) label = -1;
    }
    if (label < 0 || label >= kMostTarClasses) {
      fail(entry.header, "\"", shown(entry.name), "\" has no class; expected a number from 0 to ",
           kMostTarClasses - 1);
    }
    return label;
  }

  // The class that an object names, as WebDataset's writers do.
  int32_t read_json_label(const TarEntry& entry) const {
    const std::string where = concat(file_->name(), "/", shown(entry.name));
    TRIREME_CHECK(entry.size <= kMostJsonBytes, where, " has ", entry.size,
                  " bytes; expected at most ", kMostJsonBytes);
    std::string text(entry.size, '\0');
    as_config_error([&] { file_->read(entry.offset, std::as_writable_bytes(std::span(text))); });
    const nlohmann::json object = parse_json(text, where);
    for (const char* const key : {"cls", "label"}) {
      if (!object.is_object() || !object.contains(key)) continue;
      const nlohmann::json& label = object[key];
      const bool is_class = label.is_number_unsigned() && label.get<uint64_t>() < kMostTarClasses;
      TRIREME_CHECK(is_class, where, ": \"", key, "\" is ", shown(label.dump()),
                    "; expected a number from 0 to ", kMostTarClasses - 1);
      return label.get<int32_t>();
    }
    throw ConfigError(concat(where,
                             " has neither \"cls\" nor \"label\", and there is no .cls "
                             "beside it; expected the number of the class"));
  }

  void finish_sample() {
    if (!begun_) return;
    if (!image_) fail(*begun_, "the sample \"", shown(key_), "\" has no .png, .jpg or .jpeg");
    if (!label_ && json_) label_ = read_json_label(*json_);
    if (!label_) fail(*begun_, "the sample \"", shown(key_), "\" has no .cls or .json");
    image_->label = *label_;
    places_.push_back(*image_);
    image_.reset();
    label_.reset();
    json_.reset();
    begun_.reset();
  }

  std::unique_ptr<ByteSource> file_;
  std::vector<Place> places_;
  std::unordered_set<std::string> keys_;
  std::string key_;                // of the current sample
  std::optional<uint64_t> begun_;  // the byte of its first header
  std::optional<Place> image_;
  std::optional<int32_t> label_;
  std::optional<TarEntry> json_;
};

std::vector<Shard> shards_in(const ImageTree& tree, const std::string& folder) {
  std::vector<Shard> shards;
  for (TreeItem& item : tree.items(folder)) {
    const fs::path where = tree.path_of(folder);
    require_printable(where, item.name);
    if (item.name.ends_with(".tar") && !item.name.starts_with('.'))
      shards.push_back({where / item.name, std::move(item.object)});
  }
  TRIREME_CHECK(!shards.empty(), "the folder ", tree.path_of(folder), " has no .tar files");
  return shards;
}

std::vector<Shard> shards_of(const std::vector<fs::path>& paths) {
  std::vector<Shard> shards;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      shards.push_back({path});
      continue;
    }
    std::ranges::move(shards_in(*local_tree(path.string()), ""), std::back_inserter(shards));
  }
  TRIREME_CHECK(!shards.empty(), "no tar archive is given; expected shards such as train-0000.tar");
  return shards;
}

// Reads all shards, several at one time, because each waits for its disk. The error is that of the
// first shard that has one.
std::vector<std::vector<Place>> index_of(const std::vector<Shard>& shards) {
  constexpr size_t kMostThreads = 8;
  std::vector<std::vector<Place>> places(shards.size());
  std::vector<std::exception_ptr> errors(shards.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < shards.size(); i = next++) {
      try {
        places[i] = as_config_error([&] { return ShardIndex(shards[i]).read(); });
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min(kMostThreads, shards.size()); ++i) threads.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return places;
}

// The shards that were read last, open. Samples near each other are in few of them, and there may
// be more shards than a process may have open files. Thread safe.
class OpenShards {
 public:
  explicit OpenShards(std::vector<Shard> shards) : shards_(std::move(shards)) {}

  const std::vector<Shard>& all() const { return shards_; }
  const fs::path& path(size_t shard) const { return shards_[shard].path; }

  std::shared_ptr<const ByteSource> get(size_t shard) const {
    if (shards_[shard].object) return shards_[shard].object;
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(open_, shard, &Open::shard);
    if (found != open_.end() && found->file) return found->file;
    const std::shared_ptr<const ByteSource> file =
        as_config_error([&] { return local_files().open(path(shard).string()); });
    open_[oldest_] = {shard, file};
    oldest_ = (oldest_ + 1) % open_.size();
    return file;
  }

 private:
  struct Open {
    size_t shard = 0;
    std::shared_ptr<const ByteSource> file;
  };

  std::vector<Shard> shards_;
  mutable std::mutex mutex_;
  mutable std::array<Open, 16> open_;
  mutable size_t oldest_ = 0;
};

class TarImages final : public ImageSource {
 public:
  TarImages(std::vector<Shard> shards, const ImageOptions& options, const ImageSource* like)
      : shards_(std::move(shards)) {
    require_images();
    int32_t largest = 0;
    size_t shard = 0;
    for (std::vector<Place>& places : index_of(shards_.all())) {
      for (const Place& place : places) {
        TRIREME_CHECK(like == nullptr || place.label < std::ssize(like->classes()),
                      name_of(shard, place), " has the class ", place.label,
                      ", and the training data ", std::ssize(like->classes()), " classes");
        largest = std::max(largest, place.label);
      }
      sizes_.push_back(std::ssize(places));
      places_.insert(places_.end(), places.begin(), places.end());
      ends_.push_back(size());
      ++shard;
    }
    if (like != nullptr) {
      classes_ = like->classes();
    } else {
      check_numbering(largest);
      for (int32_t i = 0; i <= largest; ++i) classes_.push_back(std::to_string(i));
    }
    const std::string first = read(0, places_.front());
    maker_.emplace(options, std::as_bytes(std::span(first)), name_of(0, places_.front()));
    check_shape_like(shape(), shards_.path(0).string(), like);
  }

  int64_t size() const override { return std::ssize(places_); }
  std::vector<int64_t> shard_sizes() const override { return sizes_; }
  ImageShape shape() const override { return maker_->shape(); }
  const std::vector<std::string>& classes() const override { return classes_; }

  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override {
    TRIREME_ASSERT(index >= 0 && index < size(), "image ", index, " of ", size());
    const auto shard = static_cast<size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    const Place& place = places_[static_cast<size_t>(index)];
    const std::string bytes = read(shard, place);
    return image_sample(
        maker_->make(std::as_bytes(std::span(bytes)), name_of(shard, place), augmentation),
        place.label);
  }

 private:
  // One wrong number must not become a million classes of the model.
  void check_numbering(int32_t largest) const {
    std::vector<bool> occurs(static_cast<size_t>(largest) + 1);
    for (const Place& place : places_) occurs[static_cast<size_t>(place.label)] = true;
    const int64_t num_found = std::ranges::count(occurs, true);
    TRIREME_CHECK(largest < kFreeTarClasses || largest < kMostNumbersPerClass * num_found,
                  shards_.path(0).parent_path().string(), " has ", num_found,
                  " classes, with numbers up to ", largest,
                  "; expected numbers from 0 up, without large gaps: renumber them");
  }

  std::string name_of(size_t shard, const Place& place) const {
    return concat(shards_.path(shard).string(), " at byte ", place.offset);
  }

  std::string read(size_t shard, const Place& place) const {
    std::string bytes(place.size, '\0');
    as_config_error(
        [&] { shards_.get(shard)->read(place.offset, std::as_writable_bytes(std::span(bytes))); },
        "; the data must stay as it is during a run");
    return bytes;
  }

  OpenShards shards_;
  std::vector<int64_t> sizes_;  // of each shard, in samples
  std::vector<int64_t> ends_;   // of each shard, in samples of all
  std::vector<Place> places_;
  std::vector<std::string> classes_;
  std::optional<ImageMaker> maker_;
};

}  // namespace

std::unique_ptr<ImageSource> open_image_tar(const std::vector<fs::path>& paths,
                                            const ImageOptions& options, const ImageSource* like) {
  return std::make_unique<TarImages>(shards_of(paths), options, like);
}

std::unique_ptr<ImageSource> open_image_tar(const ImageTree& tree, const std::string& folder,
                                            const ImageOptions& options, const ImageSource* like) {
  return std::make_unique<TarImages>(shards_in(tree, folder), options, like);
}

}  // namespace trireme::dataset
