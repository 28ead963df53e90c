// Token files and the flight recorder's rings.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

#include <ATen/ATen.h>

#include "tests/hostile/format.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/recorder/diagnosis.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/recorder/ring_layout.h"
#include "trireme/dataset/image/image_records.h"
#include "trireme/dataset/indexed_file.h"
#include "trireme/dataset/samples/packed_source.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/token_source.h"

namespace trireme::hostile {
namespace {

class TokenFile : public Format {
 public:
  explicit TokenFile(const std::filesystem::path& folder) : prefix_((folder / "a").string()) {
    std::filesystem::create_directories(folder);
    dataset::TokenFile file(prefix_, 1000, {.mask = true});
    for (const int32_t size : {5, 0, 1, 17, 3}) {
      std::vector<int32_t> tokens(static_cast<size_t>(size)), mask(tokens.size(), 1);
      std::iota(tokens.begin(), tokens.end(), size);
      file.add_document(tokens, mask);
    }
    file.complete();
    file.publish();
    mask_idx_ = get_file(dataset::idx_path(dataset::loss_prefix(prefix_)));
    mask_ = get_file(dataset::bin_path(dataset::loss_prefix(prefix_)));
    idx_ = get_file(dataset::idx_path(prefix_));
    bin_ = get_file(dataset::bin_path(prefix_));
  }
  std::string name() const override { return "tokens"; }

  void write(Random& random) override {
    constexpr size_t kType = 17, kCounts = 18, kTables = 34;
    std::string idx = idx_, bin = bin_;
    for (size_t count = 1 + random.below(3); count > 0; --count) {
      switch (random.below(6)) {
        case 0:
          idx.replace(std::min(kType, idx.size()), 1, 1, static_cast<char>(random.below(12)));
          break;
        case 1: put_edge(idx, kCounts + 8 * random.below(2), 8, random); break;
        case 2: put_edge(idx, kTables + 4 * random.below(5), 4, random); break;
        case 3: put_edge(idx, kTables + 20 + 8 * random.below(11), 8, random); break;
        case 4: damage_bytes(idx, random); break;
        default: damage_bytes(bin, random); break;
      }
    }
    put_file(dataset::idx_path(prefix_), idx);
    put_file(dataset::bin_path(prefix_), bin);
    std::string mask = mask_;
    if (random.one_in(2)) damage_bytes(mask, random);
    put_file(dataset::idx_path(dataset::loss_prefix(prefix_)), mask_idx_);
    put_file(dataset::bin_path(dataset::loss_prefix(prefix_)), mask);
    later_idx_ = idx_;
    damage_bytes(later_idx_, random);
    sequence_length_ = static_cast<int64_t>(1 + random.below(30));
  }

  void read() override {
    expect_refusal_or_sense([&] { use_samples(); });
    expect_refusal_or_sense([&] {
      const dataset::IndexedFile file(prefix_);
      use(file);
      // Writes into the same file while it is open.
      put_file(dataset::idx_path(prefix_), later_idx_);
      std::filesystem::resize_file(dataset::bin_path(prefix_), bin_.size() / 2);
      use(file);
    });
  }

 private:
  void use(const dataset::IndexedFile& file) const {
    std::vector<int64_t> tokens(static_cast<size_t>(file.num_tokens()));
    expect_refusal_or_sense([&] { file.read(0, tokens); });
    expect_refusal_or_sense([&] {
      for (int64_t i = 0; i < file.num_documents(); ++i) {
        const auto [offset, size] = file.document(i);
        require(offset >= 0 && size >= 0 && offset + size <= file.num_tokens(),
                "a document lies outside of the tokens");
      }
    });
    expect_refusal_or_sense([&] {
      // A pointer that owns nothing.
      const dataset::TokenSource source(
          std::shared_ptr<const dataset::IndexedFile>(std::shared_ptr<void>(), &file),
          {.sequence_length = sequence_length_, .vocab_size = 1000});
      std::vector<int64_t> sample(static_cast<size_t>(sequence_length_) + 1);
      for (int64_t i = 0; i < source.size(); ++i) {
        source.read_tokens(i, sample);
        for (const int64_t token : sample) {
          require(token >= 0 && token < 1000, "a token outside the vocabulary");
        }
        source.read_documents(i, std::span(sample).first(static_cast<size_t>(sequence_length_)));
      }
    });
  }

  // With the mask, cut as a stream and packed.
  void use_samples() const {
    const dataset::TokenOptions options{
        .sequence_length = sequence_length_, .vocab_size = 1000, .documents = true};
    const dataset::TokenStream stream(prefix_, options.vocab_size);
    const auto read_all = [](const dataset::Source& source) {
      for (int64_t i = 0; i < source.size(); ++i) source.get(i, {});
    };
    expect_refusal_or_sense([&] { read_all(dataset::TokenSource(stream, options)); });
    expect_refusal_or_sense([&] { read_all(dataset::PackedSource(stream, options)); });
  }

  std::string prefix_;
  std::string idx_, bin_, mask_idx_, mask_;
  std::string later_idx_;
  int64_t sequence_length_ = 1;
};

class RecorderRing : public Format {
 public:
  explicit RecorderRing(const std::filesystem::path& folder) : folder_(folder) {
    for (int rank = 0; rank < 2; ++rank) {
      {
        comm::Recorder recorder(
            {.folder = folder, .rank = rank, .world_size = 2, .job = "job", .num_records = 16});
        const std::vector<int> both = {0, 1};
        const int world = recorder.add_group("world", both);
        const std::vector<int64_t> shape = {4, 8};
        for (int i = 0; i < 5; ++i) {
          const auto call = recorder.issue(world, {.operation = i % 2 == 0 ? "all_reduce" : "send",
                                                   .shape = shape,
                                                   .elements = 32,
                                                   .dtype = 6,
                                                   .reduce_op = 0,
                                                   .peer = i % 2 == 0 ? -1 : 1 - rank,
                                                   .is_point_to_point = i % 2 == 1});
          if (i < 4) call.finish(true);
          comm::StepRecording(&recorder, i + 1).finish(std::chrono::milliseconds(i));
        }
        rings_.push_back(get_file(folder / comm::ring_name(rank)));
      }
    }
  }
  std::string name() const override { return "ring"; }

  void write(Random& random) override {
    using Header = comm::RingHeader;
    for (size_t rank = 0; rank < rings_.size(); ++rank) {
      std::string bytes = rings_[rank];
      for (size_t count = random.below(4); count > 0; --count) {
        Header header;
        std::memcpy(&header, rings_[rank].data(), sizeof(header));
        switch (random.below(6)) {
          case 0: put_edge(bytes, 8 + 4 * random.below(8), 4, random); break;
          case 1: put_edge(bytes, 40 + 8 * random.below(5), 8, random); break;
          case 2:
            put_edge(bytes, offsetof(Header, closed_ns) + 4 * random.below(16), 4, random);
            break;
          case 3:
            put_edge(bytes, comm::groups_offset() + 4 * random.below(32), random.one_in(2) ? 4 : 8,
                     random);
            break;
          case 4:
            put_edge(bytes, comm::records_offset(header) + 4 * random.below(5 * 32),
                     random.one_in(2) ? 4 : 8, random);
            break;
          default: damage_bytes(bytes, random); break;
        }
      }
      if (!random.one_in(6) && bytes.size() >= sizeof(Header)) {
        const std::string digits =
            checksum(std::as_bytes(std::span(bytes)).first(offsetof(Header, checksum)));
        bytes.replace(offsetof(Header, checksum), digits.size(), digits);
      }
      put_file(folder_ / comm::ring_name(static_cast<int>(rank)), bytes);
    }
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const auto ranks = comm::observe_ranks(folder_);
      require(!comm::diagnose(ranks).empty(), "no finding at all");
      for (const auto& rank : ranks) {
        for (const auto& record : rank.ring.records) comm::to_string(record);
        for (const auto& step : rank.ring.steps) {
          require(step.step >= 0 && step.waiting.count() >= 0, "a step with a negative number");
        }
      }
    });
  }

 private:
  std::filesystem::path folder_;
  std::vector<std::string> rings_;
};

class ImageRecords : public Format {
 public:
  explicit ImageRecords(const std::filesystem::path& folder) : folder_(folder) {
    std::filesystem::create_directories(folder);
    images_ = std::string({0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 3}) + std::string(60, 'x');
    labels_ = std::string({0, 0, 8, 1, 0, 0, 0, 5, 1, 0, 3, 2, 1});
    cifar_ = std::string(size_t{2} * 3073, '\1');
  }
  std::string name() const override { return "images"; }

  void write(Random& random) override {
    std::string images = images_, labels = labels_, cifar = cifar_;
    for (size_t count = 1 + random.below(2); count > 0; --count) {
      switch (random.below(4)) {
        case 0: put_edge(images, 4 + 4 * random.below(3), 4, random); break;
        case 1: damage_bytes(images, random); break;
        case 2: damage_bytes(labels, random); break;
        default: damage_bytes(cifar, random); break;
      }
    }
    put_file(folder_ / "images", images);
    put_file(folder_ / "labels", labels);
    put_file(folder_ / "cifar", cifar);
    cut_ = random.below(images.size() + 1);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const auto source = dataset::open_idx(folder_ / "images", folder_ / "labels");
      use(*source);
      std::filesystem::resize_file(folder_ / "images", cut_);
      use(*source);
    });
    for (const auto kind : {dataset::Cifar::k10, dataset::Cifar::k100}) {
      expect_refusal_or_sense([&] { use(*dataset::open_cifar({folder_ / "cifar"}, kind)); });
    }
  }

 private:
  static void use(const dataset::ImageSource& source) {
    for (int64_t i = 0; i < source.size(); ++i) {
      expect_refusal_or_sense([&] {
        const auto sample = source.get(i, std::nullopt);
        const auto label = dataset::find_tensor(sample, "label").item<int64_t>();
        require(label >= 0 && label < std::ssize(source.classes()), "a label beyond the classes");
      });
    }
  }

  std::filesystem::path folder_;
  std::string images_, labels_, cifar_;
  size_t cut_ = 0;
};

}  // namespace

void add_binary_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<TokenFile>(folder / "tokens"));
  formats.push_back(std::make_unique<RecorderRing>(folder / "ring"));
  formats.push_back(std::make_unique<ImageRecords>(folder / "images"));
}

}  // namespace trireme::hostile
