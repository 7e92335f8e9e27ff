// One line on stderr that shows the progress of a run.
#ifndef OCTET_TOOLS_SUPPORT_PROGRESS_H_
#define OCTET_TOOLS_SUPPORT_PROGRESS_H_

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace octet {

// Writes only to a terminal. The destructor removes the line.
class Progress {
 public:
  explicit Progress(bool wanted = true) : on_(wanted && isatty(STDERR_FILENO) == 1) {}
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Removes the line, to make room for other output on the terminal.
  void Clear() const {
    if (on_) absl::FPrintF(stderr, "\r\x1b[K");
  }

  void Show(absl::string_view what, int step, int steps) const {
    if (on_) absl::FPrintF(stderr, "\r\x1b[K%s %d/%d", what, step, steps);
  }

 private:
  const bool on_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_PROGRESS_H_
