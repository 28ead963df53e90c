#include "trireme/launch/network/network_file.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <toml++/toml.h>

#include "trireme/base/bounded_toml.h"
#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/key.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"

namespace trireme::launch {
namespace {

constexpr size_t kMostNameBytes = 32;
// Packets of the slowest line take seconds, not days; those of the fastest are more than a machine
// can carry.
constexpr Range kRates{.minimum = 1e3, .maximum = 1e12};
constexpr Range kDelays{.minimum = 0, .maximum = 60'000};
constexpr Range kLosses{.minimum = 0, .maximum = comm::kMostLoss};
constexpr Range kQueues{.minimum = 0, .maximum = 1 << 30};
constexpr Range kMtus{.minimum = 576, .maximum = 65'535};  // every IPv4 host takes the least
constexpr Range kSeeds{.minimum = 0, .maximum = kMaxSeed};

const std::vector<std::string> kLineKeys = {"rate", "delay_ms", "jitter_ms", "loss", "queue_bytes"};

std::string described(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  TextWriter out;
  node.visit([&](const auto& value) { out << value; });
  return shown(out.str());
}

// A table of the file, and how messages call it: "link".
class NetworkTable {
 public:
  NetworkTable(const toml::table& table, std::string name, const std::string& source)
      : table_(table), name_(std::move(name)), source_(source) {}

  // Throws ConfigError: "wan.toml:7: link.delay_ms is -5; expected ...".
  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    const toml::node* const node = table_.get(key);
    const auto line = node != nullptr ? node->source().begin.line : table_.source().begin.line;
    throw ConfigError(concat(source_, line > 0 ? concat(":", line) : "", ": ",
                             name_.empty() ? "" : name_ + ".", shown(key), " ", what));
  }

  void check_keys(const std::vector<std::string>& known) const {
    for (const auto& [key, node] : table_) {
      if (std::ranges::count(known, std::string(key.str())) > 0) continue;
      fail(key.str(),
           concat("is not a key", did_you_mean(known, key.str()), "; expected ", in_words(known)));
    }
  }

  bool has(std::string_view key) const { return table_.contains(key); }

  void read(std::string_view key, const Range& range, double& value) const {
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return;
    const auto whole = node->value_exact<int64_t>();
    const auto real = node->value_exact<double>();
    if (!whole && !real) fail(key, concat("is ", described(*node), "; expected a number"));
    value = whole ? static_cast<double>(*whole) : *real;
    if (!range.contains(value)) {
      fail(key, concat("is ", described(*node), "; expected ", to_text(range)));
    }
  }

  template <typename Integer>
  void read_integer(std::string_view key, const Range& range, Integer& value) const {
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return;
    const auto whole = node->value_exact<int64_t>();
    if (!whole) fail(key, concat("is ", described(*node), "; expected a whole number"));
    if (!range.contains(static_cast<long double>(*whole))) {
      fail(key, concat("is ", *whole, "; expected ", to_text(range)));
    }
    value = static_cast<Integer>(*whole);
  }

  std::vector<std::string> read_names(std::string_view key, size_t most) const {
    const toml::node* const node = table_.get(key);
    if (node == nullptr) fail(key, "is missing; expected names of hosts");
    const toml::array* const array = node->as_array();
    if (array == nullptr) fail(key, concat("is ", described(*node), "; expected names of hosts"));
    if (array->size() < 2 || array->size() > most) {
      fail(key, concat("has ", array->size(), " names; expected ",
                       most == 2 ? "two" : concat("2 to ", most)));
    }
    std::vector<std::string> names;
    for (const toml::node& element : *array) {
      const auto name = element.value_exact<std::string>();
      if (!name) fail(key, concat("has ", described(element), "; expected names of hosts"));
      names.push_back(*name);
    }
    return names;
  }

  // The table under `key`; null when there is none.
  const toml::table* find_table(std::string_view key) const {
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return nullptr;
    if (!node->is_table()) fail(key, concat("is ", described(*node), "; expected a table"));
    return node->as_table();
  }

 private:
  const toml::table& table_;
  std::string name_;
  const std::string& source_;
};

bool is_host_name(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  };
  return !name.empty() && name.size() <= kMostNameBytes && name.front() != '-' &&
         std::ranges::all_of(name, is_allowed);
}

void read_hosts(const NetworkTable& table, NetworkFile& network) {
  table.check_keys({"hosts", "seed", "mtu"});
  network.hosts = table.read_names("hosts", kMostNetworkHosts);
  std::set<std::string> seen;
  for (const std::string& name : network.hosts) {
    if (!is_host_name(name)) {
      table.fail("hosts", concat("has \"", shown(name), "\"; expected names of at most ",
                                 kMostNameBytes, " letters, digits and hyphens"));
    }
    if (!seen.insert(name).second) {
      table.fail("hosts", concat("has \"", name, "\" twice; expected a name for each host"));
    }
  }
  table.read_integer("seed", kSeeds, network.seed);
  table.read_integer("mtu", kMtus, network.mtu);
}

std::chrono::nanoseconds from_milliseconds(double milliseconds) {
  return std::chrono::nanoseconds(std::llround(milliseconds * 1e6));
}

// What the table says, over what `shape` was.
comm::LinkShape read_shape(const NetworkTable& table, comm::LinkShape shape) {
  table.read("rate", kRates, shape.rate);
  double delay = -1, jitter = -1;
  table.read("delay_ms", kDelays, delay);
  if (delay >= 0) shape.delay = from_milliseconds(delay);
  table.read("jitter_ms", kDelays, jitter);
  if (jitter >= 0) shape.jitter = from_milliseconds(jitter);
  table.read("loss", kLosses, shape.loss);
  table.read("queue_bytes", kQueues, shape.queue_bytes);
  return shape;
}

size_t host_number(const NetworkTable& table, const NetworkFile& network, const std::string& name) {
  const auto found = std::ranges::find(network.hosts, name);
  if (found == network.hosts.end()) {
    table.fail("between", concat("has the host \"", shown(name), "\", which network.hosts has not",
                                 did_you_mean(network.hosts, name)));
  }
  return static_cast<size_t>(found - network.hosts.begin());
}

NetworkFile::Link read_link(const NetworkTable& table, const NetworkFile& network,
                            const comm::LinkShape* usual) {
  std::vector<std::string> keys = kLineKeys;
  keys.insert(keys.begin(), "between");
  table.check_keys(keys);
  const std::vector<std::string> names = table.read_names("between", 2);
  NetworkFile::Link link{.first = host_number(table, network, names[0]),
                         .second = host_number(table, network, names[1])};
  if (link.first == link.second) {
    table.fail("between", concat("has \"", names[0], "\" twice; expected two hosts"));
  }
  if (link.first > link.second) std::swap(link.first, link.second);
  for (const NetworkFile::Link& other : network.links) {
    if (other.first == link.first && other.second == link.second) {
      table.fail("between", concat("is the second link of ", names[0], " and ", names[1],
                                   "; expected one for each pair, for both directions"));
    }
  }
  if (usual == nullptr && !table.has("rate")) {
    table.fail("rate", "is missing; expected bits per second, here or in [default]");
  }
  link.shape = read_shape(table, usual != nullptr ? *usual : comm::LinkShape());
  return link;
}

void read_links(const toml::table& all, const std::string& source, const comm::LinkShape* usual,
                NetworkFile& network) {
  const toml::node* const node = all.get("link");
  if (node == nullptr) return;
  const NetworkTable root(all, "", source);
  const toml::array* const links = node->as_array();
  if (links == nullptr) root.fail("link", "is one table; expected [[link]], in double brackets");
  for (const toml::node& element : *links) {
    if (!element.is_table()) {
      root.fail("link", concat("has ", described(element), "; expected [[link]] tables"));
    }
    const NetworkTable table(*element.as_table(), "link", source);
    network.links.push_back(read_link(table, network, usual));
  }
}

// Every other pair gets the usual line.
void add_usual_links(const comm::LinkShape& usual, NetworkFile& network) {
  std::set<std::pair<size_t, size_t>> given;
  for (const NetworkFile::Link& link : network.links) given.emplace(link.first, link.second);
  for (size_t first = 0; first < network.hosts.size(); ++first) {
    for (size_t second = first + 1; second < network.hosts.size(); ++second) {
      if (!given.contains({first, second})) network.links.push_back({first, second, usual});
    }
  }
}

toml::table parse_toml(std::string_view text, const std::string& source) {
  try {
    check_toml(text, source);
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    // The parser quotes its input, including newlines.
    throw ConfigError(
        concat(source, ":", error.source().begin.line, ": ", shown(error.description(), 300)));
  }
}

}  // namespace

NetworkFile parse_network(std::string_view text, const std::string& source) {
  const toml::table all = parse_toml(text, source);
  const NetworkTable root(all, "", source);
  root.check_keys({"network", "default", "link"});
  NetworkFile network;
  const toml::table* const hosts = root.find_table("network");
  if (hosts == nullptr) root.fail("network", "is missing; expected [network] with hosts");
  read_hosts(NetworkTable(*hosts, "network", source), network);
  comm::LinkShape usual;
  const toml::table* const usual_table = root.find_table("default");
  if (usual_table != nullptr) {
    const NetworkTable table(*usual_table, "default", source);
    table.check_keys(kLineKeys);
    if (!table.has("rate")) table.fail("rate", "is missing; expected bits per second");
    usual = read_shape(table, usual);
  }
  read_links(all, source, usual_table != nullptr ? &usual : nullptr, network);
  if (usual_table != nullptr) add_usual_links(usual, network);
  TRIREME_CHECK(!network.links.empty(), source,
                ": no two hosts are connected; expected [default], a line of every pair, or "
                "[[link]], a line of one");
  return network;
}

NetworkFile read_network(const std::filesystem::path& path) {
  const std::string name = shown(path.string(), 300);
  std::string text;
  try {
    text = read_file(path, kMaxTomlBytes);
  } catch (const Error& error) {
    throw ConfigError(concat(error.what(), "; `trireme network --example` prints one"));
  }
  return parse_network(text, name);
}

std::string example_network() {
  return R"(# Three hosts, for `trireme network wan.toml -- COMMAND`.
[network]
hosts = ["paris", "lyon", "tokyo"]
seed = 1            # of losses and jitter: the same packets are lost in every run
mtu = 1500          # bytes of the largest packet

[default]           # the line of every pair that has no [[link]]
rate = 10e6         # bits per second, each way
delay_ms = 50       # one way; a round trip takes twice as long
jitter_ms = 0       # further delay of each packet, from 0 to this
loss = 0.001        # share of the packets
queue_bytes = 1e6   # a packet that finds more waiting is dropped

[[link]]            # the line of one pair; other keys are those of [default]
between = ["paris", "lyon"]
rate = 1e9
delay_ms = 3
loss = 0
)";
}

}  // namespace trireme::launch
