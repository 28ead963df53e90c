#include "trireme/cli/vision/prediction_page.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/svg.h"

namespace trireme::cli {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Predictions</title><style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin-bottom: 2em }
td, th { padding: .2em .8em .2em 0; text-align: left } td.n { text-align: right }
.bar { background: #e4e4e4; width: 16em; height: .7em } .bar div { background: #2a7f62; height: 100% }
main { display: flex; flex-wrap: wrap; gap: 1em }
figure { margin: 0; padding: .5em; width: 8em; border: 2px solid #2a7f62; border-radius: 6px }
figure.wrong { border-color: #c0392b } figure img { width: 8em; height: 8em; object-fit: contain;
image-rendering: pixelated } figcaption { font-size: 13px; overflow-wrap: anywhere }
.wrong b { color: #c0392b } small { color: #666 }
</style></head><body>
)";

void append_little_endian(std::string& bytes, uint32_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) bytes += static_cast<char>(value >> (8 * i));
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) {
      group = group << 8 | (i < count ? static_cast<uint8_t>(bytes[at + i]) : 0U);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += i <= count ? kDigits[group >> (18 - 6 * i) & 63U] : '=';
    }
  }
  return text;
}

std::string percent(double share) { return format("%.1f&nbsp;%%", 100 * share); }

double share_of(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string figure(std::span<const ClassResult> classes, const Prediction& prediction,
                   const at::Tensor& image_CHW) {
  const auto name = [&](int64_t number) {
    const auto at = static_cast<size_t>(number);
    return at < classes.size() ? escaped_markup(classes[at].name) : concat("class ", number);
  };
  std::string text = concat("<figure", prediction.is_right() ? "" : " class=\"wrong\"",
                            "><img alt=\"\" src=\"data:image/bmp;base64,",
                            base64(to_bmp(image_CHW)), "\"><figcaption><b>", name(prediction.found),
                            "</b> ", percent(prediction.probability));
  if (!prediction.is_right()) text += concat("<br><small>is ", name(prediction.label), "</small>");
  return text + "</figcaption></figure>\n";
}

}  // namespace

std::string to_bmp(const at::Tensor& image_CHW) {
  const at::Tensor image = image_CHW.contiguous();
  const int64_t C = image.size(0), H = image.size(1), W = image.size(2);
  const auto* const values = image.const_data_ptr<uint8_t>();
  constexpr uint32_t kHeader = 54;
  const auto row_bytes = static_cast<uint32_t>((3 * W + 3) / 4 * 4);
  const uint32_t num_bytes = kHeader + row_bytes * static_cast<uint32_t>(H);
  std::string bytes = "BM";
  append_little_endian(bytes, num_bytes, 4);
  append_little_endian(bytes, 0, 4);
  append_little_endian(bytes, kHeader, 4);
  append_little_endian(bytes, 40, 4);  // bytes of what follows
  append_little_endian(bytes, static_cast<uint32_t>(W), 4);
  append_little_endian(bytes, static_cast<uint32_t>(H), 4);
  append_little_endian(bytes, 1, 2);      // planes
  append_little_endian(bytes, 24, 2);     // bits per pixel
  bytes.resize(kHeader, '\0');            // not compressed
  for (int64_t y = H - 1; y >= 0; --y) {  // the last row first
    for (int64_t x = 0; x < W; ++x) {
      for (int64_t c = 2; c >= 0; --c) {  // blue, green, red
        const int64_t channel = C == 1 ? 0 : c;
        bytes += static_cast<char>(values[(channel * H + y) * W + x]);
      }
    }
    bytes.append(row_bytes - static_cast<uint32_t>(3 * W), '\0');
  }
  return bytes;
}

ClassResult total_of(std::span<const ClassResult> classes) {
  ClassResult total;
  for (const ClassResult& each : classes) {
    total.num_images += each.num_images;
    total.num_right += each.num_right;
  }
  return total;
}

std::string prediction_page(std::span<const ClassResult> classes,
                            std::span<const Prediction> predictions, size_t most,
                            const std::function<at::Tensor(size_t index)>& image_of) {
  const ClassResult total = total_of(classes);
  std::string page(kHead);
  page += concat("<h1>", percent(share_of(total.num_right, total.num_images)), " of ",
                 total.num_images, " validation images are right</h1>\n<table>\n");
  for (const ClassResult& each : classes) {
    if (each.num_images == 0) continue;
    const double share = share_of(each.num_right, each.num_images);
    page += concat("<tr><td>", escaped_markup(each.name),
                   "</td><td><div class=\"bar\"><div style=\"width:", 100 * share,
                   "%\"></div></div></td><td class=\"n\">", percent(share),
                   "</td><td class=\"n\"><small>", each.num_right, " of ", each.num_images,
                   "</small></td></tr>\n");
  }
  page += "</table>\n<main>\n";
  std::vector<size_t> wrong, right;
  for (size_t i = 0; i < predictions.size(); ++i) {
    (predictions[i].is_right() ? right : wrong).push_back(i);
  }
  std::ranges::stable_sort(wrong, std::ranges::greater(),
                           [&](size_t i) { return predictions[i].probability; });
  const auto show = [&](size_t i) { page += figure(classes, predictions[i], image_of(i)); };
  const size_t num_wrong =
      std::min(wrong.size(), std::max(most / 2, most - std::min(most, right.size())));
  for (size_t i = 0; i < num_wrong; ++i) show(wrong[i]);
  // Spread over the data, which may be in the order of classes.
  const size_t num_shown = std::min(right.size(), most - num_wrong);
  for (size_t i = 0; i < num_shown; ++i) show(right[i * right.size() / num_shown]);
  return page + "</main>\n</body></html>\n";
}

}  // namespace trireme::cli
