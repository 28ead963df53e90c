#include "trireme/base/file/read_ahead.h"

#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using Bytes = std::vector<std::byte>;

class ReadAhead : public ByteSource {
 public:
  ReadAhead(std::shared_ptr<const ByteSource> source, const ReadAheadOptions& options)
      : source_(std::move(source)), options_(options) {
    TRIREME_ASSERT(options.block_bytes > 0 && options.num_kept > options.num_ahead, "blocks of ",
                   options.block_bytes, " bytes, ", options.num_kept, " kept");
    options_.end = std::min(options_.end, source_->num_bytes());
    options_.begin = std::min(options_.begin, options_.end);
    const uint64_t size = options_.end - options_.begin;
    num_blocks_ = size / options_.block_bytes + (size % options_.block_bytes > 0 ? 1 : 0);
  }

  std::string name() const override { return source_->name(); }
  uint64_t num_bytes() const override { return source_->num_bytes(); }
  std::string version() const override { return source_->version(); }

  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset < options_.begin || offset > options_.end || out.size() > options_.end - offset) {
      return source_->read(offset, out);
    }
    while (!out.empty()) {
      const uint64_t index = (offset - options_.begin) / options_.block_bytes;
      const uint64_t skip = (offset - options_.begin) % options_.block_bytes;
      const std::shared_ptr<const Bytes> bytes = block(index);
      const size_t count = std::min<uint64_t>(out.size(), bytes->size() - skip);
      std::ranges::copy(std::span(*bytes).subspan(skip, count), out.begin());
      out = out.subspan(count);
      offset += count;
    }
  }

 private:
  struct Block {
    std::shared_future<std::shared_ptr<const Bytes>> bytes{};
    uint64_t used = 0;  // when, by clock_
  };

  std::shared_ptr<const Bytes> block(uint64_t index) const {
    std::shared_future<std::shared_ptr<const Bytes>> wanted;
    std::vector<Block> old;  // let go without the lock: it waits for one that is under way
    {
      const std::lock_guard lock(mutex_);
      const bool follows = index == 0 || blocks_.contains(index - 1);
      wanted = fetch(index);
      for (size_t i = 1; follows && i <= options_.num_ahead && index + i < num_blocks_; ++i) {
        fetch(index + i);
      }
      while (blocks_.size() > options_.num_kept) {
        const auto oldest = std::ranges::min_element(
            blocks_, {}, [](const auto& entry) { return entry.second.used; });
        old.push_back(std::move(oldest->second));
        blocks_.erase(oldest);
      }
    }
    try {
      return wanted.get();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      const auto failed = blocks_.find(index);
      if (failed != blocks_.end()) {  // so that the next read tries again
        old.push_back(std::move(failed->second));
        blocks_.erase(failed);
      }
      throw;
    }
  }

  // Under the lock.
  std::shared_future<std::shared_ptr<const Bytes>> fetch(uint64_t index) const {
    Block& block = blocks_[index];
    block.used = ++clock_;
    if (!block.bytes.valid()) {
      block.bytes = std::async(std::launch::async, [this, index] { return read_block(index); });
    }
    return block.bytes;
  }

  std::shared_ptr<const Bytes> read_block(uint64_t index) const {
    const uint64_t begin = options_.begin + index * options_.block_bytes;
    auto bytes = std::make_shared<Bytes>(std::min(options_.block_bytes, options_.end - begin));
    source_->read(begin, *bytes);
    return bytes;
  }

  std::shared_ptr<const ByteSource> source_;
  ReadAheadOptions options_;
  uint64_t num_blocks_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<uint64_t, Block> blocks_;
  mutable uint64_t clock_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> read_ahead(std::shared_ptr<const ByteSource> source,
                                       const ReadAheadOptions& options) {
  return std::make_unique<ReadAhead>(std::move(source), options);
}

}  // namespace trireme
