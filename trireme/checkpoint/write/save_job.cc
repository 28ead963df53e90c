#include "trireme/checkpoint/write/save_job.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/publish.h"
#include "trireme/checkpoint/transfer/site_files.h"
#include "trireme/checkpoint/write/link_shared.h"
#include "trireme/checkpoint/write/save_plan.h"
#include "trireme/checkpoint/write/site_commit.h"
#include "trireme/comm/objects.h"

namespace trireme::checkpoint {

// A save is cut where the training may go on. Before the cut it does what needs the tensors as they
// are: agree on who writes which box, ask which rows have changed, copy the bytes. After it, it
// hashes, compares replicas, refuses what must not be saved, and writes to one target after the
// other; all of that reads the copy. The order within the first half is forced. Which rows are
// copied depends on the files that can be linked, so the leaders link before the copy. All
// questions about changed rows come before the new marks, because a mark may make older ones
// unknown. Each step is collective and ends on all ranks alike. A folder under a temporary name
// therefore never has a writer left when it is removed.

namespace {

namespace fs = std::filesystem;

// The file of pieces whose changed rows may be stored later: they stay longer than the others'.
std::string rows_file(const std::string& own_file) {
  constexpr std::string_view kEnd = ".safetensors";
  // A file of its own: it is linked for many saves, while the others' chunks change with each.
  return own_file.substr(0, own_file.size() - kEnd.size()) + "-rows" + std::string(kEnd);
}

// A piece of this rank, whose bytes are those of `entry`.
OwnPiece piece_of(const Entry& entry, const mesh::Box& box) {
  const at::ScalarType dtype = entry.local.scalar_type();
  return {.name = entry.name,
          .dtype = dtype,
          .box = box,
          .chunk_bytes = cut_into_chunks(box, c10::elementSize(dtype)),
          .local = entry.local,
          .offloaded = entry.offloaded,
          .read_rows = entry.changes.read,
          .tells_changes = entry.changes.source != nullptr};
}

std::map<std::string, const Entry*> by_name(std::span<const Entry> entries) {
  std::map<std::string, const Entry*> held;
  for (const Entry& entry : entries) held[entry.name] = &entry;
  return held;
}

constexpr size_t kDigits = 32;  // of a digest's text
// Not hexadecimal, so it never equals a digest.
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
      // Offloaded, or not held by this rank.
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

}  // namespace

SaveJob::SaveJob(std::vector<SaveTarget> targets, int64_t step, std::span<const Entry> entries,
                 const std::string& state, comm::Communicator& world, SnapshotMemory* memory,
                 EarlierSaves& earlier)
    : targets_(std::move(targets)),
      step_(step),
      earlier_(earlier),
      save_(earlier.bases.next_save()),
      linked_(targets_.size()) {
  TRIREME_ASSERT(!targets_.empty(), "a save of step ", step, " to nowhere");
  const SaveOptions& options = targets_.front().options;
  const int rank = world.rank(), size = world.size();
  // Only the first target's options decide about the content.
  const auto describe_mine = [&](const Peers&) {
    if (step < 0 || step > kMaxStep)
      throw CheckpointError(
          concat("step ", step, " to save; expected a number from 0 to ", kMaxStep));
    // Every rank's state would be sent to all; rank 0's counts.
    return to_text(Manifest{
        .step = step, .state = rank == 0 ? state : "{}", .tensors = describe(entries, rank, size)});
  };
  const auto described = gather_or_throw(world, describe_mine, options.on_wait);
  // Before the copy: see take_rows().
  link_early(entries, world);
  const auto copy_mine = [&](const Peers&) {
    // Now, and not after an hour of training when the first chunk is compressed.
    if (options.compression == Compression::kZstd && !has_zstd()) compress({}, 1);  // throws
    Held held = held_at(step, described);
    state_ = std::move(held.state);
    plan_ = plan_save(held.by_rank);
    take_pieces(entries, shard_name(rank, size));
    std::vector<ReplicatedBox> compared;
    if (options.compare_replicas) compared = replicated_boxes(held.by_rank);
    take_rows(entries, compared);
    take_replicas(std::move(compared), entries, rank);
    if (memory != nullptr) copy_pieces(pieces_, *memory);
  };
  try {
    run_or_throw(world, copy_mine, options.on_wait);
  } catch (const CommError&) {
    throw;
  } catch (const Error&) {
    // Folders that were made early have no writer yet. Nobody would remove them.
    drop_folders(0, world);
    throw;
  }
}

SaveJob::SaveJob(SaveTarget target, int64_t step, std::map<std::string, TensorRecord> plan,
                 std::vector<OwnPiece> pieces, std::string state, EarlierSaves& earlier)
    : targets_{std::move(target)},
      step_(step),
      state_(std::move(state)),
      earlier_(earlier),
      save_(earlier.bases.next_save()),
      linked_(1),
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

std::string SaveJob::link(const SaveTarget& target) {
  prepare_temporary(target.root, step_, target.options.epoch);
  if (!target.options.incremental) return "";
  std::vector<fs::path> roots{target.root};
  roots.insert(roots.end(), target.options.shared_roots.begin(), target.options.shared_roots.end());
  return link_shared(roots, temporary_of(target), earlier_.whole);
}

// The changed rows are requested before the copy, so this must be known earlier.
void SaveJob::link_early(std::span<const Entry> entries, comm::Communicator& world) {
  const bool tells = std::ranges::any_of(
      entries, [](const Entry& entry) { return entry.changes.source != nullptr; });
  // Asked of all ranks, since linking is collective and only some may have such tensors.
  if (std::ranges::count(comm::all_gather_numbers(world, tells ? 1 : 0), 1) == 0) return;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const SaveTarget& target = targets_[i];
    if (!target.options.incremental) continue;
    const Sites sites = target.options.sites.value_or(Sites::shared(world));
    const auto try_to_link = [&](const Peers&) {
      try {
        return link(target);
      } catch (const std::exception&) {  // finish() meets it again, where errors of disks belong
        // It says too little here: in the background its error would come before that of the disk,
        // at another step.
        return std::string();
      }
    };
    linked_[i] = from_leader(sites, world, try_to_link, target.options.on_wait);
  }
}

// Chooses the pieces that store only changed rows, and records the moment for all. A box that
// several ranks hold is compared, so each must have the same bytes.
void SaveJob::take_rows(std::span<const Entry> entries, std::span<const ReplicatedBox> compared) {
  std::vector<Footing> footings;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const fs::path& root = targets_[i].root;
    const auto before = linked_[i].empty() ? std::nullopt : save_before(linked_[i], root);
    footings.push_back({before ? earlier_.bases.find(root, *before) : nullptr,
                        before ? linked_names(linked_[i]) : std::set<std::string>()});
  }
  const auto held = by_name(entries);
  for (OwnPiece& piece : pieces_) {
    const auto is_this = [&](const ReplicatedBox& box) {
      return box.name == piece.name && box.box == piece.box;
    };
    // Replicas are compared by the digest of the whole box, so all of it must be read.
    if (!piece.tells_changes || std::ranges::any_of(compared, is_this)) continue;
    auto rows = rows_to_patch(piece, held.at(piece.name)->changes, footings);
    if (rows) piece.take_rows(std::move(*rows));
  }
  // After all questions: a new mark may make old ones unknown.
  for (const OwnPiece& piece : pieces_) {
    const RowChanges& changes = held.at(piece.name)->changes;
    if (piece.tells_changes) marks_[piece.name] = {changes.source, changes.mark()};
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
        // This rank does not store the box, and must hash it while the tensors are as they are.
        replica.digest = digest_text(*entry, replica.box.box);
      } else {
        // Its chunks are hashed when it is stored.
        replica.piece = static_cast<size_t>(stored - pieces_.begin());
      }
    }
    replicas_.push_back(std::move(replica));
  }
}

// Refuses what must not be saved.
// Before anything is written to any target.
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
  // From here on errors are those of disks, which the caller may forgive.
  is_checked_ = true;
}

fs::path SaveJob::temporary_of(const SaveTarget& target) const {
  return temporary_folder(target.root, step_, target.options.epoch);
}

fs::path SaveJob::folder_of(const SaveTarget& target) const {
  return target.root / folder_name(step_, target.options.epoch);
}

fs::path SaveJob::folder() const { return folder_of(targets_.back()); }

void SaveJob::drop_folders(size_t first, const comm::Communicator& world) const {
  for (size_t i = first; i < targets_.size(); ++i) {
    const SaveTarget& target = targets_[i];
    // Without early links there is no folder yet.
    if (linked_[i].empty() || !target.options.sites.value_or(Sites::shared(world)).leads())
      continue;
    std::error_code ignored;
    fs::remove_all(temporary_of(target), ignored);
  }
}

void SaveJob::finish(comm::Communicator& group, comm::Communicator& lane) {
  size_t done = 0;
  try {
    check(group);
    int64_t num_bytes = 0;
    for (const auto& [name, record] : plan_) num_bytes += record.num_bytes();
    for (; done < targets_.size(); ++done) {
      const SaveTarget& target = targets_[done];
      const Sites sites = target.options.sites.value_or(Sites::shared(group));
      // A target that fails ends the save; those before it have the checkpoint.
      const auto work = [&] { write_and_commit(done, sites, group, lane); };
      clean_up_on_error({target.root, step_, target.options.epoch, num_bytes}, sites, group,
                        target.options.on_wait, work);
    }
  } catch (const CommError&) {
    throw;
  } catch (const Error&) {
    drop_folders(done, group);
    throw;
  }
}

// The linked files, and the pieces that row patches change.
SharedFiles SaveJob::shared_with(const fs::path& root, const std::string& linked) const {
  if (linked.empty()) return {};
  SharedFiles shared = shared_from(linked);
  for (const OwnPiece& piece : pieces_) {
    if (!piece.rows) continue;
    const PatchBases::Base* const base = earlier_.bases.find(root, *save_before(linked, root));
    auto before = piece_on(*base, piece.name, shared.files);
    // The files were linked when the rows were chosen. Somebody has removed them since.
    if (!before)
      throw Error(concat("cannot write ", root.string(), ": files of the checkpoint before, of \"",
                         piece.name, "\", have gone; the next save writes all"));
    shared.bases.emplace(piece.name, std::move(*before));
  }
  return shared;
}

// Its pieces, in two files: those whose changed rows may be stored later, and the others.
Manifest SaveJob::write_files(const fs::path& folder, const SharedFiles& shared,
                              const ShardOptions& options, const std::string& own_file,
                              const Peers& peers) const {
  std::vector<const OwnPiece*> plain, with_rows;
  for (const OwnPiece& piece : pieces_) (piece.tells_changes ? with_rows : plain).push_back(&piece);
  Manifest report = write_shard(folder / own_file, plain, shared, options, peers);
  if (with_rows.empty()) return report;
  return joined(std::move(report),
                write_shard(folder / rows_file(own_file), with_rows, shared, options, peers),
                shared.files.size());
}

void SaveJob::write_and_commit(size_t number, const Sites& sites, comm::Communicator& group,
                               comm::Communicator& lane) {
  const auto& [root, options] = targets_[number];
  const fs::path temporary = temporary_of(targets_[number]);
  // Links that were made before the copy are still in the folder.
  const auto prepare = [&, number](const Peers&) {
    return linked_[number].empty() ? link(targets_[number]) : linked_[number];
  };
  const std::string linked = from_leader(sites, group, prepare, options.on_wait);
  PatchBases::Base base{.save = save_, .marks = marks_};
  const auto write = [&, &root = root, &options = options](const Peers& peers) {
    const Manifest report =
        write_files(temporary, shared_with(root, linked), {options.compression, options.fsync},
                    shard_name(group.rank(), group.size()), peers);
    base.files = report.files;
    for (const auto& [name, mark] : marks_) base.tensors[name] = report.tensors.at(name);
    return to_text(report);
  };
  // All ranks have written and synced their files: the manifest may say so.
  const auto reports = gather_or_throw(group, write, options.on_wait);
  // It takes memory by the number of ranks, so ranks without use for it leave it out.
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
  // Only what is committed may be linked from.
  if (sites.leads()) earlier_.whole.add(folder_of(targets_[number]), save_);
  // Last: a save that failed must not become a footing.
  earlier_.bases.set(root, std::move(base));
}

}  // namespace trireme::checkpoint
