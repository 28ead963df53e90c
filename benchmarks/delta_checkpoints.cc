// Saves a training table three ways and prints what each writes and takes.
//   delta_checkpoints_benchmark FOLDER [rows] [width] [steps between saves] [saves] [batch]
// Two ranks, as threads, have half of the rows each, with row-wise AdaGrad. Each sample has one id,
// drawn by Zipf's law with exponent 1.05 and scattered over the rows. After each interval the same
// values are saved, in the background while nothing else runs:
//   full         every checkpoint has its own bytes
//   incremental  chunks that the checkpoint before has are linked
//   delta        only rows that have changed, on the checkpoint before
// Medians leave out the first save. A load has a cold page cache and reads the last checkpoint.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "benchmarks/group_seconds.h"
#include "trireme/base/numbers.h"
#include "trireme/base/random/random.h"
#include "trireme/checkpoint/write/saver.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/train/state/run_state.h"

namespace {

using namespace trireme;
namespace fs = std::filesystem;

constexpr int kRanks = 2;
constexpr double kExponent = 1.05;

struct Sizes {
  int64_t rows = 1'000'000;
  int64_t width = 64;
  int64_t steps = 100;
  int64_t saves = 9;
  int64_t batch = 2048;  // over all ranks
};

class ZipfIds {
 public:
  ZipfIds(int64_t rows, uint64_t seed) : key_(random_key(7, "rows")), random_(seed) {
    double sum = 0;
    for (int64_t i = 0; i < rows; ++i)
      sums_.push_back(sum += std::pow(static_cast<double>(i + 1), -kExponent));
    uniform_ = std::uniform_real_distribution<double>(0, sum);
  }
  at::Tensor draw(int64_t count) {
    const at::Tensor ids = at::empty({count}, at::kLong);
    auto* const out = ids.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      const auto place = std::ranges::lower_bound(sums_, uniform_(random_)) - sums_.begin();
      out[i] = static_cast<int64_t>(
          random_permutation(key_, static_cast<uint64_t>(place), sums_.size()));
    }
    return ids;
  }

 private:
  RandomKey key_;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_;
  std::vector<double> sums_;
};

int64_t own_bytes(const fs::path& folder) {
  int64_t total = 0;
  for (const auto& item : fs::directory_iterator(folder)) {
    struct stat status {};
    if (::stat(item.path().c_str(), &status) == 0 && status.st_nlink == 1) total += status.st_size;
  }
  return total;
}

// Writes back and forgets the cached pages of a folder's files.
void drop_cache(const fs::path& folder) {
  for (const auto& item : fs::directory_iterator(folder)) {
    const int file = ::open(item.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    ::fsync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

struct Way {
  std::string name;
  bool is_incremental = true;
  bool tells_rows = false;
  std::unique_ptr<checkpoint::Saver> saver{};
  fs::path last{};
  double first_mb = 0;
  std::vector<double> megabytes{}, stalls{}, seconds{};
};

void run(const Sizes& sizes, const fs::path& folder, comm::Communicator& world) {
  at::set_num_threads(1);
  parallel::EmbeddingTables tables({{.name = "table",
                                     .rows = sizes.rows,
                                     .width = sizes.width,
                                     .placement = mesh::Placement::sharded(0)}},
                                   &world);
  ZipfIds ids(sizes.rows, static_cast<uint64_t>(world.rank()) + 1);
  const int64_t share = sizes.batch / kRanks;
  std::vector<Way> ways(3);
  ways[0] = {.name = "full", .is_incremental = false};
  ways[1] = {.name = "incremental"};
  ways[2] = {.name = "delta", .tells_rows = true};
  for (Way& way : ways) way.saver = std::make_unique<checkpoint::Saver>(world);
  std::vector<double> shares;
  int64_t mark = 0;
  for (int64_t save = 0; save < sizes.saves; ++save) {
    for (int64_t step = 0; step < sizes.steps; ++step) {
      const auto outputs = tables.look_up(parallel::jagged_ids(
          ids.draw(share), at::full({1, share}, 1, at::TensorOptions(at::kLong))));
      outputs.pooled_BW.sum().backward();
    }
    const std::vector<checkpoint::Entry> all = train::table_entries(tables);
    if (save > 0) {
      const auto changed = static_cast<double>(all[0].changes.since(mark)->size());
      shares.push_back(changed / static_cast<double>(all[0].local.size(0)));
    }
    mark = all[0].changes.mark();
    for (size_t i = 0; i < ways.size(); ++i) {
      Way& way = ways[(i + static_cast<size_t>(save)) % ways.size()];
      std::vector<checkpoint::Entry> entries = all;
      for (checkpoint::Entry& entry : entries) {
        if (!way.tells_rows) entry.changes = {};
      }
      world.barrier()->wait();
      way.saver->start(folder / way.name, save, entries, "{}",
                       {.keep = 2, .incremental = way.is_incremental});
      const auto saved = way.saver->finish(/*waits=*/true);
      way.last = saved->folder;
      const double megabytes = static_cast<double>(own_bytes(saved->folder)) / 1e6;
      world.barrier()->wait();
      if (save == 0) {
        way.first_mb = megabytes;
        continue;
      }
      way.megabytes.push_back(megabytes);
      way.stalls.push_back(in_seconds(saved->stall));
      way.seconds.push_back(in_seconds(saved->took));
    }
  }
  if (world.rank() == 0) {
    std::printf(
        "%ld rows x %ld, %ld steps of %ld ids between saves: %.1f %% of rank 0's rows "
        "changed; %ld saves\n",
        static_cast<long>(sizes.rows), static_cast<long>(sizes.width),
        static_cast<long>(sizes.steps), static_cast<long>(sizes.batch), 100 * median(shares),
        static_cast<long>(sizes.saves));
    std::printf(
        "| way | first save, MB | later, MB | largest, MB | stall, s | whole, s | load, s |\n"
        "|---|---|---|---|---|---|---|\n");
  }
  for (const Way& way : ways) {
    if (world.rank() == 0) drop_cache(way.last);
    auto entries = train::table_entries(tables);
    const double load =
        benchmarks::seconds_of([&] { checkpoint::load(way.last, entries, world); }, world);
    if (world.rank() != 0) continue;
    std::printf("| %s | %.1f | %.1f | %.1f | %.3f | %.3f | %.3f |\n", way.name.c_str(),
                way.first_mb, median(way.megabytes), std::ranges::max(way.megabytes),
                median(way.stalls), median(way.seconds), load);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [rows] [width] [steps] [saves] [batch]\n", argv[0]);
    return 2;
  }
  Sizes sizes;
  int64_t* const numbers[] = {&sizes.rows, &sizes.width, &sizes.steps, &sizes.saves, &sizes.batch};
  for (int i = 2; i < argc && i < 7; ++i) *numbers[i - 2] = std::atol(argv[i]);
  const fs::path folder = fs::path(argv[1]) / ("delta-" + std::to_string(getpid()));
  comm::run_thread_group(kRanks, [&](comm::Communicator& world) { run(sizes, folder, world); });
  fs::remove_all(folder);
  return 0;
}
