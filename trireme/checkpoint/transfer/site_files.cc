#include "trireme/checkpoint/transfer/site_files.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::checkpoint {

// All pairs of sites of one distance exchange at a time, so each leader sends to one site and
// receives from one, and no site has to serve all others at once. Both ends walk over the same list
// of blocks, which they know from the plan, so no message says what comes. That is also why a
// failure must not stop the walk: the other end would wait for blocks. It goes on with blocks of
// any content, and the error is thrown when all pairs are done.

namespace {

namespace fs = std::filesystem;

// Two of these are in memory: one that leaves and one that arrives.
constexpr uint64_t kBlockBytes = uint64_t{4} << 20;
// A slow disk at the other end does not mean a lost peer, and a lost peer is noticed anyway.
constexpr std::chrono::hours kPatience{1};

// Walks over the blocks of some files.
class Blocks {
 public:
  explicit Blocks(std::vector<const Transfer*> files) : files_(std::move(files)) {}

  struct Block {
    const Transfer* file = nullptr;
    uint64_t begin = 0;
    uint64_t num_bytes = 0;
  };
  std::optional<Block> next() {
    if (file_ == files_.size()) return std::nullopt;
    const Transfer* const file = files_[file_];
    // Files without bytes never reach this (between()).
    const Block block{file, begin_, std::min(kBlockBytes, file->num_bytes - begin_)};
    begin_ += block.num_bytes;
    if (begin_ == file->num_bytes) {
      ++file_;
      begin_ = 0;
    }
    return block;
  }

 private:
  std::vector<const Transfer*> files_;
  size_t file_ = 0;
  uint64_t begin_ = 0;
};

at::Tensor make_block(uint64_t num_bytes) {
  return at::empty({static_cast<int64_t>(num_bytes)}, at::TensorOptions().dtype(at::kByte));
}

// This leader's end of the transfers. A failure here must not leave the other end waiting: the
// remaining blocks are exchanged, without a disk.
class Endpoint {
 public:
  Endpoint(fs::path source, fs::path target)
      : source_(std::move(source)), target_(std::move(target)) {}

  at::Tensor read(const Blocks::Block& block) {
    at::Tensor bytes = make_block(block.num_bytes);
    attempt([&] {
      const fs::path path = source_ / block.file->file;
      // Opened once per file and not once per block.
      if (!input_ || input_->path() != path) input_.emplace(path);
      // Replaced since the plan was made. Its blocks would be at wrong places.
      if (input_->num_bytes() != block.file->num_bytes) {
        throw Error(concat(path.string(), " has ", input_->num_bytes(), " bytes, expected ",
                           block.file->num_bytes));
      }
      input_->read(block.begin, {static_cast<std::byte*>(bytes.mutable_data_ptr()),
                                 static_cast<size_t>(block.num_bytes)});
    });
    return bytes;
  }

  void write(const Blocks::Block& block, const at::Tensor& bytes) {
    attempt([&] {
      if (block.begin == 0) output_.emplace(target_ / block.file->file);
      output_->write(bytes.const_data_ptr(), bytes.nbytes());
      if (block.begin + block.num_bytes < block.file->num_bytes) return;
      output_->close();
      output_.reset();
    });
  }

  void throw_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  template <typename Action>
  void attempt(const Action& action) {
    if (failure_) return;
    try {
      action();
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
  }

  fs::path source_;
  fs::path target_;
  std::optional<InputFile> input_;
  std::optional<OutputFile> output_;
  std::exception_ptr failure_;
};

std::vector<const Transfer*> between(std::span<const Transfer> plan, int from, int to) {
  std::vector<const Transfer*> found;
  for (const Transfer& each : plan) {
    if (each.from == from && each.to == to && each.num_bytes > 0) found.push_back(&each);
  }
  return found;
}

// Sends to the site `distance` after this one while it receives from the one as far before.
void exchange(std::span<const Transfer> plan, int distance, const Sites& sites,
              comm::Communicator& lane, Endpoint& endpoint) {
  const int to = (sites.mine() + distance) % sites.size();
  const int from = (sites.mine() - distance + sites.size()) % sites.size();
  Blocks outgoing(between(plan, sites.mine(), to)), incoming(between(plan, from, sites.mine()));
  const comm::Options options{.timeout = kPatience, .background = true};
  for (;;) {
    const auto sent = outgoing.next(), received = incoming.next();
    if (!sent && !received) return;
    comm::WorkPtr sending, receiving;
    at::Tensor bytes;
    // Started before the receive is waited for. Two leaders that both sent first and waited would
    // block each other.
    if (sent) sending = lane.send(endpoint.read(*sent), sites.leader(to), options);
    if (received) {
      bytes = make_block(received->num_bytes);
      receiving = lane.recv(bytes, sites.leader(from), options);
    }
    if (sending) sending->wait();
    if (!receiving) continue;
    receiving->wait();
    endpoint.write(*received, bytes);
  }
}

}  // namespace

void transfer_files(std::span<const Transfer> plan, const fs::path& source, const fs::path& target,
                    const Sites& sites, comm::Communicator& group, comm::Communicator& lane,
                    const OnWait& on_wait) {
  if (plan.empty()) return;
  const auto exchange_all = [&](const Peers&) {
    if (!sites.leads()) return;
    Endpoint endpoint(source, target);
    for (int distance = 1; distance < sites.size(); ++distance)
      exchange(plan, distance, sites, lane, endpoint);
    endpoint.throw_failure();
  };
  run_or_throw(group, exchange_all, on_wait);
}

namespace fs = std::filesystem;

FileNames present_files(const Manifest& manifest, const fs::path& folder) {
  FileNames names;
  for (const FileRecord& file : manifest.files) {
    std::error_code missing;
    // Sizes only. The digests are compared when the bytes are used.
    if (fs::file_size(folder / file.name, missing) == file.num_bytes && !missing)
      names.insert(file.name);
  }
  return names;
}

std::string to_text(const FileNames& names) { return nlohmann::json(names).dump(); }

FileNames parse_names(const std::string& text) {
  return nlohmann::json::parse(text).get<FileNames>();
}

std::vector<FileNames> gather_by_site(const FileNames& mine, const Sites& sites,
                                      comm::Communicator& group, const OnWait& on_wait) {
  const auto texts = gather_or_throw(
      group, [&](const Peers&) { return to_text(mine); }, on_wait);
  std::vector<FileNames> result(sites.size());
  for (int rank = 0; rank < group.size(); ++rank)
    result[sites.of(rank)].merge(parse_names(texts[rank]));
  return result;
}

std::vector<FileNames> gather_present(const Manifest& manifest, const fs::path& folder,
                                      const Sites& sites, comm::Communicator& group,
                                      const OnWait& on_wait) {
  return gather_by_site(sites.leads() ? present_files(manifest, folder) : FileNames(), sites, group,
                        on_wait);
}

std::vector<Transfer> plan_transfers(const Manifest& manifest, const std::vector<FileNames>& wanted,
                                     const std::vector<FileNames>& present) {
  std::vector<Transfer> plan;
  for (size_t to = 0; to < wanted.size(); ++to) {
    for (const FileRecord& file : manifest.files) {
      if (!wanted[to].contains(file.name) || present[to].contains(file.name)) continue;
      // The first one. Sites that hold replicas are few, and their load is small.
      const auto from = std::ranges::find_if(
          present, [&](const FileNames& names) { return names.contains(file.name); });
      if (from == present.end()) {
        throw CheckpointError(concat("no host has the file ", file.name,
                                     " of the checkpoint of step ", manifest.step,
                                     "; use another checkpoint"));
      }
      plan.push_back({.file = file.name,
                      .num_bytes = file.num_bytes,
                      .from = static_cast<int>(from - present.begin()),
                      .to = static_cast<int>(to)});
    }
  }
  return plan;
}

}  // namespace trireme::checkpoint
