// What parameter servers read: their logs, and the director's views.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "trireme/parallel/server/log/server_log.h"
#include "trireme/parallel/server/view.h"

namespace trireme::hostile {
namespace {

class ServerLogFile : public Format {
 public:
  explicit ServerLogFile(const std::filesystem::path& folder) : path_(folder / "log") {
    std::filesystem::create_directories(folder);
    std::filesystem::remove(path_);
    parallel::ServerLog log(path_, "config");
    for (uint32_t i = 0; i < 20; ++i) {
      log.append({.kind = static_cast<parallel::LogKind>(1 + i % 4), .worker = i, .step = i});
    }
    log.flush();
    valid_ = get_file(path_);
    records_ = parallel::read_server_log(path_, "config").records;
  }
  std::string name() const override { return "server-log"; }

  void write(Random& random) override {
    std::string bytes = valid_;
    if (random.below(4) > 0) damage_bytes(bytes, random);
    if (random.below(3) == 0) put_edge(bytes, 40 + 48 * random.below(20), 4, random);
    if (random.below(3) == 0) bytes.resize(random.below(bytes.size() + 1));
    put_file(path_, bytes);
  }

  void read() override {
    parallel::ReadLog log;
    if (!expect_refusal_or_sense([&] { log = parallel::read_server_log(path_, "config"); })) return;
    // What follows the last whole record counts as cut off.
    const bool is_prefix = log.records.size() <= records_.size() &&
                           std::equal(log.records.begin(), log.records.end(), records_.begin());
    require(is_prefix, "a damaged record is taken");
  }

 private:
  std::filesystem::path path_;
  std::string valid_;
  std::vector<parallel::LogRecord> records_;
};

class ServerView : public Format {
 public:
  std::string name() const override { return "server-view"; }

  void write(Random& random) override {
    parallel::ViewMaker maker(3, 2);
    maker.start({{0, "tcp://127.0.0.1:1"}, {1, "tcp://127.0.0.1:2"}, {2, "tcp://127.0.0.1:3"}},
                {{0, 1}, {7, 3}});
    text_ = damaged_json(nlohmann::ordered_json::parse(parallel::to_text(maker.view())),
                         static_cast<int>(random.below(3)) - 1, random);
  }

  void read() override {
    parallel::View view;
    if (!expect_refusal_or_sense([&] { view = parallel::parse_view(text_); })) return;
    for (const auto& chain : view.chains) {
      for (const uint32_t id : chain) {
        require(view.servers.contains(id), "a chain has a server that is not there");
      }
    }
    require(parallel::parse_view(parallel::to_text(view)) == view, "refuses what it wrote");
  }

 private:
  std::string text_;
};

}  // namespace

void add_server_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<ServerLogFile>(folder / "server-log"));
  formats.push_back(std::make_unique<ServerView>());
}

}  // namespace trireme::hostile
