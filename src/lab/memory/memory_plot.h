// The memory timeline as a picture: who held how much memory, when. The HTML page (pages/memory_timeline.html) shows
// every allocation and is explored with the mouse; the SVG shows categories and stands still.
#pragma once
#include <string>
#include <vector>

#include "lab/table.h"
#include "system/json.h"

namespace sinter::lab {

// Note [Timeline]: an object with columns, so that a hundred thousand events stay small. Times are in microseconds from
// the start of recording, memory in bytes.
//
//   title, device, clock   strings; clock says in a line what the times are times of
//   predicted              true if nothing was run
//   duration_us, capacity  numbers; capacity is the device's memory, or null
//   categories, tensors    names and descriptions, referred to by index
//   phases                 [{name, begin, end}]
//   ranges                 [{name, parent, kind: module | phase | op, file, line}]; the root has no name and parent -1
//   begin, end, bytes, address, category, range, tensor
//                          one value per allocation; end is null where it was still held at the end, tensor -1 without
// one
//   reserved               [[time, bytes]]: memory taken from the device, from that time on
//
// At equal times frees of older allocations count as earlier than new allocations, and those in the order of the
// columns.

// One file that asks for nothing from anywhere: the page with the timeline, and below it the preamble and the tables.
std::string memory_timeline_html(const Json& timeline, const std::vector<std::string>& preamble,
                                 const std::vector<Table>& tables);
std::string memory_timeline_svg(const Json& timeline);

}  // namespace sinter::lab
