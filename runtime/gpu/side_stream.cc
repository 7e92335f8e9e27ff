#include "runtime/gpu/side_stream.h"

#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

SideStream& SideStream::operator=(SideStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(fork_, other.fork_);
  std::swap(join_, other.join_);
  return *this;
}

SideStream::~SideStream() {
  if (stream_ != nullptr) static_cast<void>(hipStreamDestroy(stream_));
}

absl::StatusOr<SideStream> SideStream::Create() {
  SideStream side;
  OCTET_RETURN_IF_GPU_ERROR(hipStreamCreateWithFlags(&side.stream_, hipStreamNonBlocking));
  OCTET_ASSIGN_OR_RETURN(side.fork_, ScopedEvent::Create());
  OCTET_ASSIGN_OR_RETURN(side.join_, ScopedEvent::Create());
  return side;
}

absl::Status SideStream::Join(const Rank& rank) {
  OCTET_RETURN_IF_ERROR(join_.Record(stream_));
  return join_.Hold(rank.stream());
}

void SideStream::Abandon() {
  stream_ = nullptr;
  fork_.Abandon();
  join_.Abandon();
}

}  // namespace octet
