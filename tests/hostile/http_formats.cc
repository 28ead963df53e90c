// Requests to the server of this host's tools.
#include <memory>
#include <string>
#include <vector>

#include "tests/hostile/format.h"
#include "trireme/comm/net/http_message.h"

namespace trireme::hostile {
namespace {

// A request that is taken is not taken before its last byte, and lies within the limits.
class HttpRequestBytes : public Format {
 public:
  std::string name() const override { return "http"; }

  void write(Random& random) override {
    const std::vector<std::string> valid = {
        "GET /v1/models?a=%41&b HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: close\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n"
        "Expect: 100-continue\r\n\r\n{\"prompt\": 1}",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"};
    bytes_ = valid[random.below(valid.size())];
    if (random.one_in(3)) bytes_ += valid[random.below(valid.size())];
    if (random.one_in(2)) {
      damage_bytes(bytes_, random);
    } else {
      damage_text(bytes_, random);
    }
    cut_ = bytes_.empty() ? 0 : random.below(bytes_.size());
  }

  void read() override {
    const comm::HttpLimits limits{.head_bytes = 300, .body_bytes = 40};
    comm::HttpParse parse;
    require(expect_refusal_or_sense([&] { parse = comm::parse_http(bytes_, limits); }), "throws");
    require(!parse.request || !parse.refusal, "takes and refuses");
    if (parse.refusal) {
      const int status = parse.refusal->status;
      require(status >= 400 && status < 600, "refuses with no error");
      comm::to_bytes(*parse.refusal, false);
    }
    if (!parse.request) return;
    require(parse.num_bytes <= bytes_.size(), "takes bytes that are not there");
    require(parse.request->body.size() <= limits.body_bytes, "takes a body beyond the limit");
    require(parse.num_bytes <= limits.head_bytes + 4 + limits.body_bytes, "takes long headers");
    if (cut_ >= parse.num_bytes) return;
    const comm::HttpParse part = comm::parse_http(bytes_.substr(0, cut_), limits);
    require(!part.request && !part.refusal, "decides before the last byte");
  }

 private:
  std::string bytes_;
  size_t cut_ = 0;
};

}  // namespace

void add_http_formats(Formats& formats) { formats.push_back(std::make_unique<HttpRequestBytes>()); }

}  // namespace trireme::hostile
