// Who is where: the numbered views of a run with parameter servers, how one follows another, and
// their text. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::parallel {

inline constexpr int64_t kMaxServers = 4096;
inline constexpr int64_t kMaxWorkers = 1 << 16;

struct View {
  uint32_t number = 0;                        // 0: the run has not begun
  std::map<uint32_t, std::string> servers;    // id -> address
  std::map<uint32_t, uint32_t> workers;       // number -> incarnation
  std::vector<std::vector<uint32_t>> chains;  // for each shard, its servers, head first
  bool operator==(const View&) const = default;
};

// Whether a server's address may be in a view: ASCII without spaces, of at most 512 bytes.
bool is_address(std::string_view text);

// One JSON object.
std::string to_text(const View& view);
// Throws: ConfigError, one line, if the text is not a view
View parse_view(std::string_view text);

// Makes the director's views: closes the gaps in chains and lets chains grow again.
class ViewMaker {
 public:
  // copies: servers per chain
  // Throws: ConfigError unless 1 <= copies <= shards <= kMaxServers
  ViewMaker(int64_t shards, int64_t copies);

  // Makes the first view. The chain of shard i begins with the i-th server.
  void start(std::map<uint32_t, std::string> servers, std::map<uint32_t, uint32_t> workers);

  // A server that joins later is a spare: it gets copies of shards whose chains are short.
  void add_server(uint32_t id, const std::string& address);
  void remove_server(uint32_t id);
  void add_worker(uint32_t number, uint32_t incarnation);
  void remove_worker(uint32_t number);
  // Notes that the server has a complete copy of the shard.
  void set_filled(int64_t shard, uint32_t id);

  const View& view() const { return view_; }
  // "" if every shard has a complete copy, otherwise a line about the first shard that has none.
  const std::string& lost() const { return lost_; }
  // Whether every chain has all its copies, and all of them are complete.
  bool is_whole() const;

 private:
  void grow();
  int64_t num_copies(uint32_t id) const;

  int64_t shards_;
  int64_t copies_;
  View view_;
  std::set<std::pair<int64_t, uint32_t>> filled_;
  std::string lost_;
};

}  // namespace trireme::parallel
