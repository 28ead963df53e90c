#include "trireme/base/io/mapped_scratch.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/numbers.h"

namespace trireme {
namespace {

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// The disk gets its space back; the file keeps its length.
void free_space(int descriptor, uint64_t offset, size_t num_bytes) {
  ::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(num_bytes));
}

}  // namespace

struct MappedScratch::State {
  struct Region {
    size_t num_bytes = 0;
    uint64_t offset = 0;  // in the file
  };
  // Whole pages of one region; none for other memory.
  struct Pages {
    std::byte* begin = nullptr;
    size_t num_bytes = 0;
    uint64_t offset = 0;
  };

  State(const std::filesystem::path& folder, const ScratchUse& use) : file(folder, 0, use) {}

  Pages pages_of(const void* begin, size_t num_bytes) {
    const auto first = reinterpret_cast<uintptr_t>(begin);
    const std::lock_guard lock(mutex);
    auto region = regions.upper_bound(first);
    if (region == regions.begin()) return {};
    --region;
    if (first + num_bytes > region->first + region->second.num_bytes) return {};
    const uintptr_t low = first / page_bytes() * page_bytes();
    const uintptr_t high = std::min<uintptr_t>(round_up(first + num_bytes, page_bytes()),
                                               region->first + region->second.num_bytes);
    return {reinterpret_cast<std::byte*>(low), high - low,
            region->second.offset + (low - region->first)};
  }

  std::mutex mutex;
  ScratchFile file;
  std::map<uintptr_t, Region> regions;  // by their first byte
  uint64_t file_bytes = 0;
};

MappedScratch::MappedScratch(const std::filesystem::path& folder, ScratchUse use) {
  use.direct = false;  // mappings go through the page cache
  state_ = std::make_shared<State>(folder, use);
}

std::shared_ptr<std::byte> MappedScratch::take(size_t num_bytes) {
  const size_t whole = std::max(round_up(num_bytes, page_bytes()), page_bytes());
  uint64_t offset = 0;
  void* data = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    state_->file.grow(whole);
    offset = std::exchange(state_->file_bytes, state_->file_bytes + whole);
    data = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, state_->file.io().descriptor,
                  static_cast<off_t>(offset));
    if (data == MAP_FAILED) {
      const int code = errno;
      free_space(state_->file.io().descriptor, offset, whole);
      throw Error(concat("cannot map ", whole, " bytes of ", state_->file.io().path, ": ",
                         std::strerror(code)));
    }
    state_->regions.emplace(reinterpret_cast<uintptr_t>(data), State::Region{whole, offset});
  }
  const auto free = [state = state_, whole, offset](std::byte* begin) {
    const std::lock_guard lock(state->mutex);
    state->regions.erase(reinterpret_cast<uintptr_t>(begin));
    ::munmap(begin, whole);
    free_space(state->file.io().descriptor, offset, whole);
  };
  return {static_cast<std::byte*>(data), free};
}

void MappedScratch::will_need(const void* begin, size_t num_bytes) const {
  const State::Pages pages = state_->pages_of(begin, num_bytes);
  if (num_bytes == 0 || pages.num_bytes == 0) return;
  ::madvise(pages.begin, pages.num_bytes, MADV_WILLNEED);
}

void MappedScratch::let_go(const void* begin, size_t num_bytes) const {
  const State::Pages pages = state_->pages_of(begin, num_bytes);
  if (num_bytes == 0 || pages.num_bytes == 0) return;
  // A shared mapping's pages belong to the file, so that dropping them here loses nothing.
  ::madvise(pages.begin, pages.num_bytes, MADV_DONTNEED);
  // What is written now is clean, and so free to be taken, when memory is short.
  ::sync_file_range(state_->file.io().descriptor, static_cast<off64_t>(pages.offset),
                    static_cast<off64_t>(pages.num_bytes), SYNC_FILE_RANGE_WRITE);
}

}  // namespace trireme
