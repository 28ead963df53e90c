// Saves and loads a checkpoint of random fp32 tensors, split over two ranks that are threads, and
// prints one line of JSON: seconds of a save that waits for the disk, of the stall and the whole of
// one in the background, of one in which a tenth has changed, of a load with a cold page cache, and
// of one of which both ranks want all, with a warm one; and of dd for the same bytes on the same
// disk. benchmarks/checkpoint.py runs it beside
// torch.distributed.checkpoint.
//
//   checkpoint_benchmark FOLDER [MiB]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/write/saver.h"
#include "trireme/comm/shared/thread_group.h"

namespace {

using namespace trireme;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
constexpr int kTensors = 40;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
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

double seconds_of(const std::string& command) {
  const auto start = Clock::now();
  TRIREME_CHECK(std::system((command + " 2>/dev/null").c_str()) == 0, command, " failed");
  return seconds(Clock::now() - start);
}

std::vector<checkpoint::Entry> entries_of(int rank, int64_t rows,
                                          const mesh::Placement& placement) {
  std::vector<checkpoint::Entry> entries;
  for (int i = 0; i < kTensors; ++i) {
    const mesh::Layout layout({rows, 1024}, {{"shard", kRanks}}, {placement});
    entries.push_back(
        {"w" + std::to_string(i), at::randn(layout.local_box(rank).size), layout, rank});
  }
  return entries;
}

void measure(const fs::path& root, int64_t mebibytes) {
  const int64_t rows = mebibytes * 256 / kTensors / kRanks * kRanks;  // of 4 KiB
  const int64_t num_bytes = rows * 4096 * kTensors;
  double sync = 0, stall = 0, whole = 0, tenth = 0, load = 0, replicated = 0;
  comm::run_thread_group(kRanks, [&](comm::Communicator& world) {
    std::vector<checkpoint::Entry> entries =
        entries_of(world.rank(), rows, mesh::Placement::sharded(0));
    checkpoint::Saver behind(world), before(world, {.in_background = false});
    const auto save = [&](int64_t step, bool in_background) {
      checkpoint::Saver& saver = in_background ? behind : before;
      saver.start(root, step, entries, "{}", {.keep = 2});
      return *saver.finish(/*waits=*/true);
    };
    const auto change = [&](int count) {
      for (int i = 0; i < count; ++i) entries[static_cast<size_t>(i)].local.add_(1);
    };
    save(1, true);  // takes the memory
    change(kTensors);
    const checkpoint::Saved in_background = save(2, true);
    change(kTensors);
    const checkpoint::Saved waited = save(3, false);
    change(kTensors / 10);
    const checkpoint::Saved small = save(4, false);
    world.barrier()->wait();
    if (world.rank() == 0) drop_cache(root / "step-000004");
    world.barrier()->wait();
    const auto load_into = [&](std::vector<checkpoint::Entry>& targets) {
      world.barrier()->wait();
      const auto start = Clock::now();
      checkpoint::load(root / "step-000004", targets, world);
      return seconds(Clock::now() - start);
    };
    const double loaded = load_into(entries);
    entries = entries_of(world.rank(), rows, mesh::Placement::replicated());
    const double loaded_whole = load_into(entries);
    if (world.rank() != 0) return;
    sync = seconds(waited.took);
    stall = seconds(in_background.stall);
    whole = seconds(in_background.took);
    tenth = seconds(small.took);
    load = loaded;
    replicated = loaded_whole;
  });
  const std::string file = (root / "dd").string();
  const std::string count = std::to_string(num_bytes >> 23);
  const double dd_write = seconds_of("dd if=/dev/zero of='" + file + "' bs=8M count=" + count +
                                     " oflag=direct conv=fsync");
  drop_cache(root);
  const double dd_read = seconds_of("dd if='" + file + "' of=/dev/null bs=8M");
  std::printf(
      "{\"bytes\": %lld, \"save\": %.4f, \"stall\": %.4f, \"background\": %.4f, "
      "\"save_tenth\": %.4f, \"load\": %.4f, \"load_replicated\": %.4f, \"dd_write\": %.4f, "
      "\"dd_read\": %.4f}\n",
      static_cast<long long>(num_bytes), sync, stall, whole, tenth, load, replicated, dd_write,
      dd_read);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: checkpoint_benchmark FOLDER [MiB]\n");
    return 2;
  }
  at::manual_seed(1);
  const fs::path root = fs::path(argv[1]) / "checkpoint-benchmark";
  fs::remove_all(root);
  fs::create_directories(root);
  measure(root, argc > 2 ? std::atoll(argv[2]) : 1024);
  fs::remove_all(root);
}
