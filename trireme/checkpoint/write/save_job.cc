#include "trireme/checkpoint/write/save_job.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/shown.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/publish.h"
#include "trireme/checkpoint/replicas.h"
#include "trireme/checkpoint/transfer/site_files.h"
#include "trireme/checkpoint/transfer/transfer_files.h"
#include "trireme/checkpoint/write/link_shared.h"
#include "trireme/checkpoint/write/site_commit.h"

namespace trireme::checkpoint::inline internal {
namespace {

namespace fs = std::filesystem;

void add_axes(const std::string& name, const mesh::Layout& layout, TensorRecord& record) {
  if (layout.outer() != nullptr) add_axes(name, *layout.outer(), record);  // it splits first
  for (const mesh::Placement& placement : layout.placements()) {
    if (placement.kind == mesh::Placement::Kind::kPartial)
      throw CheckpointError(concat("\"", name, "\" is a partial sum: reduce it first"));
    record.placements.push_back(placement);
  }
  record.axes.insert(record.axes.end(), layout.axes().begin(), layout.axes().end());
}

// This rank's entries in the form that plan_save() takes.
std::map<std::string, TensorRecord> describe(std::span<const Entry> entries, int world_rank,
                                             int world_size) {
  std::map<std::string, TensorRecord> held;
  for (const Entry& entry : entries) {
    TensorRecord record{.dtype = entry.local.scalar_type(), .shape = entry.layout.whole_shape()};
    bool is_first_replica = true;
    add_axes(entry.name, entry.layout, record);
    for (const mesh::Layout* layout = &entry.layout; layout != nullptr; layout = layout->outer()) {
      const mesh::Layout* outer = layout->outer();
      const int rank = layout->outer_rank();
      is_first_replica &= outer == nullptr || outer->owner(rank) == rank;
    }
    mesh::Box box = entry.box(world_rank, world_size);
    record.pieces.push_back({.box = box});
    if (!is_first_replica) {  // another rank saves it; this one has a replica
      box.size.assign(box.size.size(), 0);
      record.pieces.insert(record.pieces.begin(), {.box = std::move(box)});
    }
    if (!is_printable(entry.name))
      throw CheckpointError(concat("the name \"", shown(entry.name),
                                   "\" is too long or has control characters; expected at most ",
                                   kMaxWordBytes, " bytes"));
    if (!held.emplace(entry.name, std::move(record)).second)
      throw CheckpointError(concat("\"", entry.name, "\" is listed twice"));
  }
  return held;
}

// The tensors of each rank, from the ranks' descriptions, and rank 0's state.
struct Held {
  std::vector<std::map<std::string, TensorRecord>> by_rank;
  std::string state;
};
Held held_at(int64_t step, std::span<const std::string> descriptions) {
  Held all;
  for (const std::string& text : descriptions) {
    Manifest held = parse_manifest(text, "a rank's description");
    if (held.step != step)
      throw CheckpointError(concat("ranks save different steps: ", step, " and ", held.step));
    if (all.by_rank.empty()) all.state = held.state;
    all.by_rank.push_back(std::move(held.tensors));
  }
  return all;
}

// A piece of this rank, whose bytes are those of `entry`.
OwnPiece piece_of(const Entry& entry, const mesh::Box& box) {
  const at::ScalarType dtype = entry.local.scalar_type();
  return {.name = entry.name,
          .dtype = dtype,
          .box = box,
          .chunk_bytes = cut_into_chunks(box, c10::elementSize(dtype)),
          .local = entry.local,
          .offloaded = entry.offloaded};
}

std::map<std::string, const Entry*> by_name(std::span<const Entry> entries) {
  std::map<std::string, const Entry*> held;
  for (const Entry& entry : entries) held[entry.name] = &entry;
  return held;
}

constexpr size_t kDigits = 32;  // of a digest's text
const std::string kNoDigest(kDigits, '.');

// The digest of an entry's box, in text.
std::string digest_text(const Entry& entry, const mesh::Box& box) {
  std::vector<OwnPiece> replica{piece_of(entry, box)};
  scan_pieces(replica, Scan::kDigests);
  return to_text(digest_of(replica[0].digests));
}

// digests[r]: those of rank r, one after the other.
void require_same_replicas(std::span<const ReplicatedBox> boxes,
                           std::span<const std::string> digests) {
  for (size_t i = 0; i < boxes.size(); ++i) {
    std::vector<int> ranks;
    std::vector<std::string_view> found;
    for (const int rank : boxes[i].holders) {
      const auto digest = std::string_view(digests[rank]).substr(i * kDigits, kDigits);
      if (digest == kNoDigest) continue;
      ranks.push_back(rank);
      found.push_back(digest);
    }
    std::vector<int> differing;
    for (const size_t place : minority(found)) differing.push_back(ranks[place]);
    if (!differing.empty())
      throw Error("the checkpoint is refused: " +
                  replicas_differ(boxes[i].name, differing, ranks.size()));
  }
}

// What the ranks wrote, as one manifest, and which files the ranks of each site use. Leaves out
// shared files that none uses.
struct Written {
  Manifest manifest;
  std::vector<FileNames> used;  // by site
};
Written complete_manifest(int64_t step, const std::string& state,
                          std::map<std::string, TensorRecord> plan,
                          std::span<const std::string> reports, const Sites& sites) {
  const int size = static_cast<int>(reports.size());
  Written written{{.step = step, .world_size = size, .state = state},
                  std::vector<FileNames>(sites.size())};
  Manifest& manifest = written.manifest;
  std::map<std::string, size_t> numbers;  // of files in the manifest
  const auto number_of = [&](const FileRecord& file) {
    const auto [number, is_new] = numbers.emplace(file.name, manifest.files.size());
    if (is_new) manifest.files.push_back(file);
    return number->second;
  };
  using Place = std::pair<std::string, std::vector<int64_t>>;  // of a box: tensor and offset
  std::map<Place, std::vector<Chunk>> chunks;
  for (int rank = 0; rank < size; ++rank) {
    Manifest report = parse_manifest(reports[rank], "a rank's report");
    FileNames& used = written.used[sites.of(rank)];
    for (auto& [name, record] : report.tensors) {
      Piece& piece = record.pieces.at(0);
      for (Chunk& chunk : piece.chunks) {
        const FileRecord& file = report.files.at(chunk.file);
        used.insert(file.name);
        chunk.file = number_of(file);
      }
      chunks[{name, piece.box.offset}] = std::move(piece.chunks);
    }
  }
  for (auto& [name, record] : plan) {
    for (Piece& piece : record.pieces) piece.chunks = chunks.at({name, piece.box.offset});
  }
  manifest.tensors = std::move(plan);
  return written;
}

// Adds to what each site wants what the `replicas` sites before it use.
std::vector<FileNames> with_replicas(const std::vector<FileNames>& used, int replicas) {
  std::vector<FileNames> wanted = used;
  for (size_t site = 0; site < used.size(); ++site) {
    for (int distance = 1; distance <= replicas; ++distance) {
      const FileNames& names = used[(site + used.size() - distance % used.size()) % used.size()];
      wanted[site].insert(names.begin(), names.end());
    }
  }
  return wanted;
}

}  // namespace

SaveJob::SaveJob(std::vector<SaveTarget> targets, int64_t step, std::span<const Entry> entries,
                 const std::string& state, comm::Communicator& world, SnapshotMemory* memory,
                 WholeCheckpoints& whole)
    : targets_(std::move(targets)), step_(step), whole_(whole) {
  TRIREME_ASSERT(!targets_.empty(), "a save of step ", step, " to nowhere");
  const SaveOptions& options = targets_.front().options;
  const int rank = world.rank(), size = world.size();
  const auto describe_mine = [&](const Peers&) {
    if (step < 0 || step > kMaxStep)
      throw CheckpointError(
          concat("step ", step, " to save; expected a number from 0 to ", kMaxStep));
    return to_text(Manifest{
        .step = step, .state = rank == 0 ? state : "{}", .tensors = describe(entries, rank, size)});
  };
  const auto described = gather_or_throw(world, describe_mine, options.on_wait);
  const auto copy_mine = [&](const Peers&) {
    if (options.compression == Compression::kZstd && !has_zstd()) compress({}, 1);  // throws
    Held held = held_at(step, described);
    state_ = std::move(held.state);
    plan_ = plan_save(held.by_rank);
    take_pieces(entries, shard_name(rank, size));
    if (options.compare_replicas) take_replicas(replicated_boxes(held.by_rank), entries, rank);
    if (memory != nullptr) copy_pieces(pieces_, *memory);
  };
  run_or_throw(world, copy_mine, options.on_wait);
}

SaveJob::SaveJob(SaveTarget target, int64_t step, std::map<std::string, TensorRecord> plan,
                 std::vector<OwnPiece> pieces, std::string state, WholeCheckpoints& whole)
    : targets_{std::move(target)},
      step_(step),
      state_(std::move(state)),
      whole_(whole),
      plan_(std::move(plan)),
      pieces_(std::move(pieces)) {}

// The boxes that the plan gives to this rank's file.
void SaveJob::take_pieces(std::span<const Entry> entries, const std::string& own_file) {
  const auto held = by_name(entries);
  for (const auto& [name, record] : plan_) {
    for (const Piece& piece : record.pieces) {
      if (piece.file == own_file) pieces_.push_back(piece_of(*held.at(name), piece.box));
    }
  }
}

// The boxes that several ranks hold, and the digests of those that this one does not store.
void SaveJob::take_replicas(std::vector<ReplicatedBox> boxes, std::span<const Entry> entries,
                            int rank) {
  const auto held = by_name(entries);
  for (ReplicatedBox& box : boxes) {
    Replica replica{.box = std::move(box), .digest = kNoDigest};
    const bool is_held = std::ranges::count(replica.box.holders, rank) > 0;
    const Entry* const entry = is_held ? held.at(replica.box.name) : nullptr;
    if (entry != nullptr && !entry->offloaded) {
      const auto stored = std::ranges::find_if(pieces_, [&](const OwnPiece& piece) {
        return piece.name == replica.box.name && piece.box == replica.box.box;
      });
      if (stored == pieces_.end()) {
        replica.digest = digest_text(*entry, replica.box.box);
      } else {
        replica.piece = static_cast<size_t>(stored - pieces_.begin());
      }
    }
    replicas_.push_back(std::move(replica));
  }
}

// Refuses what must not be saved.
void SaveJob::check(comm::Communicator& group) {
  const SaveOptions& options = targets_.front().options;
  const auto scan = [&](const Peers&) {
    scan_pieces(pieces_, options.allow_nonfinite ? Scan::kDigests : Scan::kDigestsAndNonfinite);
    require_finite_pieces(pieces_);
    std::string digests;
    for (const Replica& replica : replicas_) {
      digests +=
          replica.piece ? to_text(digest_of(pieces_[*replica.piece].digests)) : replica.digest;
    }
    return digests;
  };
  const auto digests = gather_or_throw(group, scan, options.on_wait);
  std::vector<ReplicatedBox> boxes;
  for (const Replica& replica : replicas_) boxes.push_back(replica.box);
  require_same_replicas(boxes, digests);
  is_checked_ = true;
}

fs::path SaveJob::folder() const { return targets_.back().root / folder_name(step_); }

void SaveJob::finish(comm::Communicator& group, comm::Communicator& lane) {
  check(group);
  int64_t num_bytes = 0;
  for (const auto& [name, record] : plan_) num_bytes += record.num_bytes();
  for (const SaveTarget& target : targets_) {
    const Sites sites = target.options.sites.value_or(Sites::shared(group));
    const auto work = [&] { write_and_commit(target, sites, group, lane); };
    clean_up_on_error({target.root, step_, num_bytes}, sites, group, target.options.on_wait, work);
  }
}

void SaveJob::write_and_commit(const SaveTarget& target, const Sites& sites,
                               comm::Communicator& group, comm::Communicator& lane) {
  const auto& [root, options] = target;
  const fs::path temporary = temporary_folder(root, step_);
  const auto prepare = [&](const Peers&) {
    prepare_temporary(root, step_);
    if (!options.incremental) return std::string();
    std::vector<fs::path> roots{root};
    roots.insert(roots.end(), options.shared_roots.begin(), options.shared_roots.end());
    return link_shared(roots, temporary, whole_);
  };
  const std::string linked = from_leader(sites, group, prepare, options.on_wait);
  const auto write = [&](const Peers& peers) {
    const SharedFiles shared = linked.empty() ? SharedFiles() : shared_from(linked);
    const fs::path path = temporary / shard_name(group.rank(), group.size());
    return to_text(write_shard(path, pieces_, shared, {options.compression, options.fsync}, peers));
  };
  const auto reports = gather_or_throw(group, write, options.on_wait);
  // Only leaders commit it, but all ranks agree on what travels.
  const bool needs_manifest = sites.leads() || options.replicas > 0;
  const auto [manifest, used] = needs_manifest
                                    ? complete_manifest(step_, state_, plan_, reports, sites)
                                    : Written{{}, std::vector<FileNames>(sites.size())};
  const auto wanted = with_replicas(used, options.replicas);
  if (options.replicas > 0) {
    const auto present = gather_present(manifest, temporary, sites, group, options.on_wait);
    transfer_files(plan_transfers(manifest, wanted, present), temporary, temporary, sites, group,
                   lane, options.on_wait);
  }
  commit_at_sites(root, manifest, wanted, sites, options, group);
  if (sites.leads()) whole_.add(root / folder_name(step_));
}

}  // namespace trireme::checkpoint::inline internal
