// What tables of steps on ranks have in common (lab/ranked_step.h).
#pragma once
#include "lab/view.h"

namespace sinter::lab {

double number(const Json& r, const char* field);                      // 0 where there is none
std::string shown(const Json& r, const char* field, int digits = 4);  // "" where there is none
std::vector<std::string> ranked_preamble(const Json& record);         // the machine, the ranks, a warning, notes

// The columns that say which run on which ranks a row is about, and what stands in them.
Table ranked_table(const std::string& title, const std::vector<Column>& more);
std::vector<std::string> ranked_cells(const Json& r);
std::string ranked_key(const Json& r);  // equal for what is compared

// "comm. ms", "exposed ms", "overlap %": what stands in them, and what they mean.
std::vector<std::string> communication_cells(const Json& r);
extern const char* const communication_note;
std::string status_text(const Json& r);  // "" where all is well

}  // namespace sinter::lab
