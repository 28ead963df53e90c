// What object stores answer, where their keys are, and blocks that a cache has kept.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/hostile/format.h"
#include "tests/remote/scripted_server.h"
#include "trireme/remote/block_cache.h"
#include "trireme/remote/store.h"
#include "trireme/remote/store_settings.h"

namespace trireme::hostile {
namespace {

namespace fs = std::filesystem;
using remote::plain_answer;

const std::string kStored = "The quick brown fox jumps over the lazy dog.";

// A part that is taken has the length that was asked for.
class StoreAnswer : public Format {
 public:
  std::string name() const override { return "store"; }

  void write(Random& random) override {
    const std::vector<std::string> valid = {
        plain_answer("206 Partial Content", "Content-Range: bytes 4-8/44\r\nETag: \"v1\"\r\n",
                     "quick"),
        plain_answer("206 Partial Content", "Content-Range: bytes 0-0/44\r\nETag: \"v1\"\r\n", "T"),
        plain_answer("416 Range Not Satisfiable", "Content-Range: bytes */0\r\nETag: \"v1\"\r\n"),
        plain_answer("503 Slow Down", "Retry-After: 0\r\n"),
        plain_answer("301 Moved",
                     "x-amz-bucket-region: eu-west-3\r\nLocation: http://127.0.0.1:1/\r\n"),
        plain_answer("403 Forbidden", "Date: Fri, 24 May 2013 00:00:00 GMT\r\n",
                     "<Error><Code>RequestTimeTooSkewed</Code></Error>")};
    answer_ = valid[random.below(valid.size())];
    if (random.one_in(2)) {
      damage_bytes(answer_, random);
    } else {
      damage_text(answer_, random);
    }
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const auto version = store_.find("s3://bucket/key");
      require(!version || version->tag.size() <= 256, "takes a long ETag");
    });
    std::string text(5, '?');
    expect_refusal_or_sense([&] {
      store_.read("s3://bucket/key", {"\"v1\"", kStored.size()}, 4,
                  std::as_writable_bytes(std::span(text)));
    });
  }

 private:
  std::string answer_;
  remote::ScriptedServer server_{[this](const std::string&) { return answer_; }};
  remote::Store store_{{.s3 = {.credentials = remote::Credentials{"id", "key", ""},
                               .region = "r",
                               .endpoint = server_.url()}},
                       {.patience = {}, .first_patience = {}, .first_pause = {}}};
};

class StoreKeys : public Format {
 public:
  explicit StoreKeys(const fs::path& folder) : file_(folder / "keys" / "credentials") {
    fs::create_directories(file_.parent_path());
  }
  std::string name() const override { return "store-keys"; }

  void write(Random& random) override {
    std::string text =
        "# comment\n[default]\naws_access_key_id = ID\naws_secret_access_key = secret\nregion = r\n"
        "[profile other]\nendpoint_url = http://127.0.0.1:9000\n[Credentials]\n"
        "gs_access_key_id = ID\ngs_secret_access_key = secret\n";
    damage_text(text, random);
    put_file(file_, text);
  }

  void read() override {
    const std::string path = file_.string();
    expect_refusal_or_sense([&] {
      const remote::StoreSettings settings = remote::read_store_settings([&](const char* name) {
        const std::string_view asked = name;
        const bool is_file = asked == "AWS_SHARED_CREDENTIALS_FILE" || asked == "AWS_CONFIG_FILE" ||
                             asked == "BOTO_CONFIG";
        return is_file ? path.c_str() : nullptr;
      });
      for (const auto* access : {&settings.s3, &settings.gs}) {
        if (!access->credentials) continue;
        const auto ends_a_header = [](char c) { return c == '\r' || c == '\n' || c == 0; };
        require(std::ranges::none_of(access->credentials->access_key, ends_a_header),
                "takes a key with another header");
      }
    });
  }

 private:
  fs::path file_;
};

// Whatever a block has become, its object is read right.
class CachedBlock : public Format {
 public:
  explicit CachedBlock(const fs::path& folder)
      : folder_(folder / "blocks"),
        cache_({.folder = folder_, .max_bytes = 1 << 20, .block_bytes = 32}) {}
  std::string name() const override { return "store-cache"; }

  void write(Random& random) override {
    read_object();
    for (const fs::directory_entry& each : fs::directory_iterator(folder_)) {
      if (each.path().extension() != ".block") continue;
      std::string bytes = get_file(each.path());
      damage_bytes(bytes, random);
      put_file(each.path(), bytes);
    }
  }

  void read() override { read_object(); }

 private:
  void read_object() {
    std::string text(kStored.size(), '?');
    cache_.read("key", text.size(), 0, std::as_writable_bytes(std::span(text)),
                [](uint64_t offset, std::span<std::byte> out) {
                  std::ranges::copy(std::as_bytes(std::span(kStored)).subspan(offset, out.size()),
                                    out.begin());
                });
    require(text == kStored, "reads other bytes than the object's");
  }

  fs::path folder_;
  remote::BlockCache cache_;
};

}  // namespace

void add_store_formats(Formats& formats, const fs::path& folder) {
  formats.push_back(std::make_unique<StoreAnswer>());
  formats.push_back(std::make_unique<StoreKeys>(folder));
  formats.push_back(std::make_unique<CachedBlock>(folder));
}

}  // namespace trireme::hostile
