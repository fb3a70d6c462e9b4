#include "lab/view.h"

#include "core/check.h"
#include "lab/record.h"

namespace sinter::lab {

View view_of(const Json& record) {
  std::string command = record.value("command", "");
  try {
    if (command == "bench model") return bench_model_view(record);
    if (command == "bench attention") return bench_attention_view(record);
    if (command == "profile model" || command == "profile attention") return profile_view(record);
    if (command == "memory model") return memory_view(record);
    if (command == "compile model") return compile_view(record);
    if (command == "precision") return precision_view(record);
    if (command == "doctor") return doctor_view(record);
  } catch (const Json::exception& e) {
    fail_with(ErrorKind::usage, "the record of \"{}\" lacks something it needs: {}", command, message_of(e));
  }
  fail_with(ErrorKind::usage,
            "the record is of an unknown command \"{}\"; this version shows bench, profile, memory model, compile "
            "model, precision and "
            "doctor",
            command);
}

}  // namespace sinter::lab
