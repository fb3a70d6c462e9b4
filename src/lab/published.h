// Figures that others published for the same models on other hardware: references to print beside ours.
#pragma once
#include <string>

#include "system/json.h"

namespace sinter::lab {

// "S1 A100 417": milliseconds of a phase ("forward", "backward") or of a whole pass ("total"); empty where nobody said.
std::string published_ms(const std::string& size, const std::string& pass, const std::string& phase,
                         const std::string& dtype, long ctx);
std::string published_memory(const std::string& size, const std::string& pass, long ctx, long batch);  // "S4 55.3 GB"
// "S4 1.35/3.79/5.09": of a row of bench attention.
std::string published_attention(const Json& row);
constexpr const char* published_attention_note =
    "published: other people's results on other hardware, in ms. S4 H100; leaderboard: the best verified, H100; S1 "
    "MI300X.";
constexpr const char* published_note =
    "published: other people's results on other hardware, in ms. S0 an 8 GB card; S1 A100; S2 A100-40; S3 GPU not "
    "stated; S4 "
    "A100 or H100 (context not stated).";

}  // namespace sinter::lab
