#include "lab/published.h"

#include <fmt/format.h>

namespace sinter::lab {
namespace {

struct Figure {
  const char* source;
  const char* what;  // forward, backward, forward-backward or step
  const char* dtype;
  long ctx;      // 0: not stated
  double ms[5];  // small, medium, large, xl, 2.7B; 0: none
};

constexpr Figure figures[] = {
    {"S4 H100", "forward", "fp32", 0, {35, 73, 97, 132, 79}},
    {"S4 A100", "forward", "fp32", 0, {28, 57, 87, 149, 221}},
    {"S4 A100", "forward", "bf16", 0, {31, 60, 90, 122, 81}},
    {"S4 A100", "backward", "fp32", 0, {61, 124, 239, 452, 676}},
    {"S4 A100", "backward", "bf16", 0, {62, 135, 208, 292, 223}},
    {"S4", "forward", "fp32", 0, {21.9, 44, 66, 88, 84}},
    {"S1 A100", "forward", "fp32", 256, {38, 76, 142, 282, 417}},
    {"S1 A100", "forward-backward", "fp32", 256, {82, 214, 438, 889, 1321}},
    {"S1 A100", "forward-backward", "bf16", 256, {86, 173, 263, 354, 0}},
    {"S3", "forward-backward", "fp32", 256, {108.5, 321, 706, 1436, 0}},
    {"S3", "forward-backward", "bf16", 256, {56.5, 149, 311, 567, 0}},
    {"S0 8 GB", "forward", "fp32", 0, {31, 98, 0, 0, 0}},
    {"S0 8 GB", "backward", "fp32", 0, {67, 202, 0, 0, 0}},
    {"S2 A100-40", "step", "fp32", 0, {0, 0, 0, 1090, 0}},
    {"S2 A100-40", "step", "bf16", 0, {0, 0, 0, 440, 0}},
};

int index_of(const std::string& size) {
  const char* const sizes[] = {"small", "medium", "large", "xl", "2.7B"};
  for (int i = 0; i < 5; ++i)
    if (size == sizes[i]) return i;
  return -1;
}

}  // namespace

std::string published_ms(const std::string& size, const std::string& pass, const std::string& phase,
                         const std::string& dtype, long ctx) {
  std::string what = phase == "total" ? pass : phase, out;
  int i = index_of(size);
  if (i < 0) return out;
  for (const Figure& f : figures)
    if (what == f.what && dtype == f.dtype && (f.ctx == 0 || f.ctx == ctx) && f.ms[i] > 0)
      out += fmt::format("{}{} {}", out.empty() ? "" : "; ", f.source, f.ms[i]);
  return out;
}

std::string published_memory(const std::string& size, const std::string& pass, long ctx, long batch) {
  if (size != "2.7B" || batch != 4 || (pass != "forward" && pass != "step")) return "";
  bool forward = pass == "forward";
  if (ctx == 128) return forward ? "S4 19.4 GB" : "S4 55.2 GB";
  if (ctx == 256) return forward ? "S4 26.1 GB" : "S4 55.3 GB";
  if (ctx == 512) return forward ? "S4 42.7 GB" : "S4 55.3 GB";
  return "";
}

std::string published_attention(const Json& r) {
  struct Row {
    int64_t heads, ctx, head_dim;
    const char *attention, *text;
  };
  constexpr Row rows[] = {{1, 8192, 64, "naive", "S4 1.35/3.79/5.09"},
                          {1, 8192, 64, "flash", "S4 0.61/2.82/3.38"},
                          {1, 32768, 64, "naive", "S4 19.9/45.9/65.6"},
                          {1, 32768, 64, "flash", "S4 6.80/29.5/36.1"},
                          {1, 32768, 128, "naive", "S4 19.9/53.6/70.2"},
                          {1, 32768, 128, "flash", "S4 13.6/36.3/45.5"},
                          {16, 16384, 64, "flash", "leaderboard –/–/5.36; S1 –/–/58.1"}};
  if (r.value("batch", 0) != 1 || r.value("causal", true) == false || r.value("dtype", "") != "bf16") return "";
  int64_t heads = r.value("heads", 0), ctx = r.value("ctx", 0);
  std::string attention = r.value("attention", "");
  if (heads == 1 && ctx == 65536 && attention == "flash") return "S4 OOM";
  for (const Row& row : rows)
    if (row.heads == heads && row.ctx == ctx && row.head_dim == r.value("head_dim", 0) && row.attention == attention)
      return row.text;
  return "";
}

}  // namespace sinter::lab
