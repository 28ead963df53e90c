// Length: the format, its reader and its checks, which change together.
#include "trireme/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <c10/util/ArrayRef.h>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::checkpoint {

// A manifest is written by to_text() and read in three steps, from cheap to expensive, so that
// nothing is built from bytes that a step before would have refused. The first line has the
// checksum of all others and is compared as text, before any parsing: a changed bit is damage, and
// JSON's own complaint about it would mislead. Then the bounded reader builds values by type and
// range. check_pieces() comes last and checks what no checksum can tell, because a manifest with a
// right checksum may still be hostile or written by a bug: files inside the folder, chunks inside
// their files, and boxes that hold every element once. commit() runs the same checks before a
// checkpoint gets its name. A save that readers would refuse must fail while the old checkpoint is
// still there.

namespace {

using nlohmann::json;

constexpr const char* kFormatName = "trireme-checkpoint";
// The first line of the text. Between the two are the digits of the checksum of all bytes after it.
constexpr std::string_view kFirstLineBegin = "{\"checksum\": \"";
constexpr std::string_view kFirstLineEnd = "\",\n";
constexpr size_t kChecksumDigits = 16;
// Fixed, so the checksum is found without parsing.
constexpr size_t kFirstLineBytes = kFirstLineBegin.size() + kChecksumDigits + kFirstLineEnd.size();

// A thousand times any real world; it bounds products of numbers in a manifest.
constexpr int64_t kMaxWorldSize = 1 << 20;
// Limit for the pieces of all tensors; they take seconds to sort. Our layouts give a piece two or
// four.
constexpr size_t kMaxAllCorners = size_t{1} << 26;
constexpr size_t kMaxPlacementBytes = size_t{32} << 20;  // every rank may have its own cut
constexpr size_t kMaxManifestBytes = size_t{1} << 30;
constexpr JsonLimits kLimits{.max_bytes = kMaxManifestBytes, .max_values = size_t{64} << 20};

json to_json(const std::vector<Chunk>& chunks) {
  json texts = json::array();
  for (const Chunk& chunk : chunks) texts.push_back(to_text(chunk));
  return texts;
}

json to_json(const Piece& piece) {
  json object = {
      {"offset", piece.box.offset}, {"size", piece.box.size}, {"chunks", to_json(piece.chunks)}};
  // Patches are left out when there are none: the text is then one that version 2 reads.
  for (const Patch& patch : piece.patches) {
    object["patches"].push_back({{"rows", to_json(patch.rows)}, {"values", to_json(patch.values)}});
  }
  return object;
}

json to_json(const TensorRecord& record) {
  json axes = json::array();
  for (const mesh::Axis& axis : record.axes)
    axes.push_back({{"name", axis.name}, {"size", axis.size}});
  json placements = json::array();
  for (const mesh::Placement& placement : record.placements)
    placements.push_back(mesh::to_string(placement));
  json pieces = json::array();
  for (const Piece& piece : record.pieces) pieces.push_back(to_json(piece));
  return {{"dtype", dtype_name(record.dtype)},
          {"shape", record.shape},
          {"axes", axes},
          {"placements", placements},
          {"pieces", pieces}};
}

// A checksum. Empty in what ranks exchange before they write.
std::string digits(const JsonView& value) {
  const std::string& text = value.text();
  const bool is_hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  // Ranks exchange the same form before a file's header is known.
  if (!text.empty() && (text.size() != kChecksumDigits || !is_hex))
    value.fail(concat(kChecksumDigits, " hexadecimal digits"));
  return text;
}

std::vector<Chunk> parse_chunks(const JsonView& value) {
  std::vector<Chunk> chunks;
  for (const JsonView& text : value.elements()) {
    const std::optional<Chunk> chunk = parse_chunk(text.text());
    if (!chunk) text.fail("\"FILE BEGIN STORED BYTES CODEC DIGEST\"");
    chunks.push_back(*chunk);
  }
  return chunks;
}

// Version 1 had one entry of a file for each piece.
Piece parse_piece(const JsonView& value, int64_t version) {
  Piece piece{.box = {value.at("offset").integers(0), value.at("size").integers(0)}};
  if (version == 1) {
    piece.file = value.at("file").word();
    piece.checksum = digits(value.at("checksum"));
    return piece;
  }
  piece.chunks = parse_chunks(value.at("chunks"));
  const auto patches = version > kVersionWithoutPatches ? value.find("patches") : std::nullopt;
  if (!patches) return piece;
  for (const JsonView& patch : patches->elements()) {
    piece.patches.push_back({parse_chunks(patch.at("rows")), parse_chunks(patch.at("values"))});
  }
  return piece;
}

TensorRecord parse_record(const JsonView& value, int64_t version) {
  TensorRecord record;
  record.dtype = parse_dtype(value.at("dtype").word());
  record.shape = value.at("shape").integers(0);
  for (const JsonView& axis : value.at("axes").elements()) {
    const int64_t size = axis.at("size").integer(1, kMaxWorldSize);
    record.axes.push_back({axis.at("name").word(), static_cast<int>(size)});
  }
  for (const JsonView& placement : value.at("placements").elements())
    // A list of cuts may be longer than any other word: one number for each rank.
    record.placements.push_back(mesh::parse_placement(placement.word(kMaxPlacementBytes)));
  for (const JsonView& piece : value.at("pieces").elements())
    record.pieces.push_back(parse_piece(piece, version));
  return record;
}

Manifest parse_body(const JsonView& body, int64_t version) {
  Manifest manifest{.format_version = version};
  manifest.step = body.at("step").integer(0, kMaxStep);
  manifest.world_size = static_cast<int>(body.at("world_size").integer(1, kMaxWorldSize));
  // Kept as text. The caller's JSON is the caller's to understand.
  manifest.state = body.at("state").value().dump();
  for (const auto& [name, value] : body.at("tensors").members())
    manifest.tensors.emplace(name, parse_record(value, version));
  for (const JsonView& file : body.at("files").elements()) {
    manifest.files.push_back({.name = file.at("name").word(),
                              .num_bytes = static_cast<uint64_t>(file.at("bytes").integer(0)),
                              .header_checksum = digits(file.at("header_checksum"))});
  }
  return manifest;
}

std::string checksum_of(std::string_view text) {
  return checksum(std::as_bytes(std::span(text.data(), text.size())));
}

std::set<std::string> check_files(const Manifest& manifest, const std::filesystem::path& where) {
  std::set<std::string> names;
  for (const FileRecord& file : manifest.files) {
    if (!is_plain_name(file.name))
      fail(where, "the file name ", in_quotes(file.name),
           " is not one that a checkpoint uses; expected ", kPlainName);
    // Two records of one file could disagree about its size.
    if (!names.insert(file.name).second)
      fail(where, "lists the file ", in_quotes(file.name), " twice");
  }
  return names;
}

std::vector<mesh::Box> boxes_of(const TensorRecord& record) {
  std::vector<mesh::Box> boxes;
  for (const Piece& piece : record.pieces) boxes.push_back(piece.box);
  return boxes;
}

// Format 1: a box is the entry of one file.
void check_entries(const std::string& title, const TensorRecord& record,
                   const std::set<std::string>& files, const std::filesystem::path& where) {
  std::set<std::string> used;
  // A set and not a search in the list: every piece asks.
  for (const Piece& piece : record.pieces) {
    if (!files.contains(piece.file))
      fail(where, "a piece of ", title, " is in ", in_quotes(piece.file), ", which is not listed");
    // A file has one entry per name, so two pieces in it would be the same bytes.
    if (!used.insert(piece.file).second)
      fail(where, title, " has two pieces in the file ", in_quotes(piece.file));
  }
}

void check_chunk(const std::string& title, const Chunk& chunk, const Manifest& manifest,
                 const std::filesystem::path& where) {
  if (chunk.file >= manifest.files.size())
    fail(where, "a chunk of ", title, " is in file ", chunk.file, " of ", manifest.files.size());
  const FileRecord& file = manifest.files[chunk.file];
  // Subtracting, because the sum of two numbers from the file may overflow.
  if (chunk.stored_bytes > file.num_bytes || chunk.begin > file.num_bytes - chunk.stored_bytes)
    fail(where, "a chunk of ", title, " has ", chunk.stored_bytes, " bytes at ", chunk.begin,
         " of ", in_quotes(file.name), ", which has ", file.num_bytes);
  // A chunk is memory, and its size is the file's claim.
  if (chunk.num_bytes == 0 || chunk.num_bytes > kChunkBytes)
    fail(where, "a chunk of ", title, " has ", chunk.num_bytes, " bytes, expected 1 to ",
         kChunkBytes);
  if (chunk.codec == Codec::kRaw && chunk.stored_bytes != chunk.num_bytes)
    fail(where, "a chunk of ", title, " has ", chunk.num_bytes, " bytes stored in ",
         chunk.stored_bytes, " without compression");
}

void check_chunks(const std::string& title, const TensorRecord& record, const Manifest& manifest,
                  const std::filesystem::path& where) {
  for (const Piece& piece : record.pieces) {
    uint64_t left = static_cast<uint64_t>(piece.box.numel()) * c10::elementSize(record.dtype);
    for (const Chunk& chunk : piece.chunks) {
      check_chunk(title, chunk, manifest, where);
      // Chunks are used one by one, each as whole elements of the tensor.
      if (chunk.num_bytes % c10::elementSize(record.dtype) != 0)
        fail(where, "a chunk of ", title, " has ", chunk.num_bytes, " bytes, not whole elements");
      if (chunk.num_bytes > left)
        fail(where, "a piece of ", title, " has more bytes in chunks than elements for them");
      left -= chunk.num_bytes;
    }
    if (left > 0)
      fail(where, "a piece of ", title, " lacks chunks for the last ", left, " of its bytes");
  }
}

void check_patches(const std::string& title, const TensorRecord& record, const Manifest& manifest,
                   const std::filesystem::path& where) {
  for (const Piece& piece : record.pieces) {
    if (piece.patches.size() > kMaxPatches)
      fail(where, "a piece of ", title, " has ", piece.patches.size(),
           " patches, expected at most ", kMaxPatches);
    const uint64_t row_bytes = row_bytes_of(piece.box, c10::elementSize(record.dtype));
    // A box without dimensions has no rows.
    int64_t rows_left = piece.box.size.empty() ? 0 : piece.box.size[0];
    for (const Patch& patch : piece.patches) {
      for (const Chunk& chunk : patch.rows) check_chunk(title, chunk, manifest, where);
      for (const Chunk& chunk : patch.values) check_chunk(title, chunk, manifest, where);
      if (const std::string error = patch_error(patch, row_bytes, rows_left); !error.empty())
        fail(where, "a patch of ", title, " ", error);
      // Together: each patch alone would fit, and all of them not.
      rows_left -= patch.num_rows();
    }
  }
}

bool has_patches(const Manifest& manifest) {
  return std::ranges::any_of(manifest.tensors, [](const auto& tensor) {
    return std::ranges::any_of(tensor.second.pieces,
                               [](const Piece& piece) { return !piece.patches.empty(); });
  });
}

void check_record(const std::string& name, const TensorRecord& record, const Manifest& manifest,
                  const std::set<std::string>& files, const std::filesystem::path& where) {
  const std::string title = "tensor " + in_quotes(name);
  if (!is_printable(name)) fail(where, title, ": its name is too long or has control characters");
  if (!num_bytes_of(record.shape, c10::elementSize(record.dtype)))
    fail(where, title, " has the shape ", shown_shape(record.shape), " of ",
         dtype_name(record.dtype), ", expected at most ", kMaxDims,
         " dimensions and 2^63 - 1 bytes");
  if (record.axes.size() != record.placements.size())
    fail(where, title, " has ", record.axes.size(), " axes and ", record.placements.size(),
         " placements, expected one for each");
  // Before chunks: a box that reaches outside the tensor would make their sizes meaningless.
  if (const std::string error = cover_error(record.shape, boxes_of(record)); !error.empty())
    fail(where, title, ": ", error);
  if (manifest.format_version == 1) {
    check_entries(title, record, files, where);
  } else {
    check_chunks(title, record, manifest, where);
    check_patches(title, record, manifest, where);
  }
}

constexpr std::string_view kEpochMark = "-epoch-";

// The number at the beginning of `text`, which loses it.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// Step and epoch.
std::optional<std::pair<int64_t, int64_t>> parse_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const auto step = take_number(name);
  if (!step || *step > kMaxStep) return std::nullopt;
  if (name.empty()) return std::pair(*step, int64_t{1});
  if (!name.starts_with(kEpochMark)) return std::nullopt;
  name.remove_prefix(kEpochMark.size());
  const auto epoch = take_number(name);
  // An epoch of 1 has no mark, or one checkpoint would have two names.
  if (!epoch || *epoch < 2 || !name.empty()) return std::nullopt;
  return std::pair(*step, *epoch);
}

// A renamed folder would be resumed as another step.
void check_name(const std::filesystem::path& folder, int64_t step,
                const std::filesystem::path& where) {
  // absolute(): the folder may be "." or end in a slash.
  std::filesystem::path whole = std::filesystem::absolute(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  const int64_t named = step_of(whole.filename().string());
  if (named >= 0 && named != step)
    fail(where, "the checkpoint of step ", step, " lies in a folder named ",
         whole.filename().string(), "; rename it to ", folder_name(step));
}

}  // namespace

std::string folder_name(int64_t step, int64_t epoch) {
  char name[32];
  std::snprintf(name, sizeof(name), "step-%06lld", static_cast<long long>(step));
  return epoch > 1 ? concat(name, kEpochMark, epoch) : name;
}

int64_t step_of(const std::string& name) {
  const auto named = parse_name(name);
  return named ? named->first : -1;
}

int64_t epoch_of(const std::string& name) {
  const auto named = parse_name(name);
  return named ? named->second : -1;
}

int64_t TensorRecord::num_elements() const {
  int64_t product = 1;
  for (int64_t length : shape) product *= length;
  return product;
}

int64_t TensorRecord::num_bytes() const {
  return num_elements() * static_cast<int64_t>(c10::elementSize(dtype));
}

std::string to_text(const Manifest& manifest) {
  // The caller's state is embedded, so text that is no JSON would break the whole.
  const json state = json::parse(manifest.state, nullptr, false);
  if (state.is_discarded()) throw CheckpointError("the state to save is not valid JSON");
  // Older programs read the smallest version that says all.
  const int64_t version = has_patches(manifest) ? kFormatVersion : kVersionWithoutPatches;
  json body = {{"format", kFormatName}, {"format_version", version},
               {"step", manifest.step}, {"world_size", manifest.world_size},
               {"state", state},        {"tensors", json::object()},
               {"files", json::array()}};
  for (const auto& [name, record] : manifest.tensors) body["tensors"][name] = to_json(record);
  for (const FileRecord& file : manifest.files) {
    body["files"].push_back({{"name", file.name},
                             {"bytes", file.num_bytes},
                             {"header_checksum", file.header_checksum}});
  }
  try {
    const std::string rest = body.dump(1).substr(2) + "\n";  // without the opening "{\n"
    return concat(kFirstLineBegin, checksum_of(rest), kFirstLineEnd, rest);
  } catch (const json::exception&) {
    throw CheckpointError("a tensor's name is not UTF-8");
  }
}

Manifest parse_manifest(const std::string& text, const std::filesystem::path& where) {
  const std::string_view view = text;
  if (view.size() < kFirstLineBytes || !view.starts_with(kFirstLineBegin) ||
      view.substr(kFirstLineBytes - kFirstLineEnd.size(), kFirstLineEnd.size()) != kFirstLineEnd)
    fail(where, "does not begin with a checksum: not a manifest, or damaged");
  const std::string_view expected = view.substr(kFirstLineBegin.size(), kChecksumDigits);
  const std::string actual = checksum_of(view.substr(kFirstLineBytes));
  if (actual != expected)
    fail(where, "checksum ", actual, ", expected ", shown(expected),
         ": the manifest is damaged; use another checkpoint or a copy");
  const std::string source = where.string();
  try {
    const json values = parse_json(text, source, kLimits);
    const JsonView body(values, source);
    const std::string& format = body.at("format").word();
    if (format != kFormatName)
      fail(where, "format ", in_quotes(format), ", expected \"", kFormatName, "\"");
    const int64_t version = body.at("format_version").integer(1);
    // Before the body: a later version may have other keys.
    if (version > kFormatVersion)
      fail(where, "written in checkpoint format ", version, "; this program reads formats up to ",
           kFormatVersion, ": use a newer trireme");
    return parse_body(body, version);
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
}

void check_pieces(const Manifest& manifest, const std::filesystem::path& where) {
  const std::set<std::string> files = check_files(manifest, where);
  size_t corners = 0;
  for (const auto& [name, record] : manifest.tensors) {
    // Cheap, and before any corner is made: a hostile manifest may list many tensors that pass one
    // by one.
    corners += std::min(num_corners(record.shape, boxes_of(record)), kMaxAllCorners + 1);
    if (corners > kMaxAllCorners)
      fail(where, "its tensors are cut into pieces with more than ", kMaxAllCorners, " corners");
  }
  for (const auto& [name, record] : manifest.tensors)
    check_record(name, record, manifest, files, where);
}

Manifest parse_and_check_manifest(const std::string& text, const std::filesystem::path& where) {
  Manifest manifest = parse_manifest(text, where);
  check_pieces(manifest, where);
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  const uint64_t num_bytes = size_of_file(path);
  if (num_bytes > kMaxManifestBytes)
    fail(path, num_bytes, " bytes, a manifest has at most ", kMaxManifestBytes);
  Manifest manifest = parse_and_check_manifest(read_file(path, kMaxManifestBytes), path);
  check_name(folder, manifest.step, path);
  return manifest;
}

}  // namespace trireme::checkpoint
