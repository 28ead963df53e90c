#include "trireme/checkpoint/manifest.h"

#include <set>
#include <span>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kFormatName = "trireme-checkpoint";
// The first line of the text; the digits between them, the checksum of every byte that follows.
constexpr std::string_view kFirstLineBegin = "{\"checksum\": \"";
constexpr std::string_view kFirstLineEnd = "\",\n";
constexpr size_t kChecksumDigits = 16;
constexpr size_t kFirstLineBytes = kFirstLineBegin.size() + kChecksumDigits + kFirstLineEnd.size();

template <typename... Args>
[[noreturn]] void fail(const std::filesystem::path& where, const Args&... args) {
  throw CheckpointError(concat(where.string(), ": ", args...));
}

json to_json(const TensorRecord& record) {
  json axes = json::array();
  for (const mesh::Axis& axis : record.axes)
    axes.push_back({{"name", axis.name}, {"size", axis.size}});
  json placements = json::array();
  for (const mesh::Placement& placement : record.placements)
    placements.push_back(mesh::to_string(placement));
  json pieces = json::array();
  for (const Piece& piece : record.pieces) {
    pieces.push_back({{"file", piece.file},
                      {"offset", piece.box.offset},
                      {"size", piece.box.size},
                      {"checksum", piece.checksum}});
  }
  return {{"dtype", dtype_name(record.dtype)},
          {"shape", record.shape},
          {"axes", axes},
          {"placements", placements},
          {"pieces", pieces}};
}

TensorRecord parse_record(const json& value) {
  TensorRecord record;
  record.dtype = parse_dtype(value.at("dtype").get<std::string>());
  record.shape = value.at("shape").get<std::vector<int64_t>>();
  for (const json& axis : value.at("axes"))
    record.axes.push_back({axis.at("name").get<std::string>(), axis.at("size").get<int>()});
  for (const json& placement : value.at("placements"))
    record.placements.push_back(mesh::parse_placement(placement.get<std::string>()));
  for (const json& piece : value.at("pieces")) {
    record.pieces.push_back({.file = piece.at("file").get<std::string>(),
                             .box = {piece.at("offset").get<std::vector<int64_t>>(),
                                     piece.at("size").get<std::vector<int64_t>>()},
                             .checksum = piece.at("checksum").get<std::string>()});
  }
  return record;
}

Manifest parse_body(const json& body) {
  Manifest manifest;
  manifest.step = body.at("step").get<int64_t>();
  manifest.world_size = body.at("world_size").get<int>();
  manifest.state = body.at("state").dump();
  for (const auto& [name, value] : body.at("tensors").items())
    manifest.tensors.emplace(name, parse_record(value));
  for (const json& file : body.at("files")) {
    manifest.files.push_back({.name = file.at("name").get<std::string>(),
                              .num_bytes = file.at("bytes").get<uint64_t>(),
                              .header_checksum = file.at("header_checksum").get<std::string>()});
  }
  return manifest;
}

std::string checksum_of(std::string_view text) {
  return checksum(std::as_bytes(std::span(text.data(), text.size())));
}

// True when `box` lies inside a tensor of this shape.
bool fits(const mesh::Box& box, const std::vector<int64_t>& shape) {
  if (box.offset.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.offset[d] < 0 || box.size[d] < 0 || box.offset[d] > shape[d] ||
        box.size[d] > shape[d] - box.offset[d])
      return false;
  }
  return true;
}

}  // namespace

int64_t TensorRecord::num_elements() const {
  int64_t product = 1;
  for (int64_t length : shape) product *= length;
  return product;
}

int64_t TensorRecord::num_bytes() const {
  return num_elements() * static_cast<int64_t>(c10::elementSize(dtype));
}

std::string to_text(const Manifest& manifest) {
  const json state = json::parse(manifest.state, nullptr, false);
  if (state.is_discarded()) throw CheckpointError("the state to save is not valid JSON");
  json body = {{"format", kFormatName}, {"format_version", kFormatVersion},
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
    fail(where, "checksum ", actual, ", expected ", expected,
         ": the manifest is damaged; use another checkpoint or a copy");
  try {
    const json body = json::parse(text);
    if (body.at("format").get<std::string>() != kFormatName)
      fail(where, "format ", body.at("format").dump(), ", expected \"", kFormatName, "\"");
    const auto version = body.at("format_version").get<int64_t>();
    if (version > kFormatVersion)
      fail(where, "written in checkpoint format ", version, "; this program reads formats up to ",
           kFormatVersion, ": use a newer trireme");
    return parse_body(body);
  } catch (const json::exception& error) {
    fail(where, "not a valid manifest: ", error.what());
  } catch (const ConfigError& error) {
    fail(where, "not a valid manifest: ", error.what());
  }
}

void check_pieces(const Manifest& manifest, const std::filesystem::path& where) {
  std::set<std::string> files;
  for (const FileRecord& file : manifest.files) {
    if (file.name.empty() || file.name.find('/') != std::string::npos)
      fail(where, "the file name \"", file.name, "\" leaves the checkpoint's folder");
    files.insert(file.name);
  }
  for (const auto& [name, record] : manifest.tensors) {
    int64_t total = 0;
    for (const Piece& piece : record.pieces) {
      if (!fits(piece.box, record.shape))
        fail(where, "a piece of \"", name, "\" reaches outside the tensor");
      if (!files.contains(piece.file))
        fail(where, "a piece of \"", name, "\" is in \"", piece.file, "\", which is not listed");
      total += piece.box.numel();
    }
    if (total != record.num_elements())
      fail(where, "the pieces of \"", name, "\" hold ", total, " of its ", record.num_elements(),
           " elements");
  }
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  std::string text;
  try {
    text = read_file(path);
  } catch (const Error& error) {
    throw CheckpointError(concat(error.what(), " (is ", folder.string(), " a checkpoint?)"));
  }
  Manifest manifest = parse_manifest(text, path);
  check_pieces(manifest, path);
  return manifest;
}

}  // namespace trireme::checkpoint
