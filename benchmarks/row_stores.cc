// Reads and writes random rows of a file in ways that tables larger than memory could use.
//   row_stores_benchmark FOLDER [row bytes] [rows] [batch] [seconds of each way]
// A step reads a batch of distinct rows, changes them and writes them. Ways:
//   one by one   pread and pwrite of each row, through the page cache
//   advised      the same after posix_fadvise(WILLNEED) of all, so that the disk reads many at once
//   io_uring     whole blocks of 4 KiB around the rows, past the page cache, all at once
//   rocksdb      MultiGet and a WriteBatch, without a log and compression; if built with RocksDB
// Run it under a memory limit well below rows x row bytes (benchmarks/memory_limit.py), or it
// measures memory. Every row is written before the measurement. Prints rows per second, reads and
// writes apart, and both together.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>
#ifdef TRIREME_ROCKSDB
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#endif

#include "tests/harness/temporary_folder.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/io/async_io.h"
#include "trireme/base/io/scratch_file.h"

namespace {

using namespace trireme;
namespace fs = std::filesystem;

struct Sizes {
  int64_t row_bytes = 260;  // 64 fp32 numbers and one of row-wise AdaGrad
  int64_t rows = 8'000'000;
  int64_t batch = 4096;
  int64_t seconds = 15;
  int64_t num_bytes() const { return row_bytes * rows; }
};

using Rows = std::vector<int64_t>;  // distinct, ascending

// values: [rows, row_bytes]
class Store {
 public:
  virtual ~Store() = default;
  virtual std::string name() const = 0;
  virtual void read(const Rows& rows, std::byte* values) = 0;
  virtual void write(const Rows& rows, const std::byte* values) = 0;
};

class FileStore : public Store {
 public:
  FileStore(const fs::path& folder, const Sizes& sizes, bool is_advised)
      : sizes_(sizes),
        is_advised_(is_advised),
        file_(folder, static_cast<uint64_t>(sizes.num_bytes()), {.direct = false}) {}
  std::string name() const override { return is_advised_ ? "advised" : "one by one"; }
  void read(const Rows& rows, std::byte* values) override {
    advise(rows);
    for (const int64_t row : rows) {
      const ssize_t moved = pread(fd(), values, bytes(), row * sizes_.row_bytes);
      TRIREME_ASSERT(moved == sizes_.row_bytes, "read ", moved);
      values += sizes_.row_bytes;
    }
  }
  void write(const Rows& rows, const std::byte* values) override {
    advise(rows);
    for (const int64_t row : rows) {
      const ssize_t moved = pwrite(fd(), values, bytes(), row * sizes_.row_bytes);
      TRIREME_ASSERT(moved == sizes_.row_bytes, "written ", moved);
      values += sizes_.row_bytes;
    }
  }

 private:
  void advise(const Rows& rows) {
    for (size_t i = 0; i < rows.size() && is_advised_; ++i)
      posix_fadvise(fd(), rows[i] * sizes_.row_bytes, sizes_.row_bytes, POSIX_FADV_WILLNEED);
  }
  int fd() const { return file_.io().descriptor; }
  size_t bytes() const { return static_cast<size_t>(sizes_.row_bytes); }

  Sizes sizes_;
  bool is_advised_;
  ScratchFile file_;
};

class UringStore : public Store {
 public:
  UringStore(const fs::path& folder, const Sizes& sizes)
      : sizes_(sizes),
        file_(folder, static_cast<uint64_t>(sizes.num_bytes() + 2 * kBlock), {}),
        io_(make_async_io(file_.io())) {}
  std::string name() const override {
    return io_->name() + (file_.io().is_direct ? "" : " (page cache)");
  }
  void read(const Rows& rows, std::byte* values) override {
    find_runs(rows);
    transfer(IoKind::kRead);
    copy(rows, [&](std::byte* in_block, size_t i) {
      std::memcpy(values + i * bytes(), in_block, bytes());
    });
  }
  // After read() of the same rows, whose blocks are still here.
  void write(const Rows& rows, const std::byte* values) override {
    if (blocks_of_ != rows) {
      find_runs(rows);
      transfer(IoKind::kRead);
    }
    copy(rows, [&](std::byte* in_block, size_t i) {
      std::memcpy(in_block, values + i * bytes(), bytes());
    });
    transfer(IoKind::kWrite);
  }

 private:
  static constexpr int64_t kBlock = kIoAlignment;
  struct Run {
    int64_t offset, num_bytes, at;
  };
  void find_runs(const Rows& rows) {
    blocks_of_ = rows;
    runs_.clear();
    int64_t total = 0;
    for (const int64_t row : rows) {
      const int64_t begin = row * sizes_.row_bytes / kBlock * kBlock;
      const int64_t end = ((row + 1) * sizes_.row_bytes + kBlock - 1) / kBlock * kBlock;
      if (!runs_.empty() && begin <= runs_.back().offset + runs_.back().num_bytes) {
        const int64_t more =
            std::max<int64_t>(0, end - runs_.back().offset - runs_.back().num_bytes);
        runs_.back().num_bytes += more;
        total += more;
        continue;
      }
      runs_.push_back({begin, end - begin, total});
      total += end - begin;
    }
    if (std::ssize(memory_) < total + kBlock) memory_.resize(static_cast<size_t>(total + kBlock));
    void* data = memory_.data();
    size_t space = memory_.size();
    blocks_ = static_cast<std::byte*>(std::align(kIoAlignment, 1, data, space));
  }
  void transfer(IoKind kind) {
    std::vector<AsyncIo::Ticket> tickets;
    for (const Run& run : runs_) {
      tickets.push_back(io_->start({kind, static_cast<uint64_t>(run.offset), blocks_ + run.at,
                                    static_cast<size_t>(run.num_bytes)}));
    }
    for (const AsyncIo::Ticket ticket : tickets) io_->wait(ticket);
  }
  template <typename Copy>
  void copy(const Rows& rows, const Copy& copy_row) {
    size_t run = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t begin = rows[i] * sizes_.row_bytes;
      while (begin >= runs_[run].offset + runs_[run].num_bytes) ++run;
      copy_row(blocks_ + runs_[run].at + begin - runs_[run].offset, i);
    }
  }
  size_t bytes() const { return static_cast<size_t>(sizes_.row_bytes); }

  Sizes sizes_;
  ScratchFile file_;
  std::vector<std::byte> memory_;
  std::byte* blocks_ = nullptr;
  Rows blocks_of_;
  std::vector<Run> runs_;
  std::unique_ptr<AsyncIo> io_;  // destroyed first
};

#ifdef TRIREME_ROCKSDB
class RocksStore : public Store {
 public:
  RocksStore(const fs::path& folder, const Sizes& sizes) : sizes_(sizes) {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;
    options.write_buffer_size = size_t{16} << 20;
    options.max_background_jobs = 4;
    options.max_open_files = 500;
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(size_t{32} << 20);
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.cache_index_and_filter_blocks = true;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* db = nullptr;
    check(rocksdb::DB::Open(options, (folder / "rocks").string(), &db));
    db_.reset(db);
    write_.disableWAL = true;
    read_.async_io = true;
    read_.optimize_multiget_for_io = true;
  }
  std::string name() const override { return "rocksdb"; }
  void read(const Rows& rows, std::byte* values) override {
    const std::vector<uint64_t> keys = keys_of(rows);
    std::vector<rocksdb::Slice> slices;
    for (const uint64_t& key : keys)
      slices.emplace_back(reinterpret_cast<const char*>(&key), sizeof(key));
    std::vector<rocksdb::PinnableSlice> found(rows.size());
    std::vector<rocksdb::Status> states(rows.size());
    db_->MultiGet(read_, db_->DefaultColumnFamily(), rows.size(), slices.data(), found.data(),
                  states.data(), /*sorted_input=*/true);
    for (size_t i = 0; i < rows.size(); ++i) {
      check(states[i]);
      std::memcpy(values + i * bytes(), found[i].data(), bytes());
    }
  }
  void write(const Rows& rows, const std::byte* values) override {
    const std::vector<uint64_t> keys = keys_of(rows);
    rocksdb::WriteBatch batch;
    for (size_t i = 0; i < rows.size(); ++i) {
      check(batch.Put({reinterpret_cast<const char*>(&keys[i]), sizeof(keys[i])},
                      {reinterpret_cast<const char*>(values + i * bytes()), bytes()}));
    }
    check(db_->Write(write_, &batch));
  }

 private:
  static void check(const rocksdb::Status& status) {
    TRIREME_CHECK(status.ok(), status.ToString());
  }
  // Big endian, so that they sort as the rows do.
  static std::vector<uint64_t> keys_of(const Rows& rows) {
    std::vector<uint64_t> keys;
    for (const int64_t row : rows) keys.push_back(__builtin_bswap64(static_cast<uint64_t>(row)));
    return keys;
  }
  size_t bytes() const { return static_cast<size_t>(sizes_.row_bytes); }

  Sizes sizes_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteOptions write_;
  rocksdb::ReadOptions read_;
};
#endif

void measure(const Sizes& sizes, Store& store) {
  std::vector<std::byte> values(static_cast<size_t>(sizes.batch * sizes.row_bytes));
  Rows rows;
  for (int64_t first = 0; first < sizes.rows; first += sizes.batch) {
    rows.clear();
    for (int64_t row = first; row < std::min(first + sizes.batch, sizes.rows); ++row)
      rows.push_back(row);
    store.write(rows, values.data());
  }
  std::mt19937_64 random(1);
  double read = 0, written = 0;
  int64_t steps = 0;
  for (const auto start = std::chrono::steady_clock::now();
       seconds_since(start) < static_cast<double>(sizes.seconds); ++steps) {
    rows.clear();
    for (int64_t i = 0; i < sizes.batch; ++i)
      rows.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(sizes.rows)));
    std::ranges::sort(rows);
    rows.erase(std::ranges::unique(rows).begin(), rows.end());
    auto begin = std::chrono::steady_clock::now();
    store.read(rows, values.data());
    read += seconds_since(begin);
    for (std::byte& value : values) value ^= std::byte{1};
    begin = std::chrono::steady_clock::now();
    store.write(rows, values.data());
    written += seconds_since(begin);
  }
  const auto count = static_cast<double>(steps * sizes.batch);
  std::printf("%-22s %12.0f %12.0f %12.0f\n", store.name().c_str(), count / read, count / written,
              count / (read + written));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: row_stores_benchmark FOLDER [row bytes] [rows] [batch] [seconds]\n");
    return 2;
  }
  Sizes sizes;
  int64_t* const numbers[] = {&sizes.row_bytes, &sizes.rows, &sizes.batch, &sizes.seconds};
  for (int i = 2; i < argc && i < 6; ++i) *numbers[i - 2] = std::atol(argv[i]);
  std::printf("%ld rows of %ld bytes (%.2f GB), %ld per step\n", static_cast<long>(sizes.rows),
              static_cast<long>(sizes.row_bytes), static_cast<double>(sizes.num_bytes()) / 1e9,
              static_cast<long>(sizes.batch));
  std::printf("%-22s %12s %12s %12s\n", "way", "read/s", "written/s", "both/s");
  const fs::path folder = fs::path(argv[1]) / ("row-stores-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::function<std::unique_ptr<Store>()> makers[] = {
      [&] { return std::make_unique<FileStore>(folder, sizes, false); },
      [&] { return std::make_unique<FileStore>(folder, sizes, true); },
      [&] { return std::make_unique<UringStore>(folder, sizes); },
#ifdef TRIREME_ROCKSDB
      [&] { return std::make_unique<RocksStore>(folder, sizes); },
#endif
  };
  for (const auto& make : makers) measure(sizes, *make());
  fs::remove_all(folder);
}
