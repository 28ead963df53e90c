#include "trireme/parallel/server/view.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxAddressBytes = 512;
constexpr JsonLimits kViewLimits{
    .max_bytes = size_t{8} << 20, .max_values = 1 << 20, .max_depth = 4};

}  // namespace

bool is_address(std::string_view text) {
  return !text.empty() && text.size() <= kMaxAddressBytes &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

std::string to_text(const View& view) {
  nlohmann::json servers = nlohmann::json::array(), workers = nlohmann::json::array();
  for (const auto& [id, address] : view.servers)
    servers.push_back({{"id", id}, {"address", address}});
  for (const auto& [number, incarnation] : view.workers) {
    workers.push_back({{"number", number}, {"incarnation", incarnation}});
  }
  return nlohmann::json{
      {"view", view.number}, {"servers", servers}, {"workers", workers}, {"chains", view.chains}}
      .dump();
}

View parse_view(std::string_view text) {
  const std::string source = "a view of the servers' director";
  const nlohmann::json root = parse_json(text, source, kViewLimits);
  const JsonView json(root, source);
  View view;
  view.number = static_cast<uint32_t>(json.at("view").integer(0, kMaxId));
  for (const JsonView& server : json.at("servers").elements()) {
    view.servers[static_cast<uint32_t>(server.at("id").integer(0, kMaxId))] =
        server.at("address").word(kMaxAddressBytes);
  }
  for (const JsonView& worker : json.at("workers").elements()) {
    view.workers[static_cast<uint32_t>(worker.at("number").integer(0, kMaxWorkers - 1))] =
        static_cast<uint32_t>(worker.at("incarnation").integer(1, kMaxId));
  }
  for (const JsonView& chain : json.at("chains").elements()) {
    std::vector<uint32_t> ids;
    // Replicas index by these ids.
    for (const int64_t id : chain.integers(0, kMaxId)) {
      const auto server = static_cast<uint32_t>(id);
      TRIREME_CHECK(view.servers.contains(server) && std::ranges::count(ids, server) == 0, source,
                    " has server ", id, " in a chain; expected each of its servers once");
      ids.push_back(server);
    }
    TRIREME_CHECK(!ids.empty(), source, " has an empty chain");
    view.chains.push_back(std::move(ids));
  }
  return view;
}

ViewMaker::ViewMaker(int64_t shards, int64_t copies) : shards_(shards), copies_(copies) {
  TRIREME_CHECK(shards >= 1 && shards <= kMaxServers, shards, " servers; expected 1 to ",
                kMaxServers);
  TRIREME_CHECK(copies >= 1 && copies <= shards, copies, " copies on ", shards,
                shards == 1 ? " server" : " servers", "; set parallel.server_copies to 1 to ",
                shards);
}

void ViewMaker::start(std::map<uint32_t, std::string> servers,
                      std::map<uint32_t, uint32_t> workers) {
  TRIREME_ASSERT(std::ssize(servers) >= shards_, "too few servers to start");
  std::vector<uint32_t> ids;
  for (const auto& [id, address] : servers) ids.push_back(id);
  // Shard s begins on server s, so that the load is even.
  view_ = {.number = 1, .servers = std::move(servers), .workers = std::move(workers), .chains = {}};
  for (int64_t shard = 0; shard < shards_; ++shard) {
    std::vector<uint32_t>& chain = view_.chains.emplace_back();
    for (int64_t copy = 0; copy < copies_; ++copy) {
      chain.push_back(ids[static_cast<size_t>((shard + copy) % shards_)]);
      filled_.emplace(shard, chain.back());
    }
  }
}

int64_t ViewMaker::num_copies(uint32_t id) const {
  return std::ranges::count_if(
      view_.chains, [&](const auto& chain) { return std::ranges::count(chain, id) > 0; });
}

// A chain gets one new copy at a time, at its end.
void ViewMaker::grow() {
  for (size_t shard = 0; shard < view_.chains.size(); ++shard) {
    std::vector<uint32_t>& chain = view_.chains[shard];
    const bool is_filling = !filled_.contains({static_cast<int64_t>(shard), chain.back()});
    // One at a time: the last copy has to be whole before another is filled from it.
    if (std::ssize(chain) >= copies_ || is_filling) continue;
    std::optional<uint32_t> best;
    for (const auto& [id, address] : view_.servers) {
      if (std::ranges::count(chain, id) > 0) continue;
      // The server with the fewest copies.
      if (!best || num_copies(id) < num_copies(*best)) best = id;
    }
    if (best) chain.push_back(*best);
  }
}

void ViewMaker::add_server(uint32_t id, const std::string& address) {
  ++view_.number;
  view_.servers[id] = address;
  grow();
}

void ViewMaker::remove_server(uint32_t id) {
  if (view_.servers.erase(id) == 0) return;
  ++view_.number;
  for (size_t shard = 0; shard < view_.chains.size(); ++shard) {
    std::vector<uint32_t>& chain = view_.chains[shard];
    if (std::erase(chain, id) == 0) continue;
    filled_.erase({static_cast<int64_t>(shard), id});
    // Copies that were being filled are not whole.
    const bool has_whole = std::ranges::any_of(chain, [&](uint32_t left) {
      return filled_.contains({static_cast<int64_t>(shard), left});
    });
    if (!has_whole && lost_.empty()) {
      lost_ = concat("shard ", shard, " of the parameters is lost: server ", id,
                     " had its last complete copy; resume from a checkpoint",
                     copies_ == 1 ? ", or keep more copies with parallel.server_copies" : "");
    }
  }
  if (lost_.empty()) grow();
}

void ViewMaker::add_worker(uint32_t number, uint32_t incarnation) {
  ++view_.number;
  view_.workers[number] = incarnation;
}

void ViewMaker::remove_worker(uint32_t number) {
  if (view_.workers.erase(number) > 0) ++view_.number;
}

void ViewMaker::set_filled(int64_t shard, uint32_t id) {
  if (shard < 0 || shard >= std::ssize(view_.chains)) return;
  if (std::ranges::count(view_.chains[static_cast<size_t>(shard)], id) == 0) return;
  filled_.emplace(shard, id);
  // A view without a change need not be sent.
  const View before = view_;
  grow();
  if (view_ != before) ++view_.number;
}

bool ViewMaker::is_whole() const {
  for (size_t shard = 0; shard < view_.chains.size(); ++shard) {
    if (std::ssize(view_.chains[shard]) < copies_) return false;
    for (const uint32_t id : view_.chains[shard]) {
      if (!filled_.contains({static_cast<int64_t>(shard), id})) return false;
    }
  }
  return !view_.chains.empty();
}

}  // namespace trireme::parallel
