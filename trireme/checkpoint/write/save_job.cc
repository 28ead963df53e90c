#include "trireme/checkpoint/write/save_job.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/shown.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/replicas.h"
#include "trireme/checkpoint/write/chunk_index.h"
#include "trireme/checkpoint/write/publish.h"

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

// The tensors of each rank, from the ranks' descriptions.
std::vector<std::map<std::string, TensorRecord>> held_at(
    int64_t step, std::span<const std::string> descriptions) {
  std::vector<std::map<std::string, TensorRecord>> held_by;
  for (const std::string& text : descriptions) {
    Manifest held = parse_manifest(text, "a rank's description");
    if (held.step != step)
      throw CheckpointError(concat("ranks save different steps: ", step, " and ", held.step));
    held_by.push_back(std::move(held.tensors));
  }
  return held_by;
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

// One digest for each of the boxes, in text; kNoDigest where this rank has none, or an offloaded
// tensor.
std::string replica_digests(std::span<const ReplicatedBox> boxes, std::span<const Entry> entries,
                            const std::vector<OwnPiece>& own, int rank) {
  const auto held = by_name(entries);
  std::string text;
  for (const ReplicatedBox& replicated : boxes) {
    const Entry* const entry =
        std::ranges::count(replicated.holders, rank) > 0 ? held.at(replicated.name) : nullptr;
    if (entry == nullptr || entry->offloaded) {
      text += kNoDigest;
      continue;
    }
    const auto stored = std::ranges::find_if(own, [&](const OwnPiece& piece) {
      return piece.name == replicated.name && piece.box == replicated.box;
    });
    if (stored != own.end()) {
      text += to_text(digest_of(stored->digests));
    } else {
      std::vector<OwnPiece> replica{piece_of(*entry, replicated.box)};
      digest_pieces(replica);
      text += to_text(digest_of(replica[0].digests));
    }
  }
  return text;
}

// digests[r]: what replica_digests() gave on rank r.
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

// What the ranks wrote, as one manifest. Leaves out shared files that none uses.
Manifest complete_manifest(int64_t step, const std::string& state,
                           std::map<std::string, TensorRecord> plan,
                           std::span<const std::string> reports, size_t num_shared) {
  Manifest manifest{.step = step, .world_size = static_cast<int>(reports.size()), .state = state};
  std::map<std::string, size_t> numbers;  // of files in the manifest
  const auto number_of = [&](const FileRecord& file) {
    const auto [number, is_new] = numbers.emplace(file.name, manifest.files.size());
    if (is_new) manifest.files.push_back(file);
    return number->second;
  };
  using Place = std::pair<std::string, std::vector<int64_t>>;  // of a box: tensor and offset
  std::map<Place, std::vector<Chunk>> chunks;
  for (const std::string& text : reports) {
    Manifest report = parse_manifest(text, "a rank's report");
    for (size_t i = num_shared; i < report.files.size(); ++i) number_of(report.files[i]);
    for (auto& [name, record] : report.tensors) {
      Piece& piece = record.pieces.at(0);
      for (Chunk& chunk : piece.chunks) chunk.file = number_of(report.files.at(chunk.file));
      chunks[{name, piece.box.offset}] = std::move(piece.chunks);
    }
  }
  for (auto& [name, record] : plan) {
    for (Piece& piece : record.pieces) piece.chunks = chunks.at({name, piece.box.offset});
  }
  manifest.tensors = std::move(plan);
  return manifest;
}

// Advice for a save that lacked room or permission; "" when it failed for another reason.
std::string advice_for(const fs::path& root, const std::map<std::string, TensorRecord>& plan,
                       const std::string& reason) {
  const auto says = [&](int code) { return reason.find(std::strerror(code)) != std::string::npos; };
  if (says(EACCES) || says(EPERM) || says(EROFS)) {
    return concat(": let this user write in ", root.string(), ", or choose another folder");
  }
  if (!says(ENOSPC) && !says(EDQUOT) && !says(EFBIG)) return "";
  int64_t needed = 0;
  for (const auto& [name, record] : plan) needed += record.num_bytes();
  std::error_code code;
  const fs::space_info space = fs::space(root, code);
  return concat(": the checkpoint needs ", needed, " bytes in ", root.string(),
                code ? "" : concat(", which has ", space.available, " free"),
                "; make room there, or choose another folder");
}

// Links the files of the newest whole checkpoint of each root into `temporary`. Returns, as JSON,
// those checkpoints' folders and which of their files; what cannot be linked is written again.
std::string link_shared(std::span<const fs::path> roots, const fs::path& temporary,
                        WholeCheckpoints& whole) {
  nlohmann::json result = nlohmann::json::array();
  for (const fs::path& root : roots) {
    try {
      const auto newest = whole.newest(root);
      if (!newest) continue;
      const Manifest manifest = read_manifest(*newest);
      nlohmann::json files = nlohmann::json::array();
      for (const size_t file : shared_files(manifest)) {
        const FileRecord& record = manifest.files[file];
        std::error_code error;  // also when another root has linked it
        fs::create_hard_link(*newest / record.name, temporary / shared_name(record), error);
        if (!error) files.push_back(file);
      }
      if (!files.empty()) result.push_back({{"folder", newest->string()}, {"files", files}});
    } catch (const Error&) {  // not to be read: nothing of it is used
    }
  }
  return result.dump();
}

// The files that link_shared() has linked, as every rank finds them.
SharedFiles shared_from(const std::string& linked) {
  SharedFiles shared;
  const nlohmann::json parsed = nlohmann::json::parse(linked);
  for (const nlohmann::json& each : parsed) {
    const auto files = each.at("files").get<std::vector<size_t>>();
    const Manifest manifest = read_manifest(each.at("folder").get<std::string>());
    add_chunks(manifest, files, shared.files.size(), shared.chunks);
    for (const size_t file : files) {
      FileRecord record = manifest.files.at(file);
      record.name = shared_name(record);
      shared.files.push_back(std::move(record));
    }
  }
  return shared;
}

// Removes links that were not needed.
void remove_unlisted(const fs::path& folder, const Manifest& manifest) {
  for (const fs::directory_entry& item : fs::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    if (std::ranges::count(manifest.files, name, &FileRecord::name) == 0) fs::remove(item.path());
  }
}

}  // namespace

SaveJob::SaveJob(fs::path root, int64_t step, std::span<const Entry> entries,
                 const std::string& state, comm::Communicator& world, const SaveOptions& options,
                 SnapshotMemory* memory, WholeCheckpoints& whole)
    : root_(std::move(root)),
      step_(step),
      state_(world.rank() == 0 ? state : "{}"),
      options_(options),
      whole_(whole),
      temporary_(temporary_folder(root_, step)) {
  const int rank = world.rank(), size = world.size();
  const auto describe_mine = [&](const Peers&) {
    if (step < 0 || step > kMaxStep)
      throw CheckpointError(
          concat("step ", step, " to save; expected a number from 0 to ", kMaxStep));
    return to_text(
        Manifest{.step = step, .state = state_, .tensors = describe(entries, rank, size)});
  };
  const auto described = gather_or_throw(world, describe_mine, options.on_wait);
  std::vector<ReplicatedBox> replicated;
  const auto copy_mine = [&](const Peers&) {
    if (options.compression == Compression::kZstd && !has_zstd()) compress({}, 1);  // throws
    const auto held = held_at(step, described);
    plan_ = plan_save(held);
    take_pieces(entries, shard_name(rank, size));
    if (options.compare_replicas) replicated = replicated_boxes(held);
    if (memory != nullptr) {
      copy_pieces(pieces_, *memory);
    } else {
      digest_pieces(pieces_);
    }
    if (!options.allow_nonfinite) require_finite_pieces(pieces_);
    return replica_digests(replicated, entries, pieces_, rank);
  };
  const auto digests = gather_or_throw(world, copy_mine, options.on_wait);
  require_same_replicas(replicated, digests);
}

fs::path SaveJob::folder() const { return root_ / folder_name(step_); }

// The boxes that the plan gives to this rank's file.
void SaveJob::take_pieces(std::span<const Entry> entries, const std::string& own_file) {
  const auto held = by_name(entries);
  for (const auto& [name, record] : plan_) {
    for (const Piece& piece : record.pieces) {
      if (piece.file == own_file) pieces_.push_back(piece_of(*held.at(name), piece.box));
    }
  }
}

void SaveJob::finish(comm::Communicator& group) {
  try {
    write_and_commit(group);
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    // All ranks are here, and none is writing any more.
    const auto clean_up = [&](const Peers&) {
      std::error_code ignored;
      fs::remove_all(temporary_, ignored);
      return advice_for(root_, plan_, error.what());
    };
    const std::string advice = from_root(group, clean_up, options_.on_wait);
    if (advice.empty()) throw;
    throw ConfigError(error.what() + advice);
  }
}

void SaveJob::write_and_commit(comm::Communicator& group) {
  const auto prepare = [&](const Peers&) {
    make_folders(root_);
    remove_leftovers(root_);
    fs::create_directory(temporary_);
    if (!options_.incremental) return std::string();
    std::vector<fs::path> roots{root_};
    roots.insert(roots.end(), options_.shared_roots.begin(), options_.shared_roots.end());
    return link_shared(roots, temporary_, whole_);
  };
  const std::string linked = from_root(group, prepare, options_.on_wait);
  size_t num_shared = 0;
  const auto write = [&](const Peers& peers) {
    const SharedFiles shared = linked.empty() ? SharedFiles() : shared_from(linked);
    num_shared = shared.files.size();
    const fs::path path = temporary_ / shard_name(group.rank(), group.size());
    return to_text(
        write_shard(path, pieces_, shared, {options_.compression, options_.fsync}, peers));
  };
  const auto reports = gather_or_throw(group, write, options_.on_wait);
  const auto finish = [&](const Peers&) {
    if (group.rank() != 0) return;
    const Manifest manifest = complete_manifest(step_, state_, plan_, reports, num_shared);
    remove_unlisted(temporary_, manifest);
    commit(root_, temporary_, manifest, options_.fsync);
    whole_.add(folder());
    remove_old(root_, step_, options_);
  };
  run_or_throw(group, finish, options_.on_wait);
}

}  // namespace trireme::checkpoint::inline internal
